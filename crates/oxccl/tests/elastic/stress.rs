//! Random lives of communicators against a model: every rank derives the same program from one seed, so each knows
//! which communicators there are, who is in them, and what every call must give. Processes kill themselves on the way.

use std::time::{Duration, Instant};

use oxccl::{Communicator, ReduceOp, ResultCode, UniqueId};

use crate::calls::{self, KINDS, Memory};
use crate::harness::{Order, Pool, Random, alone, pause};

/// Steps of one program.
const STEPS: usize = 60;
/// Communicators at one time.
const MOST: usize = 10;
/// When a job gives up.
const GIVE_UP: Duration = Duration::from_secs(60);

/// A communicator: in the model of every rank, and in the hands of its members.
struct Entry {
    /// Ranks of the world, in the order of this communicator.
    members: Vec<usize>,
    revoked: bool,
    mine: Option<Communicator>,
}

impl Entry {
    fn new(members: Vec<usize>, mine: Option<Communicator>) -> Entry {
        Entry { members, revoked: false, mine }
    }
}

struct Player {
    me: usize,
    per: usize,
    /// Where ranks share no memory, an abort or a revocation may end a call of a peer that has all it needs.
    shared: bool,
    random: Random,
    alive: Vec<usize>,
    live: Vec<Entry>,
    made: usize,
    trace: Vec<String>,
}

impl Player {
    fn note(&mut self, text: String) {
        self.trace.push(text);
    }

    /// Adds a communicator after a roll call: its members are those of the model, in its order.
    fn add(&mut self, members: Vec<usize>, mine: Option<Communicator>) {
        self.made += 1;
        assert_eq!(mine.is_some(), members.contains(&self.me), "{members:?}");
        if let Some(comm) = &mine {
            assert_eq!((comm.ranks(), members[comm.rank()]), (members.len(), self.me), "{members:?}");
            let mut all = vec![0_u32; members.len()];
            comm.all_gather(&[self.me as u32], &mut all).expect("roll call");
            assert!(all.iter().map(|r| *r as usize).eq(members.iter().copied()), "{all:?} {members:?}");
        }
        self.live.push(Entry::new(members, mine));
    }

    fn split(&mut self, at: usize) {
        let members = self.live[at].members.clone();
        let parts: Vec<(i32, i32)> =
            members.iter().map(|_| (self.random.below(4) as i32 - 1, self.random.below(3) as i32)).collect();
        self.note(format!("split {members:?} by {parts:?}"));
        let mine = self.live[at].mine.as_ref().and_then(|comm| {
            let (color, key) = parts[comm.rank()];
            comm.split((color >= 0).then_some(color), key).expect("split")
        });
        let mut mine = mine;
        for color in 0..3 {
            let mut of: Vec<_> = (0..members.len()).filter(|i| parts[*i].0 == color).map(|i| (parts[i].1, i)).collect();
            of.sort_unstable();
            let of: Vec<usize> = of.into_iter().map(|(_, i)| members[i]).collect();
            if !of.is_empty() {
                let has = of.contains(&self.me);
                self.add(of, if has { mine.take() } else { None });
            }
        }
        assert!(mine.is_none());
    }

    fn shrink(&mut self, at: usize) {
        let members = self.live[at].members.clone();
        let stays: Vec<bool> = members.iter().map(|_| self.random.below(3) > 0).collect();
        let exclude: Vec<usize> = (0..members.len()).filter(|i| !stays[*i]).collect();
        let rest: Vec<usize> = (0..members.len()).filter(|i| stays[*i]).map(|i| members[i]).collect();
        if rest.is_empty() || exclude.is_empty() {
            return;
        }
        self.note(format!("shrink {members:?} by {exclude:?}"));
        let mine = self.live[at].mine.as_ref().filter(|c| stays[c.rank()]);
        let mine = mine.map(|c| c.shrink(&exclude).expect("shrink"));
        self.add(rest, mine);
    }

