//! The entry line: how a rank says which collective it has started, and how it learns of the others'.
//!
//! Every collective of a clique starts with it, so mismatched calls are found before any data is believed.

use oxccl_kernels as kernels;
use oxccl_sys::Belfry;
use oxccl_sys::prefetch;
use oxccl_sys::sync::{Ordering, kept_in_order, pause_between};
use oxccl_types::{Error, Result};

use super::call::{Call, describe};
use super::fused;
use crate::communicator::core::Core;
use crate::communicator::hub::{DEPTH, EntryLine, FIRST_BYTES, LINES_AHEAD};
use crate::haste;

/// Which lines of the peers this rank has seen, and how long it looks for one.
pub(super) struct Seen {
    /// Per member the highest sequence of a line that was compared with this rank's call.
    lines: Vec<u64>,
    /// Per member a call that it has started, compared or not.
    freed: Vec<u64>,
    /// A call that every peer has started.
    all_freed: u64,
    /// Looks at one line before the answer is that it has not come.
    polls: u32,
    /// The last calls of this rank: sequence and signature. To be compared with what peers called, or are blocked in.
    recent: [(u64, [u64; 2]); DEPTH as usize],
}

/// Polls of one line before the task says that it is blocked: 3 to 25 us, by the processor's pause. A peer that was
/// interrupted is back by then, and who went on ahead of it would do so with a queue from then on.
const POLLS: u32 = 512;

impl Seen {
    pub(super) fn new(members: usize) -> Seen {
        Seen {
            lines: vec![0; members],
            freed: vec![0; members],
            all_freed: 0,
            polls: 1,
            recent: [(0, [0; 2]); DEPTH as usize],
        }
    }

    /// From now on a line is looked at this often, or less while the program works [between](haste) its calls. Once is enough where
    /// the peers may need this very thread.
    #[inline]
    pub(super) fn look(&mut self, polls: u32) {
        self.polls = haste::looks(polls);
    }

    /// [`look`](Seen::look) for a call that begins, in time that it takes from the program.
    #[inline(always)]
    pub(super) fn begin(&mut self, polls: u32) {
        haste::begin();
        self.look(polls);
    }

    /// How often that is.
    #[inline]
    pub(super) fn polls(&self) -> u32 {
        self.polls
    }

    /// Remembers the call `seq` of this rank.
    #[inline]
    pub(super) fn called(&mut self, seq: u64, signature: [u64; 2]) {
        self.recent[(seq % DEPTH) as usize] = (seq, signature);
    }

    /// The signature of the call `seq` of this rank, if it is remembered.
    pub(super) fn own(&self, seq: u64) -> Option<[u64; 2]> {
        let (number, signature) = self.recent[(seq % DEPTH) as usize];
        (number == seq).then_some(signature)
    }

    /// The error of two calls `seq` that differ. Where only their histories do, an earlier call is what differs; it is
    /// named as long as its line is there.
    #[cold]
    fn mismatch(&self, core: &Core, mine: [u64; 2], member: usize, theirs: [u64; 2], seq: u64) -> Error {
        let earlier = |s: u64| {
            let (mine, theirs) = (self.own(s)?, line_of(core, member, s)?);
            (mine != theirs).then_some((mine, theirs, s))
        };
        let first = (seq.saturating_sub(DEPTH - 1)..seq).find_map(earlier);
        let (mine, theirs, seq) = first.unwrap_or((mine, theirs, seq));
        mismatch_words(core, mine, member, theirs, seq)
    }

    /// Whether my line of `seq`, and its slot where `ahead` is what the [slots](crate::communicator::hub::Geometry::ahead) allow, may be written:
    /// every peer is done with what they held.
    #[inline]
    pub(super) fn may_publish(&mut self, core: &Core, seq: u64, ahead: u64) -> bool {
        // Who has started call `seq - ahead + 1` has finished what the line or slot was used for before: see `LINES_AHEAD`;
        // calls with slots are finished before the next one starts, or there are so many more slots.
        self.all_have_freed(seq, ahead) || self.may_publish_now(core, seq - ahead + 1, ahead)
    }

    /// Whether [`may_publish`](Seen::may_publish) is known to hold by the last look at all peers.
    #[inline(always)]
    fn all_have_freed(&self, seq: u64, ahead: u64) -> bool {
        seq <= ahead || self.all_freed > seq - ahead
    }

    /// The same by all that is known of each of them. `me`: this rank. Stores to what is free rest on it.
    #[inline]
    pub(super) fn is_known_free(&self, me: usize, seq: u64, ahead: u64) -> bool {
        let started = |m: usize| m == me || self.lines[m].max(self.freed[m]) > seq - ahead;
        seq <= ahead || (0..self.lines.len()).all(started)
    }

