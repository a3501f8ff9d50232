//! Calls over mapped memory that follow one another, by two ranks that take themselves to have a core each: one leaves the end of
//! such a call to the next one, and begins that while the peer still reads what it lent, or writes its output. No call may see it,
//! nor who waits for the stream; and what begins behind an end must hear of a peer that is gone.

use oxccl_runtime::device::{Event, Stream};
use oxccl_types::Collective;

use crate::crowds::processes;
use crate::scenarios::{Comm, Ints, To, request};

/// A core for each rank, as far as they know.
const OWN: (&str, &str) = ("OXCCL_CORES", "64");

#[test]
fn calls_whose_ends_are_left_to_the_next_ones_keep_their_order() {
    processes(2, &[OWN], "ends");
    processes(2, &[OWN, ("OXCCL_EAGER_LIMIT", "0")], "ends");
}

#[test]
fn what_begins_behind_an_end_hears_of_a_peer_that_is_gone() {
    processes(2, &[OWN], "goes");
}

/// Buffers of a rank, the last one of memory that its peers cannot map.
const BUFFERS: usize = 7;
const ROUNDS: usize = 24;
/// Elements of a block: the calls of a round go over mapped memory but for the shortest, and those now and then that are short.
const BLOCKS: [usize; 5] = [16, 1100, 2048, 5000, 8000];
const SHORT: usize = 3;

/// A call of all ranks.
#[derive(Clone, Copy, Debug)]
struct Call {
    kind: Collective,
    root: usize,
    /// Elements per block.
    count: usize,
    from: usize,
    to: usize,
}

/// The elements of each buffer of each rank.
type Model = Vec<Vec<Vec<i32>>>;

impl Call {
    fn draw(rng: &mut fastrand::Rng, ranks: usize, count: usize) -> Call {
        use Collective::{AllGather, AllReduce, AllToAll, Broadcast, Gather, Reduce, ReduceScatter, Scatter};
        let kinds = [AllReduce, AllReduce, ReduceScatter, AllGather, AllToAll, Broadcast, Reduce, Gather, Scatter];
        let kind = kinds[rng.usize(..kinds.len())];
        Call { kind, root: rng.usize(..ranks), count, from: 0, to: 0 }
    }

    /// The same with other buffers, of `most`.
    fn with_buffers(self, rng: &mut fastrand::Rng, most: usize) -> Call {
        let from = rng.usize(..most);
        let in_place = self.kind == Collective::AllReduce && rng.u8(..3) == 0;
        let to = if in_place { from } else { (from + rng.usize(1..most)) % most };
        Call { from, to, ..self }
    }

    fn apply(&self, model: &mut Model) {
        use Collective::{AllGather, AllToAll, Broadcast, Gather, Reduce, ReduceScatter, Scatter};
        let Call { kind, root, count, from, to } = *self;
        let ranks = model.len();
        let inputs: Vec<Vec<i32>> = model.iter().map(|buffers| buffers[from].clone()).collect();
        let sum = |at: usize| inputs.iter().fold(0, |sum: i32, input| sum.wrapping_add(input[at]));
        for (rank, buffers) in model.iter_mut().enumerate() {
            if rank != root && matches!(kind, Reduce | Gather) {
                continue;
            }
            let blocks = if matches!(kind, AllGather | AllToAll | Gather) { ranks } else { 1 };
            for (at, element) in buffers[to][..blocks * count].iter_mut().enumerate() {
                let (block, i) = (at / count, at % count);
                *element = match kind {
                    AllGather | Gather => inputs[block][i],
                    AllToAll => inputs[block][rank * count + i],
                    Broadcast => inputs[root][i],
                    Scatter => inputs[root][rank * count + i],
                    ReduceScatter => sum(rank * count + i),
                    _ => sum(i),
                };
            }
        }
    }
}

/// One rank of these.
pub(crate) fn one(rank: usize, ranks: usize, comm: &Comm, seed: u64) {
    gives(rank, ranks, comm);
    reads(rank, ranks, comm);
    chains(rank, ranks, comm, seed);
    mixes(rank, ranks, comm, seed);
}

/// Elements of long calls, so that peers are at them for a while, and of such that who gives does not wait for: an odd number, of which
/// peers cannot map the memory.
const LONG: usize = 100_000;
const SLOTS: [usize; 3] = [5001, 4001, 3001];
/// More than 16, after which ends are left.
const FOLLOWING: u32 = 20;

