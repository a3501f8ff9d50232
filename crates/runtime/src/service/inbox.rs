//! Connections that peers opened to a rank and that nobody has taken yet.

use std::collections::VecDeque;
use std::net::TcpStream;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use oxccl_types::{Error, Result};

use super::io::Limits;
use super::{Service, locked};

/// A connection that a peer opened.
#[derive(Debug)]
pub struct Incoming {
    /// The rank that dialled.
    pub from: u32,
    /// What it is for.
    pub purpose: u8,
    /// Non-blocking, without Nagle's delay.
    pub stream: TcpStream,
}

/// More connections than this wait for nobody: a defect, not a load.
const MOST: usize = 65_536;

/// Takes a connection.
pub(crate) type Taker = Box<dyn Fn(Incoming) + Send + Sync>;

#[derive(Default)]
pub(super) struct Waiting {
    queue: Mutex<VecDeque<Incoming>>,
    diverted: OnceLock<(u8, Taker)>,
    arrived: Condvar,
}

impl Waiting {
    /// Queues a connection; false when there are too many.
    pub(super) fn push(&self, incoming: Incoming) -> bool {
        let mut queue = locked(&self.queue);
        if let Some((purpose, take)) = self.diverted.get()
            && *purpose == incoming.purpose
        {
            take(incoming);
            return true;
        }
        if queue.len() >= MOST {
            return false;
        }
        queue.push_back(incoming);
        self.arrived.notify_all();
        true
    }
}

/// Where connections to one rank arrive. Dropping it refuses further ones.
pub struct Inbox {
    service: Arc<Service>,
    name: (u64, u32, bool),
    waiting: Arc<Waiting>,
}

impl std::fmt::Debug for Inbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Inbox of rank {}", self.name.1)
    }
}

impl Inbox {
    pub(super) fn new(service: Arc<Service>, name: (u64, u32, bool), waiting: Arc<Waiting>) -> Inbox {
        Inbox { service, name, waiting }
    }

    /// The service that serves it.
    pub(crate) fn service(&self) -> &Arc<Service> {
        &self.service
    }

    /// From now on connections for `purpose`, and those that wait already, go to `take`, which must not block: it runs
    /// on the service's thread. To be called once.
    pub(crate) fn divert(&self, purpose: u8, take: Taker) {
        // Under the lock, so that no connection is queued between the two steps.
        let mut queue = locked(&self.waiting.queue);
        let (diverted, rest) = std::mem::take(&mut *queue).into_iter().partition(|i| i.purpose == purpose);
        *queue = rest;
        let diverted: VecDeque<Incoming> = diverted;
        diverted.into_iter().for_each(&take);
        // The first one stays.
        let _ = self.waiting.diverted.set((purpose, take));
    }

    /// The oldest connection that waits.
    pub fn poll(&self) -> Option<Incoming> {
        locked(&self.waiting.queue).pop_front()
    }

    /// Waits for a connection.
    ///
    /// # Errors
    /// `RemoteError` at the deadline or after an abort.
    pub fn wait(&self, limits: &Limits<'_>) -> Result<Incoming> {
        let mut queue = locked(&self.waiting.queue);
        loop {
            if let Some(incoming) = queue.pop_front() {
                return Ok(incoming);
            }
            limits.check().map_err(|e| Error::remote(format!("no peer connected to rank {}: {e}", self.name.1)))?;
            let slice = limits.deadline.slice(Duration::from_millis(20));
            queue = self.waiting.arrived.wait_timeout(queue, slice).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        self.service.close_inbox(self.name);
    }
}
