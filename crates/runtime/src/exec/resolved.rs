//! The program of a direct call of medium size, resolved: for each op of its only channel where it reads and writes. Buffers that lie
//! elsewhere in the next call, in memory that is mapped already, only move what is there: see [`Resolved::moves_to`].

use std::cell::Cell;
use std::ops::RangeInclusive;

use oxccl_kernels as kernels;
use oxccl_kernels::Post;
use oxccl_schedule::ir::{Buffer, Chunk, Op, Place};
use oxccl_types::{Collective, DataType, Result};

use super::call::Call;
use super::collective::Engine;
use super::direct::{Bound, Buffers, begin};
use super::far::{self, Combination, Desk, Spot};
use super::plan::DirectPlan;
use crate::communicator::core::Core;

/// Bytes that a move touches of which a first-level cache (of 48 KiB, where that was measured), which has other things to hold as well, drops
/// some, but still has what the call before touched last. Beyond, what that is of the whole is no longer seen.
const RETURNS: RangeInclusive<usize> = (36 << 10)..=(256 << 10);
/// Bytes per place of a part of such a move that goes backwards: forwards within.
const PART: usize = 4 << 10;

/// A program resolved for one call.
#[derive(Default)]
pub(super) struct Resolved {
    spots: Vec<Spot>,
    /// Where each of them comes from.
    origins: Vec<Origin>,
    pub deeds: Vec<Deed>,
    /// Something stays where it is, in place: buffers that lie to each other in another way need another program.
    stays: bool,
    /// Its only move goes [back](Resolved::goes_back) every other time.
    returns: bool,
    /// It does so the next time.
    back: Cell<bool>,
}

/// So many bytes into a buffer of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Origin {
    member: usize,
    output: bool,
    offset: usize,
}

impl Origin {
    /// `None`: in scratch.
    fn of(bound: &Bound<'_>, place: &Place) -> Option<Origin> {
        let chunk = &place.chunk;
        let output = match chunk.buffer {
            Buffer::Input => false,
            Buffer::Output => true,
            Buffer::Scratch => return None,
        };
        Some(Origin { member: bound.core.member_of[place.rank as usize], output, offset: bound.offset(chunk) })
    }

    fn spot(&self, spots: &[Buffers]) -> Spot {
        let Buffers { input, output } = spots[self.member];
        if self.output { output } else { input }.add(self.offset)
    }

    /// Whether `next` is what follows `bytes` that begin here.
    fn goes_on_as(&self, next: &Origin, bytes: usize) -> bool {
        Origin { offset: self.offset + bytes, ..*self } == *next
    }
}

/// What an op of a resolved program does.
#[derive(Clone, Copy, Debug)]
pub(super) enum Deed {
    Nothing,
    /// Raises the flag to this epoch.
    Signal(u64),
    /// Waits for the flag of a member to be raised to an epoch. `pc`: which op of the program that is, since what is in front of
    /// it may be fewer deeds than ops.
    Wait {
        member: usize,
        epoch: u64,
        pc: usize,
    },
    /// Combines the spots from `at` on into those from `middle` on.
    Move {
        at: usize,
        middle: usize,
        end: usize,
        count: usize,
        post: Post,
    },
}

/// Resolves the program of `plan` for `call`; `false` where it is none that can be. `spots` of the engine are located.
pub(super) fn resolve(core: &Core, engine: &Engine, call: &Call, plan: &DirectPlan, to: &mut Resolved) -> bool {
    let [ops] = &plan.program.channels[..] else { return false };
    if plan.program.scratch_slots != 0 {
        return false;
    }
    to.clear();
    let bound = Bound { core, call, cursor: begin(call, plan) };
    let mut signals = 0;
    for (pc, op) in ops.iter().enumerate() {
        let own = |chunk: &Chunk| [Place { rank: core.rank as u32, chunk: *chunk }];
        let deed = match op {
            Op::Signal => {
                signals += 1;
                Some(Deed::Signal(signals))
            }
            Op::Wait { rank, epoch } => {
                Some(Deed::Wait { member: core.member_of[*rank as usize], epoch: u64::from(*epoch), pc })
            }
            Op::Copy { src, dst } => to.resolve_move(&bound, &engine.spots, &own(src), &own(dst)),
            Op::Move { srcs, dsts } => to.resolve_move(&bound, &engine.spots, srcs, dsts),
            _ => return false,
        };
        let Some(deed) = deed else { return false };
        if !to.join(deed, call.dtype.size()) {
            to.deeds.push(deed);
        }
    }
    to.returns = !engine.any_far && to.returns(call.dtype, kernels::travels_by_strings());
    true
}

