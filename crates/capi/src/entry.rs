//! The border between C and Rust: catches panics, turns failures into result codes, keeps the last error's text.
//!
//! Logging rule: whoever decides an error logs it. Failures made in this crate are logged here, when they cross the
//! border; failures of the runtime are logged only if their text is not already the last one stored.

use crate::abi::{c_char, c_int, c_void, ncclTeam_t};
use oxccl_runtime::{group, log};
use oxccl_types::{Error, ResultCode};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

/// Which of the two libraries this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
    /// `libnccl.so.2`.
    Nccl,
    /// `librccl.so.1`.
    Rccl,
}

/// Who has logged a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Logged {
    /// Nobody yet: it was made in this crate.
    No,
    /// Perhaps the runtime.
    Perhaps,
    /// It must not be logged (again).
    Done,
}

/// A failed call.
#[derive(Clone, Debug)]
pub struct Failure {
    error: Error,
    logged: Logged,
}

/// What an implementation returns.
pub type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    /// `ncclInvalidArgument`.
    pub(crate) fn argument(text: impl Into<String>) -> Failure {
        Failure { error: Error::argument(text), logged: Logged::No }
    }

    /// `ncclInvalidUsage`.
    pub(crate) fn usage(text: impl Into<String>) -> Failure {
        Failure { error: Error::usage(text), logged: Logged::No }
    }

    /// Any other code.
    pub(crate) fn new(code: ResultCode, text: impl Into<String>) -> Failure {
        Failure { error: Error::new(code, text), logged: Logged::No }
    }

    /// The same failure, not to be logged.
    pub(crate) fn silent(mut self) -> Failure {
        self.logged = Logged::Done;
        self
    }

    /// The result code.
    pub(crate) fn code(&self) -> ResultCode {
        self.error.code
    }

    /// Logs the text unless somebody did.
    pub(crate) fn log(&self) {
        let wanted = match self.logged {
            Logged::Done => false,
            Logged::No => true,
            Logged::Perhaps => self.error.code != ResultCode::InProgress && log::last_error() != self.error.text,
        };
        match wanted {
            true if self.error.code == ResultCode::UnhandledDeviceError => log::error(&self.error.text),
            true => log::warn(&self.error.text),
            false => {}
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure { error, logged: Logged::Perhaps }
    }
}

/// Remembers a failure in the thread's group, so that the outermost `ncclGroupEnd` discards the group and returns it.
pub(crate) fn remember<T>(outcome: Outcome<T>) -> Outcome<T> {
    if let Err(failure) = &outcome
        && failure.code() != ResultCode::InProgress
        && group::depth() > 0
    {
        group::fail(&failure.error);
    }
    outcome
}

/// Makes what C gets from what an implementation returned (`T`).
pub trait Answer<T>: Sized {
    /// The answer of a call that ended.
    fn from_outcome(outcome: T) -> Self;
    /// The answer of a call that panicked.
    fn from_panic() -> Self;
}

impl Answer<Outcome> for c_int {
    #[inline]
    fn from_outcome(outcome: Outcome) -> c_int {
        match outcome {
            Ok(()) => 0,
            Err(failure) => code_of(failure),
        }
    }

    fn from_panic() -> c_int {
        ResultCode::InternalError as c_int
    }
}

#[cold]
fn code_of(failure: Failure) -> c_int {
    failure.log();
    failure.code() as c_int
}

/// Functions that return a plain value say here which one stands for a panic.
macro_rules! plain_answer {
    ($($type:ty => $on_panic:expr),*) => {$(
        impl Answer<$type> for $type {
            #[inline]
            fn from_outcome(value: $type) -> $type { value }
            fn from_panic() -> $type { $on_panic }
        }
    )*};
}
plain_answer!(() => (), c_int => -1, *const c_char => c"internal error".as_ptr(), *const c_void => std::ptr::null(), ncclTeam_t => ncclTeam_t::default());

