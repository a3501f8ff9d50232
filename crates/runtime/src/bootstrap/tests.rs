//! Initialisations by threads and by real processes, with deaths, strangers, missing and disagreeing ranks.

// A test may allocate per message, and gives a thread time to get into its wait; no outcome depends on how much.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::process::{Child, Command, Stdio};
use std::sync::{Condvar, Mutex, mpsc};
use std::time::Instant;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::*;
use crate::service::{Route, dial};

/// Environment of the processes that the tests start from their own binary: `rank ranks id mode`.
const CHILD: &str = "OXCCL_TEST_BOOTSTRAP_CHILD";
const SECOND: Duration = Duration::from_secs(1);

fn config(timeout: Duration) -> BootstrapConfig {
    BootstrapConfig { timeout, ..BootstrapConfig::default() }
}

fn params(id: &UniqueId, rank: usize, ranks: usize, config: &BootstrapConfig) -> Params {
    Params {
        id: id.clone(),
        more: Vec::new(),
        rank,
        ranks,
        payload: format!("payload {rank}").into_bytes(),
        segment_bytes: Box::new(|n, _| 4096 * n),
        abort: Arc::default(),
        awaited: None,
        config: config.clone(),
    }
}

fn all_threads(ranks: usize, config: &BootstrapConfig) -> Vec<Bootstrapped> {
    let id = UniqueId::create(config).unwrap();
    let all = (0..ranks).map(|r| params(&id, r, ranks, config)).collect();
    connect_many(all).into_iter().map(Result::unwrap).collect()
}

fn bounded(abort: &AtomicBool) -> Limits<'_> {
    Limits { deadline: Deadline::after(20 * SECOND), abort }
}

fn check(b: &Bootstrapped, ranks: usize) {
    assert_eq!(b.peers.len(), ranks);
    for (r, peer) in b.peers.iter().enumerate() {
        assert_eq!(peer.payload, format!("payload {r}").into_bytes());
    }
    assert!(b.clique.contains(&b.rank) && b.clique.is_sorted());
    assert_eq!(b.process_of.len(), b.clique.len());
    assert!(b.segment.len() >= 4096 * b.clique.len());
}

#[test]
fn threads_share_one_mapping() {
    for ranks in [1, 2, 64] {
        let begin = Instant::now();
        let all = all_threads(ranks, &config(60 * SECOND));
        println!("{ranks} threads: {:?}", begin.elapsed());
        assert!(begin.elapsed() < 5 * SECOND);
        for b in &all {
            check(b, ranks);
            assert_eq!(b.clique.len(), ranks);
            assert_eq!(b.comm_hash, all[0].comm_hash);
            assert!(b.key == all[0].key && Arc::ptr_eq(&b.segment, &all[0].segment));
            assert_eq!(b.processes.len(), 1);
            let mut zeros = [1; 64];
            b.segment.read(0, &mut zeros);
            assert_eq!(zeros, [0; 64]);
        }
        let other = all_threads(1, &config(60 * SECOND));
        assert_ne!(other[0].comm_hash, all[0].comm_hash);
    }
}

#[test]
fn without_shared_memory_everyone_is_alone() {
    let config = BootstrapConfig { shared_memory: false, ..config(60 * SECOND) };
    let all = all_threads(3, &config);
    for b in &all {
        check(b, 3);
        assert_eq!(b.clique, [b.rank]);
        assert_eq!(b.clique_of, [0, 1, 2]);
    }
    assert!(!Arc::ptr_eq(&all[0].segment, &all[1].segment));
    // A data connection with a purpose arrives.
    let abort = AtomicBool::new(false);
    let route = Route { comm_hash: all[0].comm_hash, from: 0, to: 2, purpose: 9 };
    let mut stream = dial(&all[0].peers[2].tcp, &all[0].key, route, &bounded(&abort)).unwrap();
    let incoming = all[2].inbox.wait(&bounded(&abort)).unwrap();
    assert_eq!((incoming.from, incoming.purpose), (0, 9));
    stream.write_all(b"x").unwrap();
    let mut byte = [0];
    crate::service::io::read_full(&incoming.stream, &mut byte, &bounded(&abort)).unwrap();
    assert_eq!(&byte, b"x");
}

#[test]
fn ranks_of_one_machine_that_say_they_are_on_different_hosts_share_no_memory() {
    let id = UniqueId::create(&config(60 * SECOND)).unwrap();
    let of = |rank| {
        let host = ["a", "a", "b", "b", "a"][rank];
        params(&id, rank, 5, &BootstrapConfig { host_id: Some(host.into()), ..config(60 * SECOND) })
    };
    let all: Vec<_> = connect_many((0..5).map(of).collect()).into_iter().map(Result::unwrap).collect();
    for b in &all {
        check(b, 5);
        assert_eq!(b.clique_of, [0, 0, 2, 2, 0]);
    }
    assert!(Arc::ptr_eq(&all[0].segment, &all[4].segment) && !Arc::ptr_eq(&all[0].segment, &all[2].segment));
}

