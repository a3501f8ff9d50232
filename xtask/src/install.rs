//! `install --prefix DIR`: libraries, headers, pkg-config files and tools, laid out as programs expect them; and the
//! check that C programs build and run against such a prefix.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::program::{Program, exists};
use crate::target;

/// The version of the C interface.
const ABI: &str = "2.29.7";

/// A shared library: cargo's file, the name it is loaded by, the full name and the name it is linked by.
struct Library {
    package: &'static str,
    built: &'static str,
    soname: &'static str,
    full: String,
    link: &'static str,
    description: &'static str,
}

fn libraries() -> [Library; 2] {
    [
        Library {
            package: "nccl",
            built: "libnccl.so",
            soname: "libnccl.so.2",
            full: format!("libnccl.so.{ABI}"),
            link: "libnccl.so",
            description: "oxccl with the C interface of NCCL",
        },
        Library {
            package: "rccl",
            built: "librccl.so",
            soname: "librccl.so.1",
            full: "librccl.so.1.0".to_owned(),
            link: "librccl.so",
            description: "oxccl with the C interface of RCCL",
        },
    ]
}

/// Headers that programs include; others beside them are installed too.
const HEADERS: &[&str] = &["nccl.h", "rccl/rccl.h", "oxccl.h"];

/// Names under which the tool behaves as `oxccl perf NAME`.
const PERF: &[&str] = &[
    "all_reduce",
    "all_gather",
    "alltoall",
    "alltoallv",
    "broadcast",
    "gather",
    "hypercube",
    "reduce",
    "reduce_scatter",
    "scatter",
    "sendrecv",
];

/// What to install, and where.
#[derive(Debug, PartialEq, Eq)]
pub struct Plan {
    /// The folder that `lib`, `include` and `bin` are made in.
    pub prefix: PathBuf,
    /// Cargo's profile: `release`, or `dev` for tests.
    pub profile: String,
    /// Only the two libraries with their headers and pkg-config files.
    pub libraries_only: bool,
}

impl Plan {
    /// Everything, for release.
    pub fn all(prefix: &Path) -> Plan {
        Plan { prefix: prefix.to_owned(), profile: "release".to_owned(), libraries_only: false }
    }

    /// Reads the options that follow `install`.
    pub fn parse(options: &[&str]) -> Result<Plan> {
        let (mut prefix, mut profile, mut libraries_only) = (None, "release", false);
        let mut rest = options.iter();
        while let Some(option) = rest.next() {
            let mut value = || rest.next().copied().with_context(|| format!("{option} needs a value"));
            match *option {
                "--prefix" => prefix = Some(PathBuf::from(value()?)),
                "--profile" => profile = value()?,
                "--libraries" => libraries_only = true,
                _ => bail!("install: unknown option {option}"),
            }
        }
        Ok(Plan { prefix: prefix.context("install needs --prefix DIR")?, profile: profile.to_owned(), libraries_only })
    }

    /// Where cargo puts what it builds with this profile.
    fn built(&self) -> PathBuf {
        target().join(if self.profile == "dev" { "debug" } else { &self.profile })
    }
}

