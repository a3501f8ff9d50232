//! How a communicator comes to life: bootstrap, hub, probes, watches.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use oxccl_sys::affinity::{self, CORES_BYTES, Cores};
use oxccl_sys::host;
use oxccl_sys::sync::{AtomicBool, AtomicU64, Ordering};
use oxccl_sys::{Deadline, clock};
use oxccl_types::{Collective, DataType, Error, Result};

use super::core::{Core, Parts};
use super::family::{self, Family};
use super::hub::{Geometry, Hub, LINE, MAX_CHANNELS};
use super::{CommConfig, Communicator, PENDING, READY, agreed};
use crate::bootstrap::{self, BootstrapConfig, Bootstrapped, ControlRing, News, Params, PeerInfo, connect};
use crate::config::{self, Config};
use crate::exec::limits::{Limits, slot_bytes};
use crate::exec::links::{CHANNEL_LANE, channel_slots, lane_bytes, local_slot_bytes};
use crate::log::{self, Subsys};
use crate::request::{Request, VCounts};
use crate::service::CommKey;
use crate::transport::local::probe_cma;
use crate::{UniqueId, service};

/// A word that peers read to learn whether they can read this process' memory.
fn probe_word() -> (u64, u64) {
    static WORD: OnceLock<AtomicU64> = OnceLock::new();
    let word = WORD.get_or_init(|| AtomicU64::new(clock::now_ns() ^ u64::from(std::process::id()) << 40));
    (word.as_ptr() as u64, word.load(Ordering::Relaxed))
}

/// How the bootstrap is set up from the environment.
pub(crate) fn bootstrap_config(config: &Config) -> BootstrapConfig {
    BootstrapConfig {
        timeout: config.init_timeout,
        shared_memory: config.shm,
        host_id: config.host_id.clone(),
        ifname: config::text("NCCL_SOCKET_IFNAME"),
        family: match config::text("NCCL_SOCKET_FAMILY").as_deref() {
            Some("AF_INET") => Some(service::interfaces::Family::V4),
            Some("AF_INET6") => Some(service::interfaces::Family::V6),
            _ => None,
        },
        comm_id: config::text("NCCL_COMM_ID"),
        comm_secret: config::bytes(config::COMM_SECRET.name)
            .map(|secret| CommKey::new(CommKey::new([0; 32]).derive("OXCCL_COMM_SECRET", &[&secret]))),
        log: |level, text| match level {
            service::Level::Warn => log::warn(text),
            service::Level::Info => log::info(Subsys::BOOTSTRAP, text),
        },
    }
}

/// The service of this process.
pub(crate) fn service() -> Result<Arc<service::Service>> {
    let config = bootstrap_config(&Config::from_env());
    service::Service::get(&service::ServiceConfig { ifname: config.ifname, family: config.family, log: config.log })
}

/// Refuses a network that does not exist. `NCCL_NET` overrides the program's choice.
pub(super) fn check_network(chosen: Option<&str>) -> Result<()> {
    let environment = config::text("NCCL_NET");
    let (who, name) = match (environment.as_deref(), chosen) {
        (Some(name), _) => ("NCCL_NET", name),
        (None, Some(name)) => ("config netName", name),
        (None, None) => return Ok(()),
    };
    if name.eq_ignore_ascii_case("Socket") {
        return Ok(());
    }
    Err(Error::usage(format!(
        "Error: network {name} not found, which {who} asks for. The networks are: Socket. Leave {who} unset for the best one"
    )))
}

/// What the environment says, and the program where the environment says nothing.
pub(super) fn effective(settings: &CommConfig) -> Config {
    let mut config = Config::from_env();
    config.constants = config::tuning::load();
    config.max_channels = channels(&config, settings);
    if let (None, Some(order)) = (config::integer(config::LAUNCH_ORDER.name), settings.launch_order) {
        config.launch_order = order;
    }
    config
}

fn channels(config: &Config, settings: &CommConfig) -> u32 {
    if !config.channels_auto {
        return config.max_channels;
    }
    let number = |n: Option<i32>| n.and_then(|n| u32::try_from(n).ok());
    let most = number(settings.max_ctas).unwrap_or(MAX_CHANNELS as u32).clamp(1, MAX_CHANNELS as u32);
    config.max_channels.max(number(settings.min_ctas).unwrap_or(1)).min(most)
}

/// The most channels of a message program of a communicator of `ranks` ranks whose program sets none: what the environment says.
#[must_use]
pub fn usual_channels(config: &Config, ranks: usize) -> u32 {
    channels(config, &CommConfig::default().resolved(ranks))
}

/// Where a payload's wish to share lies.
const WISH: usize = FLAGS_AT + 1;
/// Its length; the cores of the rank follow.
const WISH_BYTES: usize = 2;
/// Where those lie, and which boot of which kernel they are of; the agreed settings are behind that.
const CORES: usize = WISH + WISH_BYTES;
const BOOT: usize = CORES + CORES_BYTES;
const SETTINGS: usize = BOOT + size_of::<u128>();

