//! `ncclConfig_t`: reading the struct of any release, and checking its fields.
//!
//! The environment's overrides are not applied here: the runtime reads it once per communicator. The header of this
//! library ends with 2.29's fields; programs that were built with a header of 2.30 bring two more, which are read too.

use crate::abi::*;
use crate::entry::{Failure, Outcome};
use oxccl_runtime::{CommConfig, log, most_channels};
use std::ffi::CStr;
use std::mem::size_of;

const UNDEF: c_int = NCCL_CONFIG_UNDEF_INT;

const fn version(major: c_uint, minor: c_uint) -> c_uint {
    if major <= 2 && minor <= 8 { major * 1000 + minor * 100 } else { major * 10000 + minor * 100 }
}

/// The struct of the newest release that is known, 2.30.5.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(non_snake_case)]
struct Newest {
    base: ncclConfig_t,
    maxP2pPeers: c_int,
    graphStreamOrdering: c_int,
}

/// A config in which nothing is set and that nobody has marked as initialised.
const UNSET: Newest = Newest { base: UNSET_BASE, maxP2pPeers: UNDEF, graphStreamOrdering: UNDEF };
const UNSET_BASE: ncclConfig_t = ncclConfig_t {
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
    let Newest { base: c, maxP2pPeers, graphStreamOrdering } = config;
    let flag = |value| defined(value).map(|v| v != 0);
    // SAFETY: the caller's promise on the strings.
    let (name, net_name) = unsafe { (text(c.commName), text(c.netName)) };
    for (field, value) in [("commName", &name), ("netName", &net_name)] {
        if let Some(value) = value {
            log::info(log::Subsys::ENV, &format!("Comm config {field} set to {value}"));
        }
    }
    Ok(CommConfig {
        blocking: flag(c.blocking),
        name,
        min_ctas: defined(c.minCTAs),
        max_ctas: defined(c.maxCTAs),
        net_name,
        split_share: flag(c.splitShare),
        shrink_share: flag(c.shrinkShare),
        launch_order: None,
        num_rma_ctx: defined(c.numRmaCtx),
        traffic_class: defined(c.trafficClass),
        max_p2p_peers: defined(maxP2pPeers),
        graph_usage_mode: defined(c.graphUsageMode),
        graph_stream_ordering: flag(graphStreamOrdering),
        channels_per_net_peer: defined(c.nChannelsPerNetPeer),
        cga_cluster_size: defined(c.cgaClusterSize),
        collnet_enable: flag(c.collnetEnable),
        cta_policy: defined(c.CTAPolicy),
        nvls_ctas: defined(c.nvlsCTAs),
        nvlink_centric_sched: flag(c.nvlinkCentricSched),
    })
}

/// Copies what both sides know; the rest stays unset. Longer structs of newer releases are fine.
unsafe fn read(config: *const ncclConfig_t) -> Outcome<Newest> {
    // SAFETY: the struct begins with its size.
    let size = unsafe { (&raw const (*config).size).read_unaligned() };
    let mut known = UNSET;
    // SAFETY: the caller's struct has `size` bytes, ours as many as `Newest`; all bit patterns are valid in all fields.
    unsafe {
        std::ptr::copy_nonoverlapping(
            config.cast::<u8>(),
            (&raw mut known).cast::<u8>(),
            size.min(size_of::<Newest>()),
        );
    }
    if known.base.magic != NCCL_API_MAGIC {
        return Err(Failure::argument(format!(
            "ncclConfig_t argument not initialized via NCCL_CONFIG_INITIALIZER (its size is {size}, its magic {:#x})",
            known.base.magic
        )));
    }
    Ok(known)
}

