//! All-gathers by which ranks give their blocks, among such by which they fetch each other's, whatever processor this is: in
//! place on some ranks, with memory on others that peers cannot map, and back to back with calls that run ahead.

use std::path::PathBuf;

use oxccl_runtime::config::tuning;

use crate::case::{Memory, Rounding};
use crate::job::{Job, Road, run, seed};
use crate::network::alone;

/// A file of constants, gone in the end.
pub(crate) struct Constants(PathBuf);

impl Constants {
    /// Of two cores, whose ranks give what `cache` bytes cannot hold; where each has a core of its own, everything.
    fn new(name: &str, cache: usize) -> Constants {
        Constants::of(&format!("given-{name}"), &format!("push = 0.1\ncores = 2\ncache = {cache}\n"))
    }

    /// Those of this machine but for `constants`, a line each.
    pub(crate) fn of(name: &str, constants: &str) -> Constants {
        let path = std::env::temp_dir().join(format!("oxccl-{name}-{}.txt", std::process::id()));
        std::fs::write(&path, format!("oxccl tune 1\nmachine = {}\n{constants}", tuning::machine())).unwrap();
        Constants(path)
    }

    /// Where they are.
    pub(crate) fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }

    fn env(&self) -> [(&'static str, &str); 2] {
        [("OXCCL_TUNE_FILE", self.path()), ("OXCCL_EAGER_LIMIT", "0")]
    }
}

impl Drop for Constants {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn given_blocks_arrive_in_memory_of_any_kind() {
    let seed = seed();
    let constants = Constants::new("kinds", 300_000);
    let env = constants.env().map(|(name, value)| -> (&'static str, &'static str) { (name, value.to_string().leak()) });
    let road = Road { name: "given blocks", env: Vec::leak(env.to_vec()), rounding: Rounding::Once };
    for processes in [&[1, 1][..], &[1, 1, 1], &[2, 1], &[1, 1, 1, 1]] {
        run(&road, &Job::bursts(processes, 150), seed);
    }
    let jobs = [
        (&[1, 1][..], Memory::Mixed),
        (&[1, 1], Memory::Device),
        (&[2, 1], Memory::Mixed),
        (&[1, 1, 1, 1], Memory::Device),
    ];
    for (processes, memory) in jobs {
        run(&road, &Job::processes(processes, memory, 1), seed);
    }
}

#[test]
fn given_blocks_keep_the_order_of_the_calls() {
    let seed = seed().to_string();
    let constants = Constants::new("order", 20_000);
    for ranks in ["2", "3", "4"] {
        let own = [("OXCCL_SHM", "1"), ("MIXTURES", ranks), ("OXCCL_TEST_SEED", &seed)];
        alone("mixture::makes_mixtures", &[&own[..], &constants.env()].concat());
    }
}

#[test]
fn given_blocks_write_nothing_that_is_still_lent() {
    let constants = Constants::new("lent", 100_000);
    let own = [("OXCCL_SHM", "1")];
    alone("lent::lent_memory_is_neither_written_nor_read_too_early", &[&own[..], &constants.env()].concat());
}
