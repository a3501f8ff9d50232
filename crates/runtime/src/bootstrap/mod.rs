//! How the ranks of a communicator find each other: once per communicator, over TCP, authenticated.
//!
//! A star: every rank sends to the root (`root.rs`; `parts.rs` where there are several) and gets what all sent, in four
//! rounds: who and where everybody is; which memory the leaders of would-be cliques made; whether it could be mapped; ready. It hands out addresses
//! and shared memory, and opens no data connection. After it, [`ControlRing`] carries news of deaths and errors.

mod clique;
mod id;
mod parts;
mod ring;
mod root;
mod wire;

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use oxccl_sys::sync::{AtomicBool, Ordering};
use oxccl_sys::{Deadline, SharedMemory};
use oxccl_types::{Error, Result, ResultCode};
use rustix::event::PollFlags;

pub use id::UniqueId;
pub use ring::{ControlRing, News};

use crate::service::auth::{self, Hello, Kind};
use crate::service::interfaces::Family;
use crate::service::io::{Limits, connect_any, write_full};
use crate::service::{self, ADDRESS_SLICE, CommKey, Inbox, Level, LogFn, ProcessAddress, Service, ServiceConfig};
use parts::Parts;
use wire::{FAILED, Info, LEAVE, MOST_RANKS, RELAY, RESULT, ROUND, Reader};

/// Rounds of an initialisation.
const ROUNDS: u8 = 4;
/// Purpose of a connection to a root: the rank comes for its whole part.
const DELEGATE: u8 = 1;
/// How long a rank whose peer failed waits for the root to say why.
const VERDICT: Duration = Duration::from_millis(300);
/// Between two looks at whether the ranks that the root waits for can still come.
const LOOK: Duration = Duration::from_millis(20);
/// A rank waits this much longer than the root, whose text says more.
const GRACE: Duration = Duration::from_secs(2);

/// What the environment and the communicator's configuration say.
#[derive(Clone, Debug)]
pub struct BootstrapConfig {
    /// `OXCCL_INIT_TIMEOUT`: limit of the whole initialisation.
    pub timeout: Duration,
    /// False (`OXCCL_SHM=0`): every rank is a clique of its own.
    pub shared_memory: bool,
    /// `NCCL_HOSTID`: ranks of which it differs share no memory, whatever machine they are on.
    pub host_id: Option<String>,
    /// `NCCL_SOCKET_IFNAME`
    pub ifname: Option<String>,
    /// `NCCL_SOCKET_FAMILY`
    pub family: Option<Family>,
    /// `NCCL_COMM_ID`
    pub comm_id: Option<String>,
    /// `OXCCL_COMM_SECRET`, as a key.
    pub comm_secret: Option<CommKey>,
    /// Receives lines for the log.
    pub log: LogFn,
}

impl Default for BootstrapConfig {
    fn default() -> Self {
        BootstrapConfig {
            timeout: Duration::from_secs(120),
            shared_memory: true,
            host_id: None,
            ifname: None,
            family: None,
            comm_id: None,
            comm_secret: None,
            log: |_, _| {},
        }
    }
}

/// Bytes of the shared segment of a clique with that many ranks, when all ranks brought these payloads.
pub type SegmentBytes = Box<dyn Fn(usize, &[&[u8]]) -> usize + Send>;

/// The error of a meeting at which not all ranks can come, once that is known. Asked while the root waits for them.
pub type Awaited = Box<dyn Fn() -> Result<()> + Send>;

/// What one rank brings.
pub struct Params {
    /// The same on all ranks.
    pub id: UniqueId,
    /// More ids, the same list on all ranks and fewer than ranks: their roots share the work with that of `id`.
    pub more: Vec<UniqueId>,
    /// This rank.
    pub rank: usize,
    /// Their number.
    pub ranks: usize,
    /// Gathered to all ranks; at most 64 KiB.
    pub payload: Vec<u8>,
    /// Must give the same on all ranks of a clique.
    pub segment_bytes: SegmentBytes,
    /// Ends the call early when set.
    pub abort: Arc<AtomicBool>,
    /// Ends it early by an error.
    pub awaited: Option<Awaited>,
    /// Settings.
    pub config: BootstrapConfig,
}

