//! Names the library as programs look for it, gives its symbols the version that they ask for, and makes the stubs.

#[path = "../stubs.rs"]
mod stubs;

fn main() {
    stubs::write("cudart12.txt", &["cuda", "cuda12"]);
    // Programs linked with the original ask for symbols whose version is the library's name. Only GNU ld gives that
    // version to symbols that have none.
    for arg in ["-fuse-ld=bfd", "-Wl,-soname,libcudart.so.12", "-Wl,--default-symver"] {
        println!("cargo::rustc-cdylib-link-arg={arg}");
    }
}
