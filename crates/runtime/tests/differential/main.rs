//! The library against a naive oracle, on every road that its data can take.
//!
//! `oracle` says what results are, `case` lays out and checks one call, `job` runs many of them on a communicator in
//! processes of its own.

mod bursts;
mod case;
#[path = "../common/mod.rs"]
mod common;
mod crowds;
mod ends;
mod exchanges;
mod fused;
mod given;
mod job;
#[path = "../common/large.rs"]
mod large;
mod lent;
mod many;
mod mixture;
mod network;
mod oracle;
mod pair;
mod runs;
mod scenarios;
mod trails;
mod uneven;

use case::{Memory, Rounding};
use job::{Job, PAIR, PROCESS, Road, THREE, run, seed};

const fn road(name: &'static str, env: &'static [(&'static str, &'static str)], rounding: Rounding) -> Road {
    Road { name, env, rounding }
}

/// Ranks that share memory; results are rounded once.
const SHARED: &[Road] = &[
    road("default", &[], Rounding::Once),
    road("mapped", &[("OXCCL_EAGER_LIMIT", "0")], Rounding::Once),
    road("large eager", &[("OXCCL_EAGER_LIMIT", "65536")], Rounding::Once),
    road("staged", &[("OXCCL_ALGO", "^one_shot,two_shot,shared_one_shot"), ("OXCCL_SCRATCH", "65536")], Rounding::Once),
];

/// Ranks that never yield their cores, as where others work on them.
const PARKED: Road = road("parked", &[("OXCCL_SPIN_US", "0")], Rounding::Once);

/// Ranks that take themselves to have a core each, as on larger machines: other ways and plans, and waits that keep the core
/// longer, if little else wants it.
const OWN_CORES: &[Road] = &[
    road("own cores", &[("OXCCL_CORES", "64")], Rounding::Once),
    road("own cores, mapped", &[("OXCCL_CORES", "64"), ("OXCCL_EAGER_LIMIT", "0")], Rounding::Once),
    road("own cores, shm", &[("OXCCL_CORES", "64"), ("OXCCL_P2P", "shm")], Rounding::Once),
];

/// One algorithm at a time; what it does not serve takes some other road.
const ALGORITHMS: &[Road] = &[
    road("one_shot", &[("OXCCL_ALGO", "one_shot"), ("OXCCL_EAGER_LIMIT", "0")], Rounding::PerStep),
    road("two_shot", &[("OXCCL_ALGO", "two_shot")], Rounding::PerStep),
    road("shared_one_shot", &[("OXCCL_ALGO", "shared_one_shot"), ("OXCCL_EAGER_LIMIT", "0")], Rounding::PerStep),
    road("staged_one_shot", &[("OXCCL_ALGO", "staged_one_shot")], Rounding::PerStep),
    road("staged_two_shot", &[("OXCCL_ALGO", "staged_two_shot")], Rounding::PerStep),
    road("ring", &[("OXCCL_ALGO", "ring")], Rounding::PerStep),
    road("tree", &[("OXCCL_ALGO", "tree")], Rounding::PerStep),
    road("doubling", &[("OXCCL_ALGO", "doubling")], Rounding::PerStep),
    road("recursive", &[("OXCCL_ALGO", "recursive")], Rounding::PerStep),
    road("linear", &[("OXCCL_ALGO", "linear"), ("OXCCL_SLOT_BYTES", "4096")], Rounding::PerStep),
    road("pat, pairwise", &[("OXCCL_ALGO", "pat,pairwise"), ("OXCCL_SLOT_BYTES", "4096")], Rounding::PerStep),
    road("flat", &[("OXCCL_ALGO", "flat")], Rounding::PerStep),
    road("binomial", &[("OXCCL_ALGO", "binomial")], Rounding::PerStep),
];

