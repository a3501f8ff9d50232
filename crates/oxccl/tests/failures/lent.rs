//! Bursts of calls that lend memory, by ranks that share cores, in processes of their own: what they give, and what becomes of
//! them when a rank is killed or goes in the middle of one.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use oxccl::{Communicator, Lent, ReduceOp, Result, ResultCode, Stream};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::calls::{Buffer, Memory};
use crate::harness::{Order, Pool, Random, Worker, aborting, alone, now_ns, pause};

/// Calls of a burst.
const BURST: usize = 32;
/// Elements of a broadcast: 32 KiB.
const LEN: usize = 8192;
/// Elements of a small reduction.
const SMALL: usize = 1500;
/// From the death to the error on each survivor.
const NOTICE: Duration = Duration::from_secs(2);
const GIVE_UP: Duration = Duration::from_secs(20);

/// One rank of whatever test it is.
pub fn rank(order: &Order) {
    let comm = Communicator::init(order.ranks, order.id, order.rank).expect("init");
    comm.barrier().expect("a good call");
    order.report("up", "");
    match order.words[1].as_str() {
        "gathers" => gathers(order, &comm),
        "mixed" => mixed(order, &comm),
        "strays" => strays(order, &comm),
        "until" => {
            let error = (0..).find_map(|n| burst(order, &comm, n, Late::Never).err()).expect("it ends");
            order.report("error", &format!("{:?} {}", error.code, error.text));
            let begin = now_ns();
            if order.rank.is_multiple_of(2) {
                comm.abort_handle().abort().expect("abort");
            }
            drop(comm);
            order.report("gone", &(now_ns() - begin).to_string());
            return;
        }
        // Word 3 is the rank that aborts, from another thread, or whose call differs; word 4 after how long, or which call.
        "abort" => {
            let aborts = order.number(3) == order.rank as u64;
            let after = aborts.then(|| Duration::from_micros(order.number(4)));
            let error = aborting(order, &comm, after, || {
                (0..).find_map(|n| burst(order, &comm, n, Late::Never).err()).expect("it ends")
            });
            order.report("error", &format!("{:?} {}", error.code, error.text));
        }
        "differ" => {
            let odd = Some((order.number(4) as usize, order.number(3) as usize));
            // The first burst is good. But the error ends every wait: a rank that has not yet seen the end of that burst, when the
            // others meet the call that differs in the second, is told there.
            let mut bursts = (0..).zip([None, odd, None]);
            let error = bursts.find_map(|(n, odd)| burst_among_all(order, &comm, n, odd).err());
            let error = error.expect("calls that differ");
            order.report("error", &format!("{:?} {}", error.code, error.text));
        }
        "depart" => {
            (0..3).for_each(|n| burst(order, &comm, n, Late::Never).expect("a good burst"));
            if order.words.len() > 5 && order.rank == 1 {
                pause(Duration::from_millis(order.number(5)));
            }
            let late = if order.number(3) == order.rank as u64 { Late::Never } else { Late::Always };
            let result = burst(order, &comm, 3, late);
            if order.number(3) == order.rank as u64 && order.words[4] == "exit" {
                order.report("gone", "0");
                std::process::exit(0);
            }
            match result {
                Ok(()) => order.report("fine", ""),
                Err(e) => order.report("error", &format!("{:?} {}", e.code, e.text)),
            }
            // A process that ended is told of at any time.
            if order.number(3) != order.rank as u64 && order.words[4] == "destroy" {
                pause(Duration::from_millis(1500));
                if let Err(e) = comm.async_error() {
                    order.report("error", &format!("later: {:?} {}", e.code, e.text));
                }
            }
        }
        other => panic!("no job {other}"),
    }
    drop(comm);
    order.report("gone", "0");
}

#[derive(Clone, Copy, PartialEq)]
enum Late {
    Never,
    Always,
}

/// Elements that rank `from` sends to rank `to` in an AlltoAllv: no whole number of lines.
fn uneven(from: usize, to: usize) -> usize {
    LEN - 17 * from - 33 * to - 1
}

