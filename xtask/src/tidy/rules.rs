//! The rules, each a function from files to faults.

use std::collections::BTreeMap;

use super::File;

/// No file is longer than this.
const LINES: usize = 900;

/// Where `unsafe` may be written; every other place is safe Rust.
const UNSAFE_ROOMS: &[&str] = &[
    "crates/sys/",
    "crates/kernels/",
    "crates/capi/",
    "crates/hostrt/",
    "crates/runtime/src/communicator",
    "crates/runtime/src/device",
    "crates/runtime/src/exec",
    "crates/runtime/src/transport",
    // `unsafe impl Send for Request`, which carries the caller's pointers.
    "crates/runtime/src/request.rs",
    "crates/runtime/tests/",
    // The tool measures the C interface, through the C interface.
    "tools/oxccl/",
    // Device memory as a slice; the rest of the Rust interface is safe.
    "crates/oxccl/src/buffer.rs",
];

/// Files that may sleep, and why. A sleep never stands for a wait on another thread or process.
const SLEEPERS: &[(&str, &str)] = &[("xtask/src/tidy/rules.rs", "names the call")];

/// Calls that are refused in product code: what, where it may be, and what to do instead.
const REFUSED: &[(&str, &[&str], &str)] = &[
    (
        "env::var",
        &[
            "crates/runtime/src/config",
            "crates/hostrt/stubs.rs",
            "tools/",
            "examples/",
            "xtask/",
            "crates/oxccl/examples/",
        ],
        "variables are read once, by oxccl_runtime::config",
    ),
    ("process::exit", &["tools/", "xtask/", "examples/"], "a library never ends the process; return an error"),
    ("process::abort", &["tools/", "xtask/", "crates/capi/"], "a library never ends the process; return an error"),
    ("std::sync::atomic", PLAIN_ATOMICS, "atomics come from oxccl_sys::sync, so that loom can take their place"),
    ("thread::sleep", &["tools/", "xtask/"], "waits park on a futex or a descriptor, with a bound"),
];

/// Everything but the runtime, whose atomics loom replaces; its ring has a trait of its own for that.
const PLAIN_ATOMICS: &[&str] = &[
    "crates/sys/",
    "crates/capi/",
    "crates/hostrt/",
    "crates/kernels/",
    "crates/oxccl/",
    "crates/runtime/src/transport/",
    "tools/",
    "xtask/",
];

/// Crates that know no I/O, no clock and no environment: their folder and what they may depend on.
const PURE: &[(&str, &[&str])] = &[("crates/types/", &[]), ("crates/schedule/", &["oxccl-types"])];

/// What a pure crate does not name.
const IMPURE: &[&str] =
    &["std::fs", "std::net", "std::env", "std::time", "std::thread", "std::process", "std::io", "std::os"];

/// All faults, each `path:line: what`.
pub fn check(files: &[File]) -> Vec<String> {
    let mut faults = Vec::new();
    for file in files {
        shape(file, &mut faults);
        if file.is_rust() {
            leftovers(file, &mut faults);
            rooms(file, &mut faults);
            refused(file, &mut faults);
            pure(file, &mut faults);
        }
        if file.path.ends_with("Cargo.toml") {
            manifest(file, &mut faults);
        }
        if file.path.ends_with(".md") {
            links(file, files, &mut faults);
        }
    }
    sync_labels(files, &mut faults);
    faults.sort();
    faults
}

fn shape(file: &File, faults: &mut Vec<String>) {
    let path = &file.path;
    let length = file.text.lines().count();
    if length > LINES {
        faults.push(format!("{path}:{length}: {length} lines; at most {LINES}, split it by subject"));
    }
    if !file.text.is_empty() && !file.text.ends_with('\n') {
        faults.push(format!("{path}:{length}: no newline at the end"));
    }
    if let Some((n, _)) = file.lines().find(|(_, l)| l.ends_with([' ', '\t'])) {
        faults.push(format!("{path}:{n}: white space at the end of the line"));
    }
    if file.is_rust() && !file.text.starts_with("//!") {
        faults.push(format!("{path}:1: must begin with `//!`: what this is and what it does not do"));
    }
}

fn leftovers(file: &File, faults: &mut Vec<String>) {
    // Put together here, so that this file does not contain them.
    let words = [["to", "do!("], ["unimple", "mented!("], ["db", "g!("], ["FIX", "ME"]].map(|w| w.concat());
    for (n, line) in file.lines() {
        if let Some(word) = words.iter().find(|w| line.contains(w.as_str())) {
            faults.push(format!("{}:{n}: {word} is left over", file.path));
        }
        if line.trim_start().starts_with("#[ignore]") {
            faults.push(format!("{}:{n}: an ignored test says why: #[ignore = \"...\"]", file.path));
        }
    }
}

