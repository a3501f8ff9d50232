//! The scan: all types, operators, roots and sizes, and the printing of what was found.

use std::{
    io::{IsTerminal, Write},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use oxccl_types::DataType;

use super::{
    args::{PerfArgs, Root},
    collectives::Call,
    control::WORDS,
    data::Op,
    failure::{self, Guard},
    jsonl::{self, Points},
    measure::{Half, Meter},
    ranks::{Data, Team},
    table::{self, Line},
};
use crate::api;

/// Scans with one team; the exit status, the same on every team.
pub fn run(args: &PerfArgs, team: Team, guard: &Guard) -> Result<u8> {
    let mut data: Vec<(DataType, Data)> = Vec::new();
    for dtype in args.dtypes.iter() {
        if args.collective().reduces() {
            for op in args.ops.iter() {
                data.push((*dtype, team.data(*dtype, Some(*op))?));
            }
        } else {
            data.push((*dtype, team.data(*dtype, None)?));
        }
    }
    let mut scan = Scan::new(args, &team, guard, &data)?;
    scan.begin()?;
    let mut cycle = 0;
    while args.cycles == 0 || cycle < args.cycles {
        scan.cycle()?;
        cycle += 1;
    }
    let code = scan.end()?;
    team.close(&data.iter().map(|(_, d)| d).collect::<Vec<_>>())?;
    Ok(code)
}

struct Scan<'a> {
    args: &'a PerfArgs,
    team: &'a Team,
    guard: &'a Guard,
    data: &'a [(DataType, Data)],
    crowded: bool,
    points: Option<Points>,
    progress: ProgressBar,
    bus: Vec<f64>,
    wrong: u64,
    outside: u64,
}

