//! The tool as its users call it: every collective over processes, threads and devices, its files, its links, `mpirun`.
//!
//! Sizes are small: this checks that it works, not how fast it is. Each run is ended after a time limit.

use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};

const COLLECTIVES: [&str; 11] = [
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "broadcast",
    "reduce",
    "alltoall",
    "alltoallv",
    "gather",
    "scatter",
    "sendrecv",
    "hypercube",
];

/// Two sizes, below and above the limit of eager messages, in few iterations.
const SMALL: &str = "-b 1K -e 64K -f 64 -n 2 -w 1";

/// Seconds after which a run is taken for hung; far above what a busy machine needs.
const LIMIT: &str = "120";

const OXCCL: &str = env!("CARGO_BIN_EXE_oxccl");

/// `program` with the words of `line`, ended after [`LIMIT`], without the variables of a launcher around the test.
fn command(program: impl AsRef<Path>, line: &str) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", LIMIT]).arg(program.as_ref()).args(line.split_whitespace());
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if ["OMPI_", "PMI", "SLURM_", "NCCL_", "OXCCL_"].iter().any(|p| name.starts_with(p)) {
            command.env_remove(name);
        }
    }
    command
}

fn oxccl(line: &str) -> Output {
    command(OXCCL, line).output().expect("`timeout` and the tool start")
}

/// The standard output of a run that succeeded.
#[track_caller]
fn text(output: Output) -> String {
    let out = String::from_utf8(output.stdout).expect("UTF-8");
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n--- output\n{out}\n--- errors\n{err}", output.status);
    out
}

/// The rows of a table, split into words.
fn rows(table: &str) -> Vec<Vec<&str>> {
    table.lines().filter(|l| !l.starts_with('#')).map(|l| l.split_whitespace().collect()).collect()
}

/// A table of `ranks` ranks with `expected` rows in which every result was checked and right.
#[track_caller]
fn assert_right(table: &str, ranks: usize, expected: usize) {
    let rows = rows(table);
    assert_eq!(rows.len(), expected, "{table}");
    for row in rows {
        assert_eq!(row.len(), 13, "{table}");
        // Elements that are wrong: out of place, and in place where the collective has that.
        assert!(row[8] == "0" && ["0", "N/A"].contains(&row[12]), "{table}");
        assert!(row[5].parse::<f64>().is_ok_and(|us| us > 0.0), "{table}");
    }
    assert_eq!(table.matches("#  Rank ").count(), ranks, "{table}");
    assert!(table.contains("# Out of bounds values : 0 OK"), "{table}");
}

fn every_collective(layout: &str, ranks: usize) {
    for collective in COLLECTIVES {
        let table = text(oxccl(&format!("perf {collective} {SMALL} {layout}")));
        assert!(table.contains(&format!("# Collective test starting: {collective}_perf\n")), "{table}");
        assert_right(&table, ranks, 2);
    }
}

#[test]
fn processes() {
    every_collective("--procs 2", 2);
}

/// Memory that peers cannot map: beside the lines, copied by the kernel, through scratch; with a last piece that is not
/// whole.
#[test]
fn processes_with_private_memory() {
    for route in ["auto", "shm"] {
        for ranks in [2, 3] {
            for collective in COLLECTIVES.iter().filter(|c| **c != "hypercube") {
                let sizes = "-b 24036 -e 1538304 -f 8 -n 2 -w 1 --memory malloc";
                let mut run = command(OXCCL, &format!("perf {collective} {sizes} --procs {ranks}"));
                let table = text(run.env("OXCCL_P2P", route).output().expect("the tool starts"));
                assert_right(&table, ranks, 3);
            }
        }
    }
}

#[test]
fn threads() {
    every_collective("-t 2", 2);
}

#[test]
fn devices_of_one_thread() {
    every_collective("-g 2", 2);
}

#[test]
fn processes_of_threads_of_devices() {
    assert_right(&text(oxccl(&format!("perf all_reduce {SMALL} --procs 2 -t 2 -g 2"))), 8, 2);
}

#[test]
fn every_type_and_operator() {
    let table = text(oxccl("perf all_reduce --procs 2 -b 512 -e 512 -n 1 -w 0 -d all -o all"));
    assert_right(&table, 2, 12 * 6);
}

