//! Calls with inputs that a function of rank and number gives, and outputs of which every element is checked.

use oxccl::{Communicator, DeviceBuffer, ReduceOp, Result};

/// Where the buffers of a call lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Memory {
    Malloc,
    Device,
}

/// A buffer of either kind.
pub enum Buffer {
    Malloc(Vec<f32>),
    Device(DeviceBuffer<f32>),
}

impl Buffer {
    pub fn filled(memory: Memory, len: usize, value: f32) -> Buffer {
        match memory {
            Memory::Malloc => Buffer::Malloc(vec![value; len]),
            Memory::Device => {
                let mut b = DeviceBuffer::zeroed(len).expect("device memory");
                b.fill(value);
                Buffer::Device(b)
            }
        }
    }

    pub fn get(&self) -> &[f32] {
        match self {
            Buffer::Malloc(v) => v,
            Buffer::Device(d) => d,
        }
    }

    pub fn get_mut(&mut self) -> &mut [f32] {
        match self {
            Buffer::Malloc(v) => v,
            Buffer::Device(d) => d,
        }
    }
}

/// The value that `rank` brings to call `n`: small, so that sums are exact.
pub fn value(rank: usize, n: u64) -> f32 {
    ((rank as u64 + 1) * (n % 61 + 1)) as f32
}

fn check(what: &str, got: &[f32], want: f32) {
    if let Some(i) = got.iter().position(|v| *v != want) {
        panic!("{what}: element {i} of {} is {} and should be {want}", got.len(), got[i]);
    }
}

fn sum(ranks: usize, n: u64) -> f32 {
    (0..ranks).map(|r| value(r, n)).sum()
}

/// Kinds of [`one`].
pub const KINDS: usize = 11;
/// That of Gather.
pub const GATHER: usize = 6;

/// Call number `n` of kind `kind` with blocks of `len` elements, checked.
pub fn one(comm: &Communicator, kind: usize, memory: Memory, len: usize, n: u64) -> Result<()> {
    let (me, ranks) = (comm.rank(), comm.ranks());
    let root = n as usize % ranks;
    let at_root = if me == root { len } else { 0 };
    let mine = value(me, n);
    let input = |blocks: usize| Buffer::filled(memory, blocks * len, mine);
    let output = |elements: usize| Buffer::filled(memory, elements, -1.0);
    match kind {
        0 => {
            let (send, mut recv) = (input(1), output(len));
            comm.all_reduce(send.get(), recv.get_mut(), ReduceOp::Sum)?;
            check("AllReduce", recv.get(), sum(ranks, n));
        }
        1 => {
            let mut buf = input(1);
            comm.all_reduce_in_place(buf.get_mut(), ReduceOp::Max)?;
            check("AllReduce in place", buf.get(), value(ranks - 1, n));
        }
        2 => {
            let mut buf = input(1);
            comm.broadcast(buf.get_mut(), root)?;
            check("Broadcast", buf.get(), value(root, n));
        }
        3 => {
            let (send, mut recv) = (input(1), output(at_root));
            comm.reduce(send.get(), recv.get_mut(), ReduceOp::Sum, root)?;
            check("Reduce", recv.get(), sum(ranks, n));
        }
        4 => {
            let (send, mut recv) = (input(ranks), output(len));
            comm.reduce_scatter(send.get(), recv.get_mut(), ReduceOp::Sum)?;
            check("ReduceScatter", recv.get(), sum(ranks, n));
        }
        5 => {
            let (send, mut recv) = (input(1), output(len * ranks));
            comm.all_gather(send.get(), recv.get_mut())?;
            recv.get().chunks(len).enumerate().for_each(|(r, c)| check("AllGather", c, value(r, n)));
        }
        GATHER => {
            let (send, mut recv) = (input(1), output(at_root * ranks));
            comm.gather(send.get(), recv.get_mut(), root)?;
            recv.get().chunks(len).enumerate().for_each(|(r, c)| check("Gather", c, value(r, n)));
        }
        7 => {
            let (send, mut recv) = (Buffer::filled(memory, at_root * ranks, mine), output(len));
            comm.scatter(send.get(), recv.get_mut(), root)?;
            check("Scatter", recv.get(), value(root, n));
        }
        8 => {
            let (send, mut recv) = (input(ranks), output(len * ranks));
            comm.all_to_all(send.get(), recv.get_mut())?;
            recv.get().chunks(len).enumerate().for_each(|(r, c)| check("AlltoAll", c, value(r, n)));
        }
        9 => {
            // Rank r sends r + 1 times `len / ranks` elements to everybody.
            let unit = len.div_ceil(ranks);
            let send = Buffer::filled(memory, ranks * unit * (me + 1), mine);
            let counts: Vec<usize> = (0..ranks).map(|r| unit * (r + 1)).collect();
            let mut recv = output(counts.iter().sum());
            comm.all_to_all_v(send.get(), &vec![unit * (me + 1); ranks], recv.get_mut(), &counts)?;
            let mut rest = recv.get();
            for (r, count) in counts.iter().enumerate() {
                let (c, after) = rest.split_at(*count);
                check("AlltoAllv", c, value(r, n));
                rest = after;
            }
        }
        _ => {
            let (send, mut recv) = (input(1), output(len));
            comm.send_recv(send.get(), (me + 1) % ranks, recv.get_mut(), (me + ranks - 1) % ranks)?;
            check("Send and Recv", recv.get(), value((me + ranks - 1) % ranks, n));
        }
    }
    Ok(())
}
