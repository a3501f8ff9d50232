//! The cost model: what links, copies and reductions cost, and closed forms for the time of every algorithm.
//!
//! Times are microseconds, sizes KiB. The closed forms count what the critical path does; queueing and skew are left
//! to the simulator.

use crate::algorithms::{AHEAD, Algorithm, shared_one_shot};
use crate::contention::{self, Readers};
use crate::ir::{Needs, Rank, Shape};
use crate::steps::{Steps, inside_shares, move_copies, parts, shared_steps, steps};
use oxccl_types::Collective;

/// The kind of way between two ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Link {
    /// Memory that both have mapped.
    Direct,
    /// Slots in shared memory.
    Shm,
    /// Slots that travel over TCP.
    Tcp,
}

/// Costs of one kind of link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkCost {
    /// From the end of a send to the start of the receive, us.
    pub latency_us: f64,
    /// To copy 1 KiB into or out of the link, us.
    pub copy_us_per_kib: f64,
    /// To combine 1 KiB from the link with local memory, us.
    pub reduce_us_per_kib: f64,
    /// Of an op, whatever its size, us.
    pub op_us: f64,
}

/// Bytes of a constant that says from which length on something holds, if it never does.
const NEVER_BYTES: f64 = 1e13;

/// All constants. The default is a host of two cores; measured values can be put in their place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CostModel {
    /// Costs of direct access to mapped memory.
    pub direct: LinkCost,
    /// Costs of slots in shared memory.
    pub shm: LinkCost,
    /// Costs of TCP.
    pub tcp: LinkCost,
    /// A raised signal seen by another core: one cache line, one way, us.
    pub signal_us: f64,
    /// To look at a signal that is there already, us.
    pub wait_us: f64,
    /// To start an operation of any kind, us.
    pub start_us: f64,
    /// To tell the peers that share memory of a call and its buffers, and to look up theirs, us.
    pub meet_us: f64,
    /// To hand the core to another thread, us. Where ranks outnumber cores, one that waits gets it back when all that share
    /// it have had it.
    pub switch_us: f64,
    /// Cores that the ranks of a machine share.
    pub cores: f64,
    /// Of a communicator that spans machines: how many of its ranks share a core of the machine where they are most. No constant of a
    /// file, but a fact that the communicator adds; 1 where each rank has a core of its own.
    pub per_core: f64,
    /// Bytes of all ranks together that stay in the caches.
    pub cache_bytes: f64,
    /// Bytes of a last cache of the machine, and how many there are.
    pub last_cache_bytes: f64,
    /// See above.
    pub last_caches: f64,
    /// How many times slower copying is beyond the caches.
    pub dram_factor: f64,
    /// What a copy to a peer's memory costs of one from it. Only algorithms that serve the others with what they have, where
    /// these could as well fetch it, count it.
    pub push_factor: f64,
    /// Slots per connection.
    pub slots: u32,
    /// To read 1 KiB of flag lines that carry data (the eager protocol), us.
    pub eager_us_per_kib: f64,
    /// What it costs of that in calls with a root, where each rank has a core of its own: they follow one another, so that writing
    /// and reading go on at the same time, and fill more slots than calls in which all wait for all.
    pub eager_rooted: f64,
    /// To have the kernel copy from or to the memory of another process, whatever the size, us.
    pub kernel_op_us: f64,
    /// The same per KiB, us.
    pub kernel_us_per_kib: f64,
    /// The same of long blocks, which lie on large pages, us.
    pub kernel_large_us_per_kib: f64,
    /// Bytes from which on that does not hold of blocks where every rank reads: two copies past the caches are faster.
    pub kernel_large_below: f64,
    /// Nor of messages where the peer sends such, too. The two bounds of ranks that share cores do not hold of messages from here on either.
    pub kernel_both_ways_below: f64,
    /// What a broadcast or reduction by scratch in one shot, or beside the lines, costs of what it would if all ranks that share cores
    /// worked as long as the one that works most: the others only wait, and calls follow one another.
    pub crowd_rooted: f64,
    /// What a call by scratch in one shot costs of what it would, where what the ranks work on is past the last caches: what goes through
    /// scratch does not leave them, and what is combined or passed on is written past them. Of all-reduce, reduce and alltoall of two
    /// ranks with a core each (the reduction goes in pieces through a ring then), and of all-gathers of two and of ranks that share cores.
    /// Below 1 it also says that reductions which two ranks share unequally were measured there.
    pub scratch_past: f64,
    /// Bytes that one rank gives to the others in a call, or the root of a gather gets, from which on ranks that share cores leave to the
    /// kernel what goes from one to one, on large pages as far as can be: what all of them keep in slots or scratch, too, does not fit
    /// the last cache. Not messages of up to 64 KiB, nor of [`kernel_both_ways_below`](Self::kernel_both_ways_below) and more.
    pub kernel_crowd_from: f64,
    /// Bytes of a message from which on the kernel copies it between ranks that share cores, however little is sent with it, if its rank
    /// sends no other in the call, or receives none. What fits a slot (`OXCCL_SLOT_BYTES`) may go by one all the same.
    pub kernel_crowd_message_from: f64,
}

