//! What a group has recorded: calls in their order, those of one communicator on one stream side by side.

use std::sync::Arc;

use super::Requests;
use crate::communicator::Communicator;
use crate::device::Stream;
use crate::request::Request;

/// Calls that follow one another on one communicator and one stream.
pub(super) struct Run {
    pub comm: Arc<Communicator>,
    pub stream: Stream,
    pub requests: Vec<Request<()>>,
}

/// The calls of a group.
#[derive(Default)]
pub(super) struct Recorded {
    runs: Vec<Run>,
    /// An empty list with room for the next run.
    spare: Vec<Request<()>>,
}

impl Recorded {
    pub(super) const NOTHING: Recorded = Recorded { runs: Vec::new(), spare: Vec::new() };

    /// Adds a call behind the others.
    #[inline]
    pub(super) fn push(&mut self, comm: &Arc<Communicator>, request: Request<&Stream>) {
        let (stream, request) = request.split();
        match self.runs.last_mut() {
            Some(run) if Arc::ptr_eq(&run.comm, comm) && run.stream.same(stream) => run.requests.push(request),
            _ => self.begin(comm, stream, request),
        }
    }

    #[inline(never)]
    fn begin(&mut self, comm: &Arc<Communicator>, stream: &Stream, request: Request<()>) {
        let mut requests = std::mem::take(&mut self.spare);
        requests.push(request);
        self.runs.push(Run { comm: comm.clone(), stream: stream.clone(), requests });
    }

    /// How many calls there are.
    pub(super) fn len(&self) -> usize {
        self.runs.iter().map(|run| run.requests.len()).sum()
    }

    /// The calls, if they are all of one communicator on one stream.
    pub(super) fn only_run(&mut self) -> Option<&mut Run> {
        match &mut self.runs[..] {
            [run] => Some(run),
            _ => None,
        }
    }

    /// The communicators of the calls.
    pub(super) fn communicators(&self) -> impl Iterator<Item = &Arc<Communicator>> {
        self.runs.iter().map(|run| &run.comm)
    }

    /// Forgets the calls; keeps room for as many.
    pub(super) fn clear(&mut self) {
        for mut run in self.runs.drain(..) {
            run.requests.clear();
            self.spare = run.requests;
        }
    }

    /// The calls one by one.
    pub(super) fn into_list(self) -> Requests {
        let each = |run: Run| {
            let Run { comm, stream, requests } = run;
            requests.into_iter().map(move |request| (comm.clone(), request.on(stream.clone())))
        };
        self.runs.into_iter().flat_map(each).collect()
    }
}
