//! Small collectives of one shape that follow one another in a group: several are announced before the first of them is
//! finished, so that they do not wait for the peers one by one.
//!
//! Each call keeps its number, its line and its ticket, as if it had been made alone: a peer need not make them in a
//! group. What cannot be finished at once becomes tasks of the stream.

use std::sync::Arc;

use oxccl_sys::prefetch;
use oxccl_types::Result;

use super::call::Call;
use super::collective::{CollectiveTask, Engine, Phase};
use super::known::Made;
use super::limits;
use crate::communicator::core::{Core, Lane};
use crate::communicator::hub::WINDOW;
use crate::device::{IdleStream, Stream, Task, caught};
use crate::request::{Request, Shape};

/// Carries out, or begins, the first of `requests`, which are collectives of one communicator on `stream`: how many.
pub(crate) fn run(core: &Arc<Core>, stream: &Stream, requests: &[Request<()>]) -> usize {
    let mut done = 0;
    while let Some(first) = requests.get(done) {
        let Some(shape) = Shape::of(first).filter(|shape| shape.may_be_small() && first.count > 0) else { break };
        let alike = requests[done..].iter().take_while(|r| Shape::of(r) == Some(shape)).count();
        let taken = streak(core, stream, shape, &requests[done..done + alike]);
        done += taken;
        if taken < alike {
            break;
        }
    }
    done
}

/// As [`run`] for calls of one shape.
fn streak(core: &Arc<Core>, stream: &Stream, shape: Shape, requests: &[Request<()>]) -> usize {
    if core.ranks == 1 || !core.eager {
        return 0;
    }
    let Some(mut idle) = stream.try_idle() else { return 0 };
    let Some(mut engine) = core.engine.try_lock() else { return 0 };
    let first = &requests[0];
    let mut made = match engine.known.take(&shape, first.send, first.recv) {
        Some(made) => made,
        None => {
            let call = Call::new(first, core.ranks);
            if !limits::is_eager(core, &call) {
                return 0;
            }
            engine.known.make(core, Some(shape), call)
        }
    };
    let mut done = 0;
    while made.form.in_lines() && done < requests.len() {
        let window = independent(core, &made.call, &requests[done..]);
        let Some(turn) = core.issue_several_at_once(Lane::Collectives, window.len() as u64) else { break };
        let mut window = Window { requests: window, turn, begun: [(0, [0; 2]); WINDOW as usize], started: 0, over: 0 };
        done += window.requests.len();
        let result = caught(|| window.advance(core, &mut engine, &mut made)).and_then(|result| result);
        core.pass_turns(Lane::Collectives, turn, window.over as u64);
        if result.is_ok() && window.over == window.requests.len() {
            continue;
        }
        drop(engine);
        leave(idle, (window.over..window.requests.len()).map(|i| window.task(core, &made, i)), result);
        if let Some(mut engine) = core.engine.try_lock() {
            engine.known.keep(made);
        }
        return done;
    }
    let settled = made.form.settled || done == 0;
    engine.known.keep(made);
    drop(engine);
    if !settled {
        idle.doubt(core);
    }
    done
}

/// The stream goes on with `tasks`, or they end with the error.
fn leave(idle: IdleStream<'_>, tasks: impl Iterator<Item = CollectiveTask>, result: Result<()>) {
    match result {
        Ok(()) => idle.go_on_with(tasks.map(|task| task.boxed() as Box<dyn Task>)),
        Err(error) => {
            tasks.for_each(|task| task.fail_with(&error));
            idle.failed(error);
        }
    }
}

/// The first of `requests`, all of them like `call`, up to a window of which none reads what one before it writes.
fn independent<'a>(core: &Core, call: &Call, requests: &'a [Request<()>]) -> &'a [Request<()>] {
    let (reads, writes) = (
        call.input_bytes(core.rank as u32, core.ranks) as usize,
        call.output_bytes(core.rank as u32, core.ranks) as usize,
    );
    // The bytes between the first and the last that are written.
    let (mut from, mut to) = (usize::MAX, 0);
    let after = |(i, r): (usize, &Request<()>)| {
        let (input, output) = (r.send.addr(), r.recv.addr());
        if i > 0 && input < to && from < input + reads {
            return false;
        }
        (from, to) = (from.min(output), to.max(output + writes));
        true
    };
    let most = requests.len().min(WINDOW as usize);
    let count = requests[..most].iter().enumerate().map(after).take_while(|free| *free).count();
    &requests[..count.max(1)]
}

/// Calls that are under way together.
struct Window<'a> {
    requests: &'a [Request<()>],
    /// The ticket of the first.
    turn: u64,
    /// Number and signature of those that were started.
    begun: [(u64, [u64; 2]); WINDOW as usize],
    started: usize,
    over: usize,
}

impl Window<'_> {
    /// Starts what may be started, then finishes what can be finished, both in order.
    fn advance(&mut self, core: &Core, engine: &mut Engine, made: &mut Made) -> Result<()> {
        core.check()?;
        engine.seen.begin(core.polls);
        let first = engine.next_number();
        let lines = first..first + self.requests.len() as u64;
        lines.clone().for_each(|seq| prefetch::for_write(core.hub.entry(core.me, seq).body));
        for request in self.requests {
            if !engine.seen.may_publish(core, engine.next_number(), made.form.ahead) {
                break;
            }
            let (seq, signature) = engine.number(core, made.signature);
            self.begun[self.started] = (seq, signature);
            (made.call.send, made.call.recv, made.call.signature) = (request.send, request.recv, signature);
            made.form.start(core, engine, &made.call, signature, seq);
            self.started += 1;
        }
        // Each comes from another core; asked for together, they come together.
        for member in (0..core.members.len()).filter(|member| *member != core.me) {
            lines.clone().for_each(|seq| prefetch::for_read(core.hub.entry(member, seq).body));
        }
        for (request, (seq, signature)) in self.requests.iter().zip(self.begun).take(self.started) {
            (made.call.send, made.call.recv, made.call.signature) = (request.send, request.recv, signature);
            if !made.form.finish(core, &made.call, seq, &mut engine.seen, &mut engine.srcs)? {
                break;
            }
            if !made.form.settled {
                engine.leave_unsettled(seq, signature);
            }
            self.over += 1;
        }
        Ok(())
    }

    /// The task that goes on with the call `i`, which is not over.
    #[cold]
    fn task(&self, core: &Arc<Core>, made: &Made, i: usize) -> CollectiveTask {
        let request = &self.requests[i];
        let turn = self.turn + i as u64;
        let mut call = made.call.clone();
        (call.send, call.recv, call.signature) = (request.send, request.recv, made.signature);
        if i >= self.started {
            return CollectiveTask::begun(core, call, turn, 0, Phase::Start);
        }
        let (seq, signature) = self.begun[i];
        call.signature = signature;
        CollectiveTask::begun(core, call, turn, seq, Phase::EagerWait)
    }
}
