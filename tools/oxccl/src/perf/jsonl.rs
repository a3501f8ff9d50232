//! One JSON object per measured point, appended to a file.

use std::{fs::File, io::Write, path::Path};

use anyhow::{Context, Result};
use oxccl_types::DataType;
use serde_json::json;

use super::{
    args::{Memory, PerfArgs},
    collectives::Call,
    data::Op,
    measure::Half,
};

/// The file of the points.
pub struct Points(File);

/// The short name of a type (`f32`).
pub const fn dtype_name(t: DataType) -> &'static str {
    match t {
        DataType::Int8 => "i8",
        DataType::Uint8 => "u8",
        DataType::Int32 => "i32",
        DataType::Uint32 => "u32",
        DataType::Int64 => "i64",
        DataType::Uint64 => "u64",
        DataType::Float16 => "f16",
        DataType::Float32 => "f32",
        DataType::Float64 => "f64",
        DataType::Bfloat16 => "bf16",
        DataType::Float8e4m3 => "fp8_e4m3",
        DataType::Float8e5m2 => "fp8_e5m2",
    }
}

/// The object of one half of a row. `asked` is the size that was asked for, which rounding may lessen.
pub fn point(
    args: &PerfArgs,
    call: &Call,
    op: Option<Op>,
    asked: usize,
    in_place: bool,
    h: &Half,
) -> serde_json::Value {
    let (algbw, busbw) = call.coll.bandwidth(call.block, call.dtype, call.ranks, h.median_us);
    let mut o = json!({
        "impl": "oxccl",
        "coll": call.coll.json_name(),
        "setup": args.setup,
        "dtype": dtype_name(call.dtype),
        "ranks": call.ranks,
        "bytes": asked,
        "moved": call.size_bytes(),
        "mode": args.mode.name(),
        "time_us_median": h.median_us,
        "time_us_min": h.min_us,
        "algbw": algbw,
        "busbw": busbw,
        "in_place": u8::from(in_place),
        "iters": h.iters,
        "reps": h.reps,
        "ok": h.wrong.map_or(-1, |w| i32::from(w == 0 && h.outside == 0)),
    });
    if args.comms > 1 {
        o["comms"] = args.comms.into();
    }
    if args.aggregate > 1 {
        o["group"] = args.aggregate.into();
    }
    if args.memory == Memory::Malloc {
        o["memory"] = "malloc".into();
    }
    if let Some(op) = op {
        o["op"] = op.name().into();
    }
    if call.coll.rooted() {
        o["root"] = call.root.into();
    }
    o
}

impl Points {
    /// Opens `path` for appending.
    pub fn open(path: &Path) -> Result<Points> {
        let file = File::options().append(true).create(true).open(path);
        file.map(Points).with_context(|| format!("opening {}", path.display()))
    }

    /// Appends one line, in one write so that lines of several runs do not mix.
    pub fn append(&mut self, point: &serde_json::Value) -> Result<()> {
        self.0.write_all(format!("{point}\n").as_bytes()).context("writing a JSON line")
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::perf::collectives::Coll;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: PerfArgs,
    }

    #[test]
    fn points_carry_what_the_comparison_needs() {
        let args = Line::parse_from(["perf", "all_reduce", "--setup", "lo"]).args;
        let call = Call { coll: Coll::AllReduce, dtype: DataType::Float32, root: 0, block: 256, ranks: 2 };
        let h = Half { median_us: 2.0, min_us: 1.5, iters: 9, reps: 5, wrong: Some(0), outside: 0 };
        let p = point(&args, &call, Some(Op::Sum), 1024, false, &h);
        for (key, want) in [
            ("impl", json!("oxccl")),
            ("coll", json!("allreduce")),
            ("setup", json!("lo")),
            ("dtype", json!("f32")),
            ("ranks", json!(2)),
            ("bytes", json!(1024)),
            ("time_us_median", json!(2.0)),
            ("time_us_min", json!(1.5)),
            ("algbw", json!(0.512)),
            ("busbw", json!(0.512)),
            ("in_place", json!(0)),
            ("iters", json!(9)),
            ("reps", json!(5)),
            ("ok", json!(1)),
        ] {
            assert_eq!(p[key], want, "{key}");
        }
        assert_eq!(point(&args, &call, None, 1024, false, &Half { wrong: Some(1), ..h })["ok"], 0);
        assert_eq!(point(&args, &call, None, 1024, false, &Half { outside: 1, ..h })["ok"], 0);
    }

    #[test]
    fn lines_are_appended() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.jsonl");
        for i in 0..2 {
            Points::open(&path).unwrap().append(&json!({ "i": i })).unwrap();
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{\"i\":0}\n{\"i\":1}\n");
    }
}
