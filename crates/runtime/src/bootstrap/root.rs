//! The root of an initialisation: gathers what the ranks send, round by round, and sends all of it to all of them.
//!
//! One thread, one epoll set. It is the judge of an initialisation that fails: missing, dead, duplicate
//! and disagreeing ranks. It knows nothing of what the rounds mean.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use oxccl_sys::Deadline;
use oxccl_sys::forked::end_with_process;
use oxccl_types::{Error, Result, ResultCode};
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use super::id::UniqueId;
use super::parts::Parts;
use super::wire::{self, FAILED, HEAD, Info, LEAVE, MOST_FROM_RANK, MOST_FROM_ROOT, MOST_RANKS, RELAY, RESULT, ROUND};
use super::{BootstrapConfig, DELEGATE, rank_list};
use crate::service::auth::{self, CommKey, Greeter, Greeting, Hello, Kind};
use crate::service::{self, AcceptError, DEAF, Level, LogFn};

/// A caller's time for its handshake.
const HANDSHAKE_TIME: Duration = Duration::from_secs(5);
/// Callers in their handshake at one time; the oldest gives way.
const MOST_CALLERS: usize = 1024;
/// How long the root of a failed initialisation stays to tell ranks that come late.
const LINGER: Duration = Duration::from_secs(5);

/// Starts the thread.
pub(super) fn spawn(id: &UniqueId, listeners: Vec<TcpListener>, config: &BootstrapConfig) -> Result<()> {
    service::allow_files(config.log);
    let system = |e: std::io::Error| Error::system(format!("bootstrap root: cannot start: {e}"));
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|e| system(e.into()))?;
    for (i, listener) in listeners.iter().enumerate() {
        epoll::add(&epoll, listener, epoll::EventData::new_u64(i as u64), epoll::EventFlags::IN)
            .map_err(|e| system(e.into()))?;
    }
    let mut root = Root {
        epoll,
        next: listeners.len() as u64,
        listeners,
        hash: id.hash(),
        key: id.root_key(),
        nonce: auth::random().map_err(system)?,
        log: config.log,
        deadline: Deadline::after(config.timeout),
        callers: BTreeMap::new(),
        members: HashMap::new(),
        by_rank: HashMap::new(),
        parts: Parts { ranks: 0, roots: 1 },
        part: 0,
        guests: 0,
        round: 0,
        arrived: 0,
        joined: 0,
        served: HashSet::new(),
        held: Vec::new(),
        failure: None,
        deaf_until: None,
        starved: None,
        limit: Duration::ZERO,
    };
    oxccl_sys::process::with_signals_blocked(|| {
        std::thread::Builder::new().name("oxccl-root".into()).spawn(move || root.run())
    })
    .map_err(system)?;
    Ok(())
}

/// A rank that proved itself.
struct Member {
    stream: TcpStream,
    rank: u32,
    /// `rank 3 (host node7, process 99)` once known.
    name: String,
    /// Of this process, which may end, and the root with it, when its rank has all that it waits for.
    own: bool,
    input: Vec<u8>,
    /// Its contribution to the present round.
    given: Option<Vec<u8>>,
    output: Vec<(Arc<[u8]>, usize)>,
    waits_for_room: bool,
}

struct Root {
    epoll: OwnedFd,
    listeners: Vec<TcpListener>,
    next: u64,
    hash: u64,
    key: CommKey,
    nonce: [u8; 16],
    log: LogFn,
    deadline: Deadline,
    callers: BTreeMap<u64, Greeter>,
    members: HashMap<u64, Member>,
    by_rank: HashMap<u32, u64>,
    /// No ranks until the first one came.
    parts: Parts,
    /// The part of the ranks that this root serves.
    part: usize,
    /// How many come to this root; 0 until the first one came.
    guests: usize,
    round: u8,
    /// Contributions to the present round.
    arrived: u32,
    /// Members that ever came.
    joined: u32,
    /// The guests that have everything, or will get nothing any more: a rank that left with an error may come again to say so.
    served: HashSet<u32>,
    /// Members of this process that are not told of the last round yet.
    held: Vec<u64>,
    failure: Option<Arc<[u8]>>,
    /// Set while nothing is left to accept connections with: the listeners are not asked before.
    deaf_until: Option<Deadline>,
    /// The last error of that kind, for texts.
    starved: Option<String>,
    /// The time limit of the first rank, for texts.
    limit: Duration,
}

