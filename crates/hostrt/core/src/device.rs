//! Devices, their properties and peers; version and profiler calls.

use std::sync::OnceLock;

use oxccl_hostrt_interface::{Status, status};

use crate::entry::put;
use crate::host::host;
use crate::{c_char, c_int, c_uint, c_void};

const NO_DEVICE: Status = 100;

pub unsafe fn count(to: *mut c_int) -> Status {
    if crate::host::device().is_none() {
        // SAFETY: the caller's promise.
        unsafe { put(to, 0) };
        return NO_DEVICE;
    }
    // SAFETY: the caller's promise.
    unsafe { put(to, host!(device_count())) }
}

pub unsafe fn get(to: *mut c_int) -> Status {
    if crate::host::device().is_none() {
        return NO_DEVICE;
    }
    // SAFETY: the caller's promise.
    unsafe { put(to, host!(device_current())) }
}

pub unsafe fn set(device: c_int) -> Status {
    host!(device_set(device))
}

pub unsafe fn synchronize() -> Status {
    host!(device_synchronize(host!(device_current())))
}

/// A call that asks for what is so anyhow.
pub unsafe fn nothing() -> Status {
    status::SUCCESS
}

/// A flag or a limit that is not kept: reads as zero.
pub unsafe fn zero_flags(to: *mut c_uint) -> Status {
    // SAFETY: the caller's promise.
    unsafe { put(to, 0) }
}

pub unsafe fn version12(to: *mut c_int) -> Status {
    // SAFETY: the caller's promise.
    unsafe { put(to, 12090) }
}

pub unsafe fn version13(to: *mut c_int) -> Status {
    // SAFETY: the caller's promise.
    unsafe { put(to, 13000) }
}

pub unsafe fn version_hip(to: *mut c_int) -> Status {
    // SAFETY: the caller's promise.
    unsafe { put(to, 70_000_000) }
}

fn exists(device: c_int) -> bool {
    crate::host::device().is_some() && (0..host!(device_count())).contains(&device)
}

/// Domain and bus of a device: made up, different for each, the same in every process.
fn pci(device: c_int) -> (c_int, c_int) {
    (device / 255, device % 255 + 1)
}

pub unsafe fn pci_bus_id(text: *mut c_char, bytes: c_int, device: c_int) -> Status {
    if !exists(device) {
        return status::INVALID_DEVICE;
    }
    let (domain, bus) = pci(device);
    let id = format!("{domain:04x}:{bus:02x}:00.0");
    if text.is_null() || usize::try_from(bytes).is_ok_and(|b| b <= id.len()) || bytes < 0 {
        return status::INVALID_VALUE;
    }
    // SAFETY: the caller promises `bytes` bytes, which are more than the text has.
    unsafe {
        text.copy_from_nonoverlapping(id.as_ptr().cast(), id.len());
        text.add(id.len()).write(0);
    }
    status::SUCCESS
}

pub unsafe fn by_pci_bus_id(to: *mut c_int, text: *const c_char) -> Status {
    if text.is_null() {
        return status::INVALID_VALUE;
    }
    // SAFETY: the caller promises a string.
    let text = unsafe { std::ffi::CStr::from_ptr(text) }.to_string_lossy();
    let mut parts = text.split([':', '.']).map(|p| c_int::from_str_radix(p, 16).ok());
    let found = match (parts.next().flatten(), parts.next().flatten(), parts.next().flatten()) {
        (Some(domain), Some(bus), Some(0)) if (1..=255).contains(&bus) => domain * 255 + bus - 1,
        _ => return status::INVALID_VALUE,
    };
    if !exists(found) {
        return status::INVALID_DEVICE;
    }
    // SAFETY: the caller's promise.
    unsafe { put(to, found) }
}

pub unsafe fn can_access_peer(to: *mut c_int, device: c_int, peer: c_int) -> Status {
    if !exists(device) || !exists(peer) {
        return status::INVALID_DEVICE;
    }
    // SAFETY: the caller's promise.
    unsafe { put(to, c_int::from(device != peer)) }
}