impl Default for CostModel {
    fn default() -> CostModel {
        let memory = LinkCost { latency_us: 0.12, copy_us_per_kib: 0.1, reduce_us_per_kib: 0.14, op_us: 0.05 };
        CostModel {
            direct: memory,
            shm: LinkCost { latency_us: 0.25, op_us: 0.1, ..memory },
            tcp: LinkCost { latency_us: 4.0, copy_us_per_kib: 0.15, reduce_us_per_kib: 0.18, op_us: 1.0 },
            signal_us: 0.12,
            wait_us: 0.01,
            start_us: 0.3,
            meet_us: 0.05,
            switch_us: 0.8,
            cores: 2.0,
            per_core: 1.0,
            cache_bytes: 8e6,
            last_cache_bytes: f64::from(32 << 20),
            last_caches: 1.0,
            dram_factor: 2.2,
            push_factor: 3.0,
            slots: 8,
            eager_us_per_kib: 0.1,
            eager_rooted: 1.2,
            kernel_op_us: 1.0,
            kernel_us_per_kib: 0.06,
            kernel_large_us_per_kib: 0.06,
            kernel_large_below: NEVER_BYTES,
            kernel_both_ways_below: NEVER_BYTES,
            crowd_rooted: 1.0,
            scratch_past: 1.0,
            kernel_crowd_from: NEVER_BYTES,
            kernel_crowd_message_from: NEVER_BYTES,
        }
    }
}

impl CostModel {
    /// The defaults of a processor that copies whole strings by an instruction which writes lines without fetching them (AMD's
    /// from Zen 3 on): what goes through slots and scratch costs half of what it does elsewhere.
    pub fn of_strings() -> CostModel {
        let memory = CostModel::default();
        let shm = LinkCost { copy_us_per_kib: 0.028, reduce_us_per_kib: 0.04, ..memory.shm };
        // Measured with the copy of the own part that the kernel's keeps waiting.
        CostModel { shm, push_factor: 1.0, kernel_us_per_kib: 0.075, kernel_large_us_per_kib: 0.016, ..memory }
    }

    /// The same of Zen 3, where copies past the caches are that fast, also while both ranks of a pair copy.
    pub fn of_strings_outside() -> CostModel {
        let kernel = CostModel::of_measured_crowds();
        CostModel { kernel_both_ways_below: kernel.kernel_large_below, ..kernel }
    }

    /// The same of one on which stores wait so long for lines that another core has (Zen 4, not Zen 3) that slots cost more
    /// than copies between the buffers from more than 1 KiB on.
    pub fn of_waiting_strings() -> CostModel {
        let kernel_crowd_message_from = f64::from(64 << 10);
        CostModel { eager_rooted: 2.75, kernel_crowd_message_from, ..CostModel::of_measured_crowds() }
    }

    /// What [`of_strings`](Self::of_strings) is on Zen 3 and Zen 4, where long blocks and ranks that share cores were measured
    /// (docs/performance.md).
    fn of_measured_crowds() -> CostModel {
        let (kernel_large_below, kernel_crowd_from) = (f64::from(32 << 20), f64::from(3 << 19));
        CostModel { kernel_large_below, kernel_crowd_from, ..CostModel::of_strings() }
    }

    /// The defaults of one that copies whole strings fast, but not without the lines that another core has (Intel's from Sapphire
    /// Rapids on): what the kernel reads from a buffer that its rank does not write meanwhile costs less than lines that have just
    /// been written. Found by what all collectives took by the one and the other way (docs/performance-cores.md).
    /// `cores`: of the machine; each has a second-level cache of 2 MiB.
    pub fn of_travelling_lines(cores: f64) -> CostModel {
        let memory = CostModel::default();
        let shm = LinkCost { copy_us_per_kib: 0.11, reduce_us_per_kib: 0.15, ..memory.shm };
        let cache_bytes = (cores * f64::from(2 << 20)).max(memory.cache_bytes);
        let kernel = CostModel { kernel_op_us: 0.7, kernel_us_per_kib: 0.05, kernel_large_us_per_kib: 0.05, ..memory };
        let kernel_crowd_from = f64::from(256 << 10);
        CostModel { shm, cores, cache_bytes, crowd_rooted: 0.4, scratch_past: 0.6, kernel_crowd_from, ..kernel }
    }

    /// Bytes from which on the kernel's copy of a message between processes is faster than two copies by way of a slot; `None`:
    /// at no length.
    pub fn kernel_from(&self) -> Option<u64> {
        let gain_per_kib = 2.0 * self.shm.copy_us_per_kib - self.kernel_us_per_kib;
        (gain_per_kib > 0.0).then(|| (self.kernel_op_us / gain_per_kib * 1024.0) as u64)
    }

    /// Bytes that `ranks` of a machine work on from which on little of it is in their last caches when it is looked at again:
    /// twice what fits (measured with one of 32 MiB, docs/performance.md).
    pub fn past_caches(&self, ranks: usize) -> u64 {
        (2.0 * self.last_cache_bytes * self.last_caches.min(ranks as f64)) as u64
    }

    /// Whether the buffers of a call of `bytes` are past them.
    fn is_past(&self, ranks: u32, bytes: u64) -> bool {
        2.0 * f64::from(ranks) * bytes as f64 >= self.past_caches(ranks as usize) as f64
    }

