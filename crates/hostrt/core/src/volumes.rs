//! Copies and fills of three dimensions, and copies in batches. Arrays of textures do not exist here: whatever names one
//! is refused.

use oxccl_hostrt_interface::{Address, CopyArea, FillArea, Status, status};

use crate::entry::stream;
use crate::host::host;
use crate::memory::{check, copy_and_wait, copy_async, copy_between, fill_area, flat};
use crate::{c_int, c_uint, c_void};

/// `cudaPitchedPtr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Pitched {
    pub(crate) ptr: *mut c_void,
    pub(crate) pitch: usize,
    pub(crate) width: usize,
    pub(crate) height: usize,
}

/// `cudaExtent`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Extent {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) depth: usize,
}

/// `cudaPos`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Position {
    x: usize,
    y: usize,
    z: usize,
}

const ORIGIN: Position = Position { x: 0, y: 0, z: 0 };

/// `cudaMemcpy3DParms` and `hipMemcpy3DParms`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Volume {
    src_array: *mut c_void,
    src_position: Position,
    src: Pitched,
    dst_array: *mut c_void,
    dst_position: Position,
    dst: Pitched,
    extent: Extent,
    direction: c_int,
}

/// `cudaMemcpy3DPeerParms`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PeerVolume {
    src_array: *mut c_void,
    src_position: Position,
    src: Pitched,
    src_device: c_int,
    dst_array: *mut c_void,
    dst_position: Position,
    dst: Pitched,
    dst_device: c_int,
    extent: Extent,
}

/// The first byte, the pitch and the slice of one side.
fn side(p: &Pitched, at: Position) -> (Address, usize, usize) {
    let slice = p.pitch.wrapping_mul(p.height);
    let offset = at.z.wrapping_mul(slice).wrapping_add(at.y.wrapping_mul(p.pitch)).wrapping_add(at.x);
    (Address(p.ptr.wrapping_byte_add(offset)), p.pitch, slice)
}

impl Volume {
    /// What is to be copied; an error number when arrays are involved or the numbers do not fit.
    pub(crate) fn area(&self) -> Result<CopyArea, Status> {
        if !self.src_array.is_null() || !self.dst_array.is_null() {
            return Err(status::NOT_SUPPORTED);
        }
        let (src, src_pitch, src_slice) = side(&self.src, self.src_position);
        let (dst, dst_pitch, dst_slice) = side(&self.dst, self.dst_position);
        let Extent { width, height, depth } = self.extent;
        let area = CopyArea { dst, dst_pitch, src, src_pitch, width, height, dst_slice, src_slice, depth };
        // A slice that is shorter than what is copied of it overlaps the next.
        if depth > 1 && (self.src.height < height || self.dst.height < height) {
            return Err(status::INVALID_VALUE);
        }
        match check(&area, self.direction) {
            status::SUCCESS => Ok(area),
            failure => Err(failure),
        }
    }

    pub(crate) fn direction(&self) -> c_int {
        self.direction
    }

    /// The parameters that describe an area.
    pub(crate) fn of(a: &CopyArea, direction: c_int) -> Volume {
        let pitched = |at: Address, pitch: usize, slice: usize| {
            let pitch = if pitch == 0 { a.width } else { pitch };
            let height = if pitch == 0 || slice == 0 { a.height } else { slice / pitch };
            Pitched { ptr: at.0, pitch, width: a.width, height }
        };
        Volume {
            src_array: std::ptr::null_mut(),
            src_position: ORIGIN,
            src: pitched(a.src, a.src_pitch, a.src_slice),
            dst_array: std::ptr::null_mut(),
            dst_position: ORIGIN,
            dst: pitched(a.dst, a.dst_pitch, a.dst_slice),
            extent: Extent { width: a.width, height: a.height, depth: a.depth },
            direction,
        }
    }
}

impl PeerVolume {
    fn volume(&self) -> Result<Volume, Status> {
        let devices = 0..host!(device_count());
        if !devices.contains(&self.src_device) || !devices.contains(&self.dst_device) {
            return Err(status::INVALID_DEVICE);
        }
        Ok(Volume {
            src_array: self.src_array,
            src_position: self.src_position,
            src: self.src,
            dst_array: self.dst_array,
            dst_position: self.dst_position,
            dst: self.dst,
            extent: self.extent,
            direction: 4,
        })
    }
}

