//! Management calls that cannot come to their end: each rank hears of it soon, and of the cause.

use std::sync::Mutex;

use super::super::child::Done;
use super::*;
use crate::bootstrap::connect;

/// Far above what any of these calls takes, and far below `OXCCL_INIT_TIMEOUT`.
const SOON: Duration = Duration::from_secs(15);

/// Runs `f` as each of `ranks` ranks of a communicator with these settings.
fn members(ranks: usize, settings: &CommConfig, f: impl Fn(Arc<Communicator>) + Sync) {
    let id = UniqueId::create().unwrap();
    std::thread::scope(|scope| {
        for rank in 0..ranks {
            let (f, id, settings) = (&f, id.clone(), settings.clone());
            scope.spawn(move || {
                let device = rank % crate::device::count();
                let comm =
                    Communicator::init_rank(ranks as i32, id, rank as i32, device, settings, "test").expect("init");
                comm.complete().expect("init");
                f(comm);
            });
        }
    });
}

fn nonblocking() -> CommConfig {
    CommConfig { blocking: Some(false), ..CommConfig::default() }
}

/// Where a call puts the communicator that it makes.
type Place = Arc<Mutex<Option<Arc<Communicator>>>>;

fn put(place: &Place) -> Done {
    let place = place.clone();
    Box::new(move |child| *place.lock().unwrap() = child)
}

fn taken(place: &Place) -> Arc<Communicator> {
    place.lock().unwrap().take().expect("a child was made")
}

#[test]
fn ranks_hear_of_an_initialisation_that_fails_behind_the_meeting() {
    let id = UniqueId::create().unwrap();
    let meet = |rank: usize| {
        let (id, config) = (id.0.clone(), config(|_| ()));
        let bootstrap = init::bootstrap_config(&config);
        connect(init::params(id, rank, 2, &config, bootstrap, false, Arc::default())).unwrap()
    };
    let [first, second] = std::thread::scope(|s| {
        let threads = [0, 1].map(|rank| s.spawn(move || meet(rank)));
        threads.map(|t| t.join().unwrap())
    });
    let aborted = Arc::new(AtomicBool::new(true));
    let own = init::build(&aborted, config(|_| ()), first, None).err().expect("it was aborted");
    assert!(own.text.contains("aborted"), "{own:?}");
    // It has said all that the other one waits for, whose communicator comes up, and is of no use.
    let core = init::build(&Arc::default(), config(|_| ()), second, None).unwrap();
    let told = core.check().expect_err("the other one failed");
    assert!(told.text.contains("rank 0") && told.text.contains(&own.text), "{told:?}");
}

#[test]
fn communicators_of_a_discarded_group_are_not_under_way_for_ever() {
    for settings in [CommConfig::default(), nonblocking()] {
        group::start();
        let join = |settings: &CommConfig| {
            Communicator::init_rank(2, UniqueId::create().unwrap(), 0, 0, settings.clone(), "test").unwrap()
        };
        let comm = join(&settings);
        assert_eq!(comm.async_error().unwrap_err().code, ResultCode::InProgress);
        group::fail(&Error::argument("another call of the group was wrong"));
        assert_eq!(group::end().unwrap_err().code, ResultCode::InvalidArgument);
        let error = comm.async_error().expect_err("its initialisation will not take place");
        assert!(error.code == ResultCode::InvalidArgument && error.text.contains("another call"), "{error:?}");
        comm.abort().unwrap();
        // Those that do not go together.
        group::start();
        let comms = [join(&CommConfig { blocking: Some(true), ..CommConfig::default() }), join(&nonblocking())];
        let end = group::end().unwrap_err();
        for comm in comms {
            assert_eq!(comm.async_error().unwrap_err().text, end.text);
            comm.abort().unwrap();
        }
    }
}

#[test]
fn a_panic_in_an_initialisation_ends_it() {
    for blocking in [true, false] {
        let settings = CommConfig { blocking: Some(blocking), ..CommConfig::default() };
        let comm = Communicator::new(0, 2, 0, settings, Arc::default());
        let run = Box::new(|| panic!("a test of a panic"));
        let begun = group::manage(Job { comm: comm.clone(), halt: Arc::default(), run });
        assert_eq!(begun.is_err(), blocking, "{begun:?}");
        let state = || comm.async_error().expect_err("it is never ready").code;
        assert!(soon(|| state() != ResultCode::InProgress));
        assert_eq!(state(), ResultCode::InternalError);
    }
}

#[test]
fn children_of_one_parent_in_one_group_are_told_apart() {
    const RANKS: usize = 3;
    for settings in [CommConfig::default(), nonblocking()] {
        let children = CommConfig { blocking: Some(true), ..CommConfig::default() };
        members(RANKS, &settings, |comm| {
            for _ in 0..8 {
                let places = [(); 4].map(|()| Place::default());
                let rank = comm.rank() as i32;
                let split = |color, key, place| comm.split(Some(color), key, Some(children.clone()), put(place));
                group::start();
                split(0, rank, &places[0]).unwrap();
                split(rank, 0, &places[1]).unwrap();
                split(0, -rank, &places[2]).unwrap();
                split(0, (rank + 1) % RANKS as i32, &places[3]).unwrap();
                match group::end() {
                    Err(e) if e.code == ResultCode::InProgress => comm.complete().unwrap(),
                    end => end.unwrap(),
                }
                let made = places.each_ref().map(taken);
                let place = comm.rank();
                assert_eq!(made.each_ref().map(|c| c.ranks()), [RANKS, 1, RANKS, RANKS]);
                let ranks = [place, 0, RANKS - 1 - place, (place + 1) % RANKS];
                assert_eq!(made.each_ref().map(|c| c.rank()), ranks);
                made.iter().for_each(|c| c.destroy().unwrap());
            }
            comm.destroy().unwrap();
        });
    }
}

