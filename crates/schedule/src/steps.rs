//! Critical paths: what the ranks of every algorithm do one after another, in messages, signals and copies of chunks, and how much of
//! it stays among ranks that share memory. It knows no times: those are the [cost model](crate::cost)'s.

use crate::algorithms::{AHEAD, hierarchical, shared_one_shot};
use crate::ir::Shape;
use oxccl_types::Collective;

/// Parts into which an algorithm cuts a block for one channel.
pub(crate) fn parts(name: &str, shape: &Shape) -> u32 {
    match (name, shape.collective) {
        _ if shape.ranks == 1 => 1,
        ("two_shot", Collective::AllGather) => 1,
        ("two_shot" | "staged_two_shot", _) | ("ring", Collective::AllReduce) => shape.ranks,
        ("shared_one_shot", Collective::Reduce) => shared_one_shot::reduced_parts(shape.ranks),
        ("shared_one_shot", _) if shape.ranks == 2 => shared_one_shot::PARTS,
        ("recursive", Collective::AllReduce) => 1 << shape.ranks.ilog2(),
        ("hierarchical", _) => hierarchical::parts(shape),
        _ => 1,
    }
}

/// What a critical path does; copies and reduces are counted in chunks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Steps {
    pub(crate) hops: f64,
    pub(crate) signals: f64,
    pub(crate) waits: f64,
    pub(crate) ops: f64,
    pub(crate) copies: f64,
    pub(crate) reduces: f64,
}

const fn messages(hops: f64, ops: f64, copies: f64, reduces: f64) -> Steps {
    Steps { hops, signals: 0.0, waits: 0.0, ops, copies, reduces }
}

const fn mapped(signals: f64, waits: f64, ops: f64, copies: f64) -> Steps {
    Steps { hops: 0.0, signals, waits, ops, copies, reduces: 0.0 }
}

/// Critical path of the first iteration, and what each further iteration adds.
pub(crate) fn steps(name: &str, shape: &Shape) -> (Steps, Steps) {
    if shape.ranks == 1 {
        let once = messages(0.0, 1.0, if shape.in_place { 0.0 } else { 1.0 }, 0.0);
        return (once, once);
    }
    match name {
        "ring" => ring(shape),
        "tree" => tree(shape),
        "doubling" | "recursive" | "pat" | "pairwise" => exchanges(name, shape),
        "linear" => linear(shape),
        "hierarchical" => hierarchical(shape),
        "leader" => both(leader(shape)),
        "relay" => both(relay(shape).0),
        "flat" => flat(shape),
        "binomial" => binomial(shape),
        "one_shot" => one_shot(shape),
        "two_shot" => two_shot(shape),
        "shared_one_shot" => both(shared_steps(shape)),
        "staged_one_shot" => staged_one_shot(shape),
        _ => staged_two_shot(shape),
    }
}

fn both(s: Steps) -> (Steps, Steps) {
    (s, s)
}

fn ring(shape: &Shape) -> (Steps, Steps) {
    let n = f64::from(shape.ranks);
    let h = n - 1.0;
    match shape.collective {
        Collective::AllReduce => both(messages(2.0 * h, 2.0 * n - 1.0, 2.0 * h, h)),
        Collective::ReduceScatter => both(messages(h, n, 1.0, h)),
        Collective::AllGather => both(messages(h, n + 1.0, 2.0 * h + 1.0, 0.0)),
        Collective::Broadcast => (messages(h, n, 2.0 * h, 0.0), messages(0.0, 1.0, 2.0, 0.0)),
        _ => (messages(h, n, 1.0, h), messages(0.0, 1.0, 0.0, 1.0)),
    }
}

/// Levels of a binary or binomial tree.
fn levels(n: u32) -> f64 {
    f64::from(n.next_power_of_two().ilog2())
}

fn tree(shape: &Shape) -> (Steps, Steps) {
    let d = levels(shape.ranks);
    let children = if shape.ranks > 3 { 2.0 } else { 1.0 };
    match shape.collective {
        // A rank waits for the way down before it starts the next piece.
        Collective::AllReduce => both(messages(2.0 * d, 3.5 * d, 3.0 * d, 1.5 * d)),
        Collective::Broadcast => (messages(d, 2.0 * d, 3.0 * d, 0.0), messages(0.0, children, 1.0 + children, 0.0)),
        _ => (messages(d, 2.0 * d, 1.0, 1.5 * d), messages(0.0, children, 0.0, children)),
    }
}