fn shared_channels<'a>(payloads: impl Iterator<Item = &'a [u8]>) -> Option<usize> {
    family::agreed(payloads.map(|p| p.get(WISH..WISH + WISH_BYTES).unwrap_or_default()))
}

/// What this rank brings to a meeting of `ranks` ranks; `share`: whether it would share with its parent.
pub(super) fn params(
    id: bootstrap::UniqueId,
    rank: usize,
    ranks: usize,
    config: &Config,
    bootstrap: BootstrapConfig,
    share: bool,
    abort: Arc<AtomicBool>,
) -> Params {
    let (address, value) = probe_word();
    let light = config.light_fences && oxccl_sys::barrier::registered();
    let (lines, waits) = (oxccl_kernels::favours_strings(), oxccl_kernels::waits_for_lines());
    let travels = oxccl_kernels::travels_by_strings();
    let flag = |holds: bool, flag: u8| if holds { flag } else { 0 };
    let flags = flag(light, LIGHT) | flag(lines, LINES) | flag(waits, WAITS) | flag(travels, TRAVELS);
    let probe = [address.to_le_bytes(), value.to_le_bytes()].concat();
    let wish = family::wish(share, config);
    let boot = host::boot_number().unwrap_or_default().to_le_bytes();
    let cores = config.constants.cores_told.map_or_else(Cores::of_thread, Cores::first).encode();
    let payload = [&probe[..], &[flags], &wish, &cores, &boot, &agreed::encode(config)].concat();
    let own = config.clone();
    let segment_bytes = Box::new(move |members, payloads: &[&[u8]]| {
        let config = agreed::adopt(&own, settings_in(payloads.first().copied().unwrap_or_default()));
        let shared = shared_channels(payloads.iter().copied());
        // Some may be left out that cannot map it: what the others need then is not less in any case.
        let bytes = |members| geometry_of(&config, members, members < ranks, shared).total();
        (1..=members).map(bytes).max().unwrap_or(0)
    });
    Params { id, more: Vec::new(), rank, ranks, payload, segment_bytes, abort, awaited: None, config: bootstrap }
}

/// The agreed settings in what a rank brought.
fn settings_in(payload: &[u8]) -> &[u8] {
    payload.get(SETTINGS..).unwrap_or_default()
}

/// Whether the ranks on the host of `rank` outnumber their cores. Those that share no memory share the cores all the same;
/// a name is good enough for a guess, unless their kernels are known to be different ones. `members`: those that share memory,
/// which come to the same answer.
///
/// Or those of all containers of the machine, which have names and quotas of their own, but not cores.
pub(super) fn crowded(peers: &[PeerInfo], rank: usize, members: &[usize]) -> bool {
    near(peers, rank, members).any(|sets| affinity::outnumber(&sets))
}

/// The cores of the ranks on the host of `rank`, and on its machine, as far as all of those have told, see [`crowded`].
fn near(peers: &[PeerInfo], rank: usize, members: &[usize]) -> impl Iterator<Item = Vec<Cores>> {
    let own = &peers[members.first().copied().unwrap_or(rank)];
    let same = |p: &PeerInfo| on_one_machine(own, p);
    let all = |is: &dyn Fn(&PeerInfo) -> bool| {
        let near = peers.iter().enumerate().filter(|(other, p)| is(p) || members.contains(other));
        near.map(|(_, p)| cores(p)).collect::<Option<Vec<_>>>()
    };
    let on_host = all(&|p| p.host == own.host && !on_others(own, p));
    let on_machine = all(&same).and_then(|sets| sets.iter().map(Cores::without_quota).collect::<Option<Vec<_>>>());
    [on_host, on_machine].into_iter().flatten()
}

/// The cores that a rank may use, if it has told.
fn cores(of: &PeerInfo) -> Option<Cores> {
    Cores::decode(of.payload.get(CORES..BOOT)?)
}

/// How many of `members`, all of one machine, can run at once, if they have told.
pub(super) fn run_at_once(peers: &[PeerInfo], members: &[usize]) -> Option<usize> {
    let sets: Option<Vec<_>> = members.iter().map(|rank| cores(&peers[*rank])).collect();
    sets.map(|sets| affinity::at_once(&sets))
}

/// How many ranks share a core of the machine whose cores have most to share; 1: nowhere they outnumber their cores. The same answer
/// on every rank.
pub(super) fn per_core(peers: &[PeerInfo]) -> f64 {
    // Once by name: there may be as many hosts as ranks.
    let (mut hosts, mut machines) = (HashMap::<_, Vec<_>>::new(), HashMap::<_, Vec<_>>::new());
    for peer in peers {
        hosts.entry(&peer.host).or_default().push(peer);
        if let Some(kernel) = boot(peer) {
            machines.entry(kernel).or_default().push(peer);
        }
    }
    let on_hosts = hosts.values().flat_map(|named| {
        let mut seen = HashSet::new();
        // What holds of one rank of a host holds of all.
        named.iter().filter(move |own| seen.insert(boot(own))).map(|own| {
            let near = named.iter().filter(|p| !on_others(own, p));
            near.map(|p| cores(p)).collect::<Option<Vec<_>>>()
        })
    });
    let on_machines = machines.values().map(|near| {
        let sets = near.iter().map(|p| cores(p)).collect::<Option<Vec<_>>>()?;
        sets.iter().map(Cores::without_quota).collect()
    });
    let crowds = on_hosts.chain(on_machines).flatten().filter(|sets| affinity::outnumber(sets));
    crowds.map(|sets| sets.len() as f64 / affinity::at_once(&sets).max(1) as f64).fold(1.0, f64::max)
}