/// 1: performance rank (0, best), 2: access, 3: native atomics, 4: arrays.
pub unsafe fn p2p_attribute(to: *mut c_int, attribute: c_int, device: c_int, peer: c_int) -> Status {
    if !exists(device) || !exists(peer) || device == peer {
        return status::INVALID_DEVICE;
    }
    let value = match attribute {
        1 | 4 => 0,
        2 | 3 => 1,
        _ => return status::INVALID_VALUE,
    };
    // SAFETY: the caller's promise.
    unsafe { put(to, value) }
}

/// HIP counts from zero.
pub unsafe fn p2p_attribute_hip(to: *mut c_int, attribute: c_int, device: c_int, peer: c_int) -> Status {
    // SAFETY: the caller's promise.
    unsafe { p2p_attribute(to, attribute.saturating_add(1), device, peer) }
}

fn cores() -> c_int {
    // SAFETY: takes a number, gives a number.
    unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) }.clamp(1, 4096) as c_int
}

/// Free and all memory that this process may have, in bytes: the machine's, or its control group's when that has less.
pub(crate) fn memory() -> (usize, usize) {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let of = |name: &str| {
        let line = text.lines().find_map(|l| l.strip_prefix(name));
        line.and_then(|l| l.trim().trim_end_matches(" kB").parse::<usize>().ok()).map_or(0, |kb| kb << 10)
    };
    let (free, all) = (of("MemAvailable:"), of("MemTotal:"));
    let group =
        |file: &str| std::fs::read_to_string(format!("/sys/fs/cgroup/{file}")).ok()?.trim().parse::<usize>().ok();
    match (group("memory.max"), group("memory.current")) {
        (Some(most), Some(used)) if most < all => (free.min(most.saturating_sub(used)), most),
        _ => (free, all),
    }
}

/// The numbers of `cudaDeviceAttr` that have an answer; all others are zero.
fn attribute_value(attribute: c_int, device: c_int) -> c_int {
    let (domain, bus) = pci(device);
    match attribute {
        1..=3 => 1024,
        4 => 64,
        5 => c_int::MAX,
        6 | 7 => 65535,
        8 | 81 | 97 => 48 << 10,
        9 => 64 << 10,
        10 => 32,
        11 => c_int::MAX,
        12 | 82 => 65536,
        14 => 512,
        16 => cores(),
        // Device overlap, mapping, concurrency, one address space, priorities, managed memory, atomics, pageable
        // access, concurrent managed access, host registration, memory pools, shared events.
        15 | 19 | 31 | 40 | 41 | 78 | 83 | 86 | 88 | 89 | 91 | 99 | 100 | 115 | 125 => 1,
        33 => bus,
        39 => 2048,
        50 => domain,
        75 => 9,
        85 => device,
        _ => 0,
    }
}

pub unsafe fn attribute(to: *mut c_int, attribute: c_int, device: c_int) -> Status {
    if !exists(device) {
        return status::INVALID_DEVICE;
    }
    if !(1..1000).contains(&attribute) {
        return status::INVALID_VALUE;
    }
    // SAFETY: the caller's promise.
    unsafe { put(to, attribute_value(attribute, device)) }
}

/// 16 bytes that no device of another machine has, as far as the kernel's boot id is unique.
pub(crate) fn uuid(device: c_int) -> [u8; 16] {
    static BOOT: OnceLock<u128> = OnceLock::new();
    let boot = *BOOT.get_or_init(|| {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        u128::from_str_radix(&text.replace('-', "").trim().to_ascii_lowercase(), 16).unwrap_or(0)
    });
    (boot ^ (device as u128 + 1)).to_be_bytes()
}

pub unsafe fn get_uuid(to: *mut [u8; 16], device: c_int) -> Status {
    if !exists(device) {
        return status::INVALID_DEVICE;
    }
    // SAFETY: the caller's promise.
    unsafe { put(to, uuid(device)) }
}

/// What differs from device to device or from machine to machine.
pub(crate) struct Facts {
    pub(crate) name: String,
    pub(crate) memory: usize,
    pub(crate) processors: c_int,
    pub(crate) domain: c_int,
    pub(crate) bus: c_int,
}

pub(crate) fn facts(device: c_int) -> Option<Facts> {
    let (domain, bus) = pci(device);
    let name = format!("oxccl host device {device}");
    exists(device).then(|| Facts { name, memory: memory().1, processors: cores(), domain, bus })
}

