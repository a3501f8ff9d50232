//! Shared-memory protocols of the runtime under loom, which tries every interleaving and every reordering.
//!
//! The modules are the runtime's own files, compiled here alone: under `--cfg loom` all atomics are loom's, which the
//! rest of the runtime, with its memory shared between processes, cannot use. Run by `cargo xtask ci --only loom`, as are those
//! of `oxccl-sys`, which loom compiles whole: its bells are in `bell_loom.rs` there.

#![cfg(all(test, loom))]

#[path = "../../../crates/runtime/src/transport"]
mod transport {
    #[allow(dead_code)]
    mod ring;
    mod ring_loom;

    mod local {
        #[allow(dead_code)]
        mod trade;
        mod trade_loom;
    }
}

#[path = "../../../crates/runtime/src/exec"]
mod exec {
    #[allow(dead_code)]
    mod pieces;
    mod pieces_loom;
}