/// Algorithms in which partners exchange, so that an iteration ends for all at about the same time.
fn exchanges(name: &str, shape: &Shape) -> (Steps, Steps) {
    let n = shape.ranks;
    let size = f64::from(1u32 << n.ilog2());
    let (d, guests) = (f64::from(n.ilog2()), f64::from(u32::from(!n.is_power_of_two())));
    let others = f64::from(n - 1);
    let ahead = AHEAD as f64;
    // Halving or doubling over `size` units sends 1, 2, 4... of them, `ahead` before it has to wait.
    let waits = (0..n.ilog2()).map(|j| f64::from(1u32 << j) / ahead).map(|x| x.max(1.0)).sum::<f64>();
    both(match (name, shape.collective) {
        ("doubling", _) => messages(d + 2.0 * guests, 2.0 * d + 4.0 * guests, d + 3.0 * guests, d + guests),
        ("recursive", Collective::AllReduce) => {
            let (h, g) = (size - 1.0, size * guests);
            messages(2.0 * (waits + guests), 4.0 * h + 2.0 * g, 3.0 * h + g, h + g)
        }
        ("recursive", Collective::ReduceScatter) => {
            messages(waits + 2.0 * guests, (2.0 + guests) * others, others, (1.0 + guests) * others)
        }
        ("recursive", _) => messages(waits + 2.0 * guests, (2.0 + guests) * others, (2.0 + guests) * others + 1.0, 0.0),
        ("pat", Collective::ReduceScatter) => messages(others, 2.0 * others, others, others),
        ("pat", _) => messages(others, 2.0 * others, 2.0 * others + 1.0, 0.0),
        ("pairwise", Collective::ReduceScatter) => messages((others / ahead).max(1.0), 2.0 * others, others, others),
        _ => messages((others / ahead).max(1.0), 2.0 * others, 2.0 * others + 1.0, 0.0),
    })
}

/// What is sent at first goes out together with that of the calls behind. Nothing waits for anything in an all-gather, whose pieces
/// are all under way: where some ranks share memory, that fits what was measured; where none do, a round for each piece does.
fn linear(shape: &Shape) -> (Steps, Steps) {
    let others = f64::from(shape.ranks - 1);
    match shape.collective {
        Collective::AllGather => {
            let first = messages(1.0, others, 2.0 * others + 1.0, 0.0);
            (first, Steps { hops: if shape.local > 1 { 0.0 } else { 1.0 }, ..first })
        }
        _ => both(messages(1.0, others, others, others)),
    }
}

/// In a chain of groups, with a root, a rank waits for each neighbour by itself: what fits the times that were measured where ranks
/// share cores (docs/performance-changes.md).
fn waits_for_neighbours(shape: &Shape) -> f64 {
    4.0 * f64::from(shape.local - 1)
}

/// Two rounds of a group, and what goes round between groups.
fn hierarchical(shape: &Shape) -> (Steps, Steps) {
    let (local, groups) = (f64::from(shape.local), f64::from(shape.ranks / shape.local));
    let neighbours = local - 1.0;
    // Messages to the neighbours in a round.
    let each = if shape.collective == Collective::AllReduce && groups == 2.0 { 1.0 } else { groups };
    let messages_near = neighbours * each;
    let (far, ring) = (groups - 1.0, 2.0 * (groups - 1.0));
    let waits = waits_for_neighbours(shape);
    both(match shape.collective {
        // In a chain of groups one piece follows the other.
        Collective::Broadcast => {
            let next = messages(0.0, 2.0 * neighbours + 1.0, 2.0 * neighbours + 2.0, 0.0);
            return (messages(waits + far, 2.0 * neighbours + groups, 2.0 * (neighbours + far), 0.0), next);
        }
        Collective::Reduce => {
            let next = messages(0.0, 2.0 * neighbours + 1.0, neighbours, neighbours + 1.0);
            return (messages(waits + far, 2.0 * neighbours + groups, neighbours + 1.0, neighbours + far), next);
        }
        Collective::AllReduce if groups == 2.0 => {
            messages(3.0, 4.0 * messages_near + 2.0, 3.0 * messages_near + 1.0, messages_near + 1.0)
        }
        Collective::AllReduce => {
            let ops = 4.0 * messages_near + 2.0 * groups - 1.0;
            messages(2.0 + ring, ops, 3.0 * messages_near + ring, messages_near + far)
        }
        Collective::ReduceScatter => {
            messages(2.0 + far, 2.0 * messages_near + groups, messages_near + 1.0, messages_near + far)
        }
        _ => {
            let ops = 2.0 * messages_near + groups + 1.0;
            messages(2.0 + far, ops, 2.0 * (messages_near + far) + 1.0, 0.0)
        }
    })
}

