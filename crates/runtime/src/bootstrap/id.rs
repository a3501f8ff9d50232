//! The unique id: 128 bytes that carry a secret and where the root of the initialisation listens.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, ToSocketAddrs};
use std::time::Duration;

use oxccl_sys::Deadline;
use oxccl_types::{Error, Result};

use super::{BootstrapConfig, root};
use crate::service::auth::{self, CommKey};
use crate::service::interfaces::{self, Family, Interface};
use crate::service::io::Limits;
use crate::service::{Level, listen, listen_at};

const MAGIC: [u8; 4] = *b"OXID";
const VERSION: u8 = 1;
/// Set in ids that were derived from `NCCL_COMM_ID`: rank 0 starts the root.
const DERIVED: u8 = 1;
const MOST_ADDRESSES: usize = 3;
const ADDRESS_BYTES: usize = 23;
const CHECKSUM_AT: usize = 120;

/// Names a communicator to be, and lets its holder in: keep it within the job.
///
/// Layout: magic 4, version 1, flags 1, addresses 1, zero 1, secret 32, hash of the creator's host 8, addresses
/// 3 x 23 (family 1, port 2, scope 4, address 16), zeros, checksum 8.
#[derive(Clone, PartialEq, Eq)]
pub struct UniqueId {
    flags: u8,
    secret: [u8; 32],
    host: u64,
    addresses: Vec<SocketAddr>,
}

impl std::fmt::Debug for UniqueId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "UniqueId({:016x} at {:?})", self.hash(), self.addresses)
    }
}

/// Distinguishes machines and network name spaces, to know whether a loopback address is worth a try.
pub(super) fn host_hash() -> u64 {
    let host = [oxccl_sys::host::boot_id(), oxccl_sys::host::host_name()].join("/");
    let net = oxccl_sys::host::namespace_id("net").to_le_bytes();
    first_word(&CommKey::new([0; 32]).derive("host", &[host.as_bytes(), &net]))
}

fn first_word(b: &[u8; 32]) -> u64 {
    u64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]])
}

impl UniqueId {
    /// A new id, and the root that serves it: a thread that ends when all ranks were served or after
    /// `config.timeout`. With `config.comm_id` the id is derived from that address, and rank 0 starts the root in
    /// `connect`.
    ///
    /// # Errors
    /// `InvalidUsage` without a network interface, `InvalidArgument` for a malformed `NCCL_COMM_ID`, `SystemError`.
    pub fn create(config: &BootstrapConfig) -> Result<UniqueId> {
        if let Some(text) = &config.comm_id {
            return UniqueId::derived(text, config.comm_secret.as_ref());
        }
        let chosen = interfaces::choose(config.ifname.as_deref(), config.family)?;
        let mut wanted: Vec<Interface> = chosen.into_iter().take(MOST_ADDRESSES - 1).collect();
        let loopback = Interface { name: "lo".into(), ip: Ipv4Addr::LOCALHOST.into(), scope: 0 };
        if config.family != Some(Family::V6) && wanted.iter().all(|i| i.ip != loopback.ip) {
            wanted.push(loopback);
        }
        let mut listeners = Vec::new();
        let mut addresses = Vec::new();
        let mut failed = String::new();
        for interface in &wanted {
            match listen(interface, 0).and_then(|l| Ok((l.local_addr()?, l))) {
                Ok((address, listener)) => {
                    addresses.push(address);
                    listeners.push(listener);
                }
                Err(e) => failed = format!("{failed} {} {}: {e}.", interface.name, interface.ip),
            }
        }
        if listeners.is_empty() {
            return Err(Error::system(format!("bootstrap root: cannot listen on any interface:{failed}")));
        }
        let secret = auth::random().map_err(|e| Error::system(format!("cannot get random bytes: {e}")))?;
        let id = UniqueId { flags: 0, secret, host: host_hash(), addresses };
        (config.log)(Level::Info, &format!("Bootstrap: root of {id:?}"));
        root::spawn(&id, listeners, config)?;
        Ok(id)
    }

