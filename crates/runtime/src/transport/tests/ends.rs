//! Messages of which most lies on large pages, and the ends on small ones.

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

/// Sends message `n` and checks what arrives; how many bytes went at a time.
fn message(n: u64, (send, from): (&mut LocalSender, &Apart), (recv, to): (&mut LocalReceiver, &Apart)) -> Vec<usize> {
    let byte = |i: usize| (i as u64 * 7 + (i as u64 >> 12) + 13 * n) as u8;
    // SAFETY: memory of this test.
    (0..LEN).for_each(|i| unsafe { from.at.add(i).write(byte(i)) });
    let (mut sent, mut got, mut lengths) = (0, 0, Vec::new());
    while got < LEN {
        while sent < LEN {
            let header = Header { offset: sent as u64, ..header_of(n, LEN) };
            // SAFETY: readable until it was received.
            let Some((accepted, _)) = (unsafe { send.poll_send(&header, from.at.add(sent), LEN - sent).unwrap() })
            else {
                break;
            };
            lengths.push(accepted);
            sent += accepted;
        }
        // SAFETY: memory of this test.
        let header =
            unsafe { recv.poll_recv_into(to.at.add(got), (LEN - got).min(1 << 20)).unwrap() }.expect("it was sent");
        assert_eq!((header.signature[0], header.offset), (n, got as u64));
        got += header.len as usize;
    }
    // SAFETY: as above.
    let wrong = (0..LEN).find(|i| unsafe { to.at.add(*i).read() } != byte(*i));
    assert_eq!(wrong, None, "message {n}");
    lengths
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
        lengths = message(n, (&mut send, &from), (&mut recv, &to));
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

/// Where the peer sends as well, what is too long for that goes by slots; without, the kernel reads it.
#[test]
fn long_messages_both_ways_go_by_slots() {
    require_cma();
    let sizes = Sizes::new(4, SLOT);
    let memory = [create(sizes), create(sizes)];
    let area = |i: usize| area(&memory[i], sizes);
    let mapper = Some(Arc::new(TestMapper::default()) as Arc<dyn Mapper>);
    let policy = Policy { direct_from: None, cma_from: None, cma_large_from: Some(1 << 20), ..policy(MIXED) };
    let policy = Policy { cma_both_ways_below: LEN, ..policy };
    // Of rank 0 and of rank 1.
    let mut senders = [0, 1].map(|i| {
        LocalSender::new(area(i), policy, mapper.clone(), peer(1 - i as u32)).trading(area(1 - i), i == 0, false)
    });
    let mut receivers = [0, 1].map(|i| {
        let (mapper, pid) = (mapper.clone(), Some(std::process::id()));
        let options =
            LocalReceiverOptions { peer: peer(1 - i as u32), mapper, pid, same_process: false, large_pages: true };
        LocalReceiver::new(area(1 - i), options).trading(area(i), i == 0)
    });
    let places = [(); 4].map(|()| Apart::new(LEN));
    let mut longest = [0; 2];
    for (both, longest) in longest.iter_mut().enumerate().rev() {
        for n in 0..8 {
            let there = message(n, (&mut senders[0], &places[0]), (&mut receivers[1], &places[1]));
            *longest = there.into_iter().max().unwrap_or(0);
            if both == 1 {
                assert!(*longest <= SLOT, "message {n}: {longest}");
                message(n, (&mut senders[1], &places[2]), (&mut receivers[0], &places[3]));
            }
        }
    }
    if longest[0] <= SLOT {
        let _ = writeln!(std::io::stderr(), "SKIPPED: long messages on large pages: the system has none");
    }
}
