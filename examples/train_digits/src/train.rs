//! Stochastic gradient descent with momentum, alone or as one of several ranks.
//!
//! Every rank holds all parameters, takes its share of each batch and gets the sum of all ranks' gradients; so all
//! ranks make the same step as a single process with the whole batch.

use oxccl::{Communicator, DeviceBuffer, ReduceOp, bf16};

use crate::data::{self, Random};
use crate::net;

/// Digits per step, over all ranks.
pub const BATCH: usize = 60;
const RATE: f32 = 0.1;
const MOMENTUM: f32 = 0.9;

/// What comes out of a training.
pub struct Outcome {
    /// Mean loss of each epoch.
    pub losses: Vec<f32>,
    /// Share of the held-out digits that are named rightly.
    pub accuracy: f64,
}

/// The type in which gradients travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// As they are.
    F32,
    /// Rounded to 16 bits: half the bytes.
    Bf16,
}

impl Wire {
    /// Its spelling on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Wire::F32 => "f32",
            Wire::Bf16 => "bf16",
        }
    }

    /// How far a loss may be from that of the single process. f32 differs by the order of additions only; bf16
    /// rounds each gradient to 8 bits of mantissa.
    pub fn tolerance(self) -> f32 {
        match self {
            Wire::F32 => 1e-5,
            Wire::Bf16 => 5e-3,
        }
    }
}

/// How the ranks' gradients and losses become one.
pub trait Sum {
    /// This rank and the number of ranks.
    fn place(&self) -> (usize, usize);
    /// Replaces `gradient` and `loss` by their sums over all ranks.
    fn sum(&mut self, gradient: &mut [f32], loss: &mut f32) -> oxccl::Result<()>;
}

/// A single process: nothing to add.
pub struct Alone;

impl Sum for Alone {
    fn place(&self) -> (usize, usize) {
        (0, 1)
    }
    fn sum(&mut self, _: &mut [f32], _: &mut f32) -> oxccl::Result<()> {
        Ok(())
    }
}

/// One rank of several.
pub struct Together<'a> {
    comm: &'a Communicator,
    wire: Wire,
    f32s: DeviceBuffer<f32>,
    bf16s: DeviceBuffer<bf16>,
}

impl<'a> Together<'a> {
    /// Buffers for gradients that travel as `wire`.
    pub fn new(comm: &'a Communicator, wire: Wire) -> oxccl::Result<Together<'a>> {
        let f32s = DeviceBuffer::zeroed(net::PARAMETERS)?;
        let bf16s = DeviceBuffer::zeroed(net::PARAMETERS)?;
        Ok(Together { comm, wire, f32s, bf16s })
    }
}

impl Sum for Together<'_> {
    fn place(&self) -> (usize, usize) {
        (self.comm.rank(), self.comm.ranks())
    }

    fn sum(&mut self, gradient: &mut [f32], loss: &mut f32) -> oxccl::Result<()> {
        match self.wire {
            Wire::F32 => {
                self.f32s.copy_from_slice(gradient);
                self.comm.all_reduce_in_place(&mut self.f32s, ReduceOp::Sum)?;
                gradient.copy_from_slice(&self.f32s);
            }
            Wire::Bf16 => {
                self.bf16s.iter_mut().zip(&*gradient).for_each(|(b, g)| *b = bf16::from_f32(*g));
                self.comm.all_reduce_in_place(&mut self.bf16s, ReduceOp::Sum)?;
                gradient.iter_mut().zip(&*self.bf16s).for_each(|(g, b)| *g = b.to_f32());
            }
        }
        self.comm.all_reduce_in_place(std::slice::from_mut(loss), ReduceOp::Sum)
    }
}

/// Trains for `epochs`; returns the outcome and the final parameters.
pub fn train(sum: &mut impl Sum, epochs: usize) -> oxccl::Result<(Outcome, Vec<f32>)> {
    let (mut digits, held_out) = data::load();
    let (rank, ranks) = sum.place();
    let share = BATCH / ranks;
    let mut parameters = net::initial(7);
    let mut velocity = vec![0.0; parameters.len()];
    let mut gradient = vec![0.0; parameters.len()];
    // The same order on every rank.
    let mut order = Random::new(42);
    let mut losses = Vec::new();
    for _ in 0..epochs {
        order.shuffle(&mut digits);
        let mut epoch_loss = 0.0;
        for batch in digits.chunks_exact(BATCH) {
            gradient.fill(0.0);
            let mine = &batch[rank * share..(rank + 1) * share];
            let mut loss = net::gradient(&parameters, mine, 1.0 / BATCH as f32, &mut gradient);
            sum.sum(&mut gradient, &mut loss)?;
            epoch_loss += loss;
            for ((p, v), g) in parameters.iter_mut().zip(&mut velocity).zip(&gradient) {
                *v = MOMENTUM * *v - RATE * g;
                *p += *v;
            }
        }
        losses.push(epoch_loss / (digits.len() / BATCH) as f32);
    }
    let accuracy = net::accuracy(&parameters, &held_out);
    Ok((Outcome { losses, accuracy }, parameters))
}
