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

    /// Code without what is compiled for tests only; nothing of files that are tests.
    pub fn product_code(&self) -> impl Iterator<Item = (usize, &str)> {
        let mut items = TestItems::default();
        let product = self.lines().filter(move |(_, line)| !self.is_test && !items.have(line));
        product.filter(|(_, line)| !line.trim_start().starts_with("//"))
    }

    /// Whether this is Rust.
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }
}

/// Finds the lines of items and statements that are compiled for tests only. Where one ends its indentation tells, since
/// sources are formatted.
#[derive(Default)]
struct TestItems {
    /// That of the item which the last line was part of.
    indent: Option<usize>,
    /// What stood before that item is over.
    begun: bool,
    /// It ends with a brace: lines of text in it end as they like.
    block: bool,
    /// Brackets that are open.
    open: isize,
}

impl TestItems {
    /// Whether `line`, the next one of the file, is part of such an item.
    fn have(&mut self, line: &str) -> bool {
        let text = line.trim();
        let text =
            if text.starts_with("//") { text } else { text.split_once(" // ").map_or(text, |(code, _)| code.trim()) };
        let indent = line.len() - line.trim_start().len();
        let Some(item) = self.indent else {
            if text == "#[cfg(test)]" || text.starts_with("#[cfg(all(test,") {
                *self = TestItems { indent: Some(indent), ..TestItems::default() };
            }
            return self.indent.is_some();
        };
        let count = |brackets: [char; 3]| text.matches(brackets).count() as isize;
        let attribute = self.open > 0 || text.starts_with("#[") || text.starts_with("//");
        if !text.starts_with("//") {
            self.open += count(['(', '[', '{']) - count([')', ']', '}']);
        }
        if !self.begun && attribute {
            return true;
        }
        self.begun = true;
        if indent == item {
            self.block |= text.ends_with('{');
            let goes_on = text.starts_with('}') && text.ends_with('{');
            if !goes_on && (text.starts_with('}') || !self.block && text.ends_with(['}', ';', ','])) {
                self.indent = None;
            }
        } else if !self.block && self.open == 0 && text.ends_with(';') {
            // What was broken into lines, without a bracket of its own.
            self.indent = None;
        } else if indent < item && !text.is_empty() && !self.block {
            // The end of what it stands in.
            self.indent = None;
            return false;
        }
        true
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

/// Whether an attribute names tests, other than to leave them out.
fn has_test(attribute: &str) -> bool {
    attribute.contains("test") && !attribute.contains("not(test)")
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
        for pair in lines.windows(2).filter(|p| p[0].starts_with("#[cfg(") && has_test(p[0])) {
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
            file("a/src/lib.rs", "//! A.\n#[cfg(all(test, loom))]\nmod model;\n#[cfg(not(test))]\nmod real;\n"),
            file("a/src/real.rs", "//! R.\n#[cfg(test)]\npub(crate) mod deep;\n"),
            file("a/src/model.rs", "//! M.\n"),
            file("a/src/real/deep/x.rs", "//! X.\n"),
        ];
        mark_test_modules(&mut files);
        assert_eq!(files.map(|f| f.is_test), [false, false, true, true]);
    }

    #[test]
    fn items_for_tests_are_no_product_and_what_follows_is() {
        let text = "\
//! A.
#[cfg(test)]
mod early;
#[cfg(all(test, not(loom)))]
#[allow(dead_code)]
/// Words.
pub fn long(
    a: u32,
) -> u32
where
    u32: Copy,
{
    if a > 0 {
        return 1;
    }

    2
}
#[cfg(test)]
const LONG: u32 =
    1;
#[cfg(test)]
use x; // Words.
#[cfg(test)]
#[expect(
    dead_code,
)]
const SEVERAL: u32 = a
    .map(|a| {
        a
    });
fn product() {
    first();
    #[cfg(test)]
    seen(
        1,
    );
    // Words.
    second();
}
struct Product {
    #[cfg(test)]
    count: u32,
    field: u32,
}
#[cfg(test)]
mod state {
    fn a() {}

    fn b() {}
}
#[cfg(not(test))]
mod state {}
#[cfg(test)]
mod tests {
    const TEXT: &str = \"\\
a, b,
\";
    fn c() {}
}
";
        let mut file = File { path: "a/src/a.rs".to_owned(), text: text.to_owned(), is_test: false };
        let product: Vec<&str> = file.product_code().map(|(_, line)| line.trim()).collect();
        let expected = [
            "fn product() {",
            "first();",
            "second();",
            "}",
            "struct Product {",
            "field: u32,",
            "}",
            "#[cfg(not(test))]",
            "mod state {}",
        ];
        assert_eq!(product, expected);
        file.is_test = true;
        assert_eq!(file.product_code().count(), 0);
    }
}
