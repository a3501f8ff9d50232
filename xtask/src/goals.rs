//! The goals of speed, each measured on this machine: ahead of the MPI libraries of the distribution at every point, close to the
//! practical floor (`benches/peers/floor.c`), and what `oxccl perf` tells of itself. Prints a table of goal, what was measured and
//! whether it was met.
//!
//! It is a benchmark, and no test: figures depend on the machine and the hour. What is compared is measured one after the other,
//! and again if the machine has changed meanwhile: the processors of a virtual machine are two cores now, and siblings then. Of
//! points that are close to their goal, or miss it, the median of three measurements counts.

mod bench;
mod hosts;
mod mixed;
mod points;

use anyhow::{Result, bail};

use crate::peers::COLLECTIVES;
use bench::{Bench, Ours};
use hosts::Hosts;
use mixed::{Calls, Mixed, STEPS};
use points::{Pair, Points, Row, bytes_moved};

/// Measures some goals.
type Part = fn(&Bench) -> Result<Vec<Row>>;

/// Parts that can be measured by themselves.
const PARTS: [(&str, Part); 14] = [
    ("pairs", pairs),
    ("large", large),
    ("line", line),
    ("crowds", crowds),
    ("private", private_crowds),
    ("mixed", mixed_calls),
    ("steps", calls_amid_work),
    ("threads", threads),
    ("types", types),
    ("groups", groups),
    ("tcp", tcp),
    ("veth", veth),
    ("mixed-hosts", mixed_calls_between_hosts),
    ("life", life),
];

/// Measures the parts named, or all.
pub fn run(only: &[&str]) -> Result<()> {
    if let Some(unknown) = only.iter().find(|o| PARTS.iter().all(|p| p.0 != **o)) {
        let known: Vec<&str> = PARTS.iter().map(|p| p.0).collect();
        bail!("no part is called {unknown} (known: {})", known.join(" "));
    }
    let bench = Bench::new()?;
    let (rows, failed) = measure(only, |part| part(&bench));
    let us =
        |measured: Result<f64>| measured.map_or_else(|e| format!("not measured: {e:#}"), |us| format!("{us:.2} us"));
    let (trip, pace) = (us(bench.round_trip()), us(bench.pace()));
    println!("\n{}; a line there and back: {trip}, a thousand sixes of sums: {pace}\n", bench.describe());
    println!("| goal | measured | met |\n|---|---|---|");
    rows.iter().for_each(|row| println!("{row}"));
    if !failed.is_empty() {
        bail!("not measured: {}", failed.join(" "));
    }
    Ok(())
}

/// The rows of the parts named, or of all, and which parts failed: what the others found is not lost with those.
fn measure(only: &[&str], measure: impl Fn(Part) -> Result<Vec<Row>>) -> (Vec<Row>, Vec<&'static str>) {
    let (mut rows, mut failed) = (Vec::new(), Vec::new());
    for (name, part) in PARTS.into_iter().filter(|p| only.is_empty() || only.contains(&p.0)) {
        eprintln!("==== {name}");
        match measure(part) {
            Ok(found) => rows.extend(found),
            Err(e) => {
                eprintln!("{name}: {e:#}");
                rows.push(Row::not_measured(name, &e));
                failed.push(name);
            }
        }
    }
    (rows, failed)
}

/// 2 processes beside the peers and the floor.
fn pairs(bench: &Bench) -> Result<Vec<Row>> {
    let [device, malloc, floor] = beside_all(bench, &["8", "128", "2K", "32K", "512K", "8M"])?;
    let (short, long) = floor.split(is_short);
    Ok(vec![
        device.ahead(
            "2 processes, memory of the library, 8 B to 8 MiB: ahead of the best peer (three at 8 MiB: 0.97 of it)",
        ),
        device.in_the_mean("the same, geometric mean at least 1.6", 1.6),
        malloc.ahead("malloc memory: ahead of the best peer"),
        long.ahead("0.6 of the floor's speed from 32 KiB on"),
        long.in_the_mean("the same, geometric mean at least 0.75", 0.75),
        short.ahead("small messages within 2.5 times the floor"),
    ])
}

