//! Mutual authentication of a connection by a shared key: HMAC-SHA-256 over nonces of both sides. No encryption.
//!
//! caller -> server  hello (64 bytes: what is wanted, the caller's nonce)
//! server -> caller  challenge (64 bytes: the server's nonce, its proof over both)
//! caller -> server  proof (32 bytes)
//!
//! All messages have fixed sizes: a stranger cannot make the server allocate.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use hmac::{Hmac, KeyInit, Mac};
use oxccl_sys::Deadline;
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use sha2::Sha256;

use super::io::Limits;

const MAGIC: [u8; 4] = *b"OXCL";
const VERSION: u8 = 1;
const HELLO: usize = 64;
const PROOF: usize = 32;

/// A key that only the ranks of one communicator (or of one initialisation) know.
#[derive(Clone, PartialEq, Eq)]
pub struct CommKey([u8; 32]);

impl std::fmt::Debug for CommKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CommKey(..)")
    }
}

impl CommKey {
    /// The key with these bytes.
    pub fn new(bytes: [u8; 32]) -> CommKey {
        CommKey(bytes)
    }

    /// A key (or a hash) derived from this one for the purpose `label`.
    pub fn derive(&self, label: &str, parts: &[&[u8]]) -> [u8; 32] {
        self.mac(label, parts).finalize().into_bytes().into()
    }

    fn mac(&self, label: &str, parts: &[&[u8]]) -> Hmac<Sha256> {
        #[expect(clippy::expect_used, reason = "HMAC takes keys of any length")]
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        mac.update(&[label.len() as u8]);
        mac.update(label.as_bytes());
        for part in parts {
            mac.update(&(part.len() as u64).to_le_bytes());
            mac.update(part);
        }
        mac
    }
}

/// Random bytes of the system.
///
/// # Errors
/// Those of `getrandom`.
pub fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(bytes)
}

const HUNG_UP: &str =
    "connection refused by the listener: it does not know this communicator, is too busy, or is something else";

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A rank reports to the root of an initialisation.
    Root = 1,
    /// A descriptor is fetched; `argument` is the segment.
    Fetch = 2,
    /// A connection between two ranks; `purpose` says for what.
    Dial = 3,
}

/// The first message of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// What the connection is for.
    pub kind: Kind,
    /// For [`Kind::Dial`]: which use.
    pub purpose: u8,
    /// Names the key.
    pub comm_hash: u64,
    /// The calling rank.
    pub from: u32,
    /// The rank called.
    pub to: u32,
    /// Depends on the kind.
    pub argument: u64,
}

impl Hello {
    fn encode(&self, nonce: &[u8; 32]) -> [u8; HELLO] {
        let mut b = [0; HELLO];
        b[..4].copy_from_slice(&MAGIC);
        b[4] = VERSION;
        b[5] = self.kind as u8;
        b[6] = self.purpose;
        b[8..16].copy_from_slice(&self.comm_hash.to_le_bytes());
        b[16..20].copy_from_slice(&self.from.to_le_bytes());
        b[20..24].copy_from_slice(&self.to.to_le_bytes());
        b[24..32].copy_from_slice(&self.argument.to_le_bytes());
        b[32..].copy_from_slice(nonce);
        b
    }

    fn decode(b: &[u8; HELLO]) -> Result<Hello, String> {
        if b[..4] != MAGIC {
            return Err("it does not speak this protocol".into());
        }
        if b[4] != VERSION {
            return Err(format!("it speaks version {} of the protocol, this library {VERSION}", b[4]));
        }
        let kind = match b[5] {
            1 => Kind::Root,
            2 => Kind::Fetch,
            3 => Kind::Dial,
            k => return Err(format!("unknown kind of connection {k}")),
        };
        let word = |at: usize| u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]]);
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        Ok(Hello { kind, purpose: b[6], comm_hash: long(8), from: word(16), to: word(20), argument: long(24) })
    }
}

