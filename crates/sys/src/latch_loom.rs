//! Latches under every interleaving and every reordering that the memory model allows: loom tells when two threads touch the
//! value at once, or one does not see what another did before.

use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::thread;

use crate::Latch;

/// Tries to take it so often; how often it had it.
fn tries(latch: &Latch<UnsafeCell<u32>>, times: u32) -> u32 {
    let once = |_: &u32| {
        let Some(value) = latch.try_lock() else { return false };
        // SAFETY: that nobody else has it is what the test checks.
        value.with_mut(|value| unsafe { *value += 1 });
        true
    };
    (0..times).filter(once).count() as u32
}

/// Each thread tries so often, the first after it has had the latch once, and with it the bias.
/// `preemptions`: of more than so many in an order nothing is known; `None`: all orders.
fn explore(first: u32, others: &'static [u32], preemptions: Option<usize>) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = preemptions;
    model.check(move || {
        let latch = Arc::new(Latch::new(UnsafeCell::new(0)));
        let mut had = tries(&latch, 1);
        assert_eq!(had, 1);
        let started: Vec<_> = others
            .iter()
            .map(|times| {
                let latch = latch.clone();
                thread::spawn(move || tries(&latch, *times))
            })
            .collect();
        had += tries(&latch, first);
        had += started.into_iter().map(|other| other.join().unwrap()).sum::<u32>();
        // SAFETY: the others have ended.
        assert_eq!(latch.try_lock().unwrap().with(|value| unsafe { *value }), had);
    });
}

#[test]
fn loom_latch_bias_is_taken_by_one() {
    explore(2, &[2], None);
}

#[test]
fn loom_latch_bias_is_taken_by_two() {
    explore(1, &[1, 1], Some(2));
}

#[test]
fn loom_latch_bias_comes_back() {
    // The other one is done early in some orders: the first has the bias, loses it and has it again.
    explore(3, &[1], None);
}
