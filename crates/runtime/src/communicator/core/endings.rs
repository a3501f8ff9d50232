//! Why operations end before they are done: what a blocked one looks at, and which cause is told.
//!
//! A departed rank ends only what needs it: what it has done before counts. The first cause is told to all ranks.

use oxccl_sys::clock;
use oxccl_sys::sync::Ordering;
use oxccl_types::{Error, Result};

use super::{ABORTED, Core, DEPARTED, ENDED, NEWS, REVOKED, lock};
use crate::bootstrap::News;
use crate::communicator::hub::Presence;
use crate::device::Settle;
use crate::exec::call;
use crate::exec::entry::different;
use crate::log;
use crate::transport::Header;

/// Times the grace after which an operation ends that waits for nobody who departed, if nothing moves at all; or whose
/// connection broke, if nothing is heard that explains it. News goes through the service threads of all ranks in between, which
/// a busy machine keeps waiting.
const INDIRECT: u64 = 10;
/// Times the grace after which the message of another call than is awaited ends an operation, if nobody has named the calls
/// that differ.
const STRANGE: u64 = 4;

/// Times the grace after which a wait is long enough to be told to people, and [`NOTICE_NS`] at least. Again after as long, and then
/// when it has lasted about twice as long.
const LONG: u64 = 100;
const NOTICE_NS: u64 = 1_000_000_000;
/// Ranks of which such a line says where they are.
const NAMED: usize = 8;

/// A rank that takes no further part.
#[derive(Clone, Debug)]
pub(crate) struct Departure {
    pub rank: usize,
    pub how: Gone,
    pub text: String,
}

impl Departure {
    /// Whether it went in good order, as far as is known: that ends what needs the rank, and is no error of the communicator.
    fn may_have_left(&self) -> bool {
        matches!(self.how, Gone::Left | Gone::Silent)
    }
}

/// How a rank went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gone {
    /// Its process ended.
    Died,
    /// It does with its connections what a rank does that takes part no longer, and nothing else is known of it yet.
    Silent,
    /// It destroyed its communicator in good order.
    Left,
    /// It aborted its communicator.
    Aborted,
    /// It revoked its communicator: it takes part in making new ones only.
    Revoked,
}

/// Errors of other ranks that were heard of, in the order in which they came.
#[derive(Default)]
pub(super) struct Troubles(Vec<Trouble>);

/// What was heard of a rank.
struct Trouble {
    rank: usize,
    /// It is of the rank's own end, which concerns only who needs the rank; else the communicator has failed.
    own: bool,
    error: Error,
}

impl Troubles {
    /// The first error of each kind of a rank stays.
    fn note(&mut self, rank: usize, own: bool, error: Error) {
        if !self.0.iter().any(|t| (t.rank, t.own) == (rank, own)) {
            self.0.push(Trouble { rank, own, error });
        }
    }

    /// The cause: what came first.
    fn first(&self) -> Option<Error> {
        self.0.first().map(|t| t.error.clone())
    }

    /// What keeps `participants` from going on without the other ranks.
    fn among(&self, participants: &[usize]) -> Option<Error> {
        self.0.iter().find(|t| !t.own || participants.contains(&t.rank)).map(|t| t.error.clone())
    }
}

/// An operation that cannot go on now, as far as the reasons for giving it up depend on it.
pub(crate) trait Blocked {
    /// The operation and whom it waits for, in words.
    fn describe(&self) -> String;
    /// Whether it can only go on when `rank` does something.
    fn needs(&self, rank: usize) -> bool;
    /// Number and signature of a collective that has started. Operations that only two ranks take part in have none.
    fn call(&self) -> Option<(u64, [u64; 2])> {
        None
    }
    /// The signature of the collective `seq` of this rank, if it is remembered.
    fn earlier(&self, _seq: u64) -> Option<[u64; 2]> {
        None
    }
    /// Whether ranks that it does not need may still be needed by those that it needs, so that a departure that
    /// stays unexplained for long ends it too.
    fn indirect(&self) -> bool {
        false
    }
}

