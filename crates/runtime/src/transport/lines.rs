//! Bytes that begin with a cache line, in which the kernel and reductions move whole lines: what an allocator gives for long buffers
//! begins 16 bytes behind one as a rule.

use std::ops::{Deref, DerefMut};

const LINE: usize = 64;

/// Zeroed bytes, aligned to a line. Their pages cost nothing before they are used.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    bytes: Box<[u8]>,
    from: usize,
    len: usize,
}

impl Lines {
    pub(crate) fn new(len: usize) -> Lines {
        // Zeroed memory of a greater alignment would be written to be zeroed.
        let bytes: Box<[u8]> = vec![0; len + LINE - 1].into();
        let from = bytes.as_ptr().align_offset(LINE).min(LINE - 1);
        Lines { bytes, from, len }
    }
}

impl Deref for Lines {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.from..][..self.len]
    }
}

impl DerefMut for Lines {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.from..][..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::{LINE, Lines};

    #[test]
    fn they_begin_with_a_line_and_stay_there() {
        for len in [0, 1, 63, 64, 4096, 136 << 10, (4 << 20) + 5] {
            let mut lines = Lines::new(len);
            let at = lines.as_ptr();
            assert_eq!((at.addr() % LINE, lines.len()), (0, len));
            lines.fill(7);
            let moved = lines;
            assert!(moved.as_ptr() == at && moved.iter().all(|b| *b == 7));
        }
        assert!(Lines::default().is_empty());
    }
}