/// What everybody knows about a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerInfo {
    /// Name of its host.
    pub host: String,
    /// Its process, as its own pid namespace counts.
    pub pid: u32,
    /// Names its process.
    pub process: ProcessAddress,
    /// Where its service listens.
    pub tcp: Vec<SocketAddr>,
    /// What it brought.
    pub payload: Vec<u8>,
}

/// A process with ranks of this clique.
#[derive(Clone, Debug)]
pub struct ProcessHandle {
    /// Its name.
    pub address: ProcessAddress,
    /// Its number in *our* pid namespace; 0 when it has none here.
    pub pid: u32,
    /// A handle that becomes readable when it ends; `None` for our own process.
    pub pidfd: Option<Arc<OwnedFd>>,
}

/// What an initialisation yields.
#[derive(Debug)]
pub struct Bootstrapped {
    /// This rank.
    pub rank: usize,
    /// Their number.
    pub ranks: usize,
    /// Names the communicator; the same on all ranks.
    pub comm_hash: u64,
    /// Its secret.
    pub key: CommKey,
    /// By rank.
    pub peers: Vec<PeerInfo>,
    /// The ranks that share [`segment`](Self::segment) with this one, itself included, ascending.
    pub clique: Vec<usize>,
    /// By rank: the lowest rank of its clique.
    pub clique_of: Vec<usize>,
    /// Memory shared by exactly the clique, zeroed; at least the size asked for.
    pub segment: Arc<SharedMemory>,
    /// The processes of the clique.
    pub processes: Vec<ProcessHandle>,
    /// By position in the clique: index into [`processes`](Self::processes).
    pub process_of: Vec<usize>,
    /// Where data connections to this rank arrive; serves fetches and dials until dropped.
    pub inbox: Inbox,
    /// The service of this process.
    pub service: Arc<Service>,
    /// Connections of the control ring: rank and stream.
    neighbours: Vec<(usize, TcpStream)>,
    /// Where ranks that mend it connect; none where all share memory.
    control: Option<Inbox>,
    log: LogFn,
}

/// Brings the ranks of a communicator together. Every rank calls it, once, at about the same time.
///
/// # Errors
/// `InvalidArgument` for a rank out of range; `InvalidUsage` when ranks disagree on their number or one came twice;
/// `RemoteError` when a rank or the root died, ranks are missing at the time limit, or after an abort; all ranks
/// get the text of the first failure. `SystemError` when sockets or memory cannot be made.
pub fn connect(params: Params) -> Result<Bootstrapped> {
    let whole = Some(Part { color: 0, key: 0 });
    connect_part(params, whole)?.ok_or_else(|| Error::internal("an initialisation without a result"))
}

/// Which of the communicators that are made at one meeting a rank wants to join, and where in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Ranks of one colour make one communicator.
    pub color: i32,
    /// Its ranks are ordered by key; equal keys in the order of the ranks at the meeting.
    pub key: i32,
}

/// As [`connect`], for ranks that divide into several communicators: rank and number in `params` count all who meet,
/// those of the result the rank's own communicator. Who has no part takes part in the meeting and gets `None`.
///
/// # Errors
/// Those of [`connect`]; the failure of one rank is that of all who meet.
pub fn connect_part(params: Params, part: Option<Part>) -> Result<Option<Bootstrapped>> {
    let Params { id, more, rank, ranks, payload, segment_bytes, abort, awaited, config } = params;
    if rank >= ranks {
        return Err(Error::argument(format!("rank {rank} is not below the number of ranks, {ranks}")));
    }
    if ranks > MOST_RANKS {
        return Err(Error::argument(format!("{ranks} ranks for one communicator, which has {MOST_RANKS} at most")));
    }
    if payload.len() > 64 << 10 {
        return Err(Error::internal(format!("bootstrap payload of {} bytes", payload.len())));
    }
    let service_config = ServiceConfig { ifname: config.ifname.clone(), family: config.family, log: config.log };
    // The others need not wait for a rank that has not got so far; with several roots one that is not its own would not know it.
    let has_root = !(id.is_derived() && rank == 0) && more.is_empty();
    let tell = |e: &Error| {
        if has_root {
            decline(&id, rank, ranks, &config, &e.text)
        }
    };
    let service = Service::get(&service_config).inspect_err(tell)?;
    let limits = Limits { deadline: Deadline::after(config.timeout + GRACE), abort: &abort };
    if id.is_derived() && rank == 0 {
        id.start_derived_root(&config, &limits)?;
    }
    let parts = Parts { ranks, roots: 1 + more.len() };
    if parts.roots > ranks {
        return Err(Error::argument(format!("{} ids for {ranks} ranks", parts.roots)));
    }
    let mut link = Link { awaited: awaited.as_deref(), ..Link::meet(&id, &more, rank, parts, &config, limits)? };
    let info = Info { peer: describe(&service, payload), hint: clique::hint(&config, rank) };
    gather(&mut link, &id, service, info, part, segment_bytes, &config).map_err(|e| {
        // Who could not reach a peer asks whether the root knows more: the peer may have been told of a death.
        let verdict = if e.code == ResultCode::RemoteError { link.verdict() } else { None };
        link.leave(&e.text);
        verdict.unwrap_or(e)
    })
}

