//! Communicator handles: what `ncclComm_t` points to.
//!
//! A handle is never given back to the allocator, so a stale one can always be looked at: a destroyed handle is
//! recognised by its poisoned magic instead of being a use after free, and one that a thread is ending by a magic that admits
//! nobody but who aborts. Retired handles wait in a queue before they
//! serve a new communicator. Calls that are not on the data path also consult the registry of all handles, so a
//! pointer to anything else is refused without being read.

use crate::abi::ncclComm_t;
use crate::entry::{Failure, Outcome};
use crate::window::{self, Registered};
use oxccl_runtime::Communicator;
use oxccl_sys::barrier;
use std::collections::{HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem::{ManuallyDrop, align_of};
use std::ops::Deref;
use std::sync::atomic::{
    AtomicPtr, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const LIVE: u64 = 0x0280_0280_0280_0280;
/// A call ends the communicator and may wait in it: nobody comes in but who [aborts](abort) it.
const ENDING: u64 = 0xe4d1_c033_e4d1_c033;
const DEAD: u64 = 0xdead_c033_dead_c033;
/// Retired handles that wait before the oldest is used again.
const QUARANTINE: usize = 256;

/// What an `ncclComm_t` points to.
#[repr(C)]
pub struct Comm {
    head: AtomicU64,
    /// Calls that use the communicator right now and have no word of their own to say so.
    users: AtomicU32,
    /// From `Arc::into_raw`; null once retired and unused.
    communicator: AtomicPtr<Communicator>,
    regions: Mutex<Regions>,
    windows: Mutex<Vec<Arc<Registered>>>,
    /// The hash of the failure of the communicator that was told to who asked for it; 0 before.
    told: AtomicU64,
    tail: AtomicU64,
}

/// Memory ranges given to `ncclCommRegister`.
#[derive(Default)]
pub(crate) struct Regions {
    next: usize,
    list: Vec<Region>,
}

struct Region {
    handle: usize,
    begin: usize,
    end: usize,
    count: usize,
}

const PAGE: usize = 4096;

impl Regions {
    /// The handle of the range, made page aligned; a range within a known one shares its handle.
    pub(crate) fn add(&mut self, address: usize, bytes: usize) -> usize {
        let begin = address & !(PAGE - 1);
        let end = address.saturating_add(bytes).checked_next_multiple_of(PAGE).unwrap_or(usize::MAX);
        if let Some(region) = self.list.iter_mut().find(|r| r.begin <= begin && end <= r.end) {
            region.count += 1;
            return region.handle;
        }
        self.next += 1;
        self.list.push(Region { handle: self.next, begin, end, count: 1 });
        self.next
    }

    /// Gives one reference back; false if the handle is unknown.
    pub(crate) fn remove(&mut self, handle: usize) -> bool {
        let Some(at) = self.list.iter().position(|r| r.handle == handle) else { return false };
        self.list[at].count -= 1;
        if self.list[at].count == 0 {
            self.list.swap_remove(at);
        }
        true
    }
}

/// All handles ever made (by address) and those that wait to be used again.
#[derive(Default)]
struct Registry {
    known: HashSet<usize>,
    retired: VecDeque<usize>,
}

static REGISTRY: Mutex<Option<Registry>> = Mutex::new(None);

/// A poisoned lock is taken all the same: every change under it is a single step.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn with_registry<R>(body: impl FnOnce(&mut Registry) -> R) -> R {
    body(lock(&REGISTRY).get_or_insert_default())
}

/// The handle of a new communicator.
pub(crate) fn create(communicator: Arc<Communicator>) -> ncclComm_t {
    let raw = Arc::into_raw(communicator).cast_mut();
    with_registry(|registry| {
        let comm = registry.reusable().unwrap_or_else(|| registry.fresh());
        comm.communicator.store(raw, SeqCst);
        *lock(&comm.regions) = Regions::default();
        lock(&comm.windows).clear();
        comm.told.store(0, SeqCst);
        comm.tail.store(LIVE, SeqCst);
        comm.head.store(LIVE, SeqCst);
        std::ptr::from_ref(comm).cast_mut()
    })
}

impl Registry {
    /// The oldest retired handle, once enough younger ones wait behind it and nobody is in it.
    fn reusable(&mut self) -> Option<&'static Comm> {
        if self.retired.len() <= QUARANTINE {
            return None;
        }
        let comm = deref(self.retired.pop_front()? as ncclComm_t);
        if comm.communicator.load(SeqCst).is_null() {
            return Some(comm);
        }
        self.retired.push_back(std::ptr::from_ref(comm) as usize);
        None
    }

    fn fresh(&mut self) -> &'static Comm {
        let comm: &'static Comm = Box::leak(Box::new(Comm {
            head: AtomicU64::new(DEAD),
            users: AtomicU32::new(0),
            communicator: AtomicPtr::new(std::ptr::null_mut()),
            regions: Mutex::default(),
            windows: Mutex::default(),
            told: AtomicU64::new(0),
            tail: AtomicU64::new(DEAD),
        }));
        self.known.insert(std::ptr::from_ref(comm) as usize);
        comm
    }
}

