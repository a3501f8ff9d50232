//! Ranks that are threads of this process.

use std::time::{Duration, Instant};

use oxccl::{Communicator, Config, ResultCode, UniqueId};

use crate::calls::{self, KINDS, Memory};
use crate::harness::{Random, alone};

/// Runs `body` as each of `ranks` ranks; the results by rank.
fn each<T: Send>(ranks: usize, body: impl Fn(Communicator) -> T + Sync) -> Vec<T> {
    let comms = Communicator::init_all(ranks).expect("init");
    let body = &body;
    std::thread::scope(|s| {
        let threads: Vec<_> = comms.into_iter().map(|c| s.spawn(move || body(c))).collect();
        threads.into_iter().map(|t| t.join().expect("a rank panicked")).collect()
    })
}

/// All kinds of calls on a communicator, checked.
fn works(comm: &Communicator) {
    for kind in 0..KINDS {
        calls::one(comm, kind, Memory::Malloc, 100, kind as u64).expect("a call that matches");
        calls::one(comm, kind, Memory::Device, 20_000, kind as u64).expect("a call that matches");
    }
}

/// The parent's ranks in the order of the child.
fn roll_call(child: &Communicator, parent_rank: usize) -> Vec<usize> {
    let mut all = vec![0_u64; child.ranks()];
    child.all_gather(&[parent_rank as u64], &mut all).expect("all_gather");
    all.into_iter().map(|r| r as usize).collect()
}

#[test]
fn a_split_orders_by_color_key_and_rank() {
    let _alone = alone();
    let parts = [(7, 1), (-3, 0), (7, 0), (7, 0), (-3, -5)];
    let members = each(5, |comm| {
        let (color, key) = parts[comm.rank()];
        let child = comm.split(Some(color), key).expect("split").expect("a colour was given");
        works(&child);
        works(&comm);
        roll_call(&child, comm.rank())
    });
    for (rank, list) in members.iter().enumerate() {
        assert_eq!(*list, if parts[rank].0 == 7 { vec![2, 3, 0] } else { vec![4, 1] }, "rank {rank}");
    }
}

#[test]
fn who_has_no_color_gets_none() {
    let _alone = alone();
    each(3, |comm| {
        let color = (comm.rank() != 1).then_some(0);
        let child = comm.split(color, 0).expect("split");
        assert_eq!(child.as_ref().map(Communicator::ranks), color.map(|_| 2));
        child.iter().for_each(works);
        assert!(comm.split(None, 0).expect("a split without any colour").is_none());
    });
}

#[test]
fn splits_nest_down_to_one_rank() {
    let _alone = alone();
    each(4, |comm| {
        let half = comm.split(Some(comm.rank() as i32 / 2), 0).expect("split").expect("half");
        let one = half.split(Some(half.rank() as i32), 0).expect("split").expect("one");
        let again = one.split(Some(0), 9).expect("split").expect("of one rank");
        assert_eq!((half.ranks(), one.ranks(), again.ranks()), (2, 1, 1));
        drop((comm, half));
        works(&one);
        works(&again);
    });
}

#[test]
fn an_abort_ends_a_split_that_waits() {
    let _alone = alone();
    each(3, |comm| {
        if comm.rank() == 1 {
            // Never splits, and leaves in good order.
            crate::harness::pause(Duration::from_millis(100));
            return;
        }
        let handle = comm.abort_handle();
        let begin = Instant::now();
        std::thread::scope(|s| {
            if comm.rank() == 0 {
                s.spawn(move || {
                    crate::harness::pause(Duration::from_millis(30));
                    handle.abort().expect("abort");
                });
            }
            let error = comm.split(Some(0), 0).expect_err("not all come");
            assert_eq!(error.code, ResultCode::RemoteError, "{error:?}");
        });
        assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    });
}

#[test]
fn ranks_meet_with_several_ids() {
    let _alone = alone();
    each(2, |comm| comm.barrier().expect("barrier"));
    let before = threads();
    let ids: Vec<UniqueId> = (0..3).map(|_| UniqueId::create().expect("an id")).collect();
    std::thread::scope(|s| {
        for rank in 0..4 {
            let ids = &ids;
            s.spawn(move || works(&Communicator::init_scalable(4, ids, rank).expect("init")));
        }
    });
    none_more_than(before);
    assert_eq!(Communicator::init_scalable(2, &ids, 0).expect_err("too many").code, ResultCode::InvalidArgument);
}

