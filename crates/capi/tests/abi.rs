//! Builds the C and C++ programs of `tests/abi/` with the system's compilers against the headers and the two shared
//! libraries, and runs them; and checks what the libraries export. Needs gcc, g++ and nm.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

#[derive(Clone, Copy, PartialEq)]
enum Library {
    Nccl,
    Rccl,
}
use Library::{Nccl, Rccl};

impl Library {
    const BOTH: [Library; 2] = [Nccl, Rccl];

    fn name(self) -> &'static str {
        match self {
            Nccl => "nccl",
            Rccl => "rccl",
        }
    }

    fn soname(self) -> &'static str {
        match self {
            Nccl => "libnccl.so.2",
            Rccl => "librccl.so.1",
        }
    }
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository is there")
}

fn sources() -> PathBuf {
    repository().join("tests/abi")
}

fn include() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("include")
}

/// Runs a command that has to succeed; its output otherwise explains the failure.
fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

/// A folder with both libraries under the names that programs link with and those that the loader looks for. It lies
/// in cargo's folder for test files, is made anew by each run and shared by the tests of this process.
fn libraries() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("abi");
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("the test folder can be made");
        for library in Library::BOTH {
            let built = build(library);
            for name in [format!("lib{}.so", library.name()), library.soname().to_string()] {
                std::os::unix::fs::symlink(&built, folder.join(name)).expect("links can be made");
            }
        }
        folder
    })
}

/// Builds a library in the profile and folder of this test and says where it is.
fn build(library: Library) -> PathBuf {
    let tests = std::env::current_exe().expect("a test knows its own path");
    let profile_folder = tests.ancestors().nth(2).expect("target/<profile>/deps/<test>");
    let profile = match profile_folder.file_name().and_then(|n| n.to_str()).expect("a profile's name") {
        "debug" => "dev",
        other => other,
    };
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let target = profile_folder.parent().expect("the target folder");
    let mut command = Command::new(cargo);
    command.current_dir(repository()).args(["build", "--quiet", "--profile", profile, "--target-dir"]).arg(target);
    run(command.args(["-p", &format!("oxccl-{}", library.name())]));
    profile_folder.join(format!("lib{}.so", library.name()))
}

const WARNINGS: [&str; 4] = ["-Wall", "-Wextra", "-pedantic", "-Werror"];

/// A compiler's command line for one library's headers.
fn compiler(library: Library, cxx: bool, standard: &str) -> Command {
    let mut command = Command::new(if cxx { "g++" } else { "gcc" });
    command.arg(format!("-std={standard}")).args(WARNINGS).arg("-I").arg(include());
    command.args(["-DOXCCL_NO_CUDA", "-DOXCCL_NO_HIP"]);
    if library == Rccl {
        command.arg("-DABI_RCCL");
    }
    command
}

/// Compiles and links one program of `tests/abi/`.
fn program(library: Library, source: &str) -> PathBuf {
    let cxx = source.ends_with(".cpp");
    let folder = libraries();
    let binary = folder.join(format!("{}-{}", source.replace('.', "-"), library.name()));
    let mut command = compiler(library, cxx, if cxx { "c++14" } else { "c11" });
    command.args(["-O1", "-g", "-pthread", "-o"]).arg(&binary).arg(sources().join(source));
    command.arg("-L").arg(folder).arg(format!("-l{}", library.name()));
    run(command.arg(format!("-Wl,-rpath,{}", folder.display())));
    binary
}

/// The command of a program, without the settings of whoever runs the tests.
fn command(binary: &Path) -> Command {
    let mut command = Command::new(binary);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if ["NCCL_", "RCCL_", "OXCCL_"].iter().any(|p| text.starts_with(p)) {
            command.env_remove(&name);
        }
    }
    command.env("OXCCL_HOST_DEVICES", "8");
    command
}

fn compile_and_run(library: Library, source: &str) -> String {
    let output = run(&mut command(&program(library, source)));
    String::from_utf8(output.stdout).expect("programs print text")
}

