//! Plans: which algorithm serves a call of this size here, and this rank's program for it. Cached by shape.

use std::collections::HashMap;
use std::sync::Arc;

use oxccl_schedule::algorithms::{Algorithm, find};
use oxccl_schedule::cost::{Link, pipes_in_place, predict_beside, predict_sent, saves_a_round};
use oxccl_schedule::ir::{Buffer, Needs, Op, Program, Shape, part_range};
use oxccl_schedule::lend::{Lent, lends};
use oxccl_schedule::select::{AllowList, Query, Reach, candidates, serves};
use oxccl_types::{Collective, Error, Result};

use super::ahead::Early;
use super::call::Call;
use super::direct::Road;
use super::lent::Part;
use super::links;
use super::piped;
use super::trail;
use crate::communicator::core::Core;
use crate::communicator::hub::MAX_CHANNELS;

/// What the cache is keyed by. `bucket` stands for the size: calls of one bucket share a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    collective: Collective,
    root: u32,
    bucket: u32,
}

/// A direct program of this rank and what it needs to know of the others'.
#[derive(Debug)]
pub(crate) struct DirectPlan {
    pub algorithm: &'static str,
    pub program: Program,
    /// Per member: whether another rank reads its Input.
    pub reads_input: Vec<bool>,
    /// Per member: whether another rank writes its Output.
    pub writes_output: Vec<bool>,
    /// Per member: whether the program of this rank reads its Input, and writes its Output. What this rank does not touch it does not
    /// ask for either: its owner may be done with the call, and gone.
    own: Vec<[bool; 2]>,
    /// The coarsest cut of a block in any program: gives the number of pieces, alike on all ranks.
    pub least_parts: u32,
}

/// The direct programs of this rank for memory that the kernel copies.
#[derive(Debug)]
pub(crate) struct FarPlans {
    usual: DirectPlan,
    /// Another one, where the root of a broadcast works in place.
    in_place: Option<DirectPlan>,
    /// The scratch is faster where the root works in place.
    staged_in_place: bool,
    /// A message program where that is faster than all else, see `predict_sent`.
    sent: Option<MessagePlan>,
}

impl DirectPlan {
    /// Whether other ranks read the input of `member` or write its output.
    pub(super) fn touches(&self, member: usize) -> bool {
        self.reads_input[member] || self.writes_output[member]
    }

    /// Whether this rank reads the input of `member`, another one, and writes its output.
    pub(super) fn own(&self, member: usize) -> [bool; 2] {
        self.own[member]
    }
}

impl FarPlans {
    pub(super) fn plans(&self) -> impl Iterator<Item = &DirectPlan> {
        std::iter::once(&self.usual).chain(&self.in_place)
    }
}

/// A message program of this rank.
#[derive(Debug)]
pub(crate) struct MessagePlan {
    pub algorithm: &'static str,
    pub program: Program,
    pub least_parts: u32,
    /// Bytes of a piece.
    pub piece_bytes: usize,
    /// Nothing but sends, receives and copies of user memory: all may progress at once.
    pub exchange: bool,
    /// What comes from a higher rank is the second operand; else what comes is always the first.
    pub by_rank: bool,
    /// This rank receives something.
    pub receives: bool,
    /// What it sends before it needs anything but what others send so.
    pub early: Early,
    /// Of each op by channel what may be done with what it sends; the second for calls in place. None where nothing is read in place.
    pub lends: [Vec<Vec<Lent>>; 2],
}

/// Where an input goes that peers cannot map, or others where it says so, before they have all come to the call.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Aside {
    /// Beside the line, if there is room.
    pub beside: bool,
    /// If it goes one way, in pieces through the giver's ring.
    pub piped: bool,
    /// Beside the line, also if peers can map it, where calls are [apart](super::apart).
    pub apart: bool,
    /// Into a slot, also if peers can map it. Of what a root gets, if it is known to take it from there; of what it gives, and of what it
    /// gathers from others, whom its line then asks for that, if it waits for each of its calls: that says no plan, but who makes the call.
    pub slotted: bool,
    /// If the root gives it, by messages, for which it waits for nobody; and the same where it works in place.
    pub sent: [bool; 2],
    /// If the peer of two [waits](super::awaited) for it, by the kernel in place of a slot. That says no plan either.
    pub lent_if_awaited: bool,
    /// Of two ranks: the kernel copies it faster than it goes by a slot, if it is longer than half of what slots are for elsewhere.
    pub by_kernel: bool,
}

