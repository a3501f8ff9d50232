//! Throughput of the reduction loops: sums of two sources into a third buffer, in bytes of output per second.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use oxccl_kernels::{Post, RedOp, reduce};
use oxccl_types::DataType;

const TYPES: [DataType; 6] = [
    DataType::Float32,
    DataType::Bfloat16,
    DataType::Float16,
    DataType::Float8e4m3,
    DataType::Float8e5m2,
    DataType::Int32,
];

fn sums(c: &mut Criterion) {
    let mut group = c.benchmark_group("sum of two");
    group.warm_up_time(Duration::from_millis(100)).measurement_time(Duration::from_millis(400)).sample_size(10);
    for dtype in TYPES {
        for bytes in [8usize, 64, 4 << 10, 64 << 10, 256 << 10, 1 << 20, 16 << 20] {
            // 0x30 and 0x31 in every byte are ordinary numbers in every type.
            let (a, b) = (vec![0x30u8; bytes], vec![0x31u8; bytes]);
            let mut dst = vec![0u8; bytes];
            group.throughput(Throughput::Bytes(bytes as u64));
            group.bench_function(BenchmarkId::new(dtype.name(), bytes), |bencher| {
                bencher.iter(|| {
                    let dsts = black_box([dst.as_mut_ptr()]);
                    let srcs = black_box([a.as_ptr(), b.as_ptr()]);
                    // SAFETY: the three buffers are separate and hold `bytes` bytes.
                    unsafe { reduce(dtype, RedOp::Sum, &dsts, &srcs, bytes / dtype.size(), Post::None) }
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, sums);
criterion_main!(benches);
