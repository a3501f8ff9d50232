//! Memory that was not allocated by the library, where the system does not let one process read another's, or where the
//! memory is not there: calls go another way, or end in an error that names the cause, on both ranks and in bounded time.
//!
//! Each rank is a process of its own: this binary started again.

mod common;
#[path = "common/large.rs"]
mod large;
#[path = "common/workers.rs"]
mod workers;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use oxccl_runtime::config::tuning;
use oxccl_runtime::device::{self, Stream};
use oxccl_runtime::{CommConfig, Communicator, Operator, Request, group};
use oxccl_types::{Collective, DataType, Error, ReduceOp, Result, ResultCode};

/// How a process is told what to do: rank, scenario, id.
const VARIABLE: &str = "OXCCL_TEST_KERNEL_COPIES";
/// A scenario that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(60);
const RANKS: usize = 2;

/// Bytes that a rank gives from which on the kernel copies them where slots are faster but ranks share cores, in the scenarios of that.
const OUTGROWN: usize = 400_000;

/// A file of constants, gone in the end.
struct Constants(PathBuf);

impl Constants {
    /// Of a machine like this one, but for what `scenario` is about: whether the ranks share a core, and whether the kernel's
    /// copy is faster than scratch and slots. Those of ranks that disagree say both.
    fn of(scenario: &str, rank: usize) -> Constants {
        let (outgrows, long) = (scenario.starts_with("outgrows"), scenario.starts_with("long"));
        let cores = if scenario.starts_with("shared") || outgrows || long { 1 } else { tuning::processors() };
        let slots = match scenario {
            "disagree-slots" => rank == 0,
            "slots-mixed" | "shared-mixed" => true,
            "disagree-kernel" => rank == 1,
            _ => scenario == "slots" || outgrows || long,
        };
        let shm_copy = match slots {
            true => 0.02,
            // On any processor: what a sum costs is its own.
            false if scenario.starts_with("touches") || scenario.starts_with("awaited") => 10.0,
            false => 0.1,
        };
        let path = std::env::temp_dir().join(format!("oxccl-{scenario}-{rank}-{}.txt", std::process::id()));
        let mut lines = format!("cores = {cores}\nshm_copy = {shm_copy}\nkernel_copy = 0.06\nkernel_op = 1\n");
        let from = |bounded: bool| if bounded { OUTGROWN as f64 } else { 1e13 };
        lines += &format!("kernel_crowd = {}\nkernel_crowd_message = {}\n", from(outgrows), from(long));
        if outgrows {
            lines += "cache = 10000\n";
        }
        std::fs::write(&path, format!("oxccl tune 1\nmachine = {}\n{lines}", tuning::machine())).unwrap();
        Constants(path)
    }
}