/// The rounds of leaders that follow one another: levels, and two more where guests give to their hosts and get the result.
fn rounds_of_leaders(groups: u32) -> f64 {
    f64::from(groups.ilog2()) + if groups.is_power_of_two() { 0.0 } else { 2.0 }
}

/// A leader's: it takes from its neighbours, exchanges with other leaders, and gives to its neighbours.
fn leader(shape: &Shape) -> Steps {
    let near = f64::from(shape.local - 1);
    let far = rounds_of_leaders(shape.ranks / shape.local);
    messages(2.0 + far, 2.0 * (near + far), near + far, near + far)
}

/// The same of blocks, and how much of it stays within a group. Messages to the leader of another group go out together; several in a
/// row from one neighbour to another cost half a step each (what fits the times that were measured, docs/performance-changes.md).
fn relay(shape: &Shape) -> (Steps, f64) {
    let (n, local) = (f64::from(shape.ranks), f64::from(shape.local));
    let (near, far) = (local - 1.0, n - local);
    let ops = near * (n + 1.0) / 2.0 + 2.0 * far / local;
    let (inside, steps) = match shape.collective {
        Collective::AllGather => {
            let inside = near * n + local;
            (inside, messages(3.0, ops, inside + 2.0 * far, 0.0))
        }
        _ => (near * (n + 1.0), messages(3.0, ops, near + far, near * n + far)),
    };
    (steps, inside / (inside + 2.0 * far))
}

fn flat(shape: &Shape) -> (Steps, Steps) {
    let n = f64::from(shape.ranks);
    let (ops, copies, reduces) =
        if shape.collective == Collective::Reduce { (n - 1.0, 0.0, n - 1.0) } else { (n, n, 0.0) };
    (messages(1.0, ops + 1.0, copies + 1.0, reduces), messages(0.0, ops, copies, reduces))
}

fn binomial(shape: &Shape) -> (Steps, Steps) {
    // The root has `d` children; the longest way has one hop per bit of a group's number, and of a place in it.
    let (n, d) = (f64::from(shape.ranks), levels(shape.ranks));
    let far = f64::from((shape.ranks / shape.local).ilog2()) + levels(shape.local);
    match shape.collective {
        Collective::Broadcast => (messages(far, d + 1.0, 2.0 * d, 0.0), messages(0.0, d, d + 1.0, 0.0)),
        Collective::Reduce => (messages(far, d + 1.0, 1.0, d), messages(0.0, d, 0.0, d)),
        _ => (messages(far, n + far, n + 2.0 * far, 0.0), messages(0.0, n, n, 0.0)),
    }
}

/// A move of `srcs` sources to `dsts` destinations in copies: a copy reads once and writes once.
pub(crate) fn move_copies(srcs: f64, dsts: f64) -> f64 {
    (srcs + dsts) / 2.0
}

fn one_shot(shape: &Shape) -> (Steps, Steps) {
    let n = f64::from(shape.ranks);
    let staged = if shape.in_place { 1.0 } else { 0.0 };
    let sum = move_copies(n, 1.0);
    both(match shape.collective {
        Collective::AllReduce => mapped(1.0, n, 1.0 + staged, sum + staged),
        Collective::ReduceScatter => mapped(1.0, n, 1.0, sum),
        Collective::Reduce => mapped(1.0, 1.0, 1.0, sum),
        Collective::AllGather | Collective::AllToAll => mapped(1.0, n, n, n),
        _ => mapped(1.0, n, 1.0, 1.0),
    })
}

fn two_shot(shape: &Shape) -> (Steps, Steps) {
    let n = f64::from(shape.ranks);
    let copies = match shape.collective {
        Collective::AllReduce => move_copies(n, n),
        Collective::AllGather => move_copies(1.0, n),
        _ => move_copies(n, 1.0),
    };
    both(mapped(1.0, n, 1.0, copies))
}

/// The root's side, which is the longer one where all is mapped.
pub(crate) fn shared_steps(shape: &Shape) -> Steps {
    let n = f64::from(shape.ranks);
    if shape.collective == Collective::Reduce {
        return mapped(1.0, n, 2.0, 2.0 * move_copies(n, 1.0));
    }
    let moves = match shape.ranks {
        2 => shared_one_shot::PARTS + 1,
        more => shared_one_shot::carried(more) + 1,
    };
    mapped(1.0, n, f64::from(moves), f64::from(moves))
}

