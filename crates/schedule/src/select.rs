//! Selection: which algorithm, how many channels and which protocol serve a call best.
//!
//! Deterministic: ranks that ask the same query get the same answer, so every rank must put the same facts into it
//! (what is mapped *everywhere*, the model of the communicator). It knows no environment; the caller hands in the text
//! of an override.

use crate::algorithms::{ALGORITHMS, Algorithm, find};
use crate::cost::{CostModel, Link, block_bytes, predict, predict_far, predict_mapped, predict_sent};
use crate::ir::{Needs, Rank, Shape};
use oxccl_types::Collective;
use std::fmt;

/// What every rank of the communicator can reach of every other. Each one includes those below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The user buffers of this call, the scratch, and messages over shared memory.
    MappedUser,
    /// The user buffers of this call by way of the kernel only, the scratch, and messages over shared memory.
    ReadableUser,
    /// The scratch, and messages over shared memory.
    MappedScratch,
    /// Messages over a link.
    Messages(Link),
}

/// How a program is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// Fused: the data travel inside the flag lines that say that they are there. Does what `one_shot` does.
    Eager,
    /// The program is interpreted.
    Simple,
}

/// Algorithms that a user allows: `ring,tree` (only these) or `^ring,pat` (all but these).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowList {
    names: Vec<&'static str>,
    except: bool,
}

/// A name in an override that no algorithm has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownName {
    /// The name as written.
    pub name: String,
}

impl fmt::Display for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known: Vec<&str> = ALGORITHMS.iter().map(|a| a.name).collect();
        write!(f, "no algorithm is called `{}`; there are: {}", self.name, known.join(", "))
    }
}

impl std::error::Error for UnknownName {}

impl AllowList {
    /// Everything.
    pub fn all() -> AllowList {
        AllowList { names: Vec::new(), except: true }
    }

    /// Reads an override. Text without a name allows everything; spaces and case do not matter.
    ///
    /// # Errors
    /// The first name that no algorithm has.
    pub fn parse(text: &str) -> Result<AllowList, UnknownName> {
        let text = text.trim();
        let (except, list) = text.strip_prefix('^').map_or((text.is_empty(), text), |rest| (true, rest));
        let names = list.split(',').map(str::trim).filter(|n| !n.is_empty());
        let names = names.map(|n| {
            let known = ALGORITHMS.iter().find(|a| a.name.eq_ignore_ascii_case(n));
            known.map(|a| a.name).ok_or_else(|| UnknownName { name: n.to_owned() })
        });
        let names: Vec<_> = names.collect::<Result<_, _>>()?;
        Ok(AllowList { except: except || names.is_empty(), names })
    }

    /// Whether it allows everything.
    pub fn is_all(&self) -> bool {
        self.except && self.names.is_empty()
    }

    /// Whether the algorithm called `name` is allowed.
    pub fn allows(&self, name: &str) -> bool {
        self.names.contains(&name) != self.except
    }
}

/// What is to be served.
#[derive(Clone, Debug)]
pub struct Query {
    /// The collective.
    pub collective: Collective,
    /// Bytes as nccl-tests counts them: the larger of a rank's two buffers.
    pub bytes: u64,
    /// Number of ranks.
    pub ranks: Rank,
    /// Root; 0 where there is none.
    pub root: Rank,
    /// Whether the buffers overlap as the in-place rule says.
    pub in_place: bool,
    /// Ranks that share memory, as [`Shape::local`].
    pub local: Rank,
    /// What every rank can reach of every other.
    pub reach: Reach,
    /// Algorithms the user allows. If none of them can serve the call, there is no candidate.
    pub allow: AllowList,
    /// Most channels, at least 1. Powers of two up to it are tried.
    pub max_channels: u32,
    /// Bytes of a slot.
    pub slot_bytes: u64,
    /// Most bytes that a rank may publish in flag lines; 0 switches the eager protocol off.
    pub eager_limit: u64,
    /// The constants.
    pub model: CostModel,
}

