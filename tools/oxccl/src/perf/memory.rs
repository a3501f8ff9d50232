//! A rank's buffers: allocation, filling and checking against patterns, and a guard zone behind the data.
//!
//! The library and other processes write to this memory, so it is only copied from and to, never borrowed.

use std::alloc::Layout;

use anyhow::{Context, Result};
use oxccl_types::DataType;

use super::{
    args::Memory,
    data::{Expected, PERIOD, Pattern, decode, read_bits},
};
use crate::api;

/// Bytes behind the data that no call may change.
pub const GUARD: usize = 64;
const GUARD_BYTE: u8 = 0xa5;
/// Wrong elements that are described one by one.
const SHOWN: usize = 4;
const PAGE: usize = 4096;

/// Memory of one rank, with room for the guard zone.
pub struct Buffer {
    ptr: *mut u8,
    bytes: usize,
    kind: Memory,
}

// SAFETY: the memory belongs to the buffer, which gives no references to it.
unsafe impl Send for Buffer {}

impl Buffer {
    /// Room for `bytes` bytes and the guard zone, page aligned.
    pub fn new(bytes: usize, kind: Memory) -> Result<Buffer> {
        let bytes = bytes.checked_add(GUARD).context("buffer size")?.next_multiple_of(PAGE);
        let ptr = match kind {
            Memory::Device => api::mem_alloc(bytes)?,
            Memory::Malloc => {
                let layout = Layout::from_size_align(bytes, PAGE).context("buffer size")?;
                // SAFETY: the layout's size is not zero.
                let p = unsafe { std::alloc::alloc_zeroed(layout) };
                anyhow::ensure!(!p.is_null(), "no memory for a buffer of {bytes} bytes");
                p
            }
        };
        let buffer = Buffer { ptr, bytes, kind };
        // Touched now, so that no page fault falls into a measurement.
        buffer.set(0, buffer.bytes, 0);
        Ok(buffer)
    }

    /// Frees the memory; an error of the library comes out here.
    pub fn free(self) -> Result<()> {
        match self.kind {
            Memory::Device => api::mem_free(self.ptr),
            Memory::Malloc => {
                if let Ok(layout) = Layout::from_size_align(self.bytes, PAGE) {
                    // SAFETY: allocated in `new` with this layout; `self` is consumed.
                    unsafe { std::alloc::dealloc(self.ptr, layout) };
                }
                Ok(())
            }
        }
    }

    /// First byte.
    pub fn ptr(&self) -> *mut u8 {
        self.ptr
    }

    /// Bytes, guard zone included.
    pub fn len(&self) -> usize {
        self.bytes
    }

    fn at(&self, offset: usize, len: usize) -> *mut u8 {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.bytes), "{offset} + {len} of {}", self.bytes);
        self.ptr.wrapping_add(offset)
    }

    /// Sets bytes.
    pub fn set(&self, offset: usize, len: usize, byte: u8) {
        // SAFETY: inside the allocation (`at`); no call is in flight when the program fills buffers.
        unsafe { std::ptr::write_bytes(self.at(offset, len), byte, len) }
    }

    fn read(&self, offset: usize, out: &mut [u8]) {
        // SAFETY: inside the allocation (`at`); the stream was synchronised, so nobody writes.
        unsafe { std::ptr::copy_nonoverlapping(self.at(offset, out.len()), out.as_mut_ptr(), out.len()) }
    }

    /// Writes elements `first..first + count` of `pattern` from byte `offset` on.
    pub fn fill(&self, offset: usize, pattern: &Pattern, first: usize, count: usize) {
        let (mut at, mut i, end) = (offset, first, first + count);
        while i < end {
            let run = pattern.run(i, end - i);
            // SAFETY: inside the allocation (`at`), which the pattern does not overlap.
            unsafe { std::ptr::copy_nonoverlapping(run.as_ptr(), self.at(at, run.len()), run.len()) };
            at += run.len();
            i += PERIOD - i % PERIOD;
        }
    }

    /// Marks the guard zone behind `bytes` bytes of data.
    pub fn arm_guard(&self, bytes: usize) {
        self.set(bytes, GUARD, GUARD_BYTE);
    }

    /// Bytes of the guard zone that were changed.
    pub fn guard_errors(&self, bytes: usize) -> usize {
        let mut zone = [0; GUARD];
        self.read(bytes, &mut zone);
        zone.iter().filter(|b| **b != GUARD_BYTE).count()
    }

    /// Compares `count` elements from byte `offset` with elements `first..` of `expected`; the number of wrong ones.
    pub fn verify(
        &self,
        offset: usize,
        dtype: DataType,
        expected: &Expected,
        first: usize,
        count: usize,
        report: &mut Report,
    ) -> usize {
        let size = dtype.size();
        let mut scratch = vec![0; PERIOD * size];
        let (mut at, mut i, end, mut wrong) = (offset, first, first + count, 0);
        while i < end {
            let elements = (PERIOD - i % PERIOD).min(end - i);
            let found = &mut scratch[..elements * size];
            self.read(at, found);
            let same = matches!(expected, Expected::Exact(p) if p.run(i, elements) == &*found);
            if !same {
                for (k, bytes) in found.chunks_exact(size).enumerate() {
                    let bits = read_bits(bytes);
                    if let Some(want) = expected.differs(i + k, dtype, bits) {
                        report.add((at - offset) / size + k, &want, dtype, bits);
                        wrong += 1;
                    }
                }
            }
            at += elements * size;
            i += elements;
        }
        wrong
    }
}

