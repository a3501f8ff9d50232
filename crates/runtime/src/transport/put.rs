//! One-sided writes over a TCP stream: frames that say where in the target's window their bytes belong.
//!
//! One stream per ordered pair of ranks. The sender's tasks share it, one frame after the other. The receiver is driven
//! by whoever hears that bytes have come, not by a call of the target: it writes them where they belong, raises the
//! signal of the frame, and tells the sender how many frames it has applied. Nothing is retried: an error ends both.
//!
//! It knows neither windows nor communicators; [`Landing`] stands for both.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;

use oxccl_sys::forked::end_with_process;
use oxccl_types::{Error, Result};

use super::tcp::raw::{Range, recv, send};
use super::{Peer, tcp};

/// Distinguishes a frame from bytes that no end of this library sends.
const MAGIC: u64 = 0x6f78_7075_7400_0002;
/// A line, as of [stream frames](super::tcp): what follows lies in the kernel's pages as in the caller's memory.
const HEADER: usize = 64;
const _: () = assert!(HEADER.is_multiple_of(64));
/// The signal word of a frame that raises none.
const SILENT: u64 = u64::MAX;
/// Bytes that one call moves at most, so that who drives several ends starves none.
const BUDGET: usize = 1 << 20;

/// What one frame does at the target: writes `bytes` bytes at `offset` of a window, then raises a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    /// Number of the window in the communicator; of no meaning without bytes.
    pub window: u64,
    /// Where in the target's part of the window.
    pub offset: u64,
    /// How many; 0 for a signal alone.
    pub bytes: u64,
    /// The signal, as the two ends number them.
    pub signal: Option<u64>,
}

impl Frame {
    fn encode(&self, number: u64) -> [u8; HEADER] {
        let words = [MAGIC, number, self.window, self.offset, self.bytes, self.signal.unwrap_or(SILENT)];
        let mut out = [0; HEADER];
        out.chunks_exact_mut(8).zip(words).for_each(|(at, word)| at.copy_from_slice(&word.to_le_bytes()));
        out
    }

    fn decode(header: &[u8; HEADER], number: u64) -> Option<Frame> {
        let mut words = header.chunks_exact(8).map(|c| c.try_into().map_or(0, u64::from_le_bytes));
        let mut next = || words.next().unwrap_or(0);
        if (next(), next()) != (MAGIC, number) || header[48..] != [0; 16] {
            return None;
        }
        let (window, offset, bytes, signal) = (next(), next(), next(), next());
        Some(Frame { window, offset, bytes, signal: (signal != SILENT).then_some(signal) })
    }
}

/// A frame under way.
struct Going {
    owner: u64,
    frame: Frame,
    header: [u8; HEADER],
    /// Bytes of header and data that the kernel has.
    sent: usize,
}

/// The sender's end.
pub(crate) struct PutSender {
    stream: TcpStream,
    peer: Peer,
    going: Option<Going>,
    /// Frames begun.
    begun: u64,
    /// Frames that the target has applied.
    applied: u64,
    report: [u8; 8],
    reported: usize,
}

impl PutSender {
    /// An end on a stream that is connected and authenticated.
    pub(crate) fn new(stream: TcpStream, peer: Peer) -> Result<PutSender> {
        stream
            .set_nonblocking(true)
            .and_then(|()| stream.set_nodelay(true))
            .map_err(|e| Error::system(format!("setting up the connection for puts to {peer}: {e}")))?;
        Ok(PutSender { stream, peer, going: None, begun: 0, applied: 0, report: [0; 8], reported: 0 })
    }

