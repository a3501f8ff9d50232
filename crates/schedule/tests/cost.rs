//! Closed forms and simulation agree, and the simulator reaches many ranks.

use oxccl_schedule::algorithms::{ALGORITHMS, find};
use oxccl_schedule::cost::{CostModel, Link, predict, predict_beside, predict_far};
use oxccl_schedule::ir::{Needs, Shape};
use oxccl_schedule::select::{Candidate, Query, Reach, candidates};
use oxccl_schedule::simulate::simulate;
use oxccl_types::Collective;

const SLOT: u64 = 128 << 10;

fn shape(collective: Collective, ranks: u32) -> Shape {
    Shape { collective, ranks, root: 0, channels: 1, in_place: false, local: 1 }
}

/// Largest quotient of the two times, over sizes, ranks and links.
fn worst(name: &str, collective: Collective) -> (f64, String) {
    worst_of(name, [2, 3, 4, 8, 13, 16, 64].map(|ranks| shape(collective, ranks)).to_vec(), &[Link::Shm, Link::Tcp])
}

/// The same of `shapes` that the algorithm supports.
fn worst_of(name: &str, shapes: Vec<Shape>, links: &[Link]) -> (f64, String) {
    let a = find(name).expect("a name of the table");
    let mut worst = (1.0, String::new());
    for s in shapes.into_iter().filter(|s| a.supports(s)) {
        for bytes in [8, 1 << 10, 64 << 10, 1 << 20, 64 << 20] {
            for cores in [2.0, 128.0] {
                for &link in links {
                    let m = CostModel { cores, ..CostModel::default() };
                    let p = predict(&m, a, &s, bytes, link, SLOT);
                    let t = simulate(a, &s, bytes, &m, link, SLOT).time_us;
                    assert!(p > 0.0 && t > 0.0);
                    let q = (p / t).max(t / p);
                    if q > worst.0 {
                        let what = format!("{s:?} {bytes} B {link:?} {cores}: predicted {p} simulated {t}");
                        worst = (q, what);
                    }
                }
            }
        }
    }
    worst
}

#[test]
fn closed_forms_agree_with_the_simulation() {
    for (name, factor) in [("ring", 1.05), ("two_shot", 1.05), ("tree", 1.6), ("doubling", 1.6)] {
        let (q, what) = worst(name, Collective::AllReduce);
        assert!(q <= factor, "{name}: factor {q}: {what}");
    }
    for a in ALGORITHMS {
        for &c in a.collectives {
            let (q, what) = worst(a.name, c);
            assert!(q <= 2.5, "{} {c}: factor {q}: {what}", a.name);
        }
    }
}

#[test]
fn closed_forms_agree_with_the_simulation_where_some_ranks_share_memory() {
    for a in ALGORITHMS.iter().filter(|a| a.needs == Needs::Messages) {
        // Of double trees with a root the model does not say which ranks are neighbours.
        for &c in a.collectives.iter().filter(|c| a.name != "tree" || !c.rooted()) {
            let shapes = [(4, 2), (6, 3), (8, 2), (8, 4), (16, 8), (64, 8), (96, 12)];
            let shapes = shapes.map(|(ranks, local)| Shape { local, ..shape(c, ranks) });
            let (q, what) = worst_of(a.name, shapes.to_vec(), &[Link::Tcp]);
            assert!(q <= 2.5, "{} {c}: factor {q}: {what}", a.name);
        }
    }
}

#[test]
fn more_bytes_take_longer() {
    let m = CostModel::default();
    for a in ALGORITHMS {
        for &c in a.collectives {
            let shape = Shape { local: 3, ..shape(c, 6) };
            let times: Vec<f64> =
                [1 << 10, 1 << 20, 1 << 30].map(|b| simulate(a, &shape, b, &m, Link::Tcp, SLOT).time_us).into();
            assert!(times.windows(2).all(|w| w[0] < w[1]), "{} {c}: {times:?}", a.name);
        }
    }
}

#[test]
fn a_hundred_thousand_ranks() {
    let m = CostModel::default();
    for (name, least) in [("tree", 2.0 * 16.0), ("doubling", 17.0)] {
        let a = find(name).expect("a name of the table");
        assert_eq!(a.needs, Needs::Messages);
        let s = simulate(a, &shape(Collective::AllReduce, 100_000), 1024, &m, Link::Tcp, SLOT);
        // Nothing is faster than its hops.
        assert!(s.time_us > least * m.tcp.latency_us && s.time_us < 1000.0, "{name}: {s:?}");
        assert!(s.messages >= 199_998, "{name}: {s:?}");
    }
}

