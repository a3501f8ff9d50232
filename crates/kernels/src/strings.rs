//! The instruction for whole strings (`rep movsb`): on which processors it beats moves, and a copy by it.
//!
//! It writes whole lines without reading them first. Where that is built well, a line that another core holds changes its
//! owner without travelling, and memory beyond the caches is read once less. On other processors it is slower than moves;
//! which ones was measured (docs/performance.md). It does not decide from which size on it is used: see `copy`.

#[cfg(all(target_arch = "x86_64", not(miri)))]
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// Not favoured.
const SLOW: u8 = 0;
/// Favoured, though it waits for lines of another core, but not within the core's own caches, nor beyond all of them; and who asks for
/// lines before it writes them by moves loses more than that saves.
const OUTSIDE: u8 = 1;
/// Favoured where it is long, though it waits for lines of another core.
const LONG: u8 = 2;
/// Favoured also where it is short, since it does not wait.
const ALSO_SHORT: u8 = 3;
/// As fast as moves within the core's own caches, faster to lines of another core where it is long: these travel all the same, and
/// travel twice where moves ask for them before they write.
const TO_OTHERS: u8 = 4;

/// Which of these this processor is.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
fn built() -> u8 {
    const UNKNOWN: u8 = u8::MAX;
    static KNOWN: AtomicU8 = AtomicU8::new(UNKNOWN);
    match KNOWN.load(Relaxed) {
        UNKNOWN => {
            let built = look_up();
            KNOWN.store(built, Relaxed);
            built
        }
        known => known,
    }
}

/// AMD's processors from Zen 3 on, and Intel's from Sapphire Rapids on. In family 19h what has AVX-512 is Zen 4, the rest Zen 3, or a
/// guest to which Zen 4 does not show it; Zen 5 is family 1Ah. Of Intel's the first whose AVX-512 has 16-bit floats is Sapphire
/// Rapids; measured were Emerald Rapids and a later one, and that the instruction is slow on an older Xeon. Of the others it is assumed.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[cold]
fn look_up() -> u8 {
    use std::arch::x86_64::{__cpuid, __cpuid_count};

    use crate::vendor::{Vendor, vendor};
    /// What leaf 7 says of fast short strings and of 16-bit floats, in its last register.
    const FSRM_AND_FP16: u32 = 1 << 4 | 1 << 23;
    const ZEN3_AND_4: u32 = 0x19;
    let version = __cpuid(1).eax;
    let family = match (version >> 8) & 0xf {
        0xf => 0xf + ((version >> 20) & 0xff),
        base => base,
    };
    if !std::arch::is_x86_feature_detected!("ermsb") {
        return SLOW;
    }
    match vendor() {
        Vendor::Intel if __cpuid_count(7, 0).edx & FSRM_AND_FP16 == FSRM_AND_FP16 => TO_OTHERS,
        Vendor::Intel | Vendor::Other => SLOW,
        Vendor::Amd => match family {
            ..ZEN3_AND_4 => SLOW,
            ZEN3_AND_4 if !std::arch::is_x86_feature_detected!("avx512f") => OUTSIDE,
            ZEN3_AND_4 => LONG,
            _ => ALSO_SHORT,
        },
    }
}

/// The instruction is unknown, or is nothing that an interpreter runs.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
#[inline]
fn built() -> u8 {
    SLOW
}

/// Whether this processor copies long strings faster by the instruction than by moves.
#[inline]
pub(crate) fn favoured() -> bool {
    built() != SLOW
}

/// Whether it waits for the lines of another core that it writes, where it is favoured.
#[inline]
pub(crate) fn waits_for_lines() -> bool {
    matches!(built(), OUTSIDE | LONG)
}

/// Whether it is favoured, but not within the core's own caches.
#[inline]
pub(crate) fn favoured_outside() -> bool {
    built() == OUTSIDE
}

/// Whether moves that write lines which another core has are faster if they ask for them before.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
pub(crate) fn moves_ask() -> bool {
    !matches!(built(), OUTSIDE | TO_OTHERS)
}

/// Whether lines that another core has travel to this one before it writes them, by the instruction as well, if it is favoured: where
/// they do not, it is.
#[inline]
pub(crate) fn lines_travel() -> bool {
    matches!(built(), SLOW | TO_OTHERS)
}

