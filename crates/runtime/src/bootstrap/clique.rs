//! Which ranks share memory: proved by mapping it and reading a random number out of it, never by names.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, Weak};

use oxccl_sys::{SharedMemory, host, process};
use oxccl_types::{Error, Result};

use super::wire::{Info, Reader};
use super::{BootstrapConfig, ProcessHandle, say};
use crate::service::io::Limits;
use crate::service::{CommKey, Level, LogFn, ProcessAddress, SELF_SEGMENT, Service, auth, fetch, locked};

const NONCE: usize = 32;
const YES: u8 = 1;
const NO: u8 = 0;

/// Bytes of the segment of a clique with that many ranks.
type Bytes<'a> = dyn Fn(usize) -> usize + 'a;

type Slot = Arc<Mutex<Weak<SharedMemory>>>;

/// Segments mapped in this process, so that ranks that are its threads share one mapping.
static MAPPED: Mutex<Option<HashMap<u64, Slot>>> = Mutex::new(None);
/// Handles on other processes, shared by all communicators.
static PIDFDS: Mutex<Option<HashMap<[u8; 16], Weak<OwnedFd>>>> = Mutex::new(None);

fn slot(segment: u64) -> Slot {
    let mut table = locked(&MAPPED);
    let table = table.get_or_insert_default();
    // A slot that somebody holds is being filled.
    table.retain(|_, s| Arc::strong_count(s) > 1 || locked(s).strong_count() > 0);
    table.entry(segment).or_default().clone()
}

/// Equal on ranks that may be able to share memory: one kernel, one name space of abstract sockets, and the same `NCCL_HOSTID` or none.
/// That text does not stand for the kernel, as it does elsewhere: if ranks of two machines had the same, each of those that cannot reach
/// the lowest would be alone.
pub(super) fn hint(config: &BootstrapConfig, rank: usize) -> Vec<u8> {
    if !config.shared_memory {
        return format!("alone {rank}").into_bytes();
    }
    let boot = match host::boot_id() {
        hidden if hidden.is_empty() => host::host_name(),
        id => id,
    };
    let said = config.host_id.as_deref().unwrap_or_default();
    format!("{boot} {} {said}", host::namespace_id("net")).into_bytes()
}

/// The ranks whose hints equal that of `rank`, ascending.
pub(super) fn group(infos: &[Info], rank: usize) -> Vec<usize> {
    (0..infos.len()).filter(|r| infos[*r].hint == infos[rank].hint).collect()
}

/// Who shares memory.
pub(super) struct Sharing {
    pub clique: Vec<usize>,
    pub clique_of: Vec<usize>,
    pub segment: Arc<SharedMemory>,
}

/// Makes the shared segment of a group.
pub(super) struct Maker<'a> {
    service: &'a Arc<Service>,
    comm_hash: u64,
    key: &'a CommKey,
    limits: Limits<'a>,
    group: Vec<usize>,
    /// Set in the leader: what it published.
    published: Option<u64>,
    memory: Option<Arc<SharedMemory>>,
}

impl<'a> Maker<'a> {
    pub(super) fn new(
        service: &'a Arc<Service>,
        comm_hash: u64,
        key: &'a CommKey,
        limits: Limits<'a>,
        group: Vec<usize>,
    ) -> Self {
        Maker { service, comm_hash, key, limits, group, published: None, memory: None }
    }

    /// The leader (lowest rank of the group) makes the memory and publishes it; its contribution to round 1.
    pub(super) fn make(&mut self, rank: usize, bytes: &Bytes<'_>) -> Vec<u8> {
        if self.group[0] != rank {
            return Vec::new();
        }
        let mut made = || -> std::io::Result<u64> {
            let memory = create(bytes(self.group.len()))?;
            memory.write(0, &auth::random::<NONCE>()?);
            let segment = u64::from_le_bytes(auth::random()?).max(SELF_SEGMENT + 1);
            *locked(&slot(segment)) = Arc::downgrade(&memory);
            self.service.publish(segment, memory.fd().try_clone_to_owned()?);
            self.memory = Some(memory);
            self.published = Some(segment);
            Ok(segment)
        };
        match made() {
            Ok(segment) => [&[YES], &segment.to_le_bytes()[..]].concat(),
            Err(e) => [&[NO], e.to_string().as_bytes()].concat(),
        }
    }

