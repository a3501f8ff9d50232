//! Every transport of this crate through the conformance suite, and what is peculiar to each.

use std::any::Any;
use std::fs::OpenOptions;
use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use oxccl_sys::{Deadline, SharedMemory};
use oxccl_types::{Error, Result, ResultCode};
use rustix::net::{AddressFamily, SocketType, sockopt};

use super::conformance as suite;
use super::conformance::{Borrow, Factory, Listener, Pair, Source, until};
use super::local::{
    Exported, LocalArea, LocalReceiver, LocalReceiverOptions, LocalSender, Mapper, Policy, Route, Sizes,
};
use super::tcp::{TcpEnd, TcpOptions};
use super::{Peer, RecvEnd, SendEnd, Ticket};
use crate::service::io::{Limits, connect_any};
use crate::{conformance, service};

mod ends;

fn peer(rank: u32) -> Peer {
    Peer { rank, place: "this test".into() }
}

/// The shared memory `fd` of process `pid`, mapped once more.
fn map(pid: u32, fd: u64) -> std::io::Result<SharedMemory> {
    let file = OpenOptions::new().read(true).write(true).open(format!("/proc/{pid}/fd/{fd}"))?;
    SharedMemory::from_fd(OwnedFd::from(file))
}

/// Knows the segments of its test; a segment is named by process and descriptor, and always mapped anew by who imports.
#[derive(Default)]
struct TestMapper {
    ours: Mutex<Vec<Arc<SharedMemory>>>,
    theirs: Mutex<Vec<(u64, SharedMemory)>>,
}

impl Mapper for TestMapper {
    fn export(&self, ptr: *const u8, len: usize) -> Option<Exported> {
        let ours = self.ours.lock().unwrap();
        let inside = |m: &&Arc<SharedMemory>| {
            let start = m.as_ptr() as usize;
            ptr as usize >= start && ptr as usize + len <= start + m.len()
        };
        let memory = ours.iter().find(inside)?;
        let segment = u64::from(std::process::id()) << 32 | memory.fd().as_raw_fd_u64();
        Some(Exported { segment, offset: (ptr as usize - memory.as_ptr() as usize) as u64 })
    }

    fn import(&self, rank: u32, at: Exported, len: usize) -> Result<*const u8> {
        assert_eq!(rank, 1);
        let mut theirs = self.theirs.lock().unwrap();
        if !theirs.iter().any(|(segment, _)| *segment == at.segment) {
            let memory = map((at.segment >> 32) as u32, at.segment & 0xffff_ffff)
                .map_err(|e| Error::system(format!("mapping segment {:#x}: {e}", at.segment)))?;
            theirs.push((at.segment, memory));
        }
        let (_, memory) = theirs.iter().find(|(segment, _)| *segment == at.segment).expect("just put there");
        Ok(memory.at(at.offset as usize, len))
    }
}

trait AsRawFdU64 {
    fn as_raw_fd_u64(&self) -> u64;
}

impl<T: AsRawFd> AsRawFdU64 for T {
    fn as_raw_fd_u64(&self) -> u64 {
        self.as_raw_fd() as u64
    }
}

/// All local routes; `R` picks one.
#[derive(Default)]
struct LocalFactory<const R: u8> {
    mapper: Arc<TestMapper>,
    sources: AtomicU64,
}

const SHM: u8 = 0;
const DIRECT: u8 = 1;
const CMA: u8 = 2;
/// All routes by their thresholds, from memory of both kinds.
const MIXED: u8 = 3;
/// Addresses as they are, in one process.
const RAW: u8 = 4;
/// As `MIXED`, with more records than slots.
const AHEAD: u8 = 5;

/// The sizes of a connection by `which`.
fn sizes(which: u8, slots: usize, slot_bytes: usize) -> Sizes {
    Sizes { records: if which == AHEAD { 4 * slots } else { slots }, ..Sizes::new(slots, slot_bytes) }
}

fn policy(which: u8) -> Policy {
    match which {
        SHM => Policy::only(Route::Slots),
        DIRECT => Policy::only(Route::Direct),
        CMA => Policy::only(Route::Cma),
        RAW => Policy { same_process: true, ..Policy::only(Route::Direct) },
        _ => Policy {
            direct_from: Some(500),
            cma_from: Some(2000),
            cma_below: 100_000,
            cma_outgrown: false,
            cma_large_from: Some(2000),
            cma_both_ways_below: u64::MAX,
            large_pages: true,
            same_process: false,
            forced: None,
        },
    }
}

fn area(memory: &SharedMemory, sizes: Sizes) -> LocalArea {
    // SAFETY: fresh memory of this test, which keeps it mapped; two ends only.
    unsafe { LocalArea::new(memory.as_ptr(), memory.len(), sizes).unwrap() }
}