#[test]
fn every_root() {
    let table = text(oxccl("perf broadcast --procs 3 -b 512 -e 512 -n 1 -w 0 -r all"));
    assert_right(&table, 3, 3);
    assert_eq!(rows(&table).iter().map(|r| r[4]).collect::<Vec<_>>(), ["0", "1", "2"]);
}

#[test]
fn memory_of_the_program_and_single_calls() {
    assert_right(&text(oxccl(&format!("perf all_reduce {SMALL} --procs 2 --memory malloc --mode sync"))), 2, 2);
}

#[test]
fn over_tcp() {
    let mut run = command(OXCCL, &format!("perf all_reduce {SMALL} --procs 2"));
    assert_right(&text(run.env("OXCCL_SHM", "0").output().expect("starts")), 2, 2);
}

/// Every fact that comparisons need stands in every line.
#[test]
fn json_lines() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("points.jsonl");
    for line in ["all_reduce --procs 2", "broadcast -t 2", "sendrecv -g 2"] {
        let mut run = command(OXCCL, &format!("perf {line} {SMALL} --setup here --jsonl"));
        text(run.arg(&file).output().expect("starts"));
    }
    let lines = std::fs::read_to_string(&file).expect("the file was written");
    let points: Vec<serde_json::Value> =
        lines.lines().map(|l| serde_json::from_str(l).unwrap_or_else(|e| panic!("{e}: {l}"))).collect();
    // Two sizes, out of place and in place, of three runs that append.
    assert!((10..=12).contains(&points.len()), "{lines}");
    for p in &points {
        for number in ["ranks", "bytes", "moved", "time_us_median", "time_us_min", "algbw", "busbw", "iters", "reps"] {
            assert!(p[number].as_f64().is_some_and(|v| v > 0.0), "{number}: {p}");
        }
        assert!((p["ok"] == 1) && p["ranks"] == 2 && (p["in_place"] == 0 || p["in_place"] == 1), "{p}");
        assert!(p["impl"] == "oxccl" && p["setup"] == "here" && p["dtype"] == "f32" && p["mode"] == "b2b", "{p}");
        assert!(p["time_us_min"].as_f64() <= p["time_us_median"].as_f64(), "{p}");
        assert_eq!(p["op"] == "sum", p["coll"] == "allreduce", "{p}");
        assert_eq!(p["root"] == 0, p["coll"] == "broadcast", "{p}");
    }
}

/// `-n` single calls, whatever time they take.
#[test]
fn json_lines_of_single_calls() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("points");
    let line = "perf all_reduce -b 8 -e 8 --procs 2 --mode sync -n 7";
    text(oxccl(&format!("{line} --jsonl {}", file.display())));
    assert_eq!(values(&file, "allreduce", "reps"), [7.0, 7.0], "out of place and in place");
    assert_eq!(values(&file, "allreduce", "iters"), [1.0, 1.0]);
}

/// Ranks take the devices in turn, and the head says so.
#[test]
fn devices_are_those_of_the_ranks() {
    let mut run = command(OXCCL, &format!("perf all_reduce {SMALL} --procs 2 -g 3"));
    let table = text(run.env("OXCCL_HOST_DEVICES", "2").output().expect("starts"));
    assert_right(&table, 6, 2);
    let ranks = table.lines().filter(|line| line.starts_with("#  Rank "));
    let words: Vec<Vec<&str>> = ranks.map(|line| line.split_whitespace().collect()).collect();
    let behind = |name: &str| -> Vec<&str> {
        words.iter().map(|w| w.iter().position(|word| *word == name).map_or("", |at| w[at + 1])).collect()
    };
    assert_eq!(behind("device"), ["0", "1", "0", "1", "0", "1"], "{table}");
    let host = String::from_utf8_lossy(rustix::system::uname().nodename().to_bytes()).into_owned();
    assert_eq!(behind("on"), [host.as_str(); 6], "{table}");
}

#[test]
fn the_head_says_how_many_calls_come_before() {
    let head = |more: &str| text(oxccl(&format!("perf all_reduce -b 8 -e 8 -n 1 --procs 2 {more}")));
    assert!(head("").contains(" warmup iters: 5 iters: 1 "));
    assert!(head("-w 7").contains(" warmup iters: 7 iters: 1 "));
}

#[test]
fn a_limit_beyond_all_clocks_is_none() {
    let table = text(oxccl(&format!("perf all_reduce {SMALL} -g 2 -T {}", u64::MAX)));
    assert_right(&table, 2, 2);
}