/// How many ranks share the machine of `rank`, as far as it is known.
pub(super) fn on_this_machine(peers: &[PeerInfo], rank: usize) -> usize {
    peers.iter().filter(|p| p.host == peers[rank].host || on_one_machine(&peers[rank], p)).count()
}

/// The number of the boot of a rank's kernel, if it has told.
fn boot(of: &PeerInfo) -> Option<&[u8]> {
    of.payload.get(BOOT..SETTINGS).filter(|boot| boot.iter().any(|byte| *byte != 0))
}

/// Whether both ranks are known to run on different kernels.
fn on_others(one: &PeerInfo, other: &PeerInfo) -> bool {
    boot(one).zip(boot(other)).is_some_and(|(one, other)| one != other)
}

/// Whether both ranks are known to run on one kernel, be it in different containers.
pub(super) fn on_one_machine(one: &PeerInfo, other: &PeerInfo) -> bool {
    boot(one).is_some() && boot(one) == boot(other)
}

/// Runs the initialisation of `comm` on the calling thread. The roots of `ids` share the work.
pub(super) fn initialise(comm: &Arc<Communicator>, ids: &[UniqueId], api: &'static str) -> Result<()> {
    let result = join(comm, ids, effective(&comm.settings), api);
    if let Err(e) = &result {
        log::warn(&e.text);
        // The first error stays.
        let _ = comm.init_error.set(e.clone());
    }
    result
}

pub(super) fn join(comm: &Arc<Communicator>, ids: &[UniqueId], config: Config, api: &'static str) -> Result<()> {
    let start = clock::now_ns();
    let bootstrap = bootstrap_config(&config);
    let Some(first) = ids.first() else { return Err(Error::argument("an initialisation without an id")) };
    let mut more: Vec<bootstrap::UniqueId> = Vec::new();
    for id in &ids[1..] {
        // An id that is given twice has one root all the same.
        if id.0 != first.0 && !more.contains(&id.0) {
            more.push(id.0.clone());
        }
    }
    if first.0.is_derived() && !more.is_empty() {
        log::info(Subsys::INIT, "NCCL_COMM_ID is set: of several ids only the first one is used");
        more.clear();
    }
    let params = params(first.0.clone(), comm.rank, comm.ranks, &config, bootstrap, false, comm.abort.clone());
    let params = Params { more, ..params };
    let boot = connect(params)?;
    let core = build(&comm.abort, config, boot, None)?;
    publish(comm, core, api, start)
}

/// The communicator is ready, unless it was aborted meanwhile.
pub(super) fn publish(comm: &Arc<Communicator>, core: Arc<Core>, api: &'static str, start: u64) -> Result<()> {
    let _ = comm.core.set(core.clone());
    let ready = comm.state.compare_exchange(PENDING, READY, Ordering::AcqRel, Ordering::Acquire).is_ok();
    if !ready || comm.abort.load(Ordering::Acquire) {
        // Whoever did it may not have seen the core.
        core.raise_abort();
        core.leave();
        return Err(Error::usage("the communicator was aborted during its initialisation"));
    }
    log::banner("2.29.7", comm.rank);
    if log::info_enabled(Subsys::INIT) {
        log::info(
            Subsys::INIT,
            &format!(
                "[Rank {}] {api} comm {:p} rank {} nranks {} cudaDev {} nvmlDev {} busId {:x} commId {:#x} - Init COMPLETE \
                 ({} rank(s) share memory, {:.1} ms{})",
                comm.rank,
                Arc::as_ptr(comm),
                comm.rank,
                comm.ranks,
                comm.device,
                comm.device,
                comm.device << 12,
                core.hash,
                core.members.len(),
                (clock::now_ns() - start) as f64 / 1e6,
                comm.settings.name.as_ref().map(|n| format!(", name {n}")).unwrap_or_default()
            ),
        );
    }
    Ok(())
}

/// The smallest staging memory that there can be, both halves.
const LEAST_SCRATCH: usize = 64 << 10;

/// Bytes of what lies beside a line where ranks share cores and that is the faster way of calls with a root (measured,
/// docs/performance-changes.md): a rank waits once for the others, where it waits twice for each piece of a program.
const LONG_AREA: usize = 256 << 10;

/// Bytes of a large payload slot, for what one of two ranks gives that the other cannot map. Of more ranks the limits say it.
const LARGE_SLOT: usize = 128 << 10;

/// Ranks of a machine up to which local connections may have longer slots: each pair has some, and the addresses add up.
const LONG_SLOTS_RANKS: usize = 16;

