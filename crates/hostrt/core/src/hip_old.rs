//! The properties of a device as programs built before HIP 6 expect them.

use oxccl_hostrt_interface::{Status, status};

use crate::device::{Facts, facts};
use crate::{c_char, c_int, c_uint, c_void};

/// `hipDeviceProp_tR0000`. What a host device has no answer for is zero.
#[repr(C)]
struct Properties {
    name: [c_char; 256],
    memory: usize,
    shared: usize,
    registers: c_int,
    warp: c_int,
    threads: c_int,
    block: [c_int; 3],
    grid: [c_int; 3],
    clocks: [c_int; 3],
    constant: usize,
    version: [c_int; 2],
    processors: c_int,
    cache: c_int,
    threads_per_processor: c_int,
    compute_mode: c_int,
    instruction_clock: c_int,
    architecture: c_uint,
    concurrent_kernels: c_int,
    pci: [c_int; 3],
    shared_per_processor: usize,
    multi_board: c_int,
    maps_host: c_int,
    gcn: c_int,
    gcn_name: [c_char; 256],
    flags: [c_int; 3],
    textures: [c_int; 7],
    flush: [usize; 2],
    pitch: usize,
    texture_alignment: [usize; 2],
    more: [c_int; 9],
    managed: [c_int; 5],
}

const _: () = assert!(size_of::<Properties>() == 792 && std::mem::offset_of!(Properties, managed) == 772);

fn text(of: &str) -> [c_char; 256] {
    let mut bytes = [0; 256];
    for (to, from) in bytes.iter_mut().zip(of.bytes().take(255)) {
        *to = from as c_char;
    }
    bytes
}

pub unsafe fn properties(to: *mut c_void, device: c_int) -> Status {
    if to.is_null() {
        return status::INVALID_VALUE;
    }
    let Some(Facts { name, memory, processors, domain, bus }) = facts(device) else { return status::INVALID_DEVICE };
    let all = Properties {
        name: text(&name),
        memory,
        shared: 48 << 10,
        registers: 65536,
        warp: 32,
        threads: 1024,
        block: [1024, 1024, 64],
        grid: [c_int::MAX, 65535, 65535],
        clocks: [0; 3],
        constant: 64 << 10,
        version: [9, 0],
        processors,
        cache: 0,
        threads_per_processor: 2048,
        compute_mode: 0,
        instruction_clock: 0,
        architecture: 0,
        concurrent_kernels: 1,
        pci: [domain, bus, 0],
        shared_per_processor: 48 << 10,
        multi_board: 0,
        maps_host: 1,
        gcn: 0,
        gcn_name: text("oxccl-host"),
        flags: [0; 3],
        textures: [0; 7],
        flush: [0; 2],
        pitch: c_int::MAX as usize,
        texture_alignment: [512, 32],
        more: [0; 9],
        managed: [1; 5],
    };
    // SAFETY: not null, hence a struct of this layout by the caller's promise.
    unsafe { to.cast::<Properties>().write(all) };
    status::SUCCESS
}
