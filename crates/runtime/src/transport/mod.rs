//! Transports: how the bytes of one rank get to one peer.
//!
//! A connection carries messages in one direction, in order, between a [`SendEnd`] and a [`RecvEnd`]. Both ends are
//! polled: no call blocks, and after set-up none allocates or takes a lock (errors excepted, they carry a text).
//! A message reaches the receiver in one or more [`Arrival`]s; where a message is cut belongs to the transport, and
//! cuts lie at multiples of 64 bytes from its start unless the receiver itself asks for less.
//!
//! * [`local`]: peers that share memory. Three routes in one ring: slots ("shm"), memory of the sender that the
//!   receiver has mapped ("direct"), memory of the sender that the kernel reads for the receiver ("cma").
//! * [`tcp`]: both directions over one connected stream.
//! * `put`: one-sided writes over a connected stream; not a connection of messages.
//!
//! It does not know who the peers are, how they met, what the bytes mean, or how long to wait: set-up, liveness of
//! local peers, deadlines and abort belong to the caller.

use oxccl_types::{Error, Result};

#[cfg(any(all(test, not(loom)), feature = "testing"))]
pub mod conformance;
pub(crate) mod lines;
pub mod local;
pub(crate) mod passage;
pub(crate) mod put;
mod ring;
pub mod tcp;
#[cfg(all(test, not(loom)))]
mod tests;

/// Travels with every piece of a message.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Header {
    /// The packed signature of the operation (`oxccl_types::Signature::pack`); opaque here.
    pub signature: [u64; 2],
    /// Number of the operation in its lane; opaque here.
    pub sequence: u64,
    /// Bytes of the whole message.
    pub total: u64,
    /// Where in the message this piece starts.
    pub offset: u64,
    /// Bytes of this piece.
    pub len: u64,
    /// Whether ranks share cores, and it is so long, or what its sender gives in the call, that the kernel had better copy it. Not
    /// known to the receiver.
    pub outgrown: bool,
    /// The source must, or had better, be free as soon as a piece is accepted, or was [kept](SendEnd::keep): no route that leaves it
    /// where it is, unless one is forced. Not known to the receiver.
    pub copied: bool,
}

/// How far a sender has come: a ticket stands for everything that was accepted up to and with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u64);

impl Ticket {
    /// The ticket of the `count`-th acceptance on a connection (from 1). `Ticket::default()` stands for nothing and
    /// is always done and received.
    pub const fn new(count: u64) -> Ticket {
        Ticket(count)
    }

    /// Acceptances up to and with this one.
    pub const fn count(self) -> u64 {
        self.0
    }
}

/// The sending end of a connection.
///
/// Any call fails once the receiver has refused a message ([`RecvEnd::refuse`]) or the connection is lost; all later
/// calls then fail alike.
pub trait SendEnd: Send {
    /// Offer the rest of a message, `[data, data + len)`; `header.offset` says how much of it went before and
    /// `header.len` is ignored. Returns the number of bytes accepted and their ticket, or `None` when there is no
    /// credit now. At least one byte is accepted of a message that has some; an empty message is accepted as
    /// `(0, ticket)` and is one arrival. Call again for what was not accepted.
    ///
    /// # Errors
    /// `InvalidUsage` with the receiver's text after a refusal; `RemoteError` when the connection is lost.
    ///
    /// # Safety
    /// The accepted bytes are readable and unchanged until [`SendEnd::poll_done`] says so for the ticket, or until
    /// the connection has failed and both ends are gone.
    unsafe fn poll_send(&mut self, header: &Header, data: *const u8, len: usize) -> Result<Option<(usize, Ticket)>>;

    /// Offers a whole message that this end can copy and hand over at once: its source is free then, and nothing of it has
    /// to be driven. `false`, and nothing was offered, where that is not so; [`SendEnd::poll_send`] serves any message.
    /// `header` says `total` bytes from offset 0. Whether peers could map the memory is not asked: that is for who calls this.
    ///
    /// # Errors
    /// As [`SendEnd::poll_send`].
    ///
    /// # Safety
    /// `[data, data + header.total)` is readable and unchanged during the call.
    unsafe fn send_whole(&mut self, header: &Header, data: *const u8) -> Result<bool> {
        let _ = (header, data);
        Ok(false)
    }

    /// Makes the source of the newest acceptance free, whatever [`SendEnd::poll_done`] says: copies what is still
    /// borrowed of it, at most [`SendEnd::slot_bytes`]. Transports that copy what they accept have nothing to do, and
    /// those that cannot must not be asked.
    fn keep(&mut self) {}

    /// Whether another message is offered right behind the next one, so that both may go out together. Holds until it is
    /// said again; a promise that is not kept is made good by [`SendEnd::flush`].
    fn follows(&mut self, _more: bool) {}

    /// Whether the bytes of all tickets up to `ticket` may be overwritten. Also drives what is still to be written.
    ///
    /// # Errors
    /// As [`SendEnd::poll_send`].
    fn poll_done(&mut self, ticket: Ticket) -> Result<bool>;

    /// Whether the receiver has consumed everything up to `ticket`. What was consumed can no longer be refused.
    ///
    /// # Errors
    /// As [`SendEnd::poll_send`].
    fn poll_received(&mut self, ticket: Ticket) -> Result<bool>;

