//! Groups, streams and orders: what a table of single calls does not show. Runs in this process with the default
//! settings; ranks are threads, or all of them are driven by one thread.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use oxccl_runtime::device::{self, Event, Stream};
use oxccl_runtime::{CommConfig, Communicator, Operator, Request, UniqueId, VCounts, group};
use oxccl_types::{Collective, DataType, ReduceOp, ResultCode};

use crate::case::Buffer;

pub(crate) type Comm = Arc<Communicator>;

pub(crate) fn join(id: &UniqueId, ranks: usize, rank: usize) -> Comm {
    Communicator::init_rank(
        ranks as i32,
        id.clone(),
        rank as i32,
        rank % device::count(),
        CommConfig::default(),
        "test",
    )
    .unwrap()
}

/// Runs `f` on `ranks` threads with `comms` communicators each.
pub(crate) fn team(ranks: usize, comms: usize, f: impl Fn(usize, &[Comm]) + Sync) {
    let ids: Vec<UniqueId> = (0..comms).map(|_| UniqueId::create().unwrap()).collect();
    std::thread::scope(|scope| {
        for rank in 0..ranks {
            let (ids, f) = (&ids, &f);
            scope.spawn(move || {
                let comms: Vec<Comm> = ids.iter().map(|id| join(id, ranks, rank)).collect();
                let end = AbortOnPanic(&comms);
                f(rank, &comms);
                std::mem::forget(end);
                for c in &comms {
                    // `f` may have aborted it.
                    c.destroy().unwrap_or_else(|e| assert!(e.text.contains("already been destroyed"), "{e}"));
                }
            });
        }
    });
}

struct AbortOnPanic<'a>(&'a [Comm]);

impl Drop for AbortOnPanic<'_> {
    fn drop(&mut self) {
        for c in self.0 {
            let _ = c.abort();
        }
    }
}

pub(crate) fn request(
    collective: Collective,
    send: *const u8,
    recv: *mut u8,
    count: usize,
    stream: &Stream,
) -> Request {
    Request {
        collective,
        send,
        recv,
        count,
        dtype: DataType::Int32,
        op: Operator::Builtin(ReduceOp::Sum),
        root: 0,
        bias: std::ptr::null(),
        v: None,
        stream: stream.clone(),
    }
}

/// Watched memory of i32.
pub(crate) struct Ints(Buffer);

impl Ints {
    pub(crate) fn new(count: usize, value: i32) -> Ints {
        let mut b = Buffer::new(count * 4, 0, count.is_multiple_of(2));
        b.fill(0, count * 4, &value.to_le_bytes());
        Ints(b)
    }

    pub(crate) fn ptr(&self) -> *mut u8 {
        self.0.ptr()
    }

    pub(crate) fn elements(&self) -> impl Iterator<Item = i32> {
        self.0.content().chunks_exact(4).map(|x| i32::from_le_bytes(x.try_into().unwrap()))
    }

    pub(crate) fn set_each(&mut self, values: impl Iterator<Item = i32>) {
        let at = self.ptr().cast::<i32>();
        // SAFETY: the elements of this buffer, which nobody else has now.
        values.take(self.0.content().len() / 4).enumerate().for_each(|(i, v)| unsafe { at.add(i).write_unaligned(v) });
    }

    /// Makes all elements of `range` `value`.
    pub(crate) fn set(&mut self, range: std::ops::Range<usize>, value: i32) {
        self.0.fill(range.start * 4, range.len() * 4, &value.to_le_bytes());
    }

    #[track_caller]
    pub(crate) fn expect(&self, value: i32) {
        self.expect_at(0..self.0.content().len() / 4, value);
    }

    /// Whether all elements of `range` are `value`.
    pub(crate) fn is_at(&self, range: std::ops::Range<usize>, value: i32) -> bool {
        self.0.content()[range.start * 4..range.end * 4].chunks(4).all(|x| x == value.to_le_bytes())
    }

    #[track_caller]
    pub(crate) fn expect_at(&self, range: std::ops::Range<usize>, value: i32) {
        self.0.check_guards(&|| "a scenario".into());
        for (i, x) in self.0.content().chunks(4).enumerate().skip(range.start).take(range.len()) {
            assert_eq!(i32::from_le_bytes(x.try_into().unwrap()), value, "element {i}");
        }
    }
}

pub(crate) fn all_reduce(comm: &Comm, data: &Ints, count: usize, stream: &Stream) {
    comm.submit(request(Collective::AllReduce, data.ptr().cast_const(), data.ptr(), count, stream)).unwrap();
}

