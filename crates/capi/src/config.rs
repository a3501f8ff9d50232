//! `ncclConfig_t`: reading the struct of any release, and checking its fields.
//!
//! The environment's overrides are not applied here: the runtime reads it once per communicator.

use crate::abi::*;
use crate::entry::{Failure, Outcome};
use oxccl_runtime::{CommConfig, log};
use std::ffi::CStr;
use std::mem::size_of;

/// Most channels of a communicator; bounds `nChannelsPerNetPeer`.
const MAX_CHANNELS: c_int = 64;
const UNDEF: c_int = NCCL_CONFIG_UNDEF_INT;

const fn version(major: c_uint, minor: c_uint) -> c_uint {
    if major <= 2 && minor <= 8 { major * 1000 + minor * 100 } else { major * 10000 + minor * 100 }
}

/// A config in which nothing is set and that nobody has marked as initialised.
const UNSET: ncclConfig_t = ncclConfig_t {
    size: size_of::<ncclConfig_t>(),
    magic: 0,
    version: 0,
    blocking: UNDEF,
    cgaClusterSize: UNDEF,
    minCTAs: UNDEF,
    maxCTAs: UNDEF,
    netName: std::ptr::null(),
    splitShare: UNDEF,
    trafficClass: UNDEF,
    commName: std::ptr::null(),
    collnetEnable: UNDEF,
    CTAPolicy: UNDEF,
    shrinkShare: UNDEF,
    nvlsCTAs: UNDEF,
    nChannelsPerNetPeer: UNDEF,
    nvlinkCentricSched: UNDEF,
    graphUsageMode: UNDEF,
    numRmaCtx: UNDEF,
};

/// Reads, checks and translates the caller's config.
///
/// # Safety
/// `config` points to a struct of as many bytes as its first field says; its strings end with a zero.
pub(crate) unsafe fn parse(config: *const ncclConfig_t) -> Outcome<CommConfig> {
    // SAFETY: the caller's promise.
    let mut config = unsafe { read(config) }?;
    forget_unknown_fields(&mut config);
    check(&config)?;
    log_settings(&config);
    // SAFETY: the caller's promise on the strings.
    let (name, net_name) = unsafe { (text(config.commName), text(config.netName)) };
    Ok(CommConfig {
        blocking: defined(config.blocking).map(|b| b != 0),
        name,
        min_ctas: defined(config.minCTAs),
        max_ctas: defined(config.maxCTAs),
        net_name,
        rma_contexts: defined(config.numRmaCtx),
    })
}

/// Copies what both sides know; the rest stays unset. Longer structs of newer releases are fine.
unsafe fn read(config: *const ncclConfig_t) -> Outcome<ncclConfig_t> {
    // SAFETY: the struct begins with its size.
    let size = unsafe { (&raw const (*config).size).read_unaligned() };
    let mut known = UNSET;
    // SAFETY: the caller's struct has `size` bytes, ours has `size_of`; all bit patterns are valid in all fields.
    unsafe {
        std::ptr::copy_nonoverlapping(
            config.cast::<u8>(),
            (&raw mut known).cast::<u8>(),
            size.min(size_of::<ncclConfig_t>()),
        );
    }
    if known.magic != NCCL_API_MAGIC {
        return Err(Failure::argument(format!(
            "ncclConfig_t argument not initialized via NCCL_CONFIG_INITIALIZER (its size is {size}, its magic {:#x})",
            known.magic
        )));
    }
    Ok(known)
}

/// Padding of an old struct may hold anything: fields newer than the caller's header count as unset.
fn forget_unknown_fields(c: &mut ncclConfig_t) {
    if c.version < version(2, 14) {
        c.blocking = UNDEF;
    }
    if c.version < version(2, 17) {
        (c.cgaClusterSize, c.minCTAs, c.maxCTAs, c.netName) = (UNDEF, UNDEF, UNDEF, std::ptr::null());
    }
    if c.version < version(2, 18) {
        c.splitShare = UNDEF;
    }
    if c.version < version(2, 26) {
        c.trafficClass = UNDEF;
    }
    if c.version < version(2, 27) {
        c.commName = std::ptr::null();
        (c.collnetEnable, c.CTAPolicy, c.shrinkShare, c.nvlsCTAs) = (UNDEF, UNDEF, UNDEF, UNDEF);
    }
    if c.version < version(2, 28) {
        (c.nChannelsPerNetPeer, c.nvlinkCentricSched) = (UNDEF, UNDEF);
    }
    if c.version < version(2, 29) {
        (c.graphUsageMode, c.numRmaCtx) = (UNDEF, UNDEF);
    }
}

