//! The handles by which C names streams: how they are made, found and destroyed.

use std::cell::Cell;
use std::ffi::c_void;

use super::*;

/// Streams that a thread finds without looking into the list of all, a power of two. Far more than a thread uses: two of them
/// that share a place by their addresses drive each other out with each call.
const LAST_USED: usize = 1 << LAST_BITS;
const LAST_BITS: u32 = 6;

impl Stream {
    /// Registers a handle for C. Never null.
    pub fn into_raw(self) -> *mut c_void {
        let raw = Arc::as_ptr(&self.0) as *mut c_void;
        lock(handles()).push(self);
        raw
    }

    /// The stream behind a C handle; null and 1 are the default stream of the current device, 2 is that device's default
    /// stream of the calling thread.
    /// `InvalidArgument` for a handle that is not one of ours.
    pub fn from_raw(handle: *mut c_void) -> Result<Stream> {
        if handle.addr() <= 2 {
            return Ok(Stream::special_of(super::super::current(), handle));
        }
        Stream::with_raw(handle, Clone::clone)
    }

    /// The stream of `device` that null, 1 or 2 stands for: its default stream, and that of the calling thread there. Calls of a communicator
    /// mean its device, whatever the current one is.
    pub fn special_of(device: usize, handle: *mut c_void) -> Stream {
        if handle.addr() == 2 { order::per_thread(device) } else { Stream::default_of(device) }
    }

    /// Calls `f` with the stream behind a C handle, as [`from_raw`](Self::from_raw) finds it. The streams that a thread
    /// used last cost neither a lock nor a count.
    #[inline]
    pub fn with_raw<R>(handle: *mut c_void, f: impl FnOnce(&Stream) -> R) -> Result<R> {
        Stream::with_raw_or(handle, || Stream::from_raw(handle), f)
    }

    /// As [`with_raw`](Self::with_raw), with the stream that `special` gives in place of those that null, 1 and 2 stand for.
    #[inline(always)]
    pub fn with_raw_or<R>(
        handle: *mut c_void,
        special: impl FnOnce() -> Result<Stream>,
        f: impl FnOnce(&Stream) -> R,
    ) -> Result<R> {
        thread_local! {
            static LAST: [Cell<Option<Stream>>; LAST_USED] = const { [const { Cell::new(None) }; LAST_USED] };
        }
        let at = handle.addr().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (usize::BITS - LAST_BITS);
        // Taken out while it is used, since `f` may come here again. A thread that ends may have no such place any more.
        let stream = match LAST.try_with(|places| places[at].take()).unwrap_or_default() {
            // Destroyed streams are known by their mark.
            Some(s) if s.is_behind(handle) && !s.0.closed.load(Ordering::Acquire) => s,
            other if handle.addr() <= 2 => {
                let _ = LAST.try_with(|places| places[at].set(other));
                special()?
            }
            _ => Stream::find(handle)?,
        };
        // Called in one place, so that it is compiled into the caller.
        let result = f(&stream);
        if stream.is_behind(handle) {
            let _ = LAST.try_with(|places| places[at].set(Some(stream)));
        }
        Ok(result)
    }

    #[cold]
    fn find(handle: *mut c_void) -> Result<Stream> {
        let list = lock(handles());
        list.iter().find(|s| s.is_behind(handle)).cloned().ok_or_else(|| unknown(handle))
    }

    /// `InvalidArgument` for a stream whose handle was destroyed.
    #[inline]
    pub(crate) fn check_open(&self) -> Result<()> {
        match self.0.closed.load(Ordering::Acquire) {
            true => Err(unknown(Arc::as_ptr(&self.0).cast_mut().cast())),
            false => Ok(()),
        }
    }

    fn is_behind(&self, handle: *mut c_void) -> bool {
        std::ptr::addr_eq(Arc::as_ptr(&self.0), handle)
    }

    /// Finishes the queued work, then forgets the C handle. `InvalidArgument` for the default stream.
    pub fn destroy_raw(handle: *mut c_void) -> Result<()> {
        if handle.addr() <= 2 {
            return Err(Error::argument("the default stream cannot be destroyed"));
        }
        let stream = Stream::from_raw(handle)?;
        stream.abandon_capture();
        let result = stream.synchronize();
        stream.forget_raw();
        helper::unregister(&stream.0);
        order::closed(&stream.0.order);
        result
    }

    /// Forgets the C handle at once; the queued work is done all the same, and its errors are nobody's. `InvalidArgument` for the
    /// default stream.
    pub fn release_raw(handle: *mut c_void) -> Result<()> {
        if handle.addr() <= 2 {
            return Err(Error::argument("the default stream cannot be destroyed"));
        }
        let stream = Stream::from_raw(handle)?;
        stream.abandon_capture();
        stream.forget_raw();
        order::leave([stream]);
        Ok(())
    }

    fn forget_raw(&self) {
        self.0.closed.store(true, Ordering::Release);
        lock(handles()).retain(|s| !Arc::ptr_eq(&s.0, &self.0));
    }
}

fn handles() -> &'static Mutex<Vec<Stream>> {
    static HANDLES: Mutex<Vec<Stream>> = Mutex::new(Vec::new());
    &HANDLES
}

#[cold]
fn unknown(handle: *mut c_void) -> Error {
    Error::argument(format!(
        "stream {handle:p} is no stream of this library: it was destroyed, or belongs to another runtime"
    ))
}