impl Drop for Constants {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Runs `scenario` on two processes; each sees to its own part.
fn run(scenario: &str) {
    let constants: Vec<Constants> = (0..RANKS).map(|rank| Constants::of(scenario, rank)).collect();
    workers::run(RANKS, LIMIT, scenario, |command, rank, id| {
        command.env(VARIABLE, format!("{rank} {scenario} {id}")).env("OXCCL_TUNE_FILE", &constants[rank].0);
        if scenario.starts_with("awaited") {
            // On processors, too, where the kernel is not the faster one.
            command.env("OXCCL_P2P", "cma").env("OXCCL_CORES", "2");
        }
    });
}

#[test]
fn where_reading_other_processes_is_refused_from_the_start_calls_go_another_way() {
    run("never");
}

#[test]
fn where_slots_are_faster_calls_do_without_the_kernel() {
    run("slots");
}

/// Slots are of another length and messages go other ways by the constants of the one than by those of the other: rank 0's hold.
#[test]
fn ranks_that_disagree_whether_slots_are_faster_use_them_alike() {
    run("disagree-slots");
    run("disagree-kernel");
}

/// Scratch and slots that two ranks write in turns are free whatever was called before.
#[test]
fn calls_of_all_kinds_and_lengths_follow_each_other() {
    run("slots-mixed");
}

/// The same of ranks that share a core, of which a root gives long blocks by messages.
#[test]
fn calls_of_all_kinds_and_lengths_follow_each_other_on_one_core() {
    run("shared-mixed");
}

/// A rank that waits for the other to be done with its part has done its own, whatever it did at once.
#[test]
fn who_has_signalled_touches_nothing_more() {
    for call in ["broadcast", "gather", "scatter"] {
        run(&format!("touches-{call}"));
    }
}

#[test]
fn where_it_is_refused_later_the_error_says_so() {
    for call in ["broadcast", "gather", "reduce", "alltoall", "exchange"] {
        run(&format!("later-{call}"));
    }
}

#[test]
fn ranks_that_share_cores_leave_what_outgrows_the_caches_to_the_kernel() {
    for call in ["gather", "scatter", "alltoall", "exchange", "send"] {
        run(&format!("outgrows-{call}"));
    }
}

#[test]
fn ranks_that_share_cores_leave_long_messages_to_the_kernel() {
    for call in ["exchange", "send", "scatter"] {
        run(&format!("long-{call}"));
    }
}

/// Of each rank, as in an all-to-all.
#[test]
fn several_long_messages_both_ways_go_by_slots() {
    run("long-several");
}

#[test]
fn memory_that_is_not_mapped_is_named_as_the_cause() {
    for call in ["gather", "exchange", "send"] {
        run(&format!("unmapped-{call}"));
    }
}

#[test]
fn who_gives_to_the_root_does_not_wait_for_it() {
    run("ahead-reduce");
    run("ahead-gather");
    run("ahead-in_place");
}

/// What goes by a slot while nobody waits for it.
#[test]
fn the_kernel_copies_what_the_other_rank_waits_for() {
    for call in ["in_place", "reduce", "gather", "scatter"] {
        run(&format!("awaited-{call}"));
        // By what this machine does of itself.
        run(&format!("waited-{call}"));
    }
}

#[test]
fn results_stay_right_when_the_pages_of_the_buffers_become_large() {
    run("large");
}

/// What is believed of a buffer's pages for some hundred uses may be true no more: only which way the bytes go hangs on it.
#[test]
fn results_stay_right_when_other_memory_comes_to_where_a_buffer_was() {
    for call in ["alltoall", "gather", "exchange"] {
        run(&format!("remade-{call}"));
    }
}

#[test]
fn a_root_that_announces_many_gathers_first_gets_the_blocks_of_each() {
    run("shared-gather");
    run("shared-behind");
}

#[test]
fn a_call_that_differs_is_found_behind_one_that_did_not_wait() {
    run("differs-reduce");
    run("differs-gather");
}

#[test]
#[ignore = "no test by itself: `cargo test -p oxccl-runtime --test kernel_copies` runs it in processes of their own"]
fn worker() {
    let Ok(text) = std::env::var(VARIABLE) else { return };
    let words: Vec<&str> = text.split(' ').collect();
    let id = workers::id(words[2]);
    let rank: usize = words[0].parse().unwrap();
    let (scenario, call) = words[1].split_once('-').unwrap_or((words[1], ""));
    if scenario == "never" && rank == 1 {
        refuse();
    }
    // While one rank waits the other does not work.
    if ["shared", "touches", "outgrows", "long"].contains(&scenario) {
        workers::stay_on(1);
    }
    let comm = Communicator::init_rank(RANKS as i32, id, rank as i32, rank, CommConfig::default(), "test").unwrap();
    let mut side = Side { comm, stream: Stream::new().unwrap(), rank, input: vec![], output: vec![] };
    match scenario {
        "never" => side.all_succeed(&[1, 4 << 10, 16 << 10, 256 << 10, 1 << 20]),
        "slots" if call == "mixed" => side.mixes(),
        "slots" => {
            // Who asks the kernel all the same fails.
            refuse();
            side.all_succeed(&[1, 4 << 10, 16 << 10, 100_001, 256 << 10]);
        }
        // About as long as what is asked for ahead, as slots of both lengths, and as what may lie on large pages.
        "disagree" => side.all_succeed(&[63, 64, 65, 2049, 8191, 8192, 8193, 32_767, 32_768, 32_769, 300_001, 1 << 20]),
        "long" if call == "several" => {
            refuse();
            side.make(call, None, 2 * OUTGROWN).unwrap();
            side.check(call, 2 * OUTGROWN);
        }
        "outgrows" | "long" => side.outgrows(call),
        "later" => side.is_refused(call),
        "ahead" => side.runs_ahead(call),
        "awaited" | "waited" => side.is_awaited(call, scenario == "awaited"),
        "large" => side.repeats(),
        "remade" => side.remakes(call),
        "shared" if call == "mixed" => side.mixes(),
        "shared" => side.gathers_many(call == "behind"),
        "differs" => side.differs(call),
        "touches" => side.is_left_alone(call),
        _ => side.is_unmapped(call),
    }
}

/// From now on no thread of this process can have the kernel copy from or to another one.
fn refuse() {
    let jump = |nr: libc::c_long, to: u8| libc::sock_filter {
        code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
        jt: to,
        jf: 0,
        k: nr as u32,
    };
    let plain = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let mut filter = [
        // The number of the system call lies first.
        plain(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0),
        jump(libc::SYS_process_vm_readv, 2),
        jump(libc::SYS_process_vm_writev, 1),
        plain(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
        plain(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the program is one, and stays for the time of the call.
    let set = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        let all = libc::SECCOMP_FILTER_FLAG_TSYNC;
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, all, &raw const program)
    };
    assert_eq!(set, 0, "the filter: {}", std::io::Error::last_os_error());
}

/// A page range that is given back, so that nothing is there: far from where the kernel puts what other threads map.
fn nowhere(bytes: usize) -> *mut u8 {
    let far = std::ptr::without_provenance_mut(1 << 37);
    // SAFETY: a fresh mapping, given back before anybody uses it.
    unsafe {
        let (write, private) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let at = libc::mmap(far, bytes, write, private | libc::MAP_FIXED_NOREPLACE, -1, 0);
        assert_ne!(at, libc::MAP_FAILED);
        assert_eq!(libc::munmap(at, bytes), 0);
        at.cast()
    }
}

/// Memory that stays at one address, and is made anew there.
struct Remade {
    at: *mut u32,
    words: usize,
}

impl Remade {
    fn new(words: usize, rank: usize, which: usize) -> Remade {
        // Far from all else; not at the same address in both processes, and at the beginning of no large page.
        let at = std::ptr::without_provenance_mut(((4 + 2 * rank + which) << 37) + 0x3000);
        let mut memory = Remade { at, words };
        memory.map(-1);
        memory
    }

    fn bytes(&self) -> usize {
        self.words * size_of::<u32>()
    }

    /// Other memory, of a file if that is one.
    fn map(&mut self, file: i32) {
        let how = if file < 0 { libc::MAP_PRIVATE | libc::MAP_ANONYMOUS } else { libc::MAP_SHARED };
        let all = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: only this test uses that range, and no call is under way.
        let at = unsafe { libc::mmap(self.at.cast(), self.bytes(), all, how | libc::MAP_FIXED, file, 0) };
        assert_eq!(at, self.at.cast(), "{}", std::io::Error::last_os_error());
    }

    fn advise(&self, what: i32) {
        // SAFETY: the own memory, whose contents nobody needs any more. A kernel without large pages refuses some.
        unsafe { libc::madvise(self.at.cast(), self.bytes(), what) };
    }

    fn protect(&self, how: i32) {
        // SAFETY: the own memory.
        assert_eq!(unsafe { libc::mprotect(self.at.cast(), self.bytes(), how) }, 0);
    }

    /// Makes it anew, in the `n`-th way.
    fn remake(&mut self, n: usize) {
        match n {
            0 => self.advise(libc::MADV_DONTNEED),
            1 => self.map(-1),
            2 => {
                // SAFETY: the own memory, which is mapped again before anybody uses it.
                assert_eq!(unsafe { libc::munmap(self.at.cast(), self.bytes()) }, 0);
                self.map(-1);
                self.advise(libc::MADV_NOHUGEPAGE);
            }
            3 => {
                self.map(-1);
                self.advise(libc::MADV_HUGEPAGE);
            }
            4 => {
                // SAFETY: a name that lasts for the call.
                let file = unsafe { libc::memfd_create(c"oxccl-test".as_ptr(), 0) };
                // SAFETY: the own descriptor.
                assert_eq!(unsafe { libc::ftruncate(file, self.bytes() as i64) }, 0);
                self.map(file);
                // SAFETY: the own descriptor, which the mapping does not need.
                unsafe { libc::close(file) };
            }
            _ => {
                // Whoever looks meanwhile is refused.
                self.protect(libc::PROT_NONE);
                self.protect(libc::PROT_READ | libc::PROT_WRITE);
                self.advise(libc::MADV_DONTNEED);
            }
        }
    }

    fn slice(&mut self) -> &mut [u32] {
        // SAFETY: mapped, and nobody else uses it between two calls.
        unsafe { std::slice::from_raw_parts_mut(self.at, self.words) }
    }
}

/// One rank.
struct Side {
    comm: Arc<Communicator>,
    stream: Stream,
    rank: usize,
    input: Vec<u32>,
    output: Vec<u32>,
}

impl Side {
    fn request(&self, collective: Collective, send: *const u8, recv: *mut u8, count: usize, root: usize) -> Request {
        let (op, stream) = (Operator::Builtin(ReduceOp::Sum), self.stream.clone());
        let dtype = DataType::Uint32;
        Request { collective, send, recv, count, dtype, op, root, bias: std::ptr::null(), v: None, stream }
    }

    fn submit(&self, collective: Collective, send: *const u8, recv: *mut u8, count: usize, root: usize) -> Result<()> {
        self.comm.submit(self.request(collective, send, recv, count, root))
    }

    /// Makes `call` with `count` elements, of which the input is `send`, and waits for its end.
    fn make(&mut self, call: &str, send: Option<*mut u8>, count: usize) -> Result<()> {
        // In the same memory where it suffices.
        self.input.clear();
        self.input.extend((0..RANKS * count).map(|i| Self::given(self.rank, i)));
        self.output.clear();
        self.output.resize(RANKS * count, u32::MAX);
        let send = send.unwrap_or(self.input.as_mut_ptr().cast()).cast_const();
        if call == "in_place" && self.rank == 1 {
            self.output[..count].copy_from_slice(&self.input[..count]);
        }
        let recv: *mut u8 = self.output.as_mut_ptr().cast();
        self.make_at(call, send, recv, count)
    }

    /// The same with memory that is given.
    fn make_at(&self, call: &str, send: *const u8, recv: *mut u8, count: usize) -> Result<()> {
        let other = 1 - self.rank;
        let enqueued = match call {
            "broadcast" => self.submit(Collective::Broadcast, send, recv, count, 0),
            "in_place" => self.submit(Collective::Broadcast, recv.cast_const(), recv, count, 1),
            "gather" => self.submit(Collective::Gather, send, recv, count, 0),
            "scatter" => self.submit(Collective::Scatter, send, recv, count, 0),
            // The root's own block stays where it is.
            "scatter_own" if self.rank == 0 => self.submit(Collective::Scatter, send, send.cast_mut(), count, 0),
            "scatter_own" => self.submit(Collective::Scatter, send, recv, count, 0),
            "reduce" => self.submit(Collective::Reduce, send, recv, count, 0),
            "alltoall" => self.submit(Collective::AllToAll, send, recv, count, 0),
            "all_gather" => self.submit(Collective::AllGather, send, recv, count, 0),
            "reduce_scatter" => self.submit(Collective::ReduceScatter, send, recv, count, 0),
            "send" if self.rank == 1 => self.submit(Collective::Send, send, recv, count, other),
            "send" => self.submit(Collective::Recv, send, recv, count, other),
            "several" => {
                group::start();
                let half = count / 2;
                let parts = [(send, recv), (send.wrapping_add(4 * half), recv.wrapping_add(4 * half))];
                let made = parts.map(|(send, recv)| {
                    let sent = self.submit(Collective::Send, send, recv, half, other);
                    sent.and(self.submit(Collective::Recv, send, recv, half, other))
                });
                let ended = group::end();
                made.into_iter().fold(ended, Result::and)
            }
            _ => {
                group::start();
                let sent = self.submit(Collective::Send, send, recv, count, other);
                let received = self.submit(Collective::Recv, send, recv, count, other);
                group::end().and(sent).and(received)
            }
        };
        enqueued.and_then(|()| self.stream.synchronize())
    }

    /// What rank `of` gives as element `i`.
    fn given(of: usize, i: usize) -> u32 {
        (i * 3 + of) as u32
    }

    fn check(&self, call: &str, count: usize) {
        self.check_of(call, count, &self.output, Self::given);
    }

    /// The same of an output to which ranks gave this.
    fn check_of(&self, call: &str, count: usize, output: &[u32], given: impl Fn(usize, usize) -> u32) {
        let (me, other) = (self.rank, 1 - self.rank);
        let expected = |i: usize| -> Option<u32> {
            match call {
                "broadcast" => (i < count).then(|| given(0, i)),
                "in_place" => (i < count).then(|| given(1, i)),
                "gather" => (me == 0).then(|| given(i / count, i % count)),
                "scatter" => (i < count).then(|| given(0, me * count + i)),
                "scatter_own" => (me == 1 && i < count).then(|| given(0, count + i)),
                "reduce" => (me == 0 && i < count).then(|| given(0, i) + given(1, i)),
                "all_gather" => Some(given(i / count, i % count)),
                "reduce_scatter" => (i < count).then(|| given(0, me * count + i) + given(1, me * count + i)),
                "alltoall" => Some(given(i / count, me * count + i % count)),
                "send" => (me == 0 && i < count).then(|| given(other, i)),
                _ => (i < count).then(|| given(other, i)),
            }
        };
        let wrong = (0..RANKS * count).find(|i| output[*i] != expected(*i).unwrap_or(u32::MAX));
        let found = wrong.map(|i| (i, output[i], expected(i).unwrap_or(u32::MAX)));
        assert_eq!(
            found, None,
            "{call} of {count} on rank {me}: the first element that is wrong, and what it should be"
        );
    }

    fn all_succeed(&mut self, counts: &[usize]) {
        for count in counts {
            for call in ["broadcast", "gather", "scatter", "reduce", "alltoall", "exchange", "send"] {
                // The second one is made as the first was.
                for _ in 0..2 {
                    self.make(call, None, *count).unwrap_or_else(|e| panic!("{call} of {count}: {e}"));
                    self.check(call, *count);
                }
            }
        }
        self.comm.destroy().unwrap();
    }

    /// Calls in an order, and of lengths, that both ranks draw alike.
    fn mixes(&mut self) {
        const CALLS: [&str; 11] = [
            "alltoall",
            "scatter",
            "scatter_own",
            "all_gather",
            "exchange",
            "reduce_scatter",
            "alltoall",
            "gather",
            "broadcast",
            "reduce",
            "send",
        ];
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        for _ in 0..600 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let call = CALLS[(random >> 8) as usize % CALLS.len()];
            let count = [5, 700, 3000, 8192, 16_384, 20_000, 70_000][(random >> 20) as usize % 7];
            // Once or often; what is made again goes another way.
            for _ in 0..[1, 1, 4][(random >> 40) as usize % 3] {
                self.make(call, None, count).unwrap_or_else(|e| panic!("{call} of {count}: {e}"));
                self.check(call, count);
            }
        }
        self.comm.destroy().unwrap();
    }

    /// Rank 1 ends its calls before rank 0 makes them: it says so by a message, for which rank 0 waits first.
    fn runs_ahead(&mut self, call: &str) {
        const CALLS: usize = 5;
        // More than what a root that works out of place puts into a slot, but where stores wait for lines of another core.
        let count = if call == "in_place" { 8 << 10 } else { 4 << 10 };
        for _ in 0..10 {
            if self.rank == 0 {
                self.make("send", None, 1).unwrap();
            }
            for _ in 0..CALLS {
                self.make(call, None, count).unwrap();
                self.check(call, count);
            }
            if self.rank == 1 {
                self.make("send", None, 1).unwrap();
            }
            // Slots are free again when rank 0 has made the calls.
            self.make("exchange", None, 1).unwrap();
        }
        self.comm.destroy().unwrap();
    }

    /// The same buffers again and again, of some large pages each, and no multiple of one.
    fn repeats(&mut self) {
        const COUNT: usize = (2 << 20) + 5;
        for call in ["broadcast", "in_place", "gather", "reduce", "alltoall", "exchange", "send"] {
            for _ in 0..6 {
                self.make(call, None, COUNT).unwrap_or_else(|e| panic!("{call}: {e}"));
                self.check(call, COUNT);
            }
        }
        self.comm.destroy().unwrap();
        // Each buffer has at least three.
        large::are_there(5);
    }

    /// Buffers whose memory is made anew between calls, in ways that the ranks do not agree upon; what it is to hold differs each
    /// time, so that what is not there any more would be seen.
    fn remakes(&mut self, call: &str) {
        const COUNT: usize = (2 << 18) + 77;
        let [mut input, mut output] = [0, 1].map(|which| Remade::new(RANKS * COUNT, self.rank, which));
        for turn in 0..280 {
            // Often enough the same that its pages become large, and some hundred times.
            if turn % 9 > 6 || turn % 100 == 99 {
                input.remake((turn / 9 + self.rank) % 6);
                output.remake((turn / 7 + self.rank) % 6);
            }
            let given = |of: usize, i: usize| (i * 5 + of) as u32 ^ (turn as u32) << 24;
            let me = self.rank;
            input.slice().iter_mut().enumerate().for_each(|(i, word)| *word = given(me, i));
            output.slice().fill(u32::MAX);
            input.protect(libc::PROT_READ);
            self.make_at(call, input.at.cast(), output.at.cast(), COUNT).unwrap_or_else(|e| panic!("turn {turn}: {e}"));
            input.protect(libc::PROT_READ | libc::PROT_WRITE);
            self.check_of(call, COUNT, output.slice(), given);
        }
        self.comm.destroy().unwrap();
    }

    /// Rank 0, whose output is mapped, announces as many gathers as it may; then rank 1, whose inputs are not, makes them.
    /// `behind` one to an output that is not mapped: rank 1 then puts its blocks into slots unasked.
    fn gathers_many(&mut self, behind: bool) {
        const CALLS: usize = 40;
        const COUNT: usize = 4 << 10;
        let bytes = CALLS * RANKS * COUNT * size_of::<u32>();
        let output: *mut u32 = device::alloc(bytes).unwrap().cast();
        let blocks: Vec<Vec<u32>> =
            (0..CALLS).map(|call| (0..COUNT).map(|i| Self::given(self.rank, call * COUNT + i)).collect()).collect();
        self.output = vec![0];
        let mut other = vec![0_u32; RANKS * COUNT];
        for _ in 0..4 {
            if behind {
                self.submit(Collective::Gather, blocks[0].as_ptr().cast(), other.as_mut_ptr().cast(), COUNT, 0)
                    .unwrap();
                self.stream.synchronize().unwrap();
                assert!(self.rank == 1 || (0..RANKS * COUNT).all(|i| other[i] == Self::given(i / COUNT, i % COUNT)));
            }
            if self.rank == 1 {
                let word = self.output.as_mut_ptr().cast();
                self.submit(Collective::Recv, std::ptr::null(), word, 1, 0).unwrap();
                self.stream.synchronize().unwrap();
            }
            for (call, block) in blocks.iter().enumerate() {
                let recv = output.wrapping_add(call * RANKS * COUNT).cast();
                self.submit(Collective::Gather, block.as_ptr().cast(), recv, COUNT, 0).unwrap();
                if self.rank == 0 && call == CALLS - 10 {
                    self.let_go();
                }
            }
            self.stream.synchronize().unwrap();
            for (call, of, i) in (0..CALLS * RANKS * COUNT).map(|i| (i / COUNT / RANKS, i / COUNT % RANKS, i % COUNT)) {
                // SAFETY: inside, and the calls are over.
                let got = unsafe { output.add((call * RANKS + of) * COUNT + i).read() };
                let expected = if self.rank == 0 { Self::given(of, call * COUNT + i) } else { got };
                assert_eq!(got, expected, "call {call}: element {i} of rank {of}");
            }
        }
        self.comm.destroy().unwrap();
        // SAFETY: nobody uses it any more.
        unsafe { device::free(output.cast()).unwrap() };
    }

    /// Rank 0 changes its buffer as soon as its own call is over; rank 1 has what was there before, and changes nothing.
    fn is_left_alone(&mut self, call: &str) {
        const COUNT: usize = 32_767;
        for _ in 0..600 {
            // Rank 0 comes first to the call.
            self.passes_word(0);
            self.make(call, None, COUNT).unwrap();
            if self.rank == 0 {
                self.check(call, COUNT);
                self.input.fill(7);
                self.output.fill(7);
            }
            self.passes_word(1);
            match self.rank {
                0 => assert_eq!(self.output.iter().position(|x| *x != 7), None, "{call}: changed when it was over"),
                _ => self.check(call, COUNT),
            }
        }
        self.comm.destroy().unwrap();
    }

    /// Rank `from` sends one element to the other.
    fn passes_word(&mut self, from: usize) {
        self.pass_word(from).unwrap();
    }

    /// The same where the communicator may have failed.
    fn pass_word(&mut self, from: usize) -> Result<()> {
        let mut word = 0_u32;
        let at: *mut u8 = (&raw mut word).cast();
        let collective = if self.rank == from { Collective::Send } else { Collective::Recv };
        self.submit(collective, at.cast_const(), at, 1, 1 - self.rank)?;
        self.stream.synchronize()
    }

    /// Sends what rank 1 waits for, beside what the stream holds.
    fn let_go(&self) {
        let word = 0_u32;
        let stream = Stream::new().unwrap();
        let mut request = self.request(Collective::Send, (&raw const word).cast(), std::ptr::null_mut(), 1, 1);
        request.stream = stream.clone();
        self.comm.submit(request).unwrap();
        stream.synchronize().unwrap();
    }

    /// Calls that are waited for, with other elements each time, so that a rank that gives too early is found out; then the kernel is
    /// refused: a call that the other rank comes to late ends well, and one that it waits for does not. `always`: on any processor, not only where the kernel is the faster one.
    fn is_awaited(&mut self, call: &str, always: bool) {
        // Blocks that have room in the slots of any machine.
        let count = if matches!(call, "gather" | "scatter") { 2 << 10 } else { 4 << 10 };
        let giver = usize::from(call != "scatter");
        let mut round = 0_u32;
        let mut next = |side: &mut Side| {
            round += 1;
            let given = move |rank: usize, i: usize| Self::given(rank, i).wrapping_add(round * 1000);
            let values = (0..RANKS * count).map(|i| given(side.rank, i));
            side.input.clear();
            side.input.extend(values);
            side.output.clear();
            side.output.resize(RANKS * count, u32::MAX);
            if call == "in_place" && side.rank == 1 {
                side.output[..count].copy_from_slice(&side.input[..count]);
            }
            let recv = side.output.as_mut_ptr().cast();
            side.make_at(call, side.input.as_ptr().cast(), recv, count)?;
            side.check_of(call, count, &side.output, given);
            Ok(())
        };
        for _ in 0..500 {
            next(self).unwrap();
        }
        if !always {
            return self.comm.destroy().unwrap();
        }
        // Who gives may be ahead by as many calls as there are slots, and would need the kernel for the next.
        self.passes_word(1 - giver);
        refuse();
        for _ in 0..3 {
            if self.rank != giver {
                self.passes_word(giver);
            }
            next(self).unwrap();
            if self.rank == giver {
                self.passes_word(giver);
            }
        }
        let end = Instant::now() + LIMIT / 2;
        // The one that gives is never ahead, so that there is always a slot.
        let mut one = || next(self).and_then(|()| self.pass_word(1 - giver));
        let error = std::iter::from_fn(|| (Instant::now() < end).then(|| one().err()));
        let error = error.flatten().next().expect("one of the ranks needs the kernel for a call that is awaited");
        self.ends_with(&error, &["not permitted", "forbids it now"]);
    }

    /// Rank 1 gives another number of elements than rank 0 takes.
    fn differs(&mut self, call: &str) {
        let count = (4 << 10) + self.rank;
        // Rank 1 may be ahead of rank 0 by as many calls as it has slots.
        let error =
            (0..100).find_map(|_| self.make(call, None, count).err()).expect("the ranks call different operations");
        assert_eq!(error.code, ResultCode::InvalidUsage, "{error}");
        self.ends_with(&error, &["different operations"]);
    }

    /// The first call succeeds; then rank 1 may no longer reach rank 0.
    fn is_refused(&mut self, call: &str) {
        const COUNT: usize = 64 << 10;
        for _ in 0..2 {
            self.make(call, None, COUNT).unwrap();
            self.check(call, COUNT);
        }
        if self.rank == 1 {
            refuse();
        }
        let error = self.make(call, None, COUNT).expect_err("rank 1 is refused what it needs");
        if self.rank == 1 {
            assert_eq!(error.code, ResultCode::SystemError, "{error}");
        }
        self.ends_with(&error, &["not permitted", "forbids it now"]);
    }

    /// Slots carry what is less than [`OUTGROWN`]; who is refused the kernel's copies sees which call asks for them.
    fn outgrows(&mut self, call: &str) {
        const LESS: usize = 64 << 10;
        const { assert!(LESS * size_of::<u32>() < OUTGROWN && 2 * LESS * size_of::<u32>() >= OUTGROWN) };
        self.make(call, None, 2 * LESS).unwrap();
        self.check(call, 2 * LESS);
        refuse();
        for _ in 0..2 {
            self.make(call, None, LESS).unwrap();
            self.check(call, LESS);
        }
        let error = self.make(call, None, 2 * LESS).expect_err("both ranks are refused what one needs");
        self.ends_with(&error, &["not permitted", "forbids it now"]);
    }

    /// The input of rank 1 is not there.
    fn is_unmapped(&mut self, call: &str) {
        const COUNT: usize = 64 << 10;
        let bytes = RANKS * COUNT * size_of::<u32>();
        for _ in 0..2 {
            self.make(call, None, COUNT).unwrap();
            self.check(call, COUNT);
        }
        let send = (self.rank == 1).then(|| nowhere(bytes));
        let error = self.make(call, send, COUNT).expect_err("nobody can read the input of rank 1");
        self.ends_with(&error, &["not mapped"]);
    }

    /// `error` names the cause, and so does every later call, at once.
    fn ends_with(&mut self, error: &Error, causes: &[&str]) {
        for cause in causes {
            assert!(error.text.contains(cause), "rank {}: {error}", self.rank);
        }
        let start = Instant::now();
        assert!(self.make("broadcast", None, 1).is_err(), "the communicator has failed");
        assert!(start.elapsed() < Duration::from_secs(5), "it took {:?}", start.elapsed());
        self.comm.abort().unwrap();
    }
}