/// Builds and lays out what `plan` says.
pub fn run(plan: &Plan) -> Result<()> {
    build(plan)?;
    let (prefix, built) = (std::path::absolute(&plan.prefix)?, plan.built());
    for folder in ["lib/pkgconfig", "include"] {
        let folder = prefix.join(folder);
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    for library in libraries() {
        let lib = prefix.join("lib");
        copy(&built.join(library.built), &lib.join(&library.full))?;
        strip(&lib.join(&library.full))?;
        link(&library.full, &lib.join(library.soname))?;
        link(library.soname, &lib.join(library.link))?;
        pkg_config(&prefix, library.package, library.description, library.package)?;
        say(&lib.join(&library.full))?;
    }
    pkg_config(&prefix, "oxccl", "oxccl: collective communication on host devices (oxccl.h)", "nccl")?;
    headers(&crate::root().join("crates/capi/include"), &prefix.join("include"))?;
    if !plan.libraries_only {
        host_runtimes(&prefix, &built)?;
        tools(&prefix, &built)?;
    }
    println!("installed under {}", prefix.display());
    Ok(())
}

/// Installs the tool and its links.
fn tools(prefix: &Path, built: &Path) -> Result<()> {
    let tool = prefix.join("bin/oxccl");
    fs::create_dir_all(prefix.join("bin")).context("cannot make the folder of the tool")?;
    copy(&built.join("oxccl"), &tool)?;
    strip(&tool)?;
    say(&tool)?;
    for name in PERF {
        link("oxccl", &prefix.join(format!("bin/{name}_perf")))?;
    }
    println!("{} links to bin/oxccl: {}_perf", PERF.len(), PERF.join("_perf, "));
    Ok(())
}

/// The host implementations of the CUDA and HIP runtimes: cargo's file, the file installed, links to it.
const HOST_RUNTIMES: &[(&str, &str, &[&str])] = &[
    ("libcudart12.so", "libcudart.so.12", &["libcudart.so"]),
    ("libcudart13.so", "libcudart.so.13", &[]),
    ("libamdhip64.so", "libamdhip64.so.7", &["libamdhip64.so.6", "libamdhip64.so"]),
];

/// Installs them in a folder of their own, only for those who ask for it: nothing finds them by accident.
fn host_runtimes(prefix: &Path, built: &Path) -> Result<()> {
    let folder = prefix.join("lib/oxccl-host");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    for (file, name, links) in HOST_RUNTIMES {
        copy(&built.join(file), &folder.join(name))?;
        strip(&folder.join(name))?;
        for other in *links {
            link(name, &folder.join(other))?;
        }
        say(&folder.join(name))?;
    }
    toolkit(&folder.join("cuda"))?;
    headers(&crate::root().join("crates/hostrt/include"), &prefix.join("include/oxccl-host"))
}

/// The CUDA version whose headers and functions the host implementation has.
const CUDA: &str = "12.9.79";

/// A folder in the shape of NVIDIA's toolkit, as CMake's FindCUDAToolkit expects it: the version, headers and libraries.
fn toolkit(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let write = |name: &str, text: String| {
        let file = folder.join(name);
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
    };
    write("version.txt", format!("CUDA Version {CUDA}\n"))?;
    write("version.json", format!("{{\"cuda\": {{\"name\": \"oxccl host runtime\", \"version\": \"{CUDA}\"}}}}\n"))?;
    link("../../../include/oxccl-host", &folder.join("include"))?;
    link("..", &folder.join("lib64"))
}

fn build(plan: &Plan) -> Result<()> {
    let mut line = format!("cargo build --locked --profile {} -p oxccl-nccl -p oxccl-rccl", plan.profile);
    if !plan.libraries_only {
        line += " -p oxccl-cli -p oxccl-cudart12 -p oxccl-cudart13 -p oxccl-amdhip64";
    }
    Program::new(&line, Duration::from_secs(1800)).run()
}

/// Copies by way of a new file, so that a program that runs from the old one is not disturbed.
fn copy(from: &Path, to: &Path) -> Result<()> {
    let mut new = to.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    fs::copy(from, &new).with_context(|| format!("cannot copy {} to {}", from.display(), new.display()))?;
    fs::rename(&new, to).with_context(|| format!("cannot replace {}", to.display()))
}

/// Copies the headers of `from` and of the folders in it.
fn headers(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("cannot make {}", to.display()))?;
    for entry in fs::read_dir(from).with_context(|| format!("cannot list {}", from.display()))? {
        let entry = entry?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            headers(&from, &to)?;
        } else {
            copy(&from, &to)?;
            say(&to)?;
        }
    }
    Ok(())
}

fn link(target: &str, at: &Path) -> Result<()> {
    if at.symlink_metadata().is_ok() {
        fs::remove_file(at).with_context(|| format!("cannot replace {}", at.display()))?;
    }
    symlink(target, at).with_context(|| format!("cannot make the link {}", at.display()))
}

fn strip(file: &Path) -> Result<()> {
    if !exists("strip") {
        println!("strip is not installed; {} keeps its symbols", file.display());
        return Ok(());
    }
    Program::new("strip --strip-unneeded", Duration::from_secs(60)).arg(file).run()
}

fn pkg_config(prefix: &Path, name: &str, description: &str, library: &str) -> Result<()> {
    let text = format!(
        "prefix={}\nlibdir=${{prefix}}/lib\nincludedir=${{prefix}}/include\n\nName: {name}\nDescription: {description}\n\
         Version: {ABI}\nLibs: -L${{libdir}} -l{library}\nCflags: -I${{includedir}}\n",
        prefix.display()
    );
    let file = prefix.join(format!("lib/pkgconfig/{name}.pc"));
    fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
}

fn say(file: &Path) -> Result<()> {
    let size = fs::metadata(file)?.len();
    println!("{:9.1} kB  {}", size as f64 / 1000.0, file.display());
    Ok(())
}