fn staged_one_shot(shape: &Shape) -> (Steps, Steps) {
    let n = f64::from(shape.ranks);
    let sum = move_copies(n, 1.0);
    match shape.collective {
        Collective::AllReduce => both(mapped(1.0, n, 2.0, 1.0 + sum)),
        // Givers copy while the root reduces the piece before.
        Collective::Reduce => (mapped(1.0, n, 2.0, 1.0 + sum), mapped(0.0, n, 1.0, sum)),
        Collective::ReduceScatter => both(mapped(1.0, n, n, n - 1.0 + sum)),
        Collective::AllGather => both(mapped(1.0, n, n + 1.0, n + 1.0)),
        Collective::AllToAll => both(mapped(1.0, n, 2.0 * n - 1.0, 2.0 * n - 1.0)),
        Collective::Broadcast => (mapped(1.0, n, 2.0, 2.0), mapped(0.0, n, 2.0, 2.0)),
        _ => (mapped(1.0, n, n, n), mapped(0.0, n, n, n)),
    }
}

fn staged_two_shot(shape: &Shape) -> (Steps, Steps) {
    let n = f64::from(shape.ranks);
    both(mapped(2.0, 2.0 * n, 2.0 * n, 2.0 * (n - 1.0) + move_copies(n, 2.0)))
}

/// Of a critical path between groups that share memory the part of the messages that follow one another, and of what is copied and
/// combined, that stays within a group. Double trees are taken to have none where there is a root: which of their ranks are
/// neighbours depends on it. `crowded`: ranks share cores.
pub(crate) fn inside_shares(name: &str, shape: &Shape, crowded: bool) -> (f64, f64) {
    let (n, local) = (f64::from(shape.ranks), f64::from(shape.local));
    let groups = n / local;
    // Rounded, as all constants are: the last bits of a logarithm may differ between hosts, and their choices must not.
    let levels = f64::from((local.log2() / n.log2()) as f32);
    // Of a binomial tree.
    let within = self::levels(shape.local) / (self::levels(shape.local) + self::levels(shape.ranks / shape.local));
    // Of what a rank gives each of the others.
    let others = (local - 1.0) / (n - 1.0);
    match (name, shape.collective) {
        // Where ranks share cores all of their work counts, else that of those which pass everything on to the network.
        ("ring", _) => ((local - 1.0) / local, if crowded { (local - 1.0) / local } else { 0.5 }),
        ("tree", c) if c.rooted() => (0.0, 0.0),
        ("flat", _) => (0.0, others),
        ("hierarchical", Collective::AllReduce) => {
            let (hops, work) =
                if groups == 2.0 { (1.0, 1.0) } else { (2.0 * (groups - 1.0), 2.0 * (groups - 1.0) / groups) };
            (2.0 / (2.0 + hops), 2.0 * (local - 1.0) / (2.0 * (local - 1.0) + work))
        }
        ("hierarchical", c) if c.rooted() => {
            let near = waits_for_neighbours(shape);
            (near / (near + groups - 1.0), (local - 1.0) / local)
        }
        ("hierarchical", _) => (2.0 / (1.0 + groups), (local - 1.0) * groups / ((local - 1.0) * groups + groups - 1.0)),
        ("leader", _) => {
            let far = rounds_of_leaders(shape.ranks / shape.local);
            (2.0 / (2.0 + far), (local - 1.0) / (local - 1.0 + far))
        }
        ("relay", _) => (2.0 / 3.0, relay(shape).1),
        // Guests are mostly next to their hosts.
        ("doubling", _) => {
            let guests = if shape.ranks.is_power_of_two() { 0.0 } else { 2.0 };
            let near = (f64::from(shape.local.ilog2()) + guests) / (f64::from(shape.ranks.ilog2()) + guests);
            (near, near)
        }
        // The root gives and gets what all others do.
        ("binomial", Collective::Gather | Collective::Scatter) => (within, others),
        // Broadcasts that follow each other wait for nobody; alone one waits for the network once.
        ("binomial", Collective::Broadcast) if crowded => (1.0, within),
        ("binomial", _) => (within, within),
        ("tree", _) => (levels, levels),
        ("recursive" | "pat", _) => (levels, others),
        ("linear" | "pairwise", _) => (0.0, others),
        _ => (0.0, 0.0),
    }
}
