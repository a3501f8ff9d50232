//! The service of this process: one thread that hands descriptors to peers, hears of their deaths, and accepts
//! their connections. Started by the first communicator, parked in `epoll` from then on.
//!
//! It never blocks on a peer: strangers and slow callers cost a small buffer until their time is over. It moves no
//! data of collectives; the one-sided writes of ranks elsewhere are handed to their communicator here.

pub mod auth;
mod dial;
pub mod inbox;
pub mod interfaces;
pub mod io;
mod reactor;

use std::collections::HashMap;
use std::net::{SocketAddr, SocketAddrV6, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;

use oxccl_sys::forked::end_with_process;
use oxccl_sys::sync::AtomicBool;
use oxccl_sys::{Deadline, pacing, unix};
use oxccl_types::{Error, Result};

pub use auth::CommKey;
pub(crate) use dial::Dial;
pub use inbox::{Inbox, Incoming};
pub use reactor::WatchGuard;
pub(crate) use reactor::{AcceptError, DEAF, accept_error, accept_remedy};

use auth::{Hello, Kind};
use inbox::Waiting;
use interfaces::Family;
use io::Limits;
use reactor::Reactor;

/// How grave a line for the log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Something the user should know.
    Warn,
    /// For diagnosis.
    Info,
}

/// Where lines for the log go.
pub type LogFn = fn(Level, &str);

/// The segment under which every process serves a handle (pidfd) on itself.
pub const SELF_SEGMENT: u64 = 0;

/// A connection whose peer has not proved itself after this time is dropped.
const HANDSHAKE_TIME: Duration = Duration::from_secs(5);
/// How long one address is tried before the next.
pub(crate) const ADDRESS_SLICE: Duration = Duration::from_secs(2);

/// Names a process across machines.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProcessAddress {
    /// Random, chosen at the start of its service.
    pub uuid: [u8; 16],
}

impl ProcessAddress {
    /// The abstract unix socket of its service.
    pub fn socket_name(&self) -> Vec<u8> {
        format!("oxccl-{:032x}", u128::from_be_bytes(self.uuid)).into_bytes()
    }
}

/// How the service is set up; only the first communicator of the process decides.
#[derive(Clone, Debug)]
pub struct ServiceConfig {
    /// `NCCL_SOCKET_IFNAME`
    pub ifname: Option<String>,
    /// `NCCL_SOCKET_FAMILY`
    pub family: Option<Family>,
    /// Receives what the service has to say.
    pub log: LogFn,
}

/// What callers may ask for.
#[derive(Default)]
struct Tables {
    /// Keys of the live communicators and how many ranks of this process registered each.
    keys: HashMap<u64, (CommKey, usize)>,
    segments: HashMap<u64, Arc<OwnedFd>>,
    inboxes: HashMap<(u64, u32, bool), Arc<Waiting>>,
}

/// The service of this process.
pub struct Service {
    address: ProcessAddress,
    tcp: Vec<SocketAddr>,
    log: LogFn,
    tables: Mutex<Tables>,
    reactor: Reactor,
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Service({:?}, {:?})", self.address, self.tcp)
    }
}

