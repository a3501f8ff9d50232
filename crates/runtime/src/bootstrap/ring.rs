//! The control ring: news of deaths and errors between ranks that do not share memory.
//!
//! Each rank holds one TCP connection to the next rank, watched by the service thread. A connection that ends without
//! a goodbye means that the neighbour died; news goes around both ways. It carries nothing else.
//!
//! A rank that leaves, or dies, leaves a gap; two of them part the ranks, and what happens in one part is not heard in the other. So
//! a rank that is blocked for long asks all whom it reaches to [mend](ControlRing::mend) the ring: who has lost its next rank
//! connects with the first one behind it that is still there, and tells it all news. Not before: most often all leave together.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use oxccl_sys::sync::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use oxccl_sys::{Deadline, clock};
use oxccl_types::{Error, Result, ResultCode};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, sockopt};

use super::wire::{self, HEAD, Reader};
use super::{Bootstrapped, Link, PeerInfo, say};
use crate::service::io::{Limits, SILENCE};
use crate::service::{
    ADDRESS_SLICE, CONTROL, CommKey, Inbox, Incoming, Level, LogFn, Route, Service, WatchGuard, dial_unless, locked,
    try_dial,
};

/// A text longer than this is cut.
const MOST_TEXT: usize = 4096;

/// Bytes that wait for a neighbour that reads nothing, from which on it is told nothing more.
const MOST_UNSENT: usize = 1 << 20;

/// How often a rank that waits for its neighbour looks whether the root has given up.
const LOOK_AT_ROOT: Duration = Duration::from_millis(50);

const GOODBYE: u8 = 1;
const DEAD: u8 = 2;
const ERROR: u8 = 3;
const LEFT: u8 = 4;
const CALL: u8 = 5;
const CALL_AROUND: u8 = 6;
const GONE: u8 = 7;
const MEND: u8 = 8;
const ENDED: u8 = 9;

/// How long who mends the ring waits for an answer of each, and whether it passes over all that are on the host of one that gave
/// none, or of its process only. First of all those that answer, if there are some.
const ROUNDS: [(Duration, bool); 3] = [(ADDRESS_SLICE, true), (ADDRESS_SLICE, false), (SILENCE, false)];

/// How often a rank passes on at most that the ring is to be mended, ns: who asks is not the only one.
const ASK_NS: u64 = 500_000_000;

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
    /// A rank takes no part any more; whether it left or died is not known.
    Gone {
        /// Which.
        rank: usize,
        /// How that was noticed.
        text: String,
    },
    /// Somebody is blocked for long, and may not hear of all that ends it: to be answered by [`ControlRing::mend`].
    Mend,
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
    /// A rank aborted or revoked its communicator: no failure of the others, who may go on without it.
    Ended {
        /// Which.
        rank: usize,
        /// What it did.
        text: String,
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
            News::Gone { rank, text } => (GONE, *rank, text),
            News::Ended { rank, text } => (ENDED, *rank, text),
            // Is sent in another way.
            News::Mend => (MEND, 0, ""),
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
            GONE => Some(News::Gone { rank, text }),
            ENDED => Some(News::Ended { rank, text }),
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
    /// What its connection did not take yet: what follows stands behind it, or would be read amid a message that was cut.
    output: Mutex<Vec<u8>>,
    /// Whether it takes part in the ring for sure. Who dials to mend it may give up before it has seen that it was taken in, which is
    /// no death; a first message says that it has.
    joined: AtomicBool,
    said_goodbye: AtomicBool,
    watch: OnceLock<WatchGuard>,
}

/// A rank that may be connected with, and where its process listens.
type Candidate = (usize, Vec<SocketAddr>);

/// What came of it.
enum Tried {
    /// The rank is not there any more.
    Gone,
    /// Nothing was heard.
    Silent,
    /// It is there, or this rank leaves.
    Over,
}

/// How a connection ended.
#[derive(PartialEq, Eq)]
enum End {
    /// Without a goodbye.
    Closed,
    /// Amid a message.
    Cut,
    Broken(String),
}

