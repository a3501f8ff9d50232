//! Host devices: how many there are, which one a thread uses, their memory, streams and events.
//!
//! A host device is a share of this machine's CPUs and memory under the vocabulary of accelerators. All devices of a
//! process have the same memory; the number only says who is who.

mod capture;
mod event;
mod graph;
mod helper;
mod interprocess;
mod launch;
mod memory;
mod moves;
mod order;
mod serial;
mod stream;
#[cfg(all(test, not(loom)))]
mod tests;

use std::cell::Cell;
use std::sync::OnceLock;

use oxccl_types::{Error, Result};

pub use capture::{CaptureInfo, CaptureMode, EndError, implicates_capture, is_any_capturing, permits_unsafe_call};
pub(crate) use capture::{capture_one_sided, capture_requests, is_capturing};
pub use event::{Event, EventOptions};
pub use graph::{Graph, HostFunction, NodeId, Tag, Work};
pub(crate) use helper::{Crowd, assist_any};
pub use launch::{Executable, UpdateError};
pub use memory::{
    Allocation, GraphMemory, MemoryKind, Shared, alloc, alloc_alone, alloc_as, alloc_on, allocation, free, open_shared,
    share,
};
pub(crate) use memory::{Exporter, SEGMENT_BITS, exported, withdrawn};
pub use moves::{Area, Fill};
pub use order::{StreamOptions, drain, synchronize};
pub use serial::{behind, free_behind};
pub use stream::Stream;
pub(crate) use stream::{IdleStream, Likeness, Settle, Step, Task, Tasks, Touches, abandoned, caught};

thread_local! {
    static CURRENT: Cell<usize> = const { Cell::new(0) };
}

/// Number of host devices of this process.
pub fn count() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(crate::config::host_devices)
}

/// The calling thread's device.
pub fn current() -> usize {
    CURRENT.get()
}

/// Makes `device` the calling thread's device. `InvalidArgument` when there is no such device.
pub fn set_current(device: usize) -> Result<()> {
    if device >= count() {
        return Err(Error::argument(format!(
            "device {device} does not exist (valid: 0..={}); set OXCCL_HOST_DEVICES for more",
            count() - 1
        )));
    }
    CURRENT.set(device);
    Ok(())
}
