//! `perf init` and `perf late`: what a communicator costs before and between its calls.
//!
//! `init`: the time from the first rank's call to the last one's return, the memory of a communicator that was never
//! used, and the library's threads. `late`: what a rank that waits for a late peer burns, and how soon it goes on.
//! One rank per process of one host; what collectives cost is `scan`'s work.

use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use oxccl_sys::host;
use oxccl_types::DataType;
use serde_json::json;

use super::{
    args::{DEFAULT_WARMUP, PerfArgs, Subject},
    control::{Control, WORDS},
    failure,
    jsonl::Points,
    memory::Buffer,
};
use crate::api::{self, Comm, CommSlot, Site, UniqueId};

/// Rounds when `-n` is not given.
const ROUNDS: usize = 10;
/// How long the last rank stays away.
const LATE: Duration = Duration::from_millis(100);
/// Polling at first is no waste: processor time counts from here on.
const POLLING: Duration = Duration::from_millis(2);

/// One process of the measurement.
pub struct Life<'a> {
    pub args: &'a PerfArgs,
    pub control: &'a Control,
    pub rank: usize,
    pub ranks: usize,
    guard: &'a failure::Guard,
    round: std::cell::Cell<u64>,
}

impl<'a> Life<'a> {
    /// The part of process `rank` of `ranks`.
    ///
    /// # Errors
    /// Several ranks in a process.
    pub fn new(
        args: &'a PerfArgs,
        control: &'a Control,
        guard: &'a failure::Guard,
        rank: usize,
        ranks: usize,
    ) -> Result<Life<'a>> {
        ensure!(args.threads * args.devices == 1, "init and late measure one rank per process: leave out -t and -g");
        Ok(Life { args, control, rank, ranks, guard, round: std::cell::Cell::new(0) })
    }

    /// What each rank says, to all; from here on the next round has its time (`-T`).
    fn share(&self, words: [u64; WORDS]) -> Result<Vec<[u64; WORDS]>> {
        let round = self.round.replace(self.round.get() + 1);
        let said = self.control.share(self.rank, round, words)?;
        if self.args.timeout > 0 {
            let what = if self.args.subject == Subject::Init { "a round of init" } else { "a round of late" };
            self.guard.arm(what.into(), Duration::from_secs(self.args.timeout));
        }
        Ok(said)
    }

    /// A fresh id, of rank 0's making.
    fn id(&self) -> Result<UniqueId> {
        let mut id = if self.rank == 0 { api::unique_id()? } else { UniqueId { internal: [0; 128] } };
        for part in id.internal.chunks_exact_mut(8 * WORDS) {
            let word = |i: usize| u64::from_le_bytes(std::array::from_fn(|k| part[8 * i + k]));
            let said = self.share(std::array::from_fn(word))?;
            let bytes = said[0].iter().flat_map(|w| w.to_le_bytes());
            part.iter_mut().zip(bytes).for_each(|(b, said)| *b = said);
        }
        Ok(id)
    }

    /// `perf init`.
    pub fn init(&self) -> Result<u8> {
        let (rounds, kept) = (self.args.iters.unwrap_or(ROUNDS), self.args.comms.max(1));
        // Our own, with the one that watches the time (-T).
        let own = count_threads()?;
        // The first communicator starts the library's threads: not part of the others' cost.
        let (first, slot) = self.initialised()?;
        let threads = count_threads()?.saturating_sub(own);
        let mut times = Vec::with_capacity(rounds);
        let mut comms = Vec::new();
        let before = resident_kib()?;
        for i in 0..rounds.max(kept) {
            let (us, slot) = self.initialised()?;
            times.push(us);
            // As many as `--comms` says are kept for the memory.
            if i < kept {
                comms.push(slot)
            } else {
                api::comm_destroy(slot.get())?
            }
            if i + 1 == kept {
                let grown = (resident_kib()? - before).max(0.0) / kept as f64;
                let all = self.share([(grown * 1024.0) as u64, threads as u64, 0, 0])?;
                self.memory_of(&all, kept)?;
            }
        }
        comms.iter().chain([&slot]).try_for_each(|s| api::comm_destroy(s.get()))?;
        self.print(&format!("first communicator of the processes  {first:10.1} us"))?;
        self.report("init", "from the first call to the last return", &mut times, json!({ "first_us": first }))
    }

    /// The time of an initialisation on all ranks together.
    fn initialised(&self) -> Result<(f64, CommSlot)> {
        let id = self.id()?;
        self.control.barrier()?;
        let start = super::measure::now_ns();
        let slot = api::comm_init_rank(self.ranks, &id, self.rank)?;
        let end = super::measure::now_ns();
        let all = self.share([start, end, 0, 0])?;
        let (start, end) = all.iter().fold((u64::MAX, 0), |(s, e), w| (s.min(w[0]), e.max(w[1])));
        Ok(((end - start) as f64 * 1e-3, slot))
    }

    fn memory_of(&self, all: &[[u64; WORDS]], comms: usize) -> Result<()> {
        let bytes = all.iter().map(|w| w[0]).sum::<u64>() as f64 / all.len() as f64;
        let threads = all.iter().map(|w| w[1]).max().unwrap_or(0);
        let values = json!({ "memory_bytes": bytes, "threads": threads, "comms": comms });
        let text = format!(
            "memory of an unused communicator  {:10.1} KiB per rank\nthreads of the library            {threads:8} per process",
            bytes / 1024.0
        );
        self.tell(&text, "init_memory", values)
    }

    /// `perf late`.
    pub fn late(&self) -> Result<u8> {
        ensure!(self.ranks > 1, "late needs at least 2 ranks: --procs 2");
        let (_, slot) = self.initialised()?;
        let (comm, stream) = (slot.get(), api::stream_create()?);
        let send = Buffer::new(8, self.args.memory)?;
        let recv = Buffer::new(8, self.args.memory)?;
        let site = Site { send: send.ptr(), recv: recv.ptr(), dtype: DataType::Uint64, comm, stream };
        let call = || site.all_reduce(1, 0).and_then(|()| api::stream_synchronize(stream, comm));
        (0..self.args.warmup.unwrap_or(DEFAULT_WARMUP)).try_for_each(|_| call())?;
        let (mut wakes, mut orders, mut shares) = (Vec::new(), vec![Vec::new(); self.ranks - 1], Vec::new());
        let is_late = self.rank == self.ranks - 1;
        let pids: Vec<u32> =
            self.share([u64::from(std::process::id()), 0, 0, 0])?.iter().map(|w| w[0] as u32).collect();
        let others = pids.get(..self.ranks - 1).unwrap_or_default();
        for _ in 0..self.args.iters.unwrap_or(ROUNDS) {
            self.control.barrier()?;
            let share = if is_late { stay_away(others)? } else { 0.0 };
            let start = super::measure::now_ns();
            call()?;
            let all = self.share([start, super::measure::now_ns(), share.to_bits(), 0])?;
            shares.push(f64::from_bits(all[self.ranks - 1][2]));
            let late = all[self.ranks - 1][0];
            let waiters = &all[..self.ranks - 1];
            let mut woken: Vec<f64> = waiters.iter().map(|w| w[1].saturating_sub(late) as f64 * 1e-3).collect();
            woken.sort_by(f64::total_cmp);
            wakes.extend(woken.last());
            orders.iter_mut().zip(woken).for_each(|(order, us)| order.push(us));
        }
        api::comm_destroy(comm)?;
        api::stream_destroy(stream)?;
        send.free()?;
        recv.free()?;
        shares.sort_by(f64::total_cmp);
        let share = shares[shares.len() / 2];
        self.tell(
            &format!("processor time while waiting      {:10.2} % of a processor, after the first 2 ms", share * 100.0),
            "late_cpu",
            json!({ "cpu_share": share }),
        )?;
        let (each, orders) = middles(orders);
        let by_order: Vec<String> = orders.iter().map(|us| format!("{us:.1}")).collect();
        self.print(&format!(
            "from the late rank's call to a return  median {each:.1} us; by order {} us",
            by_order.join(" ")
        ))?;
        self.report(
            "late",
            "from the late rank's call to the last return",
            &mut wakes,
            json!({ "late_us": LATE.as_micros() as u64, "each_us_median": each, "order_us_median": orders }),
        )
    }

    fn report(&self, name: &str, what: &str, times: &mut [f64], more: serde_json::Value) -> Result<u8> {
        times.sort_by(f64::total_cmp);
        let (median, least, most) = (times[times.len() / 2], times[0], times[times.len() - 1]);
        let text = format!(
            "{what}\n  median {median:.1} us, least {least:.1} us, most {most:.1} us, {} rounds, {} ranks",
            times.len(),
            self.ranks
        );
        let mut values = json!({
            "time_us_median": median, "time_us_min": least, "time_us_max": most, "iters": 1, "reps": times.len(),
        });
        if let (Some(values), Some(more)) = (values.as_object_mut(), more.as_object()) {
            values.extend(more.clone());
        }
        self.tell(&text, name, values)?;
        Ok(failure::OK)
    }

    /// Prints on rank 0.
    fn print(&self, text: &str) -> Result<()> {
        match self.rank {
            0 => writeln!(std::io::stdout(), "{text}").context("writing"),
            _ => Ok(()),
        }
    }

    /// Prints, and appends to the file of points, on rank 0.
    fn tell(&self, text: &str, name: &str, values: serde_json::Value) -> Result<()> {
        self.print(text)?;
        let Some(path) = self.args.jsonl.as_ref().filter(|_| self.rank == 0) else { return Ok(()) };
        let mut point = json!({
            "impl": "oxccl", "coll": name, "setup": self.args.setup, "ranks": self.ranks, "mode": "sync", "ok": -1,
        });
        if let (Some(point), Some(values)) = (point.as_object_mut(), values.as_object()) {
            point.extend(values.clone());
        }
        Points::open(path)?.append(&point)
    }
}