#[test]
fn communicators_in_opposite_orders_do_not_block_each_other() {
    const COMMS: usize = 8;
    team(3, COMMS, |rank, comms| {
        let streams: Vec<Stream> = (0..COMMS).map(|_| Stream::new().unwrap()).collect();
        let mut order: Vec<usize> = (0..COMMS).collect();
        order.rotate_left(rank * 3);
        if rank == 1 {
            order.reverse();
        }
        for (round, count) in [1usize, 5000, 200_000, 17].into_iter().enumerate() {
            let data: Vec<Ints> = (0..COMMS).map(|c| Ints::new(count, (rank + c) as i32)).collect();
            // Each on a stream of its own, then all of them as a group on one stream.
            let grouped = round % 2 == 1;
            if grouped {
                group::start();
            }
            for c in &order {
                all_reduce(&comms[*c], &data[*c], count, &streams[if grouped { 0 } else { *c }]);
            }
            if grouped {
                group::end().unwrap();
            }
            for c in order.iter().rev() {
                streams[*c].synchronize().unwrap();
            }
            for (c, d) in data.iter().enumerate() {
                d.expect((3 * c + 3) as i32);
            }
        }
    });
}

/// One thread enqueues for all ranks; `stream` says which stream a rank uses.
fn drive_all(comms: &[Comm], stream: impl Fn(usize) -> Stream) {
    let n = comms.len();
    for count in [3usize, 40_001, 300_000] {
        let sums: Vec<Ints> = (0..n).map(|r| Ints::new(count, r as i32)).collect();
        let blocks: Vec<Ints> = (0..n).map(|_| Ints::new(count * n, -1)).collect();
        let messages: Vec<(Ints, Ints)> = (0..n).map(|r| (Ints::new(count, r as i32), Ints::new(count, -1))).collect();
        group::start();
        for (r, comm) in comms.iter().enumerate() {
            let s = stream(r);
            group::start();
            all_reduce(comm, &sums[r], count, &s);
            comm.submit(
                request(Collective::Send, messages[r].0.ptr(), std::ptr::null_mut(), count, &s).to((r + 1) % n),
            )
            .unwrap();
            comm.submit(
                request(Collective::Recv, std::ptr::null(), messages[r].1.ptr(), count, &s).to((r + n - 1) % n),
            )
            .unwrap();
            // Reads what the all-reduce before it has made.
            comm.submit(request(Collective::AllGather, sums[r].ptr(), blocks[r].ptr(), count, &s)).unwrap();
            group::end().unwrap();
        }
        group::end().unwrap();
        for r in 0..n {
            stream(r).synchronize().unwrap();
        }
        let sum = (n * (n - 1) / 2) as i32;
        for r in 0..n {
            sums[r].expect(sum);
            blocks[r].expect(sum);
            messages[r].1.expect(((r + n - 1) % n) as i32);
        }
    }
}

pub(crate) trait To {
    fn to(self, peer: usize) -> Self;
}

impl To for Request {
    fn to(mut self, peer: usize) -> Request {
        self.root = peer;
        self
    }
}

#[test]
fn one_thread_drives_many_ranks() {
    for n in [1, 2, 4, 6] {
        let devices: Vec<usize> = (0..n).map(|i| i % device::count()).collect();
        let comms = Communicator::init_all(&devices).unwrap();
        let own: Vec<Stream> = (0..n).map(|_| Stream::new().unwrap()).collect();
        drive_all(&comms, |r| own[r].clone());
        // All ranks on the default stream of one device.
        let one = Stream::default_stream();
        drive_all(&comms, |_| one.clone());
        for c in comms {
            c.destroy().unwrap();
        }
    }
}

