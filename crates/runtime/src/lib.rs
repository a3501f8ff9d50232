//! The runtime of a communicator.

pub mod transport;
