//! One-sided calls in captured graphs: each launch puts, signals and waits anew.

use std::sync::{Arc, Mutex};

use oxccl_runtime::device::{self, Stream};
use oxccl_runtime::{Communicator, OneSided, OneSidedCall, SignalId, Window, group};

const BYTES: usize = 4096;

/// Windows of all ranks of this process, registered in one group.
fn windows(comms: &[Arc<Communicator>], memory: &[*mut u8]) -> Vec<Arc<Window>> {
    let made: Arc<Mutex<Vec<Arc<Window>>>> = Arc::default();
    group::start();
    for (comm, at) in comms.iter().zip(memory) {
        let put = made.clone();
        comm.register_window(*at, BYTES, 1, Box::new(move |w| put.lock().unwrap().extend(w))).unwrap();
    }
    group::end().unwrap();
    let mut made = made.lock().unwrap().clone();
    made.sort_by_key(|w| w.rank());
    made
}

#[test]
fn a_graph_puts_and_waits_at_every_launch() {
    let comms = Communicator::init_all(&[0, 1]).unwrap();
    let memory: Vec<*mut u8> = (0..2).map(|_| device::alloc_alone(BYTES).unwrap()).collect();
    let windows = windows(&comms, &memory);
    assert_eq!(windows.len(), 2);
    let streams = [Stream::new().unwrap(), Stream::new().unwrap()];
    let source = device::alloc_alone(BYTES).unwrap();
    let signal = SignalId::default();
    let submit = |rank: usize, call| {
        let stream = streams[rank].clone();
        comms[rank].submit_one_sided(OneSided { call, stream }).unwrap();
    };
    streams[0].begin_capture().unwrap();
    let window = windows[0].clone();
    submit(0, OneSidedCall::Put { window, offset: 100, from: source, bytes: 8, peer: 1, signal: Some(signal) });
    submit(0, OneSidedCall::Signal { peer: 1, signal });
    let mut puts = streams[0].end_capture().unwrap().instantiate().unwrap();
    streams[1].begin_capture().unwrap();
    submit(1, OneSidedCall::Wait(vec![(0, signal, 2)]));
    let mut waits = streams[1].end_capture().unwrap().instantiate().unwrap();
    for round in 1..=3_u8 {
        // SAFETY: the graph that read it is done, and nobody else has it.
        unsafe { source.write_bytes(round, 8) };
        waits.launch(&streams[1]).unwrap();
        assert!(!streams[1].query().unwrap(), "nothing was put in round {round}");
        puts.launch(&streams[0]).unwrap();
        streams[0].synchronize().unwrap();
        streams[1].synchronize().unwrap();
        // SAFETY: the put is over, as its signal said.
        unsafe {
            assert_eq!(memory[1].add(100).read_volatile(), round);
            assert_eq!((memory[1].add(107).read_volatile(), memory[1].add(108).read_volatile()), (round, 0));
        }
    }
    for (comm, window) in comms.iter().zip(&windows) {
        comm.deregister_window(window).unwrap();
    }
    // What the window was may be somebody else's by now.
    // SAFETY: nobody has it.
    unsafe { memory[1].write_bytes(77, BYTES) };
    assert!(puts.launch(&streams[0]).is_err());
    streams[0].synchronize().unwrap();
    // SAFETY: nobody writes it.
    assert_eq!(unsafe { memory[1].add(100).read_volatile() }, 77);
    for comm in &comms {
        comm.destroy().unwrap();
    }
    for at in memory.into_iter().chain([source]) {
        // SAFETY: the communicators are gone, and with them all work.
        unsafe { device::free(at).unwrap() };
    }
}
