//! The peers that the rest of a step of an exchange passes by: an earlier message of theirs is still on its way, and theirs are
//! taken in order. A group of many messages is gone through once a step, however many there are with each peer.

/// A set of ranks, emptied without going through them.
#[derive(Debug, Default)]
pub(super) struct Passed {
    round: u32,
    /// By rank: the round in which it was put there last.
    of: Vec<u32>,
    count: usize,
}

impl Passed {
    /// Passes nobody by any more, of this many ranks.
    #[inline]
    pub(super) fn empty(&mut self, ranks: usize) {
        if self.of.len() != ranks || self.round == u32::MAX {
            self.forget(ranks);
        }
        self.round += 1;
        self.count = 0;
    }

    #[cold]
    fn forget(&mut self, ranks: usize) {
        self.of.clear();
        self.of.resize(ranks, 0);
        self.round = 0;
    }

    /// From here on passes `peer` by.
    #[inline]
    pub(super) fn put(&mut self, peer: u32) {
        self.count += usize::from(!self.has(peer));
        self.of[peer as usize] = self.round;
    }

    /// Whether it passes `peer` by.
    #[inline]
    pub(super) fn has(&self, peer: u32) -> bool {
        self.of[peer as usize] == self.round
    }

    /// Whether nobody is left but the rank itself.
    #[inline]
    pub(super) fn all(&self) -> bool {
        self.count + 1 >= self.of.len()
    }
}

#[cfg(test)]
mod tests {
    use super::Passed;

    #[test]
    fn rounds_do_not_see_each_other() {
        let mut passed = Passed::default();
        for start in [0, u32::MAX - 1] {
            passed.round = start;
            for _ in 0..3 {
                passed.empty(4);
                assert!((0..4).all(|peer| !passed.has(peer)) && !passed.all());
                [3, 1, 3].into_iter().for_each(|peer| passed.put(peer));
                assert!(passed.has(1) && !passed.has(2) && passed.has(3) && !passed.all());
                passed.put(0);
                assert!(passed.all());
            }
        }
    }
}
