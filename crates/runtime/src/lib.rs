//! Placeholder.

pub mod bootstrap;
pub mod service;
