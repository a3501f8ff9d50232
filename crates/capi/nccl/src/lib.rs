//! `libnccl.so.2`: the C functions of NCCL, forwarded to `oxccl-capi`.
//!
//! Nothing but exported symbols: the one line below turns every row of the function table that NCCL has into
//! `ncclX` and `pncclX`. The flavour travels as a constant inside each of them, so no constructor has to run.

oxccl_capi::export!(nccl);