#[test]
fn headers_compile_everywhere_without_a_warning() {
    for library in Library::BOTH {
        let own = if library == Nccl { "nccl.h" } else { "rccl/rccl.h" };
        let mut headers = vec![own.to_string(), format!("{own}>\n#include <oxccl.h")];
        headers.push(if library == Rccl { "rccl/nccl.h".into() } else { "oxccl.h".into() });
        for (i, header) in headers.iter().enumerate() {
            let file = libraries().join(format!("include-{}-{i}.c", library.name()));
            std::fs::write(&file, format!("#include <{header}>\n")).expect("the test folder takes files");
            for (cxx, standards) in [(false, &["c99", "c11", "c17"][..]), (true, &["c++11", "c++14", "c++17", "c++20"])]
            {
                for standard in standards {
                    let mut command = compiler(library, cxx, standard);
                    run(command.args(["-fsyntax-only", "-x", if cxx { "c++" } else { "c" }]).arg(&file));
                }
            }
        }
    }
}

#[test]
fn headers_agree_with_later_includes_of_the_vendors_types() {
    let file = libraries().join("vendor-types.cpp");
    let text = "#include <nccl.h>\ntypedef struct CUstream_st *cudaStream_t;\ncudaStream_t s;\n";
    std::fs::write(&file, text).expect("the test folder takes files");
    run(compiler(Nccl, true, "c++14").arg("-fsyntax-only").arg(&file));
}

#[test]
fn layouts_and_values_are_those_of_the_original() {
    for library in Library::BOTH {
        for (cxx, standard) in [(false, "c11"), (true, "c++14"), (true, "c++20")] {
            let mut command = compiler(library, cxx, standard);
            let source = sources().join("layout.c");
            run(command.args(["-fsyntax-only", "-x", if cxx { "c++" } else { "c" }]).arg(source));
        }
    }
}

#[test]
fn both_headers_share_their_common_part() {
    let read = |path: &str| std::fs::read_to_string(include().join(path)).expect("the header is there");
    let common = |text: &str| {
        let begin = text.find("/* -- begin of what").expect("begin mark");
        let end = text.find("/* -- end of what").expect("end mark");
        // The stream's name has another length, so lines may be broken elsewhere.
        text[begin..end].replace("hipStream_t", "cudaStream_t").split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(common(&read("nccl.h")), common(&read("rccl/rccl.h")));
}

fn exported(library: Library) -> Vec<String> {
    let path = libraries().join(library.soname());
    let output = run(Command::new("nm").args(["-D", "--defined-only", "--format=posix"]).arg(path));
    let text = String::from_utf8(output.stdout).expect("nm prints text");
    let mut names: Vec<_> = text.lines().map(|l| l.split(' ').next().expect("a name").to_string()).collect();
    names.sort();
    names
}

#[test]
fn exactly_the_documented_symbols_are_exported() {
    for library in Library::BOTH {
        let list = sources().join(format!("symbols/{}.txt", library.name()));
        let text = std::fs::read_to_string(list).expect("the list is there");
        let mut wanted: Vec<_> = text.lines().map(str::to_string).collect();
        wanted.sort();
        let found = exported(library);
        let missing: Vec<_> = wanted.iter().filter(|n| !found.contains(n)).collect();
        let surplus: Vec<_> = found.iter().filter(|n| !wanted.contains(n)).collect();
        assert!(
            missing.is_empty() && surplus.is_empty(),
            "{}: missing {missing:?}, surplus {surplus:?}",
            library.name()
        );
        assert!(found.iter().all(|n| !n.contains('@')), "symbols have no versions");
    }
}

#[test]
fn the_function_table_is_what_is_exported() {
    for library in Library::BOTH {
        let mut listed = Vec::new();
        for f in oxccl_capi::FUNCTIONS.iter().filter(|f| if library == Nccl { f.nccl } else { f.rccl }) {
            listed.push(f.name.to_string());
            if f.twin {
                listed.push(format!("p{}", f.name));
            }
        }
        listed.sort();
        assert_eq!(listed, exported(library));
    }
}

#[test]
fn the_libraries_have_the_names_that_programs_ask_for() {
    for library in Library::BOTH {
        let output = run(Command::new("readelf").arg("-d").arg(libraries().join(library.soname())));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains(&format!("[{}]", library.soname())), "{text}");
    }
}

#[test]
fn bad_arguments_get_the_right_code_and_words() {
    for library in Library::BOTH {
        let output = compile_and_run(library, "arguments.c");
        let rows = output.lines().find_map(|l| l.strip_prefix("rows "));
        let rows: u32 = rows.and_then(|n| n.parse().ok()).expect("the number of rows");
        assert!(rows > 180, "only {rows} rows ran");
    }
}

#[test]
fn a_cplusplus_program_links_every_function() {
    for library in Library::BOTH {
        compile_and_run(library, "cplusplus.cpp");
    }
}