/// Whether `word` stands in `line` as a word of its own, outside of strings as far as quotes on the line tell.
fn has_word(line: &str, word: &str) -> bool {
    let part_of_name = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let (before, after) = (&line[..at], &line[at + word.len()..]);
        let quoted = before.matches('"').count() % 2 == 1;
        !quoted && !before.ends_with(part_of_name) && !after.starts_with(part_of_name) && !before.contains("//")
    })
}

fn rooms(file: &File, faults: &mut Vec<String>) {
    if UNSAFE_ROOMS.iter().any(|room| file.path.starts_with(room)) {
        return;
    }
    for (n, line) in file.code().filter(|(_, l)| has_word(l, "unsafe")) {
        faults.push(format!("{}:{n}: unsafe outside of its rooms: {}", file.path, line.trim()));
    }
}

fn refused(file: &File, faults: &mut Vec<String>) {
    if SLEEPERS.iter().any(|(path, _)| *path == file.path) {
        return;
    }
    for (call, allowed, instead) in REFUSED {
        if allowed.iter().any(|a| file.path.starts_with(a)) {
            continue;
        }
        for (n, _) in file.product_code().filter(|(_, l)| l.contains(call)) {
            faults.push(format!("{}:{n}: {call} has no place here: {instead}", file.path));
        }
    }
}

fn pure(file: &File, faults: &mut Vec<String>) {
    let Some((folder, _)) = PURE.iter().find(|(folder, _)| file.path.starts_with(folder)) else { return };
    for (n, line) in file.product_code() {
        if let Some(word) = IMPURE.iter().find(|w| has_word(line, w)) {
            faults.push(format!("{}:{n}: {folder} is pure and does not use {word}", file.path));
        }
    }
    if file.path.ends_with("src/lib.rs") && !file.text.contains("#![forbid(unsafe_code)]") {
        faults.push(format!("{}:1: a pure crate has #![forbid(unsafe_code)]", file.path));
    }
}

fn manifest(file: &File, faults: &mut Vec<String>) {
    let path = &file.path;
    if path != "Cargo.toml" && !file.text.contains("[lints]\nworkspace = true") {
        faults.push(format!("{path}:1: a package takes the lints of the workspace"));
    }
    let Some((_, allowed)) = PURE.iter().find(|(folder, _)| path.starts_with(folder)) else { return };
    let mut section = "";
    for (n, line) in file.lines() {
        if line.starts_with('[') {
            section = line;
        } else if section == "[dependencies]" && line.contains('=') {
            let name = line.split(['.', ' ', '=']).next().unwrap_or("");
            if !allowed.contains(&name) {
                faults.push(format!("{path}:{n}: a pure crate does not depend on {name}"));
            }
        }
    }
}

/// Relative links of documents lead somewhere.
fn links(file: &File, files: &[File], faults: &mut Vec<String>) {
    let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
    for (n, line) in file.lines() {
        for target in line.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target) {
            let target = target.split('#').next().unwrap_or("");
            if target.is_empty() || target.contains("://") {
                continue;
            }
            let mut parts: Vec<&str> = folder.split('/').filter(|p| !p.is_empty()).collect();
            for part in target.trim_end_matches('/').split('/') {
                match part {
                    ".." => drop(parts.pop()),
                    "." => {}
                    part => parts.push(part),
                }
            }
            let path = parts.join("/");
            let known = files.iter().any(|f| f.path == path || f.path.starts_with(&format!("{path}/")));
            if !known && !crate::root().join(&path).exists() {
                faults.push(format!("{}:{n}: the link to {target} leads nowhere", file.path));
            }
        }
    }
}

/// What stands at a `SYNC: label`, in all of its places.
struct Label<'a> {
    path: &'a str,
    line: usize,
    places: usize,
    acquires: bool,
    releases: bool,
}

/// An acquire has a release: every `SYNC: label` stands in at least two places, at an order of each side, or at a fence.
fn sync_labels(files: &[File], faults: &mut Vec<String>) {
    let mut labels: BTreeMap<&str, Label<'_>> = BTreeMap::new();
    for file in files.iter().filter(|f| f.is_rust() && f.path.starts_with("crates/")) {
        let lines: Vec<&str> = file.text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            // A comment about the labels themselves has them in backquotes.
            if let Some((_, rest)) = line.split_once("// SYNC: ") {
                let name = rest.split([' ', ',', ';', '.', ':', '(']).next().unwrap_or("");
                let new = Label { path: &file.path, line: at + 1, places: 0, acquires: false, releases: false };
                let label = labels.entry(name).or_insert(new);
                label.places += 1;
                let (acquires, releases) = sides(&lines[at..]);
                label.acquires |= acquires;
                label.releases |= releases;
            }
        }
    }
    for (name, Label { path, line, places, acquires, releases }) in labels {
        match (places, acquires, releases) {
            (1, ..) => faults.push(format!("{path}:{line}: SYNC: {name} has no partner")),
            (_, false, _) => faults.push(format!("{path}:{line}: nothing acquires at SYNC: {name}")),
            (_, _, false) => faults.push(format!("{path}:{line}: nothing releases at SYNC: {name}")),
            _ => {}
        }
    }
}