/// The integer fields with their valid ranges; both CTA limits are checked together elsewhere.
fn ranges(c: &ncclConfig_t) -> [(&'static str, c_int, c_int, c_int); 11] {
    const MAX: c_int = c_int::MAX;
    [
        ("blocking", c.blocking, 0, 1),
        ("cgaClusterSize", c.cgaClusterSize, 0, MAX),
        ("splitShare", c.splitShare, 0, 1),
        ("collnetEnable", c.collnetEnable, 0, 1),
        ("CTAPolicy", c.CTAPolicy, 0, 3),
        ("shrinkShare", c.shrinkShare, 0, 1),
        ("nvlsCTAs", c.nvlsCTAs, 1, MAX),
        ("nChannelsPerNetPeer", c.nChannelsPerNetPeer, 1, MAX_CHANNELS),
        ("nvlinkCentricSched", c.nvlinkCentricSched, 0, 1),
        ("graphUsageMode", c.graphUsageMode, 0, 2),
        ("numRmaCtx", c.numRmaCtx, 1, MAX),
    ]
}

fn check(c: &ncclConfig_t) -> Outcome {
    for (name, value, least, most) in ranges(c) {
        if value != UNDEF && !(least..=most).contains(&value) {
            let range = if most == c_int::MAX { format!(">= {least}") } else { format!("in {least}..{most}") };
            return Err(Failure::argument(format!(
                "Invalid config {name} attribute value {value}: it must be {range}"
            )));
        }
    }
    // Compared raw, as in the original: a lower limit without an upper one is refused there, too.
    let positive = |v: c_int| v == UNDEF || v > 0;
    if !positive(c.minCTAs) || !positive(c.maxCTAs) || c.minCTAs > c.maxCTAs {
        return Err(Failure::argument(format!(
            "Invalid config min/max channels attribute value {}/{}: both must be > 0 and minCTAs <= maxCTAs; setting \
             minCTAs needs maxCTAs to be set as well",
            c.minCTAs, c.maxCTAs
        )));
    }
    Ok(())
}

fn log_settings(c: &ncclConfig_t) {
    let limits = [("minCTAs", c.minCTAs), ("maxCTAs", c.maxCTAs), ("trafficClass", c.trafficClass)];
    let settings = ranges(c).into_iter().map(|(name, value, ..)| (name, value)).chain(limits);
    for (name, value) in settings.filter(|(_, value)| *value != UNDEF) {
        log::info(log::Subsys::ENV, &format!("Comm config {name} set to {value}"));
    }
}

fn defined(value: c_int) -> Option<c_int> {
    (value != UNDEF).then_some(value)
}

unsafe fn text(string: *const c_char) -> Option<String> {
    if string.is_null() {
        return None;
    }
    // SAFETY: not null; the caller promises a final zero.
    Some(unsafe { CStr::from_ptr(string) }.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxccl_types::ResultCode;

    fn initialised() -> ncclConfig_t {
        ncclConfig_t { magic: NCCL_API_MAGIC, version: NCCL_VERSION_CODE as c_uint, ..UNSET }
    }

    fn parsed(config: &ncclConfig_t) -> Outcome<CommConfig> {
        // SAFETY: a reference is a valid pointer; the strings are literals or null.
        unsafe { parse(config) }
    }

    #[test]
    fn reads_what_is_set() {
        let config = ncclConfig_t {
            blocking: 0,
            minCTAs: 2,
            maxCTAs: 4,
            netName: c"Socket".as_ptr(),
            commName: c"world".as_ptr(),
            ..initialised()
        };
        let read = parsed(&config).unwrap();
        assert_eq!((read.blocking, read.min_ctas, read.max_ctas), (Some(false), Some(2), Some(4)));
        assert_eq!((read.name.as_deref(), read.net_name.as_deref()), (Some("world"), Some("Socket")));
        let read = parsed(&initialised()).unwrap();
        assert_eq!((read.blocking, read.min_ctas, read.name), (None, None, None));
    }

    #[test]
    fn structs_of_every_release_are_read() {
        // (bytes, version, whether maxCTAs is within, whether commName is)
        let shapes = [
            (24, 21403, false, false),
            (40, 21705, true, false),
            (48, 21805, true, false),
            (48, 22602, true, false),
            (72, 22705, true, true),
            (80, 22803, true, true),
            (88, 22907, true, true),
            (96, 23005, true, true),
        ];
        for (size, version, has_max, has_name) in shapes {
            // What lies behind the caller's struct must not be read: it is set, and wrong.
            let config = ncclConfig_t {
                size,
                version,
                blocking: 1,
                maxCTAs: 7,
                commName: c"name".as_ptr(),
                trafficClass: 1234,
                ..initialised()
            };
            let read = parsed(&config).unwrap();
            assert_eq!(read.blocking, Some(true), "{version}");
            assert_eq!(read.max_ctas, has_max.then_some(7), "{version}");
            assert_eq!(read.name.is_some(), has_name, "{version}");
        }
    }

    #[test]
    fn padding_of_old_structs_is_not_a_setting() {
        let mut config = ncclConfig_t { version: 21805, trafficClass: 99, ..initialised() };
        forget_unknown_fields(&mut config);
        assert_eq!(config.trafficClass, UNDEF);
        let mut config = ncclConfig_t { version: 22602, trafficClass: 99, ..initialised() };
        forget_unknown_fields(&mut config);
        assert_eq!(config.trafficClass, 99);
    }

    #[test]
    fn an_unmarked_or_short_struct_is_refused() {
        for config in [UNSET, ncclConfig_t { size: 8, ..initialised() }, ncclConfig_t { size: 0, ..initialised() }] {
            let failure = parsed(&config).unwrap_err();
            assert_eq!(failure.code(), ResultCode::InvalidArgument);
        }
    }

    #[test]
    fn every_range_is_checked() {
        type Set = fn(&mut ncclConfig_t, c_int);
        let fields: [(Set, &[c_int], &[c_int]); 13] = [
            (|c, v| c.blocking = v, &[0, 1], &[-1, 2]),
            (|c, v| c.cgaClusterSize = v, &[0, 8], &[-1]),
            (|c, v| c.maxCTAs = v, &[1, 64], &[0, -1]),
            (|c, v| c.minCTAs = v, &[], &[0, 1]),
            (|c, v| c.splitShare = v, &[0, 1], &[-1, 2]),
            (|c, v| c.collnetEnable = v, &[0, 1], &[-1, 2]),
            (|c, v| c.CTAPolicy = v, &[0, 1, 2, 3], &[-1, 4]),
            (|c, v| c.shrinkShare = v, &[0, 1], &[-1, 2]),
            (|c, v| c.nvlsCTAs = v, &[1, 32], &[0, -1]),
            (|c, v| c.nChannelsPerNetPeer = v, &[1, 64], &[0, 65]),
            (|c, v| c.nvlinkCentricSched = v, &[0, 1], &[-1, 2]),
            (|c, v| c.graphUsageMode = v, &[0, 1, 2], &[-1, 3]),
            (|c, v| c.numRmaCtx = v, &[1, 4], &[0, -1]),
        ];
        for (i, (set, good, bad)) in fields.into_iter().enumerate() {
            for (values, fine) in [(good, true), (bad, false)] {
                for value in values {
                    let mut config = initialised();
                    set(&mut config, *value);
                    assert_eq!(parsed(&config).is_ok(), fine, "field {i}, value {value}");
                }
            }
        }
        assert!(parsed(&ncclConfig_t { minCTAs: 5, maxCTAs: 4, ..initialised() }).is_err());
    }
}