/// The same of what is longer than the caches.
fn large(bench: &Bench) -> Result<Vec<Row>> {
    let [device, malloc, floor] = beside_all(bench, &["32M", "128M"])?;
    Ok(vec![
        device.ahead("2 processes, memory of the library, 32 and 128 MiB: ahead of the best peer (three: 0.97 of it)"),
        malloc.ahead("32 and 128 MiB, malloc memory: ahead of the best peer"),
        floor.ahead("32 and 128 MiB: 0.6 of the floor's speed"),
    ])
}

/// 2 processes with memory of the library beside the peers, with malloc memory beside them, and beside the floor.
fn beside_all(bench: &Bench, sizes: &[&str]) -> Result<[Points; 3]> {
    let [mut device, mut malloc, mut floor] = [(); 3].map(|()| Points::default());
    for collective in COLLECTIVES {
        for size in sizes.iter().copied() {
            // The three of which peers stand at the memory's limit already.
            let at_limit =
                matches!(collective, "allgather" | "alltoall" | "sendrecv") && matches!(size, "8M" | "32M" | "128M");
            let (best_by, floor_by) = (if at_limit { 0.97 } else { 1.0 }, if is_short(size) { 0.4 } else { 0.6 });
            let found = bench.pairs(|| {
                let best = bench.best_peer(collective, 2, size, false)?;
                let under = bench.floor(collective, 2, size)?;
                let ours = bench.ours(&Ours::new(collective, 2, size))?;
                let private = bench.ours(&Ours::new(collective, 2, size).with("--memory malloc"))?;
                Ok([Pair::of(best, ours, best_by), Pair::of(best, private, 1.0), Pair::of(under, ours, floor_by)])
            })?;
            [&mut device, &mut malloc, &mut floor]
                .into_iter()
                .zip(found)
                .for_each(|(p, pair)| p.add(collective, size, pair));
        }
    }
    Ok([device, malloc, floor])
}

/// Sizes whose time the start of a call makes.
fn is_short(size: &str) -> bool {
    matches!(size, "8" | "128" | "2K")
}

/// An all-reduce of 8 bytes beside a bare round trip, which is measured as the calls are: one after the other. A single call
/// between two barriers is told as well: in it are two looks at the clock, and that ranks leave a barrier one after the other.
fn line(bench: &Bench) -> Result<Vec<Row>> {
    let of = |options: &str| bench.ours(&Ours::new("allreduce", 2, "8").with(options));
    let [call, single] = bench.pairs(|| {
        let most = Some(bench.round_trip()? + 0.35);
        Ok([Pair::of(most, of("-z 1")?, 1.0), Pair::of(most, of("--mode sync")?, 1.0)])
    })?;
    let goal = "8 B all-reduce, enqueue and synchronise: within 0.35 us of a round trip of a line";
    let us = |pair: Option<Pair>| pair.map_or("-".into(), |pair| pair.ours_of_others());
    let measured = format!("{} us allowed; a single call between barriers {}", us(call), us(single));
    Ok(vec![Row::new(goal, measured, call.is_some_and(|call| call.is_met()))])
}

/// More ranks than cores.
fn crowds(bench: &Bench) -> Result<Vec<Row>> {
    let (mut points, mut bytes) = (Points::default(), Points::default());
    for collective in COLLECTIVES {
        for size in ["8", "8K", "64K"] {
            for ranks in [4, 8] {
                let moved = bytes_moved(collective, ranks) / bytes_moved(collective, 2);
                let [best, two] = bench.pairs(|| {
                    let ours = |ranks| bench.ours(&Ours::new(collective, ranks, size));
                    let (best, many) = (bench.best_peer(collective, ranks, size, false)?, ours(ranks)?);
                    let two = if size == "8" { None } else { ours(2)?.map(|t| t * moved) };
                    Ok([Pair::of(best, many, 1.0), Pair::of(two, many, 1.0 / 1.5)])
                })?;
                let name = format!("{size} of {ranks} ranks");
                points.add(collective, &name, best);
                bytes.add(collective, &name, two);
            }
        }
    }
    Ok(vec![
        points.ahead("4 and 8 processes, 8 B to 64 KiB: ahead of the peer whose ranks yield"),
        bytes.ahead("the same: at most 1.5 times the time of 2 ranks per byte moved"),
    ])
}

