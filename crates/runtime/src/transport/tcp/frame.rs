//! What goes over the wire. All numbers little endian.
//!
//! Forward, 56 bytes: `magic u32 | kind u8 | zero [u8; 3] | signature [u64; 2] | sequence | total | offset | len u64`,
//! then `len` bytes. A goodbye has zeros after its kind.
//! Backward, 16 bytes: `magic u32 | kind u8 | zero [u8; 3] | value u64`; a refusal's value is the length of its text,
//! which follows; an acknowledgement's value is the number of data frames consumed since the beginning.

use crate::transport::{Header, REFUSAL_BYTES};

/// Bytes of a forward frame's header.
pub(super) const FORWARD: usize = 56;
/// Bytes of a backward frame's header.
pub(super) const BACKWARD: usize = 16;

const MAGIC: [u8; 4] = *b"oxT1";
const DATA: u8 = 1;
const GOODBYE: u8 = 2;
const ACK: u8 = 3;
const REFUSE: u8 = 4;

/// From the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Forward {
    Data(Header),
    Goodbye,
}

/// From the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Backward {
    /// Frames consumed.
    Ack(u64),
    /// Bytes of text that follow, at most [`REFUSAL_BYTES`].
    Refuse(usize),
    Goodbye,
}

fn start(out: &mut [u8], kind: u8) {
    out[..4].copy_from_slice(&MAGIC);
    out[4..8].copy_from_slice(&[kind, 0, 0, 0]);
}

/// The kind, if the first eight bytes are right.
fn kind(bytes: &[u8]) -> Option<u8> {
    (bytes[..4] == MAGIC && bytes[5..8] == [0; 3]).then_some(bytes[4])
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

impl Forward {
    pub(super) fn encode(self) -> [u8; FORWARD] {
        let mut out = [0; FORWARD];
        match self {
            Forward::Data(h) => {
                start(&mut out, DATA);
                let words = [h.signature[0], h.signature[1], h.sequence, h.total, h.offset, h.len];
                for (i, w) in words.into_iter().enumerate() {
                    out[8 + 8 * i..][..8].copy_from_slice(&w.to_le_bytes());
                }
            }
            Forward::Goodbye => start(&mut out, GOODBYE),
        }
        out
    }

    /// The frame in [`FORWARD`] bytes; `Err` says what is wrong.
    pub(super) fn decode(bytes: &[u8]) -> Result<Forward, &'static str> {
        match kind(bytes).ok_or("wrong magic number")? {
            DATA => {}
            GOODBYE if bytes[8..FORWARD].iter().all(|&b| b == 0) => return Ok(Forward::Goodbye),
            _ => return Err("unknown kind"),
        }
        let w = |i: usize| word(bytes, 8 + 8 * i);
        let header = Header { signature: [w(0), w(1)], sequence: w(2), total: w(3), offset: w(4), len: w(5) };
        let end = header.offset.checked_add(header.len).ok_or("length overflow")?;
        if end > header.total || (header.len == 0 && header.total != 0) {
            return Err("piece outside its message");
        }
        Ok(Forward::Data(header))
    }
}

impl Backward {
    pub(super) fn encode(self) -> [u8; BACKWARD] {
        let mut out = [0; BACKWARD];
        let (kind, value) = match self {
            Backward::Ack(count) => (ACK, count),
            Backward::Refuse(len) => (REFUSE, len as u64),
            Backward::Goodbye => (GOODBYE, 0),
        };
        start(&mut out, kind);
        out[8..].copy_from_slice(&value.to_le_bytes());
        out
    }

    /// The frame in [`BACKWARD`] bytes; `Err` says what is wrong.
    pub(super) fn decode(bytes: &[u8]) -> Result<Backward, &'static str> {
        let value = word(bytes, 8);
        match kind(bytes).ok_or("wrong magic number")? {
            ACK => Ok(Backward::Ack(value)),
            REFUSE if value <= REFUSAL_BYTES as u64 => Ok(Backward::Refuse(value as usize)),
            REFUSE => Err("refusal too long"),
            GOODBYE if value == 0 => Ok(Backward::Goodbye),
            _ => Err("unknown kind"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_round_trip() {
        let h = Header { signature: [1, 2], sequence: 3, total: 100, offset: 60, len: 40 };
        for f in [Forward::Data(h), Forward::Goodbye] {
            assert_eq!(Forward::decode(&f.encode()), Ok(f));
        }
        for b in [Backward::Ack(7), Backward::Refuse(REFUSAL_BYTES), Backward::Goodbye] {
            assert_eq!(Backward::decode(&b.encode()), Ok(b));
        }
    }

    #[test]
    fn garbage_is_found() {
        let h = Header { signature: [1, 2], sequence: 3, total: 100, offset: 60, len: 41 };
        assert!(Forward::decode(&Forward::Data(h).encode()).is_err());
        assert!(Forward::decode(&Forward::Data(Header { offset: u64::MAX, len: 2, ..h }).encode()).is_err());
        assert!(Backward::decode(&Backward::Refuse(REFUSAL_BYTES + 1).encode()).is_err());
        assert!(Forward::decode(&[0; FORWARD]).is_err());
        for at in 0..8 {
            let mut bytes = Forward::Goodbye.encode();
            bytes[at] ^= 0x40;
            assert!(Forward::decode(&bytes).is_err(), "byte {at}");
        }
    }
}
