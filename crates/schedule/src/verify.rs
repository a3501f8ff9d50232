//! The verifier: is a schedule well formed, free of deadlock and races, and does it do what the collective promises?
//!
//! It takes every order of running into account: deadlock freedom does not depend on the order (see `engine.rs`), and
//! races are looked for with vector clocks, which know only the orders that messages and signals enforce.

use crate::defect::{Defect, Kind};
use crate::engine;
use crate::ir::{Buffer, Chunk, Needs, Op, Place, Program, Rank, Schedule};
use crate::memory::{Layout, same_extent};
use crate::race::Races;
use crate::symbolic::Oracle;
use std::collections::BTreeMap;

/// What the schedule has to live with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Slots of each connection, at least 1.
    pub slots: u32,
    /// Iterations to check. Two halves of Scratch need 3 to show every reuse.
    pub pieces: u32,
}

/// What is known of a correct schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Ops of all ranks in one iteration.
    pub ops: usize,
    /// Messages of all ranks in one iteration.
    pub messages: usize,
    /// Whether it ends even if a send only completes once it is received (0 slots).
    pub rendezvous_ok: bool,
}

/// Checks `s` for everything.
///
/// # Errors
/// The first defect, with its place.
pub fn verify(s: &Schedule, limits: Limits) -> Result<Report, Defect> {
    verify_with(s, limits, |layout| layout)
}

/// As [`verify`], of a schedule of two ranks that write their scratch in turns: one half of it, of which each has the other's in
/// every second iteration, so that it writes where it has read last. Of each rank one block goes through it, whatever its slot, but
/// of an all-reduce those of all slots.
///
/// # Errors
/// As [`verify`].
pub fn verify_in_turns(s: &Schedule, limits: Limits) -> Result<Report, Defect> {
    if s.shape.ranks != 2 {
        return Err(Defect::at_rank(Kind::Malformed, 0, format!("{} ranks do not take turns", s.shape.ranks)));
    }
    verify_with(s, limits, Layout::in_turns)
}

fn verify_with(s: &Schedule, limits: Limits, layout: impl Fn(Layout) -> Layout) -> Result<Report, Defect> {
    check_form(s)?;
    check_pairing(s)?;
    deadlock_free(s, limits.slots.max(1), limits.pieces)?;
    let layout = layout(Layout::new(s, limits.pieces)?);
    let mut oracle = Oracle::new(s, &layout);
    let mut races = Races::new(s, &layout);
    for channel in 0..s.shape.channels {
        races.start_channel();
        // It has run to its end above, with the same slots.
        let _ = engine::run(s, channel, limits.slots.max(1), limits.pieces, |step| {
            races.step(channel, step)?;
            oracle.step(channel, step)
        })?;
        races.end_channel(channel)?;
    }
    oracle.finish()?;
    let ops = || s.programs.iter().flat_map(|p| p.channels.iter().flatten());
    Ok(Report {
        ops: ops().count(),
        messages: ops().filter(|o| o.sends_to().is_some()).count(),
        rendezvous_ok: (0..s.shape.channels).all(|c| ends(s, c, 0, limits.pieces).is_ok()),
    })
}

/// Checks that `s` ends with `slots` slots per connection (0: rendezvous), in any order of running.
///
/// # Errors
/// The op at which the first rank is stuck, and the circle of ranks that wait for each other. `s` must be well formed.
pub fn deadlock_free(s: &Schedule, slots: u32, pieces: u32) -> Result<(), Defect> {
    for channel in 0..s.shape.channels {
        ends(s, channel, slots, pieces).map_err(|stuck| explain_deadlock(s, channel, slots, &stuck))?;
    }
    Ok(())
}

/// Checks that `s` touches nothing but what `needs` gives its ranks: connections, or memory of others that they have mapped.
///
/// # Errors
/// The first op that reaches further. `s` must be well formed.
pub fn keeps_to(s: &Schedule, needs: Needs) -> Result<(), Defect> {
    for p in &s.programs {
        for (channel, ops) in p.channels.iter().enumerate() {
            for (at, op) in ops.iter().enumerate() {
                if let Some(what) = beyond(p.rank, op, needs) {
                    let what = format!("{what}, and its algorithm says that it needs {needs:?}");
                    return Err(Defect::at_op(Kind::Malformed, s, p.rank, channel as u32, at, what));
                }
            }
        }
    }
    Ok(())
}