/// More ranks than cores with memory that peers cannot map, and longer messages.
fn private_crowds(bench: &Bench) -> Result<Vec<Row>> {
    let [mut device, mut malloc] = [(); 2].map(|()| Points::default());
    for collective in COLLECTIVES {
        for size in ["8K", "128K", "2M", "8M", "32M"] {
            for ranks in [4, 8] {
                let found = bench.pairs(|| {
                    let best = bench.best_peer(collective, ranks, size, false)?;
                    let ours = bench.ours(&Ours::new(collective, ranks, size))?;
                    let private = bench.ours(&Ours::new(collective, ranks, size).with("--memory malloc"))?;
                    Ok([Pair::of(best, ours, 1.0), Pair::of(best, private, 1.0)])
                })?;
                let name = format!("{size} of {ranks} ranks");
                [&mut device, &mut malloc].into_iter().zip(found).for_each(|(p, pair)| p.add(collective, &name, pair));
            }
        }
    }
    Ok(vec![
        device.ahead("4 and 8 processes, 8 KiB to 32 MiB: ahead of the peer whose ranks yield"),
        malloc.ahead("the same, malloc memory"),
    ])
}

/// Calls of many lengths, buffers and roots, one after the other.
fn mixed_calls(bench: &Bench) -> Result<Vec<Row>> {
    sequences(
        bench,
        &[
            ("all", "48 calls of many lengths, buffers and roots, 2, 4 and 8 processes: ahead of the best peer"),
            (
                "experts",
                "48 uneven all-to-alls by Send and Recv, 2, 4 and 8 processes: ahead of the best peer's alltoallv",
            ),
        ],
    )
}

/// The same with work of each rank before each call.
fn calls_amid_work(bench: &Bench) -> Result<Vec<Row>> {
    sequences(
        bench,
        &[(
            STEPS,
            "48 calls amid work of the ranks, work included, 2, 4 and 8 processes: ahead of the best peer, waited for or not",
        )],
    )
}