struct Shared {
    rank: usize,
    ranks: usize,
    comm_hash: u64,
    key: CommKey,
    service: Arc<Service>,
    /// Where ranks that mend the ring connect; none if it is not needed.
    control: Option<Inbox>,
    /// Who is or was connected with this rank: at first the next one and the one before it.
    neighbours: Mutex<Vec<Arc<Neighbour>>>,
    /// The rank behind this one that it was last connected with.
    next: AtomicUsize,
    mending: AtomicBool,
    asked_ns: AtomicU64,
    /// By kind and rank: the news that went around.
    seen: Mutex<HashMap<(u8, usize), Vec<u8>>>,
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
    /// initialisation. `on_news` must not block. It runs on the service's thread, and on the one that mends the ring: once per rank
    /// and kind of news, but for each [`News::Mend`] and each call of a neighbour.
    ///
    /// # Errors
    /// `SystemError` when a connection cannot be watched.
    pub fn start(boot: &mut Bootstrapped, on_news: Box<dyn Fn(News) + Send + Sync>) -> Result<ControlRing> {
        let shared = Arc::new(Shared {
            rank: boot.rank,
            ranks: boot.ranks,
            comm_hash: boot.comm_hash,
            key: boot.key.clone(),
            service: boot.service.clone(),
            control: boot.control.take(),
            neighbours: Mutex::default(),
            next: AtomicUsize::new((boot.rank + 1) % boot.ranks),
            mending: AtomicBool::new(false),
            asked_ns: AtomicU64::new(0),
            seen: Mutex::default(),
            on_news,
            left: AtomicBool::new(false),
            log: boot.log,
        });
        for (rank, stream) in std::mem::take(&mut boot.neighbours) {
            let name = match boot.peers.get(rank) {
                Some(p) => format!("rank {rank} (host {}, process {})", p.host, p.pid),
                None => format!("rank {rank}"),
            };
            shared.adopt(Neighbour::new(rank, name, stream.into(), true))?;
        }
        if let Some(inbox) = &shared.control {
            let weak = Arc::downgrade(&shared);
            let take = move |incoming: Incoming| match weak.upgrade() {
                Some(shared) => shared.take(incoming),
                // Else its end would be taken for a death.
                None => Neighbour::new(0, String::new(), incoming.stream.into(), false).say_goodbye(),
            };
            inbox.divert(CONTROL, Box::new(take));
        }
        Ok(ControlRing { shared })
    }

    /// Tells all other ranks; `on_news` of this rank does not hear it.
    pub fn announce(&self, news: &News) {
        if self.shared.is_new(news) {
            self.shared.send(&news.encode());
        }
    }

    /// Tells only those that it is connected with: two ranks, and more once the ring was mended.
    pub fn tell_neighbours(&self, news: &News) {
        self.shared.send(&news.encode());
    }

    /// Whether a neighbour has yet to take some of what it was told.
    #[cfg(test)]
    pub(super) fn owes(&self) -> bool {
        locked(&self.shared.neighbours).iter().any(|neighbour| !locked(&neighbour.output).is_empty())
    }

    /// Leaves in good order: the neighbours will not take the end of the connections for a death.
    pub fn leave(self) {
        self.shared.left.store(true, Ordering::Relaxed);
        // Who is taken in from here on is told as well.
        for neighbour in locked(&self.shared.neighbours).iter() {
            neighbour.say_goodbye();
        }
    }

    /// Asks all ranks that it reaches to mend the ring; for who is blocked for long, now and then.
    pub fn ask_to_mend(&self) {
        self.shared.ask(self.shared.ranks as u32);
    }

    /// Connects this rank, if the next one is gone, with the first one behind it that is there, in a thread of its own. To be called
    /// when [`News::Mend`] came, and by who [asks](Self::ask_to_mend).
    pub fn mend(&self, peers: &[PeerInfo]) {
        let candidates = self.shared.candidates(peers);
        // SYNC: mending
        if candidates.is_empty() || self.shared.mending.swap(true, Ordering::Acquire) {
            return;
        }
        let shared = self.shared.clone();
        let run = move || {
            shared.connect(&candidates);
            // SYNC: mending
            shared.mending.store(false, Ordering::Release);
        };
        let spawned = oxccl_sys::process::with_signals_blocked(|| {
            std::thread::Builder::new().name("oxccl-mend".into()).spawn(run)
        });
        if let Err(e) = spawned {
            say(self.shared.log, Level::Warn, &format!("control ring: cannot start a thread that mends it: {e}"));
            // SYNC: mending
            self.shared.mending.store(false, Ordering::Release);
        }
    }
}