/// `mixed`: other ranks do not share the memory of these. `shared`: the channels of a child that shares, which does with less.
fn geometry_of(c: &Config, ranks: usize, mixed: bool, shared: Option<usize>) -> Geometry {
    let crowded = ranks as f64 > c.constants.model.cores && shared.is_none();
    let scratch = match shared {
        Some(_) => (c.scratch / 4).max(LEAST_SCRATCH) & !8191,
        // Longer pieces: the ranks hand their cores over less often, and a line is written again when the other core has lost it. Measured
        // where scratch is the faster way.
        None if crowded && c.constants.model.kernel_from().is_none() => 2 * c.scratch,
        None => c.scratch,
    };
    // A program may have a slot of each rank, a line long at least, in front of the area of a half.
    let scratch = scratch.max((3 * LINE * ranks).next_multiple_of(8192));
    let usual = (scratch / 8) & !63;
    let is_long = crowded && ranks > 2 && c.constants.model.crowd_rooted < 1.0;
    let area_bytes = if is_long { usual.max(LONG_AREA.min(scratch / 2)) } else { usual };
    let lane_slot = local_slot_bytes(c, ranks, crowded || ranks > LONG_SLOTS_RANKS || shared.is_some());
    let channel_slots = channel_slots(c, lane_slot, mixed);
    Geometry {
        ranks,
        crowded,
        eager_bytes: slot_bytes(c, crowded),
        large_bytes: match ranks {
            _ if shared.is_some() || crowded => 0,
            2 => LARGE_SLOT,
            more => Limits::of_machine(c, more as u32).long(Collective::Broadcast) as usize,
        },
        scratch_half: (scratch / 2 + area_bytes - usual).next_multiple_of(4096),
        area_bytes,
        ring_bytes: if shared.is_none() && !crowded && ranks == 2 { 2 * scratch } else { 0 },
        lanes: CHANNEL_LANE + shared.unwrap_or(MAX_CHANNELS).clamp(1, MAX_CHANNELS),
        lane_slot,
        waits: false,
        travels: false,
        channel_slots,
        lane_bytes: lane_bytes(lane_slot, crowded, ranks, channel_slots),
    }
}

/// Where news go: to the core as soon as it is there, and into a list before.
#[derive(Default)]
struct Desk(Mutex<(Vec<News>, std::sync::Weak<Core>)>);

impl Desk {
    fn post(&self, news: News) {
        let mut desk = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match desk.1.upgrade() {
            Some(core) => {
                // What the core does with it must not come back here.
                drop(desk);
                core.on_news(news);
            }
            None => desk.0.push(news),
        }
    }

    fn open(&self, core: &Arc<Core>) {
        let mut desk = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        desk.1 = Arc::downgrade(core);
        let early = std::mem::take(&mut desk.0);
        drop(desk);
        early.into_iter().for_each(|news| core.on_news(news));
    }
}

/// Where a rank's payload says what holds for its process; the probe's words come before.
const FLAGS_AT: usize = 16;
/// It is registered for light fences.
const LIGHT: u8 = 1;
/// Its processor, as far as it can tell, copies whole strings fast, most by writing lines without reading them.
const LINES: u8 = 2;
/// But its stores wait for those that another core has.
const WAITS: u8 = 4;
/// But those travel, whichever instruction writes them.
const TRAVELS: u8 = 8;

/// Whether all `members` said `flag`.
fn all_say(flag: u8, peers: &[PeerInfo], members: &[usize]) -> bool {
    members.iter().all(|rank| peers[*rank].payload.get(FLAGS_AT).is_some_and(|flags| flags & flag != 0))
}

/// Whether the processes of all `members` find that their processor copies whole strings fast. They share a
/// machine, but one that runs under an emulator or a checker of memory may be shown another processor; on what follows from it
/// for memory that two of them write, they must agree.
pub(super) fn write_lines(peers: &[PeerInfo], members: &[usize]) -> bool {
    all_say(LINES, peers, members)
}

/// The same of lines of another core that travel all the same, see [`oxccl_kernels::travels_by_strings`].
pub(super) fn lines_travel(peers: &[PeerInfo], members: &[usize]) -> bool {
    all_say(TRAVELS, peers, members)
}

/// The core of a communicator whose ranks have met. `family`: that of the parent, if this rank would share with it.
pub(super) fn build(
    abort: &Arc<AtomicBool>,
    config: Config,
    boot: Bootstrapped,
    family: Option<Arc<Family>>,
) -> Result<Arc<Core>> {
    let own = config;
    agreed::check(boot.peers.iter().map(|p| settings_in(&p.payload)))?;
    let config = agreed::adopt(&own, settings_in(&boot.peers[0].payload));
    agreed::tell(boot.rank, &own, &config);
    let shared = shared_channels(boot.peers.iter().map(|p| &p.payload[..]));
    let family = family.filter(|_| shared.is_some()).unwrap_or_default();
    let geometry = Geometry {
        waits: all_say(WAITS, &boot.peers, &boot.clique),
        // What shares its parent's connections does with less memory.
        travels: shared.is_none() && all_say(TRAVELS, &boot.peers, &boot.clique),
        ..geometry_of(&config, boot.clique.len(), boot.clique.len() < boot.ranks, shared)
    };
    let light = all_say(LIGHT, &boot.peers, &boot.clique);
    let hub = Arc::new(Hub::new(geometry, boot.segment.clone(), light)?);
    let rank = boot.rank;
    furnish(abort, config, boot, family, hub.clone()).inspect_err(|e| hub.poison(&unfinished(rank, e)))
}