    /// Whether ranks that share cores give each other so much in a call of `bytes`, each block to one rank only, that the kernel copies
    /// it faster than scratch and slots carry it, see [`kernel_crowd_from`](Self::kernel_crowd_from).
    pub(crate) fn outgrows(&self, collective: Collective, bytes: u64, ranks: f64) -> bool {
        let one_to_one = matches!(collective, Collective::AllToAll | Collective::Gather | Collective::Scatter);
        one_to_one && ranks > self.cores && bytes as f64 * (1.0 - 1.0 / ranks) >= self.kernel_crowd_from
    }

    /// What a call by scratch in one shot costs of what its longest path would if all ranks were on it, see
    /// [`crowd_rooted`](Self::crowd_rooted). Measured up to 32 MiB with three to eight ranks on two cores.
    fn of_rooted(&self, collective: Collective, ranks: f64, beyond_caches: bool) -> f64 {
        match collective {
            _ if ranks <= self.cores.max(2.0) => 1.0,
            // As found with three ranks on two cores, where the root has one nearly to itself.
            Collective::Broadcast if ranks < 2.0 * self.cores => 1.0,
            // All read what one has written: the memory is at work as long as they are.
            Collective::Broadcast if beyond_caches => (2.0 * self.crowd_rooted).min(1.0),
            Collective::Broadcast | Collective::Reduce => self.crowd_rooted,
            _ => 1.0,
        }
    }

    /// What a call of `bytes` by scratch in one shot costs of what it would, see [`scratch_past`](Self::scratch_past). Measured with 32 to 128
    /// MiB (docs/performance-changes.md): what a root gives or gets the kernel copies faster there as well.
    fn of_past(&self, collective: Collective, ranks: u32, bytes: u64) -> f64 {
        let past = match collective {
            Collective::AllReduce | Collective::Reduce | Collective::AllToAll => {
                ranks == 2 && self.cores >= 2.0 && self.is_past(ranks, bytes)
            }
            // The outputs alone: little else is read twice.
            Collective::AllGather => {
                let measured = ranks == 2 || f64::from(ranks) > self.cores;
                measured && u64::from(ranks) * bytes >= self.past_caches(ranks as usize)
            }
            _ => false,
        };
        if past { self.scratch_past } else { 1.0 }
    }

    /// What a wait of one of `ranks` on a machine costs beyond the signal: the core goes round, to each rank that shares it
    /// and back, us. 0 where each has a core of its own.
    pub(crate) fn round_us(&self, ranks: f64) -> f64 {
        if ranks > self.cores { self.switch_us * ranks / self.cores } else { 0.0 }
    }

    /// The same of ranks that reach each other over a network: each looks at its connections before it hands on the core, and writes.
    /// Where groups have leaders, only these do.
    fn network_round_us(&self, name: &str, shape: &Shape) -> f64 {
        /// Of the kernel: what fits the times that were measured (docs/performance-changes.md).
        const CALLS: f64 = 5.0;
        let looking = if matches!(name, "leader" | "relay") { self.leaders_per_core(shape) } else { self.per_core };
        if self.per_core > 1.0 { self.per_core * self.switch_us + looking * CALLS * self.tcp.op_us } else { 0.0 }
    }

    /// Leaders that share a core: one, or more where several groups are on a machine.
    fn leaders_per_core(&self, shape: &Shape) -> f64 {
        (self.per_core / f64::from(shape.local)).max(1.0)
    }
}

/// Bytes of one block of a collective whose size, as nccl-tests counts it, is `bytes`: the larger of the buffers.
pub fn block_bytes(collective: Collective, bytes: u64, ranks: u32) -> u64 {
    let n = ranks.max(1) as usize;
    bytes / collective.input_blocks(n).max(collective.output_blocks(n)) as u64
}

/// What messages of one kind cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    pub(crate) latency: f64,
    pub(crate) op: f64,
    pub(crate) copy: f64,
    pub(crate) reduce: f64,
    /// To pass on what was combined: nothing where it is combined into a slot; over TCP a copy, which the same thread makes.
    pub(crate) passing: f64,
}

/// The constants of one case, with sharing of cores and caches worked in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rates {
    /// Between ranks of a group that shares memory, where those of other groups are reached by [`outside`](Self::outside); else the same.
    inside: Way,
    outside: Way,
    /// Ranks of such a group.
    local: u32,
    /// How many of the messages of the critical path, and of what it copies and combines, stay inside.
    inside_hops: f64,
    inside_work: f64,
    pub(crate) signal: f64,
    pub(crate) wait: f64,
    /// To start, rendezvous included.
    pub(crate) start: f64,
    /// Iterations.
    pub(crate) pieces: u64,
    /// KiB of a whole block.
    pub(crate) block_kib: f64,
    /// Copies that a move costs more because it gives to peers what they could fetch.
    pub(crate) pushed: f64,
    /// The buffers of all ranks together do not fit the caches.
    beyond_caches: bool,
}

/// What a step of a message within a host costs of one over TCP, where there are such, too: between two looks at it those are looked at
/// (measured, docs/performance-changes.md).
const LOOKED_AT: f64 = 0.5;