/// Whether they travel, and the instruction is favoured all the same.
#[inline]
pub(crate) fn travels_favoured() -> bool {
    built() == TO_OTHERS
}

/// As [`favoured`], of strings of less than a KiB.
#[inline]
pub(crate) fn favoured_if_short() -> bool {
    built() == ALSO_SHORT
}

/// Whether the instruction is slow for these places, by 15 to 40 times on Zen 4 (measured): the destination begins fewer than
/// `few` bytes behind the source, not counting whole pages.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
fn meet(dst: *mut u8, src: *const u8, few: usize) -> bool {
    const PAGE: usize = 4096;
    (1..few).contains(&(dst.addr().wrapping_sub(src.addr()) % PAGE))
}

/// How many are few: on Intel's as many as C libraries keep away from, which was not measured.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
fn few() -> usize {
    if lines_travel() { 64 } else { 16 }
}

/// Copies `bytes` bytes, of which the first line of the destination by moves: the instruction is half as fast if the
/// destination does not begin with a line.
///
/// # Safety
/// `src` is readable and `dst` writable for `bytes` bytes, at least [`crate::copy::SMALL`]; they do not overlap.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
pub(crate) unsafe fn copy(dst: *mut u8, src: *const u8, bytes: usize) {
    use crate::copy::{SMALL, copy_small};
    if meet(dst, src, few()) && std::arch::is_x86_feature_detected!("avx") {
        // SAFETY: the caller's promise; the machine has the feature.
        return unsafe { crate::copy::across(dst, src, bytes) };
    }
    let head = dst.addr().wrapping_neg() % SMALL;
    // SAFETY: the caller's promise; `head` is less than a line, of which there is at least one. The direction flag is clear,
    // as the calling convention demands. Stores of the instruction are ordered with those behind it.
    unsafe {
        if head > 0 {
            copy_small(dst, src, SMALL);
        }
        std::arch::asm!(
            "rep movsb",
            inout("rcx") bytes - head => _,
            inout("rdi") dst.add(head) => _,
            inout("rsi") src.add(head) => _,
            options(nostack, preserves_flags)
        );
    }
}

/// As above; never called, since the instruction is not favoured.
///
/// # Safety
/// As above.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
pub(crate) unsafe fn copy(dst: *mut u8, src: *const u8, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(src, dst, bytes) }
}

#[cfg(all(test, target_arch = "x86_64", not(miri)))]
mod tests {
    use super::{copy, meet};

    #[test]
    fn places_meet_that_are_few_bytes_apart_but_for_pages() {
        let source = std::ptr::without_provenance::<u8>(10 << 12);
        let meets = |behind: isize, few| meet(source.cast_mut().wrapping_offset(behind), source, few);
        for few in [16, 64] {
            for pages in [-3, 0, 2] {
                let at = |bytes: isize| meets(pages * 4096 + bytes, few);
                assert!(
                    at(1) && at(few as isize - 1) && !at(0) && !at(few as isize) && !at(-1),
                    "{few}, {pages} pages"
                );
            }
        }
    }

    /// Whatever the lengths and places, every byte arrives and none beside them changes.
    #[test]
    fn every_byte_arrives_and_no_other_changes() {
        const ROOM: usize = 20_000;
        let source: Vec<u8> = (0..ROOM).map(|i| (i * 7 + i / 251) as u8).collect();
        for bytes in [64, 65, 127, 128, 129, 1000, 4096, 16_385] {
            for (to, from) in [(0, 0), (1, 0), (0, 1), (63, 64), (64, 63), (17, 40), (128, 3)] {
                let mut target = vec![0xa5; ROOM];
                // SAFETY: both ranges lie within `ROOM` bytes of vectors of their own.
                unsafe { copy(target.as_mut_ptr().add(to), source.as_ptr().add(from), bytes) };
                assert_eq!(target[to..to + bytes], source[from..from + bytes], "{bytes} bytes from {from} to {to}");
                assert!(target[..to].iter().chain(&target[to + bytes..]).all(|b| *b == 0xa5), "{bytes} bytes to {to}");
            }
        }
    }
}
