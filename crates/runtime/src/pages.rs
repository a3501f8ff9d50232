//! Which memory of the program is put on large pages: what the kernel copies between processes again and again. With small
//! ones it looks up, pins and lets go each of them, which takes as long as the copy.
//!
//! It remembers buffers by where they lie. What is beneath them is the kernel's: this asks, and is content with a refusal.

use std::ops::Range;

use oxccl_sys::{clock, pages};

/// Buffers that are remembered.
const PLACES: usize = 32;
/// Uses of a buffer before its pages become large: what is used only once or twice is not worth it.
const USES: u32 = 3;
/// Bytes that are put on large pages in one use, at least: a call is held up by that, once.
const PART: usize = 8 << 20;
/// At most: so of 128 MiB half. The sooner it is done, the sooner what it costs is won back.
const MOST: usize = 64 << 20;
/// Time that a KiB of a page may take, ns: three times what it takes where the kernel has memory at hand (docs/performance.md). A page
/// for which the host of a guest must first find that memory is a slow one: it takes ten times as long.
const KIB_NS: u64 = 1_000;
/// Bytes of the buffer, once for each use of it up to now, for each nanosecond that all slow pages of it may have taken: an eighth of
/// the time that these uses took, as a rule.
const SLOW_BYTES: u64 = 48;
/// Uses after which, and after twice as many each time, it is looked at anew: it may have been freed, and be other memory now.
const ANEW: u32 = 256;

/// A buffer.
#[derive(Clone, Copy, Debug)]
struct Place {
    at: usize,
    len: usize,
    uses: u32,
    /// Up to where its pages were made large, or refused; 0 before the first.
    done: usize,
    /// The use in which that goes on: after one in which slow pages took too long it waits for as many again, so that they cost the
    /// program little, and only what is used often enough gets there.
    goes_on: u32,
    /// What slow pages took up to now, ns.
    spent: u64,
    /// The longest row of large pages that were made, or were there, and the row that `done` ends, if it does.
    longest: Row,
    row: Row,
}

/// Large pages one behind the other: first address, and the one behind the last.
type Row = (usize, usize);

impl Place {
    fn new(at: usize, len: usize) -> Place {
        Place { at, len, uses: 0, done: 0, goes_on: 0, spent: 0, longest: (0, 0), row: (0, 0) }
    }

    /// The page at `at` of `large` bytes, behind all others, is a large one.
    fn add(&mut self, at: usize, large: usize) {
        let from = if self.row.1 == at { self.row.0 } else { at };
        self.row = (from, at + large);
        if self.row.1 - self.row.0 > self.longest.1 - self.longest.0 {
            self.longest = self.row;
        }
    }

    /// The bytes of it, counted from its first, that lie in the longest row.
    fn large_part(&self) -> Range<usize> {
        let (from, to) = (self.longest.0.max(self.at), self.longest.1.min(self.at + self.len));
        if from < to { from - self.at..to - self.at } else { 0..0 }
    }
}

/// The buffers that are used where this is.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    /// Bytes of a large page; 0: none are wanted.
    large: usize,
    places: Vec<Place>,
    /// The place that goes next when there are too many.
    oldest: usize,
}

impl Pages {
    /// None yet; `wanted`: pages are made large.
    pub(crate) fn new(wanted: bool) -> Pages {
        Pages { large: if wanted { pages::large() } else { 0 }, ..Pages::default() }
    }

    /// The kernel is about to copy the `len` bytes at `at`, and does not yet. Which of them are known to lie on large pages
    /// without a gap, if that is half of them or more; as a rule all but the ends, and none in the first uses.
    #[inline]
    pub(crate) fn used(&mut self, at: *const u8, len: usize) -> Option<Range<usize>> {
        if self.minds(len) { self.large_part(at.addr(), len, clock::now_ns) } else { None }
    }

    /// Whether a buffer of `len` bytes may lie on large pages.
    #[inline]
    pub(crate) fn minds(&self, len: usize) -> bool {
        self.large != 0 && len >= self.large
    }