/// Elements that rank `from` sends to rank `to`, perhaps itself, in group `i` of messages: some are copied to slots, the others lent.
fn experts(i: usize, from: usize, to: usize) -> usize {
    if (from + to + i).is_multiple_of(3) { 40 + from } else { uneven(from, to) }
}

/// A burst of calls by which every rank takes from every other what these lend, or writes its part to all: alltoall, v
/// (AlltoAllv), private (the same from memory that peers cannot map), far (alltoall from such), reduce_scatter, all_reduce, reduce,
/// small (reductions to rank 0 that go by slots at first, then inputs are lent), some (the same to rank 1, but that rank 2 lends nothing),
/// ring (Send and Recv), experts (groups of short and long messages of each rank to each and itself, and all-reduces in turn), turns (these and
/// all-gather in turn, but for private, far, small, some, ring and experts). Call `odd.0` of rank `odd.1` has an element less.
fn burst_among_all(order: &Order, comm: &Communicator, n: u64, odd: Option<(usize, usize)>) -> Result<()> {
    let (me, ranks) = (comm.rank(), comm.ranks());
    let value = |i: usize, r: usize| (n as usize % 50 * 100 + i * ranks + r) as f32;
    let is_private = ["private", "far"].contains(&order.words[2].as_str()) || order.words[2] == "some" && me == 2;
    let memory = if is_private { Memory::Malloc } else { Memory::Device };
    let root = usize::from(order.words[2] == "some");
    let mut from: Vec<Buffer> = (0..BURST).map(|i| Buffer::filled(memory, LEN * ranks, value(i, me))).collect();
    let mut to: Vec<Buffer> = (0..BURST).map(|_| Buffer::filled(memory, LEN * ranks, -1.0)).collect();
    let kind = |i: usize| match order.words[2].as_str() {
        "turns" => ["alltoall", "all_reduce", "v", "reduce", "reduce_scatter", "all_gather"][i / 3 % 6],
        "experts" => ["experts", "all_reduce"][i % 2],
        "private" => "v",
        "far" => "alltoall",
        one => one,
    };
    let stream = Stream::on(comm.device())?;
    let less = |i: usize| usize::from(odd == Some((i, me)));
    let counts =
        |out: bool| -> Vec<usize> { (0..ranks).map(|r| if out { uneven(me, r) } else { uneven(r, me) }).collect() };
    stream.scope(|s| {
        for (i, (a, b)) in from.iter_mut().zip(&mut to).enumerate() {
            let (a, b): (Lent<'_, f32>, Lent<'_, f32>) = (s.lend(a.get_mut()), s.lend(b.get_mut()));
            let all = (LEN - less(i)) * ranks;
            match kind(i) {
                "alltoall" => s.all_to_all(comm, a.slice(0..all), b.slice(0..all))?,
                "v" => {
                    let (mut out, into) = (counts(true), counts(false));
                    out[(me + 1) % ranks] -= less(i);
                    let (given, taken) = (out.iter().sum(), into.iter().sum());
                    s.all_to_all_v(comm, a.slice(0..given), &out, b.slice(0..taken), &into)?;
                }
                "reduce_scatter" => {
                    s.reduce_scatter(comm, a.slice(0..all), b.slice(0..LEN - less(i)), ReduceOp::Max)?;
                }
                "all_reduce" => s.all_reduce(comm, a.slice(0..all), b.slice(0..all), ReduceOp::Max)?,
                "reduce" => {
                    let root = i % ranks;
                    s.reduce(comm, a.slice(0..all), b.slice(0..all), ReduceOp::Max, root)?;
                }
                "small" | "some" => {
                    let all = SMALL - less(i);
                    s.reduce(comm, a.slice(0..all), b.slice(0..all), ReduceOp::Max, root)?;
                }
                "ring" => s.group(|| {
                    s.send(comm, a.slice(0..all), (me + 1) % ranks)?;
                    s.recv(comm, b.slice(0..LEN * ranks), (me + ranks - 1) % ranks)
                })?,
                "experts" => s.group(|| {
                    let (mut given, mut taken) = (0, 0);
                    for r in 0..ranks {
                        let (out, into) = (experts(i, me, r), experts(i, r, me));
                        let less = if r == (me + 1) % ranks { less(i) } else { 0 };
                        s.send(comm, a.slice(given..given + out - less), r)?;
                        s.recv(comm, b.slice(taken..taken + into), r)?;
                        (given, taken) = (given + out, taken + into);
                    }
                    Ok(())
                })?,
                _ => s.all_gather(comm, a.slice(0..LEN - less(i)), b.slice(0..all))?,
            }
        }
        Ok(())
    })?;
    for (i, b) in to.iter().enumerate() {
        let mut rest = b.get();
        for r in 0..ranks {
            let (len, expected) = match kind(i) {
                "v" => (uneven(r, me), value(i, r)),
                "experts" => (experts(i, r, me), value(i, r)),
                "reduce_scatter" => (if r == 0 { LEN } else { 0 }, value(i, ranks - 1)),
                "reduce" if me != i % ranks => (LEN, -1.0),
                "small" | "some" => (if r == 0 && me == root { SMALL } else { 0 }, value(i, ranks - 1)),
                "all_reduce" | "reduce" => (LEN, value(i, ranks - 1)),
                "ring" => (LEN, value(i, (me + ranks - 1) % ranks)),
                _ => (LEN, value(i, r)),
            };
            let (block, after) = rest.split_at(len);
            let wrong = block.iter().position(|v| *v != expected);
            assert!(wrong.is_none(), "{} {n} {i} of {r}: {} at {wrong:?}", kind(i), block[wrong.unwrap()]);
            rest = after;
        }
        assert!(rest.iter().all(|v| *v == -1.0), "{} {n} {i}: more was written", kind(i));
    }
    Ok(())
}