    /// Maps what the leader made; the proof is the contribution to round 2.
    pub(super) fn prove(&mut self, rank: usize, made: &[Vec<u8>], infos: &[Info]) -> Vec<u8> {
        let leader = self.group[0];
        let offer = Reader(made[leader].get(1..).unwrap_or_default()).u64();
        let Some(segment) = offer.filter(|_| made[leader].first() == Some(&YES)) else {
            return [&[NO], made[leader].get(1..).unwrap_or_default()].concat();
        };
        if rank != leader {
            match self.map(segment, &infos[leader].peer.process) {
                Ok(memory) => self.memory = Some(memory),
                Err(e) => return [&[NO], e.text.as_bytes()].concat(),
            }
        }
        let mut proof = [YES; 1 + NONCE];
        match &self.memory {
            Some(memory) if memory.len() >= NONCE => memory.read(0, &mut proof[1..]),
            _ => return vec![NO],
        }
        proof.to_vec()
    }

    fn map(&self, segment: u64, leader: &ProcessAddress) -> Result<Arc<SharedMemory>> {
        let slot = slot(segment);
        // Held while fetching: the threads of a process fetch once.
        let mut mapped = locked(&slot);
        if let Some(memory) = mapped.upgrade() {
            return Ok(memory);
        }
        let fd = fetch(leader, self.comm_hash, self.key, segment, &self.limits, || false)?;
        let memory = SharedMemory::from_fd(fd)
            .map_err(|e| Error::system(format!("cannot map shared memory of the leader of the clique: {e}")))?;
        let memory = Arc::new(memory);
        *mapped = Arc::downgrade(&memory);
        Ok(memory)
    }

    /// Decides, from what all ranks proved, who shares memory with whom. Zeroes the proof.
    pub(super) fn conclude(
        &mut self,
        rank: usize,
        infos: &[Info],
        made: &[Vec<u8>],
        proofs: &[Vec<u8>],
        bytes: &Bytes<'_>,
        log: LogFn,
    ) -> Result<Sharing> {
        let mut leaders: HashMap<&[u8], usize> = HashMap::new();
        let mut clique_of: Vec<usize> = Vec::with_capacity(infos.len());
        for (r, info) in infos.iter().enumerate() {
            let leader = *leaders.entry(&info.hint).or_insert(r);
            let proved = proofs[r].first() == Some(&YES) && proofs[r] == proofs[leader];
            clique_of.push(if proved { leader } else { r });
        }
        let clique: Vec<usize> = (0..infos.len()).filter(|r| clique_of[*r] == clique_of[rank]).collect();
        if let (Some(segment), Some(memory)) = (self.published.take(), &self.memory) {
            self.service.withdraw(segment);
            memory.write(0, &[0; NONCE]);
        }
        let leader = self.group[0];
        if clique_of[rank] != leader {
            let why = if proofs[rank].len() > 1 { &proofs[rank][1..] } else { &made[leader] };
            let text = format!(
                "rank {rank} does not share memory with rank {leader}, though both seem to be on host {}: {}. They \
                 will talk over TCP, which is slower",
                infos[rank].peer.host,
                String::from_utf8_lossy(why)
            );
            say(log, Level::Warn, &text);
            self.memory = None;
        }
        let segment = match self.memory.take().filter(|_| clique_of[rank] == leader) {
            Some(memory) => memory,
            None => create(bytes(1)).map_err(|e| {
                Error::system(format!("cannot make the {} bytes of memory of rank {rank}: {e}", bytes(1)))
            })?,
        };
        Ok(Sharing { clique, clique_of, segment })
    }

    /// Handles on the processes of the clique, and which process each member is in.
    pub(super) fn processes(&self, clique: &[usize], infos: &[Info]) -> Result<(Vec<ProcessHandle>, Vec<usize>)> {
        let mut handles: Vec<ProcessHandle> = Vec::new();
        let mut index: HashMap<[u8; 16], usize> = HashMap::new();
        let mut process_of = Vec::with_capacity(clique.len());
        for &rank in clique {
            let address = &infos[rank].peer.process;
            if let Some(at) = index.get(&address.uuid) {
                process_of.push(*at);
                continue;
            }
            let pidfd =
                match address == self.service.address() {
                    true => None,
                    false => Some(self.pidfd(address).map_err(|e| {
                        Error::remote(format!("rank {rank} on this host cannot be watched: {}", e.text))
                    })?),
                };
            let pid = pidfd.as_ref().map_or(Some(std::process::id()), |p| process::pid_of(&**p)).unwrap_or(0);
            index.insert(address.uuid, handles.len());
            process_of.push(handles.len());
            handles.push(ProcessHandle { address: address.clone(), pid, pidfd });
        }
        Ok((handles, process_of))
    }

    fn pidfd(&self, of: &ProcessAddress) -> Result<Arc<OwnedFd>> {
        let known = locked(&PIDFDS).get_or_insert_default().get(&of.uuid).and_then(Weak::upgrade);
        if let Some(fd) = known {
            return Ok(fd);
        }
        let fd = Arc::new(fetch(of, self.comm_hash, self.key, SELF_SEGMENT, &self.limits, || false)?);
        let mut table = locked(&PIDFDS);
        let table = table.get_or_insert_default();
        table.retain(|_, fd| fd.strong_count() > 0);
        table.insert(of.uuid, Arc::downgrade(&fd));
        Ok(fd)
    }
}

