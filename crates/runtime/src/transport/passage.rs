//! What a rank writes where another core read last, and reads next, and how that one fetches it: lines that the two cores' caches
//! hand to each other.
//!
//! Between cores of one last cache that takes a few tens of nanoseconds a line, between others up to ten times as long, on some
//! processors far longer than by way of memory. Where the ranks run is not known, and changes. So some of them are timed, and while
//! they are slow the next ones go past the caches; now and then one is tried as before. Only on processors where that was measured
//! (`kernels::waits_for_lines`).

use oxccl_kernels as kernels;
use oxccl_sys::clock;

/// Bytes behind those that a core reads for which its processor asks as well, unasked: what another core writes next had better
/// not lie there.
pub(crate) const READ_AHEAD: usize = 1 << 10;
/// Bytes from which on a copy is timed, or goes past the caches: shorter ones are over before it pays.
const LEAST: usize = 4 << 10;
/// Bytes that a copy to a slot which is not slow moves in a nanosecond, at least. Measured on Zen 4: lines that this core has
/// itself 40, those in the cache of another core beside it 9 to 10, of a core elsewhere 2; from end to end 8 and 2, and by way of
/// memory 12 to 15 (docs/performance.md).
const SLOTS_RATE: u64 = 11;
/// The same to a place so long that its lines have left the other core's own cache: 14 to 23, from end to end as well.
const LONG_RATE: u64 = 4;
/// Slow copies in a row before the next ones go past the caches: a core that was taken away makes one slow.
const SLOW: u32 = 3;
/// The same to one of many places in turn, whose lines have left both cores' own caches: 40 to 50; of the first ones 10 or so. Those
/// of a core elsewhere 3 to 7, if they are short: the store buffer takes them.
const ROUND_RATE: u64 = 8;
/// All of these on Zen 3. While they are written, lines of a core beside it 11 to 28, of a core elsewhere 4 to 7; from end to end 15 to
/// 28 and 4 to 7, and by way of memory 10 to 14.
const ZEN3_RATE: u64 = 8;
/// The same where the source comes from memory: 8 to 11 and 4 to 5.
const ZEN3_MEMORY_RATE: u64 = 6;
/// Bytes of a transfer from which on its source may come from there: what it goes to, and others beside it, fill the last cache, too.
const FROM_MEMORY: usize = 8 << 20;
/// How many go past the caches then.
const AWAY: u32 = 512;
/// How many are not timed after one that was not slow: two looks at the clock take a tenth of a short one.
const TRUSTED: u32 = 15;

/// Copies `bytes` bytes of a transfer of `whole` from where another core put them; `away`: past its caches, or to one of few places
/// which it then writes again.
///
/// # Safety
/// As [`kernels::copy`] for one destination, which is not the source.
#[inline]
pub(crate) unsafe fn fetch(dst: *mut u8, src: *const u8, bytes: usize, whole: usize, away: bool) {
    // SAFETY: the caller's promise.
    unsafe {
        match away {
            true => kernels::copy_part(&[dst], src, bytes, whole),
            false => kernels::copy_taken(dst, src, bytes, whole),
        }
    }
}

/// How the next copies go.
#[derive(Debug)]
pub(crate) struct Passage {
    /// Bytes in a nanosecond of copies that are not slow, of short and of long transfers.
    rates: [u64; 2],
    slow: u32,
    away: u32,
    trusted: u32,
}

impl Passage {
    /// Of copies that are not slow at `rate`, but on a processor that is known better.
    fn with(rate: u64) -> Passage {
        let rates = if kernels::favours_strings_outside() { [ZEN3_RATE, ZEN3_MEMORY_RATE] } else { [rate; 2] };
        Passage { rates, slow: 0, away: 0, trusted: 0 }
    }

    /// Of copies to slots.
    pub(crate) fn by_slots() -> Passage {
        Passage::with(SLOTS_RATE)
    }

    /// Of copies to slots that ranks fill ahead of each other: so many that their lines have left the other core's own cache, too.
    pub(crate) fn by_many_slots() -> Passage {
        Passage::by_long_places()
    }

    /// Of copies to places that go round so many lines that those have left the caches of both cores' own.
    pub(crate) fn by_places_in_turn() -> Passage {
        Passage::with(ROUND_RATE)
    }

    /// Of copies to rings and scratch.
    pub(crate) fn by_long_places() -> Passage {
        Passage::with(LONG_RATE)
    }

