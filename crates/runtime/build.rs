//! Tells the library which sources it was built from, so that ranks of different builds are told apart: what ranks write into
//! each other's memory has no version of its own.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// The crates whose sources decide what ranks say to each other. In a package of this crate alone, only its own are there.
const CRATES: [&str; 5] = ["kernels", "runtime", "schedule", "sys", "types"];

fn main() -> io::Result<()> {
    let mut digest = Sha256::new();
    let mut add = |root: &Path| -> io::Result<()> {
        println!("cargo::rerun-if-changed={}", root.display());
        for path in sources(root)? {
            digest.update(path.strip_prefix(root).unwrap_or(&path).as_os_str().as_encoded_bytes());
            digest.update(fs::read(&path)?);
        }
        Ok(())
    };
    for name in CRATES {
        let root = Path::new("..").join(name).join("src");
        if root.is_dir() {
            add(&root)?;
        }
    }
    let id: String = digest.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    println!("cargo::rustc-env=OXCCL_BUILD={id}");
    Ok(())
}

/// All Rust files under `root`, in an order that is the same everywhere.
fn sources(root: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}