/// Padding of an old struct may hold anything: fields newer than the caller's header count as unset.
fn forget_unknown_fields(newest: &mut Newest) {
    let c = &mut newest.base;
    if c.version < version(2, 30) {
        newest.maxP2pPeers = UNDEF;
    }
    if c.version < version(2, 30) + 5 {
        newest.graphStreamOrdering = UNDEF;
    }
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
fn ranges(newest: &Newest) -> [(&'static str, c_int, c_int, c_int); 13] {
    const MAX: c_int = c_int::MAX;
    let c = &newest.base;
    // From 2.30 on none at all may be asked for.
    let least_contexts = if c.version < version(2, 30) { 1 } else { 0 };
    [
        ("blocking", c.blocking, 0, 1),
        ("cgaClusterSize", c.cgaClusterSize, 0, MAX),
        ("splitShare", c.splitShare, 0, 1),
        ("collnetEnable", c.collnetEnable, 0, 1),
        ("CTAPolicy", c.CTAPolicy, 0, 3),
        ("shrinkShare", c.shrinkShare, 0, 1),
        ("nvlsCTAs", c.nvlsCTAs, 1, MAX),
        ("nChannelsPerNetPeer", c.nChannelsPerNetPeer, 1, most_channels(log::flavour())),
        ("nvlinkCentricSched", c.nvlinkCentricSched, 0, 1),
        ("graphUsageMode", c.graphUsageMode, 0, 2),
        ("numRmaCtx", c.numRmaCtx, least_contexts, MAX),
        ("maxP2pPeers", newest.maxP2pPeers, 1, MAX),
        ("graphStreamOrdering", newest.graphStreamOrdering, 0, 1),
    ]
}

fn check(newest: &Newest) -> Outcome {
    for (name, value, least, most) in ranges(newest) {
        if value != UNDEF && !(least..=most).contains(&value) {
            let range = if most == c_int::MAX { format!(">= {least}") } else { format!("in {least}..{most}") };
            return Err(Failure::argument(format!(
                "Invalid config {name} attribute value {value}: it must be {range}"
            )));
        }
    }
    let c = &newest.base;
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

fn log_settings(newest: &Newest) {
    let c = &newest.base;
    let limits = [("minCTAs", c.minCTAs), ("maxCTAs", c.maxCTAs), ("trafficClass", c.trafficClass)];
    let settings = ranges(newest).into_iter().map(|(name, value, ..)| (name, value)).chain(limits);
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
        ncclConfig_t { magic: NCCL_API_MAGIC, version: NCCL_VERSION_CODE as c_uint, ..UNSET_BASE }
    }

    /// As the initialiser of 2.30.5 makes it.
    fn newest() -> Newest {
        let base = ncclConfig_t { size: 96, version: 23005, ..initialised() };
        Newest { base, ..UNSET }
    }

    fn parsed_newest(config: &Newest) -> Outcome<CommConfig> {
        // SAFETY: a reference is a valid pointer; the strings are literals or null.
        unsafe { parse(std::ptr::from_ref(config).cast()) }
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
        // (bytes, version, whether it has maxCTAs, trafficClass, commName, numRmaCtx, maxP2pPeers, the ordering)
        let shapes = [
            (24, 21403, [false; 6]),
            (24, 21602, [false; 6]),
            (40, 21705, [true, false, false, false, false, false]),
            (48, 21805, [true, false, false, false, false, false]),
            (48, 22505, [true, false, false, false, false, false]),
            (48, 22602, [true, true, false, false, false, false]),
            (72, 22705, [true, true, true, false, false, false]),
            (80, 22803, [true, true, true, false, false, false]),
            (88, 22907, [true, true, true, true, false, false]),
            (96, 23000, [true, true, true, true, true, false]),
            (96, 23004, [true, true, true, true, true, false]),
            (96, 23005, [true, true, true, true, true, true]),
            (96, 23007, [true, true, true, true, true, true]),
        ];
        for (size, version, has) in shapes {
            // What lies behind the caller's struct, and its padding, must not be read: all of it is set.
            let base = ncclConfig_t {
                size,
                version,
                blocking: 1,
                maxCTAs: 7,
                trafficClass: 1234,
                commName: c"name".as_ptr(),
                numRmaCtx: 3,
                ..initialised()
            };
            let read = parsed_newest(&Newest { base, maxP2pPeers: 5, graphStreamOrdering: 1 }).unwrap();
            assert_eq!(read.blocking, Some(true), "{version}");
            let found = [
                read.max_ctas == Some(7),
                read.traffic_class == Some(1234),
                read.name.as_deref() == Some("name"),
                read.num_rma_ctx == Some(3),
                read.max_p2p_peers == Some(5),
                read.graph_stream_ordering == Some(true),
            ];
            assert_eq!(found, has, "{version}");
        }
    }

    /// A struct of a release to come: its tail is ignored.
    #[test]
    fn longer_structs_are_read_as_far_as_they_are_known() {
        #[repr(C)]
        struct Longer(Newest, [u8; 32]);
        let mut longer = Longer(newest(), [0xff; 32]);
        (longer.0.base.size, longer.0.base.version, longer.0.maxP2pPeers) = (128, 23500, 9);
        // SAFETY: the struct is as long as it says.
        let read = unsafe { parse(std::ptr::from_ref(&longer).cast()) }.unwrap();
        assert_eq!(read.max_p2p_peers, Some(9));
    }

    #[test]
    fn the_fields_of_2_30_have_ranges_too() {
        let refused = |change: fn(&mut Newest)| {
            let mut config = newest();
            change(&mut config);
            parsed_newest(&config).is_err()
        };
        assert!(!refused(|c| c.maxP2pPeers = 1) && refused(|c| c.maxP2pPeers = 0) && refused(|c| c.maxP2pPeers = -1));
        assert!(!refused(|c| c.graphStreamOrdering = 0) && refused(|c| c.graphStreamOrdering = 2));
        assert!(!refused(|c| c.base.numRmaCtx = 0) && refused(|c| c.base.numRmaCtx = -1));
        // Before 2.30 there had to be one.
        assert!(refused(|c| (c.base.version, c.base.numRmaCtx) = (22907, 0)));
    }

    #[test]
    fn an_unmarked_or_short_struct_is_refused() {
        for config in [UNSET_BASE, ncclConfig_t { size: 8, ..initialised() }, ncclConfig_t { size: 0, ..initialised() }]
        {
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
