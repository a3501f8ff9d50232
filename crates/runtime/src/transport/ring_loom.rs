//! The ring under every interleaving and every reordering the memory model allows: two slots, three messages.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use loom::cell::UnsafeCell;
use loom::sync::atomic::AtomicU64;
use loom::thread;

use super::ring::{Cells, Consumer, Producer, Word};

const SLOTS: usize = 2;
const MESSAGES: u64 = 3;

struct Shared {
    tags: [AtomicU64; SLOTS],
    consumed: AtomicU64,
    payload: [UnsafeCell<u64>; SLOTS],
    /// What a sender lends: written only before it is sent and after it is done.
    lent: [UnsafeCell<u64>; MESSAGES as usize],
}

// SAFETY: that the cells are handed over correctly is what the test checks.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

#[derive(Clone)]
struct Handle(Arc<Shared>);

impl Cells for Handle {
    type Word = AtomicU64;
    fn tag(&self, index: usize) -> &AtomicU64 {
        &self.0.tags[index]
    }
    fn consumed(&self) -> &AtomicU64 {
        &self.0.consumed
    }
}

fn produce(ring: &mut Producer<Handle>) {
    for message in 0..MESSAGES {
        let index = loop {
            match ring.reserve() {
                Some(index) => break index,
                None => thread::yield_now(),
            }
        };
        let shared = &ring.cells().0;
        // SAFETY: reserved; loom reports who else would touch it.
        shared.payload[index].with_mut(|p| unsafe { *p = 100 + message });
        // SAFETY: not yet lent.
        shared.lent[message as usize].with_mut(|p| unsafe { *p = 200 + message });
        ring.publish(message);
        take_back(ring, 0);
    }
    take_back(ring, MESSAGES - 1);
}

/// Take back what is done.
fn take_back(ring: &mut Producer<Handle>, message: u64) {
    if ring.poll_consumed(message + 1) {
        // SAFETY: done, so it is the sender's again; loom reports a receiver that still reads.
        ring.cells().0.lent[message as usize].with_mut(|p| unsafe { *p = 0xEE });
    }
}

fn consume(ring: &mut Consumer<Handle>) {
    for message in 0..MESSAGES {
        let (index, meta) = loop {
            match ring.peek() {
                Some(found) => break found,
                None => thread::yield_now(),
            }
        };
        assert_eq!(meta, message);
        let shared = &ring.cells().0;
        // SAFETY: found; loom reports who else would touch it.
        assert_eq!(shared.payload[index].with(|p| unsafe { *p }), 100 + message);
        // SAFETY: lent until released.
        assert_eq!(shared.lent[message as usize].with(|p| unsafe { *p }), 200 + message);
        ring.release();
    }
    assert!(ring.peek().is_none());
}

#[test]
fn loom_ring_hands_over_records_and_lent_memory() {
    loom::model(|| {
        let handle = Handle(Arc::new(Shared {
            tags: std::array::from_fn(|_| AtomicU64::new(0)),
            consumed: AtomicU64::new(0),
            payload: std::array::from_fn(|_| UnsafeCell::new(0)),
            lent: std::array::from_fn(|_| UnsafeCell::new(0)),
        }));
        let mut producer = Producer::new(handle.clone(), SLOTS);
        let mut consumer = Consumer::new(handle.clone(), SLOTS);
        let sender = thread::spawn(move || produce(&mut producer));
        consume(&mut consumer);
        sender.join().unwrap();
        assert_eq!(Word::load(&handle.0.consumed, Ordering::Acquire), MESSAGES);
    });
}
