//! Names the library as programs look for it and makes the stubs. The symbols have no versions: the loader then takes
//! them for any version that a program asks for.

#[path = "../stubs.rs"]
mod stubs;

fn main() {
    stubs::write("amdhip64.txt", &["hip"]);
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libamdhip64.so.7");
}
