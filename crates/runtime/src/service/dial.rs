//! A call of another rank's service that never blocks: whoever waits for something else besides polls it.
//!
//! It is made again as [`Persistence`] says.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use oxccl_sys::{Deadline, clock};
use oxccl_types::{Error, Result};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::RecvFlags;

use super::auth::{Caller, CommKey, Hello, Kind};
use super::io::{self as bounded, Limits};
use super::{ADDRESS_SLICE, HANDSHAKE_TIME, Persistence, Route};

/// Whoever has not polled a call for so long finds a listener that has given it up.
const STALE: Duration = Duration::from_millis(HANDSHAKE_TIME.as_millis() as u64 / 2);

/// One call.
pub(crate) struct Dial {
    addresses: Vec<SocketAddr>,
    key: CommKey,
    route: Route,
    /// How long it may take, and until when that is.
    time: Duration,
    deadline: Deadline,
    /// When it was polled last, ns.
    polled: u64,
    persistence: Persistence,
    state: State,
}

enum State {
    /// Nothing is tried before.
    Pause(Deadline),
    /// To the address of that number, until then.
    Connects(usize, OwnedFd, Deadline),
    Proves(TcpStream, Caller),
    /// The listener gives the connection to the rank that is called.
    Arrives(TcpStream),
}

impl Dial {
    /// Calls rank `route.to`, whose service listens on `addresses` (tried in turn), until `deadline`.
    pub(crate) fn new(addresses: &[SocketAddr], key: &CommKey, route: Route, deadline: Deadline) -> Dial {
        Dial {
            addresses: addresses.to_vec(),
            key: key.clone(),
            route,
            time: deadline.slice(Duration::MAX),
            deadline,
            polled: clock::now_ns(),
            persistence: Persistence::new(deadline),
            state: State::Pause(Deadline::after(Duration::ZERO)),
        }
    }

    /// The stream, once both sides have proved that they know the key; it is not polled again then, nor after an error. The stream is
    /// non-blocking, without Nagle's delay.
    ///
    /// # Errors
    /// `RemoteError` when the peer cannot be reached, refuses, or does not answer before the deadline.
    pub(crate) fn poll(&mut self) -> Result<Option<TcpStream>> {
        self.try_poll().map_err(|e| self.told(&e))
    }

    /// The error of the call, which `e` is the cause of.
    pub(super) fn told(&self, e: &io::Error) -> Error {
        let (Route { from, to, .. }, addresses) = (self.route, &self.addresses);
        Error::remote(format!(
            "rank {from} cannot connect to rank {to} at {addresses:?}: {e}. The process of rank {to} may have ended or \
             be stopped, or a firewall or a wrong interface (NCCL_SOCKET_IFNAME) is in between"
        ))
    }