/// What `op` of rank `me` uses that `needs` does not give.
fn beyond(me: Rank, op: &Op, needs: Needs) -> Option<&'static str> {
    let messages = op.sends_to().or(op.receives_from()).is_some();
    match (needs, op) {
        (Needs::Messages, Op::Move { .. } | Op::Signal | Op::Wait { .. }) => Some("it uses mapped memory"),
        (Needs::MappedUser | Needs::MappedScratch, _) if messages => Some("it uses a connection"),
        (Needs::MappedScratch, Op::Move { srcs, dsts }) => srcs
            .iter()
            .chain(dsts)
            .any(|place| place.rank != me && place.chunk.buffer != Buffer::Scratch)
            .then_some("it uses another rank's buffer"),
        _ => None,
    }
}

fn ends(s: &Schedule, channel: u32, slots: u32, pieces: u32) -> Result<(), engine::Stuck> {
    match engine::run(s, channel, slots, pieces, |_| Ok::<(), std::convert::Infallible>(())) {
        Ok(end) => end,
        Err(never) => match never {},
    }
}

/// Follows who waits for whom until a rank comes again, or a rank that has ended.
fn explain_deadlock(s: &Schedule, channel: u32, slots: u32, stuck: &engine::Stuck) -> Defect {
    let on: BTreeMap<Rank, Rank> = stuck.steps.iter().map(|(step, on)| (step.rank, *on)).collect();
    let (first, _) = stuck.steps[0];
    let mut chain = vec![first.rank];
    let mut at = first.rank;
    while let Some(&next) = on.get(&at) {
        let seen = chain.contains(&next);
        chain.push(next);
        at = next;
        if seen {
            break;
        }
    }
    let end = if on.contains_key(&at) { "a circle" } else { "the last has ended" };
    let shown: Vec<String> = chain.iter().take(20).map(Rank::to_string).collect();
    let what = format!(
        "stuck in iteration {} with {slots} slots per connection; ranks wait for each other: {} ({end})",
        first.piece,
        shown.join(" -> ")
    );
    Defect::at_op(Kind::Deadlock, s, first.rank, channel, first.op, what)
}

/// Programs agree with the shape and each other; peers and chunks exist; lengths agree within an op.
fn check_form(s: &Schedule) -> Result<(), Defect> {
    let bad = |rank, what: String| Err(Defect::at_rank(Kind::Malformed, rank, what));
    if s.programs.len() != s.shape.ranks as usize {
        return bad(0, format!("{} programs for {} ranks", s.programs.len(), s.shape.ranks));
    }
    let first = &s.programs[0];
    for (i, p) in s.programs.iter().enumerate() {
        let rank = i as Rank;
        if p.rank != rank || p.channels.len() != s.shape.channels as usize {
            return bad(rank, format!("is the program of rank {} with {} channels", p.rank, p.channels.len()));
        }
        if (p.scratch_slots, p.epochs) != (first.scratch_slots, first.epochs) {
            let (a, b) = ((p.scratch_slots, p.epochs), (first.scratch_slots, first.epochs));
            return bad(rank, format!("scratch slots and epochs {a:?} differ from those of rank 0, {b:?}"));
        }
        for (channel, ops) in p.channels.iter().enumerate() {
            let mut signals = 0;
            for (index, op) in ops.iter().enumerate() {
                signals += u32::from(matches!(op, Op::Signal));
                check_op(s, p, op, signals)
                    .map_err(|what| Defect::at_op(Kind::Malformed, s, rank, channel as u32, index, what))?;
                if let Op::Wait { rank: other, epoch } = *op {
                    let theirs = s.programs[other as usize].channels.get(channel).map_or(0, |l| signals_of(l));
                    if epoch > theirs {
                        let what = format!("rank {other} signals {theirs} times only");
                        return Err(Defect::at_op(Kind::Deadlock, s, rank, channel as u32, index, what));
                    }
                }
            }
        }
    }
    Ok(())
}

fn signals_of(ops: &[Op]) -> u32 {
    ops.iter().filter(|o| matches!(o, Op::Signal)).count() as u32
}

