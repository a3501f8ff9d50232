//! Where a rank copies what peers are to take and cannot map: memory of its own that they can, used like a ring. What lies there is
//! taken as what is lent is (`lent_v`, `messages`), so that nobody answers for it but what the peers say anyway.
//!
//! It knows what is in use and until when, not what it is. Made on first use.

use std::collections::VecDeque;

/// Bytes of the ring: those of many short inputs, so that ranks that share cores begin many calls before one ends. Measured with half,
/// twice and four times as many (docs/performance.md).
const ROOM: usize = 1 << 20;
/// Bytes of one input at most: one is taken while the next one is put there.
pub(super) const MOST: usize = ROOM / 2;
/// Bytes of a cache line, of which every place is a whole number.
pub(super) const LINE: usize = 64;

/// The places of the ring.
#[derive(Debug, Default)]
struct Places {
    /// Where the next one begins, counted from the first one on.
    head: usize,
    /// Call and beginning of those in use, in the order in which they were taken: about that of the calls.
    used: VecDeque<(u64, usize)>,
}

impl Places {
    /// Where in the ring `bytes` bytes, of [`MOST`] at most, have room now, all in one place; `None` while too much is in use.
    fn find(&self, bytes: usize) -> Option<usize> {
        let begin = self.begin(bytes);
        let oldest = self.used.front().map_or(begin, |(_, begin)| *begin);
        (begin + bytes - oldest <= ROOM).then_some(begin % ROOM)
    }

    /// The beginning of the next place of `bytes` bytes: not across the end of the ring.
    fn begin(&self, bytes: usize) -> usize {
        let left = ROOM - self.head % ROOM;
        if bytes <= left { self.head } else { self.head + left }
    }

    /// Call `seq` uses the place that [`find`](Self::find) said.
    fn take(&mut self, seq: u64, bytes: usize) {
        let begin = self.begin(bytes);
        self.head = begin + bytes.next_multiple_of(LINE);
        self.used.push_back((seq, begin));
    }

    /// Forgets the places of the first calls of which `is_over` says that they are over. Who has none in use begins anew: the
    /// lines that were used last are those that are still in its cache.
    fn free(&mut self, is_over: impl Fn(u64) -> bool) {
        while self.used.front().is_some_and(|(seq, _)| is_over(*seq)) {
            self.used.pop_front();
        }
        if self.used.is_empty() {
            self.head = 0;
        }
    }
}

/// How many inputs of `bytes` bytes have room, at least: one may have to begin anew at the front.
pub(super) fn window(bytes: usize) -> u64 {
    (ROOM / bytes.next_multiple_of(LINE).max(LINE)).saturating_sub(1).max(1) as u64
}

/// The memory, with its places.
#[derive(Debug, Default)]
pub(crate) struct Stage {
    memory: usize,
    /// There is none, and will be none.
    refused: bool,
    places: Places,
}

impl Stage {
    /// Where `bytes` bytes, of [`MOST`] at most, may be put now for the next call; `None` while those of earlier calls are in the way,
    /// or where the kernel refuses the memory. `is_over`: nobody reads any more what the call lent.
    pub(super) fn place(&mut self, bytes: usize, is_over: impl Fn(u64) -> bool) -> Option<*mut u8> {
        self.places.free(is_over);
        if self.memory == 0 && !self.refused {
            // By itself: peers map no more than this, and a late one never reads what somebody else has put there since.
            self.memory = crate::device::alloc_alone(ROOM).map_or(0, |memory| memory.expose_provenance());
            self.refused = self.memory == 0;
        }
        if self.refused {
            return None;
        }
        let at = self.places.find(bytes)?;
        Some(std::ptr::with_exposed_provenance_mut(self.memory + at))
    }

    /// Whether the kernel has refused the memory.
    pub(super) fn is_refused(&self) -> bool {
        self.refused
    }

    /// Call `seq` lends the `bytes` bytes at the place that was found last, until it is over.
    pub(super) fn lend(&mut self, seq: u64, bytes: usize) {
        self.places.take(seq, bytes);
    }

    /// Bytes that [`clear`](Self::clear) gives back.
    pub(crate) fn bytes(&self) -> usize {
        if self.memory == 0 { 0 } else { ROOM }
    }

    /// Gives the memory back; no call uses it.
    pub(crate) fn clear(&mut self) {
        // SAFETY: no peer reads it any more: the calls that lent it are over, or the communicator has ended. An error would mean
        // that the registry does not know its own allocation; there is nothing left to free then.
        let _ = unsafe { crate::device::free(std::ptr::with_exposed_provenance_mut(self.memory)) };
        (self.memory, self.places) = (0, Places::default());
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes that calls use which are not over, in the ring.
    fn used(calls: &[(u64, usize, usize)]) -> Vec<std::ops::Range<usize>> {
        calls.iter().map(|(_, at, bytes)| *at..at + bytes).collect()
    }

    /// Inputs of all lengths, of calls that end late, lie inside the ring, from a line on, and never where another one is in use.
    #[test]
    fn no_place_is_given_twice_while_it_is_in_use() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut places = Places::default();
        let mut calls: Vec<(u64, usize, usize)> = Vec::new();
        let mut refused = 0;
        for seq in 1..20_000 {
            let over = calls.first().map_or(seq, |(first, ..)| *first) + rng.u64(..2);
            places.free(|seq| seq < over);
            calls.retain(|(seq, ..)| *seq >= over);
            let most = [100, 9000, MOST][rng.usize(..3)];
            let bytes = rng.usize(1..=most);
            let Some(at) = places.find(bytes) else {
                refused += 1;
                continue;
            };
            assert!(at % LINE == 0 && at + bytes <= ROOM, "{at} {bytes}");
            let meets = used(&calls).into_iter().find(|other| other.start < at + bytes && at < other.end);
            assert!(meets.is_none(), "{bytes} bytes at {at} lie in {meets:?}");
            places.take(seq, bytes);
            calls.push((seq, at, bytes));
        }
        assert!((100..15_000).contains(&refused), "{refused} were refused");
    }

    /// As many calls as the window says may be under way, each as long as the first one, find room, wherever the ring begins.
    #[test]
    fn a_window_of_calls_has_room() {
        for bytes in [1, 64, 5000, 65_536, 65_537, 300_000, MOST - 1, MOST] {
            let (mut places, window) = (Places::default(), window(bytes));
            for seq in 1..5 * window + 50 {
                places.free(|call| call + window <= seq);
                assert!(places.find(bytes).is_some(), "{bytes} bytes, call {seq} of a window of {window}");
                places.take(seq, bytes);
            }
        }
        assert_eq!((window(0), window(MOST)), ((ROOM / LINE) as u64 - 1, 1));
    }

    #[test]
    fn who_has_nothing_in_use_begins_with_the_first_line() {
        let mut places = Places::default();
        places.take(1, 1000);
        places.take(2, 1000);
        places.free(|seq| seq == 1);
        assert_eq!(places.find(10), Some(2048));
        places.free(|seq| seq == 2);
        assert_eq!(places.find(10), Some(0));
    }
}