    /// [`ask_for`] by a rank that waits for the peers anyway: if it has a core of its own, and they are known to be done with the
    /// line, it reclaims it from them by a store.
    #[inline(always)]
    pub(super) fn reclaim(&self, core: &Core, seq: u64, bytes: usize) {
        if core.crowded || !self.all_have_freed(seq, LINES_AHEAD) {
            return ask_for(core, seq, bytes);
        }
        let body = core.hub.entry(core.me, seq).body;
        // SAFETY: `may_publish` would hold; bodies have `INLINE_BYTES` bytes, and both places are where a word begins.
        unsafe {
            prefetch::reclaim(body.cast());
            if bytes > FIRST_BYTES {
                prefetch::reclaim(body.add(FIRST_BYTES).cast());
            }
        }
    }

    /// Whether every peer has started call `need`.
    #[inline(never)]
    fn may_publish_now(&mut self, core: &Core, need: u64, ahead: u64) -> bool {
        let mut all = u64::MAX;
        for member in (0..self.lines.len()).filter(|m| *m != core.me) {
            let known = self.lines[member].max(self.freed[member]);
            if known >= need {
                all = all.min(known);
                continue;
            }
            // A peer that keeps up is further by now: one look then serves several calls. Where it is not, the line that
            // it comes to later is waited for: each look at the one that it writes next would hold it up.
            let far = need + ahead / 2;
            self.freed[member] = if has_come(core, member, far, self.polls) {
                far
            } else if has_come(core, member, need, 1) {
                need
            } else {
                return false;
            };
            all = all.min(self.freed[member]);
        }
        self.all_freed = all;
        true
    }

    /// Whether `member` has started call `seq`. The line then holds its signature and body.
    ///
    /// `InvalidUsage` when it is another call than mine: both calls are named, and every member hears of it.
    #[inline(always)]
    pub(super) fn arrived(&mut self, core: &Core, call: &Call, member: usize, seq: u64) -> Result<bool> {
        let line = core.hub.entry(member, seq);
        let looks = looks_at(&line, seq, self.polls);
        if looks > 0 {
            if looks >= self.polls {
                haste::in_vain(looks);
                return Ok(false);
            }
            haste::came(looks);
        }
        if self.lines[member] < seq {
            self.lines[member] = seq;
            // SAFETY: the acquire load above orders these reads after the peer's writes; the peer does not write the
            // line again before this rank has started more than a window of later calls, which it does not while `seq`
            // is not over: see `LINES_AHEAD`.
            let theirs = unsafe { [line.signature.read(), line.signature.add(1).read()] };
            if theirs != call.signature && fused::plain(theirs) != call.signature {
                return Err(self.mismatch(core, call.signature, member, fused::plain(theirs), seq));
            }
        }
        Ok(true)
    }

    /// The peers that have not started call `seq`.
    pub(super) fn missing(&self, core: &Core, seq: u64) -> Vec<usize> {
        let away = |m: &usize| {
            // SYNC: entry-line
            *m != core.me && self.lines[*m] < seq && core.hub.entry(*m, seq).seq.load(Ordering::Acquire) < seq
        };
        (0..self.lines.len()).filter(away).map(|m| core.members[m]).collect()
    }

    /// Whether all peers have started call `seq`; a look without waiting, for deferred checks. This rank must not have
    /// started a later call: a peer may then write the line again.
    pub(super) fn all_started(&mut self, core: &Core, call_signature: [u64; 2], seq: u64) -> Result<bool> {
        let mut all = true;
        for member in 0..self.lines.len() {
            if member == core.me || self.lines[member] >= seq {
                continue;
            }
            let line = core.hub.entry(member, seq);
            // SYNC: entry-line
            if line.seq.load(Ordering::Acquire) < seq {
                all = false;
                continue;
            }
            self.lines[member] = seq;
            // SAFETY: as in `arrived`.
            let theirs = unsafe { [line.signature.read(), line.signature.add(1).read()] };
            if theirs != call_signature {
                return Err(self.mismatch(core, call_signature, member, fused::plain(theirs), seq));
            }
        }
        Ok(all)
    }
}

/// Whether `member` has written its line of call `seq`, or does so while this looks, at `most` so often.
#[inline]
pub(super) fn has_come(core: &Core, member: usize, seq: u64, most: u32) -> bool {
    looks_at(&core.hub.entry(member, seq), seq, most) < most
}

/// Looks after which `line` was of call `seq` or a later one; `most`: it was not. It is looked at once at least.
#[inline]
fn looks_at(line: &EntryLine, seq: u64, most: u32) -> u32 {
    debug_assert!(most > 0);
    let mut looks = 0;
    // SYNC: entry-line
    while line.seq.load(Ordering::Acquire) < seq {
        looks += 1;
        if looks >= most {
            break;
        }
        pause_between(looks);
    }
    looks
}

