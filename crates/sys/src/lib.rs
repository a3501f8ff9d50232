//! The danger crate: everything that needs the operating system's unsafe calls, in one place.
//!
//! Shared memory and atomic words inside it, futexes and doorbells, descriptor passing, process handles,
//! reading and writing another process' memory, clocks, and what the machine looks like to this process.
//! It knows no communicator, no rank and no protocol, and keeps no state but facts about the process.

#[cfg(not(target_os = "linux"))]
compile_error!("oxccl-sys knows Linux only");

pub mod affinity;
pub mod barrier;
mod bell;
#[cfg(all(test, loom))]
mod bell_loom;
pub mod clock;
pub mod cma;
pub mod forked;
pub mod futex;
pub mod host;
mod latch;
#[cfg(all(test, loom))]
mod latch_loom;
mod memory;
pub mod pacing;
pub mod pages;
pub mod prefetch;
pub mod process;
mod quota;
mod reserve;
pub mod sync;
mod thread;
pub mod unix;

pub use bell::{Belfry, Doorbell};
pub use clock::Deadline;
pub use futex::Parked;
pub use latch::{Latch, LatchGuard};
pub use memory::{SharedMemory, populate};
pub use reserve::Reservation;
pub use sync::{SharedU32, SharedU64};
