//! What a message program sends to several peers that share memory, and these cannot map: copied once, to where they can
//! ([`stage`](super::stage)), for all of them. Where there is no room each gets its own copy by slots.
//!
//! It knows which copies there are, not when their readers are done: the program says when its call is over, and has waited for that.

use oxccl_kernels as kernels;

use super::stage::{self, Stage};

/// A piece of what a call sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct What {
    pub seq: u64,
    pub channel: usize,
    /// The first op of the channel that sends it.
    pub first: usize,
    pub piece: u64,
}

/// The copies of calls that are not over.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    made: Vec<(What, *const u8)>,
    /// The last call that is over; those in front of it are.
    over: u64,
}

impl Copies {
    /// Where the copy lies of the `bytes` bytes at `data`, made now if there is none; `None` where there is no room for it.
    ///
    /// # Safety
    /// `[data, data + bytes)` is readable, and every call by `what` says the same bytes.
    pub(super) unsafe fn of(
        &mut self,
        stage: &mut Stage,
        what: What,
        data: *const u8,
        bytes: usize,
    ) -> Option<*const u8> {
        if let Some((_, at)) = self.made.iter().rev().find(|(made, _)| *made == what) {
            return Some(*at);
        }
        if bytes > stage::MOST {
            return None;
        }
        let over = self.over;
        let at = stage.place(bytes, |seq| seq <= over)?;
        // SAFETY: readable by contract; the place is that of nobody else who is not over.
        unsafe { kernels::copy_across(at, data, bytes, bytes) };
        stage.lend(what.seq, bytes);
        self.made.push((what, at));
        Some(at)
    }

    /// Call `seq` is over, and all readers of its copies are done.
    pub(super) fn end(&mut self, seq: u64) {
        self.over = seq;
        self.made.retain(|(what, _)| what.seq > seq);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_serves_until_its_call_is_over() {
        let (mut copies, mut stage) = (Copies::default(), Stage::default());
        let data: Vec<u8> = (0..stage::MOST).map(|i| (i % 251) as u8).collect();
        let what = |seq, first| What { seq, channel: 0, first, piece: 0 };
        // SAFETY: the bytes are there.
        let mut of = |copies: &mut Copies, what| unsafe { copies.of(&mut stage, what, data.as_ptr(), data.len()) };
        let a = of(&mut copies, what(1, 0)).expect("room");
        assert_eq!(of(&mut copies, what(1, 0)), Some(a));
        // SAFETY: as long as that.
        assert!(unsafe { std::slice::from_raw_parts(a, data.len()) } == data);
        let b = of(&mut copies, what(1, 1)).expect("room");
        assert!(a != b && of(&mut copies, what(2, 0)).is_none(), "both halves are in use");
        copies.end(1);
        assert!(of(&mut copies, what(2, 0)).is_some());
        // SAFETY: not read.
        let long = unsafe { Copies::default().of(&mut Stage::default(), what(1, 0), data.as_ptr(), stage::MOST + 1) };
        assert!(long.is_none());
    }
}