type Heard = Arc<Mutex<mpsc::Sender<(usize, News)>>>;

fn rings(all: &mut [Bootstrapped], heard: &Heard) -> Vec<Option<ControlRing>> {
    std::thread::scope(|s| {
        let mut threads = Vec::new();
        for b in all {
            let heard = heard.clone();
            threads.push(s.spawn(move || {
                let rank = b.rank;
                // After the test nobody listens.
                let tell = Box::new(move |n| drop(heard.lock().unwrap().send((rank, n))));
                Some(ControlRing::start(b, tell).unwrap())
            }));
        }
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    })
}

/// Ranks that share no memory.
struct Apart {
    all: Vec<Bootstrapped>,
    rings: Vec<Option<ControlRing>>,
    /// What each hears.
    hear: mpsc::Receiver<(usize, News)>,
}

/// So many of them.
fn apart(ranks: usize) -> Apart {
    let mut all = all_threads(ranks, &BootstrapConfig { shared_memory: false, ..config(60 * SECOND) });
    let (tell, hear) = mpsc::channel();
    let rings = rings(&mut all, &Arc::new(Mutex::new(tell)));
    Apart { all, rings, hear }
}

#[test]
fn news_goes_around_the_ring() {
    let Apart { all: _all, mut rings, hear } = apart(5);
    let error = News::Error { rank: 1, code: ResultCode::InvalidUsage, text: "mismatch".into() };
    rings[1].as_ref().unwrap().announce(&error);
    let mut who: Vec<_> = (0..4).map(|_| hear.recv_timeout(20 * SECOND).unwrap()).collect();
    who.sort_by_key(|w| w.0);
    assert_eq!(who, [0, 2, 3, 4].map(|r| (r, error.clone())));
    // What a rank is blocked in is for its neighbours, or for all; then once.
    let call = |around| News::Call { rank: 1, seq: 5, signature: [6, 7], around };
    for (around, to) in [(false, &[0, 2][..]), (true, &[0, 2, 3, 4])] {
        let ring = rings[1].as_ref().unwrap();
        if around {
            ring.announce(&call(true));
            ring.announce(&call(true));
        } else {
            ring.tell_neighbours(&call(false));
        }
        let mut who: Vec<_> = to.iter().map(|_| hear.recv_timeout(20 * SECOND).unwrap()).collect();
        who.sort_by_key(|w| w.0);
        assert!(who.iter().zip(to).all(|(w, r)| *w == (*r, call(around))), "{who:?}");
    }
    // Rank 3 ends without a goodbye: the others hear of its death, from both sides.
    drop(rings[3].take());
    let mut who: Vec<_> = (0..4).map(|_| hear.recv_timeout(20 * SECOND).unwrap()).collect();
    who.sort_by_key(|w| w.0);
    for (w, expected) in who.iter().zip([0, 1, 2, 4]) {
        assert_eq!(w.0, expected);
        assert!(matches!(&w.1, News::Dead { rank: 3, text } if text.contains("rank 3 (host")), "{w:?}");
    }
    for ring in rings.into_iter().flatten() {
        ring.leave();
    }
    assert!(hear.try_iter().all(|(_, news)| matches!(news, News::Left { .. })));
}

/// The ranks of two parts that others left behind hear of each other again, also of what happened before.
#[test]
fn a_mended_ring_carries_news_over_gaps() {
    let Apart { all, mut rings, hear } = apart(6);
    for rank in [2, 5] {
        rings[rank].take().unwrap().leave();
    }
    // Each is heard by all that are left, and rank 2 by rank 5 or not.
    let next = |wanted: &dyn Fn(&News) -> bool| loop {
        let (rank, news) = hear.recv_timeout(20 * SECOND).unwrap();
        if wanted(&news) {
            return rank;
        }
        assert!(matches!(news, News::Left { .. } | News::Mend), "{rank}: {news:?}");
    };
    let of_all = |ranks: &mut [usize], wanted: &dyn Fn(&News) -> bool| {
        let mut heard: Vec<usize> = ranks.iter().map(|_| next(wanted)).collect();
        heard.sort_unstable();
        assert_eq!(heard, ranks);
    };
    of_all(&mut [0, 1, 3, 4], &|news| *news == News::Left { rank: 5 });
    let error = |news: &News| matches!(news, News::Error { rank: 3, .. });
    let told = News::Error { rank: 3, code: ResultCode::InvalidUsage, text: "mismatch".into() };
    rings[3].as_ref().unwrap().announce(&told);
    of_all(&mut [4], &error);
    // The next rank is there: there is nothing to mend here.
    rings[3].as_ref().unwrap().mend(&all[3].peers);
    rings[3].as_ref().unwrap().ask_to_mend();
    of_all(&mut [4], &|news| *news == News::Mend);
    rings[4].as_ref().unwrap().mend(&all[4].peers);
    of_all(&mut [0, 1], &error);
    // Rank 0 was dialled, and has nobody else to hear it from.
    drop(rings[4].take());
    of_all(&mut [0, 1, 3], &|news| matches!(news, News::Dead { rank: 4, .. }));
    rings.into_iter().flatten().for_each(ControlRing::leave);
}