fn check_op(s: &Schedule, p: &Program, op: &Op, signals: u32) -> Result<(), String> {
    for peer in op.receives_from().into_iter().chain(op.sends_to()) {
        if peer >= s.shape.ranks || peer == p.rank {
            return Err(format!("{peer} is no peer of rank {}", p.rank));
        }
    }
    if signals > p.epochs {
        return Err(format!("signal {signals} of an iteration that has {} epochs", p.epochs));
    }
    if let Op::Wait { rank, epoch } = *op {
        let known = rank < s.shape.ranks && rank != p.rank;
        return if known && (1..=p.epochs).contains(&epoch) { Ok(()) } else { Err("no such peer or epoch".into()) };
    }
    let (reads, writes) = op.accesses(p.rank);
    if let Op::Move { srcs, dsts } = op
        && (srcs.is_empty() || dsts.is_empty())
    {
        return Err("moves nothing".into());
    }
    let mut all = reads.iter().chain(&writes);
    for place in all.clone() {
        check_place(s, p, place)?;
    }
    if writes.iter().any(|w| w.chunk.buffer == Buffer::Input) {
        return Err("writes to Input (in-place memory is written as Output)".into());
    }
    let Some(first) = all.next() else { return Ok(()) };
    match all.find(|x| !same_extent(&x.chunk, &first.chunk)) {
        Some(other) => Err(format!("{} and {} differ in length", first.chunk, other.chunk)),
        None => Ok(()),
    }
}

fn check_place(s: &Schedule, p: &Program, place: &Place) -> Result<(), String> {
    let Place { rank, chunk } = place;
    if *rank >= s.shape.ranks {
        return Err(format!("rank {rank} does not exist"));
    }
    let blocks = match chunk.buffer {
        Buffer::Input => s.shape.input_blocks(*rank),
        Buffer::Output => s.shape.output_blocks(*rank),
        Buffer::Scratch => p.scratch_slots,
    };
    if chunk.block >= blocks || chunk.part >= chunk.parts {
        return Err(format!("{chunk} does not exist on rank {rank}, which has {blocks} such blocks"));
    }
    Ok(())
}

/// A message end: op index and the chunk that gives the length.
type End = (usize, Chunk);

/// In every connection the `i`-th send of an iteration has the length of the `i`-th receive.
fn check_pairing(s: &Schedule) -> Result<(), Defect> {
    for channel in 0..s.shape.channels {
        let mut links: BTreeMap<(Rank, Rank), (Vec<End>, Vec<End>)> = BTreeMap::new();
        for p in &s.programs {
            for (i, op) in p.channels[channel as usize].iter().enumerate() {
                let (reads, writes) = op.accesses(p.rank);
                let Some(place) = reads.first().or(writes.first()) else { continue };
                if let Some(to) = op.sends_to() {
                    links.entry((p.rank, to)).or_default().0.push((i, place.chunk));
                }
                if let Some(from) = op.receives_from() {
                    links.entry((from, p.rank)).or_default().1.push((i, place.chunk));
                }
            }
        }
        for ((from, to), (sends, receives)) in links {
            pair(s, channel, from, to, &sends, &receives)?;
        }
    }
    Ok(())
}

fn pair(s: &Schedule, channel: u32, from: Rank, to: Rank, sends: &[End], receives: &[End]) -> Result<(), Defect> {
    for i in 0..sends.len().max(receives.len()) {
        match (sends.get(i), receives.get(i)) {
            (Some((_, a)), Some((_, b))) if same_extent(a, b) => {}
            (Some((j, a)), Some((k, b))) => {
                let what = format!("rank {from}'s matching op {j} sends {a}, which is not the length of {b}");
                return Err(Defect::at_op(Kind::Pairing, s, to, channel, *k, what));
            }
            (Some((j, _)), None) => {
                let what = format!("message {i} of an iteration to {to} is never received there");
                return Err(Defect::at_op(Kind::Pairing, s, from, channel, *j, what));
            }
            (None, Some((k, _))) => {
                let what = format!("message {i} of an iteration from {from} is never sent there");
                return Err(Defect::at_op(Kind::Pairing, s, to, channel, *k, what));
            }
            (None, None) => {}
        }
    }
    Ok(())
}