/// Turns a handle into a reference.
fn deref(comm: ncclComm_t) -> &'static Comm {
    // SAFETY: not null, aligned (checked by the callers), and by the contract of the C interface made by `create`,
    // which leaks; all fields are atomics or locks, so shared access from any thread is sound.
    unsafe { &*comm }
}

/// The communicator of a handle, for the duration of one call. Keeps it alive while another thread aborts it.
pub(crate) struct InUse {
    comm: &'static Comm,
    communicator: ManuallyDrop<Arc<Communicator>>,
    mark: Mark,
}

impl Deref for InUse {
    type Target = Arc<Communicator>;
    #[inline]
    fn deref(&self) -> &Arc<Communicator> {
        &self.communicator
    }
}

impl Drop for InUse {
    #[inline]
    fn drop(&mut self) {
        self.comm.leave(&self.mark);
    }
}

impl InUse {
    /// The memory registered with this communicator.
    pub(crate) fn regions(&self) -> MutexGuard<'_, Regions> {
        lock(&self.comm.regions)
    }

    /// Whether this failure of the communicator is told for the first time.
    pub(crate) fn is_news(&self, text: &str) -> bool {
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        let told = hasher.finish() | 1;
        self.comm.told.swap(told, SeqCst) != told
    }

    /// The windows of this communicator that C has handles of.
    pub(crate) fn windows(&self) -> MutexGuard<'_, Vec<Arc<Registered>>> {
        lock(&self.comm.windows)
    }
}

impl Comm {
    #[inline(always)]
    fn enter(&'static self) -> Option<InUse> {
        self.enter_while(LIVE)
    }

    // SYNC: handle-retire. `enter` marks the handle as used, then looks at the magic; `retire` changes the magic, then
    // looks at the marks. A light fence here and a heavy barrier there: at least one of them sees the other.
    #[inline(always)]
    fn enter_while(&'static self, magic: u64) -> Option<InUse> {
        if self.head.load(Relaxed) != magic || self.tail.load(Relaxed) != LIVE {
            return None;
        }
        let mark = Mark::set(self);
        barrier::light_here();
        if self.head.load(Acquire) != magic {
            self.leave(&mark);
            return None;
        }
        let raw = self.communicator.load(Acquire);
        // SAFETY: `raw` came from `Arc::into_raw`; the magic was not that of the dead while the handle was marked, so it is
        // released (`leave`) only after we leave; `ManuallyDrop` keeps the count of the Arc as it is.
        let communicator = ManuallyDrop::new(unsafe { Arc::from_raw(raw) });
        Some(InUse { comm: self, communicator, mark })
    }

    // SYNC: handle-retire
    #[inline(always)]
    fn leave(&self, mark: &Mark) {
        mark.clear(self);
        barrier::light_here();
        // While it is ending others may yet come in: who ends it is the last to say so, and leaves afterwards.
        if self.head.load(Relaxed) == DEAD {
            self.release_if_unused();
        }
    }

    /// After the end of the handle: whoever leaves last gives the communicator back.
    #[cold]
    fn release_if_unused(&self) {
        // SYNC: handle-retire
        barrier::heavy();
        if self.users.load(SeqCst) == 0 && !marks::any(self) {
            self.release();
        }
    }