#[test]
fn a_meeting_ends_when_a_rank_that_is_missed_goes() {
    type Call = fn(&Arc<Communicator>) -> Result<()>;
    let calls: [Call; 2] = [|comm| comm.split(Some(0), 0, None, Box::new(|_| ())), |comm| comm.suspend()];
    for (shm, call, aborts) in [(true, 0, true), (true, 1, false), (false, 0, false), (false, 1, true)] {
        world(
            3,
            |c| c.shm = shm,
            |comm| {
                if comm.rank() == 2 {
                    pass(Duration::from_millis(150));
                    if aborts { comm.abort() } else { comm.destroy() }.unwrap();
                    return;
                }
                let begin = Instant::now();
                let error = calls[call](&comm).expect_err("not all come");
                let took = begin.elapsed();
                assert!(took < SOON && error.text.contains("rank 2"), "{shm} {call} {aborts}: {took:?} {error:?}");
                comm.abort().unwrap();
            },
        );
    }
}

/// Of calls that are made one after the other, as those of a group, the abort finds one under way; those behind it hear of it as they begin.
#[test]
fn meetings_that_begin_behind_an_abort_end() {
    world(
        2,
        |_| (),
        |comm| {
            let meeting = comm.next_barrier().unwrap();
            comm.abort().unwrap();
            let begin = Instant::now();
            let error = comm.meet(&meeting).expect_err("aborted");
            let took = begin.elapsed();
            assert!(took < SOON && error.text.contains("aborted on this rank"), "{took:?} {error:?}");
        },
    );
}

/// What one rank gives up before it begins the others have counted.
#[test]
fn a_call_that_did_not_run_on_one_rank_leaves_the_next_one_whole() {
    type Call = fn(&Arc<Communicator>) -> Result<()>;
    let calls: [Call; 3] = [
        |comm| comm.split(Some(0), 0, None, Box::new(|_| ())),
        |comm| comm.suspend(),
        |comm| comm.register_window(std::ptr::without_provenance_mut(4096), 8, 0, Box::new(|_| ())),
    ];
    for call in calls {
        // To halt what waits ends the calls that have come in, too. Rank 1 waits for rank 0: rank 0 would be halted amid a message.
        let halted = AtomicBool::new(false);
        world(
            2,
            |_| (),
            |comm| {
                if comm.rank() == 1 {
                    let core = comm.core().unwrap();
                    std::thread::scope(|s| {
                        let alone = s.spawn(|| call(&comm));
                        assert!(soon(|| {
                            core.children.halt();
                            alone.is_finished()
                        }));
                        alone.join().unwrap().expect_err("the other one did not come");
                    });
                    halted.store(true, Ordering::Release);
                } else {
                    group::start();
                    call(&comm).unwrap();
                    group::fail(&Error::argument("another call of the group was wrong"));
                    group::end().expect_err("the group was discarded");
                    assert!(soon(|| halted.load(Ordering::Acquire)));
                }
                call(&comm).expect("both come");
                // Nobody ends what the other one has still to hear of.
                comm.meet(&comm.next_barrier().unwrap()).unwrap();
                comm.abort().unwrap();
            },
        );
    }
}

/// The news of its process' end come by another way than what it said of itself before.
#[test]
fn who_dies_behind_a_revocation_is_missed() {
    world(
        2,
        |_| (),
        |comm| {
            if comm.rank() == 1 {
                comm.revoke().unwrap();
                // Which ends when the other one has looked, and aborts.
                return assert!(comm.split(Some(0), 0, None, Box::new(|_| ())).is_err());
            }
            let core = comm.core().unwrap();
            let revoked = || core.hub.presence(core.member_of[1]) == super::super::hub::Presence::Revoked;
            assert!(soon(revoked) && core.missing(&[0, 1]).is_ok());
            core.on_death(&[1], "its process ended");
            let error = core.missing(&[0, 1]).expect_err("it is dead");
            assert!(error.text.contains("rank 1") && error.text.contains("died"), "{error:?}");
            comm.abort().unwrap();
        },
    );
}

/// Whoever has what the meeting gives may go, while others have yet to read it.
#[test]
fn parents_may_go_as_soon_as_they_have_children() {
    for shm in [true, false] {
        for _ in 0..5 {
            world(
                3,
                |c| c.shm = shm,
                |comm| {
                    let place = Place::default();
                    comm.split(Some(0), 0, None, put(&place)).unwrap();
                    comm.destroy().unwrap();
                    let child = taken(&place);
                    assert_eq!(child.ranks(), 3);
                    child.destroy().unwrap();
                },
            );
        }
    }
}

#[test]
fn a_shrink_that_failed_can_be_made_again_with_fewer_ranks() {
    let done = AtomicU32::new(0);
    members(4, &nonblocking(), |comm| {
        match comm.rank() {
            2 => {
                pass(Duration::from_millis(150));
                return comm.abort().unwrap();
            }
            // Is to be left out.
            3 => assert!(soon(|| done.load(Ordering::Relaxed) == 2)),
            _ => {
                comm.shrink(&[3], true, None, Box::new(|_| ())).unwrap();
                let error = comm.complete().expect_err("rank 2 does not come");
                assert!(error.text.contains("rank 2"), "{error:?}");
                assert!(comm.async_error().is_err());
                let place = Place::default();
                comm.shrink(&[2, 3], true, None, put(&place)).unwrap();
                comm.complete().unwrap();
                assert!(comm.async_error().is_ok());
                let child = taken(&place);
                assert_eq!((child.rank(), child.ranks()), (comm.rank(), 2));
                child.destroy().unwrap();
                done.fetch_add(1, Ordering::Relaxed);
            }
        }
        comm.abort().unwrap();
    });
}
