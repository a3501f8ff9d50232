//! The words that every other crate uses: data types, operators, collectives, errors.
//!
//! Pure: no I/O, no clock, no environment, no unsafe. Knows nothing of memory, transports or devices.
#![forbid(unsafe_code)]

mod collective;
mod dtype;
mod error;
mod op;
mod signature;

pub use collective::Collective;
pub use dtype::DataType;
pub use error::{Error, Failure, Result, ResultCode};
pub use op::{ReduceOp, Scalar};
pub use signature::Signature;