/// # Safety
/// The memory that `volume` names is what the caller promised for a copy.
unsafe fn run(volume: Result<Volume, Status>, s: Option<*mut c_void>, during_call: bool) -> Status {
    match volume.and_then(|v| Ok((v.area()?, v.direction))) {
        Ok((area, direction)) => match s {
            // SAFETY: the caller's promise.
            Some(s) => unsafe { copy_async(area, direction, s, during_call) },
            // SAFETY: as above.
            None => unsafe { copy_and_wait(area, direction) },
        },
        Err(failure) => failure,
    }
}

/// # Safety
/// `p` is null or valid.
unsafe fn given<T: Copy>(p: *const T) -> Result<T, Status> {
    // SAFETY: the caller's promise.
    if p.is_null() { Err(status::INVALID_VALUE) } else { Ok(unsafe { p.read() }) }
}

pub unsafe fn copy_3d(p: *const Volume) -> Status {
    // SAFETY: the caller's promise.
    unsafe { run(given(p), None, false) }
}

pub unsafe fn copy_3d_on(p: *const Volume, s: *mut c_void) -> Status {
    // SAFETY: the caller's promise.
    unsafe { run(given(p), Some(s), false) }
}

pub unsafe fn copy_3d_peer(p: *const PeerVolume) -> Status {
    // SAFETY: the caller's promise.
    let parts = unsafe { given(p) }.and_then(|p| Ok((p.volume()?.area()?, p.dst_device, p.src_device)));
    match parts {
        // SAFETY: as above.
        Ok((area, to, from)) => unsafe { copy_between(area, to, from) },
        Err(failure) => failure,
    }
}

pub unsafe fn copy_3d_peer_on(p: *const PeerVolume, s: *mut c_void) -> Status {
    // SAFETY: the caller's promise.
    unsafe { run(given(p).and_then(|p| p.volume()), Some(s), false) }
}

unsafe fn fill(to: Pitched, value: c_int, extent: Extent, s: *mut c_void, wait: bool) -> Status {
    let Extent { width, height, depth } = extent;
    if depth > 1 && height != to.height {
        // Rows between the slices stay as they are: slice by slice.
        for z in 0..depth {
            let slice = Pitched { ptr: side(&to, Position { x: 0, y: 0, z }).0.0, ..to };
            // SAFETY: the caller's promise.
            let answer = unsafe { fill(slice, value, Extent { width, height, depth: 1 }, s, wait && z + 1 == depth) };
            if answer != status::SUCCESS {
                return answer;
            }
        }
        return status::SUCCESS;
    }
    let Some(rows) = height.checked_mul(depth) else { return status::INVALID_VALUE };
    let area =
        FillArea { dst: Address(to.ptr), pitch: to.pitch, value: value as c_uint, element: 1, width, height: rows };
    // SAFETY: the caller's promise.
    unsafe { fill_area(area, s, wait) }
}

pub unsafe fn fill_3d(to: Pitched, value: c_int, extent: Extent) -> Status {
    // SAFETY: the caller's promise.
    unsafe { fill(to, value, extent, std::ptr::null_mut(), true) }
}

pub unsafe fn fill_3d_on(to: Pitched, value: c_int, extent: Extent, s: *mut c_void) -> Status {
    // SAFETY: the caller's promise.
    unsafe { fill(to, value, extent, s, false) }
}

/// `cudaMemcpyAttributes`. All memory can be reached from everywhere here: of the rest only the order of the reads counts.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Attributes {
    order: c_int,
    hints: [[c_int; 2]; 2],
    flags: c_uint,
}

/// The source may be used again when the call returns.
const DURING_CALL: c_int = 2;

/// Whether a copy has the attributes of such a call: `indices` says with which copy each of them begins to count.
///
/// # Safety
/// Both lists are null or have `count` entries.
unsafe fn during_call(copy: usize, attributes: *const c_void, indices: *const usize, count: usize) -> bool {
    if attributes.is_null() || indices.is_null() {
        return false;
    }
    // SAFETY: the caller's promise.
    let of = (0..count).take_while(|i| unsafe { indices.add(*i).read() } <= copy).last();
    // SAFETY: as above.
    of.is_some_and(|i| unsafe { attributes.cast::<Attributes>().add(i).read() }.order == DURING_CALL)
}

