//! The constants of the cost model for this machine: the defaults, or what `oxccl tune` measured and wrote to a file.
//!
//! The file is text. Each section begins with `machine = ...` and serves machines of that kind only, so a home that
//! several machines share is no harm. It measures nothing; which rank's constants hold is the communicator's business.

use std::io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
use std::path::PathBuf;
use std::sync::OnceLock;

use oxccl_schedule::constants::{CONSTANTS, Constant, find};
use oxccl_schedule::cost::CostModel;

use super::{TUNE_FILE, text};
use crate::log::{self, Subsys};

/// The first line of a file, with the version of the format.
const HEAD: &str = "oxccl tune 1";
/// Files are longer by mistake only.
const LONGEST: u64 = 1 << 20;

/// The constants, and where they came from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Constants {
    /// The values.
    pub model: CostModel,
    /// Names of those that the system told.
    pub read: Vec<&'static str>,
    /// Names of those that come from a file.
    pub measured: Vec<&'static str>,
    /// The file they came from.
    pub file: Option<PathBuf>,
    /// Why a file that is there was not used.
    pub refused: Option<String>,
    /// How many cores `OXCCL_CORES` says that there are.
    pub cores_told: Option<usize>,
}

impl Constants {
    /// Where a constant came from, for people.
    pub fn source(&self, constant: &Constant) -> &'static str {
        match (self.measured.contains(&constant.name), constant.name) {
            (_, "cores") if self.cores_told.is_some() => super::CORES.name,
            (true, _) => "file",
            (false, name) if name == "cores" || self.read.contains(&name) => "machine",
            (false, _) => "default",
        }
    }
}

/// The file for this user: `OXCCL_TUNE_FILE`, or the default place; and whether the user named it. `None`: switched off.
pub fn path() -> Option<(PathBuf, bool)> {
    if let Some(named) = text(TUNE_FILE.name) {
        return (named != "off").then(|| (PathBuf::from(named), true));
    }
    let folder = text("XDG_CONFIG_HOME").or_else(|| text("HOME").map(|home| home + "/.config"))?;
    Some((PathBuf::from(folder).join("oxccl/tune.txt"), false))
}

/// What kind of machine this is: the processor's name and the number of processors that are online.
pub fn machine() -> &'static str {
    static MACHINE: OnceLock<String> = OnceLock::new();
    MACHINE.get_or_init(|| {
        let info = first_lines("/proc/cpuinfo");
        let value = |key: &str| {
            let line = info.lines().find(|l| l.starts_with(key))?;
            line.split_once(':').map(|(_, v)| v.trim().to_owned())
        };
        let name = value("model name").or_else(|| value("CPU part")).unwrap_or_else(|| "unknown processor".into());
        format!("{name}, {} processors", processors())
    })
}

/// Processors of the machine that are online, whatever this process may use.
pub fn processors() -> usize {
    let ranges = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    listed(&ranges).unwrap_or_else(oxccl_sys::affinity::available_cores)
}

/// How many processors a list such as `0-3,8` has; `None` for none.
fn listed(ranges: &str) -> Option<usize> {
    let count = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        (last.parse::<usize>().ok()? + 1).checked_sub(first.parse().ok()?)
    };
    ranges.trim().split(',').map(count).sum::<Option<usize>>().filter(|n| *n > 0)
}

/// Bytes of a last cache that count for each processor which shares it, at most, where one cache serves all of a host (Intel's). A machine
/// that has a few of its cores is told of all of that, of which it has a share: of 480 MiB two cores have some 128 (measured,
/// docs/performance.md).
const SHARE_OF_CACHE: f64 = 32.0 * 1024.0 * 1024.0;

/// Bytes that ranks find in a last cache of `bytes` which the machine is told that `sharing` of its processors share.
fn share(bytes: f64, sharing: usize) -> f64 {
    bytes.min(SHARE_OF_CACHE * sharing as f64)
}

