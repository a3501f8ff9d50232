//! The digits: read, shuffled by a fixed seed, split into a training and a held-out part.

/// Pixels of an image.
pub const PIXELS: usize = 64;
/// Images to train on; the other 297 are held out.
pub const TRAINING: usize = 1500;

/// An image with pixels from 0 to 1, and the digit that it shows.
#[derive(Clone)]
pub struct Digit {
    /// Row by row.
    pub pixels: [f32; PIXELS],
    /// 0 to 9.
    pub label: usize,
}

/// A small generator of reproducible numbers (xorshift64*).
pub struct Random(u64);

impl Random {
    /// The sequence of `seed`, which is not 0.
    pub fn new(seed: u64) -> Random {
        assert_ne!(seed, 0, "xorshift never leaves 0");
        Random(seed)
    }

    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number from -1 to 1.
    pub fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    /// Puts `items` into a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, (self.next() % (i as u64 + 1)) as usize);
        }
    }
}

/// The training part and the held-out part.
pub fn load() -> (Vec<Digit>, Vec<Digit>) {
    let mut digits: Vec<Digit> = include_str!("../digits.csv").lines().map(parse).collect();
    Random::new(1998).shuffle(&mut digits);
    let held_out = digits.split_off(TRAINING);
    (digits, held_out)
}

fn parse(line: &str) -> Digit {
    let mut fields = line.split(',').map(|f| f.parse::<u8>().expect("digits.csv holds small integers"));
    let pixels = std::array::from_fn(|_| f32::from(fields.next().expect("64 pixels per line")) / 16.0);
    let label = usize::from(fields.next().expect("a label per line"));
    assert!(label < 10 && fields.next().is_none(), "digits.csv: a line has 64 pixels and a digit");
    Digit { pixels, label }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_digits_are_there() {
        let (train, held_out) = load();
        assert_eq!((train.len(), held_out.len()), (1500, 297));
        let mut counts = [0; 10];
        train.iter().chain(&held_out).for_each(|d| counts[d.label] += 1);
        assert_eq!(counts, [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]);
    }
}
