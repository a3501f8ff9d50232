//! oxccl's own functions (`oxccl.h`): devices, streams, events and copies for programs without CUDA or HIP.

use crate::abi::*;
use crate::entry::{Failure, Outcome, non_null, write_out};
use oxccl_runtime::device::{self, Event, Stream};
use oxccl_types::{Error, ResultCode};

pub unsafe fn get_device_count(count: *mut c_int) -> Outcome {
    // SAFETY: the C caller's promise.
    unsafe { write_out("oxcclGetDeviceCount", "count", count, device::count() as c_int) }
}

pub unsafe fn set_device(device: c_int) -> Outcome {
    match usize::try_from(device) {
        Ok(d) if d < device::count() => Ok(device::set_current(d)?),
        _ => Err(Failure::argument(format!(
            "oxcclSetDevice : invalid device {device}. Devices are in 0..{}; OXCCL_HOST_DEVICES sets their number",
            device::count() as i64 - 1
        ))),
    }
}

pub unsafe fn get_device(device: *mut c_int) -> Outcome {
    // SAFETY: the C caller's promise.
    unsafe { write_out("oxcclGetDevice", "device", device, device::current() as c_int) }
}

/// The answer of a query: success when idle, in progress (which is no error and not logged) otherwise.
fn idle(idle: bool, what: &str) -> Outcome {
    if idle { Ok(()) } else { Err(Error::new(ResultCode::InProgress, format!("the {what} has work left")).into()) }
}

pub unsafe fn stream_create(stream: *mut Stream_t) -> Outcome {
    non_null("oxcclStreamCreate", "stream", stream)?;
    let new = Stream::new()?.into_raw();
    // SAFETY: the C caller's promise.
    unsafe { write_out("oxcclStreamCreate", "stream", stream, new) }
}

pub unsafe fn stream_synchronize(stream: Stream_t) -> Outcome {
    Ok(Stream::with_raw(stream, Stream::synchronize)??)
}

pub unsafe fn stream_query(stream: Stream_t) -> Outcome {
    idle(Stream::from_raw(stream)?.query()?, "stream")
}

pub unsafe fn stream_destroy(stream: Stream_t) -> Outcome {
    non_null("oxcclStreamDestroy", "stream", stream.cast_const())?;
    Ok(Stream::destroy_raw(stream)?)
}

pub unsafe fn stream_wait_event(stream: Stream_t, event: oxcclEvent_t) -> Outcome {
    non_null("oxcclStreamWaitEvent", "event", event.cast_const())?;
    Ok(Stream::from_raw(stream)?.wait(&Event::from_raw(event)?)?)
}

/// The argument of a host function on its way to the thread that runs it.
struct UserData(*mut c_void);

// SAFETY: the pointer is the caller's; by the contract of `oxcclLaunchHostFunc` it may be used on any thread.
unsafe impl Send for UserData {}

pub unsafe fn launch_host_func(stream: Stream_t, function: HostFn, user_data: *mut c_void) -> Outcome {
    let Some(function) = function else {
        return Err(Failure::argument("oxcclLaunchHostFunc : function argument is NULL"));
    };
    let data = UserData(user_data);
    let run = move || {
        // The whole struct is moved, not only the pointer in it, which is not `Send`.
        let data = data;
        // SAFETY: the caller promises that the function may be called once with this argument on any thread.
        unsafe { function(data.0) }
    };
    Ok(Stream::from_raw(stream)?.launch_host(Box::new(run))?)
}

pub unsafe fn memcpy_async(dst: *mut c_void, src: *const c_void, bytes: usize, stream: Stream_t) -> Outcome {
    let stream = Stream::from_raw(stream)?;
    if bytes == 0 {
        return Ok(());
    }
    non_null("oxcclMemcpyAsync", "dst", dst.cast_const())?;
    non_null("oxcclMemcpyAsync", "src", src)?;
    // SAFETY: the caller promises both ranges until the stream has done the copy.
    Ok(unsafe { stream.copy(dst.cast(), src.cast(), bytes) }?)
}

pub unsafe fn event_create(event: *mut oxcclEvent_t) -> Outcome {
    non_null("oxcclEventCreate", "event", event)?;
    let new = Event::new().into_raw();
    // SAFETY: the C caller's promise.
    unsafe { write_out("oxcclEventCreate", "event", event, new) }
}

/// The event of a handle, null refused by name.
fn event_of(op: &str, name: &str, event: oxcclEvent_t) -> Outcome<Event> {
    non_null(op, name, event.cast_const())?;
    Ok(Event::from_raw(event)?)
}

pub unsafe fn event_record(event: oxcclEvent_t, stream: Stream_t) -> Outcome {
    let event = event_of("oxcclEventRecord", "event", event)?;
    Ok(Stream::from_raw(stream)?.record(&event)?)
}

pub unsafe fn event_synchronize(event: oxcclEvent_t) -> Outcome {
    Ok(event_of("oxcclEventSynchronize", "event", event)?.synchronize()?)
}

pub unsafe fn event_query(event: oxcclEvent_t) -> Outcome {
    idle(event_of("oxcclEventQuery", "event", event)?.poll()?, "event")
}

pub unsafe fn event_elapsed_time(ms: *mut f32, start: oxcclEvent_t, end: oxcclEvent_t) -> Outcome {
    const NAME: &str = "oxcclEventElapsedTime";
    non_null(NAME, "ms", ms)?;
    let elapsed = Event::elapsed_ms(&event_of(NAME, "start", start)?, &event_of(NAME, "end", end)?)?;
    // SAFETY: the C caller's promise.
    unsafe { write_out(NAME, "ms", ms, elapsed) }
}

pub unsafe fn event_destroy(event: oxcclEvent_t) -> Outcome {
    non_null("oxcclEventDestroy", "event", event.cast_const())?;
    Ok(Event::destroy_raw(event)?)
}
