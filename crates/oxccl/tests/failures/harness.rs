//! Processes for the tests: this binary started again as a worker that runs ranks as threads and reports events.
//!
//! A worker reads orders from its standard input and ends with it, or with its parent. It knows no test.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use oxccl::{Communicator, UniqueId};

/// Set in workers.
const WORKER: &str = "OXCCL_TEST_WORKER";
/// Events that may wait to be read.
const BACKLOG: usize = 4096;

/// Nanoseconds of the clock that all processes of the machine share.
pub fn now_ns() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Nanoseconds of processor time that this process has used.
pub fn cpu_ns() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// The tests measure times, so they run one after another.
pub fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A small generator of random numbers (splitmix64), so that a seed replays a test.
#[derive(Clone)]
pub struct Random(pub u64);

impl Random {
    /// A seed that differs between runs, or `OXCCL_TEST_SEED`.
    pub fn seeded(test: &str) -> Random {
        let seed = std::env::var("OXCCL_TEST_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or_else(now_ns);
        println!("{test}: seed {seed} (OXCCL_TEST_SEED replays it)");
        Random(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// What a rank reported.
#[derive(Clone, Debug)]
pub struct Event {
    pub job: u64,
    pub rank: usize,
    pub what: String,
    /// On the clock of [`now_ns`].
    pub ns: u64,
    pub text: String,
}

/// One rank's orders, in a worker.
#[derive(Clone)]
pub struct Order {
    pub job: u64,
    pub id: UniqueId,
    pub rank: usize,
    pub ranks: usize,
    pub words: Vec<String>,
}

impl Order {
    /// Tells the parent.
    pub fn report(&self, what: &str, text: &str) {
        let line = format!("\n@ {} {} {what} {} {}\n", self.job, self.rank, now_ns(), text.replace('\n', "; "));
        // A parent that has gone hears nothing, and this process ends with it.
        let _ = std::io::stdout().write_all(line.as_bytes());
        let _ = std::io::stdout().flush();
    }

    /// Word `i` of the order as a number.
    pub fn number(&self, i: usize) -> u64 {
        self.words[i].parse().expect("a number")
    }
}

/// The life of a worker; returns at once in a process that is none.
pub fn work(run: impl Fn(&Order) + Send + Sync + Copy + 'static) {
    if std::env::var_os(WORKER).is_none() {
        return;
    }
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).expect("prctl");
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { return };
        let words: Vec<&str> = line.split(' ').collect();
        let number = |i: usize| words[i].parse::<usize>().expect("a number");
        let (job, id, ranks, first, count) = (number(0) as u64, words[1], number(2), number(3), number(4));
        for rank in first..first + count {
            let words = words[5..].iter().map(|w| (*w).to_string()).collect();
            let order = Order { job, id: id.parse().expect("an id"), rank, ranks, words };
            std::thread::spawn(move || {
                let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(&order)));
                match done {
                    Ok(()) => order.report("end", ""),
                    Err(e) => {
                        let text = e.downcast_ref::<String>().cloned();
                        let text = text.or_else(|| e.downcast_ref::<&str>().map(|s| (*s).to_string()));
                        order.report("panic", &text.unwrap_or_default());
                    }
                }
            });
        }
    }
}

/// A worker process.
pub struct Worker {
    child: Child,
    orders: Option<ChildStdin>,
}

impl Worker {
    fn spawn(env: &[(&str, &str)], events: &SyncSender<Event>) -> Worker {
        let mut child = Command::new(std::env::current_exe().expect("this binary"))
            .args(["--exact", "worker", "--nocapture", "--test-threads=1"])
            .env(WORKER, "1")
            .envs(env.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(if std::env::var_os("OXCCL_TEST_VERBOSE").is_some() { Stdio::inherit() } else { Stdio::null() })
            .spawn()
            .expect("a worker");
        let (out, events) = (child.stdout.take().expect("piped"), events.clone());
        // Ends with the worker's output.
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines() {
                let Ok(line) = line else { return };
                let mut parts = line.splitn(6, ' ');
                if parts.next() != Some("@") {
                    continue;
                }
                let mut next = || parts.next().unwrap_or_default().to_string();
                let (job, rank, what, ns, text) = (next(), next(), next(), next(), next());
                let number = |s: &str| s.parse().unwrap_or(0);
                let event = Event { job: number(&job), rank: number(&rank) as usize, what, ns: number(&ns), text };
                if events.send(event).is_err() {
                    return;
                }
            }
        });
        let orders = child.stdin.take();
        Worker { child, orders }
    }

    fn order(&mut self, line: &str) {
        if let Some(pipe) = &mut self.orders {
            pipe.write_all(line.as_bytes()).and_then(|()| pipe.flush()).expect("a worker that listens");
        }
    }

    /// Where the kernel tells of its process.
    pub fn process(&self) -> std::path::PathBuf {
        std::path::Path::new("/proc").join(self.child.id().to_string())
    }

    /// SIGSTOP: it lives and does nothing.
    pub fn stop(&self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).expect("a worker that lives");
    }

    /// SIGKILL; returns when the process is gone.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A set of workers, each with `per` ranks of the jobs that it is given.