/// The kinds of sequences named, and their goals.
fn sequences(bench: &Bench, kinds: &[(&'static str, &str)]) -> Result<Vec<Row>> {
    let mixed = Mixed::new(bench)?;
    let mut rows = Vec::new();
    for (kind, goal) in kinds.iter().copied() {
        let [mut device, mut malloc] = [(); 2].map(|()| Points::default());
        for calls in Calls::of(kind) {
            let found = bench.pairs(|| {
                let best = mixed.best_peer(bench, calls)?;
                let ours = |memory| mixed.ours(bench, calls, memory);
                Ok([Pair::of(best, ours("device")?, 1.0), Pair::of(best, ours("malloc")?, 1.0)])
            })?;
            let name = calls.to_string();
            [&mut device, &mut malloc].into_iter().zip(found).for_each(|(p, pair)| p.add("calls", &name, pair));
        }
        rows.extend([device.ahead(goal), malloc.ahead("the same, malloc memory")]);
    }
    Ok(rows)
}

/// The same between two hosts, which are namespaces of this machine.
fn mixed_calls_between_hosts(bench: &Bench) -> Result<Vec<Row>> {
    let goal = "48 calls of many lengths, buffers and roots between two hosts, 2, 4 and 8 processes: ahead of the peer between them";
    between_hosts(bench, goal, |hosts| {
        let mixed = Mixed::new(bench)?;
        let row = |(kind, goal)| {
            let mut points = Points::default();
            for calls in Calls::of(kind) {
                let [pair] = bench.pairs(|| {
                    let ours = mixed.ours_between(bench, hosts, calls)?;
                    Ok([Pair::of(mixed.peer_between(hosts, calls)?, ours, 1.0)])
                })?;
                points.add("calls", &calls.to_string(), pair);
            }
            Ok(points.ahead(goal))
        };
        [("all", goal), ("experts", "the same, uneven all-to-alls by Send and Recv")].into_iter().map(row).collect()
    })
}

/// What `measure` finds between two hosts; a row that says why not, by the name of its goal, where none can be made.
fn between_hosts(bench: &Bench, goal: &str, measure: impl FnOnce(&Hosts) -> Result<Vec<Row>>) -> Result<Vec<Row>> {
    match bench.hosts() {
        Ok(hosts) => measure(&hosts),
        Err(e) => Ok(vec![Row::not_measured(goal, &e)]),
    }
}

/// Ranks as threads beside ranks as processes.
fn threads(bench: &Bench) -> Result<Vec<Row>> {
    let mut points = Points::default();
    for collective in ["allreduce", "allgather", "broadcast", "alltoall"] {
        for size in ["8", "2K", "32K", "512K"] {
            let [pair] = bench.pairs(|| {
                let processes = bench.ours(&Ours::new(collective, 2, size))?;
                let threads = bench.ours(&Ours::new(collective, 2, size).by_threads())?;
                Ok([Pair::of(processes, threads, 1.0)])
            })?;
            points.add(collective, size, pair);
        }
    }
    Ok(vec![points.in_the_mean("ranks as threads: at least as fast as processes, in the mean", 1.0)])
}

/// Narrow types beyond the caches.
fn types(bench: &Bench) -> Result<Vec<Row>> {
    let mut points = Points::default();
    for dtype in ["bfloat16", "half", "fp8_e4m3", "fp8_e5m2"] {
        let [pair] = bench.pairs(|| {
            let of = |dtype: &str| bench.ours(&Ours::new("allreduce", 2, "64M").with(&format!("-d {dtype}")));
            Ok([Pair::of(of("float")?, of(dtype)?, 1.0 / 1.1)])
        })?;
        points.add("allreduce", dtype, pair);
    }
    Ok(vec![points.ahead("narrow types, 64 MiB: at most 1.1 times the time of f32 per byte")])
}

/// Many small calls together, and communicators in turn.
fn groups(bench: &Bench) -> Result<Vec<Row>> {
    let [grouped, turns] = bench.pairs(|| {
        let of = |options: &str| bench.ours(&Ours::new("allreduce", 2, "8").with(options));
        let single = of("-z 1")?;
        Ok([Pair::of(single, of("-m 1000")?, 3.0), Pair::of(single, of("-m 1000 --comms 8")?, 3.0)])
    })?;
    let row = |goal, pair: Option<Pair>| match pair {
        Some(pair) => Row::new(goal, format!("{pair}"), pair.is_met()),
        None => Row::new(goal, "not measured".into(), false),
    };
    Ok(vec![
        row("1,000 small collectives in a group: 3 times the rate of calls that are each synchronised", grouped),
        row("the same on 8 communicators in turn", turns),
    ])
}

/// TCP over the loopback device.
fn tcp(bench: &Bench) -> Result<Vec<Row>> {
    let goal = "TCP over loopback, 8 B to 2 MiB: ahead of the peer that is measured over it";
    let rows = [(2, goal), (4, "the same, 4 processes"), (7, "the same, 7 processes")];
    ahead_over_network(bench, rows, |collective, ranks, size| {
        let ours = bench.ours(&Ours::new(collective, ranks, size).over_tcp())?;
        Ok([Pair::of(bench.best_peer(collective, ranks, size, true)?, ours, 1.0)])
    })
}

/// A row for each number of ranks: all collectives, with an element for each rank at least, as `measure` does it.
fn ahead_over_network<const N: usize>(
    bench: &Bench,
    rows: [(u32, &str); N],
    measure: impl Fn(&str, u32, &str) -> Result<[Option<Pair>; 1]>,
) -> Result<Vec<Row>> {
    let row = |(ranks, goal)| {
        let mut points = Points::default();
        let least = if ranks == 2 { "8" } else { "64" };
        for collective in COLLECTIVES {
            for size in [least, "8K", "128K", "2M"] {
                let [pair] = bench.pairs(|| measure(collective, ranks, size))?;
                points.add(collective, &format!("{size} of {ranks} ranks"), pair);
            }
        }
        Ok(points.ahead(goal))
    };
    rows.into_iter().map(row).collect()
}

/// TCP between two hosts, which are namespaces of this machine.
fn veth(bench: &Bench) -> Result<Vec<Row>> {
    let goal = "TCP between two hosts (veth), 8 B to 2 MiB: ahead of the peer that is measured between them";
    let rows = [
        (2, goal),
        (4, "the same from 64 B on, 2 processes on each host"),
        (8, "the same from 64 B on, 4 on each host"),
    ];
    between_hosts(bench, goal, |hosts| {
        ahead_over_network(bench, rows, |collective, ranks, size| {
            let ours = bench.ours_between(hosts, &Ours::new(collective, ranks, size).each_alone())?;
            Ok([Pair::of(bench.peer_between(hosts, collective, ranks, size)?, ours, 1.0)])
        })
    })
}

/// What a communicator costs, and a rank that waits.
fn life(bench: &Bench) -> Result<Vec<Row>> {
    let init = bench.told("perf init --procs 8")?;
    let (ms, kib) = (init.number("median ")? / 1e3, init.number("memory of an unused communicator")?);
    let helpers = init.number("threads of the library")?;
    let first = init.number("first communicator of the processes")? / 1e3;
    let mut rows = vec![
        Row::new(
            "8 processes begin within 20 ms: their first communicator; another one",
            format!("{first:.1} ms; {ms:.1} ms"),
            first.max(ms) < 20.0,
        ),
        Row::new("memory of a communicator before its first use: under 1 MiB", format!("{kib:.1} KiB"), kib < 1024.0),
        Row::new("at most 1 helper thread", format!("{helpers}"), helpers <= 1.0),
    ];
    for ranks in [2, 4, 8] {
        let late = |_| {
            let late = bench.told(&format!("perf late --procs {ranks}"))?;
            Ok((late.number("processor time while waiting")?, late.number("last return\n  median ")?))
        };
        let (mut shares, mut lasts): (Vec<f64>, Vec<f64>) =
            (0..3).map(late).collect::<Result<Vec<_>>>()?.into_iter().unzip();
        shares.sort_by(f64::total_cmp);
        lasts.sort_by(f64::total_cmp);
        let (share, last) = (shares[1], lasts[1]);
        if ranks == 2 {
            let goal = "a rank that waits 100 ms: under 10 % of a core after the first 2 ms";
            rows.push(Row::new(goal, format!("{share:.1} %"), share < 10.0));
        }
        let goal = format!("the same, {ranks} ranks: the last woken within 60 us");
        rows.push(Row::new(&goal, format!("{last:.0} us"), last < 60.0));
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn an_unknown_part_is_named_before_anything_is_measured() {
        let error = run(&["pears"]).expect_err("no such part").to_string();
        assert!(error.contains("pears") && error.contains("pairs"), "{error}");
    }

    #[test]
    fn a_part_that_fails_is_a_row_and_the_others_go_on() {
        let calls = Cell::new(0);
        let second_fails = |_| {
            calls.set(calls.get() + 1);
            if calls.get() == 2 { bail!("no luck\nat | all") } else { Ok(vec![Row::new("g", "1".into(), true)]) }
        };
        let (rows, failed) = measure(&["pairs", "large", "line"], second_fails);
        let rows: Vec<String> = rows.iter().map(Row::to_string).collect();
        assert_eq!(rows, ["| g | 1 | yes |", r"| large | not measured: no luck at \| all | no |", "| g | 1 | yes |"]);
        assert_eq!(failed, ["large"]);
    }
}
