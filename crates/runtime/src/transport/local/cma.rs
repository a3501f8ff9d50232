//! Reading the memory of another process through the kernel.

use std::io;

use oxccl_types::Error;

use crate::transport::Peer;

/// Copy `len` bytes at `src` in process `pid` to `dst`.
///
/// # Safety
/// `dst` is writable for `len` bytes and nobody else uses it.
pub(super) unsafe fn read(pid: u32, src: *const u8, dst: *mut u8, len: usize) -> io::Result<()> {
    let mut done = 0;
    while done < len {
        let local = libc::iovec { iov_base: dst.wrapping_add(done).cast(), iov_len: len - done };
        let remote = libc::iovec { iov_base: src.wrapping_add(done).cast_mut().cast(), iov_len: len - done };
        // SAFETY: the local side is writable by contract; the kernel checks the remote side.
        match unsafe { libc::process_vm_readv(pid as libc::pid_t, &local, 1, &remote, 1, 0) } {
            -1 => {
                let e = io::Error::last_os_error();
                if e.kind() != io::ErrorKind::Interrupted {
                    return Err(e);
                }
            }
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => done += n as usize,
        }
    }
    Ok(())
}

/// Whether this process may read process `pid`: it finds `expected` at address `at` there. The peer keeps a word of
/// its choice at a fixed address for the time of the probe. A wrong word means that `pid` names another process here
/// (another pid namespace).
pub fn probe_cma(pid: u32, at: u64, expected: u64) -> bool {
    let mut word = 0u64;
    // SAFETY: `word` is eight writable bytes.
    unsafe { read(pid, at as *const u8, (&raw mut word).cast(), 8) }.is_ok() && word == expected
}

/// The error of a failed read.
#[cold]
pub(super) fn explain(peer: &Peer, pid: u32, len: usize, e: &io::Error) -> Error {
    let what = format!("reading {len} bytes in the memory of {peer}, process {pid} (process_vm_readv): {e}");
    match e.raw_os_error() {
        Some(libc::ESRCH) => Error::remote(format!("{what}; the process has ended: look at its output")),
        Some(libc::EFAULT) => {
            Error::remote(format!("{what}; the peer freed its buffer before the operation was done, or is ending"))
        }
        _ => Error::system(format!("{what}; the system forbids it now though it was allowed at the start")),
    }
}
