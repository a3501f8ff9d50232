//! The control ring: news of deaths and errors between ranks that do not share memory.
//!
//! Each rank holds one TCP connection to the next rank, watched by the service thread. A connection that ends without
//! a goodbye means that the neighbour died; news goes around both ways. It carries nothing else.

use std::collections::HashSet;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use oxccl_sys::Deadline;
use oxccl_sys::sync::{AtomicBool, Ordering};
use oxccl_types::{Result, ResultCode};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, sockopt};

use super::wire::{self, HEAD, Reader};
use super::{Bootstrapped, Link, PeerInfo, say};
use crate::service::io::{Limits, SILENCE};
use crate::service::{CONTROL, CommKey, Inbox, Level, LogFn, Route, WatchGuard, dial, locked};

/// A text longer than this is cut.
const MOST_TEXT: usize = 4096;

/// How often a rank that waits for its neighbour looks whether the root has given up.
const LOOK_AT_ROOT: Duration = Duration::from_millis(50);

const GOODBYE: u8 = 1;
const DEAD: u8 = 2;
const ERROR: u8 = 3;
const LEFT: u8 = 4;
const CALL: u8 = 5;
const CALL_AROUND: u8 = 6;

/// What goes around.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// A rank died.
    Dead {
        /// Which.
        rank: usize,
        /// How that was noticed.
        text: String,
    },
    /// A rank left in good order.
    Left {
        /// Which.
        rank: usize,
    },
    /// What a rank is blocked in.
    Call {
        /// Which.
        rank: usize,
        /// The number of its collective.
        seq: u64,
        /// The signature of its call.
        signature: [u64; 2],
        /// Whether it goes around, once of each rank; else it is for neighbours, and goes no further.
        around: bool,
    },
    /// A rank failed the communicator.
    Error {
        /// Which.
        rank: usize,
        /// The code of its error.
        code: ResultCode,
        /// Why.
        text: String,
    },
}

impl News {
    fn parts(&self) -> (u8, usize, &str) {
        match self {
            News::Dead { rank, text } => (DEAD, *rank, text),
            News::Left { rank } => (LEFT, *rank, ""),
            News::Call { rank, around: false, .. } => (CALL, *rank, ""),
            News::Call { rank, around: true, .. } => (CALL_AROUND, *rank, ""),
            News::Error { rank, text, .. } => (ERROR, *rank, text),
        }
    }

    fn encode(&self) -> Vec<u8> {
        let (kind, rank, text) = self.parts();
        let text = &text.as_bytes()[..text.len().min(MOST_TEXT)];
        if let News::Call { seq, signature: [a, b], .. } = self {
            let words = [&(rank as u32).to_le_bytes()[..], &seq.to_le_bytes(), &a.to_le_bytes(), &b.to_le_bytes()];
            return wire::frame(kind, &words);
        }
        let code = if let News::Error { code, .. } = self { *code as u8 } else { 0 };
        wire::frame(kind, &[&(rank as u32).to_le_bytes(), &[code], text])
    }

    fn decode(kind: u8, body: &[u8]) -> Option<News> {
        let mut reader = Reader(body);
        let rank = reader.u32()? as usize;
        if kind == CALL || kind == CALL_AROUND {
            let (seq, signature) = (reader.u64()?, [reader.u64()?, reader.u64()?]);
            return Some(News::Call { rank, seq, signature, around: kind == CALL_AROUND });
        }
        let code = ResultCode::from_c(i32::from(reader.array::<1>()?[0])).unwrap_or(ResultCode::RemoteError);
        let text = String::from_utf8_lossy(reader.0).into_owned();
        match kind {
            DEAD => Some(News::Dead { rank, text }),
            LEFT => Some(News::Left { rank }),
            ERROR => Some(News::Error { rank, code, text }),
            _ => None,
        }
    }
}

struct Neighbour {
    fd: Arc<OwnedFd>,
    rank: usize,
    /// `rank 3 (host node7, process 99)`
    name: String,
    input: Mutex<Vec<u8>>,
    said_goodbye: AtomicBool,
}

