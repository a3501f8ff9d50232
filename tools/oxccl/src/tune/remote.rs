//! What lies between two processes: flags, data in each other's caches, messages, TCP, the scheduler.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use oxccl_kernels::{Post, RedOp, reduce};
use oxccl_types::DataType;

use super::pair::{Shared, look_again, run};
use super::{ROUNDS, least};
use crate::perf::pin;

/// Bytes between the data of the two sides of [`trips`], so that no look-ahead of a processor fetches both.
const APART: usize = 4096;
/// Round trips of one measurement.
const TRIPS: u32 = 4000;
/// Bytes that fit a second-level cache next to what else is there.
const BLOCK: usize = 64 << 10;
/// Bytes of a payload beside a line.
const SMALL: usize = 4 << 10;

/// Times in microseconds.
pub struct Pair {
    pub signal_us: f64,
    pub switch_us: f64,
    pub wake_us: f64,
    pub message_us: f64,
    pub copy_us_per_kib: f64,
    pub push_us_per_kib: f64,
    pub reduce_us_per_kib: f64,
    pub eager_us_per_kib: f64,
    pub tcp_latency_us: f64,
    pub tcp_us_per_kib: f64,
}

/// Measures all of it.
pub fn measure() -> Result<Pair> {
    let yielding = std::thread::yield_now;
    let read = |bytes, sum| peer_data(bytes, sum);
    Ok(Pair {
        signal_us: trips(TRIPS, [0, 1], 0, look_again)?,
        message_us: trips(TRIPS, [0, 1], 64, look_again)?,
        // Where there is a single processor the first figures are this one, too.
        switch_us: trips(TRIPS / 4, [0, 0], 0, yielding)?,
        wake_us: wake()?,
        copy_us_per_kib: read(BLOCK, false)?,
        push_us_per_kib: push(BLOCK)?,
        reduce_us_per_kib: read(BLOCK, true)?,
        eager_us_per_kib: read(SMALL, true)?,
        tcp_latency_us: tcp(8, TRIPS / 4)?,
        tcp_us_per_kib: tcp_stream()?,
    })
}

/// Half of a round trip of a flag that `bytes` of data precede; the processes on the given processors.
fn trips(count: u32, processors: [usize; 2], bytes: usize, idle: impl Fn() + Copy) -> Result<f64> {
    let turn = |s: &Shared, mine: usize, i: u32, first: bool| -> Result<()> {
        let send = |s: &Shared| {
            // SAFETY: each side writes its own half of the data, which the other reads behind the flag.
            unsafe { s.data().add(mine * APART).write_bytes(i as u8, bytes) };
            s.flag(mine).store(i, Ordering::Release);
        };
        if first {
            send(s);
        }
        s.await_flag(1 - mine, i, idle)?;
        // SAFETY: the other side's half, written before its flag.
        let read = |k| unsafe { s.data().add((1 - mine) * APART + k).read_volatile() };
        std::hint::black_box((0..bytes).step_by(64).map(read).fold(0, u8::wrapping_add));
        if !first {
            send(s);
        }
        Ok(())
    };
    let total = count * ROUNDS + 1;
    run(
        2 * APART,
        |s| {
            pin(processors[1])?;
            (1..=total).try_for_each(|i| turn(s, 1, i, false))
        },
        |s| {
            pinned(processors[0], || {
                let mut next = 1;
                let mut failed = Ok(());
                turn(s, 0, next, true)?;
                let us = least(|| {
                    let start = Instant::now();
                    for _ in 0..count {
                        next += 1;
                        failed = std::mem::replace(&mut failed, Ok(())).and_then(|()| turn(s, 0, next, true));
                    }
                    micros(start) / f64::from(count) / 2.0
                });
                failed.map(|()| us)
            })
        },
    )
}

/// Per KiB, to copy what the other process has just written, or to add it to data of our own.
fn peer_data(bytes: usize, sum: bool) -> Result<f64> {
    let own = vec![1u8; bytes];
    let mut out = vec![0u8; bytes];
    let rounds = (16 << 20) / bytes as u32;
    run(
        bytes,
        |s| {
            pin(1)?;
            for i in 1..=rounds {
                // SAFETY: the other side reads only between its turn's flags.
                unsafe { s.data().write_bytes(i as u8, bytes) };
                s.flag(1).store(i, Ordering::Release);
                s.await_flag(0, i, look_again)?;
            }
            Ok(())
        },
        |s| {
            pinned(0, || {
                let mut times = Vec::with_capacity(rounds as usize);
                for i in 1..=rounds {
                    s.await_flag(1, i, look_again)?;
                    let start = Instant::now();
                    let peer = s.data().cast_const();
                    let count = bytes / 4;
                    // SAFETY: three areas of `bytes` bytes; the peer's was written before its flag and stays until ours.
                    unsafe {
                        match sum {
                            true => {
                                let sources = [own.as_ptr(), peer];
                                let op = RedOp::Sum;
                                reduce(DataType::Float32, op, &[out.as_mut_ptr()], &sources, count, Post::None);
                            }
                            false => oxccl_kernels::copy(&[out.as_mut_ptr()], peer, bytes),
                        }
                    }
                    times.push(micros(start));
                    s.flag(0).store(i, Ordering::Release);
                }
                Ok(per_kib(times, bytes))
            })
        },
    )
}