/// A meeting that makes no communicator: all ranks tell each other their payloads, each does `work` with those of all
/// ranks, by rank, and all learn whether all could.
///
/// # Errors
/// As [`connect`]; that of the first rank whose `work` fails, on all ranks.
pub fn agree<R>(params: Params, work: impl FnOnce(&[Vec<u8>]) -> Result<R>) -> Result<R> {
    let Params { id, rank, ranks, payload, abort, awaited, config, .. } = params;
    let limits = Limits { deadline: Deadline::after(config.timeout + GRACE), abort: &abort };
    let link = Link::join(&id, rank, Parts { ranks, roots: 1 }, 0, &config, limits)?;
    let mut link = Link { awaited: awaited.as_deref(), ..link };
    let go = |link: &mut Link<'_>| -> Result<R> {
        let all = link.exchange(0, &payload)?;
        let done = work(&all)?;
        (1..ROUNDS).try_for_each(|round| link.exchange(round, &[]).map(|_| ()))?;
        Ok(done)
    };
    go(&mut link).map_err(|e| {
        // As for `connect`: the root may know more.
        let verdict = if e.code == ResultCode::RemoteError { link.verdict() } else { None };
        link.leave(&e.text);
        verdict.unwrap_or(e)
    })
}

/// Ends the root of `id`, which no rank will use: the meeting of no rank. Who waits there is told.
pub fn dismiss(id: &UniqueId, config: &BootstrapConfig) {
    let abort = AtomicBool::new(false);
    let limits = Limits { deadline: Deadline::after(config.timeout), abort: &abort };
    // Without the root nobody waits.
    if let Ok(mut link) = Link::join(id, 0, Parts { ranks: 0, roots: 1 }, 0, config, limits) {
        // It hangs up when it has read that.
        let _ = link.exchange(0, &[]);
    }
}

/// Tells the root of `id`, in place of `rank`, that the rank cannot come, so that the others need not wait.
pub fn decline(id: &UniqueId, rank: usize, ranks: usize, config: &BootstrapConfig, text: &str) {
    let abort = AtomicBool::new(false);
    let limits = Limits { deadline: Deadline::after(DECLINE), abort: &abort };
    // Without the root nobody waits.
    if let Ok(link) = Link::join(id, rank, Parts { ranks, roots: 1 }, 0, config, limits) {
        link.leave(text);
    }
}

/// How long a rank that cannot come tries to say so.
const DECLINE: Duration = Duration::from_secs(2);

/// As [`connect`] for several ranks of this process at once; the results in the order of `all`.
pub fn connect_many(all: Vec<Params>) -> Vec<Result<Bootstrapped>> {
    std::thread::scope(|s| {
        let threads: Vec<_> = all.into_iter().map(|p| s.spawn(|| connect(p))).collect();
        threads
            .into_iter()
            .map(|t| t.join().unwrap_or_else(|_| Err(Error::internal("the initialisation panicked"))))
            .collect()
    })
}

fn describe(service: &Service, payload: Vec<u8>) -> PeerInfo {
    PeerInfo {
        host: oxccl_sys::host::host_name(),
        pid: std::process::id(),
        process: service.address().clone(),
        tcp: service.tcp().to_vec(),
        payload,
    }
}