/// Ranks that share no memory.
const NETWORK: &[Road] = &[
    road("tcp", &[("OXCCL_SHM", "0")], Rounding::PerStep),
    road(
        "tcp, ring, channels",
        &[("OXCCL_SHM", "0"), ("OXCCL_ALGO", "ring"), ("OXCCL_MAX_CHANNELS", "4")],
        Rounding::PerStep,
    ),
    road(
        "tcp, tree, channels",
        &[("OXCCL_SHM", "0"), ("OXCCL_ALGO", "tree"), ("OXCCL_MAX_CHANNELS", "4"), ("OXCCL_SLOT_BYTES", "4096")],
        Rounding::PerStep,
    ),
    road(
        "tcp, linear, channels",
        &[("OXCCL_SHM", "0"), ("OXCCL_ALGO", "linear"), ("OXCCL_MAX_CHANNELS", "4"), ("OXCCL_SLOT_BYTES", "4096")],
        Rounding::PerStep,
    ),
    road("tcp, not linear", &[("OXCCL_SHM", "0"), ("OXCCL_ALGO", "^linear")], Rounding::PerStep),
];

/// Ranks of which those of one process share memory, and all others are reached over the network.
const HOSTS: &[Road] = &[
    road("hosts", &[("NCCL_HOSTID", PROCESS)], Rounding::PerStep),
    road(
        "hosts, hierarchical, channels",
        &[
            ("NCCL_HOSTID", PROCESS),
            ("OXCCL_ALGO", "hierarchical"),
            ("OXCCL_MAX_CHANNELS", "4"),
            ("OXCCL_SLOT_BYTES", "4096"),
        ],
        Rounding::PerStep,
    ),
    road(
        "hosts, leader, channels",
        &[
            ("NCCL_HOSTID", PROCESS),
            ("OXCCL_ALGO", "leader,relay"),
            ("OXCCL_MAX_CHANNELS", "4"),
            ("OXCCL_SLOT_BYTES", "4096"),
        ],
        Rounding::PerStep,
    ),
    road("hosts, long slots", &[("NCCL_HOSTID", PROCESS), ("OXCCL_SLOT_BYTES", "4194304")], Rounding::PerStep),
    // No whole number of slots is as long as a piece.
    road(
        "hosts, own cores",
        &[("NCCL_HOSTID", PROCESS), ("OXCCL_CORES", "64"), ("OXCCL_SLOT_BYTES", "98304")],
        Rounding::PerStep,
    ),
    road(
        "hosts, not hierarchical",
        &[("NCCL_HOSTID", PROCESS), ("OXCCL_ALGO", "^hierarchical,leader,relay"), ("OXCCL_SLOT_BYTES", "4096")],
        Rounding::PerStep,
    ),
];

#[test]
fn hosts_of_several_ranks() {
    let seed = seed();
    for r in HOSTS {
        run(r, &Job::processes(&[2, 2], Memory::Mixed, 1), seed);
        for processes in [&[3, 3][..], &[2, 2, 2], &[4, 2], &[1, 2]] {
            run(r, &Job::processes(processes, Memory::Mixed, 2), seed);
        }
        run(r, &Job::bursts(&[2, 2], 20), seed);
        run(r, &Job::uneven(&[3, 3], 10), seed);
    }
}

/// Ranks of which those of two processes share memory.
const PAIRS: &[Road] = &[
    road("pairs", &[("NCCL_HOSTID", PAIR), ("OXCCL_CORES", "1")], Rounding::PerStep),
    road(
        "pairs, hierarchical, channels",
        &[("NCCL_HOSTID", PAIR), ("OXCCL_ALGO", "hierarchical"), ("OXCCL_MAX_CHANNELS", "4")],
        Rounding::PerStep,
    ),
    road(
        "pairs, not hierarchical",
        &[("NCCL_HOSTID", PAIR), ("OXCCL_ALGO", "^hierarchical"), ("OXCCL_CORES", "64")],
        Rounding::PerStep,
    ),
    road("pairs, leader", &[("NCCL_HOSTID", PAIR), ("OXCCL_ALGO", "leader,relay")], Rounding::PerStep),
    road("pairs, shm", &[("NCCL_HOSTID", PAIR), ("OXCCL_P2P", "shm")], Rounding::PerStep),
];