    /// As [`poll`](Self::poll), with the error as it is.
    pub(super) fn try_poll(&mut self) -> io::Result<Option<TcpStream>> {
        let now = clock::now_ns();
        let late = now.saturating_sub(self.polled) > STALE.as_nanos() as u64;
        self.polled = now;
        if late && !self.is_proved() {
            *self = Dial::new(&self.addresses, &self.key, self.route, Deadline::after(self.time));
        }
        loop {
            match self.advance() {
                Ok(State::Arrives(stream)) => return Ok(Some(stream)),
                Ok(state) => self.state = state,
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    return if self.deadline.passed() { Err(timed_out()) } else { Ok(None) };
                }
                // The listener did not wait for us.
                Err(e) if late && e.kind() == ErrorKind::UnexpectedEof => self.state = self.after(hung_up())?,
                Err(e) => self.state = self.after(e)?,
            }
        }
    }

    /// Whether the listener may have given the connection away already.
    fn is_proved(&self) -> bool {
        matches!(&self.state, State::Proves(_, caller) if caller.is_done())
    }

    /// One state further, or [`State::Arrives`] when it has; `WouldBlock` while there is nothing to do.
    fn advance(&mut self) -> io::Result<State> {
        // What is left behind by an error is not looked at.
        match std::mem::replace(&mut self.state, State::Pause(Deadline::NEVER)) {
            State::Pause(until) if !until.passed() => self.stay(State::Pause(until)),
            State::Pause(_) => self.connect(0, no_address()),
            State::Connects(at, fd, until) => match connected(&fd) {
                Ok(false) if !until.passed() => self.stay(State::Connects(at, fd, until)),
                Ok(false) => self.connect(at + 1, self.at(at, &timed_out())),
                Ok(true) => match bounded::finish_connect(fd, &self.addresses[at]) {
                    Ok(stream) => {
                        let Route { comm_hash, from, to, purpose } = self.route;
                        let hello = Hello { kind: Kind::Dial, purpose, comm_hash, from, to, argument: 0 };
                        Ok(State::Proves(stream, Caller::new(&hello)?))
                    }
                    Err(e) => self.connect(at + 1, self.at(at, &e)),
                },
                Err(e) => self.connect(at + 1, self.at(at, &e)),
            },
            State::Proves(stream, mut caller) => match caller.advance(&stream, &self.key)? {
                true => match accepted(&stream)? {
                    true => Ok(State::Arrives(stream)),
                    false => self.stay(State::Proves(stream, caller)),
                },
                false => self.stay(State::Proves(stream, caller)),
            },
            // Given away when it was reached.
            State::Arrives(_) => Err(ErrorKind::NotConnected.into()),
        }
    }

    fn stay(&mut self, state: State) -> io::Result<State> {
        self.state = state;
        Err(ErrorKind::WouldBlock.into())
    }

    /// To the first address from `at` on that does not refuse at once; `last` where there is none.
    fn connect(&self, at: usize, mut last: io::Error) -> io::Result<State> {
        for at in at..self.addresses.len() {
            match bounded::begin_connect(&self.addresses[at]) {
                Ok(fd) => {
                    let until = Deadline::after(self.deadline.slice(ADDRESS_SLICE));
                    return Ok(State::Connects(at, fd, until));
                }
                Err(e) => last = self.at(at, &e),
            }
        }
        Err(last)
    }

    fn at(&self, at: usize, e: &io::Error) -> io::Error {
        io::Error::new(e.kind(), format!("{}: {e}", self.addresses[at]))
    }

    /// What follows a call that failed with `error`.
    fn after(&mut self, error: io::Error) -> io::Result<State> {
        match self.persistence.after(&error) {
            Some(pause) if !self.deadline.passed() => Ok(State::Pause(Deadline::after(pause))),
            _ => Err(error),
        }
    }

    /// The socket whose news it waits for, if it waits for one.
    pub(crate) fn socket(&self) -> Option<BorrowedFd<'_>> {
        match &self.state {
            State::Pause(_) => None,
            State::Connects(_, fd, _) => Some(fd.as_fd()),
            State::Proves(stream, _) | State::Arrives(stream) => Some(stream.as_fd()),
        }
    }

    /// Waits for that, at most for a short time.
    pub(super) fn wait(&self, limits: &Limits<'_>) -> io::Result<()> {
        match &self.state {
            State::Pause(until) => {
                limits.check()?;
                limits.pause(until.slice(Persistence::LONGEST));
            }
            State::Connects(_, fd, _) => limits.wait_briefly(fd, PollFlags::OUT).map(drop)?,
            State::Proves(stream, _) | State::Arrives(stream) => {
                limits.wait_briefly(stream, PollFlags::IN).map(drop)?
            }
        }
        Ok(())
    }
}

/// Whether the attempt to connect is over.
fn connected(fd: &OwnedFd) -> io::Result<bool> {
    let mut polls = [PollFd::new(fd, PollFlags::OUT)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    match rustix::event::poll(&mut polls, Some(&now)) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// Whether the listener has said that it gave the connection away.
fn accepted(stream: &TcpStream) -> io::Result<bool> {
    match rustix::net::recv(stream, &mut [0u8; 1][..], RecvFlags::DONTWAIT) {
        Ok((0, _)) => Err(ErrorKind::UnexpectedEof.into()),
        Ok(_) => Ok(true),
        Err(Errno::AGAIN | Errno::INTR) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

fn timed_out() -> io::Error {
    io::Error::new(ErrorKind::TimedOut, "timed out")
}

fn hung_up() -> io::Error {
    io::Error::new(ErrorKind::ConnectionReset, "the listener hung up")
}

fn no_address() -> io::Error {
    io::Error::new(ErrorKind::AddrNotAvailable, "no address to connect to")
}