/// What a rank called so far, in eight bits that travel with each signature: a call that no peer had to look at (a
/// broadcast's leaf, a reduction's giver) is compared with the next one at the latest.
#[derive(Default)]
pub(super) struct History(u64);

/// Where the digest lies in the first word of a signature: `Signature::pack` leaves these bits zero.
const HISTORY_SHIFT: u32 = 24;
/// The first word of a signature but for the digest.
pub(super) const WITHOUT_HISTORY: u64 = !(0xff << HISTORY_SHIFT);

impl History {
    /// `signature` with the digest of the calls before it; remembers it for those behind it.
    #[inline(always)]
    pub(super) fn add(&mut self, signature: [u64; 2]) -> [u64; 2] {
        let digest = self.0 >> 56;
        for word in signature {
            self.0 = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        }
        self.0 = self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        [signature[0] | digest << HISTORY_SHIFT, signature[1]]
    }
}

/// Polls of one line by a rank with a core of its own, and by one that shares.
pub(crate) const fn polls(crowded: bool) -> u32 {
    if crowded { 2 } else { POLLS }
}

/// The signature in `member`'s line of the earlier call `seq`; `None` when the line belongs to another call by now.
fn line_of(core: &Core, member: usize, seq: u64) -> Option<[u64; 2]> {
    let line = core.hub.entry(member, seq);
    // SYNC: entry-line
    let there = || line.seq.load(Ordering::Acquire) == seq;
    if !there() {
        return None;
    }
    // SAFETY: two words of the line, aligned. The peer may be writing them for a later call: they are read once each,
    // and believed only when the line still belongs to `seq`; they serve a text.
    let words = unsafe { [line.signature.read_volatile(), line.signature.add(1).read_volatile()] };
    there().then_some(fused::plain(words))
}

/// As [`different`], for a peer of the clique; every member hears of it.
#[cold]
pub(super) fn mismatch_words(core: &Core, mine: [u64; 2], member: usize, theirs: [u64; 2], seq: u64) -> Error {
    let error = different(core, mine, core.members[member], theirs, seq);
    core.spread(&error);
    error
}

/// The error of two calls with the number `seq` that do not match.
pub(crate) fn different(core: &Core, mine: [u64; 2], rank: usize, theirs: [u64; 2], seq: u64) -> Error {
    let before = if describe(mine) == describe(theirs) { " before these (an earlier call differed)" } else { "" };
    Error::usage(format!(
        "ranks called different operations{before}: rank {} called {}, rank {rank} called {} (collective number {seq} of \
         communicator {:#x}); all ranks must make the same calls with the same count, type, operator and root in the \
         same order",
        core.rank,
        describe(mine),
        describe(theirs),
        core.hash
    ))
}

/// Bytes of a line of the cache, of which an entry line has two.
const HALF: usize = 64;

/// Copies `bytes` bytes to `at` in the body of my line, in the order that [`publish`] asks for.
///
/// # Safety
/// They are readable, and fit behind `at`; `publish` made the body writable.
#[inline(always)]
pub(super) unsafe fn put(at: *mut u8, src: *const u8, bytes: usize) {
    let first = bytes.min(HALF - at.addr() % HALF);
    // SAFETY: the caller's promise.
    unsafe {
        if bytes > first {
            kernels::copy(&[at.add(first)], src.add(first), bytes - first);
            kept_in_order();
        }
        kernels::copy(&[at], src, first);
    }
}

/// Writes my line of `seq`: `fill` writes what is in its body, then the sequence is stored and sleepers are
/// woken.
///
/// What does not lie in the line's first half `fill` writes first (but for scaled inputs): who waits looks at that half all the
/// time, and if a store to it is followed by one that has to wait for another line, takes it away in between.
///
/// The next line is asked for behind it, see [`ask_for`].
#[inline(always)]
pub(super) fn publish(core: &Core, signature: [u64; 2], seq: u64, fill: impl FnOnce(*mut u8)) {
    let line = core.hub.entry(core.me, seq);
    fill(line.body);
    kept_in_order();
    // SAFETY: `may_publish` said that no peer reads this line any more; only this rank writes it.
    unsafe {
        line.signature.write(signature[0]);
        line.signature.add(1).write(signature[1]);
    }
    // SYNC: entry-line
    line.seq.store(seq, Ordering::Release);
    core.hub.ring_all(core.me);
}

