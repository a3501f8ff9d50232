//! What a group would take, without starting any of it.
//!
//! Calls of one communicator follow one another, and so do those on one stream; all else runs side by side. The time
//! of the group is when the last of them would end. Ranks of one communicator that one thread drives meet in the same
//! calls, so these count once.

use std::sync::Arc;

use oxccl_types::Result;

use super::{is_p2p, is_void};
use crate::communicator::Communicator;
use crate::communicator::core::Core;
use crate::device::Stream;
use crate::exec::estimate;
use crate::exec::p2p::Exchange;
use crate::log;
use crate::request::Request;

/// Which call it is: communicator, lane, number within the group. The same on all ranks that meet in it.
type Name = (u64, bool, usize);

/// What a stream is busy with: the last call's name, begin and end, us.
struct Busy {
    stream: Stream,
    name: Name,
    begin: f64,
    end: f64,
}

/// The clocks of a group, us from its start.
#[derive(Default)]
struct Clocks {
    streams: Vec<Busy>,
    /// By rank's communicator and lane: the end of its last call, and how many there were.
    lanes: Vec<(Arc<Core>, bool, f64, usize)>,
}

impl Clocks {
    /// A call of `core` on `streams` that takes `us`.
    fn add(&mut self, core: &Arc<Core>, p2p: bool, streams: &[&Stream], us: f64) {
        let at = self.lanes.iter().position(|(c, lane, ..)| Arc::ptr_eq(c, core) && *lane == p2p);
        let at = at.unwrap_or_else(|| {
            self.lanes.push((core.clone(), p2p, 0.0, 0));
            self.lanes.len() - 1
        });
        let lane = &mut self.lanes[at];
        let name = (core.hash, p2p, lane.3);
        // Another rank in the same call does not come after it, but with it.
        let free = |b: &Busy| if b.name == name { b.begin } else { b.end };
        let mine = |b: &&mut Busy| streams.iter().any(|s| s.same(&b.stream));
        let begin = self.streams.iter_mut().filter(mine).map(|b| free(b)).fold(lane.2, f64::max);
        let end = begin + us;
        (lane.2, lane.3) = (end, lane.3 + 1);
        for s in streams {
            match self.streams.iter_mut().find(|b| b.stream.same(s)) {
                Some(b) if b.name == name => (b.begin, b.end) = (b.begin.min(begin), b.end.max(end)),
                Some(b) => (b.name, b.begin, b.end) = (name, begin, end),
                None => self.streams.push(Busy { stream: (*s).clone(), name, begin, end }),
            }
        }
    }

    fn end(&self) -> f64 {
        self.lanes.iter().map(|lane| lane.2).fold(0.0, f64::max)
    }
}

/// Microseconds until the last of `requests` would be done; `None` when they move nothing. They are checked as by a
/// launch.
pub(super) fn time(requests: &[(Arc<Communicator>, Request)]) -> Result<Option<f64>> {
    let mut clocks = Clocks::default();
    let mut messages: Vec<(&Arc<Communicator>, Vec<Request>)> = Vec::new();
    for (comm, request) in requests {
        if is_p2p(request) {
            match messages.iter_mut().find(|(c, _)| Arc::ptr_eq(c, comm)) {
                Some((_, list)) => list.push(request.clone()),
                None => messages.push((comm, vec![request.clone()])),
            }
        } else if !is_void(request) {
            let core = comm.core()?;
            clocks.add(core, false, &[&request.stream], estimate::collective(core, request)?);
        }
    }
    for (comm, list) in &messages {
        let core = comm.core()?;
        Exchange::from_requests(core, None, list.iter()).inspect_err(|e| log::warn(&e.text))?;
        let streams: Vec<&Stream> = list.iter().map(|r| &r.stream).collect();
        clocks.add(core, true, &streams, estimate::exchange(core, list));
    }
    Ok((!clocks.lanes.is_empty()).then(|| clocks.end()))
}