/// What a root lends it writes over as soon as its stream has been waited for; behind the calls that lend comes one that ends in another
/// way, or none.
fn gives(rank: usize, ranks: usize, comm: &Comm) {
    let stream = Stream::new().unwrap();
    let block = LONG / ranks;
    let (mut input, output) = (Ints::new(LONG, 0), Ints::new(LONG, 0));
    let (slot, sum, short) = (Ints::new(SLOTS[0], 1), Ints::new(SLOTS[0], 0), Ints::new(SHORT, 1));
    for round in 0..80 {
        let root = round % ranks;
        let submit = |kind, from: &Ints, to: &Ints, count, root| {
            let call = request(kind, from.ptr(), to.ptr(), count, &stream).to(root);
            comm.submit(call).unwrap_or_else(|e| panic!("{e}"));
        };
        input.set(0..LONG, round as i32);
        // The root's own block is where it belongs, so that it has nothing to do while the others take theirs.
        let own = if rank == root { input.ptr().wrapping_add(4 * block * root) } else { output.ptr() };
        for _ in 0..FOLLOWING {
            let call = request(Collective::Scatter, input.ptr(), own, block, &stream).to(root);
            comm.submit(call).unwrap_or_else(|e| panic!("{e}"));
        }
        match round / ranks % 4 {
            0 => submit(Collective::Broadcast, &slot, &sum, SLOTS[round % SLOTS.len()], root),
            1 => submit(Collective::Broadcast, &short, &sum, SHORT, root),
            // The root of before gives.
            2 => submit(Collective::Reduce, &slot, &sum, SLOTS[round % SLOTS.len()], (root + 1) % ranks),
            _ => {}
        }
        stream.synchronize().unwrap_or_else(|e| panic!("{e}"));
        // What is read last, of each block.
        (1..=ranks).for_each(|b| input.set(b * block - block / 50..b * block, -7));
        assert!(rank == root || output.is_at(0..block, round as i32), "rank {rank}, root {root}, round {round}");
    }
}

/// What a peer writes of the output of the last long call, the next one gives at once.
fn reads(rank: usize, ranks: usize, comm: &Comm) {
    let stream = Stream::new().unwrap();
    let (inputs, output) = ([Ints::new(LONG, 1), Ints::new(LONG, 2)], Ints::new(LONG, 0));
    // The end of a part that another rank makes.
    let at = if rank == 0 { LONG - SHORT } else { LONG / ranks - 100 };
    let slice = output.ptr().wrapping_add(4 * at);
    for round in 0..80 {
        let result = Ints::new(SHORT, 0);
        let last = FOLLOWING as usize + round % 2;
        for call in 0..last {
            let call = request(Collective::AllReduce, inputs[call % 2].ptr(), output.ptr(), LONG, &stream);
            comm.submit(call).unwrap_or_else(|e| panic!("{e}"));
        }
        let short = request(Collective::AllReduce, slice, result.ptr(), SHORT, &stream);
        comm.submit(short).unwrap_or_else(|e| panic!("{e}"));
        stream.synchronize().unwrap_or_else(|e| panic!("{e}"));
        result.expect((ranks * ranks * if last.is_multiple_of(2) { 2 } else { 1 }) as i32);
    }
}

/// What a root gathers it broadcasts, and then gathers anew into the same memory: each call needs what the one in front made.
fn chains(rank: usize, ranks: usize, comm: &Comm, seed: u64) {
    const BLOCK: usize = 30_000;
    let mut own = fastrand::Rng::with_seed(seed ^ (rank as u64 + 1));
    let stream = Stream::new().unwrap();
    for round in 0..12 {
        let root = round % ranks;
        // The root's own block stays where it is, so that the root has nothing to do while the others write theirs.
        let value =
            |call: usize, rank: usize| (if rank == root { 0 } else { 100 * (call % 4) } + 10 * round + rank) as i32;
        let inputs: Vec<Ints> = (0..4).map(|call| Ints::new(BLOCK, value(call, rank))).collect();
        let mut gathered = Ints::new(ranks * BLOCK, -1);
        gathered.set(root * BLOCK..(root + 1) * BLOCK, value(0, root));
        let own_block = gathered.ptr().wrapping_add(4 * BLOCK * root);
        let outputs: Vec<Ints> = (0..FOLLOWING).map(|_| Ints::new(ranks * BLOCK, -1)).collect();
        let mut submit = |kind, from: *mut u8, to: &Ints, count| {
            let late = if own.u8(..3) == 0 { own.u32(..6000) } else { 0 };
            (0..late).for_each(|_| std::hint::spin_loop());
            let call = request(kind, from, to.ptr(), count, &stream).to(root);
            comm.submit(call).unwrap_or_else(|e| panic!("{e}"));
        };
        for (call, output) in outputs.iter().enumerate() {
            let from = if rank == root { own_block } else { inputs[call % 4].ptr() };
            submit(Collective::Gather, from, &gathered, BLOCK);
            submit(Collective::Broadcast, gathered.ptr(), output, ranks * BLOCK);
        }
        stream.synchronize().unwrap_or_else(|e| panic!("{e}"));
        for (call, output) in outputs.iter().enumerate() {
            let is = |from: usize| output.is_at(from * BLOCK..(from + 1) * BLOCK, value(call, from));
            assert!((0..ranks).all(is), "seed {seed}: call {call} of round {round} on rank {rank}");
        }
    }
}