impl Rates {
    pub(crate) fn new(m: &CostModel, a: &Algorithm, shape: &Shape, bytes: u64, link: Link, slot_bytes: u64) -> Rates {
        let n = f64::from(shape.ranks);
        let direct = a.needs != Needs::Messages && shape.ranks > 1;
        let link = if direct { Link::Direct } else { link };
        let mut cost = match link {
            Link::Direct => m.direct,
            Link::Shm => m.shm,
            Link::Tcp => m.tcp,
        };
        if direct && a.needs == Needs::MappedScratch {
            // What goes through scratch is written and read as slots are.
            cost.copy_us_per_kib = m.shm.copy_us_per_kib * contention::of_scratch(m, shape.collective, shape.ranks);
        }
        let local = match link {
            Link::Tcp if m.per_core > 1.0 => m.per_core * m.cores,
            Link::Tcp => 1.0,
            _ => n,
        };
        let crowd = (local * at_work(m, a.name, shape, link) / m.cores).max(1.0);
        let switch = match link {
            Link::Tcp => m.network_round_us(a.name, shape),
            _ => m.round_us(local),
        };
        let beyond_caches = 2.0 * bytes as f64 * local > m.cache_bytes;
        let memory = match beyond_caches {
            // No end of a copy stays there.
            true if a.needs == Needs::MappedScratch && m.outgrows(shape.collective, bytes, n) => {
                m.dram_factor * m.direct.copy_us_per_kib / cost.copy_us_per_kib
            }
            // One end of every copy is scratch, which stays in the caches, and both sides work at the same time.
            true if a.needs == Needs::MappedScratch => 0.75 + 0.25 * m.dram_factor,
            true => m.dram_factor,
            false => 1.0,
        };
        let one_shot = a.name == "staged_one_shot";
        let past = if one_shot { m.of_past(shape.collective, shape.ranks, bytes) } else { 1.0 };
        let memory = memory * burst(m, a.name, shape) * past;
        let crowd = if one_shot { crowd * m.of_rooted(shape.collective, n, beyond_caches) } else { crowd };
        // One thread serves the channels of a rank in turn.
        let cpu = crowd * f64::from(shape.channels);
        let block = block_bytes(shape.collective, bytes, shape.ranks);
        let chunk = block.div_ceil(u64::from(parts(a.name, shape)) * u64::from(shape.channels));
        // In place, one_shot keeps its result in scratch until the peers have read the input.
        let in_scratch = a.name == "one_shot" && shape.collective == Collective::AllReduce && shape.in_place;
        let staged = shape.ranks > 1 && (a.needs != Needs::MappedUser || in_scratch);
        let meeting = 2.0 * (m.signal_us + switch) + (m.meet_us + n * m.wait_us) * crowd;
        // Ranks that share memory announce every call; messages over a network carry their signatures themselves.
        let rendezvous = if shape.ranks > 1 && link != Link::Tcp { meeting } else { 0.0 };
        let way = |cost: &LinkCost, switch: f64, passes: bool| Way {
            latency: cost.latency_us + switch,
            op: cost.op_us * cpu,
            copy: cost.copy_us_per_kib * cpu * memory,
            reduce: cost.reduce_us_per_kib * cpu * memory,
            passing: if passes { cost.copy_us_per_kib * cpu * memory } else { 0.0 },
        };
        let outside = way(&cost, switch, link == Link::Tcp);
        let mixed = link == Link::Tcp && shape.local > 1;
        let shm = LinkCost { op_us: m.shm.op_us.max(LOOKED_AT * m.tcp.op_us), ..m.shm };
        let inside = if mixed { way(&shm, m.round_us(local), false) } else { outside };
        let (inside_hops, inside_work) =
            if mixed { inside_shares(a.name, shape, m.per_core > 1.0) } else { (0.0, 0.0) };
        Rates {
            inside,
            outside,
            local: shape.local,
            inside_hops,
            inside_work,
            signal: m.signal_us + switch,
            wait: m.wait_us * cpu,
            start: m.start_us * crowd + rendezvous,
            pieces: if staged { chunk.div_ceil(slot_bytes.max(1)).max(1) } else { 1 },
            block_kib: block as f64 / 1024.0,
            pushed: pushed(m, a.name, shape, beyond_caches),
            beyond_caches,
        }
    }

    /// KiB of one piece of a chunk that is one of `parts` of a block.
    pub(crate) fn piece_kib(&self, parts: u32) -> f64 {
        self.block_kib / f64::from(parts) / self.pieces as f64
    }

    fn time(&self, s: &Steps, kib: f64) -> f64 {
        let mean = |share: f64, of: &dyn Fn(&Way) -> f64| share * of(&self.inside) + (1.0 - share) * of(&self.outside);
        let work = |way: &Way| s.ops * way.op + kib * (s.copies * way.copy + s.reduces * way.reduce);
        let hops = s.hops * mean(self.inside_hops, &|way| way.latency);
        hops + s.signals * self.signal + s.waits * self.wait + mean(self.inside_work, &work)
    }

    /// What a message between `a` and `b` costs.
    pub(crate) fn way(&self, a: Rank, b: Rank) -> &Way {
        if a / self.local == b / self.local { &self.inside } else { &self.outside }
    }
}

