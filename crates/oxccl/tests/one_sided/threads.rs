//! Ranks that are threads of this process.

use std::time::{Duration, Instant};

use oxccl::{Communicator, Config, DeviceBuffer, Expected, ResultCode, Signal, Stream, UniqueId, group};

use crate::harness::{Random, alone, pause};
use crate::model;

fn each<T: Send>(ranks: usize, config: &Config, body: impl Fn(Communicator) -> T + Sync) -> Vec<T> {
    let id = UniqueId::create().expect("an id");
    let body = &body;
    std::thread::scope(|s| {
        let join = |rank| Communicator::init_with(ranks, id, rank, config).expect("init");
        let threads: Vec<_> = (0..ranks).map(|rank| s.spawn(move || body(join(rank)))).collect();
        threads.into_iter().map(|t| t.join().expect("a rank panicked")).collect()
    })
}

#[test]
fn random_puts_and_signals_agree_with_the_model() {
    let _alone = alone();
    let mut random = Random::seeded("random_puts_and_signals_agree_with_the_model");
    for ranks in 1..=4 {
        let seed = random.next();
        each(ranks, &Config::default(), |comm| model::run(&comm, seed, 12, 1));
    }
    let contexts = Config { rma_contexts: Some(4), ..Config::default() };
    let seed = random.next();
    each(3, &contexts, |comm| model::run(&comm, seed, 12, 4));
}

#[test]
fn windows_of_large_buffers_are_their_memory() {
    let _alone = alone();
    each(2, &Config::default(), |comm| {
        let len = 3 << 20;
        let mine = DeviceBuffer::from_slice(&vec![comm.rank() as u64; len]).expect("24 MB");
        let window = comm.register(mine).expect("a window");
        let peer = 1 - comm.rank();
        let values: Vec<u64> = (0..len as u64).map(|i| i * 3 + comm.rank() as u64).collect();
        comm.put_signal(&window, peer, 0, &values, Signal::number(3)).expect("put");
        comm.wait_signal(peer, Signal::number(3), 1).expect("wait");
        let got = window.to_vec();
        assert!(got.iter().enumerate().all(|(i, v)| *v == i as u64 * 3 + peer as u64));
        window.write(5, &[1, 2, 3]).expect("in range");
        let back = window.close(&comm).expect("close");
        assert_eq!(back[4..9], [12 + peer as u64, 1, 2, 3, 24 + peer as u64]);
    });
}

#[test]
fn what_is_wrong_is_refused() {
    let _alone = alone();
    each(2, &Config::default(), |comm| {
        let window = comm.window::<i32>(100).expect("a window");
        let peer = 1 - comm.rank();
        let code = |r: oxccl::Result<()>| r.expect_err("refused").code;
        let none = Signal::default();
        assert_eq!(code(comm.put_signal(&window, 2, 0, &[1], none)), ResultCode::InvalidArgument);
        assert_eq!(code(comm.put_signal(&window, peer, 99, &[1, 2], none)), ResultCode::InvalidArgument);
        assert_eq!(code(comm.put(&window, peer, usize::MAX, &[1])), ResultCode::InvalidArgument);
        assert_eq!(code(comm.signal(peer, Signal::number(8))), ResultCode::InvalidArgument);
        assert_eq!(code(comm.signal(peer, Signal { context: 1, index: 0 })), ResultCode::InvalidArgument);
        assert_eq!(code(comm.wait_signal(5, none, 1)), ResultCode::InvalidArgument);
        assert_eq!(code(window.write(99, &[1, 2])), ResultCode::InvalidArgument);
        assert!(comm.window::<i32>(0).is_err());
        // A window of another communicator.
        let child = comm.split(Some(0), 0).expect("split").expect("a colour");
        assert_eq!(code(child.put(&window, peer, 0, &[1])), ResultCode::InvalidArgument);
        let other = child.window::<i32>(10).expect("a window of the child");
        assert_eq!(code(comm.put(&other, peer, 0, &[1])), ResultCode::InvalidArgument);
        let ended = other.close(&comm).expect_err("the window of another communicator");
        assert_eq!(ended.code, ResultCode::InvalidArgument);
        // All of it left the communicator usable.
        for counts in [&[0][..], &[1, 0], &[u64::MAX, 1]] {
            let expected: Vec<_> = counts.iter().map(|n| Expected { from: peer, signal: none, count: *n }).collect();
            let error = comm.wait_signals(&expected).expect_err("nobody signals so often");
            assert!(error.code == ResultCode::InvalidArgument && error.text.contains("count"), "{error:?}");
        }
        comm.put_signal(&window, peer, 7, &[9], none).expect("put");
        comm.wait_signal(peer, none, 1).expect("wait");
        assert_eq!(window.to_vec()[7], 9);
        child.barrier().expect("barrier");
    });
}

#[test]
fn counts_are_used_up() {
    let _alone = alone();
    each(2, &Config::default(), |comm| {
        let (a, b) = (Signal::number(1), Signal::number(2));
        let peer = 1 - comm.rank();
        for _ in 0..5 {
            comm.signal(peer, a).expect("signal");
        }
        comm.signal(peer, b).expect("signal");
        let of = |signal, count| Expected { from: peer, signal, count };
        comm.wait_signals(&[of(a, 1), of(b, 1), of(a, 2)]).expect("wait");
        comm.wait_signal(peer, a, 2).expect("the other two");
        // One more than there were: it waits for the next one.
        comm.barrier().expect("barrier");
        if comm.rank() == 0 {
            comm.wait_signal(peer, a, 1).expect("the late one");
        } else {
            pause(Duration::from_millis(30));
            comm.signal(peer, a).expect("signal");
        }
        comm.barrier().expect("barrier");
    });
}