/// How calls of one kind and size are served.
#[derive(Debug)]
pub(crate) enum Plan {
    /// Over mapped memory: user memory where all of it is mapped; where it is not, by messages or through the kernel if
    /// that is faster than scratch and the kernel can; else scratch.
    Direct { mapped: DirectPlan, far: Option<Box<FarPlans>>, staged: DirectPlan, aside: Aside, part: Part },
    /// Over connections.
    Messages(MessagePlan),
}

impl Plan {
    /// Whether what would go by [`Road::FarInPlace`] goes through the scratch.
    pub(super) fn staged_in_place(&self) -> bool {
        matches!(self, Plan::Direct { far: Some(far), .. } if far.staged_in_place)
    }

    /// The message program by which a root gives what peers cannot map, where that is faster: see [`Aside::sent`].
    pub(super) fn sent(&self) -> Option<&MessagePlan> {
        let Plan::Direct { far: Some(far), .. } = self else { return None };
        far.sent.as_ref()
    }

    /// Where private inputs go before all have come.
    pub(super) fn aside(&self) -> Aside {
        match self {
            Plan::Direct { aside, .. } => *aside,
            Plan::Messages(_) => Aside::default(),
        }
    }

    /// The direct program for `road`.
    pub(super) fn direct(&self, road: Road) -> Option<&DirectPlan> {
        match (self, road) {
            (Plan::Direct { mapped, .. }, Road::Mapped) => Some(mapped),
            (Plan::Direct { far, .. }, Road::Far) => far.as_ref().map(|far| &far.usual),
            (Plan::Direct { far, .. }, Road::FarInPlace) => {
                far.as_ref().map(|far| far.in_place.as_ref().unwrap_or(&far.usual))
            }
            (Plan::Direct { staged, .. }, Road::Staged) => Some(staged),
            _ => None,
        }
    }
}

/// The plans of one communicator.
#[derive(Default)]
pub(crate) struct Plans {
    last: Option<(Key, Arc<Plan>)>,
    cache: HashMap<Key, Arc<Plan>>,
}

/// Plans kept; beyond it the cache starts afresh, which only costs planning again.
const MOST_PLANS: usize = 4096;

impl Plans {
    /// The plan for `call`, made on first use.
    pub(crate) fn get(&mut self, core: &Core, call: &Call) -> Result<Arc<Plan>> {
        let key = Key { collective: call.collective, root: call.root, bucket: bucket(core, call) };
        if let Some((last, plan)) = &self.last
            && *last == key
        {
            return Ok(plan.clone());
        }
        if self.cache.len() > MOST_PLANS {
            self.cache.clear();
        }
        let plan = match self.cache.get(&key) {
            Some(plan) => plan.clone(),
            None => {
                let plan = Arc::new(make(core, call)?);
                self.cache.insert(key, plan.clone());
                plan
            }
        };
        self.last = Some((key, plan.clone()));
        Ok(plan)
    }
}

/// One bucket per power of two. The signature of the call decides it, so all ranks agree.
fn bucket(core: &Core, call: &Call) -> u32 {
    let bytes = call.total_bytes(core.ranks);
    u64::BITS - bytes.leading_zeros()
}

/// Bytes that stand for all sizes of its bucket.
fn sized(core: &Core, call: &Call) -> u64 {
    bucket(core, call).checked_sub(1).map_or(0, |b| 1u64 << b)
}

