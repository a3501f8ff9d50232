//! What the drivers of the C programs share: a prefix laid out by the installer, compilers against it, bounded runs.

#![allow(dead_code)] // each test binary uses its part

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

/// One of the two libraries.
#[derive(Clone, Copy, PartialEq)]
pub enum Library {
    Nccl,
    Rccl,
}
pub use Library::{Nccl, Rccl};

impl Library {
    pub const BOTH: [Library; 2] = [Nccl, Rccl];

    pub fn name(self) -> &'static str {
        match self {
            Nccl => "nccl",
            Rccl => "rccl",
        }
    }

    pub fn soname(self) -> &'static str {
        match self {
            Nccl => "libnccl.so.2",
            Rccl => "librccl.so.1",
        }
    }
}

pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository is there")
}

/// The folder of the C programs.
pub fn sources() -> PathBuf {
    repository().join("tests/abi")
}

/// Runs a command that has to succeed; its output otherwise explains the failure.
pub fn run(command: &mut Command) -> Output {
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

/// The folder of this test binary, in cargo's folder for test files; made anew by each run.
pub fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(env!("CARGO_CRATE_NAME"));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("the test folder can be made");
        folder
    })
}

/// A prefix with the two libraries and their headers, as `cargo xtask install` lays it out: the one that the variable
/// `OXCCL_TEST_PREFIX` names, else a new one of the profile of this test.
pub fn prefix() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| {
        if let Some(prefix) = std::env::var_os("OXCCL_TEST_PREFIX") {
            return PathBuf::from(prefix);
        }
        let tests = std::env::current_exe().expect("a test knows its own path");
        let profile_folder = tests.ancestors().nth(2).expect("target/<profile>/deps/<test>");
        let profile = match profile_folder.file_name().and_then(|n| n.to_str()).expect("a profile's name") {
            "debug" => "dev",
            other => other,
        };
        let prefix = folder().join("prefix");
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command.current_dir(repository()).args(["run", "--quiet", "--locked", "-p", "xtask", "--", "install"]);
        command.args(["--libraries", "--profile", profile, "--prefix"]).arg(&prefix);
        run(command.env("CARGO_TARGET_DIR", profile_folder.parent().expect("the target folder")));
        prefix
    })
}

/// The installed headers.
pub fn include() -> PathBuf {
    prefix().join("include")
}

/// The installed libraries.
pub fn lib() -> PathBuf {
    prefix().join("lib")
}

const WARNINGS: [&str; 4] = ["-Wall", "-Wextra", "-pedantic", "-Werror"];

/// A compiler's command line for one library's headers.
pub fn compiler(library: Library, cxx: bool, standard: &str) -> Command {
    compiler_called(if cxx { "g++" } else { "gcc" }, library, standard)
}

/// As [`compiler`], with a wrapper of a compiler.
pub fn compiler_called(name: &str, library: Library, standard: &str) -> Command {
    let mut command = Command::new(name);
    command.arg(format!("-std={standard}")).args(WARNINGS).arg("-I").arg(include());
    command.args(["-DOXCCL_NO_CUDA", "-DOXCCL_NO_HIP"]);
    if library == Rccl {
        command.arg("-DABI_RCCL");
    }
    command
}

/// Compiles a source of `tests/abi/` with what was given to `compiler`.
pub fn compile(mut compiler: Command, source: &str, language: &str, object: &Path) {
    // Under another name at first: a test that ends in the middle leaves nothing that looks whole.
    let unfinished = object.with_extension("unfinished");
    compiler.args(["-O1", "-pthread", "-c", "-x", language]).arg(sources().join(source));
    run(compiler.arg("-o").arg(&unfinished));
    std::fs::rename(&unfinished, object).expect("an object file can be renamed");
}

/// Links objects with a library.
pub fn link(mut compiler: Command, library: Library, objects: &[PathBuf], binary: &Path) {
    compiler.args(objects).arg("-o").arg(binary).args(["-pthread", "-L"]).arg(lib());
    run(compiler.arg(format!("-l{}", library.name())).arg(format!("-Wl,-rpath,{}", lib().display())));
}

/// The command of a program, without the settings of whoever runs the tests.
pub fn command(binary: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(binary);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if ["NCCL_", "RCCL_", "OXCCL_"].iter().any(|p| text.starts_with(p)) {
            command.env_remove(&name);
        }
    }
    // Cargo's folders of libraries do not come before the prefix.
    command.env_remove("LD_LIBRARY_PATH").env("OXCCL_HOST_DEVICES", "8");
    command
}
