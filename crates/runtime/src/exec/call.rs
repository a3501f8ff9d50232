//! A checked collective call, in the form that executors need.

use std::ops::Range;

use oxccl_kernels::{Post, RedOp};
use oxccl_types::{Collective, DataType, Error, ReduceOp, Scalar, Signature};

use crate::communicator::core::Core;
use crate::request::{Operator, Request};
use crate::transport::Header;

/// A collective call of one rank.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub collective: Collective,
    pub send: *const u8,
    pub recv: *mut u8,
    /// Elements per block.
    pub count: u64,
    pub dtype: DataType,
    pub op: RedOp,
    /// Applied once, when all contributions are combined.
    pub post: Post,
    /// Factor on the own input, read when the call starts.
    pub scale: Option<Factor>,
    pub root: u32,
    /// Combined into the result at last; null if there is none.
    pub bias: *const u8,
    pub signature: [u64; 2],
}

/// Where the factor of a `PreMulSum` lies.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Factor {
    Here(Scalar),
    Memory(*const u8),
}

impl Factor {
    pub(crate) fn read(self, dtype: DataType) -> Scalar {
        match self {
            Factor::Here(s) => s,
            Factor::Memory(p) => {
                let mut bytes = [0u8; 8];
                // SAFETY: the caller of create_op promised one readable element of the operator's type, and the type
                // was compared with the call's when the operator was looked up.
                unsafe { std::ptr::copy_nonoverlapping(p, bytes.as_mut_ptr(), dtype.size()) };
                Scalar { dtype, bytes }
            }
        }
    }
}

impl Call {
    /// Whether `rank` must bring a buffer that it reads, and one that it writes.
    pub(crate) fn needs(&self, rank: u32) -> (bool, bool) {
        let at_root = rank == self.root;
        match self.collective {
            Collective::Broadcast | Collective::Scatter => (at_root, true),
            Collective::Reduce | Collective::Gather => (true, at_root),
            _ => (true, true),
        }
    }

    pub(crate) fn new<S>(request: &Request<S>, ranks: usize) -> Call {
        let mut scale = None;
        let (op, post, code) = match request.op {
            Operator::PreMulDevice(p) => {
                scale = Some(Factor::Memory(p));
                (RedOp::Sum, Post::None, 5)
            }
            Operator::Builtin(op) => {
                let (red, post) = match op {
                    ReduceOp::Sum => (RedOp::Sum, Post::None),
                    ReduceOp::Prod => (RedOp::Prod, Post::None),
                    ReduceOp::Max => (RedOp::Max, Post::None),
                    ReduceOp::Min => (RedOp::Min, Post::None),
                    ReduceOp::Avg if request.dtype.is_float() => (RedOp::Sum, Post::MulF64(1.0 / ranks as f64)),
                    ReduceOp::Avg => (RedOp::Sum, Post::DivInt(ranks as u64)),
                    ReduceOp::PreMulSum(s) => {
                        scale = Some(Factor::Here(s));
                        (RedOp::Sum, Post::None)
                    }
                };
                (red, post, op.code())
            }
        };
        let reduces = request.collective.reduces();
        let signature = Signature {
            collective: request.collective,
            dtype: request.dtype,
            op: if reduces { code } else { 0 },
            root: if request.collective.rooted() { request.root as u32 } else { 0 },
            count: if request.collective == Collective::AllToAllV { 0 } else { request.count as u64 },
        };
        Call {
            collective: request.collective,
            send: request.send,
            recv: request.recv,
            count: request.count as u64,
            dtype: request.dtype,
            op,
            post: if reduces { post } else { Post::None },
            scale: scale.filter(|_| reduces),
            root: request.root as u32,
            bias: request.bias,
            signature: signature.pack(),
        }
    }

    /// Bytes of one block.
    pub(crate) fn block_bytes(&self) -> u64 {
        self.count * self.dtype.size() as u64
    }

