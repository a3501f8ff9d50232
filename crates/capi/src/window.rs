//! Chapter "windows": memory of every rank under one handle.
//!
//! A handle points to a struct that programs read: where the window lies in the flat range of the LSA team.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use crate::abi::*;
use crate::device_abi::ncclWindow_vidmem;
use crate::entry::{Failure, Outcome, clear, non_null, remember, write_out};
use crate::handle::{self, InUse, check_known};
use crate::lifecycle;
use oxccl_runtime::Window;

/// A window that C has a handle of.
pub(crate) struct Registered {
    shown: Box<ncclWindow_vidmem>,
    pub(crate) window: Arc<Window>,
}

// SAFETY: the pointers inside are values for the program; this library follows none of them.
unsafe impl Send for Registered {}
// SAFETY: as above; the struct is never changed.
unsafe impl Sync for Registered {}

/// All live handles, for the functions that get no communicator.
static HANDLES: RwLock<BTreeMap<usize, Arc<Registered>>> = RwLock::new(BTreeMap::new());

impl Registered {
    fn new(window: Arc<Window>) -> Registered {
        let lsa = window.lsa_team();
        let shown = ncclWindow_vidmem {
            winHost: Arc::as_ptr(&window).cast_mut().cast(),
            lsaFlatBase: window.lsa_part(0).unwrap_or(std::ptr::null_mut()),
            lsaRank: lsa.rank as c_int,
            worldRank: window.rank() as c_int,
            stride4G: (window.stride() >> 32) as u32,
            mcOffset4K: 0,
            ginOffset4K: 0,
            ginWins: [std::ptr::null_mut(); 4],
        };
        Registered { shown: Box::new(shown), window }
    }

    /// What C gets.
    pub(crate) fn handle(&self) -> ncclWindow_t {
        (&raw const *self.shown).cast_mut().cast()
    }

    pub(crate) fn shown(&self) -> ncclWindow_vidmem {
        *self.shown
    }

    /// Whether the `bytes` bytes at `address` are this rank's part of the window, or of it.
    pub(crate) fn holds(&self, address: usize, bytes: usize) -> bool {
        let begin = self.window.user_ptr().addr();
        address >= begin && address.checked_add(bytes).is_some_and(|end| end <= begin + self.window.bytes())
    }
}

/// Makes a handle of `window`, which belongs to `comm`.
pub(crate) fn adopt(comm: &InUse, window: Arc<Window>) -> Arc<Registered> {
    let registered = Arc::new(Registered::new(window));
    comm.windows().push(registered.clone());
    HANDLES.write().unwrap_or_else(PoisonError::into_inner).insert(registered.handle().addr(), registered.clone());
    registered
}

/// Forgets handles.
pub(crate) fn forget(windows: &[Arc<Registered>]) {
    let mut handles = HANDLES.write().unwrap_or_else(PoisonError::into_inner);
    for w in windows {
        handles.remove(&w.handle().addr());
    }
}

/// The window of any communicator behind a handle.
pub(crate) fn lookup(op: &str, window: ncclWindow_t) -> Outcome<Arc<Registered>> {
    non_null(op, "window", window)?;
    let found = HANDLES.read().unwrap_or_else(PoisonError::into_inner).get(&window.addr()).cloned();
    found.ok_or_else(|| unknown(op, window))
}

/// The window of `comm` behind a handle.
pub(crate) fn own(op: &str, comm: &InUse, window: ncclWindow_t) -> Outcome<Arc<Registered>> {
    let found = comm.windows().iter().find(|w| w.handle() == window).cloned();
    found.ok_or_else(|| unknown(op, window))
}

#[cold]
fn unknown(op: &str, window: ncclWindow_t) -> Failure {
    Failure::argument(format!(
        "{op} : window {window:p} is no window of this communicator; it was not made by ncclCommWindowRegister, or was \
         deregistered before"
    ))
}

/// Where C waits for a window.
struct Place(*mut ncclWindow_t, ncclComm_t);

// SAFETY: the caller promises that the place stays valid until the communicator is no longer in progress; the handle of
// the communicator is never given back to the allocator.
unsafe impl Send for Place {}

impl Place {
    fn put(self, window: Option<Arc<Window>>) {
        let Some(window) = window else { return };
        // Destroyed meanwhile: nobody is left to use the window.
        let Ok(comm) = handle::check("CommWindowRegister", self.1) else { return };
        let registered = adopt(&comm, window);
        // SAFETY: not null, and valid by the C caller's promise.
        unsafe { self.0.write_unaligned(registered.handle()) };
    }
}

pub unsafe fn comm_window_register(
    comm: ncclComm_t,
    buff: *mut c_void,
    size: usize,
    win: *mut ncclWindow_t,
    win_flags: c_int,
) -> Outcome {
    // SAFETY: the C caller's promise.
    remember(unsafe { register(comm, buff, size, win, win_flags) })
}

unsafe fn register(
    comm: ncclComm_t,
    buff: *mut c_void,
    size: usize,
    win: *mut ncclWindow_t,
    win_flags: c_int,
) -> Outcome {
    const NAME: &str = "CommWindowRegister";
    let communicator = check_known(NAME, comm)?;
    non_null(NAME, "win", win)?;
    // SAFETY: the C caller's promise.
    unsafe { clear(win) };
    if buff.is_null() || size == 0 {
        return Err(Failure::argument(format!("ncclCommWindowRegister: invalid pointer {buff:p} / size {size}")));
    }
    let place = Place(win, comm);
    // Flags are not validated, as in the original.
    communicator.register_window(buff.cast(), size, win_flags as u32, Box::new(move |w| place.put(w)))?;
    lifecycle::progress(&communicator)
}

/// The null window is what callers without windows hold; giving it back succeeds, as in the original.
pub unsafe fn comm_window_deregister(comm: ncclComm_t, win: ncclWindow_t) -> Outcome {
    const NAME: &str = "CommWindowDeregister";
    let communicator = check_known(NAME, comm)?;
    if win.is_null() {
        return Ok(());
    }
    discard(NAME, &communicator, win)
}

/// Ends a window of `communicator`.
pub(crate) fn discard(name: &str, communicator: &InUse, win: ncclWindow_t) -> Outcome {
    let window = own(name, communicator, win)?;
    communicator.windows().retain(|w| !Arc::ptr_eq(w, &window));
    forget(std::slice::from_ref(&window));
    Ok(communicator.deregister_window(&window.window)?)
}

pub unsafe fn win_get_user_ptr(comm: ncclComm_t, win: ncclWindow_t, out_user_ptr: *mut *mut c_void) -> Outcome {
    const NAME: &str = "WinGetUserPtr";
    // SAFETY: the C caller's promise.
    unsafe { clear(out_user_ptr) };
    let communicator = check_known(NAME, comm)?;
    non_null(NAME, "win", win)?;
    non_null(NAME, "outUserPtr", out_user_ptr)?;
    let window = own(NAME, &communicator, win)?;
    // SAFETY: the C caller's promise.
    unsafe { write_out(NAME, "outUserPtr", out_user_ptr, window.window.user_ptr().cast()) }
}
