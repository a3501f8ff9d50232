//! The suite that every transport passes: what a connection promises, checked from outside.
//!
//! A transport implements [`Factory`] and instantiates the suite by one line, `conformance!(name, FactoryType);`.
//! Messages carry a pattern that depends on message and offset; sent buffers are scribbled over as soon as the sender
//! calls them done, so a transport that says so too early delivers scribble. Random plans print their seed, and
//! `OXCCL_TEST_SEED` repeats one.

mod plan;
mod suite;

use std::any::Any;
use std::time::{Duration, Instant};

use super::{RecvEnd, SendEnd};

pub use plan::{Feed, Mode, Plan, Sink};
pub use suite::*;

/// Both ends of a connection in one process.
pub struct Pair {
    /// The sending end.
    pub send: Box<dyn SendEnd>,
    /// The receiving end.
    pub recv: Box<dyn RecvEnd>,
    /// What has to outlive the ends. Fields drop in this order.
    pub keep: Box<dyn Any>,
}

/// Memory to send from, of the kind that the transport wants.
pub struct Source {
    /// First byte.
    pub ptr: *mut u8,
    /// Bytes.
    pub len: usize,
    /// The owner of the memory.
    pub keep: Box<dyn Any + Send>,
}

// SAFETY: an exclusively owned range of memory.
unsafe impl Send for Source {}

impl Source {
    /// Plain memory of the process.
    pub fn heap(len: usize) -> Source {
        let mut memory = vec![0u8; len];
        Source { ptr: memory.as_mut_ptr(), len, keep: Box::new(memory) }
    }
}

/// Until when the sender may not touch what was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Borrow {
    /// Done at once: the bytes were copied.
    Never,
    /// Done when the kernel has taken them.
    UntilWritten,
    /// Not done before the receiver has released them.
    UntilReleased,
}

/// One side of a connection to another process, before it is connected.
pub trait Listener {
    /// What the other process needs to know, without ';'.
    fn text(&self) -> String;
    /// The receiving end, once process `pid` (rank 1) joins. Bounded in time.
    fn accept(self: Box<Self>, pid: u32) -> Box<dyn RecvEnd>;
}

/// Makes connections of one transport. The receiver is rank 0, the sender rank 1.
pub trait Factory: Default {
    /// A connection inside this process.
    fn pair(&self, slots: usize, slot_bytes: usize) -> Pair;
    /// Memory that this transport can send from.
    fn source(&self, len: usize) -> Source;
    /// When sent bytes are free.
    fn borrow(&self) -> Borrow;
    /// Whether exactly `slots` arrivals can be under way.
    fn counts_slots(&self) -> bool;
    /// Whether the receiver finds out by itself that the process of the sender has ended.
    fn notices_death(&self) -> bool;
    /// The receiving side of a connection to another process.
    fn listen(&self, slots: usize, slot_bytes: usize) -> Box<dyn Listener>;
    /// The sending end in another process, from [`Listener::text`], and what has to outlive it.
    fn join(&self, text: &str, slots: usize, slot_bytes: usize) -> (Box<dyn SendEnd>, Box<dyn Any>);
}

/// Every wait of the suite ends by then.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Call `step` until it is true, giving the processor away between calls.
///
/// # Panics
/// When [`PATIENCE`] runs out.
pub fn until(what: &str, mut step: impl FnMut() -> bool) {
    let start = Instant::now();
    while !step() {
        assert!(start.elapsed() < PATIENCE, "waited {PATIENCE:?} for {what}");
        std::thread::yield_now();
    }
}

/// Instantiate the suite: `conformance!(shm, ShmFactory);` makes a test module `shm`.
#[macro_export]
macro_rules! conformance {
    ($name:ident, $factory:ty) => {
        mod $name {
            #[allow(unused_imports)]
            use super::*;
            use $crate::transport::conformance as suite;

            $crate::conformance!(@tests $factory, delivers_every_size, keeps_order, flushed_means_out, runs_out_of_credit_and_recovers,
                says_done_when_it_is, says_received_when_it_is, refuses_with_a_text, delivers_random_messages,
                needs_room, streams_between_threads);

            #[test]
            fn streams_between_processes() {
                suite::streams_between_processes::<$factory>(concat!(module_path!(), "::child"));
            }

            #[test]
            fn survives_a_killed_sender() {
                suite::survives_a_killed_sender::<$factory>(concat!(module_path!(), "::child"));
            }

            /// The sending process of the two tests above; does nothing in a normal run.
            #[test]
            fn child() {
                suite::child::<$factory>();
            }
        }
    };
    (@tests $factory:ty, $($test:ident),*) => {
        $(
            #[test]
            fn $test() {
                suite::$test(&<$factory>::default());
            }
        )*
    };
}