    /// The size by which nccl-tests names the call: the larger of a rank's whole send and receive buffer.
    pub(crate) fn total_bytes(&self, ranks: usize) -> u64 {
        let c = self.collective;
        self.block_bytes() * c.input_blocks(ranks).max(c.output_blocks(ranks)) as u64
    }

    /// Bytes of the input of `rank`; 0 where the rank sends nothing.
    pub(crate) fn input_bytes(&self, rank: u32, ranks: usize) -> u64 {
        match self.collective {
            Collective::Broadcast | Collective::Scatter if rank != self.root => 0,
            c => self.block_bytes() * c.input_blocks(ranks) as u64,
        }
    }

    /// Bytes of the output of `rank`; 0 where the rank receives nothing.
    pub(crate) fn output_bytes(&self, rank: u32, ranks: usize) -> u64 {
        match self.collective {
            Collective::Reduce | Collective::Gather if rank != self.root => 0,
            c => self.block_bytes() * c.output_blocks(ranks) as u64,
        }
    }

    /// The addresses that the call writes on `rank`, as one or two ranges; what is in its place already is none of them.
    pub(crate) fn written(&self, rank: u32, ranks: usize) -> [Range<usize>; 2] {
        let from = self.recv.addr();
        let to = from + self.output_bytes(rank, ranks) as usize;
        let block = self.block_bytes() as usize;
        let ahead = rank as usize * block;
        match self.collective {
            _ if !self.is_in_place(rank, self.send) => [from..to, to..to],
            Collective::Broadcast | Collective::Scatter if rank == self.root => [from..from, from..from],
            Collective::AllGather | Collective::Gather if to > from => [from..from + ahead, from + ahead + block..to],
            _ => [from..to, to..to],
        }
    }

    /// Whether `rank`, which is this one and has its input at `send`, works in place.
    pub(super) fn is_in_place(&self, rank: u32, send: *const u8) -> bool {
        let recv = self.recv.addr();
        self.distance_in_place(rank).is_some_and(|distance| send.addr() == recv.wrapping_add(distance as usize))
    }

    /// How much further, modulo 2^64, the input of `rank` begins than its output where the call is in place; `None`: it is never.
    pub(super) fn distance_in_place(&self, rank: u32) -> Option<u64> {
        let ahead = self.block_bytes().wrapping_mul(u64::from(rank));
        match self.collective {
            Collective::AllReduce | Collective::Broadcast | Collective::Reduce => Some(0),
            Collective::AllGather | Collective::Gather => Some(ahead),
            Collective::ReduceScatter | Collective::Scatter => Some(ahead.wrapping_neg()),
            _ => None,
        }
    }

    /// Whether `other` is the same call of buffers that may lie elsewhere.
    pub(super) fn is_like(&self, other: &Call) -> bool {
        let kind = |c: &Call| (c.collective, c.count, c.dtype, c.op, c.root, c.bias);
        kind(self) == kind(other) && self.post == other.post && self.scale.is_none() && other.scale.is_none()
    }

    pub(crate) fn describe(&self) -> String {
        describe(self.signature)
    }
}

/// A packed signature in words.
pub(crate) fn describe(signature: [u64; 2]) -> String {
    match Signature::unpack(signature) {
        Some(s) => s.to_string(),
        None => format!("an unreadable call ({:#x}, {:#x})", signature[0], signature[1]),
    }
}

/// The error of collective number `seq` of this rank that met a message of `from` for another one.
#[cold]
pub(crate) fn strange(core: &Core, seq: u64, mine: [u64; 2], from: usize, theirs: &Header) -> Error {
    Error::usage(format!(
        "ranks called different operations: rank {} called {} as its collective number {seq} of communicator {:#x}, for which \
         rank {from} sent nothing, but for {}, its collective number {}; all ranks must make the same calls with the same \
         count, type, operator and root in the same order",
        core.rank,
        describe(mine),
        core.hash,
        describe(theirs.signature),
        theirs.sequence
    ))
}

/// Whether two ranges of addresses have bytes in common.
#[inline]
pub(super) fn meet(a: &Range<usize>, b: &Range<usize>) -> bool {
    a.start.max(b.start) < a.end.min(b.end)
}