fn create(sizes: Sizes) -> SharedMemory {
    SharedMemory::create("oxccl-test", LocalArea::bytes(sizes)).unwrap()
}

impl<const R: u8> LocalFactory<R> {
    fn receiver(&self, area: LocalArea, pid: u32) -> LocalReceiver {
        let cma = matches!(R, CMA | MIXED | AHEAD);
        if cma {
            require_cma();
        }
        let mapper = Some(self.mapper.clone() as Arc<dyn Mapper>);
        let pid = cma.then_some(pid);
        LocalReceiver::new(
            area,
            LocalReceiverOptions { peer: peer(1), mapper, pid, same_process: R == RAW, large_pages: true },
        )
    }

    fn sender(&self, area: LocalArea) -> LocalSender {
        LocalSender::new(area, policy(R), Some(self.mapper.clone()), peer(0))
    }
}

/// The suite cannot say anything of cma where the system forbids it: that is a failure, not a pass.
fn require_cma() {
    static PERMITTED: OnceLock<bool> = OnceLock::new();
    let word = 0x5ca1_ab1e_u64;
    let probe = || super::local::probe_cma(std::process::id(), &raw const word as u64, word);
    assert!(*PERMITTED.get_or_init(probe), "CMA IS NOT TESTABLE HERE: the system forbids process_vm_readv");
}

struct LocalListener<const R: u8> {
    memory: SharedMemory,
    factory: LocalFactory<R>,
    sizes: Sizes,
}