fn gather(
    link: &mut Link<'_>,
    id: &UniqueId,
    service: Arc<Service>,
    info: Info,
    part: Option<Part>,
    segment_bytes: SegmentBytes,
    config: &BootstrapConfig,
) -> Result<Option<Bootstrapped>> {
    let limits = link.limits;
    let mut said = link.exchange(0, &[info.encode(), encode_part(part)].concat())?;
    let Some(part) = part else {
        return (1..ROUNDS).try_for_each(|round| link.exchange(round, &[]).map(|_| ())).map(|()| None);
    };
    let order = members(&said, part.color);
    let rank = order.iter().position(|r| *r == link.rank);
    let rank = rank.ok_or_else(|| link.protocol("a list of ranks without this one"))?;
    let ranks = order.len();
    // What the members said, in the order of the new ranks.
    let select = |all: &mut Vec<Vec<u8>>| order.iter().map(|r| std::mem::take(&mut all[*r])).collect::<Vec<_>>();
    let infos = select(&mut said).iter().map(|b| Info::decode(b)).collect::<Option<Vec<_>>>();
    let infos = infos.ok_or_else(|| link.protocol("information of a rank that cannot be read"))?;
    let (comm_hash, key) = id.communicator(&link.nonce, part.color);
    // From here on peers may fetch and dial.
    let inbox = service.expect(comm_hash, &key, rank as u32);
    let control = service.expect_class(comm_hash, rank as u32, true);

    let payloads: Vec<&[u8]> = infos.iter().map(|i| &i.peer.payload[..]).collect();
    let segment_bytes = |ranks| segment_bytes(ranks, &payloads);
    let group = clique::group(&infos, rank);
    let mut maker = clique::Maker::new(&service, comm_hash, &key, limits, group);
    let made = select(&mut link.exchange(1, &maker.make(rank, &segment_bytes))?);
    let proofs = select(&mut link.exchange(2, &maker.prove(rank, &made, &infos))?);
    let sharing = maker.conclude(rank, &infos, &made, &proofs, &segment_bytes, config.log)?;
    let (processes, process_of) = maker.processes(&sharing.clique, &infos)?;
    drop(maker);
    let peers: Vec<PeerInfo> = infos.into_iter().map(|i| i.peer).collect();
    let clique::Sharing { clique, clique_of, segment } = sharing;
    // Before the last round, so that the root tells of ranks that die meanwhile.
    let whole = clique.len() == ranks;
    let neighbours = match whole {
        true => Vec::new(),
        false => ring::meet(link, rank, &peers, comm_hash, &key, &control)?,
    };
    link.exchange(3, &[])?;
    let log = config.log;
    Ok(Some(Bootstrapped {
        rank,
        ranks,
        comm_hash,
        key,
        peers,
        clique,
        clique_of,
        segment,
        processes,
        process_of,
        inbox,
        service,
        neighbours,
        control: (!whole).then_some(control),
        log,
    }))
}

/// Bytes of an encoded part.
const PART: usize = 9;

/// Whether there is a part, its colour, its key; behind the information of a rank.
fn encode_part(part: Option<Part>) -> Vec<u8> {
    let Part { color, key } = part.unwrap_or(Part { color: 0, key: 0 });
    [&[u8::from(part.is_some())], &color.to_le_bytes()[..], &key.to_le_bytes()[..]].concat()
}

fn decode_part(said: &[u8]) -> Option<Part> {
    let mut reader = Reader(said.last_chunk::<PART>()?);
    let present = reader.array::<1>()?;
    let part = Part { color: i32::from_le_bytes(reader.array()?), key: i32::from_le_bytes(reader.array()?) };
    (present == [1]).then_some(part)
}

/// Who has `color`, in the order of the new ranks.
fn members(said: &[Vec<u8>], color: i32) -> Vec<usize> {
    let parts = said.iter().enumerate().filter_map(|(rank, b)| Some((rank, decode_part(b)?)));
    let mut of_color: Vec<(i32, usize)> = parts.filter(|(_, p)| p.color == color).map(|(r, p)| (p.key, r)).collect();
    of_color.sort_unstable();
    of_color.into_iter().map(|(_, rank)| rank).collect()
}

/// A rank's connection to its root.
struct Link<'a> {
    stream: TcpStream,
    rank: usize,
    parts: Parts,
    /// Whose root it is.
    part: usize,
    /// A delegate's connection to the first root.
    up: Option<Box<Link<'a>>>,
    at: String,
    nonce: [u8; 16],
    limits: Limits<'a>,
    awaited: Option<&'a (dyn Fn() -> Result<()> + Send)>,
}