/// A burst of the kind that word 2 of the order says: broadcast, scatter, gather, alternate (broadcasts with roots in turn), both (gather,
/// then broadcast of the same), few and parts (broadcast and scatter of what goes by slots at first, and then is lent), or one
/// [among all](burst_among_all).
fn burst(order: &Order, comm: &Communicator, n: u64, late: Late) -> Result<()> {
    let (me, ranks) = (comm.rank(), comm.ranks());
    let kind = order.words[2].as_str();
    if AMONG_ALL.contains(&kind) || ["some", "ring"].contains(&kind) {
        return burst_among_all(order, comm, n, None);
    }
    let value = |i: usize, r: usize| (n as usize % 50 * 100 + i * ranks + r) as f32;
    let len = match kind {
        "few" => SMALL,
        "parts" => SMALL / ranks,
        _ => LEN,
    };
    let mut small: Vec<Buffer> = (0..BURST).map(|i| Buffer::filled(Memory::Device, len, value(i, me))).collect();
    let mut large: Vec<Buffer> =
        (0..BURST).map(|i| Buffer::filled(Memory::Device, len * ranks, value(i, me))).collect();
    let root = |i: usize| if kind == "alternate" { i % ranks } else { 0 };
    let stream = Stream::on(comm.device())?;
    stream.scope(|s| {
        for (i, (a, b)) in small.iter_mut().zip(&mut large).enumerate() {
            if late == Late::Always && (i + me) % 5 == 0 {
                pause(Duration::from_millis(7));
            }
            let (a, b): (Lent<'_, f32>, Lent<'_, f32>) = (s.lend(a.get_mut()), s.lend(b.get_mut()));
            match kind {
                "scatter" | "parts" => s.scatter(comm, b, a, root(i))?,
                "gather" => s.gather(comm, a, b, root(i))?,
                "both" => {
                    s.gather(comm, a, b, root(i))?;
                    s.broadcast(comm, b, root(i))?;
                }
                _ => s.broadcast(comm, a, root(i))?,
            }
        }
        Ok(())
    })?;
    for i in 0..BURST {
        let (a, b) = (small[i].get(), large[i].get());
        match kind {
            "gather" if me != root(i) => {}
            "gather" | "both" => {
                for r in 0..ranks {
                    assert!(
                        b[r * len..][..len].iter().all(|v| *v == value(i, r)),
                        "{kind} {n} {i} of {r}: {}",
                        b[r * len]
                    );
                }
            }
            _ => assert!(a.iter().all(|v| *v == value(i, root(i))), "{kind} {n} {i}: {}", a[0]),
        }
    }
    Ok(())
}

