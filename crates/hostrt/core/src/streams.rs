//! Streams, host functions and callbacks.

use oxccl_hostrt_interface::{Status, StreamInfo, status};

use crate::entry::{put, stream};
use crate::host::host;
use crate::{c_int, c_uint, c_ulonglong, c_void};

/// Streams of the greatest and of the least priority; they are served alike.
const PRIORITIES: std::ops::RangeInclusive<c_int> = -5..=0;

pub unsafe fn create(out: *mut *mut c_void) -> Status {
    host!(stream_create(1, 0, out))
}

pub unsafe fn create_with_flags(out: *mut *mut c_void, flags: c_uint) -> Status {
    // SAFETY: the caller's promise.
    unsafe { create_with_priority(out, flags, 0) }
}

pub unsafe fn create_with_priority(out: *mut *mut c_void, flags: c_uint, priority: c_int) -> Status {
    if flags > 1 {
        return status::INVALID_VALUE;
    }
    let priority = priority.clamp(*PRIORITIES.start(), *PRIORITIES.end());
    host!(stream_create(c_int::from(flags == 0), priority, out))
}

pub unsafe fn priority_range(least: *mut c_int, greatest: *mut c_int) -> Status {
    for (to, value) in [(least, *PRIORITIES.end()), (greatest, *PRIORITIES.start())] {
        if !to.is_null() {
            // SAFETY: not null, hence valid by the caller's promise.
            unsafe { to.write(value) };
        }
    }
    status::SUCCESS
}

pub unsafe fn destroy(s: *mut c_void) -> Status {
    host!(stream_destroy(s))
}

pub unsafe fn synchronize(s: *mut c_void) -> Status {
    host!(stream_synchronize(stream(s)))
}

pub unsafe fn query(s: *mut c_void) -> Status {
    host!(stream_query(stream(s)))
}

pub unsafe fn wait_event(s: *mut c_void, event: *mut c_void, flags: c_uint) -> Status {
    if flags > 1 {
        return status::INVALID_VALUE;
    }
    host!(stream_wait_event(stream(s), event, flags as c_int))
}

/// One figure of a stream.
///
/// # Safety
/// `to` is null or valid for writing.
unsafe fn figure<T>(s: *mut c_void, to: *mut T, of: impl FnOnce(&StreamInfo) -> T) -> Status {
    let mut info = StreamInfo::default();
    match host!(stream_info(stream(s), &mut info)) {
        // SAFETY: the caller's promise.
        status::SUCCESS => unsafe { put(to, of(&info)) },
        failure => failure,
    }
}

pub unsafe fn get_flags(s: *mut c_void, flags: *mut c_uint) -> Status {
    // SAFETY: the caller's promise.
    unsafe { figure(s, flags, |i| c_uint::from(i.blocking == 0)) }
}

pub unsafe fn get_priority(s: *mut c_void, priority: *mut c_int) -> Status {
    // SAFETY: the caller's promise.
    unsafe { figure(s, priority, |i| i.priority) }
}

pub unsafe fn get_device(s: *mut c_void, device: *mut c_int) -> Status {
    // SAFETY: the caller's promise.
    unsafe { figure(s, device, |i| i.device) }
}

pub unsafe fn get_id(s: *mut c_void, id: *mut c_ulonglong) -> Status {
    // SAFETY: the caller's promise.
    unsafe { figure(s, id, |i| i.number) }
}

/// The attributes of streams that mean something here, by the numbers of `cudaLaunchAttributeID`.
const SYNCHRONIZATION: c_int = 3;
const PRIORITY: c_int = 8;

/// Attributes that streams have at all: access window, synchronisation, priority, synchronisation domains.
fn is_attribute(id: c_int) -> bool {
    matches!(id, 1 | SYNCHRONIZATION | PRIORITY | 9 | 10)
}

/// `cudaLaunchAttributeValue`: 64 bytes.
pub unsafe fn get_attribute(s: *mut c_void, id: c_int, value: *mut [c_int; 16]) -> Status {
    let mut info = StreamInfo::default();
    match host!(stream_info(stream(s), &mut info)) {
        status::SUCCESS if is_attribute(id) => {}
        status::SUCCESS => return status::INVALID_VALUE,
        failure => return failure,
    }
    let mut found = [0; 16];
    found[0] = match id {
        SYNCHRONIZATION => 1,
        PRIORITY => info.priority,
        _ => 0,
    };
    // SAFETY: the caller's promise.
    unsafe { put(value, found) }
}

/// Accepted and without effect: they are hints to a GPU.
pub unsafe fn set_attribute(s: *mut c_void, id: c_int, value: *const [c_int; 16]) -> Status {
    let mut info = StreamInfo::default();
    match host!(stream_info(stream(s), &mut info)) {
        status::SUCCESS if is_attribute(id) && !value.is_null() => status::SUCCESS,
        status::SUCCESS => status::INVALID_VALUE,
        failure => failure,
    }
}

pub unsafe fn copy_attributes(to: *mut c_void, from: *mut c_void) -> Status {
    let mut info = StreamInfo::default();
    match host!(stream_info(stream(to), &mut info)) {
        status::SUCCESS => host!(stream_info(stream(from), &mut info)),
        failure => failure,
    }
}

/// A function for a stream.
pub type HostFn = Option<unsafe extern "C" fn(*mut c_void)>;

pub unsafe fn launch_host_func(s: *mut c_void, function: HostFn, data: *mut c_void) -> Status {
    let Some(function) = function else { return status::INVALID_VALUE };
    host!(stream_call(stream(s), function, data))
}

pub unsafe fn launch_host_func_v2(s: *mut c_void, function: HostFn, data: *mut c_void, _sync: c_uint) -> Status {
    // SAFETY: the caller's promise.
    unsafe { launch_host_func(s, function, data) }
}

/// The older kind of host function.
pub type Callback = Option<unsafe extern "C" fn(*mut c_void, c_int, *mut c_void)>;

struct CallbackArgs {
    stream: *mut c_void,
    callback: unsafe extern "C" fn(*mut c_void, c_int, *mut c_void),
    data: *mut c_void,
}

unsafe extern "C" fn run_callback(args: *mut c_void) {
    // SAFETY: the box made by `add_callback`, given to the stream once; captures are refused there.
    let args = unsafe { Box::from_raw(args.cast::<CallbackArgs>()) };
    // SAFETY: the caller promised that the callback may be called once on any thread.
    unsafe { (args.callback)(args.stream, status::SUCCESS, args.data) };
}

pub unsafe fn add_callback(s: *mut c_void, callback: Callback, data: *mut c_void, flags: c_uint) -> Status {
    let Some(callback) = callback.filter(|_| flags == 0) else { return status::INVALID_VALUE };
    let target = stream(s);
    if crate::memory::capturing(s) {
        return status::CAPTURE_UNSUPPORTED;
    }
    let args = Box::into_raw(Box::new(CallbackArgs { stream: s, callback, data }));
    let answer = host!(stream_call(target, run_callback, args.cast()));
    if answer != status::SUCCESS {
        // SAFETY: nobody took the box.
        drop(unsafe { Box::from_raw(args) });
    }
    answer
}

/// The device itself, not an error; -1 for what is no stream.
pub unsafe fn device_of(s: *mut c_void) -> c_int {
    let mut device = -1;
    // SAFETY: our own place.
    let _ = unsafe { get_device(s, &mut device) };
    device
}
