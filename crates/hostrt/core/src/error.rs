//! Errors: the last one of each thread, names and words.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::sync::OnceLock;

use oxccl_hostrt_interface::{Status, status};

use crate::{c_char, c_int};

thread_local! {
    static LAST: Cell<Status> = const { Cell::new(0) };
}

/// Keeps a failure for `GetLastError`. "Not ready" is an answer, no failure.
pub(crate) fn remember(answer: Status) {
    if answer != status::SUCCESS && answer != status::NOT_READY {
        LAST.set(answer);
    }
}

/// The last failure of the thread, which is then forgotten.
pub unsafe fn get_last() -> c_int {
    LAST.replace(0)
}

/// The last failure of the thread.
pub unsafe fn peek_at_last() -> c_int {
    LAST.get()
}

/// Names without the vendor's prefix.
const NAMES: &str = include_str!("../../names/errors.txt");

/// Where HIP has another name than CUDA.
const HIP: &[(Status, &str)] = &[
    (2, "ErrorOutOfMemory"),
    (3, "ErrorNotInitialized"),
    (4, "ErrorDeinitialized"),
    (200, "ErrorInvalidImage"),
    (201, "ErrorInvalidContext"),
    (214, "ErrorECCNotCorrectable"),
    (216, "ErrorContextAlreadyInUse"),
    (218, "ErrorInvalidKernelFile"),
    (702, "ErrorLaunchTimeOut"),
    (912, "ErrorInvalidTexture"),
    (205, "ErrorMapFailed"),
    (206, "ErrorUnmapFailed"),
    (209, "ErrorNoBinaryForGpu"),
    (400, "ErrorInvalidHandle"),
    (500, "ErrorNotFound"),
    (911, "ErrorInvalidChannelDescriptor"),
];

/// Where the words are not simply those of the name.
const WORDS: &[(Status, &str)] = &[
    (0, "no error"),
    (1, "invalid argument"),
    (2, "out of memory"),
    (100, "no host device was found (is libnccl.so.2 of oxccl on the loader's path?)"),
    (101, "invalid device ordinal"),
    (205, "memory of the other process cannot be mapped"),
    (400, "invalid resource handle"),
    (600, "device not ready"),
    (719, "work on the stream failed (ncclGetLastError and ncclCommGetAsyncError say more)"),
    (801, "operation not supported on host devices"),
    (900, "operation not permitted while the stream is capturing"),
    (901, "the capture was invalidated by an earlier error"),
    (904, "work was captured on streams that do not lead back to the first"),
    (910, "the graphs differ in shape"),
];

type Texts = BTreeMap<Status, (CString, CString)>;

fn texts(prefix: &str) -> Texts {
    let mut all = Texts::new();
    for line in NAMES.lines() {
        let Some((name, number)) = line.split_once(' ') else { continue };
        let Ok(number) = number.parse() else { continue };
        let hip = HIP.iter().find(|h| prefix == "hip" && h.0 == number);
        let name = hip.map_or(name, |h| h.1);
        let words = WORDS.iter().find(|w| w.0 == number).map_or_else(|| words_of(name), |w| w.1.to_owned());
        // Neither has a zero byte.
        let text = |t: String| CString::new(t).unwrap_or_default();
        all.insert(number, (text(format!("{prefix}{name}")), text(words)));
    }
    all
}

/// `ErrorInvalidValue` -> `invalid value`.
fn words_of(name: &str) -> String {
    let mut words = String::new();
    let mut before = ' ';
    for c in name.trim_start_matches("Error").chars() {
        if c.is_uppercase() && before.is_lowercase() {
            words.push(' ');
        }
        before = c;
        words.extend(c.to_lowercase());
    }
    words
}

fn cuda() -> &'static Texts {
    static TEXTS: OnceLock<Texts> = OnceLock::new();
    TEXTS.get_or_init(|| texts("cuda"))
}

fn hip() -> &'static Texts {
    static TEXTS: OnceLock<Texts> = OnceLock::new();
    TEXTS.get_or_init(|| texts("hip"))
}

/// `cudaGetErrorName`.
pub unsafe fn cuda_name(error: c_int) -> *const c_char {
    cuda().get(&error).map_or(c"unrecognized error code".as_ptr(), |t| t.0.as_ptr())
}

/// `cudaGetErrorString`.
pub unsafe fn cuda_words(error: c_int) -> *const c_char {
    cuda().get(&error).map_or(c"unrecognized error code".as_ptr(), |t| t.1.as_ptr())
}

/// `hipGetErrorName`.
pub unsafe fn hip_name(error: c_int) -> *const c_char {
    hip().get(&error).map_or(c"hipErrorUnknown".as_ptr(), |t| t.0.as_ptr())
}

/// `hipGetErrorString`.
pub unsafe fn hip_words(error: c_int) -> *const c_char {
    hip().get(&error).map_or(c"unrecognized error code".as_ptr(), |t| t.1.as_ptr())
}

/// `hipDrvGetErrorName`.
pub unsafe fn hip_name_at(error: c_int, to: *mut *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { crate::entry::put(to, hip_name(error)) }
}

/// `hipDrvGetErrorString`.
pub unsafe fn hip_words_at(error: c_int, to: *mut *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { crate::entry::put(to, hip_words(error)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_words() {
        let c = |n| cuda().get(&n).map(|t| (t.0.to_str().unwrap(), t.1.to_str().unwrap()));
        assert_eq!(c(0), Some(("cudaSuccess", "no error")));
        assert_eq!(c(1), Some(("cudaErrorInvalidValue", "invalid argument")));
        assert_eq!(c(704), Some(("cudaErrorPeerAccessAlreadyEnabled", "peer access already enabled")));
        assert_eq!(hip().get(&2).unwrap().0.to_str().unwrap(), "hipErrorOutOfMemory");
        assert!(cuda().len() > 120);
    }
}
