//! `libcudart.so.13`: the host calls of the CUDA runtime on the oxccl host device.
//!
//! Only exported symbols: the rows of the function tables of `oxccl-hostrt`, and a stub for every other name that the
//! original has.

oxccl_hostrt::cuda_functions! { oxccl_hostrt::export!(13) }
oxccl_hostrt::cuda13_functions! { oxccl_hostrt::export!(13) }
include!(concat!(env!("OUT_DIR"), "/stubs.rs"));