#[test]
fn a_link_is_a_collective() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let link = folder.path().join("all_reduce_perf");
    symlink(OXCCL, &link).expect("a link");
    let table = text(command(&link, &format!("{SMALL} --procs 2")).output().expect("starts"));
    assert_right(&table, 2, 2);
}

/// What goes into a pipe has no colours, bars or carriage returns, on either stream.
#[test]
fn pipes_get_plain_text() {
    let output = oxccl(&format!("perf all_reduce {SMALL} --procs 2"));
    for stream in [&output.stdout, &output.stderr] {
        let plain = stream.iter().all(|b| *b == b'\n' || (b' '..=b'~').contains(b));
        assert!(plain, "{:?}", String::from_utf8_lossy(stream));
    }
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    text(output);
}

/// A reader that goes away ends the run with an error, not with a hang or a panic.
#[test]
fn a_closed_pipe_ends_the_run() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut run = command(OXCCL, &format!("perf all_reduce {SMALL} -g 2"));
    let output = run.stdout(writer).output().expect("starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && output.status.code() != Some(124), "{}: {errors}", output.status);
    assert!(!errors.contains("panicked"), "{errors}");
}

#[test]
fn senseless_arguments_are_refused() {
    for (line, said) in [
        ("perf all_reduce --procs 0", "--procs"),
        ("perf all_reduce --procs 18446744073709551615", "--procs"),
        ("perf all_reduce -t 100000", "--nthreads"),
        ("perf all_reduce -g 0", "--ngpus"),
        ("perf alltoall -O 0", "-O 0"),
        ("perf init --procs 2 -b 8", "-b"),
        ("perf late --procs 2 --comms 2 -R 2", "--comms, -R"),
        ("perf nothing", "nothing"),
        ("perf all_reduce -b 8 -e 4", "-e is smaller"),
        ("perf broadcast -r 7 -g 2", "root 7"),
        ("perf hypercube -g 3", "power of two"),
        ("perf all_reduce -G 1", "graphs"),
        ("explain all_reduce --ranks 0", "--ranks"),
        ("tune -o /dev/null", "/dev/null is no regular file"),
        ("tune -o /dev/stdout", "/dev/stdout is no regular file"),
    ] {
        let output = oxccl(line);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{line}: {errors}");
        assert!(errors.contains(said), "{line}: {errors}");
    }
}

#[test]
fn explain_draws_what_it_chose() {
    let shown = text(oxccl("explain all_reduce --bytes 1M --ranks 4 --link tcp --draw"));
    let chosen = shown.lines().find(|l| l.starts_with('*')).and_then(|l| l.split_whitespace().nth(1));
    let chosen = chosen.unwrap_or_else(|| panic!("nothing is chosen: {shown}"));
    assert!(shown.contains(&format!("\n{chosen} 4 ranks (all_reduce")), "{shown}");
}

#[test]
fn explain_chooses_among_what_the_environment_allows() {
    let explain = "explain all_reduce --bytes 1M --ranks 4 --link tcp";
    let with = |extra: &str| {
        let mut told = command(OXCCL, &format!("{explain} {extra}"));
        text(told.env("OXCCL_ALGO", "tree").output().expect("it runs"))
    };
    assert!(with("").contains("\n* tree ") && !with("").contains("  ring "), "{}", with(""));
    assert!(with("--algorithms ring").contains("\n* ring "), "{}", with("--algorithms ring"));
}

/// As a communicator that finds the same in the environment, see the runtime's `effective`.
#[test]
fn explain_counts_with_the_channels_that_a_communicator_has() {
    let most = |line: &str, variables: &[(&str, &str)]| {
        let mut told = command(OXCCL, &format!("explain all_reduce --bytes 64M --ranks 4 {line}"));
        let shown = text(told.envs(variables.iter().copied()).output().expect("it runs"));
        let rows = shown.lines().skip(2).take_while(|row| !row.is_empty());
        rows.filter_map(|row| row.trim_start_matches('*').split_whitespace().nth(1)?.parse::<u32>().ok()).max()
    };
    let (two, four) = (("OXCCL_MAX_CHANNELS", "2"), ("NCCL_MIN_CTAS", "4"));
    for messages in ["--link tcp", "--algorithms ring"] {
        for (variables, channels) in [(vec![], 1), (vec![two], 2), (vec![four], 4), (vec![two, four], 2)] {
            assert_eq!(most(messages, &variables), Some(channels), "{messages} {variables:?}");
        }
    }
    assert_eq!(most("", &[two]), Some(1), "what goes by mapped memory has one");
}