#[test]
fn a_slow_wire_shows() {
    let a = find("ring").expect("a name of the table");
    let s = shape(Collective::AllReduce, 4);
    let fast = CostModel::default();
    let mut slow = fast;
    slow.tcp.copy_us_per_kib *= 10.0;
    slow.tcp.reduce_us_per_kib *= 10.0;
    let t = |m| simulate(a, &s, 16 << 20, m, Link::Tcp, SLOT).time_us;
    assert!(t(&slow) > 8.0 * t(&fast));
}

/// What serves `bytes` of buffers that peers cannot map.
fn private(collective: Collective, ranks: u32, bytes: u64, in_place: bool) -> &'static str {
    private_by(CostModel::default(), collective, ranks, bytes, in_place)
}

/// The same by the constants `model`.
fn private_by(model: CostModel, collective: Collective, ranks: u32, bytes: u64, in_place: bool) -> &'static str {
    let query = Query {
        model,
        in_place,
        max_channels: 1,
        eager_limit: 0,
        ..Query::new(collective, bytes, ranks, Reach::ReadableUser)
    };
    // Of those that are no messages.
    let direct = |c: &Candidate| find(c.algorithm).is_some_and(|a| a.needs != Needs::Messages);
    candidates(&query).into_iter().find(direct).expect("something serves it").algorithm
}

#[test]
fn the_kernel_copies_where_that_is_faster_than_scratch() {
    assert_eq!(private(Collective::AllToAll, 2, 1 << 20, false), "one_shot");
    assert_eq!(private(Collective::AllReduce, 2, 1 << 20, false), "two_shot");
    // Beyond the caches the root of a reduction reads while the others copy.
    assert_eq!(private(Collective::Reduce, 2, 64 << 20, false), "staged_one_shot");
    // A root with another output would be written to by the kernel.
    assert_eq!(private(Collective::Broadcast, 2, 1 << 20, true), "two_shot");
    // One that copies for itself carries a sixth, of two ranks.
    for collective in [Collective::Broadcast, Collective::Gather, Collective::Scatter] {
        assert_eq!(private(collective, 2, 1 << 20, false), "shared_one_shot");
        assert_eq!(private(collective, 3, 1 << 20, false), "one_shot");
        assert_eq!(private(collective, 2, 8 << 20, false), "shared_one_shot");
    }
    // Many small copies by the kernel, of ranks that share cores, cost more than staging.
    assert_eq!(private(Collective::AllReduce, 4, 32 << 10, false), "staged_two_shot");
}

/// Where the processor copies whole strings, what was measured with two ranks: through scratch up to where blocks lie on large
/// pages, the kernel beyond; sums that one rank gets through scratch at any size.
#[test]
fn scratch_is_faster_where_strings_are_copied_whole_until_pages_are_large() {
    let served = |c, bytes, in_place| private_by(CostModel::of_strings(), c, 2, bytes, in_place);
    for kib in [128, 512, 2048] {
        for c in Collective::SCHEDULED.into_iter().filter(|c| !matches!(c, Collective::AllToAllV)) {
            assert!(served(c, kib << 10, false).starts_with("staged"), "{c} of {kib} KiB");
        }
    }
    for c in [Collective::Reduce, Collective::ReduceScatter] {
        assert_eq!(served(c, 32 << 20, false), "staged_one_shot", "{c}");
    }
    assert_eq!(served(Collective::AllReduce, 16 << 20, false), "two_shot");
    for c in [Collective::AllGather, Collective::AllToAll, Collective::Gather, Collective::Scatter] {
        assert!(!served(c, 32 << 20, false).starts_with("staged"), "{c}");
    }
    assert_eq!(served(Collective::Broadcast, 8 << 20, true), "two_shot");
}

/// What was measured with two ranks: long blocks of a root's private memory by messages, which leave the ends of buffers to slots,
/// until it is worth more that both cores copy.
#[test]
fn a_root_sends_what_lies_on_large_pages() {
    let served = |model, collective, ranks, bytes, in_place| {
        let query = Query {
            model,
            in_place,
            max_channels: 1,
            eager_limit: 0,
            ..Query::new(collective, bytes, ranks, Reach::ReadableUser)
        };
        candidates(&query)[0].algorithm
    };
    let strings = CostModel::of_strings();
    for (collective, blocks) in [(Collective::Broadcast, 1), (Collective::Scatter, 2)] {
        let of = |model, ranks, mib: u64, in_place| served(model, collective, ranks, (blocks * mib) << 20, in_place);
        assert_eq!([4, 8].map(|mib| of(strings, 2, mib, false)), ["flat"; 2], "{collective}");
        for (model, ranks, mib) in [(strings, 2, 2), (strings, 2, 32), (strings, 3, 8), (CostModel::default(), 2, 8)] {
            assert_ne!(of(model, ranks, mib, false), "flat", "{collective}, {ranks} ranks, {mib} MiB");
        }
    }
    assert_eq!(served(strings, Collective::Broadcast, 2, 4 << 20, true), "flat");
    assert_eq!(served(strings, Collective::Broadcast, 2, 8 << 20, true), "two_shot");
    assert_ne!(served(strings, Collective::Gather, 2, 16 << 20, false), "flat");
}