impl Resolved {
    fn clear(&mut self) {
        self.spots.clear();
        self.origins.clear();
        self.deeds.clear();
        (self.stays, self.returns) = (false, false);
        self.back.set(false);
    }

    /// Whether there is one move, which touches as much as [`RETURNS`] says: of several each finds the caches as the others left them.
    /// Narrow types, which are converted, gain nothing, and copies were measured where whole `strings` are copied in either way.
    fn returns(&self, dtype: DataType, strings: bool) -> bool {
        let mut moves = self.deeds.iter().filter(|deed| matches!(deed, Deed::Move { .. }));
        let (Some(Deed::Move { at, middle, end, count, .. }), None) = (moves.next(), moves.next()) else {
            return false;
        };
        let gains = if middle - at == 1 { strings } else { dtype.size() >= size_of::<f32>() };
        gains && RETURNS.contains(&(count * dtype.size() * (end - at)))
    }

    /// Whether the move takes its parts from the last one to the first this time. So does every other one that is carried out here in the same
    /// buffers: it begins with what the call before touched last, which the cache still has. Who always goes the same way comes to
    /// what was dropped.
    fn goes_back(&self) -> bool {
        self.returns && self.back.replace(!self.back.get())
    }

    fn add(&mut self, origin: Origin, spots: &[Buffers]) {
        self.spots.push(origin.spot(spots));
        self.origins.push(origin);
    }

    /// `None`: scratch is no place of a resolved program.
    fn resolve_move(&mut self, bound: &Bound<'_>, spots: &[Buffers], srcs: &[Place], dsts: &[Place]) -> Option<Deed> {
        let Some(first) = dsts.first() else { return Some(Deed::Nothing) };
        let range = bound.range(&first.chunk);
        let at = self.spots.len();
        for place in srcs {
            self.add(Origin::of(bound, place)?, spots);
        }
        let middle = self.spots.len();
        let here = self.spots[at];
        for place in dsts {
            let origin = Origin::of(bound, place)?;
            // In place: what is there already.
            if srcs.len() == 1 && origin.spot(spots) == here {
                self.stays = true;
                continue;
            }
            self.add(origin, spots);
        }
        if range.is_empty() || self.spots.len() == middle {
            return Some(Deed::Nothing);
        }
        let post = if srcs.len() == bound.core.ranks { bound.call.post } else { Post::None };
        let count = (range.end - range.start) as usize;
        Some(Deed::Move { at, middle, end: self.spots.len(), count, post })
    }

    /// Adds `next` to the last deed where it goes on where that one ends: fewer calls of the kernel.
    fn join(&mut self, next: Deed, element: usize) -> bool {
        let Some(Deed::Move { at, middle, end, count, .. }) = self.deeds.last_mut() else { return false };
        let Deed::Move { at: from, middle: to, end: last, count: more, .. } = next else { return false };
        let bytes = *count * element;
        let alike = (*middle - *at, *end - *middle) == (to - from, last - to);
        let goes_on = |i: usize| self.origins[*at + i].goes_on_as(&self.origins[from + i], bytes);
        if !alike || !(0..last - from).all(goes_on) {
            return false;
        }
        *count += more;
        true
    }

    /// The input and the output of each member begin `at` these addresses here now, in one call as in the other in mapped memory:
    /// `false` if the program must be resolved anew.
    pub(super) fn moves_to(&mut self, at: &[[*mut u8; 2]]) -> bool {
        if self.stays {
            return false;
        }
        self.back.set(false);
        for (spot, origin) in self.spots.iter_mut().zip(&self.origins) {
            // `wrapping_add`: the address may be one of an empty buffer.
            *spot = Spot::near(at[origin.member][usize::from(origin.output)].wrapping_add(origin.offset));
        }
        // Nothing was in place, and nothing may be.
        let apart = |deed: &Deed| match *deed {
            Deed::Move { at, middle, end, .. } if middle - at == 1 => {
                !self.spots[middle..end].contains(&self.spots[at])
            }
            _ => true,
        };
        self.deeds.iter().all(apart)
    }

