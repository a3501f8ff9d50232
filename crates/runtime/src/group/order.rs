//! The order of launches (`NCCL_LAUNCH_ORDER_IMPLICIT`): what a device is given runs in the order in which the host
//! gives it, whatever the communicators and streams.
//!
//! A launch is one call, or all calls of one group: these run side by side as ever. Every stream of a launch waits for
//! the ends of the launch before it on that device. Ranks must then launch in the same order. Where a device serves
//! several ranks of one communicator, only the first that launches is kept in order: the others would wait for what
//! waits for them.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError, Weak};

use oxccl_types::{Error, Result};

use crate::communicator::Communicator;
use crate::communicator::core::Core;
use crate::device::{self, Event, Stream};
use crate::request::Request;

/// What a device was last given.
#[derive(Default)]
struct Chain {
    /// The streams of the last launch, with its end on each.
    last: Vec<(Stream, Event)>,
    /// The ranks whose launches are kept in order here.
    ranks: Vec<Weak<Core>>,
}

impl Chain {
    /// Whether launches of `core` are kept in order; remembers it.
    fn keeps(&mut self, core: &Arc<Core>) -> bool {
        self.ranks.retain(|r| r.strong_count() > 0);
        if let Some(known) = self.ranks.iter().filter_map(Weak::upgrade).find(|k| k.hash == core.hash) {
            return Arc::ptr_eq(&known, core);
        }
        self.ranks.push(Arc::downgrade(core));
        true
    }
}

fn chain(device: usize) -> &'static Mutex<Chain> {
    static CHAINS: OnceLock<Vec<Mutex<Chain>>> = OnceLock::new();
    &CHAINS.get_or_init(|| (0..device::count()).map(|_| Mutex::default()).collect())[device]
}

/// A launch on one device.
struct Part {
    chain: MutexGuard<'static, Chain>,
    streams: Vec<Stream>,
}

/// A launch whose calls are about to be enqueued.
#[derive(Default)]
pub(super) struct Launch(Vec<Part>);

/// Lets the streams of `requests` wait for the launches before; nothing where the order is free.
///
/// # Errors
/// `InvalidUsage` when another thread is launching on the same device (`NCCL_LAUNCH_RACE_FATAL`).
pub(super) fn begin(requests: &[(Arc<Communicator>, Request)]) -> Result<Launch> {
    let mut ordered = Vec::new();
    for (comm, request) in requests {
        let core = comm.core()?;
        if core.config.launch_order {
            ordered.push((comm.device(), core, &request.stream));
        }
    }
    // In the order of the devices, so that two threads cannot wait for each other here.
    ordered.sort_by_key(|(device, ..)| *device);
    let mut launch = Launch::default();
    for of_device in ordered.chunk_by(|a, b| a.0 == b.0) {
        let (device, core, _) = &of_device[0];
        let mut part = Part { chain: lock(*device, core)?, streams: Vec::new() };
        for (_, core, stream) in of_device {
            if part.chain.keeps(core) && !part.streams.iter().any(|s| s.same(stream)) {
                part.streams.push((*stream).clone());
            }
        }
        for stream in &part.streams {
            for (_, end) in part.chain.last.iter().filter(|(other, end)| !other.same(stream) && !end.query()) {
                stream.wait(end)?;
            }
        }
        launch.0.push(part);
    }
    Ok(launch)
}

fn lock(device: usize, core: &Core) -> Result<MutexGuard<'static, Chain>> {
    match chain(device).try_lock() {
        Ok(chain) => Ok(chain),
        Err(TryLockError::Poisoned(p)) => Ok(p.into_inner()),
        // What the lock guards is valid between statements, also after a panic elsewhere.
        Err(TryLockError::WouldBlock) if !core.config.launch_race_fatal => {
            Ok(chain(device).lock().unwrap_or_else(PoisonError::into_inner))
        }
        Err(TryLockError::WouldBlock) => {
            let error = Error::usage(format!(
                "two threads launch on device {device} at the same time, so there is no order to keep: launch from one \
                 thread per device, unset NCCL_LAUNCH_ORDER_IMPLICIT, or set NCCL_LAUNCH_RACE_FATAL=0 for any order"
            ));
            crate::log::warn(&error.text);
            Err(error)
        }
    }
}

impl Launch {
    /// The calls are enqueued: the next launch on the devices comes after them.
    pub(super) fn finish(self) -> Result<()> {
        for mut part in self.0 {
            if part.streams.is_empty() {
                continue;
            }
            let mut ends = Vec::with_capacity(part.streams.len());
            for stream in part.streams {
                let end = Event::new();
                stream.record(&end)?;
                ends.push((stream, end));
            }
            part.chain.last = ends;
        }
        Ok(())
    }
}