    /// A communicator becomes larger by ranks that are in another one with its first member.
    fn grow(&mut self, at: usize) {
        let old = self.live[at].members.clone();
        let new: Vec<usize> = self.alive.iter().copied().filter(|r| !old.contains(r)).collect();
        // The world carries the id.
        let Some(world) = self.live.iter().position(|e| !e.revoked && self.alive.iter().all(|r| e.members.contains(r)))
        else {
            return;
        };
        if new.is_empty() {
            return;
        }
        self.note(format!("grow {old:?} by {new:?}"));
        let all = [old.clone(), new].concat();
        let mine = self.live[at].mine.as_ref();
        let made = mine.filter(|c| c.rank() == 0).map(|c| c.grow_id().expect("an id"));
        let mut bytes = made.map_or([0; 128], UniqueId::to_bytes);
        let root = self.live[world].members.iter().position(|r| *r == old[0]).expect("in the world");
        if let Some(w) = &self.live[world].mine {
            w.broadcast(&mut bytes, root).expect("broadcast of the id");
        }
        let comm = match mine {
            Some(comm) => comm.grow(all.len(), made).expect("grow"),
            None => {
                let rank = all.iter().position(|r| *r == self.me).expect("alive");
                Communicator::init(all.len(), UniqueId::from_bytes(bytes), rank).expect("join")
            }
        };
        self.add(all, Some(comm));
    }

    /// All but one wait in a call that never comes about; the one revokes, and then all do.
    fn revoke(&mut self, at: usize) {
        let members = self.live[at].members.clone();
        let first = self.random.below(members.len() as u64) as usize;
        self.note(format!("revoke {members:?}, first {}", members[first]));
        if let Some(comm) = &self.live[at].mine {
            if comm.rank() != first {
                comm.barrier().expect_err("one does not come");
            }
            comm.revoke().expect("revoke");
            assert_eq!(comm.barrier().expect_err("revoked").code, ResultCode::InvalidUsage);
        }
        self.live[at].revoked = true;
    }

    fn suspend(&mut self, at: usize) {
        self.note(format!("suspend {:?}", self.live[at].members));
        if let Some(comm) = &self.live[at].mine {
            comm.suspend().expect("suspend");
            comm.resume().expect("resume");
        }
    }

    fn call(&mut self, at: usize) {
        let (kind, n) = (self.random.below(KINDS as u64) as usize, self.random.below(1000));
        let len = [3, 300, 30_000][self.random.below(3) as usize];
        let memory = if n.is_multiple_of(2) { Memory::Malloc } else { Memory::Device };
        self.note(format!("call {kind} of {len} on {:?}", self.live[at].members));
        if let Some(comm) = &self.live[at].mine {
            calls::one(comm, kind, memory, len, n).expect("a call that matches");
        }
    }

    fn end(&mut self, at: usize) {
        let entry = self.live.swap_remove(at);
        let abort = self.random.below(3) == 0 && self.shared;
        self.trace.push(format!("{} {:?}", if abort { "abort" } else { "destroy" }, entry.members));
        if let Some(comm) = entry.mine.filter(|_| abort) {
            comm.abort_handle().abort().expect("abort");
        }
    }

    /// A process kills itself while its ranks and all others are in a loop of calls on the world; whoever remains
    /// shrinks every communicator in which a dead rank was.
    fn kill(&mut self, order: &Order) {
        let processes: Vec<usize> = {
            let mut p: Vec<usize> = self.alive.iter().map(|r| r / self.per).collect();
            p.dedup();
            p
        };
        let delay = self.random.below(3_000);
        let Some(world) = self.live.iter().position(|e| !e.revoked && e.members.len() == self.alive.len()) else {
            return;
        };
        if processes.len() < 2 {
            return;
        }
        let victim = processes[self.random.below(processes.len() as u64) as usize];
        self.note(format!("kill process {victim}"));
        let world = self.live[world].mine.as_ref().expect("all are in the world");
        // No rank is in a step before this one; the death may already be heard here.
        let _ = world.barrier();
        if self.me == victim * self.per {
            order.report("dying", "");
            std::thread::spawn(move || {
                pause(Duration::from_micros(delay));
                rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)
            });
        }
        let mut x = vec![1.0_f32; 50_000];
        while world.all_reduce_in_place(&mut x, ReduceOp::Max).is_ok() {}
        let dead = |r: usize| r / self.per == victim;
        for entry in &mut self.live {
            let exclude: Vec<usize> = (0..entry.members.len()).filter(|i| dead(entry.members[*i])).collect();
            if exclude.is_empty() {
                continue;
            }
            entry.mine = entry.mine.take().map(|comm| comm.shrink_abort(&exclude).expect("shrink with abort"));
            entry.members.retain(|r| !dead(*r));
            entry.revoked = false;
        }
        self.live.retain(|e| !e.members.is_empty());
        self.alive.retain(|r| !dead(*r));
    }

    fn step(&mut self, order: &Order, world: bool) {
        let at = self.random.below(self.live.len() as u64) as usize;
        let (revoked, room) = (self.live[at].revoked, self.live.len() < MOST);
        // The communicator of all that are alive stays, for ids and for kills.
        let keeps = self.live[at].members.len() == self.alive.len() && world;
        match self.random.below(24) {
            0..5 if room => self.split(at),
            5..8 if room => self.shrink(at),
            8..10 if room => self.grow(at),
            10 if !revoked && !keeps && self.shared => self.revoke(at),
            11 if !revoked => self.suspend(at),
            12..15 if !keeps => self.end(at),
            15 => self.kill(order),
            _ if !revoked => self.call(at),
            _ => {}
        }
    }
}