/// The part of the ranks that work at the same time. Over a network a rank that waits leaves the core to others, and of a call with a
/// root most ranks do.
fn at_work(m: &CostModel, name: &str, shape: &Shape, link: Link) -> f64 {
    /// A leader, and about one of those that share its core and give to it or take from it: what fits the times that were measured
    /// with two to six of them (docs/performance-changes.md).
    const WITH_LEADER: f64 = 1.9;
    /// Where every rank of a host carries a part of a sum to the root: fits the times that were measured with two and four of them (the
    /// same). So does that all work in a broadcast so made, and in a ring to the root, where it passes neighbours.
    const TO_ROOT: f64 = 0.65;
    match (link, shape.collective.rooted(), name) {
        (Link::Tcp, true, "flat") => 2.0 / f64::from(shape.ranks),
        (Link::Tcp, true, "hierarchical") if shape.collective == Collective::Reduce => TO_ROOT,
        (Link::Tcp, true, "hierarchical") => 1.0,
        (Link::Tcp, true, "ring") if shape.collective == Collective::Reduce && shape.local > 1 => 1.0,
        (Link::Tcp, true, _) => 0.5,
        (Link::Tcp, _, "leader" | "relay") => (WITH_LEADER * m.leaders_per_core(shape) / m.per_core).min(1.0),
        // Guests only wait.
        (Link::Tcp, _, "doubling") => f64::from(1u32 << shape.ranks.ilog2()) / f64::from(shape.ranks),
        _ => 1.0,
    }
}

/// Predicted time in us of an operation of `bytes` (as nccl-tests counts them) by `a`, which must support `shape`.
/// `link` is the way of messages; direct algorithms ignore it. Pieces are `slot_bytes` long.
pub fn predict(m: &CostModel, a: &Algorithm, shape: &Shape, bytes: u64, link: Link, slot_bytes: u64) -> f64 {
    let rates = Rates::new(m, a, shape, bytes, link, slot_bytes);
    let kib = rates.piece_kib(parts(a.name, shape) * shape.channels);
    let (mut first, mut next) = steps(a.name, shape);
    let passed_on = passed_on(a.name, shape, link);
    let added = passed_on + rates.pushed;
    first.copies += added;
    next.copies += added;
    rates.start + rates.time(&first, kib) + (rates.pieces - 1) as f64 * rates.time(&next, kib)
}

/// Calls that follow each other without a wait, where ranks share cores and the peers only take what the root lends.
const TRAILING: f64 = 8.0;

/// As [`predict`] for an algorithm over user memory that all ranks have mapped. Of calls by which the ranks touch the memory
/// of the root only, one shot, several follow each other where ranks share cores: they share the rounds of the core. And of
/// the ranks that read the same there, only the first brings it into the core's cache.
pub fn predict_mapped(m: &CostModel, a: &Algorithm, shape: &Shape, bytes: u64) -> f64 {
    let time = predict(m, a, shape, bytes, Link::Direct, u64::MAX);
    let n = f64::from(shape.ranks);
    let of_root = matches!(shape.collective, Collective::Broadcast | Collective::Scatter | Collective::Gather);
    if a.name != "one_shot" || !of_root || n <= m.cores {
        return time;
    }
    let rates = Rates::new(m, a, shape, bytes, Link::Direct, u64::MAX);
    // Two until all have met, one until all have taken.
    let rounds = 3.0 * m.round_us(n) * (1.0 - 1.0 / TRAILING);
    let reads_alike = shape.collective == Collective::Broadcast && !rates.beyond_caches;
    let found = if reads_alike { 0.5 * (1.0 - m.cores / n) } else { 0.0 };
    time - rounds - found * rates.outside.copy * rates.piece_kib(shape.channels)
}

/// KiB of a block, or of a message, from which on most of it lies on large pages.
const LARGE_KIB: f64 = 4096.0;

/// The same of the blocks of a collective. Of two ranks with a core each less is enough where one buffer of the call holds both blocks
/// (measured, docs/performance.md).
fn large_kib(m: &CostModel, shape: &Shape) -> f64 {
    match shape.collective {
        Collective::AllGather | Collective::AllToAll | Collective::Gather | Collective::Scatter
            if shape.ranks == 2 && m.cores >= 2.0 =>
        {
            LARGE_KIB / 2.0
        }
        // Each half of a block by itself.
        Collective::AllReduce => 2.0 * LARGE_KIB,
        _ => LARGE_KIB,
    }
}

/// KiB at the two ends of a buffer, in the mean, that lie on small pages though the rest lies on large ones.
const ENDS_KIB: f64 = 2048.0;

/// The same for each block of a buffer that the ranks of `collective` read from or write to two of.
fn ends_kib(collective: Collective) -> f64 {
    if collective == Collective::Broadcast { ENDS_KIB } else { ENDS_KIB / 2.0 }
}

