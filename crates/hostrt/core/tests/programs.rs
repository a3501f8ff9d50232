//! Builds C programs against the host runtimes' headers, and against NVIDIA's own, and runs them with `oxccl run`.
//! Needs gcc, nm and, for NVIDIA's headers, pip with a package index.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..").canonicalize().expect("the repository is there")
}

/// Runs a command that has to succeed; its output otherwise explains the failure.
fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let text = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    assert!(output.status.success(), "{command:?}: {}\n{}", output.status, String::from_utf8_lossy(&text));
    output
}

/// A prefix as it is installed: made anew by each run, shared by the tests of this process.
fn prefix() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| {
        let prefix = Path::new(env!("CARGO_TARGET_TMPDIR")).join("hostrt");
        let _ = std::fs::remove_dir_all(&prefix);
        for folder in ["bin", "lib/oxccl-host"] {
            std::fs::create_dir_all(prefix.join(folder)).expect("the test folder can be made");
        }
        let built = build();
        for (file, to) in [
            ("oxccl", "bin/oxccl"),
            ("libnccl.so", "lib/libnccl.so.2"),
            ("librccl.so", "lib/librccl.so.1"),
            ("libcudart12.so", "lib/oxccl-host/libcudart.so.12"),
            ("libcudart13.so", "lib/oxccl-host/libcudart.so.13"),
            ("libamdhip64.so", "lib/oxccl-host/libamdhip64.so.7"),
        ] {
            // Not links: the tool and the libraries find each other by where they lie.
            let to = prefix.join(to);
            std::fs::hard_link(built.join(file), &to)
                .or_else(|_| std::fs::copy(built.join(file), &to).map(drop))
                .unwrap_or_else(|e| panic!("{file}: {e}"));
        }
        for (to, at) in [
            ("libnccl.so.2", "lib/libnccl.so"),
            ("librccl.so.1", "lib/librccl.so"),
            ("libcudart.so.12", "lib/oxccl-host/libcudart.so"),
            ("libamdhip64.so.7", "lib/oxccl-host/libamdhip64.so"),
        ] {
            std::os::unix::fs::symlink(to, prefix.join(at)).expect("links can be made");
        }
        prefix
    })
}

/// Builds all libraries and the tool in the profile and folder of this test and says where they are.
fn build() -> PathBuf {
    let tests = std::env::current_exe().expect("a test knows its own path");
    let profile_folder = tests.ancestors().nth(2).expect("target/<profile>/deps/<test>");
    let profile = match profile_folder.file_name().and_then(|n| n.to_str()).expect("a profile's name") {
        "debug" => "dev",
        other => other,
    };
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(repository()).args(["build", "--quiet", "--profile", profile, "--target-dir"]);
    command.arg(profile_folder.parent().expect("the target folder"));
    for package in ["nccl", "rccl", "cli", "cudart12", "cudart13", "amdhip64"] {
        command.args(["-p", &format!("oxccl-{package}")]);
    }
    run(&mut command);
    profile_folder.to_owned()
}

/// Compiles `programs/NAME.c` with these folders of headers and libraries.
fn compile(source: &str, name: &str, include: &[PathBuf], libraries: &[&str]) -> PathBuf {
    build_program("gcc -std=gnu11", &programs().join(source), name, include, libraries)
}

fn programs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs")
}

