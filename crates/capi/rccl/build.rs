//! Gives the shared library the name that programs linked with RCCL look for.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,librccl.so.1");
}