/// Asks for my line of `seq`, the next one, with room for `bytes` bytes of a body: peers have read it some calls ago, and it comes
/// back while the call in front goes on.
#[inline(always)]
pub(super) fn ask_for(core: &Core, seq: u64, bytes: usize) {
    let body = core.hub.entry(core.me, seq).body;
    prefetch::for_write(body);
    if bytes > FIRST_BYTES {
        prefetch::for_write(body.wrapping_add(FIRST_BYTES));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of two ranks, the first: the peer has started call `known`, as was seen by its line, by a look at a later one, or by both.
    #[test]
    fn lines_and_slots_are_free_when_the_peer_has_started_the_call_that_says_so() {
        for (ahead, known) in [(8, 1), (8, 100), (LINES_AHEAD, 1), (LINES_AHEAD, 1000)] {
            let (mut by_line, mut by_look, mut by_all) = (Seen::new(2), Seen::new(2), Seen::new(2));
            (by_line.lines[1], by_look.freed[1], by_all.all_freed) = (known, known, known);
            for seq in 1..known + 2 * ahead {
                // Who has started call `seq - ahead + 1` is done with what `seq` takes the place of.
                let free = seq <= ahead || known > seq - ahead;
                assert_eq!(by_line.is_known_free(0, seq, ahead), free, "{seq} {ahead} {known}");
                assert_eq!(by_look.is_known_free(0, seq, ahead), free, "{seq} {ahead} {known}");
                assert_eq!(by_all.all_have_freed(seq, ahead), free, "{seq} {ahead} {known}");
                // What is known of itself says nothing.
                assert_eq!(by_line.is_known_free(1, seq, ahead), seq <= ahead, "{seq} {ahead} {known}");
            }
        }
    }

    /// Whether rank 0 of two, each a thread, looks briefly for the peer of a call of so many bytes, before which it worked for a while and
    /// waited for nobody, since the peer was late to the call in front. Ranks that share a core never look long. The helper may have the
    /// stream just then, so that the call is queued: they try for some rounds.
    #[cfg(not(loom))]
    fn looks_briefly(bytes: usize, message: bool) -> bool {
        use crate::group::tests::sum;
        use crate::{UniqueId, communicator::CommConfig, communicator::Communicator, device};
        use oxccl_types::Collective;

        let (id, meet) = (UniqueId::create().unwrap(), &std::sync::Barrier::new(2));
        let work = || {
            let end = oxccl_sys::clock::now_ns() + 20_000;
            while oxccl_sys::clock::now_ns() < end {
                std::hint::spin_loop();
            }
        };
        let rank = |rank: usize| {
            let id = id.clone();
            move || {
                let config = CommConfig::default();
                let comm = Communicator::init_rank(2, id, rank as i32, device::current(), config, "test").unwrap();
                let stream = device::Stream::new().unwrap();
                let (send, mut recv) = (vec![1 + rank as u8; bytes], vec![0; bytes]);
                let mut call = || {
                    let mut request = sum(&send, &mut recv, stream.clone());
                    if message {
                        request.collective = if rank == 0 { Collective::Recv } else { Collective::Send };
                        request.root = 1 - rank;
                    }
                    comm.submit(request).unwrap();
                };
                let core = comm.core().unwrap();
                let mut brief = false;
                for _ in 0..20 {
                    if rank == 1 {
                        meet.wait();
                    }
                    call();
                    if rank == 0 {
                        work();
                        meet.wait();
                    }
                    meet.wait();
                    work();
                    call();
                    brief |= match message {
                        true => haste::looks(512) == 64,
                        false => core.engine.lock().seen.polls == 64,
                    };
                    stream.synchronize().unwrap();
                    meet.wait();
                }
                assert!(recv.iter().all(|b| *b == if message { 2 * (1 - rank as u8) } else { 3 }));
                let shared = core.crowded;
                comm.destroy().unwrap();
                brief || shared
            }
        };
        let threads = [rank(0), rank(1)];
        std::thread::scope(|s| threads.map(|f| s.spawn(f)).map(|t| t.join().unwrap()))[0]
    }

    #[cfg(not(loom))]
    #[test]
    fn who_works_between_its_calls_looks_briefly_once_a_peer_was_late() {
        for (bytes, message) in [(8, false), (20_000, false), (8, true), (20_000, true)] {
            assert!(looks_briefly(bytes, message), "{bytes} bytes, of a message: {message}");
        }
    }

    #[repr(align(128))]
    struct Line([u8; 2 * HALF]);

    #[test]
    fn all_that_is_put_is_there_and_nothing_else() {
        let src: Vec<u8> = (1..=2 * HALF as u8).collect();
        for at in 0..2 * HALF {
            for bytes in 0..=2 * HALF - at {
                let mut line = Line([0; 2 * HALF]);
                // SAFETY: both have so many bytes.
                unsafe { put(line.0.as_mut_ptr().add(at), src.as_ptr(), bytes) };
                assert_eq!(line.0[at..at + bytes], src[..bytes], "{at} {bytes}");
                assert!(line.0[..at].iter().chain(&line.0[at + bytes..]).all(|b| *b == 0), "{at} {bytes}");
            }
        }
    }
}
