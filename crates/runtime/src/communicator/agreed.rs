//! Settings on which all ranks of a communicator must act alike: rank 0's hold.
//!
//! They lie behind the probe word in what every rank brings to the meeting; after it each rank adopts rank 0's, itself
//! included. Settings that concern one rank only stay its own. Before them stands which build of the library the rank has,
//! see `build.rs`; ranks of different builds are refused.

use oxccl_schedule::constants;
use oxccl_types::{Error, Result};

use crate::config::Config;
use crate::log::{self, Subsys};

/// Names the sources that this library was built from, in hexadecimal digits: ranks of one communicator must have the same.
pub const BUILD: &str = env!("OXCCL_BUILD");

/// Bytes of the numbers between the build and the constants.
const NUMBERS: usize = 7 * 8;

/// What `config` says of the agreed settings.
pub(super) fn encode(config: &Config) -> Vec<u8> {
    let channels = config.max_channels as usize;
    let (eager_auto, windows) = (usize::from(config.eager_auto), usize::from(config.windows));
    let (eager, lsa) = (config.eager_limit, config.lsa_team);
    let numbers = [eager, eager_auto, config.scratch, config.slot_bytes, channels, windows, lsa];
    let mut bytes = BUILD.as_bytes().to_vec();
    bytes.extend(numbers.iter().flat_map(|n| (*n as u64).to_le_bytes()));
    let model = constants::encode(&config.constants.model);
    bytes.extend((model.len() as u32).to_le_bytes());
    bytes.extend(model);
    bytes.extend(config.algo.as_bytes());
    bytes
}

/// `own` with the agreed settings that `bytes` says; as it is when they cannot be read.
pub(super) fn adopt(own: &Config, bytes: &[u8]) -> Config {
    decode(own, bytes).unwrap_or_else(|| own.clone())
}

/// Refuses ranks whose library was built from other sources: each may lay out what peers read in its own way and choose its
/// algorithms by its own constants. `settings`: those of all ranks, so that all of them fail.
///
/// # Errors
/// Says which rank differs from this one, the first of them, and which builds they are.
pub(super) fn check<'a>(settings: impl Iterator<Item = &'a [u8]>) -> Result<()> {
    let mut builds = settings.map(|bytes| bytes.get(..BUILD.len()).unwrap_or(bytes)).enumerate();
    match builds.find(|(_, build)| *build != BUILD.as_bytes()) {
        None => Ok(()),
        Some((rank, build)) => Err(Error::usage(format!(
            "rank {rank} has another version of oxccl than this rank: it was built from the sources {}, this rank's from \
             {BUILD}. Start all ranks with the same library",
            String::from_utf8_lossy(build).escape_debug()
        ))),
    }
}

fn decode(own: &Config, bytes: &[u8]) -> Option<Config> {
    let (numbers, rest) = bytes.get(BUILD.len()..)?.split_at_checked(NUMBERS)?;
    let mut numbers = numbers.as_chunks::<8>().0.iter().map(|n| u64::from_le_bytes(*n));
    let mut next = || numbers.next().and_then(|n| usize::try_from(n).ok());
    let mut config = own.clone();
    config.eager_limit = next()?;
    config.eager_auto = next()? == 1;
    config.scratch = next()?;
    config.slot_bytes = next()?;
    config.max_channels = u32::try_from(next()?).ok()?;
    config.windows = next()? == 1;
    config.lsa_team = next()?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let (model, algo) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    config.constants.model = constants::decode(model)?;
    config.algo = String::from_utf8(algo.to_vec()).ok()?;
    Some(config)
}

/// Tells that rank 0's settings hold where this rank's differ.
pub(super) fn tell(rank: usize, own: &Config, agreed: &Config) {
    let mut differing = Vec::new();
    let mut compare = |name, same: bool| {
        if !same {
            differing.push(name);
        }
    };
    compare("OXCCL_EAGER_LIMIT", (own.eager_limit, own.eager_auto) == (agreed.eager_limit, agreed.eager_auto));
    compare("OXCCL_SCRATCH", own.scratch == agreed.scratch);
    compare("OXCCL_SLOT_BYTES", own.slot_bytes == agreed.slot_bytes);
    compare("OXCCL_MAX_CHANNELS", own.max_channels == agreed.max_channels);
    compare("NCCL_WIN_ENABLE", own.windows == agreed.windows);
    compare("NCCL_LSA_TEAM_SIZE", own.lsa_team == agreed.lsa_team);
    compare("OXCCL_ALGO", own.algo == agreed.algo);
    let encoded = |c: &Config| constants::encode(&c.constants.model);
    compare("the constants of the cost model", encoded(own) == encoded(agreed));
    if !differing.is_empty() {
        let names = differing.join(", ");
        log::info(Subsys::TUNING, &format!("rank {rank}: {names} differ from rank 0's, whose values hold"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rank_zeros_settings_are_adopted_and_others_stay() {
        let mut root = Config::from_env();
        (root.eager_limit, root.scratch, root.slot_bytes, root.max_channels) = (128, 1 << 20, 4096, 3);
        root.algo = "^ring".into();
        root.constants.model.signal_us = 0.5;
        let mut own = Config::from_env();
        own.shm = !root.shm;
        let agreed = adopt(&own, &encode(&root));
        assert_eq!(
            (agreed.eager_limit, agreed.scratch, agreed.slot_bytes, agreed.max_channels),
            (128, 1 << 20, 4096, 3)
        );
        assert_eq!((agreed.algo.as_str(), agreed.constants.model.signal_us, agreed.shm), ("^ring", 0.5, own.shm));
    }

    /// A build of other sources, and a version that says none or hardly anything.
    #[test]
    fn ranks_of_another_version_are_named() {
        let bytes = encode(&Config::from_env());
        let mut other = bytes.clone();
        other[3] ^= 1;
        assert!(check([&bytes[..], &bytes].into_iter()).is_ok());
        for other in [&other[..], &bytes[BUILD.len()..], &bytes[..BUILD.len() - 1], &[]] {
            let error = check([&bytes[..], &bytes, other].into_iter()).expect_err("another version");
            assert!(error.text.contains("rank 2 has another version"), "{error}");
            assert!(error.text.contains(BUILD), "{error}");
        }
    }

    #[test]
    fn what_cannot_be_read_changes_nothing() {
        let own = Config::from_env();
        let bytes = encode(&own);
        for end in 0..bytes.len() - own.algo.len() {
            assert_eq!(adopt(&own, &bytes[..end]).eager_limit, own.eager_limit, "{end}");
        }
    }
}