/// Gathers of two or more ranks to a root whose memory is mapped, from private memory, and the other way round.
fn gathers(order: &Order, comm: &Communicator) {
    let (me, ranks) = (comm.rank(), comm.ranks());
    let mut random = Random(order.number(2));
    for round in 0..60_usize {
        let len = [2100, 3000, 6000, 8000, 20_000][random.below(5) as usize];
        let root = random.below(ranks as u64) as usize;
        let memory = |n| if n == 0 { Memory::Malloc } else { Memory::Device };
        let (of_root, of_leaf) = (memory(random.below(3)), memory(random.below(3) / 2));
        let calls = 40;
        let value = |i: usize, r: usize| (round * 1000 + i * ranks + r) as f32;
        let mine = if me == root { of_root } else { of_leaf };
        let mut from: Vec<Buffer> = (0..calls).map(|i| Buffer::filled(mine, len, value(i, me))).collect();
        let size = if me == root { len * ranks } else { 0 };
        let mut to: Vec<Buffer> = (0..calls).map(|_| Buffer::filled(mine, size, -1.0)).collect();
        comm.barrier().expect("a barrier");
        let stream = Stream::on(comm.device()).expect("a stream");
        stream
            .scope(|s| {
                for (a, b) in from.iter_mut().zip(&mut to) {
                    s.gather(comm, &*a.get_mut(), b.get_mut(), root)?;
                }
                Ok(())
            })
            .unwrap_or_else(|e| panic!("{e:?}"));
        for (i, b) in to.iter().enumerate().filter(|_| me == root) {
            for r in 0..ranks {
                let block = &b.get()[r * len..][..len];
                let wrong = block.iter().position(|v| *v != value(i, r));
                assert!(
                    wrong.is_none(),
                    "round {round}: call {i} of {calls}, {len} elements, root {root} ({of_root:?}, leaf {of_leaf:?}): block {r} has {} at {wrong:?}, not {}",
                    block[wrong.unwrap()],
                    value(i, r)
                );
            }
        }
    }
    order.report("fine", "");
}

/// Pairs of sums into one output, which in the first of them lies in private memory on one rank: that one goes another way,
/// and each rank ends it when it has put its output together, while the peers write parts of the second.
fn strays(order: &Order, comm: &Communicator) {
    const PAIRS: usize = 12;
    let (me, ranks) = (comm.rank(), comm.ranks());
    let len = LEN * ranks;
    for round in 0..order.number(2) as usize {
        let strays = round % ranks == me;
        let value = |i: usize, r: usize| (round % 50 * 1000 + i * 20 + r) as f32;
        let mut from: Vec<Buffer> = (0..2 * PAIRS).map(|i| Buffer::filled(Memory::Device, len, value(i, me))).collect();
        let mut to: Vec<Buffer> = (0..PAIRS).map(|_| Buffer::filled(Memory::Device, len, -1.0)).collect();
        let mut apart: Vec<Buffer> = (0..PAIRS).map(|_| Buffer::filled(Memory::Malloc, len, -1.0)).collect();
        let stream = Stream::on(comm.device()).expect("a stream");
        stream
            .scope(|s| {
                let from: Vec<Lent<'_, f32>> = from.iter_mut().map(|b| s.lend(b.get_mut())).collect();
                let to: Vec<Lent<'_, f32>> = to.iter_mut().map(|b| s.lend(b.get_mut())).collect();
                let apart: Vec<Lent<'_, f32>> = apart.iter_mut().map(|b| s.lend(b.get_mut())).collect();
                for i in 0..PAIRS {
                    let first = if strays { apart[i] } else { to[i] };
                    s.all_reduce(comm, from[2 * i], first, ReduceOp::Max)?;
                    s.all_reduce(comm, from[2 * i + 1], to[i], ReduceOp::Max)?;
                }
                Ok(())
            })
            .unwrap_or_else(|e| panic!("{e:?}"));
        for (i, to) in to.iter().enumerate() {
            let wrong = to.get().iter().position(|v| *v != value(2 * i + 1, ranks - 1));
            assert!(wrong.is_none(), "round {round}: sum {i} of {len} elements at {wrong:?}");
        }
    }
    order.report("fine", "");
}