/// Runs the body of the C function `name`.
#[inline]
pub fn call<T, R: Answer<T>>(flavour: Flavour, name: &'static str, body: impl FnOnce() -> T) -> R {
    static FLAVOUR_SET: AtomicBool = AtomicBool::new(false);
    if !FLAVOUR_SET.load(Ordering::Relaxed) {
        set_flavour(flavour);
        FLAVOUR_SET.store(true, Ordering::Relaxed);
    }
    // Unwind safety: no body leaves a half-changed value behind; what it holds are atomics and the runtime's own state.
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(outcome) => R::from_outcome(outcome),
        Err(payload) => {
            report_panic(name, payload.as_ref());
            // A payload whose drop panics must not take the process down.
            std::mem::forget(payload);
            R::from_panic()
        }
    }
}

#[cold]
fn set_flavour(flavour: Flavour) {
    log::set_flavour(match flavour {
        Flavour::Nccl => log::Flavour::Nccl,
        Flavour::Rccl => log::Flavour::Rccl,
    });
}

#[cold]
fn report_panic(name: &str, payload: &(dyn std::any::Any + Send)) {
    let words = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    let text = format!("{name} : internal error: {words}. This is a defect of oxccl; please report it");
    // The log may be what panicked.
    let _ = catch_unwind(|| log::warn(&text));
}

/// Refuses a function that is not implemented yet; says so once per function and process.
macro_rules! later {
    ($name:literal) => {{
        static SAID: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
        let first = !SAID.swap(true, std::sync::atomic::Ordering::Relaxed);
        $crate::entry::not_implemented($name, first)
    }};
}
pub(crate) use later;

/// Major and minor version of this library, for messages.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION_MAJOR"), ".", env!("CARGO_PKG_VERSION_MINOR"));

/// The failure of [`later!`].
pub(crate) fn not_implemented(name: &str, first: bool) -> Failure {
    let failure = Failure::usage(format!("{name} is not implemented yet in oxccl {VERSION}"));
    if first { failure } else { failure.silent() }
}

/// PtrCheck of the original: a null argument is refused by name.
pub(crate) fn non_null<T>(op: &str, name: &str, pointer: *const T) -> Outcome {
    if pointer.is_null() { Err(Failure::argument(format!("{op} : {name} argument is NULL"))) } else { Ok(()) }
}

/// Writes a result through a pointer of the caller, after the null check.
///
/// # Safety
/// `pointer` is null or valid for writing a `T`.
pub(crate) unsafe fn write_out<T>(op: &str, name: &str, pointer: *mut T, value: T) -> Outcome {
    non_null(op, name, pointer)?;
    // SAFETY: not null, hence valid by the caller's promise. Unaligned, because C callers pack structs.
    unsafe { pointer.write_unaligned(value) };
    Ok(())
}

/// Clears a result of the caller early, so that a failure never leaves an old handle in it.
///
/// # Safety
/// `pointer` is null or valid for writing.
pub(crate) unsafe fn clear<T>(pointer: *mut *mut T) {
    if !pointer.is_null() {
        // SAFETY: not null, hence valid by the caller's promise.
        unsafe { pointer.write_unaligned(std::ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(body: impl FnOnce() -> Outcome) -> c_int {
        call(Flavour::Nccl, "ncclTest", body)
    }

    #[test]
    fn outcomes_become_codes() {
        assert_eq!(run(|| Ok(())), 0);
        assert_eq!(run(|| Err(Failure::argument("a"))), 4);
        assert_eq!(run(|| Err(Error::new(ResultCode::InProgress, "b").into())), 7);
    }

    #[test]
    fn a_panic_becomes_an_internal_error() {
        assert_eq!(run(|| panic!("on purpose")), 3);
        let team: ncclTeam_t = call(Flavour::Nccl, "ncclTest", || -> ncclTeam_t { panic!("on purpose") });
        assert_eq!(team.nRanks, 0);
    }
}