/// A receiver together with the memory it lives in.
struct Kept<T>(T, #[allow(dead_code, reason = "dropped after the end")] SharedMemory);

impl<T: RecvEnd> RecvEnd for Kept<T> {
    fn poll_header(&mut self) -> Result<Option<super::Header>> {
        self.0.poll_header()
    }
    fn poll_recv(&mut self) -> Result<Option<super::Arrival>> {
        self.0.poll_recv()
    }
    fn consume(&mut self, bytes: u64) {
        self.0.consume(bytes);
    }
    fn release(&mut self) {
        self.0.release();
    }
    unsafe fn poll_recv_into(&mut self, dst: *mut u8, capacity: usize) -> Result<Option<super::Header>> {
        // SAFETY: handed through.
        unsafe { self.0.poll_recv_into(dst, capacity) }
    }
    fn refuse(&mut self, text: &str) {
        self.0.refuse(text);
    }
}

impl<const R: u8> Listener for LocalListener<R> {
    fn text(&self) -> String {
        format!("{},{}", std::process::id(), self.memory.fd().as_raw_fd())
    }
    fn accept(self: Box<Self>, pid: u32) -> Box<dyn RecvEnd> {
        let area = area(&self.memory, self.sizes);
        Box::new(Kept(self.factory.receiver(area, pid), self.memory))
    }
}

impl<const R: u8> Factory for LocalFactory<R> {
    fn pair(&self, slots: usize, slot_bytes: usize) -> Pair {
        let sizes = sizes(R, slots, slot_bytes);
        let memory = create(sizes);
        let area = area(&memory, sizes);
        let recv = Box::new(self.receiver(area, std::process::id()));
        Pair { send: Box::new(self.sender(area)), recv, keep: Box::new(memory) }
    }

    fn source(&self, len: usize) -> Source {
        let odd = self.sources.fetch_add(1, Ordering::Relaxed) % 2 == 1;
        if R != DIRECT && !(matches!(R, MIXED | AHEAD) && odd) {
            return Source::heap(len);
        }
        let memory = Arc::new(SharedMemory::create("oxccl-test", len).unwrap());
        self.mapper.ours.lock().unwrap().push(memory.clone());
        Source { ptr: memory.as_ptr(), len, keep: Box::new(memory) }
    }

    fn borrow(&self) -> Borrow {
        if matches!(R, DIRECT | CMA | RAW) { Borrow::UntilReleased } else { Borrow::Never }
    }

    fn counts_slots(&self) -> bool {
        R != AHEAD
    }

    fn notices_death(&self) -> bool {
        R == CMA
    }

    fn listen(&self, slots: usize, slot_bytes: usize) -> Box<dyn Listener> {
        let factory = LocalFactory::<R> { mapper: self.mapper.clone(), ..Default::default() };
        let sizes = sizes(R, slots, slot_bytes);
        Box::new(LocalListener { memory: create(sizes), factory, sizes })
    }

    fn join(&self, text: &str, slots: usize, slot_bytes: usize) -> (Box<dyn SendEnd>, Box<dyn Any>) {
        let (pid, fd) = text.split_once(',').unwrap();
        let memory = map(pid.parse().unwrap(), fd.parse().unwrap()).unwrap();
        (Box::new(self.sender(area(&memory, sizes(R, slots, slot_bytes)))), Box::new(memory))
    }
}

type ShmFactory = LocalFactory<SHM>;
type DirectFactory = LocalFactory<DIRECT>;
type CmaFactory = LocalFactory<CMA>;

/// One direction over a stream of the loopback interface.
#[derive(Default)]
struct TcpFactory;

/// Small kernel buffers, so that partial writes are the rule.
const BUFFERS: libc::c_int = 16 << 10;

fn tcp_options(rank: u32, stream: &TcpStream, slots: usize, slot_bytes: usize) -> TcpOptions {
    let place = stream.peer_addr().unwrap().to_string();
    TcpOptions { peer: Peer { rank, place }, slots, slot_bytes, buffer_bytes: Some(BUFFERS as usize), within: false }
}

fn tcp_receiver(stream: TcpStream, slots: usize, slot_bytes: usize) -> TcpEnd {
    let options = tcp_options(1, &stream, slots, slot_bytes);
    TcpEnd::new(stream, options).unwrap()
}

fn tcp_sender(stream: TcpStream, slots: usize, slot_bytes: usize) -> TcpEnd {
    let options = tcp_options(0, &stream, slots, slot_bytes);
    TcpEnd::new(stream, options).unwrap()
}

/// Where streams are accepted: with the small buffer from the start and segments as over Ethernet. A window that shrinks below
/// what was promised, or below a segment of the loopback interface, makes the kernel drop what comes or hold it back, until
/// timers of 200 ms and more end that.
fn listener() -> TcpListener {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let set = |level, option, value: libc::c_int| {
        // SAFETY: the option is a c_int.
        let set = unsafe {
            let (at, len) = ((&raw const value).cast(), size_of_val(&value) as libc::socklen_t);
            libc::setsockopt(listener.as_raw_fd(), level, option, at, len)
        };
        assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
    };
    set(libc::SOL_SOCKET, libc::SO_RCVBUF, BUFFERS);
    set(libc::IPPROTO_TCP, libc::TCP_MAXSEG, 1460);
    listener
}

/// Both ends of a stream.
fn streams() -> (TcpStream, TcpStream) {
    let listener = listener();
    let a = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (a, accept(&listener))
}

fn accept(listener: &TcpListener) -> TcpStream {
    listener.set_nonblocking(true).unwrap();
    let mut stream = None;
    until("a connection", || {
        stream = listener.accept().ok();
        stream.is_some()
    });
    stream.unwrap().0
}

impl Listener for (TcpListener, usize, usize) {
    fn text(&self) -> String {
        self.0.local_addr().unwrap().to_string()
    }
    fn accept(self: Box<Self>, _: u32) -> Box<dyn RecvEnd> {
        Box::new(tcp_receiver(accept(&self.0), self.1, self.2))
    }
}

impl Factory for TcpFactory {
    fn pair(&self, slots: usize, slot_bytes: usize) -> Pair {
        let (a, b) = streams();
        let recv = Box::new(tcp_receiver(b, slots, slot_bytes));
        Pair { send: Box::new(tcp_sender(a, slots, slot_bytes)), recv, keep: Box::new(()) }
    }
    fn source(&self, len: usize) -> Source {
        Source::heap(len)
    }
    fn borrow(&self) -> Borrow {
        Borrow::UntilWritten
    }
    fn counts_slots(&self) -> bool {
        false
    }
    fn notices_death(&self) -> bool {
        true
    }
    fn listen(&self, slots: usize, slot_bytes: usize) -> Box<dyn Listener> {
        Box::new((listener(), slots, slot_bytes))
    }
    fn join(&self, text: &str, slots: usize, slot_bytes: usize) -> (Box<dyn SendEnd>, Box<dyn Any>) {
        (Box::new(tcp_sender(TcpStream::connect(text).unwrap(), slots, slot_bytes)), Box::new(()))
    }
}

conformance!(shm, ShmFactory);
conformance!(direct, DirectFactory);
conformance!(cma, CmaFactory);
conformance!(tcp, TcpFactory);

/// What the suite says of policies that only make sense inside one process, or choose by length.
#[test]
fn raw_addresses_and_mixed_routes_deliver() {
    let raw = LocalFactory::<RAW>::default();
    suite::delivers_every_size(&raw);
    suite::says_done_when_it_is(&raw);
    suite::delivers_random_messages(&raw);
    let mixed = LocalFactory::<MIXED>::default();
    suite::delivers_every_size(&mixed);
    suite::keeps_order(&mixed);
    suite::delivers_random_messages(&mixed);
    let ahead = LocalFactory::<AHEAD>::default();
    suite::delivers_every_size(&ahead);
    suite::keeps_order(&ahead);
    suite::runs_out_of_credit_and_recovers(&ahead);
    suite::delivers_random_messages(&ahead);
}

/// Small messages take a record each; what needs a slot waits for one, and then goes behind what is under way.
#[test]
fn more_small_messages_than_slots_are_under_way() {
    for small in [Sizes::SMALL, Sizes::SMALL / 2 - 64] {
        take_small_slots(small);
    }
}

/// Messages of up to `small` bytes go by small slots.
fn take_small_slots(small: usize) {
    let sizes = Sizes { records: 8, small, ..Sizes::new(2, 8192) };
    let memory = create(sizes);
    let factory = LocalFactory::<SHM>::default();
    let mut send = factory.sender(area(&memory, sizes));
    let mut recv = factory.receiver(area(&memory, sizes), 0);
    let data: Vec<u8> = (0..8192usize).map(|i| (i % 251) as u8).collect();
    let header = |n: u64, len: usize| super::Header { signature: [n, 0], total: len as u64, ..Default::default() };
    // SAFETY: the data lives to the end.
    let mut put =
        |n: u64, len: usize| unsafe { send.send_whole(&header(n, len), data[n as usize..].as_ptr()).unwrap() };
    let mut out = vec![0u8; 8192];
    let mut take = |n: u64, len: usize| {
        // SAFETY: the output is long enough.
        let came = unsafe { recv.recv_whole(&header(n, len), out.as_mut_ptr(), 1).unwrap() };
        assert!(came && out[..len] == data[n as usize..n as usize + len], "message {n} of {len} bytes");
    };
    for round in 0..20 {
        let lengths = [8000, small + 1, small, 33, 8, small, 0, small];
        let first = round * 8;
        // Two of them need slots, of which there are two; what needs another finds none, though there are records.
        for (i, len) in lengths.iter().enumerate().take(4) {
            assert!(put(first + i as u64, *len), "{i}");
        }
        assert!(!put(first + 4, 8000), "a slot that is in use was given away");
        for (i, len) in lengths.iter().enumerate().skip(4) {
            assert!(put(first + i as u64, *len), "{i}");
        }
        assert!(!put(first + 8, 8), "there are eight records");
        lengths.iter().enumerate().for_each(|(i, len)| take(first + i as u64, *len));
    }
}

/// The ends of one rank of two, whose slots change hands.
struct Trader {
    send: LocalSender,
    recv: LocalReceiver,
    /// Messages that the peer has yet to take: number and length.
    under_way: std::collections::VecDeque<(u64, usize)>,
    sent: u64,
}

fn traders(there: LocalArea, back: LocalArea, round: bool) -> [Trader; 2] {
    let factory = LocalFactory::<SHM>::default();
    [(there, back, true), (back, there, false)].map(|(out, back, lower)| Trader {
        send: factory.sender(out).trading(back, lower, round),
        recv: factory.receiver(back, 0).trading(out, lower),
        under_way: std::collections::VecDeque::new(),
        sent: 0,
    })
}

fn header_of(n: u64, len: usize) -> super::Header {
    super::Header { signature: [n, 0], total: len as u64, ..Default::default() }
}

/// Whatever the order in which two ranks send and receive, and whatever the lengths: what is sent arrives as it was.
#[test]
fn slots_that_change_hands_hold_one_message_each() {
    for (round, stays) in [(false, 1), (true, 1), (true, 400)] {
        trade(round, stays);
    }
}

/// As long as `stays` messages or so who sends is one rank as a rule; `round`: messages may go round inside of their slots.
fn trade(round: bool, stays: u64) {
    let data: Vec<u8> = (0..9000usize).map(|i| (i * 7 % 253) as u8).collect();
    for sizes in [Sizes::new(1, 4096), Sizes::new(4, 4096), Sizes { records: 32, ..Sizes::new(8, 4096) }] {
        let memory = [create(sizes), create(sizes)];
        let mut ranks = traders(area(&memory[0], sizes), area(&memory[1], sizes), round);
        let mut random = 88_172_645_463_325_252_u64;
        let mut out = vec![0u8; 4096];
        for step in 0..20_000 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let turn = if stays > 1 { step / stays % 2 } else { random & 1 };
            let (me, len) = (turn as usize, [4096, 3000, 2048, 64, 8, 4095][(random >> 8) as usize % 6]);
            let place = |n: u64| n as usize % 4000 + 500 * me;
            if random & 2 == 0 {
                let n = ranks[me].sent;
                // SAFETY: the data lives to the end.
                if unsafe { ranks[me].send.send_whole(&header_of(n, len), data[place(n)..].as_ptr()).unwrap() } {
                    ranks[me].under_way.push_back((n, len));
                    ranks[me].sent += 1;
                }
                continue;
            }
            let Some((n, len)) = ranks[me].under_way.pop_front() else { continue };
            let recv = &mut ranks[1 - me].recv;
            if random & 4 == 0 {
                // SAFETY: the output is long enough.
                assert!(unsafe { recv.recv_whole(&header_of(n, len), out.as_mut_ptr(), 1).unwrap() }, "{n}");
            } else {
                let mut done = 0;
                while done < len {
                    // SAFETY: as above.
                    let got = unsafe { recv.poll_recv_into(out[done..].as_mut_ptr(), (len - done).min(1500)) };
                    done += got.unwrap().expect("it was sent").len as usize;
                }
            }
            assert!(out[..len] == data[place(n)..place(n) + len], "message {n} of {len} bytes, {sizes:?}");
        }
        assert!(ranks.iter().all(|r| r.sent > 1000), "too little was sent");
    }
}