#[test]
fn help_names_the_subcommands() {
    let help = text(oxccl("--help"));
    assert!(help.contains("perf") && help.contains("explain"), "{help}");
    assert!(text(oxccl("perf --help")).contains("--procs"));
}

/// The launcher's program, if it is installed. In CI a missing one is a failure, elsewhere a line says what was left out.
fn launcher(name: &str, needed: bool) -> Option<()> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if std::env::split_paths(&path).any(|d| d.join(name).is_file()) {
        return Some(());
    }
    let ci = std::env::var("CI").is_ok_and(|v| v == "true" || v == "1");
    assert!(!(ci && needed), "{name} is not installed, and CI=true says that nothing may be left out");
    // Not captured, unlike what `println!` writes in a test.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {name} is not installed");
    None
}

#[test]
fn under_open_mpi() {
    if launcher("mpirun", true).is_none() {
        return;
    }
    let version = command("mpirun", "--version").output().expect("mpirun starts");
    if !String::from_utf8_lossy(&version.stdout).contains("Open MPI") {
        let _ = writeln!(std::io::stderr(), "SKIPPED: mpirun is not Open MPI's");
        return;
    }
    let mut run = command("mpirun", &format!("-np 4 {OXCCL} perf all_reduce {SMALL}"));
    run.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    run.env("OMPI_MCA_rmaps_base_oversubscribe", "1").env("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe");
    assert_right(&text(run.output().expect("mpirun starts")), 4, 2);
}

#[test]
fn under_mpich() {
    if launcher("mpiexec.hydra", false).is_none() {
        return;
    }
    let run = command("mpiexec.hydra", &format!("-n 4 {OXCCL} perf all_reduce {SMALL}")).output();
    assert_right(&text(run.expect("mpiexec starts")), 4, 2);
}

/// The value of `key` in each line of a file of points whose `coll` is `coll`.
fn values(file: &Path, coll: &str, key: &str) -> Vec<f64> {
    let text = std::fs::read_to_string(file).expect("the points were written");
    let points = text.lines().map(|l| serde_json::from_str::<serde_json::Value>(l).expect("a JSON object"));
    points.filter(|p| p["coll"] == coll).map(|p| p[key].as_f64().expect("a number")).collect()
}

#[test]
fn init_tells_time_memory_and_threads() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("points");
    let line = format!("perf init --procs 2 -n 2 --comms 2 --jsonl {}", file.display());
    let out = text(oxccl(&line));
    assert!(out.contains("memory of an unused communicator") && out.contains("2 rounds, 2 ranks"), "{out}");
    assert!(values(&file, "init", "time_us_median")[0] > 0.0);
    assert!(values(&file, "init_memory", "memory_bytes")[0] >= 0.0);
    assert!(values(&file, "init_memory", "threads")[0] >= 1.0);
}

#[test]
fn late_tells_processor_time_and_wake_up() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("points");
    let out = text(oxccl(&format!("perf late --procs 2 -n 2 --jsonl {}", file.display())));
    assert!(out.contains("processor time while waiting"), "{out}");
    // The machine may be busy: only what must hold on any.
    assert!((0.0..=2.0).contains(&values(&file, "late_cpu", "cpu_share")[0]));
    assert!(values(&file, "late", "time_us_median")[0] > 0.0);
    assert!(!oxccl("perf late --procs 1").status.success(), "nobody to wait for");
    assert!(!oxccl("perf init -g 2").status.success());
}

#[test]
fn several_communicators_take_turns() {
    for layout in ["--procs 2", "--threads 2", "-g 2"] {
        let table = text(oxccl(&format!("perf all_reduce {SMALL} --comms 3 --group 4 {layout}")));
        assert_right(&table, 2, 2);
    }
    assert!(!oxccl("perf all_reduce --comms 2 -R 1").status.success());
}

