//! Words and drawings for people: why an algorithm is chosen, what its ranks do, and the page of all algorithms.

use crate::algorithms::ALGORITHMS;
use crate::ir::{Needs, Op, Program, Schedule};
use crate::select::{Query, candidates};
use oxccl_types::Collective;
use std::collections::HashSet;
use std::fmt::Write;

/// A table of the candidates for `q`, the chosen one first; each algorithm with its best number of channels.
pub fn explain(q: &Query) -> String {
    let mut out = format!("{} of {} over {} ranks", q.collective.snake(), size(q.bytes), q.ranks);
    if q.collective.rooted() {
        let _ = write!(out, ", root {}", q.root);
    }
    let _ = writeln!(out, "{}, reach {:?}", if q.in_place { ", in place" } else { "" }, q.reach);
    let mut all = candidates(q);
    let mut seen = HashSet::new();
    all.retain(|c| seen.insert((c.algorithm, c.protocol)));
    if all.is_empty() {
        out += "no algorithm that is allowed can serve this\n";
        return out;
    }
    let _ = writeln!(
        out,
        "{:2}{:<16} {:>8} {:<8} {:>14} {:>8}  why",
        "", "algorithm", "channels", "protocol", "us", "GB/s"
    );
    for (i, c) in all.iter().enumerate() {
        let mark = if i == 0 { "*" } else { "" };
        let rate = q.bytes as f64 / c.predicted_us / 1e3;
        let protocol = format!("{:?}", c.protocol).to_lowercase();
        let _ = writeln!(
            out,
            "{mark:2}{:<16} {:>8} {protocol:<8} {:>14.2} {rate:>8.2}  {}",
            c.algorithm, c.channels, c.predicted_us, c.reason
        );
    }
    out
}