/// Where the fields of `cudaDeviceProp` lie. The first 388 bytes are alike in all versions.
struct Layout {
    bytes: usize,
    multi_processors: usize,
    integrated: usize,
    can_map_host: usize,
    concurrent_kernels: usize,
    pci_bus: usize,
    pci_domain: usize,
    async_engines: usize,
    unified_addressing: usize,
    max_threads_per_processor: usize,
    priorities: usize,
    managed: usize,
    board_group: usize,
    atomics: usize,
    pageable: usize,
    concurrent_managed: usize,
    host_register: usize,
    pools: usize,
    shared_events: usize,
}

/// CUDA 12 and HIP 6 and 7, which appends fields.
const LAYOUT12: Layout = Layout {
    bytes: 1032,
    multi_processors: 388,
    integrated: 396,
    can_map_host: 400,
    concurrent_kernels: 576,
    pci_bus: 584,
    pci_domain: 592,
    async_engines: 600,
    unified_addressing: 604,
    max_threads_per_processor: 624,
    priorities: 628,
    managed: 652,
    board_group: 660,
    atomics: 664,
    pageable: 672,
    concurrent_managed: 676,
    host_register: 728,
    pools: 744,
    shared_events: 768,
};

/// CUDA 11: the layout of 12 cut short.
const BYTES11: usize = 712;

const LAYOUT13: Layout = Layout {
    bytes: 1008,
    multi_processors: 384,
    integrated: 388,
    can_map_host: 392,
    concurrent_kernels: 560,
    pci_bus: 568,
    pci_domain: 576,
    async_engines: 584,
    unified_addressing: 588,
    max_threads_per_processor: 604,
    priorities: 608,
    managed: 636,
    board_group: 644,
    atomics: 648,
    pageable: 652,
    concurrent_managed: 656,
    host_register: 704,
    pools: 720,
    shared_events: 744,
};

/// The properties of a device, as the bytes of the struct.
fn properties(device: c_int, l: &Layout) -> Vec<u8> {
    let mut all = vec![0; l.bytes];
    let mut at = |offset: usize, bytes: &[u8]| all[offset..offset + bytes.len()].copy_from_slice(bytes);
    let int = |v: c_int| v.to_ne_bytes();
    let (domain, bus) = pci(device);
    at(0, format!("oxccl host device {device}").as_bytes());
    at(256, &uuid(device));
    at(288, &memory().1.to_ne_bytes());
    at(296, &(48usize << 10).to_ne_bytes());
    at(304, &int(65536));
    at(308, &int(32));
    at(312, &(c_int::MAX as usize).to_ne_bytes());
    at(320, &int(1024));
    for (i, n) in [1024, 1024, 64, c_int::MAX, 65535, 65535].into_iter().enumerate() {
        at(324 + 4 * i, &int(n));
    }
    at(352, &(64usize << 10).to_ne_bytes());
    at(360, &int(9));
    at(368, &512usize.to_ne_bytes());
    at(l.multi_processors, &int(cores()));
    at(l.integrated, &int(0));
    at(l.pci_bus, &int(bus));
    at(l.pci_domain, &int(domain));
    at(l.max_threads_per_processor, &int(2048));
    at(l.board_group, &int(device));
    for offset in [
        l.can_map_host,
        l.concurrent_kernels,
        l.async_engines,
        l.unified_addressing,
        l.priorities,
        l.managed,
        l.atomics,
        l.pageable,
        l.concurrent_managed,
        l.host_register,
        l.pools,
        l.shared_events,
    ] {
        at(offset, &int(1));
    }
    all
}

unsafe fn write_properties(to: *mut c_void, device: c_int, layout: &Layout, bytes: usize) -> Status {
    if to.is_null() {
        return status::INVALID_VALUE;
    }
    if !exists(device) {
        return status::INVALID_DEVICE;
    }
    let all = properties(device, layout);
    // SAFETY: not null, hence a struct of `bytes` bytes by the caller's promise.
    unsafe { to.cast::<u8>().copy_from_nonoverlapping(all.as_ptr(), bytes) };
    status::SUCCESS
}

pub unsafe fn properties11(to: *mut c_void, device: c_int) -> Status {
    // SAFETY: the caller's promise.
    unsafe { write_properties(to, device, &LAYOUT12, BYTES11) }
}