/// The caller's half: says what it wants, proves that it knows the key, and that the server does.
///
/// # Errors
/// `ConnectionReset` when the server refuses, or is too busy; `PermissionDenied` when it does not know the key; those of the stream
/// and of `limits`.
pub fn call(fd: impl AsFd, key: &CommKey, hello: &Hello, limits: &Limits<'_>) -> io::Result<()> {
    let mut caller = Caller::new(hello)?;
    while !caller.advance(&fd, key)? {
        limits.wait(&fd, PollFlags::IN)?;
    }
    Ok(())
}

/// The caller's half as a state machine that never blocks.
pub(super) struct Caller {
    hello: [u8; HELLO],
    stage: Stage,
    challenge: [u8; 32 + PROOF],
    have: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    New,
    Called,
    Done,
}

impl Caller {
    /// Says that it wants `hello`.
    ///
    /// # Errors
    /// No random bytes.
    pub(super) fn new(hello: &Hello) -> io::Result<Caller> {
        Ok(Caller { hello: hello.encode(&random()?), stage: Stage::New, challenge: [0; 32 + PROOF], have: 0 })
    }

    /// Goes on at the beginning, and after the socket `fd` became readable. `true`: both sides have proved that they know `key`; nothing beyond
    /// the handshake was read. It is called once more at will.
    ///
    /// # Errors
    /// As [`call`].
    pub(super) fn advance(&mut self, fd: impl AsFd, key: &CommKey) -> io::Result<bool> {
        if self.stage == Stage::Done {
            return Ok(true);
        }
        self.answered(&fd).map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
                io::Error::new(io::ErrorKind::ConnectionReset, HUNG_UP)
            }
            _ => e,
        })?;
        if self.have < self.challenge.len() {
            return Ok(false);
        }
        let (nonce, proof) = self.challenge.split_at(32);
        key.mac("server", &[&self.hello, nonce]).verify_slice(proof).map_err(|_| {
            let text = "the listener does not know the secret of this communicator";
            io::Error::new(io::ErrorKind::PermissionDenied, text)
        })?;
        send_first(&fd, &key.derive("caller", &[&self.hello, nonce]))?;
        self.stage = Stage::Done;
        Ok(true)
    }

    /// Whether the listener has all that it wants.
    pub(super) fn is_done(&self) -> bool {
        self.stage == Stage::Done
    }

    /// Calls, and takes of the answer what has come.
    fn answered(&mut self, fd: impl AsFd) -> io::Result<()> {
        if self.stage == Stage::New {
            send_first(&fd, &self.hello)?;
            self.stage = Stage::Called;
        }
        while self.have < self.challenge.len() {
            match rustix::net::recv(&fd, &mut self.challenge[self.have..], RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok((n, _)) => self.have += n,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(()),
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }
}

/// Sends what is among the first bytes of a connection, which always fit its buffer.
fn send_first(fd: impl AsFd, bytes: &[u8]) -> io::Result<()> {
    loop {
        match rustix::net::send(&fd, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(n) if n == bytes.len() => return Ok(()),
            // For want of memory: another call may have more luck.
            Ok(_) | Err(Errno::AGAIN) => {
                return Err(io::Error::new(io::ErrorKind::ConnectionReset, "the connection takes no data"));
            }
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

/// How a [`Greeter`] stands.
pub enum Greeting {
    /// It waits for the caller.
    Waiting,
    /// The caller is one of us. Nothing beyond the handshake was read.
    Welcome(Hello),
    /// It is a stranger; the text says why.
    Refused(String),
}

/// The server's half, for one connection: a state machine that never blocks.
pub struct Greeter {
    fd: OwnedFd,
    from: String,
    /// When the caller's time is over.
    pub deadline: Deadline,
    buf: [u8; HELLO],
    have: usize,
    challenged: Option<(Hello, CommKey, [u8; 32])>,
    hello: [u8; HELLO],
}

impl Greeter {
    /// Greets the caller on the non-blocking socket `fd`; `from` names it in texts.
    pub fn new(fd: OwnedFd, from: String, deadline: Deadline) -> Greeter {
        Greeter { fd, from, deadline, buf: [0; HELLO], have: 0, challenged: None, hello: [0; HELLO] }
    }

    /// The connection.
    pub fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Gives the connection up to whoever serves it.
    pub fn into_fd(self) -> (OwnedFd, String) {
        (self.fd, self.from)
    }

    /// Names the caller.
    pub fn from(&self) -> &str {
        &self.from
    }

    /// Goes on after the socket became readable. `keys` finds the key of a communicator.
    pub fn advance(&mut self, keys: &dyn Fn(&Hello) -> Option<CommKey>) -> Greeting {
        loop {
            let want = if self.challenged.is_some() { PROOF } else { HELLO };
            while self.have < want {
                match rustix::net::recv(&self.fd, &mut self.buf[self.have..want], RecvFlags::DONTWAIT) {
                    Ok((0, _)) => return Greeting::Refused("it closed the connection during the handshake".into()),
                    Ok((n, _)) => self.have += n,
                    Err(Errno::AGAIN) => return Greeting::Waiting,
                    Err(Errno::INTR) => {}
                    Err(e) => return Greeting::Refused(e.to_string()),
                }
            }
            if let Some((hello, key, nonce)) = &self.challenged {
                return match key.mac("caller", &[&self.hello, nonce]).verify_slice(&self.buf[..PROOF]) {
                    Ok(()) => Greeting::Welcome(*hello),
                    Err(_) => Greeting::Refused("it does not know the secret".into()),
                };
            }
            if let Err(why) = self.challenge(keys) {
                return Greeting::Refused(why);
            }
        }
    }

    fn challenge(&mut self, keys: &dyn Fn(&Hello) -> Option<CommKey>) -> Result<(), String> {
        let hello = Hello::decode(&self.buf)?;
        let key = keys(&hello).ok_or("it asks for a communicator that is not known here")?;
        let nonce: [u8; 32] = random().map_err(|e| e.to_string())?;
        self.hello = self.buf;
        self.have = 0;
        let mut message = [0; 32 + PROOF];
        message[..32].copy_from_slice(&nonce);
        message[32..].copy_from_slice(&key.derive("server", &[&self.hello, &nonce]));
        self.challenged = Some((hello, key, nonce));
        send_first(&self.fd, &message).map_err(|e| e.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxccl_sys::sync::AtomicBool;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    fn meet(theirs: [u8; 32], ours: [u8; 32]) -> (io::Result<()>, Result<Hello, String>) {
        let (a, b) = UnixStream::pair().unwrap();
        let hello = Hello { kind: Kind::Dial, purpose: 7, comm_hash: 1 << 60, from: 3, to: 4, argument: u64::MAX - 1 };
        let deadline = Deadline::after(Duration::from_secs(10));
        let caller = std::thread::spawn(move || {
            let limits = Limits { deadline, abort: &AtomicBool::new(false) };
            call(&a, &CommKey::new(theirs), &hello, &limits)
        });
        let mut greeter = Greeter::new(b.into(), "test".into(), deadline);
        let served = loop {
            match greeter.advance(&|_| Some(CommKey::new(ours))) {
                Greeting::Waiting => std::thread::yield_now(),
                Greeting::Welcome(h) => break Ok(h),
                Greeting::Refused(why) => break Err(why),
            }
        };
        assert!(served.as_ref().is_ok_and(|h| *h == hello) || served.is_err());
        (caller.join().unwrap(), served)
    }

    #[test]
    fn friends_meet_and_strangers_do_not() {
        let (caller, server) = meet([1; 32], [1; 32]);
        caller.unwrap();
        server.unwrap();
        let (caller, server) = meet([1; 32], [2; 32]);
        assert_eq!(caller.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        server.unwrap_err();
    }
}