    /// Sends `frame` with the bytes at `data`, or goes on with it. `owner` names the task; another's frame has to be
    /// through first. `true` when the kernel has all of it, so that `data` may be overwritten.
    ///
    /// # Errors
    /// `RemoteError` when the connection is lost.
    ///
    /// # Safety
    /// `frame.bytes` bytes at `data` are readable and unchanged from the first call for the frame to the last.
    pub(crate) unsafe fn poll_send(&mut self, owner: u64, frame: &Frame, data: *const u8) -> Result<(bool, bool)> {
        self.poll_applied()?;
        if self.going.as_ref().is_some_and(|g| g.owner != owner) {
            return Ok((false, false));
        }
        if self.going.is_none() {
            self.begun += 1;
            self.going = Some(Going { owner, frame: *frame, header: frame.encode(self.begun), sent: 0 });
        }
        let Some(going) = &mut self.going else { return Ok((false, false)) };
        let total = HEADER + going.frame.bytes as usize;
        let begin = going.sent;
        while going.sent < total && going.sent - begin < BUDGET {
            let header = going.sent.min(HEADER);
            let done = going.sent - header;
            let rest = (total - HEADER - done).min(BUDGET);
            let ranges = [
                Range::new(going.header[header..].as_ptr(), HEADER - header),
                Range::new(data.wrapping_add(done), rest),
            ];
            // SAFETY: the header is ours, the data readable by contract.
            match unsafe { send(&self.stream, &ranges) } {
                Ok(0) => break,
                Ok(n) => going.sent += n,
                Err(e) => return Err(tcp::lost(&self.peer, "putting data", Some(&e))),
            }
        }
        let moved = going.sent > begin;
        let done = going.sent == total;
        if done {
            self.going = None;
        }
        Ok((done, moved))
    }

    /// The task `owner` goes away. If its frame was under way the connection is of no use any more.
    pub(crate) fn abandon(&mut self, owner: u64) {
        if self.going.as_ref().is_some_and(|g| g.owner == owner && g.sent > 0) {
            let _ = self.stream.shutdown(std::net::Shutdown::Both);
        } else if self.going.as_ref().is_some_and(|g| g.owner == owner) {
            self.going = None;
            self.begun -= 1;
        }
    }

    /// Whether the target has applied every frame.
    ///
    /// # Errors
    /// As [`PutSender::poll_send`].
    pub(crate) fn poll_applied(&mut self) -> Result<bool> {
        loop {
            let rest = &mut self.report[self.reported..];
            let ranges = [Range::new(rest.as_ptr(), rest.len())];
            // SAFETY: the rest of our own buffer, which is never empty here.
            match unsafe { recv(&self.stream, &ranges) } {
                Ok(None) => return Ok(self.going.is_none() && self.applied == self.begun),
                Ok(Some(0)) => return Err(tcp::lost(&self.peer, "putting data", None)),
                Ok(Some(n)) => self.reported += n,
                Err(e) => return Err(tcp::lost(&self.peer, "putting data", Some(&e))),
            }
            if self.reported == self.report.len() {
                self.reported = 0;
                let said = u64::from_le_bytes(self.report);
                if !(self.applied..=self.begun).contains(&said) {
                    return Err(tcp::garbage(&self.peer, "putting data", "report of puts that were not made"));
                }
                self.applied = said;
            }
        }
    }

    /// The stream, to be woken by it.
    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }
}

/// Where the bytes of a frame belong.
pub(crate) struct Place {
    /// The first of them.
    pub at: *mut u8,
    /// Keeps the memory mapped.
    pub _keep: Arc<dyn Send + Sync>,
}

/// The target of the frames of one peer.
pub(crate) trait Landing {
    /// Where the bytes of `frame` belong: `frame.bytes` writable bytes.
    ///
    /// # Errors
    /// When there is no such window, or the bytes do not lie inside.
    fn place(&self, frame: &Frame) -> Result<Place>;
    /// The bytes of a frame have been written and its signal is to be raised.
    fn raise(&self, signal: u64);
}

/// What a call of [`PutReceiver::advance`] came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Go on when more bytes have come.
    More,
    /// The peer has closed its end between two frames.
    Closed,
}

/// The receiver's end.
pub(crate) struct PutReceiver {
    stream: TcpStream,
    peer: Peer,
    header: [u8; HEADER],
    /// Bytes of the present frame that are here.
    have: usize,
    current: Option<(Frame, Option<Place>)>,
    applied: u64,
    report: [u8; 8],
    /// Bytes of `report` that are still to be sent.
    unsent: usize,
    reported: u64,
}

// SAFETY: the place is written by whoever drives the receiver, one at a time; `_keep` holds its memory.
unsafe impl Send for PutReceiver {}

impl PutReceiver {
    /// An end on a stream that is connected and authenticated.
    pub(crate) fn new(stream: TcpStream, peer: Peer) -> PutReceiver {
        PutReceiver {
            stream,
            peer,
            header: [0; HEADER],
            have: 0,
            current: None,
            applied: 0,
            report: [0; 8],
            unsent: 0,
            reported: 0,
        }
    }