    /// Drops the handle's share of the communicator; only the first caller finds it.
    fn release(&self) {
        let raw = self.communicator.swap(std::ptr::null_mut(), SeqCst);
        if !raw.is_null() {
            // SAFETY: from `Arc::into_raw` in `create`, and the swap gave it to us alone.
            drop(unsafe { Arc::from_raw(raw) });
        }
    }
}

/// How a call says that it uses a handle: a word of its thread, which costs no exchange, or the handle's count.
#[derive(Clone, Copy)]
enum Mark {
    Word(&'static AtomicUsize),
    Count,
}

impl Mark {
    #[inline]
    fn set(comm: &Comm) -> Mark {
        match marks::free_word() {
            Some(word) => {
                word.store(std::ptr::from_ref(comm) as usize, Release);
                Mark::Word(word)
            }
            None => {
                comm.users.fetch_add(1, SeqCst);
                Mark::Count
            }
        }
    }

    #[inline]
    fn clear(self, comm: &Comm) {
        match self {
            // The call is done with the communicator before the word says so.
            Mark::Word(word) => word.store(0, Release),
            Mark::Count => {
                comm.users.fetch_sub(1, SeqCst);
            }
        }
    }
}

/// The words in which threads say which handles they use.
mod marks {
    use super::{Comm, Mutex, lock};
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};

    /// Calls within calls (a host function that calls the library) that need no count.
    const DEPTH: usize = 4;

    /// The words of one thread, on a line of their own, and the one beside it, which processors fetch with it. Never given back to the
    /// allocator, since any thread may look.
    #[derive(Default)]
    #[repr(align(128))]
    struct Words([AtomicUsize; DEPTH]);

    /// All words ever made, and those whose thread has ended.
    static ALL: Mutex<(Vec<&'static Words>, Vec<&'static Words>)> = Mutex::new((Vec::new(), Vec::new()));

    /// The words of a thread, as long as it lives.
    struct Own(&'static Words);

    impl Own {
        fn new() -> Own {
            let mut all = lock(&ALL);
            let words = all.1.pop().unwrap_or_else(|| {
                let new: &'static Words = Box::leak(Box::default());
                all.0.push(new);
                new
            });
            Own(words)
        }
    }

    impl Drop for Own {
        fn drop(&mut self) {
            lock(&ALL).1.push(self.0);
        }
    }

    thread_local! {
        static OWN: Own = Own::new();
    }

    /// A word of this thread that says nothing; none in deep calls and while the thread ends.
    #[inline]
    pub(super) fn free_word() -> Option<&'static AtomicUsize> {
        OWN.try_with(|own| own.0.0.iter().find(|w| w.load(Relaxed) == 0)).ok().flatten()
    }

    /// Whether any thread says that it uses `comm`.
    pub(super) fn any(comm: &Comm) -> bool {
        let comm = std::ptr::from_ref(comm) as usize;
        lock(&ALL).0.iter().any(|words| words.0.iter().any(|w| w.load(SeqCst) == comm))
    }
}

/// The address of the communicator, by which it can be told from all others as long as somebody holds it, if the handle is
/// one that can be used now. The communicator may end at any time.
#[inline]
pub(crate) fn name(comm: ncclComm_t) -> Option<usize> {
    let usable = !comm.is_null() && (comm as usize).is_multiple_of(align_of::<Comm>());
    let live = usable && deref(comm).head.load(Relaxed) == LIVE && deref(comm).tail.load(Relaxed) == LIVE;
    let address = live.then(|| deref(comm).communicator.load(Relaxed).addr());
    address.filter(|address| *address != 0)
}

/// As [`check`], for a caller that has another way to go if the handle cannot be used.
#[inline]
pub(crate) fn enter(comm: ncclComm_t) -> Option<InUse> {
    let usable = !comm.is_null() && (comm as usize).is_multiple_of(align_of::<Comm>());
    if usable { deref(comm).enter() } else { None }
}