impl Query {
    /// A query with the usual limits: 4 channels, slots of 128 KiB, eager up to 4 KiB, everything allowed.
    pub fn new(collective: Collective, bytes: u64, ranks: Rank, reach: Reach) -> Query {
        Query {
            collective,
            bytes,
            ranks,
            root: 0,
            in_place: false,
            local: 1,
            reach,
            allow: AllowList::all(),
            max_channels: 4,
            slot_bytes: 128 << 10,
            eager_limit: 4 << 10,
            model: CostModel::default(),
        }
    }

    /// The shape of this call with `channels` channels.
    pub fn shape(&self, channels: u32) -> Shape {
        let Query { collective, ranks, root, in_place, local, .. } = *self;
        Shape { collective, ranks, root, channels, in_place, local }
    }
}

/// A way to serve a query.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Name of the algorithm.
    pub algorithm: &'static str,
    /// Number of channels.
    pub channels: u32,
    /// How it is executed.
    pub protocol: Protocol,
    /// Predicted time, us.
    pub predicted_us: f64,
    /// Why it may be used, for people.
    pub reason: String,
}

/// Whether what `q` allows serves its call in any way, whatever its reach: by messages over `link` or, if `direct`, in memory that all
/// ranks have mapped. Else an override decides nothing of the collective.
pub fn serves(q: &Query, link: Link, direct: bool) -> bool {
    let found = |reach, fits: &dyn Fn(&Algorithm) -> bool| {
        let q = Query { reach, eager_limit: 0, ..q.clone() };
        candidates(&q).into_iter().filter_map(|c| find(c.algorithm)).any(fits)
    };
    let mapped = |reach, needs| found(reach, &|a| a.needs == needs && !a.needs_all_alike(q.collective));
    q.allow.is_all()
        || direct && mapped(Reach::MappedUser, Needs::MappedUser)
        || direct && mapped(Reach::MappedScratch, Needs::MappedScratch)
        || found(Reach::Messages(link), &|_| true)
}

/// All ways to serve `q`: those that the library prefers whatever the time first, see `precedence`; of these the fastest;
/// equals in the order of the table, then fewer channels.
pub fn candidates(q: &Query) -> Vec<Candidate> {
    let mut found = Vec::new();
    for a in ALGORITHMS.iter().filter(|a| q.allow.allows(a.name)) {
        // What fits the flag lines goes by them: that is what the limit means.
        found.extend(eager(q, a).map(|candidate| (0, candidate)));
        let precedence = precedence(q, a);
        let Some(reason) = reachable(q.reach, a.needs) else { continue };
        let most = useful_channels(q);
        for channels in (0..).map(|b| 1 << b).take_while(|&c: &u32| c <= most) {
            let shape = q.shape(channels);
            if a.supports(&shape) && q.model.slots >= a.min_slots {
                if let Some(candidate) = sent(q, a, &shape) {
                    found.push((1, candidate));
                    continue;
                }
                let predicted_us = match (q.reach, a.needs) {
                    (Reach::ReadableUser, Needs::MappedUser) => predict_far(&q.model, a, &shape, q.bytes),
                    (Reach::MappedUser, Needs::MappedUser) => predict_mapped(&q.model, a, &shape, q.bytes),
                    _ => predict(&q.model, a, &shape, q.bytes, link(q.reach), q.slot_bytes),
                };
                let reason = reason.clone();
                let protocol = Protocol::Simple;
                found.push((precedence, Candidate { algorithm: a.name, channels, protocol, predicted_us, reason }));
            }
        }
    }
    // The sort is stable: equal times keep the order above.
    found.sort_by(|(p, a), (q, b)| p.cmp(q).then(a.predicted_us.total_cmp(&b.predicted_us)));
    found.into_iter().map(|(_, candidate)| candidate).collect()
}

/// Messages that compete with what the kernel copies: of one channel, since each is one message.
fn sent(q: &Query, a: &Algorithm, shape: &Shape) -> Option<Candidate> {
    let readable = q.reach == Reach::ReadableUser && shape.channels == 1;
    let predicted_us = readable.then(|| predict_sent(&q.model, a, shape, q.bytes))??;
    let reason = match (f64::from(shape.ranks) > q.model.cores, q.collective) {
        (true, Collective::Broadcast) => "messages: the kernel copies to both leaves at once",
        (true, _) => "messages: the root fills the slots of each rank, and waits for none",
        (false, _) => "messages: the kernel copies what lies on large pages, slots carry the ends",
    };
    let reason = reason.to_owned();
    Some(Candidate { algorithm: a.name, channels: 1, protocol: Protocol::Simple, predicted_us, reason })
}

