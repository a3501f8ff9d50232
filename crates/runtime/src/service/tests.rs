//! The service against friends and strangers.

use std::io::{Read, Write};
use std::sync::Mutex;
use std::time::Instant;

use super::*;
use oxccl_sys::SharedMemory;
use oxccl_sys::sync::{AtomicU64, Ordering};
use rustix::net::sockopt;

static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn service() -> Arc<Service> {
    // Whichever test of this process came first has chosen the log.
    Service::get(&ServiceConfig { ifname: None, family: None, log: |_, t| locked(&SAID).push(t.into()) }).unwrap()
}

fn key(n: u8) -> CommKey {
    CommKey::new([n; 32])
}

static NO_ABORT: AtomicBool = AtomicBool::new(false);

fn limits() -> Limits<'static> {
    Limits { deadline: Deadline::after(Duration::from_secs(20)), abort: &NO_ABORT }
}

#[test]
fn one_service_per_process() {
    assert!(Arc::ptr_eq(&service(), &service()));
}

#[test]
fn descriptors_go_to_who_knows_the_key() {
    let service = service();
    let hash = 0xa1;
    service.register_key(hash, &key(1));
    service.register_key(hash, &key(1));
    let memory = SharedMemory::create("t", 4096).unwrap();
    memory.write(0, b"hello");
    service.publish(77, memory.fd().try_clone_to_owned().unwrap());
    let get = |hash, k, segment| fetch(service.address(), hash, &key(k), segment, &limits(), || false);
    let mut out = [0; 5];
    SharedMemory::from_fd(get(hash, 1, 77).unwrap()).unwrap().read(0, &mut out);
    assert_eq!(&out, b"hello");
    assert!(oxccl_sys::process::alive(&get(hash, 1, SELF_SEGMENT).unwrap()));
    assert!(get(hash, 2, 77).unwrap_err().text.contains("secret"));
    assert!(get(hash + 1, 1, 77).unwrap_err().text.contains("does not know this communicator"));
    assert!(get(hash, 1, 78).unwrap_err().text.contains("does not publish"));
    service.withdraw(77);
    assert!(get(hash, 1, 77).is_err());
    service.forget_key(hash);
    assert!(get(hash, 1, SELF_SEGMENT).is_ok(), "one registration is left");
    service.forget_key(hash);
    assert!(get(hash, 1, SELF_SEGMENT).is_err());
    let nobody = ProcessAddress { uuid: [3; 16] };
    assert!(fetch(&nobody, hash, &key(1), 77, &limits(), || false).is_err());
}

#[test]
fn strangers_are_refused_and_friends_served_meanwhile() {
    let service = service();
    let (hash, k) = (0xb2, key(5));
    let inbox = service.expect(hash, &k, 4);
    assert!(inbox.poll().is_none());
    let begin = Instant::now();
    // Silent ones, more than the service keeps, and one that speaks something else.
    let silent: Vec<_> = (0..600).map(|_| TcpStream::connect(service.tcp()[0]).unwrap()).collect();
    let mut garbage = TcpStream::connect(service.tcp()[0]).unwrap();
    garbage.write_all(b"GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n and more of it, beyond 64 bytes").unwrap();
    garbage.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    assert!(!matches!(garbage.read(&mut [0]), Ok(n) if n > 0));
    let route = Route { comm_hash: hash, from: 2, to: 4, purpose: 1 };
    let _stream = dial(service.tcp(), &k, route, &limits()).unwrap();
    assert_eq!(inbox.wait(&limits()).unwrap().from, 2);
    assert!(begin.elapsed() < HANDSHAKE_TIME, "nobody waited for the silent: {:?}", begin.elapsed());
    let wrong = dial(service.tcp(), &key(6), route, &limits()).unwrap_err();
    assert!(wrong.text.contains("secret") && wrong.text.contains("rank 4"), "{wrong}");
    assert!(dial(service.tcp(), &k, Route { to: 5, ..route }, &limits()).is_err(), "rank 5 is not here");
    // The silent ones are dropped in the end: their reads come back.
    let mut last = silent.last().unwrap();
    last.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    assert!(!matches!(last.read(&mut [0]), Ok(n) if n > 0));
    drop(inbox);
    assert!(dial(service.tcp(), &k, route, &limits()).is_err(), "after the inbox is dropped");
}

#[test]
fn waits_hear_abort_and_deadline() {
    let service = service();
    let inbox = service.expect(0xc3, &key(7), 0);
    let short = Limits { deadline: Deadline::after(Duration::from_millis(30)), abort: &NO_ABORT };
    assert!(inbox.wait(&short).unwrap_err().text.contains("timed out"));
    let abort = AtomicBool::new(true);
    assert!(inbox.wait(&Limits { abort: &abort, ..limits() }).unwrap_err().text.contains("aborted"));
}

#[test]
fn a_dropped_watch_is_silent() {
    let service = service();
    let mut child = std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
    let (tell, hear) = std::sync::mpsc::channel();
    let open = || oxccl_sys::process::pidfd_open(child.id()).unwrap();
    let watch = |name: &'static str| {
        let tell = Mutex::new(tell.clone());
        service.watch(open(), Box::new(move || locked(&tell).send(name).unwrap())).unwrap()
    };
    let _kept = watch("kept");
    drop(watch("dropped"));
    child.kill().unwrap();
    assert_eq!(hear.recv_timeout(Duration::from_secs(20)).unwrap(), "kept");
    assert!(hear.recv_timeout(Duration::from_millis(20)).is_err(), "once, and not the dropped one");
    child.wait().unwrap();
}

