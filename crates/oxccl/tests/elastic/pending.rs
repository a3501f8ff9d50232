//! Nonblocking communicators in the Rust interface.

use std::time::{Duration, Instant};

use oxccl::{Communicator, Config, Pending, ResultCode, UniqueId};

use crate::harness::{alone, pause};

fn nonblocking() -> Config {
    Config { nonblocking: true, ..Config::default() }
}

fn polled<T: std::fmt::Debug>(mut pending: Pending<T>) -> T {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        match pending.poll().expect("it can be made") {
            Ok(made) => return made,
            Err(again) => pending = again,
        }
        assert!(Instant::now() < end);
        std::thread::yield_now();
    }
}

/// One thread drives all ranks, which blocking calls could not.
#[test]
fn one_thread_makes_all_ranks_without_a_group() {
    let _alone = alone();
    let id = UniqueId::create().expect("an id");
    let init = |rank| Communicator::init_with(3, id, rank, &nonblocking()).expect("it begins");
    let first = init(0);
    assert!(!first.poll().expect("under way"));
    assert_eq!(first.async_error().expect_err("under way").code, ResultCode::InProgress);
    // Nothing else is taken meanwhile.
    assert_eq!(first.barrier().expect_err("under way").code, ResultCode::InvalidArgument);
    let comms = [first, init(1), init(2)];
    comms.iter().for_each(|c| c.wait().expect("all came"));
    assert!(comms.iter().all(|c| c.poll().expect("ready")));
    // Children are made side by side, each with a config of its own.
    let named = Config { name: Some("child".into()), ..nonblocking() };
    let begin = |c: &Communicator| c.start_split(Some(c.rank() as i32 / 2), 0, Some(&named)).expect("it begins");
    let pending: Vec<_> = comms.iter().map(begin).collect();
    let children: Vec<Communicator> = pending.into_iter().map(|p| polled(p).expect("a colour was given")).collect();
    assert_eq!(children.iter().map(Communicator::ranks).collect::<Vec<_>>(), [2, 2, 1]);
    let shrunk: Vec<_> = comms[..2].iter().map(|c| c.start_shrink(&[2], false, None).expect("it begins")).collect();
    let shrunk: Vec<Communicator> = shrunk.into_iter().map(polled).collect();
    let id = shrunk[0].grow_id().expect("an id");
    let grown = [
        shrunk[0].start_grow(3, Some(id), Some(&nonblocking())).expect("it begins"),
        shrunk[1].start_grow(3, None, None).expect("it begins"),
    ];
    let new = Communicator::init_with(3, id, 2, &nonblocking()).expect("it begins");
    let [a, b] = grown.map(|p| p.wait().expect("grown"));
    new.wait().expect("joined");
    assert_eq!([a.rank(), b.rank(), new.rank()], [0, 1, 2]);
}

#[test]
fn dropping_what_is_not_complete_ends_it() {
    let _alone = alone();
    let id = UniqueId::create().expect("an id");
    let begin = Instant::now();
    let alone = Communicator::init_with(2, id, 0, &nonblocking()).expect("it begins");
    pause(Duration::from_millis(20));
    drop(alone);
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    // The peer that comes later hears of it.
    let late = Communicator::init_with(2, id, 1, &nonblocking()).expect("it begins");
    assert_eq!(late.wait().expect_err("the other left").code, ResultCode::RemoteError);
    assert!(late.poll().is_err());
}

#[test]
fn wrong_choices_are_refused() {
    let id = UniqueId::create().expect("an id");
    let config = Config { channels: Some((3, 2)), ..Config::default() };
    let error = Communicator::init_with(1, id, 0, &config).expect_err("the least is above the most");
    assert!(error.code == ResultCode::InvalidArgument && error.text.contains("(3, 2)"), "{error:?}");
    let config = Config { network: Some("carrier pigeon".into()), ..Config::default() };
    let error = Communicator::init_with(1, id, 0, &config).expect_err("there is no such network");
    assert!(error.text.contains("netName") && error.text.contains("Socket"), "{error:?}");
    Communicator::init_with(1, id, 0, &Config { network: Some("socket".into()), ..Config::default() }).expect("init");
}