/// Ranks that send to each other in turns write where they have just read, and touch no other slot.
#[test]
fn a_rank_sends_from_the_slot_that_it_has_read() {
    let sizes = Sizes::new(8, 4096);
    let memory = [create(sizes), create(sizes)];
    let mut ranks = traders(area(&memory[0], sizes), area(&memory[1], sizes), false);
    let data = [7u8; 4096];
    let mut read: [Option<*const u8>; 2] = [None; 2];
    for n in 0..50 {
        for rank in &mut ranks {
            // SAFETY: the data lives to the end.
            assert!(unsafe { rank.send.send_whole(&header_of(n, 4096), data.as_ptr()).unwrap() });
        }
        let came = [0, 1].map(|i| {
            let arrival = ranks[i].recv.poll_recv().unwrap().expect("it was sent");
            ranks[i].recv.release();
            arrival.data
        });
        if let [Some(a), Some(b)] = read {
            assert_eq!(came, [b, a], "message {n} did not come where the last one went");
        }
        read = came.map(Some);
    }
    // Who only sends goes round the slots that there are.
    for n in 50..100 {
        // SAFETY: as above.
        assert!(unsafe { ranks[0].send.send_whole(&header_of(n, 4096), data.as_ptr()).unwrap() });
        assert!(ranks[1].recv.poll_recv().unwrap().is_some());
        ranks[1].recv.release();
    }
}