/// Waits until there are no more threads than before.
fn none_more_than(before: usize) {
    let end = Instant::now() + Duration::from_secs(5);
    while threads() > before {
        assert!(Instant::now() < end, "{} threads, {before} before", threads());
        crate::harness::pause(Duration::from_millis(10));
    }
}

/// Threads of this process.
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").expect("procfs").count()
}

#[test]
fn ids_that_nobody_used_leave_no_thread() {
    let _alone = alone();
    each(2, |comm| comm.barrier().expect("barrier"));
    let before = threads();
    each(2, |comm| {
        if comm.rank() == 0 {
            comm.grow_id().expect("an id");
        }
        comm.barrier().expect("barrier");
    });
    none_more_than(before);
}

/// Random colours and keys against the sorted lists.
#[test]
fn random_splits_agree_with_a_model() {
    let _alone = alone();
    let mut random = Random::seeded("random splits");
    for _ in 0..6 {
        let ranks = 1 + random.below(6) as usize;
        let parts: Vec<(i32, i32)> =
            (0..ranks).map(|_| (random.below(3) as i32 - 1, random.below(4) as i32 - 2)).collect();
        let got = each(ranks, |comm| {
            let (color, key) = parts[comm.rank()];
            let child = comm.split((color >= 0).then_some(color), key).expect("split");
            child.map(|c| roll_call(&c, comm.rank()))
        });
        for (rank, list) in got.into_iter().enumerate() {
            let color = parts[rank].0;
            let mut want: Vec<_> = (0..ranks).filter(|r| parts[*r].0 == color).map(|r| (parts[r].1, r)).collect();
            want.sort_unstable();
            let want: Vec<usize> = want.into_iter().map(|(_, r)| r).collect();
            assert_eq!(list, (color >= 0).then_some(want), "{parts:?}, rank {rank}");
        }
    }
}

#[test]
fn eight_ranks_shrink_fast() {
    let _alone = alone();
    let times = each(8, |comm| {
        if comm.rank() == 3 {
            comm.barrier().expect("barrier");
            return Duration::ZERO;
        }
        let mut best = Duration::MAX;
        for _ in 0..5 {
            let begin = Instant::now();
            let child = comm.shrink(&[3]).expect("shrink");
            best = best.min(begin.elapsed());
            assert_eq!(child.ranks(), 7);
            assert_eq!(roll_call(&child, comm.rank()), [0, 1, 2, 4, 5, 6, 7]);
        }
        // The parent is as it was.
        comm.barrier().expect("barrier");
        best
    });
    let worst = times.iter().max().expect("ranks");
    println!("shrinking 8 ranks to 7: {:.2} ms", worst.as_secs_f64() * 1e3);
    assert!(*worst < Duration::from_millis(500), "{worst:?}");
}

#[test]
fn an_excluded_rank_must_not_call() {
    let _alone = alone();
    each(2, |comm| {
        let error = comm.shrink(&[comm.rank()]).expect_err("it excludes itself");
        assert_eq!(error.code, ResultCode::InvalidArgument);
        comm.barrier().expect("barrier");
    });
}

#[test]
fn revoked_operations_end_and_the_communicator_can_be_split() {
    let _alone = alone();
    each(3, |comm| {
        let handle = comm.revoke_handle();
        if comm.rank() == 2 {
            // Never comes to the call of the others.
            handle.revoke().expect("revoke");
        } else {
            std::thread::scope(|s| {
                let revoker = s.spawn(move || {
                    crate::harness::pause(Duration::from_millis(30));
                    handle.revoke()
                });
                let error = comm.barrier().expect_err("not all came");
                assert!(error.text.contains("revoked"), "{error:?}");
                revoker.join().expect("no panic").expect("revoke");
            });
        }
        let error = comm.barrier().expect_err("revoked");
        assert_eq!((error.code, error.text.contains("communicator was revoked")), (ResultCode::InvalidUsage, true));
        assert_eq!(comm.revoke().expect_err("twice").code, ResultCode::InvalidArgument);
        comm.async_error().expect("a revocation is no failure");
        let child = comm.split(Some(0), -(comm.rank() as i32)).expect("split").expect("a colour was given");
        assert_eq!(roll_call(&child, comm.rank()), [2, 1, 0]);
        if comm.rank() > 0 {
            works(&comm.shrink(&[0]).expect("shrink"));
        }
        works(&child);
    });
}

