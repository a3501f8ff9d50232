//! Reading and writing the memory of another process of the same user (cross-memory attach).

use std::io;

/// The kernel moves at most this much per call; larger transfers are split so that partial ones stay cheap to resume.
const MOST: usize = 1 << 30;

/// Copies `len` bytes at address `remote` of process `pid` to `local`.
///
/// # Safety
/// `local` is valid for writes of `len` bytes and nobody else accesses them meanwhile.
///
/// # Errors
/// A text that names the process and the likely cause.
pub unsafe fn read(pid: u32, local: *mut u8, remote: u64, len: usize) -> io::Result<()> {
    transfer(pid, local, remote, len, "read", |pid, l, r| {
        // SAFETY: `l` lies in the caller's buffer; the kernel checks `r`.
        unsafe { libc::process_vm_readv(pid, l, 1, r, 1, 0) }
    })
}

/// Copies `len` bytes at `local` to address `remote` of process `pid`.
///
/// # Safety
/// `local` is valid for reads of `len` bytes and nobody writes to them meanwhile; nobody in the other process holds a
/// reference to the bytes written.
///
/// # Errors
/// A text that names the process and the likely cause.
pub unsafe fn write(pid: u32, local: *const u8, remote: u64, len: usize) -> io::Result<()> {
    transfer(pid, local.cast_mut(), remote, len, "write", |pid, l, r| {
        // SAFETY: `l` lies in the caller's buffer and is only read; the kernel checks `r`.
        unsafe { libc::process_vm_writev(pid, l, 1, r, 1, 0) }
    })
}

/// Whether the system lets this process write another's memory at all: tried once, with its own.
pub fn may_write() -> bool {
    static MAY: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *MAY.get_or_init(|| {
        let (from, mut to) = (1_u8, 0_u8);
        // SAFETY: one byte of this function is read and another written, through a pointer made for it.
        let written = unsafe { write(std::process::id(), &raw const from, (&raw mut to).addr() as u64, 1) };
        written.is_ok()
    })
}

/// Whether this process can read process `pid`: reads one byte at `address`, which must be readable there.
///
/// # Errors
/// A text that says why not.
pub fn probe(pid: u32, address: u64) -> io::Result<u8> {
    let mut byte = 0;
    // SAFETY: one byte of our own.
    unsafe { read(pid, &raw mut byte, address, 1)? };
    Ok(byte)
}

fn transfer(
    pid: u32,
    local: *mut u8,
    remote: u64,
    len: usize,
    verb: &str,
    call: impl Fn(libc::pid_t, *const libc::iovec, *const libc::iovec) -> isize,
) -> io::Result<()> {
    let id = libc::pid_t::try_from(pid).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let mut done = 0;
    while done < len {
        let part = (len - done).min(MOST);
        let ours = libc::iovec { iov_base: local.wrapping_add(done).cast(), iov_len: part };
        let address = remote.wrapping_add(done as u64) as usize;
        let theirs = libc::iovec { iov_base: std::ptr::without_provenance_mut(address), iov_len: part };
        match call(id, &raw const ours, &raw const theirs) {
            0 => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, format!("cannot {verb} process {pid}"))),
            n if n > 0 => done += n as usize,
            _ => {
                let error = io::Error::last_os_error();
                if error.raw_os_error() != Some(libc::EINTR) {
                    return Err(explain(error, pid, verb));
                }
            }
        }
    }
    Ok(())
}

fn explain(error: io::Error, pid: u32, verb: &str) -> io::Error {
    let cause = match error.raw_os_error() {
        Some(libc::ESRCH) => "it has ended",
        Some(libc::EPERM) => {
            "not permitted: other user, or kernel.yama.ptrace_scope above 0, or a container without CAP_SYS_PTRACE"
        }
        Some(libc::ENOSYS) => "this kernel or sandbox has no process_vm_readv",
        Some(libc::EFAULT) => "an address of the transfer is not mapped",
        _ => "",
    };
    io::Error::new(error.kind(), format!("cannot {verb} memory of process {pid}: {error}; {cause}"))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes_itself() {
        let source = vec![7_u8; 100_000];
        let mut target = vec![0_u8; 100_000];
        let me = std::process::id();
        // SAFETY: both buffers are our own and of this length.
        unsafe { read(me, target.as_mut_ptr(), source.as_ptr() as u64, 100_000).unwrap() };
        assert_eq!(source, target);
        let other = [9_u8; 64];
        // SAFETY: as above; `target` is not referenced meanwhile.
        unsafe { write(me, other.as_ptr(), target.as_mut_ptr() as u64, 64).unwrap() };
        assert_eq!(target[..65], [[9; 64].as_slice(), &[7]].concat());
    }

    #[test]
    fn errors_say_why() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let error = probe(child.id(), 4096).unwrap_err().to_string();
        assert!(error.contains("has ended") && error.contains(&child.id().to_string()), "{error}");
        let error = probe(std::process::id(), 0).unwrap_err().to_string();
        assert!(error.contains("not mapped"), "{error}");
    }
}
