//! The runtime: host devices, communicators, groups and the execution of calls.
//!
//! The safe Rust interface is crate `oxccl`, the C interface `oxccl-capi`; both are thin over this.

pub mod bootstrap;
mod communicator;
pub mod config;
pub mod device;
mod exec;
pub mod group;
mod haste;
pub mod log;
mod pages;
mod request;
pub mod service;
pub mod transport;

pub use communicator::{
    BUILD, CommConfig, Communicator, Done, MemStat, Team, Window, WindowDone, most_channels, usual_channels,
};
pub use exec::limits::Limits;
pub use exec::links::{lone_piece_bytes, mixed_piece_bytes};
pub use exec::one_sided::{OneSided, OneSidedCall, SignalId};
pub use id::UniqueId;
pub use request::{OpScalar, Operator, Request, Shape, VCounts, VLists};

mod id;
