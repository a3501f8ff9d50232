//! The table, in the layout of nccl-tests, which programs read.

use super::{
    args::{DEFAULT_WARMUP, PerfArgs},
    collectives::Call,
    data::Op,
    measure::Half,
};

/// Figures of one row.
pub struct Line<'a> {
    /// The call.
    pub call: &'a Call,
    /// Its operator.
    pub op: Option<Op>,
    /// Out of place and in place; `None` where that half was not run.
    pub halves: [Option<Half>; 2],
    /// Time of day, when asked for.
    pub stamp: Option<String>,
}

/// Lines before the devices.
pub fn head(args: &PerfArgs, version: i32) -> String {
    let last = args.sizes().last().copied().unwrap_or(args.min_bytes);
    let step = match args.step_factor {
        Some(f) => format!("{f}(factor)"),
        None => format!("{}(bytes)", args.step_bytes),
    };
    format!(
        "# oxccl perf version {} nccl-library={version}\n\
         # Collective test starting: {}_perf\n\
         # nThread {} nGpus {} minBytes {} maxBytes {} step: {step} warmup iters: {} iters: {} agg iters: {} \
         validation: {} graph: 0\n#\n# Using devices",
        env!("CARGO_PKG_VERSION"),
        args.collective().snake(),
        args.threads,
        args.devices,
        args.min_bytes,
        last.max(args.max_bytes.unwrap_or(last)),
        args.warmup.unwrap_or(DEFAULT_WARMUP),
        args.iters
            .map_or_else(|| if args.jsonl.is_some() { "auto".into() } else { "20".to_owned() }, |n| n.to_string()),
        args.aggregate,
        args.check,
    )
}

/// One device's line.
pub fn device(rank: usize, pid: u64, device: u64, host: &str) -> String {
    format!("#  Rank {rank:2} Group  0 Pid {pid:6} on {host:>10} device {device:2} [host] oxccl host device")
}

/// The column titles.
pub fn titles(args: &PerfArgs) -> String {
    let time = if args.cpu_time != 0 { "cputime" } else { "time" };
    let stamp = |text: &str| if args.timestamps != 0 { format!("  {text:>22}") } else { String::new() };
    let pair = |a: &str, b: &str, c: &str, d: &str| format!("  {a:>7}  {b:>6}  {c:>6} {d:>6}").repeat(2);
    let line = |l: &str, rest: String| format!("{}\n", (l.to_owned() + &rest).trim_end());
    let mut out = String::from("#\n");
    out += &line("#", format!("{:49}{:^32}{:^32}", "", "out-of-place", "in-place"));
    out += &line(
        &format!("# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}", "size", "count", "type", "redop", "root"),
        pair(time, "algbw", "busbw", "#wrong") + &stamp("timestamp"),
    );
    out += &line(
        &format!("# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}", "(B)", "(elements)", "", "", ""),
        pair("(us)", "(GB/s)", "(GB/s)", "") + &stamp("(UTC)"),
    );
    out.trim_end_matches('\n').to_owned()
}

/// One row.
pub fn row(l: &Line<'_>) -> String {
    let c = l.call;
    let root = if c.coll.rooted() { c.root.to_string() } else { "-1".to_owned() };
    let op = l.op.map_or("none", Op::name);
    let mut out = format!("{:12}  {:12}  {:>8}  {op:>6}  {root:>6}", c.size_bytes(), c.block, c.dtype.name());
    for half in &l.halves {
        out += &match half {
            None => format!("  {:>7}  {:>6}  {:>6} {:>6}", "N/A", "N/A", "N/A", "N/A"),
            Some(h) => {
                let (alg, bus) = c.coll.bandwidth(c.block, c.dtype, c.ranks, h.median_us);
                let wrong = h.wrong.map_or("N/A".to_owned(), |w| w.to_string());
                format!("  {:>7}  {alg:>6.2}  {bus:>6.2} {wrong:>6}", time(h.median_us))
            }
        };
    }
    if let Some(s) = &l.stamp {
        out += &format!("  {s:>22}");
    }
    out
}

/// Microseconds in seven places.
fn time(us: f64) -> String {
    match us {
        t if t >= 10_000.0 => format!("{t:.0}"),
        t if t >= 100.0 => format!("{t:.1}"),
        t => format!("{t:.2}"),
    }
}

/// The last lines: elements out of bounds and the mean bus bandwidth.
pub fn foot(wrong: u64, outside: u64, bus: &[f64]) -> String {
    let verdict = if wrong == 0 && outside == 0 { "OK" } else { "FAILED" };
    let mean = if bus.is_empty() { 0.0 } else { bus.iter().sum::<f64>() / bus.len() as f64 };
    format!("# Out of bounds values : {} {verdict}\n# Avg bus bandwidth    : {mean:.6}\n#", wrong + outside)
}

/// `seconds` since 1970 as `YYYY-MM-DD HH:MM:SS`.
pub fn timestamp(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Days are counted from 1 March of year 0, so that leap days end a cycle.
    let z = days + 719_468;
    let (era, of_era) = (z / 146_097, z % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 { month_index + 3 } else { month_index - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60)
}

#[cfg(test)]
mod tests {
    use oxccl_types::DataType;

    use super::*;
    use crate::perf::collectives::Coll;

    fn half(us: f64, wrong: Option<u64>) -> Option<Half> {
        Some(Half { median_us: us, min_us: us, iters: 20, reps: 1, wrong, outside: 0 })
    }

    #[test]
    fn rows_have_the_columns_that_programs_read() {
        let call = Call { coll: Coll::AllReduce, dtype: DataType::Float32, root: 0, block: 1 << 20, ranks: 4 };
        let line =
            Line { call: &call, op: Some(Op::Sum), halves: [half(1000.0, Some(0)), half(12345.6, None)], stamp: None };
        let text = row(&line);
        assert_eq!(
            text.split_whitespace().collect::<Vec<_>>(),
            ["4194304", "1048576", "float", "sum", "-1", "1000.0", "4.19", "6.29", "0", "12346", "0.34", "0.51", "N/A"]
        );
        assert_eq!(
            text,
            "     4194304       1048576     float     sum      -1   1000.0    4.19    6.29      0    12346    0.34    0.51    N/A"
        );
    }

    #[test]
    fn rooted_rows_and_missing_halves() {
        let call = Call { coll: Coll::Broadcast, dtype: DataType::Int8, root: 2, block: 8, ranks: 4 };
        let line = Line { call: &call, op: None, halves: [half(5.0, Some(3)), None], stamp: Some("now".into()) };
        let words: Vec<String> = row(&line).split_whitespace().map(str::to_owned).collect();
        assert_eq!(words[2..6], ["int8", "none", "2", "5.00"]);
        assert_eq!(words[8..], ["3", "N/A", "N/A", "N/A", "N/A", "now"]);
    }

    #[test]
    fn feet() {
        assert_eq!(foot(0, 0, &[1.0, 2.0]), "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 1.500000\n#");
        assert!(foot(1, 2, &[]).starts_with("# Out of bounds values : 3 FAILED\n# Avg bus bandwidth    : 0.000000"));
    }

    #[test]
    fn dates() {
        assert_eq!(timestamp(0), "1970-01-01 00:00:00");
        assert_eq!(timestamp(951_827_696), "2000-02-29 12:34:56");
        assert_eq!(timestamp(1_735_689_599), "2024-12-31 23:59:59");
    }
}