/// Blocks are given where writing to a peer's memory costs no more than reading it, but by ranks that share cores only beyond
/// the caches; the kernel fetches them.
#[test]
fn blocks_are_given_or_fetched_as_the_model_says() {
    let served = |model, ranks, bytes, reach| {
        let query = Query { model, eager_limit: 0, ..Query::new(Collective::AllGather, bytes, ranks, reach) };
        candidates(&query).into_iter().find(|c| c.algorithm.ends_with("_shot")).expect("something serves it").algorithm
    };
    let (moves, strings) = (CostModel::default(), CostModel::of_strings());
    for bytes in [64 << 10, 64 << 20] {
        assert_eq!(served(moves, 2, bytes, Reach::MappedUser), "one_shot");
        assert_eq!(served(strings, 2, bytes, Reach::MappedUser), "two_shot");
        assert_eq!(served(moves, 8, bytes, Reach::MappedUser), "one_shot");
    }
    assert_eq!(served(strings, 8, 64 << 10, Reach::MappedUser), "one_shot");
    assert_eq!(served(strings, 8, 64 << 20, Reach::MappedUser), "two_shot");
    assert_eq!(served(strings, 2, 64 << 20, Reach::ReadableUser), "one_shot");
    let cheap = CostModel { push_factor: 0.5, ..moves };
    assert_eq!(served(cheap, 2, 64 << 20, Reach::MappedUser), "two_shot");
}

/// Where two copies past the caches are as fast, long blocks that every rank reads go through scratch; those of a root do not.
#[test]
fn long_blocks_that_all_read_go_through_scratch_where_that_is_fast() {
    let served = |model, collective, bytes| {
        let query = Query { model, eager_limit: 0, ..Query::new(collective, bytes, 2, Reach::ReadableUser) };
        candidates(&query)[0].algorithm
    };
    let models = [CostModel::of_strings(), CostModel::of_strings_outside(), CostModel::of_waiting_strings()];
    // Of two blocks each, or halves.
    for collective in [Collective::AllGather, Collective::AllToAll, Collective::AllReduce] {
        let reads = |m: CostModel, bytes| !served(m, collective, bytes).starts_with("staged");
        let of = |bytes| models.map(|m| reads(m, bytes));
        assert_eq!(of((64 << 20) - 8), [true; 3], "{collective}");
        assert_eq!(of(64 << 20), [true, false, false], "{collective}");
        assert_eq!(of(128 << 20), [true, false, false], "{collective}");
    }
    // And messages both ways, on Zen 3 only.
    assert_eq!(models.map(|m| m.kernel_both_ways_below >= 1e13), [true, false, true]);
    for collective in [Collective::Broadcast, Collective::Scatter, Collective::Gather] {
        let [one, others @ ..] = models.map(|m| served(m, collective, 128 << 20));
        assert_eq!(others, [one; 2], "{collective}");
    }
}

/// Two ranks copy by the kernel what lies on large pages for the most part: blocks of 2 MiB, if two lie in one buffer.
#[test]
fn the_kernel_copies_from_large_pages_where_slots_are_fast() {
    let staged = |collective, bytes: u64, ranks| {
        let model = CostModel { cores: 2.0, ..CostModel::of_strings() };
        let query = Query { model, eager_limit: 0, ..Query::new(collective, bytes, ranks, Reach::ReadableUser) };
        candidates(&query)[0].algorithm.starts_with("staged")
    };
    for collective in [Collective::AllGather, Collective::AllToAll, Collective::Gather, Collective::Scatter] {
        assert!(staged(collective, (4 << 20) - 8, 2), "{collective}");
        assert!(!staged(collective, 4 << 20, 2), "{collective}");
    }
    assert!(staged(Collective::Broadcast, (4 << 20) - 4, 2) && !staged(Collective::Broadcast, 4 << 20, 2));
    assert!(staged(Collective::AllReduce, 4 << 20, 2) && !staged(Collective::AllReduce, 8 << 20, 2));
    assert!(staged(Collective::AllGather, 9 << 20, 3), "of ranks that share cores it was not measured");
}

