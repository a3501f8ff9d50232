//! Reductions and copies that go past the caches: for buffers that the caches cannot hold, where a line that is stored would
//! first be read from memory, and drive out what is still to be read.
//!
//! Sums of two leave from the registers (see `past`). Other results are made block by block in the first-level cache, by the
//! same loops as all others, and leave by non-temporal stores. So do copies, to several destinations as well: their source is read
//! once. Where places do not allow it, the loops store as ever, or nothing is done. Whether it pays on this processor, and for which
//! results, callers decide.

use oxccl_types::DataType;

use crate::lanes::Table;
use crate::{Post, RedOp, reduce_at};

/// Bytes of results that are made at a time.
const BLOCK: usize = 1 << 10;
/// Bytes of what a group of non-temporal stores must fill.
const LINE: usize = 64;
/// Sources, and destinations, up to which this is done.
const MOST: usize = 8;

/// See [`crate::reduce_past_caches`].
///
/// # Safety
/// As [`reduce_at`].
pub(crate) unsafe fn reduce(
    table: &Table,
    dtype: DataType,
    op: RedOp,
    dsts: &[*mut u8],
    srcs: &[*const u8],
    count: usize,
    post: Post,
) {
    let size = dtype.size();
    let Some(head) = elements_to_line(dsts, srcs, size) else {
        // SAFETY: the caller's promise.
        return unsafe { reduce_at(table, dtype, op, dsts, srcs, count, post) };
    };
    let head = head.min(count);
    let from_registers = srcs.len() == 2 && op == RedOp::Sum && post == Post::None;
    // 8-bit floats keep the core busy longer than memory does, and in blocks longer still.
    let in_blocks = !(dtype.is_float() && size == 1);
    let per_block = BLOCK / size;
    // SAFETY: the caller's promise, for parts of the range; places after `head` elements begin a line in every destination, and
    // so do those where the registers' way ends, of types that go on in blocks.
    unsafe {
        plain(table, dtype, op, dsts, srcs, 0, head, post);
        let mut done = head;
        if from_registers {
            done = table.past_caches[dtype as usize](dsts, srcs, head..count);
        }
        while in_blocks && count - done >= per_block {
            through_block(table, dtype, op, dsts, srcs, done, post);
            done += per_block;
        }
        // Who is told of these results by an ordinary store must find them.
        std::arch::x86_64::_mm_sfence();
        plain(table, dtype, op, dsts, srcs, done, count - done, post);
    }
}

/// See [`crate::copy_past_caches`]. `false`: places do not allow it, and nothing was done.
///
/// # Safety
/// As [`crate::copy`].
#[must_use]
pub(crate) unsafe fn copy(dsts: &[*mut u8], src: *const u8, bytes: usize) -> bool {
    let Some(head) = elements_to_line(dsts, &[src], 1) else { return false };
    let head = head.min(bytes);
    let blocks = (bytes - head) / BLOCK;
    let plain = |at: usize, bytes: usize| {
        let to = destinations(dsts, at);
        // SAFETY: the caller's promise for a part of the range.
        unsafe { crate::copy::copy(&to[..dsts.len()], src.wrapping_add(at), bytes, bytes) };
    };
    plain(0, head);
    for block in 0..blocks {
        let at = head + block * BLOCK;
        for dst in dsts {
            // SAFETY: the caller's promise for a part of the range; it begins a line of every destination, and
            // `elements_to_line` saw that the processor has the stores.
            unsafe { stream(dst.add(at), src.add(at)) };
        }
    }
    // SAFETY: the instruction is in every processor of this architecture. Who is told of the data by an ordinary store must
    // find it.
    unsafe { std::arch::x86_64::_mm_sfence() };
    let done = head + blocks * BLOCK;
    plain(done, bytes - done);
    true
}