fn make(core: &Core, call: &Call) -> Result<Plan> {
    let choice = choose(core, call)?;
    let shape = Shape {
        collective: call.collective,
        ranks: core.ranks as u32,
        root: call.root,
        channels: choice.channels,
        in_place: false,
        local: core.local,
    };
    match choice.algorithm.needs {
        Needs::Messages => message_plan(core, choice.algorithm, &shape).map(Plan::Messages),
        _ => {
            let sent = choice.sent.map(|(algorithm, ..)| message_plan(core, algorithm, &shape));
            let staged = choice
                .staged
                .ok_or_else(|| Error::internal(format!("nothing serves {} by scratch", call.collective)))?;
            let program = |algorithm| direct_plan(core, algorithm, &shape);
            let far = match choice.far {
                Some(far) => {
                    let other = choice.far_in_place.filter(|other| other.name != far.name);
                    Some(Box::new(FarPlans {
                        usual: program(far)?,
                        in_place: other.map(program).transpose()?,
                        staged_in_place: choice.staged_in_place,
                        sent: sent.transpose()?,
                    }))
                }
                None => None,
            };
            let mapped = program(choice.algorithm)?;
            // Where nothing is combined on the way, or by the root alone.
            let simple = staged.name == "staged_one_shot" && piped::serves(core, call.collective);
            let piped = simple && (far.is_none() || !core.reaches);
            let apart = core.eager && trail::goes_on(core) && {
                let ranks = core.ranks as u32;
                saves_a_round(&core.config.constants.model, call.collective, sized(core, call), ranks)
            };
            let sent = choice.sent.map_or([false; 2], |(_, usual, in_place)| [usual, in_place]);
            let by_kernel = core.trades_lines && core.ranks == 2 && core.reaches && far.is_some() && !choice.beside;
            // What lies beside a line lies there until the next call; and calls with a root have roads of their own.
            let waits = !core.reaches || choice.beside || apart || call.collective.rooted();
            let part = Part::of(core.me, &mapped, far.as_deref(), waits);
            let aside = Aside {
                beside: choice.beside,
                piped,
                apart,
                slotted: part.is_for_one() && call.root != core.rank as u32,
                lent_if_awaited: false,
                sent,
                by_kernel,
            };
            Ok(Plan::Direct { mapped, far, staged: program(staged)?, aside, part })
        }
    }
}

/// Bytes from which on both ranks carry a part of it.
const FAR_BY_BOTH: u64 = 64 << 10;

