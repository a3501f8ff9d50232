//! What one process finds by itself: its caches and memory, its reduction loops, the start of a call.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::Result;
use oxccl_kernels::{Post, RedOp, copy, reduce};
use oxccl_types::DataType;

use super::least;
use crate::api::{self, Site};

/// Copying inside and outside of the caches.
pub struct Memory {
    pub cached_us_per_kib: f64,
    pub dram_us_per_kib: f64,
    /// Of sources and destinations together.
    pub cache_bytes: f64,
}

/// Copies of growing size.
pub fn memory() -> Memory {
    let most = 64 << 20;
    let (src, mut dst) = (vec![1u8; most], vec![0u8; most]);
    let mut time = |bytes: usize| {
        let repetitions = ((32 << 20) / bytes).max(1);
        least(|| {
            let start = Instant::now();
            for _ in 0..repetitions {
                // SAFETY: both vectors have at least `bytes` bytes and are two.
                unsafe { copy(&[dst.as_mut_ptr()], src.as_ptr(), bytes) };
                black_box(&dst);
            }
            per_kib(start, bytes * repetitions)
        })
    };
    let cached = time(64 << 10);
    let dram = time(most);
    // Two speeds stand for all: a size is inside when its speed is nearer to that of the caches.
    let outside = (cached * dram).sqrt();
    let sizes = (17..26).map(|shift| 1usize << shift);
    let inside = sizes.take_while(|bytes| time(*bytes) < outside).last().unwrap_or(64 << 10);
    Memory { cached_us_per_kib: cached, dram_us_per_kib: dram, cache_bytes: 2.0 * inside as f64 }
}

fn per_kib(start: Instant, bytes: usize) -> f64 {
    start.elapsed().as_nanos() as f64 * 1e-3 / (bytes as f64 / 1024.0)
}

/// Adding one source to another in the cache, per KiB of a source, by type.
pub fn reductions() -> Vec<(DataType, f64)> {
    const BYTES: usize = 64 << 10;
    let (a, b) = (vec![0u8; BYTES], vec![0u8; BYTES]);
    let mut out = vec![0u8; BYTES];
    let mut time = |dtype: DataType| {
        least(|| {
            let start = Instant::now();
            for _ in 0..64 {
                let (sources, count) = ([a.as_ptr(), b.as_ptr()], BYTES / dtype.size());
                // SAFETY: three vectors of `BYTES` bytes.
                unsafe { reduce(dtype, RedOp::Sum, &[out.as_mut_ptr()], &sources, count, Post::None) };
                black_box(&out);
            }
            per_kib(start, 64 * BYTES)
        })
    };
    DataType::ALL.into_iter().map(|t| (t, time(t))).collect()
}

/// A look at a flag that is raised already, us.
pub fn look_us() -> f64 {
    let flags: Vec<AtomicU64> = (0..4096).map(|_| AtomicU64::new(1)).collect();
    least(|| {
        let start = Instant::now();
        let mut seen = 0;
        for _ in 0..100 {
            seen += flags.iter().step_by(8).map(|f| black_box(f).load(Ordering::Acquire)).sum::<u64>();
        }
        black_box(seen);
        start.elapsed().as_nanos() as f64 * 1e-3 / (100.0 * 512.0)
    })
}

/// A call of one rank with its synchronisation, us. Starts the library.
pub fn start_us() -> Result<f64> {
    const CALLS: usize = 2000;
    let stream = api::stream_create()?;
    let slot = api::comm_init_rank(1, &api::unique_id()?, 0)?;
    let comm = slot.get();
    let (mut input, mut output) = ([1u64], [0u64]);
    let mut failed = Ok(());
    let us = least(|| {
        let start = Instant::now();
        for _ in 0..CALLS {
            let (send, recv) = (input.as_mut_ptr().cast(), output.as_mut_ptr().cast());
            let site = Site { send, recv, dtype: DataType::Uint64, comm, stream };
            let call = || site.all_reduce(1, 0).and_then(|()| api::stream_synchronize(stream, comm));
            failed = std::mem::replace(&mut failed, Ok(())).and_then(|()| call());
        }
        start.elapsed().as_nanos() as f64 * 1e-3 / CALLS as f64
    });
    failed?;
    api::comm_destroy(comm)?;
    api::stream_destroy(stream)?;
    Ok(us)
}
