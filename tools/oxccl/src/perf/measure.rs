//! How a call is timed and checked.
//!
//! A repetition is k calls back to back between two barriers (or single calls, each between barriers, in `sync` mode).
//! For JSON lines its time is (last rank's end - first rank's start) / k, and the median and the least over repetitions
//! are kept; for the plain table the ranks' own times are combined as `-a` says, as nccl-tests does.

use anyhow::Result;

use super::{
    args::{DEFAULT_WARMUP, Mode, PerfArgs},
    ranks::{Row, Team},
};

/// Length of a repetition in microseconds; longer where ranks share processors.
const REPETITION_US: f64 = 3_000.0;
const REPETITION_SHARED_US: f64 = 12_000.0;
/// Measured time after which no further repetition begins.
const BUDGET_US: f64 = 150_000.0;
/// Time of the unmeasured calls before single ones are measured, and how many there are at most.
const LONE_WARM_UP_US: f64 = 20_000.0;
const LONE_CALLS: usize = 1000;
const REPETITIONS: std::ops::RangeInclusive<usize> = 5..=201;
/// With calls so slow that even the fewest repetitions take long, three must do.
const LONG_US: f64 = 4e6;
const MOST_CALLS: usize = 20_000;
/// Times that the number of calls is found again where the repetitions turned out to be shorter than they should be.
const CALIBRATIONS: usize = 3;
/// Calls of the burst by which it is found; where ranks share processors no fewer, of calls that do not take long anyway: when a barrier
/// lets many of them go one by one, a lone call takes as long as that does.
const BURST: std::ops::RangeInclusive<usize> = 8..=200;
const BURST_US: f64 = 5_000.0;
const LONG_CALL_US: f64 = 30_000.0;
/// Time that warming up may take where nobody says how many calls it is.
const WARM_UP_US: f64 = 200_000.0;

/// What was found for one half of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Half {
    /// Microseconds per call.
    pub median_us: f64,
    /// The least of the repetitions.
    pub min_us: f64,
    /// Calls a repetition.
    pub iters: usize,
    /// Repetitions.
    pub reps: usize,
    /// Wrong elements over all ranks, when checked.
    pub wrong: Option<u64>,
    /// Bytes behind the buffers that were changed, over all ranks.
    pub outside: u64,
}

/// One repetition as the teams saw it: (start, end, enqueued) in nanoseconds.
struct Repetition(Vec<[u64; 4]>);

impl Repetition {
    /// Microseconds from the first start to the last end.
    fn span_us(&self, one_clock: bool) -> f64 {
        if !one_clock {
            return self.over_ranks(3, 1);
        }
        let start = self.0.iter().map(|w| w[0]).min().unwrap_or(0);
        let end = self.0.iter().map(|w| w[1]).max().unwrap_or(0);
        end.saturating_sub(start) as f64 * 1e-3
    }

    /// Microseconds of each team from its start to word `end`, combined as `-a` says.
    fn over_ranks(&self, average: u8, end: usize) -> f64 {
        let each = self.0.iter().map(|w| w[end].saturating_sub(w[0]) as f64 * 1e-3);
        match average {
            0 => each.take(1).sum(),
            1 => each.sum::<f64>() / self.0.len().max(1) as f64,
            2 => each.fold(f64::INFINITY, f64::min),
            _ => each.fold(0.0, f64::max),
        }
    }
}

/// The clock of all times here.
pub fn now_ns() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Measures and checks one half of a row on all teams at once.
pub struct Meter<'a> {
    /// This thread's ranks.
    pub team: &'a Team,
    /// The command line.
    pub args: &'a PerfArgs,
    /// Whether ranks share processors.
    pub crowded: bool,
}