static SERVICE: Mutex<Option<(u32, Arc<Service>)>> = Mutex::new(None);

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The tables stay consistent at every point that could panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Service {
    /// The service of this process, started on first use (again in the child after a fork).
    ///
    /// # Errors
    /// `InvalidUsage` without a network interface; `SystemError` when sockets or the thread cannot be made.
    pub fn get(config: &ServiceConfig) -> Result<Arc<Service>> {
        let pid = std::process::id();
        let mut slot = locked(&SERVICE);
        if let Some((of, service)) = &*slot
            && *of == pid
        {
            return Ok(service.clone());
        }
        let service = Service::start(config)?;
        if let Some(forked) = slot.replace((pid, service.clone())) {
            // The parent's: its thread does not exist here, and its descriptors are shared with the parent.
            std::mem::forget(forked);
        }
        Ok(service)
    }

    fn start(config: &ServiceConfig) -> Result<Arc<Service>> {
        allow_files(config.log);
        let system = |what: &str, e: std::io::Error| Error::system(format!("service thread: {what}: {e}"));
        let uuid = auth::random().map_err(|e| system("cannot get random bytes", e))?;
        let address = ProcessAddress { uuid };
        let unix =
            unix::listen_abstract(&address.socket_name()).map_err(|e| system("cannot listen on a unix socket", e))?;
        let interfaces = interfaces::choose(config.ifname.as_deref(), config.family)?;
        let tcp = listen(&interfaces[0], 0)
            .map_err(|e| system(&format!("cannot listen on {} {}", interfaces[0].name, interfaces[0].ip), e))?;
        let local = tcp.local_addr().map_err(|e| system("cannot read the address of the listener", e))?;
        (config.log)(Level::Info, &format!("Bootstrap: using {}:{local}", interfaces[0].name));
        let me = oxccl_sys::process::pidfd_of_self().map_err(|e| system("cannot open a handle on this process", e))?;
        let tables = Tables { segments: HashMap::from([(SELF_SEGMENT, Arc::new(me))]), ..Tables::default() };
        let reactor = Reactor::new().map_err(|e| system("cannot make an epoll set", e))?;
        let service =
            Arc::new(Service { address, tcp: vec![local], log: config.log, tables: Mutex::new(tables), reactor });
        reactor::spawn(service.clone(), unix, tcp).map_err(|e| system("cannot start the thread", e))?;
        Ok(service)
    }

    /// The name of this process.
    pub fn address(&self) -> &ProcessAddress {
        &self.address
    }

    /// Where [`dial`] reaches this process.
    pub fn tcp(&self) -> &[SocketAddr] {
        &self.tcp
    }

    /// Serves callers that know `key`, until [`Service::forget_key`] was called as often.
    pub fn register_key(&self, comm_hash: u64, key: &CommKey) {
        locked(&self.tables).keys.entry(comm_hash).or_insert_with(|| (key.clone(), 0)).1 += 1;
    }

    /// Takes one registration back.
    pub fn forget_key(&self, comm_hash: u64) {
        let mut tables = locked(&self.tables);
        if let Some((_, users)) = tables.keys.get_mut(&comm_hash) {
            *users -= 1;
            if *users == 0 {
                tables.keys.remove(&comm_hash);
            }
        }
    }

    /// Hands `fd` to every peer that fetches `segment` (not 0; choose it at random).
    pub fn publish(&self, segment: u64, fd: OwnedFd) {
        locked(&self.tables).segments.insert(segment, Arc::new(fd));
    }

    /// Ends that; who has fetched it keeps it.
    pub fn withdraw(&self, segment: u64) {
        locked(&self.tables).segments.remove(&segment);
    }

    /// Calls `on_death` on the service's thread, once, soon after the process behind `pidfd` ended. It must not
    /// block. Dropping the guard ends the watch; a call under way goes on.
    ///
    /// # Errors
    /// `SystemError` when the descriptor cannot be watched.
    pub fn watch(self: &Arc<Self>, pidfd: OwnedFd, on_death: Box<dyn Fn() + Send + Sync>) -> Result<WatchGuard> {
        let once = AtomicBool::new(false);
        self.watch_readable(Arc::new(pidfd), move || {
            if !once.swap(true, oxccl_sys::sync::Ordering::AcqRel) {
                on_death();
            }
            false
        })
    }

    /// Calls `ready` on the service's thread whenever `fd` is readable or broken, until it returns false or the guard
    /// is dropped.
    pub(crate) fn watch_readable(
        self: &Arc<Self>,
        fd: Arc<OwnedFd>,
        ready: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Result<WatchGuard> {
        Reactor::watch(self, fd, Arc::new(ready))
            .map_err(|e| Error::system(format!("service thread: cannot watch a descriptor: {e}")))
    }

    /// Accepts connections to rank `to_rank` of a communicator whose key was registered. `control` keeps those of the
    /// control ring apart from those for data.
    pub(crate) fn expect_class(self: &Arc<Self>, comm_hash: u64, to_rank: u32, control: bool) -> Inbox {
        let waiting = Arc::new(Waiting::default());
        let name = (comm_hash, to_rank, control);
        locked(&self.tables).inboxes.insert(name, waiting.clone());
        Inbox::new(self.clone(), name, waiting)
    }

    /// Registers the key and accepts data connections to rank `to_rank`. Both end when the inbox is dropped.
    pub fn expect(self: &Arc<Self>, comm_hash: u64, key: &CommKey, to_rank: u32) -> Inbox {
        self.register_key(comm_hash, key);
        self.expect_class(comm_hash, to_rank, false)
    }

    fn close_inbox(&self, name: (u64, u32, bool)) {
        locked(&self.tables).inboxes.remove(&name);
        if !name.2 {
            self.forget_key(name.0);
        }
    }

    fn log(&self, level: Level, text: &str) {
        (self.log)(level, text);
    }
}

/// Lets the process open as many files as it may, once: a root and ranks have a connection for each of many peers, and the usual
/// soft limit of 1024 is soon reached.
pub(crate) fn allow_files(log: LogFn) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // Without it the job may do.
        if let Err(e) = oxccl_sys::process::raise_open_files() {
            log(Level::Info, &format!("cannot raise the limit of open files to the hard one: {e}"));
        }
    });
}

