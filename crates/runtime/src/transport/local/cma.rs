//! Reading the memory of another process through the kernel: the probe at set-up, and the texts of failures.

use std::io;

use oxccl_types::Error;

use crate::transport::Peer;

/// Whether this process may read process `pid`: it finds `expected` at address `at` there. The peer keeps a word of
/// its choice at a fixed address for the time of the probe. A wrong word means that `pid` names another process here
/// (another pid namespace).
pub fn probe_cma(pid: u32, at: u64, expected: u64) -> bool {
    let mut word = 0u64;
    // SAFETY: `word` is eight writable bytes of our own.
    unsafe { oxccl_sys::cma::read(pid, (&raw mut word).cast(), at, 8) }.is_ok() && word == expected
}

/// The error of a failed read of `len` bytes of `peer`.
#[cold]
pub(super) fn explain(peer: &Peer, len: usize, e: &io::Error) -> Error {
    let what = format!("receiving {len} bytes from {peer}: {e}");
    match e.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported => {
            Error::system(format!("{what}; the system forbids it now though it was allowed when the peers connected"))
        }
        _ => Error::remote(format!(
            "{what}; the peer has ended (look at its output), or its buffer was freed before the operation was done, or is memory that \
             the kernel does not copy (of a device, or secret): OXCCL_P2P=shm does without"
        )),
    }
}
