//! Cases: what is called with which buffers, and the check of what came out.
//!
//! Every rank derives a case from the seed alone, so ranks need not talk to each other. Inputs repeat a tile of a prime
//! number of elements: a piece that lands elsewhere does not go unnoticed, and an oracle over the tile is enough.

use std::sync::Arc;

use oxccl_runtime::device::{self, Stream};
use oxccl_runtime::{Communicator, OpScalar, Operator, Request, VCounts, group};
use oxccl_types::{Collective, DataType, ReduceOp};

use crate::oracle::{self, Expected, Op};

/// Elements of a tile.
const TILE: usize = 4099;
/// Bytes watched before and after a buffer.
const GUARD: usize = 192;
const UNTOUCHED: u8 = 0xa5;

/// What is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Collective(Collective),
    WithBias,
    SendRecv,
}

impl What {
    pub const ALL: [What; 11] = [
        What::Collective(Collective::AllReduce),
        What::WithBias,
        What::Collective(Collective::Reduce),
        What::Collective(Collective::ReduceScatter),
        What::Collective(Collective::Broadcast),
        What::Collective(Collective::AllGather),
        What::Collective(Collective::Gather),
        What::Collective(Collective::Scatter),
        What::Collective(Collective::AllToAll),
        What::Collective(Collective::AllToAllV),
        What::SendRecv,
    ];

    pub fn collective(self) -> Collective {
        match self {
            What::Collective(c) => c,
            What::WithBias => Collective::AllReduce,
            What::SendRecv => Collective::Send,
        }
    }

    pub fn reduces(self) -> bool {
        self.collective().reduces()
    }
}

/// How inputs of reductions are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Values {
    /// Any bits.
    Any,
    /// Floats of like size, that neither overflow nor vanish.
    Like,
    /// -1, 0 and 1: every partial sum is exact.
    Units,
    /// Near the greatest value: their sum overflows, their average does not.
    Large,
}

/// Where buffers lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    Device,
    Malloc,
    Mixed,
}

/// How sure results are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    Once,
    PerStep,
}

/// One call of all ranks.
#[derive(Clone, Debug)]
pub struct Case {
    pub what: What,
    pub dtype: DataType,
    pub op: Op,
    pub count: usize,
    pub root: usize,
    pub stream: usize,
    seed: u64,
    values: Values,
    memory: Memory,
    rounding: Rounding,
    /// 0: nobody, 1: everybody, 2: some.
    in_place: u8,
    shift: usize,
}

/// Element counts that are interesting anywhere.
const COUNTS: [usize; 12] = [1, 2, 3, 7, 16, 17, 63, 64, 65, 1000, 4097, 0];

impl Case {
    pub fn draw(
        seed: u64,
        ranks: usize,
        (what, dtype, op): (What, DataType, Op),
        memory: Memory,
        rounding: Rounding,
    ) -> Case {
        let mut rng = fastrand::Rng::with_seed(seed);
        let element = dtype.size();
        let count = match rng.u32(..100) {
            0..80 => COUNTS[rng.usize(..COUNTS.len())],
            80..93 => rng.usize(8192..40_000) / element + 1,
            93..98 => rng.usize(270_000..400_000) / element,
            _ => ((1 << 20) / element + rng.usize(..9)).saturating_sub(4) / if ranks > 3 { 3 } else { 1 },
        };
        let spread = dtype == DataType::Float8e5m2 && ranks > 6;
        let values = match (rounding, rng.u8(..3)) {
            (Rounding::Once, 0) => Values::Any,
            (_, 2) if op == Op::Avg && what != What::WithBias && oracle::greatest(dtype).is_some() => Values::Large,
            (_, 1) if op != Op::Prod && !spread => Values::Units,
            _ => Values::Like,
        };
        Case {
            what,
            dtype,
            op,
            count,
            root: rng.usize(..ranks),
            stream: rng.usize(..2),
            seed: rng.u64(..),
            values,
            memory,
            rounding,
            in_place: rng.u8(..3),
            shift: rng.usize(..ranks),
        }
    }

    /// The same call with other data, in other buffers and perhaps in memory of another kind.
    pub fn anew(&self, seed: u64) -> Case {
        Case { seed, stream: 0, ..self.clone() }
    }

    /// A small call of the same kind with a count, data and buffers of its own. The same on all ranks.
    pub fn small(&self, rng: &mut fastrand::Rng) -> Case {
        let count = [2, 2, 2, 1, 3, 17, 64, 300][rng.usize(..8)];
        Case { count, seed: rng.u64(..), stream: 0, in_place: rng.u8(..3), shift: rng.usize(..2), ..self.clone() }
    }