    /// Takes what has come, at most a budget of it. Never blocks.
    ///
    /// # Errors
    /// Those of the landing; `RemoteError` when the connection is lost within a frame or carries something else.
    pub(crate) fn advance(&mut self, landing: &dyn Landing) -> Result<Progress> {
        let mut budget = BUDGET;
        let mut open = true;
        while budget > 0 && open {
            let (at, want) = match &self.current {
                None => (self.header[self.have..].as_mut_ptr(), HEADER - self.have),
                Some((frame, Some(place))) => (place.at.wrapping_add(self.have), frame.bytes as usize - self.have),
                Some((_, None)) => (std::ptr::null_mut(), 0),
            };
            if want > 0 {
                let want = want.min(budget);
                // SAFETY: the rest of our header, or of the place, which is writable by the landing's promise.
                match unsafe { recv(&self.stream, &[Range::new(at, want)]) } {
                    Ok(None) => break,
                    Ok(Some(0)) => open = false,
                    Ok(Some(n)) => {
                        self.have += n;
                        budget -= n.min(budget);
                    }
                    Err(e) => return Err(tcp::lost(&self.peer, "its put was under way", Some(&e))),
                }
            }
            if !open && (self.have > 0 || self.current.is_some()) {
                return Err(tcp::lost(&self.peer, "its put was under way", None));
            }
            self.finish(landing)?;
        }
        self.tell();
        Ok(if open { Progress::More } else { Progress::Closed })
    }

    /// Ends a header or a frame that is complete.
    fn finish(&mut self, landing: &dyn Landing) -> Result<()> {
        if self.current.is_none() && self.have == HEADER {
            let frame = Frame::decode(&self.header, self.applied + 1)
                .ok_or_else(|| tcp::garbage(&self.peer, "taking puts", "no header of a put"))?;
            let place = if frame.bytes > 0 { Some(landing.place(&frame)?) } else { None };
            self.have = 0;
            self.current = Some((frame, place));
        }
        if let Some((frame, _)) = &self.current
            && self.have == frame.bytes as usize
        {
            if let Some(signal) = frame.signal {
                landing.raise(signal);
            }
            self.current = None;
            self.have = 0;
            self.applied += 1;
        }
        Ok(())
    }

    /// Reports the applied frames. What the kernel does not take now goes with the next frame; the reports are few, and
    /// the sender reads them before each of its frames.
    fn tell(&mut self) {
        loop {
            if self.unsent == 0 {
                if self.reported == self.applied {
                    return;
                }
                self.reported = self.applied;
                self.report = self.applied.to_le_bytes();
                self.unsent = self.report.len();
            }
            let at = self.report.len() - self.unsent;
            // SAFETY: the rest of our own buffer.
            match unsafe { send(&self.stream, &[Range::new(self.report[at..].as_ptr(), self.unsent)]) } {
                Ok(n) if n > 0 => self.unsent -= n,
                // A peer that has gone needs no report.
                _ => return,
            }
        }
    }
}