impl Drop for Maker<'_> {
    fn drop(&mut self) {
        if let Some(segment) = self.published {
            self.service.withdraw(segment);
        }
    }
}

/// New memory with room for the proof.
fn create(bytes: usize) -> std::io::Result<Arc<SharedMemory>> {
    let page = host::page_size();
    let bytes = bytes.max(NONCE).checked_next_multiple_of(page).ok_or(std::io::ErrorKind::OutOfMemory)?;
    SharedMemory::create("oxccl", bytes).map(Arc::new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bootstrap::PeerInfo;
    use crate::service::ServiceConfig;
    use oxccl_sys::Deadline;
    use oxccl_sys::sync::AtomicBool;

    static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());

    /// Equal hints do not make a clique: only the right number out of the memory does.
    #[test]
    fn membership_is_proved() {
        let service = Service::get(&ServiceConfig { ifname: None, family: None, log: |_, _| {} }).unwrap();
        let (key, abort) = (CommKey::new([4; 32]), AtomicBool::new(false));
        let limits = Limits { deadline: Deadline::after(std::time::Duration::from_secs(20)), abort: &abort };
        let info = |_| {
            let process = service.address().clone();
            let peer = PeerInfo { host: "h".into(), pid: 1, process, tcp: Vec::new(), payload: Vec::new() };
            Info { peer, hint: hint(&BootstrapConfig::default(), 0) }
        };
        let infos: Vec<Info> = (0..4).map(info).collect();
        let bytes = |n: usize| 100 * n;
        let maker = |rank| Maker::new(&service, 0xd4, &key, limits, group(&infos, rank));
        let mut makers: Vec<_> = (0..4).map(maker).collect();
        let made: Vec<_> = (0..4).map(|r| makers[r].make(r, &bytes)).collect();
        let mut proofs: Vec<_> = (0..4).map(|r| makers[r].prove(r, &made, &infos)).collect();
        proofs[1] = [&[NO], &b"seccomp"[..]].concat();
        proofs[3][7] ^= 1;
        let log: LogFn = |_, text| locked(&SAID).push(text.into());
        let mut conclude = |r: usize| makers[r].conclude(r, &infos, &made, &proofs, &bytes, log).unwrap();
        let all: Vec<Sharing> = (0..4).map(&mut conclude).collect();
        let cliques: Vec<_> = all.iter().map(|s| s.clique.clone()).collect();
        assert_eq!(cliques, [vec![0, 2], vec![1], vec![0, 2], vec![3]]);
        assert!(all.iter().all(|s| s.clique_of == [0, 1, 0, 3]));
        assert!(Arc::ptr_eq(&all[0].segment, &all[2].segment) && !Arc::ptr_eq(&all[0].segment, &all[3].segment));
        assert!(
            locked(&SAID)[0].contains("rank 1 does not share memory with rank 0")
                && locked(&SAID)[0].contains("seccomp")
        );
        let mut zeros = [1; NONCE];
        all[2].segment.read(0, &mut zeros);
        assert_eq!(zeros, [0; NONCE], "the proof is gone");
    }

    /// A leader that could not make memory leaves everyone alone, and the job goes on.
    #[test]
    fn a_leader_without_memory_leaves_everyone_alone() {
        let service = Service::get(&ServiceConfig { ifname: None, family: None, log: |_, _| {} }).unwrap();
        let (key, abort) = (CommKey::new([4; 32]), AtomicBool::new(false));
        let limits = Limits { deadline: Deadline::NEVER, abort: &abort };
        let mut maker = Maker::new(&service, 0xd5, &key, limits, vec![0, 1]);
        let bytes = |n: usize| if n > 1 { usize::MAX } else { 10 };
        let made = maker.make(0, &bytes);
        assert_eq!(made[0], NO);
        let peer = PeerInfo {
            host: "h".into(),
            pid: 1,
            process: service.address().clone(),
            tcp: Vec::new(),
            payload: Vec::new(),
        };
        let infos = [Info { peer: peer.clone(), hint: vec![1] }, Info { peer, hint: vec![1] }];
        let proof = maker.prove(0, &[made.clone(), Vec::new()], &infos);
        let proofs = [proof.clone(), proof];
        let sharing = maker.conclude(0, &infos, &[made, Vec::new()], &proofs, &bytes, |_, _| {}).unwrap();
        assert_eq!(sharing.clique, [0]);
        assert_eq!(sharing.clique_of, [0, 1]);
    }
}
