//! `librccl.so.1`: the C functions of RCCL, forwarded to `oxccl-capi`.
//!
//! Nothing but exported symbols: the one line below turns every row of the function table that RCCL has into
//! `ncclX` and `pncclX` (`mscclX` and `pmscclX`). The flavour travels as a constant inside each of them, so no
//! constructor has to run.

oxccl_capi::export!(rccl);