/// CommCheck of the original, for the data path: null, wrong magic, destroyed. No lock, no allocation when good.
#[inline]
pub(crate) fn check(op: &str, comm: ncclComm_t) -> Outcome<InUse> {
    if comm.is_null() {
        return Err(null(op));
    }
    if !(comm as usize).is_multiple_of(align_of::<Comm>()) {
        return Err(corrupted(op, comm));
    }
    match deref(comm).enter() {
        Some(in_use) => Ok(in_use),
        None => Err(refused(op, comm)),
    }
}

/// As [`check`], and a pointer that is no handle of ours is refused without being read.
pub(crate) fn check_known(op: &str, comm: ncclComm_t) -> Outcome<InUse> {
    if comm.is_null() {
        return Err(null(op));
    }
    if !is_known(comm) {
        return Err(corrupted(op, comm));
    }
    check(op, comm)
}

fn is_known(comm: ncclComm_t) -> bool {
    with_registry(|registry| registry.known.contains(&(comm as usize)))
}

#[cold]
fn null(op: &str) -> Failure {
    Failure::argument(format!("{op} : comm argument is NULL"))
}

#[cold]
fn corrupted(op: &str, comm: ncclComm_t) -> Failure {
    Failure::argument(format!(
        "Error: corrupted comm object detected. {op} : {comm:p} is not a communicator of this library; pass a handle \
         that an ncclCommInit call returned"
    ))
}

#[cold]
fn refused(op: &str, comm: ncclComm_t) -> Failure {
    if !is_known(comm) {
        return corrupted(op, comm);
    }
    match deref(comm).head.load(SeqCst) {
        DEAD => Failure::argument(format!("{op} : comm {comm:p} has already been destroyed")),
        ENDING => Failure::argument(format!("{op} : comm {comm:p} is being destroyed or aborted by another thread")),
        _ => corrupted(op, comm),
    }
}

/// Ends a handle as [`retire`] does, or has `body` abort the communicator of one that another thread is ending, and in which
/// that may wait.
pub(crate) fn abort(op: &str, comm: ncclComm_t, body: impl Fn(&Communicator) -> Outcome) -> Outcome {
    // Of two ends at the same time this one may lose, and then helps the other.
    retire(op, comm, &body).or_else(|e| match ending(comm) {
        Some(in_use) => body(&in_use),
        None => Err(e),
    })
}

/// The communicator of a handle that another thread is ending.
fn ending(comm: ncclComm_t) -> Option<InUse> {
    if is_known(comm) { deref(comm).enter_while(ENDING) } else { None }
}

