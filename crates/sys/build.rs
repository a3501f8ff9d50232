//! Declares the `loom` configuration name, so that a misspelt one is a warning.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(loom)");
}
