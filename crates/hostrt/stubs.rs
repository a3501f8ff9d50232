//! For build scripts: stubs for the names that no table implements. It reads the tables as text.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// Writes `stubs.rs`: one stub for each name of `list` that no function table of `tables` implements.
pub fn write(list: &str, tables: &[&str]) {
    let root = Path::new(&std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("..");
    let table = root.join("core/src/table.rs");
    let list = root.join("names").join(list);
    let read = |p: &PathBuf| {
        println!("cargo::rerun-if-changed={}", p.display());
        std::fs::read_to_string(p).unwrap_or_else(|e| panic!("{}: {e}", p.display()))
    };
    println!("cargo::rerun-if-changed=build.rs");
    let mut known = HashSet::new();
    let mut wanted = false;
    for line in read(&table).lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("// table ") {
            wanted = tables.contains(&name);
        }
        let Some((kind, rest)) = line.split_once(" fn ").filter(|_| wanted) else { continue };
        let Some((name, _)) = rest.split_once('(') else { continue };
        known.insert(name.to_owned());
        match kind {
            "ptsz" | "ptds" | "spt" => known.insert(format!("{name}_{kind}")),
            _ => true,
        };
    }
    let names = read(&list);
    let missing = names.lines().filter(|n| !n.is_empty() && !n.starts_with('#') && !known.contains(*n));
    let text = format!("oxccl_hostrt::stubs! {{ {} }}\n", missing.collect::<Vec<_>>().join(" "));
    let out = PathBuf::from(std::env::var("OUT_DIR").expect("cargo sets it")).join("stubs.rs");
    std::fs::write(out, text).expect("cargo's folder takes files");
}
