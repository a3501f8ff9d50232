//! Collectives of medium size carried out by the call itself, as `at_once` does with small ones: what they move takes no
//! longer than what queue, task and helper cost together. One that has to wait for a peer becomes a task of its stream.

use std::sync::Arc;

use oxccl_sys::LatchGuard;
use oxccl_types::{Collective, Error, ResultCode};

use super::call::Call;
use super::collective::{CollectiveTask, Engine, sent};
use super::p2p::POLLS_PER_STEP;
use super::trail;
use crate::communicator::core::{Core, Lane};
use crate::device::{IdleStream, Step, Stream, caught};
use crate::haste;
use crate::request::Shape;

/// Calls of at most this many bytes are begun at once.
const MOST: u64 = 512 << 10;

/// Whether `call`, which is not eager, is short enough to be tried when it is enqueued.
pub(super) fn is_short(core: &Core, call: &Call) -> bool {
    core.whole && call.collective != Collective::AllToAllV && call.total_bytes(core.ranks) <= MOST
}

/// The same for longer ones of which each rank that shares a core carries a block, where the calls may begin behind each other.
fn is_short_block(core: &Core, call: &Call) -> bool {
    let blocks = matches!(call.collective, Collective::Gather | Collective::Scatter) && trail::goes_on(core);
    core.whole && blocks && 2 * call.block_bytes() <= MOST
}

/// Whether `call`, a task already, is as short as one that would be tried when it is enqueued.
pub(super) fn is_quick(core: &Core, call: &Call) -> bool {
    let mapped = || core.engine.try_lock().is_some_and(|mut engine| is_mapped(core, &mut engine, call));
    is_short(core, call) || is_short_block(core, call) && mapped()
}

/// Whether peers can map the buffers of `call`.
fn is_mapped(core: &Core, engine: &mut Engine, call: &Call) -> bool {
    let (rank, ranks) = (core.rank as u32, core.ranks);
    engine.is_mapped(core, call.send, call.input_bytes(rank, ranks))
        && engine.is_mapped(core, call.recv, call.output_bytes(rank, ranks))
}

/// Carries out `call`, which is not eager, or begins it; the call comes back when it was not begun. The next one of its
/// shape may be made again.
pub(super) fn run(core: &Arc<Core>, shape: Option<Shape>, call: Call, stream: &Stream) -> Option<Call> {
    let call = sent::begin(core, call, stream)?;
    let short = is_short(core, &call);
    if core.ranks == 1 || !short && !is_short_block(core, &call) {
        return Some(call);
    }
    let Some(idle) = stream.try_idle() else { return Some(call) };
    let Some(mut engine) = core.engine.try_lock() else { return Some(call) };
    if !short && !is_mapped(core, &mut engine, &call) {
        return Some(call);
    }
    let Some(turn) = core.issue_at_once(Lane::Collectives) else { return Some(call) };
    if let Some(shape) = shape {
        engine.keep(core, shape, &call);
    }
    haste::begin();
    see_through(core, idle, engine, CollectiveTask::with_turn(turn, call, None));
    None
}

/// Looks at a line or flag before a call becomes a task: about as long as the call takes where nobody is late.
pub(super) fn patience(core: &Core, call: &Call) -> u32 {
    patience_for(core, call.total_bytes(core.ranks))
}

/// The same for a call of that many bytes.
pub(super) fn patience_for(core: &Core, bytes: u64) -> u32 {
    /// A few microseconds.
    const LEAST: u64 = 512;
    /// Bytes that move in the time of a look.
    const PER_LOOK: u64 = 64;
    if core.crowded { core.polls } else { (LEAST + bytes / PER_LOOK) as u32 }
}

/// Whether an AlltoAllv of which this rank sends or receives about so many bytes is seen through when it is enqueued.
pub(super) fn is_short_v(core: &Core, bytes: u64) -> bool {
    core.whole && !core.crowded && bytes <= MOST
}

/// Goes on with `task`, which has no communicator yet, until it is over or blocked; then the stream has it.
pub(super) fn see_through(
    core: &Arc<Core>,
    idle: IdleStream<'_>,
    engine: LatchGuard<'_, Engine>,
    task: CollectiveTask,
) {
    let bytes = task.call().total_bytes(core.ranks);
    see_through_for(core, idle, engine, task, bytes);
}

/// [`see_through`] of a task that moves about so many bytes.
pub(super) fn see_through_for(
    core: &Arc<Core>,
    mut idle: IdleStream<'_>,
    mut engine: LatchGuard<'_, Engine>,
    mut task: CollectiveTask,
    bytes: u64,
) {
    engine.seen.look(patience_for(core, bytes));
    let mut looks = engine.seen.polls() / POLLS_PER_STEP;
    let step = caught(|| {
        loop {
            match task.advance(core, &mut engine) {
                Ok(Step::Progress) => {}
                // A step of an exchange looks only once at each of its messages.
                Ok(Step::Blocked) if looks > 0 && task.exchanges() => {
                    looks -= 1;
                    oxccl_sys::sync::spin_loop();
                }
                other => return other,
            }
        }
    });
    let step = step.and_then(|step| step);
    haste::end();
    // The usual end by itself: nothing is moved.
    if matches!(step, Ok(Step::Done)) {
        drop(engine);
        return task.keep_counts();
    }
    let task = match step {
        Ok(Step::Progress | Step::Blocked) => task.of(core).trailing_if_lent(core, &engine),
        _ => task,
    };
    drop(engine);
    match step {
        Ok(Step::DoneUnsettled) => idle.doubt(core),
        Ok(_) => idle.go_on(task.boxed()),
        Err(error) => failed(core, idle, task, error),
    }
}

/// Ends `task`, which has no communicator yet, with `error`. A broken connection may have a better reason, such as a peer that
/// has ended: the task finds it.
pub(super) fn failed(core: &Arc<Core>, idle: IdleStream<'_>, task: CollectiveTask, error: Error) {
    let task = task.of(core);
    if error.code == ResultCode::RemoteError {
        return idle.go_on(task.doubting(error).boxed());
    }
    task.fail_with(&error);
    idle.failed(error);
}
