//! Messages of which most lies on large pages, and the ends on small ones.

use oxccl_sys::pages;

use super::*;
use crate::transport::Header;

/// Memory with pages around it that may not be touched, so that none that holds its first or last byte becomes a large one.
struct Apart {
    reserved: *mut libc::c_void,
    at: *mut u8,
}

impl Apart {
    const RESERVED: usize = 32 << 20;

    /// `len` bytes that begin in the middle of a large page of 2 MiB, a quarter of one and 77 bytes behind its start.
    fn new(len: usize) -> Apart {
        let large = 2 << 20;
        assert!(len + 2 * large <= Self::RESERVED);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: fresh memory, which nobody else knows.
        let reserved = unsafe { libc::mmap(std::ptr::null_mut(), Self::RESERVED, libc::PROT_NONE, flags, -1, 0) };
        assert_ne!(reserved, libc::MAP_FAILED);
        let page = reserved.wrapping_add(reserved.addr().next_multiple_of(large) - reserved.addr() + large / 4);
        let bytes = (len + 77).next_multiple_of(4096);
        // SAFETY: inside of it.
        let opened = unsafe { libc::mprotect(page, bytes, libc::PROT_READ | libc::PROT_WRITE) };
        assert_eq!(opened, 0, "{}", std::io::Error::last_os_error());
        Apart { reserved, at: page.cast::<u8>().wrapping_add(77) }
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and used no more.
        unsafe { libc::munmap(self.reserved, Self::RESERVED) };
    }
}

/// Bytes of a message.
const LEN: usize = (7 << 20) + 4321;
const SLOT: usize = 128 << 10;

/// A message on its way from one end to the other.
struct Way<'a> {
    send: &'a mut LocalSender,
    from: &'a Apart,
    recv: &'a mut LocalReceiver,
    to: &'a Apart,
    sent: usize,
    got: usize,
    /// How many bytes went at a time.
    lengths: Vec<usize>,
}

impl<'a> Way<'a> {
    fn new(send: &'a mut LocalSender, from: &'a Apart, recv: &'a mut LocalReceiver, to: &'a Apart) -> Way<'a> {
        Way { send, from, recv, to, sent: 0, got: 0, lengths: Vec::new() }
    }

    fn byte(n: u64, i: usize) -> u8 {
        (i as u64 * 7 + (i as u64 >> 12) + 13 * n) as u8
    }

    /// Sends what there is room for of message `n` of `len` bytes, and receives a part; whether all has come.
    fn step(&mut self, n: u64, len: usize) -> bool {
        if self.sent == 0 {
            // SAFETY: memory of this test.
            (0..len).for_each(|i| unsafe { self.from.at.add(i).write(Self::byte(n, i)) });
        }
        while self.sent < len {
            let header = Header { offset: self.sent as u64, ..header_of(n, len) };
            // SAFETY: readable until it was received.
            let sent = unsafe { self.send.poll_send(&header, self.from.at.add(self.sent), len - self.sent).unwrap() };
            let Some((accepted, _)) = sent else { break };
            self.lengths.push(accepted);
            self.sent += accepted;
        }
        if self.got < len {
            let (to, room) = (self.to.at.wrapping_add(self.got), (len - self.got).min(1 << 20));
            // SAFETY: memory of this test.
            let header = unsafe { self.recv.poll_recv_into(to, room).unwrap() }.expect("it was sent");
            assert_eq!((header.signature[0], header.offset), (n, self.got as u64));
            self.got += header.len as usize;
        }
        self.got == len
    }

    /// All of message `n`, and what arrived is checked; how many bytes went at a time.
    fn message(mut self, n: u64, len: usize) -> Vec<usize> {
        while !self.step(n, len) {}
        self.check(n, len)
    }

    fn check(self, n: u64, len: usize) -> Vec<usize> {
        // SAFETY: memory of this test.
        let wrong = (0..len).find(|i| unsafe { self.to.at.add(*i).read() } != Self::byte(n, *i));
        assert_eq!(wrong, None, "message {n}");
        self.lengths
    }
}