    /// Whether every rank reads what every other gives.
    pub fn is_among_all(&self) -> bool {
        let c = self.what.collective();
        !c.rooted() && !matches!(self.what, What::WithBias | What::SendRecv) && c != Collective::AllToAllV
    }

    /// Whether making it twice in the same buffers gives what making it once does. The same on all ranks.
    pub fn may_repeat(&self) -> bool {
        self.in_place == 0 || !self.what.reduces()
    }

    /// Whether there is one output, and that is a buffer of its own on each rank that has one.
    pub fn may_spoil(&self) -> bool {
        self.in_place == 0 && self.what != What::SendRecv
    }

    /// Whether it is too large for announcing lines and small enough to be carried out by the call itself.
    pub fn is_medium(&self) -> bool {
        (8192..65536).contains(&(self.count * self.dtype.size()))
    }

    /// A call whose buffers have more than 2^31 bytes in all, in place.
    pub fn beyond_31_bits(collective: Collective, ranks: usize) -> Case {
        let bytes = (1 << 31) + 4099;
        Case {
            what: What::Collective(collective),
            dtype: DataType::Int8,
            op: Op::Sum,
            count: bytes / collective.output_blocks(ranks) + 1,
            root: 1,
            stream: 0,
            seed: bytes as u64,
            values: Values::Any,
            memory: Memory::Device,
            rounding: Rounding::Once,
            in_place: 1,
            shift: 0,
        }
    }

    fn rng(&self, rank: usize, block: usize, use_: u64) -> fastrand::Rng {
        let stream = (rank as u64 * 1009 + block as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        fastrand::Rng::with_seed(self.seed ^ stream ^ use_ << 56)
    }

    fn tile_len(&self, count: usize) -> usize {
        count.min(TILE) * self.dtype.size()
    }

    /// The bytes of `count` elements that `rank` contributes as its block `block`, at most a tile of them.
    fn tile(&self, rank: usize, block: usize, count: usize) -> Vec<u8> {
        let mut rng = self.rng(rank, block, 0);
        let len = self.tile_len(count);
        let t = self.dtype;
        if !self.what.reduces() || self.values == Values::Any || !t.is_float() {
            let mut bytes = vec![0; len];
            rng.fill(&mut bytes);
            return bytes;
        }
        let mut bytes = Vec::with_capacity(len);
        while bytes.len() < len {
            let x = match (self.values, self.op) {
                (Values::Units, _) => f64::from(rng.i8(-1..=1)),
                (Values::Large, _) => oracle::greatest(t).unwrap_or(1.0) * (0.4 + 0.4 * rng.f64()),
                (_, Op::Prod) => [0.75, 0.875, 1.0, 1.125, 1.25, 1.5][rng.usize(..6)] + small(&mut rng, t),
                _ => (0.5 + 1.5 * rng.f64()) * if rng.bool() { 1.0 } else { -1.0 },
            };
            bytes.extend(oracle::encode(t, if t == DataType::Float64 { x } else { f64::from(x as f32) }));
        }
        bytes
    }

    fn scalar(&self, rank: usize) -> Vec<u8> {
        let t = self.dtype;
        if t.is_float() {
            return oracle::encode(t, [0.5, 2.0, -1.5, 1.0][(rank + self.shift) % 4]);
        }
        [3u64, u64::MAX, 2, 129][(rank + self.shift) % 4].to_le_bytes()[..t.size()].to_vec()
    }

    /// Counts of `AlltoAllv`: elements from `from` to `to`, some of them none.
    fn v_count(&self, from: usize, to: usize) -> usize {
        let mut rng = self.rng(from, to, 2);
        if rng.u8(..4) == 0 { 0 } else { self.count / 2 + rng.usize(..self.count / 2 + 2) }
    }

    fn v_counts(&self, rank: usize, ranks: usize) -> VCounts {
        let mut v = VCounts::default();
        let (mut s, mut r) = (0, 3);
        // Receive blocks lie in reverse order, with gaps.
        for peer in 0..ranks {
            v.send_counts.push(self.v_count(rank, peer));
            v.send_displs.push(s);
            s += v.send_counts[peer] + 1;
            v.recv_counts.push(self.v_count(peer, rank));
        }
        v.recv_displs = vec![0; ranks];
        for peer in (0..ranks).rev() {
            v.recv_displs[peer] = r;
            r += v.recv_counts[peer] + 2;
        }
        v
    }

    /// Whether results are compared bit by bit.
    fn bitwise(&self) -> bool {
        let exact_op = matches!(self.op, Op::Max | Op::Min) || (self.values == Values::Units && self.op == Op::Sum);
        self.rounding == Rounding::Once || !self.dtype.is_float() || exact_op
    }

    fn is_in_place(&self, rank: usize) -> bool {
        match self.in_place {
            0 => false,
            1 => true,
            _ => self.rng(rank, 0, 3).bool(),
        }
    }

    fn expected_reduction(&self, rank: usize, ranks: usize, block: usize) -> Vec<Expected> {
        let element = self.dtype.size();
        let tiles: Vec<Vec<u8>> = (0..ranks).map(|r| self.tile(r, block, self.count)).collect();
        let scalars: Vec<Vec<u8>> = (0..ranks).map(|r| self.scalar(r)).collect();
        let bias = (self.what == What::WithBias).then(|| self.tile(1000 + rank, 0, self.count));
        (0..self.tile_len(self.count) / element)
            .map(|i| {
                let at = i * element..(i + 1) * element;
                let inputs: Vec<(&[u8], &[u8])> =
                    tiles.iter().zip(&scalars).map(|(t, s)| (&t[at.clone()], s.as_slice())).collect();
                oracle::reduce(self.dtype, self.op, &inputs, bias.as_ref().map(|b| &b[at]))
            })
            .collect()
    }
}

fn small(rng: &mut fastrand::Rng, t: DataType) -> f64 {
    if t.size() == 1 { 0.0 } else { rng.f64() / 64.0 }
}

/// Memory with watched ends.
pub struct Buffer {
    memory: *mut u8,
    bytes: usize,
    start: usize,
    len: usize,
    device: bool,
    owned: Vec<u8>,
}

impl Buffer {
    /// `len` bytes at an address that is `offset` modulo 64.
    pub fn new(len: usize, offset: usize, device: bool) -> Buffer {
        let bytes = len + 2 * GUARD + 128;
        let mut owned = Vec::new();
        let memory = if device {
            device::alloc(bytes).unwrap()
        } else {
            owned = vec![0; bytes];
            owned.as_mut_ptr()
        };
        // SAFETY: the allocation has `bytes` bytes.
        unsafe { std::ptr::write_bytes(memory, UNTOUCHED, bytes) };
        let start = GUARD + (64 - (memory as usize + GUARD) % 64) % 64 + offset;
        Buffer { memory, bytes, start, len, device, owned }
    }

