//! Connections over one connected TCP stream: one in each direction.
//!
//! Frames (a fixed header and the bytes) go both ways: data, and what one end has to say of the data of the other
//! (acknowledgements on demand, refusals, a goodbye). Both directions share the stream since the kernel's own
//! acknowledgements then travel with data, which halves the packets of an exchange.
//!
//! A frame goes to the kernel at once, a small one in one piece with its header. What the kernel does not take is
//! borrowed, or copied where the sender asks for it. The receiver reads straight into the caller's destination, or into a
//! buffer. Every read and write may stop anywhere and resumes there.
//!
//! The caller brings a stream that is connected and authenticated. A stream that ends without a goodbye is an error
//! that names the peer. A peer whose machine vanished is silent until the kernel's probes, for which whoever made the stream asked
//! (`service::io`), have failed, or, while data is on its way to it, until the kernel gives up sending that again; news or the
//! caller's deadline may end the wait before.
//! What one end says stands in line behind the data that it sent before: a refusal is heard once those are taken.

mod frame;
pub(super) mod raw;
mod recv;
mod send;

use std::io;
use std::net::TcpStream;

use oxccl_sys::pacing;
use oxccl_types::{Error, Result};

use super::Peer;

use recv::Incoming;
pub(crate) use send::HELD;
use send::Outgoing;

/// One end of a stream: sends to the peer and receives from it.
pub struct TcpEnd {
    stream: TcpStream,
    options: TcpOptions,
    out: Outgoing,
    inc: Incoming,
}

impl TcpEnd {
    /// An end of `stream`.
    ///
    /// # Errors
    /// When the stream's options cannot be set or `options` make no sense.
    pub fn new(stream: TcpStream, options: TcpOptions) -> Result<TcpEnd> {
        prepare(&stream, &options)?;
        Ok(TcpEnd { out: Outgoing::new(&stream, &options), inc: Incoming::new(&options), stream, options })
    }
}

impl Drop for TcpEnd {
    fn drop(&mut self) {
        self.part();
    }
}

/// How an end over TCP is set up.
#[derive(Clone, Debug)]
pub struct TcpOptions {
    /// The other end.
    pub peer: Peer,
    /// Pieces that the sender accepts before the kernel has taken them (at least one).
    pub slots: usize,
    /// Bytes of the longest piece that the sender can keep, and that the receiver buffers for `poll_recv`: a multiple of
    /// 64, at least 64.
    pub slot_bytes: usize,
    /// Size wished for the kernel's socket buffer; `None` leaves it to the kernel, which adapts it.
    pub buffer_bytes: Option<usize>,
    /// The other end is on this machine: no link on the way has to be shared with strangers.
    pub within: bool,
}

/// Bytes that may wait in the kernel to be sent. More would only leave the caches and, where the kernel paces what it sends,
/// go out late; this process refills them in time, since whoever waits, polls.
const UNSENT: usize = 32 << 10;

/// Make `stream` ready to be an end.
fn prepare(stream: &TcpStream, options: &TcpOptions) -> Result<()> {
    if options.slots == 0 || options.slot_bytes == 0 || !options.slot_bytes.is_multiple_of(64) {
        return Err(Error::internal(format!(
            "a tcp connection of {} slots of {} bytes: slots must not be 0, slot bytes a multiple of 64",
            options.slots, options.slot_bytes
        )));
    }
    let set = |e: io::Error| Error::system(format!("setting up the connection with {}: {e}", options.peer));
    stream.set_nonblocking(true).map_err(set)?;
    stream.set_nodelay(true).map_err(set)?;
    // Only a hint: the first packets are acknowledged at once either way.
    let _ = raw::delay_acknowledgements(stream);
    // A hint, too.
    let _ = raw::limit_unsent(stream, UNSENT);
    // And this.
    let _ = pacing::settle(stream, options.within);
    options.buffer_bytes.map_or(Ok(()), |bytes| raw::set_buffers(stream, bytes)).map_err(set)
}

/// The error of a connection that ended without a goodbye; `None`: end of stream.
#[cold]
pub(super) fn lost(peer: &Peer, doing: &str, e: Option<&io::Error>) -> Error {
    let how = e.map_or("the stream ended without a goodbye".to_string(), ToString::to_string);
    Error::remote(format!(
        "the tcp connection with {peer} was lost while {doing}: {how}; its process ended or was killed, or the network \
         cut the connection: look at the output of rank {} first",
        peer.rank
    ))
}

/// The error of a connection that the peer closed in order while something was expected of it.
#[cold]
fn closed(peer: &Peer, doing: &str) -> Error {
    Error::remote(format!(
        "{peer} closed its tcp connection in order while this rank was {doing}: it destroyed or aborted its \
         communicator, or the ranks made different calls; look at the output of rank {} first",
        peer.rank
    ))
}

/// The error of bytes that no end of this library sends.
#[cold]
pub(super) fn garbage(peer: &Peer, doing: &str, what: &str) -> Error {
    Error::remote(format!(
        "{peer} sent bytes over tcp that are no frame ({what}) while this rank was {doing}: another version of the \
         library, a program that is not part of the job, or damage on the way"
    ))
}
