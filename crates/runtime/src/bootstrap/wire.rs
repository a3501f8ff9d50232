//! Frames between the ranks and the root, and what the first of them carries. Little endian.
//!
//! A frame is `[length u32][kind u8][body]`; frames are read only after authentication, and their length is bounded.

use std::net::SocketAddr;
use std::os::fd::AsFd;

use super::PeerInfo;
use super::id::{ENCODED_ADDRESS, decode_address, encode_address};
use crate::service::ProcessAddress;
use crate::service::io::{Limits, read_full};

/// Bytes in front of a body.
pub(super) const HEAD: usize = 5;
/// A rank's contribution to a round is at most this.
pub(super) const MOST_FROM_RANK: usize = 1 << 20;
/// What the root sends, or a delegate in the name of its part, is at most this.
pub(super) const MOST_FROM_ROOT: usize = 1 << 30;

/// More ranks than this cannot meet: what the root sends to each has about a KiB for each, and says where they are and what they
/// bring.
pub(super) const MOST_RANKS: usize = MOST_FROM_ROOT >> 10;

/// A rank's contribution: `[round u8][bytes]`.
pub(super) const ROUND: u8 = 1;
/// A rank gives up: text.
pub(super) const LEAVE: u8 = 2;
/// All contributions: `[round u8][nonce 16][{length u32, bytes} per rank]`.
pub(super) const RESULT: u8 = 3;
/// The initialisation failed: `[result code u8][text]`.
pub(super) const FAILED: u8 = 4;
/// The initialisation failed at another root: `[result code u8][text]`, of a delegate.
pub(super) const RELAY: u8 = 5;

/// The frame of `kind` with the concatenation of `parts`.
pub(super) fn frame(kind: u8, parts: &[&[u8]]) -> Vec<u8> {
    let len: usize = parts.iter().map(|p| p.len()).sum();
    let mut f = Vec::with_capacity(HEAD + len);
    f.extend_from_slice(&(len as u32).to_le_bytes());
    f.push(kind);
    for part in parts {
        f.extend_from_slice(part);
    }
    f
}

/// Length and kind of the frame that begins with `head`.
pub(super) fn head(head: &[u8; HEAD]) -> (usize, u8) {
    (u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize, head[4])
}

/// Reads one frame of the root.
pub(super) fn read_frame(fd: impl AsFd, limits: &Limits<'_>) -> std::io::Result<(u8, Vec<u8>)> {
    let mut first = [0; HEAD];
    read_full(&fd, &mut first, limits)?;
    let (len, kind) = head(&first);
    if len > MOST_FROM_ROOT {
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, format!("a message of {len} bytes")));
    }
    let mut body = vec![0; len];
    read_full(&fd, &mut body, limits)?;
    Ok((kind, body))
}

/// Takes bytes off the front; `None` at the end.
pub(super) struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(front)
    }
    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }
    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }
    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }
    pub(super) fn bytes(&mut self) -> Option<&'a [u8]> {
        let n = self.u32()? as usize;
        self.take(n)
    }
}

fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

/// What a rank tells all others in the first round.
pub(super) struct Info {
    pub peer: PeerInfo,
    /// Ranks with equal hints try to share memory.
    pub hint: Vec<u8>,
}

impl Info {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend_from_slice(&self.peer.pid.to_le_bytes());
        put(&mut out, self.peer.host.as_bytes());
        out.extend_from_slice(&self.peer.process.uuid);
        put(&mut out, &self.hint);
        out.extend_from_slice(&(self.peer.tcp.len() as u32).to_le_bytes());
        for address in &self.peer.tcp {
            let mut b = [0; ENCODED_ADDRESS];
            encode_address(&mut b, address);
            out.extend_from_slice(&b);
        }
        put(&mut out, &self.peer.payload);
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Info> {
        let mut r = Reader(bytes);
        let pid = r.u32()?;
        let host = String::from_utf8_lossy(r.bytes()?).into_owned();
        let process = ProcessAddress { uuid: r.array()? };
        let hint = r.bytes()?.to_vec();
        let count = r.u32()?;
        let tcp = (0..count).map(|_| decode_address(r.take(ENCODED_ADDRESS)?)).collect::<Option<Vec<SocketAddr>>>()?;
        let payload = r.bytes()?.to_vec();
        Some(Info { peer: PeerInfo { host, pid, process, tcp, payload }, hint })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn infos_round_trip_and_cut_ones_are_refused() {
        let peer = PeerInfo {
            host: "node-7".into(),
            pid: 4711,
            process: ProcessAddress { uuid: [9; 16] },
            tcp: vec!["10.0.0.1:1".parse().unwrap(), "[fd00::2]:65535".parse().unwrap()],
            payload: vec![1, 2, 3],
        };
        let bytes = Info { peer: peer.clone(), hint: vec![5; 40] }.encode();
        let back = Info::decode(&bytes).unwrap();
        assert_eq!((back.peer, back.hint), (peer, vec![5; 40]));
        for n in 0..bytes.len() {
            assert!(Info::decode(&bytes[..n]).is_none(), "{n}");
        }
    }
}