impl Meter<'_> {
    /// One half of `row`. Every team must call it; all get the same result.
    pub fn half(&self, row: &Row<'_>, in_place: bool) -> Result<Half> {
        let checking = self.args.check > 0;
        let (mut wrong, mut outside) = (0, 0);
        let mut tally = |(w, o): (u64, u64)| {
            wrong += w;
            outside += o;
        };
        let parts = self.team.parts(row, in_place, self.args.aggregate);
        if checking {
            tally(self.checked(row, in_place, &parts)?);
        } else {
            self.team.fill(row, in_place, &parts);
        }
        let first = self.warm_up(row, in_place)?;
        let mut half = if self.args.jsonl.is_some() {
            self.repetitions(row, in_place, first)?
        } else {
            self.plain(row, in_place)?
        };
        // Each communicator once at least.
        let times = if checking { self.args.check.max(self.args.comms.div_ceil(parts.len())) } else { 0 };
        for _ in 0..times {
            tally(self.checked(row, in_place, &parts)?);
        }
        half.wrong = checking.then_some(wrong);
        half.outside = outside;
        Ok(half)
    }

    /// Fresh data, a call on each of these parts, in one group if they are several, all elements compared: (wrong elements, bytes changed
    /// outside) over all ranks.
    fn checked(&self, row: &Row<'_>, in_place: bool, parts: &[usize]) -> Result<(u64, u64)> {
        self.team.fill(row, in_place, parts);
        // A rank may read a peer's buffer as soon as it is called.
        self.team.barrier()?;
        self.team.issue(row, in_place, parts.len())?;
        self.team.synchronize()?;
        let (wrong, outside, lines) = self.team.verify(row, in_place, parts);
        for line in &lines {
            eprintln!("# {}: {line}", row.call.coll.snake());
        }
        let all = self.team.share([wrong as u64, outside as u64, 0, 0])?;
        Ok((all.iter().map(|w| w[0]).sum(), all.iter().map(|w| w[1]).sum()))
    }

    /// Unmeasured calls; the time of one in microseconds, the same on every team.
    fn warm_up(&self, row: &Row<'_>, in_place: bool) -> Result<f64> {
        let mut one = self.repetition(row, in_place, 1)?.span_us(self.team.one_clock());
        let calls = warm_up_calls(self.args.warmup, one);
        if calls > 0 {
            one = self.repetition(row, in_place, calls)?.span_us(self.team.one_clock()) / calls as f64;
        }
        Ok(one / self.args.aggregate as f64)
    }

    /// `k` iterations between two barriers.
    fn repetition(&self, row: &Row<'_>, in_place: bool, k: usize) -> Result<Repetition> {
        self.team.barrier()?;
        let start = now_ns();
        for _ in 0..k {
            self.team.issue(row, in_place, self.args.aggregate)?;
            if self.args.blocking != 0 {
                self.team.synchronize()?;
            }
        }
        let enqueued = now_ns();
        self.team.synchronize()?;
        let end = now_ns();
        self.team.share([start, end, enqueued, 0]).map(Repetition)
    }

    /// The table's way: `-n` iterations once.
    fn plain(&self, row: &Row<'_>, in_place: bool) -> Result<Half> {
        const ITERATIONS: usize = 20;
        let iters = self.args.iters.unwrap_or(ITERATIONS);
        let (k, reps) = if self.args.mode == Mode::Sync { (1, iters) } else { (iters, 1) };
        let end = if self.args.cpu_time != 0 { 2 } else { 1 };
        let calls = (k * self.args.aggregate) as f64;
        let mut times = Vec::with_capacity(reps);
        for _ in 0..reps {
            times.push(self.repetition(row, in_place, k)?.over_ranks(self.args.average, end) / calls);
        }
        Ok(summary(times, k))
    }

    /// The JSON lines' way: repetitions of equal length until the budget is spent, or of `-n` calls; or `-n` lone calls.
    fn repetitions(&self, row: &Row<'_>, in_place: bool, one: f64) -> Result<Half> {
        if self.args.mode == Mode::Sync {
            self.warm_up_lone(row, in_place, one)?;
            return self.equal(row, in_place, 1, self.args.iters.map(|calls| calls.max(1)));
        }
        if let Some(k) = self.args.iters {
            return self.equal(row, in_place, k, None);
        }
        let mut k = self.calibrated(row, in_place, one)?;
        for _ in 0..CALIBRATIONS {
            let half = self.equal(row, in_place, k, None)?;
            // Other work on the machine may have disturbed the burst: repetitions of few calls then measure how a call begins
            // after a barrier. All teams see the same times, so they decide alike.
            let wanted = self.calls_of(half.min_us);
            if wanted <= 2 * k {
                return Ok(half);
            }
            k = wanted;
        }
        self.equal(row, in_place, k, None)
    }

    /// Lone calls take some hundred to become as fast as they get: the first ones find processors that were idle.
    fn warm_up_lone(&self, row: &Row<'_>, in_place: bool, one: f64) -> Result<()> {
        let each = self.burst(row, in_place, one)? * self.args.aggregate as f64;
        let calls = (LONE_WARM_UP_US / (each + 0.05)) as usize;
        (0..calls.min(LONE_CALLS)).try_for_each(|_| self.repetition(row, in_place, 1).map(drop))
    }

    /// Calls a repetition, of which one takes about `one` microseconds after warming up.
    fn calibrated(&self, row: &Row<'_>, in_place: bool, one: f64) -> Result<usize> {
        // A few calls say little about many in a row.
        self.burst(row, in_place, one).map(|one| self.calls_of(one))
    }

    /// A short burst of calls, of which one takes about `one` microseconds: how many it takes then.
    fn burst(&self, row: &Row<'_>, in_place: bool, one: f64) -> Result<f64> {
        let is_short = one * (self.args.aggregate as f64) < LONG_CALL_US;
        let least = if self.crowded && is_short { *BURST.start() } else { 0 };
        let burst = ((BURST_US / (one + 0.05)) as usize).clamp(least, *BURST.end());
        if burst == 0 {
            return Ok(one);
        }
        let span = self.repetition(row, in_place, burst)?.span_us(self.team.one_clock());
        Ok(span / burst as f64 / self.args.aggregate as f64)
    }

    /// Calls of `one` microseconds each that fill a repetition.
    fn calls_of(&self, one: f64) -> usize {
        let length = if self.crowded { REPETITION_SHARED_US } else { REPETITION_US };
        ((length / (one * self.args.aggregate as f64 + 0.01)) as usize).clamp(1, MOST_CALLS)
    }

    /// Repetitions of `k` iterations: `reps` of them, or until the budget is spent.
    fn equal(&self, row: &Row<'_>, in_place: bool, k: usize, reps: Option<usize>) -> Result<Half> {
        let (mut times, mut spent) = (Vec::new(), 0.0);
        while reps.map_or_else(|| affordable(times.len(), spent), |reps| times.len() < reps) {
            let span = self.repetition(row, in_place, k)?.span_us(self.team.one_clock());
            spent += span;
            times.push(span / k as f64 / self.args.aggregate as f64);
        }
        Ok(summary(times, k))
    }
}