/// As [`predict`] for an algorithm over user memory, where no rank has mapped that of another: the kernel copies what is
/// read from peers or written to them.
pub fn predict_far(m: &CostModel, a: &Algorithm, shape: &Shape, bytes: u64) -> f64 {
    let near = predict(m, a, shape, bytes, Link::Direct, u64::MAX);
    if a.needs != Needs::MappedUser || shape.ranks == 1 {
        return near;
    }
    let mut rates = Rates::new(m, a, shape, bytes, Link::Direct, u64::MAX);
    let kib = rates.piece_kib(parts(a.name, shape) * shape.channels);
    let (far, saved) = far_moves(a.name, shape);
    let reduced = (a.name, shape.collective) == ("shared_one_shot", Collective::Reduce);
    // What was read is in the cache of who combines it. As far as that was measured, which goes with `scratch_past`.
    let measured = reduced && m.scratch_past < 1.0 && !m.is_past(shape.ranks, bytes);
    let saved = if measured { 1.25 } else { saved };
    let readers = match a.name {
        "two_shot" => Readers::ByParts,
        "shared_one_shot" if shape.ranks > 2 => Readers::Ranks(shape.ranks - 1 - shared_one_shot::carried(shape.ranks)),
        _ => Readers::Ranks(shape.ranks - 1),
    };
    let contention = contention::of_kernel(m, shape, bytes, readers);
    let below = |kib: f64| shape.collective.rooted() || kib * 1024.0 < m.kernel_large_below;
    let long = rates.block_kib >= large_kib(m, shape);
    let large = match shape.collective {
        // Pieces go through a buffer of their own, which has small pages.
        Collective::Reduce | Collective::ReduceScatter => false,
        // The other half is written where it is wanted.
        Collective::AllReduce => long && below(rates.block_kib / 2.0),
        _ => long && below(rates.block_kib),
    };
    let kernel_us_per_kib = if large { m.kernel_large_us_per_kib } else { m.kernel_us_per_kib };
    let shared = a.name == "shared_one_shot" && shape.collective != Collective::Reduce;
    // Of two ranks parts that follow each other are one call; the other side waits for that of the root.
    let calls = if shared && shape.ranks == 2 { 1.25 } else { far };
    let op = m.kernel_op_us * rates.outside.op / m.direct.op_us;
    let copy = kib * kernel_us_per_kib * rates.outside.copy / m.direct.copy_us_per_kib;
    let mut kernel = contention.ops * calls * op + contention.bytes * far * copy;
    if shared && shape.ranks > 2 {
        // The root is in nobody's way at the pages of those whose blocks it carries.
        kernel = (far * (op + copy)).max(contention.ops * op + contention.bytes * copy);
    }
    // Its share of what lies on small pages nevertheless.
    let ends = far * kib / rates.block_kib.max(1.0) * ends_kib(shape.collective);
    let ends = ends * (m.kernel_us_per_kib - kernel_us_per_kib).max(0.0);
    // What is near is copied and combined as what lies in scratch is.
    rates.outside.copy *= m.shm.copy_us_per_kib / m.direct.copy_us_per_kib;
    if rates.beyond_caches {
        // What the kernel brought is in the core's cache when it is combined or passed on.
        rates.outside.copy *= (0.5 + 0.5 * m.dram_factor) / m.dram_factor;
    }
    let (mut first, _) = steps(a.name, shape);
    if (a.name, shape.collective) == ("two_shot", Collective::AllGather) {
        // What is near one move is a call for each peer here.
        // Which of two equal ways is taken is not for rounding to say.
        first.ops = f64::from(shape.ranks) + 1e-6;
    }
    rates.start + rates.time(&first, kib) + kernel - saved * kib * rates.outside.copy + ends
}

/// KiB of a block of a scatter from which on messages serve ranks that share cores faster than scratch, measured
/// (docs/performance.md).
const CROWD_SENT_KIB: f64 = 24.0;

/// Predicted time in us of an operation of `bytes` by messages of user memory that no peer has mapped, where these compete with
/// scratch and with what the kernel copies: of two ranks those of memory most of which lies on large pages, and the scatter, of three
/// ranks the broadcast, of ranks that share cores. `None`: no such message is made.
pub fn predict_sent(m: &CostModel, a: &Algorithm, shape: &Shape, bytes: u64) -> Option<f64> {
    if a.name != "flat" || m.kernel_from().is_some() {
        return None;
    }
    let rates = Rates::new(m, a, shape, bytes, Link::Shm, u64::MAX);
    match shape.collective {
        Collective::Scatter if f64::from(shape.ranks) > m.cores => sent_in_crowd(m, &rates, shape),
        Collective::Broadcast if shape.ranks == 3 && m.cores == 2.0 => sent_to_two(m, &rates),
        Collective::Broadcast | Collective::Scatter if shape.ranks == 2 => sent_alone(m, &rates, shape),
        _ => None,
    }
}

/// The kernel reads what lies on large pages, and slots carry the ends, where it takes several times as long. `None`: one rank has
/// more to do than to receive while the other copies for itself.
fn sent_alone(m: &CostModel, rates: &Rates, shape: &Shape) -> Option<f64> {
    if f64::from(shape.ranks) > m.cores || rates.block_kib < LARGE_KIB {
        return None;
    }
    let ends = ends_kib(shape.collective);
    let memory = if rates.beyond_caches { m.dram_factor } else { 1.0 };
    let kernel = m.kernel_op_us + (rates.block_kib - ends) * m.kernel_large_us_per_kib * memory;
    Some(rates.start + rates.outside.latency + ends * m.shm.copy_us_per_kib + kernel)
}

/// Whoever has the core copies: the root gives each leaf as much as its slots hold, and need not wait for all before it gives more,
/// as it must where pieces lie in scratch.
fn sent_in_crowd(m: &CostModel, rates: &Rates, shape: &Shape) -> Option<f64> {
    let n = f64::from(shape.ranks);
    let memory = if rates.beyond_caches { 0.5 + 0.5 * m.dram_factor } else { 1.0 };
    let copies = (2.0 * n - 1.0) / m.cores * rates.block_kib * m.shm.copy_us_per_kib * memory;
    (rates.block_kib >= CROWD_SENT_KIB).then_some(rates.start + rates.outside.latency + n * m.shm.op_us + copies)
}