impl Expected {
    /// What was expected, when `bits` is not it.
    fn differs(&self, i: usize, dtype: DataType, bits: u64) -> Option<String> {
        match self {
            Expected::Exact(p) => {
                let want = p.bits(i);
                (want != bits).then(|| show(dtype, want))
            }
            Expected::Within(bounds) => {
                let (low, high) = bounds[i % PERIOD];
                let v = decode(dtype, bits);
                (!(low..=high).contains(&v)).then(|| format!("{low} to {high}"))
            }
        }
    }
}

fn show(dtype: DataType, bits: u64) -> String {
    let width = 2 + 2 * dtype.size();
    format!("{} ({bits:#0width$x})", decode(dtype, bits))
}

/// The first few wrong elements in words.
pub struct Report {
    place: String,
    /// Index of the first checked element in the receive buffer.
    pub base: usize,
    lines: Vec<String>,
}

impl Report {
    /// A report whose lines begin with `place`.
    pub fn new(place: String) -> Report {
        Report { place, base: 0, lines: Vec::new() }
    }

    fn add(&mut self, index: usize, want: &str, dtype: DataType, found: u64) {
        if self.lines.len() < SHOWN {
            let found = show(dtype, found);
            let index = self.base + index;
            self.lines.push(format!("{}: element {index}: expected {want}, found {found}", self.place));
        }
    }

    /// The lines so far.
    pub fn lines(&self) -> &[String] {
        &self.lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::data::Op;

    fn buffer(bytes: usize) -> Buffer {
        Buffer::new(bytes, Memory::Malloc).unwrap()
    }

    #[test]
    fn what_was_filled_verifies_and_a_wrong_element_is_named() {
        let t = DataType::Uint32;
        let count = 3 * PERIOD + 5;
        let b = buffer(count * 4 + 64);
        let p = Pattern::input(t, None, 2, 1);
        b.fill(64, &p, 1000, count);
        b.arm_guard(64 + count * 4);
        let expected = Expected::Exact(p);
        let mut report = Report::new("rank 1".into());
        assert_eq!(b.verify(64, t, &expected, 1000, count, &mut report), 0);
        assert_eq!(b.guard_errors(64 + count * 4), 0);
        b.set(64 + 4 * 5000, 4, 0xee);
        b.set(64 + 4 * count, 1, 0);
        assert_eq!(b.verify(64, t, &expected, 1000, count, &mut report), 1);
        assert!(report.lines()[0].starts_with("rank 1: element 5000: expected "), "{:?}", report.lines());
        assert!(report.lines()[0].contains("found 4008636142 (0xeeeeeeee)"), "{:?}", report.lines());
        assert_eq!(b.guard_errors(64 + count * 4), 1);
        b.free().unwrap();
    }

    #[test]
    fn bounds_accept_their_inside_only() {
        let t = DataType::Float32;
        let b = buffer(4);
        let expected = Expected::reduction(t, Op::Avg, 3);
        let Expected::Within(bounds) = &expected else { panic!("exact") };
        let mut report = Report::new(String::new());
        for (value, wrong) in [((bounds[0].0 + bounds[0].1) / 2.0, 0), (bounds[0].1 + 1.0, 1), (f64::NAN, 1)] {
            for (i, byte) in (value as f32).to_le_bytes().into_iter().enumerate() {
                b.set(i, 1, byte);
            }
            assert_eq!(b.verify(0, t, &expected, 0, 1, &mut report), wrong, "{value}");
        }
        b.free().unwrap();
    }
}
