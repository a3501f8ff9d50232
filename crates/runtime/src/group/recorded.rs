//! What a group has recorded: calls in their order, those of one communicator on one stream side by side.
//!
//! Small collectives in which all ranks read what all give are kept in few bytes each, so that a thousand of them stay in
//! the first cache, and by communicator: those of several communicators run side by side, in whatever order they came.

use std::sync::Arc;

use oxccl_types::Result;

use super::Requests;
use crate::communicator::Communicator;
use crate::device::Stream;
use crate::log;
use crate::request::{Brief, Kind, Request, Shape};

/// Calls that follow one another on one communicator and one stream: either brief ones or requests.
pub(super) struct Run {
    pub comm: Arc<Communicator>,
    pub stream: Stream,
    pub calls: Calls,
    /// How the caller names communicator and stream, where it has said so.
    names: Names,
}

/// How a caller names a communicator and a stream: the same names mean the same ones, and others mean others, as long as
/// somebody holds either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Names {
    /// Of the communicator, not 0.
    pub communicator: usize,
    /// Of the stream.
    pub stream: usize,
    /// By what the caller finds the communicator.
    pub handle: usize,
}

impl Names {
    /// The caller has given none.
    pub(super) const NONE: Names = Names { communicator: 0, stream: 0, handle: 0 };
}

/// The calls of a run.
#[derive(Default)]
pub(super) struct Calls {
    /// What the brief calls name.
    pub kinds: Vec<Kind>,
    pub brief: Vec<Brief>,
    /// Calls that are not brief; there are none beside brief ones.
    pub requests: Vec<Request<()>>,
}

impl Calls {
    fn clear(&mut self) {
        self.kinds.clear();
        self.brief.clear();
        self.requests.clear();
    }

    /// Adds a call of `kind`; `false` when it must be looked at as a whole.
    #[inline]
    fn add(&mut self, shape: &Shape, kind: Kind, count: u32, ranks: usize, send: *const u8, recv: *mut u8) -> bool {
        let place = match self.brief.last() {
            Some(last) if self.kinds[last.kind as usize] == kind && !send.is_null() && !recv.is_null() => last.kind,
            // What is checked for one call of a kind holds for all.
            _ if shape.request(ranks, send, recv).is_none() => return false,
            _ => self.place_of(kind),
        };
        self.brief.push(Brief { send, recv, count, kind: place });
        true
    }

    fn place_of(&mut self, kind: Kind) -> u32 {
        let known = self.kinds.iter().rposition(|k| *k == kind);
        known.unwrap_or_else(|| {
            self.kinds.push(kind);
            self.kinds.len() - 1
        }) as u32
    }

    /// The brief call as a request.
    pub(super) fn whole(&self, brief: &Brief, ranks: usize) -> Option<Request<()>> {
        self.kinds[brief.kind as usize].with_count(brief.count).request(ranks, brief.send, brief.recv)
    }
}

/// Empty lists that are kept for the next groups.
const SPARE: usize = 16;

/// The calls of a group.
#[derive(Default)]
pub(super) struct Recorded {
    runs: Vec<Run>,
    /// Where the last brief call went.
    last: usize,
    /// Some are of one communicator.
    again: bool,
    /// Empty lists with room for the next runs.
    spare: Vec<Calls>,
}

impl Recorded {
    pub(super) const NOTHING: Recorded = Recorded { runs: Vec::new(), last: 0, again: false, spare: Vec::new() };

    /// Adds a call behind the others.
    #[inline(always)]
    pub(super) fn push(&mut self, comm: &Arc<Communicator>, request: Request<&Stream>) {
        let (stream, request) = request.split();
        match self.runs.last_mut() {
            Some(run) if run.is_of(comm, stream) && run.calls.brief.is_empty() => run.calls.requests.push(request),
            _ => self.begin(comm, stream).requests.push(request),
        }
    }

    /// Adds a call of `shape`, which is of `kind` and has `count`, behind those of its communicator; `false` when it must be
    /// looked at as a whole.
    #[inline]
    pub(super) fn push_brief(
        &mut self,
        comm: &Arc<Communicator>,
        shape: &Shape,
        (kind, count): (Kind, u32),
        send: *const u8,
        recv: *mut u8,
        stream: &Stream,
    ) -> bool {
        let ranks = comm.ranks();
        let calls = match self.guess(|run| run.is_of(comm, stream)).or_else(|| self.find(comm, stream)) {
            Some(at) => &mut self.runs[at].calls,
            None => self.begin(comm, stream),
        };
        calls.add(shape, kind, count, ranks, send, recv)
    }

    /// As [`push_brief`](Self::push_brief) on communicator and stream of an earlier call that was [`named`](Self::name) so.
    #[inline]
    pub(super) fn push_like(
        &mut self,
        names: Names,
        shape: &Shape,
        (kind, count): (Kind, u32),
        send: *const u8,
        recv: *mut u8,
    ) -> bool {
        let Some(at) = self.guess(|run| run.names == names) else { return false };
        let run = &mut self.runs[at];
        run.comm.takes_calls() && run.calls.add(shape, kind, count, run.comm.ranks(), send, recv)
    }

