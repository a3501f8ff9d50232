//! Tests of how streams run batches.

use std::sync::Arc;

use oxccl_sys::sync::{AtomicU32, Ordering};

use super::stream::Waited;
use super::{Step, Stream, Task};

/// Ends once all of `parts` tasks have been looked at.
struct Part {
    seen: Arc<AtomicU32>,
    me: u32,
    parts: u32,
    batch: u64,
}

impl Task for Part {
    fn step(&mut self) -> Step {
        let all = (1 << self.parts) - 1;
        let seen = self.seen.fetch_or(1 << self.me, Ordering::AcqRel) | 1 << self.me;
        if seen == all { Step::Done } else { Step::Blocked }
    }
    fn batch(&self) -> u64 {
        self.batch
    }
}

/// A thread that waits for something else may take the first task of a batch before the others are enqueued.
#[test]
fn the_rest_of_a_batch_joins_what_was_taken_already() {
    let stream = Stream::new().unwrap();
    let seen = Arc::new(AtomicU32::new(0));
    let part = |me| Box::new(Part { seen: seen.clone(), me, parts: 3, batch: 7 });
    stream.push(part(0));
    while stream.0.advance() != Waited::Blocked {}
    stream.push(part(1));
    stream.push(part(2));
    stream.synchronize().unwrap();
    assert!(stream.query().unwrap());
}

/// Another batch waits for the one before it.
#[test]
fn batches_do_not_mix() {
    let stream = Stream::new().unwrap();
    let (first, second) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    stream.push(Box::new(Part { seen: first.clone(), me: 0, parts: 2, batch: 8 }));
    stream.push(Box::new(Part { seen: second.clone(), me: 0, parts: 1, batch: 9 }));
    assert_eq!(stream.0.advance(), Waited::Blocked);
    assert_eq!(second.load(Ordering::Acquire), 0);
    first.store(2, Ordering::Release);
    stream.synchronize().unwrap();
    assert_eq!(second.load(Ordering::Acquire), 1);
}
