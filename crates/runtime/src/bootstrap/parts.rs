//! Several roots for one initialisation (`ncclCommInitRankScalable`): which rank meets at which root, and how what is
//! said at one root comes to all.
//!
//! The ranks are divided into contiguous parts of almost equal size, one per root. Each part gathers at its own root;
//! the first rank of every part but the first is its *delegate*: it carries what its part said to the first root, as one
//! bundle, and brings back what all ranks said. So no root serves more than its part; the first one serves the
//! delegates too.

use std::ops::Range;

use oxccl_types::Result;

use super::wire::Reader;
use super::{Link, ROUNDS};

/// How the ranks are divided among the roots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parts {
    /// Ranks of the initialisation.
    pub ranks: usize,
    /// Roots, from 1 to as many as there are ranks.
    pub roots: usize,
}

impl Parts {
    /// The ranks of part `part`.
    pub(super) fn range(self, part: usize) -> Range<usize> {
        let (size, more) = (self.ranks / self.roots, self.ranks % self.roots);
        let start = |p: usize| p * size + p.min(more);
        start(part)..start(part + 1)
    }

    /// The part of `rank`; 0 of one that there is not.
    pub(super) fn of(self, rank: usize) -> usize {
        let (size, more) = (self.ranks / self.roots, self.ranks % self.roots);
        // The first parts have one rank more.
        let longer = more * (size + 1);
        match rank {
            r if r >= self.ranks => 0,
            r if r < longer => r / (size + 1),
            r => more + (r - longer) / size,
        }
    }

    /// Who comes to the root of `part`: its ranks, and at the first one the delegates. Ascending.
    pub(super) fn guests(self, part: usize) -> impl Iterator<Item = usize> {
        let delegates = (1..self.roots).filter(move |_| part == 0).map(move |p| self.range(p).start);
        self.range(part).chain(delegates)
    }

    /// How many these are.
    pub(super) fn guest_count(self, part: usize) -> usize {
        self.range(part).len() + if part == 0 { self.roots - 1 } else { 0 }
    }

    /// Whether `rank` is one of them.
    pub(super) fn is_guest(self, part: usize, rank: usize) -> bool {
        let own = self.of(rank);
        rank < self.ranks && (own == part || part == 0 && self.range(own).start == rank)
    }

    /// Rounds at the root of `part`: behind each of those of the first root comes one that hands out its result.
    pub(super) fn rounds(self, part: usize) -> u8 {
        if part == 0 { ROUNDS } else { 2 * ROUNDS }
    }
}

fn pack(all: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::with_capacity(all.iter().map(|b| b.len() + 4).sum());
    for bytes in all {
        out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        out.extend_from_slice(bytes);
    }
    out
}

fn unpack(packed: &[u8], count: usize) -> Option<Vec<Vec<u8>>> {
    let mut reader = Reader(packed);
    (0..count).map(|_| reader.bytes().map(<[u8]>::to_vec)).collect()
}

impl Link<'_> {
    /// One round: what all ranks said, by rank.
    pub(super) fn exchange(&mut self, round: u8, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        let Some(mut up) = self.up.take() else {
            return match self.part {
                0 => self.at_first_root(round, bytes),
                _ => self.through_delegate(round, bytes),
            };
        };
        let all = self.as_delegate(&mut up, round, bytes);
        self.up = Some(up);
        all
    }

    /// Bundles of the other parts are opened.
    fn at_first_root(&mut self, round: u8, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        let mut said = self.round_trip(round, bytes)?;
        if self.parts.roots == 1 {
            return Ok(said);
        }
        let bundles = said.split_off(self.parts.range(0).len());
        for (i, bundle) in bundles.iter().enumerate() {
            let part = unpack(bundle, self.parts.range(i + 1).len());
            said.extend(part.ok_or_else(|| self.protocol("a short bundle of another part"))?);
        }
        Ok(said)
    }

    fn as_delegate(&mut self, up: &mut Link<'_>, round: u8, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        let mine = self.round_trip(2 * round, bytes).inspect_err(|e| up.relay(e))?;
        let all = up.at_first_root(round, &pack(&mine)).inspect_err(|e| self.relay(e))?;
        let whole = [&up.nonce[..], &pack(&all)].concat();
        self.round_trip(2 * round + 1, &whole).inspect_err(|e| up.relay(e))?;
        self.nonce = up.nonce;
        Ok(all)
    }

    fn through_delegate(&mut self, round: u8, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.round_trip(2 * round, bytes)?;
        let whole = self.round_trip(2 * round + 1, &[])?;
        let mut reader = Reader(whole.first().map_or(&[][..], |b| b));
        let (nonce, all) = (reader.array(), unpack(reader.0, self.parts.ranks));
        self.nonce = nonce.ok_or_else(|| self.protocol("a short message of the delegate"))?;
        all.ok_or_else(|| self.protocol("a short message of the delegate"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rank_is_in_one_part_and_parts_are_even() {
        for ranks in 1..40 {
            for roots in 1..=ranks {
                let parts = Parts { ranks, roots };
                let mut next = 0;
                for part in 0..roots {
                    let range = parts.range(part);
                    assert_eq!(range.start, next);
                    assert!((ranks / roots..=ranks.div_ceil(roots)).contains(&range.len()));
                    assert!(range.clone().all(|r| parts.of(r) == part));
                    next = range.end;
                    let guests: Vec<usize> = parts.guests(part).collect();
                    assert_eq!(guests.len(), range.len() + if part == 0 { roots - 1 } else { 0 });
                    assert_eq!(guests.len(), parts.guest_count(part));
                    assert!(guests.is_sorted_by(|a, b| a < b));
                    assert!((0..ranks + 2).all(|r| parts.is_guest(part, r) == guests.contains(&r)));
                }
                assert_eq!(next, ranks);
            }
        }
    }

    #[test]
    fn bundles_round_trip() {
        let all = vec![vec![1, 2], vec![], vec![3]];
        assert_eq!(unpack(&pack(&all), 3), Some(all.clone()));
        assert_eq!(unpack(&pack(&all), 4), None);
    }
}
