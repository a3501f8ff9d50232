//! The checked-in table of instruction counts: reading, writing and judging by it. It counts nothing itself.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};

/// A phase may take this much more, or less, than the table says: compilers and C libraries differ a little.
const TOLERANCE: f64 = 0.10;
/// Instructions that are always forgiven; a tenth of a very short phase is too little.
const SLACK: f64 = 15.0;

const HEAD: &str = "\
# Instructions per call of an 8-byte collective between two ranks, through the C interface of the release build.
# Counted by `cargo xtask counts` under callgrind; written by `cargo xtask counts --write`. x86-64.
# first: the rank that comes first, its call; late: the other rank, call and synchronise; finish: the first synchronises.
# More than a tenth above the table fails.
";

/// What differs from the table, as lines for people.
#[derive(Default, Debug)]
pub struct Verdict {
    /// Phases that cost more, are not in the table, or are only there.
    pub worse: Vec<String>,
    /// Phases that cost less.
    pub better: Vec<String>,
}

/// The table's text.
pub fn render(counts: &BTreeMap<String, f64>) -> String {
    counts.iter().fold(HEAD.to_owned(), |text, (name, count)| text + &format!("{name} = {count:.0}\n"))
}

/// Reads a table.
pub fn parse(text: &str) -> Result<BTreeMap<String, f64>> {
    let mut limits = BTreeMap::new();
    for line in text.lines().filter(|l| !l.starts_with('#') && !l.trim().is_empty()) {
        let (name, count) = line.split_once('=').with_context(|| format!("no `=` in: {line}"))?;
        let count = count.trim().parse().with_context(|| format!("no number in: {line}"))?;
        ensure!(limits.insert(name.trim().to_owned(), count).is_none(), "twice: {line}");
    }
    Ok(limits)
}

/// Compares.
pub fn judge(counts: &BTreeMap<String, f64>, limits: &BTreeMap<String, f64>) -> Verdict {
    let mut verdict = Verdict::default();
    for (name, now) in counts {
        let Some(limit) = limits.get(name) else {
            verdict.worse.push(format!("{name} is not in the table ({now:.0})"));
            continue;
        };
        let allowed = (limit * TOLERANCE).max(SLACK);
        let line = format!("{name}: {now:.0}, was {limit:.0} ({:+.0} %)", (now / limit - 1.0) * 100.0);
        if now - limit > allowed {
            verdict.worse.push(line);
        } else if limit - now > allowed {
            verdict.better.push(line);
        }
    }
    let gone = limits.keys().filter(|name| !counts.contains_key(*name));
    verdict.worse.extend(gone.map(|name| format!("{name} is in the table but was not counted")));
    verdict
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, f64)]) -> BTreeMap<String, f64> {
        pairs.iter().map(|(n, c)| ((*n).to_owned(), *c)).collect()
    }

    #[test]
    fn what_is_written_is_read() {
        let counts = map(&[("a_first", 12.4), ("b", 900.0)]);
        assert_eq!(parse(&render(&counts)).expect("our own table"), map(&[("a_first", 12.0), ("b", 900.0)]));
        assert!(parse("a 1").is_err() && parse("a = x").is_err() && parse("a = 1\na = 2").is_err());
    }

    #[test]
    fn unknown_and_vanished_phases_fail() {
        let v = judge(&map(&[("new", 1.0)]), &map(&[("old", 1.0)]));
        assert_eq!((v.worse.len(), v.better.len()), (2, 0), "{v:?}");
    }

    #[test]
    fn short_phases_have_slack() {
        assert!(judge(&map(&[("a", 30.0)]), &map(&[("a", 20.0)])).worse.is_empty());
        assert!(!judge(&map(&[("a", 40.0)]), &map(&[("a", 20.0)])).worse.is_empty());
    }
}
