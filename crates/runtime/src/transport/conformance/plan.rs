//! What the suite sends, and the two halves that send and check it.

use crate::transport::{Header, RecvEnd, SendEnd, Ticket};

use super::{Factory, Source};

/// A mixing function: the whole randomness of the suite.
pub(super) fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Bytes `[offset, offset + len)` of message `number`.
fn pattern(number: u64, offset: u64, len: usize) -> Vec<u8> {
    let first = offset / 8;
    let last = (offset + len as u64).div_ceil(8);
    let mut bytes = vec![0; 8 * (last - first) as usize];
    // A cheap step per word (an odd factor keeps all words different): tests run with little optimisation.
    let mut word = mix(number).wrapping_add(first.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    for chunk in bytes.chunks_exact_mut(8) {
        chunk.copy_from_slice(&(word ^ word >> 29).to_le_bytes());
        word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    }
    let skip = (offset - 8 * first) as usize;
    bytes.truncate(skip + len);
    bytes.drain(..skip);
    bytes
}

/// A sequence of messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Number of messages.
    pub count: u64,
    /// Lengths, in turn; random ones up to `longest` if empty.
    pub lengths: Vec<usize>,
    /// Seed of random lengths.
    pub seed: u64,
    /// Longest message.
    pub longest: usize,
}

impl Plan {
    /// Messages of these lengths.
    pub fn of(lengths: &[usize]) -> Plan {
        let longest = lengths.iter().copied().max().unwrap_or(0);
        Plan { count: lengths.len() as u64, lengths: lengths.to_vec(), seed: 0, longest }
    }

    /// `count` messages of random lengths up to `longest`.
    pub fn random(seed: u64, count: u64, longest: usize) -> Plan {
        Plan { count, lengths: Vec::new(), seed, longest }
    }

    /// Length of message `number`: short ones as often as long ones.
    pub fn len(&self, number: u64) -> usize {
        if !self.lengths.is_empty() {
            return self.lengths[(number % self.lengths.len() as u64) as usize];
        }
        let r = mix(self.seed ^ mix(number));
        let most = [8, 64, 1024, self.longest][(r & 3) as usize].min(self.longest);
        (r >> 8) as usize % (most + 1)
    }

    /// Whether nothing is sent.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn header(&self, number: u64, offset: u64) -> Header {
        let total = self.len(number) as u64;
        Header {
            signature: [mix(number), !number],
            sequence: number,
            total,
            offset,
            len: total - offset,
            outgrown: false,
            copied: false,
        }
    }
}

/// The sending half: offers the plan's messages from a few buffers in turn.
pub struct Feed {
    plan: Plan,
    /// Buffers and the tickets of what they hold; none once scribbled over.
    buffers: Vec<(Source, Option<Ticket>)>,
    number: u64,
    offset: usize,
    /// Ticket of the last acceptance.
    pub last: Ticket,
    /// Acceptances.
    pub accepted: u64,
    whole: bool,
}

impl Feed {
    /// A feed with `buffers` buffers from `factory`.
    pub fn new(factory: &impl Factory, plan: &Plan, buffers: usize) -> Feed {
        // Room for starting anywhere in a cache line.
        let make = |_| (factory.source(plan.longest + 64), None);
        let buffers = (0..buffers).map(make).collect();
        Feed { plan: plan.clone(), buffers, number: 0, offset: 0, last: Ticket::default(), accepted: 0, whole: false }
    }

    /// Offers some messages as a whole, where the sender takes them so; these have no tickets.
    pub fn with_whole(self) -> Feed {
        Feed { whole: true, ..self }
    }

    /// Whether every message was accepted.
    pub fn is_spent(&self) -> bool {
        self.number == self.plan.count
    }

