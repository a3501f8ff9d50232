//! The table of C functions in the README, from the table that exports them.

use std::collections::BTreeMap;

use oxccl_capi::{FUNCTIONS, Function, Status};

/// The table: a row per chapter with the functions that work and those that are refused.
pub fn render() -> String {
    let mut chapters: BTreeMap<&str, [Vec<String>; 2]> = BTreeMap::new();
    for f in FUNCTIONS {
        let [works, later] = chapters.entry(f.chapter).or_default();
        if f.status == Status::Works { works.push(name(f)) } else { later.push(name(f)) }
    }
    let working = FUNCTIONS.iter().filter(|f| f.status == Status::Works).count();
    let mut text = format!(
        "{working} of {} functions work; the others exist and return `ncclInvalidUsage` with a text that says so.\n\
         (N: only in `libnccl`, R: only in `librccl`.)\n\n\
         | chapter | works | not yet |\n|---|---|---|\n",
        FUNCTIONS.len()
    );
    for (chapter, [works, later]) in chapters {
        text += &format!("| {chapter} | {} | {} |\n", works.join(", "), later.join(", "));
    }
    text
}

fn name(f: &Function) -> String {
    let only = match (f.nccl, f.rccl) {
        (true, false) => " (N)",
        (false, true) => " (R)",
        _ => "",
    };
    format!("`{}`{only}", f.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_function_is_named_once() {
        let text = render();
        for f in FUNCTIONS {
            assert_eq!(text.matches(&format!("`{}`", f.name)).count(), 1, "{}", f.name);
        }
    }
}