    pub fn ptr(&self) -> *mut u8 {
        // SAFETY: inside the allocation.
        unsafe { self.memory.add(self.start) }
    }

    /// A copy of the buffer and its surroundings, once nobody writes it.
    fn all(&self) -> &[u8] {
        // SAFETY: the allocation has `bytes` initialised bytes and the streams are idle.
        unsafe { std::slice::from_raw_parts(self.memory, self.bytes) }
    }

    pub fn content(&self) -> &[u8] {
        &self.all()[self.start..self.start + self.len]
    }

    pub fn fill(&mut self, at: usize, len: usize, tile: &[u8]) {
        assert!(at + len <= self.len);
        // SAFETY: inside the buffer, as just checked; nobody else uses it: there was no call yet, or the streams are idle.
        let bytes = unsafe { std::slice::from_raw_parts_mut(self.ptr().add(at), len) };
        for chunk in bytes.chunks_mut(tile.len().max(1)) {
            chunk.copy_from_slice(&tile[..chunk.len()]);
        }
    }

    pub fn check_guards(&self, what: &dyn Fn() -> String) {
        let all = self.all();
        let outside = |r: &[u8]| r.iter().all(|b| *b == UNTOUCHED);
        assert!(outside(&all[..self.start]), "written before a buffer: {}", what());
        assert!(outside(&all[self.start + self.len..]), "written behind a buffer: {}", what());
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.device {
            // SAFETY: the streams that used it are idle.
            unsafe { device::free(self.memory) }.unwrap();
        }
        self.owned.clear();
    }
}

/// What a region of a buffer must hold when the call is done.
enum Want {
    /// The tile, repeated.
    Bytes(Vec<u8>),
    Reduced(Vec<Expected>),
}

/// A case with the buffers of one rank.
pub struct Prepared {
    pub case: Case,
    rank: usize,
    ranks: usize,
    buffers: Vec<Buffer>,
    /// (buffer, first byte, bytes, content).
    wants: Vec<(usize, usize, usize, Want)>,
    requests: Vec<Request>,
}

/// What is built up while a case is laid out.
struct Layout<'a> {
    case: &'a Case,
    rank: usize,
    rng: fastrand::Rng,
    buffers: Vec<Buffer>,
    wants: Vec<(usize, usize, usize, Want)>,
}