/// Random calls over a few buffers of either kind of memory, different on each rank, against a model.
fn mixed(order: &Order, comm: &Communicator) {
    const BUFFERS: usize = 4;
    let (me, ranks) = (comm.rank(), comm.ranks());
    let mut random = Random(order.number(2));
    let mut own = Random(order.number(2) ^ ((me as u64 + 1) * 77));
    let other = comm.split(Some(0), me as i32).expect("a second one");
    for round in 0..order.number(3) as usize {
        let len = [300, 2100, 2100, 5000, 8000, 20_000][random.below(6) as usize];
        let all_device = random.below(2) == 0;
        let mut kind = || if !all_device && own.below(3) == 0 { Memory::Malloc } else { Memory::Device };
        let start = |r: usize, b: usize| (r * 100 + b * 7 + round) as f32;
        // Model: per rank, buffer, block one value; small ones have one block.
        let mut small_model: Vec<Vec<f32>> = (0..ranks).map(|r| (0..BUFFERS).map(|b| start(r, b)).collect()).collect();
        let mut large_model: Vec<Vec<Vec<f32>>> =
            (0..ranks).map(|r| (0..BUFFERS).map(|b| vec![start(r, b + 50); ranks]).collect()).collect();
        let mut small: Vec<Buffer> = (0..BUFFERS).map(|b| Buffer::filled(kind(), len, start(me, b))).collect();
        let mut large: Vec<Buffer> =
            (0..BUFFERS).map(|b| Buffer::filled(kind(), len * ranks, start(me, b + 50))).collect();
        let stream = Stream::on(comm.device()).expect("a stream");
        let mut log = String::new();
        stream
            .scope(|s| {
                let small: Vec<Lent<'_, f32>> = small.iter_mut().map(|b| s.lend(b.get_mut())).collect();
                let large: Vec<Lent<'_, f32>> = large.iter_mut().map(|b| s.lend(b.get_mut())).collect();
                let kinds: Vec<u64> = (0..1 + random.below(3)).map(|_| random.below(15)).collect();
                let root_of = random.below(ranks as u64 + 2) as usize;
                // Of 16 calls so many are of the other communicator.
                let others = [0, 1, 8][random.below(3) as usize];
                for i in 0..20 + random.below(60) as usize {
                    let k = kinds[random.below(kinds.len() as u64) as usize];
                    let root = if root_of < ranks { root_of } else { random.below(ranks as u64) as usize };
                    let (a, b) = (random.below(BUFFERS as u64) as usize, random.below(BUFFERS as u64) as usize);
                    let c = if b == a { (a + 1) % BUFFERS } else { b };
                    if own.below(30) == 0 {
                        pause(Duration::from_micros(own.below(400)));
                    }
                    let comm = if random.below(16) < others { other.as_ref().unwrap_or(comm) } else { comm };
                    let second = other.as_ref().is_some_and(|other| std::ptr::eq(other, comm));
                    log += &format!("{i}: {k} root {root} {a} {b}{}; ", if second { " second" } else { "" });
                    match k {
                        0 | 1 => {
                            s.broadcast(comm, small[a], root)?;
                            let v = small_model[root][a];
                            small_model.iter_mut().for_each(|m| m[a] = v);
                        }
                        2 | 3 => {
                            s.gather(comm, small[a], large[b], root)?;
                            (0..ranks).for_each(|r| large_model[root][b][r] = small_model[r][a]);
                        }
                        4 => {
                            s.scatter(comm, large[a], small[b], root)?;
                            (0..ranks).for_each(|r| small_model[r][b] = large_model[root][a][r]);
                        }
                        5 => {
                            s.all_gather(comm, small[a], large[b])?;
                            for m in &mut large_model {
                                (0..ranks).for_each(|r| m[b][r] = small_model[r][a]);
                            }
                        }
                        6 => {
                            s.all_reduce(comm, small[a], small[c], ReduceOp::Max)?;
                            let v = small_model.iter().map(|m| m[a]).fold(-1.0, f32::max);
                            small_model.iter_mut().for_each(|m| m[c] = v);
                        }
                        7 => {
                            s.all_to_all(comm, large[a], large[c])?;
                            let before = large_model.clone();
                            for (r, m) in large_model.iter_mut().enumerate() {
                                (0..ranks).for_each(|p| m[c][p] = before[p][a][r]);
                            }
                        }
                        11 => {
                            // Rank q sends to p the block that it has for it, but for some.
                            let sends = |q: usize, p: usize| !(q + 2 * p + i).is_multiple_of(4);
                            let count = |sends: bool| if sends { len } else { 0 };
                            let out: Vec<usize> = (0..ranks).map(|p| count(sends(me, p))).collect();
                            let into: Vec<usize> = (0..ranks).map(|p| count(sends(p, me))).collect();
                            let (given, taken) = (out.iter().sum(), into.iter().sum());
                            s.all_to_all_v(comm, large[a].slice(0..given), &out, large[c].slice(0..taken), &into)?;
                            let before = large_model.clone();
                            for (r, m) in large_model.iter_mut().enumerate() {
                                let from = (0..ranks).filter(|p| sends(*p, r));
                                for (to, p) in from.enumerate() {
                                    let at = (0..r).filter(|q| sends(p, *q)).count();
                                    m[c][to] = before[p][a][at];
                                }
                            }
                        }
                        12 => {
                            s.reduce_scatter(comm, large[a], small[b], ReduceOp::Max)?;
                            for (r, m) in small_model.iter_mut().enumerate() {
                                m[b] = large_model.iter().map(|m| m[a][r]).fold(-1.0, f32::max);
                            }
                        }
                        13 => {
                            s.reduce(comm, small[a], small[c], ReduceOp::Max, root)?;
                            small_model[root][c] = small_model.iter().map(|m| m[a]).fold(-1.0, f32::max);
                        }
                        14 => {
                            s.group(|| {
                                s.send(comm, small[a], (me + 1) % ranks)?;
                                s.recv(comm, small[c], (me + ranks - 1) % ranks)
                            })?;
                            let before = small_model.clone();
                            for (r, m) in small_model.iter_mut().enumerate() {
                                m[c] = before[(r + ranks - 1) % ranks][a];
                            }
                        }
                        8 => {
                            s.gather(comm, large[b].slice(me * len..(me + 1) * len), large[b], root)?;
                            (0..ranks).for_each(|r| large_model[root][b][r] = large_model[r][b][r]);
                        }
                        9 => {
                            s.broadcast(comm, large[b].slice(a % ranks * len..(a % ranks + 1) * len), root)?;
                            let v = large_model[root][b][a % ranks];
                            large_model.iter_mut().for_each(|m| m[b][a % ranks] = v);
                        }
                        _ => {
                            s.broadcast(comm, large[a], root)?;
                            let v = large_model[root][a].clone();
                            large_model.iter_mut().for_each(|m| m[a].clone_from(&v));
                        }
                    }
                }
                Ok(())
            })
            .unwrap_or_else(|e| panic!("round {round}: {e:?}: {log}"));
        for b in 0..BUFFERS {
            let wrong = small[b].get().iter().position(|v| *v != small_model[me][b]);
            assert!(wrong.is_none(), "round {round}, {len} elements: small {b} at {wrong:?}: {log}");
            for (r, value) in large_model[me][b].iter().enumerate().take(ranks) {
                let block = &large[b].get()[r * len..][..len];
                let wrong = block.iter().position(|v| v != value);
                assert!(wrong.is_none(), "round {round}, {len} elements: large {b} block {r} at {wrong:?}: {log}");
            }
        }
    }
    order.report("fine", "");
}