/// The median of all times, and that of each list.
fn middles(lists: Vec<Vec<f64>>) -> (f64, Vec<f64>) {
    let middle = |mut times: Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times.get(times.len() / 2).copied().unwrap_or(0.0)
    };
    (middle(lists.concat()), lists.into_iter().map(middle).collect())
}

/// Does nothing for a while, so that the processes `others` wait. The part of a processor that the one uses which uses most,
/// once it no longer polls.
fn stay_away(others: &[u32]) -> Result<f64> {
    let start = Instant::now();
    sleep_until(start + POLLING);
    let (since, before) = (Instant::now(), processor_times(others)?);
    sleep_until(start + LATE);
    let (waited, after) = (since.elapsed(), processor_times(others)?);
    let used = before.iter().zip(after).map(|(before, after)| after.saturating_sub(*before)).max().unwrap_or(0);
    Ok(used as f64 / waited.as_nanos().max(1) as f64)
}

fn sleep_until(end: Instant) {
    while Instant::now() < end {
        std::thread::park_timeout(end.saturating_duration_since(Instant::now()));
    }
}

/// Processor time of each process, ns.
fn processor_times(pids: &[u32]) -> Result<Vec<u64>> {
    let of =
        |pid: &u32| host::processor_time_ns(*pid).with_context(|| format!("process {pid} has ended, or is hidden"));
    pids.iter().map(of).collect()
}