/// KiB of a broadcast from which on messages serve three ranks on two cores faster than scratch, measured (docs/performance.md).
const TO_TWO_KIB: f64 = 256.0;

/// Each leaf has a core for what the kernel copies to it, since the root does nothing; a copy to scratch would be one after another.
/// `None`: messages would go by slots, with the same copies as scratch. Of more ranks either way has the busiest core copy about as often.
fn sent_to_two(m: &CostModel, rates: &Rates) -> Option<f64> {
    let rate = if rates.block_kib >= LARGE_KIB { m.kernel_large_us_per_kib } else { m.kernel_us_per_kib };
    let by_kernel = rates.block_kib >= TO_TWO_KIB.max(m.kernel_crowd_message_from / 1024.0);
    by_kernel.then_some(rates.start + rates.outside.latency + m.kernel_op_us + rates.block_kib * rate)
}

/// Predicted time in us of an operation of `bytes` where every rank that gives something puts all of it beside the line
/// that announces the call, and takes what it needs from beside the others' lines.
pub fn predict_beside(m: &CostModel, collective: Collective, bytes: u64, ranks: u32) -> f64 {
    let n = f64::from(ranks);
    let crowd = (n / m.cores).max(1.0);
    let switch = m.round_us(n);
    let block = block_bytes(collective, bytes, ranks) as f64 / 1024.0;
    // What is written and what is read, one after the other; in a chain from givers to takers only the longer counts.
    let passes = match collective {
        Collective::Broadcast => 1.0,
        Collective::Reduce | Collective::Gather => n - 1.0,
        Collective::Scatter => n,
        // As through scratch: what is combined is read, and written once. Of two ranks the counts below were measured.
        Collective::AllReduce if n > 2.0 && n <= m.cores => 1.0 + move_copies(n, 1.0),
        Collective::ReduceScatter if n > 2.0 && n <= m.cores => n - 1.0 + move_copies(n, 1.0),
        Collective::ReduceScatter | Collective::AllToAll => 2.0 * n - 1.0,
        _ => n,
    };
    let meeting = 2.0 * (m.signal_us + switch) + (m.meet_us + n * m.wait_us) * crowd;
    let copy = m.shm.copy_us_per_kib * contention::of_scratch(m, collective, ranks);
    let rooted = m.of_rooted(collective, n, false);
    // While the root of a reduction combines, the others copy what they give next.
    let at_work = if collective == Collective::Reduce && rooted < 1.0 { 1.0 } else { crowd };
    meeting + crowd * (m.start_us + m.direct.op_us) + at_work * passes * block * copy * rooted
}

/// Whether an operation of `bytes` over mapped memory, by itself, is faster where all put their inputs beside the lines: ranks
/// that share cores then wait for each other once, not twice, but copy what they give, and combine all of it themselves.
pub fn saves_a_round(m: &CostModel, collective: Collective, bytes: u64, ranks: u32) -> bool {
    let n = f64::from(ranks);
    let crowd = (n / m.cores).max(1.0);
    let block = block_bytes(collective, bytes, ranks) as f64 / 1024.0;
    // Blocks that a rank writes or reads beyond those that it would over mapped memory.
    let more = match collective {
        Collective::AllReduce => n - 2.0,
        Collective::AllGather => 1.0,
        Collective::ReduceScatter | Collective::AllToAll => n - 1.0,
        _ => return false,
    };
    // Until the signal is seen, on the way there and back.
    let round = 2.0 * (m.signal_us + m.round_us(n));
    n > m.cores && crowd * more * block * m.shm.copy_us_per_kib < round
}

/// Whether a gather or scatter whose root works in place, between ranks that cannot map each other's memory, is faster
/// through the scratch: there the ranks at both ends of a transfer carry half of it each, while the kernel's copy, though
/// single, keeps one core busy and the other waiting. Only beyond the caches, where a copy is bound by what one core gets
/// from memory, and where each rank has a core.
pub fn pipes_in_place(m: &CostModel, collective: Collective, bytes: u64, ranks: u32) -> bool {
    let beyond_caches = 2.0 * bytes as f64 * f64::from(ranks) > m.cache_bytes;
    matches!(collective, Collective::Gather | Collective::Scatter) && beyond_caches && f64::from(ranks) <= m.cores
}