/// Calls before measuring, of which one takes `one` microseconds: as many as were asked for, else what does not take long.
fn warm_up_calls(asked: Option<usize>, one: f64) -> usize {
    let affordable = (WARM_UP_US / (one + 0.05)) as usize;
    asked.unwrap_or(DEFAULT_WARMUP.min(affordable))
}

/// Whether another repetition follows so many, which took `spent` microseconds.
fn affordable(repetitions: usize, spent: f64) -> bool {
    repetitions < *REPETITIONS.end()
        && (repetitions < *REPETITIONS.start() || spent < BUDGET_US)
        && !(repetitions >= 3 && spent > LONG_US)
}

fn summary(mut times: Vec<f64>, iters: usize) -> Half {
    times.sort_by(f64::total_cmp);
    let median_us = times.get(times.len() / 2).copied().unwrap_or(0.0);
    let min_us = times.first().copied().unwrap_or(0.0);
    Half { median_us, min_us, iters, reps: times.len(), wrong: None, outside: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_ranks_are_combined() {
        let r = Repetition(vec![[1_000, 5_000, 2_000, 0], [2_000, 8_000, 3_000, 0]]);
        assert_eq!(r.span_us(true), 7.0);
        assert_eq!(r.span_us(false), 6.0);
        assert_eq!([0, 1, 2, 3].map(|a| r.over_ranks(a, 1)), [4.0, 5.0, 4.0, 6.0]);
        assert_eq!(r.over_ranks(1, 2), 1.0);
    }

    #[test]
    fn only_the_default_of_calls_before_measuring_is_cut() {
        let second = 1e6;
        assert_eq!([None, Some(0), Some(7)].map(|asked| warm_up_calls(asked, second)), [0, 0, 7]);
        assert_eq!([None, Some(0), Some(7)].map(|asked| warm_up_calls(asked, 1.0)), [5, 0, 7]);
        assert_eq!(warm_up_calls(None, WARM_UP_US / 3.5), 3);
    }

    #[test]
    fn median_and_least() {
        let h = summary(vec![3.0, 1.0, 2.0, 9.0, 8.0], 7);
        assert_eq!((h.median_us, h.min_us, h.iters, h.reps), (3.0, 1.0, 7, 5));
        assert_eq!(summary(Vec::new(), 1).median_us, 0.0);
    }
}