#[test]
fn tuned_constants_are_explained_and_faulty_ones_do_no_harm() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("x/tune.txt");
    let with_file = |line: &str, log: &str| {
        let mut command = command(OXCCL, line);
        command.env("OXCCL_TUNE_FILE", &file).env("NCCL_DEBUG", log);
        text(command.output().expect("starts"))
    };
    assert!(with_file("tune", "").contains("signal"));
    assert!(with_file("explain all_reduce", "").contains(" file "));
    let table = with_file(&format!("perf all_reduce {SMALL} --procs 2"), "");
    assert_right(&table, 2, 2);
    // What the user says of the cores goes before the file.
    let mut told = command(OXCCL, "explain all_reduce");
    let out = text(told.env("OXCCL_TUNE_FILE", &file).env("OXCCL_CORES", "77").output().expect("starts"));
    let cores = out.lines().find(|l| l.trim_start().starts_with("cores ")).unwrap_or("");
    assert!(cores.contains(" 77 ") && cores.contains("OXCCL_CORES"), "{out}");
    std::fs::write(&file, "oxccl tune 1\nsignal: fast\n").expect("written");
    let out = with_file("explain all_reduce", "");
    assert!(out.contains("line 2: `name = value` is expected") && !out.contains(" file "), "{out}");
    let table = with_file(&format!("perf all_reduce {SMALL} --procs 2"), "WARN");
    assert!(table.contains("# Out of bounds values : 0 OK") && table.contains("line 2"), "the log tells: {table}");
}

#[test]
fn tune_says_why_it_has_no_place_for_its_file() {
    let output = command(OXCCL, "tune").env("OXCCL_TUNE_FILE", "off").output().expect("starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && errors.contains("OXCCL_TUNE_FILE is off"), "{errors}");
}

/// The table and the file cannot both be what the shell made for the output.
#[test]
fn tune_does_not_replace_its_output() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = std::fs::File::create(folder.path().join("table")).expect("a file");
    let output = command(OXCCL, "tune -o /dev/stdout").stdout(file).output().expect("starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && errors.contains("/dev/stdout is where the output goes"), "{errors}");
}

/// What a run of two processes logs with this variable.
fn logged(name: &str, value: &str) -> String {
    logged_with(&[(name, value)])
}

fn logged_with(variables: &[(&str, &str)]) -> String {
    let mut command = command(OXCCL, "perf all_reduce -b 8 -e 8 -n 1 -w 0 --procs 2");
    command.env("NCCL_DEBUG", "WARN").env("OXCCL_TUNE_FILE", "off").envs(variables.iter().copied());
    let out = text(command.output().expect("the tool starts"));
    out.lines().filter(|line| line.contains("NCCL WARN")).map(|line| format!("{line}\n")).collect()
}

/// With the time in front.
#[test]
fn settings_that_are_refused_are_warned_of() {
    for (name, value, why) in [
        ("OXCCL_P2P", "cmaa", "unknown (valid: auto, shm, direct, cma); the default auto is used"),
        ("OXCCL_EAGER_LIMIT", "128K", "out of range"),
        ("OXCCL_MAX_CHANNELS", "5", "out of range"),
        ("OXCCL_ALGO", "rnig", "all algorithms are allowed"),
    ] {
        let log = logged(name, value);
        let line = log.lines().find(|line| line.contains(&format!("{name}={value}"))).unwrap_or_default();
        assert!(line.contains(why), "{name}={value}: {log}");
        let time = line.get(..22).unwrap_or_default();
        let shape: String = time.chars().map(|c| if c.is_ascii_digit() { '9' } else { c }).collect();
        assert_eq!(shape, "[9999-99-99 99:99:99] ", "{line}");
    }
    for (name, value) in [("OXCCL_P2P", " CMA "), ("NCCL_ALGO", "rnig")] {
        assert_eq!(logged(name, value), "", "{name}={value}");
    }
    let wrong = ("OXCCL_P2P", "cmaa");
    let log = logged_with(&[wrong, ("NCCL_DEBUG_TIMESTAMP_FORMAT", "")]);
    assert!(!log.is_empty() && log.lines().all(|line| !line.starts_with('[')), "{log}");
    let log = logged_with(&[wrong, ("NCCL_DEBUG_TIMESTAMP_FORMAT", "at_%s_")]);
    assert!(log.starts_with("at 1") || log.starts_with("at 2"), "{log}");
}

/// A signal would end the processes without a word.
#[test]
fn a_limit_of_the_size_of_files_is_an_error() {
    let line = format!("ulimit -f 64; exec {OXCCL} perf all_reduce -b 1M -e 1M -n 1 -w 0 --procs 2");
    let output = command("bash", "-c").arg(line).output().expect("bash starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("ulimit -f"), "{}: {said}", output.status);
}
