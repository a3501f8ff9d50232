//! Groups whose calls go off together: those of one communicator on one stream, and collectives of several.
//!
//! All other groups become tasks call by call, see `launch` of the groups.

use std::sync::Arc;

use oxccl_sys::sync::Ordering;
use oxccl_types::Result;

use super::recorded::{Recorded, Run};
use super::{BATCHES, Pushes, is_p2p, is_void, launch_collective};
use crate::communicator::core::Core;
use crate::device::{self, Stream};
use crate::exec::{at_once, fused, streak};
use crate::log;
use crate::request::{Request, Shape};

/// Carries out or enqueues the calls of a group, where they are all of one communicator on one stream and either messages
/// that can be exchanged at once or collectives, or collectives of several, all small or on one idle stream; they are gone then. `false`: nothing was
/// done.
///
/// # Errors
/// Of a communicator that has ended, and of messages that cannot be made; nothing was done.
pub(super) fn launch(requests: &mut Recorded) -> Result<bool> {
    let runs = requests.runs();
    for run in &*runs {
        if !may_go(run.comm.core()?, &run.stream)? {
            return Ok(false);
        }
    }
    let [first, others @ ..] = &mut *runs else { return Ok(false) };
    if others.is_empty() {
        let messages = first.calls.requests.iter().filter(|r| is_p2p(r)).count();
        if messages == 0 {
            in_order(&first.comm.core()?.clone(), first);
        } else if messages < first.calls.requests.len()
            || !self::messages(first.comm.core()?, first.calls.requests.iter(), &first.stream)?
        {
            return Ok(false);
        }
    } else if others.iter().all(|run| Arc::ptr_eq(&run.comm, &first.comm) && run.stream.same(&first.stream)) {
        if runs.iter().any(|run| run.calls.requests.iter().any(is_p2p)) {
            return Ok(false);
        }
        let core = runs[0].comm.core()?.clone();
        runs.iter_mut().for_each(|run| in_order(&core, run));
    } else if runs.iter().all(|run| run.calls.requests.is_empty()) {
        side_by_side(runs)?;
    } else {
        return each_side_by_side(runs);
    }
    Ok(true)
}

/// Whether calls may go off together on `stream`.
///
/// # Errors
/// Of a stream that was destroyed.
#[inline]
pub(super) fn may_go(core: &Core, stream: &Stream) -> Result<bool> {
    stream.check_open().inspect_err(|e| log::warn(&e.text))?;
    Ok(!core.config.launch_order && !device::is_capturing(stream))
}

/// Carries out or begins sends and receives; `false`: nothing was done.
#[inline]
pub(super) fn messages<'a>(
    core: &Arc<Core>,
    requests: impl Iterator<Item = &'a Request<()>> + Clone,
    stream: &Stream,
) -> Result<bool> {
    at_once::exchange(core, requests, stream).inspect_err(|e| log::warn(&e.text))
}

/// Collectives of one communicator on one stream.
fn in_order(core: &Arc<Core>, run: &mut Run) {
    let Run { stream, calls, .. } = run;
    fused::run(core, stream, &calls.kinds, &calls.brief, |brief| {
        let shape = calls.kinds[brief.kind as usize].with_count(brief.count);
        if !at_once::again(core, &shape, brief.send, brief.recv, stream)
            && let Some(request) = calls.whole(brief, core.ranks)
        {
            launch_collective(core, request.on(stream));
        }
    });
    let together = streak::run(core, stream, &calls.requests);
    for request in calls.requests.drain(..).skip(together) {
        if !Shape::of(&request).is_some_and(|s| at_once::again(core, &s, request.send, request.recv, stream)) {
            launch_collective(core, request.on(stream));
        }
    }
}

/// As [`side_by_side`] where not all are brief; `false`: nothing was done, since there are messages among them, several streams, or one
/// that is busy.
fn each_side_by_side(runs: &mut [Run]) -> Result<bool> {
    let stream = runs[0].stream.clone();
    let here = |run: &Run| run.stream.same(&stream) && !run.calls.requests.iter().any(is_p2p);
    let idle = if runs.iter().all(here) { stream.try_idle() } else { None };
    let Some(mut idle) = idle else { return Ok(false) };
    let batch = BATCHES.fetch_add(1, Ordering::Relaxed);
    let mut left = Vec::new();
    for run in runs {
        let core = run.comm.core()?;
        fused::begin(core, &mut idle, &run.calls.kinds, &run.calls.brief, batch, |task| left.push(task.boxed()));
        for request in run.calls.requests.drain(..).filter(|r| !is_void(r)) {
            // Where something is left already no call waits for who is late.
            let polls = if left.is_empty() { core.polls } else { 1 };
            left.extend(at_once::side_by_side(core, &mut idle, request, batch, polls));
        }
    }
    if !left.is_empty() {
        idle.go_on_with(left.into_iter().map(|task| task as Box<dyn device::Task>));
    }
    Ok(true)
}

/// Small collectives of several communicators, which may need each other: what does not end at once goes on side by side.
fn side_by_side(runs: &[Run]) -> Result<()> {
    let batch = BATCHES.fetch_add(1, Ordering::Relaxed);
    let stream: &Stream = &runs[0].stream;
    // On several streams one thread may drive all ranks of a communicator, which meet when all are enqueued.
    let idle = if runs.iter().all(|run| run.stream.same(stream)) { stream.try_idle() } else { None };
    let Some(mut idle) = idle else {
        let mut pushes = Pushes::default();
        for run in runs {
            let core = run.comm.core()?;
            fused::tasks(core, &run.calls.kinds, &run.calls.brief, batch, |task| pushes.add(&run.stream, task.boxed()));
        }
        pushes.push();
        return Ok(());
    };
    let mut left = Vec::new();
    for run in runs {
        fused::begin(run.comm.core()?, &mut idle, &run.calls.kinds, &run.calls.brief, batch, |task| left.push(task));
    }
    if !left.is_empty() {
        idle.go_on_with(left.into_iter().map(|task| task.boxed() as Box<dyn device::Task>));
    }
    Ok(())
}