#[test]
fn hosts_of_several_processes() {
    let seed = seed();
    for r in PAIRS {
        run(r, &Job::processes(&[1, 1, 1, 1], Memory::Device, 1), seed);
        run(r, &Job::processes(&[1, 1, 1, 1, 1, 1], Memory::Mixed, 2), seed);
    }
    run(&PAIRS[0], &Job::processes(&[2, 1, 1, 2], Memory::Mixed, 2), seed);
    // What a rank sends to two neighbours that cannot map it is copied once; to one that can, to a slot, if it is short.
    let threes = road("threes", &[("NCCL_HOSTID", THREE), ("OXCCL_CORES", "1")], Rounding::PerStep);
    run(&threes, &Job::processes(&[1, 1, 1, 1, 1, 1], Memory::Malloc, 1), seed);
    run(&threes, &Job::processes(&[1, 1, 1, 1, 1, 1], Memory::Mixed, 3), seed);
    let apart = road("threes, own cores", &[("NCCL_HOSTID", THREE), ("OXCCL_CORES", "64")], Rounding::PerStep);
    run(&apart, &Job::processes(&[1, 1, 1, 1, 1, 1], Memory::Mixed, 3), seed);
    run(&threes, &Job::bursts(&[1, 1, 1, 1, 1, 1], 10), seed);
    run(&PAIRS[0], &Job::bursts(&[1, 1, 1, 1], 20), seed);
    run(&PAIRS[0], &Job::uneven(&[1, 1, 1, 1], 10), seed);
}

#[test]
fn threads_that_share_memory() {
    let seed = seed();
    run(&SHARED[0], &Job::threads(1, 1), seed);
    for r in SHARED {
        run(r, &Job::threads(2, 2), seed);
        run(r, &Job::threads(3, 1), seed);
        run(r, &Job::threads(5, 8), seed);
    }
    run(&PARKED, &Job::threads(3, 2), seed);
    run(&PARKED, &Job::threads(5, 8), seed);
    run(&SHARED[0], &Job::threads(8, 4), seed);
    run(&SHARED[3], &Job::threads(8, 8), seed);
}

#[test]
fn threads_with_one_algorithm() {
    let seed = seed();
    for r in ALGORITHMS {
        run(r, &Job::threads(2, 4), seed);
        run(r, &Job::threads(3, 1), seed);
    }
    for r in &ALGORITHMS[5..10] {
        run(r, &Job::threads(5, 8), seed);
        run(r, &Job::threads(8, 16), seed);
    }
}

#[test]
fn processes_that_share_memory() {
    let seed = seed();
    for r in SHARED {
        run(r, &Job::processes(&[1, 1], Memory::Device, 2), seed);
        run(r, &Job::processes(&[1, 1], Memory::Malloc, 2), seed);
        run(r, &Job::processes(&[2, 1], Memory::Mixed, 2), seed);
    }
    run(&PARKED, &Job::processes(&[1, 1, 1], Memory::Mixed, 4), seed);
    for r in &ALGORITHMS[..6] {
        run(r, &Job::processes(&[1, 1], Memory::Mixed, 4), seed);
    }
    for p2p in ["shm", "direct", "cma"] {
        let env: &'static [(&str, &str)] = match p2p {
            "shm" => &[("OXCCL_P2P", "shm")],
            "direct" => &[("OXCCL_P2P", "direct")],
            _ => &[("OXCCL_P2P", "cma")],
        };
        run(&road(p2p, env, Rounding::Once), &Job::processes(&[1, 1], Memory::Mixed, 4), seed);
    }
}

