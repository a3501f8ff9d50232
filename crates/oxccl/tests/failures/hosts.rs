//! Two hosts of two ranks each, those of one sharing memory: what they read of each other's buffers where these lie, and that an
//! abort or a death in the middle ends it before the buffers go, which they do right after the call.

use std::time::Duration;

use oxccl::Communicator;

use crate::calls::{self, Memory};
use crate::harness::{Order, Pool, Random, aborting, alone, pause};

const RANKS: usize = 4;
const ALL: [usize; RANKS] = [0, 1, 2, 3];
/// AllReduce out of place and in place, Broadcast, ReduceScatter, AllGather: see [`calls::one`].
const KINDS: [usize; 5] = [0, 1, 2, 4, 5];
/// Elements of a block: what is less than some tens of KiB is copied.
const LEN: usize = 200_000;
const NOTICE: Duration = Duration::from_secs(2);
const GIVE_UP: Duration = Duration::from_secs(20);

/// One rank: word 1 is the memory, word 2 what happens (rounds, late, abort, kill, waits), word 3 to which rank, or how many rounds there are,
/// word 4 after how many microseconds, or whether something is mapped then.
pub fn rank(order: &Order) {
    let comm = Communicator::init(order.ranks, order.id, order.rank).expect("init");
    let memory = if order.words[1] == "malloc" { Memory::Malloc } else { Memory::Device };
    let used = || comm.memory_use().expect("known").suspendable;
    let unused = used();
    let call = |n: u64| calls::one(&comm, KINDS[n as usize % KINDS.len()], memory, LEN + n as usize % 3, n);
    if order.words[2] == "waits" {
        return wait_for_an_inner_rank(order, &comm);
    }
    if order.words[2] == "late" {
        if order.rank == order.number(3) as usize {
            pause(Duration::from_micros(order.number(4)));
        }
        // The broadcast of rank 0.
        calls::one(&comm, 2, memory, LEN, 0).expect("a good call");
        return;
    }
    let first = call(0);
    order.report("up", "");
    if order.words[2] == "rounds" {
        first.expect("a good call");
        (1..=order.number(3)).for_each(|n| call(n).expect("a good call"));
        comm.barrier().expect("barrier");
        // Memory of peers is mapped, or that of copies made, but between threads.
        assert_eq!(used() > unused, order.words[4] == "maps", "{} of {unused} bytes", used());
        return;
    }
    let aborts = order.words[2] == "abort" && order.number(3) as usize == order.rank;
    let after = aborts.then(|| Duration::from_micros(order.number(4)));
    let error =
        aborting(order, &comm, after, || first.err().or_else(|| (1..).find_map(|n| call(n).err())).expect("it ends"));
    order.report("error", &format!("{:?} {}", error.code, error.text));
    drop(comm);
    order.report("gone", "");
}