    /// Offer what comes next, once, or drive what was accepted where nothing is left to be offered: the end of the plan may
    /// still wait in the sender, which nobody else calls. Whether anything was accepted.
    pub fn poll(&mut self, send: &mut dyn SendEnd) -> bool {
        if self.is_spent() {
            send.flush().unwrap();
            return false;
        }
        let turn = (self.number % self.buffers.len() as u64) as usize;
        let len = self.plan.len(self.number);
        let (source, ticket) = &mut self.buffers[turn];
        let start = source.ptr.wrapping_add(self.number as usize % 5 * 3);
        if self.offset == 0 {
            if !send.poll_done(ticket.unwrap_or_default()).unwrap() {
                return false;
            }
            let bytes = pattern(self.number, 0, len);
            // SAFETY: the buffer is ours and done; start + len lies inside.
            unsafe { start.copy_from_nonoverlapping(bytes.as_ptr(), len) };
        }
        let header = self.plan.header(self.number, self.offset as u64);
        if self.whole && self.offset == 0 && self.number.is_multiple_of(3) {
            // SAFETY: the buffer holds the whole message.
            let sent = unsafe { send.send_whole(&header, start) }.unwrap();
            if sent {
                // SAFETY: ours, and free again.
                unsafe { source.ptr.write_bytes(0xEE, source.len) };
                (*ticket, self.number) = (None, self.number + 1);
                return true;
            }
        }
        // SAFETY: the bytes stay until the ticket is done, see above.
        let sent = unsafe { send.poll_send(&header, start.wrapping_add(self.offset), len - self.offset) }.unwrap();
        let Some((bytes, next)) = sent else { return false };
        assert!(bytes > 0 || len == 0, "nothing accepted of message {}", self.number);
        assert!(next > self.last, "tickets must rise");
        self.last = next;
        *ticket = Some(next);
        self.accepted += 1;
        self.offset += bytes;
        if self.offset == len {
            self.number += 1;
            self.offset = 0;
        }
        true
    }

    /// Scribble over every buffer that the sender calls done.
    pub fn scribble(&mut self, send: &mut dyn SendEnd) {
        let current = (self.offset > 0).then_some((self.number % self.buffers.len() as u64) as usize);
        for (i, (source, held)) in self.buffers.iter_mut().enumerate() {
            if let Some(ticket) = *held
                && Some(i) != current
                && send.poll_done(ticket).unwrap()
            {
                // SAFETY: ours, and done.
                unsafe { source.ptr.write_bytes(0xEE, source.len) };
                *held = None;
            }
        }
    }
}

/// How a [`Sink`] takes an arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// `poll_recv` and `release`.
    Whole,
    /// `poll_recv` and `consume` in random parts.
    Parts,
    /// `poll_recv_into` with random room.
    Into,
    /// Each time one of these by chance.
    Any,
}

/// The receiving half: checks headers, order and every byte.
pub struct Sink {
    plan: Plan,
    number: u64,
    offset: u64,
    state: u64,
    room: Vec<u8>,
}

impl Sink {
    /// A sink for `plan`.
    pub fn new(plan: &Plan) -> Sink {
        Sink { plan: plan.clone(), number: 0, offset: 0, state: mix(plan.seed), room: vec![0; plan.longest + 1] }
    }

    /// Whether all messages arrived.
    pub fn is_full(&self) -> bool {
        self.number == self.plan.count
    }

    /// Complete messages so far.
    pub fn messages(&self) -> u64 {
        self.number
    }

    fn random(&mut self, below: u64) -> u64 {
        self.state = mix(self.state);
        (self.state >> 16) % below
    }

    /// Take what has come, once. Whether there was anything. Fails as the receiver does.
    pub fn poll(&mut self, recv: &mut dyn RecvEnd, mode: Mode) -> oxccl_types::Result<bool> {
        if matches!(mode, Mode::Into | Mode::Any) && self.offset == 0 && !self.is_full() && self.take_whole(recv)? {
            return Ok(true);
        }
        let Some(next) = recv.poll_header()? else { return Ok(false) };
        let expected = self.plan.header(self.number, self.offset);
        assert_eq!(Header { len: 0, ..next }, Header { len: 0, ..expected }, "header of message {}", self.number);
        assert!(next.len <= expected.len && (next.len > 0 || expected.total == 0), "{next:?}");
        match mode {
            Mode::Into => self.take_into(recv, next),
            Mode::Whole => self.take(recv, next, false),
            Mode::Parts => self.take(recv, next, true),
            Mode::Any => match self.random(3) {
                0 => self.take_into(recv, next),
                r => self.take(recv, next, r == 1),
            },
        }
    }

