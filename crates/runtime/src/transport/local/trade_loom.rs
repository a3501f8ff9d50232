//! Slots that change hands, under every interleaving and every reordering the memory model allows: the rings and the trades of
//! two ranks over memory in which loom sees who touches which slot, record and word.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use loom::cell::UnsafeCell;
use loom::sync::atomic::AtomicU64;
use loom::thread;

use super::trade::{Area, Trade};
use crate::transport::ring::{Cells, Consumer, Producer, Word};

/// A word that one rank uses: loom reports it if the other one touches it, and needs not look at it otherwise.
struct Own(UnsafeCell<u64>);

impl Word for Own {
    fn load(&self, _: Ordering) -> u64 {
        // SAFETY: that no other rank uses the word is what the test checks.
        self.0.with(|p| unsafe { *p })
    }
    fn store(&self, value: u64, _: Ordering) {
        // SAFETY: as above.
        self.0.with_mut(|p| unsafe { *p = value });
    }
}

/// The memory of a direction.
struct Memory {
    tags: Vec<AtomicU64>,
    consumed: AtomicU64,
    given: AtomicU64,
    own: [Own; 6],
    /// What a record holds besides its tag: the number of its slot.
    records: Vec<UnsafeCell<u64>>,
    slots: Vec<UnsafeCell<u64>>,
}

impl Memory {
    fn new(slots: usize, records: usize) -> Memory {
        let cells = |n: usize| (0..n).map(|_| UnsafeCell::new(0)).collect();
        Memory {
            tags: (0..records).map(|_| AtomicU64::new(0)).collect(),
            consumed: AtomicU64::new(0),
            given: AtomicU64::new(0),
            own: std::array::from_fn(|_| Own(UnsafeCell::new(0))),
            records: cells(records),
            slots: cells(slots),
        }
    }
}

struct Both([Memory; 2]);

// SAFETY: that the cells are handed over correctly is what the test checks.
unsafe impl Sync for Both {}
// SAFETY: as above.
unsafe impl Send for Both {}

/// The direction from a rank.
#[derive(Clone)]
struct Direction {
    both: Arc<Both>,
    from: usize,
}

impl Direction {
    fn memory(&self) -> &Memory {
        &self.both.0[self.from]
    }
    /// What lies in a slot of either direction.
    fn slot(&self, (from, index): (usize, usize)) -> &UnsafeCell<u64> {
        &self.both.0[from].slots[index]
    }
}

impl Cells for Direction {
    type Word = AtomicU64;
    fn tag(&self, index: usize) -> &AtomicU64 {
        &self.memory().tags[index]
    }
    fn consumed(&self) -> &AtomicU64 {
        &self.memory().consumed
    }
}

impl Area for Direction {
    type Own = Own;
    type Slot = (usize, usize);
    fn slots(&self) -> usize {
        self.memory().slots.len()
    }
    fn slot_bytes(&self) -> usize {
        8
    }
    fn own_word(&self, index: usize) -> &Own {
        &self.memory().own[index]
    }
    fn given(&self) -> &AtomicU64 {
        &self.memory().given
    }
    fn long_slot(&self, index: usize) -> (usize, usize) {
        (self.from, index)
    }
}

#[derive(Clone, Copy)]
enum Act {
    /// A message through a slot.
    Send,
    /// One that its record carries.
    SendShort,
    Receive,
    /// A message through a slot and one from the peer, whichever can go on.
    Exchange,
}

/// The metas of the messages.
const SHORT: u64 = 1;
const LONG: u64 = 2;

/// Message `n` of a rank.
fn message(rank: usize, n: u64) -> u64 {
    100 * (rank as u64 + 1) + n
}

/// One rank: both ends, as `LocalSender` and `LocalReceiver` use ring and trade.
struct Rank {
    rank: usize,
    out: Producer<Direction>,
    back: Consumer<Direction>,
    trade: Trade<Direction>,
}

impl Rank {
    fn new(both: &Arc<Both>, rank: usize) -> Rank {
        let direction = |from| Direction { both: both.clone(), from };
        let (out, back) = (direction(rank), direction(1 - rank));
        let records = out.memory().records.len();
        let trade = Trade::new(out.clone(), back.clone(), rank == 0).unwrap();
        Rank { rank, out: Producer::new(out, records), back: Consumer::new(back, records), trade }
    }