/// What the kernel copies on the critical path, in chunks, and how many of the copies of [`steps`] it takes over: those
/// that combine nothing.
fn far_moves(name: &str, shape: &Shape) -> (f64, f64) {
    let others = f64::from(shape.ranks) - 1.0;
    match (name, shape.collective) {
        // The root reads two parts; the other one of two ranks in the same time one, which it writes.
        ("shared_one_shot", Collective::Reduce) => (2.0 * others, 0.0),
        // Of two ranks the leaf has the longer side, unless the root has nothing to copy and could carry half.
        ("shared_one_shot", _) if shape.ranks == 2 => {
            let parts = f64::from(shared_one_shot::PARTS);
            let own = if shape.in_place { parts } else { 0.0 };
            (parts - 1.0, shared_steps(shape).copies - own)
        }
        ("shared_one_shot", _) => {
            let carried = f64::from(shared_one_shot::carried(shape.ranks));
            (carried, if shape.in_place { carried + 1.0 } else { carried })
        }
        ("two_shot", Collective::AllReduce) => (2.0 * others, others / 2.0),
        ("two_shot", Collective::Reduce) => (others + 1.0, 0.5),
        ("two_shot", Collective::AllGather) => (others, others / 2.0),
        // Where the root has another output the others write to that as well.
        ("two_shot", _) if shape.in_place => (others, others / 2.0 + 1.0),
        ("two_shot", _) => (others + 1.0, others / 2.0),
        (_, Collective::AllGather | Collective::AllToAll) => (others, others),
        (_, Collective::AllReduce | Collective::ReduceScatter | Collective::Reduce) => (others, 0.0),
        _ => (1.0, 1.0),
    }
}

/// Copies of partial sums that are passed on over TCP, where the sender's copy takes as long as the receiver's and the same
/// thread does both.
fn passed_on(name: &str, shape: &Shape, link: Link) -> f64 {
    let others = f64::from(shape.ranks) - 1.0;
    match (name, shape.collective, link) {
        ("ring", Collective::AllReduce, Link::Tcp) => others,
        ("ring", Collective::ReduceScatter, Link::Tcp) => others - 1.0,
        ("hierarchical", Collective::AllReduce | Collective::ReduceScatter, Link::Tcp) => {
            f64::from(shape.ranks / shape.local) - 2.0
        }
        _ => 0.0,
    }
}

/// Copies that an all-gather by two shots costs beyond what it would if memory of peers were written as fast as read.
fn pushed(m: &CostModel, name: &str, shape: &Shape, beyond_caches: bool) -> f64 {
    if (name, shape.collective) != ("two_shot", Collective::AllGather) {
        return 0.0;
    }
    // Ranks that share cores run ahead where they only read from each other, and find in the core's cache what one of them
    // has read. It is worth as much.
    let crowded = f64::from(shape.ranks) > m.cores && !beyond_caches;
    let factor = if crowded { m.push_factor.max(3.0) } else { m.push_factor };
    (f64::from(shape.ranks) - 1.0) / 2.0 * (factor - 1.0)
}

/// How many times as long copies take where all is under way before anything is taken: longer at the links between machines, which it
/// meets at the same time, than within one. Of an all-reduce that is as many times as much as there are ranks. What it comes to
/// within a machine was measured (docs/performance-changes.md).
fn burst(m: &CostModel, name: &str, shape: &Shape) -> f64 {
    let share = match shape.collective {
        _ if name != "linear" => 0.0,
        Collective::AllReduce => 0.9,
        _ if m.per_core > 1.0 => 1.0 / 12.0,
        _ => 0.5,
    };
    1.0 + share * f64::from(shape.ranks - 1) / AHEAD as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithms::ALGORITHMS;

    #[test]
    fn a_round_is_worth_more_where_more_ranks_share_a_core_and_less_is_copied() {
        // Those of the processor on which that was measured.
        let mut model = CostModel { cores: 2.0, ..CostModel::default() };
        model.shm.copy_us_per_kib = 0.028;
        let most =
            |collective, ranks| (10..24).map(|bit| 1 << bit).rfind(|b| saves_a_round(&model, collective, *b, ranks));
        // What was measured, with blocks of up to 64 KiB: each of these is the last size that gains.
        assert_eq!(most(Collective::AllReduce, 4), Some(16 << 10));
        assert_eq!(most(Collective::AllReduce, 8), Some(8 << 10));
        assert_eq!(most(Collective::AllGather, 4), Some(128 << 10));
        assert_eq!(most(Collective::AllToAll, 4), Some(64 << 10));
        assert_eq!(most(Collective::ReduceScatter, 8), Some(64 << 10));
        // Ranks with cores of their own, and calls with a root.
        assert_eq!(most(Collective::AllReduce, 2), None);
        assert_eq!(most(Collective::Broadcast, 8), None);
    }

    /// Pieces are counted from this, and mixed sizes would break them (see `algorithms`).
    #[test]
    fn all_chunks_of_a_program_are_cut_alike() {
        for a in ALGORITHMS {
            for &collective in a.collectives {
                let shapes = (1..10).flat_map(|ranks| (1..=ranks).map(move |local| (ranks, local)));
                for (ranks, local) in shapes.filter(|(ranks, local)| ranks % local == 0) {
                    let shape = Shape { collective, ranks, root: ranks - 1, channels: 3, in_place: false, local };
                    if !a.supports(&shape) {
                        let of_groups = matches!(a.name, "hierarchical" | "leader" | "relay");
                        assert!(of_groups && (local == 1 || local == ranks), "{} {shape:?}", a.name);
                        continue;
                    }
                    let expected = parts(a.name, &shape) * 3;
                    for p in a.schedule(&shape).programs {
                        for op in p.channels.iter().flatten() {
                            let (reads, writes) = op.accesses(p.rank);
                            let cut = reads.iter().chain(&writes).map(|x| x.chunk.parts);
                            assert!(cut.into_iter().all(|x| x == expected), "{} {shape:?} {op}", a.name);
                        }
                    }
                }
            }
        }
    }
}
