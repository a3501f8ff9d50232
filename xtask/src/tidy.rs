//! Rules of the house that no other tool checks.
//!
//! Text only: it reads files line by line and knows no Rust syntax, so each rule is a simple one with a simple message.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

mod rules;

/// A text file of the repository.
pub struct File {
    /// Path from the top folder.
    pub path: String,
    /// Its content.
    pub text: String,
    /// Whether it is no part of the product: a test, a bench, or a module that is only compiled for tests.
    pub is_test: bool,
}

impl File {
    /// Lines with their numbers from 1.
    pub fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(i, l)| (i + 1, l))
    }

    /// Lines with their numbers, without those that are only a comment.
    pub fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        self.lines().filter(|(_, l)| !l.trim_start().starts_with("//"))
    }

    /// Code before the unit tests at the end of the file; nothing of files that are tests.
    pub fn product_code(&self) -> impl Iterator<Item = (usize, &str)> {
        let end = self.lines().find(|(_, l)| l.starts_with("#[cfg(test)]")).map_or(usize::MAX, |(n, _)| n);
        self.code().filter(move |(n, _)| !self.is_test && *n < end)
    }

    /// Whether this is Rust.
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }
}

/// Checks all files; prints every fault.
pub fn run() -> Result<()> {
    let mut files = Vec::new();
    collect(&crate::root(), "", &mut files)?;
    mark_test_modules(&mut files);
    let faults = rules::check(&files);
    for fault in &faults {
        println!("{fault}");
    }
    match faults.len() {
        0 => {
            println!("tidy: {} files", files.len());
            Ok(())
        }
        n => bail!("tidy: {n} faults"),
    }
}

/// Marks the files of modules that are declared under `#[cfg(test)]` or `#[cfg(all(test, ...))]`.
fn mark_test_modules(files: &mut [File]) {
    let mut modules = Vec::new();
    for file in files.iter().filter(|f| f.is_rust()) {
        let (folder, name) = file.path.rsplit_once('/').unwrap_or(("", &file.path));
        let folder = match name {
            "lib.rs" | "main.rs" | "mod.rs" => folder.to_owned(),
            name => format!("{folder}/{}", name.trim_end_matches(".rs")),
        };
        let lines: Vec<&str> = file.text.lines().map(str::trim).collect();
        for pair in lines.windows(2).filter(|p| p[0].starts_with("#[cfg(") && p[0].contains("test")) {
            if let Some((_, module)) = pair[1].strip_suffix(';').and_then(|l| l.split_once("mod ")) {
                modules.push(format!("{folder}/{module}"));
            }
        }
    }
    for file in files {
        let is_in = |m: &String| file.path == format!("{m}.rs") || file.path.starts_with(&format!("{m}/"));
        file.is_test |= modules.iter().any(is_in);
    }
}

const TEXT: &[&str] = &["rs", "toml", "md", "sh", "c", "h", "yml", "pc", "ld", "map"];
const SKIPPED: &[&str] = &["target", ".git", "__pycache__"];

fn collect(top: &Path, folder: &str, files: &mut Vec<File>) -> Result<()> {
    let entries = fs::read_dir(top.join(folder)).with_context(|| format!("cannot list {folder}"))?;
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
        let kind = entry.file_type()?;
        let ending = name.rsplit_once('.').map_or("", |(_, e)| e);
        if kind.is_dir() && !SKIPPED.contains(&name.as_str()) {
            collect(top, &path, files)?;
        } else if kind.is_file() && (TEXT.contains(&ending) || path == ".ci/run") {
            let text = fs::read_to_string(entry.path()).with_context(|| format!("cannot read {path}"))?;
            let is_test = path.contains("/tests/") || path.contains("/benches/");
            files.push(File { path, text, is_test });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_for_tests_are_no_product() {
        let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned(), is_test: false };
        let mut files = [
            file("a/src/lib.rs", "//! A.\n#[cfg(all(test, loom))]\nmod model;\nmod real;\n"),
            file("a/src/real.rs", "//! R.\n#[cfg(test)]\npub(crate) mod deep;\n"),
            file("a/src/model.rs", "//! M.\n"),
            file("a/src/real/deep/x.rs", "//! X.\n"),
        ];
        mark_test_modules(&mut files);
        assert_eq!(files.map(|f| f.is_test), [false, false, true, true]);
    }
}