/// How often each of the random tests is made.
const ROUNDS: usize = 2;
/// How often a rank is killed in each kind of burst.
const KILLS: usize = 6;

#[test]
fn gathers_from_private_memory_to_a_root_that_runs_ahead() {
    let _alone = alone();
    let mut random = Random::seeded("lent gathers");
    for ranks in [2, 3] {
        let mut pool = Pool::new(ranks, 1, &[]);
        for _ in 0..ROUNDS {
            pool.start(&format!("lent gathers {}", random.next() >> 8));
            pool.expect("end", &(0..ranks).collect::<Vec<_>>(), Duration::from_secs(60));
        }
    }
}

#[test]
fn sums_behind_one_that_goes_another_way_keep_the_order() {
    let _alone = alone();
    // Where the kernel copies, and by the scratch.
    for env in [&[][..], &[("OXCCL_P2P", "shm")]] {
        let mut pool = Pool::new(5, 1, env);
        pool.start("lent strays 20");
        pool.expect("end", &(0..5).collect::<Vec<_>>(), Duration::from_secs(60));
    }
}

#[test]
fn mixed_bursts_give_what_they_should() {
    let _alone = alone();
    let mut random = Random::seeded("lent mixed");
    for (processes, per) in [(2, 1), (3, 1), (5, 1), (2, 2)] {
        let mut pool = Pool::new(processes, per, &[]);
        for _ in 0..ROUNDS {
            pool.start(&format!("lent mixed {} 30", random.next() >> 8));
            pool.expect("end", &(0..processes * per).collect::<Vec<_>>(), Duration::from_secs(60));
        }
    }
}