impl Root {
    fn run(&mut self) {
        let empty = epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };
        let mut events = [empty; 64];
        while !self.finished() {
            let next = self.callers.values().map(|g| g.deadline).chain(self.deaf_until).min();
            let next = next.map_or(self.deadline, |d| d.min(self.deadline));
            let wait = Timespec::try_from(next.left() + Duration::from_millis(1)).ok();
            let n = match epoll::wait(&self.epoll, &mut events[..], wait.as_ref()) {
                Ok(n) => n,
                Err(Errno::INTR) => 0,
                Err(e) => return (self.log)(Level::Warn, &format!("bootstrap root: epoll failed: {e}")),
            };
            for event in &events[..n] {
                let token = { event.data }.u64();
                if token < self.listeners.len() as u64 {
                    self.accept(token as usize);
                } else if self.callers.contains_key(&token) {
                    self.greet(token);
                } else {
                    self.serve(token);
                }
            }
            self.expire();
            self.release();
        }
        let text = format!("Bootstrap: root {:016x} served {} rank(s) of {}", self.hash, self.joined, self.parts.ranks);
        (self.log)(Level::Info, &text);
    }

    fn finished(&self) -> bool {
        let all_told = self.guests > 0 && self.served.len() >= self.guests;
        all_told || (self.failure.is_some() && self.deadline.passed())
    }

    fn accept(&mut self, listener: usize) {
        let (stream, from) = match self.listeners[listener].accept() {
            Ok(accepted) => accepted,
            Err(e) => return self.accept_failed(&e),
        };
        end_with_process(&stream);
        if self.callers.len() >= MOST_CALLERS
            && let Some((_, oldest)) = self.callers.pop_first()
        {
            self.refused(&oldest, "too many connections wait for their handshake");
        }
        let token = self.next;
        self.next += 1;
        let ready = stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true)).and_then(|()| {
            let data = epoll::EventData::new_u64(token);
            Ok(epoll::add(&self.epoll, &stream, data, epoll::EventFlags::IN)?)
        });
        match ready {
            Ok(()) => {
                let deadline = Deadline::after(HANDSHAKE_TIME);
                self.callers.insert(token, Greeter::new(stream.into(), from.to_string(), deadline));
            }
            Err(e) => (self.log)(Level::Warn, &format!("bootstrap root: cannot serve {from}: {e}")),
        }
    }

    /// A caller that went again, or nothing left to serve it with: ranks may come later, until the time limit.
    fn accept_failed(&mut self, e: &std::io::Error) {
        match service::accept_error(e) {
            AcceptError::None => {}
            AcceptError::OfCaller => {
                (self.log)(Level::Warn, &format!("bootstrap root: cannot accept a connection: {e}"));
            }
            AcceptError::Starved => {
                let remedy = service::accept_remedy(e);
                if self.starved.is_none() {
                    let text = format!("bootstrap root: cannot accept a connection, will try again: {e}{remedy}");
                    (self.log)(Level::Warn, &text);
                }
                self.starved = Some(format!("{e}{remedy}"));
                self.deaf_until = Some(Deadline::after(DEAF));
                // An armed listener would wake the thread for ever.
                for listener in &self.listeners {
                    let _ = epoll::delete(&self.epoll, listener);
                }
            }
        }
    }

    /// Listens again.
    fn hear(&mut self) {
        self.deaf_until = None;
        for (i, listener) in self.listeners.iter().enumerate() {
            let data = epoll::EventData::new_u64(i as u64);
            if let Err(e) = epoll::add(&self.epoll, listener, data, epoll::EventFlags::IN) {
                (self.log)(Level::Warn, &format!("bootstrap root: cannot listen any more: {e}"));
            }
        }
    }

    fn refused(&self, greeter: &Greeter, why: &str) {
        let _ = epoll::delete(&self.epoll, greeter.fd());
        (self.log)(Level::Warn, &format!("bootstrap root: refused a connection from {}: {why}", greeter.from()));
    }

    fn greet(&mut self, token: u64) {
        let Some(mut greeter) = self.callers.remove(&token) else { return };
        let (hash, key) = (self.hash, &self.key);
        match greeter.advance(&|h| (h.kind == Kind::Root && h.comm_hash == hash).then(|| key.clone())) {
            Greeting::Waiting => {
                self.callers.insert(token, greeter);
            }
            Greeting::Refused(why) => self.refused(&greeter, &why),
            Greeting::Welcome(hello) => {
                let (fd, from) = greeter.into_fd();
                self.join(token, fd.into(), &from, &hello);
            }
        }
    }

    fn join(&mut self, token: u64, stream: TcpStream, from: &str, hello: &Hello) {
        let (rank, ranks) = (hello.from, hello.argument as u32);
        let parts = Parts { ranks: ranks as usize, roots: hello.to.clamp(1, ranks.max(1)) as usize };
        self.joined += 1;
        let mut member = Member {
            stream,
            rank,
            name: format!("rank {rank} (at {from})"),
            own: false,
            input: Vec::new(),
            given: None,
            output: Vec::new(),
            waits_for_room: false,
        };
        if ranks == 0 {
            return self.withdrawn();
        }
        let too_many = parts.ranks > MOST_RANKS;
        if self.guests == 0 && !too_many {
            self.parts = parts;
            self.part = if hello.purpose == DELEGATE { 0 } else { parts.of(rank as usize) };
            self.guests = parts.guest_count(self.part);
            self.limit = Duration::from_millis(hello.argument >> 32);
            self.deadline = Deadline::after(self.limit);
        }
        if let Some(text) = &self.failure {
            member.output.push((text.clone(), 0));
        }
        let earlier = self.by_rank.insert(rank, token);
        let name = member.name.clone();
        self.members.insert(token, member);
        if self.failure.is_some() {
            return self.flush(token);
        }
        if too_many {
            let text = format!("{name} was initialised with {ranks} ranks; {MOST_RANKS} are the most that can meet");
            self.fail(ResultCode::InvalidUsage, &text);
        } else if parts != self.parts {
            let text = format!(
                "the ranks of a communicator disagree on their number: {name} was initialised with {ranks} ranks and \
                 {} id(s), others with {} and {}. Give every rank the same number and its own unique id per communicator",
                parts.roots, self.parts.ranks, self.parts.roots
            );
            self.fail(ResultCode::InvalidUsage, &text);
        } else if !parts.is_guest(self.part, rank as usize) {
            let text = format!("{name} came to the root of other ranks: the ranks have different lists of ids");
            self.fail(ResultCode::InvalidUsage, &text);
        } else if let Some(other) = earlier.and_then(|t| self.members.get(&t)) {
            let text = format!("two processes or threads were initialised as the same rank: {} and {name}", other.name);
            self.fail(ResultCode::InvalidUsage, &text);
        } else {
            // What came with the handshake was not read yet.
            self.serve(token);
        }
    }

    /// Nobody shall meet here: the id was made for new ranks of a communicator that is no more.
    fn withdrawn(&mut self) {
        self.fail(
            ResultCode::RemoteError,
            "the communicator that the id was made for was destroyed or aborted before it grew",
        );
        if self.members.is_empty() {
            self.deadline = Deadline::after(Duration::ZERO);
        }
    }

    fn serve(&mut self, token: u64) {
        if self.members.get(&token).is_some_and(|m| !m.output.is_empty()) {
            self.flush(token);
        }
        let mut chunk = [0; 16 << 10];
        loop {
            let Some(member) = self.members.get_mut(&token) else { return };
            match rustix::net::recv(&member.stream, &mut chunk[..], RecvFlags::DONTWAIT) {
                Ok((0, _)) => return self.lost(token, "closed its connection (its process probably died)"),
                Ok((n, _)) => {
                    member.input.extend_from_slice(&chunk[..n]);
                    if let Err(why) = self.frames(token) {
                        return self.lost(token, &why);
                    }
                }
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR) => {}
                Err(e) => return self.lost(token, &e.to_string()),
            }
        }
    }

    /// Takes whole frames out of what a member sent; an error ends the membership.
    fn frames(&mut self, token: u64) -> Result<(), String> {
        loop {
            let Some(member) = self.members.get_mut(&token) else { return Ok(()) };
            let Some(first) = member.input.first_chunk::<HEAD>() else { return Ok(()) };
            let (len, kind) = wire::head(first);
            let most = if self.parts.roots > 1 { MOST_FROM_ROOT } else { MOST_FROM_RANK };
            if len == 0 || len > most {
                return Err(format!("sent a message of {len} bytes"));
            }
            if member.input.len() < HEAD + len {
                return Ok(());
            }
            let rest = member.input.split_off(HEAD + len);
            let body = std::mem::replace(&mut member.input, rest).split_off(HEAD);
            match kind {
                LEAVE => return Err(format!("gave up: {}", String::from_utf8_lossy(&body))),
                RELAY => {
                    let code = ResultCode::from_c(i32::from(body[0])).unwrap_or(ResultCode::RemoteError);
                    self.fail(code, &String::from_utf8_lossy(&body[1..]));
                    return Ok(());
                }
                ROUND if body[0] == self.round && member.given.is_none() => {
                    if self.round == 0
                        && let Some(info) = Info::decode(&body[1..])
                    {
                        member.name =
                            format!("rank {} (host {}, process {})", member.rank, info.peer.host, info.peer.pid);
                        // Who is taken for one of this process, in a container say, is told a little later; no more.
                        member.own = info.peer.pid == std::process::id();
                    }
                    member.given = Some(body);
                    self.arrived += 1;
                    if self.arrived as usize == self.guests {
                        self.answer();
                    }
                }
                _ => return Err("sent a message out of turn".into()),
            }
        }
    }

    /// All have contributed: everybody gets everything, in the last round those of this process when the others have it.
    fn answer(&mut self) {
        if self.failure.is_some() {
            return;
        }
        let mut order: Vec<(u32, u64)> = self.by_rank.iter().map(|(r, t)| (*r, *t)).collect();
        order.sort_unstable();
        let mut all = Vec::new();
        for (_, token) in &order {
            let given = self.members.get_mut(token).and_then(|m| m.given.take()).unwrap_or_default();
            let bytes = given.get(1..).unwrap_or_default();
            all.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
            all.extend_from_slice(bytes);
        }
        let message: Arc<[u8]> = wire::frame(RESULT, &[&[self.round], &self.nonce, &all]).into();
        self.round += 1;
        self.arrived = 0;
        let last = self.round == self.parts.rounds(self.part);
        for (_, token) in order {
            if let Some(member) = self.members.get_mut(&token) {
                member.output.push((message.clone(), 0));
                if last && member.own {
                    self.held.push(token);
                }
            }
            self.flush(token);
        }
    }

    /// Tells those of this process the last of it when all others have it, or it has failed.
    fn release(&mut self) {
        let waits = |(token, m): (&u64, &Member)| !m.output.is_empty() && !self.held.contains(token);
        if self.held.is_empty() || (self.failure.is_none() && self.members.iter().any(waits)) {
            return;
        }
        for token in std::mem::take(&mut self.held) {
            self.flush(token);
        }
    }

    /// Sends what the socket takes; the rest when there is room.
    fn flush(&mut self, token: u64) {
        if self.held.contains(&token) {
            return;
        }
        let Some(member) = self.members.get_mut(&token) else { return };
        while let Some((bytes, done)) = member.output.first_mut() {
            match rustix::net::send(&member.stream, &bytes[*done..], SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Ok(n) => *done += n,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(e) => return self.lost(token, &e.to_string()),
            }
            if *done == bytes.len() {
                member.output.remove(0);
            }
        }
        let full = !member.output.is_empty();
        if full != member.waits_for_room {
            member.waits_for_room = full;
            let flags = if full { epoll::EventFlags::IN | epoll::EventFlags::OUT } else { epoll::EventFlags::IN };
            let _ = epoll::modify(&self.epoll, &member.stream, epoll::EventData::new_u64(token), flags);
        }
        if !full && (self.round == self.parts.rounds(self.part) || self.failure.is_some()) {
            self.done(token);
        }
    }

    /// A member has all it will get.
    fn done(&mut self, token: u64) {
        if let Some(member) = self.members.remove(&token) {
            // Closing it does not do that while a forked process has it too; here and for the others.
            let _ = epoll::delete(&self.epoll, &member.stream);
            self.count(member.rank);
            // Unread input would turn our close into a reset that destroys what we sent.
            let mut chunk = [0; 4096];
            while matches!(rustix::net::recv(&member.stream, &mut chunk[..], RecvFlags::DONTWAIT), Ok((n, _)) if n > 0)
            {
            }
        }
    }

    fn count(&mut self, rank: u32) {
        if self.parts.is_guest(self.part, rank as usize) {
            self.served.insert(rank);
        }
    }

    fn lost(&mut self, token: u64, why: &str) {
        let Some(member) = self.members.remove(&token) else { return };
        let _ = epoll::delete(&self.epoll, &member.stream);
        self.count(member.rank);
        if self.failure.is_none() {
            let text = format!(
                "{} was lost during the initialisation of the communicator: it {why}. Look for the first error in \
                 that rank's output",
                member.name
            );
            self.fail(ResultCode::RemoteError, &text);
        }
    }

    /// Tells everybody, now and later.
    fn fail(&mut self, code: ResultCode, text: &str) {
        if self.failure.is_some() {
            return;
        }
        let message: Arc<[u8]> = wire::frame(FAILED, &[&[code as u8], text.as_bytes()]).into();
        self.failure = Some(message.clone());
        self.deadline = self.deadline.min(Deadline::after(LINGER)).max(Deadline::after(Duration::from_secs(1)));
        let tokens: Vec<u64> = self.members.keys().copied().collect();
        for token in tokens {
            if let Some(member) = self.members.get_mut(&token) {
                member.output.push((message.clone(), 0));
            }
            self.flush(token);
        }
    }

    fn expire(&mut self) {
        if self.deaf_until.is_some_and(Deadline::passed) {
            self.hear();
        }
        let late: Vec<u64> = self.callers.iter().filter(|(_, g)| g.deadline.passed()).map(|(t, _)| *t).collect();
        for token in late {
            if let Some(greeter) = self.callers.remove(&token) {
                self.refused(&greeter, "it did not prove itself in time");
            }
        }
        if self.failure.is_some() || !self.deadline.passed() {
            return;
        }
        if self.guests == 0 {
            let text = "no rank connected before the time limit (OXCCL_INIT_TIMEOUT)";
            (self.log)(Level::Warn, &format!("bootstrap root: {text}"));
            return self.fail(ResultCode::RemoteError, text);
        }
        let silent = |rank: &u32| {
            let member = self.by_rank.get(rank).and_then(|t| self.members.get(t));
            member.is_none_or(|m| m.given.is_none())
        };
        let missing: Vec<u32> = self.parts.guests(self.part).map(|r| r as u32).filter(silent).collect();
        let did = if self.round == 0 { "did not connect" } else { "did not answer" };
        let starved = self.starved.as_ref().map(|e| format!(". The root could not accept connections: {e}"));
        let text = format!(
            "timeout: {} of {} ranks {did} within {:.1} s (OXCCL_INIT_TIMEOUT): rank {}. They may not have been \
             started, have another unique id, or cannot reach the root (firewall, NCCL_SOCKET_IFNAME){}",
            missing.len(),
            self.guests,
            self.limit.as_secs_f64(),
            rank_list(&missing),
            starved.unwrap_or_default(),
        );
        self.fail(ResultCode::RemoteError, &text);
    }
}