    fn send(&mut self, long: bool) -> bool {
        let Some(index) = self.out.reserve() else { return false };
        let record = self.out.published();
        let what = message(self.rank, record);
        let mut word = what;
        if long {
            let slots = self.out.cells().slots() as u64;
            if !self.out.poll_consumed((record + 1).saturating_sub(slots)) {
                return false;
            }
            word = self.trade.take(record);
            self.trade.sent(record);
            let area = self.out.cells();
            // SAFETY: taken; loom reports who else would touch it.
            area.slot(self.trade.slot(word)).with_mut(|p| unsafe { *p = what });
        }
        // SAFETY: reserved; loom reports who else would touch it.
        self.out.cells().memory().records[index].with_mut(|p| unsafe { *p = word });
        self.out.publish(if long { LONG } else { SHORT });
        true
    }

    fn receive(&mut self) -> bool {
        let Some((index, meta)) = self.back.peek() else { return false };
        let (record, area) = (self.back.consumed(), self.back.cells());
        // SAFETY: found; loom reports who else would touch it.
        let word = area.memory().records[index].with(|p| unsafe { *p });
        if meta == LONG {
            // SAFETY: as above.
            let found = area.slot(self.trade.slot(word)).with(|p| unsafe { *p });
            assert_eq!(found, message(1 - self.rank, record), "slot {word}");
            self.trade.received(record, word);
        } else {
            assert_eq!(word, message(1 - self.rank, record));
        }
        self.back.release();
        true
    }

    fn plays(mut self, acts: &[Act]) {
        for act in acts {
            let (send, mut receives) = match act {
                Act::Send => (Some(true), false),
                Act::SendShort => (Some(false), false),
                Act::Receive => (None, true),
                Act::Exchange => (Some(true), true),
            };
            let mut sends = send;
            while sends.is_some() || receives {
                if sends.is_some_and(|long| self.send(long)) {
                    sends = None;
                } else if receives && self.receive() {
                    receives = false;
                } else {
                    thread::yield_now();
                }
            }
        }
    }
}

/// Two ranks that play these, over so many slots and records. No order is tried with more than `preemptions` switches away from
/// a rank that could go on, if that is given: all would take hours.
fn play(preemptions: Option<usize>, slots: usize, records: usize, acts: [&'static [Act]; 2]) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = preemptions;
    model.check(move || {
        let both = Arc::new(Both([0, 1].map(|_| Memory::new(slots, records))));
        let [lower, higher] = [0, 1].map(|rank| Rank::new(&both, rank));
        let other = thread::spawn(move || higher.plays(acts[1]));
        lower.plays(acts[0]);
        other.join().unwrap();
    });
}

use Act::{Exchange, Receive, Send as Give, SendShort};

#[test]
fn loom_slots_change_hands_with_each_answer() {
    play(None, 1, 1, [&[Give, Receive, Give, Receive, Give], &[Receive, Give, Receive, Give, Receive]]);
}

#[test]
fn loom_slots_change_hands_while_messages_cross() {
    for records in [1, 2] {
        play(Some(3), 1, records, [&[Exchange, Exchange, Exchange], &[Exchange, Exchange, Exchange]]);
    }
}

#[test]
fn loom_a_slot_whose_message_waits_does_not_change_hands() {
    for records in [1, 2] {
        play(Some(4), 1, records, [&[Give, Receive, Receive, Give, Receive], &[Give, Give, Receive, Give, Receive]]);
    }
}

#[test]
fn loom_slots_change_hands_among_messages_that_need_none() {
    play(Some(3), 1, 2, [&[Give, SendShort, Receive, Give, Receive], &[Give, Receive, Receive, Give, Receive]]);
    play(Some(4), 2, 2, [&[SendShort, Give, Receive, Give, Give], &[Receive, Give, Receive, Receive, Receive]]);
}

#[test]
fn loom_several_slots_change_hands_at_once() {
    play(Some(3), 2, 2, [&[Give, Give, Receive, Receive, Give], &[Give, Receive, Give, Receive, Receive]]);
    play(Some(3), 2, 2, [&[Exchange, Exchange, Exchange], &[Exchange, Exchange, Exchange]]);
}
