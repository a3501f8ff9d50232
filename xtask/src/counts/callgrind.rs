//! Reading callgrind's profile: what each function cost by itself and with all that it calls.
//!
//! The part of the format that callgrind writes with one event (instructions): names are compressed, positions may be
//! relative, and the line behind `calls=` holds the cost of the called function with all that it called.

use std::collections::{BTreeMap, HashMap};

use anyhow::{Context, Result, ensure};

/// A function as others called it.
#[derive(Default, Clone, Copy, PartialEq, Eq, Debug)]
pub struct Called {
    /// How often.
    pub times: u64,
    /// Instructions of it and of all that it called.
    pub cost: u64,
}

/// A profile of one thread.
#[derive(Default, Debug)]
pub struct Profile {
    /// Instructions per function, without those of the functions it calls.
    pub functions: BTreeMap<String, u64>,
    /// Instructions per source line, also of lines that were inlined; empty without debug information.
    pub lines: BTreeMap<String, u64>,
    /// Functions that were called by others.
    pub called: BTreeMap<String, Called>,
}

/// Full names of compressed ones: `(12) name` gives the number a name, `(12)` uses it.
#[derive(Default)]
struct Names(HashMap<String, String>);

impl Names {
    fn get(&mut self, text: &str) -> String {
        let Some((number, rest)) = text.strip_prefix('(').and_then(|t| t.split_once(')')) else {
            return text.to_owned();
        };
        if rest.is_empty() {
            return self.0.get(number).cloned().unwrap_or_default();
        }
        self.0.insert(number.to_owned(), rest.trim().to_owned());
        rest.trim().to_owned()
    }
}

#[derive(Default)]
struct Reader {
    profile: Profile,
    functions: Names,
    files: Names,
    function: String,
    file: String,
    callee: String,
    /// Calls that the next line of cost belongs to.
    calls: Option<u64>,
    line: u64,
}

/// Reads the text of a profile.
///
/// # Errors
/// Another event than instructions, or a line of cost without a number.
pub fn parse(text: &str) -> Result<Profile> {
    let mut reader = Reader::default();
    for line in text.lines() {
        reader.take(line).with_context(|| format!("in callgrind's line: {line}"))?;
    }
    Ok(reader.profile)
}

impl Reader {
    fn take(&mut self, line: &str) -> Result<()> {
        if let Some(events) = line.strip_prefix("events:") {
            ensure!(events.trim() == "Ir", "events other than instructions:{events}");
            return Ok(());
        }
        if line.starts_with(|c: char| c.is_ascii_digit() || "+-*".contains(c)) {
            return self.cost(line);
        }
        let Some((key, value)) = line.split_once('=') else { return Ok(()) };
        match key {
            "fn" => self.function = self.functions.get(value),
            "fl" | "fi" | "fe" => self.file = self.files.get(value),
            "cfn" => self.callee = self.functions.get(value),
            "cfi" | "cfl" => drop(self.files.get(value)),
            "calls" => self.calls = Some(first(value)?),
            _ => {}
        }
        Ok(())
    }

    fn cost(&mut self, line: &str) -> Result<()> {
        let (position, cost) = line.split_once(' ').unwrap_or((line, "0"));
        let cost = first(cost)?;
        self.line = match position.split_at(1) {
            ("*", _) => self.line,
            ("+", n) => self.line + first(n)?,
            ("-", n) => self.line.saturating_sub(first(n)?),
            _ => first(position)?,
        };
        if let Some(times) = self.calls.take() {
            let called = self.profile.called.entry(self.callee.clone()).or_default();
            called.times += times;
            called.cost += cost;
            return Ok(());
        }
        *self.profile.functions.entry(self.function.clone()).or_default() += cost;
        if self.line > 0 {
            let place = format!("{}:{}", short(&self.file), self.line);
            *self.profile.lines.entry(place).or_default() += cost;
        }
        Ok(())
    }
}

/// The first number in `text`.
fn first(text: &str) -> Result<u64> {
    let word = text.split_whitespace().next().context("no number")?;
    word.parse().with_context(|| format!("{word} is no number"))
}

/// The end of a path, from the crate's folder on.
fn short(path: &str) -> &str {
    let start = path.rmatch_indices('/').nth(3).map_or(0, |(i, _)| i + 1);
    &path[start..]
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
version: 1
positions: line
events: Ir
summary: 165

fl=(1) /a/b/crates/x/src/main.c
fn=(1) main
10 5
+2 7
cfn=(2) count_it
calls=2 20
* 150
-1 3

fn=(2)
20 100
fi=(2) /a/inlined.h
7 30
fe=(1)
21 20
totals: 165
";

    #[test]
    fn own_and_inclusive_costs_are_told_apart() {
        let p = parse(TEXT).expect("a good profile");
        assert_eq!(p.called["count_it"], Called { times: 2, cost: 150 });
        assert_eq!((p.functions["main"], p.functions["count_it"]), (15, 150));
    }

    #[test]
    fn relative_lines_and_inlined_files_are_followed() {
        let p = parse(TEXT).expect("a good profile");
        assert_eq!((p.lines["crates/x/src/main.c:12"], p.lines["crates/x/src/main.c:11"]), (7, 3));
        assert_eq!((p.lines["/a/inlined.h:7"], p.lines["crates/x/src/main.c:21"]), (30, 20));
    }

    #[test]
    fn other_events_are_refused() {
        assert!(parse("events: Ir Dr\n").is_err());
        assert!(parse("10 x\n").is_err());
    }
}