/// Elements until every destination begins a line. None if there is no such place, if a destination is a source, which is in
/// the caches by then, if there are too many of either, or if the processor lacks the stores.
fn elements_to_line(dsts: &[*mut u8], srcs: &[*const u8], size: usize) -> Option<usize> {
    if srcs.is_empty() || srcs.len().max(dsts.len()) > MOST {
        return None;
    }
    let first = dsts.first()?.addr() % LINE;
    let together = dsts.iter().all(|d| d.addr() % LINE == first && !srcs.contains(&d.cast_const()));
    let head = (LINE - first) % LINE;
    let can = std::arch::is_x86_feature_detected!("avx");
    (together && can && head.is_multiple_of(size)).then_some(head / size)
}

/// The ordinary loops, for `count` elements from element `at` on.
///
/// # Safety
/// As [`reduce_at`] for these elements.
#[allow(clippy::too_many_arguments, reason = "a reduction and a part of it")]
unsafe fn plain(
    table: &Table,
    dtype: DataType,
    op: RedOp,
    dsts: &[*mut u8],
    srcs: &[*const u8],
    at: usize,
    count: usize,
    post: Post,
) {
    let at = at * dtype.size();
    let (to, from) = (destinations(dsts, at), sources(srcs, at));
    // SAFETY: the caller's promise: `at` lies within every buffer.
    unsafe { reduce_at(table, dtype, op, &to[..dsts.len()], &from[..srcs.len()], count, post) };
}

/// One block, from element `at` on.
///
/// # Safety
/// As [`reduce_at`] for these elements, at which every destination begins a line; the processor has AVX.
unsafe fn through_block(
    table: &Table,
    dtype: DataType,
    op: RedOp,
    dsts: &[*mut u8],
    srcs: &[*const u8],
    at: usize,
    post: Post,
) {
    #[repr(align(64))]
    struct Block(std::mem::MaybeUninit<[u8; BLOCK]>);
    let mut block = Block(std::mem::MaybeUninit::uninit());
    let results: *mut u8 = block.0.as_mut_ptr().cast();
    let size = dtype.size();
    let from = sources(srcs, at * size);
    // SAFETY: the caller's promise; the block holds that many elements, and all of it is written before it is read.
    unsafe {
        reduce_at(table, dtype, op, &[results], &from[..srcs.len()], BLOCK / size, post);
        for dst in dsts {
            stream(dst.add(at * size), results);
        }
    }
}

/// Stores a block past the caches.
///
/// # Safety
/// `src` is readable and `dst` writable for a block; `dst` begins a line. The processor has AVX.
#[target_feature(enable = "avx")]
unsafe fn stream(dst: *mut u8, src: *const u8) {
    use std::arch::x86_64::{_mm256_loadu_si256, _mm256_stream_si256};
    for at in (0..BLOCK).step_by(LINE) {
        // SAFETY: the caller's promise.
        unsafe {
            let (src, dst) = (src.add(at), dst.add(at));
            let (a, b) = (_mm256_loadu_si256(src.cast()), _mm256_loadu_si256(src.add(LINE / 2).cast()));
            _mm256_stream_si256(dst.cast(), a);
            _mm256_stream_si256(dst.add(LINE / 2).cast(), b);
        }
    }
}

/// The sources at `bytes` bytes from their beginnings.
#[inline]
fn sources(srcs: &[*const u8], bytes: usize) -> [*const u8; MOST] {
    std::array::from_fn(|i| srcs.get(i).map_or(std::ptr::null(), |p| p.wrapping_add(bytes)))
}

/// The destinations at `bytes` bytes from their beginnings.
#[inline]
fn destinations(dsts: &[*mut u8], bytes: usize) -> [*mut u8; MOST] {
    std::array::from_fn(|i| dsts.get(i).map_or(std::ptr::null_mut(), |p| p.wrapping_add(bytes)))
}

#[cfg(test)]
mod tests {
    use oxccl_types::DataType;

    use crate::{Level, Post, RedOp, reduce_at};

