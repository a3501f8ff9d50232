//! Random puts and signals against a model: every rank can compute what every other does, so it knows what must be in
//! its window and how many signals must have come.

use oxccl::{Communicator, Expected, Signal, Window};

use crate::harness::Random;

/// Signals that the ranks use.
const SIGNALS: usize = 4;
/// Greatest length of a rank's region in each window, in elements.
const REGION: usize = 70_000;

/// One call of a sender.
struct Call {
    peer: usize,
    offset: usize,
    values: Vec<u32>,
    /// Raised at the end, or only with a later call.
    signal: Option<usize>,
    /// A signal without data.
    bare: bool,
}

/// Elements of the region of each sender in the window of `rank`: they differ between ranks.
fn region(rank: usize) -> usize {
    REGION - 1000 * (rank % 7)
}

/// What `rank` does in a round, the same wherever it is computed.
fn calls(seed: u64, round: u64, rank: usize, ranks: usize) -> Vec<Call> {
    let mut random = Random(seed ^ round.wrapping_mul(0x9e37_79b9) ^ (rank as u64) << 40);
    let n = 1 + random.below(12);
    (0..n)
        .map(|_| {
            let peer = random.below(ranks as u64) as usize;
            let room = region(peer) as u64;
            let longest = match random.below(4) {
                0 => 1,
                1 => 40,
                2 => 3_000,
                _ => room,
            };
            let len = 1 + random.below(longest.min(room));
            let offset = random.below(room - len + 1) as usize;
            let bare = random.below(5) == 0;
            let first = random.next() as u32;
            let values = if bare { vec![] } else { (0..len as u32).map(|i| first.wrapping_add(i * 7)).collect() };
            let signal = (bare || random.below(4) > 0).then(|| random.below(SIGNALS as u64) as usize);
            Call { peer, offset, values, signal, bare }
        })
        .collect()
}

fn issue(comm: &Communicator, window: &Window<u32>, all: &[Call], contexts: usize) {
    for call in all {
        let at = comm.rank() * region(call.peer) + call.offset;
        let signal = |index: usize| Signal { context: index % contexts, index };
        match call.signal {
            Some(index) if call.bare => comm.signal(call.peer, signal(index)),
            Some(index) => comm.put_signal(window, call.peer, at, &call.values, signal(index)),
            None => comm.put(window, call.peer, at, &call.values),
        }
        .expect("a call that is right");
    }
    // Signal 7 is for those who had puts without a signal: it comes after them.
    for peer in 0..comm.ranks() {
        comm.signal(peer, Signal::number(7)).expect("a signal");
    }
}

/// Waits for all signals of a round, in several calls.
fn await_signals(comm: &Communicator, seen: &[Vec<Call>], contexts: usize, random: &mut Random) {
    let mut left: Vec<Expected> = Vec::new();
    for (from, all) in seen.iter().enumerate() {
        left.push(Expected { from, signal: Signal::number(7), count: 1 });
        for index in 0..SIGNALS {
            let count = all.iter().filter(|c| c.peer == comm.rank() && c.signal == Some(index)).count() as u64;
            let signal = Signal { context: index % contexts, index };
            // In two portions: waits use up what they waited for.
            let part = random.below(count + 1);
            for count in [part, count - part].into_iter().filter(|c| *c > 0) {
                left.push(Expected { from, signal, count });
            }
        }
    }
    while !left.is_empty() {
        let n = 1 + random.below(left.len() as u64) as usize;
        let some: Vec<Expected> = (0..n).map(|_| left.swap_remove(random.below(left.len() as u64) as usize)).collect();
        comm.wait_signals(&some).expect("signals that were raised");
    }
}

/// Rounds of random calls on one window. `contexts`: of the communicator.
pub fn run(comm: &Communicator, seed: u64, rounds: u64, contexts: usize) {
    let (me, ranks) = (comm.rank(), comm.ranks());
    let window = comm.window::<u32>(region(me) * ranks).expect("a window");
    assert_eq!(window.len_of((me + 1) % ranks), region((me + 1) % ranks) * ranks);
    let mut model = vec![0_u32; region(me) * ranks];
    let mut random = Random(seed ^ me as u64);
    for round in 0..rounds {
        let all: Vec<Vec<Call>> = (0..ranks).map(|r| calls(seed, round, r, ranks)).collect();
        issue(comm, &window, &all[me], contexts);
        await_signals(comm, &all, contexts, &mut random);
        for (from, calls) in all.iter().enumerate() {
            for c in calls.iter().filter(|c| c.peer == me) {
                let at = from * region(me) + c.offset;
                model[at..at + c.values.len()].copy_from_slice(&c.values);
            }
        }
        let found = window.to_vec();
        let wrong = (0..model.len()).find(|i| found[*i] != model[*i]);
        assert_eq!(wrong, None, "rank {me}, round {round}, seed {seed}: {:?}", wrong.map(|i| (found[i], model[i])));
        comm.barrier().expect("barrier");
    }
    let memory = window.close(comm).expect("close");
    assert!(memory[..] == model[..]);
}
