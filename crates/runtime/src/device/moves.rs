//! Copies and fills of memory areas, in steps.

use super::stream::{STEP_BYTES, Step, Task};

/// What a copy moves: `height` rows of `width` bytes. Pitches (bytes from row to row) matter from the second row on.
#[derive(Clone, Copy, Debug)]
pub struct Area {
    /// First byte written.
    pub dst: *mut u8,
    /// Bytes from one written row to the next.
    pub dst_pitch: usize,
    /// First byte read.
    pub src: *const u8,
    /// Bytes from one read row to the next.
    pub src_pitch: usize,
    /// Bytes of a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
}

// SAFETY: the pointers are the caller's, who promised that whichever thread runs the stream may use the memory.
unsafe impl Send for Area {}
// SAFETY: as for `Send`; a shared reference reads only the numbers.
unsafe impl Sync for Area {}

pub(super) struct MoveTask {
    area: Area,
    row: usize,
    at: usize,
}

impl MoveTask {
    pub(super) fn new(mut area: Area) -> MoveTask {
        if area.height > 1 && area.dst_pitch == area.width && area.src_pitch == area.width {
            area = Area { width: area.width * area.height, height: 1, ..area };
        }
        MoveTask { area, row: 0, at: 0 }
    }
}

impl Task for MoveTask {
    fn step(&mut self) -> Step {
        let Area { dst, dst_pitch, src, src_pitch, width, height } = self.area;
        let mut left = STEP_BYTES;
        while self.row < height && width > 0 && left > 0 {
            let n = (width - self.at).min(left);
            // SAFETY: `row` and `at` stay inside the area, which the caller promised to keep and not to touch.
            unsafe {
                let to = dst.add(self.row * dst_pitch + self.at);
                let from = src.add(self.row * src_pitch + self.at);
                oxccl_kernels::copy(&[to], from, n);
            }
            left -= n;
            self.at += n;
            if self.at == width {
                self.at = 0;
                self.row += 1;
            }
        }
        if self.row == height || width == 0 { Step::Done } else { Step::Progress }
    }
}

/// What a fill writes: `height` rows of `width` elements.
#[derive(Clone, Copy, Debug)]
pub struct Fill {
    /// First byte written.
    pub dst: *mut u8,
    /// Bytes from row to row.
    pub pitch: usize,
    /// The element, in its low bytes.
    pub value: u32,
    /// Bytes of an element: 1, 2 or 4.
    pub element: usize,
    /// Elements of a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
}

// SAFETY: the pointer is the caller's, who promised that whichever thread runs the stream may use the memory.
unsafe impl Send for Fill {}
// SAFETY: as for `Send`; a shared reference reads only the numbers.
unsafe impl Sync for Fill {}

impl Fill {
    pub(super) fn task(self) -> FillTask {
        FillTask { fill: self, row: 0, at: 0 }
    }
}

pub(super) struct FillTask {
    fill: Fill,
    row: usize,
    at: usize,
}

impl Task for FillTask {
    fn step(&mut self) -> Step {
        let Fill { dst, pitch, value, element, width, height } = self.fill;
        let mut left = STEP_BYTES / element;
        while self.row < height && width > 0 && left > 0 {
            let n = (width - self.at).min(left);
            // SAFETY: `row` and `at` stay inside the area, which the caller promised to keep and not to touch.
            unsafe {
                let to = dst.add(self.row * pitch + self.at * element);
                match element {
                    2 => (0..n).for_each(|i| to.cast::<u16>().add(i).write_unaligned(value as u16)),
                    4 => (0..n).for_each(|i| to.cast::<u32>().add(i).write_unaligned(value)),
                    _ => to.write_bytes(value as u8, n),
                }
            }
            left -= n;
            self.at += n;
            if self.at == width {
                self.at = 0;
                self.row += 1;
            }
        }
        if self.row == height || width == 0 { Step::Done } else { Step::Progress }
    }
}