    /// As [`push_like`](Self::push_like) of a call that is not brief, if that earlier call was the last one.
    #[inline]
    pub(super) fn push_request_like(&mut self, names: Names, shape: &Shape, send: *const u8, recv: *mut u8) -> bool {
        let Some(run) = self.runs.last_mut().filter(|run| run.names == names) else { return false };
        if !run.calls.brief.is_empty() || !run.comm.is_usable() {
            return false;
        }
        let request = shape.request(run.comm.ranks(), send, recv);
        request.map(|request| run.calls.requests.push(request)).is_some()
    }

    /// The caller's names for communicator and stream of the brief call that came last.
    #[inline]
    pub(super) fn name(&mut self, names: Names) {
        if let Some(run) = self.runs.get_mut(self.last) {
            run.names = names;
        }
    }

    /// The caller's names for communicator and stream of the call that came last and is not brief.
    #[inline]
    pub(super) fn name_request(&mut self, names: Names) {
        if let Some(run) = self.runs.last_mut() {
            run.names = names;
        }
    }

    /// The run of the last call, or the next one where communicators are used in turn, if it takes a brief call.
    #[inline]
    fn guess(&mut self, is_it: impl Fn(&Run) -> bool) -> Option<usize> {
        let serves = |at: usize| {
            let only = !self.again || at + 1 == self.runs.len();
            only && self.runs.get(at).is_some_and(|run| is_it(run) && run.calls.requests.is_empty())
        };
        if serves(self.last) {
            return Some(self.last);
        }
        let next = if self.last + 1 < self.runs.len() { self.last + 1 } else { 0 };
        if serves(next) {
            self.last = next;
            return Some(next);
        }
        None
    }

    /// The last run of `comm`, if it is on `stream` and of brief calls.
    #[inline(never)]
    fn find(&mut self, comm: &Arc<Communicator>, stream: &Stream) -> Option<usize> {
        let at = self.runs.iter().rposition(|run| Arc::ptr_eq(&run.comm, comm))?;
        let run = &self.runs[at];
        if !run.stream.same(stream) || !run.calls.requests.is_empty() {
            return None;
        }
        self.last = at;
        Some(at)
    }

    #[inline(never)]
    fn begin(&mut self, comm: &Arc<Communicator>, stream: &Stream) -> &mut Calls {
        let calls = self.spare.pop().unwrap_or_default();
        self.again |= self.runs.iter().any(|run| Arc::ptr_eq(&run.comm, comm));
        self.last = self.runs.len();
        self.runs.push(Run { comm: comm.clone(), stream: stream.clone(), calls, names: Names::NONE });
        &mut self.runs[self.last].calls
    }

    /// Whether there is none.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// How many calls there are.
    pub(super) fn len(&self) -> usize {
        self.runs.iter().map(|run| run.calls.brief.len() + run.calls.requests.len()).sum()
    }

    /// The calls by communicator and stream.
    pub(super) fn runs(&mut self) -> &mut [Run] {
        &mut self.runs
    }

    /// That nothing ended the operations of a communicator while its brief calls were recorded, most of them without a look at it.
    ///
    /// # Errors
    /// What ended them.
    pub(super) fn check(&self) -> Result<()> {
        let mut recorded = self.runs.iter().filter(|run| !run.calls.brief.is_empty());
        recorded.try_for_each(|run| run.comm.core()?.check()).inspect_err(|e| log::warn(&e.text))
    }

    /// The communicators of the calls.
    pub(super) fn communicators(&self) -> impl Iterator<Item = &Arc<Communicator>> {
        self.runs.iter().map(|run| &run.comm)
    }

    /// Forgets the calls; keeps room for as many.
    pub(super) fn clear(&mut self) {
        (self.last, self.again) = (0, false);
        for mut run in self.runs.drain(..) {
            if self.spare.len() < SPARE {
                run.calls.clear();
                self.spare.push(run.calls);
            }
        }
    }

    /// The calls one by one.
    pub(super) fn into_list(self) -> Requests {
        let mut list = Requests::new();
        for Run { comm, stream, mut calls, .. } in self.runs {
            let requests = std::mem::take(&mut calls.requests);
            // A brief call was made of a request, so it makes one.
            let brief = calls.brief.iter().filter_map(|b| calls.whole(b, comm.ranks()));
            list.extend(requests.into_iter().chain(brief).map(|r| (comm.clone(), r.on(stream.clone()))));
        }
        list
    }
}

impl Run {
    /// How the caller names communicator and stream.
    pub(super) fn names(&self) -> Names {
        self.names
    }

    #[inline]
    fn is_of(&self, comm: &Arc<Communicator>, stream: &Stream) -> bool {
        Arc::ptr_eq(&self.comm, comm) && self.stream.same(stream)
    }
}
