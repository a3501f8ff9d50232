//! Every algorithm, every collective that it serves, every small number of ranks: all of it is verified.

use oxccl_schedule::algorithms::{self, Algorithm};
use oxccl_schedule::ir::{Needs, Shape};
use oxccl_schedule::verify::{Limits, deadlock_free, keeps_to, verify, verify_in_turns};
use oxccl_types::Collective;

const PIECES: u32 = 3;
const MOST_SLOTS: u32 = 8;

/// Verifies one shape with every number of slots that the algorithm accepts. More slots only add possible orders of
/// running, and races are judged without regard to slots, so data and races are looked at once.
fn check(a: &Algorithm, shape: &Shape) {
    let s = a.schedule(shape);
    let least = a.min_slots.max(1);
    if let Err(d) = verify(&s, Limits { slots: least, pieces: PIECES }) {
        panic!("{} {shape:?}: {d}", a.name);
    }
    if let Err(d) = keeps_to(&s, a.needs) {
        panic!("{} {shape:?}: {d}", a.name);
    }
    if a.min_slots > 0 {
        for slots in least + 1..=MOST_SLOTS {
            if let Err(d) = deadlock_free(&s, slots, PIECES) {
                panic!("{} {shape:?} {slots} slots: {d}", a.name);
            }
        }
    }
}

fn roots(a: &Shape) -> Vec<u32> {
    match a.ranks {
        _ if !a.collective.rooted() => vec![0],
        n @ 1..=6 => (0..n).collect(),
        n => vec![0, 1, n / 2, n - 1],
    }
}

/// The shape with all groups of ranks that share memory, of an algorithm that looks at them; of others the shape itself.
fn groups(a: &Algorithm, shape: &Shape) -> Vec<Shape> {
    let sizes = match a.name {
        "hierarchical" | "leader" | "relay" => 2..=shape.ranks / 2,
        "binomial" => 1..=shape.ranks,
        _ => 1..=1,
    };
    sizes.filter(|local| shape.ranks.is_multiple_of(*local)).map(|local| Shape { local, ..*shape }).collect()
}

fn all_shapes(name: &str) {
    let a = algorithms::find(name).expect("a name of the table");
    let mut seen = 0;
    for &collective in a.collectives {
        for ranks in 1..=17 {
            for channels in 1..=4 {
                for in_place in [false, true] {
                    let shape = Shape { collective, ranks, root: 0, channels, in_place, local: 1 };
                    let rooted = roots(&shape).into_iter().map(|root| Shape { root, ..shape });
                    for shape in rooted.flat_map(|shape| groups(a, &shape)).filter(|shape| a.supports(shape)) {
                        check(a, &shape);
                        seen += 1;
                    }
                }
            }
        }
    }
    assert!(seen >= 17 * 4, "{name}: only {seen} shapes");
}

macro_rules! exhaustive {
    ($($name:ident)*) => {
        $(#[test] fn $name() { all_shapes(stringify!($name)); })*

        #[test]
        fn every_algorithm_is_tested() {
            let tested = [$(stringify!($name)),*];
            for a in algorithms::ALGORITHMS {
                assert!(tested.contains(&a.name), "{} is missing in this file", a.name);
            }
            assert_eq!(tested.len(), algorithms::ALGORITHMS.len());
        }
    };
}

exhaustive!(one_shot two_shot shared_one_shot staged_one_shot staged_two_shot ring tree doubling recursive pat pairwise linear hierarchical
            leader relay flat binomial);

/// What the executor lets two ranks do where memory is not mapped: calls in a row are more iterations.
#[test]
fn two_ranks_that_both_give_and_take_may_write_scratch_in_turns() {
    let (mut seen, mut two_shots) = (0, 0);
    for collective in [Collective::AllReduce, Collective::AllGather, Collective::AllToAll, Collective::ReduceScatter] {
        for (channels, in_place) in [(1, false), (1, true), (3, false), (3, true)] {
            let shape = Shape { collective, ranks: 2, root: 0, channels, in_place, local: 1 };
            for a in algorithms::supporting(&shape).filter(|a| a.needs == Needs::MappedScratch) {
                let verified = verify_in_turns(&a.schedule(&shape), Limits { slots: 1, pieces: 7 });
                verified.unwrap_or_else(|d| panic!("{} {shape:?}: {d}", a.name));
                seen += 1;
                two_shots += u32::from(a.name == "staged_two_shot");
            }
        }
    }
    assert!(seen >= 17 && two_shots == 4, "only {seen} shapes, {two_shots} of them by two shots");
}

/// Some shapes of up to 256 ranks. `OXCCL_TEST_SEED` repeats a run.
#[test]
fn sampled_up_to_256_ranks() {
    let seed = std::env::var("OXCCL_TEST_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or_else(|| fastrand::u64(..));
    println!("OXCCL_TEST_SEED={seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    for a in algorithms::ALGORITHMS {
        for &collective in a.collectives {
            let ranks = rng.u32(18..=256);
            // The oracle's work grows with ranks squared: many ranks have one channel.
            let channels = if ranks > 64 { 1 } else { rng.u32(1..=4) };
            let root = if collective.rooted() { rng.u32(0..ranks) } else { 0 };
            let mut shape = Shape { collective, ranks, root, channels, in_place: rng.bool(), local: 1 };
            if matches!(a.name, "hierarchical" | "leader" | "relay" | "binomial") {
                shape.ranks &= !1;
                shape.root %= shape.ranks;
                let served: Vec<Shape> = groups(a, &shape).into_iter().filter(|shape| a.supports(shape)).collect();
                shape = *rng.choice(&served).expect("an even number of ranks has a divisor");
            }
            if !a.supports(&shape) {
                shape.in_place = false;
            }
            assert!(a.supports(&shape), "{} {shape:?}", a.name);
            check(a, &shape);
        }
    }
}

/// The slots that the table states are needed: with one less, some number of ranks gets stuck.
#[test]
fn min_slots_is_not_too_high() {
    for a in algorithms::ALGORITHMS.iter().filter(|a| a.min_slots > 1) {
        let stuck = (2..=16).any(|ranks| {
            let shape = Shape { collective: a.collectives[0], ranks, root: 0, channels: 1, in_place: false, local: 1 };
            let mut shapes = groups(a, &shape).into_iter();
            shapes.any(|shape| deadlock_free(&a.schedule(&shape), a.min_slots - 1, PIECES).is_err())
        });
        assert!(stuck, "{}", a.name);
    }
}