/// A host of several processes that answers nothing keeps nobody long from those behind it.
#[test]
fn the_ring_is_mended_past_a_silent_host() {
    let config = BootstrapConfig { shared_memory: false, ..config(60 * SECOND) };
    let mut all = all_threads(7, &config);
    // The kernel accepts the connections, and nobody reads them.
    let host: Vec<_> = (0..4).map(|_| std::net::TcpListener::bind("127.0.0.2:0").unwrap()).collect();
    let mut peers = all[0].peers.clone();
    for (peer, listener) in peers[2..6].iter_mut().zip(&host) {
        peer.tcp = vec![listener.local_addr().unwrap()];
    }
    let (tell, hear) = mpsc::channel();
    let mut rings = rings(&mut all, &Arc::new(Mutex::new(tell)));
    rings[1].take().unwrap().leave();
    while hear.recv_timeout(20 * SECOND).unwrap() != (0, News::Left { rank: 1 }) {}
    let begin = Instant::now();
    rings[0].as_ref().unwrap().mend(&peers);
    // It asks all for the same once it is connected.
    while hear.recv_timeout(20 * SECOND).unwrap() != (6, News::Mend) {}
    // One look at the host; at each of its ranks it would be four times as long, and so it is with another look at the rank behind.
    assert!(begin.elapsed() < 20 * SECOND, "{:?}", begin.elapsed());
    rings.into_iter().flatten().for_each(ControlRing::leave);
}

/// Who dials to mend the ring and gives up before it has seen that it was taken in has not died.
#[test]
fn giving_up_to_mend_the_ring_is_no_death() {
    let Apart { all, rings, hear } = apart(4);
    let abort = AtomicBool::new(false);
    let route = Route { comm_hash: all[0].comm_hash, from: 3, to: 1, purpose: crate::service::CONTROL };
    drop(dial(&all[1].peers[1].tcp, &all[3].key, route, &bounded(&abort)).unwrap());
    // The first one may overtake the end of that connection, which the service's thread watches from then on.
    for code in [ResultCode::InvalidUsage, ResultCode::SystemError] {
        let rank = usize::from(code == ResultCode::SystemError);
        let error = News::Error { rank, code, text: "mismatch".into() };
        rings[rank].as_ref().unwrap().announce(&error);
        for _ in 0..3 {
            assert_eq!(hear.recv_timeout(20 * SECOND).unwrap().1, error);
        }
    }
    rings.into_iter().flatten().for_each(ControlRing::leave);
}

/// What a neighbour is told while it reads nothing for a while comes whole and in order afterwards.
#[test]
fn a_neighbour_that_reads_late_is_told_all() {
    let config = BootstrapConfig { shared_memory: false, ..config(60 * SECOND) };
    let mut all = all_threads(2, &config);
    let far = all[1].neighbours.split_off(0);
    for (_, stream) in all[0].neighbours.iter().chain(&far) {
        // Soon full.
        rustix::net::sockopt::set_socket_send_buffer_size(stream, 4096).unwrap();
        rustix::net::sockopt::set_socket_recv_buffer_size(stream, 4096).unwrap();
    }
    let (tell, hear) = mpsc::channel();
    let mut ring = rings(&mut all[..1], &Arc::new(Mutex::new(tell))).remove(0);
    let call = |seq| News::Call { rank: 0, seq, signature: [6, 7], around: false };
    // Of two ranks each is beside the other one twice.
    let mut said = 0;
    while !ring.as_ref().unwrap().owes() {
        ring.as_ref().unwrap().tell_neighbours(&call(said));
        said += 1;
    }
    ring.as_ref().unwrap().tell_neighbours(&call(said));
    let abort = AtomicBool::new(false);
    for (_, stream) in &far {
        for seq in 0..=said {
            if seq % (said / 4 + 1) == said / 4 {
                // Whoever speaks is sent what was left.
                crate::service::io::write_full(stream, &wire::frame(8, &[&[0; 4]]), &bounded(&abort)).unwrap();
                assert_eq!(hear.recv_timeout(20 * SECOND).unwrap().1, News::Mend);
            }
            let (kind, body) = wire::read_frame(stream, &bounded(&abort)).unwrap();
            let mut words = wire::Reader(&body);
            assert_eq!((kind, words.u32(), words.u64()), (5, Some(0), Some(seq)));
        }
    }
    ring.take().unwrap().leave();
    for (_, stream) in &far {
        assert_eq!(wire::read_frame(stream, &bounded(&abort)).unwrap().0, 1, "a goodbye");
    }
}

