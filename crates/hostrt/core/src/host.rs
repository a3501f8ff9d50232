//! Finds the host device: the table that `libnccl.so.2` or `librccl.so.1` exports.
//!
//! The library that the process has loaded already is taken, else the one beside this library, else the loader's choice.

use std::ffi::{CStr, CString, c_int, c_void};
use std::sync::OnceLock;

use oxccl_hostrt_interface::{HostInterface, SYMBOL, VERSION};

type Getter = unsafe extern "C" fn(c_int) -> *const HostInterface;

const NAMES: [&CStr; 2] = [c"libnccl.so.2", c"librccl.so.1"];

/// The host device; `None` when no library of oxccl can be found, which is said once on the standard error.
pub(crate) fn device() -> Option<&'static HostInterface> {
    static TABLE: OnceLock<Option<&'static HostInterface>> = OnceLock::new();
    *TABLE.get_or_init(|| {
        let found = find();
        if found.is_none() {
            eprintln!(
                "oxccl: the host implementation of the CUDA and HIP runtimes needs libnccl.so.2 or librccl.so.1 of oxccl \
                 in this process, beside its own folder or on the loader's path; none was found, or it is another \
                 library of that name or version. Run the program with `oxccl run -- PROGRAM`, or check LD_LIBRARY_PATH"
            );
        }
        found
    })
}

fn find() -> Option<&'static HostInterface> {
    // SAFETY: a null-terminated name.
    let global = unsafe { libc::dlsym(libc::RTLD_DEFAULT, SYMBOL.as_ptr()) };
    if let Some(table) = table(global) {
        return Some(table);
    }
    let loaded = NAMES.iter().filter_map(|n| open(n, libc::RTLD_NOLOAD));
    let beside = folder().into_iter().flat_map(|f| NAMES.map(|n| (f.clone(), n))).filter_map(|(mut path, name)| {
        path.extend_from_slice(b"/../");
        path.extend_from_slice(name.to_bytes());
        open(&CString::new(path).ok()?, 0)
    });
    let anywhere = NAMES.iter().filter_map(|n| open(n, 0));
    loaded.chain(beside).chain(anywhere).find_map(|library| {
        // SAFETY: a handle of `dlopen`, never closed, and a null-terminated name.
        table(unsafe { libc::dlsym(library.as_ptr(), SYMBOL.as_ptr()) })
    })
}

fn open(name: &CStr, more: c_int) -> Option<std::ptr::NonNull<c_void>> {
    // SAFETY: a null-terminated name; loading runs no code but the library's own start.
    std::ptr::NonNull::new(unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL | more) })
}

fn table(symbol: *mut c_void) -> Option<&'static HostInterface> {
    if symbol.is_null() {
        return None;
    }
    // SAFETY: only oxccl exports this name, with this signature.
    let get = unsafe { std::mem::transmute::<*mut c_void, Getter>(symbol) };
    // SAFETY: it returns null or a table that lives as long as the process.
    let table = unsafe { get(VERSION).as_ref() }?;
    (table.size >= size_of::<HostInterface>()).then_some(table)
}

/// The folder of this library.
fn folder() -> Option<Vec<u8>> {
    // SAFETY: an all-zero value is valid for this struct of numbers and pointers.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: any address may be asked for; the struct is ours.
    let found = unsafe { libc::dladdr(folder as *const c_void, &mut info) };
    if found == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the loader's name of the library, which stays loaded.
    let path = unsafe { CStr::from_ptr(info.dli_fname) }.to_bytes();
    let end = path.iter().rposition(|b| *b == b'/')?;
    Some(path[..end].to_vec())
}

/// Calls a function of the table; without a host device there is none (`cudaErrorNoDevice`).
macro_rules! host {
    ($name:ident($($arg:expr),*)) => {
        match $crate::host::device() {
            // SAFETY: the C caller's promises are those that the table asks for.
            #[allow(unused_unsafe)]
            Some(table) => unsafe { (table.$name)($($arg),*) },
            None => 100,
        }
    };
}
pub(crate) use host;