/// What the others are told of `rank`, which they have met: they may be ready, and their calls would wait for it for ever.
fn unfinished(rank: usize, e: &Error) -> Error {
    Error::remote(format!("rank {rank} could not finish the initialisation of the communicator: {}", e.text))
}

/// The core on a hub of which the others know.
fn furnish(
    abort: &Arc<AtomicBool>,
    config: Config,
    mut boot: Bootstrapped,
    family: Arc<Family>,
    hub: Arc<Hub>,
) -> Result<Arc<Core>> {
    let cma = probe(&boot, &hub, abort)?;
    let mut handles = vec![None; boot.ranks];
    for (member, rank) in boot.clique.iter().enumerate() {
        let process = &boot.processes[boot.process_of[member]];
        handles[*rank] = process.pidfd.clone().map(|pidfd| (process.pid, pidfd));
    }
    let one_process = boot.processes.len() == 1;
    // The ring hears news before the core exists.
    let desk: Arc<Desk> = Arc::default();
    let for_ring = desk.clone();
    let control = ControlRing::start(&mut boot, Box::new(move |news| for_ring.post(news)))?;
    let processes = boot.processes.clone();
    let process_of = boot.process_of.clone();
    let service = boot.service.clone();
    let core = Core::new(Parts {
        rank: boot.rank,
        ranks: boot.ranks,
        hash: boot.comm_hash,
        key: boot.key,
        config,
        peers: boot.peers,
        members: boot.clique,
        node_of: boot.clique_of,
        one_process,
        hub,
        cma,
        handles,
        inbox: boot.inbox,
        family,
    });
    desk.open(&core);
    core.accept_puts();
    *core.control.lock().unwrap_or_else(PoisonError::into_inner) = Some(control);
    let watched = processes.iter().enumerate().try_for_each(|(i, process)| {
        let of_process = process_of.iter().enumerate().filter(|(_, p)| **p == i);
        let ranks: Vec<usize> = of_process.map(|(m, _)| core.members[m]).collect();
        let watch = core.family.watch(&service, process, &core, ranks)?;
        core.watches.lock().unwrap_or_else(PoisonError::into_inner).extend(watch);
        Ok(())
    });
    watched.map(|()| core.clone()).inspect_err(|e| {
        core.spread(&unfinished(core.rank, e));
        core.leave();
    })
}

/// Learns which peers can read this process and can be read, both ways, so that both ends of a connection agree.
fn probe(boot: &Bootstrapped, hub: &Hub, abort: &AtomicBool) -> Result<Vec<bool>> {
    let mut cma = vec![false; boot.ranks];
    let me = boot.clique.iter().position(|r| *r == boot.rank).unwrap_or(0);
    for (member, rank) in boot.clique.iter().enumerate() {
        let process = &boot.processes[boot.process_of[member]];
        let p = &boot.peers[*rank].payload;
        let word = |at: usize| p.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes);
        let can = process.pidfd.is_some() && process.pid != 0 && probe_cma(process.pid, word(0), word(8));
        hub.set_probe(me, member, can);
    }
    let deadline = Deadline::after(std::time::Duration::from_secs(30));
    for (member, rank) in boot.clique.iter().enumerate() {
        loop {
            // Before the words: if a call failed, its rank has seen all of them, and so does this one then.
            let failed = hub.poison_error();
            if let (Some(there), Some(back)) = (hub.probe(me, member), hub.probe(member, me)) {
                cma[*rank] = there && back;
                break;
            }
            if let Some(e) = failed {
                return Err(e);
            }
            if abort.load(Ordering::Relaxed) {
                return Err(Error::remote(format!("rank {}: initialisation aborted by the application", boot.rank)));
            }
            if deadline.passed() {
                return Err(Error::remote(format!(
                    "rank {rank} (host {}, process {}) did not finish the initialisation; it may have ended",
                    boot.peers[*rank].host, boot.peers[*rank].pid
                )));
            }
            let process = &boot.processes[boot.process_of[member]];
            if process.pidfd.as_ref().is_some_and(|fd| !oxccl_sys::process::alive(fd))
                && hub.probe(member, me).is_none()
            {
                return Err(Error::remote(format!(
                    "rank {rank} (host {}, process {}) died during the initialisation",
                    boot.peers[*rank].host, boot.peers[*rank].pid
                )));
            }
            oxccl_sys::sync::yield_now();
        }
    }
    Ok(cma)
}

