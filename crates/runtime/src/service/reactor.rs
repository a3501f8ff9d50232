//! The thread of the service and its `epoll` set: listeners, callers in their handshake, watched descriptors.

use std::collections::HashMap;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use oxccl_sys::forked::end_with_process;
use oxccl_sys::sync::{AtomicU64, Ordering};
use oxccl_sys::{Deadline, unix};
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use super::auth::{Greeter, Greeting, Hello, Kind};
use super::inbox::Incoming;
use super::{CONTROL, HANDSHAKE_TIME, Level, Service, locked};

/// Callers in their handshake at one time; the oldest gives way.
const MOST_CALLERS: usize = 512;

/// The same trouble within this time is one for people: callers of one host that are refused for one reason, or none that can be
/// accepted.
const REPEATED: Duration = Duration::from_secs(1);

/// How long who has nothing left to accept connections with does not try.
pub(crate) const DEAF: Duration = Duration::from_millis(100);

/// What a failed `accept` means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AcceptError {
    /// Nobody is there any more.
    None,
    /// This caller is lost; the next one may be served.
    OfCaller,
    /// Descriptors or memory are used up: nobody can be served for now.
    Starved,
}

/// Which it is.
pub(crate) fn accept_error(e: &io::Error) -> AcceptError {
    if e.kind() == io::ErrorKind::WouldBlock || e.kind() == io::ErrorKind::Interrupted {
        return AcceptError::None;
    }
    // Those that the kernel hands on from a connection that has broken meanwhile, or that a firewall forbids.
    let of_caller =
        [Errno::CONNABORTED, Errno::PROTO, Errno::PERM, Errno::NETDOWN, Errno::NETUNREACH, Errno::HOSTUNREACH];
    let of_caller = of_caller.iter().any(|n| e.raw_os_error() == Some(n.raw_os_error()));
    if of_caller { AcceptError::OfCaller } else { AcceptError::Starved }
}

/// What to do about it, as the end of a line; empty where nobody here can do anything.
pub(crate) fn accept_remedy(e: &io::Error) -> &'static str {
    match Errno::from_io_error(e) {
        Some(Errno::MFILE) => {
            ". The process has as many open files as it may: raise the limit (ulimit -n, also the hard one, ulimit -Hn), or close some"
        }
        Some(Errno::NFILE) => ". The machine has as many open files as it may: raise fs.file-max, or end what has them",
        Some(Errno::NOMEM | Errno::NOBUFS) => ". The machine's memory is used up, or that which this job may have",
        _ => "",
    }
}

/// What was told to people last, and until when the same again is for the diagnosis only.
#[derive(Default)]
struct Told(Option<(String, Deadline)>);

impl Told {
    fn level(&mut self, what: String) -> Level {
        if self.0.as_ref().is_some_and(|(told, until)| *told == what && !until.passed()) {
            return Level::Info;
        }
        self.0 = Some((what, Deadline::after(REPEATED)));
        Level::Warn
    }
}

const UNIX: u64 = 0;
const TCP: u64 = 1;
const FIRST: u64 = 2;

type Ready = Arc<dyn Fn() -> bool + Send + Sync>;

/// The part of the service that its thread and the watchers share.
pub(super) struct Reactor {
    epoll: OwnedFd,
    next: AtomicU64,
    watched: Mutex<HashMap<u64, (Arc<OwnedFd>, Ready)>>,
}

/// A watch; dropping it ends the watch.
#[must_use = "dropping the guard ends the watch"]
pub struct WatchGuard {
    service: Weak<Service>,
    token: u64,
}

impl Drop for WatchGuard {
    fn drop(&mut self) {
        if let Some(service) = self.service.upgrade() {
            service.reactor.unwatch(self.token);
        }
    }
}

impl Reactor {
    pub(super) fn new() -> io::Result<Reactor> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Reactor { epoll, next: AtomicU64::new(FIRST), watched: Mutex::default() })
    }

    fn add(&self, fd: impl AsFd, token: u64) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, fd, epoll::EventData::new_u64(token), epoll::EventFlags::IN)?)
    }

    fn token(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn watch(service: &Arc<Service>, fd: Arc<OwnedFd>, ready: Ready) -> io::Result<WatchGuard> {
        let me = &service.reactor;
        let token = me.token();
        locked(&me.watched).insert(token, (fd.clone(), ready));
        if let Err(e) = me.add(&*fd, token) {
            locked(&me.watched).remove(&token);
            return Err(e);
        }
        Ok(WatchGuard { service: Arc::downgrade(service), token })
    }

    fn unwatch(&self, token: u64) {
        let gone = locked(&self.watched).remove(&token);
        if let Some((fd, _)) = &gone {
            let _ = epoll::delete(&self.epoll, &**fd);
        }
        // What the callback holds is dropped here, without the lock.
        drop(gone);
    }

    /// Calls who watches `token`; what it said, if it panicked: its watch ends then.
    fn fire(&self, token: u64) -> Result<(), String> {
        let Some(ready) = locked(&self.watched).get(&token).map(|w| w.1.clone()) else { return Ok(()) };
        let goes_on = caught(|| ready());
        if !matches!(goes_on, Ok(true)) {
            self.unwatch(token);
        }
        goes_on.map(|_| ())
    }
}