    /// Copies `bytes` bytes of a transfer of `whole` bytes; whether past the caches.
    ///
    /// # Safety
    /// As [`kernels::copy_across`].
    #[inline]
    pub(crate) unsafe fn copy(&mut self, dst: *mut u8, src: *const u8, bytes: usize, whole: usize) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.pass(dst, src, bytes, whole, || kernels::copy_across(dst, src, bytes, whole)) }
    }

    /// The same to a slot whose lines were asked for before.
    ///
    /// # Safety
    /// As [`kernels::copy`] for one destination, which is not the source.
    #[inline]
    pub(crate) unsafe fn publish(&mut self, dst: *mut u8, src: *const u8, bytes: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.pass(dst, src, bytes, bytes, || kernels::copy(&[dst], src, bytes)) };
    }

    /// Copies by `usual`, or past the caches; whether so.
    ///
    /// # Safety
    /// As [`kernels::copy_across`].
    #[inline]
    unsafe fn pass(&mut self, dst: *mut u8, src: *const u8, bytes: usize, whole: usize, usual: impl FnOnce()) -> bool {
        if bytes < LEAST || !kernels::waits_for_lines() {
            usual();
        } else if self.goes_away() {
            // SAFETY: the caller's promise.
            unsafe { kernels::copy_away(dst, src, bytes) };
            return true;
        } else if !self.is_timed() {
            usual();
        } else {
            let start = clock::now_ns();
            usual();
            self.took(bytes, whole, clock::now_ns() - start);
        }
        false
    }

    /// Whether copies of some length go past the caches now.
    #[inline]
    pub(crate) fn is_away(&self) -> bool {
        self.away > 0
    }

    /// Whether the next copy goes past the caches.
    #[inline]
    fn goes_away(&mut self) -> bool {
        let goes = self.away > 0;
        self.away -= u32::from(goes);
        goes
    }

    /// Whether the next copy that does not is timed.
    #[inline]
    fn is_timed(&mut self) -> bool {
        let trusted = self.trusted > 0;
        self.trusted -= u32::from(trusted);
        !trusted
    }

    /// A copy of `bytes` bytes of a transfer of `whole` took so long, ns.
    #[inline]
    fn took(&mut self, bytes: usize, whole: usize, ns: u64) {
        let [short, long] = self.rates;
        if ns * if whole < FROM_MEMORY { short } else { long } <= bytes as u64 {
            (self.slow, self.trusted) = (0, TRUSTED);
            return;
        }
        self.slow += 1;
        if self.slow >= SLOW {
            // One slow copy more is enough to go on.
            self.slow = SLOW - 1;
            self.away = AWAY;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_slow_copies_in_a_row_send_the_next_ones_past_the_caches() {
        let mut passage = Passage::by_slots();
        passage.took(1 << 16, 1 << 16, 1 << 15);
        passage.took(1 << 16, 1 << 16, 1 << 12);
        for _ in 0..SLOW {
            assert!(!passage.goes_away());
            passage.took(1 << 16, 1 << 16, 1 << 15);
        }
        assert_eq!((0..2 * AWAY).take_while(|_| passage.goes_away()).count(), AWAY as usize);
        // Still slow, and then not.
        passage.took(1 << 16, 1 << 16, 1 << 15);
        assert_eq!((0..2 * AWAY).take_while(|_| passage.goes_away()).count(), AWAY as usize);
        passage.took(1 << 16, 1 << 16, 1 << 12);
        assert!(!passage.goes_away() && passage.slow == 0);
    }

    /// Of long transfers less is expected.
    #[test]
    fn transfers_whose_source_comes_from_memory_may_be_slower() {
        let rates = [ZEN3_RATE, ZEN3_MEMORY_RATE];
        let seven = (1 << 16) / 7;
        for (whole, slow) in [(1 << 16, true), (FROM_MEMORY - 1, true), (FROM_MEMORY, false)] {
            let mut passage = Passage { rates, ..Passage::by_slots() };
            (0..SLOW).for_each(|_| passage.took(1 << 16, whole, seven));
            assert_eq!(passage.is_away(), slow, "{whole}");
        }
    }

    /// Which of the two it is, the whole transfer says, not the piece.
    #[test]
    fn the_length_of_the_transfer_decides_what_is_slow() {
        let (src, mut dst) = (vec![1_u8; LEAST], vec![0_u8; LEAST]);
        // Whatever is short is slow, and nothing that is long.
        for (whole, slow) in [(LEAST, true), (FROM_MEMORY, false)] {
            let mut passage = Passage { rates: [1 << 20, 0], ..Passage::by_slots() };
            for _ in 0..SLOW {
                // SAFETY: both have as many bytes.
                unsafe { passage.copy(dst.as_mut_ptr(), src.as_ptr(), LEAST, whole) };
            }
            assert_eq!(passage.is_away(), slow && kernels::waits_for_lines(), "{whole}");
        }
    }

    /// Only some are timed while they are fast, each while they are slow.
    #[test]
    fn a_fast_copy_speaks_for_the_next_ones() {
        let mut passage = Passage::by_slots();
        assert!(passage.is_timed());
        passage.took(1 << 16, 1 << 16, 1 << 12);
        assert_eq!((0..2 * TRUSTED).take_while(|_| !passage.is_timed()).count(), TRUSTED as usize);
        passage.took(1 << 16, 1 << 16, 1 << 15);
        assert!(passage.is_timed());
    }

    #[test]
    fn either_way_all_is_copied() {
        let src: Vec<u8> = (0..20_000_u32).map(|i| i as u8).collect();
        for (away, bytes) in
            [0, 1].into_iter().flat_map(|away| [1, LEAST - 1, LEAST, 20_000].map(|bytes| (away, bytes)))
        {
            let mut dst = vec![0; src.len()];
            let mut passage = Passage { away, ..Passage::by_slots() };
            // SAFETY: both have as many bytes.
            unsafe { passage.copy(dst.as_mut_ptr(), src.as_ptr(), bytes, bytes) };
            assert!(dst[..bytes] == src[..bytes] && dst[bytes..].iter().all(|b| *b == 0), "{away} {bytes}");
            dst.fill(0);
            let mut passage = Passage { away, ..Passage::by_many_slots() };
            // SAFETY: as above.
            unsafe { passage.publish(dst.as_mut_ptr(), src.as_ptr(), bytes) };
            assert!(dst[..bytes] == src[..bytes] && dst[bytes..].iter().all(|b| *b == 0), "{away} {bytes}");
        }
    }
}