/// Where slots are the faster way, a root that shares its core gives long blocks by messages, one to each.
#[test]
fn ranks_that_share_cores_scatter_long_blocks_by_messages() {
    let served = |model: CostModel, ranks: u32, block: u64| {
        let query = Query {
            model: CostModel { cores: 2.0, ..model },
            eager_limit: 0,
            ..Query::new(Collective::Scatter, block * u64::from(ranks), ranks, Reach::ReadableUser)
        };
        candidates(&query)[0].algorithm
    };
    let strings = CostModel::of_strings();
    for ranks in [3, 4, 8] {
        assert_eq!(served(strings, ranks, 24 << 10), "flat", "{ranks}");
        assert_eq!(served(strings, ranks, 1 << 20), "flat", "{ranks}");
        assert_ne!(served(strings, ranks, 20 << 10), "flat", "{ranks}");
        assert_ne!(served(CostModel::default(), ranks, 1 << 20), "flat", "{ranks}");
    }
    assert_ne!(served(strings, 2, 64 << 10), "flat");
}

/// Two leaves with a core each copy by themselves at once, if the kernel copies messages; others take turns with the root.
#[test]
fn three_ranks_on_two_cores_broadcast_long_blocks_by_messages_that_the_kernel_copies() {
    let served = |model: CostModel, cores: f64, ranks: u32, bytes: u64| {
        let model = CostModel { cores, ..model };
        let query =
            Query { model, eager_limit: 0, ..Query::new(Collective::Broadcast, bytes, ranks, Reach::ReadableUser) };
        let chosen = candidates(&query).swap_remove(0);
        (chosen.algorithm, chosen.reason)
    };
    let model = CostModel::of_waiting_strings();
    for bytes in [256 << 10, 1 << 20, 3 << 20, 8 << 20, 128 << 20] {
        let (algorithm, reason) = served(model, 2.0, 3, bytes);
        assert!(algorithm == "flat" && reason.contains("kernel"), "{bytes}: {algorithm}, {reason}");
        for (model, cores, ranks) in [
            (model, 2.0, 4),
            (model, 3.0, 3),
            (model, 1.0, 3),
            (CostModel::default(), 2.0, 3),
            (CostModel::of_strings(), 2.0, 3),
        ] {
            assert_ne!(served(model, cores, ranks, bytes).0, "flat", "{bytes} of {ranks} on {cores}");
        }
    }
    assert_ne!(served(model, 2.0, 3, 255 << 10).0, "flat");
}

/// Where slots and scratch are the faster way, they are no longer once they push out of the last cache what a crowd gives from one to one.
#[test]
fn the_kernel_copies_what_outgrows_the_caches_of_a_crowd() {
    let served = |model: CostModel, collective, ranks: u32, bytes: u64| {
        let model = CostModel { cores: 2.0, ..model };
        let query = Query { model, eager_limit: 0, ..Query::new(collective, bytes, ranks, Reach::ReadableUser) };
        candidates(&query)[0].algorithm
    };
    let strings = CostModel::of_strings();
    let crowds = [CostModel::of_strings_outside(), CostModel::of_waiting_strings()];
    for (measured, ranks) in crowds.into_iter().flat_map(|m| [(m, 4), (m, 8)]) {
        for bytes in [2 << 20, 8 << 20, 32 << 20] {
            for collective in [Collective::AllToAll, Collective::Gather] {
                assert_eq!(served(measured, collective, ranks, bytes), "one_shot", "{collective} {bytes} {ranks}");
            }
            // By messages, or read by the kernel: both do without scratch.
            assert!(!served(measured, Collective::Scatter, ranks, bytes).starts_with("staged"), "{bytes} {ranks}");
            // Each block goes to all: those who share a core find it in its caches.
            for collective in [Collective::AllGather, Collective::AllReduce, Collective::ReduceScatter] {
                let found = served(measured, collective, ranks, bytes);
                assert!(found.starts_with("staged"), "{collective} {bytes} {ranks}: {found}");
            }
        }
        for collective in [Collective::AllToAll, Collective::Gather] {
            assert_eq!(served(measured, collective, ranks, 1 << 20), "staged_one_shot", "{collective} {ranks}");
            assert_eq!(served(strings, collective, ranks, 4 << 20), "staged_one_shot", "{collective} {ranks}");
        }
    }
    // Ranks with a core of their own go the way that they went.
    for collective in [Collective::AllToAll, Collective::Gather, Collective::Scatter] {
        let [one, others @ ..] = [strings, crowds[0], crowds[1]].map(|m| served(m, collective, 2, 8 << 20));
        assert_eq!(others, [one; 2], "{collective}");
    }
}

