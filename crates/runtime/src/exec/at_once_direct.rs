//! Collectives of medium size carried out by the call itself, as `at_once` does with small ones: what they move takes no
//! longer than what queue, task and helper cost together. One that has to wait for a peer becomes a task of its stream.

use std::sync::Arc;

use oxccl_types::{Collective, ResultCode};

use super::call::Call;
use super::collective::CollectiveTask;
use crate::communicator::core::{Core, Lane};
use crate::device::{Step, Stream, caught};

/// Calls of at most this many bytes are begun at once.
const MOST: u64 = 256 << 10;

/// Whether `call`, which is not eager, is short enough to be tried when it is enqueued.
pub(super) fn is_short(core: &Core, call: &Call) -> bool {
    core.whole && call.collective != Collective::AllToAllV && call.total_bytes(core.ranks) <= MOST
}

/// Carries out `call`, which is not eager, or begins it; the call comes back when it was not begun.
pub(super) fn run(core: &Arc<Core>, call: Call, stream: &Stream) -> Option<Call> {
    if core.ranks == 1 || !is_short(core, &call) {
        return Some(call);
    }
    let Some(mut idle) = stream.try_idle() else { return Some(call) };
    let Some(mut engine) = core.engine.try_lock() else { return Some(call) };
    let Some(turn) = core.issue_at_once(Lane::Collectives) else { return Some(call) };
    let mut task = CollectiveTask::with_turn(turn, call, None);
    engine.seen.look(core.polls);
    let step = caught(|| {
        loop {
            match task.advance(core, &mut engine) {
                Ok(Step::Progress) => {}
                other => return other,
            }
        }
    });
    drop(engine);
    match step.and_then(|step| step) {
        Ok(Step::Done) => {}
        Ok(Step::DoneUnsettled) => idle.doubt(core),
        Ok(_) => idle.go_on(task.of(core).boxed()),
        // A broken connection may have a better reason: the task finds it.
        Err(error) if error.code == ResultCode::RemoteError => idle.go_on(task.of(core).doubting(error).boxed()),
        Err(error) => {
            task.of(core).fail_with(&error);
            idle.failed(error);
        }
    }
    None
}