#[test]
fn one_thread_drives_four_ranks() {
    for library in Library::BOTH {
        compile_and_run(library, "init_all.c");
    }
}

#[test]
fn communicators_are_made_out_of_communicators() {
    for library in Library::BOTH {
        compile_and_run(library, "elastic.c");
    }
}

#[test]
fn threads_are_ranks() {
    compile_and_run(Nccl, "threads.c");
}

#[test]
fn processes_are_ranks() {
    for library in Library::BOTH {
        compile_and_run(library, "processes.c");
    }
}

#[test]
fn pre_mul_sum_multiplies() {
    compile_and_run(Nccl, "premulsum.c");
}

#[test]
fn rccl_has_its_own_functions() {
    compile_and_run(Rccl, "rccl_extras.c");
}

#[test]
fn streams_and_events_keep_order() {
    for library in Library::BOTH {
        compile_and_run(library, "streams.c");
    }
}

#[test]
fn groups_can_be_simulated() {
    for library in Library::BOTH {
        compile_and_run(library, "simulate.c");
    }
}

#[test]
fn the_libraries_differ_where_the_originals_do() {
    let said = |library, level: Option<&str>| {
        let mut command = command(&program(library, "flavour.c"));
        if let Some(level) = level {
            command.env("NCCL_DEBUG", level);
        }
        String::from_utf8(run(&mut command).stdout).expect("programs print text")
    };
    // Left alone, NCCL is silent and RCCL tells of errors of the device.
    assert_eq!(said(Nccl, None), "");
    let text = said(Rccl, None);
    assert!(text.lines().count() == 1 && text.contains("[0] [FATAL ERROR]: MemAlloc : ptr argument is NULL"), "{text}");
    assert_eq!(said(Rccl, Some("NONE")), "");
    // NCCL knows no such level.
    assert_eq!(said(Nccl, Some("ERROR")), "");
    let text = said(Nccl, Some("WARN"));
    assert!(text.contains("\nNCCL version 2.29.7+oxccl\n") && text.contains("NCCL WARN MemAlloc"), "{text}");
    let text = said(Rccl, Some("WARN"));
    for part in
        ["RCCL version : 2.29.7-", "\nHIP version  : ", "\nROCm version : ", "\nHostname     : ", "\nLibrccl path : /"]
    {
        assert!(text.contains(part), "{part:?} in {text}");
    }
    assert!(text.contains("librccl.so") && text.contains("[FATAL ERROR]: MemAlloc"), "{text}");
    assert!(!said(Rccl, Some("VERSION")).contains("WARN"));
}

#[test]
fn communicators_go_on_in_any_order() {
    let program = program(Nccl, "order.c");
    for shm in ["1", "0"] {
        for ranks in ["threads", "processes"] {
            run(command(&program).args([ranks, "free"]).env("OXCCL_SHM", shm));
        }
    }
}

#[test]
fn launches_keep_the_hosts_order_where_that_is_asked_for() {
    let nccl = program(Nccl, "order.c");
    for shm in ["1", "0"] {
        for ranks in ["threads", "processes"] {
            run(command(&nccl).args([ranks, "chain"]).env("NCCL_LAUNCH_ORDER_IMPLICIT", "1").env("OXCCL_SHM", shm));
        }
    }
    // Without it the chain of streams is none, and is found out.
    let output = command(&nccl).args(["threads", "chain"]).output().expect("the program runs");
    assert!(!output.status.success());
    let rccl = program(Rccl, "order.c");
    run(command(&rccl).args(["threads", "chain"]).env("RCCL_ENABLE_CONTEXT_TRACKING", "1"));
}

#[test]
fn an_abort_sets_waiting_threads_free() {
    compile_and_run(Nccl, "abort.c");
}

#[test]
fn a_profiler_can_interpose() {
    let tool = libraries().join("libinterpose.so");
    let mut compile = compiler(Nccl, false, "gnu11");
    compile.args(["-shared", "-fPIC", "-o"]).arg(&tool).arg(sources().join("interpose.c"));
    run(&mut compile);
    let output = run(command(&program(Nccl, "init_all.c")).env("LD_PRELOAD", &tool));
    let text = String::from_utf8(output.stdout).expect("programs print text");
    let number = |word: &str| -> u32 {
        let line = text.lines().find_map(|l| l.strip_prefix(word)).unwrap_or_else(|| panic!("no {word:?} in {text:?}"));
        line.trim().parse().expect("a number")
    };
    assert_eq!(number("interposed"), number("allreduces"));
    assert!(number("interposed") > 0);
}