pub struct Pool {
    pub workers: Vec<Worker>,
    per: usize,
    env: Vec<(String, String)>,
    events: Receiver<Event>,
    sender: SyncSender<Event>,
    job: u64,
    seen: Arc<Mutex<Vec<Event>>>,
}

impl Pool {
    /// Kills `victim`, a process of one rank, after `delay`: when that was, and what the others then say of their error and of
    /// their end, which they must within `limit` each.
    pub fn kill(&mut self, victim: usize, delay: Duration, limit: Duration) -> (u64, Vec<Event>, Vec<Event>) {
        pause(delay);
        let killed = now_ns();
        self.workers[victim].kill();
        let survivors: Vec<usize> = (0..self.workers.len()).filter(|r| *r != victim).collect();
        let errors = self.expect("error", &survivors, limit);
        let gone = self.expect("gone", &survivors, limit);
        (killed, errors, gone)
    }

    /// `processes` workers with `per` ranks each and the variables `env`.
    pub fn new(processes: usize, per: usize, env: &[(&str, &str)]) -> Pool {
        let (sender, events) = sync_channel(BACKLOG);
        let env: Vec<(String, String)> = env.iter().map(|(k, v)| ((*k).to_string(), (*v).to_string())).collect();
        let mut pool = Pool { workers: Vec::new(), per, env, events, sender, job: 0, seen: Arc::default() };
        pool.workers = (0..processes).map(|_| pool.spawn()).collect();
        pool
    }

    /// A worker with `per` ranks for each of `hosts`, which take themselves to be there: workers of one number share memory.
    pub fn on_hosts(hosts: &[usize], per: usize) -> Pool {
        let mut pool = Pool::new(0, per, &[]);
        pool.workers = hosts.iter().map(|host| pool.spawn_on(*host)).collect();
        pool
    }

    /// One on `host`. Long buffers are not kept when they are freed, so that who touches one afterwards ends by a signal.
    pub fn spawn_on(&self, host: usize) -> Worker {
        self.spawn_with(&[("NCCL_HOSTID", &format!("host {host}")), ("MALLOC_MMAP_THRESHOLD_", "65536")])
    }

    /// Another worker of the same kind.
    pub fn spawn(&self) -> Worker {
        self.spawn_with(&[])
    }

    /// The same with more variables.
    pub fn spawn_with(&self, more: &[(&str, &str)]) -> Worker {
        let own = self.env.iter().map(|(k, v)| (k.as_str(), v.as_str()));
        let env: Vec<(&str, &str)> = own.chain(more.iter().copied()).collect();
        Worker::spawn(&env, &self.sender)
    }

    pub fn ranks(&self) -> usize {
        self.workers.len() * self.per
    }

    /// Starts a job on all ranks, with an id of its own.
    pub fn start(&mut self, words: &str) {
        let ranks = self.ranks();
        let each: Vec<usize> = (0..self.workers.len()).collect();
        self.start_on(&each, ranks, words);
    }

    /// Starts a job of `ranks` ranks on some of the workers.
    pub fn start_on(&mut self, workers: &[usize], ranks: usize, words: &str) {
        let id = UniqueId::create().expect("an id");
        self.job += 1;
        self.seen.lock().expect("not poisoned").clear();
        for w in workers {
            let line = format!("{} {id} {ranks} {} {} {words}\n", self.job, w * self.per, self.per);
            self.workers[*w].order(&line);
        }
    }