    #[cold]
    fn large_part(&mut self, at: usize, len: usize, now: impl Fn() -> u64) -> Option<Range<usize>> {
        let large = self.large;
        let place = self.place(at, len);
        place.uses = place.uses.saturating_add(1);
        if place.uses <= USES {
            return None;
        }
        if place.uses >= ANEW && place.uses.is_power_of_two() {
            *place = Place { uses: place.uses, ..Place::new(at, len) };
        }
        let end = at + len;
        let mut page = place.done.max(at & !(large - 1));
        if page < end && place.uses >= place.goes_on {
            let part = (len / 2).clamp(PART, MOST);
            let stop = place.done.max(at).saturating_add(part);
            let most = u64::from(place.uses).saturating_mul(len as u64) / SLOW_BYTES;
            while page < end && page < stop {
                let start = now();
                // The program hardly grows by this, whether the page lies inside or has other memory of it beside the buffer.
                if pages::is_own(page) && pages::enlarge(page) {
                    place.add(page, large);
                }
                page += large;
                let taken = now() - start;
                if taken <= (large as u64 >> 10) * KIB_NS {
                    continue;
                }
                // The pages behind it are slow, too, as a rule.
                place.spent = place.spent.saturating_add(taken);
                if place.spent >= most {
                    place.goes_on = place.uses.saturating_mul(2);
                    break;
                }
            }
        }
        place.done = page;
        let part = place.large_part();
        (page >= end && 2 * part.len() >= len).then_some(part)
    }

