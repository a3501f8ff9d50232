//! The single-producer ring of the shared-memory connections: what one record costs a thread that does both ends, and
//! two threads that pass records from one to the other (the line travels between their cores).

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

#[allow(dead_code, reason = "the library's own module, of which the benchmark needs a part")]
#[path = "../src/transport/ring.rs"]
mod ring;

use ring::{Cells, Consumer, Producer};

/// A word in a cache line of its own, as the tags are.
#[repr(align(64))]
#[derive(Default)]
struct Line(AtomicU64);

struct Shared {
    tags: Vec<Line>,
    consumed: Line,
}

#[derive(Clone)]
struct Handle(Arc<Shared>);

impl Cells for Handle {
    type Word = AtomicU64;
    fn tag(&self, index: usize) -> &AtomicU64 {
        &self.0.tags[index].0
    }
    fn consumed(&self) -> &AtomicU64 {
        &self.0.consumed.0
    }
}

fn ends(slots: usize) -> (Producer<Handle>, Consumer<Handle>) {
    let tags = (0..slots).map(|_| Line::default()).collect();
    let shared = Handle(Arc::new(Shared { tags, consumed: Line::default() }));
    (Producer::new(shared.clone(), slots), Consumer::new(shared, slots))
}

/// Polls before a waiting end lets another thread have its core.
const POLLS: u32 = 1000;

/// What `poll` finds. Bounded, so that a broken ring fails the benchmark instead of hanging it.
fn wait<T>(mut poll: impl FnMut() -> Option<T>) -> T {
    for round in 0..100_000_000u32 {
        if let Some(found) = poll() {
            return found;
        }
        if round % POLLS == POLLS - 1 { std::thread::yield_now() } else { std::hint::spin_loop() }
    }
    panic!("the other end of the ring does not go on");
}

fn one_thread(c: &mut Criterion) {
    let mut group = c.benchmark_group("ring, one thread");
    group.warm_up_time(Duration::from_millis(50)).measurement_time(Duration::from_millis(300)).sample_size(20);
    group.throughput(Throughput::Elements(1));
    for slots in [2usize, 8, 64] {
        let (mut producer, mut consumer) = ends(slots);
        group.bench_function(BenchmarkId::new("record", slots), |bencher| {
            bencher.iter(|| {
                let reserved = producer.reserve();
                producer.publish(black_box(7));
                let found = consumer.peek();
                consumer.release();
                black_box((reserved, found))
            });
        });
    }
    group.finish();
}

fn two_threads(c: &mut Criterion) {
    let mut group = c.benchmark_group("ring, two threads");
    group.warm_up_time(Duration::from_millis(50)).measurement_time(Duration::from_millis(300)).sample_size(20);
    group.throughput(Throughput::Elements(1));
    for slots in [2usize, 8, 64] {
        group.bench_function(BenchmarkId::new("record", slots), |bencher| {
            bencher.iter_custom(|records| {
                let (mut producer, mut consumer) = ends(slots);
                let start = std::time::Instant::now();
                std::thread::scope(|scope| {
                    scope.spawn(move || {
                        for meta in 0..records {
                            wait(|| producer.reserve());
                            producer.publish(meta);
                        }
                    });
                    for meta in 0..records {
                        let (_, found) = wait(|| consumer.peek());
                        assert_eq!(found, meta);
                        consumer.release();
                    }
                });
                start.elapsed()
            });
        });
    }
    group.finish();
}

criterion_group!(benches, one_thread, two_threads);
criterion_main!(benches);