#[test]
fn errors_discard_their_group_and_nothing_else() {
    team(2, 2, |rank, comms| {
        let s = Stream::new().unwrap();
        let data = Ints::new(100, 7);
        let other = Ints::new(100, 7);
        for depth in 1..=3 {
            (0..depth).for_each(|_| group::start());
            all_reduce(&comms[0], &data, 100, &s);
            let wrong = request(Collective::Broadcast, data.ptr(), data.ptr(), 100, &s).to(2);
            assert_eq!(comms[1].submit(wrong).unwrap_err().code, ResultCode::InvalidArgument);
            all_reduce(&comms[1], &other, 100, &s);
            (1..depth).for_each(|_| group::end().unwrap());
            assert_eq!(group::end().unwrap_err().code, ResultCode::InvalidArgument);
            assert_eq!(group::depth(), 0);
            s.synchronize().unwrap();
            data.expect(7);
            other.expect(7);
        }
        assert!(group::end().is_err(), "no group is open");
        // A send to oneself without its receive discards the exchange too.
        group::start();
        comms[0].submit(request(Collective::Send, data.ptr(), std::ptr::null_mut(), 1, &s).to(rank)).unwrap();
        comms[0].submit(request(Collective::Send, data.ptr(), std::ptr::null_mut(), 1, &s).to(1 - rank)).unwrap();
        assert_eq!(group::end().unwrap_err().code, ResultCode::InvalidUsage);
        all_reduce(&comms[0], &data, 100, &s);
        all_reduce(&comms[1], &data, 100, &s);
        s.synchronize().unwrap();
        data.expect(28);
    });
}

#[test]
fn a_failed_exchange_discards_the_collectives_of_its_group() {
    team(2, 1, |rank, comms| {
        let s = Stream::new().unwrap();
        let data = Ints::new(10, 1);
        group::start();
        all_reduce(&comms[0], &data, 10, &s);
        comms[0].submit(request(Collective::Send, data.ptr(), std::ptr::null_mut(), 1, &s).to(rank)).unwrap();
        assert_eq!(group::end().unwrap_err().code, ResultCode::InvalidUsage);
        s.synchronize().unwrap();
        data.expect(1);
        all_reduce(&comms[0], &data, 10, &s);
        s.synchronize().unwrap();
        data.expect(2);
    });
}

#[test]
fn sends_before_receives_do_not_block() {
    let n = 4;
    team(n, 1, |rank, comms| {
        let (comm, s) = (&comms[0], Stream::new().unwrap());
        let other = Stream::new().unwrap();
        for count in [1usize, 1000, 262_144, 262_145] {
            // To everyone, itself included, several messages per peer, one of them empty.
            let out: Vec<Ints> = (0..n * 2).map(|i| Ints::new(count, (rank * 100 + i) as i32)).collect();
            let inn: Vec<Ints> = (0..n * 2).map(|_| Ints::new(count, -1)).collect();
            group::start();
            for peer in 0..n {
                for k in 0..2 {
                    let b = &out[peer * 2 + k];
                    let s = if k == 0 { &s } else { &other };
                    comm.submit(request(Collective::Send, b.ptr(), std::ptr::null_mut(), count, s).to(peer)).unwrap();
                    let empty = request(Collective::Send, b.ptr(), std::ptr::null_mut(), 0, s).to(peer);
                    comm.submit(empty).unwrap();
                }
            }
            for peer in (0..n).rev() {
                for k in 0..2 {
                    let b = &inn[peer * 2 + k];
                    comm.submit(request(Collective::Recv, std::ptr::null(), b.ptr(), count, &s).to(peer)).unwrap();
                    comm.submit(request(Collective::Recv, std::ptr::null(), b.ptr(), 0, &s).to(peer)).unwrap();
                }
            }
            group::end().unwrap();
            other.synchronize().unwrap();
            s.synchronize().unwrap();
            for (i, b) in inn.iter().enumerate() {
                b.expect((i / 2 * 100 + rank * 2 + i % 2) as i32);
            }
        }
    });
}

#[test]
fn lines_of_calls_by_messages_do_not_hold_up_later_calls() {
    team(3, 1, |rank, comms| {
        let (comm, s) = (&comms[0], Stream::new().unwrap());
        let data = Ints::new(30, rank as i32);
        let out = Ints::new(30, -1);
        let v = VCounts {
            send_counts: vec![10; 3],
            send_displs: vec![0, 10, 20],
            recv_counts: vec![10; 3],
            recv_displs: vec![0, 10, 20],
        };
        for round in 0..3 {
            for _ in 0..20 + round {
                let mut r = request(Collective::AllToAllV, data.ptr(), out.ptr(), 0, &s);
                r.v = Some(Box::new(v.clone()));
                comm.submit(r).unwrap();
            }
            for root in 0..20 {
                comm.submit(request(Collective::Broadcast, out.ptr(), out.ptr(), 30, &s).to(root % 3)).unwrap();
            }
        }
        let sum = Ints::new(3, 1);
        all_reduce(comm, &sum, 3, &s);
        s.synchronize().unwrap();
        sum.expect(3);
    });
}