struct Shared {
    rank: usize,
    ranks: usize,
    neighbours: Vec<Neighbour>,
    watches: OnceLock<Vec<WatchGuard>>,
    seen: Mutex<HashSet<(u8, usize)>>,
    on_news: Box<dyn Fn(News) + Send + Sync>,
    left: AtomicBool,
    log: LogFn,
}

/// One rank's part of the ring. Dropped without [`ControlRing::leave`] it tells the others that this rank died.
pub struct ControlRing {
    shared: Arc<Shared>,
}

impl ControlRing {
    /// Starts to listen, when the communicator has ranks that share no memory; otherwise it stays silent. Once per
    /// initialisation. `on_news` runs on the service's thread, once per rank and kind of news, and must not block.
    ///
    /// # Errors
    /// `SystemError` when a connection cannot be watched.
    pub fn start(boot: &mut Bootstrapped, on_news: Box<dyn Fn(News) + Send + Sync>) -> Result<ControlRing> {
        let streams = std::mem::take(&mut boot.neighbours);
        let neighbours = streams.into_iter().map(|(rank, s)| Neighbour::new(boot, rank, s.into())).collect();
        let shared = Arc::new(Shared {
            rank: boot.rank,
            ranks: boot.ranks,
            neighbours,
            watches: OnceLock::new(),
            seen: Mutex::default(),
            on_news,
            left: AtomicBool::new(false),
            log: boot.log,
        });
        let watch = |(i, n): (usize, &Neighbour)| {
            let weak: Weak<Shared> = Arc::downgrade(&shared);
            boot.service.watch_readable(n.fd.clone(), move || weak.upgrade().is_some_and(|s| s.readable(i)))
        };
        let watches = shared.neighbours.iter().enumerate().map(watch).collect::<Result<Vec<_>>>()?;
        let _ = shared.watches.set(watches);
        Ok(ControlRing { shared })
    }

    /// Tells all other ranks; `on_news` of this rank does not hear it.
    pub fn announce(&self, news: &News) {
        let (kind, rank, _) = news.parts();
        if locked(&self.shared.seen).insert((kind, rank)) {
            self.shared.send(&news.encode());
        }
    }

    /// Tells the two neighbours only.
    pub fn tell_neighbours(&self, news: &News) {
        self.shared.send(&news.encode());
    }

    /// Leaves in good order: the neighbours will not take the end of the connections for a death.
    pub fn leave(self) {
        self.shared.left.store(true, Ordering::Relaxed);
        self.shared.send(&wire::frame(GOODBYE, &[]));
        for neighbour in &self.shared.neighbours {
            let _ = rustix::net::shutdown(&neighbour.fd, Shutdown::Write);
            // Unread input would turn the close into a reset that destroys the goodbye.
            let mut chunk = [0; 4096];
            while matches!(rustix::net::recv(&neighbour.fd, &mut chunk[..], RecvFlags::DONTWAIT), Ok((n, _)) if n > 0) {
            }
        }
    }
}

impl Drop for ControlRing {
    fn drop(&mut self) {
        self.shared.left.store(true, Ordering::Relaxed);
        for neighbour in &self.shared.neighbours {
            // The service may hold the descriptor for another moment.
            let _ = rustix::net::shutdown(&neighbour.fd, Shutdown::Both);
        }
    }
}

/// Connects this rank with the next and the one before it.
///
/// # Errors
/// `RemoteError` when a neighbour cannot be reached in time, or after an abort; what the root says when a rank died.
pub(super) fn meet(
    link: &Link<'_>,
    rank: usize,
    peers: &[PeerInfo],
    comm_hash: u64,
    key: &CommKey,
    control: &Inbox,
) -> Result<Vec<(usize, TcpStream)>> {
    let next = (rank + 1) % peers.len();
    let route = Route { comm_hash, from: rank as u32, to: next as u32, purpose: CONTROL };
    let stream = dial(&peers[next].tcp, key, route, &link.limits)?;
    // Only the rank before this one dials for control.
    loop {
        let slice = Deadline::after(link.limits.deadline.slice(LOOK_AT_ROOT));
        match control.wait(&Limits { deadline: slice, ..link.limits }) {
            Ok(incoming) => return Ok(vec![(next, stream), (incoming.from as usize, incoming.stream)]),
            Err(e) => {
                if link.is_over() {
                    return Err(link.verdict().unwrap_or(e));
                }
                link.limits.check().map_err(|_| e)?;
            }
        }
    }
}

