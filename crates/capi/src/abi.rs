//! The types of `nccl.h`, as C lays them out on 64-bit Linux.
//!
//! Enums of C are plain integers here: a caller may pass any value, and a Rust enum with an unknown value would be
//! undefined behaviour before it could be checked.
#![allow(non_camel_case_types, non_snake_case)]

pub use std::ffi::{c_char, c_int, c_uint, c_void};

/// A communicator handle; opaque to C.
pub type ncclComm_t = *mut crate::handle::Comm;
/// A result code, 0 to 7.
pub type ncclResult_t = c_int;
/// An element type, 0 to 11.
pub type ncclDataType_t = c_int;
/// A reduction operation: 0 to 4, or a value made by `ncclRedOpCreatePreMulSum`.
pub type ncclRedOp_t = c_int;
/// Where the scalar of a `PreMulSum` lives.
pub type ncclScalarResidence_t = c_int;
/// The colour of a rank that wants no new communicator.
pub const NCCL_SPLIT_NOCOLOR: c_int = -1;
/// End the parent's operations before it shrinks.
pub const NCCL_SHRINK_ABORT: c_int = 1;
/// The only flags of a revocation.
pub const NCCL_REVOKE_DEFAULT: c_int = 0;
/// Give memory back.
pub const NCCL_SUSPEND_MEM: c_int = 1;
/// Which figure `ncclCommMemStats` returns.
pub type ncclCommMemStat_t = c_int;
/// `cudaStream_t` or `hipStream_t`: null is the default stream of the current device.
pub type Stream_t = *mut c_void;
/// A window handle; opaque to C.
pub type ncclWindow_t = *mut c_void;
/// A handle of RCCL's removed MSCCL support.
pub type mscclAlgoHandle_t = c_int;
/// An event of the extension functions.
pub type oxcclEvent_t = *mut c_void;
/// A host function for a stream.
pub type HostFn = Option<unsafe extern "C" fn(*mut c_void)>;

/// No error.
pub const NCCL_SUCCESS: ncclResult_t = 0;
/// `NCCL_MAJOR` * 10000 + `NCCL_MINOR` * 100 + `NCCL_PATCH` of the interface.
pub const NCCL_VERSION_CODE: c_int = 22907;
/// Marks structs made by an initialiser macro.
pub const NCCL_API_MAGIC: c_uint = 0xcafe_beef;
/// Marks an `ncclSimInfo_t` made by its initialiser.
pub const NCCL_SIM_INFO_MAGIC: c_uint = 0x7468_5283;
/// An integer of `ncclConfig_t` that the caller left alone.
pub const NCCL_CONFIG_UNDEF_INT: c_int = c_int::MIN;
/// `ncclScalarDevice`.
pub const NCCL_SCALAR_DEVICE: ncclScalarResidence_t = 0;
/// `ncclScalarHostImmediate`.
pub const NCCL_SCALAR_HOST_IMMEDIATE: ncclScalarResidence_t = 1;

/// The 128 bytes that bring the ranks of a communicator together; passed by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ncclUniqueId {
    /// Private to the library.
    pub internal: [u8; 128],
}

/// Settings of one communicator.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs)]
pub struct ncclConfig_t {
    pub size: usize,
    pub magic: c_uint,
    pub version: c_uint,
    pub blocking: c_int,
    pub cgaClusterSize: c_int,
    pub minCTAs: c_int,
    pub maxCTAs: c_int,
    pub netName: *const c_char,
    pub splitShare: c_int,
    pub trafficClass: c_int,
    pub commName: *const c_char,
    pub collnetEnable: c_int,
    pub CTAPolicy: c_int,
    pub shrinkShare: c_int,
    pub nvlsCTAs: c_int,
    pub nChannelsPerNetPeer: c_int,
    pub nvlinkCentricSched: c_int,
    pub graphUsageMode: c_int,
    pub numRmaCtx: c_int,
}

/// What `ncclGroupSimulateEnd` answers.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs)]
pub struct ncclSimInfo_t {
    pub size: usize,
    pub magic: c_uint,
    pub version: c_uint,
    pub estimatedTime: f32,
}