impl Layout<'_> {
    fn buffer(&mut self, elements: usize) -> usize {
        let device = match self.case.memory {
            Memory::Device => true,
            Memory::Malloc => false,
            Memory::Mixed => self.rng.bool(),
        };
        let offset = [0, 0, 1, 3, 8, 33][self.rng.usize(..6)];
        self.buffers.push(Buffer::new(elements * self.case.dtype.size(), offset, device));
        self.buffers.len() - 1
    }

    /// Puts block `block` of the own input at element `at` of a buffer and, if it must stay, watches it.
    fn give(&mut self, buffer: usize, at: usize, block: usize, count: usize, stays: bool) {
        let element = self.case.dtype.size();
        let tile = self.case.tile(self.rank, block, count);
        self.buffers[buffer].fill(at * element, count * element, &tile);
        if stays {
            self.wants.push((buffer, at * element, count * element, Want::Bytes(tile)));
        }
    }

    fn want(&mut self, buffer: usize, at: usize, count: usize, want: Want) {
        let element = self.case.dtype.size();
        self.wants.push((buffer, at * element, count * element, want));
    }

    fn at(&self, buffer: usize, element: usize) -> *mut u8 {
        // SAFETY: the layouts below stay inside their buffers.
        unsafe { self.buffers[buffer].ptr().add(element * self.case.dtype.size()) }
    }

    fn untouched(&mut self, buffer: usize) {
        let len = self.buffers[buffer].len;
        self.wants.push((buffer, 0, len, Want::Bytes(vec![UNTOUCHED])));
    }
}

