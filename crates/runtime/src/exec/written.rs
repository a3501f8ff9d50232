//! Which bytes calls will write, for those behind them that read: marks for every eight bytes, made when they are needed.
//! A false alarm is possible, a miss is not.

use std::ops::Range;

/// Bytes per mark.
const GRAIN: usize = 8;
/// Words of marks: addresses that are a multiple of 256 KiB apart share one.
const WORDS: usize = 512;

/// Marks of the bytes that some calls write.
#[derive(Default)]
pub(super) struct Written {
    marks: Option<[u64; WORDS]>,
    /// Calls that are marked.
    marked: usize,
}

fn grains(bytes: &Range<usize>) -> impl Iterator<Item = (usize, u64)> {
    let first = bytes.start / GRAIN;
    let past = if bytes.is_empty() { first } else { (bytes.end - 1) / GRAIN + 1 };
    // More would only come round to the same ones.
    (first..past.min(first + WORDS * 64)).map(|grain| (grain / 64 % WORDS, 1 << (grain % 64)))
}

impl Written {
    /// Whether one of `calls` calls may write some of `bytes`, of which `writes` says what each writes: those of the look
    /// before are the first of them.
    #[cold]
    pub(super) fn meets(&mut self, bytes: Range<usize>, calls: usize, writes: impl Fn(usize) -> Range<usize>) -> bool {
        let marks = self.marks.get_or_insert([0; WORDS]);
        for call in self.marked..calls {
            grains(&writes(call)).for_each(|(word, bit)| marks[word] |= bit);
        }
        self.marked = calls;
        grains(&bytes).any(|(word, bit)| marks[word] & bit != 0)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_never_missed() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut rng = fastrand::Rng::with_seed(seed);
        let (mut found, mut free) = (0, 0);
        for _ in 0..200 {
            let spread = [500, 5000, 1 << 20][rng.usize(..3)];
            let mut draw = || {
                let at = 1_000_003 + rng.usize(..spread);
                at..at + [1, 4, 8, 8, 24, 300][rng.usize(..6)]
            };
            let mut all = vec![draw()];
            let mut written = Written::default();
            for _ in 0..60 {
                let read = draw();
                let meets = all.iter().any(|w| w.start < read.end && read.start < w.end);
                let says = written.meets(read.clone(), all.len(), |i| all[i].clone());
                assert!(says || !meets, "{read:?} in {all:?}, seed {seed}");
                (found, free) = (found + usize::from(says), free + usize::from(!says));
                all.push(draw());
            }
        }
        assert!(found > 0 && free > found / 4, "{found} found, {free} free");
    }

    #[test]
    fn neighbours_do_not_meet() {
        // In place, from the outside to the inside.
        let at = |i: usize| if i.is_multiple_of(2) { 4096 + 8 * i } else { 8192 - 8 * i };
        let mut written = Written::default();
        for i in 1..200 {
            let bytes = at(i)..at(i) + 8;
            assert!(!written.meets(bytes, i, |i| at(i)..at(i) + 8), "{i}");
        }
        assert!(written.meets(at(7)..at(7) + 1, 199, |_| unreachable!()));
    }
}