/// Range checks of a request beyond what the C interface has checked.
pub(super) fn check_request<S>(comm: &Communicator, r: &Request<S>) -> Result<()> {
    let c = r.collective;
    let ranked = c.rooted() || matches!(c, Collective::Send | Collective::Recv);
    if ranked && r.root >= comm.ranks {
        let name = if c.rooted() { "root" } else { "peer" };
        return Err(Error::argument(format!(
            "{c} : invalid {name} {} ({name} should be in the 0..{} range)",
            r.root, comm.ranks
        )));
    }
    let root = r.root == comm.rank;
    let sends = match c {
        Collective::Broadcast | Collective::Scatter => root,
        Collective::Recv => false,
        _ => true,
    };
    let receives = match c {
        Collective::Reduce | Collective::Gather => root,
        Collective::Send => false,
        _ => true,
    };
    if let Some(v) = &r.v {
        let lengths = [v.send_counts.len(), v.send_displs.len(), v.recv_counts.len(), v.recv_displs.len()];
        if lengths.iter().any(|l| *l != comm.ranks) {
            return Err(Error::argument(format!(
                "{c} : counts and displacements have {lengths:?} entries, not {}",
                comm.ranks
            )));
        }
    } else if c == Collective::AllToAllV {
        return Err(Error::argument("AlltoAllv : counts and displacements are missing"));
    }
    let empty = match &r.v {
        Some(v) => (v.send_counts.iter().all(|n| *n == 0), v.recv_counts.iter().all(|n| *n == 0)),
        None => (r.count == 0, r.count == 0),
    };
    if sends && r.send.is_null() && !empty.0 {
        return Err(Error::argument(format!(
            "{c} : sendbuff argument is NULL but rank {} sends {} element(s) per block",
            comm.rank, r.count
        )));
    }
    if receives && r.recv.is_null() && !empty.1 {
        return Err(Error::argument(format!(
            "{c} : recvbuff argument is NULL but rank {} receives {} element(s) per block",
            comm.rank, r.count
        )));
    }
    r.v.as_deref().map_or(Ok(()), |v| check_parts(v, r.dtype))?;
    let blocks = c.input_blocks(comm.ranks).max(c.output_blocks(comm.ranks));
    if r.count.checked_mul(r.dtype.size()).and_then(|b| b.checked_mul(blocks)).is_none_or(|b| b > isize::MAX as usize) {
        return Err(Error::argument(format!("{c} : count {} of {} is more than memory can hold", r.count, r.dtype)));
    }
    Ok(())
}