/// Processes of one rank each, whose memory is mapped, and processes of two ranks, whose addresses are the same.
fn ways() -> [(Pool, &'static str); 2] {
    [(Pool::on_hosts(&[0, 0, 1, 1], 1), "device"), (Pool::on_hosts(&[0, 1], 2), "malloc")]
}

#[test]
fn buffers_that_go_right_after_the_call_give_what_they_should() {
    let _alone = alone();
    // Of three neighbours each sends the same bytes to two.
    let threes = (Pool::on_hosts(&[0, 0, 0, 1, 1, 1], 1), "malloc");
    for (mut pool, memory) in ways().into_iter().chain([threes]) {
        let maps = if pool.ranks() > pool.workers.len() { "none" } else { "maps" };
        pool.start(&format!("hosts {memory} rounds 60 {maps}"));
        let all: Vec<usize> = (0..pool.ranks()).collect();
        pool.expect("end", &all, 2 * GIVE_UP);
    }
}

#[test]
fn who_has_done_its_part_may_leave_while_a_root_waits_for_its_neighbour() {
    let _alone = alone();
    for (mut pool, memory) in ways() {
        for _ in 0..3 {
            // Longer than what a wait for one that has left is bounded by.
            pool.start(&format!("hosts {memory} late 1 400000"));
            pool.expect("end", &ALL, GIVE_UP);
        }
    }
}

#[test]
fn an_abort_among_hosts_of_several_ranks_is_heard() {
    let _alone = alone();
    let mut random = Random::seeded("aborts among hosts of several ranks");
    for (mut pool, memory) in ways() {
        for victim in ALL.repeat(3) {
            let delay = random.below(20_000);
            pool.start(&format!("hosts {memory} abort {victim} {delay}"));
            let since = pool.expect("leaves", &[victim], GIVE_UP)[0].ns;
            let errors = pool.expect("error", &ALL, GIVE_UP);
            pool.expect("gone", &ALL, GIVE_UP);
            for e in &errors {
                let took = Duration::from_nanos(e.ns.saturating_sub(since));
                let said = format!("{memory}, after {delay} us: {e:?}\n{}", pool.said());
                assert!(took < NOTICE, "noticed after {took:?}; {said}");
                assert!(e.rank == victim || e.text.contains(&format!("rank {victim}")), "{said}");
            }
        }
    }
}

#[test]
fn a_rank_that_is_killed_among_hosts_of_several_ranks_is_named() {
    let _alone = alone();
    let mut random = Random::seeded("deaths among hosts of several ranks");
    let hosts = [0, 0, 1, 1];
    let mut pool = Pool::on_hosts(&hosts, 1);
    for victim in ALL.repeat(2) {
        let delay = random.below(20_000);
        pool.start(&format!("hosts device kill {victim} {delay}"));
        pool.expect("up", &ALL, GIVE_UP);
        let (killed, errors, _) = pool.kill(victim, Duration::from_micros(delay), GIVE_UP);
        for e in &errors {
            let took = Duration::from_nanos(e.ns.saturating_sub(killed));
            let said = format!("after {delay} us: {e:?}\n{}", pool.said());
            assert!(took < NOTICE, "noticed after {took:?}; {said}");
            assert!(e.text.contains(&format!("rank {victim}")), "{said}");
        }
        pool.workers[victim] = pool.spawn_on(hosts[victim]);
    }
}

/// The ranks of the first of two processes each wait for a rank of the other one that has no neighbour of theirs in the ring of
/// news; word 3 is in what.
fn wait_for_an_inner_rank(order: &Order, comm: &Communicator) {
    comm.barrier().expect("barrier");
    order.report("up", "");
    let half = order.ranks / 2;
    let from = if order.rank < half { half + 1 + order.rank % (half - 2) } else { order.rank - half };
    let waited = match order.words[3].as_str() {
        "recv" => comm.recv(&mut [0_u8; 100], from),
        _ => comm.wait_signal(from, oxccl::Signal::default(), 1),
    };
    let error = waited.expect_err("nobody sends");
    order.report("error", &format!("{:?} {}", error.code, error.text));
}

#[test]
fn ranks_within_a_process_that_is_killed_are_known_to_be_dead() {
    let _alone = alone();
    let mut pool = Pool::on_hosts(&[0, 1], 4);
    for call in ["signal", "recv"] {
        pool.start(&format!("hosts malloc waits {call}"));
        pool.expect("up", &(0..8).collect::<Vec<_>>(), GIVE_UP);
        let killed = crate::harness::now_ns();
        pool.workers[1].kill();
        for e in pool.expect("error", &ALL, GIVE_UP) {
            let took = Duration::from_nanos(e.ns.saturating_sub(killed));
            let said = format!("{call}: {e:?}\n{}", pool.said());
            assert!(took < NOTICE, "noticed after {took:?}; {said}");
            // The first of those that share memory tells the others.
            assert!(
                ["rank 5 (", "rank 6 ("].iter().any(|from| e.text.contains(from)) && e.text.contains("died"),
                "{said}"
            );
        }
        pool.workers[1] = pool.spawn_on(1);
    }
}