/// The kernel reads what lies on whole large pages, in one piece; slots carry what is before and behind that.
#[test]
fn slots_carry_the_ends_of_a_message_on_large_pages() {
    require_cma();
    let sizes = Sizes::new(4, SLOT);
    let memory = create(sizes);
    let mapper = Some(Arc::new(TestMapper::default()) as Arc<dyn Mapper>);
    let policy = Policy { direct_from: None, cma_from: None, cma_large_from: Some(1 << 20), ..policy(MIXED) };
    let mut send = LocalSender::new(area(&memory, sizes), policy, mapper.clone(), peer(0));
    let pid = Some(std::process::id());
    let options = LocalReceiverOptions { peer: peer(1), mapper, pid, same_process: false, large_pages: true };
    let mut recv = LocalReceiver::new(area(&memory, sizes), options);
    let (from, to) = (Apart::new(LEN), Apart::new(LEN));
    let mut lengths = Vec::new();
    for n in 0..8u64 {
        lengths = Way::new(&mut send, &from, &mut recv, &to).message(n, LEN);
        if n == 0 {
            assert!(lengths.iter().all(|len| *len <= SLOT), "small pages go by slots: {lengths:?}");
        }
    }
    let long: Vec<usize> = (0..lengths.len()).filter(|i| lengths[*i] > SLOT).collect();
    let [long] = long[..] else {
        // The system has no large pages, or none that are free.
        let _ = writeln!(std::io::stderr(), "SKIPPED: ends of messages on large pages: there are none");
        assert!(long.is_empty(), "{lengths:?}");
        return;
    };
    let before: usize = lengths[..long].iter().sum();
    let large = 2 << 20;
    assert!(long > 0 && long + 1 < lengths.len(), "{lengths:?}");
    assert!((from.at.addr() + before).is_multiple_of(large) && lengths[long].is_multiple_of(large), "{lengths:?}");
}

/// What the peer of a long message does.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Peer {
    /// Sends another one at the same time.
    Sends,
    /// Sends a short one between two of them.
    Replies,
}

/// The longest part of the last of some messages from rank 0 to 1, and of others that are a byte shorter; those of `below` bytes and
/// more are long for both ways.
fn longest(peer_does: Peer, below: u64) -> [usize; 2] {
    let sizes = Sizes::new(4, SLOT);
    let memory = [create(sizes), create(sizes)];
    let area = |i: usize| area(&memory[i], sizes);
    let mapper = Some(Arc::new(TestMapper::default()) as Arc<dyn Mapper>);
    let policy = Policy { direct_from: None, cma_from: None, cma_large_from: Some(1 << 20), ..policy(MIXED) };
    let policy = Policy { cma_both_ways_below: below, ..policy };
    // Of rank 0 and of rank 1.
    let [send, send_back] = &mut [0, 1].map(|i| {
        LocalSender::new(area(i), policy, mapper.clone(), peer(1 - i as u32)).trading(area(1 - i), i == 0, false)
    });
    let [recv_back, recv] = &mut [0, 1].map(|i| {
        let (mapper, pid) = (mapper.clone(), Some(std::process::id()));
        let options =
            LocalReceiverOptions { peer: peer(1 - i as u32), mapper, pid, same_process: false, large_pages: true };
        LocalReceiver::new(area(1 - i), options).trading(area(i), i == 0)
    });
    let places = [(); 4].map(|()| Apart::new(LEN));
    // Here, since it may take long: who uses them does not wait for it then.
    for place in &places {
        // SAFETY: memory of this test.
        unsafe { place.at.write_bytes(1, LEN) };
        let first = place.at.addr().next_multiple_of(2 << 20);
        (first..place.at.addr() + LEN - (2 << 20)).step_by(2 << 20).for_each(|page| _ = pages::enlarge(page));
    }
    let mut longest = [0; 2];
    for n in 0..20 {
        let len = LEN - n as usize / 10;
        let mut there = Way::new(send, &places[0], recv, &places[1]);
        let mut back = Way::new(send_back, &places[2], recv_back, &places[3]);
        let parts = if peer_does == Peer::Sends {
            while !(there.step(n, len) & back.step(n, len)) {}
            back.check(n, len);
            there.check(n, len)
        } else {
            let parts = there.message(n, len);
            back.message(n, 100);
            parts
        };
        longest[n as usize / 10] = parts.into_iter().max().unwrap_or(0);
    }
    longest
}

/// Where the peer sends as well, what is too long for that goes by slots; what it replies in between changes nothing.
#[test]
fn long_messages_both_ways_go_by_slots() {
    require_cma();
    let sends = longest(Peer::Sends, LEN as u64);
    let replies = longest(Peer::Replies, LEN as u64);
    assert!(sends[0] <= SLOT, "{sends:?}");
    if [Peer::Sends, Peer::Replies].map(|peer| longest(peer, u64::MAX).map(|l| l > SLOT)) == [[true; 2]; 2] {
        assert!(sends[1] > SLOT && replies.iter().all(|l| *l > SLOT), "{sends:?} {replies:?}");
    } else {
        let _ = writeln!(std::io::stderr(), "SKIPPED: long messages on large pages: the system has none");
    }
}
