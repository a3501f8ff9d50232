//! What sends, receives and one-sided calls do alike: they go step by step towards their end, and give up for the
//! reasons that the communicator has.
//!
//! What is moved, and whom it waits for, is the operation's own. Collectives do the same with a communicator that is
//! lent to them, see `collective`.

use std::sync::Arc;

use oxccl_types::{Error, Result, ResultCode};

use crate::communicator::core::{Core, Lane};
use crate::device::{Step, caught};

/// How far an operation of one rank has come.
pub(super) struct Course {
    pub core: Arc<Core>,
    pub lane: Lane,
    pub turn: u64,
    /// When it was first blocked since something moved, ns; 0 while it moves.
    pub since_ns: u64,
    /// Its end is known to the communicator.
    pub over: bool,
    /// A connection failed: the error, until it is known whether it was the cause.
    pub doubt: Option<Error>,
}

impl Course {
    pub(super) fn new(core: Arc<Core>, lane: Lane, turn: u64) -> Course {
        Course { core, lane, turn, since_ns: 0, over: false, doubt: None }
    }
}

/// An operation that is carried out in steps.
pub(super) trait Operation {
    fn course(&self) -> &Course;
    fn course_mut(&mut self) -> &mut Course;
    /// Moves what can be moved now.
    fn advance(&mut self) -> Result<Step>;
    /// Whether it has begun, so that a look may find it over.
    fn has_begun(&self) -> bool;
    /// The error if it never goes on, after a connection failed with `doubt` if that is one; `since` as for
    /// `Core::check_blocked`.
    fn check_blocked(&self, since: &mut u64, doubt: Option<&Error>) -> Result<()>;
    /// Whether peers may have the addresses of its buffers.
    fn lends(&self) -> bool;
    /// What it leaves behind at its connections is given up.
    fn abandon(&mut self) {}

    /// One step, whatever comes of it.
    fn step_caught(&mut self) -> Step {
        let step = caught(|| {
            let looked = if self.course().doubt.is_some() { Ok(Step::Blocked) } else { self.advance() };
            self.gave(looked)
        });
        step.unwrap_or_else(|error| {
            if !self.course().over {
                self.fail(&error);
            }
            Step::Failed(error)
        })
    }

    /// What a step comes to whose look at the operation gave `looked`.
    fn gave(&mut self, looked: Result<Step>) -> Step {
        let result = match looked {
            Ok(Step::Blocked) => self.blocked(),
            // A broken connection: perhaps there is a better reason, now or soon.
            Err(e) if e.code == ResultCode::RemoteError => self.course().core.check().and_then(|()| {
                let course = self.course_mut();
                course.since_ns = 0;
                course.doubt = Some(e);
                self.blocked()
            }),
            other => other,
        };
        match result {
            Ok(Step::Blocked) => Step::Blocked,
            Ok(Step::Done) => {
                let course = self.course_mut();
                course.over = true;
                course.core.pass_turn(course.lane, course.turn);
                Step::Done
            }
            Ok(step) => {
                self.course_mut().since_ns = 0;
                step
            }
            Err(error) => {
                self.fail(&error);
                Step::Failed(error)
            }
        }
    }

    fn blocked(&mut self) -> Result<Step> {
        let course = self.course();
        let mut since = course.since_ns;
        let result = self.check_blocked(&mut since, course.doubt.as_ref());
        self.course_mut().since_ns = since;
        let Err(error) = result else { return Ok(Step::Blocked) };
        let course = self.course();
        let news = course.core.check().is_ok();
        // What ended the communicator may have come after what this call was waiting for: a last look.
        if course.doubt.is_none() && self.has_begun() && !course.core.is_aborted() {
            match self.advance() {
                Ok(Step::Blocked) | Err(_) => {}
                moved => return moved,
            }
        }
        if news {
            self.course().core.spread(&error);
        }
        Err(error)
    }

    /// Ends it, and with it the communicator.
    fn fail(&mut self, error: &Error) {
        self.course_mut().over = true;
        self.abandon();
        let (course, lends) = (self.course(), self.lends());
        course.core.fail_operation(course.lane, course.turn, error, lends);
    }
}
