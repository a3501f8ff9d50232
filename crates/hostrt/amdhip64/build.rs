//! Names the library as programs look for it and makes the stubs. The symbols have no versions: the loader then takes
//! them for any version that a program asks for.

include!("../stubs.rs");

fn main() {
    stubs("amdhip64.txt", &["hip"]);
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libamdhip64.so.7");
}