/// A link that is cut without a word, or a host that vanished, would else be waited for without an end.
#[test]
fn both_ends_of_a_connection_notice_silence() {
    let service = service();
    let (hash, k) = (0xd4, key(8));
    let inbox = service.expect(hash, &k, 1);
    let route = Route { comm_hash: hash, from: 0, to: 1, purpose: 1 };
    let dialled = dial(service.tcp(), &k, route, &limits()).unwrap();
    let arrived = inbox.wait(&limits()).unwrap().stream;
    for stream in [&dialled, &arrived] {
        assert!(sockopt::socket_keepalive(stream).unwrap());
        let first = sockopt::tcp_keepidle(stream).unwrap();
        let rest = sockopt::tcp_keepintvl(stream).unwrap() * sockopt::tcp_keepcnt(stream).unwrap();
        assert!(first + rest <= 2 * io::SILENCE, "{first:?} and {rest:?}");
        // It would end connections to peers that answer, but read nothing since they compute.
        assert_eq!(sockopt::tcp_user_timeout(stream).unwrap(), 0);
    }
}

/// What a listener does with its callers, the first of which it may treat badly.
fn serve(stream: TcpStream, k: &CommKey) {
    stream.set_nonblocking(true).unwrap();
    let mut greeter = auth::Greeter::new(stream.into(), "test".into(), Deadline::after(Duration::from_secs(20)));
    let served = loop {
        match greeter.advance(&|_| Some(k.clone())) {
            auth::Greeting::Waiting => assert!(!greeter.deadline.passed()),
            auth::Greeting::Welcome(_) => break greeter.into_fd().0,
            // Not one that dials.
            auth::Greeting::Refused(_) => return,
        }
        std::thread::yield_now();
    };
    TcpStream::from(served).write_all(&[0]).unwrap();
}

/// A busy listener drops callers in their handshake.
#[test]
fn a_caller_that_is_dropped_in_its_handshake_calls_again() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let route = Route { comm_hash: 0xe5, from: 2, to: 3, purpose: 1 };
    std::thread::scope(|s| {
        let dialled = s.spawn(|| dial(&[address], &key(9), route, &limits()));
        drop(listener.accept().unwrap());
        // Without a second call nobody would come any more.
        listener.set_nonblocking(true).unwrap();
        let second = loop {
            match listener.accept() {
                Ok((stream, _)) => break Some(stream),
                Err(_) if dialled.is_finished() => break None,
                Err(_) => std::thread::yield_now(),
            }
        };
        second.into_iter().for_each(|stream| serve(stream, &key(9)));
        dialled.join().unwrap().unwrap();
    });
    // One that drops everybody is given up soon.
    let begin = Instant::now();
    std::thread::scope(|s| {
        let dialled = s.spawn(|| dial(&[address], &key(9), route, &limits()));
        while !dialled.is_finished() {
            drop(listener.accept());
            std::thread::yield_now();
        }
        let error = dialled.join().unwrap().unwrap_err();
        assert!(error.text.contains("refused"), "{error}");
    });
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    drop(listener);
    let begin = Instant::now();
    assert!(dial(&[address], &key(9), route, &limits()).is_err(), "nobody listens");
    assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
}

/// The kernel drops what calls a listener whose queue is full.
#[test]
fn a_caller_that_is_not_heard_calls_again() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let address = listener.local_addr().unwrap();
    // Ends when the queue is full.
    let short = || Limits { deadline: Deadline::after(Duration::from_millis(200)), abort: &NO_ABORT };
    let mut queued = Vec::new();
    while let Ok(stream) = io::connect_any(&[address], ADDRESS_SLICE, &short()) {
        queued.push(stream);
        assert!(queued.len() < 100, "the queue is never full");
    }
    let route = Route { comm_hash: 0xf6, from: 2, to: 3, purpose: 1 };
    let (tell, hear) = std::sync::mpsc::channel();
    std::thread::scope(|s| {
        s.spawn(move || tell.send(dial(&[address], &key(9), route, &limits())).unwrap());
        let early = hear.recv_timeout(ADDRESS_SLICE + ADDRESS_SLICE / 4);
        drop(queued);
        assert!(early.is_err(), "it gave up: {early:?}");
        listener.set_nonblocking(true).unwrap();
        let dialled = loop {
            match (listener.accept(), hear.try_recv()) {
                (_, Ok(dialled)) => break dialled,
                (Ok((stream, _)), _) => serve(stream, &key(9)),
                _ => std::thread::yield_now(),
            }
        };
        dialled.unwrap();
    });
}

#[test]
fn a_watcher_that_panics_takes_nobody_with_it() {
    let service = service();
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
    let calls = Arc::new(AtomicU64::new(0));
    let bad = {
        let calls = calls.clone();
        move || -> bool {
            calls.fetch_add(1, Ordering::Relaxed);
            panic!("a watcher's bug")
        }
    };
    let (tell, hear) = std::sync::mpsc::channel();
    let read = Arc::new(read);
    let _bad = service.watch_readable(read.clone(), bad).unwrap();
    rustix::io::write(&write, b"x").unwrap();
    for round in 0..3 {
        let (other, theirs) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        let tell = Mutex::new(tell.clone());
        let good = move || locked(&tell).send(()).is_err();
        let _good = service.watch_readable(Arc::new(other), good).unwrap();
        rustix::io::write(&theirs, b"x").unwrap();
        hear.recv_timeout(Duration::from_secs(5)).unwrap_or_else(|_| panic!("the service is dead in round {round}"));
    }
    assert_eq!(calls.load(Ordering::Relaxed), 1, "it is not called again");
}
