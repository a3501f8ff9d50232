//! Bursts of rooted calls over a network, the ends of whose messages the kernel keeps for those that follow: what becomes of them
//! when a rank aborts or dies in the middle, on one and on several channels.

use std::time::Duration;

use oxccl::{Communicator, Result, Stream};

use crate::harness::{Order, Pool, Random, aborting, alone, now_ns};

const RANKS: usize = 3;
const ALL: [usize; RANKS] = [0, 1, 2];
/// Calls of a burst.
const BURST: usize = 32;
/// Elements of the shortest and of the longest part: none fills its last packet.
const LEN: std::ops::Range<usize> = 20_001..50_001;
const NOTICE: Duration = Duration::from_secs(2);
const GIVE_UP: Duration = Duration::from_secs(20);
/// Less than a burst takes whose ends wait until the kernel lets go by itself; the shortest of some, on a busy machine, too.
const LONGEST_BURST: Duration = Duration::from_secs(1);

/// One rank: bursts until one fails, or so many as word 2 says. Word 1 is what happens (rounds, abort, kill), word 2 to which rank,
/// word 3 after how many microseconds.
pub fn rank(order: &Order) {
    let comm = Communicator::init(order.ranks, order.id, order.rank).expect("init");
    // Another rank may be over with it, and leave, before this one is.
    let first = burst(&comm, 0);
    order.report("up", "");
    if order.words[1] == "rounds" {
        first.expect("a good burst");
        let took = (1..=order.number(2)).map(|n| {
            let begin = now_ns();
            burst(&comm, n).expect("a good burst");
            Duration::from_nanos(now_ns() - begin)
        });
        let shortest = took.min().expect("some");
        assert!(shortest < LONGEST_BURST, "each burst took {shortest:?} or more");
        return;
    }
    let (odd, at) = (order.number(2) as usize == order.rank, order.number(3));
    let after = (odd && order.words[1] == "abort").then(|| Duration::from_micros(at));
    let error = aborting(order, &comm, after, || {
        first.err().or_else(|| (1..).find_map(|n| burst(&comm, n).err())).expect("it ends")
    });
    order.report("error", &format!("{:?} {}", error.code, error.text));
    let begin = now_ns();
    drop(comm);
    order.report("gone", &(now_ns() - begin).to_string());
}

/// Elements of a part of call `i`.
fn len(i: usize) -> usize {
    if i % 8 == 3 { 3 } else { LEN.start + i * 7919 % LEN.len() }
}

/// Mostly from one root, and now and then to one rank after another, which then waits for what was sent before.
fn burst(comm: &Communicator, n: u64) -> Result<()> {
    let (me, ranks) = (comm.rank(), comm.ranks());
    let value = |i: usize, r: usize| (n as usize % 50 * 100 + i * ranks + r) as f32;
    let given: Vec<Vec<f32>> = (0..BURST).map(|i| vec![value(i, me); len(i) * ranks]).collect();
    let mut taken: Vec<Vec<f32>> =
        (0..BURST).map(|i| vec![if i % 8 < 5 { value(i, me) } else { -1.0 }; len(i) * ranks]).collect();
    let stream = Stream::on(comm.device())?;
    stream.scope(|s| {
        for (i, (a, b)) in given.iter().zip(&mut taken).enumerate() {
            let (len, root) = (len(i), i % ranks);
            let (a, b) = (s.share(a.as_slice()), s.lend(b.as_mut_slice()));
            match i % 8 {
                0..5 => s.broadcast(comm, b, 0)?,
                5 => s.scatter(comm, a.slice(0..if me == 0 { len * ranks } else { 0 }), b.slice(0..len), 0)?,
                _ => s.gather(comm, a.slice(0..len), b.slice(0..if me == root { len * ranks } else { 0 }), root)?,
            }
        }
        Ok(())
    })?;
    for (i, b) in taken.iter().enumerate() {
        let (len, root) = (len(i), i % ranks);
        let block = |at: usize| match i % 8 {
            0..5 => value(i, 0),
            5 if at == 0 => value(i, 0),
            6.. if me == root => value(i, at),
            _ => -1.0,
        };
        for (at, part) in b.chunks(len).enumerate() {
            assert!(
                part.iter().all(|v| *v == block(at)),
                "call {i} of burst {n}, part {at}: {} for {}",
                part[0],
                block(at)
            );
        }
    }
    Ok(())
}

/// One channel, as it comes, and several.
const WAYS: [&[(&str, &str)]; 3] = [
    &[("OXCCL_SHM", "0")],
    &[("OXCCL_SHM", "0"), ("OXCCL_ALGO", "ring"), ("OXCCL_MAX_CHANNELS", "4"), ("OXCCL_SLOT_BYTES", "4096")],
    &[("OXCCL_SHM", "0"), ("OXCCL_ALGO", "tree"), ("OXCCL_MAX_CHANNELS", "4")],
];

#[test]
fn bursts_of_rooted_calls_over_the_network_end() {
    let _alone = alone();
    for env in WAYS {
        let mut pool = Pool::new(RANKS, 1, env);
        pool.start("kept rounds 8");
        pool.expect("end", &ALL, 2 * GIVE_UP);
    }
}

fn ends(what: &str, rounds: usize) {
    let _alone = alone();
    let mut random = Random::seeded(&format!("{what} among bursts of rooted calls"));
    for env in WAYS {
        let mut pool = Pool::new(RANKS, 1, env);
        for round in 0..rounds {
            let (victim, delay) = (round % RANKS, random.below(40_000));
            pool.start(&format!("kept {what} {victim} {delay}"));
            pool.expect("up", &ALL, GIVE_UP);
            let (since, errors) = if what == "kill" {
                let (killed, errors, _) = pool.kill(victim, Duration::from_micros(delay), GIVE_UP);
                pool.workers[victim] = pool.spawn();
                (killed, errors)
            } else {
                let since = pool.expect("leaves", &[victim], GIVE_UP)[0].ns;
                let errors = pool.expect("error", &ALL, GIVE_UP);
                pool.expect("gone", &ALL, GIVE_UP);
                (since, errors)
            };
            let said = format!("{env:?}, round {round}: {what} of rank {victim} after {delay} us\n{}", pool.said());
            for e in &errors {
                let took = Duration::from_nanos(e.ns.saturating_sub(since));
                assert!(took < NOTICE, "rank {} noticed after {took:?}; {said}", e.rank);
                // It may be between two bursts.
                let own = what == "abort" && e.rank == victim;
                let told = e.text.starts_with("RemoteError ") && e.text.contains(&format!("rank {victim}"));
                assert!(own || told, "{e:?}; {said}");
            }
        }
    }
}

#[test]
fn an_abort_among_rooted_calls_over_the_network_is_heard() {
    ends("abort", 6);
}

#[test]
fn a_rank_that_is_killed_among_rooted_calls_over_the_network_is_named() {
    ends("kill", 6);
}