/// The purpose of the control ring's connections; data connections use smaller ones.
pub(crate) const CONTROL: u8 = 255;

/// Listens on an interface.
pub(crate) fn listen(on: &interfaces::Interface, port: u16) -> std::io::Result<TcpListener> {
    let address = match on.ip {
        std::net::IpAddr::V4(ip) => SocketAddr::from((ip, port)),
        std::net::IpAddr::V6(ip) => SocketAddr::V6(SocketAddrV6::new(ip, port, 0, on.scope)),
    };
    listen_at(&address)
}

/// Listens on an address, with a queue for thousands of callers.
pub(crate) fn listen_at(address: &SocketAddr) -> std::io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    end_with_process(&listener);
    // A hint, as for what is connected to.
    let _ = pacing::leave_out(&listener);
    rustix::net::listen(&listener, 4096)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Fetches the descriptor that `process` (of this machine) published as `segment`. Who is refused does not try again where `over` says that
/// this is of no use any more.
///
/// # Errors
/// `RemoteError` when the process is gone, does not know the key or the segment, or does not answer in time.
pub fn fetch(
    process: &ProcessAddress,
    comm_hash: u64,
    key: &CommKey,
    segment: u64,
    limits: &Limits<'_>,
    over: impl Fn() -> bool,
) -> Result<OwnedFd> {
    let go = || -> std::io::Result<OwnedFd> {
        // Whoever calls looks around now and then.
        let limits = &Limits { deadline: Deadline::after(limits.deadline.slice(HANDSHAKE_TIME)), ..*limits };
        limits.check()?;
        let stream = unix::connect_abstract(&process.socket_name(), limits.deadline)?;
        let hello = Hello { kind: Kind::Fetch, purpose: 0, comm_hash, from: 0, to: 0, argument: segment };
        auth::call(&stream, key, &hello, limits)?;
        limits.wait(&stream, rustix::event::PollFlags::IN)?;
        let fds = unix::recv_with_fds(&stream, &mut [0], 1).map_err(|e| match e.kind() {
            std::io::ErrorKind::UnexpectedEof => std::io::Error::new(e.kind(), "it does not publish that"),
            _ => e,
        })?;
        fds.into_iter().next().ok_or_else(|| std::io::ErrorKind::UnexpectedEof.into())
    };
    persistently(limits, over, go).map_err(|e| {
        let name = String::from_utf8_lossy(&process.socket_name()).into_owned();
        Error::remote(format!("cannot fetch memory {segment:#x} from the process at @{name}: {e}"))
    })
}

/// Calls who hung up amid the handshake so many times: a busy listener drops its oldest callers, and of a process that ended
/// the next call hears.
pub(crate) const CALLS: u32 = 5;

