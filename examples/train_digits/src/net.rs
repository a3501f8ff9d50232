//! A network of 64 inputs, 32 hidden units (rectified) and 10 outputs (softmax), and its gradient.
//!
//! Parameters and gradients are flat vectors, so that one all-reduce moves all of them.

use crate::data::{Digit, PIXELS, Random};

const HIDDEN: usize = 32;
const CLASSES: usize = 10;
const W2: usize = (PIXELS + 1) * HIDDEN;
/// Number of parameters: two matrices, each with a row of biases.
pub const PARAMETERS: usize = W2 + (HIDDEN + 1) * CLASSES;

/// Parameters to begin with, the same on every rank.
pub fn initial(seed: u64) -> Vec<f32> {
    let mut random = Random::new(seed);
    let mut p = vec![0.0; PARAMETERS];
    // Uniform with variance 2 / inputs; biases stay 0.
    p[..PIXELS * HIDDEN].fill_with(|| random.unit() * (6.0 / PIXELS as f32).sqrt());
    p[W2..W2 + HIDDEN * CLASSES].fill_with(|| random.unit() * (6.0 / HIDDEN as f32).sqrt());
    p
}

/// `out[j] = sum over i of input[i] * w[i][j]`, plus the biases, which are the last row of `w`.
fn layer(w: &[f32], input: &[f32], out: &mut [f32]) {
    let n = out.len();
    out.copy_from_slice(&w[input.len() * n..(input.len() + 1) * n]);
    for (x, row) in input.iter().zip(w.chunks_exact(n)) {
        out.iter_mut().zip(row).for_each(|(o, w)| *o += x * w);
    }
}

/// Adds the gradient of a layer's parameters to `g`.
fn layer_gradient(g: &mut [f32], input: &[f32], d_out: &[f32]) {
    let n = d_out.len();
    for (x, row) in input.iter().chain(&[1.0]).zip(g.chunks_exact_mut(n)) {
        row.iter_mut().zip(d_out).for_each(|(g, d)| *g += x * d);
    }
}

fn forward(p: &[f32], digit: &Digit) -> ([f32; HIDDEN], [f32; CLASSES]) {
    let (mut hidden, mut out) = ([0.0; HIDDEN], [0.0; CLASSES]);
    layer(&p[..W2], &digit.pixels, &mut hidden);
    hidden.iter_mut().for_each(|h| *h = h.max(0.0));
    layer(&p[W2..], &hidden, &mut out);
    let top = out.iter().copied().fold(f32::MIN, f32::max);
    out.iter_mut().for_each(|o| *o = (*o - top).exp());
    let sum: f32 = out.iter().sum();
    out.iter_mut().for_each(|o| *o /= sum);
    (hidden, out)
}

/// Adds the gradient of `digits`' cross-entropy to `g`, each digit weighted by `weight`; returns the weighted loss.
pub fn gradient(p: &[f32], digits: &[Digit], weight: f32, g: &mut [f32]) -> f32 {
    let mut loss = 0.0;
    for digit in digits {
        let (hidden, mut out) = forward(p, digit);
        loss -= weight * out[digit.label].max(f32::MIN_POSITIVE).ln();
        out[digit.label] -= 1.0;
        out.iter_mut().for_each(|o| *o *= weight);
        layer_gradient(&mut g[W2..], &hidden, &out);
        let mut d_hidden = [0.0; HIDDEN];
        for ((d, h), row) in d_hidden.iter_mut().zip(&hidden).zip(p[W2..].chunks_exact(CLASSES)) {
            if *h > 0.0 {
                *d = row.iter().zip(&out).map(|(w, o)| w * o).sum();
            }
        }
        layer_gradient(&mut g[..W2], &digit.pixels, &d_hidden);
    }
    loss
}

/// The share of `digits` that the network names rightly.
pub fn accuracy(p: &[f32], digits: &[Digit]) -> f64 {
    let right = digits.iter().filter(|d| {
        let (_, out) = forward(p, d);
        out.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).is_some_and(|(class, _)| class == d.label)
    });
    right.count() as f64 / digits.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gradient_is_the_slope_of_the_loss() {
        let (train, _) = crate::data::load();
        let p = initial(3);
        let loss = |p: &[f32]| f64::from(gradient(p, &train[..4], 0.25, &mut vec![0.0; PARAMETERS]));
        let mut g = vec![0.0; PARAMETERS];
        gradient(&p, &train[..4], 0.25, &mut g);
        for i in (0..PARAMETERS).step_by(37) {
            let (mut up, mut down) = (p.clone(), p.clone());
            up[i] += 1e-2;
            down[i] -= 1e-2;
            let slope = (loss(&up) - loss(&down)) / 2e-2;
            assert!((slope - f64::from(g[i])).abs() < 2e-3, "parameter {i}: slope {slope}, gradient {}", g[i]);
        }
    }
}