/// A size as people write it: `1M`, `1536`, `4K`.
fn size(bytes: u64) -> String {
    for (shift, unit) in [(30, "G"), (20, "M"), (10, "K")] {
        if bytes >= 1 << shift && bytes.trailing_zeros() >= shift {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    format!("{bytes} B")
}

/// Draws a schedule: one table per channel, a column per rank, a line per step. Readable for up to 8 ranks.
///
/// `in0.2/4` is part 2 of 4 of block 0 of Input; `>3` sends to rank 3, `<3` receives from it, `+` adds, `1:out0` lies
/// on rank 1, `^` raises a signal, `3^2` waits for the second signal of rank 3.
pub fn draw(s: &Schedule) -> String {
    let mut out = format!("{} {} ranks", s.algorithm, s.shape.ranks);
    let _ = writeln!(out, " ({}, {} channels)", s.shape.collective.snake(), s.shape.channels);
    for channel in 0..s.shape.channels as usize {
        let _ = writeln!(out, "channel {channel}");
        let column = |p: &Program| -> Vec<String> {
            let head = std::iter::once(format!("rank {}", p.rank));
            head.chain(p.channels[channel].iter().map(|op| short(op, p.rank))).collect()
        };
        let columns: Vec<Vec<String>> = s.programs.iter().map(column).collect();
        let lines = columns.iter().map(Vec::len).max().unwrap_or(0);
        let widths: Vec<usize> =
            columns.iter().map(|c| c.iter().map(|t| t.chars().count()).max().unwrap_or(0)).collect();
        for line in 0..lines {
            let number = if line == 0 { String::new() } else { (line - 1).to_string() };
            let mut text = format!("{number:>3}");
            for (c, width) in columns.iter().zip(&widths) {
                let _ = write!(text, " | {:width$}", c.get(line).map_or("", String::as_str));
            }
            out += text.trim_end();
            out.push('\n');
        }
    }
    out
}

fn short(op: &Op, me: u32) -> String {
    match op {
        Op::Send { to, src } => format!("{src} >{to}"),
        Op::Recv { from, dst } => format!("{dst} = <{from}"),
        Op::RecvReduce { from, src, dst } if src == dst => format!("{dst} += <{from}"),
        Op::RecvReduce { from, src, dst } => format!("{dst} = {src} + <{from}"),
        Op::RecvReduceSend { from, to, src, dst: None } => format!("{src} + <{from} >{to}"),
        Op::RecvReduceSend { from, to, src, dst: Some(dst) } => format!("{dst} = {src} + <{from} >{to}"),
        Op::RecvCopySend { from, to, dst } => format!("{dst} = <{from} >{to}"),
        Op::Copy { src, dst } => format!("{dst} = {src}"),
        Op::Reduce { a, b, dst } => format!("{dst} = {a} + {b}"),
        Op::Move { srcs, dsts } => format!("{} = {}", places(dsts, me), places(srcs, me)),
        Op::Signal => "^".into(),
        Op::Wait { rank, epoch } => format!("{rank}^{epoch}"),
    }
}

/// Places that hold the same chunk on several ranks are written once: `0,1,2:in0`.
fn places(places: &[crate::ir::Place], me: u32) -> String {
    let groups = places.chunk_by(|a, b| a.chunk == b.chunk).map(|g| {
        let ranks: Vec<String> = g.iter().map(|p| p.rank.to_string()).collect();
        let own = g.len() == 1 && g[0].rank == me;
        if own { g[0].chunk.to_string() } else { format!("{}:{}", ranks.join(","), g[0].chunk) }
    });
    groups.collect::<Vec<_>>().join(" + ")
}

/// The page `docs/algorithms.md`, made from the table.
pub fn algorithms_markdown() -> String {
    let mut out = String::from(
        "# Algorithms\n\nGenerated from the table in `crates/schedule/src/algorithms/mod.rs`; do not edit.\n\n\
         The slots are the fewest per connection with which the algorithm cannot deadlock.\n\n\
         | Name | Needs | Slots | What it does |\n|---|---|---|---|\n",
    );
    for a in ALGORITHMS {
        let needs = match a.needs {
            Needs::Messages => "connections",
            Needs::MappedUser => "mapped user buffers",
            Needs::MappedScratch => "mapped scratch",
        };
        let slots = if a.min_slots == 0 { "-".to_owned() } else { a.min_slots.to_string() };
        let _ = writeln!(out, "| `{}` | {needs} | {slots} | {} |", a.name, a.doc);
    }
    out += "\n## Who serves what\n\n| |";
    for c in Collective::SCHEDULED {
        let _ = write!(out, " {} |", c.snake());
    }
    let _ = writeln!(out, "\n|---|{}", "---|".repeat(Collective::SCHEDULED.len()));
    for a in ALGORITHMS {
        let _ = write!(out, "| `{}` |", a.name);
        for c in Collective::SCHEDULED {
            out += if a.collectives.contains(&c) { " yes |" } else { " |" };
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithms::find;
    use crate::ir::Shape;
    use crate::select::{AllowList, Reach};

    #[test]
    fn the_chosen_one_comes_first() {
        let mut q = Query::new(Collective::AllReduce, 1 << 20, 8, Reach::MappedUser);
        let text = explain(&q);
        assert!(text.starts_with("all_reduce of 1M over 8 ranks, reach MappedUser\n"), "{text}");
        assert!(text.lines().nth(2).is_some_and(|l| l.starts_with("* two_shot")), "{text}");
        q.allow = AllowList::parse("pat").expect("a known name");
        assert!(explain(&q).contains("no algorithm"));
    }

    #[test]
    fn drawings_show_every_step() {
        let shape =
            Shape { collective: Collective::AllReduce, ranks: 3, root: 0, channels: 1, in_place: false, local: 1 };
        let text = draw(&find("ring").expect("a name").schedule(&shape));
        let expected = "\
ring 3 ranks (all_reduce, 1 channels)
channel 0
    | rank 0                     | rank 1                     | rank 2
  0 | in0.2/3 >1                 | in0.0/3 >2                 | in0.1/3 >0
  1 | in0.1/3 + <2 >1            | in0.2/3 + <0 >2            | in0.0/3 + <1 >0
  2 | out0.0/3 = in0.0/3 + <2 >1 | out0.1/3 = in0.1/3 + <0 >2 | out0.2/3 = in0.2/3 + <1 >0
  3 | out0.2/3 = <2 >1           | out0.0/3 = <0 >2           | out0.1/3 = <1 >0
  4 | out0.1/3 = <2              | out0.2/3 = <0              | out0.0/3 = <1
";
        assert_eq!(text, expected);
        let text = draw(&find("two_shot").expect("a name").schedule(&shape));
        assert!(text.contains("0,1,2:out0.1/3 = 0,1,2:in0.1/3"), "{text}");
    }

    #[test]
    fn the_page_names_every_algorithm() {
        let page = algorithms_markdown();
        assert!(ALGORITHMS.iter().all(|a| page.matches(&format!("| `{}` |", a.name)).count() == 2), "{page}");
    }
}
