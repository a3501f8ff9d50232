//! Algorithms as values: schedules, their symbolic oracle, verifier, cost model, simulator and selection.
//!
//! Pure: no I/O, no clock, no environment, no unsafe. It knows chunks and peers; it does not know bytes in memory,
//! transports, devices or threads.
#![forbid(unsafe_code)]

pub mod algorithms;
pub mod constants;
mod contention;
pub mod cost;
mod defect;
mod engine;
pub mod exchange;
pub mod explain;
pub mod ir;
pub mod lend;
mod memory;
mod race;
pub mod select;
pub mod simulate;
mod steps;
pub mod symbolic;
pub mod verify;

pub use algorithms::{ALGORITHMS, Algorithm};
pub use defect::{Defect, Kind};
