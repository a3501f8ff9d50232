//! `libamdhip64.so`: the host calls of the HIP runtime on the oxccl host device.
//!
//! Only exported symbols: the rows of the function table of `oxccl-hostrt`, and a stub for other names of the original.

oxccl_hostrt::hip_functions! { oxccl_hostrt::export!(hip) }
include!(concat!(env!("OUT_DIR"), "/stubs.rs"));
