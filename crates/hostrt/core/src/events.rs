//! Events.

use oxccl_hostrt_interface::{Status, status};

use crate::entry::stream;
use crate::host::host;
use crate::{c_uint, c_void};

/// All flags that either runtime knows; a host device needs none of them.
const FLAGS: c_uint = 0x7 | 0x4000_0000 | 0x8000_0000;

pub unsafe fn create(event: *mut *mut c_void) -> Status {
    host!(event_create(event))
}

pub unsafe fn create_with_flags(event: *mut *mut c_void, flags: c_uint) -> Status {
    if flags & !FLAGS != 0 {
        return status::INVALID_VALUE;
    }
    host!(event_create(event))
}

pub unsafe fn record(event: *mut c_void, s: *mut c_void) -> Status {
    host!(event_record(event, stream(s)))
}

pub unsafe fn record_with_flags(event: *mut c_void, s: *mut c_void, flags: c_uint) -> Status {
    if flags > 1 {
        return status::INVALID_VALUE;
    }
    host!(event_record(event, stream(s)))
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