/// The stream as something to be watched.
pub(crate) fn watched(stream: &TcpStream) -> io::Result<Arc<std::os::fd::OwnedFd>> {
    let stream = stream.try_clone()?;
    end_with_process(&stream);
    Ok(Arc::new(stream.into()))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::sync::Mutex;

    struct Memory(Mutex<Vec<u8>>, Mutex<Vec<u64>>);

    impl Landing for Memory {
        fn place(&self, frame: &Frame) -> Result<Place> {
            let mut memory = self.0.lock().unwrap();
            if frame.offset + frame.bytes > memory.len() as u64 {
                return Err(Error::argument("outside"));
            }
            Ok(Place { at: memory.as_mut_ptr().wrapping_add(frame.offset as usize), _keep: Arc::new(()) })
        }
        fn raise(&self, signal: u64) {
            self.1.lock().unwrap().push(signal);
        }
    }

    fn pair() -> (PutSender, PutReceiver) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let a = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let b = listener.accept().unwrap().0;
        let peer = |rank| Peer { rank, place: "here".into() };
        (PutSender::new(a, peer(1)).unwrap(), PutReceiver::new(b, peer(0)))
    }

    fn put(sender: &mut PutSender, receiver: &mut PutReceiver, to: &Memory, frame: Frame, data: &[u8]) {
        // SAFETY: the slice lives and does not change until the call ends.
        while !unsafe { sender.poll_send(1, &frame, data.as_ptr()) }.unwrap().0 {
            receiver.advance(to).unwrap();
        }
    }

    #[test]
    fn frames_land_in_order_and_are_reported() {
        let (mut sender, mut receiver) = pair();
        let to = Memory(Mutex::new(vec![0; 9 << 20]), Mutex::default());
        let data: Vec<u8> = (0..9_u32 << 20).map(|i| (i / 7) as u8).collect();
        let frame = Frame { window: 3, offset: 100, bytes: (9 << 20) - 100, signal: Some(5) };
        put(&mut sender, &mut receiver, &to, frame, &data[100..]);
        put(&mut sender, &mut receiver, &to, Frame { window: 0, offset: 0, bytes: 0, signal: Some(6) }, &[]);
        put(&mut sender, &mut receiver, &to, Frame { window: 0, offset: 8, bytes: 3, signal: None }, b"abc");
        while !sender.poll_applied().unwrap() {
            assert_eq!(receiver.advance(&to).unwrap(), Progress::More);
        }
        assert_eq!(*to.1.lock().unwrap(), [5, 6]);
        let memory = to.0.lock().unwrap();
        assert!(memory[100..] == data[100..] && memory[8..11] == *b"abc" && memory[11..100] == [0; 89]);
    }

    #[test]
    fn headers_are_whole_lines_without_anything_else() {
        let frame = Frame { window: 1, offset: 64, bytes: 8, signal: Some(3) };
        let header = frame.encode(7);
        assert!(header.len().is_multiple_of(64));
        assert_eq!(Frame::decode(&header, 7), Some(frame));
        assert_eq!(Frame::decode(&header, 8), None);
        for at in [0, 7, 8, 48, HEADER - 1] {
            let mut bad = header;
            bad[at] ^= 0x10;
            assert_eq!(Frame::decode(&bad, 7), None, "byte {at}");
        }
    }

    #[test]
    fn one_frame_at_a_time() {
        let (mut sender, mut receiver) = pair();
        let to = Memory(Mutex::new(vec![0; 32 << 20]), Mutex::default());
        let data = vec![1; 32 << 20];
        let frame = Frame { window: 0, offset: 0, bytes: 32 << 20, signal: None };
        let short = Frame { bytes: 1, ..frame };
        // SAFETY: the slices live and do not change until the calls end.
        unsafe {
            assert!(!sender.poll_send(1, &frame, data.as_ptr()).unwrap().0, "no socket holds 32 MiB");
            assert_eq!(sender.poll_send(2, &short, data.as_ptr()).unwrap(), (false, false));
            while !sender.poll_send(1, &frame, data.as_ptr()).unwrap().0 {
                receiver.advance(&to).unwrap();
            }
            assert!(sender.poll_send(2, &short, data.as_ptr()).unwrap().0);
        }
    }

    #[test]
    fn a_stream_that_ends_within_a_frame_is_an_error() {
        let (mut sender, mut receiver) = pair();
        let to = Memory(Mutex::new(vec![0; 16]), Mutex::default());
        let frame = Frame { window: 0, offset: 0, bytes: 16, signal: Some(1) };
        // SAFETY: 16 readable bytes.
        unsafe { sender.poll_send(1, &frame, [7_u8; 16].as_ptr()).unwrap() };
        while to.1.lock().unwrap().is_empty() {
            receiver.advance(&to).unwrap();
        }
        let late = Frame { bytes: 64 << 20, ..frame };
        let outside = receiver.advance(&to);
        assert!(outside.is_ok());
        let data = vec![0_u8; 64 << 20];
        let (mut sender, mut receiver) = pair();
        let large = Memory(Mutex::new(vec![0; 64 << 20]), Mutex::default());
        // SAFETY: as above.
        assert!(!unsafe { sender.poll_send(1, &late, data.as_ptr()).unwrap() }.0);
        drop(sender);
        let error = loop {
            match receiver.advance(&large) {
                Ok(Progress::More) => {}
                Ok(Progress::Closed) => panic!("closed in order"),
                Err(e) => break e,
            }
        };
        assert!(error.text.contains("rank 0"), "{}", error.text);
    }
}