impl<'a> Link<'a> {
    /// Joins the root of the rank's part, and as its delegate the first one.
    fn meet(
        id: &UniqueId,
        more: &[UniqueId],
        rank: usize,
        parts: Parts,
        config: &BootstrapConfig,
        limits: Limits<'a>,
    ) -> Result<Link<'a>> {
        let part = parts.of(rank);
        let own = part.checked_sub(1).and_then(|p| more.get(p)).unwrap_or(id);
        let mut link = Link::join(own, rank, parts, part, config, limits)?;
        if part > 0 && parts.range(part).start == rank {
            let up = Link::join(id, rank, parts, 0, config, limits).inspect_err(|e| link.relay(e))?;
            link.up = Some(Box::new(up));
        }
        Ok(link)
    }

    fn join(
        id: &UniqueId,
        rank: usize,
        parts: Parts,
        part: usize,
        config: &BootstrapConfig,
        limits: Limits<'a>,
    ) -> Result<Link<'a>> {
        let ranks = parts.ranks;
        let candidates = id.candidates();
        let limit_ms = u64::try_from(config.timeout.as_millis()).unwrap_or(u64::MAX).min(u64::from(u32::MAX));
        let argument = ranks as u64 | limit_ms << 32;
        let purpose = u8::from(parts.of(rank) != part) * DELEGATE;
        let (from, to) = (rank as u32, parts.roots as u32);
        let hello = Hello { kind: Kind::Root, purpose, comm_hash: id.hash(), from, to, argument };
        let key = id.root_key();
        let mut pause = Duration::from_millis(2);
        let mut calls = 1;
        loop {
            let attempt = connect_any(&candidates, ADDRESS_SLICE, &limits)
                .and_then(|s| auth::call(&s, &key, &hello, &limits).map(|()| s));
            let error = match attempt {
                Ok(stream) => {
                    let at = stream.peer_addr().map_or_else(|e| e.to_string(), |a| a.to_string());
                    return Ok(Link { stream, rank, parts, part, up: None, at, nonce: [0; 16], limits, awaited: None });
                }
                Err(e) => e,
            };
            // The root of a derived id may not be up yet; one of a random id was up before the id existed.
            let refused = match error.kind() {
                ErrorKind::ConnectionRefused | ErrorKind::PermissionDenied => true,
                // It has ended, which the next call hears, or was too busy.
                ErrorKind::ConnectionReset => calls >= 2 * service::CALLS,
                _ => false,
            };
            if let Some(why) = limits.check().err().or((refused && !id.is_derived()).then_some(error)) {
                return Err(Error::remote(format!(
                    "rank {rank} of {ranks} cannot connect to the root of the initialisation at {candidates:?}: \
                     {why}. The process that made the unique id may have ended, its initialisation may be over \
                     (an id serves one communicator; OXCCL_INIT_TIMEOUT), or a firewall or a wrong interface \
                     (NCCL_SOCKET_IFNAME) is in between"
                )));
            }
            limits.pause(pause);
            (calls, pause) = (calls + 1, (pause * 2).min(Duration::from_millis(100)));
        }
    }

    /// One round at this root: what all who come to it sent, by rank.
    fn round_trip(&mut self, round: u8, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        let sent = write_full(&self.stream, &wire::frame(ROUND, &[&[round], bytes]), &self.limits);
        if round == 0 {
            self.await_all()?;
        }
        // A root that failed tells why before it closes: read even when the write failed.
        let (kind, body) = wire::read_frame(&self.stream, &self.limits)
            .map_err(|e| self.lost_root(round, sent.as_ref().err().unwrap_or(&e)))?;
        match kind {
            FAILED => Err(failed(&body)),
            RESULT if body.first() == Some(&round) => {
                let mut reader = Reader(&body[1..]);
                let nonce = reader.array();
                let guests = self.parts.guest_count(self.part);
                let all = (0..guests).map(|_| reader.bytes().map(<[u8]>::to_vec)).collect::<Option<Vec<_>>>();
                self.nonce = nonce.ok_or_else(|| self.protocol("a short message of the root"))?;
                all.ok_or_else(|| self.protocol("a short message of the root"))
            }
            _ => Err(self.protocol("a message of the root out of turn")),
        }
    }

    /// Waits for the first answer of the root, which comes when all ranks have come, as long as they can. In later rounds all are
    /// there: of who goes then the root hears, and nobody can have gone because it had all.
    fn await_all(&self) -> Result<()> {
        let Some(awaited) = self.awaited else { return Ok(()) };
        loop {
            let slice = Limits { deadline: Deadline::after(self.limits.deadline.slice(LOOK)), ..self.limits };
            // What ends the wait else, the read that follows says.
            if slice.wait(&self.stream, PollFlags::IN).is_ok() || self.limits.check().is_err() {
                return Ok(());
            }
            awaited()?;
        }
    }

    /// Whether the root has spoken out of turn, or is gone: the next exchange says why.
    fn is_over(&self) -> bool {
        let mut byte = [0];
        let flags = rustix::net::RecvFlags::PEEK | rustix::net::RecvFlags::DONTWAIT;
        !matches!(
            rustix::net::recv(&self.stream, &mut byte, flags),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR)
        )
    }

    /// What the root says about a failure, if it says so soon.
    fn verdict(&self) -> Option<Error> {
        let limits = Limits { deadline: Deadline::after(VERDICT), ..self.limits };
        match wire::read_frame(&self.stream, &limits) {
            Ok((FAILED, body)) => Some(failed(&body)),
            _ => None,
        }
    }

    fn lost_root(&self, round: u8, e: &std::io::Error) -> Error {
        let (rank, at) = (self.rank, &self.at);
        match e.kind() {
            ErrorKind::ConnectionAborted => {
                Error::remote(format!("rank {rank}: initialisation aborted by the application"))
            }
            ErrorKind::TimedOut => Error::remote(format!(
                "timeout: rank {rank} waited for the root of the initialisation at {at} in round {round} for longer \
                 than OXCCL_INIT_TIMEOUT; its host or the network to it is down, or its process is stopped"
            )),
            _ => Error::remote(format!(
                "rank {rank} lost the root of the initialisation at {at} in round {round}: {e}. The process that made \
                 the unique id (or rank 0 with NCCL_COMM_ID) died; look at its output"
            )),
        }
    }

    fn protocol(&self, what: &str) -> Error {
        Error::internal(format!("rank {}: bootstrap got {what} from the root at {}", self.rank, self.at))
    }

    /// Tells a root what another one said.
    fn relay(&self, error: &Error) {
        let abort = AtomicBool::new(false);
        let limits = Limits { deadline: Deadline::after(VERDICT), abort: &abort };
        // It may have gone already.
        let _ = write_full(&self.stream, &wire::frame(RELAY, &[&[error.code as u8], error.text.as_bytes()]), &limits);
    }

    /// Tells the root why this rank gives up; it may have gone already.
    fn leave(&self, text: &str) {
        if let Some(up) = &self.up {
            up.leave(text);
        }
        let abort = AtomicBool::new(false);
        let limits = Limits { deadline: Deadline::after(Duration::from_millis(200)), abort: &abort };
        let why = if self.limits.abort.load(Ordering::Relaxed) { "aborted by the application" } else { text };
        let _ = write_full(&self.stream, &wire::frame(LEAVE, &[b" ", why.as_bytes()]), &limits);
    }
}

/// The error in a message of the root.
fn failed(body: &[u8]) -> Error {
    let code = body.first().and_then(|c| ResultCode::from_c(i32::from(*c)));
    let text = String::from_utf8_lossy(body.get(1..).unwrap_or_default()).into_owned();
    Error::new(code.unwrap_or(ResultCode::RemoteError), text)
}

/// `3, 5..9 and 12 more` of ascending ranks.
fn rank_list(ranks: &[u32]) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for &r in ranks {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == r => *last = r,
            _ => runs.push((r, r)),
        }
    }
    let shown: Vec<String> =
        runs.iter().take(16).map(|(a, b)| if a == b { a.to_string() } else { format!("{a}..={b}") }).collect();
    let more: u32 = runs.iter().skip(16).map(|(a, b)| b - a + 1).sum();
    if more > 0 { format!("{} and {more} more", shown.join(", ")) } else { shown.join(", ") }
}

/// Writes a line for the log.
fn say(log: LogFn, level: Level, text: &str) {
    log(level, text);
}

#[cfg(test)]
mod tests;