/// Bursts with a root.
const KINDS: [&str; 7] = ["broadcast", "scatter", "gather", "alternate", "both", "few", "parts"];
/// Bursts in which all take from all.
const AMONG_ALL: [&str; 10] =
    ["alltoall", "v", "private", "far", "reduce_scatter", "all_reduce", "reduce", "small", "experts", "turns"];

fn one_kill(pool: &mut Pool, spare: &mut Option<Worker>, random: &mut Random, kind: &str) -> u64 {
    let all: Vec<usize> = (0..4).collect();
    let victim = random.below(2) as usize * (1 + random.below(3) as usize);
    pool.start(&format!("lent until {kind}"));
    pool.expect("up", &all, GIVE_UP);
    let delay = random.below(60_000);
    let (killed, errors, gone) = pool.kill(victim, Duration::from_micros(delay), GIVE_UP);
    let mut worst = 0;
    for e in &errors {
        let took = Duration::from_nanos(e.ns.saturating_sub(killed));
        let context = || format!("{kind}: rank {victim} killed after {delay} us\n{}", pool.said());
        assert!(took < NOTICE, "rank {} noticed after {took:?}; {}", e.rank, context());
        assert!(e.text.starts_with(&format!("{:?} ", ResultCode::RemoteError)), "{}", context());
        assert!(e.text.contains(&format!("rank {victim} ")), "names not the dead; {}", context());
        worst = worst.max(took.as_nanos() as u64);
    }
    for e in &gone {
        let took = Duration::from_nanos(e.text.parse().expect("nanoseconds"));
        assert!(took < Duration::from_secs(1), "rank {} needed {took:?} to leave: {}", e.rank, pool.said());
    }
    let next = pool.spawn();
    pool.workers[victim] = spare.replace(next).expect("a spare worker");
    worst
}

#[test]
fn ranks_killed_in_bursts_are_named() {
    let _alone = alone();
    let mut random = Random::seeded("lent kill");
    let mut pool = Pool::new(4, 1, &[]);
    let mut spare = Some(pool.spawn());
    for kind in KINDS.into_iter().chain(AMONG_ALL).chain(["ring"]) {
        let worst = (0..KILLS).map(|_| one_kill(&mut pool, &mut spare, &mut random, kind)).max();
        println!("{kind}: worst {:.1} ms", worst.unwrap_or(0) as f64 / 1e6);
    }
}