/// Per KiB, to copy data of our own to where the other process has just read what we copied before.
fn push(bytes: usize) -> Result<f64> {
    let own = vec![1u8; bytes];
    let rounds = (16 << 20) / bytes as u32;
    run(
        bytes,
        |s| {
            pin(1)?;
            let mut out = vec![0u8; bytes];
            for i in 1..=rounds {
                s.await_flag(0, i, look_again)?;
                // SAFETY: the data was written before the other side's flag and stays until ours.
                unsafe { oxccl_kernels::copy(&[out.as_mut_ptr()], s.data().cast_const(), bytes) };
                s.flag(1).store(i, Ordering::Release);
            }
            Ok(())
        },
        |s| {
            pinned(0, || {
                let mut times = Vec::with_capacity(rounds as usize);
                for i in 1..=rounds {
                    let start = Instant::now();
                    // SAFETY: the other side reads only between our flag and its own, for which we waited.
                    unsafe { oxccl_kernels::copy(&[s.data()], own.as_ptr(), bytes) };
                    times.push(micros(start));
                    s.flag(0).store(i, Ordering::Release);
                    s.await_flag(1, i, look_again)?;
                }
                Ok(per_kib(times, bytes))
            })
        },
    )
}

/// What the kernel's copies from the other process cost: us whatever the size, and per KiB. `None` where the system
/// forbids them.
pub fn kernel() -> Result<Option<(f64, f64)>> {
    /// Two sizes that stay in a core's cache, between which the time is taken to grow evenly.
    const SIZES: [usize; 2] = [4 << 10, 128 << 10];
    const COPIES: usize = 400;
    run(
        16,
        |s| {
            pin(1)?;
            let memory = vec![1u8; SIZES[1]];
            // SAFETY: two words of the data, which the other side reads behind the flag.
            unsafe {
                s.data().cast::<u64>().write(u64::from(std::process::id()));
                s.data().cast::<u64>().add(1).write(memory.as_ptr() as u64);
            }
            s.flag(1).store(1, Ordering::Release);
            s.await_flag(0, 1, look_again)
        },
        |s| {
            let result = pinned(0, || {
                s.await_flag(1, 1, look_again)?;
                // SAFETY: written before the flag.
                let (pid, at) = unsafe { (s.data().cast::<u64>().read(), s.data().cast::<u64>().add(1).read()) };
                let mut to = vec![0u8; SIZES[1]];
                let mut time = |bytes: usize| -> Option<f64> {
                    let mut allowed = true;
                    let us = least(|| {
                        let start = Instant::now();
                        for _ in 0..COPIES {
                            // SAFETY: `to` has the bytes; the kernel checks the other side.
                            allowed &= unsafe { oxccl_sys::cma::read(pid as u32, to.as_mut_ptr(), at, bytes) }.is_ok();
                        }
                        micros(start) / COPIES as f64
                    });
                    allowed.then_some(us)
                };
                let [short, long] = SIZES.map(&mut time);
                Ok(short.zip(long).map(|(short, long)| {
                    let per_kib = (long - short).max(0.0) / ((SIZES[1] - SIZES[0]) as f64 / 1024.0);
                    ((short - per_kib * SIZES[0] as f64 / 1024.0).max(0.0), per_kib)
                }))
            });
            s.flag(0).store(1, Ordering::Release);
            result
        },
    )
}

