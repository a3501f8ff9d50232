//! Copies and fills of memory areas, in steps.

use oxccl_types::Result;

use super::order;
use super::stream::{STEP_BYTES, Step, Stream, Task};

/// What a copy moves: `depth` slices of `height` rows of `width` bytes. Pitches (bytes from row to row) matter from the
/// second row on, slices (bytes from slice to slice) from the second slice on.
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
    /// Bytes from one written slice to the next.
    pub dst_slice: usize,
    /// Bytes from one read slice to the next.
    pub src_slice: usize,
    /// Slices.
    pub depth: usize,
}

impl Area {
    /// `bytes` bytes in one row.
    pub fn row(dst: *mut u8, src: *const u8, bytes: usize) -> Area {
        Area { dst, dst_pitch: 0, src, src_pitch: 0, width: bytes, height: 1, dst_slice: 0, src_slice: 0, depth: 1 }
    }

    /// Slices that follow each other without a gap are rows; rows that do are one.
    fn merged(mut self) -> Area {
        if self.depth > 1
            && self.dst_slice == self.dst_pitch * self.height
            && self.src_slice == self.src_pitch * self.height
        {
            self.height *= self.depth;
            self.depth = 1;
        }
        if self.depth == 1 && self.height > 1 && self.dst_pitch == self.width && self.src_pitch == self.width {
            self.width *= self.height;
            self.height = 1;
        }
        self
    }
}

// SAFETY: the pointers are the caller's, who promised that whichever thread runs the stream may use the memory.
unsafe impl Send for Area {}
// SAFETY: as for `Send`; a shared reference reads only the numbers.
unsafe impl Sync for Area {}

pub(super) struct MoveTask {
    area: Area,
    /// Where the source lies, of one that the stream keeps.
    _kept: Vec<u8>,
    slice: usize,
    row: usize,
    at: usize,
}

impl MoveTask {
    pub(super) fn new(area: Area) -> MoveTask {
        MoveTask { area: area.merged(), _kept: Vec::new(), slice: 0, row: 0, at: 0 }
    }

    /// A copy of bytes that it keeps.
    pub(super) fn of(dst: *mut u8, bytes: Vec<u8>) -> MoveTask {
        let task = MoveTask::new(Area::row(dst, bytes.as_ptr(), bytes.len()));
        MoveTask { _kept: bytes, ..task }
    }

    fn is_over(&self) -> bool {
        self.slice >= self.area.depth || self.area.width == 0 || self.area.height == 0
    }
}

impl Task for MoveTask {
    fn step(&mut self) -> Step {
        let Area { dst, dst_pitch, src, src_pitch, width, height, dst_slice, src_slice, .. } = self.area;
        let mut left = STEP_BYTES;
        while !self.is_over() && left > 0 {
            let n = (width - self.at).min(left);
            // SAFETY: `slice`, `row` and `at` stay inside the area, which the caller promised to keep and not to touch.
            unsafe {
                let to = dst.add(self.slice * dst_slice + self.row * dst_pitch + self.at);
                let from = src.add(self.slice * src_slice + self.row * src_pitch + self.at);
                oxccl_kernels::copy_part(&[to], from, n, width);
            }
            left -= n;
            self.at += n;
            if self.at == width {
                self.at = 0;
                self.row += 1;
            }
            if self.row == height {
                self.row = 0;
                self.slice += 1;
            }
        }
        if self.is_over() { Step::Done } else { Step::Progress }
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

impl Stream {
    /// Copies an area in stream order and waits for that, but for nothing that others enqueue meanwhile.
    ///
    /// # Safety
    /// As for [`copy_area`](Self::copy_area).
    pub unsafe fn copy_area_now(&self, area: Area) -> Result<()> {
        self.run_now(Box::new(MoveTask::new(area)))
    }

    /// The same of a fill.
    ///
    /// # Safety
    /// As for [`fill_area`](Self::fill_area).
    pub unsafe fn fill_area_now(&self, fill: Fill) -> Result<()> {
        self.run_now(Box::new(fill.task()))
    }

    fn run_now(&self, task: Box<dyn Task>) -> Result<()> {
        self.refuse_while_capturing("waited for")?;
        order::before_push(self);
        let enqueued = self.push_unordered(task);
        self.synchronize_to(enqueued)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_and_rows_arrive_where_they_belong() {
        let src: Vec<u8> = (0..=255).collect();
        let mut dst = vec![0u8; 256];
        // Two slices of three rows of four bytes; another pitch on each side.
        let area = Area {
            dst: dst.as_mut_ptr(),
            dst_pitch: 5,
            src: src.as_ptr(),
            src_pitch: 8,
            width: 4,
            height: 3,
            dst_slice: 20,
            src_slice: 64,
            depth: 2,
        };
        let mut task = MoveTask::new(area);
        assert!(matches!(task.step(), Step::Done));
        let mut want = vec![0u8; 256];
        for (slice, row, at) in (0..2).flat_map(|s| (0..3).flat_map(move |r| (0..4).map(move |a| (s, r, a)))) {
            want[slice * 20 + row * 5 + at] = src[slice * 64 + row * 8 + at];
        }
        assert_eq!(dst, want);
        let whole = Area { dst_pitch: 4, src_pitch: 4, dst_slice: 12, src_slice: 12, ..area }.merged();
        assert_eq!((whole.width, whole.height, whole.depth), (24, 1, 1));
    }
}