#[test]
fn threads_join_a_communicator_that_grows() {
    let _alone = alone();
    let (sender, receiver) = std::sync::mpsc::channel::<UniqueId>();
    let sender = std::sync::Mutex::new(sender);
    let joiner = std::thread::spawn(move || {
        let id = receiver.recv().expect("an id");
        let late = std::thread::spawn(move || works(&Communicator::init(4, id, 3).expect("join")));
        works(&Communicator::init(4, id, 2).expect("join"));
        late.join().expect("no panic");
    });
    each(2, |comm| {
        assert_eq!(comm.grow(2, None).expect_err("not more").code, ResultCode::InvalidArgument);
        let id = (comm.rank() == 1).then(|| comm.grow_id().expect("an id"));
        if let Some(id) = id {
            assert_eq!(comm.grow_id().expect_err("a second").code, ResultCode::InvalidUsage);
            let other = UniqueId::create().expect("an id");
            assert_eq!(comm.grow(4, Some(other)).expect_err("another id").code, ResultCode::InvalidArgument);
            sender.lock().expect("not poisoned").send(id).expect("a listener");
        }
        // What is refused on all ranks does not use up the id.
        let nowhere = Config { network: Some("nowhere".into()), ..Config::default() };
        assert_eq!(comm.grow_with(4, id, &nowhere).expect_err("no network").code, ResultCode::InvalidUsage);
        let grown = comm.grow(4, id).expect("grow");
        assert_eq!((grown.rank(), grown.ranks()), (comm.rank(), 4));
        works(&grown);
        works(&comm);
    });
    joiner.join().expect("no panic");
}

/// It waits at the id's root, and is told what became of the communicator.
#[test]
fn who_joins_a_communicator_that_ends_before_it_grows_is_told() {
    let _alone = alone();
    let (sender, receiver) = std::sync::mpsc::channel::<UniqueId>();
    let sender = std::sync::Mutex::new(sender);
    let joiner = std::thread::spawn(move || {
        let id = receiver.recv().expect("an id");
        let begin = Instant::now();
        let error = Communicator::init(3, id, 2).map(drop).expect_err("it does not grow");
        (error, begin.elapsed())
    });
    each(2, |comm| {
        if comm.rank() == 0 {
            sender.lock().expect("not poisoned").send(comm.grow_id().expect("an id")).expect("a listener");
            // The new rank is at the root.
            crate::harness::pause(Duration::from_millis(300));
        }
        comm.barrier().expect("barrier");
    });
    let (error, took) = joiner.join().expect("no panic");
    assert_eq!(error.code, ResultCode::RemoteError, "{error:?}");
    assert!(error.text.contains("was destroyed or aborted before it grew"), "{error:?}");
    assert!(took < Duration::from_secs(10), "{took:?}");
}

/// Bytes of shared memory that the communicators of this process really hold.
fn held() -> u64 {
    let files = std::fs::read_dir("/proc/self/fd").expect("procfs").filter_map(Result::ok);
    let hubs =
        files.filter(|f| std::fs::read_link(f.path()).is_ok_and(|p| p.to_string_lossy().contains("memfd:oxccl")));
    hubs.filter_map(|f| std::fs::metadata(f.path()).ok())
        .map(|m| std::os::unix::fs::MetadataExt::blocks(&m) * 512)
        .sum()
}

#[test]
fn a_suspension_gives_memory_back() {
    let _alone = alone();
    let totals = each(2, |comm| {
        for kind in 0..KINDS {
            // Small: what is announced with the call lies in the hub.
            for n in 0..8 {
                calls::one(&comm, kind, Memory::Malloc, 500, n).expect("a call");
            }
        }
        let before = comm.memory_use().expect("numbers");
        assert!(!before.suspended && before.suspendable > 0);
        comm.barrier().expect("barrier");
        let blocks = held();
        comm.suspend().expect("suspend");
        let during = comm.memory_use().expect("numbers");
        assert_eq!((during.suspended, during.suspendable), (true, before.suspendable));
        assert_eq!(comm.barrier().expect_err("suspended").code, ResultCode::InvalidUsage);
        assert_eq!(comm.suspend().expect_err("twice").code, ResultCode::InvalidUsage);
        comm.resume().expect("resume");
        let after = held();
        assert!(after < blocks, "{blocks} bytes before, {after} after");
        assert_eq!(comm.resume().expect_err("twice").code, ResultCode::InvalidUsage);
        // All have looked.
        comm.barrier().expect("barrier");
        works(&comm);
        before.suspendable + before.persistent
    });
    assert_eq!(totals.len(), 2);
}