/// One thing that `ncclWaitSignal` waits for.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs)]
pub struct ncclWaitSignalDesc_t {
    pub opCnt: c_int,
    pub peer: c_int,
    pub sigIdx: c_int,
    pub ctx: c_int,
}

/// A strided subset of ranks (device API).
#[repr(C)]
#[derive(Clone, Copy, Default)]
#[allow(missing_docs)]
pub struct ncclTeam_t {
    pub nRanks: c_int,
    pub rank: c_int,
    pub stride: c_int,
}

/// A multicast mapping (device API).
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs)]
pub struct ncclMultimemHandle {
    pub mcBasePtr: *mut c_void,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{align_of, offset_of, size_of};

    #[test]
    fn structs_have_the_layout_of_the_header() {
        assert_eq!((size_of::<ncclUniqueId>(), align_of::<ncclUniqueId>()), (128, 1));
        assert_eq!((size_of::<ncclConfig_t>(), align_of::<ncclConfig_t>()), (88, 8));
        assert_eq!(size_of::<ncclSimInfo_t>(), 24);
        let sim_info = (offset_of!(ncclSimInfo_t, size), offset_of!(ncclSimInfo_t, magic));
        assert_eq!(sim_info, (0, 8));
        let sim_info = (offset_of!(ncclSimInfo_t, version), offset_of!(ncclSimInfo_t, estimatedTime));
        assert_eq!(sim_info, (12, 16));
        assert_eq!((size_of::<ncclWaitSignalDesc_t>(), align_of::<ncclWaitSignalDesc_t>()), (16, 4));
        let signal = (offset_of!(ncclWaitSignalDesc_t, opCnt), offset_of!(ncclWaitSignalDesc_t, peer));
        assert_eq!(signal, (0, 4));
        let signal = (offset_of!(ncclWaitSignalDesc_t, sigIdx), offset_of!(ncclWaitSignalDesc_t, ctx));
        assert_eq!(signal, (8, 12));
        assert_eq!((size_of::<ncclTeam_t>(), align_of::<ncclTeam_t>()), (12, 4));
        let team = (offset_of!(ncclTeam_t, nRanks), offset_of!(ncclTeam_t, rank), offset_of!(ncclTeam_t, stride));
        assert_eq!(team, (0, 4, 8));
        assert_eq!((size_of::<ncclMultimemHandle>(), offset_of!(ncclMultimemHandle, mcBasePtr)), (8, 0));
    }

    #[test]
    fn config_fields_are_where_every_release_put_them() {
        assert_eq!(offset_of!(ncclConfig_t, size), 0);
        assert_eq!(offset_of!(ncclConfig_t, magic), 8);
        assert_eq!(offset_of!(ncclConfig_t, version), 12);
        assert_eq!(offset_of!(ncclConfig_t, blocking), 16);
        assert_eq!(offset_of!(ncclConfig_t, cgaClusterSize), 20);
        assert_eq!(offset_of!(ncclConfig_t, minCTAs), 24);
        assert_eq!(offset_of!(ncclConfig_t, maxCTAs), 28);
        assert_eq!(offset_of!(ncclConfig_t, netName), 32);
        assert_eq!(offset_of!(ncclConfig_t, splitShare), 40);
        assert_eq!(offset_of!(ncclConfig_t, trafficClass), 44);
        assert_eq!(offset_of!(ncclConfig_t, commName), 48);
        assert_eq!(offset_of!(ncclConfig_t, collnetEnable), 56);
        assert_eq!(offset_of!(ncclConfig_t, CTAPolicy), 60);
        assert_eq!(offset_of!(ncclConfig_t, shrinkShare), 64);
        assert_eq!(offset_of!(ncclConfig_t, nvlsCTAs), 68);
        assert_eq!(offset_of!(ncclConfig_t, nChannelsPerNetPeer), 72);
        assert_eq!(offset_of!(ncclConfig_t, nvlinkCentricSched), 76);
        assert_eq!(offset_of!(ncclConfig_t, graphUsageMode), 80);
        assert_eq!(offset_of!(ncclConfig_t, numRmaCtx), 84);
    }
}
