//! The goals of speed, each measured on this machine: ahead of the MPI libraries of the distribution at every point, close to the
//! practical floor (`benches/peers/floor.c`), and what `oxccl perf` tells of itself. Prints a table of goal, what was measured and
//! whether it was met.
//!
//! It is a benchmark, and no test: figures depend on the machine and the hour. What is compared is measured one after the other,
//! and again if the machine has changed meanwhile: the processors of a virtual machine are two cores now, and siblings then.

mod bench;
mod points;

use anyhow::{Result, bail};

use crate::peers::COLLECTIVES;
use bench::{Bench, Ours};
use points::{Points, Row, bytes_moved};

/// Measures some goals.
type Part = fn(&Bench) -> Result<Vec<Row>>;

/// Parts that can be measured by themselves.
const PARTS: [(&str, Part); 8] = [
    ("pairs", pairs),
    ("line", line),
    ("crowds", crowds),
    ("threads", threads),
    ("types", types),
    ("groups", groups),
    ("tcp", tcp),
    ("life", life),
];

/// Measures the parts named, or all.
pub fn run(only: &[&str]) -> Result<()> {
    if let Some(unknown) = only.iter().find(|o| PARTS.iter().all(|p| p.0 != **o)) {
        let known: Vec<&str> = PARTS.iter().map(|p| p.0).collect();
        bail!("no part is called {unknown} (known: {})", known.join(" "));
    }
    let bench = Bench::new()?;
    let mut rows = Vec::new();
    for (name, part) in PARTS.iter().filter(|p| only.is_empty() || only.contains(&p.0)) {
        eprintln!("==== {name}");
        rows.extend(part(&bench)?);
    }
    println!("\n{}; a line there and back: {:.2} us\n", bench.describe(), bench.round_trip()?);
    println!("| goal | measured | met |\n|---|---|---|");
    rows.iter().for_each(|row| println!("{row}"));
    Ok(())
}

/// 2 processes beside the peers and the floor.
fn pairs(bench: &Bench) -> Result<Vec<Row>> {
    let [mut device, mut malloc, mut floor] = [(); 3].map(|()| Points::default());
    for collective in COLLECTIVES {
        for size in ["8", "128", "2K", "32K", "512K", "8M"] {
            let (best, under, ours, private) = bench.steady(|| {
                Ok((
                    bench.best_peer(collective, 2, size, false)?,
                    bench.floor(collective, 2, size)?,
                    bench.ours(&Ours::new(collective, 2, size))?,
                    bench.ours(&Ours::new(collective, 2, size).with("--memory malloc"))?,
                ))
            })?;
            device.add(collective, size, best, ours);
            malloc.add(collective, size, best, private);
            floor.add(collective, size, under, ours);
        }
    }
    // Where peers stand at the memory's limit already.
    let at_limit = |c: &str, size: &str| matches!(c, "allgather" | "alltoall" | "sendrecv") && size == "8M";
    let (short, long) = floor.split(|size| matches!(size, "8" | "128" | "2K"));
    Ok(vec![
        device.ahead("2 processes, memory of the library, 8 B to 8 MiB: ahead of the best peer", |c, s| {
            if at_limit(c, s) { 0.97 } else { 1.0 }
        }),
        device.in_the_mean("the same, geometric mean at least 1.6", 1.6),
        malloc.ahead("malloc memory: ahead of the best peer", |_, _| 1.0),
        long.ahead("0.6 of the floor's speed from 32 KiB on", |_, _| 0.6),
        long.in_the_mean("the same, geometric mean at least 0.75", 0.75),
        short.ahead("small messages within 2.5 times the floor", |_, _| 0.4),
    ])
}

/// An all-reduce of 8 bytes beside a bare round trip.
fn line(bench: &Bench) -> Result<Vec<Row>> {
    let (trip, call) = bench.steady(|| {
        Ok((bench.round_trip()?, bench.ours(&Ours::new("allreduce", 2, "8").with("--mode sync"))?.unwrap_or(f64::NAN)))
    })?;
    let goal = "8 B all-reduce, enqueue and synchronise: within 0.35 us of a round trip of a line";
    Ok(vec![Row::new(goal, format!("{call:.2} us, round trip {trip:.2}"), call <= trip + 0.35)])
}

