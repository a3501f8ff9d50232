//! Calls over a network that begin before those in front of them have ended: what becomes of them when a rank is killed or
//! stopped, its connections are cut or one of its calls is another one, in the middle of a burst.

use std::time::Duration;

use oxccl::{Communicator, ReduceOp, Result, Stream};

use crate::harness::{Order, Pool, Random, alone, now_ns, pause, sticky_error};

const RANKS: usize = 4;
/// Calls of a burst: more than a rank may be ahead of its peers.
const BURST: usize = 80;
/// Elements of each part, about.
const LEN: usize = 8;
/// From the death, the cut or the last call to the error on each rank: far less than the limit for operations.
const NOTICE: Duration = Duration::from_secs(2);
const GIVE_UP: Duration = Duration::from_secs(20);

/// One rank: bursts of the kind that word 1 says, until one fails. Word 2 is what happens (kill, cut, stop, or the other call), word 3
/// to which rank, word 4 in which call, or after how many microseconds.
pub fn rank(order: &Order) {
    let comm = Communicator::init(order.ranks, order.id, order.rank).expect("init");
    // All connections are there: a cut does not concern those that are made after it, over which calls go on.
    // Another rank may be over with it, and be cut off or make the other call, before this one is.
    let first = burst(order, &comm, 0, None);
    order.report("up", "");
    let (what, odd, at) = (order.words[2].as_str(), order.number(3) as usize == order.rank, order.number(4));
    let error = std::thread::scope(|scope| {
        if odd && what == "cut" {
            scope.spawn(|| {
                pause(Duration::from_micros(at));
                order.report("cuts", "");
                order.report("severed", &cut().to_string());
            });
        }
        if odd && what == "idle" {
            burst(order, &comm, 0, None).expect("a good burst");
            return alone_among(&comm);
        }
        let ends = ["kill", "cut", "stop"].contains(&what);
        let other = |n: u64| (odd && n == 1 && !ends).then_some((at as usize, what));
        first.err().or_else(|| (0..).find_map(|n| burst(order, &comm, n, other(n)).err())).expect("it ends")
    });
    order.report("error", &format!("{:?} {}", error.code, error.text));
    let begin = now_ns();
    // No abort, which may overtake the error on its way to others.
    drop(comm);
    order.report("gone", &(now_ns() - begin).to_string());
}

/// A broadcast that needs nothing of the others, which make another call, and nothing after it until there is an error.
fn alone_among(comm: &Communicator) -> oxccl::Error {
    comm.broadcast(&mut [1_i32], comm.rank()).expect("a call that only sends");
    sticky_error(comm, GIVE_UP)
}

/// Ends all connections of this process with others, as a link does that is cut: how many there were.
fn cut() -> usize {
    let mut severed = 0;
    let own = rustix::process::getpid();
    let own = rustix::process::pidfd_open(own, rustix::process::PidfdFlags::empty()).expect("this process");
    let fds = std::fs::read_dir("/proc/self/fd").expect("the list of open files");
    let numbers = fds.filter_map(|f| f.ok()?.file_name().to_str()?.parse::<i32>().ok());
    for fd in numbers.collect::<Vec<_>>() {
        // Of those that were closed meanwhile there is none.
        let Ok(fd) = rustix::process::pidfd_getfd(&own, fd, rustix::process::PidfdGetfdFlags::empty()) else {
            continue;
        };
        if let Ok(Some(peer)) = rustix::net::getpeername(&fd)
            && peer.address_family() == rustix::net::AddressFamily::INET
        {
            severed += usize::from(rustix::net::shutdown(&fd, rustix::net::Shutdown::Both).is_ok());
        }
    }
    severed
}

/// Elements that rank `from` sends to rank `to` in call `i`: none now and then.
fn part(from: usize, to: usize, i: usize) -> usize {
    (LEN + 3 * from + to + i) % 11
}