#[test]
fn an_area_that_cannot_be_is_refused() {
    let memory = create(Sizes::new(4, 64));
    let make = |skew: usize, bytes, slots, slot_bytes| {
        // SAFETY: nothing is done with the area.
        unsafe { LocalArea::new(memory.as_ptr().wrapping_add(skew), bytes, Sizes::new(slots, slot_bytes)) }.map(|_| ())
    };
    assert_eq!(make(0, memory.len(), 4, 64), Ok(()));
    for (skew, bytes, slots, slot_bytes) in [
        (64, 1 << 20, 4, 64),
        (0, memory.len() - 1, 4, 64),
        (0, 1 << 20, 3, 64),
        (0, 1 << 20, 4, 65),
        (0, 1 << 20, 0, 64),
    ] {
        assert!(make(skew, bytes, slots, slot_bytes).is_err(), "{skew} {bytes} {slots} {slot_bytes}");
    }
}

#[test]
fn a_forced_route_that_cannot_be_taken_is_an_error() {
    let factory = LocalFactory::<DIRECT>::default();
    let mut pair = factory.pair(4, 64);
    let header = super::Header { total: 8, ..Default::default() };
    // SAFETY: nothing is accepted.
    let e = unsafe { pair.send.poll_send(&header, [0u8; 8].as_ptr(), 8) }.unwrap_err();
    assert!(e.text.contains("ncclMemAlloc"), "{e}");
    // The connection is as it was.
    suite::delivers_random_messages(&factory);
    assert!(pair.recv.poll_recv().unwrap().is_none());
}

#[test]
fn a_record_that_makes_no_sense_is_an_error() {
    // The ends disagree: the sender believes that both live in one process.
    let factory = LocalFactory::<SHM>::default();
    let memory = create(Sizes::new(4, 64));
    let area = area(&memory, Sizes::new(4, 64));
    let mut send = LocalSender::new(area, policy(RAW), None, peer(0));
    let mut recv = factory.receiver(area, std::process::id());
    let bytes = [0u8; 100];
    // SAFETY: the bytes stay to the end of the test.
    unsafe { send.poll_send(&super::Header { total: 100, ..Default::default() }, bytes.as_ptr(), 100) }.unwrap();
    let e = recv.poll_recv().unwrap_err();
    assert!(e.code == ResultCode::InternalError && e.text.contains("rank 1"), "{e}");
}