pub unsafe fn properties12(to: *mut c_void, device: c_int) -> Status {
    // SAFETY: the caller's promise.
    unsafe { write_properties(to, device, &LAYOUT12, LAYOUT12.bytes) }
}

pub unsafe fn properties13(to: *mut c_void, device: c_int) -> Status {
    // SAFETY: the caller's promise.
    unsafe { write_properties(to, device, &LAYOUT13, LAYOUT13.bytes) }
}

/// `hipDeviceProp_tR0600`: CUDA's fields, then HIP's own.
pub unsafe fn properties_hip(to: *mut c_void, device: c_int) -> Status {
    const BYTES: usize = 1472;
    const ARCHITECTURE: usize = 1160;
    // SAFETY: the caller's promise.
    let answer = unsafe { write_properties(to, device, &LAYOUT12, LAYOUT12.bytes) };
    if answer == status::SUCCESS {
        let name = b"oxccl-host\0";
        // SAFETY: the struct is `BYTES` long by the caller's promise.
        unsafe {
            to.cast::<u8>().add(LAYOUT12.bytes).write_bytes(0, BYTES - LAYOUT12.bytes);
            to.cast::<u8>().add(ARCHITECTURE).copy_from_nonoverlapping(name.as_ptr(), name.len());
        }
    }
    answer
}

pub unsafe fn choose(to: *mut c_int, _properties: *const c_void) -> Status {
    // SAFETY: the caller's promise.
    unsafe { put(to, 0) }
}

pub unsafe fn name(text: *mut c_char, bytes: c_int, device: c_int) -> Status {
    if !exists(device) {
        return status::INVALID_DEVICE;
    }
    let name = format!("oxccl host device {device}");
    let Some(room) = usize::try_from(bytes).ok().and_then(|b| b.checked_sub(1)).filter(|_| !text.is_null()) else {
        return status::INVALID_VALUE;
    };
    let n = name.len().min(room);
    // SAFETY: the caller promises `bytes` bytes.
    unsafe {
        text.copy_from_nonoverlapping(name.as_ptr().cast(), n);
        text.add(n).write(0);
    }
    status::SUCCESS
}

pub unsafe fn total_memory(to: *mut usize, device: c_int) -> Status {
    if !exists(device) {
        return status::INVALID_DEVICE;
    }
    // SAFETY: the caller's promise.
    unsafe { put(to, memory().1) }
}

/// The numbers of `hipDeviceAttribute_t` that have an answer; all others are zero.
pub unsafe fn attribute_hip(to: *mut c_int, attribute: c_int, device: c_int) -> Status {
    if !exists(device) {
        return status::INVALID_DEVICE;
    }
    let (domain, bus) = pci(device);
    let value = match attribute {
        // As in `attribute_value`: engines, mapping, concurrency, atomics, managed memory, pageable access, priorities, addressing,
        // pools, host registration.
        2 | 3 | 8 | 9 | 15 | 24 | 65 | 78 | 85 | 88 | 90 => 1,
        23 => 9,
        // Blocks and grids.
        26 | 27 => 1024,
        28 => 64,
        29 => c_int::MAX,
        30 | 31 => 65535,
        56 => 1024,
        57 => 2048,
        58 => c_int::MAX,
        62 => device,
        63 => cores(),
        67 => bus,
        69 => domain,
        71 => 65536,
        74 => 48 << 10,
        81 => 512,
        83 => 64 << 10,
        87 => 32,
        _ => 0,
    };
    // SAFETY: the caller's promise.
    unsafe { put(to, value) }
}

/// HIP's handle of a device is its number.
pub unsafe fn by_number(to: *mut c_int, number: c_int) -> Status {
    if !exists(number) {
        return status::INVALID_DEVICE;
    }
    // SAFETY: the caller's promise.
    unsafe { put(to, number) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As here, where no library of oxccl is loaded, nor beside this program.
    #[test]
    fn without_a_host_device_there_is_no_current_one() {
        let mut device = 7;
        // SAFETY: our own place.
        assert_eq!(unsafe { get(&mut device) }, NO_DEVICE);
        assert_eq!(device, 7);
    }
}