/// What comes first whatever the times, behind the flag lines: user memory that is mapped, before scratch, before messages
/// between ranks that share memory. The kernel's copies and scratch compete. What needs all ranks to work alike is nobody's
/// default, nor is what [is not usual](Algorithm::is_usual) for so many ranks.
fn precedence(q: &Query, a: &Algorithm) -> u8 {
    match (q.reach, a.needs) {
        (Reach::Messages(_), _) if !a.is_usual(q.collective, q.ranks) => 2,
        (Reach::Messages(_), _) => 1,
        _ if a.needs_all_alike(q.collective) => 4,
        (_, Needs::Messages) => 3,
        (Reach::MappedUser, Needs::MappedScratch) => 2,
        _ => 1,
    }
}

/// The fastest way to serve `q`.
pub fn choose(q: &Query) -> Option<Candidate> {
    candidates(q).into_iter().next()
}

/// The most bytes, a power of two up to `most`, that a rank should publish in flag lines: beyond it the programs over
/// mapped memory are faster. Whether the buffers of a call are mapped is not known when all ranks must decide alike, so
/// that of the library counts, which is mapped; or where it is known not to be, `reach` says so. 0 when flag lines never pay.
pub fn eager_crossover(model: &CostModel, collective: Collective, ranks: Rank, most: u64, reach: Reach) -> u64 {
    /// Waits of a program: two until all have met, two until all have moved their data.
    const WAITS: f64 = 4.0;
    // At each of them every rank that shares the core is waited for, and waits itself; calls by flag lines need not.
    let turns = WAITS * model.switch_us * (f64::from(ranks) / model.cores - 1.0).max(0.0);
    // What is not in the lines themselves is copied to and from slots, which are memory like the scratch.
    let slots = match reach {
        Reach::MappedScratch => model.shm.copy_us_per_kib,
        _ => f64::INFINITY,
    };
    let model = &CostModel { eager_us_per_kib: model.eager_us_per_kib.min(slots), ..*model };
    let pays = |published: u64| {
        let bytes = match collective {
            Collective::AllGather | Collective::Gather => published * u64::from(ranks),
            _ => published,
        };
        let time = |reach: Reach, wanted: &dyn Fn(&Candidate) -> bool| {
            let q = Query {
                eager_limit: most,
                max_channels: 1,
                model: *model,
                ..Query::new(collective, bytes, ranks, reach)
            };
            candidates(&q).into_iter().find(|c| wanted(c)).map(|c| c.predicted_us)
        };
        let of = |c: &Candidate, needs: Needs| find(c.algorithm).is_some_and(|a| a.needs == needs);
        let simple = |c: &Candidate, needs: Needs| c.protocol == Protocol::Simple && of(c, needs);
        let eager = time(Reach::MappedScratch, &|c| c.protocol == Protocol::Eager);
        let staged = time(Reach::MappedScratch, &|c| simple(c, Needs::MappedScratch));
        let mapped = time(reach, &|c| simple(c, Needs::MappedUser));
        match (eager, mapped.or(staged)) {
            (Some(eager), Some(other)) => eager <= other + turns,
            (eager, _) => eager.is_some(),
        }
    };
    let largest = most.checked_ilog2().unwrap_or(0);
    (3..=largest).rev().map(|bit| 1 << bit).find(|bytes| pays(*bytes)).unwrap_or(0)
}

/// Channels that still get a cache page each.
fn useful_channels(q: &Query) -> u32 {
    let pages = block_bytes(q.collective, q.bytes, q.ranks) / 4096;
    u32::try_from(pages).unwrap_or(u32::MAX).clamp(1, q.max_channels.clamp(1, 1 << 16))
}

fn link(reach: Reach) -> Link {
    match reach {
        Reach::Messages(link) => link,
        _ => Link::Shm,
    }
}