/// `other`: the number of a call and what takes its place.
fn burst(order: &Order, comm: &Communicator, n: u64, other: Option<(usize, &str)>) -> Result<()> {
    let (me, ranks) = (comm.rank(), comm.ranks());
    let value = |i: usize, r: usize| (n as usize % 50 * 100 + i * ranks + r) as f32;
    let sent: Vec<Vec<f32>> = (0..BURST).map(|i| vec![value(i, me); 16 * ranks]).collect();
    let mut came = vec![vec![-1.0_f32; 16 * ranks]; BURST];
    let ring = order.words[1] == "ring";
    let stream = Stream::on(comm.device())?;
    stream.scope(|s| {
        for (i, (a, b)) in sent.iter().zip(&mut came).enumerate() {
            let (a, b) = (s.share(a.as_slice()), s.lend(b.as_mut_slice()));
            match other {
                Some((at, what)) if at == i => match what {
                    "all_reduce" => s.all_reduce(comm, a, b, ReduceOp::Sum)?,
                    "all_gather" => s.all_gather(comm, a.slice(0..8), b.slice(0..8 * ranks))?,
                    "reduce_scatter" => s.reduce_scatter(comm, a.slice(0..8 * ranks), b.slice(0..8), ReduceOp::Sum)?,
                    "all_to_all" => s.all_to_all(comm, a.slice(0..8 * ranks), b.slice(0..8 * ranks))?,
                    "broadcast" => s.broadcast(comm, b, (me + 1) % ranks)?,
                    "broadcast-root" => s.broadcast(comm, b, me)?,
                    "reduce" => s.reduce(comm, a, b, ReduceOp::Sum, (me + 1) % ranks)?,
                    "gather" => s.gather(comm, a.slice(0..8), b.slice(0..0), (me + 1) % ranks)?,
                    _ => panic!("no call {what}"),
                },
                _ if ring => s.group(|| {
                    s.send(comm, a, (me + 1) % ranks)?;
                    s.recv(comm, b, (me + ranks - 1) % ranks)
                })?,
                _ => {
                    let out: Vec<usize> = (0..ranks).map(|r| part(me, r, i)).collect();
                    let into: Vec<usize> = (0..ranks).map(|r| part(r, me, i)).collect();
                    let (given, taken) = (out.iter().sum(), into.iter().sum());
                    s.all_to_all_v(comm, a.slice(0..given), &out, b.slice(0..taken), &into)?;
                }
            }
        }
        Ok(())
    })?;
    for (i, b) in came.iter().enumerate() {
        let expected: Vec<f32> = match ring {
            true => vec![value(i, (me + ranks - 1) % ranks); 16 * ranks],
            false => (0..ranks).flat_map(|r| vec![value(i, r); part(r, me, i)]).collect(),
        };
        assert_eq!(b[..expected.len()], expected, "call {i} of burst {n}");
        assert!(b[expected.len()..].iter().all(|v| *v == -1.0), "call {i} of burst {n}: more was written");
    }
    Ok(())
}

/// Workers of which none shares memory with another, or the first two do.
fn pool(near: usize, env: &[(&str, &str)]) -> Pool {
    let mut pool = Pool::new(RANKS, 1, env);
    for rank in near..RANKS {
        pool.workers[rank] = pool.spawn_with(&[("OXCCL_SHM", "0")]);
    }
    pool
}

/// Bursts of `kind` of which the rank `victim` is killed, or has its connections cut, after some time.
fn ends(kind: &str, near: usize, what: &str, rounds: usize) {
    let _alone = alone();
    let mut random = Random::seeded(&format!("{what} among bursts of {kind}"));
    let mut pool = pool(near, &[]);
    let all: Vec<usize> = (0..RANKS).collect();
    for round in 0..rounds {
        let (victim, delay) = (round % RANKS, random.below(40_000));
        pool.start(&format!("early {kind} {what} {victim} {delay}"));
        pool.expect("up", &all, GIVE_UP);
        let (since, errors) = if what == "kill" {
            let (killed, errors, _) = pool.kill(victim, Duration::from_micros(delay), GIVE_UP);
            let env: &[(&str, &str)] = if victim < near { &[] } else { &[("OXCCL_SHM", "0")] };
            pool.workers[victim] = pool.spawn_with(env);
            (killed, errors)
        } else {
            let cut = pool.expect("cuts", &[victim], GIVE_UP)[0].ns;
            let errors = pool.expect("error", &all, GIVE_UP);
            pool.expect("gone", &all, GIVE_UP);
            (cut, errors)
        };
        let said = format!("round {round}: {what} of rank {victim} after {delay} us; the ranks said\n{}", pool.said());
        for e in &errors {
            let took = Duration::from_nanos(e.ns.saturating_sub(since));
            assert!(took < NOTICE, "rank {} noticed after {took:?}; {said}", e.rank);
            assert!(e.text.starts_with("RemoteError "), "{e:?}; {said}");
            // Of a connection that was cut each end takes the other for the one that is gone.
            let named = if what == "cut" { "rank ".to_string() } else { format!("rank {victim}") };
            assert!(e.text.contains(&named), "{e:?} names not {named}; {said}");
        }
    }
}