impl Prepared {
    pub fn new(case: Case, comm: &Arc<Communicator>, streams: &[Stream; 2]) -> Prepared {
        let (rank, ranks) = (comm.rank(), comm.ranks());
        let rng = case.rng(rank, 0, 4);
        let mut l = Layout { case: &case, rank, rng, buffers: vec![], wants: vec![] };
        let mut bias = std::ptr::null();
        let mut v = None;
        let (mut send, mut recv) = (std::ptr::null(), std::ptr::null_mut());
        let n = case.count;
        let in_place = case.is_in_place(rank);
        let is_root = rank == case.root;
        match case.what {
            What::SendRecv => {}
            What::WithBias | What::Collective(Collective::AllReduce | Collective::Reduce) => {
                let input = l.buffer(n);
                l.give(input, 0, 0, n, false);
                send = l.at(input, 0).cast_const();
                let receives = is_root || case.what != What::Collective(Collective::Reduce);
                let output = if in_place && receives { input } else { l.buffer(n) };
                recv = l.at(output, 0);
                if output != input {
                    l.give(input, 0, 0, n, true);
                }
                if receives {
                    l.want(output, 0, n, Want::Reduced(case.expected_reduction(rank, ranks, 0)));
                } else {
                    l.untouched(output);
                    if case.shift.is_multiple_of(2) {
                        recv = std::ptr::null_mut();
                    }
                }
                if case.what == What::WithBias {
                    let b = l.buffer(n);
                    let tile = case.tile(1000 + rank, 0, n);
                    let bytes = n * case.dtype.size();
                    l.buffers[b].fill(0, bytes, &tile);
                    bias = l.at(b, 0).cast_const();
                    l.want(b, 0, n, Want::Bytes(tile));
                }
            }
            What::Collective(Collective::ReduceScatter) => {
                let input = l.buffer(n * ranks);
                let output = if in_place { input } else { l.buffer(n) };
                for b in 0..ranks {
                    l.give(input, b * n, b, n, !(in_place && b == rank));
                }
                let at = if in_place { rank * n } else { 0 };
                (send, recv) = (l.at(input, 0).cast_const(), l.at(output, at));
                l.want(output, at, n, Want::Reduced(case.expected_reduction(rank, ranks, rank)));
            }
            What::Collective(Collective::Broadcast) => {
                let output = l.buffer(n);
                recv = l.at(output, 0);
                if is_root {
                    let input = if in_place { output } else { l.buffer(n) };
                    l.give(input, 0, 0, n, true);
                    send = l.at(input, 0).cast_const();
                } else if in_place {
                    send = recv.cast_const();
                }
                let tile = case.tile(case.root, 0, n);
                l.want(output, 0, n, Want::Bytes(tile));
            }
            What::Collective(c @ (Collective::AllGather | Collective::Gather)) => {
                let receives = is_root || c == Collective::AllGather;
                if receives {
                    let output = l.buffer(n * ranks);
                    recv = l.at(output, 0);
                    for r in 0..ranks {
                        let tile = case.tile(r, 0, n);
                        l.want(output, r * n, n, Want::Bytes(tile));
                    }
                    if in_place {
                        l.give(output, rank * n, 0, n, true);
                        send = l.at(output, rank * n).cast_const();
                    }
                }
                if send.is_null() {
                    let input = l.buffer(n);
                    l.give(input, 0, 0, n, true);
                    send = l.at(input, 0).cast_const();
                }
            }
            What::Collective(Collective::Scatter) => {
                let tile = case.tile(case.root, rank, n);
                if is_root {
                    let input = l.buffer(n * ranks);
                    for b in 0..ranks {
                        l.give(input, b * n, b, n, true);
                    }
                    send = l.at(input, 0).cast_const();
                    if in_place {
                        recv = l.at(input, rank * n);
                    }
                }
                if recv.is_null() {
                    let output = l.buffer(n);
                    recv = l.at(output, 0);
                    l.want(output, 0, n, Want::Bytes(tile));
                }
            }
            What::Collective(Collective::AllToAll) => {
                let (input, output) = (l.buffer(n * ranks), l.buffer(n * ranks));
                for peer in 0..ranks {
                    l.give(input, peer * n, peer, n, true);
                    let tile = case.tile(peer, rank, n);
                    l.want(output, peer * n, n, Want::Bytes(tile));
                }
                (send, recv) = (l.at(input, 0).cast_const(), l.at(output, 0));
            }
            What::Collective(_) => {
                let counts = case.v_counts(rank, ranks);
                let length = |d: &[usize], c: &[usize]| d.iter().zip(c).map(|(d, c)| d + c).max().unwrap() + 1;
                let input = l.buffer(length(&counts.send_displs, &counts.send_counts));
                let output = l.buffer(length(&counts.recv_displs, &counts.recv_counts));
                for peer in 0..ranks {
                    let (s, r) = (counts.send_counts[peer], counts.recv_counts[peer]);
                    l.give(input, counts.send_displs[peer], peer, s, true);
                    let tile = case.tile(peer, rank, r);
                    l.want(output, counts.recv_displs[peer], r, Want::Bytes(tile));
                }
                (send, recv) = (l.at(input, 0).cast_const(), l.at(output, 0));
                v = Some(Box::new(counts));
            }
        }
        let stream = streams[case.stream].clone();
        let mut request = Request {
            collective: case.what.collective(),
            send,
            recv,
            count: if v.is_some() { 0 } else { n },
            dtype: case.dtype,
            op: Operator::Builtin(ReduceOp::Sum),
            root: if case.what.collective().rooted() { case.root } else { 0 },
            bias,
            v,
            stream,
        };
        let requests = if case.what == What::SendRecv {
            send_recv(&mut l, ranks, &request)
        } else {
            request.op = operator(&mut l, comm);
            vec![request]
        };
        let Layout { buffers, wants, .. } = l;
        Prepared { case, rank, ranks, buffers, wants, requests }
    }

    /// Enqueues the call.
    pub fn submit(&self, comm: &Arc<Communicator>) {
        if self.requests.len() > 1 {
            group::start();
        }
        for r in &self.requests {
            comm.submit(r.clone()).unwrap_or_else(|e| panic!("{e}: {}", self.describe()));
        }
        if self.requests.len() > 1 {
            group::end().unwrap_or_else(|e| panic!("{e}: {}", self.describe()));
        }
    }

    /// Makes the output, a buffer of its own, what it was before any call. The streams are idle.
    pub fn spoil(&mut self) {
        let recv = self.requests[0].recv.addr();
        let output = self.buffers.iter_mut().find(|b| (b.ptr().addr()..b.ptr().addr() + b.len).contains(&recv));
        if let Some(output) = output {
            output.fill(0, output.len, &[UNTOUCHED]);
        }
    }

    pub fn describe(&self) -> String {
        format!("rank {} of {}: {:?}", self.rank, self.ranks, self.case)
    }