/// Small pages of a root serve one reader at a time: what it carries meanwhile, at the pages of others, is saved. From large pages
/// all take their blocks at once. Measured (docs/performance-cores.md).
#[test]
fn the_root_carries_blocks_where_its_own_pages_are_what_others_wait_for() {
    use Collective::{Broadcast, Gather, Scatter};
    let served = |model, collective, ranks, bytes| {
        let query = Query {
            model,
            max_channels: 1,
            eager_limit: 0,
            ..Query::new(collective, bytes, ranks, Reach::ReadableUser)
        };
        candidates(&query).first().expect("something serves it").algorithm
    };
    let model = CostModel::of_travelling_lines(16.0);
    for collective in [Gather, Scatter] {
        for (ranks, bytes) in
            [(3, 128 << 10), (4, 128 << 10), (8, 128 << 10), (4, 512 << 10), (8, 512 << 10), (16, 512 << 10)]
        {
            assert_eq!(served(model, collective, ranks, bytes), "shared_one_shot", "{collective} {ranks} {bytes}");
        }
        assert_eq!(served(model, collective, 8, 2 << 20), "one_shot", "{collective}: large pages");
        // Who shares a core with the root waits for it in any case.
        let crowd = CostModel { cores: 2.0, ..model };
        assert_ne!(served(crowd, collective, 8, 512 << 10), "shared_one_shot", "{collective}");
    }
    assert_eq!(served(model, Broadcast, 3, 128 << 10), "shared_one_shot");
    assert_ne!(served(model, Broadcast, 8, 512 << 10), "one_shot");
}

/// What was measured with 16 cores of Emerald Rapids where one way was at least 1.3 times as fast as the other, but the kernel's for
/// all-reduce of 8 MiB of 8 ranks 1.14 times (docs/performance-cores.md).
#[test]
fn ranks_with_cores_of_their_own_go_the_way_that_was_measured_to_be_faster() {
    use Collective::{AllGather, AllReduce, AllToAll, Broadcast, Reduce, ReduceScatter, Scatter};
    let model = CostModel::of_travelling_lines(16.0);
    let fastest = |collective, ranks, kib: u64, reach, needs| {
        let query = Query { model, max_channels: 1, eager_limit: 0, ..Query::new(collective, kib << 10, ranks, reach) };
        let serves = |c: &&Candidate| find(c.algorithm).is_some_and(|a| a.needs == needs);
        candidates(&query).iter().find(serves).expect("something serves it").predicted_us
    };
    let by_kernel = |collective, ranks, kib| {
        fastest(collective, ranks, kib, Reach::ReadableUser, Needs::MappedUser)
            < fastest(collective, ranks, kib, Reach::MappedScratch, Needs::MappedScratch)
    };
    let kernel = [
        (AllToAll, 2, 512),
        (AllToAll, 4, 128),
        (AllToAll, 8, 512),
        (AllToAll, 16, 512),
        (AllGather, 4, 512),
        (AllGather, 8, 512),
        (AllGather, 16, 512),
        (AllReduce, 4, 512),
        (AllReduce, 8, 8192),
        (Broadcast, 2, 512),
        (Broadcast, 8, 8192),
        (Reduce, 2, 2048),
        (Reduce, 16, 8192),
        (ReduceScatter, 4, 2048),
        (ReduceScatter, 8, 2048),
        (Scatter, 8, 2048),
        (Scatter, 16, 8192),
    ];
    let scratch = [
        (AllReduce, 8, 8),
        (AllReduce, 8, 32),
        (AllReduce, 16, 128),
        (AllReduce, 16, 8192),
        (AllToAll, 16, 32),
        (Broadcast, 8, 128),
        (Broadcast, 8, 512),
        (Broadcast, 16, 512),
        (Reduce, 8, 32),
        (ReduceScatter, 8, 128),
        (ReduceScatter, 16, 32),
        (Scatter, 16, 32),
    ];
    for (collective, ranks, kib) in kernel {
        assert!(by_kernel(collective, ranks, kib), "{collective} of {kib} KiB, {ranks} ranks: not by the kernel");
    }
    for (collective, ranks, kib) in scratch {
        assert!(!by_kernel(collective, ranks, kib), "{collective} of {kib} KiB, {ranks} ranks: by the kernel");
    }
}

#[test]
fn the_kernel_copies_messages_from_where_two_copies_cost_more() {
    let from = CostModel::default().kernel_from().expect("at some length");
    assert_eq!(from.next_power_of_two(), 8192);
    assert_eq!(CostModel::of_strings().kernel_from(), None);
    assert_eq!(CostModel { kernel_op_us: 4.0, ..CostModel::default() }.kernel_from(), Some(4 * from + 1));
}