/// Plays one program.
pub fn rank(order: &Order) {
    let (seed, per) = (order.number(1), order.number(2) as usize);
    let comm = Communicator::init(order.ranks, order.id, order.rank).expect("init");
    let alive: Vec<usize> = (0..order.ranks).collect();
    let mut player = Player {
        me: order.rank,
        per,
        shared: order.words[3] == "1",
        random: Random(seed),
        alive: alive.clone(),
        live: Vec::new(),
        made: 0,
        trace: Vec::new(),
    };
    player.add(alive, Some(comm));
    let play = std::panic::AssertUnwindSafe(|| (0..STEPS).for_each(|_| player.step(order, true)));
    if let Err(panic) = std::panic::catch_unwind(play) {
        let from = player.trace.len().saturating_sub(6);
        order.report("trace", &player.trace[from..].join(" | "));
        std::panic::resume_unwind(panic);
    }
    order.report("made", &player.made.to_string());
    drop(player);
    order.report("over", "");
}

/// Seconds of each test: 5, or what the variable says.
fn time() -> Duration {
    let seconds = std::env::var("OXCCL_TEST_STRESS").ok().and_then(|s| s.parse().ok()).unwrap_or(5);
    Duration::from_secs(seconds)
}

fn stress(processes: usize, per: usize, shm: &str, time: Duration) {
    let _alone = alone();
    let mut random = Random::seeded(&format!("stress of {processes} x {per}, shared memory {shm}"));
    let begin = Instant::now();
    let (mut jobs, mut made, mut dead) = (0, 0, 0);
    while begin.elapsed() < time {
        let seed = if jobs == 0 { random.0 } else { random.next() };
        let mut pool = Pool::new(processes, per, &[("OXCCL_SHM", shm)]);
        pool.start(&format!("stress {seed} {per} {shm}"));
        let mut over = vec![false; processes * per];
        while !over.iter().all(|o| *o) {
            let said = |pool: &Pool| format!("seed {seed} (OXCCL_TEST_SEED replays it)\n{}", pool.said());
            let Some(event) = pool.next(GIVE_UP) else { panic!("no end of {over:?}; {}", said(&pool)) };
            match event.what.as_str() {
                "over" => over[event.rank] = true,
                "made" => made += event.text.parse::<usize>().expect("a number"),
                "dying" => {
                    dead += 1;
                    over[event.rank..event.rank + per].fill(true);
                }
                "panic" => {
                    pause(Duration::from_millis(300));
                    while pool.next(Duration::ZERO).is_some() {}
                    panic!("rank {} panicked; {}", event.rank, said(&pool));
                }
                _ => {}
            }
        }
        jobs += 1;
    }
    println!("stress of {processes} x {per}: {jobs} programs, {made} communicators, {dead} processes killed");
}

#[test]
fn random_lives_agree_with_the_model() {
    stress(4, 1, "1", time());
}

#[test]
fn random_lives_of_threads_in_processes_agree_with_the_model() {
    stress(3, 2, "1", time());
}

#[test]
fn random_lives_over_the_network_agree_with_the_model() {
    stress(3, 1, "0", time());
}
