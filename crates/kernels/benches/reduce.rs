//! Throughput of the reduction loops, in bytes of output per second: sums of two sources by size, and for the level-2
//! cache and memory every operation and number of sources.

use std::hint::black_box;
use std::time::Duration;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use oxccl_kernels::{Post, RedOp, reduce};
use oxccl_types::DataType;

const TYPES: [DataType; 8] = [
    DataType::Float32,
    DataType::Float64,
    DataType::Bfloat16,
    DataType::Float16,
    DataType::Float8e4m3,
    DataType::Float8e5m2,
    DataType::Int8,
    DataType::Int64,
];

/// What a call does: operation, end, sources and destinations.
#[derive(Clone, Copy)]
struct Shape {
    op: RedOp,
    average: bool,
    srcs: usize,
    dsts: usize,
}

const SUM_OF_TWO: Shape = Shape { op: RedOp::Sum, average: false, srcs: 2, dsts: 1 };

fn group<'a>(c: &'a mut Criterion, name: &str) -> BenchmarkGroup<'a, WallTime> {
    let mut group = c.benchmark_group(name);
    group.warm_up_time(Duration::from_millis(50)).measurement_time(Duration::from_millis(250)).sample_size(10);
    group
}

fn measure(group: &mut BenchmarkGroup<'_, WallTime>, shape: Shape, dtype: DataType, bytes: usize) {
    // 0x30 and 0x31 in every byte are ordinary numbers in every type.
    let inputs: Vec<Vec<u8>> = (0..shape.srcs).map(|j| vec![0x30 | (j % 2) as u8; bytes]).collect();
    let mut outputs = vec![vec![0u8; bytes]; shape.dsts];
    let srcs: Vec<*const u8> = inputs.iter().map(Vec::as_ptr).collect();
    let dsts: Vec<*mut u8> = outputs.iter_mut().map(Vec::as_mut_ptr).collect();
    let post = match shape.average {
        false => Post::None,
        true if dtype.is_float() => Post::MulF64(1.0 / 3.0),
        true => Post::DivInt(3),
    };
    group.throughput(Throughput::Bytes(bytes as u64));
    group.bench_function(BenchmarkId::new(dtype.name(), bytes), |bencher| {
        bencher.iter(|| {
            let (dsts, srcs) = (black_box(dsts.as_slice()), black_box(srcs.as_slice()));
            // SAFETY: all buffers are separate and hold `bytes` bytes.
            unsafe { reduce(dtype, shape.op, dsts, srcs, bytes / dtype.size(), post) }
        });
    });
}

fn sizes(c: &mut Criterion) {
    let mut group = group(c, "sum of two");
    for dtype in TYPES {
        for bytes in [8usize, 64, 4 << 10, 64 << 10, 1 << 20, 32 << 20] {
            measure(&mut group, SUM_OF_TWO, dtype, bytes);
        }
    }
    group.finish();
}

fn shapes(c: &mut Criterion) {
    let named = [
        ("product of two", Shape { op: RedOp::Prod, ..SUM_OF_TWO }),
        ("least of two", Shape { op: RedOp::Min, ..SUM_OF_TWO }),
        ("average of two", Shape { average: true, ..SUM_OF_TWO }),
        ("sum of two, stored twice", Shape { dsts: 2, ..SUM_OF_TWO }),
        ("sum of three", Shape { srcs: 3, ..SUM_OF_TWO }),
        ("sum of four", Shape { srcs: 4, ..SUM_OF_TWO }),
        ("sum of eight", Shape { srcs: 8, ..SUM_OF_TWO }),
    ];
    for (name, shape) in named {
        let mut group = group(c, name);
        for dtype in TYPES {
            for bytes in [64usize << 10, 32 << 20] {
                measure(&mut group, shape, dtype, bytes);
            }
        }
        group.finish();
    }
}

criterion_group!(benches, sizes, shapes);
criterion_main!(benches);
