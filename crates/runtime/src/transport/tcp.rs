//! Connections over one connected TCP stream, one direction of data per stream.
//!
//! Data frames (a fixed header and the bytes) go one way; acknowledgements, refusals and goodbyes go the other way.
//! The sender hands accepted bytes to the kernel; of a piece that fits a slot it keeps a copy of what the kernel did not
//! take at once, so that the source is free, while longer ones are borrowed until the kernel has them. The receiver reads
//! straight into the caller's destination, or into a buffer of one slot. Every read and write may stop anywhere and
//! resumes there.
//!
//! The caller brings a stream that is connected and authenticated. A stream that ends without a goodbye is an error
//! that names the peer; a peer whose machine vanished is silent here, and the caller's deadline has to end the wait.

mod frame;
pub(super) mod raw;
mod recv;
mod send;

use std::io;
use std::net::TcpStream;

use oxccl_types::{Error, Result};

use super::Peer;

pub use recv::TcpReceiver;
pub use send::TcpSender;

/// How an end over TCP is set up.
#[derive(Clone, Debug)]
pub struct TcpOptions {
    /// The other end.
    pub peer: Peer,
    /// Pieces that the sender accepts before the kernel has taken them (at least one).
    pub slots: usize,
    /// Bytes that the receiver buffers for `poll_recv`: a multiple of 64, at least 64.
    pub slot_bytes: usize,
    /// Size wished for the kernel's socket buffer; `None` leaves it to the kernel, which adapts it.
    pub buffer_bytes: Option<usize>,
}

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