/// What selection came to: the algorithm and, for algorithms over mapped user memory, the one for private memory.
pub(super) struct Choice {
    pub(super) algorithm: &'static Algorithm,
    /// The one for private memory that the kernel copies between processes, where that, or `sent`, is faster than scratch.
    pub(super) far: Option<&'static Algorithm>,
    /// The same where the root of a broadcast works in place.
    pub(super) far_in_place: Option<&'static Algorithm>,
    /// The scratch is faster where the root of a gather or scatter works in place.
    pub(super) staged_in_place: bool,
    /// Messages of a root that gives, which are faster than `far`, or than what serves calls whose root works in place.
    pub(super) sent: Option<(&'static Algorithm, bool, bool)>,
    pub(super) staged: Option<&'static Algorithm>,
    /// Private inputs are best put beside the line.
    pub(super) beside: bool,
    pub(super) channels: u32,
}

/// Which algorithm serves `call`. The same answer on every rank: it rests on the signature and on agreed settings.
pub(super) fn choose(core: &Core, call: &Call) -> Result<Choice> {
    let bytes = sized(core, call);
    let query = |allow: &AllowList, reach: Reach| Query {
        root: call.root,
        local: core.local,
        allow: allow.clone(),
        max_channels: 1,
        slot_bytes: core.config.slot_bytes as u64,
        eager_limit: 0,
        model: core.config.constants.model,
        ..Query::new(call.collective, bytes, core.ranks as u32, reach)
    };
    let fastest = |query: Query, needs: Needs| {
        candidates(&query).into_iter().find_map(|c| {
            let algorithm = find(c.algorithm).filter(|a| a.needs == needs && !a.needs_all_alike(call.collective))?;
            Some((algorithm, c.predicted_us))
        })
    };
    let best = |allow: &AllowList, reach: Reach, needs: Needs| fastest(query(allow, reach), needs);
    let link = if core.whole { Link::Shm } else { Link::Tcp };
    let direct = core.whole && call.collective != Collective::AllToAllV;
    // An override that serves nothing does not decide by which way a call goes either.
    let all = AllowList::all();
    let allowed = if serves(&query(&core.allowed, Reach::Messages(link)), link, direct) { &core.allowed } else { &all };
    if direct {
        let mapped = best(allowed, Reach::MappedUser, Needs::MappedUser);
        let far = best(allowed, Reach::ReadableUser, Needs::MappedUser);
        let staged = best(allowed, Reach::MappedScratch, Needs::MappedScratch);
        if let Some((algorithm, _)) = mapped.or(staged) {
            // Buffers that peers cannot map need the scratch, also where the user named algorithms for mapped ones only.
            let staged = staged.or_else(|| best(&all, Reach::MappedScratch, Needs::MappedScratch));
            let beside_us = predict_beside(&core.config.constants.model, call.collective, bytes, core.ranks as u32);
            let slower = |us: f64| beside_us < us;
            // Each rank decides this for itself.
            let beside = staged.is_none_or(|s| slower(s.1)) && (!core.reaches || far.is_none_or(|f| slower(f.1)));
            let by_kernel = far.filter(|(_, us)| staged.is_none_or(|(_, staged_us)| *us < staged_us));
            let in_place = call.collective == Collective::Broadcast;
            let far_in_place = Query { in_place, ..query(allowed, Reach::ReadableUser) };
            let far_in_place = fastest(far_in_place, Needs::MappedUser);
            // Where ranks share cores messages compete with the scratch, too.
            let crowded = trail::goes_on(core);
            let others = if crowded { far } else { by_kernel };
            let sent = others.zip(far_in_place).and_then(|(far, other)| {
                let most = staged.filter(|_| crowded).map_or(f64::INFINITY, |(_, us)| us);
                sent(core, call, allowed, [far.1.min(most), other.1.min(most)])
            });
            let far = if sent.is_some() { others } else { by_kernel };
            return Ok(Choice {
                algorithm,
                far: far_of_two(core, call, allowed).or(far.map(|f| f.0)),
                far_in_place: far_in_place.filter(|_| in_place).map(|f| f.0),
                staged_in_place: by_kernel.is_none()
                    || pipes_in_place(&core.config.constants.model, call.collective, bytes, core.ranks as u32),
                sent,
                staged: staged.map(|s| s.0),
                beside: beside && core.eager,
                channels: 1,
            });
        }
    }
    // Of the algorithms that need few slots; those that need more have shorter ones, and are taken for a little faster than they are.
    let slot_bytes = links::piece_bytes(core, call.collective, 0) as u64;
    let max_channels = core.config.max_channels;
    let q = Query { max_channels, slot_bytes, ..query(allowed, Reach::Messages(link)) };
    let found = candidates(&q).into_iter().find_map(|c| find(c.algorithm).map(|a| (a, c.channels)));
    let (algorithm, channels) =
        found.ok_or_else(|| Error::internal(format!("no algorithm serves {}", call.collective)))?;
    Ok(Choice {
        algorithm,
        far: None,
        far_in_place: None,
        staged_in_place: false,
        sent: None,
        beside: false,
        staged: None,
        channels: channels.min(MAX_CHANNELS as u32),
    })
}

/// The algorithm of a reduction of two ranks that the kernel copies for because its root [waits](super::awaited) for it. The other rank
/// carries a part of longer ones; of shorter ones that costs more than it gains (measured, docs/performance-changes.md).
fn far_of_two(core: &Core, call: &Call, allowed: &AllowList) -> Option<&'static Algorithm> {
    let short = call.collective == Collective::Reduce && sized(core, call) < FAR_BY_BOTH;
    let one_shot = find("one_shot").filter(|a| allowed.allows(a.name));
    // What all ranks know alike.
    one_shot.filter(|_| short && core.ranks == 2 && core.trades_lines)
}

/// The message algorithm for a call over memory that the kernel, or scratch, could move in as many us as `far` says, the
/// second time where the root works in place; and in which of the two cases it is faster.
fn sent(core: &Core, call: &Call, allowed: &AllowList, far: [f64; 2]) -> Option<(&'static Algorithm, bool, bool)> {
    let flat = find("flat").filter(|flat| allowed.allows(flat.name))?;
    let bytes = sized(core, call);
    let (collective, ranks, root) = (call.collective, core.ranks as u32, call.root);
    let shape = Shape { collective, ranks, root, channels: 1, in_place: false, local: core.local };
    let us = predict_sent(&core.config.constants.model, flat, &shape, bytes)?;
    let [usual, in_place] = far.map(|far| us < far);
    // The scratch that else serves those is not in the model as what it is; past the caches it is faster than messages.
    let past = core.config.constants.model.past_caches(core.ranks);
    let in_place = match collective {
        Collective::Scatter => usual && 2 * ranks as u64 * bytes < past,
        _ => in_place,
    };
    (usual || in_place).then_some((flat, usual, in_place))
}

