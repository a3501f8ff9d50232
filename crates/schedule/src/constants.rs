//! The constants of the cost model as a table: their names, units and valid ranges; and a model as bytes, for ranks to
//! agree on one. Measuring them, and where they are kept, is others' work.

use crate::cost::CostModel;

/// One constant.
#[derive(Clone, Copy)]
pub struct Constant {
    /// Its name, in files and for people.
    pub name: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// What it is.
    pub doc: &'static str,
    /// Least and greatest value that make sense.
    pub range: (f64, f64),
    /// Its value in a model.
    pub get: fn(&CostModel) -> f64,
    set: fn(&mut CostModel, f64),
}

impl std::fmt::Debug for Constant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// A value outside of its constant's range.
#[derive(Clone, Debug, PartialEq)]
pub struct OutOfRange {
    /// The constant.
    pub name: &'static str,
    /// The value.
    pub value: f64,
    /// Least and greatest.
    pub range: (f64, f64),
}

impl std::fmt::Display for OutOfRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let OutOfRange { name, value, range: (least, most) } = self;
        write!(f, "{name} = {value} is out of range (valid: {least} to {most})")
    }
}

impl std::error::Error for OutOfRange {}

impl Constant {
    /// Puts `value` into `model`.
    ///
    /// # Errors
    /// A value out of range, or none; the model stays as it was.
    pub fn set(&self, model: &mut CostModel, value: f64) -> Result<(), OutOfRange> {
        if !(self.range.0..=self.range.1).contains(&value) {
            return Err(OutOfRange { name: self.name, value, range: self.range });
        }
        (self.set)(model, value);
        Ok(())
    }

    /// What was rounded to `value`. An end of the range, and what lies next to it, may have been rounded to what lies outside.
    fn widened(&self, value: f32) -> f64 {
        let ends = [self.range.0, self.range.1];
        ends.into_iter().find(|end| *end as f32 == value).unwrap_or(f64::from(value))
    }
}

macro_rules! constants {
    ($($name:literal, $unit:literal, $range:expr, $($field:ident).+, $doc:literal;)*) => {
        /// All constants that may be measured, in the order of documents and of [`encode`].
        pub const CONSTANTS: &[Constant] = &[$(Constant {
            name: $name, unit: $unit, doc: $doc, range: $range,
            get: |m| m.$($field).+, set: |m, v| m.$($field).+ = v,
        }),*];
    };
}

/// Times of single steps, us.
const STEP: (f64, f64) = (0.001, 10_000.0);
/// Times per KiB, us.
const PER_KIB: (f64, f64) = (0.001, 1000.0);

constants! {
    "signal", "us", STEP, signal_us, "a raised flag seen by another core";
    "wait", "us", STEP, wait_us, "a look at a flag that is raised already";
    "start", "us", STEP, start_us, "the start of a call";
    "meet", "us", STEP, meet_us, "telling the peers that share memory of a call and looking up theirs";
    "switch", "us", STEP, switch_us, "handing the core to another thread, where ranks outnumber cores";
    "cores", "cores", (1.0, 65536.0), cores, "cores that the ranks of the machine share";
    "cache", "bytes", (1e4, 1e13), cache_bytes, "bytes of all ranks together that stay in the caches";
    "last_cache", "bytes", (1e4, 1e13), last_cache_bytes, "a last cache of the machine, or its share of one";
    "last_caches", "caches", (1.0, 65536.0), last_caches, "last caches of the machine";
    "dram_factor", "times", (1.0, 100.0), dram_factor, "how many times slower copying is beyond the caches";
    "push", "times", (0.1, 100.0), push_factor, "what a copy to a peer's memory costs of one from it";
    "copy", "us/KiB", PER_KIB, direct.copy_us_per_kib, "copying in mapped memory";
    "reduce", "us/KiB", PER_KIB, direct.reduce_us_per_kib, "combining with mapped memory";
    "direct_op", "us", STEP, direct.op_us, "a step over mapped memory, whatever its size";
    "shm_latency", "us", STEP, shm.latency_us, "a message through slots, send to receive";
    "shm_copy", "us/KiB", PER_KIB, shm.copy_us_per_kib, "copying into or out of slots";
    "shm_reduce", "us/KiB", PER_KIB, shm.reduce_us_per_kib, "combining with a slot";
    "shm_op", "us", STEP, shm.op_us, "a step of a message through slots";
    "tcp_latency", "us", STEP, tcp.latency_us, "a message over TCP, send to receive";
    "tcp_copy", "us/KiB", PER_KIB, tcp.copy_us_per_kib, "sending or receiving over TCP";
    "tcp_reduce", "us/KiB", PER_KIB, tcp.reduce_us_per_kib, "receiving over TCP and combining";
    "tcp_op", "us", STEP, tcp.op_us, "a step of a message over TCP";
    "eager", "us/KiB", PER_KIB, eager_us_per_kib, "reading flag lines that carry data";
    "eager_rooted", "times", (0.1, 100.0), eager_rooted, "what that costs of it in calls with a root that follow one another";
    "kernel_op", "us", STEP, kernel_op_us, "a copy by the kernel between processes, whatever its size";
    "kernel_copy", "us/KiB", PER_KIB, kernel_us_per_kib, "copying between processes by the kernel";
    "kernel_large", "us/KiB", PER_KIB, kernel_large_us_per_kib, "the same of long blocks, which lie on large pages";
    "kernel_large_below", "bytes", (1e4, 1e13), kernel_large_below, "length below which that holds where all ranks read at once";
    "kernel_both_ways_below", "bytes", (1e4, 1e13), kernel_both_ways_below, "length below which it holds of messages where the peer sends such, too, and what follows of any";
    "crowd_rooted", "times", (0.01, 100.0), crowd_rooted, "what a broadcast or reduction by scratch, or beside the line, costs of it where ranks share cores, since most of them only wait";
    "scratch_past", "times", (0.01, 100.0), scratch_past, "what calls of two ranks, and all-gathers, by scratch in one shot cost of it where the buffers do not fit the last caches";
    "kernel_crowd", "bytes", (1e4, 1e13), kernel_crowd_from, "what one rank gives, or the root of a gather gets, from which on the kernel copies it where ranks share cores";
    "kernel_crowd_message", "bytes", (1e4, 1e13), kernel_crowd_message_from, "length of a message from which on it does, if its rank sends no other in the call or receives none";
}

