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
        let test = self.path.contains("/tests/") || self.path.contains("/benches/") || self.path.ends_with("/tests.rs");
        let end = self.lines().find(|(_, l)| l.starts_with("#[cfg(test)]")).map_or(usize::MAX, |(n, _)| n);
        self.code().filter(move |(n, _)| !test && *n < end)
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
            files.push(File { path, text });
        }
    }
    Ok(())
}