/// Memory of this process in KiB, of shared pages its share only.
fn resident_kib() -> Result<f64> {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").context("reading the memory of this process")?;
    let line = text.lines().find_map(|l| l.strip_prefix("Pss:")).context("no Pss in smaps_rollup")?;
    line.split_whitespace().next().and_then(|n| n.parse().ok()).with_context(|| format!("no number in {line}"))
}

fn count_threads() -> Result<usize> {
    Ok(std::fs::read_dir("/proc/self/task").context("counting threads")?.count())
}

/// The communicators behind the first one that a rank uses in turn: all ranks of `comms`, in one group.
///
/// # Errors
/// Those of the library.
pub fn split(comms: &[Comm], ranks: &[usize], times: usize) -> Result<Vec<Vec<Comm>>> {
    let mut all: Vec<Vec<Comm>> = comms.iter().map(|c| vec![*c]).collect();
    for _ in 1..times {
        if comms.len() > 1 {
            api::group_start()?;
        }
        let made = comms.iter().zip(ranks).map(|(c, r)| api::comm_split(*c, 0, *r)).collect::<Result<Vec<_>>>()?;
        if comms.len() > 1 {
            api::group_end(comms[0])?;
        }
        all.iter_mut().zip(&made).for_each(|(list, slot)| list.push(slot.get()));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn middles_are_of_all_and_of_each() {
        assert_eq!(middles(vec![vec![3.0, 1.0, 2.0], vec![9.0, 7.0, 8.0]]), (7.0, vec![2.0, 8.0]));
        assert_eq!(middles(vec![vec![]]), (0.0, vec![0.0]));
    }

    #[test]
    fn the_process_can_be_looked_at() {
        assert!(resident_kib().is_ok_and(|kib| kib > 0.0) && count_threads().is_ok_and(|n| n > 0));
    }

    #[test]
    fn the_process_that_works_most_is_told() {
        let start = |command: &str| std::process::Command::new("sh").args(["-c", command]).spawn().unwrap();
        let mut busy = start("while :; do :; done");
        let mut idle = start("exec sleep 60");
        let shares = [vec![idle.id()], vec![idle.id(), busy.id()]].map(|pids| stay_away(&pids));
        for child in [&mut busy, &mut idle] {
            child.kill().and_then(|()| child.wait()).unwrap();
        }
        let [least, most] = shares.map(|share| share.unwrap());
        assert!(most > least, "{most} of a processor is what a loop took, {least} what a sleeping process did");
        assert!(stay_away(&[u32::MAX]).is_err());
    }
}