/// The constant called `name`.
pub fn find(name: &str) -> Option<&'static Constant> {
    CONSTANTS.iter().find(|c| c.name == name)
}

/// The constants of `model` as bytes, rounded to 32 bits: every rank keeps those of every other.
pub fn encode(model: &CostModel) -> Vec<u8> {
    CONSTANTS.iter().flat_map(|c| ((c.get)(model) as f32).to_le_bytes()).collect()
}

/// The model that [`encode`] gave `bytes` for; `None` for anything else.
pub fn decode(bytes: &[u8]) -> Option<CostModel> {
    let (values, rest) = bytes.as_chunks::<4>();
    if values.len() != CONSTANTS.len() || !rest.is_empty() {
        return None;
    }
    let mut model = CostModel::default();
    CONSTANTS.iter().zip(values).try_for_each(|(c, v)| c.set(&mut model, c.widened(f32::from_le_bytes(*v))).ok())?;
    Some(model)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_travel_as_bytes() {
        let mut model = CostModel::default();
        for (i, c) in CONSTANTS.iter().enumerate() {
            assert!(c.set(&mut model, c.range.0.max(1.0) + i as f64 / 16.0).is_ok(), "{}", c.name);
        }
        assert_eq!(decode(&encode(&model)), Some(model));
        assert_ne!(model, CostModel::default());
        assert_eq!(decode(&encode(&model)[1..]), None);
        assert_eq!(decode(&[0xff; 4].repeat(CONSTANTS.len())), None);
    }

    #[test]
    fn so_do_the_ends_of_their_ranges() {
        for of in [|c: &Constant| c.range.0, |c: &Constant| c.range.1, |c: &Constant| c.range.0 * (1.0 + 1e-9)] {
            let mut model = CostModel::default();
            assert!(CONSTANTS.iter().all(|c| c.set(&mut model, of(c)).is_ok()));
            let got = decode(&encode(&model)).expect("all in range");
            for c in CONSTANTS {
                let (gave, got) = ((c.get)(&model), (c.get)(&got));
                assert!((gave - got).abs() <= gave * 1e-7, "{}: {gave} {got}", c.name);
            }
        }
    }

    #[test]
    fn defaults_are_in_range_and_names_are_unique() {
        let mut model = CostModel::default();
        for c in CONSTANTS {
            let value = (c.get)(&model);
            assert_eq!(c.set(&mut model, value), Ok(()));
            assert_eq!(CONSTANTS.iter().filter(|d| d.name == c.name).count(), 1, "{}", c.name);
        }
        let e = find("cores").and_then(|c| c.set(&mut model, f64::NAN).err()).map(|e| e.to_string());
        assert!(e.is_some_and(|e| e.contains("cores") && e.contains("65536")));
    }
}
