//! What works on which device: `docs/functions.md` with every C function, and a summary per chapter for the README and
//! the guide, all from the table that exports the functions.

use oxccl_capi::table::Device;
use oxccl_capi::{FUNCTIONS, Function, Status};

/// Titles of the chapters; one that is not here goes by its file's name.
const TITLES: &[(&str, &str)] = &[
    ("memory", "memory"),
    ("lifecycle", "communicators"),
    ("errors", "errors"),
    ("elastic", "elastic communicators"),
    ("window", "windows"),
    ("ops", "reduction operators"),
    ("collectives", "collectives"),
    ("p2p", "point to point"),
    ("rma", "one-sided"),
    ("group", "groups"),
    ("rccl", "only in RCCL"),
    ("device_api", "host side of the device interface"),
    ("ext", "`oxccl.h`"),
    ("host_interface", "for the host runtimes"),
];

fn title(chapter: &'static str) -> &'static str {
    TITLES.iter().find(|(name, _)| *name == chapter).map_or(chapter, |(_, title)| *title)
}

/// The chapters in the order of the table, each with its functions.
fn chapters() -> Vec<(&'static str, Vec<&'static Function>)> {
    let mut chapters: Vec<(&str, Vec<&Function>)> = Vec::new();
    for f in FUNCTIONS {
        match chapters.iter_mut().find(|(name, _)| *name == f.chapter) {
            Some((_, functions)) => functions.push(f),
            None => chapters.push((f.chapter, vec![f])),
        }
    }
    chapters
}

fn works(functions: &[&Function], device: Device) -> usize {
    functions.iter().filter(|f| f.on(device) == Status::Works).count()
}

/// The first two lines of a table: some columns of its own, and one per device.
fn head(columns: &[&str]) -> String {
    let columns: Vec<&str> = columns.iter().copied().chain(Device::ALL.iter().map(|d| d.title())).collect();
    format!("| {} |\n|{}\n", columns.join(" | "), "---|".repeat(columns.len()))
}

/// What works of one chapter on one device, in a cell.
fn cell(functions: &[&Function], device: Device) -> String {
    let count = works(functions, device);
    if count == 0 {
        return "not yet".to_owned();
    }
    let later: Vec<String> =
        functions.iter().filter(|f| f.on(device) == Status::Later).map(|f| format!("`{}`", f.name)).collect();
    match later.len() {
        0 => "all".to_owned(),
        1..=4 => format!("all but {}", later.join(", ")),
        _ => format!("{count} of {}", functions.len()),
    }
}

/// A row per chapter; `link` leads to the document with every function.
pub fn summary(link: &str) -> String {
    let all: Vec<&Function> = FUNCTIONS.iter().collect();
    let mut text = format!(
        "{} of {} functions work on host devices; the others exist and return `ncclInvalidUsage` with a text that says \
         so. No GPU is used yet. [Every function]({link}).\n\n",
        works(&all, Device::Host),
        all.len()
    );
    text += &head(&["chapter (functions)"]);
    for (chapter, functions) in chapters() {
        let cells: Vec<String> = Device::ALL.iter().map(|d| cell(&functions, *d)).collect();
        text += &format!("| {} ({}) | {} |\n", title(chapter), functions.len(), cells.join(" | "));
    }
    text
}

/// `docs/functions.md`.
pub fn document() -> String {
    let mut text = String::from(
        "# C functions: what works on which device\n\n\
         Written by `cargo xtask docs` from the table in `crates/capi/src/table.rs`; do not edit.\n\n\
         \"works\": it does what the header says; there is a C test of it. \"not yet\": it exists, so that programs link, \
         and returns `ncclInvalidUsage` with a text that says so. Each function `ncclX` has a twin `pncclX`, for tools \
         that replace the first and call the second, except for those marked \"no twin\". `libnccl` and `librccl` are \
         the libraries that have the function.\n\n\
         Host devices are CPUs with their memory; a communicator of this version has no others. Nothing runs on CUDA or \
         HIP devices yet, so that the memory of a GPU cannot be passed to any function.\n",
    );
    for (chapter, functions) in chapters() {
        text += &format!("\n## {}\n\n", capital(title(chapter)));
        text += &head(&["function", "library"]);
        for f in functions {
            let cells: Vec<&str> = Device::ALL.iter().map(|d| word(f.on(*d))).collect();
            let twin = if f.twin { "" } else { " (no twin)" };
            text += &format!("| `{}`{twin} | {} | {} |\n", f.name, library(f), cells.join(" | "));
        }
    }
    text
}

fn word(status: Status) -> &'static str {
    match status {
        Status::Works => "works",
        Status::Later => "not yet",
    }
}

fn library(f: &Function) -> &'static str {
    match (f.nccl, f.rccl) {
        (true, false) => "`libnccl`",
        (false, true) => "`librccl`",
        _ => "both",
    }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_function_has_a_row_with_a_cell_for_each_device() {
        let text = document();
        for f in FUNCTIONS {
            let begin = format!("| `{}`", f.name);
            let rows: Vec<&str> = text.lines().filter(|l| l.starts_with(&begin)).collect();
            assert_eq!(rows.len(), 1, "{}", f.name);
            assert_eq!(rows[0].matches(" | ").count(), 1 + Device::ALL.len(), "{}", rows[0]);
        }
    }

    #[test]
    fn tables_are_well_formed() {
        for text in [document(), summary("x")] {
            let tables: Vec<&str> = text.lines().filter(|l| l.starts_with('|')).collect();
            for pair in tables.windows(2).filter(|pair| pair[1].starts_with("|---")) {
                assert_eq!(pair[0].matches('|').count(), pair[1].matches('|').count(), "{pair:?}");
            }
        }
    }
}