impl<'a> Scan<'a> {
    fn new(args: &'a PerfArgs, team: &'a Team, guard: &'a Guard, data: &'a [(DataType, Data)]) -> Result<Scan<'a>> {
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        let points = match (&args.jsonl, team.reports()) {
            (Some(path), true) => Some(Points::open(path)?),
            _ => None,
        };
        let mut scan = Scan {
            args,
            team,
            guard,
            data,
            // A pinned process sees one processor: the machine's count is what matters.
            crowded: team.total() > machine_cores().unwrap_or(cores),
            points,
            progress: ProgressBar::hidden(),
            bus: Vec::new(),
            wrong: 0,
            outside: 0,
        };
        if team.reports() && std::io::stderr().is_terminal() {
            scan.progress = progress(scan.calls().count() * args.sizes().len())?;
        }
        Ok(scan)
    }

    /// Type, operator and root of every block of rows.
    fn calls(&self) -> impl Iterator<Item = (DataType, &'a Data, usize)> + use<'a> {
        let roots = match self.args.root {
            _ if !self.args.collective().rooted() => 0..1,
            Root::One(r) => r..r + 1,
            Root::All => 0..self.team.total(),
        };
        self.data.iter().flat_map(move |(t, d)| roots.clone().map(move |r| (*t, d, r)))
    }

    fn print(&self, text: &str) -> Result<()> {
        if !self.team.reports() {
            return Ok(());
        }
        self.progress.suspend(|| writeln!(std::io::stdout(), "{text}")).context("writing the table")
    }

    /// Head, devices and titles; what must be the same to all.
    fn begin(&mut self) -> Result<()> {
        let first = self.team.seats().next().map_or(0, |(_, d)| d as u64);
        let devices = api::device_count()?.max(1) as u64;
        let all = self.team.share([u64::from(std::process::id()), first, u64::from(self.crowded), devices])?;
        let hosts = hosts(self.team)?;
        // All find the same number of calls, also where their hosts differ.
        self.crowded = all.iter().any(|of| of[2] != 0);
        if !self.team.reports() {
            return Ok(());
        }
        let mut out = table::head(self.args, api::version()?);
        for (team, ([pid, first, _, devices], host)) in all.into_iter().zip(&hosts).enumerate() {
            for i in 0..self.args.devices {
                // A team's devices follow each other; behind its process's last one comes the first.
                let device = (first + i as u64) % devices;
                let line = table::device(team * self.args.devices + i, pid, device, host);
                out.extend(["\n", &line]);
            }
        }
        out.extend(["\n", &table::titles(self.args)]);
        self.print(&out)
    }

    fn cycle(&mut self) -> Result<()> {
        let calls: Vec<_> = self.calls().collect();
        for (dtype, data, root) in calls {
            for asked in self.args.sizes() {
                self.row(dtype, data, root, asked)?;
            }
        }
        Ok(())
    }

    fn row(&mut self, dtype: DataType, data: &Data, root: usize, asked: usize) -> Result<()> {
        let (coll, ranks) = (self.args.collective(), self.team.total());
        // Peers that are compared with take sizes as they are; the table follows nccl-tests.
        let block = coll.block_count(asked, dtype, ranks, self.args.jsonl.is_none());
        let call = Call { coll, dtype, root, block, ranks };
        let name = format!("{} of {asked} bytes ({dtype})", coll.snake());
        self.progress.set_message(name.clone());
        if self.args.timeout > 0 {
            self.guard.arm(name.clone(), Duration::from_secs(self.args.timeout));
        }
        let row = self.team.row(call, data);
        let meter = Meter { team: self.team, args: self.args, crowded: self.crowded };
        let mut halves = [None, None];
        for (in_place, half) in [false, true].into_iter().zip(&mut halves) {
            let wanted = self.args.half.is_none_or(|h| (h == 0) == in_place);
            if wanted && (!in_place || coll.in_place_allowed()) {
                *half = Some(meter.half(&row, in_place).with_context(|| name.clone())?);
            }
        }
        self.progress.inc(1);
        self.take(&call, data.op, asked, halves)
    }

    /// Counts, prints and stores a row.
    fn take(&mut self, call: &Call, op: Option<Op>, asked: usize, halves: [Option<Half>; 2]) -> Result<()> {
        for h in halves.iter().flatten() {
            self.wrong += h.wrong.unwrap_or(0);
            self.outside += h.outside;
            self.bus.push(call.coll.bandwidth(call.block, call.dtype, call.ranks, h.median_us).1);
        }
        // A row in which nothing moves is no point.
        if let (Some(points), true) = (&mut self.points, call.block > 0) {
            for (in_place, half) in halves.iter().enumerate() {
                if let Some(h) = half {
                    points.append(&jsonl::point(self.args, call, op, asked, in_place == 1, h))?;
                }
            }
        }
        let stamp = (self.args.timestamps != 0)
            .then(|| table::timestamp(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())));
        self.print(&table::row(&Line { call, op, halves, stamp }))
    }

    fn end(&self) -> Result<u8> {
        self.progress.finish_and_clear();
        self.print(&table::foot(self.wrong, self.outside, &self.bus))?;
        Ok(if self.wrong + self.outside == 0 { failure::OK } else { failure::WRONG })
    }
}

/// The name of each team's host.
fn hosts(team: &Team) -> Result<Vec<String>> {
    /// As long as names are at most.
    const BYTES: usize = 64;
    let mut own = rustix::system::uname().nodename().to_bytes().to_vec();
    own.resize(BYTES, 0);
    let mut names: Vec<Vec<u8>> = Vec::new();
    for part in own.as_chunks::<{ 8 * WORDS }>().0 {
        let word = |i: usize| u64::from_le_bytes(std::array::from_fn(|k| part[8 * i + k]));
        let said = team.share(std::array::from_fn(word))?;
        names.resize(said.len(), Vec::new());
        names.iter_mut().zip(said).for_each(|(name, words)| name.extend(words.map(u64::to_le_bytes).as_flattened()));
    }
    Ok(names.iter().map(|name| String::from_utf8_lossy(name).trim_end_matches('\0').to_owned()).collect())
}

/// Processors of the machine, also when this process is bound to some of them.
fn machine_cores() -> Option<usize> {
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online").ok()?;
    let mut cores = 0;
    for part in online.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        cores += last.parse::<usize>().ok()?.checked_sub(first.parse().ok()?)? + 1;
    }
    Some(cores)
}

fn progress(rows: usize) -> Result<ProgressBar> {
    let bar = ProgressBar::with_draw_target(Some(rows as u64), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{bar:24} {pos}/{len} {msg} {elapsed}").context("progress bar")?;
    Ok(bar.with_style(style))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_has_processors() {
        assert!(machine_cores().is_none_or(|n| n > 0));
    }
}
