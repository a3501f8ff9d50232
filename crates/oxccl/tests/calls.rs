//! Every call of the safe interface on a few ranks, with every element checked.

use oxccl::{Communicator, DeviceBuffer, Element, F8E4M3, ReduceOp, Stream, UniqueId, bf16, f16, group, pre_mul_sum};

const RANKS: usize = 3;

/// Runs `f` as each of `RANKS` ranks, each a thread.
fn ranks(f: impl Fn(&Communicator) + Sync) {
    let comms = Communicator::init_all(RANKS).expect("init_all");
    std::thread::scope(|threads| {
        for comm in comms {
            let f = &f;
            threads.spawn(move || f(&comm));
        }
    });
}

#[test]
fn reductions() {
    ranks(|comm| {
        let me = comm.rank() as i32;
        let send: Vec<i32> = (0..6).map(|i| i * 10 + me).collect();
        let mut recv = vec![0; 6];
        comm.all_reduce(&send, &mut recv, ReduceOp::Sum).unwrap();
        assert_eq!(recv, [3, 33, 63, 93, 123, 153]);
        comm.all_reduce(&send, &mut recv, ReduceOp::Max).unwrap();
        assert_eq!(recv, [2, 12, 22, 32, 42, 52]);
        comm.all_reduce(&send, &mut recv, ReduceOp::Min).unwrap();
        assert_eq!(recv, [0, 10, 20, 30, 40, 50]);
        comm.all_reduce(&send[..1], &mut recv[..1], ReduceOp::Avg).unwrap();
        assert_eq!(recv[0], 1);

        let mut block = [0; 2];
        comm.reduce_scatter(&send, &mut block, ReduceOp::Sum).unwrap();
        assert_eq!(block, [[3, 33], [63, 93], [123, 153]][comm.rank()]);

        let mut at_root = vec![-1; if me == 1 { 6 } else { 0 }];
        comm.reduce(&send, &mut at_root, ReduceOp::Sum, 1).unwrap();
        assert_eq!(at_root, if me == 1 { vec![3, 33, 63, 93, 123, 153] } else { vec![] });
    });
}

#[test]
fn data_movement() {
    ranks(|comm| {
        let me = comm.rank() as u32;
        let mut x = [me, me];
        comm.broadcast(&mut x, 2).unwrap();
        assert_eq!(x, [2, 2]);

        let mut all = [9; 6];
        comm.all_gather(&[me, me + 10], &mut all).unwrap();
        assert_eq!(all, [0, 10, 1, 11, 2, 12]);

        let mut at_root = vec![0; if me == 0 { 3 } else { 0 }];
        comm.gather(&[me + 1], &mut at_root, 0).unwrap();
        assert_eq!(at_root, if me == 0 { vec![1, 2, 3] } else { vec![] });

        let from_root = if me == 1 { vec![5, 6, 7] } else { vec![] };
        let mut mine = [0];
        comm.scatter(&from_root, &mut mine, 1).unwrap();
        assert_eq!(mine, [me + 5]);

        let send: Vec<u32> = (0..3).map(|to| me * 10 + to).collect();
        let mut recv = [0; 3];
        comm.all_to_all(&send, &mut recv).unwrap();
        assert_eq!(recv, [me, 10 + me, 20 + me]);

        // Rank r sends r + 1 elements to everybody.
        let send = vec![me; 3 * (comm.rank() + 1)];
        let mut recv = [9; 6];
        comm.all_to_all_v(&send, &[comm.rank() + 1; 3], &mut recv, &[1, 2, 3]).unwrap();
        assert_eq!(recv, [0, 1, 1, 2, 2, 2]);
        comm.barrier().unwrap();
    });
}

#[test]
fn point_to_point() {
    ranks(|comm| {
        let (me, n) = (comm.rank(), comm.ranks());
        let mut left = vec![0_i64; 5000];
        comm.send_recv(&vec![me as i64; 5000], (me + 1) % n, &mut left, (me + n - 1) % n).unwrap();
        assert!(left.iter().all(|v| *v == ((me + n - 1) % n) as i64));
        match me {
            0 => comm.send(&[1.5_f64], 2).unwrap(),
            2 => {
                let mut x = [0.0];
                comm.recv(&mut x, 0).unwrap();
                assert_eq!(x, [1.5]);
            }
            _ => {}
        }
    });
}