/// Ends a handle: `body` destroys or aborts the communicator while no new call can enter it, but an [abort](self::abort). Whatever
/// `body` says, the handle is not usable afterwards.
pub(crate) fn retire(op: &str, comm: ncclComm_t, body: impl FnOnce(&Communicator) -> Outcome) -> Outcome {
    let in_use = check_known(op, comm)?;
    let handle = in_use.comm;
    // SYNC: handle-retire. Of two threads that destroy the same handle, one wins here.
    if handle.head.compare_exchange(LIVE, ENDING, SeqCst, SeqCst).is_err() {
        return Err(refused(op, comm));
    }
    let outcome = body(&in_use);
    handle.head.store(DEAD, SeqCst);
    handle.tail.store(DEAD, SeqCst);
    // Windows that were not given back end with their communicator.
    window::forget(&std::mem::take(&mut *lock(&handle.windows)));
    drop(in_use);
    crate::device_comm::forget(comm);
    with_registry(|registry| registry.retired.push_back(comm as usize));
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxccl_runtime::{CommConfig, UniqueId};

    fn make() -> ncclComm_t {
        let id = UniqueId::create().unwrap();
        create(Communicator::init_rank(1, id, 0, 0, CommConfig::default(), "test").unwrap())
    }

    fn end(comm: ncclComm_t) -> Outcome {
        retire("Test", comm, |c| Ok(c.destroy()?))
    }

    #[test]
    fn a_destroyed_handle_is_recognised() {
        let comm = make();
        assert_eq!(check("Test", comm).unwrap().ranks(), 1);
        end(comm).unwrap();
        assert!(check("Test", comm).is_err());
        assert!(end(comm).is_err());
    }

    #[test]
    fn a_failed_destroy_ends_the_handle_all_the_same() {
        let comm = make();
        assert!(retire("Test", comm, |_| Err(Failure::argument("no"))).is_err());
        assert!(check("Test", comm).is_err());
    }

    /// Two ranks, of which the first has a call under way that the second never makes, and its stream.
    fn stuck() -> ([ncclComm_t; 2], oxccl_runtime::device::Stream) {
        use oxccl_runtime::{Operator, Request};
        use oxccl_types::{Collective, DataType, ReduceOp};
        let comms = Communicator::init_all(&[0, 1]).unwrap();
        let stream = oxccl_runtime::device::Stream::new().unwrap();
        // It outlives the test, as the call may.
        let data: &'static mut [u8] = vec![1; 4096].leak();
        let request = Request {
            collective: Collective::AllReduce,
            send: data.as_ptr(),
            recv: data.as_mut_ptr(),
            count: data.len(),
            dtype: DataType::Uint8,
            op: Operator::Builtin(ReduceOp::Sum),
            root: 0,
            bias: std::ptr::null(),
            v: None,
            stream: stream.clone(),
        };
        comms[0].submit(request).unwrap();
        ([0, 1].map(|rank| create(comms[rank].clone())), stream)
    }

    #[test]
    fn an_abort_ends_a_destroy_that_waits_in_another_thread() {
        use crate::lifecycle::{comm_abort, comm_destroy};
        const LIMIT: std::time::Duration = std::time::Duration::from_secs(20);
        let (comms, _stream) = stuck();
        let [first, second] = comms.map(|comm| comm as usize);
        let (ended, end) = std::sync::mpsc::channel();
        let destroyer = std::thread::spawn(move || {
            // SAFETY: a handle, and nothing else is given.
            let outcome = unsafe { comm_destroy(first as ncclComm_t) };
            ended.send(outcome.is_ok()).unwrap();
        });
        let begin = std::time::Instant::now();
        while enter(first as ncclComm_t).is_some() {
            assert!(end.try_recv().is_err() && begin.elapsed() < LIMIT, "the destroy does not begin");
            std::thread::yield_now();
        }
        assert!(end.try_recv().is_err(), "the destroy did not wait for the call");
        // SAFETY: as above.
        unsafe { comm_abort(first as ncclComm_t) }.unwrap();
        assert!(end.recv_timeout(LIMIT).expect("the destroy does not end"));
        destroyer.join().unwrap();
        let first = first as ncclComm_t;
        assert!(abort("Test", first, |_| panic!("it is dead")).is_err() && enter(first).is_none());
        // The last to leave has given the communicator back.
        assert!(deref(first).communicator.load(SeqCst).is_null());
        // SAFETY: as above.
        unsafe { comm_abort(second as ncclComm_t) }.unwrap();
    }

    #[test]
    fn the_communicator_lives_as_long_as_a_call_uses_it() {
        let comm = make();
        let in_use = check("Test", comm).unwrap();
        let weak = Arc::downgrade(&in_use);
        end(comm).unwrap();
        assert!(weak.upgrade().is_some());
        drop(in_use);
        crate::device_comm::forget(comm);
        assert!(weak.upgrade().is_none());
    }

    #[test]
    fn foreign_pointers_are_refused_unread() {
        let foreign = align_of::<Comm>() as ncclComm_t;
        assert!(check_known("Test", foreign).is_err());
        assert!(check("Test", 3 as ncclComm_t).is_err());
        assert!(check("Test", std::ptr::null_mut()).is_err());
    }

    #[test]
    fn handles_are_used_again_after_the_quarantine() {
        let first = make();
        end(first).unwrap();
        let mut seen = HashSet::new();
        for _ in 0..3 * QUARANTINE {
            let comm = make();
            seen.insert(comm as usize);
            end(comm).unwrap();
        }
        assert!(seen.len() < 2 * QUARANTINE, "{} handles", seen.len());
    }

    #[test]
    fn registrations_are_counted() {
        let mut regions = Regions::default();
        let whole = regions.add(0x10000, 0x4000);
        assert_eq!(regions.add(0x11000, 16), whole);
        assert_ne!(regions.add(0x20000, 16), whole);
        assert!(regions.remove(whole) && regions.remove(whole) && !regions.remove(whole));
    }
}