/// Why an algorithm with these needs may be used, if it may.
fn reachable(reach: Reach, needs: Needs) -> Option<String> {
    match (reach, needs) {
        (Reach::MappedUser, Needs::MappedUser) => Some("user buffers are mapped by all ranks".into()),
        (Reach::ReadableUser, Needs::MappedUser) => Some("the kernel copies between the user buffers".into()),
        (Reach::MappedUser | Reach::ReadableUser | Reach::MappedScratch, Needs::MappedScratch) => {
            Some("scratch is mapped by all ranks".into())
        }
        (reach, Needs::Messages) => Some(format!("messages over {:?}", link(reach)).to_lowercase()),
        _ => None,
    }
}

/// Bytes that the rank that publishes most puts into flag lines.
pub fn published_bytes(collective: Collective, bytes: u64, ranks: Rank) -> u64 {
    match collective {
        // Only one block of the larger buffer is the rank's own contribution.
        Collective::AllGather | Collective::Gather => block_bytes(collective, bytes, ranks),
        _ => bytes,
    }
}

/// [`CostModel::eager_rooted`], where ranks share cores.
const ROOTED: f64 = 1.2;

/// The fused implementation of `one_shot`: no rendezvous, one line transfer, every rank reads all others' lines.
fn eager(q: &Query, a: &Algorithm) -> Option<Candidate> {
    let served = a.name == "one_shot" && a.supports(&q.shape(1)) && q.ranks > 1;
    let published = published_bytes(q.collective, q.bytes, q.ranks);
    let mapped = !matches!(q.reach, Reach::Messages(_));
    if !served || !mapped || published > q.eager_limit {
        return None;
    }
    let m = &q.model;
    let (n, kib) = (f64::from(q.ranks), published as f64 / 1024.0);
    let crowd = (n / m.cores).max(1.0);
    // Where ranks share cores, calls that follow one another are announced together: a round serves some of them.
    let switch = m.round_us(n) / 4.0;
    // Those with a root follow one another: what one rank writes and another reads goes on at the same time.
    // Where all wait for all, the lines come back from the caches of the peers that read them before they are written again.
    let alone = n <= m.cores;
    let peers = match q.collective {
        // The root brings its own block to its place as well.
        Collective::Gather if alone => n.max(m.eager_rooted),
        // The root does not publish its own block.
        Collective::Scatter if alone => ROOTED.max(m.eager_rooted * (n - 1.0) / n),
        c if c.rooted() && alone => m.eager_rooted,
        c if c.rooted() => ROOTED,
        // A rank writes what it publishes, and reads one block of each.
        Collective::AllToAll | Collective::ReduceScatter if alone => 3.0,
        Collective::AllToAll | Collective::ReduceScatter => 2.0,
        _ if alone => n + 2.0,
        _ => n,
    };
    let work = m.start_us + m.direct.op_us + peers * (m.wait_us + kib * m.eager_us_per_kib);
    Some(Candidate {
        algorithm: a.name,
        channels: 1,
        protocol: Protocol::Eager,
        predicted_us: m.signal_us + switch + crowd * work,
        reason: format!("{published} B per rank fit into flag lines"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn best(bytes: u64, reach: Reach) -> Candidate {
        choose(&Query::new(Collective::AllReduce, bytes, 8, reach)).expect("something serves it")
    }

    #[test]
    fn ranks_that_share_cores_read_from_the_root_what_fits_the_caches() {
        let best = |ranks, bytes| {
            let q = Query { eager_limit: 0, ..Query::new(Collective::Broadcast, bytes, ranks, Reach::MappedUser) };
            choose(&q).expect("something serves it").algorithm
        };
        for ranks in [3, 4, 5, 8] {
            assert_eq!((best(ranks, 16 << 10), best(ranks, 64 << 10)), ("one_shot", "one_shot"), "{ranks} ranks");
            assert_eq!(best(ranks, 1 << 20), "two_shot", "{ranks} ranks");
        }
        assert_eq!(best(2, 64 << 10), "two_shot");
    }

    #[test]
    fn small_is_eager_large_is_two_shot_and_tcp_goes_from_few_steps_to_a_ring() {
        assert_eq!(best(64, Reach::MappedUser).protocol, Protocol::Eager);
        assert_eq!(best(64, Reach::MappedScratch).protocol, Protocol::Eager);
        assert_eq!(best(64 << 20, Reach::MappedUser).algorithm, "two_shot");
        assert_eq!(best(64 << 20, Reach::MappedScratch).algorithm, "staged_two_shot");
        // Also where scratch is said to be the faster: memory that is mapped is used.
        let q = Query {
            model: CostModel::of_strings(),
            ..Query::new(Collective::Broadcast, 64 << 20, 2, Reach::MappedUser)
        };
        assert_eq!(choose(&q).map(|c| c.algorithm), Some("two_shot"));
        assert_eq!(best(8, Reach::Messages(Link::Tcp)).algorithm, "doubling");
        assert!(matches!(best(64 << 20, Reach::Messages(Link::Tcp)).algorithm, "ring" | "recursive"));
    }

    #[test]
    fn everything_is_served_wherever_it_can_be() {
        for collective in Collective::SCHEDULED {
            for ranks in [1, 2, 7, 64] {
                for bytes in [0, 1, 5000, 1 << 30] {
                    for reach in [Reach::MappedUser, Reach::MappedScratch, Reach::Messages(Link::Tcp)] {
                        let all = candidates(&Query::new(collective, bytes, ranks, reach));
                        assert!(!all.is_empty(), "{collective} {ranks} {bytes} {reach:?}");
                        let place = |c: &Candidate| match (c.protocol, find(c.algorithm)) {
                            (Protocol::Eager, _) => 0,
                            (_, Some(a)) => precedence(&Query::new(collective, bytes, ranks, reach), a),
                            (_, None) => unreachable!("a name that is not in the table"),
                        };
                        let order = |c: &Candidate| (place(c), c.predicted_us);
                        assert!(all.windows(2).all(|w| order(&w[0]) <= order(&w[1])), "{all:?}");
                        assert!(all.iter().all(|c| c.predicted_us.is_finite()));
                    }
                }
            }
        }
    }

    #[test]
    fn the_user_decides() {
        let mut q = Query::new(Collective::AllReduce, 1 << 20, 8, Reach::MappedUser);
        q.allow = AllowList::parse(" Ring , tree").expect("known names");
        assert!(candidates(&q).iter().all(|c| ["ring", "tree"].contains(&c.algorithm)));
        q.allow = AllowList::parse("^two_shot,one_shot").expect("known names");
        let all = candidates(&q);
        assert!(!all.is_empty() && all.iter().all(|c| !["two_shot", "one_shot"].contains(&c.algorithm)));
        q.allow = AllowList::parse("pat").expect("a known name");
        assert_eq!(choose(&q), None);
        assert_eq!(AllowList::parse("").expect("empty"), AllowList::all());
        let wrong = AllowList::parse("ring,rign").expect_err("a wrong name");
        assert!(wrong.to_string().contains("`rign`") && wrong.to_string().contains("two_shot"));
    }

    #[test]
    fn flag_lines_serve_small_messages_until_memory_is_faster() {
        let model = CostModel::default();
        let limit = |m: &CostModel, ranks| eager_crossover(m, Collective::AllReduce, ranks, 1 << 16, Reach::MappedUser);
        // Every rank reads what all others publish: the more ranks, the less each should.
        assert!(limit(&model, 2) >= 512 && limit(&model, 64) < limit(&model, 8), "{}", limit(&model, 64));
        assert!(limit(&CostModel { eager_us_per_kib: 10.0, ..model }, 2) < limit(&model, 2));
        assert_eq!(limit(&CostModel { eager_us_per_kib: 0.001, ..model }, 2), 1 << 16);
        assert_eq!(eager_crossover(&model, Collective::AllReduce, 2, 0, Reach::MappedUser), 0);
    }

    /// Two ranks with a core each, measured with inputs that are written between the calls and with such that are not: from
    /// 1 to 2 KiB on, direct calls are faster; those with a root run ahead of each other, and stay with flag lines longer.
    #[test]
    fn calls_among_all_leave_flag_lines_earlier_than_those_with_a_root() {
        let limit = |collective| eager_crossover(&CostModel::default(), collective, 2, 8192, Reach::MappedUser);
        assert_eq!(limit(Collective::AllReduce), 512);
        for collective in [Collective::AllGather, Collective::AllToAll, Collective::ReduceScatter] {
            assert_eq!(limit(collective), 1024, "{collective}");
        }
        for collective in [Collective::Broadcast, Collective::Reduce, Collective::Scatter] {
            assert_eq!(limit(collective), 4096, "{collective}");
        }
        assert_eq!(limit(Collective::Gather), 2048);
    }

    /// Two ranks with a core each on Zen 4, measured: those with a root leave flag lines where a slot of theirs is filled to its end,
    /// the others do not.
    #[test]
    fn calls_with_a_root_leave_flag_lines_early_where_stores_wait_for_lines() {
        let limit = |model: CostModel, c| eager_crossover(&model, c, 2, 8192, Reach::MappedUser);
        let (waiting, not) = (CostModel::of_waiting_strings(), CostModel::of_strings());
        for collective in [Collective::Broadcast, Collective::Reduce, Collective::Gather] {
            assert_eq!(limit(waiting, collective), 1024, "{collective}");
        }
        // The root's own block, half of what it counts, is not published.
        assert_eq!(limit(waiting, Collective::Scatter), 2048);
        for collective in
            [Collective::AllReduce, Collective::AllGather, Collective::AllToAll, Collective::ReduceScatter]
        {
            assert_eq!(limit(waiting, collective), limit(not, collective), "{collective}");
        }
    }

    /// A bare switch as `oxccl tune` measures it, which is a half to one microsecond: calls of a few KiB by ranks that share cores
    /// stay with flag lines, which took 3 us where mapped memory took 8 to 13.
    #[test]
    fn a_measured_switch_keeps_flag_lines_where_ranks_share_cores() {
        for switch_us in [0.5, 0.8, 1.2] {
            let model = CostModel { switch_us, ..CostModel::default() };
            let limit = |collective, ranks, most| eager_crossover(&model, collective, ranks, most, Reach::MappedUser);
            assert!(limit(Collective::AllReduce, 4, 8192) >= 4096, "{switch_us}");
            assert!(limit(Collective::AllReduce, 8, 8192) >= 2048, "{switch_us}");
            assert!(limit(Collective::Broadcast, 4, 32 << 10) >= 16 << 10, "{switch_us}");
        }
    }

    #[test]
    fn needs_are_respected() {
        for reach in [Reach::MappedScratch, Reach::Messages(Link::Shm)] {
            for c in candidates(&Query::new(Collective::AllReduce, 1 << 20, 4, reach)) {
                let needs = crate::algorithms::find(c.algorithm).expect("of the table").needs;
                assert!(needs != Needs::MappedUser, "{reach:?} {c:?}");
                assert!(needs == Needs::Messages || reach == Reach::MappedScratch, "{reach:?} {c:?}");
            }
        }
    }

    /// An override counts for the collectives that it names something for, in whichever way that goes.
    #[test]
    fn overrides_serve_what_they_name_and_nothing_else() {
        let served = |names: &str, collective, link, direct| {
            let query = Query::new(collective, 1 << 20, 4, Reach::Messages(link));
            super::serves(&Query { allow: AllowList::parse(names).unwrap(), ..query }, link, direct)
        };
        for (link, direct) in [(Link::Shm, true), (Link::Tcp, false)] {
            assert!(served("ring", Collective::AllReduce, link, direct));
            assert!(!served("ring", Collective::AllToAll, link, direct));
            assert!(served(",", Collective::AllToAll, link, direct));
            // Memory that is mapped, where there is such.
            assert_eq!(served("two_shot", Collective::AllReduce, link, direct), direct);
            // Not where all ranks would have to be alike.
            assert!(!served("one_shot", Collective::AllReduce, link, direct));
            assert_eq!(served("one_shot", Collective::Broadcast, link, direct), direct);
        }
    }
}
