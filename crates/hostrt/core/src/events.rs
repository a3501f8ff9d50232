//! Events.

use oxccl_hostrt_interface::{IpcHandle, Status, status};

use crate::entry::stream;
use crate::host::host;
use crate::{c_int, c_uint, c_void};

/// All flags that either runtime knows; a host device needs none of them.
const FLAGS: c_uint = 0x7 | 0x2000_0000 | 0x4000_0000 | 0x8000_0000;

const DISABLE_TIMING: c_uint = 2;
const INTERPROCESS: c_uint = 4;

pub unsafe fn create(event: *mut *mut c_void) -> Status {
    host!(event_create(1, 0, event))
}

/// An event for several processes has no timing, and the caller has to say so.
pub unsafe fn create_with_flags(event: *mut *mut c_void, flags: c_uint) -> Status {
    let (timing, interprocess) = (flags & DISABLE_TIMING == 0, flags & INTERPROCESS != 0);
    if flags & !FLAGS != 0 || (timing && interprocess) {
        return status::INVALID_VALUE;
    }
    host!(event_create(c_int::from(timing), c_int::from(interprocess), event))
}

pub unsafe fn record(event: *mut c_void, s: *mut c_void) -> Status {
    host!(event_record(event, stream(s), 0))
}

pub unsafe fn record_with_flags(event: *mut c_void, s: *mut c_void, flags: c_uint) -> Status {
    if flags > 1 {
        return status::INVALID_VALUE;
    }
    host!(event_record(event, stream(s), flags as c_int))
}

pub unsafe fn ipc_get(handle: *mut IpcHandle, event: *mut c_void) -> Status {
    host!(event_export(event, handle))
}

pub unsafe fn ipc_open(event: *mut *mut c_void, handle: crate::memory::Handle) -> Status {
    host!(event_open((&raw const handle).cast(), event))
}

pub unsafe fn query(event: *mut c_void) -> Status {
    host!(event_query(event))
}

pub unsafe fn synchronize(event: *mut c_void) -> Status {
    host!(event_synchronize(event))
}

pub unsafe fn elapsed_time(ms: *mut f32, start: *mut c_void, end: *mut c_void) -> Status {
    host!(event_elapsed(start, end, ms))
}

pub unsafe fn destroy(event: *mut c_void) -> Status {
    host!(event_destroy(event))
}