    /// Every byte is what the ordinary loops store, whatever the type, the places and the numbers of buffers.
    #[test]
    fn results_are_those_of_the_ordinary_loops() {
        const ROOM: usize = 40_000;
        let ordinary = |i: usize, j: usize| 0x30 | ((i * 5 + j * 3) % 7) as u8;
        // 8-bit floats go their own way: numbers of all magnitudes, and some that are none.
        let any = |i: usize, j: usize| (i * (37 + 2 * j) + i / 251) as u8;
        for (level, dtype) in Level::available().flat_map(|level| DataType::ALL.map(|dtype| (level, dtype))) {
            let table = level.table();
            for (srcs, dsts) in [(2, 1), (2, 2), (3, 3), (8, 8), (9, 2)] {
                for (offset, bytes) in [(0, 8192), (8, 9000), (56, 1024), (64, 1088), (1, 4096), (16, 40), (64, 33_000)]
                {
                    let count = bytes / dtype.size();
                    let byte = |i, j| if dtype.size() == 1 { any(i, j) } else { ordinary(i, j) };
                    let inputs: Vec<Vec<u8>> = (0..srcs).map(|j| (0..ROOM).map(|i| byte(i, j)).collect()).collect();
                    let from: Vec<*const u8> = inputs.iter().map(|v| v.as_ptr()).collect();
                    let run = |past: bool| {
                        let mut outputs = vec![vec![0xa5_u8; ROOM]; dsts];
                        let to: Vec<*mut u8> = outputs
                            .iter_mut()
                            .map(|v| v.as_mut_ptr().wrapping_add(v.as_ptr().align_offset(64) + offset))
                            .collect();
                        // SAFETY: all buffers are separate and hold the elements; the table is of a level that is there.
                        unsafe {
                            match past {
                                true => super::reduce(table, dtype, RedOp::Sum, &to, &from, count, Post::None),
                                false => reduce_at(table, dtype, RedOp::Sum, &to, &from, count, Post::None),
                            }
                        }
                        let skip: Vec<usize> = outputs.iter().map(|v| v.as_ptr().align_offset(64)).collect();
                        outputs
                            .iter()
                            .zip(skip)
                            .map(|(v, skip)| v[skip..ROOM - 128 + skip].to_vec())
                            .collect::<Vec<_>>()
                    };
                    assert!(
                        run(true) == run(false),
                        "{level:?} {dtype:?}, {srcs} to {dsts}, {bytes} bytes from {offset} on"
                    );
                }
            }
        }
    }

    /// Every byte arrives in every destination and none beside them changes, whatever the places.
    #[test]
    fn copies_are_those_of_the_ordinary_loops() {
        const ROOM: usize = 12_000;
        let source: Vec<u8> = (0..ROOM).map(|i| (i * 7 + i / 251) as u8).collect();
        for dsts in [2, 3, 8, 9] {
            for (to, from, bytes) in [(0, 0, 8192), (8, 3, 9000), (63, 64, 1088), (1, 17, 40), (16, 5, 0), (0, 1, 1024)]
            {
                // The last case of unlike places: the last destination is one byte further.
                for further in [0, 1] {
                    let mut targets = vec![vec![0xa5_u8; ROOM]; dsts];
                    let begin =
                        |k: usize, v: &[u8]| v.as_ptr().align_offset(64) + to + if k + 1 == dsts { further } else { 0 };
                    let places: Vec<usize> = targets.iter().enumerate().map(|(k, v)| begin(k, v)).collect();
                    let all: Vec<*mut u8> =
                        targets.iter_mut().zip(&places).map(|(v, at)| v.as_mut_ptr().wrapping_add(*at)).collect();
                    // SAFETY: all ranges lie within vectors of their own, of `ROOM` bytes.
                    let done = unsafe { super::copy(&all, source.as_ptr().add(from), bytes) };
                    let can = std::arch::is_x86_feature_detected!("avx");
                    assert_eq!(done, can && dsts <= super::MOST && further == 0, "{bytes} to {dsts}");
                    if !done {
                        // SAFETY: as above.
                        unsafe { crate::copy(&all, source.as_ptr().add(from), bytes) };
                    }
                    for (target, at) in targets.iter().zip(places) {
                        let case = format!("{bytes} bytes from {from} to {to}, {dsts} destinations");
                        assert!(target[at..at + bytes] == source[from..from + bytes], "{case}");
                        assert!(target[..at].iter().chain(&target[at + bytes..]).all(|b| *b == 0xa5), "{case}");
                    }
                }
            }
        }
    }
}