fn least_parts(program: &Program) -> u32 {
    let mut least = u32::MAX;
    each_chunk(program, |c| least = least.min(c.parts));
    least
}

fn each_chunk(program: &Program, mut f: impl FnMut(&oxccl_schedule::ir::Chunk)) {
    for op in program.channels.iter().flatten() {
        match op {
            Op::Send { src, .. } => f(src),
            Op::Recv { dst, .. } | Op::RecvCopySend { dst, .. } => f(dst),
            Op::RecvReduce { src, dst, .. } | Op::Copy { src, dst } => {
                f(src);
                f(dst);
            }
            Op::RecvReduceSend { src, dst, .. } => {
                f(src);
                dst.iter().for_each(&mut f);
            }
            Op::Reduce { a, b, dst } => {
                f(a);
                f(b);
                f(dst);
            }
            Op::Move { srcs, dsts } => srcs.iter().chain(dsts).for_each(|p| f(&p.chunk)),
            Op::Signal | Op::Wait { .. } => {}
        }
    }
}

fn direct_plan(core: &Core, algorithm: &'static Algorithm, shape: &Shape) -> Result<DirectPlan> {
    let n = core.ranks;
    let mut plan = DirectPlan {
        algorithm: algorithm.name,
        program: algorithm.program(shape, core.rank as u32),
        reads_input: vec![false; n],
        writes_output: vec![false; n],
        own: vec![[false; 2]; n],
        least_parts: u32::MAX,
    };
    for rank in 0..shape.ranks {
        let program = algorithm.program(shape, rank);
        let mine = rank as usize == core.rank;
        plan.least_parts = plan.least_parts.min(least_parts(&program));
        for op in program.channels.iter().flatten() {
            if let Op::Move { srcs, dsts } = op {
                for p in srcs.iter().filter(|p| p.rank != rank && p.chunk.buffer == Buffer::Input) {
                    let member = core.member_of[p.rank as usize];
                    plan.reads_input[member] = true;
                    plan.own[member][0] |= mine;
                }
                for p in dsts.iter().filter(|p| p.rank != rank && p.chunk.buffer == Buffer::Output) {
                    let member = core.member_of[p.rank as usize];
                    plan.writes_output[member] = true;
                    plan.own[member][1] |= mine;
                }
            }
        }
    }
    Ok(plan)
}

fn message_plan(core: &Core, algorithm: &'static Algorithm, shape: &Shape) -> Result<MessagePlan> {
    // Which parts a program uses does not depend on the rank beyond 0 and the root for any algorithm of messages.
    let mut parts = u32::MAX;
    for rank in [0, shape.root, shape.ranks - 1, core.rank as u32] {
        parts = parts.min(least_parts(&algorithm.program(shape, rank)));
    }
    let program = algorithm.program(shape, core.rank as u32);
    let exchange = algorithm.exchanges(shape.collective);
    let receives = |op: &Op| !matches!(op, Op::Send { .. } | Op::Copy { .. } | Op::Reduce { .. });
    let receives = program.channels.iter().flatten().any(receives);
    let early = Early::of(&program, exchange);
    let by_rank = algorithm.combines_on_both_sides();
    let piece_bytes = links::piece_bytes(core, shape.collective, algorithm.min_slots);
    let lends = [false, true].map(|in_place| match links::lends(core) && !exchange {
        true => {
            let near = |rank| links::is_local(core, rank) && rank as usize != core.rank;
            let of = |rank| algorithm.program(shape, rank);
            lends(&program, &Shape { in_place, ..*shape }, near, of)
        }
        false => Vec::new(),
    });
    Ok(MessagePlan {
        algorithm: algorithm.name,
        program,
        least_parts: parts,
        piece_bytes,
        exchange,
        by_rank,
        receives,
        early,
        lends,
    })
}

/// Elements of the longest part of a block of `count` elements.
pub(crate) fn longest_part(count: u64, parts: u32, align: u64) -> u64 {
    (0..parts).map(|p| part_range(count, p, parts, align)).map(|r| r.end - r.start).max().unwrap_or(0)
}

/// Elements to which the boundaries of parts are aligned: a cache line.
pub(crate) fn alignment(element_bytes: usize) -> u64 {
    (64 / element_bytes) as u64
}
