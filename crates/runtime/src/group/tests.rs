//! The order of launches where a device serves several ranks, and two threads at a time.

use std::sync::Arc;

use oxccl_types::{Collective, DataType, ReduceOp, ResultCode};

use super::order;
use crate::communicator::{CommConfig, Communicator};
use crate::device::{self, Stream};
use crate::request::{Operator, Request};
use crate::{UniqueId, group};

fn join(ranks: i32, id: &UniqueId, rank: i32, device: usize) -> Arc<Communicator> {
    let config = CommConfig { launch_order: Some(true), ..CommConfig::default() };
    Communicator::init_rank(ranks, id.clone(), rank, device, config, "test").unwrap()
}

fn sum(send: &[u8], recv: &mut [u8], stream: Stream) -> Request {
    Request {
        collective: Collective::AllReduce,
        send: send.as_ptr(),
        recv: recv.as_mut_ptr(),
        count: send.len(),
        dtype: DataType::Uint8,
        op: Operator::Builtin(ReduceOp::Sum),
        root: 0,
        bias: std::ptr::null(),
        v: None,
        stream,
    }
}

#[test]
fn two_threads_that_launch_on_one_device_are_told() {
    let device = device::count() - 1;
    let comm = join(1, &UniqueId::create().unwrap(), 0, device);
    let (send, mut recv) = ([1_u8; 8], [0_u8; 8]);
    device::set_current(device).unwrap();
    let request = sum(&send, &mut recv, Stream::new().unwrap());
    let (requests, others) = ([(comm.clone(), request.clone())], [(comm.clone(), request)]);
    let held = order::begin(&requests).unwrap();
    let error = std::thread::scope(|s| s.spawn(move || order::begin(&others).err()).join().unwrap());
    let error = error.expect("another thread is launching");
    assert!(error.code == ResultCode::InvalidUsage && error.text.contains("NCCL_LAUNCH_RACE_FATAL"), "{error:?}");
    held.finish().unwrap();
    comm.destroy().unwrap();
}

/// The ranks of a communicator need each other, so they cannot take turns on a device.
#[test]
fn ranks_on_one_device_do_not_wait_for_each_other() {
    let ids = [UniqueId::create().unwrap(), UniqueId::create().unwrap()];
    let device = device::count() - 2;
    std::thread::scope(|s| {
        let member = |rank: i32| {
            let ids = &ids;
            move || ids.each_ref().map(|id| join(2, id, rank, device))
        };
        let threads = [s.spawn(member(0)), s.spawn(member(1))];
        let ranks = threads.map(|t| t.join().unwrap());
        // One thread issues the calls of both ranks, each on a stream of its own.
        device::set_current(device).unwrap();
        let send = [[1_u8; 64], [2; 64]];
        for _ in 0..5 {
            let mut recv = [[[0_u8; 64]; 2]; 2];
            let streams: [Stream; 4] = std::array::from_fn(|_| Stream::new().unwrap());
            for (rank, comms) in ranks.iter().enumerate() {
                for (i, comm) in comms.iter().enumerate() {
                    let stream = streams[2 * rank + i].clone();
                    group::launch(vec![(comm.clone(), sum(&send[rank], &mut recv[rank][i], stream))]).unwrap();
                }
            }
            streams.iter().for_each(|s| s.synchronize().unwrap());
            assert_eq!(recv, [[[3; 64]; 2]; 2]);
        }
        for comm in ranks.into_iter().flatten() {
            s.spawn(move || comm.destroy().unwrap());
        }
    });
}