#[test]
fn more_bytes_take_longer_through_the_kernel_and_beside_lines() {
    let m = CostModel::default();
    let sizes = [1 << 10, 64 << 10, 1 << 20, 64 << 20];
    for a in ALGORITHMS.iter().filter(|a| a.needs == Needs::MappedUser) {
        for &c in a.collectives {
            let far = sizes.map(|b| predict_far(&m, a, &shape(c, 4), b));
            let beside = sizes.map(|b| predict_beside(&m, c, b, 4));
            for times in [far, beside] {
                assert!(times.windows(2).all(|w| w[0] < w[1]) && times[0] > 0.0, "{} {c}: {times:?}", a.name);
            }
            let mapped = sizes.map(|b| predict(&m, a, &shape(c, 4), b, Link::Direct, SLOT));
            let reduces = c.reduces();
            assert!(!reduces || far.iter().zip(&mapped).all(|(f, m)| f > m), "{} {c}", a.name);
        }
    }
    let slow = CostModel { kernel_us_per_kib: 10.0, ..m };
    let a = find("two_shot").expect("a name of the table");
    let of = |m: &CostModel| predict_far(m, a, &shape(Collective::AllReduce, 2), 1 << 20);
    assert!(of(&slow) > 2.0 * of(&m));
}

/// What `exec::slotted` relies on: ranks that share cores gather by the same program whatever the length.
#[test]
fn ranks_that_share_cores_write_their_blocks_to_the_root_at_any_length() {
    for base in [CostModel::default(), CostModel::of_strings()] {
        for cores in [1.0, 2.0, 8.0] {
            for ranks in (2..=64).filter(|ranks| f64::from(*ranks) > cores) {
                for block in (0..15).map(|bits| 1 << bits) {
                    let query = Query {
                        model: CostModel { cores, ..base },
                        max_channels: 1,
                        eager_limit: 0,
                        ..Query::new(Collective::Gather, block * u64::from(ranks), ranks, Reach::MappedUser)
                    };
                    let mapped = |c: &Candidate| find(c.algorithm).is_some_and(|a| a.needs == Needs::MappedUser);
                    let first = candidates(&query).into_iter().find(mapped).expect("something serves it").algorithm;
                    assert_eq!(first, "one_shot", "{ranks} ranks on {cores} cores, blocks of {block} bytes");
                }
            }
        }
    }
}

/// Over a network: the name of what serves a call where so many ranks share a core.
fn over_network(collective: Collective, ranks: u32, bytes: u64, per_core: f64) -> &'static str {
    of_hosts(collective, (ranks, 1), bytes, per_core)
}

/// The same of so many ranks of which so many share memory.
fn of_hosts(collective: Collective, hosts: (u32, u32), bytes: u64, per_core: f64) -> &'static str {
    by_model(CostModel::of_strings(), collective, hosts, bytes, per_core)
}

/// The same by a model.
fn by_model(
    model: CostModel,
    collective: Collective,
    (ranks, local): (u32, u32),
    bytes: u64,
    per_core: f64,
) -> &'static str {
    let model = CostModel { per_core, ..model };
    let query = Query::new(collective, bytes, ranks, Reach::Messages(Link::Tcp));
    candidates(&Query { model, max_channels: 1, slot_bytes: 256 << 10, local, ..query })[0].algorithm
}

#[test]
fn ranks_that_share_memory_work_together_before_they_use_a_network() {
    // Between two hosts on 2 cores: where leaders are the faster way, or all at once, and well beyond (docs/performance-changes.md).
    for (collective, hosts, no, yes) in [
        (Collective::AllGather, (8, 4), 16 << 10, 1 << 20),
        (Collective::ReduceScatter, (8, 4), 16 << 10, 1 << 20),
        (Collective::AllReduce, (8, 4), 32 << 10, 1 << 20),
        (Collective::ReduceScatter, (4, 2), 16 << 10, 128 << 10),
        (Collective::AllReduce, (4, 2), 2 << 10, 256 << 10),
        (Collective::Reduce, (4, 2), 128 << 10, 1 << 20),
        (Collective::Reduce, (8, 4), 128 << 10, 1 << 20),
    ] {
        let at = |bytes| of_hosts(collective, hosts, bytes, f64::from(hosts.0) / 2.0);
        assert!(
            at(no) != "hierarchical" && at(yes) == "hierarchical",
            "{collective} {hosts:?}: {} {}",
            at(no),
            at(yes)
        );
    }
    let all = [
        Collective::AllReduce,
        Collective::AllGather,
        Collective::ReduceScatter,
        Collective::Broadcast,
        Collective::Reduce,
    ];
    for collective in all {
        for ranks in [16, 64, 256] {
            for bytes in [1 << 20, 64 << 20, 1 << 30] {
                assert_eq!(
                    of_hosts(collective, (ranks, 8), bytes, 1.0),
                    "hierarchical",
                    "{collective} {ranks} {bytes}"
                );
                assert_ne!(of_hosts(collective, (ranks, 1), bytes, 1.0), "hierarchical");
            }
        }
    }
}

