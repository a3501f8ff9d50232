//! Documents that are generated from the code, so that they cannot lie.
//!
//! One file per document under `docs/`; each has a `render` that returns its whole text.

use std::fs;

use anyhow::{Context, Result, bail};

mod algorithms;
mod env;
mod functions;

/// What to do with generated text.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Write it.
    Write,
    /// Fail if a file differs from it.
    Check,
}

/// Writes or checks every generated document.
pub fn run(mode: Mode) -> Result<()> {
    let mut stale = Vec::new();
    for (path, text) in documents()? {
        let file = crate::root().join(path);
        let old = fs::read_to_string(&file).unwrap_or_default();
        if old == text {
            println!("docs: {path} is up to date");
            continue;
        }
        match mode {
            Mode::Write => {
                fs::write(&file, text).with_context(|| format!("cannot write {path}"))?;
                println!("docs: {path} written");
            }
            Mode::Check => stale.push(path),
        }
    }
    if !stale.is_empty() {
        bail!("docs: stale: {}; run `cargo xtask docs` and look at the difference", stale.join(", "));
    }
    Ok(())
}

fn documents() -> Result<Vec<(&'static str, String)>> {
    const GUIDE: &str = "docs/guide/README.md";
    let read = |path: &str| fs::read_to_string(crate::root().join(path)).with_context(|| format!("cannot read {path}"));
    let readme = replace_part(&read("README.md")?, "functions", &functions::summary("docs/functions.md"))?;
    let readme = replace_part(&readme, "rust", &program("rust", "crates/oxccl/examples/hello.rs")?)?;
    let readme = replace_part(&readme, "c", &program("c", "examples/c/all_reduce.c")?)?;
    let guide = replace_part(&read(GUIDE)?, "functions", &functions::summary("../functions.md"))?;
    Ok(vec![
        ("docs/env.md", env::render()),
        ("docs/algorithms.md", algorithms::render()),
        ("docs/functions.md", functions::document()),
        ("README.md", readme),
        (GUIDE, guide),
    ])
}

/// A program of the repository, which steps of `ci` compile and run, without the comment at its head.
fn program(language: &str, path: &str) -> Result<String> {
    let text = fs::read_to_string(crate::root().join(path)).with_context(|| format!("cannot read {path}"))?;
    let comment = |l: &&str| l.starts_with("//!") || l.starts_with("/*") || l.starts_with(" *") || l.is_empty();
    let code: Vec<&str> = text.lines().skip_while(comment).collect();
    Ok(format!("```{language}\n{}\n```\n", code.join("\n")))
}

/// `text` with what stands between `<!-- name:begin -->` and `<!-- name:end -->` replaced by `part`.
fn replace_part(text: &str, name: &str, part: &str) -> Result<String> {
    let (begin, end) = (format!("<!-- {name}:begin -->\n"), format!("<!-- {name}:end -->"));
    let (before, rest) = text.split_once(&begin).with_context(|| format!("no line {begin}"))?;
    let (_, after) = rest.split_once(&end).with_context(|| format!("no line {end}"))?;
    Ok(format!("{before}{begin}{part}{end}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_part_between_the_marks_is_replaced() {
        let text = "a\n<!-- x:begin -->\nold\n<!-- x:end -->\nb\n";
        let new = replace_part(text, "x", "new\n").expect("marks are there");
        assert_eq!(new, "a\n<!-- x:begin -->\nnew\n<!-- x:end -->\nb\n");
        assert_eq!(replace_part(&new, "x", "new\n").expect("marks are still there"), new);
        assert!(replace_part("a", "x", "").is_err());
    }
}