    /// The id that all who have `text`, and `secret` if there is one, derive.
    fn derived(text: &str, secret: Option<&CommKey>) -> Result<UniqueId> {
        let bad = |why: &str| {
            Error::argument(format!(
                "NCCL_COMM_ID is {text:?}: {why}. It must be <ipv4 or host>:<port> or [<ipv6>]:<port>"
            ))
        };
        let address = text
            .to_socket_addrs()
            .map_err(|e| bad(&e.to_string()))?
            .next()
            .ok_or_else(|| bad("the name has no address"))?;
        if address.port() == 0 {
            return Err(bad("the port is 0"));
        }
        // NCCL_COMM_ID is all that such jobs share, and a random number has no way from rank to rank before they meet.
        // So whoever knows the address may join, unless the job shares a secret besides: then its holders only.
        let nobodys = CommKey::new([0; 32]);
        let secret = secret.unwrap_or(&nobodys).derive("NCCL_COMM_ID", &[text.as_bytes()]);
        Ok(UniqueId { flags: DERIVED, secret, host: 0, addresses: vec![address] })
    }

    /// Starts the root of a derived id, in rank 0.
    pub(super) fn start_derived_root(&self, config: &BootstrapConfig, limits: &Limits<'_>) -> Result<()> {
        let address = &self.addresses[0];
        let soon = Deadline::after(Duration::from_secs(10));
        loop {
            let error = match listen_at(address) {
                Ok(listener) => return root::spawn(self, vec![listener], config),
                Err(e) => e,
            };
            // The root of the communicator made before this one may be about to end.
            if error.kind() != ErrorKind::AddrInUse || soon.passed() || limits.check().is_err() {
                let text = format!("rank 0 cannot listen on {address}, the address in NCCL_COMM_ID: {error}");
                return Err(Error::system(text));
            }
            limits.pause(Duration::from_millis(5));
        }
    }

    /// Whether rank 0 starts the root.
    pub(crate) fn is_derived(&self) -> bool {
        self.flags & DERIVED != 0
    }

    /// Where to look for the root, best first: loopback only on the machine that created the id.
    pub(super) fn candidates(&self) -> Vec<SocketAddr> {
        let here = self.is_derived() || self.host == host_hash();
        let (lo, other): (Vec<_>, Vec<_>) = self.addresses.iter().copied().partition(|a| a.ip().is_loopback());
        if here { [lo, other].concat() } else { other }
    }

    /// Names the id without telling its secret.
    pub(super) fn hash(&self) -> u64 {
        first_word(&self.key("id"))
    }

    /// The key of the connections to the root.
    pub(super) fn root_key(&self) -> CommKey {
        CommKey::new(self.key("root"))
    }

    /// Key and name of the communicator: the root's random `nonce` makes them unique, also for derived ids; `color`
    /// tells those apart that are made at one meeting.
    pub(super) fn communicator(&self, nonce: &[u8; 16], color: i32) -> (u64, CommKey) {
        let secret = CommKey::new(self.secret);
        let color = color.to_le_bytes();
        let hash = first_word(&secret.derive("communicator hash", &[nonce, &color]));
        (hash, CommKey::new(secret.derive("communicator key", &[nonce, &color])))
    }

    fn key(&self, label: &str) -> [u8; 32] {
        CommKey::new(self.secret).derive(label, &[])
    }

    /// The 128 bytes of `ncclUniqueId`.
    pub fn to_bytes(&self) -> [u8; 128] {
        let mut b = [0; 128];
        b[..4].copy_from_slice(&MAGIC);
        b[4] = VERSION;
        b[5] = self.flags;
        b[6] = self.addresses.len() as u8;
        b[8..40].copy_from_slice(&self.secret);
        b[40..48].copy_from_slice(&self.host.to_le_bytes());
        for (slot, address) in b[48..].chunks_exact_mut(ADDRESS_BYTES).zip(&self.addresses) {
            encode_address(slot, address);
        }
        let sum = checksum(&b);
        b[CHECKSUM_AT..].copy_from_slice(&sum);
        b
    }