#[test]
fn an_abort_and_a_revocation_end_a_wait() {
    let _alone = alone();
    for revoke in [false, true] {
        let errors = each(2, &Config::default(), |comm| {
            let _window = comm.window::<u8>(5000).expect("a window");
            let begin = Instant::now();
            let (abort, end) = (comm.abort_handle(), comm.revoke_handle());
            std::thread::scope(|s| {
                if comm.rank() == 0 {
                    s.spawn(move || {
                        pause(Duration::from_millis(20));
                        if revoke { end.revoke() } else { abort.abort() }.expect("ends");
                    });
                }
                let error = comm.wait_signal(1 - comm.rank(), Signal::default(), 1).expect_err("nobody signals");
                assert!(begin.elapsed() < Duration::from_secs(3), "{:?}", begin.elapsed());
                error
            })
        });
        // Rank 0 may have destroyed its communicator, after the revocation, when the other one looks.
        let words: &[&str] = if revoke { &["revoked", "destroyed"] } else { &["aborted"] };
        assert!(errors.iter().all(|e| words.iter().any(|w| e.text.contains(w))), "{errors:?}");
    }
}

#[test]
fn scopes_and_groups_take_one_sided_calls() {
    let _alone = alone();
    // One thread drives both ranks: the waits come before the puts that they wait for.
    let comms = Communicator::init_all(2).expect("init");
    let windows = std::thread::scope(|s| {
        let threads: Vec<_> =
            comms.into_iter().map(|c| s.spawn(move || (c.window::<i64>(64).expect("a window"), c))).collect();
        threads.into_iter().map(|t| t.join().expect("a rank panicked")).collect::<Vec<_>>()
    });
    let values = [[1_i64; 64], [2; 64]];
    let expected = |from| [Expected { from, signal: Signal::number(1), count: 2 }];
    group(|g| {
        for (window, comm) in &windows {
            let (me, peer) = (comm.rank(), 1 - comm.rank());
            g.wait_signals(comm, &expected(peer))?;
            g.put_signal(comm, window, peer, 0, &values[me], Signal::number(1))?;
            g.signal(comm, peer, Signal::number(1))?;
        }
        Ok(())
    })
    .expect("group");
    for (window, comm) in &windows {
        assert_eq!(window.to_vec(), [2 - comm.rank() as i64; 64]);
    }
    let (window, comm) = &windows[0];
    let stream = Stream::on(comm.device()).expect("a stream");
    let mut sum = [5_i64; 8];
    stream
        .scope(|s| {
            let sum = s.lend(&mut sum);
            s.send(comm, &values[0][..0], 0)?;
            s.put_signal(comm, window, 0, 3, sum, Signal::default())?;
            s.wait_signals(comm, &[Expected { from: 0, signal: Signal::default(), count: 1 }])
        })
        .expect_err("a send to oneself without a receive");
    stream
        .scope(|s| {
            s.put_signal(comm, window, 0, 3, &sum, Signal::default())?;
            s.wait_signals(comm, &[Expected { from: 0, signal: Signal::default(), count: 1 }])
        })
        .expect("scope");
    assert_eq!(window.to_vec()[2..12], [2, 5, 5, 5, 5, 5, 5, 5, 5, 2]);
}

#[test]
fn a_window_outlives_what_is_put_late() {
    let _alone = alone();
    each(2, &Config::default(), |comm| {
        let window = comm.window::<u32>(1000).expect("a window");
        comm.barrier().expect("barrier");
        if comm.rank() == 0 {
            drop(window);
            comm.barrier().expect("barrier");
            // Memory that was just given back must not be what the peer writes.
            let fresh = DeviceBuffer::<u32>::zeroed(1000).expect("4 kB");
            comm.wait_signal(1, Signal::default(), 1).expect("wait");
            assert!(fresh.iter().all(|v| *v == 0));
        } else {
            comm.barrier().expect("barrier");
            comm.put_signal(&window, 0, 0, &[7; 1000], Signal::default()).expect("nobody's memory");
        }
        comm.barrier().expect("barrier");
    });
}

#[test]
fn windows_and_communicators_come_and_go() {
    let _alone = alone();
    let mappings = || {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("procfs");
        maps.lines().filter(|l| l.contains("memfd:")).count()
    };
    let round = || {
        each(3, &Config::default(), |comm| {
            let a = comm.window::<f32>(10).expect("a window");
            let _left_to_the_end = comm.window::<f32>(10).expect("a window");
            comm.put_signal(&a, (comm.rank() + 1) % 3, 0, &[1.0], Signal::default()).expect("put");
            comm.wait_signal((comm.rank() + 2) % 3, Signal::default(), 1).expect("wait");
            comm.barrier().expect("barrier");
        });
    };
    (0..3).for_each(|_| round());
    let before = mappings();
    (0..5).for_each(|_| round());
    assert!(mappings() <= before, "{} mappings, {before} before", mappings());
}