/// Many copies in one call, in the order of the stream. CUDA 12's: `failed` tells which one failed.
#[allow(clippy::too_many_arguments)] // as in C
pub unsafe fn copy_batch12(
    dsts: *const *mut c_void,
    srcs: *const *const c_void,
    sizes: *const usize,
    count: usize,
    attributes: *const c_void,
    indices: *const usize,
    attribute_count: usize,
    failed: *mut usize,
    s: *mut c_void,
) -> Status {
    if dsts.is_null() || srcs.is_null() || sizes.is_null() || count == 0 || stream(s).addr() <= 1 {
        return status::INVALID_VALUE;
    }
    for i in 0..count {
        // SAFETY: the caller promises `count` entries in each list, and memory for each copy; of attributes as many as it says.
        let answer = unsafe {
            let area = flat(dsts.add(i).read(), srcs.add(i).read(), sizes.add(i).read());
            copy_async(area, 4, s, during_call(i, attributes, indices, attribute_count))
        };
        if answer != status::SUCCESS {
            if !failed.is_null() {
                // SAFETY: not null, hence valid by the caller's promise.
                unsafe { failed.write(i) };
            }
            return answer;
        }
    }
    status::SUCCESS
}

/// CUDA 13's.
#[allow(clippy::too_many_arguments)] // as in C
pub unsafe fn copy_batch13(
    dsts: *const *mut c_void,
    srcs: *const *const c_void,
    sizes: *const usize,
    count: usize,
    attributes: *const c_void,
    indices: *const usize,
    attribute_count: usize,
    s: *mut c_void,
) -> Status {
    let failed = std::ptr::null_mut();
    // SAFETY: the caller's promise.
    unsafe { copy_batch12(dsts, srcs, sizes, count, attributes, indices, attribute_count, failed, s) }
}

pub unsafe fn copy_with_attributes(
    dst: *mut c_void,
    src: *const c_void,
    bytes: usize,
    attributes: *const c_void,
    s: *mut c_void,
) -> Status {
    // SAFETY: the caller's promise; the attributes are one.
    unsafe { copy_async(flat(dst, src, bytes), 4, s, during_call(0, attributes, &0, 1)) }
}

/// One side of a copy in a batch: `cudaMemcpy3DOperand` of a pointer.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Operand {
    kind: c_int,
    ptr: *mut c_void,
    row: usize,
    layer: usize,
    location: [c_int; 2],
}

/// `cudaMemcpy3DBatchOp`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct BatchVolume {
    src: Operand,
    dst: Operand,
    extent: Extent,
    order: c_int,
    flags: c_uint,
}

impl BatchVolume {
    fn volume(&self) -> Result<Volume, Status> {
        const POINTER: c_int = 1;
        if self.src.kind != POINTER || self.dst.kind != POINTER {
            return Err(status::NOT_SUPPORTED);
        }
        let or = |given: usize, else_: usize| if given == 0 { else_ } else { given };
        let pitched = |o: &Operand| {
            let (pitch, height) = (or(o.row, self.extent.width), or(o.layer, self.extent.height));
            Pitched { ptr: o.ptr, pitch, width: self.extent.width, height }
        };
        let null = std::ptr::null_mut();
        Ok(Volume {
            src_array: null,
            src_position: ORIGIN,
            src: pitched(&self.src),
            dst_array: null,
            dst_position: ORIGIN,
            dst: pitched(&self.dst),
            extent: self.extent,
            direction: 4,
        })
    }
}

pub unsafe fn copy_3d_batch12(
    count: usize,
    ops: *const BatchVolume,
    failed: *mut usize,
    _flags: u64,
    s: *mut c_void,
) -> Status {
    if ops.is_null() || count == 0 || stream(s).addr() <= 1 {
        return status::INVALID_VALUE;
    }
    for i in 0..count {
        // SAFETY: the caller promises `count` entries, and memory for each copy.
        let answer = unsafe {
            let op = ops.add(i).read();
            run(op.volume(), Some(s), op.order == DURING_CALL)
        };
        if answer != status::SUCCESS {
            if !failed.is_null() {
                // SAFETY: not null, hence valid by the caller's promise.
                unsafe { failed.write(i) };
            }
            return answer;
        }
    }
    status::SUCCESS
}

pub unsafe fn copy_3d_batch13(count: usize, ops: *const BatchVolume, flags: u64, s: *mut c_void) -> Status {
    // SAFETY: the caller's promise.
    unsafe { copy_3d_batch12(count, ops, std::ptr::null_mut(), flags, s) }
}

const _: () = {
    assert!(size_of::<Volume>() == 160 && size_of::<PeerVolume>() == 168);
    assert!(size_of::<Operand>() == 40 && size_of::<BatchVolume>() == 112 && size_of::<Attributes>() == 24);
};