impl Neighbour {
    fn new(boot: &Bootstrapped, rank: usize, fd: OwnedFd) -> Neighbour {
        // The service has the kernel ask who is idle. This one may be told besides that what was sent is not acknowledged: the
        // service's thread reads whatever the rank is doing. A wish: without it a silent host is noticed later.
        let _ = sockopt::set_tcp_user_timeout(&fd, SILENCE.as_millis() as u32);
        let name = match boot.peers.get(rank) {
            Some(p) => format!("rank {rank} (host {}, process {})", p.host, p.pid),
            None => format!("rank {rank}"),
        };
        Neighbour { fd: Arc::new(fd), rank, name, input: Mutex::default(), said_goodbye: AtomicBool::new(false) }
    }

    /// Whole frames (kind and body) that arrived, and why the connection ended, if it did.
    fn receive(&self) -> (Vec<(u8, Vec<u8>)>, Option<String>) {
        let mut input = locked(&self.input);
        let mut chunk = [0; 4096];
        let mut end = None;
        while end.is_none() {
            match rustix::net::recv(&self.fd, &mut chunk[..], RecvFlags::DONTWAIT) {
                Ok((0, _)) => end = Some("its connection was closed without a goodbye".to_owned()),
                Ok((n, _)) => input.extend_from_slice(&chunk[..n]),
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(e) => end = Some(format!("its connection failed: {e}")),
            }
        }
        let mut frames = Vec::new();
        while let Some(first) = input.first_chunk::<HEAD>() {
            let (len, kind) = wire::head(first);
            if len > 2 * MOST_TEXT {
                end = Some("it sent garbage".into());
                break;
            }
            if input.len() < HEAD + len {
                break;
            }
            let rest = input.split_off(HEAD + len);
            frames.push((kind, std::mem::replace(&mut *input, rest).split_off(HEAD)));
        }
        (frames, end)
    }
}

impl Shared {
    /// On the service's thread: a neighbour spoke or its connection ended. False ends the watch.
    fn readable(&self, index: usize) -> bool {
        let neighbour = &self.neighbours[index];
        let (frames, end) = neighbour.receive();
        for (kind, body) in frames {
            if kind == GOODBYE {
                neighbour.said_goodbye.store(true, Ordering::Relaxed);
                self.heard(News::Left { rank: neighbour.rank });
            } else if let Some(news) = News::decode(kind, &body) {
                self.heard(news);
            }
        }
        let Some(why) = end else { return true };
        if !neighbour.said_goodbye.load(Ordering::Relaxed) && !self.left.load(Ordering::Relaxed) {
            let text = format!("{} died or was aborted: {why}", neighbour.name);
            self.heard(News::Dead { rank: neighbour.rank, text });
        }
        false
    }

    fn heard(&self, news: News) {
        let (kind, rank, _) = news.parts();
        // It is an index from here on.
        if rank >= self.ranks {
            let text = format!("dropped news of rank {rank}, of {} ranks, from the control ring", self.ranks);
            return say(self.log, Level::Warn, &text);
        }
        if matches!(news, News::Call { around: false, .. }) {
            return (self.on_news)(news);
        }
        if rank != self.rank && locked(&self.seen).insert((kind, rank)) {
            self.send(&news.encode());
            (self.on_news)(news);
        }
    }

    /// To both neighbours. Never blocks: a neighbour whose buffer is full of unread news has stopped for good.
    fn send(&self, bytes: &[u8]) {
        for neighbour in &self.neighbours {
            match rustix::net::send(&neighbour.fd, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Ok(n) if n == bytes.len() => {}
                Ok(_) | Err(Errno::AGAIN) => {
                    say(self.log, Level::Warn, &format!("{} takes no control messages", neighbour.name));
                }
                // The watch hears of it.
                Err(_) => {}
            }
        }
    }
}