    /// Carries out the move of these spots. Calls that are made so are short (`at_once_direct`): nothing goes past the caches.
    pub(super) fn carry_out(
        &self,
        engine: &mut Engine,
        call: &Call,
        parts: [usize; 3],
        count: usize,
        post: Post,
    ) -> Result<()> {
        let [at, middle, end] = parts;
        let (srcs, dsts) = (&self.spots[at..middle], &self.spots[middle..end]);
        let Engine { any_far, bounce, cached, srcs: from, dsts: to, .. } = engine;
        if *any_far {
            let how = Combination { dtype: call.dtype, op: call.op, post };
            let whole = count * call.dtype.size();
            let desk = &mut Desk { bounce, cached: *cached, whole, from, to };
            // SAFETY: as in `direct::run_move`.
            return unsafe { far::run(how, desk, srcs, dsts, count) };
        }
        if self.goes_back() {
            let how = Combination { dtype: call.dtype, op: call.op, post };
            // SAFETY: as in `direct::run_move`.
            unsafe { move_back(how, srcs, dsts, (from, to), count) };
            return Ok(());
        }
        // SAFETY: as in `direct::run_move`.
        unsafe {
            if let ([src], [dst]) = (srcs, dsts) {
                let (dst, src, bytes) = (dst.at, src.at.cast_const(), count * call.dtype.size());
                let alone =
                    matches!(call.collective, Collective::Gather | Collective::Scatter) && dst.cast_const() != src;
                if alone {
                    kernels::copy_alone(dst, src, bytes)
                } else {
                    kernels::copy(&[dst], src, bytes)
                }
                return Ok(());
            }
            to.clear();
            to.extend(dsts.iter().map(|s| s.at));
            if let [src] = srcs {
                kernels::copy(to, src.at.cast_const(), count * call.dtype.size());
                return Ok(());
            }
            from.clear();
            from.extend(srcs.iter().map(|s| s.at.cast_const()));
            kernels::reduce(call.dtype, call.op, to, from, count, post);
        }
        Ok(())
    }
}

/// Combines `count` elements of `srcs` into `dsts`, the last [`PART`] of them first. `from`, `to`: where the addresses go.
///
/// # Safety
/// As [`kernels::reduce`].
#[inline(never)]
unsafe fn move_back(
    how: Combination,
    srcs: &[Spot],
    dsts: &[Spot],
    (from, to): (&mut Vec<*const u8>, &mut Vec<*mut u8>),
    count: usize,
) {
    let size = how.dtype.size();
    for (at, n) in parts_back(count, PART / size) {
        let first = at * size;
        to.clear();
        to.extend(dsts.iter().map(|s| s.at.wrapping_add(first)));
        from.clear();
        from.extend(srcs.iter().map(|s| s.at.cast_const().wrapping_add(first)));
        // SAFETY: the caller's promise; a part lies within.
        unsafe {
            match from[..] {
                [src] => kernels::copy(to, src, n * size),
                _ => kernels::reduce_part(how.dtype, how.op, to, from, n, how.post, count),
            }
        }
    }
}

