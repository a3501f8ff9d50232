//! Collective communication on CPUs: all-reduce, broadcast, all-gather and their family between the threads,
//! processes and machines of one program.
//!
//! This is the safe Rust interface of oxccl. The same library is installed as `libnccl.so.2` and `librccl.so.1` for
//! programs in C; the semantics here are those of the NCCL calls that each item names.
//!
//! ```
//! use oxccl::{Communicator, ReduceOp};
//!
//! // Four ranks as threads of this process. Across processes each rank calls `Communicator::init`.
//! let ranks = Communicator::init_all(4)?;
//! std::thread::scope(|threads| {
//!     for comm in ranks {
//!         threads.spawn(move || {
//!             let mut x = vec![comm.rank() as f32; 1000];
//!             comm.all_reduce_in_place(&mut x, ReduceOp::Sum).unwrap();
//!             assert!(x.iter().all(|v| *v == 0.0 + 1.0 + 2.0 + 3.0));
//!         });
//!     }
//! });
//! # Ok::<(), oxccl::Error>(())
//! ```
//!
//! * Blocking calls on slices: the methods of [`Communicator`].
//! * Memory that peers map, so that nothing is copied on the way: [`DeviceBuffer`].
//! * Calls that are enqueued now and waited for together: [`Stream::scope`]. Several ranks in one thread: [`group`].
//! * Memory that peers write without a call of its owner: [`Window`].
//! * Communicators out of communicators: [`Communicator::split`], [`Communicator::shrink_abort`] after a rank died,
//!   [`Communicator::grow`] by new ranks; each with a [`Config`] of its own, and as [`Pending`] while the ranks meet.
//! * What a group of calls would take, without making them: [`simulate`].
//!
//! It does not launch processes or carry the [`UniqueId`] between them; `oxccl perf --procs` and the examples show
//! how that is done.

mod buffer;
mod call;
mod communicator;
mod config;
mod elastic;
mod element;
mod id;
mod stream;
mod window;

pub use buffer::DeviceBuffer;
pub use call::{Lent, Shared};
pub use communicator::{AbortHandle, Communicator};
pub use config::Config;
pub use elastic::{MemoryUse, Pending, RevokeHandle};
pub use element::{Element, F8E4M3, F8E5M2, pre_mul_sum};
pub use half::{bf16, f16};
pub use id::UniqueId;
pub use oxccl_types::{DataType, Error, Failure, ReduceOp, Result, ResultCode, Scalar};
pub use stream::{Scope, Stream, group, simulate};
pub use window::{Expected, Signal, Window};

/// Number of host devices of this machine (`cudaGetDeviceCount`): at least 8, more on machines with more cores, or
/// what `OXCCL_HOST_DEVICES` says.
pub fn device_count() -> usize {
    oxccl_runtime::device::count()
}