/// Bytes of the last cache of the first processor, and by how many it is shared; `None` where the system does not tell. Virtual
/// machines may have none beyond the second, but the processor below has.
fn last_cache() -> Option<(f64, usize)> {
    let read = |index: u32, name: &str| {
        std::fs::read_to_string(format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{name}")).ok()
    };
    let level = |index: &u32| read(*index, "level").and_then(|level| level.trim().parse::<u32>().ok());
    let last = (0..8).filter(|index| level(index) >= Some(3)).max_by_key(level)?;
    let kib: f64 = read(last, "size")?.trim().strip_suffix('K')?.parse().ok()?;
    Some((kib * 1024.0, listed(&read(last, "shared_cpu_list")?)?))
}

/// The beginning of a file, which on large machines would take long to be made whole.
fn first_lines(path: &str) -> String {
    use std::io::Read;
    let mut bytes = Vec::new();
    // Where there is none, the machine has no name.
    let _ = std::fs::File::open(path).and_then(|f| f.take(4096).read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The defaults for this kind of processor.
#[must_use]
pub fn default_model() -> CostModel {
    match oxccl_kernels::favours_strings() {
        // Its stores wait for lines, too, but flag lines still win up to 4 KiB (measured).
        true if oxccl_kernels::favours_strings_outside() => CostModel::of_strings_outside(),
        true if oxccl_kernels::waits_for_lines() => CostModel::of_waiting_strings(),
        true if oxccl_kernels::travels_by_strings() => CostModel::of_travelling_lines(processors() as f64),
        true => CostModel::of_strings(),
        false => CostModel::default(),
    }
}

/// The constants that a communicator made now starts with. A file that cannot be used is told in the log, and the
/// defaults are used.
pub fn load() -> Constants {
    let mut constants = of_machine();
    constants.cores_told = super::cores();
    if let Some(cores) = constants.cores_told {
        constants.model.cores = cores as f64;
    }
    constants
}

/// Those of this machine, whatever its user says of it.
fn of_machine() -> Constants {
    let mut constants = Constants { model: default_model(), ..Constants::default() };
    constants.model.cores = processors() as f64;
    if let Some((bytes, sharing)) = last_cache() {
        let bytes = if oxccl_kernels::travels_by_strings() { share(bytes, sharing) } else { bytes };
        let caches = processors().div_ceil(sharing) as f64;
        for (name, value) in [("last_cache", bytes), ("last_caches", caches)] {
            // What cannot be is not believed.
            if find(name).is_some_and(|constant| constant.set(&mut constants.model, value).is_ok()) {
                constants.read.push(name);
            }
        }
    }
    let Some((path, named)) = path() else { return constants };
    let read = match std::fs::metadata(&path) {
        // Of a home that is another user's or none there is nothing to say.
        Err(e) if !named && matches!(e.kind(), NotFound | PermissionDenied | NotADirectory) => return constants,
        Ok(meta) if !meta.is_file() || meta.len() > LONGEST => Err("it is no file of constants".to_owned()),
        _ => std::fs::read_to_string(&path).map_err(|e| e.to_string()),
    };
    match read.and_then(|text| parse(&text, machine())) {
        Ok(Some(values)) => {
            for (constant, value) in values {
                // `parse` checked the range.
                if constant.set(&mut constants.model, value).is_ok() {
                    constants.measured.push(constant.name);
                }
            }
            constants.file = Some(path);
        }
        Ok(None) => {
            let why = format!("{} has no section for this machine ({})", path.display(), machine());
            log::info(Subsys::TUNING, &format!("{why}; `oxccl tune` adds one. Default constants are used"));
            constants.refused = Some(why);
        }
        Err(e) => {
            let why = format!("{}: {e}", path.display());
            log::warn(&format!("{why}; default constants are used. `oxccl tune` writes the file anew"));
            constants.refused = Some(why);
        }
    }
    constants
}

/// The constants in the section for `machine`, if there is one. Other sections are not judged: they may be those of another version of
/// the library, on a machine with the same home.
///
/// # Errors
/// The first line that is wrong, in that section or in front of all, and why.
pub fn parse(text: &str, machine: &str) -> Result<Option<Vec<(&'static Constant, f64)>>, String> {
    let mut lines = text.lines().enumerate().map(|(i, l)| (i + 1, l.trim()));
    match lines.next() {
        Some((_, HEAD)) => {}
        other => return Err(format!("line 1: `{HEAD}` is expected, not `{}`", other.map_or("", |(_, l)| l))),
    }
    let (mut found, mut mine) = (None, None);
    for (number, line) in lines.filter(|(_, l)| !l.is_empty() && !l.starts_with('#')) {
        let wrong = |why: &str| format!("line {number}: {why}: `{line}`");
        if let Some(of) = section(line) {
            mine = Some(of == machine);
            if of == machine {
                found.get_or_insert_with(Vec::new);
            }
            continue;
        }
        if mine == Some(false) {
            continue;
        }
        let (name, value) = line.split_once('=').ok_or_else(|| wrong("`name = value` is expected"))?;
        let (name, value) = (name.trim(), value.trim());
        let constant = find(name).ok_or_else(|| wrong("no constant has this name"))?;
        let value: f64 = value.parse().map_err(|_| wrong("the value is no number"))?;
        constant.set(&mut CostModel::default(), value).map_err(|e| wrong(&e.to_string()))?;
        found.as_mut().ok_or_else(|| wrong("`machine = ...` is expected first"))?.push((constant, value));
    }
    Ok(found)
}

/// The machine whose section this line begins, if it begins one.
fn section(line: &str) -> Option<&str> {
    line.split_once('=').filter(|(name, _)| name.trim() == "machine").map(|(_, machine)| machine.trim())
}

/// `old`, a file's text or nothing, with the section for `machine` replaced by `values`; what [`parse`] refuses for that machine is gone.
/// A text of another format is replaced as a whole.
pub fn with_section(old: &str, machine: &str, values: &[(&'static Constant, f64)]) -> String {
    let mut text =
        format!("{HEAD}\n# Constants of the cost model, measured by `oxccl tune`; a section per kind of machine.\n");
    // In front of all sections there is nothing to keep.
    let mut mine = true;
    for line in old.lines().skip(1).filter(|_| old.lines().next().map(str::trim) == Some(HEAD)) {
        let section = section(line);
        mine = section.map_or(mine, |of| of == machine);
        if !mine && !line.starts_with('#') && !line.trim().is_empty() {
            if section.is_some() {
                text.push('\n');
            }
            text += line;
            text.push('\n');
        }
    }
    text += &format!("\nmachine = {machine}\n");
    for (c, value) in values {
        text += &format!("{} = {value}\n", c.name);
    }
    text
}

/// All constants of `c` with their sources, as a table for people.
pub fn table(c: &Constants) -> String {
    let mut text = match (&c.file, &c.refused) {
        (Some(file), _) => format!("constants of {}: {}\n", machine(), file.display()),
        (None, Some(why)) => format!("constants: the defaults; {why}\n"),
        (None, None) => "constants: the defaults; `oxccl tune` measures those of this machine\n".to_owned(),
    };
    for constant in CONSTANTS {
        let value = format!("{:.4}", (constant.get)(&c.model));
        let value = value.trim_end_matches('0').trim_end_matches('.');
        let unit = constant.unit;
        text += &format!("  {:<18} {value:>14} {unit:<7} {:<11} {}\n", constant.name, c.source(constant), constant.doc);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn constant(name: &str) -> &'static Constant {
        find(name).expect("a name of the table")
    }

    #[test]
    fn processors_are_counted() {
        assert_eq!(listed("0-3,8\n"), Some(5));
        assert_eq!(listed("7"), Some(1));
        for none in ["", "\n", "3-1", "a", "1-"] {
            assert_eq!(listed(none), None, "{none:?}");
        }
        assert!(last_cache().is_none_or(|(bytes, sharing)| bytes >= 65536.0 && sharing > 0));
    }

    #[test]
    fn few_processors_have_a_share_of_a_cache() {
        const MIB: f64 = 1024.0 * 1024.0;
        assert_eq!(
            [(480.0, 2), (32.0, 2), (32.0, 8), (300.0, 16), (96.0, 1)].map(|(b, n)| share(b * MIB, n) / MIB),
            [64.0, 32.0, 32.0, 300.0, 32.0]
        );
    }

    #[test]
    fn what_is_written_is_read_and_other_machines_stay() {
        let a = [(constant("signal"), 0.25), (constant("copy"), 0.0625)];
        let b = [(constant("signal"), 0.5)];
        let text = with_section("", "A, 2 processors", &a);
        let text = with_section(&text, "B = C, 4 processors", &b);
        let read = |text: &str, machine: &str| {
            let found = parse(text, machine).expect("a good file");
            found.map(|v| v.iter().map(|(c, x)| (c.name, *x)).collect::<Vec<_>>())
        };
        assert_eq!(read(&text, "A, 2 processors"), Some(vec![("signal", 0.25), ("copy", 0.0625)]));
        assert_eq!(read(&text, "B = C, 4 processors"), Some(vec![("signal", 0.5)]));
        assert_eq!(read(&text, "D"), None);
        let text = with_section(&text, "A, 2 processors", &b);
        assert_eq!(read(&text, "A, 2 processors"), Some(vec![("signal", 0.5)]));
        assert_eq!(text.matches("machine =").count(), 2, "{text}");
    }

    #[test]
    fn faults_name_the_line_and_the_reason() {
        let fault = |body: &str| parse(&format!("{HEAD}\n{body}\n"), "A").map(drop).expect_err("a fault");
        assert!(fault("machine = A\nsignal 1").starts_with("line 3: `name = value`"));
        assert!(fault("machine = A\nsignall = 1").contains("no constant"));
        assert!(fault("signal = 1\nmachine = A").contains("first"));
        assert!(fault("signal 1\nmachine = A").starts_with("line 2: `name = value`"));
        assert!(fault("machine = A\nsignal = fast").contains("no number"));
        assert!(fault("machine = A\nsignal = -1").contains("out of range"));
        assert!(fault("machine = A\nsignal = NaN").contains("out of range"));
        for text in ["", "oxccl tune 2\n", "\u{0}\u{1}"] {
            assert!(parse(text, "A").is_err_and(|e| e.contains("line 1")));
        }
        let other = format!("{HEAD}\nmachine = B\nof_the_next_version = 1\nmachine = A\nsignal = 1\n");
        let found = parse(&other, "A").expect("the other section is not judged").expect("a section");
        assert_eq!(found.iter().map(|(c, value)| (c.name, *value)).collect::<Vec<_>>(), [("signal", 1.0)]);
        // What tune writes is no longer refused, and keeps what is not its own.
        for wrong in ["signal = 1\n", "rubbish\n", "machine = A\nsignal = fast\n", "machine=A\nsignal = fast\n"] {
            let text =
                with_section(&format!("{HEAD}\n{wrong}{}", &other[HEAD.len()..]), "A", &[(constant("signal"), 0.5)]);
            let found = parse(&text, "A").expect("no line is refused").expect("a section");
            assert_eq!(found.iter().map(|(_, value)| *value).collect::<Vec<_>>(), [0.5], "{text}");
            assert!(text.contains("machine = B\nof_the_next_version = 1\n"), "{text}");
        }
        assert_eq!(with_section("rubbish\nmachine = B\n", "A", &[]).matches("machine").count(), 2, "rubbish goes");
    }

    #[test]
    fn the_machine_has_a_name_and_processors() {
        assert!(machine().ends_with(&format!(", {} processors", processors())) && processors() > 0);
    }

    #[test]
    fn tables_say_where_each_constant_came_from() {
        let mut c = Constants { measured: vec!["signal"], file: Some("/x/tune.txt".into()), ..Constants::default() };
        constant("signal").set(&mut c.model, 0.5).expect("in range");
        let text = table(&c);
        let line = |name: &str| text.lines().find(|l| l.trim_start().starts_with(name)).unwrap_or("").to_owned();
        assert!(line("signal").contains("0.5 us      file "), "{text}");
        assert!(line("cores").contains(" machine ") && line("eager").contains(" default "), "{text}");
        assert!(text.contains("/x/tune.txt"));
        // What the user says holds, whatever a file does.
        let told = Constants { measured: vec!["cores"], cores_told: Some(64), ..c };
        assert_eq!(told.source(constant("cores")), "OXCCL_CORES");
    }
}
