//! The C interface of NCCL and RCCL 2.29.7 on the oxccl runtime.
//!
//! One file per chapter of `nccl.h` holds what the functions do; [`table`] has one row per C function, from which
//! the exported symbols of `libnccl.so` and `librccl.so` (crates `nccl` and `rccl` below this one) and the list
//! [`FUNCTIONS`] are made. [`entry`] is the border: nothing unwinds across it, every failure becomes a result code
//! and a text for `ncclGetLastError`.
//!
//! This crate itself exports no C symbol, so it can be linked into any program, and it knows no algorithm and no
//! transport: it checks arguments, in the order and with the words of the original, and hands on requests.
//!
//! Safety, once for all functions: pointers must be what `nccl.h` says they are (null is diagnosed, a pointer to
//! nothing is not), and a communicator handle must come from this library.
#![allow(clippy::missing_safety_doc)] // said once, above, for all of them

pub mod abi;
pub mod entry;
pub mod table;

#[doc(hidden)]
pub mod collectives;
#[doc(hidden)]
pub mod config;
#[doc(hidden)]
pub mod device_abi;
#[doc(hidden)]
pub mod device_api;
#[doc(hidden)]
pub mod device_comm;
#[doc(hidden)]
pub mod elastic;
#[doc(hidden)]
pub mod errors;
#[doc(hidden)]
pub mod ext;
#[doc(hidden)]
pub mod group;
mod handle;
mod host_graphs;
#[doc(hidden)]
pub mod host_interface;
#[doc(hidden)]
pub mod lifecycle;
#[doc(hidden)]
pub mod memory;
#[doc(hidden)]
pub mod ops;
#[doc(hidden)]
pub mod p2p;
#[doc(hidden)]
pub mod rccl;
#[doc(hidden)]
pub mod rma;
#[doc(hidden)]
pub mod window;

pub use entry::Flavour;
pub use table::{FUNCTIONS, Function, Status};