    /// Compares everything with the oracle. The streams are idle.
    pub fn check(&self) {
        for b in &self.buffers {
            b.check_guards(&|| self.describe());
        }
        for (buffer, at, len, want) in &self.wants {
            let got = &self.buffers[*buffer].content()[*at..*at + *len];
            match want {
                Want::Bytes(tile) => self.check_bytes(got, tile, *buffer),
                Want::Reduced(expected) => self.check_reduced(got, expected),
            }
        }
    }

    fn check_bytes(&self, got: &[u8], tile: &[u8], buffer: usize) {
        if got.is_empty() {
            return;
        }
        for (i, chunk) in got.chunks(tile.len()).enumerate() {
            if chunk != &tile[..chunk.len()] {
                let j = (0..chunk.len()).find(|j| chunk[*j] != tile[*j]).unwrap_or(0);
                let at = i * tile.len() + j;
                panic!(
                    "byte {at} of {} (buffer {buffer}) is {:#04x}, should be {:#04x}: {}",
                    got.len(),
                    chunk[j],
                    tile[j],
                    self.describe()
                );
            }
        }
    }

    fn check_reduced(&self, got: &[u8], expected: &[Expected]) {
        let c = &self.case;
        let bitwise = c.bitwise() || self.ranks == 1;
        if bitwise {
            let tile: Vec<u8> = expected.iter().flat_map(|e| e.exact.iter().copied()).collect();
            if got.chunks(tile.len().max(1)).all(|chunk| chunk == &tile[..chunk.len()]) {
                return;
            }
        }
        for (i, x) in got.chunks(c.dtype.size()).enumerate() {
            let e = &expected[i % TILE];
            if oracle::same(c.dtype, c.op, x, &e.exact) {
                continue;
            }
            let off = if c.dtype.is_float() { (oracle::decode(c.dtype, x) - e.value).abs() } else { f64::INFINITY };
            assert!(
                !bitwise && off <= e.bound,
                "element {i} is {x:02x?}, should be {:02x?} ({} away from {}, bound {}): {}",
                e.exact,
                off,
                e.value,
                e.bound,
                self.describe()
            );
        }
    }

    /// The bits of the result of an all-reduce that must be equal on all ranks.
    pub fn shared_result(&self) -> Option<&[u8]> {
        let all_reduce = self.case.what == What::Collective(Collective::AllReduce);
        let (buffer, at, len, _) = self.wants.iter().find(|(.., w)| matches!(w, Want::Reduced(_)))?;
        all_reduce.then(|| &self.buffers[*buffer].content()[*at..*at + *len])
    }
}

/// Each rank sends to the rank `shift` ahead and receives from the one as far behind.
fn send_recv(l: &mut Layout<'_>, ranks: usize, template: &Request) -> Vec<Request> {
    let (case, rank) = (l.case, l.rank);
    let (to, from) = ((rank + case.shift) % ranks, (rank + ranks - case.shift) % ranks);
    let (input, output) = (l.buffer(case.count), l.buffer(case.count));
    l.give(input, 0, to, case.count, true);
    let tile = case.tile(from, rank, case.count);
    l.want(output, 0, case.count, Want::Bytes(tile));
    let send = Request { send: l.at(input, 0).cast_const(), root: to, ..template.clone() };
    let recv = Request { collective: Collective::Recv, recv: l.at(output, 0), root: from, ..template.clone() };
    if case.in_place == 0 { vec![recv, send] } else { vec![send, recv] }
}

fn operator(l: &mut Layout<'_>, comm: &Communicator) -> Operator {
    let case = l.case;
    Operator::Builtin(match case.op {
        _ if !case.what.reduces() => ReduceOp::Sum,
        Op::Sum => ReduceOp::Sum,
        Op::Prod => ReduceOp::Prod,
        Op::Max => ReduceOp::Max,
        Op::Min => ReduceOp::Min,
        Op::Avg => ReduceOp::Avg,
        Op::PreHost | Op::PreDevice => {
            let bytes = case.scalar(l.rank);
            let scalar = if case.op == Op::PreHost {
                let mut host = [0; 8];
                host[..bytes.len()].copy_from_slice(&bytes);
                OpScalar::Host(host)
            } else {
                let b = l.buffer(1);
                l.buffers[b].fill(0, bytes.len(), &bytes);
                OpScalar::Device(l.at(b, 0).cast_const())
            };
            let op = comm.create_op(scalar, case.dtype);
            let found = comm.find_op(op, case.dtype).unwrap();
            comm.destroy_op(op).unwrap();
            return found;
        }
    })
}