/// What was measured on two cores of the Xeon with 480 MiB, between two and four hosts of two to six ranks: up to these sizes leaders
/// were the fastest way, or level with it, but for a reduce-scatter of two hosts of two, which is faster so only where each call is
/// waited for (docs/performance-changes.md).
#[test]
fn what_is_short_goes_by_way_of_leaders_where_ranks_share_cores() {
    let at = |collective, hosts: (u32, u32), bytes| {
        let model = CostModel::of_travelling_lines(2.0);
        by_model(model, collective, hosts, bytes, f64::from(hosts.0) / 2.0)
    };
    use Collective::{AllGather, AllReduce, ReduceScatter};
    for (collective, hosts, yes, no) in [
        (AllReduce, (4, 2), 8 << 10, 128 << 10),
        (AllReduce, (6, 3), 32 << 10, 4 << 20),
        (AllReduce, (8, 4), 64 << 10, 4 << 20),
        (AllReduce, (12, 6), 128 << 10, 4 << 20),
        (AllReduce, (8, 2), 8 << 10, 512 << 10),
        (AllGather, (4, 2), 2 << 10, 128 << 10),
        (AllGather, (6, 3), 32 << 10, 1 << 20),
        (AllGather, (8, 4), 64 << 10, 1 << 20),
        (ReduceScatter, (4, 2), 64, 64 << 10),
        (ReduceScatter, (6, 3), 8 << 10, 1 << 20),
        (ReduceScatter, (8, 4), 32 << 10, 1 << 20),
    ] {
        let by_leaders = |bytes| matches!(at(collective, hosts, bytes), "leader" | "relay");
        for bytes in [8, 64, yes] {
            assert!(by_leaders(bytes), "{collective} {hosts:?} {bytes}: {}", at(collective, hosts, bytes));
        }
        assert!(!by_leaders(no), "{collective} {hosts:?}");
    }
    // A rank that has a core need not wait for another one to have it.
    for hosts in [(16, 8), (64, 8), (16, 4)] {
        for collective in [AllReduce, AllGather, ReduceScatter] {
            for bytes in [64, 8 << 10, 1 << 20] {
                let name = of_hosts(collective, hosts, bytes, 1.0);
                assert!(!matches!(name, "leader" | "relay"), "{collective} {hosts:?} {bytes}: {name}");
            }
        }
    }
}

#[test]
fn over_a_network_what_is_small_goes_in_one_step() {
    for (collective, most) in [(Collective::AllReduce, 4), (Collective::ReduceScatter, 16), (Collective::AllGather, 16)]
    {
        for ranks in 3..=most {
            for per_core in [1.0, f64::from(ranks) / 2.0] {
                let at = |bytes| over_network(collective, ranks, bytes, per_core);
                assert_eq!(at(64), "linear", "{collective} {ranks} {per_core}");
                assert_ne!(at(64 << 20), "linear", "{collective} {ranks} {per_core}");
            }
        }
        // One message each way is what the others do, too; and so many are more than one step is worth.
        assert_ne!(over_network(collective, 2, 64, 1.0), "linear");
        assert_ne!(over_network(collective, most + 1, 64, 1.0), "linear");
    }
}

#[test]
fn ranks_that_share_cores_over_a_network_take_few_steps() {
    // What was measured with 2 cores: the last size of each at which one step is the faster way is about that.
    for (collective, ranks, yes, no) in [
        (Collective::AllGather, 8, 256 << 10, 1 << 20),
        (Collective::ReduceScatter, 8, 256 << 10, 1 << 20),
        (Collective::AllReduce, 4, 8 << 10, 32 << 10),
        (Collective::AllReduce, 3, 32 << 10, 128 << 10),
    ] {
        let at = |bytes| over_network(collective, ranks, bytes, f64::from(ranks) / 2.0);
        assert!(at(yes) == "linear" && at(no) != "linear", "{collective} {ranks}: {} {}", at(yes), at(no));
    }
    // Between machines all of that meets at the links.
    assert_ne!(over_network(Collective::AllGather, 8, 256 << 10, 1.0), "linear");
    // A root that serves all waits for nobody; a tree waits for a round of the cores at each level.
    for (collective, bytes) in [(Collective::Broadcast, 16 << 10), (Collective::Reduce, 128 << 10)] {
        let at = |per_core| over_network(collective, 8, bytes, per_core);
        assert!(at(4.0) == "flat" && at(1.0) != "flat", "{collective}: {} {}", at(4.0), at(1.0));
    }
}