    /// Drives what was accepted and is not written yet; `true` when nothing is left that needs another call. To be
    /// called until `true` before this end is left alone (at the end of an operation), else the peer may wait for ever.
    ///
    /// # Errors
    /// As [`SendEnd::poll_send`].
    fn flush(&mut self) -> Result<bool> {
        Ok(true)
    }

    /// Whether closing this end loses nothing: memory that outlives it, or everything is known to have been consumed.
    ///
    /// # Errors
    /// As [`SendEnd::poll_send`].
    fn poll_closable(&mut self) -> Result<bool> {
        Ok(true)
    }

    /// Arrivals that may be under way at once.
    fn slots(&self) -> usize;

    /// Bytes of a staged arrival at most.
    fn slot_bytes(&self) -> usize;

    /// Name for logs: "shm", "direct", "cma", "tcp".
    fn kind(&self) -> &'static str;
}

/// A piece of a message at the receiver.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Which bytes of which message: `header.len` bytes from `header.offset` on.
    pub header: Header,
    /// The bytes, valid and unchanging until consumed or released, readable by plain loads through the pointer
    /// (another process may have mapped them: never make a reference of it). Staged arrivals are aligned to 32 bytes.
    pub data: *const u8,
}

/// The receiving end of a connection.
///
/// Any call fails once the connection is lost, after everything that had arrived before was delivered, and after
/// this end has refused a message.
pub trait RecvEnd: Send {
    /// The header of what comes next (`len`: bytes that are left of this piece), without moving a byte. Lets the
    /// caller check the signature before [`RecvEnd::poll_recv_into`] touches a destination.
    ///
    /// # Errors
    /// `RemoteError` when the connection is lost.
    fn poll_header(&mut self) -> Result<Option<Header>>;

    /// The next arrival; the same one until it is consumed or released.
    ///
    /// # Errors
    /// `RemoteError` when the connection is lost.
    fn poll_recv(&mut self) -> Result<Option<Arrival>>;

    /// The first `bytes` of the current arrival are no longer needed; the rest becomes the current arrival. Consuming
    /// all of it is the same as releasing it.
    fn consume(&mut self, bytes: u64);

    /// The current arrival is no longer needed: its credit goes back to the sender. Nothing happens without one.
    fn release(&mut self);

    /// Receive into `dst` and consume: the returned header says which bytes of the message now lie at `dst`; they are
    /// at most `capacity` and may be fewer than what will come. Transports that must copy anyway put the bytes
    /// straight there.
    ///
    /// # Errors
    /// As [`RecvEnd::poll_recv`]; `InvalidUsage` when `capacity` is zero and the piece is not empty.
    ///
    /// # Safety
    /// `[dst, dst + capacity)` is writable and nobody else uses it.
    unsafe fn poll_recv_into(&mut self, dst: *mut u8, capacity: usize) -> Result<Option<Header>> {
        let Some(arrival) = self.poll_recv()? else { return Ok(None) };
        let mut header = arrival.header;
        if header.len > 0 && capacity == 0 {
            return Err(no_room(&header));
        }
        header.len = header.len.min(capacity as u64);
        // SAFETY: the arrival has `len` readable bytes, `dst` has `capacity >= len` writable ones that are the caller's.
        unsafe { std::ptr::copy_nonoverlapping(arrival.data, dst, header.len as usize) };
        self.consume(header.len);
        Ok(Some(header))
    }

    /// Receives and consumes a whole message like `expected` that has come as a copy, or comes while this looks for it `polls`
    /// times. `false`, and nothing was consumed, for anything else; [`RecvEnd::poll_recv_into`] serves any message.
    ///
    /// # Errors
    /// As [`RecvEnd::poll_recv`].
    ///
    /// # Safety
    /// `[dst, dst + expected.total)` is writable and nobody else uses it.
    unsafe fn recv_whole(&mut self, expected: &Header, dst: *mut u8, polls: u32) -> Result<bool> {
        let _ = (expected, dst, polls);
        Ok(false)
    }

    /// Send off acknowledgements that were held back to be sent together; `true` when none is left. To be called
    /// until `true` before this end is left alone for a while (at the end of an operation), else
    /// [`SendEnd::poll_received`] of the peer may stay `false`.
    ///
    /// # Errors
    /// `RemoteError` when the connection is lost.
    fn flush(&mut self) -> Result<bool> {
        Ok(true)
    }

    /// Tell the sender why its message was refused (for example a signature mismatch): from now on every poll of
    /// the sender fails with `text` as `InvalidUsage`, and so does every poll here. The first refusal counts.
    fn refuse(&mut self, text: &str);
}

/// Who is at the other end: for texts only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its rank in the communicator.
    pub rank: u32,
    /// Where it runs, in words: an address, or host and process.
    pub place: String,
}

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "rank {} ({})", self.rank, self.place)
    }
}

/// Longest refusal in bytes; longer texts are cut.
pub const REFUSAL_BYTES: usize = 768;

/// `text` cut to [`REFUSAL_BYTES`] at a character boundary.
fn refusal(text: &str) -> &str {
    let mut end = text.len().min(REFUSAL_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// The error of a receive without room.
fn no_room(header: &Header) -> Error {
    Error::usage(format!(
        "a piece of {} bytes (offset {}, message of {} bytes, operation {}) arrived where no byte was expected; \
         sender and receiver disagree on the length of the message",
        header.len, header.offset, header.total, header.sequence
    ))
}