fn sums<T: Element + PartialEq + std::fmt::Debug>(comm: &Communicator, one: T, three: T) {
    let mut x = [one; 40];
    comm.all_reduce_in_place(&mut x, ReduceOp::Sum).unwrap();
    assert_eq!(x, [three; 40]);
}

#[test]
fn every_float_type_and_a_factor() {
    ranks(|comm| {
        sums(comm, 1.0_f32, 3.0);
        sums(comm, 1.0_f64, 3.0);
        sums(comm, 1_i8, 3);
        sums(comm, 1_u64, 3);
        sums(comm, f16::ONE, f16::from_f32(3.0));
        sums(comm, bf16::ONE, bf16::from_f32(3.0));
        let mut x = [2.0_f32];
        comm.all_reduce_in_place(&mut x, pre_mul_sum(0.5 * (comm.rank() + 1) as f32)).unwrap();
        assert_eq!(x, [6.0]);
    });
}

#[test]
fn float8_sums() {
    ranks(|comm| sums(comm, F8E4M3::from_f32(1.0), F8E4M3::from_f32(3.0)));
}

#[test]
fn scope_keeps_stream_order_on_device_memory() {
    ranks(|comm| {
        let stream = Stream::on(comm.device()).unwrap();
        let mine = DeviceBuffer::from_slice(&vec![comm.rank() as f32; 10_000]).unwrap();
        let mut sum = DeviceBuffer::zeroed(10_000).unwrap();
        let mut all = DeviceBuffer::zeroed(30_000).unwrap();
        stream
            .scope(|s| {
                let sum = s.lend(&mut sum);
                s.all_reduce(comm, &mine, sum, ReduceOp::Sum)?;
                s.all_reduce_in_place(comm, sum.slice(0..5000), ReduceOp::Sum)?;
                s.all_gather(comm, sum, &mut all)
            })
            .unwrap();
        assert!(sum[..5000].iter().all(|v| *v == 9.0));
        assert!(all.chunks(5000).enumerate().all(|(i, c)| c.iter().all(|v| *v == [9.0, 3.0][i % 2])));
    });
}

#[test]
fn one_thread_drives_all_ranks_in_a_group() {
    let comms = Communicator::init_many(2, UniqueId::create().unwrap(), &[(0, 0), (1, 1)]).unwrap();
    let mut x = [[1_u8; 100], [2; 100]];
    group(|g| comms.iter().zip(&mut x).try_for_each(|(c, x)| g.all_reduce_in_place(c, x, ReduceOp::Sum))).unwrap();
    assert_eq!(x, [[3; 100]; 2]);
}

#[test]
fn misuse_of_groups_is_refused_and_leaves_no_group_open() {
    let comm = Communicator::init_all(1).unwrap().remove(0);
    let mut x = [1.0_f32; 4];
    let e = group(|_| comm.all_reduce_in_place(&mut x, ReduceOp::Sum)).unwrap_err();
    assert!(e.text.contains("inside a group"), "{e}");
    let e = group(|_| group(|_| Ok(()))).unwrap_err();
    assert!(e.text.contains("inside a group"), "{e}");
    let mut y = [0.0_f32; 4];
    let e = group(|g| {
        let y = g.lend(&mut y);
        g.all_reduce(&comm, &x, y, ReduceOp::Sum)?;
        g.all_reduce_in_place(&comm, y.slice(3..4), ReduceOp::Sum)
    })
    .unwrap_err();
    assert!(e.text.contains("side by side"), "{e}");
    let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| group::<()>(|_| panic!("on purpose"))));
    assert!(unwound.is_err());
    // Works again: nothing was left open.
    comm.all_reduce(&x, &mut y, ReduceOp::Sum).unwrap();
    assert_eq!(y, x);
}