/// More ranks than cores.
fn crowds(bench: &Bench) -> Result<Vec<Row>> {
    let (mut points, mut bytes) = (Points::default(), Points::default());
    for collective in COLLECTIVES {
        for size in ["8", "8K", "64K"] {
            for ranks in [4, 8] {
                let (best, two, ours) = bench.steady(|| {
                    let ours = |ranks| bench.ours(&Ours::new(collective, ranks, size));
                    Ok((bench.best_peer(collective, ranks, size, false)?, ours(2)?, ours(ranks)?))
                })?;
                let name = format!("{size} of {ranks} ranks");
                points.add(collective, &name, best, ours);
                if size != "8" {
                    let moved = bytes_moved(collective, ranks) / bytes_moved(collective, 2);
                    bytes.add(collective, &name, two.map(|t| t * moved), ours);
                }
            }
        }
    }
    Ok(vec![
        points.ahead("4 and 8 processes, 8 B to 64 KiB: ahead of the peer whose ranks yield", |_, _| 1.0),
        bytes.ahead("the same: at most 1.5 times the time of 2 ranks per byte moved", |_, _| 1.0 / 1.5),
    ])
}

/// Ranks as threads beside ranks as processes.
fn threads(bench: &Bench) -> Result<Vec<Row>> {
    let mut points = Points::default();
    for collective in ["allreduce", "allgather", "broadcast", "alltoall"] {
        for size in ["8", "2K", "32K", "512K"] {
            let (processes, threads) = bench.steady(|| {
                let processes = bench.ours(&Ours::new(collective, 2, size))?;
                Ok((processes, bench.ours(&Ours::new(collective, 2, size).by_threads())?))
            })?;
            points.add(collective, size, processes, threads);
        }
    }
    Ok(vec![points.in_the_mean("ranks as threads: at least as fast as processes, in the mean", 1.0)])
}

/// Narrow types beyond the caches.
fn types(bench: &Bench) -> Result<Vec<Row>> {
    let mut points = Points::default();
    for dtype in ["bfloat16", "half", "fp8_e4m3", "fp8_e5m2"] {
        let (wide, narrow) = bench.steady(|| {
            let of = |dtype: &str| bench.ours(&Ours::new("allreduce", 2, "64M").with(&format!("-d {dtype}")));
            Ok((of("float")?, of(dtype)?))
        })?;
        points.add("allreduce", dtype, wide, narrow);
    }
    Ok(vec![points.ahead("narrow types, 64 MiB: at most 1.1 times the time of f32 per byte", |_, _| 1.0 / 1.1)])
}

/// Many small calls together, and communicators in turn.
fn groups(bench: &Bench) -> Result<Vec<Row>> {
    let times = bench.steady(|| {
        let of = |options: &str| bench.ours(&Ours::new("allreduce", 2, "8").with(options));
        Ok([of("-z 1")?, of("-m 1000")?, of("-m 1000 --comms 8")?].map(|t| t.unwrap_or(f64::NAN)))
    })?;
    let [single, grouped, turns] = times;
    let row = |goal, us: f64| {
        let times = single / us;
        Row::new(goal, format!("{times:.1} times: {us:.3} us a call, {single:.3} each synchronised"), times >= 3.0)
    };
    Ok(vec![
        row("1,000 small collectives in a group: 3 times the rate of single calls", grouped),
        row("the same on 8 communicators in turn", turns),
    ])
}

/// TCP over the loopback device.
fn tcp(bench: &Bench) -> Result<Vec<Row>> {
    let mut points = Points::default();
    for collective in COLLECTIVES {
        for size in ["8", "8K", "128K", "2M"] {
            let (best, ours) = bench.steady(|| {
                let ours = bench.ours(&Ours::new(collective, 2, size).over_tcp())?;
                Ok((bench.best_peer(collective, 2, size, true)?, ours))
            })?;
            points.add(collective, size, best, ours);
        }
    }
    Ok(vec![points.ahead("TCP over loopback, 8 B to 2 MiB: ahead of the peer that is measured over it", |_, _| 1.0)])
}

/// What a communicator costs, and a rank that waits.
fn life(bench: &Bench) -> Result<Vec<Row>> {
    let init = bench.told("perf init --procs 8")?;
    let (ms, kib) = (init.number("median ")? / 1e3, init.number("memory of an unused communicator")?);
    let helpers = init.number("threads of the library")?;
    let mut rows = vec![
        Row::new("8 processes begin within 20 ms", format!("{ms:.1} ms"), ms < 20.0),
        Row::new("memory of a communicator before its first use: under 1 MiB", format!("{kib:.1} KiB"), kib < 1024.0),
        Row::new("at most 1 helper thread", format!("{helpers}"), helpers <= 1.0),
    ];
    for ranks in [2, 4, 8] {
        let late = bench.told(&format!("perf late --procs {ranks}"))?;
        let (share, last) = (late.number("processor time while waiting")?, late.number("last return\n  median ")?);
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
    use super::*;

    #[test]
    fn an_unknown_part_is_named_before_anything_is_measured() {
        let error = run(&["pears"]).expect_err("no such part").to_string();
        assert!(error.contains("pears") && error.contains("pairs"), "{error}");
    }
}
