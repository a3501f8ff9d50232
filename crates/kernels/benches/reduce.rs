//! Throughput of the reduction loops.
fn main() {}
