//! What the host implementations of the CUDA and HIP runtimes do, on the host device of `libnccl.so.2` or
//! `librccl.so.1`.
//!
//! The two runtimes agree in almost everything, down to the numbers of their errors, so one body serves both; the tables
//! in [`table`] give the names. No kernel can be launched: a host device has no compiler for them.
//!
//! Safety, once for all functions: pointers must be what the runtimes' documentation asks for. Null results are refused.
#![allow(clippy::missing_safety_doc)] // said once, above, for all of them

#[doc(hidden)]
pub mod capture;
#[doc(hidden)]
pub mod device;
pub mod entry;
pub mod error;
#[doc(hidden)]
pub mod events;
#[doc(hidden)]
pub mod graphs;
#[doc(hidden)]
pub mod hip_old;
mod host;
#[doc(hidden)]
pub mod kernel;
#[doc(hidden)]
pub mod memory;
#[doc(hidden)]
pub mod nodes;
#[doc(hidden)]
pub mod pools;
#[doc(hidden)]
pub mod settings;
#[doc(hidden)]
pub mod streams;
pub mod table;
#[doc(hidden)]
pub mod volumes;

pub use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};
