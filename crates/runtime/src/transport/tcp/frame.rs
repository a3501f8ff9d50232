//! What goes over the wire, either way. All numbers little endian.
//!
//! A frame is 64 bytes: `magic u32 | kind u8 | zero [u8; 3] | six words | zero u64`. Of data the words are `signature [u64; 2],
//! sequence, total, offset, len`, and `len` bytes follow. Of the other kinds the first word is the value and the rest is
//! zero: an acknowledgement's is the number of data frames consumed since the beginning, a refusal's the length of its
//! text, which follows, a goodbye's is zero.

use crate::transport::{Header, REFUSAL_BYTES};

/// Bytes of a frame's header: a line, so that what follows lies in the kernel's pages as it does in the caller's memory. The
/// kernel copies lines into lines much faster than across them, above all where another core has them.
pub(super) const HEADER: usize = 64;
const _: () = assert!(HEADER.is_multiple_of(64));

const MAGIC: [u8; 4] = *b"oxT3";
const DATA: u8 = 1;
const GOODBYE: u8 = 2;
const ACK: u8 = 3;
const REFUSE: u8 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frame {
    Data(Header),
    /// Data frames consumed.
    Ack(u64),
    /// Bytes of text that follow, at most [`REFUSAL_BYTES`].
    Refuse(usize),
    Goodbye,
}

impl Frame {
    pub(super) fn encode(self) -> [u8; HEADER] {
        let (kind, words) = match self {
            Frame::Data(h) => (DATA, [h.signature[0], h.signature[1], h.sequence, h.total, h.offset, h.len]),
            Frame::Ack(count) => (ACK, [count, 0, 0, 0, 0, 0]),
            Frame::Refuse(len) => (REFUSE, [len as u64, 0, 0, 0, 0, 0]),
            Frame::Goodbye => (GOODBYE, [0; 6]),
        };
        let mut out = [0; HEADER];
        out[..4].copy_from_slice(&MAGIC);
        out[4] = kind;
        out[8..56].chunks_exact_mut(8).zip(words).for_each(|(at, word)| at.copy_from_slice(&word.to_le_bytes()));
        out
    }

    /// The frame that begins with these bytes; `Err` says what is wrong.
    pub(super) fn decode(bytes: &[u8; HEADER]) -> Result<Frame, &'static str> {
        if bytes[..4] != MAGIC || bytes[5..8] != [0; 3] || bytes[56..] != [0; 8] {
            return Err("wrong magic number");
        }
        let mut w = [0; 6];
        w.iter_mut().zip(bytes[8..56].as_chunks::<8>().0).for_each(|(w, b)| *w = u64::from_le_bytes(*b));
        if bytes[4] == DATA {
            let header = Header {
                signature: [w[0], w[1]],
                sequence: w[2],
                total: w[3],
                offset: w[4],
                len: w[5],
                outgrown: false,
                copied: false,
            };
            let end = header.offset.checked_add(header.len).ok_or("length overflow")?;
            if end > header.total || (header.len == 0 && header.total != 0) {
                return Err("piece outside its message");
            }
            return Ok(Frame::Data(header));
        }
        if w[1..] != [0; 5] {
            return Err("words where none belong");
        }
        match bytes[4] {
            ACK => Ok(Frame::Ack(w[0])),
            REFUSE if w[0] <= REFUSAL_BYTES as u64 => Ok(Frame::Refuse(w[0] as usize)),
            REFUSE => Err("refusal too long"),
            GOODBYE if w[0] == 0 => Ok(Frame::Goodbye),
            _ => Err("unknown kind"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_round_trip() {
        let h = Header { signature: [1, 2], sequence: 3, total: 100, offset: 60, len: 40, ..Header::default() };
        for f in [Frame::Data(h), Frame::Goodbye, Frame::Ack(7), Frame::Refuse(REFUSAL_BYTES)] {
            assert_eq!(Frame::decode(&f.encode()), Ok(f));
        }
    }

    #[test]
    fn garbage_is_found() {
        let h = Header { signature: [1, 2], sequence: 3, total: 100, offset: 60, len: 41, ..Header::default() };
        assert!(Frame::decode(&Frame::Data(h).encode()).is_err());
        assert!(Frame::decode(&Frame::Data(Header { offset: u64::MAX, len: 2, ..h }).encode()).is_err());
        assert!(Frame::decode(&Frame::Refuse(REFUSAL_BYTES + 1).encode()).is_err());
        assert!(Frame::decode(&[0; HEADER]).is_err());
        for at in (0..8).chain([8, 16, HEADER - 1]) {
            let mut bytes = Frame::Goodbye.encode();
            bytes[at] ^= 0x40;
            assert!(Frame::decode(&bytes).is_err(), "byte {at}");
        }
    }
}