/// What `f` gives, or with what words it panicked. The thread serves all communicators of the process: a defect in what one of
/// them does here must not end it for the others. Locks that `f` held are taken all the same (`locked`).
fn caught<T>(f: impl FnOnce() -> T) -> Result<T, String> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no text").to_owned()
    })
}

/// Starts the thread. It lives as long as the process.
pub(super) fn spawn(service: Arc<Service>, unix: UnixListener, tcp: TcpListener) -> io::Result<()> {
    unix.set_nonblocking(true)?;
    service.reactor.add(&unix, UNIX)?;
    service.reactor.add(&tcp, TCP)?;
    let (refused, unheard) = (Told::default(), Told::default());
    let mut callers = Callers { service, unix, tcp, greeting: HashMap::new(), deaf_until: None, refused, unheard };
    oxccl_sys::process::with_signals_blocked(|| {
        std::thread::Builder::new().name("oxccl-service".into()).spawn(move || callers.run())
    })?;
    Ok(())
}

/// What only the thread knows.
struct Callers {
    service: Arc<Service>,
    unix: UnixListener,
    tcp: TcpListener,
    greeting: HashMap<u64, Greeter>,
    /// Set while no descriptors are left: the listeners are not asked before.
    deaf_until: Option<Deadline>,
    /// From where the last caller was refused, and why: who was hung up on calls again.
    refused: Told,
    /// Why the last caller could not be accepted.
    unheard: Told,
}