/// Calls of all kinds, whose buffers follow from a model.
fn mixes(rank: usize, ranks: usize, comm: &Comm, seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut own = fastrand::Rng::with_seed(seed ^ (rank as u64 + 1));
    let stream = Stream::new().unwrap();
    for round in 0..ROUNDS {
        let block = BLOCKS[round % BLOCKS.len()];
        // An even number of elements is memory that peers can map.
        let elements = |buffer: usize| (block * ranks).next_multiple_of(2) + usize::from(buffer + 1 == BUFFERS);
        let mut buffers: Vec<Ints> = (0..BUFFERS).map(|b| Ints::new(elements(b), 0)).collect();
        let first = |rank: usize, buffer: usize, at: usize| ((rank * BUFFERS + buffer) * ranks + at / block) as i32;
        let all = |rank: usize, buffer: usize| (0..elements(buffer)).map(|at| first(rank, buffer, at)).collect();
        let mut model: Model = (0..ranks).map(|r| (0..BUFFERS).map(|b| all(r, b)).collect()).collect();
        for (b, buffer) in buffers.iter_mut().enumerate() {
            (0..elements(b)).step_by(block).for_each(|at| {
                buffer.set(at..(at + block).min(elements(b)), first(rank, b, at));
            });
        }
        // Few kinds in turn, so that ends are left, and now and then another one.
        let usual: Vec<Call> = (0..rng.usize(1..4)).map(|_| Call::draw(&mut rng, ranks, block)).collect();
        let calls: Vec<Call> = (0..rng.usize(30..120))
            .map(|i| match rng.u8(..40) {
                0 => Call::draw(&mut rng, ranks, SHORT).with_buffers(&mut rng, BUFFERS - 1),
                1 => Call::draw(&mut rng, ranks, block).with_buffers(&mut rng, BUFFERS),
                _ => usual[i % usual.len()].with_buffers(&mut rng, BUFFERS - 1),
            })
            .collect();
        for call in &calls {
            // Now and then a rank is late, or very late.
            let late = [own.u32(..2000), own.u32(..100_000), 0][usize::from(own.u8(..8)).min(2)];
            (0..late).for_each(|_| std::hint::spin_loop());
            let made =
                request(call.kind, buffers[call.from].ptr(), buffers[call.to].ptr(), call.count, &stream).to(call.root);
            comm.submit(made).unwrap_or_else(|e| panic!("{call:?}: {e}"));
            call.apply(&mut model);
        }
        if round % 2 == 0 {
            stream.synchronize().unwrap_or_else(|e| panic!("{e}"));
        } else {
            let event = Event::new();
            stream.record(&event).unwrap();
            event.synchronize().unwrap_or_else(|e| panic!("{e}"));
        }
        for (b, buffer) in buffers.iter().enumerate() {
            let wrong = (0..elements(b)).find(|at| !buffer.is_at(*at..at + 1, model[rank][b][*at]));
            assert!(wrong.is_none(), "seed {seed}: element {wrong:?} of buffer {b} in round {round}, after {calls:?}");
        }
        stream.synchronize().unwrap_or_else(|e| panic!("{e}"));
    }
}

/// All-reduces one after the other, of which rank 1 makes some and goes. The other one has left the end of the last one by then, as a rule.
pub(crate) fn goes(rank: usize, comm: &Comm) {
    let stream = Stream::new().unwrap();
    let (source, sum) = (Ints::new(5000, 1), Ints::new(5000, -1));
    for call in 0..1000 {
        if call == 100 && rank == 1 {
            std::process::exit(7);
        }
        let made = comm.submit(request(Collective::AllReduce, source.ptr(), sum.ptr(), 5000, &stream));
        if made.is_err() || call > 100 && stream.synchronize().is_err() {
            return;
        }
    }
    panic!("rank {rank} has heard of nothing");
}