    fn take(&mut self, recv: &mut dyn RecvEnd, next: Header, parts: bool) -> oxccl_types::Result<bool> {
        let Some(arrival) = recv.poll_recv()? else { return Ok(false) };
        let again = recv.poll_recv()?.expect("the same arrival");
        assert_eq!((arrival.header, arrival.data), (again.header, again.data), "poll_recv is idempotent");
        assert_eq!(Header { len: next.len, ..arrival.header }, next);
        let len = arrival.header.len;
        assert!(len > 0 || next.total == 0);
        let mut bytes = vec![0; len as usize];
        // SAFETY: an arrival has `len` readable bytes until consumed.
        unsafe { std::ptr::copy_nonoverlapping(arrival.data, bytes.as_mut_ptr(), bytes.len()) };
        self.check(&bytes);
        let taken = if parts && len > 1 { 1 + self.random(len) } else { len };
        if taken == len && self.random(2) == 0 {
            recv.release();
        } else {
            recv.consume(taken);
        }
        self.advance(taken);
        Ok(true)
    }

    /// Takes a message that came as a copy, whatever others it is taken for at first.
    fn take_whole(&mut self, recv: &mut dyn RecvEnd) -> oxccl_types::Result<bool> {
        let expected = self.plan.header(self.number, 0);
        let total = expected.total as usize;
        let others = [
            Header { signature: [!expected.signature[0], expected.signature[1]], ..expected },
            Header { sequence: expected.sequence + 1, ..expected },
            Header { total: expected.total.saturating_sub(1), signature: [0; 2], ..expected },
        ];
        self.room[total] = 0xDD;
        // SAFETY: `room` is longer than the longest message.
        let mut whole = |header: &Header, polls| unsafe { recv.recv_whole(header, self.room.as_mut_ptr(), polls) };
        for other in &others {
            assert!(!whole(other, 2)?, "{other:?} taken for {expected:?}");
        }
        if !whole(&expected, 2)? {
            return Ok(false);
        }
        assert_eq!(self.room[total], 0xDD, "wrote beyond the message");
        let bytes = self.room[..total].to_vec();
        self.check(&bytes);
        self.advance(expected.total);
        Ok(true)
    }

    fn take_into(&mut self, recv: &mut dyn RecvEnd, next: Header) -> oxccl_types::Result<bool> {
        let left = (next.total - next.offset) as usize;
        let capacity = if self.random(2) == 0 { left } else { 1 + self.random(left as u64 + 1) as usize };
        let capacity = capacity.clamp(usize::from(left > 0), left);
        self.room[capacity] = 0xDD;
        // SAFETY: `room` is longer than the longest message.
        let got = unsafe { recv.poll_recv_into(self.room.as_mut_ptr(), capacity)? };
        let Some(got) = got else { return Ok(false) };
        assert_eq!(Header { len: next.len, ..got }, next);
        assert!(got.len as usize <= capacity && (got.len > 0 || next.total == 0));
        assert_eq!(self.room[capacity], 0xDD, "wrote beyond the capacity");
        let bytes = self.room[..got.len as usize].to_vec();
        self.check(&bytes);
        self.advance(got.len);
        Ok(true)
    }

    fn check(&self, bytes: &[u8]) {
        let expected = pattern(self.number, self.offset, bytes.len());
        if bytes != expected {
            let at = bytes.iter().zip(&expected).position(|(a, b)| a != b).expect("they differ");
            panic!(
                "message {} differs at byte {}: {:#x} instead of {:#x}",
                self.number,
                self.offset + at as u64,
                bytes[at],
                expected[at]
            );
        }
    }

    fn advance(&mut self, bytes: u64) {
        self.offset += bytes;
        if self.offset == self.plan.len(self.number) as u64 {
            self.number += 1;
            self.offset = 0;
        }
    }
}