impl Callers {
    fn run(&mut self) {
        let empty = epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };
        let mut events = [empty; 64];
        loop {
            let wait = self.next_deadline().map(|d| d.left() + Duration::from_millis(1));
            let wait = wait.and_then(|d| Timespec::try_from(d).ok());
            let n = match epoll::wait(&self.service.reactor.epoll, &mut events[..], wait.as_ref()) {
                Ok(n) => n,
                Err(Errno::INTR) => 0,
                Err(e) => {
                    // Only a programme that closed our descriptor gets here.
                    self.service.log(Level::Warn, &format!("service thread: epoll failed, it ends: {e}"));
                    return;
                }
            };
            let mut ready = [0; 64];
            for (token, event) in ready.iter_mut().zip(&events[..n]) {
                *token = event.data.u64();
            }
            for token in &ready[..n] {
                match *token {
                    UNIX => self.accept_unix(),
                    TCP => self.accept_tcp(),
                    token if self.greeting.contains_key(&token) => self.advance(token),
                    token => {
                        if let Err(panic) = self.service.reactor.fire(token) {
                            self.say_panicked("who watches a descriptor", &panic);
                        }
                    }
                }
            }
            self.expire();
        }
    }

    fn say_panicked(&self, what: &str, panic: &str) {
        self.service
            .log(Level::Warn, &format!("service thread: {what} panicked: {panic}; this is a defect of the library"));
    }

    fn next_deadline(&self) -> Option<Deadline> {
        self.greeting.values().map(|g| g.deadline).chain(self.deaf_until).min()
    }

    fn expire(&mut self) {
        if self.deaf_until.is_some_and(Deadline::passed) {
            self.deaf_until = None;
            self.hear();
        }
        let late: Vec<u64> = self.greeting.iter().filter(|(_, g)| g.deadline.passed()).map(|(t, _)| *t).collect();
        for token in late {
            self.refuse(token, "it did not prove itself in time");
        }
    }

    fn hear(&self) {
        for (result, what) in
            [(self.service.reactor.add(&self.unix, UNIX), "unix"), (self.service.reactor.add(&self.tcp, TCP), "TCP")]
        {
            if let Err(e) = result {
                self.service.log(Level::Warn, &format!("service thread: cannot listen on its {what} socket: {e}"));
            }
        }
    }

    /// Out of descriptors: an armed listener would wake the thread for ever.
    fn accept_failed(&mut self, e: &io::Error) {
        let error = accept_error(e);
        if error == AcceptError::None {
            return;
        }
        let level = self.unheard.level(e.to_string());
        let remedy = accept_remedy(e);
        self.service.log(level, &format!("service thread: cannot accept a connection: {e}{remedy}"));
        if error == AcceptError::Starved && self.deaf_until.is_none() {
            self.deaf_until = Some(Deadline::after(DEAF));
            let _ = epoll::delete(&self.service.reactor.epoll, &self.unix);
            let _ = epoll::delete(&self.service.reactor.epoll, &self.tcp);
        }
    }

    fn accept_unix(&mut self) {
        match self.unix.accept() {
            Ok((stream, _)) => {
                end_with_process(&stream);
                let who = unix::peer_credentials(&stream).map_or(0, |c| c.pid);
                if stream.set_nonblocking(true).is_ok() {
                    self.greet(stream.into(), format!("process {who}"));
                }
            }
            Err(e) => self.accept_failed(&e),
        }
    }

    fn accept_tcp(&mut self) {
        match self.tcp.accept() {
            Ok((stream, from)) => {
                end_with_process(&stream);
                super::io::notice_silence(&stream);
                if stream.set_nonblocking(true).is_ok() && stream.set_nodelay(true).is_ok() {
                    self.greet(stream.into(), from.to_string());
                }
            }
            Err(e) => self.accept_failed(&e),
        }
    }

    fn greet(&mut self, fd: OwnedFd, from: String) {
        if self.greeting.len() >= MOST_CALLERS
            && let Some(oldest) = self.greeting.keys().min().copied()
        {
            self.refuse(oldest, "too many connections wait for their handshake");
        }
        let token = self.service.reactor.token();
        match self.service.reactor.add(&fd, token) {
            Ok(()) => {
                self.greeting.insert(token, Greeter::new(fd, from, Deadline::after(HANDSHAKE_TIME)));
            }
            Err(e) => self.service.log(Level::Warn, &format!("service thread: cannot serve {from}: {e}")),
        }
    }

    fn refuse(&mut self, token: u64, why: &str) {
        if let Some(greeter) = self.greeting.remove(&token) {
            // Closing the descriptor does not take it out while a forked process has it too.
            let _ = epoll::delete(&self.service.reactor.epoll, greeter.fd());
            let from = greeter.from();
            // Without the port, which is another one each time.
            let host = from.rsplit_once(':').map_or(from, |(host, _)| host);
            let level = self.refused.level(format!("{host}: {why}"));
            self.service.log(level, &format!("refused a connection from {from}: {why}"));
        }
    }

    fn advance(&mut self, token: u64) {
        let Some(greeter) = self.greeting.get_mut(&token) else { return };
        let tables = &self.service.tables;
        let known = |hello: &Hello| {
            let wanted = hello.kind != Kind::Root;
            locked(tables).keys.get(&hello.comm_hash).filter(|_| wanted).map(|k| k.0.clone())
        };
        match greeter.advance(&known) {
            Greeting::Waiting => {}
            Greeting::Refused(why) => self.refuse(token, &why),
            Greeting::Welcome(hello) => {
                let Some(greeter) = self.greeting.remove(&token) else { return };
                let _ = epoll::delete(&self.service.reactor.epoll, greeter.fd());
                let (fd, from) = greeter.into_fd();
                if let Err(why) = self.serve(fd, &hello) {
                    self.service.log(Level::Warn, &format!("cannot serve {from}: {why}"));
                }
            }
        }
    }

    fn serve(&self, fd: OwnedFd, hello: &Hello) -> Result<(), String> {
        if hello.kind == Kind::Fetch {
            let found = locked(&self.service.tables).segments.get(&hello.argument).cloned();
            let segment = found.ok_or_else(|| format!("no segment {:#x} is published here", hello.argument))?;
            return unix::send_with_fds(&UnixStream::from(fd), &[0], &[segment.as_fd()]).map_err(|e| e.to_string());
        }
        let stream = TcpStream::from(fd);
        let name = (hello.comm_hash, hello.to, hello.purpose == CONTROL);
        let inbox = locked(&self.service.tables).inboxes.get(&name).cloned();
        let inbox = inbox.ok_or_else(|| format!("rank {} of its communicator is not in this process", hello.to))?;
        let sent = rustix::net::send(&stream, &[0], rustix::net::SendFlags::NOSIGNAL);
        sent.map_err(|e| e.to_string())?;
        let incoming = Incoming { from: hello.from, purpose: hello.purpose, stream };
        match caught(|| inbox.push(incoming)) {
            Ok(true) => Ok(()),
            Ok(false) => Err(format!("rank {} has too many connections that it did not take", hello.to)),
            Err(panic) => Err(format!("rank {} panicked over it: {panic}; this is a defect of the library", hello.to)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_trouble_again_is_for_the_diagnosis() {
        let mut told = Told::default();
        let says = |told: &mut Told, what: &str| told.level(what.to_owned()) == Level::Warn;
        assert!(says(&mut told, "a") && !says(&mut told, "a") && !says(&mut told, "a"));
        assert!(says(&mut told, "b") && says(&mut told, "a"), "something else");
        told.0 = Some(("a".to_owned(), Deadline::after(Duration::ZERO)));
        assert!(says(&mut told, "a"), "after a while");
    }

    #[test]
    fn who_has_no_descriptors_left_learns_what_to_do() {
        let of = |errno: Errno| io::Error::from_raw_os_error(errno.raw_os_error());
        assert!(accept_remedy(&of(Errno::MFILE)).contains("ulimit -n"));
        assert_eq!(accept_remedy(&of(Errno::CONNABORTED)), "");
        assert_eq!(accept_error(&of(Errno::MFILE)), AcceptError::Starved);
    }
}