impl Core {
    /// The error that ends every operation, if there is one. Departed ranks are none: what they have done counts.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        if self.is_well() {
            return Ok(());
        }
        self.check_slow()
    }

    /// Whether nothing ended its operations.
    #[inline]
    pub(crate) fn is_well(&self) -> bool {
        self.status.load(Ordering::Relaxed) & ENDED == 0 && !self.hub.is_poisoned()
    }

    #[cold]
    fn check_slow(&self) -> Result<()> {
        if self.is_revoked() {
            return Err(Error::usage("communicator was revoked"));
        }
        if let Some(e) = self.failure.get() {
            return Err(e.clone());
        }
        if self.status.load(Ordering::Acquire) & ABORTED != 0 {
            return Err(self.aborted());
        }
        self.hub.poison_error().map_or(Ok(()), Err)
    }

    /// Whether the communicator was aborted or revoked on this rank.
    pub(crate) fn is_aborted(&self) -> bool {
        self.status.load(Ordering::Acquire) & (ABORTED | REVOKED) != 0
    }

    fn aborted(&self) -> Error {
        Error::usage(format!("communicator {:#x} was aborted on this rank ({})", self.hash, self.rank))
    }

    /// Whether `rank` is known to have left, aborted or died.
    pub(crate) fn has_departed(&self, rank: usize) -> bool {
        self.departure(rank).is_some_and(|departure| departure.how != Gone::Revoked)
    }

    /// How `rank` went, if it did.
    fn departure(&self, rank: usize) -> Option<Departure> {
        let member = self.member_of[rank];
        let said = if member == usize::MAX { Presence::Here } else { self.hub.presence(member) };
        let heard = || lock(&self.departures).get(&rank).cloned();
        let how = match said {
            Presence::Here => return heard(),
            Presence::Left => Gone::Left,
            Presence::Aborted => Gone::Aborted,
            Presence::Revoked => Gone::Revoked,
        };
        // Who revoked its communicator still takes part in making others, unless it died since.
        heard().filter(|_| how == Gone::Revoked).or(Some(Departure { rank, how, text: String::new() }))
    }

    fn departed(&self, d: &Departure, when: &str) -> Error {
        let info = &self.peers[d.rank];
        let who = format!("rank {} (host {}, process {})", d.rank, info.host, info.pid);
        Error::remote(match d.how {
            Gone::Died => format!(
                "{who} died {when}: {}; look at the output and exit status of that process; this communicator cannot \
                 go on: abort or destroy it",
                d.text
            ),
            Gone::Silent => format!(
                "{who} was gone {when}: {}; it destroyed or aborted its communicator, or its process ended: look at its \
                 output and exit status",
                d.text
            ),
            Gone::Left => format!(
                "{who} destroyed its communicator {when}; all ranks must make the same calls before one of them leaves"
            ),
            Gone::Aborted => format!("{who} aborted its communicator {when}; abort or destroy it here too"),
            Gone::Revoked => format!("{who} revoked its communicator {when}; revoke, abort or destroy it here too"),
        })
    }

    /// The error of an operation that needs who departed: what it called itself, if that was another call and it then left.
    fn missed(&self, d: &Departure, operation: &dyn Blocked) -> Error {
        let strange = self.strange_of(operation).filter(|(_, _, from, _)| d.how == Gone::Left && *from == d.rank);
        let differs =
            strange.and_then(|(seq, mine, from, header)| self.judge(operation, (seq, mine), from, &header, true));
        let departed = || self.departed(d, &format!("while on rank {} {}", self.rank, operation.describe()));
        self.cause_or(|| differs.unwrap_or_else(departed))
    }

    /// The error of a rank that was found gone, unless it went because of another one: it told that before, perhaps after this
    /// rank looked last.
    fn cause_or(&self, departed: impl FnOnce() -> Error) -> Error {
        self.check().err().unwrap_or_else(departed)
    }

    /// To be called by an operation that cannot go on now: the error if it never will. It is for the caller to
    /// [`Core::spread`] it, after a last look at what it waited for.
    ///
    /// `since` is 0 at the first call of a wait and then remembers when the wait began, ns.
    #[inline]
    fn check_blocked(&self, since: &mut u64, operation: &dyn Blocked) -> Result<()> {
        let status = self.status.load(Ordering::Relaxed);
        if status == 0 && !self.hub.is_poisoned() && *since == 0 {
            *since = clock::now_ns();
            return Ok(());
        }
        self.check_long_wait(since, operation)
    }

    /// [`Core::check_blocked`], or [`Core::check_doubt`] if there is a `doubt`.
    #[inline]
    pub(crate) fn check_operation(
        &self,
        since: &mut u64,
        doubt: Option<&Error>,
        operation: &dyn Blocked,
    ) -> Result<()> {
        match doubt {
            Some(doubt) => self.check_doubt(since, doubt, operation),
            None => self.check_blocked(since, operation),
        }
    }

    fn check_long_wait(&self, since: &mut u64, operation: &dyn Blocked) -> Result<()> {
        self.check()?;
        let now = clock::now_ns();
        if *since == 0 {
            *since = now;
        }
        let waited = now - *since;
        let grace = self.config.death_grace.as_nanos() as u64;
        if waited <= grace {
            return Ok(());
        }
        let status = self.status.load(Ordering::Acquire);
        let quiet = now.saturating_sub(self.trouble_ns.load(Ordering::Acquire));
        let strange = self.strange_of(operation);
        // What met a message of another call never goes on; else whoever made progress may let this end yet.
        if status & NEWS != 0
            && (quiet > grace || strange.is_some())
            && let Some(e) = lock(&self.news).first()
        {
            return Err(e);
        }
        let any = operation.indirect() && waited > INDIRECT * grace && quiet > INDIRECT * grace;
        // An abort is meant for all, and so is a revocation.
        let fatal = |d: &Departure| matches!(d.how, Gone::Aborted | Gone::Revoked) || any || operation.needs(d.rank);
        let others = (0..self.ranks).filter(|rank| *rank != self.rank);
        if let Some(d) =
            others.filter_map(|rank| self.departure(rank)).find(fatal).filter(|_| self.is_settled(now, grace, waited))
        {
            return Err(self.missed(&d, operation));
        }
        self.compare(operation, waited)?;
        if let Some((seq, mine, from, header)) = strange
            && let Some(e) = self.judge(operation, (seq, mine), from, &header, waited > STRANGE * grace)
        {
            return Err(e);
        }
        if let Some(limit) = self.config.op_timeout
            && u128::from(waited) > limit.as_nanos()
        {
            let text = format!("no progress for {} s (OXCCL_OP_TIMEOUT): {}", limit.as_secs(), operation.describe());
            return Err(Error::remote(text));
        }
        self.mend(now, waited);
        self.notice(now, waited, operation);
        Ok(())
    }

    /// To be called now and then by who waits for a meeting since `since`, ns.
    pub(in crate::communicator) fn mend_since(&self, since: u64) {
        let now = clock::now_ns();
        self.mend(now, now.saturating_sub(since));
    }

    /// Has the control ring mended when a wait is long and ranks have gone, which part those that are left: what ends the wait may
    /// happen beyond. Again while it lasts, less and less often, since more may go.
    fn mend(&self, now: u64, waited: u64) {
        let long = INDIRECT * self.config.death_grace.as_nanos() as u64;
        let last = self.mended_ns.load(Ordering::Relaxed);
        if self.whole
            || waited < long
            || self.status.load(Ordering::Relaxed) & DEPARTED == 0
            || now.saturating_sub(last) < long.max(waited / 2)
            || self.mended_ns.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_err()
        {
            return;
        }
        if let Some(ring) = lock(&self.control).as_ref() {
            ring.ask_to_mend();
            ring.mend(&self.peers);
        }
    }

    /// Tells people of a wait without a limit that nothing ends, whose peers may have stopped: for whom, and in which call.
    fn notice(&self, now: u64, waited: u64, operation: &dyn Blocked) {
        let long = (LONG * self.config.death_grace.as_nanos() as u64).max(NOTICE_NS);
        let last = self.noticed_ns.load(Ordering::Relaxed);
        // Who else says so at this moment?
        if waited < long
            || now.saturating_sub(last) < long.max(waited / 2)
            || self.noticed_ns.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_err()
        {
            return;
        }
        let needed = (0..self.ranks).filter(|rank| *rank != self.rank && operation.needs(*rank));
        let place =
            |rank: usize| format!("rank {rank} (host {}, process {})", self.peers[rank].host, self.peers[rank].pid);
        let places: Vec<String> = needed.take(NAMED).map(place).collect();
        log::notice(&format!(
            "rank {} of communicator {:#x} has waited for {} s: {}; look whether these are slow, have stopped, or are in another \
             call: {}. OXCCL_OP_TIMEOUT ends such waits with an error",
            self.rank,
            self.hash,
            waited / 1_000_000_000,
            operation.describe(),
            if places.is_empty() { "its peers".to_string() } else { places.join(", ") },
        ));
    }

    /// Whether nothing moved for the grace since the last end that was heard of: a peer that had done its part would have let
    /// this end too, or its error have come; and nobody is about to tell an error. To be asked when a departure was found by who
    /// has `waited` so long, ns.
    fn is_settled(&self, now: u64, grace: u64, waited: u64) -> bool {
        let heard = self.status.load(Ordering::Acquire) & DEPARTED != 0;
        // Not for ever: who is telling it may end amid it.
        let telling = waited <= INDIRECT * grace && self.hub.is_being_poisoned();
        !telling && (!heard || now.saturating_sub(self.trouble_ns.load(Ordering::Acquire)) > grace)
    }

    /// Without shared memory a call is seen only by those who get its data. Ranks that are blocked for long tell their
    /// neighbours in the control ring what in, so that calls of which none sends the other anything are compared too.
    fn compare(&self, operation: &dyn Blocked, waited: u64) -> Result<()> {
        let (false, Some((seq, signature))) = (self.whole, operation.call()) else { return Ok(()) };
        // Again after a while, and then at times further and further apart: a neighbour may have come to its call since, and
        // have ended it; one that is stopped reads nothing.
        let long = INDIRECT * self.config.death_grace.as_nanos() as u64;
        let news = self.told.swap(seq, Ordering::Relaxed) != seq;
        let again = waited > long.max(2 * self.told_after.load(Ordering::Relaxed));
        if (news || again)
            && let Some(ring) = lock(&self.control).as_ref()
        {
            self.told_after.store(waited, Ordering::Relaxed);
            ring.tell_neighbours(&News::Call { rank: self.rank, seq, signature, around: false });
        }
        let heard = lock(&self.heard).clone();
        for (rank, number, theirs) in heard {
            let mine = if number == seq { Some(signature) } else { operation.earlier(number) };
            if let Some(mine) = mine.filter(|m| *m != theirs) {
                return Err(different(self, mine, rank, theirs, number));
            }
        }
        Ok(())
    }

    /// Notes that collective `number` of this rank met a message of `from` for one of another number: their calls differ from
    /// an earlier one on. Which one that is the ranks [find out](Core::check_blocked) while the call is blocked.
    #[cold]
    pub(crate) fn found_strange(&self, number: u64, from: u32, header: &Header) {
        lock(&self.strange).get_or_insert((number, from as usize, *header));
    }

    /// The strange message that a blocked collective has met: its number and signature, from whom, and the message's header.
    fn strange_of(&self, operation: &dyn Blocked) -> Option<(u64, [u64; 2], usize, Header)> {
        if self.whole {
            return None;
        }
        let (seq, mine) = operation.call()?;
        let (_, from, header) = (*lock(&self.strange)).filter(|(number, ..)| *number == seq)?;
        Some((seq, mine, from, header))
    }

    /// The error of the strange message `header` that the call `mine` has met, where this rank remembers what it called itself
    /// when the peer made that call. Else the peer, which may be no neighbour, has what it called when this rank made `mine`,
    /// and is asked around the ring; the error that has the numbers only is the `last` resort.
    fn judge(
        &self,
        operation: &dyn Blocked,
        mine: (u64, [u64; 2]),
        from: usize,
        header: &Header,
        last: bool,
    ) -> Option<Error> {
        let (seq, signature) = mine;
        let (number, theirs) = (header.sequence, header.signature);
        if let Some(then) = operation.earlier(number).filter(|then| number < seq && *then != theirs) {
            return Some(different(self, then, from, theirs, number));
        }
        if let Some(ring) = lock(&self.control).as_ref() {
            ring.announce(&News::Call { rank: self.rank, seq, signature, around: true });
        }
        last.then(|| call::strange(self, seq, signature, from, header))
    }

    /// Compares what another rank is blocked in with what this rank called, which may have ended, and nothing be under way here
    /// that would find it out. Who has the engine at this moment is told again.
    fn answer(&self, rank: usize, seq: u64, theirs: [u64; 2]) {
        let mine = self.engine.try_lock().filter(|_| !self.whole).and_then(|engine| engine.called(seq));
        if let Some(mine) = mine.filter(|mine| *mine != theirs)
            && self.check().is_ok()
        {
            let error = different(self, mine, rank, theirs, seq);
            self.spread(&error);
            self.fail(&error);
            self.bell().ring();
        }
    }

    /// As [`Core::check_blocked`], of an operation whose connection failed with `doubt`, until it is an error: a connection often
    /// breaks because the peer was the first to hear of something else, or has left, and that is what should be told.
    fn check_doubt(&self, since: &mut u64, doubt: &Error, operation: &dyn Blocked) -> Result<()> {
        self.check()?;
        let now = clock::now_ns();
        if *since == 0 {
            *since = now;
        }
        let waited = now - *since;
        self.compare(operation, waited)?;
        // Before the news: what a rank had to tell it told before it left, on the same way round the ring. But it may have left
        // because of an end that has yet to be heard of here, by another way.
        let grace = self.config.death_grace.as_nanos() as u64;
        let calm = waited > grace && self.is_settled(now, grace, waited);
        let gone = || (0..self.ranks).filter(|rank| *rank != self.rank).filter_map(|rank| self.departure(rank));
        let left = || gone().find(|d| calm && operation.needs(d.rank));
        let any = gone().find(|d| !d.may_have_left());
        // In this order: of ranks that died together the one that is needed is in the list by now.
        let needed = any.as_ref().and_then(|_| gone().find(|d| !d.may_have_left() && operation.needs(d.rank)));
        let gone = needed.or(any).or_else(left);
        self.check()?;
        if let Some(e) = lock(&self.news).first() {
            return Err(e);
        }
        if let Some(d) = gone {
            return Err(self.found(self.missed(&d, operation)));
        }
        if waited > INDIRECT * grace {
            return Err(self.found(doubt.clone()));
        }
        Ok(())
    }

    fn found(&self, error: Error) -> Error {
        self.spread(&error);
        error
    }

    /// An error when `rank` takes no further part; `doing` says what needs it.
    pub(crate) fn check_present(&self, rank: usize, doing: impl Fn() -> String) -> Result<()> {
        let member = self.member_of[rank];
        let said = member != usize::MAX && self.hub.presence(member) != Presence::Here;
        if !said && self.status.load(Ordering::Relaxed) & DEPARTED == 0 {
            return Ok(());
        }
        let Some(gone) = self.departure(rank) else { return Ok(()) };
        Err(self.cause_or(|| self.departed(&gone, &format!("before a {} of rank {}", doing(), self.rank))))
    }

    /// Something broke that the end of `rank` may explain; it is the cause if nothing better is heard soon.
    pub(in crate::communicator) fn suspect(&self, rank: usize, error: &Error) {
        lock(&self.news).note(rank, true, error.clone());
        self.trouble(NEWS);
    }

    /// Why a call of this rank failed: the first one that did. Ends of other ranks are none while no call here needs them, and no call
    /// that a revocation ends.
    pub(in crate::communicator) fn failed_call(&self) -> Option<Error> {
        self.failure.get().cloned()
    }

    /// What ended the communicator here.
    pub(in crate::communicator) fn ended(&self) -> Option<Error> {
        // A revocation was asked for.
        if self.is_revoked() { None } else { self.check().err() }
    }

    /// The error of a meeting of `participants`, whatever they meet for, that cannot take place, because one of them is gone.
    pub(in crate::communicator) fn missing(&self, participants: &[usize]) -> Result<()> {
        let others = participants.iter().filter(|r| **r != self.rank);
        let gone = others.filter_map(|r| self.departure(*r)).find(|d| d.how != Gone::Revoked);
        gone.map_or(Ok(()), |d| {
            Err(self.departed(
                &d,
                "and cannot take part in a call that its ranks make together (split, shrink, grow, window, suspension)",
            ))
        })
    }

    /// As [`missing`](Self::missing) of a meeting that begins: an abort ends what meets at that time; what meets later, of a group of such
    /// calls, hears of it here.
    pub(in crate::communicator) fn may_meet(&self, participants: &[usize]) -> Result<()> {
        if self.status.load(Ordering::Acquire) & ABORTED != 0 {
            return Err(self.aborted());
        }
        self.missing(participants)
    }

    /// Whether a failure stands in the way of making a communicator of `participants` out of this one: an end of
    /// somebody else does not.
    pub(in crate::communicator) fn failure_among(&self, participants: &[usize]) -> Option<Error> {
        if self.is_revoked() {
            return None;
        }
        self.ended().or_else(|| lock(&self.news).among(participants)).or_else(|| self.missing(participants).err())
    }

    /// The sticky error: what ended the communicator, or a rank that is gone for good while others may need it.
    pub(in crate::communicator) fn failure(&self) -> Option<Error> {
        if self.is_revoked() {
            return None;
        }
        if let Some(e) = self.ended().or_else(|| lock(&self.news).first()) {
            return Some(e);
        }
        let others = (0..self.ranks).filter(|r| *r != self.rank);
        let gone = others.filter_map(|r| self.departure(r)).find(|d| !d.may_have_left());
        gone.map(|d| self.cause_or(|| self.departed(&d, &format!("while rank {} was between operations", self.rank))))
    }

    /// A peer's process ended. Runs on the service thread.
    pub(in crate::communicator) fn on_death(&self, ranks: &[usize], text: &str) {
        self.on_departures(ranks, Gone::Died, text);
    }

    /// All of them at once: who looks must not find some and blame them for the others.
    fn on_departures(&self, ranks: &[usize], how: Gone, text: &str) {
        // Who left in good order before its process ended had nothing left to do, in a meeting neither.
        let left = |rank: usize| self.departure(rank).is_some_and(|d| d.how == Gone::Left);
        let halted: Vec<usize> = ranks.iter().copied().filter(|rank| how == Gone::Died && !left(*rank)).collect();
        if !halted.is_empty() {
            self.children.halt_with(&halted);
        }
        // Before it is in the list, where an operation may look that has to see when it came.
        self.trouble(DEPARTED);
        let mut departures = lock(&self.departures);
        // The first news stays, unless it was a guess.
        for rank in ranks {
            if departures.get(rank).is_none_or(|d| d.how == Gone::Silent) {
                departures.insert(*rank, Departure { rank: *rank, how, text: text.to_string() });
            }
        }
        drop(departures);
        self.bell().ring();
    }

    /// `rank` has closed a connection that it keeps while it takes part, or takes none any more. So does a rank that leaves, which it
    /// says in another way, and one that dies, of which nobody may be left to tell.
    pub(in crate::communicator) fn on_silence(&self, rank: usize, text: &str) {
        if self.departure(rank).is_none() {
            self.on_departures(&[rank], Gone::Silent, text);
        }
    }

    /// The ring found `rank` dead. All ranks of its process are: only those at the edges of a run of them have neighbours in the
    /// ring that are left to notice it. Who left in good order says nothing of the others with the end of its connections.
    fn on_dead(&self, rank: usize, text: &str) {
        if self.departure(rank).is_some_and(|d| d.how == Gone::Left) {
            return;
        }
        let of_process = |r: &usize| self.peers[*r].process == self.peers[rank].process && !self.same_process(*r);
        let dead: Vec<usize> = (0..self.ranks).filter(|r| *r == rank || of_process(r)).collect();
        self.on_departures(&dead, Gone::Died, text);
    }

    /// News from ranks of other machines. Runs on the service thread, on the one that mends the ring, and for what came before the
    /// core was there on the one that makes it.
    pub(in crate::communicator) fn on_news(&self, news: News) {
        match news {
            News::Gone { rank, text } => self.on_silence(rank, &text),
            News::Mend => {
                if let Some(ring) = lock(&self.control).as_ref() {
                    ring.mend(&self.peers);
                }
            }
            News::Dead { rank, text } => self.on_dead(rank, &text),
            News::Left { rank } => {
                self.on_departures(&[rank], Gone::Left, "");
            }
            News::Call { rank, seq, signature, .. } => {
                let mut heard = lock(&self.heard);
                heard.retain(|(r, ..)| *r != rank);
                heard.push((rank, seq, signature));
                drop(heard);
                self.bell().ring();
                self.answer(rank, seq, signature);
            }
            News::Ended { rank, text } => {
                lock(&self.news).note(rank, true, Error::remote(text));
                self.trouble(NEWS);
            }
            News::Error { rank, code, text } => {
                lock(&self.news).note(rank, false, Error::new(code, text));
                self.trouble(NEWS);
            }
        }
    }
}

impl Settle for Core {
    fn poll(&self) -> Option<Result<()>> {
        let mut cause = None;
        // Whoever made the call before the end came is no cause: the second look is after the end was seen.
        for _ in 0..2 {
            match self.engine.try_lock()?.settle(self) {
                Ok(missing) if missing.is_empty() => return Some(Ok(())),
                Ok(missing) => {
                    let gone = || missing.iter().find_map(|rank| self.departure(*rank));
                    let departed =
                        || gone().map(|d| self.departed(&d, &format!("without a call that rank {} made", self.rank)));
                    if cause.is_none() {
                        // In this order: who is gone told its reason before.
                        let departed = departed();
                        cause = Some(self.check().err().or(departed)?);
                    }
                }
                Err(e) => {
                    cause = Some(e);
                    break;
                }
            }
        }
        let error = cause?;
        if self.check().is_ok() {
            self.spread(&error);
        }
        self.fail(&error);
        Some(Err(error))
    }
}