/// From ringing for a parked process until it runs.
fn wake() -> Result<f64> {
    use rustix::thread::futex;
    let rounds = 50u32;
    let second = rustix::time::Timespec { tv_sec: 1, tv_nsec: 0 };
    run(
        64,
        |s| {
            pin(1)?;
            for i in 1..=rounds {
                // A wait that ends early looks again.
                while s.flag(0).load(Ordering::Acquire) != i {
                    s.flag(2).store(i, Ordering::Release);
                    let _ = futex::wait(s.flag(0), futex::Flags::empty(), i - 1, Some(&second));
                }
                s.flag(1).store(i, Ordering::Release);
            }
            Ok(())
        },
        |s| {
            pinned(0, || {
                let mut times = Vec::new();
                for i in 1..=rounds {
                    s.await_flag(2, i, look_again)?;
                    // Until it sleeps: it says so a moment before.
                    let start = Instant::now();
                    while start.elapsed() < Duration::from_micros(300) {
                        std::hint::spin_loop();
                    }
                    let start = Instant::now();
                    s.flag(0).store(i, Ordering::Release);
                    futex::wake(s.flag(0), futex::Flags::empty(), 1).context("futex")?;
                    s.await_flag(1, i, look_again)?;
                    times.push(micros(start));
                }
                Ok(median(times))
            })
        },
    )
}

/// Half of a round trip of `bytes` over TCP of this machine, polled.
fn tcp(bytes: usize, count: u32) -> Result<f64> {
    with_streams(
        move |stream| {
            let mut buffer = vec![0; bytes];
            (0..count).try_for_each(|_| {
                receive(stream, &mut buffer)?;
                stream.write_all(&buffer)
            })
        },
        move |stream| {
            let mut buffer = vec![0; bytes];
            let mut times = Vec::with_capacity(count as usize);
            for _ in 0..count {
                let start = Instant::now();
                stream.write_all(&buffer)?;
                receive(stream, &mut buffer)?;
                times.push(micros(start));
            }
            Ok(median(times) / 2.0)
        },
    )
}

/// The one in the middle.
fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// What a copy of `bytes` bytes takes per KiB, of some with the looks at the clock.
fn per_kib(times: Vec<f64>, bytes: usize) -> f64 {
    (median(times) - clock_us()).max(0.0) / (bytes as f64 / 1024.0)
}

/// Per KiB, to send or receive a stream of slots: whichever side is slower. The best of a few streams.
fn tcp_stream() -> Result<f64> {
    let streams = (0..5).map(|_| one_stream()).collect::<Result<Vec<_>>>()?;
    Ok(streams.into_iter().fold(f64::INFINITY, f64::min))
}

fn one_stream() -> Result<f64> {
    const SLOT: usize = 32 << 10;
    const SLOTS: usize = 512;
    with_streams(
        |stream| {
            let buffer = vec![1; SLOT];
            stream.set_nonblocking(false)?;
            (0..SLOTS).try_for_each(|_| stream.write_all(&buffer))
        },
        |stream| {
            let mut buffer = vec![0; SLOT];
            receive(stream, &mut buffer)?;
            let start = Instant::now();
            (1..SLOTS).try_for_each(|_| receive(stream, &mut buffer))?;
            Ok(micros(start) / ((SLOTS - 1) * SLOT / 1024) as f64)
        },
    )
}

fn with_streams(
    other: impl FnOnce(&mut TcpStream) -> std::io::Result<()>,
    this: impl FnOnce(&mut TcpStream) -> std::io::Result<f64>,
) -> Result<f64> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).context("no socket on the loopback")?;
    let address = listener.local_addr()?;
    let ready = |stream: TcpStream| -> Result<TcpStream> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(stream)
    };
    run(
        64,
        |_| {
            pin(1)?;
            other(&mut ready(TcpStream::connect(address)?)?).context("the loopback")
        },
        |_| pinned(0, || this(&mut ready(listener.accept()?.0)?).context("the loopback")),
    )
}

/// Fills `buffer`, polling.
fn receive(stream: &mut TcpStream, buffer: &mut [u8]) -> std::io::Result<()> {
    let (mut at, start) = (0, Instant::now());
    while at < buffer.len() {
        match stream.read(&mut buffer[at..]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(n) => at += n,
            Err(e) if e.kind() == ErrorKind::WouldBlock && start.elapsed() < Duration::from_secs(20) => {
                look_again();
            }
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Runs `f` on the given processor, then where the thread ran before.
fn pinned<T>(processor: usize, f: impl FnOnce() -> Result<T>) -> Result<T> {
    let before = rustix::thread::sched_getaffinity(None).context("reading the allowed processors")?;
    pin(processor)?;
    let result = f();
    rustix::thread::sched_setaffinity(None, &before).context("giving the processors back")?;
    result
}

fn micros(start: Instant) -> f64 {
    start.elapsed().as_nanos() as f64 * 1e-3
}

/// What a look at the clock costs.
fn clock_us() -> f64 {
    let start = Instant::now();
    for _ in 0..100 {
        std::hint::black_box(Instant::now());
    }
    micros(start) / 100.0
}