/// Whether a call that failed is made again: while nothing is heard of the listener, since what calls a busy one may be lost on the way,
/// for as long as it takes to notice that a host is gone; and a few times if it hung up. Where nobody listens any more, or
/// the listener says no, not at all.
struct Persistence {
    patience: Deadline,
    calls: u32,
    pause: Duration,
}

impl Persistence {
    /// Longest pause between two calls.
    const LONGEST: Duration = Duration::from_millis(100);

    /// Of calls that are over at `deadline`.
    fn new(deadline: Deadline) -> Persistence {
        let patience = Deadline::after(deadline.slice(io::SILENCE));
        Persistence { patience, calls: 1, pause: Duration::from_millis(10) }
    }

    /// How long to wait before the next call, after one that failed so; `None`: it is the last one.
    fn after(&mut self, error: &std::io::Error) -> Option<Duration> {
        use std::io::ErrorKind::{ConnectionReset, HostUnreachable, NetworkUnreachable, TimedOut};
        let again = match error.kind() {
            TimedOut | HostUnreachable | NetworkUnreachable => !self.patience.passed(),
            ConnectionReset => self.calls < CALLS,
            _ => false,
        };
        let pause = self.pause;
        (self.calls, self.pause) = (self.calls + 1, (3 * pause).min(Persistence::LONGEST));
        again.then_some(pause)
    }
}

/// What `attempt` gives, which is made again as [`Persistence`] says; of a process of this machine that says nothing until the end: it is
/// stopped, in a debugger say, and answers when it goes on. The hang-up of one that ends is heard.
fn persistently<T>(
    limits: &Limits<'_>,
    over: impl Fn() -> bool,
    attempt: impl Fn() -> std::io::Result<T>,
) -> std::io::Result<T> {
    let mut persistence = Persistence { patience: limits.deadline, ..Persistence::new(limits.deadline) };
    loop {
        let error = match attempt() {
            Ok(done) => return Ok(done),
            Err(error) => error,
        };
        match persistence.after(&error) {
            Some(pause) if !over() && limits.check().is_ok() => limits.pause(pause),
            _ => return Err(error),
        }
    }
}

/// Who dials whom.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// Names the communicator.
    pub comm_hash: u64,
    /// The calling rank.
    pub from: u32,
    /// The rank called.
    pub to: u32,
    /// What for; 255 is taken. Arrives with the connection.
    pub purpose: u8,
}

/// Connects to rank `route.to`, whose service listens on `addresses` (tried in turn). The stream is non-blocking,
/// without Nagle's delay, and both sides have proved that they know the key.
///
/// # Errors
/// `RemoteError` when the peer cannot be reached, refuses, or does not answer before the deadline; or after an abort.
pub fn dial(addresses: &[SocketAddr], key: &CommKey, route: Route, limits: &Limits<'_>) -> Result<TcpStream> {
    dial_unless(addresses, key, route, limits, || Ok(()))
}

/// As [`dial`], until there is something that makes it of no use any more, which `over` is asked for now and then.
///
/// # Errors
/// As [`dial`]; what `over` says.
pub(crate) fn dial_unless(
    addresses: &[SocketAddr],
    key: &CommKey,
    route: Route,
    limits: &Limits<'_>,
    over: impl Fn() -> Result<()>,
) -> Result<TcpStream> {
    let mut dial = Dial::new(addresses, key, route, limits.deadline);
    loop {
        if let Some(stream) = dial.poll()? {
            return Ok(stream);
        }
        over()?;
        dial.wait(limits).map_err(|e| dial.told(&e))?;
    }
}

/// As [`dial`], with the error as it is.
pub(crate) fn try_dial(
    addresses: &[SocketAddr],
    key: &CommKey,
    route: Route,
    limits: &Limits<'_>,
) -> std::io::Result<TcpStream> {
    let mut dial = Dial::new(addresses, key, route, limits.deadline);
    loop {
        limits.check()?;
        if let Some(stream) = dial.try_poll()? {
            return Ok(stream);
        }
        dial.wait(limits)?;
    }
}

#[cfg(test)]
mod tests;