/// A rank that leaves while another one connects with it has not died.
#[test]
fn leaving_while_the_ring_is_mended_is_no_death() {
    for _ in 0..20 {
        let Apart { all, mut rings, hear } = apart(3);
        rings[0].take().unwrap().leave();
        while hear.recv_timeout(20 * SECOND).unwrap() != (2, News::Left { rank: 0 }) {}
        rings[2].as_ref().unwrap().mend(&all[2].peers);
        rings[1].take().unwrap().leave();
        // Over its old connection, or as what the mending found.
        let (rank, news) = hear.recv_timeout(20 * SECOND).unwrap();
        assert!(matches!(news, News::Left { .. } | News::Gone { rank: 1, .. } | News::Mend), "{rank}: {news:?}");
        drop(rings);
        drop(all);
        assert!(hear.iter().all(|(_, news)| !matches!(news, News::Dead { .. })));
    }
}

/// Numbers from the wire are indices elsewhere.
#[test]
fn news_of_ranks_that_do_not_exist_is_dropped() {
    let Apart { all: _all, rings, hear } = apart(3);
    let ring = rings[1].as_ref().unwrap();
    for rank in [3, u32::MAX as usize] {
        ring.announce(&News::Dead { rank, text: "a lie".into() });
        ring.announce(&News::Left { rank });
        ring.announce(&News::Call { rank, seq: 1, signature: [2, 3], around: true });
        ring.tell_neighbours(&News::Call { rank, seq: 1, signature: [2, 3], around: false });
    }
    let good = News::Error { rank: 1, code: ResultCode::InvalidUsage, text: "mismatch".into() };
    ring.announce(&good);
    let mut who: Vec<_> = (0..2).map(|_| hear.recv_timeout(20 * SECOND).unwrap()).collect();
    who.sort_by_key(|w| w.0);
    assert_eq!(who, [0, 2].map(|r| (r, good.clone())));
    rings.into_iter().flatten().for_each(ControlRing::leave);
}

#[test]
fn leaving_is_no_death() {
    let config = BootstrapConfig { shared_memory: false, ..config(60 * SECOND) };
    for _ in 0..20 {
        let mut all = all_threads(3, &config);
        let (tell, hear) = mpsc::channel();
        let rings = rings(&mut all, &Arc::new(Mutex::new(tell)));
        for ring in rings.into_iter().flatten() {
            ring.leave();
        }
        drop(all);
        let heard = hear.recv_timeout(Duration::from_millis(5)).ok();
        assert!(heard.iter().all(|(_, news)| matches!(news, News::Left { .. })), "{heard:?}");
    }
}

fn failures(results: Vec<Result<Bootstrapped>>) -> Vec<Error> {
    results.into_iter().map(Result::unwrap_err).collect()
}

#[test]
fn disagreeing_and_duplicate_ranks_are_named() {
    let config = config(30 * SECOND);
    let id = UniqueId::create(&config).unwrap();
    for e in failures(connect_many(vec![params(&id, 0, 2, &config), params(&id, 1, 3, &config)])) {
        assert_eq!(e.code, ResultCode::InvalidUsage, "{e}");
        assert!(e.text.contains("disagree") && e.text.contains('2') && e.text.contains('3'), "{e}");
    }
    let id = UniqueId::create(&config).unwrap();
    let begin = Instant::now();
    for e in failures(connect_many(vec![params(&id, 1, 3, &config), params(&id, 1, 3, &config)])) {
        assert_eq!(e.code, ResultCode::InvalidUsage, "{e}");
        assert!(e.text.contains("same rank: rank 1"), "{e}");
    }
    assert!(begin.elapsed() < 5 * SECOND);
    assert_eq!(connect(params(&id, 3, 3, &config)).unwrap_err().code, ResultCode::InvalidArgument);
}