/// What was measured with 3 to 8 ranks on two cores of the Xeon with 480 MiB, private memory, where one way was at least 1.15 times as fast as the
/// other (docs/performance-changes.md).
#[test]
fn ranks_that_share_cores_go_the_way_that_was_measured_to_be_faster_where_lines_travel() {
    use Collective::{AllToAll, Broadcast, Reduce};
    let serves = |model, collective, ranks, kib: u64| {
        let query =
            |reach| Query { model, max_channels: 1, eager_limit: 0, ..Query::new(collective, kib << 10, ranks, reach) };
        let fastest = |reach, needs| {
            let serves = |c: &&Candidate| find(c.algorithm).is_some_and(|a| a.needs == needs);
            candidates(&query(reach)).iter().find(serves).expect("something serves it").predicted_us
        };
        let kernel = fastest(Reach::ReadableUser, Needs::MappedUser);
        let scratch = fastest(Reach::MappedScratch, Needs::MappedScratch);
        let beside = predict_beside(&model, collective, kib << 10, ranks);
        // More has no room there.
        if kib <= 256 && beside < kernel.min(scratch) {
            "beside"
        } else if scratch < kernel {
            "scratch"
        } else {
            "kernel"
        }
    };
    let model = CostModel::of_travelling_lines(2.0);
    for (collective, ranks, kib, way) in [
        (AllToAll, 8, 512, "kernel"),
        (AllToAll, 8, 1024, "kernel"),
        (AllToAll, 5, 4096, "kernel"),
        (Reduce, 3, 128, "beside"),
        (Reduce, 4, 64, "beside"),
        (Reduce, 5, 128, "beside"),
        (Reduce, 8, 64, "beside"),
        (Reduce, 3, 1024, "scratch"),
        (Reduce, 5, 1024, "scratch"),
        (Reduce, 8, 1024, "scratch"),
        (Broadcast, 5, 128, "beside"),
        (Broadcast, 8, 128, "beside"),
        (Broadcast, 8, 1024, "scratch"),
        (Broadcast, 4, 4096, "kernel"),
        (Broadcast, 3, 512, "kernel"),
    ] {
        assert_eq!(serves(model, collective, ranks, kib), way, "{collective} of {kib} KiB, {ranks} ranks");
    }
    // Where that was not measured nothing of it counts.
    let other = CostModel { crowd_rooted: 1.0, kernel_crowd_from: 1e13, ..model };
    assert_eq!((serves(other, Reduce, 5, 128), serves(other, AllToAll, 8, 1024)), ("kernel", "scratch"));
}

/// What was measured with two to four ranks on two cores of the Xeon with 480 MiB, of whose last cache they have 64 (docs/performance-changes.md).
#[test]
fn past_the_last_caches_scratch_is_faster_where_lines_travel() {
    use Collective::{AllGather, AllReduce, AllToAll, Broadcast, Gather, Reduce, Scatter};
    let model = CostModel { last_cache_bytes: f64::from(64 << 20), ..CostModel::of_travelling_lines(2.0) };
    let served = |model, collective, bytes| private_by(model, collective, 2, bytes, false);
    for (collective, by_kernel) in [(AllReduce, "two_shot"), (Reduce, "shared_one_shot"), (AllToAll, "one_shot")] {
        assert_eq!(served(model, collective, 16 << 20), by_kernel, "{collective}");
        for mib in [32, 128] {
            assert_eq!(served(model, collective, mib << 20), "staged_one_shot", "{collective} of {mib} MiB");
        }
        // Where that was not measured nothing of it counts.
        let other = CostModel { scratch_past: 1.0, ..model };
        assert_ne!(served(other, collective, 32 << 20), "staged_one_shot", "{collective}");
    }
    for (ranks, kernel, scratch) in [(2, 32, 64), (3, 32, 64), (4, 16, 32)] {
        let at = |mib: u64| private_by(model, AllGather, ranks, mib << 20, false);
        assert!(at(kernel) == "one_shot" && at(scratch) == "staged_one_shot", "{ranks} ranks");
    }
    for collective in [Broadcast, Gather, Scatter] {
        assert!(!served(model, collective, 128 << 20).starts_with("staged"), "{collective}");
    }
}

/// A reduction of which the other rank of two has to write its part to the root, too, is shared unequally; not where all is mapped, and
/// it writes what it has read.
#[test]
fn the_root_of_two_ranks_carries_more_of_a_reduction_that_the_kernel_copies() {
    let model = CostModel::of_travelling_lines(2.0);
    for kib in [64, 256, 1024, 8192] {
        assert_eq!(private_by(model, Collective::Reduce, 2, kib << 10, false), "shared_one_shot", "{kib} KiB");
        // Where that was not measured.
        assert_ne!(private(Collective::Reduce, 2, kib << 10, false), "shared_one_shot", "{kib} KiB");
        assert_ne!(private_by(model, Collective::Reduce, 3, kib << 10, false), "shared_one_shot", "{kib} KiB");
        let mapped = Query { model, eager_limit: 0, ..Query::new(Collective::Reduce, kib << 10, 2, Reach::MappedUser) };
        assert_eq!(candidates(&mapped)[0].algorithm, "two_shot", "{kib} KiB");
    }
}