/// Compiles one source; `compiler` is a command and its first arguments.
fn build_program(compiler: &str, source: &Path, name: &str, include: &[PathBuf], libraries: &[&str]) -> PathBuf {
    let program = prefix().join("bin").join(name);
    let mut words = compiler.split(' ');
    let mut command = Command::new(words.next().expect("a compiler"));
    command.args(words).args(["-O1", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"]).arg(&program);
    command.arg(source).args(["-x", "none", "-I"]).arg(programs());
    for folder in include {
        command.arg("-isystem").arg(folder);
    }
    command.arg("-I").arg(repository().join("crates/capi/include"));
    for folder in ["lib", "lib/oxccl-host"] {
        command.arg("-L").arg(prefix().join(folder));
    }
    run(command.args(libraries));
    program
}

fn ours() -> Vec<PathBuf> {
    vec![repository().join("crates/hostrt/include")]
}

/// Runs a program by `oxccl run` on four devices; it must say that all was fine. Its error output.
fn oxccl_run(program: &Path) -> String {
    let mut command = Command::new(prefix().join("bin/oxccl"));
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if ["NCCL_", "OXCCL_", "LD_"].iter().any(|p| text.starts_with(p)) {
            command.env_remove(&name);
        }
    }
    let output = run(command.args(["run", "--devices", "4", "--"]).arg("timeout").arg("60").arg(program));
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text.trim(), "all fine");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The chapters of the runtime that have a program each; they are C and C++ at once.
const CHAPTERS: [&str; 6] = ["settings", "pools", "graphs", "captures", "ipc_events", "waits"];

#[test]
fn the_chapters_of_the_cuda_runtime_work_in_c_and_cpp() {
    for chapter in CHAPTERS {
        let source = programs().join(format!("{chapter}.c"));
        for (compiler, ending) in [("gcc -std=gnu99", "c"), ("g++ -std=c++17 -x c++", "cc")] {
            let name = format!("{chapter}-{ending}");
            oxccl_run(&build_program(compiler, &source, &name, &ours(), &["-lnccl", "-lcudart"]));
        }
    }
}

/// Compiled for it, the null stream is the calling thread's, by functions of other names.
fn for_threads_default_stream(include: &[PathBuf], library: &str, version: &str) {
    let compiler = "gcc -std=gnu11 -DCUDA_API_PER_THREAD_DEFAULT_STREAM";
    let name = format!("pools-per-thread-{version}");
    oxccl_run(&build_program(compiler, &programs().join("pools.c"), &name, include, &["-lnccl", library]));
}

#[test]
fn the_threads_default_stream_serves() {
    for_threads_default_stream(&ours(), "-lcudart", "ours");
}

/// A program for CUDA as one for HIP: names are replaced, and parts that HIP does not have are left out.
fn twin(chapter: &str) -> PathBuf {
    let text = std::fs::read_to_string(programs().join(format!("{chapter}.c"))).expect("the program is there");
    let text = text.replace("<cuda_runtime_api.h>", "<hip/hip_runtime_api.h>").replace("<nccl.h>", "<rccl/rccl.h>");
    let text = text.replace("cudaStreamGetCaptureInfo(", "hipStreamGetCaptureInfo_v2(");
    let text = text.replace("cudaGraphInstantiate(", "hipGraphInstantiateWithFlags(");
    let text = text.replace("CUDART_CB", "").replace("CUDA(", "HIP(").replace("cuda", "hip");
    let source = prefix().join(format!("{chapter}_hip.c"));
    std::fs::write(&source, text).expect("the test folder takes files");
    source
}

#[test]
fn the_chapters_work_with_hip_too() {
    for chapter in ["pools", "graphs", "captures", "ipc_events", "waits"] {
        let name = format!("{chapter}-hip");
        let compiler = "gcc -std=gnu11 -D__HIP_PLATFORM_AMD__ -DHIP_TWIN";
        oxccl_run(&build_program(compiler, &twin(chapter), &name, &ours(), &["-lrccl", "-lamdhip64"]));
    }
    oxccl_run(&compile("hip_layouts.c", "hip-layouts", &ours(), &["-lrccl", "-lamdhip64"]));
}

#[test]
fn the_headers_stand_alone_in_every_standard() {
    let cuda = ["cuda_runtime.h", "cuda_runtime_api.h", "driver_types.h", "cuda_profiler_api.h", "cuda_fp16.h"];
    for header in cuda.into_iter().chain(["cuda_bf16.h", "hip/hip_runtime.h", "hip/hip_runtime_api.h"]) {
        for (compiler, language, standards) in [("gcc", "c", ["c99", "c11"]), ("g++", "c++", ["c++14", "c++20"])] {
            for standard in standards {
                let mut command = Command::new(compiler);
                command.args(["-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only", "-D__HIP_PLATFORM_AMD__"]);
                command.arg(format!("-std={standard}")).arg("-I").arg(repository().join("crates/hostrt/include"));
                run(command.args(["-include", header, "-x", language, "/dev/null"]));
            }
        }
    }
}

/// What a library exports.
fn exported(library: &str) -> Vec<String> {
    let output = run(Command::new("nm").args(["-D", "--defined-only"]).arg(prefix().join(library)));
    let text = String::from_utf8(output.stdout).expect("nm prints text");
    text.lines().filter_map(|l| Some(l.split(' ').nth(2)?.split('@').next()?.to_owned())).collect()
}

#[test]
fn every_symbol_of_hip_is_there() {
    let found = exported("lib/oxccl-host/libamdhip64.so.7");
    let names = std::fs::read_to_string(repository().join("crates/hostrt/names/amdhip64.txt")).expect("the list");
    let missing: Vec<_> = names.lines().filter(|n| !n.starts_with('#') && !found.iter().any(|f| f == n)).collect();
    assert!(missing.is_empty() && names.lines().count() > 350, "missing: {missing:?}");
}

/// The functions that the header of a toolkit declares.
fn declared(include: &[PathBuf]) -> Vec<String> {
    let mut command = Command::new("gcc");
    for folder in include {
        command.arg("-isystem").arg(folder);
    }
    let output = run(command.args(["-E", "-P", "-include", "cuda_runtime_api.h", "-x", "c", "/dev/null"]));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let names = text.split("cudaError_t").skip(1).filter_map(|rest| rest.trim_start().split_once('('));
    let is_name = |n: &str| n.starts_with("cuda") && n.chars().all(|c| c.is_alphanumeric() || c == '_');
    names.map(|(name, _)| name.trim().to_owned()).filter(|n| is_name(n)).collect()
}

#[test]
fn the_calls_of_the_cuda_runtime_work() {
    let program = compile("cuda_calls.c", "cuda-calls", &ours(), &["-lnccl", "-lcudart"]);
    let said = oxccl_run(&program);
    assert_eq!(said.matches("a kernel was launched").count(), 1, "{said:?}");
}

#[test]
fn processes_share_memory() {
    oxccl_run(&compile("ipc.c", "ipc", &ours(), &["-lnccl", "-lcudart"]));
    // In the other order the runtime is loaded before the library that it needs.
    oxccl_run(&compile("ipc.c", "ipc-order", &ours(), &["-lcudart", "-lnccl"]));
}

#[test]
fn the_calls_of_the_hip_runtime_work() {
    oxccl_run(&compile("hip_calls.c", "hip-calls", &ours(), &["-lrccl", "-lamdhip64"]));
}

#[test]
fn every_symbol_of_the_original_is_there_with_its_version() {
    for (version, least) in [("12", 430), ("13", 450)] {
        let library = prefix().join(format!("lib/oxccl-host/libcudart.so.{version}"));
        let output = run(Command::new("nm").args(["-D", "--defined-only", "--with-symbol-versions"]).arg(library));
        let text = String::from_utf8(output.stdout).expect("nm prints text");
        let found: Vec<_> = text.lines().filter_map(|l| l.split(' ').nth(2)?.split_once("@@")).collect();
        let names = repository().join(format!("crates/hostrt/names/cudart{version}.txt"));
        let names = std::fs::read_to_string(names).expect("the list is there");
        let missing: Vec<_> = names.lines().filter(|n| !found.iter().any(|f| f.0 == *n)).collect();
        assert!(missing.is_empty() && names.lines().count() > least, "missing in {version}: {missing:?}");
        assert!(found.iter().all(|f| f.1 == format!("libcudart.so.{version}")), "{found:?}");
    }
}

#[test]
fn a_library_without_a_host_device_says_so() {
    let program = compile("cuda_calls.c", "cuda-alone", &ours(), &["-lnccl", "-lcudart"]);
    let folder = prefix().join("alone");
    std::fs::create_dir_all(&folder).expect("a folder");
    let library = prefix().join("lib/oxccl-host/libcudart.so.12");
    std::fs::copy(library, folder.join("libcudart.so.12")).expect("copied");
    // A stand-in for another vendor's library: it has the name, and none of the functions.
    let empty = ["-shared", "-Wl,-soname,libnccl.so.2", "-x", "c", "/dev/null", "-o"];
    run(Command::new("gcc").args(empty).arg(folder.join("libnccl.so.2")));
    let output = Command::new(program).env("LD_LIBRARY_PATH", &folder).env_remove("LD_PRELOAD").output().expect("ran");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("oxccl run -- PROGRAM"), "{said}");
}