    /// The next event of the present job, `None` after `limit`.
    pub fn next(&mut self, limit: Duration) -> Option<Event> {
        let end = Instant::now() + limit;
        loop {
            match self.events.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(e) if e.job == self.job => {
                    self.seen.lock().expect("not poisoned").push(e.clone());
                    return Some(e);
                }
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    /// Waits until each of `ranks` has reported `what`; their reports, by rank. Panics with all that was said when
    /// one does not within `limit`.
    pub fn expect(&mut self, what: &str, ranks: &[usize], limit: Duration) -> Vec<Event> {
        let end = Instant::now() + limit;
        loop {
            let found: Vec<Event> = {
                let seen = self.seen.lock().expect("not poisoned");
                ranks.iter().filter_map(|r| seen.iter().find(|e| e.rank == *r && e.what == what).cloned()).collect()
            };
            if found.len() == ranks.len() {
                return found;
            }
            let left = end.saturating_duration_since(Instant::now());
            match self.next(left) {
                Some(e) => assert!(e.what != "panic", "rank {} panicked: {}\n{}", e.rank, e.text, self.said()),
                None => panic!("no {what:?} of all of {ranks:?} within {limit:?}; said so far:\n{}", self.said()),
            }
        }
    }

    /// Waits until each of `ranks` has reported one of `whats`, at most `limit`: the first of each that has.
    pub fn any_of(&mut self, whats: &[&str], ranks: &[usize], limit: Duration) -> Vec<Event> {
        let end = Instant::now() + limit;
        loop {
            let found: Vec<Event> = {
                let seen = self.seen.lock().expect("not poisoned");
                let first = |r| seen.iter().find(|e| e.rank == r && whats.contains(&e.what.as_str())).cloned();
                ranks.iter().filter_map(|r| first(*r)).collect()
            };
            let left = end.saturating_duration_since(Instant::now());
            if found.len() == ranks.len() || self.next(left).is_none() {
                return found;
            }
        }
    }

    /// What the ranks of this job have said.
    pub fn said(&self) -> String {
        let seen = self.seen.lock().expect("not poisoned");
        let start = seen.first().map_or(0, |e| e.ns);
        let line = |e: &Event| {
            format!("  {:8.1} ms rank {} {} {}\n", (e.ns as f64 - start as f64) / 1e6, e.rank, e.what, e.text)
        };
        // One that has died said nothing of it.
        let ended = self.workers.iter().filter(|w| state(&w.process()).is_none_or(|s| s == 'Z'));
        let ended = ended.map(|w| format!("  worker {} has ended\n", w.child.id()));
        seen.iter().map(line).chain(ended).collect()
    }
}

/// What `calls` gives, while another thread of this rank, if `after` says when, reports that it leaves and aborts `comm`.
pub fn aborting<T>(order: &Order, comm: &Communicator, after: Option<Duration>, calls: impl FnOnce() -> T) -> T {
    let handle = comm.abort_handle();
    std::thread::scope(|scope| {
        if let Some(after) = after {
            scope.spawn(move || {
                pause(after);
                order.report("leaves", "");
                handle.abort().expect("abort");
            });
        }
        calls()
    })
}

/// A pause: for moments that are random or a late peer's, never to wait for something.
#[allow(clippy::disallowed_methods, reason = "the time itself is what the test needs")]
pub fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// Where the kernel tells of the calling thread.
pub fn this_thread() -> std::path::PathBuf {
    let thread = std::fs::read_link("/proc/thread-self").expect("the thread's folder");
    std::path::Path::new("/proc").join(thread)
}

/// The state of the thread or process of which the kernel tells at `place`, as [`wait_until`] knows it; `None` when it has gone.
fn state(place: &std::path::Path) -> Option<char> {
    let stat = std::fs::read_to_string(place.join("stat")).ok()?;
    stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next())
}

/// Returns when the thread or process of which the kernel tells at `place` is in `state`: `S` sleeps, as one does that has waited
/// for a while, `T` is stopped.
pub fn wait_until(place: &std::path::Path, state: char, most: Duration) {
    let there = poll(most, || (self::state(place) == Some(state)).then_some(()));
    assert!(there.is_some(), "{} is never in state {state}: {:?}", place.display(), self::state(place));
}

/// The error that `comm` has of itself, with no call that would hear of it.
pub fn sticky_error(comm: &Communicator, most: Duration) -> oxccl::Error {
    poll(most, || comm.async_error().err()).expect("no error came")
}

/// What `look` finds, looking again and again for `most` at most.
pub fn poll<T>(most: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + most;
    loop {
        match look() {
            None if Instant::now() < deadline => std::thread::park_timeout(Duration::from_millis(1)),
            found => return found,
        }
    }
}