/// The number comes from whoever knows the id, and a table of that many would be made of it.
#[test]
fn more_ranks_than_there_can_be_are_refused() {
    let config = config(3 * SECOND);
    let id = UniqueId::create(&config).unwrap();
    let abort = AtomicBool::new(false);
    let parts = Parts { ranks: (1 << 20) + 1, roots: 1 };
    let mut link = Link::join(&id, 1, parts, 0, &config, bounded(&abort)).unwrap();
    let e = link.exchange(0, b"").unwrap_err();
    assert!(e.code == ResultCode::InvalidUsage && e.text.contains("rank 1 (") && e.text.contains("1048577"), "{e}");
    let e = connect(params(&id, 1, parts.ranks, &config)).unwrap_err();
    assert!(e.code == ResultCode::InvalidArgument && e.text.contains("1048577"), "{e}");
}

#[test]
fn missing_ranks_are_named() {
    let config = config(Duration::from_millis(300));
    let id = UniqueId::create(&config).unwrap();
    let some = [0, 2, 3].map(|r| params(&id, r, 8, &config));
    for e in failures(connect_many(some.into())) {
        assert_eq!(e.code, ResultCode::RemoteError);
        assert!(e.text.contains("timeout: 5 of 8 ranks") && e.text.contains("rank 1, 4..=7"), "{e}");
    }
}

#[test]
fn an_abort_ends_it_for_all() {
    let config = config(30 * SECOND);
    let id = UniqueId::create(&config).unwrap();
    let (first, second) = (params(&id, 0, 3, &config), params(&id, 1, 3, &config));
    let abort = first.abort.clone();
    let waiting = std::thread::spawn(|| failures(connect_many(vec![first, second])));
    // Some moment amid the initialisation; the outcome is the same whenever it is.
    std::thread::sleep(Duration::from_millis(50));
    abort.store(true, Ordering::Relaxed);
    let errors = waiting.join().unwrap();
    assert!(errors[0].text.contains("aborted by the application"), "{}", errors[0]);
    assert!(errors[1].text.contains("rank 0 (") && errors[1].text.contains("aborted"), "{}", errors[1]);
}

static REFUSALS: Mutex<Vec<String>> = Mutex::new(Vec::new());

#[test]
fn strangers_do_not_disturb() {
    let config = BootstrapConfig { log: |_, text| REFUSALS.lock().unwrap().push(text.into()), ..config(30 * SECOND) };
    let id = UniqueId::create(&config).unwrap();
    let first = std::thread::spawn({
        let p = params(&id, 0, 2, &config);
        move || connect(p)
    });
    let address = id.candidates()[0];
    // Garbage, silence, and the right words with a wrong secret.
    let mut garbage = TcpStream::connect(address).unwrap();
    garbage.write_all(&[b'G'; 300]).unwrap();
    garbage.set_read_timeout(Some(20 * SECOND)).unwrap();
    assert!(!matches!(garbage.read(&mut [0]), Ok(n) if n > 0), "a stranger gets no answer");
    let silent = TcpStream::connect(address).unwrap();
    let stranger = TcpStream::connect(address).unwrap();
    let abort = AtomicBool::new(false);
    let hello =
        Hello { kind: Kind::Root, purpose: 0, comm_hash: id.hash(), from: 1, to: 0, argument: 2 | 30_000 << 32 };
    let e = auth::call(&stranger, &CommKey::new([1; 32]), &hello, &bounded(&abort)).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::PermissionDenied, "{e}");
    drop(stranger);
    let b = connect(params(&id, 1, 2, &config)).unwrap();
    let a = first.join().unwrap().unwrap();
    check(&a, 2);
    check(&b, 2);
    drop(silent);
    let said = REFUSALS.lock().unwrap().join("\n");
    assert!(said.contains("does not speak this protocol"), "{said}");
    assert!(said.contains("refused a connection from"), "{said}");
}

#[test]
fn an_id_whose_root_is_gone_fails_at_once() {
    let config = config(30 * SECOND);
    let id = UniqueId::create(&config).unwrap();
    connect(params(&id, 0, 1, &config)).unwrap();
    let begin = Instant::now();
    let e = connect(params(&id, 0, 1, &config)).unwrap_err();
    assert!(e.code == ResultCode::RemoteError && e.text.contains("an id serves one communicator"), "{e}");
    assert!(begin.elapsed() < 10 * SECOND);
}

#[test]
fn comm_id_names_the_root() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let config = BootstrapConfig { comm_id: Some(format!("127.0.0.1:{port}")), ..config(30 * SECOND) };
    let mut hashes = Vec::new();
    for _ in 0..5 {
        let ids: Vec<_> = (0..3).map(|_| UniqueId::create(&config).unwrap()).collect();
        let all = (0..3).rev().map(|r| params(&ids[r], r, 3, &config)).collect();
        let all: Vec<_> = connect_many(all).into_iter().map(Result::unwrap).collect();
        check(&all[0], 3);
        assert!(!hashes.contains(&all[0].comm_hash), "each communicator has its own name");
        hashes.push(all[0].comm_hash);
    }
}