/// That each part of an AlltoAllv lies, and all of them together fit, where memory may be. The displacement of a part of
/// nothing is looked at as well: addresses are made of it.
fn check_parts(v: &VCounts, dtype: DataType) -> Result<()> {
    let most = isize::MAX as usize / dtype.size();
    for (name, counts, displs) in [("send", &v.send_counts, &v.send_displs), ("recv", &v.recv_counts, &v.recv_displs)] {
        let mut all = 0_usize;
        for (rank, (count, displ)) in counts.iter().zip(displs).enumerate() {
            all = all.saturating_add(*count);
            if all > most || displ.checked_add(*count).is_none_or(|end| end > most) {
                return Err(Error::argument(format!(
                    "AlltoAllv : {name}counts[{rank}] {count} of {dtype} at {name} displacement {displ} is more than memory \
                     can hold"
                )));
            }
        }
    }
    Ok(())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use oxccl_types::ResultCode;

    use super::*;

    #[test]
    fn parts_beyond_memory_are_refused() {
        let lists = |counts: [usize; 2], displs: [usize; 2]| {
            let own = VCounts {
                send_counts: vec![1, 1],
                send_displs: vec![0, 1],
                recv_counts: vec![1, 1],
                recv_displs: vec![0, 1],
            };
            [
                VCounts { send_counts: counts.to_vec(), send_displs: displs.to_vec(), ..own.clone() },
                VCounts { recv_counts: counts.to_vec(), recv_displs: displs.to_vec(), ..own },
            ]
        };
        let most = isize::MAX as usize / 4;
        let refused = |counts, displs| {
            lists(counts, displs).map(|v| check_parts(&v, DataType::Float32).err().map(|e| (e.code, e.into_text())))
        };
        assert_eq!(refused([3, 5], [0, 3]), [None, None]);
        assert_eq!(refused([most, 0], [0, most]), [None, None]);
        // Whose bytes are a small number where they overflow; whose sum does; whose ends do.
        for (counts, displs) in [
            ([1 << 62, 1], [0, 0]),
            ([most, 1], [0, 0]),
            ([1, 1], [0, most]),
            ([1, 0], [0, 1 << 62]),
            ([usize::MAX, usize::MAX], [1, 1]),
        ] {
            for (error, name) in refused(counts, displs).into_iter().zip(["sendcounts", "recvcounts"]) {
                let (code, text) = error.unwrap_or_else(|| panic!("{name} {counts:?} at {displs:?}"));
                assert!(code == ResultCode::InvalidArgument && text.contains(name), "{code:?} {text}");
            }
        }
    }

    fn peer(host: &str, boot: u128, available: u32, cores: u8) -> PeerInfo {
        limited_peer(host, boot, [available, if available < cores.count_ones() { available } else { 0 }], 0, cores)
    }

    /// As `peer`, whose cores and quota are `of`, the latter of the control group `group`.
    fn limited_peer(host: &str, boot: u128, of: [u32; 2], group: u64, cores: u8) -> PeerInfo {
        let head = [of[0].to_le_bytes(), of[1].to_le_bytes()].concat();
        let mut set = [head, group.to_le_bytes().to_vec(), vec![cores]].concat();
        set.resize(CORES_BYTES, 0);
        let payload = [vec![0; CORES], set, boot.to_le_bytes().to_vec()].concat();
        let process = service::ProcessAddress { uuid: [0; 16] };
        PeerInfo { host: host.into(), pid: 1, process, tcp: Vec::new(), payload }
    }

    #[test]
    fn containers_of_one_machine_share_its_cores() {
        let crowded = |peers: [PeerInfo; 4]| {
            let first = crowded(&peers, 0, &[0, 1]);
            assert!((1..4).all(|rank| crowded(&peers, rank, &[rank]) == first), "{peers:?}");
            first
        };
        // Two ranks in each of two containers, bound to a core each.
        let bound = |boots: [u128; 2], cores: [u8; 4]| {
            let of = |r: usize| peer(["a", "b"][r / 2], boots[r / 2], 1, cores[r]);
            crowded([of(0), of(1), of(2), of(3)])
        };
        assert!(bound([7, 7], [1, 2, 1, 2]));
        assert!(!bound([7, 7], [1, 2, 4, 8]));
        assert!(!bound([7, 9], [1, 2, 1, 2]));
        // Of an unknown kernel nothing follows.
        assert!(!bound([0, 0], [1, 2, 1, 2]));
        let together = |a, b| on_one_machine(&peer("a", a, 1, 1), &peer("b", b, 1, 1));
        assert!(together(7, 7) && !together(7, 9) && !together(0, 0));
        // All may use all of four cores, and each container may use two at a time; then one.
        let limited = |available: u32| crowded(["a", "a", "b", "b"].map(|host| peer(host, 7, available, 15)));
        assert!(!limited(2) && limited(1));
    }

    #[test]
    fn of_machines_that_share_cores_the_fullest_counts() {
        // Three ranks of one machine on two cores, two of another on as many, and one alone.
        let of = |hosts: [&str; 6], machines: [u128; 6]| {
            per_core(&(0..6).map(|r| peer(hosts[r], machines[r], 2, 3)).collect::<Vec<_>>())
        };
        let names = ["a", "a", "a", "b", "b", "c"];
        assert_eq!(of(names, [7, 7, 7, 8, 8, 9]), 1.5);
        assert_eq!(of(["a"; 6], [7, 7, 7, 8, 8, 9]), 1.5, "machines of one name");
        // All of one machine, in three containers, which may use the same cores.
        assert_eq!(of(names, [7; 6]), 3.0);
        assert_eq!(per_core(&[1, 2, 4, 8].map(|cores| peer("a", 7, 1, cores))), 1.0);
        // The fullest is not the one with most ranks.
        let many = (0..5).map(|_| peer("a", 7, 4, 15)).chain((0..4).map(|_| peer("b", 8, 2, 3)));
        assert_eq!(per_core(&many.collect::<Vec<_>>()), 2.0);
    }

    #[test]
    fn containers_of_one_host_name_have_quotas_of_their_own() {
        let crowded = |groups: [u64; 4]| {
            let peers = groups.map(|group| limited_peer("pod", 7, [2, 2], group, 15));
            crowded(&peers, 0, &[0, 1])
        };
        assert!(!crowded([1, 1, 2, 2]) && crowded([1, 1, 1, 2]) && crowded([0; 4]));
    }

    /// By what a rank brings to the meeting.
    #[test]
    fn ranks_have_as_many_cores_as_they_are_told() {
        let crowded = |told: usize| {
            let mut config = Config::from_env();
            config.constants.cores_told = Some(told);
            // Of an address, at which nobody listens before rank 0 connects.
            let bootstrap = BootstrapConfig { comm_id: Some("127.0.0.1:7".into()), ..bootstrap_config(&config) };
            let id = bootstrap::UniqueId::create(&bootstrap).expect("an id");
            let abort = Arc::new(AtomicBool::new(false));
            let payload = params(id, 0, 4, &config, bootstrap, false, abort).payload;
            let peers = [(); 4].map(|()| PeerInfo { payload: payload.clone(), ..peer("node", 7, 1, 1) });
            crowded(&peers, 0, &[0, 1, 2, 3])
        };
        assert!(crowded(3) && !crowded(4) && !crowded(64));
    }

    #[test]
    fn a_segment_has_room_for_those_that_remain_where_some_cannot_map_it() {
        for (cores, ranks) in [(2.0, 8), (8.0, 8), (16.0, 16), (4.0, 17)] {
            let mut config = Config::from_env();
            config.constants.model.cores = cores;
            // Of an address, at which nobody listens before rank 0 connects.
            let settings = BootstrapConfig { comm_id: Some("127.0.0.1:7".into()), ..bootstrap_config(&config) };
            let id = bootstrap::UniqueId::create(&settings).expect("an id");
            let Params { payload, segment_bytes, .. } = params(id, 0, ranks, &config, settings, false, Arc::default());
            let config = agreed::adopt(&config, settings_in(&payload));
            let bytes = segment_bytes(ranks, &vec![&payload[..]; ranks]);
            for members in 1..=ranks {
                let needed = geometry_of(&config, members, members < ranks, None).total();
                assert!(needed <= bytes, "{members} of {ranks} with {cores} cores: {needed} of {bytes}");
            }
        }
    }

    #[test]
    fn ranks_that_share_cores_have_longer_scratch_where_it_is_the_faster_way() {
        use oxccl_schedule::cost::CostModel;
        let scratch = |model: CostModel, ranks: usize, shared: Option<usize>| {
            let mut config = Config { scratch: 512 << 10, ..Config::from_env() };
            config.constants.model = CostModel { cores: 2.0, ..model };
            2 * geometry_of(&config, ranks, false, shared).scratch_half
        };
        let (slots, kernel) = (CostModel::of_strings(), CostModel::default());
        assert_eq!([2, 3, 8].map(|ranks| scratch(slots, ranks, None)), [512 << 10, 1 << 20, 1 << 20]);
        assert_eq!([2, 3, 8].map(|ranks| scratch(kernel, ranks, None)), [512 << 10; 3]);
        assert_eq!(scratch(slots, 8, Some(1)), 128 << 10);
    }

    #[test]
    fn areas_are_long_where_ranks_share_cores_and_what_lies_beside_a_line_is_the_faster_way() {
        use oxccl_schedule::cost::CostModel;
        let areas = |model: CostModel, ranks: usize, scratch: usize, shared: Option<usize>| {
            let mut config = Config { scratch, ..Config::from_env() };
            config.constants.model = model;
            let geometry = geometry_of(&config, ranks, false, shared);
            (geometry.scratch_half - geometry.area_bytes, geometry.area_bytes)
        };
        let of = |model, ranks, scratch| areas(model, ranks, scratch, None);
        let travelling = CostModel::of_travelling_lines(2.0);
        assert_eq!(of(travelling, 3, 512 << 10), (192 << 10, 256 << 10), "the pieces are as long as elsewhere");
        let other = CostModel { cores: 2.0, ..CostModel::default() };
        assert_eq!([2, 3].map(|ranks| of(other, ranks, 512 << 10)), [(192 << 10, 64 << 10); 2]);
        let alone = CostModel { cores: 3.0, ..travelling };
        assert_eq!((of(alone, 3, 512 << 10), of(alone, 4, 512 << 10).1), ((192 << 10, 64 << 10), 256 << 10));
        let one = CostModel { cores: 1.0, ..travelling };
        assert_eq!(of(one, 2, 512 << 10), (192 << 10, 64 << 10), "of two ranks it was not measured");
        assert_eq!([64 << 10, 4 << 20].map(|scratch| of(travelling, 3, scratch).1), [32 << 10, 512 << 10]);
        assert_eq!(areas(travelling, 3, 512 << 10, Some(1)), (48 << 10, 16 << 10));
    }

    /// A rank under an emulator is shown another processor, or says nothing of it.
    #[test]
    fn slots_and_scratch_change_hands_only_if_all_who_share_memory_say_so() {
        let peers = [LINES, LIGHT | LINES, LIGHT, 0, LINES].map(|flags| {
            let mut peer = peer("node", 7, 1, 1);
            peer.payload[FLAGS_AT] = flags;
            peer
        });
        assert!(write_lines(&peers, &[0, 1, 4]) && !all_say(LIGHT, &peers, &[0, 1]) && all_say(LIGHT, &peers, &[1, 2]));
        assert!([&[0, 2], &[3, 4]].iter().all(|members| !write_lines(&peers, &members[..])));
        let short = [PeerInfo { payload: Vec::new(), ..peer("node", 7, 1, 1) }];
        assert!(!write_lines(&short, &[0]) && !lines_travel(&short, &[0]));
        let mut travels = peers;
        for rank in [0, 1] {
            travels[rank].payload[FLAGS_AT] |= TRAVELS;
        }
        assert!(lines_travel(&travels, &[0, 1]) && !lines_travel(&travels, &[0, 1, 4]));
    }

    #[test]
    fn a_host_name_says_nothing_about_ranks_of_different_kernels() {
        let named = |boots: [u128; 2]| {
            let peers = [peer("node", boots[0], 1, 1), peer("node", boots[1], 1, 1)];
            [0, 1].map(|rank| crowded(&peers, rank, &[rank]))
        };
        assert_eq!(named([7, 9]), [false; 2]);
        // Where one is not known, the name is all there is.
        assert_eq!((named([7, 7]), named([7, 0]), named([0, 0])), ([true; 2], [true; 2], [true; 2]));
    }

    #[test]
    fn ranks_that_share_memory_come_to_the_same_answer() {
        // Four on three cores; one that has cores of its own, and may not see the kernel's id.
        for boot in [7, 0] {
            let of = |(boot, cores): (u128, u8)| peer("node", boot, cores.count_ones(), cores);
            let peers = [(7, 3), (7, 6), (7, 5), (7, 3), (boot, 0xf0)].map(of);
            let answers = [0, 1, 2, 3, 4].map(|rank| crowded(&peers, rank, &[0, 1, 2, 3, 4]));
            assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
        }
    }
}