    /// Checks and reads the 128 bytes.
    ///
    /// # Errors
    /// `InvalidArgument` when this library did not make them or they were damaged on their way.
    pub fn from_bytes(b: [u8; 128]) -> Result<UniqueId> {
        let bad = |why: &str| {
            Error::argument(format!(
                "the unique id is not valid: {why}. Every rank must get the 128 bytes that ncclGetUniqueId of this \
                 library wrote on one rank, unchanged (zero bytes included)"
            ))
        };
        if b[..4] != MAGIC {
            let why =
                if b == [0; 128] { "it is all zero" } else { "another library made it, or it is not initialised" };
            return Err(bad(why));
        }
        if b[4] != VERSION {
            return Err(bad(&format!("it has version {}, this library knows {VERSION}", b[4])));
        }
        if b[CHECKSUM_AT..] != checksum(&b) {
            return Err(bad("its checksum is wrong, so it was damaged on the way"));
        }
        let count = usize::from(b[6]);
        if !(1..=MOST_ADDRESSES).contains(&count) {
            return Err(bad("it has no address"));
        }
        let addresses = b[48..].chunks_exact(ADDRESS_BYTES).take(count).map(decode_address).collect::<Option<_>>();
        let mut secret = [0; 32];
        secret.copy_from_slice(&b[8..40]);
        let mut host = [0; 8];
        host.copy_from_slice(&b[40..48]);
        let addresses = addresses.ok_or_else(|| bad("it has an address of an unknown family"))?;
        Ok(UniqueId { flags: b[5], secret, host: u64::from_le_bytes(host), addresses })
    }
}

/// Finds damage, not forgery.
fn checksum(b: &[u8; 128]) -> [u8; 8] {
    let mut h = 0xcbf2_9ce4_8422_2325_u64;
    for byte in &b[..CHECKSUM_AT] {
        h = (h ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    }
    h.to_le_bytes()
}

/// Writes the 23 bytes of an address: family 1, port 2, scope 4, address 16.
pub(super) fn encode_address(b: &mut [u8], address: &SocketAddr) {
    b[1..3].copy_from_slice(&address.port().to_le_bytes());
    match address {
        SocketAddr::V4(a) => {
            b[0] = 4;
            b[7..11].copy_from_slice(&a.ip().octets());
        }
        SocketAddr::V6(a) => {
            b[0] = 6;
            b[3..7].copy_from_slice(&a.scope_id().to_le_bytes());
            b[7..23].copy_from_slice(&a.ip().octets());
        }
    }
}

/// The reverse of [`encode_address`].
pub(super) fn decode_address(b: &[u8]) -> Option<SocketAddr> {
    let port = u16::from_le_bytes([b[1], b[2]]);
    let octets: [u8; 16] = b[7..23].try_into().ok()?;
    match b[0] {
        4 => Some((IpAddr::from([octets[0], octets[1], octets[2], octets[3]]), port).into()),
        6 => {
            let scope = u32::from_le_bytes([b[3], b[4], b[5], b[6]]);
            Some(SocketAddrV6::new(Ipv6Addr::from(octets), port, 0, scope).into())
        }
        _ => None,
    }
}

/// Bytes of an encoded address.
pub(super) const ENCODED_ADDRESS: usize = ADDRESS_BYTES;

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> UniqueId {
        let addresses = ["10.0.0.1:80", "[fe80::1%3]:81", "127.0.0.1:82"].map(|a| a.parse().unwrap()).to_vec();
        UniqueId { flags: 0, secret: [7; 32], host: 99, addresses }
    }

    #[test]
    fn round_trip_and_damage() {
        let b = sample().to_bytes();
        assert_eq!(UniqueId::from_bytes(b).unwrap(), sample());
        for i in 0..128 {
            let mut bad = b;
            bad[i] ^= 0x40;
            assert!(UniqueId::from_bytes(bad).is_err(), "byte {i}");
        }
        assert!(UniqueId::from_bytes([0; 128]).unwrap_err().text.contains("all zero"));
    }

    #[test]
    fn loopback_is_for_the_creators_host_only() {
        let mut id = sample();
        assert_eq!(id.candidates().len(), 2);
        id.host = host_hash();
        assert!(id.candidates()[0].ip().is_loopback());
    }

    #[test]
    fn comm_id_is_an_address() {
        let derived = |text| UniqueId::derived(text, None);
        let a = derived("127.0.0.1:4000").unwrap();
        assert!(a.is_derived() && a == derived("127.0.0.1:4000").unwrap());
        for bad in ["", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:x"] {
            assert_eq!(derived(bad).unwrap_err().code, oxccl_types::ResultCode::InvalidArgument, "{bad}");
        }
    }

    #[test]
    fn a_secret_makes_another_id_of_the_same_address() {
        let with = |secret: Option<u8>| {
            let key = secret.map(|byte| CommKey::new([byte; 32]));
            UniqueId::derived("127.0.0.1:4000", key.as_ref()).unwrap()
        };
        assert!(with(Some(1)) == with(Some(1)) && with(Some(1)) != with(Some(2)) && with(Some(1)) != with(None));
        assert_ne!(with(Some(1)).hash(), with(None).hash());
    }
}