    /// Where the buffer is remembered.
    fn place(&mut self, at: usize, len: usize) -> &mut Place {
        let found = self.places.iter().position(|p| (p.at, p.len) == (at, len));
        let new = Place::new(at, len);
        let index = match found {
            Some(index) => index,
            None if self.places.len() < PLACES => {
                self.places.push(new);
                self.places.len() - 1
            }
            None => {
                self.oldest = (self.oldest + 1) % PLACES;
                self.places[self.oldest] = new;
                self.oldest
            }
        };
        &mut self.places[index]
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// Bytes of the anonymous memory of this process at `at` that lie on large pages.
    fn large_bytes_at(at: usize) -> usize {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut inside = false;
        for line in maps.lines() {
            let range = line.split(' ').next().and_then(|r| r.split_once('-'));
            let hex = |text: &str| usize::from_str_radix(text, 16).ok();
            if let Some((Some(from), Some(to))) = range.map(|(from, to)| (hex(from), hex(to))) {
                inside = (from..to).contains(&at);
            } else if inside && let Some(kib) = line.strip_prefix("AnonHugePages:") {
                return kib.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10;
            }
        }
        0
    }

    #[test]
    fn pages_become_large_after_a_few_uses_and_keep_what_they_hold() {
        let mut pages = Pages::new(true);
        let large = pages.large;
        if large == 0 {
            let _ = writeln!(std::io::stderr(), "SKIPPED: a test of large pages: the system has none for who asks");
            return;
        }
        let data: Vec<u64> = (0..(PART + 3 * large) as u64 / 8).collect();
        let len = 8 * data.len();
        let at = data.as_ptr().cast();
        assert!((0..USES).all(|_| pages.used(at, len).is_none()));
        // Where the system makes all pages large there is nothing to see.
        if large_bytes_at(at.addr() + len / 2) > 0 {
            return;
        }
        assert!(pages.used(at, len).is_none(), "all of it in one use");
        // Not certain where memory is short.
        if let Some(part) = pages.used(at, len) {
            assert!(large_bytes_at(at.addr() + len / 2) >= PART);
            assert!(2 * part.len() >= len && part.end <= len, "{part:?} of {len}");
            let ends = [part.start, part.end].map(|edge| at.addr() + edge);
            assert!(part.start == 0 || ends[0].is_multiple_of(large), "{part:?}");
            assert!(part.end == len || ends[1].is_multiple_of(large), "{part:?}");
        }
        assert!(data.iter().enumerate().all(|(i, value)| *value == i as u64));
    }

    /// Where a page takes too long, one is made in the fourth use, the eighth, the sixteenth and so on.
    #[test]
    fn pages_that_take_long_hold_up_few_uses() {
        use std::cell::Cell;
        let mut pages = Pages::new(true);
        let large = pages.large;
        if large == 0 {
            let _ = writeln!(std::io::stderr(), "SKIPPED: a test of large pages: the system has none for who asks");
            return;
        }
        let data = vec![1_u8; 4 * large];
        let at = data.as_ptr().addr();
        let time = Cell::new(0);
        let slow = || time.replace(time.get() + 1_000_000_000);
        let mut done = 0;
        for uses in 1..=32_u32 {
            let part = pages.large_part(at, data.len(), slow);
            let place = &pages.places[0];
            if uses.is_power_of_two() && uses > USES && done < at + data.len() {
                assert_eq!(place.done, done.max(at & !(large - 1)) + large, "use {uses}");
            } else {
                assert_eq!(place.done, done, "use {uses}");
            }
            done = place.done;
            assert!(part.is_none() || done >= at + data.len(), "use {uses}");
        }
    }

    /// Of 32 MiB slow pages may take 2.8 ms in the fourth use, and those that are not slow whatever they take together.
    #[test]
    fn slow_pages_end_a_use_when_they_took_too_long() {
        use std::cell::Cell;
        let large = Pages::new(true).large;
        if large == 0 {
            let _ = writeln!(std::io::stderr(), "SKIPPED: a test of large pages: the system has none for who asks");
            return;
        }
        let data = vec![1_u8; 16 * large];
        let at = data.as_ptr().addr();
        let (quick, slow) = ((large as u64 >> 10) * KIB_NS, (large as u64 >> 10) * KIB_NS + 1);
        for (slow_pages, done, goes_on) in [(&[][..], 8, 0), (&[2], 8, 0), (&[0, 1], 2, 8), (&[2, 5], 6, 8)] {
            let (looks, time, mut pages) = (Cell::new(0), Cell::new(0), Pages::new(true));
            // It is looked at before each page and behind it.
            let clock = || {
                let look = looks.replace(looks.get() + 1);
                let page = if slow_pages.contains(&(look / 2)) { slow } else { quick };
                time.replace(time.get() + if look % 2 == 0 { page } else { 0 })
            };
            (0..=USES).for_each(|_| _ = pages.large_part(at, data.len(), clock));
            let place = &pages.places[0];
            assert_eq!(place.goes_on, goes_on, "slow: {slow_pages:?}");
            // Up to where half of it is done, which begins within a page, or behind the last slow one.
            let most = (at & !(large - 1)) + done * large;
            let expected = if goes_on == 0 { (at + data.len() / 2).next_multiple_of(large) } else { most };
            assert_eq!(place.done, expected, "slow: {slow_pages:?}");
        }
    }

    /// Whatever its length: a page that takes 10 ms is one of 32 that 1 GiB would make in a use.
    #[test]
    fn slow_pages_take_a_share_of_the_time_of_all_uses() {
        use std::cell::Cell;
        const GIB: usize = 1 << 30;
        let mut pages = Pages { large: 2 << 20, ..Pages::default() };
        let time = Cell::new(0);
        let slow = || time.replace(time.get() + 10_000_000);
        // No page there is of this program, so none is made.
        let at = 1 << 46;
        for uses in 1..=1000_u64 {
            pages.large_part(at, GIB, slow);
            let spent = pages.places[0].spent;
            assert!(spent < uses * GIB as u64 / SLOW_BYTES + 20_000_000, "{spent} ns in {uses} uses");
        }
        assert!(time.get() > 1_000_000_000, "pages were looked at");
    }

    #[test]
    fn none_are_made_where_they_are_not_wanted_or_the_buffer_is_small() {
        let (mut unwanted, mut pages) = (Pages::new(false), Pages::new(true));
        let large = pages.large.max(2 << 20);
        let data = vec![1_u8; 8 * large];
        for _ in 0..2 * USES {
            assert!(unwanted.used(data.as_ptr(), data.len()).is_none());
            assert!(pages.used(data.as_ptr(), large - 1).is_none());
        }
        assert!(unwanted.places.is_empty() && pages.places.is_empty());
    }

    #[test]
    fn of_a_buffer_with_gaps_the_longest_row_counts() {
        let (at, large) = (5_000, 1_000);
        let part = |pages: &[usize], len: usize| {
            let mut place = Place::new(at, len);
            pages.iter().for_each(|page| place.add(*page, large));
            place.large_part()
        };
        assert_eq!(part(&[], 10_000), 0..0);
        assert_eq!(part(&[5_000, 6_000, 8_000], 10_000), 0..2_000);
        assert_eq!(part(&[5_000, 7_000, 8_000, 9_000, 12_000], 10_000), 2_000..5_000);
        // With bytes beside the buffer at both ends.
        assert_eq!(part(&[4_000, 5_000, 6_000], 1_500), 0..1_500);
    }

    #[test]
    fn memory_that_is_gone_is_refused_and_many_buffers_are_forgotten() {
        let mut pages = Pages::new(true);
        let large = pages.large;
        if large == 0 {
            let _ = writeln!(std::io::stderr(), "SKIPPED: a test of large pages: the system has none for who asks");
            return;
        }
        // The first pages are never mapped.
        let nowhere = std::ptr::without_provenance(8);
        assert!((0..20).all(|_| pages.used(nowhere, large + large / 2).is_none()));
        (1..3 * PLACES).for_each(|i| {
            pages.used(std::ptr::without_provenance(8 * i), large);
        });
        assert_eq!(pages.places.len(), PLACES);
        assert!(pages.places.iter().all(|place| place.at != nowhere.addr()));
    }
}
