//! Ranks killed at random moments: every survivor says which rank died, soon, and gets away.

use std::time::Duration;

use oxccl::{Communicator, ResultCode};

use crate::calls::{self, Memory};
use crate::harness::{Order, Pool, Random, alone, now_ns};

const RANKS: usize = 4;
/// From the death to the error on each survivor.
const NOTICE: Duration = Duration::from_secs(2);
/// For abort or destroy afterwards.
const PARTING: Duration = Duration::from_secs(1);
/// `OXCCL_INIT_TIMEOUT` of the ranks, seconds: what those wait who cannot know that a rank never began.
const INIT_TIMEOUT: u64 = 3;
/// When a test gives up.
const GIVE_UP: Duration = Duration::from_secs(15);

/// What the ranks call: anything, or gathers that go by slots where ranks share cores.
const ANY: &str = "any";
const SLOTTED: &str = "slotted";

/// One rank: joins, then calls until something fails, then leaves.
pub fn rank(order: &Order) {
    let seed = order.number(1);
    order.report("joining", "");
    let comm = match Communicator::init(order.ranks, order.id, order.rank) {
        Ok(comm) => comm,
        Err(e) => {
            order.report("error", &format!("{:?} init: {}", e.code, e.text));
            order.report("gone", "0");
            return;
        }
    };
    order.report("up", "");
    let mut random = Random(seed);
    let error = loop {
        let (kind, memory, len, n) = draw(&mut random, &order.words[2]);
        if let Err(e) = calls::one(&comm, kind, memory, len, n) {
            break e;
        }
    };
    order.report("error", &format!("{:?} call: {}", error.code, error.text));
    // The sticky error is the same story.
    if let Err(e) = comm.async_error() {
        order.report("sticky", &format!("{:?} {}", e.code, e.text));
    }
    let begin = now_ns();
    if (seed ^ order.rank as u64) & 1 == 0 {
        comm.abort_handle().abort().expect("abort");
    }
    drop(comm);
    order.report("gone", &(now_ns() - begin).to_string());
}

/// The next call of every rank: its kind, where its buffers lie, elements of a block, its number.
fn draw(random: &mut Random, calls: &str) -> (usize, Memory, usize, u64) {
    let n = random.below(1 << 20);
    if calls == SLOTTED {
        // Root 0 says often enough that its memory is not mapped; now and then another one.
        let n = if random.below(16) > 0 { n * RANKS as u64 } else { n };
        return (calls::GATHER, Memory::Malloc, 600 + random.below(4_000) as usize, n);
    }
    let (kind, size) = (random.below(calls::KINDS as u64) as usize, random.below(10));
    let memory = if random.below(2) == 0 { Memory::Malloc } else { Memory::Device };
    let len = match size {
        0..4 => 1 + random.below(500),
        4..7 => 10_000 + random.below(100_000),
        _ => 400_000 + random.below(600_000),
    };
    (kind, memory, len as usize, n)
}

/// When a rank is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    Joining,
    Calling,
}

fn one_kill(
    pool: &mut Pool,
    spare: &mut Option<crate::harness::Worker>,
    random: &mut Random,
    calls: &str,
    round: usize,
) -> u64 {
    let all: Vec<usize> = (0..RANKS).collect();
    let victim = random.below(RANKS as u64) as usize;
    let moment = if random.below(5) == 0 { Moment::Joining } else { Moment::Calling };
    pool.start(&format!("kill {} {calls}", random.next() >> 8));
    let delay = match moment {
        Moment::Joining => {
            pool.expect("joining", &[victim], GIVE_UP);
            500 + random.below(8_000)
        }
        Moment::Calling => {
            pool.expect("up", &all, GIVE_UP);
            random.below(40_000)
        }
    };
    let (killed, errors, gone) = pool.kill(victim, Duration::from_micros(delay), GIVE_UP);
    let context = |pool: &Pool| {
        format!("round {round}: rank {victim} killed {delay} us into {moment:?}; the ranks said\n{}", pool.said())
    };
    let mut worst = 0;
    for e in &errors {
        let never_came = e.text.contains("did not connect within");
        let limit = NOTICE + Duration::from_secs(if never_came { INIT_TIMEOUT } else { 0 });
        let took = Duration::from_nanos(e.ns.saturating_sub(killed));
        assert!(took < limit, "rank {} noticed after {took:?}; {}", e.rank, context(pool));
        assert!(e.text.starts_with(&format!("{:?} ", ResultCode::RemoteError)), "{:?}; {}", e, context(pool));
        assert!(e.text.contains(&format!("rank {victim}")), "{:?} names not the dead; {}", e, context(pool));
        worst = worst.max(if never_came { 0 } else { took.as_nanos() as u64 });
    }
    for e in &gone {
        let took = Duration::from_nanos(e.text.parse().expect("nanoseconds"));
        assert!(took < PARTING, "rank {} needed {took:?} to leave; {}", e.rank, context(pool));
    }
    let next = pool.spawn();
    pool.workers[victim] = spare.replace(next).expect("a spare worker");
    worst
}

fn kills(name: &str, rounds: usize, calls: &str, env: &[(&str, &str)]) {
    let _alone = alone();
    let mut random = Random::seeded(name);
    let timeout = INIT_TIMEOUT.to_string();
    let env = [env, &[("OXCCL_INIT_TIMEOUT", timeout.as_str())]].concat();
    let mut pool = Pool::new(RANKS, 1, &env);
    let mut spare = Some(pool.spawn());
    let mut noticed: Vec<u64> = (0..rounds).map(|r| one_kill(&mut pool, &mut spare, &mut random, calls, r)).collect();
    noticed.sort_unstable();
    let ms = |ns: u64| ns as f64 / 1e6;
    println!(
        "{name}: noticed within {:.1} ms (median), {:.1} ms (worst)",
        ms(noticed[rounds / 2]),
        ms(noticed[rounds - 1])
    );
}

/// How often a test kills: its share, or as much of what the variable says for 200.
fn rounds(share: usize) -> usize {
    let all = std::env::var("OXCCL_TEST_KILLS").ok().and_then(|s| s.parse().ok()).unwrap_or(200);
    (all * share / 200).max(1)
}

#[test]
fn killed_ranks_are_named_with_shared_memory() {
    kills("kill over shared memory", rounds(180), ANY, &[]);
}

#[test]
fn killed_ranks_are_named_in_gathers_by_slots() {
    kills("kill in gathers", rounds(40), SLOTTED, &[]);
}

#[test]
fn killed_ranks_are_named_over_the_network() {
    kills("kill over TCP", rounds(20), ANY, &[("OXCCL_SHM", "0")]);
}

/// Their ways are those of larger machines.
#[test]
fn killed_ranks_are_named_where_ranks_take_themselves_to_have_cores() {
    kills("kill over shared memory, own cores", rounds(40), ANY, &[("OXCCL_CORES", "64")]);
}
