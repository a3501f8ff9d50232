//! Builds C and C++ programs of `tests/abi/` with the system's compilers against an installed prefix with the headers
//! and the two libraries, and runs them; and checks what the libraries export. Needs gcc, g++ and nm. The chapters of
//! the interface are in chapters.rs.

mod common;

use common::{Library, Nccl, Rccl, command, compile, compiler, folder, include, lib, link, run, sources};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;

/// Compiles and links one program of `tests/abi/`.
fn program(library: Library, source: &str) -> PathBuf {
    let cxx = source.ends_with(".cpp");
    let binary = folder().join(format!("{}-{}", source.replace('.', "-"), library.name()));
    let standard = if cxx { "c++14" } else { "c11" };
    let object = binary.with_extension("o");
    compile(compiler(library, cxx, standard), source, if cxx { "c++" } else { "c" }, &object);
    link(compiler(library, cxx, standard), library, &[object], &binary);
    binary
}

fn compile_and_run(library: Library, source: &str) -> String {
    let output = run(&mut command(program(library, source)));
    String::from_utf8(output.stdout).expect("programs print text")
}

#[test]
fn headers_compile_everywhere_without_a_warning() {
    for library in Library::BOTH {
        let own = if library == Nccl { "nccl.h" } else { "rccl/rccl.h" };
        let mut headers = vec![own.to_string(), format!("{own}>\n#include <oxccl.h")];
        headers.push(if library == Rccl { "rccl/nccl.h".into() } else { "oxccl.h".into() });
        for (i, header) in headers.iter().enumerate() {
            let file = folder().join(format!("include-{}-{i}.c", library.name()));
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
    let file = folder().join("vendor-types.cpp");
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

/// The assertions, in C, that a struct of the headers is laid out as ours.
macro_rules! as_in_rust {
    ($type:ident { $($field:ident),* $(,)? }) => {{
        use oxccl_capi::abi::$type as Ours;
        let mut text = format!("SAME(sizeof({}) == {});\n", stringify!($type), std::mem::size_of::<Ours>());
        $(
            let (name, offset) = (stringify!($field), std::mem::offset_of!(Ours, $field));
            text += &format!("SAME(offsetof({}, {name}) == {offset});\n", stringify!($type));
        )*
        text
    }};
}

#[test]
fn structs_are_laid_out_in_rust_as_in_the_headers() {
    let mut text = String::from(
        "#include <stddef.h>\n#ifdef ABI_RCCL\n#include <rccl/rccl.h>\n#else\n#include <nccl.h>\n#endif\n\
         #define SAME(what) _Static_assert(what, #what)\n",
    );
    text += &as_in_rust!(ncclUniqueId { internal });
    text += &as_in_rust!(ncclConfig_t {
        size,
        magic,
        version,
        blocking,
        cgaClusterSize,
        minCTAs,
        maxCTAs,
        netName,
        splitShare,
        trafficClass,
        commName,
        collnetEnable,
        CTAPolicy,
        shrinkShare,
        nvlsCTAs,
        nChannelsPerNetPeer,
        nvlinkCentricSched,
        graphUsageMode,
        numRmaCtx,
    });
    text += &as_in_rust!(ncclSimInfo_t { size, magic, version, estimatedTime });
    text += &as_in_rust!(ncclWaitSignalDesc_t { opCnt, peer, sigIdx, ctx });
    let file = folder().join("as-in-rust.c");
    std::fs::write(&file, text).expect("the test folder takes files");
    for library in Library::BOTH {
        run(compiler(library, false, "c11").arg("-fsyntax-only").arg(&file));
    }
}

/// Whether a text calls a function.
fn calls(text: &str, name: &str) -> bool {
    text.match_indices(name).any(|(at, _)| text[at + name.len()..].starts_with(['(', ')']))
}

#[test]
fn every_function_that_works_is_called_by_a_program() {
    let mut text = String::new();
    for entry in std::fs::read_dir(sources()).expect("the programs are there") {
        let path = entry.expect("a folder can be listed").path();
        if path.extension().is_some_and(|e| e == "c" || e == "h") {
            text += &std::fs::read_to_string(path).expect("a program can be read");
        }
    }
    for f in oxccl_capi::FUNCTIONS.iter().filter(|f| f.status == oxccl_capi::Status::Works) {
        // These have no declaration in the headers of C programs.
        let undeclared = f.chapter == "device_api" || f.chapter == "host_interface" || f.name.ends_with("Internal");
        assert!(undeclared || calls(&text, f.name), "no program of tests/abi calls {}", f.name);
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
    let path = lib().join(library.soname());
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
        let output = run(Command::new("readelf").arg("-d").arg(lib().join(library.soname())));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains(&format!("[{}]", library.soname())), "{text}");
    }
}

/// Functions without a bad argument that could be told: they take none, or anything. The device interface has no
/// header here.
fn takes_anything(f: &oxccl_capi::Function) -> bool {
    const NAMES: [&str; 6] = [
        "ncclGetErrorString",
        "ncclGetLastError",
        "ncclGroupStart",
        "ncclResetDebugInit",
        "ncclResetDebugInitInternal",
        "oxcclHostInterface",
    ];
    f.chapter == "device_api" || NAMES.contains(&f.name)
}

#[test]
fn bad_arguments_and_bad_times_get_the_right_code_and_words() {
    for library in Library::BOTH {
        let text = compile_and_run(library, "arguments.c") + &compile_and_run(library, "states.c");
        let rows: u32 =
            text.lines().filter_map(|l| l.strip_prefix("rows ")).map(|n| n.parse::<u32>().expect("n")).sum();
        assert!(rows > 800, "only {rows} rows ran");
        // Not captured: the number of rows is a figure of its own.
        let _ = writeln!(std::io::stderr(), "{} rows of errors ran with {}", rows, library.soname());
        let seen: Vec<&str> = text.lines().filter_map(|l| l.strip_prefix("function ")?.split(' ').next()).collect();
        for f in oxccl_capi::FUNCTIONS.iter().filter(|f| if library == Nccl { f.nccl } else { f.rccl }) {
            let needed = f.status == oxccl_capi::Status::Works && !takes_anything(f);
            assert!(!needed || seen.contains(&f.name), "{} has no row in the tables of errors", f.name);
        }
    }
}

#[test]
fn a_cplusplus_program_links_every_function() {
    let text = std::fs::read_to_string(sources().join("cplusplus.cpp")).expect("the program is there");
    for f in oxccl_capi::FUNCTIONS.iter().filter(|f| f.twin && f.chapter != "device_api") {
        assert!(text.contains(&format!("SAME({});", f.name)), "cplusplus.cpp does not link {}", f.name);
    }
    for library in Library::BOTH {
        compile_and_run(library, "cplusplus.cpp");
    }
}

#[test]
fn nonblocking_communicators_are_polled_and_aborted() {
    for library in Library::BOTH {
        compile_and_run(library, "nonblocking.c");
    }
}

#[test]
fn windows_are_memory_of_every_rank() {
    for library in Library::BOTH {
        compile_and_run(library, "windows.c");
    }
}

#[test]
fn puts_and_signals_need_no_call_of_the_target() {
    for library in Library::BOTH {
        let binary = program(library, "one_sided.c");
        run(&mut command(&binary));
        run(command(&binary).env("OXCCL_SHM", "0"));
    }
}

#[test]
fn a_killed_rank_is_heard_of_though_a_process_that_it_forked_lives() {
    for library in Library::BOTH {
        compile_and_run(library, "forked.c");
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
        let mut command = command(program(library, "flavour.c"));
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