#[test]
fn a_call_by_messages_that_meets_another_call_fails_on_both_sides() {
    let codes = Mutex::new(vec![]);
    team(2, 1, |rank, comms| {
        let (comm, s) = (&comms[0], Stream::new().unwrap());
        let (data, out) = (Ints::new(20, 1), Ints::new(20, -1));
        if rank == 0 {
            let mut r = request(Collective::AllToAllV, data.ptr(), out.ptr(), 0, &s);
            r.v = Some(Box::new(VCounts {
                send_counts: vec![5; 2],
                send_displs: vec![0, 5],
                recv_counts: vec![5; 2],
                recv_displs: vec![0, 5],
            }));
            comm.submit(r).unwrap();
        } else {
            all_reduce(comm, &data, 20, &s);
        }
        let error = s.synchronize().unwrap_err();
        codes.lock().unwrap().push((rank, error.code, error.into_text()));
    });
    let codes = codes.into_inner().unwrap();
    assert!(codes.len() == 2 && codes.iter().all(|c| c.1 == ResultCode::InvalidUsage), "{codes:?}");
    assert!(codes.iter().all(|c| c.2.contains("AlltoAllv") && c.2.contains("AllReduce")), "{codes:?}");
}

#[test]
fn streams_and_events_keep_cudas_order() {
    let (a, b) = (Stream::new().unwrap(), Stream::new().unwrap());
    let (first, last) = (Event::new(), Event::new());
    assert!(first.query(), "an event that was never recorded counts as complete");
    b.wait(&first).unwrap();
    b.synchronize().unwrap();
    assert!(Event::elapsed_ms(&first, &last).is_err(), "nothing was recorded");

    // Host functions run in order, one at a time.
    let log = Arc::new(Mutex::new(vec![]));
    for i in 0..50 {
        let log = log.clone();
        a.launch_host(Box::new(move || log.lock().unwrap().push(i))).unwrap();
    }
    a.synchronize().unwrap();
    assert_eq!(*log.lock().unwrap(), (0..50).collect::<Vec<_>>());

    // A wait holds for the record before it, not for later ones.
    let (release, gate) = sync_channel::<()>(1);
    let gate = Mutex::new(gate);
    let stage = Arc::new(AtomicU32::new(0));
    a.record(&first).unwrap();
    a.synchronize().unwrap();
    b.wait(&first).unwrap();
    a.launch_host(Box::new(move || gate.lock().unwrap().recv_timeout(Duration::from_secs(30)).unwrap())).unwrap();
    a.record(&last).unwrap();
    b.synchronize().unwrap();
    b.wait(&last).unwrap();
    let mark = stage.clone();
    b.launch_host(Box::new(move || mark.store(1, Ordering::SeqCst))).unwrap();
    assert!(!b.query().unwrap() && !last.query());
    assert_eq!(stage.load(Ordering::SeqCst), 0);
    release.send(()).unwrap();
    b.synchronize().unwrap();
    assert_eq!(stage.load(Ordering::SeqCst), 1);
    assert!(last.query());
    last.synchronize().unwrap();
    // The record is over before the stream has put it away.
    a.synchronize().unwrap();
    assert!(a.query().unwrap());
    assert!(Event::elapsed_ms(&first, &last).unwrap() >= 0.0);
    assert!(Event::elapsed_ms(&last, &first).unwrap() <= 0.0);
}

#[test]
fn collectives_take_part_in_the_order_of_streams() {
    team(2, 1, |rank, comms| {
        let (comm, a, b) = (&comms[0], Stream::new().unwrap(), Stream::new().unwrap());
        let source = Ints::new(50_000, 3 + rank as i32);
        let (data, copy) = (Ints::new(50_000, 0), Ints::new(50_000, 0));
        for _ in 0..5 {
            let done = Event::new();
            // SAFETY: both buffers hold 200 000 bytes and outlive the streams' work.
            unsafe { a.copy(data.ptr(), source.ptr().cast_const(), 200_000).unwrap() };
            all_reduce(comm, &data, 50_000, &a);
            a.record(&done).unwrap();
            b.wait(&done).unwrap();
            // SAFETY: as above.
            unsafe { b.copy(copy.ptr(), data.ptr().cast_const(), 200_000).unwrap() };
            let back = Event::new();
            b.record(&back).unwrap();
            a.wait(&back).unwrap();
        }
        a.synchronize().unwrap();
        b.synchronize().unwrap();
        copy.expect(7);
        data.expect(7);
    });
}