#[test]
fn aborts_in_bursts_are_heard() {
    let _alone = alone();
    let mut random = Random::seeded("lent abort");
    let mut pool = Pool::new(4, 1, &[]);
    let all: Vec<usize> = (0..4).collect();
    for kind in KINDS.into_iter().chain(AMONG_ALL).chain(["ring"]) {
        for _ in 0..3 {
            let (who, delay) = (random.below(4) as usize, random.below(40_000));
            pool.start(&format!("lent abort {kind} {who} {delay}"));
            let aborted = pool.expect("leaves", &[who], GIVE_UP)[0].ns;
            for e in pool.expect("error", &all, GIVE_UP) {
                let took = Duration::from_nanos(e.ns.saturating_sub(aborted));
                assert!(took < NOTICE, "{kind}: rank {} heard of it after {took:?}\n{}", e.rank, pool.said());
                // Whose program did it may hear of it at its next call. Who maps its memory just then is refused it.
                let named = e.text.contains(&format!("rank {who} "));
                assert!(named || e.rank == who, "{kind}: another error\n{}", pool.said());
            }
            pool.expect("end", &all, GIVE_UP);
        }
    }
}

#[test]
fn calls_that_differ_in_bursts_fail_on_every_rank() {
    let _alone = alone();
    let mut random = Random::seeded("lent differ");
    let mut pool = Pool::new(4, 1, &[]);
    let all: Vec<usize> = (0..4).collect();
    for kind in AMONG_ALL {
        for call in [0, 1, 7, 17, BURST - 1] {
            let who = random.below(4) as usize;
            pool.start(&format!("lent differ {kind} {who} {call}"));
            for e in pool.expect("error", &all, GIVE_UP) {
                assert!(e.text.starts_with("InvalidUsage "), "{kind}, call {call}: another error\n{}", pool.said());
                assert!(e.text.contains("count "), "{kind}, call {call}: no counts\n{}", pool.said());
            }
            pool.expect("end", &all, GIVE_UP);
        }
    }
}

#[test]
fn who_goes_after_its_part_of_a_burst_disturbs_nobody() {
    let _alone = alone();
    for kind in KINDS.into_iter().chain(["alltoall", "v", "private", "far", "small"]) {
        for how in ["destroy", "exit"] {
            for who in [0, 2] {
                let mut pool = Pool::new(4, 1, &[]);
                pool.start(&format!("lent depart {kind} {who} {how}"));
                pool.expect("gone", &[0, 1, 2, 3], GIVE_UP);
                assert!(!pool.said().contains(" error "), "{kind} {how} of {who}\n{}", pool.said());
            }
        }
    }
}

/// A leaf goes when it has done its part, another one, or the root to which the others lend, comes later than a departure is taken for a
/// cause otherwise.
#[test]
fn who_goes_does_not_make_a_late_one_an_error() {
    let _alone = alone();
    goes_and_comes_late(&["broadcast", "scatter", "gather", "some", "few", "parts"]);
}

/// The same where the late one, as soon as it has come, loses its core to those that it wakes and to others: its part of the call is
/// seen later than its call.
#[test]
fn who_goes_does_not_make_an_error_of_a_late_one_that_loses_its_core() {
    let _alone = alone();
    let over = AtomicBool::new(false);
    std::thread::scope(|s| {
        let ranks = s.spawn(|| {
            let _over = Over(&over);
            on_one_core();
            // Here, so that they have that core, too.
            (0..2).for_each(|_| drop(s.spawn(|| spins_until(&over))));
            goes_and_comes_late(&["broadcast"]);
        });
        ranks.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

/// Tells others that it is over, also in a panic.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn spins_until(over: &AtomicBool) {
    while !over.load(Ordering::Relaxed) {
        std::hint::spin_loop();
    }
}

/// This thread, and what it starts from now on, has the first of its cores only.
fn on_one_core() {
    let all = sched_getaffinity(None).expect("an affinity");
    let mut one = CpuSet::new();
    one.set((0..CpuSet::MAX_CPU).find(|cpu| all.is_set(*cpu)).expect("a core"));
    sched_setaffinity(None, &one).expect("a core of its own");
}

fn goes_and_comes_late(kinds: &[&str]) {
    for kind in kinds {
        for how in ["destroy", "exit"] {
            let mut pool = Pool::new(4, 1, &[]);
            pool.start(&format!("lent depart {kind} 2 {how} 2500"));
            pool.expect("gone", &[0, 1, 2, 3], GIVE_UP);
            assert!(!pool.said().contains(" error "), "{kind} {how}\n{}", pool.said());
        }
    }
}