#[test]
fn a_rank_that_is_killed_among_all_to_alls_by_counts_is_named() {
    ends("v", 0, "kill", 8);
}

#[test]
fn a_rank_that_is_killed_in_a_ring_that_is_partly_near_is_named() {
    ends("ring", 2, "kill", 8);
}

#[test]
fn ranks_that_are_cut_off_among_all_to_alls_by_counts_end() {
    ends("v", 0, "cut", 8);
}

#[test]
fn ranks_that_are_cut_off_in_a_ring_end() {
    ends("ring", 0, "cut", 4);
}

/// A rank that is stopped lives: its peers wait for it up to the limit for operations, if there is one, or until it dies.
#[test]
fn a_rank_that_is_stopped_ends_calls_at_their_limit() {
    let _alone = alone();
    for (limit, kind) in [("1", "v"), ("1", "ring"), ("0", "v"), ("0", "ring")] {
        let mut pool = pool(0, &[("OXCCL_OP_TIMEOUT", limit)]);
        let all: Vec<usize> = (0..RANKS).collect();
        pool.start(&format!("early {kind} stop 2 0"));
        pool.expect("up", &all, GIVE_UP);
        pause(Duration::from_millis(20));
        let begin = now_ns();
        pool.workers[2].stop();
        let errors = if limit == "0" {
            pool.kill(2, Duration::from_millis(300), GIVE_UP).1
        } else {
            let errors = pool.expect("error", &[0, 1, 3], GIVE_UP);
            pool.expect("gone", &[0, 1, 3], GIVE_UP);
            errors
        };
        let named = if limit == "0" { "rank 2 " } else { "OXCCL_OP_TIMEOUT" };
        assert!(errors.iter().any(|e| e.text.contains(named)), "no {named}: {}", pool.said());
        for e in &errors {
            let took = Duration::from_nanos(e.ns.saturating_sub(begin));
            assert!(took < Duration::from_secs(1) + NOTICE, "rank {} noticed after {took:?}: {}", e.rank, pool.said());
            assert!(e.text.starts_with("RemoteError "), "{e:?}: {}", pool.said());
        }
    }
}

/// Another collective than AlltoAllv on one rank, in the middle of a burst: an error on each that names both, soon.
#[test]
fn an_all_to_all_by_counts_against_another_call_is_an_error_that_names_both() {
    let _alone = alone();
    let mut pool = pool(0, &[]);
    let all: Vec<usize> = (0..RANKS).collect();
    let others = [
        ("all_reduce", "AllReduce("),
        ("all_gather", "AllGather("),
        ("reduce_scatter", "ReduceScatter("),
        ("all_to_all", "AlltoAll("),
        ("broadcast", "Broadcast("),
        ("broadcast-root", "Broadcast("),
        ("reduce", "Reduce("),
        ("gather", "Gather("),
        ("idle", "Broadcast("),
    ];
    let mut faults = String::new();
    for (i, (other, name)) in others.into_iter().enumerate() {
        let (odd, at) = (i % RANKS, [0, 7, 40][i % 3]);
        pool.start(&format!("early v {other} {odd} {at}"));
        let since = pool.expect("up", &all, GIVE_UP).iter().map(|e| e.ns).max().unwrap_or(0);
        let errors = pool.expect("error", &all, GIVE_UP);
        pool.expect("gone", &all, GIVE_UP);
        for e in &errors {
            let took = Duration::from_nanos(e.ns.saturating_sub(since));
            // Where the ranks' words do not meet in time, the error has the numbers of the calls in place of the other's name.
            let numbered = e.text.contains("sent nothing, but for");
            if numbered {
                println!("{other} on rank {odd}, call {at}, after {took:?}: by numbers: {}", e.text);
            }
            let named = e.text.contains("AlltoAllv(") && (e.text.contains(name) || numbered);
            if !e.text.starts_with("InvalidUsage ") || !named || took > NOTICE {
                faults += &format!("{other} on rank {odd}, call {at}, after {took:?}: {e:?}\n");
            }
        }
    }
    assert!(faults.is_empty(), "{faults}");
}