/// With a secret the address alone does not let anybody in.
#[test]
fn a_stranger_to_the_secret_cannot_join() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let with = |secret: Option<u8>| BootstrapConfig {
        comm_id: Some(format!("127.0.0.1:{port}")),
        comm_secret: secret.map(|b| CommKey::new([b; 32])),
        ..config(2 * SECOND)
    };
    let (ours, strangers) = (with(Some(1)), [with(None), with(Some(2))]);
    std::thread::scope(|s| {
        let join = |rank, ranks, config: BootstrapConfig| {
            let id = UniqueId::create(&config).unwrap();
            connect(params(&id, rank, ranks, &config))
        };
        let root = s.spawn(move || join(0, 2, ours));
        for config in strangers {
            s.spawn(move || assert_eq!(join(1, 2, config).unwrap_err().code, ResultCode::RemoteError));
        }
        assert_eq!(root.join().unwrap().unwrap_err().code, ResultCode::RemoteError);
    });
}

/// Ends its processes with it.
struct Children(Vec<Child>);

impl Drop for Children {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn hex(id: &UniqueId) -> String {
    id.to_bytes().iter().map(|b| format!("{b:02x}")).collect()
}

fn unhex(text: &str) -> [u8; 128] {
    std::array::from_fn(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap())
}

fn spawn(rank: usize, ranks: usize, id: &UniqueId, mode: &str) -> Child {
    spawn_with(rank, ranks, &hex(id), mode)
}

fn spawn_with(rank: usize, ranks: usize, id: &str, mode: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "bootstrap::tests::child", "--nocapture", "--test-threads=1"])
        .env(CHILD, format!("{rank} {ranks} {id} {mode}"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Reads a child's lines up to the one that begins with `word`; the rest of that line.
fn expect_line(child: &mut Child, word: &str) -> String {
    // Nothing is read ahead: the next line is the next reader's.
    let mut lines = BufReader::with_capacity(1, child.stdout.as_mut().unwrap());
    loop {
        let mut line = String::new();
        assert!(lines.read_line(&mut line).unwrap() > 0, "the child ended without {word:?}");
        if let Some(at) = line.find(word) {
            return line[at + word.len()..].trim().to_owned();
        }
    }
}

/// Not a test: what a child process does.
#[test]
fn child() {
    let Ok(task) = std::env::var(CHILD) else { return };
    let words: Vec<_> = task.split(' ').collect();
    let (rank, ranks): (usize, usize) = (words[0].parse().unwrap(), words[1].parse().unwrap());
    let bytes = unhex(words[2]);
    let config = config(30 * SECOND);
    if words[3] == "root" {
        println!("id {}", hex(&UniqueId::create(&config).unwrap()));
        let _ = std::io::stdin().read(&mut [0]);
        return;
    }
    if words[3] == "files" {
        let soft = || getrlimit(Resource::Nofile).current;
        let hard = getrlimit(Resource::Nofile).maximum;
        let lower = |n| setrlimit(Resource::Nofile, Rlimit { current: Some(n), maximum: hard }).unwrap();
        lower(100);
        let id = UniqueId::create(&config).unwrap();
        println!("root {}", soft() == hard);
        // Once: a program that wants fewer has its way.
        lower(101);
        connect(params(&id, 0, 1, &config)).unwrap();
        println!("again {}", soft() == Some(101));
        return;
    }
    if words[3] == "starved" {
        return starved(&config);
    }
    let id = UniqueId::from_bytes(bytes).unwrap();
    if words[3] == "half" {
        // Joins, then never contributes.
        let abort = AtomicBool::new(false);
        let _link = Link::join(&id, rank, Parts { ranks, roots: 1 }, 0, &config, bounded(&abort)).unwrap();
        println!("joined");
        let _ = std::io::stdin().read(&mut [0]);
        return;
    }
    match connect(params(&id, rank, ranks, &config)) {
        Ok(b) => {
            check(&b, ranks);
            // Each rank marks its word; all see all marks.
            for (i, handle) in b.processes.iter().enumerate() {
                assert_eq!(handle.pidfd.is_none(), i == b.process_of[b.clique.binary_search(&rank).unwrap()]);
                assert!(handle.pid > 0);
            }
            b.segment.u64_at(64 * rank).store(rank as u64 + 1, Ordering::Release);
            for &other in &b.clique {
                let deadline = Deadline::after(20 * SECOND);
                while b.segment.u64_at(64 * other).load(Ordering::Acquire) != other as u64 + 1 {
                    assert!(!deadline.passed());
                    std::thread::yield_now();
                }
            }
            println!("ready {} {}", b.clique.len(), b.processes.len());
            // Until the parent says so.
            let _ = std::io::stdin().read(&mut [0]);
        }
        Err(e) => println!("failed {e}"),
    }
}

/// A process that makes an id and then may open no more files, until it is told to.
fn starved(config: &BootstrapConfig) {
    let config = BootstrapConfig { log: |_, text| println!("= {text}"), ..config.clone() };
    let id = UniqueId::create(&config).unwrap();
    let before = getrlimit(Resource::Nofile);
    let next = std::fs::File::open("/dev/null").unwrap().as_raw_fd() as u64;
    setrlimit(Resource::Nofile, Rlimit { current: Some(next), maximum: before.maximum }).unwrap();
    println!("id {}", hex(&id));
    let _ = std::io::stdin().read(&mut [0]);
    setrlimit(Resource::Nofile, before).unwrap();
    let _ = std::io::stdin().read(&mut [0]);
}

#[test]
fn a_root_without_files_serves_who_waits_until_there_are_some() {
    let config = config(30 * SECOND);
    let mut children = Children(vec![spawn_with(0, 1, &"0".repeat(256), "starved")]);
    let id = UniqueId::from_bytes(unhex(&expect_line(&mut children.0[0], "id "))).unwrap();
    let all = [0, 1].map(|rank| params(&id, rank, 2, &config));
    let ranks = std::thread::spawn(|| connect_many(all.into()));
    let said = expect_line(&mut children.0[0], "ootstrap");
    assert!(said.contains("cannot accept a connection"), "{said}");
    children.0[0].stdin.as_mut().unwrap().write_all(b"x").unwrap();
    for b in ranks.join().unwrap() {
        check(&b.unwrap(), 2);
    }
}

#[test]
fn a_root_and_the_service_may_open_as_many_files_as_the_system_allows() {
    let mut children = Children(vec![spawn_with(0, 1, &"0".repeat(256), "files")]);
    assert_eq!(expect_line(&mut children.0[0], "root "), "true");
    assert_eq!(expect_line(&mut children.0[0], "again "), "true");
}

#[test]
fn processes_share_memory_and_hear_of_deaths() {
    let ranks = 16;
    let config = config(30 * SECOND);
    let id = UniqueId::create(&config).unwrap();
    let begin = Instant::now();
    let mut children = Children((1..ranks).map(|r| spawn(r, ranks, &id, "full")).collect());
    let started = begin.elapsed();
    let mine = connect(params(&id, 0, ranks, &config)).unwrap();
    println!("{ranks} processes: started after {started:?}, initialised after {:?}", begin.elapsed());
    check(&mine, ranks);
    mine.segment.u64_at(0).store(1, Ordering::Release);
    for child in &mut children.0 {
        assert_eq!(expect_line(child, "ready"), format!("{ranks} {ranks}"));
    }
    assert!(begin.elapsed() < 5 * SECOND, "{:?}", begin.elapsed());

    // The service tells of a death.
    let (tell, hear) = mpsc::channel();
    let victim = 7;
    let handle = &mine.processes[mine.process_of[victim]];
    assert_eq!(handle.pid, children.0[victim - 1].id());
    let pidfd = handle.pidfd.as_ref().unwrap().try_clone().unwrap();
    let tell = Mutex::new(tell);
    let _watch = mine.service.watch(pidfd, Box::new(move || tell.lock().unwrap().send(Instant::now()).unwrap()));
    let killed = Instant::now();
    children.0[victim - 1].kill().unwrap();
    let told = hear.recv_timeout(20 * SECOND).unwrap();
    println!("death heard after {:?}", told - killed);
}

#[test]
fn a_rank_killed_during_init_is_named() {
    let config = config(30 * SECOND);
    let id = UniqueId::create(&config).unwrap();
    let mut children = Children(vec![spawn(2, 3, &id, "half"), spawn(1, 3, &id, "full")]);
    let mine = std::thread::spawn({
        let p = params(&id, 0, 3, &config);
        move || connect(p)
    });
    expect_line(&mut children.0[0], "joined");
    children.0[0].kill().unwrap();
    let e = mine.join().unwrap().unwrap_err();
    assert_eq!(e.code, ResultCode::RemoteError);
    assert!(e.text.contains("rank 2 (") && e.text.contains("lost during the initialisation"), "{e}");
    // Also a rank that comes late is told.
    assert!(expect_line(&mut children.0[1], "failed").contains("rank 2 ("));
}

#[test]
fn the_death_of_the_root_is_told() {
    let config = config(30 * SECOND);
    let mut children = Children(vec![spawn_with(0, 1, &"0".repeat(256), "root")]);
    let id = UniqueId::from_bytes(unhex(&expect_line(&mut children.0[0], "id"))).unwrap();
    // Rank 1 contributes nothing: rank 0 waits in the first round when the root dies.
    let abort = AtomicBool::new(false);
    let _half = Link::join(&id, 1, Parts { ranks: 2, roots: 1 }, 0, &config, bounded(&abort)).unwrap();
    let (p, (begun, has_begun)) = (params(&id, 0, 2, &config), mpsc::channel());
    let waiting = std::thread::spawn(move || {
        begun.send(()).unwrap();
        connect(p)
    });
    has_begun.recv().unwrap();
    children.0[0].kill().unwrap();
    let e = waiting.join().unwrap().unwrap_err();
    assert_eq!(e.code, ResultCode::RemoteError);
    assert!(
        e.text.contains("root of the initialisation at") && e.text.contains("ended") | e.text.contains("died"),
        "{e}"
    );
}

#[test]
fn rank_lists_are_short() {
    assert_eq!(rank_list(&[1, 2, 3, 7]), "1..=3, 7");
    let odd: Vec<u32> = (0..40).map(|i| 2 * i).collect();
    assert!(rank_list(&odd).ends_with("30 and 24 more"));
}

static SERVED: Mutex<Vec<String>> = Mutex::new(Vec::new());
static SAID: Condvar = Condvar::new();

/// What the roots of `ids` said at their end, in the order of the ids.
fn served(ids: &[UniqueId]) -> Vec<usize> {
    let said = |id: &UniqueId| {
        let begin = format!("Bootstrap: root {:016x} served ", id.hash());
        let missing = |lines: &mut Vec<String>| !lines.iter().any(|l| l.starts_with(&begin));
        let (lines, waited) = SAID.wait_timeout_while(SERVED.lock().unwrap(), 20 * SECOND, missing).unwrap();
        assert!(!waited.timed_out(), "{begin} was not said");
        let rest = lines.iter().find_map(|l| l.strip_prefix(&begin)).unwrap();
        rest.split(' ').next().unwrap().parse().unwrap()
    };
    ids.iter().map(said).collect()
}

fn scalable(ids: &[UniqueId], ranks: usize, config: &BootstrapConfig) -> Vec<Result<Bootstrapped>> {
    let more = ids[1..].to_vec();
    connect_many((0..ranks).map(|r| Params { more: more.clone(), ..params(&ids[0], r, ranks, config) }).collect())
}

/// Every root serves its part of the ranks, the first one the delegates of the others beside it.
#[test]
fn several_roots_share_the_load() {
    let log: LogFn = |_, text| {
        SERVED.lock().unwrap().push(text.into());
        SAID.notify_all();
    };
    for (ranks, roots, wanted) in
        [(16, 4, vec![7, 4, 4, 4]), (7, 3, vec![5, 2, 2]), (3, 3, vec![3, 1, 1]), (2, 1, vec![2])]
    {
        for shared_memory in [true, false] {
            let config = BootstrapConfig { log, shared_memory, ..config(60 * SECOND) };
            let ids: Vec<UniqueId> = (0..roots).map(|_| UniqueId::create(&config).unwrap()).collect();
            let all: Vec<Bootstrapped> = scalable(&ids, ranks, &config).into_iter().map(Result::unwrap).collect();
            for b in &all {
                check(b, ranks);
                assert!(b.comm_hash == all[0].comm_hash && b.key == all[0].key);
                assert_eq!(b.clique.len(), if shared_memory { ranks } else { 1 });
            }
            assert_eq!(served(&ids), wanted);
        }
    }
}

#[test]
fn a_failure_at_one_root_is_told_at_all() {
    let config = config(60 * SECOND);
    let ids: Vec<UniqueId> = (0..3).map(|_| UniqueId::create(&config).unwrap()).collect();
    let more = ids[1..].to_vec();
    // Rank 8, of the last part, is initialised twice; rank 7, of the same part, is missing.
    let who = [0, 1, 2, 3, 4, 5, 6, 8, 8];
    let all =
        connect_many(who.iter().map(|r| Params { more: more.clone(), ..params(&ids[0], *r, 9, &config) }).collect());
    for (rank, result) in who.iter().zip(all) {
        let error = result.unwrap_err();
        assert!(error.text.contains("same rank") && error.text.contains("rank 8"), "rank {rank}: {error:?}");
    }
}

#[test]
fn who_is_missing_at_another_root_is_named() {
    let config = config(2 * SECOND);
    let ids: Vec<UniqueId> = (0..2).map(|_| UniqueId::create(&config).unwrap()).collect();
    let more = ids[1..].to_vec();
    let all = connect_many((0..5).map(|r| Params { more: more.clone(), ..params(&ids[0], r, 6, &config) }).collect());
    for result in all {
        let error = result.unwrap_err();
        assert_eq!(error.code, ResultCode::RemoteError);
        assert!(error.text.contains("timeout"), "{error:?}");
    }
}
