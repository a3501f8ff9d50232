//! The types of `nccl_device.h` that host functions read and write, as C lays them out; and the layouts of releases
//! 2.29.2 and 2.29.3 where they differ.
#![allow(non_camel_case_types, non_snake_case, missing_docs)]

use crate::abi::*;

/// What a window handle points to; programs compute addresses from it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ncclWindow_vidmem {
    pub winHost: *mut c_void,
    /// The window in the part of LSA rank 0.
    pub lsaFlatBase: *mut u8,
    pub lsaRank: c_int,
    pub worldRank: c_int,
    /// Distance of neighbours' parts in units of 4 GiB.
    pub stride4G: u32,
    pub mcOffset4K: u32,
    pub ginOffset4K: u32,
    pub ginWins: [*mut c_void; 4],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ncclCommProperties_t {
    pub size: usize,
    pub magic: c_uint,
    pub version: c_uint,
    pub rank: c_int,
    pub nRanks: c_int,
    pub cudaDev: c_int,
    pub nvmlDev: c_int,
    pub deviceApiSupport: bool,
    pub multimemSupport: bool,
    pub ginType: c_int,
    pub nLsaTeams: c_int,
    pub hostRmaSupport: bool,
    pub railedGinType: c_int,
}

/// Bytes of `ncclCommProperties_t` in 2.29.2: up to `multimemSupport`, then `ginType` in one byte.
pub const PROPERTIES_22902: usize = 40;
/// Where that byte is.
pub const GIN_TYPE_22902: usize = 34;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ncclDevResourceRequirements_t {
    pub next: *mut ncclDevResourceRequirements_t,
    pub bufferSize: usize,
    pub bufferAlign: usize,
    pub outBufferHandle: *mut u32,
    pub ginSignalCount: c_int,
    pub ginCounterCount: c_int,
    pub outGinSignalStart: *mut u32,
    pub outGinCounterStart: *mut u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ncclTeamRequirements_t {
    pub next: *mut ncclTeamRequirements_t,
    pub team: ncclTeam_t,
    pub multimem: bool,
    pub outMultimemHandle: *mut ncclMultimemHandle,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ncclDevCommRequirements_t {
    pub size: usize,
    pub magic: c_uint,
    pub version: c_uint,
    pub resourceRequirementsList: *mut ncclDevResourceRequirements_t,
    pub teamRequirementsList: *mut ncclTeamRequirements_t,
    pub lsaMultimem: bool,
    pub barrierCount: c_int,
    pub lsaBarrierCount: c_int,
    pub railGinBarrierCount: c_int,
    pub lsaLLA2ABlockCount: c_int,
    pub lsaLLA2ASlotCount: c_int,
    pub ginForceEnable: bool,
    pub ginContextCount: c_int,
    pub ginSignalCount: c_int,
    pub ginCounterCount: c_int,
    pub ginConnectionType: c_int,
    pub ginExclusiveContexts: bool,
    pub ginQueueDepth: c_int,
}

/// Bytes of `ncclDevCommRequirements_t` in 2.29.2: up to `ginCounterCount`.
pub const REQUIREMENTS_22902: usize = 72;

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct ncclLsaBarrierHandle_t {
    pub bufHandle: u32,
    pub nBarriers: c_int,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct ncclGinBarrierHandle_t {
    pub signal0: u32,
    pub unused: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct ncclLLA2AHandle_t {
    pub bufHandle: u32,
    pub nSlots: u32,
}

/// Windows by address: programs search it for the one around a pointer.
#[repr(C)]
pub struct ncclDevCommWindowTable {
    pub entries: [WindowEntry; 32],
    pub next: *mut ncclDevCommWindowTable,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct WindowEntry {
    pub base: usize,
    pub size: usize,
    pub window: ncclWindow_t,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ncclDevComm_t {
    pub rank: c_int,
    pub nRanks: c_int,
    pub nRanks_rcp32: u32,
    pub lsaRank: c_int,
    pub lsaSize: c_int,
    pub lsaSize_rcp32: u32,
    pub windowTable: *mut ncclDevCommWindowTable,
    pub resourceWindow: ncclWindow_t,
    pub resourceWindow_inlined: ncclWindow_vidmem,
    pub lsaMultimem: ncclMultimemHandle,
    pub lsaBarrier: ncclLsaBarrierHandle_t,
    pub railGinBarrier: ncclGinBarrierHandle_t,
    /// 136 to 223: network resources and the abort flag, none of which there are here.
    pub network: [u64; 11],
}

/// Bytes of `ncclDevComm_t` in 2.29.2: the same up to 136.
pub const DEV_COMM_22902: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{offset_of, size_of};

    #[test]
    fn layouts_are_those_of_the_header() {
        assert_eq!(size_of::<ncclWindow_vidmem>(), 72);
        assert_eq!(offset_of!(ncclWindow_vidmem, stride4G), 24);
        assert_eq!(offset_of!(ncclWindow_vidmem, ginWins), 40);
        assert_eq!(size_of::<ncclCommProperties_t>(), 56);
        assert_eq!(offset_of!(ncclCommProperties_t, multimemSupport), 33);
        assert_eq!(offset_of!(ncclCommProperties_t, nLsaTeams), 40);
        assert_eq!(offset_of!(ncclCommProperties_t, railedGinType), 48);
        assert_eq!(size_of::<ncclDevResourceRequirements_t>(), 56);
        assert_eq!(size_of::<ncclTeamRequirements_t>(), 32);
        assert_eq!(size_of::<ncclDevCommRequirements_t>(), 88);
        assert_eq!(offset_of!(ncclDevCommRequirements_t, ginCounterCount), 68);
        assert_eq!(offset_of!(ncclDevCommRequirements_t, ginQueueDepth), 80);
        assert_eq!(size_of::<ncclDevCommWindowTable>(), 776);
        assert_eq!(size_of::<ncclDevComm_t>(), 224);
        assert_eq!(offset_of!(ncclDevComm_t, resourceWindow_inlined), 40);
        assert_eq!(offset_of!(ncclDevComm_t, lsaBarrier), 120);
        assert_eq!(offset_of!(ncclDevComm_t, network), 136);
    }
}