/// The error that a poll ends in.
fn failure<T>(what: &str, mut poll: impl FnMut() -> Result<T>) -> Error {
    let mut failure = None;
    until(what, || {
        failure = poll().err();
        failure.is_some()
    });
    failure.unwrap()
}

#[test]
fn tcp_garbage_is_an_error_at_both_ends() {
    for garbage in
        [vec![0u8; 64], b"GET / HTTP/1.1\r\nHost: example.org\r\nAccept: everything there is\r\n\r\n".to_vec()]
    {
        let (mut a, b) = streams();
        a.write_all(&garbage).unwrap();
        let mut recv = tcp_receiver(b, 4, 64);
        let e = failure("the receiver", || recv.poll_header());
        assert!(e.code == ResultCode::RemoteError && e.text.contains("rank 1 (127.0.0.1:"), "{e}");
        assert_eq!(recv.poll_recv().map(|_| ()), Err(e), "the error stays");

        let (a, mut b) = streams();
        b.write_all(&garbage).unwrap();
        let mut send = tcp_sender(a, 4, 64);
        let e = failure("the sender", || send.poll_received(Ticket::new(1)));
        assert!(e.code == ResultCode::RemoteError && e.text.contains("rank 0 (127.0.0.1:"), "{e}");
    }
}

#[test]
fn tcp_within_a_machine_is_not_paced() {
    let system = {
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        sockopt::tcp_congestion(&socket).unwrap()
    };
    if !system.starts_with("bbr") {
        // Not captured, unlike what `println!` writes in a test.
        let _ = writeln!(std::io::stderr(), "SKIPPED: the system paces nothing: only that its choice stays was seen");
    }
    for within in [false, true] {
        // As those of the library are: neither side has ever been paced.
        let listener = service::listen_at(&SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let slice = Duration::from_secs(10);
        let limits = Limits { deadline: Deadline::after(slice), abort: &AtomicBool::new(false) };
        let one = connect_any(&[listener.local_addr().unwrap()], slice, &limits).unwrap();
        let other = accept(&listener);
        for stream in [one, other] {
            let before = sockopt::tcp_congestion(&stream).unwrap();
            assert!(!before.starts_with("bbr"), "{before} from the beginning");
            let options = TcpOptions { within, ..tcp_options(1, &stream, 4, 64) };
            let same = stream.try_clone().unwrap();
            let _end = TcpEnd::new(stream, options).unwrap();
            let after = sockopt::tcp_congestion(&same).unwrap();
            assert_eq!(after, if within { before } else { system.clone() }, "within: {within}");
        }
    }
    // A stream of somebody else.
    let (stream, _peer) = streams();
    // Not every kernel has it, or offers it to everybody.
    let paced = sockopt::set_tcp_congestion(&stream, "bbr").is_ok();
    let same = stream.try_clone().unwrap();
    let _end = TcpEnd::new(stream, TcpOptions { within: true, ..tcp_options(1, &same, 4, 64) }).unwrap();
    let after = sockopt::tcp_congestion(&same).unwrap();
    assert_eq!(after, if paced { "reno" } else { &*system });
}

#[test]
fn tcp_delivers_what_came_before_a_goodbye() {
    let Pair { mut send, mut recv, keep: _ } = TcpFactory.pair(4, 64);
    let header = super::Header { total: 8, ..Default::default() };
    // SAFETY: the bytes are static.
    let sent = unsafe { send.poll_send(&header, b"farewell".as_ptr(), 8) }.unwrap();
    until("the kernel", || send.poll_done(sent.unwrap().1).unwrap());
    drop(send);
    until("the message", || recv.poll_recv().unwrap().is_some());
    recv.release();
    let e = failure("the goodbye", || recv.poll_recv());
    assert!(e.code == ResultCode::RemoteError && e.text.contains("in order"), "{e}");
}

#[test]
fn tcp_tells_the_sender_how_the_receiver_ended() {
    for orderly in [true, false] {
        let (a, b) = streams();
        let mut send = tcp_sender(a, 4, 64);
        if orderly {
            drop(tcp_receiver(b, 4, 64));
        } else {
            drop(b);
        }
        let header = super::Header { total: 8, ..Default::default() };
        // SAFETY: the bytes are static.
        let e = failure("the end", || unsafe { send.poll_send(&header, b"too late".as_ptr(), 8) });
        assert!(e.code == ResultCode::RemoteError && e.text.contains("rank 0 (127.0.0.1:"), "{e}");
        assert_eq!(e.text.contains("in order"), orderly, "{e}");
    }
}

#[test]
fn tcp_takes_acknowledgements_amid_small_frames() {
    const FRAMES: u64 = 40;
    let (a, b) = streams();
    let (mut send, mut recv) = (tcp_sender(a, 4, 4096), tcp_receiver(b, 4, 4096));
    let bytes = [7u8; 3000];
    let header = super::Header { total: 3000, ..Default::default() };
    send.hold(true);
    for i in 1..=FRAMES {
        // SAFETY: the bytes outlive the end.
        let sent = unsafe { send.poll_send(&header, bytes.as_ptr(), bytes.len()) }.unwrap();
        assert_eq!(sent.map(|(n, ticket)| (n, ticket.count())), Some((3000, i)), "held frames wait together");
    }
    send.hold(false);
    assert!(!SendEnd::flush(&mut send).unwrap(), "the kernel took all: no frame is half written");
    let mut taken = 0;
    while recv.poll_recv().unwrap().is_some() {
        recv.release();
        taken += 1;
    }
    assert!(0 < taken && taken < FRAMES, "{taken}");
    until("the acknowledgement to leave", || RecvEnd::flush(&mut recv).unwrap());
    until("the acknowledgement", || send.poll_received(Ticket::new(taken)).unwrap());
    // The same for the rest, and for a refusal in the midst of it.
    recv.refuse("enough");
    let e = failure("the refusal", || send.poll_received(Ticket::new(FRAMES)));
    assert!(e.code == ResultCode::InvalidUsage && e.text == "enough", "{e}");
}

/// Whether the kernel keeps packets that are not full.
fn is_corked(stream: &TcpStream) -> bool {
    let (mut value, mut len): (libc::c_int, _) = (-1, size_of::<libc::c_int>() as libc::socklen_t);
    let at = (&raw mut value).cast();
    // SAFETY: the kernel writes at most `len` bytes there.
    let got = unsafe { libc::getsockopt(stream.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_CORK, at, &raw mut len) };
    assert_eq!(got, 0, "{}", std::io::Error::last_os_error());
    value != 0
}

#[test]
fn tcp_fills_a_packet_with_what_follows_and_keeps_nothing_longer() {
    const LEN: usize = 100_001;
    let header = super::Header { total: LEN as u64, ..Default::default() };
    let data: Vec<u8> = (0..2 * LEN).map(|at| (at % 251) as u8).collect();
    for ending in ["a flush", "a wait until the peer has all", "a word of the end", "its goodbye"] {
        // With the packets and buffers of the loopback interface.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let a = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let b = accept(&listener);
        let stream = a.try_clone().unwrap();
        let end = |stream: TcpStream, rank| {
            let options = TcpOptions { buffer_bytes: None, ..tcp_options(rank, &stream, 4, 64) };
            TcpEnd::new(stream, options).unwrap()
        };
        let (mut send, mut recv) = (end(a, 0), end(b, 1));
        let (mut got, mut done) = (vec![0; 2 * LEN], 0);
        let mut take = || {
            let rest = LEN - done % LEN;
            // SAFETY: the rest of the memory of the message.
            let came = unsafe { recv.poll_recv_into(got[done..].as_mut_ptr(), rest) }.unwrap();
            done += came.map_or(0, |h| h.len as usize);
            done == 2 * LEN
        };
        send.hold(true);
        let mut last = Ticket::default();
        for data in data.chunks_exact(LEN) {
            // SAFETY: the bytes outlive the end.
            last = unsafe { send.poll_send(&header, data.as_ptr(), LEN) }.unwrap().unwrap().1;
        }
        until("the messages to be written", || {
            take();
            send.flush_or_hold(true).unwrap()
        });
        assert!(is_corked(&stream), "the end waits for what follows");
        match ending {
            "a flush" => assert!(send.flush_or_hold(false).unwrap()),
            // Nothing is acknowledged here.
            "a wait until the peer has all" => assert!(!send.poll_received(last).unwrap()),
            "a word of the end" => send.refuse("enough"),
            _ => drop(send),
        }
        assert!(!is_corked(&stream), "{ending}");
        until("the messages", take);
        assert!(got == data, "{ending}");
    }
}

/// Calls may go to one peer after another, and the next one to this one may be far.
#[test]
fn tcp_keeps_nothing_for_calls_that_pass_it_over() {
    const LEN: usize = 100_001;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let a = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let b = accept(&listener);
    let stream = a.try_clone().unwrap();
    let end = |stream: TcpStream, rank| {
        let options = TcpOptions { buffer_bytes: None, ..tcp_options(rank, &stream, 4, 64) };
        TcpEnd::new(stream, options).unwrap()
    };
    let (mut send, mut recv) = (end(a, 0), end(b, 1));
    let data = vec![7_u8; LEN];
    let mut got = vec![0_u8; LEN];
    let mut take = |len: usize, done: &mut usize| {
        // SAFETY: the rest of the memory of the message.
        let came = unsafe { recv.poll_recv_into(got[*done..].as_mut_ptr(), len - *done) }.unwrap();
        *done += came.map_or(0, |h| h.len as usize);
        *done == len
    };
    let give = |send: &mut TcpEnd, len: usize| {
        send.hold(true);
        let header = super::Header { total: len as u64, ..Default::default() };
        // SAFETY: the bytes outlive the end.
        unsafe { send.poll_send(&header, data.as_ptr(), len) }.unwrap().unwrap();
    };
    for _ in 0..3 {
        let mut done = 0;
        give(&mut send, LEN);
        until("the message to be written", || {
            take(LEN, &mut done);
            send.flush_or_hold(true).unwrap()
        });
        assert!(is_corked(&stream), "the next call may be for this end");
        assert!(send.flush_or_hold(true).unwrap());
        assert!(!is_corked(&stream), "it was not");
        until("the message", || take(LEN, &mut done));
    }
    // What is small waits for some calls more.
    give(&mut send, 8);
    assert!(send.flush_or_hold(true).unwrap());
    assert!(!take(8, &mut 0), "it waits for the next one");
    for _ in 0..64 {
        assert!(send.flush_or_hold(true).unwrap());
    }
    let mut done = 0;
    until("the small message", || take(8, &mut done));
}

/// Who waits for room waits for the kernel to send what it has.
#[test]
fn tcp_keeps_nothing_back_while_more_is_to_be_written() {
    // More than the buffers of both ends take, and not a whole number of packets.
    const LEN: usize = (64 << 20) + 1;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let a = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let _b = accept(&listener);
    let stream = a.try_clone().unwrap();
    let options = TcpOptions { buffer_bytes: None, ..tcp_options(0, &a, 4, 64) };
    let mut send = TcpEnd::new(a, options).unwrap();
    let data = vec![7_u8; LEN];
    send.hold(true);
    // SAFETY: the bytes outlive the end.
    unsafe { send.poll_send(&super::Header { total: LEN as u64, ..Default::default() }, data.as_ptr(), LEN) }
        .unwrap()
        .unwrap();
    for _ in 0..3 {
        assert!(!send.flush_or_hold(true).unwrap(), "nobody reads");
        assert!(!is_corked(&stream));
    }
    drop(send);
}

/// Round trips of 8 bytes.
#[test]
#[ignore = "a measurement, not a test: `cargo test --release -p oxccl-runtime ping_pong -- --ignored --nocapture`"]
fn measures_ping_pong() {
    // Short runs, of which some fall between the turns of other processes.
    const RUNS: u64 = 300;
    fn pin(core: usize) {
        // SAFETY: a zeroed set is valid, and the call only reads it.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(core, &mut set);
            libc::sched_setaffinity(0, size_of_val(&set), &set);
        }
    }
    fn send(end: &mut dyn SendEnd, sequence: u64, bytes: &[u8; 8]) {
        let header = super::Header { sequence, total: 8, ..Default::default() };
        // SAFETY: eight bytes, staged or waited for by the echo.
        while unsafe { end.poll_send(&header, bytes.as_ptr(), 8) }.unwrap().is_none() {}
    }
    fn recv(end: &mut dyn RecvEnd, bytes: &mut [u8; 8]) {
        // SAFETY: eight bytes of ours.
        while unsafe { end.poll_recv_into(bytes.as_mut_ptr(), 8) }.unwrap().is_none() {
            std::hint::spin_loop();
        }
    }
    fn measure(name: &str, factory: &(impl Factory + Sync), rounds: u64) {
        let (there, back) = (factory.pair(8, 4096), factory.pair(8, 4096));
        let (mut to, mut from) = (there.send, back.recv);
        let (mut echo_from, mut echo_to) = (there.recv, back.send);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                pin(1);
                let mut bytes = [0; 8];
                for i in 0..RUNS * rounds {
                    recv(&mut *echo_from, &mut bytes);
                    send(&mut *echo_to, i, &bytes);
                }
            });
            pin(0);
            let mut best = f64::MAX;
            for _ in 0..RUNS {
                let start = std::time::Instant::now();
                for i in 0..rounds {
                    send(&mut *to, i, &i.to_le_bytes());
                    let mut bytes = [0; 8];
                    recv(&mut *from, &mut bytes);
                    assert_eq!(u64::from_le_bytes(bytes), i);
                }
                best = best.min(start.elapsed().as_nanos() as f64 / rounds as f64 / 2.0);
            }
            println!("{name}: {best:.0} ns one way, 8 bytes, best of {RUNS} runs of {rounds}");
        });
    }
    measure("shm", &ShmFactory::default(), 1000);
    measure("tcp", &TcpFactory, 50);
}