/// Where parts of `most` elements begin, and how many each has, the last one first, which alone may have fewer.
fn parts_back(count: usize, most: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..count).step_by(most).rev().map(move |at| (at, most.min(count - at)))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// A move from two places to a third, each of which begins so many bytes behind where all do.
    fn sum(to: &mut Resolved, from: [usize; 3], count: usize) -> Deed {
        let at = to.spots.len();
        let places = [(0, false), (1, false), (0, true)].into_iter().zip(from);
        let here = vec![Buffers::NONE; 2];
        places.for_each(|((member, output), offset)| to.add(Origin { member, output, offset }, &here));
        Deed::Move { at, middle: at + 2, end: at + 3, count, post: Post::None }
    }

    #[test]
    fn parts_of_a_move_that_goes_backwards_are_all_of_it() {
        assert_eq!(parts_back(2500, 1024).collect::<Vec<_>>(), [(2048, 452), (1024, 1024), (0, 1024)]);
        assert_eq!(parts_back(2048, 1024).collect::<Vec<_>>(), [(1024, 1024), (0, 1024)]);
        assert_eq!(parts_back(3, 1024).collect::<Vec<_>>(), [(0, 3)]);
    }

    /// A program of sums of two buffers, of so many elements each.
    fn sums(counts: &[usize]) -> Resolved {
        let mut resolved = Resolved::default();
        for count in counts {
            let deed = sum(&mut resolved, [0; 3], *count);
            resolved.deeds.extend([deed, Deed::Signal(1)]);
        }
        resolved
    }

    #[test]
    fn one_move_of_what_the_first_cache_cannot_hold_goes_back() {
        let returns = |counts: &[usize]| sums(counts).returns(DataType::Float32, false);
        let (least, most) = (RETURNS.start() / 12, RETURNS.end() / 12);
        assert!(returns(&[least]) && returns(&[most]));
        assert!(!returns(&[least - 1]) && !returns(&[most + 1]));
        assert!(!returns(&[least, least]), "the second of them drives out what the first one left");
        assert!(!returns(&[]));
        assert!(!sums(&[2 * least]).returns(DataType::Float16, true), "converted");
        let mut copy = Resolved::default();
        copy.deeds.push(Deed::Move { at: 0, middle: 1, end: 2, count: 2 * least, post: Post::None });
        assert!(copy.returns(DataType::Float32, true) && !copy.returns(DataType::Float32, false));
    }

    #[test]
    fn every_other_call_in_the_same_buffers_goes_back() {
        let mut resolved = sums(&[8192]);
        assert!(!resolved.goes_back() && !resolved.goes_back(), "it does not return");
        resolved.returns = true;
        assert_eq!([(); 4].map(|()| resolved.goes_back()), [false, true, false, true]);
        assert!(!resolved.goes_back());
        assert!(resolved.moves_to(&[[std::ptr::null_mut(); 2]; 2]));
        assert!(!resolved.goes_back(), "buffers that lie elsewhere are in no cache");
        resolved.clear();
        assert!(!resolved.returns);
    }

    #[test]
    fn moves_are_joined_only_where_all_of_the_last_one_goes_on() {
        for (from, joined) in
            [([400; 3], true), ([404, 400, 400], false), ([400, 0, 400], false), ([400, 400, 404], false)]
        {
            let mut resolved = Resolved::default();
            let first = sum(&mut resolved, [0; 3], 100);
            let next = sum(&mut resolved, from, 50);
            resolved.deeds.push(first);
            assert_eq!(resolved.join(next, 4), joined, "{from:?}");
            let Deed::Move { count, .. } = resolved.deeds[0] else { unreachable!() };
            assert_eq!(count, if joined { 150 } else { 100 }, "{from:?}");
        }
        let mut resolved = Resolved::default();
        let first = sum(&mut resolved, [0; 3], 100);
        let Deed::Move { at, middle, .. } = sum(&mut resolved, [400; 3], 50) else { unreachable!() };
        let copy = Deed::Move { at, middle: at + 1, end: middle, count: 50, post: Post::None };
        let mut behind = |last: Option<Deed>, next: Deed| {
            resolved.deeds = Vec::from_iter(last);
            resolved.join(next, 4)
        };
        assert!(!behind(Some(first), copy), "a copy is no sum");
        assert!(!behind(Some(Deed::Signal(1)), first) && !behind(None, first));
    }

    #[test]
    fn buffers_of_one_member_do_not_go_on_as_those_of_another() {
        let origin = Origin { member: 1, output: false, offset: 64 };
        assert!(origin.goes_on_as(&Origin { offset: 96, ..origin }, 32));
        for other in [Origin { member: 0, offset: 96, ..origin }, Origin { output: true, offset: 96, ..origin }] {
            assert!(!origin.goes_on_as(&other, 32), "{other:?}");
        }
    }

    #[test]
    fn spots_follow_their_buffers_but_not_into_place() {
        let at = |n: usize| std::ptr::without_provenance_mut::<u8>(n);
        let mut resolved = Resolved::default();
        let deed = sum(&mut resolved, [8, 16, 24], 1);
        resolved.deeds.push(deed);
        assert!(resolved.moves_to(&[[at(1000), at(2000)], [at(3000), at(4000)]]));
        let lies = |resolved: &Resolved| resolved.spots.iter().map(|s| s.at.addr()).collect::<Vec<_>>();
        assert_eq!(lies(&resolved), [1008, 3016, 2024]);
        // One that is copied.
        let here = vec![Buffers::NONE; 2];
        let mut resolved = Resolved::default();
        resolved.add(Origin { member: 0, output: false, offset: 8 }, &here);
        resolved.add(Origin { member: 0, output: true, offset: 0 }, &here);
        resolved.deeds.push(Deed::Move { at: 0, middle: 1, end: 2, count: 2, post: Post::None });
        assert!(resolved.moves_to(&[[at(1000), at(2000)]]));
        assert!(!resolved.moves_to(&[[at(1000), at(1008)]]), "it would be copied to where it is");
        assert!(resolved.moves_to(&[[at(1008), at(1000)]]));
        resolved.stays = true;
        assert!(!resolved.moves_to(&[[at(1000), at(2000)]]));
    }
}