impl Drop for ControlRing {
    fn drop(&mut self) {
        self.shared.left.store(true, Ordering::Relaxed);
        for neighbour in locked(&self.shared.neighbours).iter() {
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
    // Whoever ended before it listened never answers; the root knows.
    let over = || if link.is_over() { Err(Error::remote("the initialisation has failed elsewhere")) } else { Ok(()) };
    let stream = dial_unless(&peers[next].tcp, key, route, &link.limits, over)
        .map_err(|e| if link.is_over() { link.verdict().unwrap_or(e) } else { e })?;
    // Until the initialisation is over only the rank before this one dials for control.
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
    fn new(rank: usize, name: String, fd: OwnedFd, joined: bool) -> Neighbour {
        // The service has the kernel ask who is idle. This one may be told besides that what was sent is not acknowledged: the
        // service's thread reads whatever the rank is doing. A wish: without it a silent host is noticed later.
        let _ = sockopt::set_tcp_user_timeout(&fd, SILENCE.as_millis() as u32);
        let (input, output, said_goodbye, watch) = Default::default();
        let joined = AtomicBool::new(joined);
        Neighbour { fd: Arc::new(fd), rank, name, input, output, joined, said_goodbye, watch }
    }

    /// It will not take the end of the connection for a death.
    fn say_goodbye(&self) {
        self.push(&wire::frame(GOODBYE, &[]));
        let _ = rustix::net::shutdown(&self.fd, Shutdown::Write);
        // Unread input would turn the close into a reset that destroys the goodbye.
        let mut chunk = [0; 4096];
        while matches!(rustix::net::recv(&self.fd, &mut chunk[..], RecvFlags::DONTWAIT), Ok((n, _)) if n > 0) {}
    }

    /// Never blocks: a neighbour whose buffer is full of unread news has stopped, perhaps for good. What is left is sent when it speaks,
    /// and with what follows.
    fn send(&self, bytes: &[u8], log: LogFn) {
        if !self.push(bytes) {
            say(log, Level::Warn, &format!("{} takes no control messages", self.name));
        }
    }

    /// Whether nothing is left.
    fn push(&self, bytes: &[u8]) -> bool {
        let mut output = locked(&self.output);
        if output.len() < MOST_UNSENT {
            output.extend_from_slice(bytes);
        }
        while !output.is_empty() {
            match rustix::net::send(&self.fd, &output, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Ok(n) => drop(output.drain(..n)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                // The watch hears of it.
                Err(_) => output.clear(),
            }
        }
        output.is_empty()
    }

    /// Whole frames (kind and body) that arrived, and why the connection ended, if it did. An end amid a frame is none of a death: a
    /// neighbour that left could not send the rest.
    fn receive(&self) -> (Vec<(u8, Vec<u8>)>, Option<End>) {
        let mut input = locked(&self.input);
        let mut chunk = [0; 4096];
        let mut end = None;
        while end.is_none() {
            match rustix::net::recv(&self.fd, &mut chunk[..], RecvFlags::DONTWAIT) {
                Ok((0, _)) => end = Some(End::Closed),
                Ok((n, _)) => input.extend_from_slice(&chunk[..n]),
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(e) => end = Some(End::Broken(format!("its connection failed: {e}"))),
            }
        }
        let mut frames = Vec::new();
        while let Some(first) = input.first_chunk::<HEAD>() {
            let (len, kind) = wire::head(first);
            if len > 2 * MOST_TEXT {
                end = Some(End::Broken("it sent garbage".into()));
                break;
            }
            if input.len() < HEAD + len {
                break;
            }
            let rest = input.split_off(HEAD + len);
            frames.push((kind, std::mem::replace(&mut *input, rest).split_off(HEAD)));
        }
        if end == Some(End::Closed) && !input.is_empty() {
            end = Some(End::Cut);
        }
        (frames, end)
    }
}

impl Shared {
    /// Takes a connected rank into the ring, and tells it all news.
    fn adopt(self: &Arc<Self>, neighbour: Neighbour) -> Result<()> {
        let neighbour = Arc::new(neighbour);
        let mut neighbours = locked(&self.neighbours);
        if self.left.load(Ordering::Relaxed) {
            neighbour.say_goodbye();
            return Ok(());
        }
        // News that comes from now on waits for the lock, and then goes to the new one, too.
        let seen: Vec<u8> = locked(&self.seen).values().flatten().copied().collect();
        neighbour.send(&seen, self.log);
        neighbours.push(neighbour.clone());
        drop(neighbours);
        let (ring, weak) = (Arc::downgrade(self), Arc::downgrade(&neighbour));
        let ready = move || match (ring.upgrade(), weak.upgrade()) {
            (Some(ring), Some(neighbour)) => ring.readable(&neighbour),
            _ => false,
        };
        let guard = self.service.watch_readable(neighbour.fd.clone(), ready)?;
        // The first and only one.
        let _ = neighbour.watch.set(guard);
        Ok(())
    }

    /// On the service's thread: a rank mends the ring and connects with this one.
    fn take(self: &Arc<Self>, incoming: Incoming) {
        let rank = incoming.from as usize;
        // Errors add where it is.
        let neighbour = Neighbour::new(rank, format!("rank {rank}"), incoming.stream.into(), false);
        if let Err(e) = self.adopt(neighbour) {
            say(self.log, Level::Warn, &format!("control ring: cannot take rank {rank} in: {e}"));
        }
    }

    /// Whom this rank may connect with to mend the ring, in this order; nobody if there is no gap behind it.
    fn candidates(&self, peers: &[PeerInfo]) -> Vec<Candidate> {
        if self.control.is_none() || !self.is_gone(self.next.load(Ordering::Relaxed)) {
            return Vec::new();
        }
        let behind = (1..self.ranks).map(|step| (self.rank + step) % self.ranks);
        behind.filter(|rank| !self.is_gone(*rank)).map(|rank| (rank, peers[rank].tcp.clone())).collect()
    }

    /// Connects with the first of `candidates` that is there. Those that surely are not are news. Who does not answer is passed over:
    /// a host that vanished takes no time for each of its ranks, and who is skipped there connects with those behind it itself.
    fn connect(self: &Arc<Self>, candidates: &[Candidate]) {
        for (patience, by_host) in ROUNDS {
            let mut silent: Vec<&[SocketAddr]> = Vec::new();
            for (rank, addresses) in candidates {
                let same = |a: &&[SocketAddr]| if by_host { share_host(a, addresses) } else { *a == &addresses[..] };
                if self.is_gone(*rank) || silent.iter().any(same) {
                    continue;
                }
                match self.try_next(*rank, addresses, patience) {
                    Tried::Gone => {}
                    Tried::Silent => silent.push(addresses),
                    Tried::Over => return,
                }
            }
        }
    }

    /// Connects with `rank`, if it is there.
    fn try_next(self: &Arc<Self>, rank: usize, addresses: &[SocketAddr], patience: Duration) -> Tried {
        use ErrorKind::{ConnectionRefused, ConnectionReset, UnexpectedEof};
        let route = Route { comm_hash: self.comm_hash, from: self.rank as u32, to: rank as u32, purpose: CONTROL };
        let limits = Limits { deadline: Deadline::after(patience), abort: &self.left };
        match try_dial(addresses, &self.key, route, &limits) {
            Ok(stream) => {
                if let Err(e) = self.adopt(Neighbour::new(rank, format!("rank {rank}"), stream.into(), true)) {
                    say(self.log, Level::Warn, &format!("control ring: cannot take rank {rank} in: {e}"));
                }
                self.next.store(rank, Ordering::Relaxed);
                // There may be a gap behind it.
                self.send(&mend_frame(self.ranks as u32));
                Tried::Over
            }
            Err(_) if self.left.load(Ordering::Relaxed) => Tried::Over,
            Err(e) if matches!(e.kind(), ConnectionRefused | ConnectionReset | UnexpectedEof) => {
                self.heard(News::Gone { rank, text: format!("it takes no connection of rank {}: {e}", self.rank) });
                Tried::Gone
            }
            // It may be stopped, or the way to it be cut for now.
            Err(_) => Tried::Silent,
        }
    }

    /// Whether `rank` is known to take no part any more.
    fn is_gone(&self, rank: usize) -> bool {
        let seen = locked(&self.seen);
        [DEAD, LEFT, GONE].iter().any(|kind| seen.contains_key(&(*kind, rank)))
    }

    /// Asks the neighbours, and those behind them up to so many, to mend the ring.
    fn ask(&self, hops: u32) {
        let (now, last) = (clock::now_ns(), self.asked_ns.load(Ordering::Relaxed));
        let asked = || self.asked_ns.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if hops > 0 && now.saturating_sub(last) > ASK_NS && asked() {
            self.send(&mend_frame(hops - 1));
        }
    }

    /// On the service's thread: a neighbour spoke or its connection ended. False ends the watch.
    fn readable(&self, neighbour: &Neighbour) -> bool {
        let (frames, end) = neighbour.receive();
        // It may have read since.
        neighbour.push(&[]);
        for (kind, body) in frames {
            neighbour.joined.store(true, Ordering::Relaxed);
            if kind == MEND {
                self.ask(Reader(&body).u32().unwrap_or(0).min(self.ranks as u32));
                (self.on_news)(News::Mend);
                continue;
            }
            if kind == GOODBYE {
                neighbour.said_goodbye.store(true, Ordering::Relaxed);
                self.heard(News::Left { rank: neighbour.rank });
            } else if let Some(news) = News::decode(kind, &body) {
                self.heard(news);
            }
        }
        let Some(end) = end else { return true };
        // Of one that died before it joined those hear that it was connected with, or who dials it.
        let counts = neighbour.joined.load(Ordering::Relaxed) && !neighbour.said_goodbye.load(Ordering::Relaxed);
        if counts && !self.left.load(Ordering::Relaxed) {
            let (rank, died) = (neighbour.rank, format!("{} died or was aborted", neighbour.name));
            self.heard(match end {
                End::Closed => {
                    News::Dead { rank, text: format!("{died}: its connection was closed without a goodbye") }
                }
                End::Broken(why) => News::Dead { rank, text: format!("{died}: {why}") },
                End::Cut => News::Gone { rank, text: "its connection was closed amid a message".into() },
            });
        }
        false
    }

    fn heard(&self, news: News) {
        let (_, rank, _) = news.parts();
        // It is an index from here on.
        if rank >= self.ranks {
            let text = format!("dropped news of rank {rank}, of {} ranks, from the control ring", self.ranks);
            return say(self.log, Level::Warn, &text);
        }
        if matches!(news, News::Call { around: false, .. }) {
            return (self.on_news)(news);
        }
        if rank != self.rank && self.is_new(&news) {
            self.send(&news.encode());
            (self.on_news)(news);
        }
    }

    /// Whether nothing of this kind was heard of the rank; it is kept for those who join later.
    fn is_new(&self, news: &News) -> bool {
        let (kind, rank, _) = news.parts();
        locked(&self.seen).insert((kind, rank), news.encode()).is_none()
    }

    /// To all neighbours.
    fn send(&self, bytes: &[u8]) {
        locked(&self.neighbours).iter().for_each(|neighbour| neighbour.send(bytes, self.log));
    }
}

/// Whether processes that listen there are on one host, as far as their addresses tell.
fn share_host(a: &[SocketAddr], b: &[SocketAddr]) -> bool {
    a.iter().any(|a| b.iter().any(|b| a.ip() == b.ip()))
}

fn mend_frame(hops: u32) -> Vec<u8> {
    wire::frame(MEND, &[&hops.to_le_bytes()])
}