/// Builds every program of `examples/c` against each library of `prefix` and runs it; checks that each header stands
/// alone in C and C++.
pub fn check(prefix: &Path) -> Result<()> {
    let work = target().join("c-check");
    fs::create_dir_all(&work)?;
    for header in HEADERS {
        header_stands_alone(prefix, &work, header)?;
    }
    let folder = crate::root().join("examples/c");
    let mut programs: Vec<PathBuf> = fs::read_dir(&folder)?.map(|e| e.map(|e| e.path())).collect::<Result<_, _>>()?;
    programs.retain(|p| p.extension().is_some_and(|e| e == "c"));
    programs.sort();
    ensure!(!programs.is_empty(), "no programs in {}", folder.display());
    for library in libraries() {
        loads_by(&prefix.join("lib").join(&library.full), library.soname)?;
        for source in &programs {
            let name = source.file_stem().unwrap_or_default().display();
            let program = work.join(format!("{name}-{}", library.package));
            compile(prefix, source, &program, library.package)?;
            Program::at(&program, Duration::from_secs(60)).run()?;
        }
    }
    println!("{} C programs run with each of 2 libraries", programs.len());
    Ok(())
}

/// Compiles as the README says: with the flags that pkg-config gives, or, where it is not installed, the same by hand.
fn compile(prefix: &Path, source: &Path, program: &Path, library: &str) -> Result<()> {
    let lib = prefix.join("lib");
    let by_hand = format!("-I{} -L{} -l{library}", prefix.join("include").display(), lib.display());
    let flags = if exists("pkg-config") { flags(&lib.join("pkgconfig"), library)? } else { by_hand };
    let mut compiler = Program::new("cc -std=c11 -O2 -Wall -Wextra -Werror -pthread", Duration::from_secs(60))
        .arg(source)
        .arg("-o")
        .arg(program);
    for flag in flags.split_whitespace() {
        compiler = compiler.arg(flag);
    }
    compiler.arg(format!("-Wl,-rpath,{}", lib.display())).run()
}

/// What pkg-config says for `library`.
fn flags(folder: &Path, library: &str) -> Result<String> {
    let mut said = String::new();
    Program::new("pkg-config --cflags --libs", Duration::from_secs(20))
        .arg(library)
        .env("PKG_CONFIG_PATH", folder)
        .run_and_show(|line| said += &format!("{line} "))?;
    Ok(said)
}

fn header_stands_alone(prefix: &Path, work: &Path, header: &str) -> Result<()> {
    let mut compilers = vec![("cc -std=c99", "c")];
    if exists("c++") {
        compilers.push(("c++ -std=c++11", "cc"));
    }
    for (compiler, ending) in compilers {
        let source = work.join(format!("header.{ending}"));
        fs::write(&source, format!("#include <{header}>\nint main(void) {{ return 0; }}\n"))?;
        Program::new(&format!("{compiler} -Wall -Wextra -Werror -pedantic -fsyntax-only"), Duration::from_secs(60))
            .arg(format!("-I{}", prefix.join("include").display()))
            .arg(&source)
            .run()?;
    }
    Ok(())
}

/// The library names itself as programs look for it.
fn loads_by(file: &Path, soname: &str) -> Result<()> {
    let bytes = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let name = [soname.as_bytes(), b"\0"].concat();
    if bytes.windows(name.len()).any(|w| w == name) {
        return Ok(());
    }
    bail!(
        "{} does not name itself {soname}; programs that were linked with the original would not find it",
        file.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_replaced_and_pkg_config_names_the_prefix() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let at = folder.path().join("libx.so");
        link("a", &at).expect("new link");
        link("b", &at).expect("replaced link");
        assert_eq!(fs::read_link(&at).expect("a link"), Path::new("b"));
        fs::create_dir_all(folder.path().join("lib/pkgconfig")).expect("folders");
        pkg_config(folder.path(), "nccl", "words", "nccl").expect("written");
        let text = fs::read_to_string(folder.path().join("lib/pkgconfig/nccl.pc")).expect("readable");
        assert!(text.starts_with(&format!("prefix={}\n", folder.path().display())), "{text}");
        assert!(text.contains("Libs: -L${libdir} -lnccl\n"), "{text}");
    }

    #[test]
    fn options_are_read() {
        let plan = Plan::parse(&["--prefix", "p", "--libraries", "--profile", "dev"]).expect("good options");
        assert_eq!(plan, Plan { prefix: "p".into(), profile: "dev".into(), libraries_only: true });
        assert!(plan.built().ends_with("debug"));
        assert_eq!(Plan::parse(&["--prefix", "p"]).expect("a prefix is enough"), Plan::all(Path::new("p")));
        assert!(Plan::parse(&[]).is_err() && Plan::parse(&["--prefix"]).is_err() && Plan::parse(&["p"]).is_err());
    }

    #[test]
    fn a_library_with_another_name_is_refused() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("lib");
        fs::write(&file, b"..libnccl.so.2\0..").expect("written");
        assert!(loads_by(&file, "libnccl.so.2").is_ok());
        assert!(loads_by(&file, "librccl.so.1").is_err());
    }
}