/// The folders of NVIDIA's headers and its library, from the wheels; `None`, loudly, where no index can be reached.
fn wheels(names: &[&str], folder: &str) -> Option<PathBuf> {
    let to = Path::new(env!("CARGO_TARGET_TMPDIR")).join(folder);
    if !to.join("done").exists() {
        let mut command = Command::new("python3");
        command.args(["-m", "pip", "install", "--quiet", "--no-deps", "--only-binary=:all:", "--target"]);
        let output = command.arg(&to).args(names).output();
        if !output.as_ref().is_ok_and(|o| o.status.success()) {
            assert!(std::env::var("CI").as_deref() != Ok("true"), "cannot get {names:?}: {output:?}");
            let reason = format!("pip cannot get {names:?}, so NVIDIA's headers are not tested: {output:?}");
            // Not captured, unlike what `eprintln!` writes in a test.
            let _ = writeln!(std::io::stderr(), "SKIPPED: {reason}");
            return None;
        }
        std::fs::write(to.join("done"), "").expect("the test folder takes files");
    }
    Some(to.join("nvidia"))
}

#[test]
fn programs_built_with_nvidias_headers_and_library_run() {
    let Some(to) = wheels(&["nvidia-cuda-runtime-cu12==12.9.79", "nvidia-cuda-nvcc-cu12==12.9.86"], "cuda12") else {
        return;
    };
    let include = [to.join("cuda_runtime/include"), to.join("cuda_nvcc/include")];
    with_headers_of(&include, &to.join("cuda_runtime/lib/libcudart.so.12"), "12");
    // Ours lays everything out as theirs does.
    let ours = run(&mut Command::new(compile("layouts.c", "layouts-ours", &ours(), &[])));
    let theirs = run(&mut Command::new(compile("layouts.c", "layouts-theirs", &include, &[])));
    assert_eq!(String::from_utf8_lossy(&ours.stdout), String::from_utf8_lossy(&theirs.stdout));
    let Some(to) = wheels(&["nvidia-cuda-runtime==13.5.37", "nvidia-cuda-crt==13.5.37"], "cuda13") else { return };
    with_headers_of(&[to.join("cu13/include")], &to.join("cu13/lib/libcudart.so.13"), "13");
}

/// Every program built with the headers and the library of a toolkit runs on ours, which has every function of theirs.
fn with_headers_of(include: &[PathBuf], library: &Path, version: &str) {
    let found = exported(&format!("lib/oxccl-host/libcudart.so.{version}"));
    let declared = declared(include);
    let missing: Vec<_> = declared.iter().filter(|n| !found.contains(n)).collect();
    assert!(missing.is_empty() && declared.len() > 250, "declared, but not exported: {missing:?}");
    for_threads_default_stream(include, &library.display().to_string(), version);
    for chapter in CHAPTERS.iter().chain(&["cuda_calls"]) {
        let program = format!("{chapter}-{version}");
        let libraries = ["-lnccl", &library.display().to_string()];
        oxccl_run(&compile(&format!("{chapter}.c"), &program, include, &libraries));
    }
}