/// Whether the code at the label in the first line, or in the few lines behind it, acquires, and whether it releases.
fn sides(lines: &[&str]) -> (bool, bool) {
    const NEAR: usize = 6;
    let next = lines.iter().skip(1).position(|line| line.contains("// SYNC: ")).map_or(lines.len(), |n| n + 1);
    let code = |line: &&str| line.split("//").next().unwrap_or("").to_owned();
    let near: String = lines[..next.min(NEAR)].iter().map(code).collect();
    let has = |words: &[&str]| words.iter().any(|word| near.contains(word));
    let both = has(&["AcqRel", "SeqCst", "barrier::", "fence("]);
    (both || has(&["Acquire"]), both || has(&["Release"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(path: &str, text: &str) -> Vec<String> {
        check(&[File { path: path.to_owned(), text: text.to_owned(), is_test: false }])
    }

    #[test]
    fn each_rule_finds_its_fault() {
        let dirty = [
            ("crates/runtime/src/a.rs", "fn a() {}\n", "must begin"),
            ("crates/runtime/src/a.rs", "//! A.\nfn a() { unsafe { b() } }\n", "outside of its rooms"),
            ("crates/runtime/src/a.rs", "//! A.\nuse std::sync::atomic::AtomicU32;\n", "loom"),
            ("crates/runtime/src/a.rs", "//! A.\nlet x = std::env::var(NAME);\n", "read once"),
            ("crates/runtime/src/a.rs", "//! A.\nstd::thread::sleep(d);\n", "park"),
            ("crates/runtime/src/a.rs", "//! A.\n#[ignore]\n", "says why"),
            ("crates/runtime/src/a.rs", "//! A. \n", "white space"),
            ("crates/runtime/src/a.rs", "//! A.", "no newline"),
            ("crates/runtime/src/a.rs", "//! A.\nx(); // SYNC: lonely\n", "no partner"),
            (
                "crates/runtime/src/a.rs",
                "//! A.\nx(Release); // SYNC: pair\n// SYNC: pair\ny(Release); // Acquire\n",
                "nothing acquires",
            ),
            (
                "crates/runtime/src/a.rs",
                "//! A.\nx(Acquire); // SYNC: pair\n// SYNC: pair\n\n\n\n\n\ny(Release);\n",
                "nothing releases",
            ),
            ("crates/schedule/src/a.rs", "//! A.\nuse std::time::Instant;\n", "is pure"),
            (
                "crates/schedule/Cargo.toml",
                "[lints]\nworkspace = true\n[dependencies]\nlibc.workspace = true\n",
                "libc",
            ),
            ("crates/sys/Cargo.toml", "[package]\n", "lints"),
            ("docs/a.md", "See [there](nowhere/at/all.md).\n", "leads nowhere"),
        ];
        for (path, text, expected) in dirty {
            let found = faults(path, text);
            assert!(found.len() == 1 && found[0].contains(expected), "{path} {text:?}: {found:?}");
        }
        assert!(faults("a.rs", &format!("//! A.\n{}", "\n".repeat(900)))[0].contains("901 lines"));
        assert!(faults("a.rs", &["//! A.\n", "to", "do!()\n"].concat())[0].contains("left over"));
    }

    #[test]
    fn clean_files_have_no_fault() {
        let clean = [
            ("crates/sys/src/a.rs", "//! A.\nfn a() { unsafe { b() } }\n"),
            (
                "crates/runtime/src/a.rs",
                "//! A.\n#![deny(unsafe_op_in_unsafe_fn)]\n// unsafe in words\nlet a = \"unsafe\";\n",
            ),
            ("crates/runtime/src/a.rs", "//! A.\nx(Release); // SYNC: pair\n// SYNC: pair\ny(Acquire);\n"),
            ("crates/runtime/src/a.rs", "//! A.\n// SYNC: pair, other\nfence(o);\n// SYNC: pair\nbarrier::heavy();\n"),
            ("crates/schedule/src/a.rs", "//! A.\n#[cfg(test)]\nmod tests { use std::time::Instant; }\n"),
            ("docs/a.md", "See [there](../Cargo.toml#top) and [far](https://example.org).\n"),
        ];
        for (path, text) in clean {
            assert_eq!(faults(path, text), Vec::<String>::new(), "{path} {text:?}");
        }
    }
}