#[test]
fn wrong_arguments_are_refused_before_anything_moves() {
    let comm = Communicator::init_all(1).unwrap().remove(0);
    let e = comm.all_reduce(&[1_i32; 4], &mut [0; 5], ReduceOp::Sum).unwrap_err();
    assert_eq!(e.to_string(), "invalid argument: AllReduce: recv has 5 elements and must have 4 (as many as send)");
    assert!(comm.broadcast(&mut [0_u8], 1).is_err());
    let e = Communicator::init(2, UniqueId::create().unwrap(), 2).unwrap_err();
    assert!(e.text.contains("rank 2 is not below"), "{e}");
    assert!(Communicator::init_all(0).is_err());
    let e = Communicator::init_all(oxccl::device_count() + 1).unwrap_err();
    assert!(e.text.contains("OXCCL_HOST_DEVICES"), "{e}");
}

#[test]
fn a_scope_waits_also_when_its_closure_fails_or_panics() {
    ranks(|comm| {
        let stream = Stream::on(comm.device()).unwrap();
        let mut x = vec![1_i32; 50_000];
        let failed = stream.scope(|s| {
            s.all_reduce_in_place(comm, &mut x, ReduceOp::Sum)?;
            Err::<(), _>(oxccl::Error::usage("on purpose"))
        });
        assert_eq!(failed.unwrap_err().text, "on purpose");
        assert!(x.iter().all(|v| *v == 3));
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            stream.scope::<()>(|s| {
                s.all_reduce_in_place(comm, &mut x, ReduceOp::Sum).unwrap();
                panic!("on purpose")
            })
        }));
        assert!(panicked.is_err());
        assert!(x.iter().all(|v| *v == 9));
    });
}

#[test]
fn what_moves_between_threads() {
    fn send<T: Send>() {}
    fn sync<T: Sync>() {}
    send::<Communicator>();
    send::<Stream>();
    send::<DeviceBuffer<f32>>();
    sync::<DeviceBuffer<f32>>();
    send::<oxccl::AbortHandle>();
    sync::<oxccl::AbortHandle>();
}

/// Whoever waits for a stream first is told its error; the others' calls have failed all the same.
#[test]
fn an_error_is_told_by_the_scope_of_the_call() {
    let mut comms = Communicator::init_all(2).unwrap();
    let (other, comm) = (comms.pop().unwrap(), comms.pop().unwrap());
    let alone = Communicator::init_all(1).unwrap().remove(0);
    let stream = Stream::on(comm.device()).unwrap();
    let (mut x, mut y) = ([0_u8], [0_u8]);
    let outer = stream.scope(|s| {
        s.recv(&comm, &mut x, 1)?;
        drop(other);
        let inner = stream.scope(|s| s.all_reduce_in_place(&alone, &mut y, ReduceOp::Sum));
        assert!(inner.is_err(), "it waits for the stream");
        Ok(())
    });
    assert!(outer.expect_err("nobody sent").text.contains("rank 1"));
}

#[test]
fn calls_of_a_group_share_what_they_read_and_nothing_else() {
    let comm = Communicator::init_all(1).unwrap().remove(0);
    let data = [1_i32; 100];
    let mut to = [0_i32; 100];
    // Starts of ten elements that are read, and written.
    let calls = |starts: [(usize, usize); 3], to: &mut [i32]| {
        group(|g| {
            let to = g.lend(to);
            starts.iter().try_for_each(|(from, into)| {
                g.all_reduce(&comm, &data[*from..from + 10], to.slice(*into..into + 10), ReduceOp::Sum)
            })
        })
    };
    calls([(0, 20), (0, 0), (5, 10)], &mut to).unwrap();
    assert_eq!(to[..30], data[..30]);
    assert!(calls([(0, 20), (0, 0), (5, 11)], &mut to).unwrap_err().text.contains("same memory"));
    // What one writes another may not read.
    let error = group(|g| {
        let to = g.lend(&mut to);
        g.all_reduce(&comm, &data[..10], to.slice(0..10), ReduceOp::Sum)?;
        g.all_reduce(&comm, &data[..10], to.slice(20..30), ReduceOp::Sum)?;
        g.broadcast(&comm, to.slice(5..8), 0)
    });
    assert!(error.unwrap_err().text.contains("same memory"));
}