#[test]
fn more_than_two_ranks_with_cores_of_their_own() {
    let seed = seed();
    for memory in [Memory::Device, Memory::Malloc, Memory::Mixed] {
        run(&OWN_CORES[0], &Job::processes(&[1, 1, 1], memory, 2), seed);
    }
    run(&OWN_CORES[0], &Job::processes(&[1, 1, 1, 1, 1], Memory::Malloc, 8), seed);
    run(&OWN_CORES[0], &Job::processes(&[2, 1, 1, 2, 1], Memory::Mixed, 8), seed);
    run(&OWN_CORES[1], &Job::processes(&[1, 1, 1, 1], Memory::Device, 8), seed);
    run(&OWN_CORES[2], &Job::processes(&[1, 1, 1, 1], Memory::Mixed, 8), seed);
    run(&OWN_CORES[0], &Job::threads(4, 8), seed);
    run(&OWN_CORES[0], &Job::bursts(&[1, 1, 1, 1], 40), seed);
    run(&OWN_CORES[0], &Job::uneven(&[1, 1, 1], 20), seed);
}

#[test]
fn a_call_that_differs_is_found_behind_a_root_that_runs_ahead() {
    for calls in [1, 2, 40] {
        run(&SHARED[0], &Job::differing(calls), seed());
    }
}

#[test]
fn calls_back_to_back() {
    let seed = seed();
    for processes in [&[1, 1][..], &[1, 1, 1], &[2, 1]] {
        run(&SHARED[0], &Job::bursts(processes, 60), seed);
    }
    for processes in [&[1, 1][..], &[1, 1, 1, 1], &[2, 3]] {
        run(&PARKED, &Job::bursts(processes, 40), seed);
    }
    run(&SHARED[3], &Job::bursts(&[1, 1], 40), seed);
    for processes in [&[2, 1][..], &[1, 1, 1, 1]] {
        run(&SHARED[1], &Job::bursts(processes, 60), seed);
    }
    run(&road("shm", &[("OXCCL_P2P", "shm")], Rounding::Once), &Job::bursts(&[1, 1], 40), seed);
}

#[test]
fn parts_of_any_length_among_other_calls() {
    let seed = seed();
    // The last two have more ranks than a line has room to say where their parts lie, the last so many that they have fewer slots.
    for processes in [&[1, 1][..], &[1, 1, 1, 1, 1], &[2, 3], &[4], &[6, 5], &[9, 9]] {
        let ranks: usize = processes.iter().sum();
        run(&SHARED[0], &Job::uneven(processes, 60 / ranks), seed);
    }
    run(&OWN_CORES[0], &Job::uneven(&[6, 5], 4), seed);
    run(&SHARED[1], &Job::uneven(&[1, 1, 1], 20), seed);
}

#[test]
fn ranks_that_share_no_memory() {
    let seed = seed();
    for r in NETWORK {
        run(r, &Job::threads(2, 2), seed);
        run(r, &Job::processes(&[1, 2], Memory::Mixed, 1), seed);
    }
    run(&NETWORK[0], &Job::threads(5, 4), seed);
    // Parked from the first look on, also where a call gives way to ranks that share its core.
    let parked = road("tcp, parked", &[("OXCCL_SHM", "0"), ("OXCCL_SPIN_US", "0")], Rounding::PerStep);
    run(&parked, &Job::threads(5, 4), seed);
    run(&parked, &Job::processes(&[1, 1, 1], Memory::Mixed, 1), seed);
    run(&NETWORK[1], &Job::threads(8, 8), seed);
}

#[test]
fn beyond_2_to_the_31_bytes() {
    run(&SHARED[0], &Job::large(2, 2), 0);
}

#[test]
#[ignore = "takes a minute and 5 GiB; `cargo xtask ci --only large` runs it"]
fn beyond_2_to_the_31_bytes_on_every_road() {
    for r in [&SHARED[0], &SHARED[3], &NETWORK[0], &NETWORK[2]] {
        run(r, &Job::large(2, 3), 0);
    }
}
