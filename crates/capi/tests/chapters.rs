//! The chapters of the C interface, each a program of `tests/abi/` that serves four ways of driving its ranks (see
//! `launch.h` there): compiled by gcc and g++ against an installed prefix with either library, and run in all ways.

mod common;

use common::{Library, Nccl, Rccl, command, compile, compiler, compiler_called, folder, link, run};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};

/// One way of compiling a program.
#[derive(Clone, Copy)]
struct Build {
    library: Library,
    cxx: bool,
    standard: &'static str,
    /// Whether all programs run under `mpirun`, too.
    mpi: bool,
}

const BUILDS: [Build; 4] = [
    Build { library: Nccl, cxx: false, standard: "c99", mpi: true },
    Build { library: Rccl, cxx: false, standard: "c11", mpi: false },
    Build { library: Rccl, cxx: true, standard: "c++14", mpi: false },
    Build { library: Nccl, cxx: true, standard: "c++20", mpi: false },
];

const WAYS: [&str; 3] = ["single", "threads", "processes"];

impl Build {
    fn language(self) -> &'static str {
        if self.cxx { "c++" } else { "c" }
    }

    fn binary(self, program: &str, mpi: bool) -> PathBuf {
        let way = if mpi { "mpi" } else { "all" };
        folder().join(format!("{program}-{}-{}-{way}", self.library.name(), self.standard))
    }

    /// The compiler of programs that MPI carries the ids for, or of those that need no MPI.
    fn compiler(self, mpi: bool) -> Command {
        if !mpi {
            return compiler(self.library, self.cxx, self.standard);
        }
        let mut compiler = compiler_called(if self.cxx { "mpicxx" } else { "mpicc" }, self.library, self.standard);
        compiler.args(["-DOXCCL_TEST_MPI", "-DOMPI_SKIP_MPICXX"]);
        compiler
    }

    /// Compiles a program and links it with the launcher.
    fn program(self, program: &str, mpi: bool) -> PathBuf {
        let object = folder().join(format!("{program}-{}-{}.o", self.library.name(), self.standard));
        if !object.exists() {
            // The same with and without MPI: only the launcher knows of it.
            compile(self.compiler(false), &format!("{program}.c"), self.language(), &object);
        }
        let binary = self.binary(program, mpi);
        link(self.compiler(mpi), self.library, &[object, self.launcher(mpi)], &binary);
        binary
    }

    /// The launcher's object file, compiled once for all programs.
    fn launcher(self, mpi: bool) -> PathBuf {
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        // A test that failed in here leaves no object file, or a whole one.
        let _held = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let object = self.binary("launch", mpi).with_extension("o");
        if !object.exists() {
            compile(self.compiler(mpi), "launch.c", self.language(), &object);
        }
        object
    }
}

/// Whether Open MPI is there. Where CI says that everything was installed, it must be.
fn open_mpi() -> bool {
    static THERE: OnceLock<bool> = OnceLock::new();
    *THERE.get_or_init(|| {
        let output = command("mpirun").arg("--version").output();
        let there = output.is_ok_and(|o| String::from_utf8_lossy(&o.stdout).contains("Open MPI"));
        let ci = std::env::var("CI").is_ok_and(|v| v == "true" || v == "1");
        assert!(there || !ci, "Open MPI's mpirun is not installed, and CI=true says that nothing may be left out");
        if !there {
            // Not captured, unlike what `println!` writes in a test.
            let _ = writeln!(std::io::stderr(), "SKIPPED: the chapters under mpirun: Open MPI is not installed");
        }
        there
    })
}

/// Runs a program under `mpirun`, which ends all ranks when one fails, and is ended itself if it hangs.
fn under_mpirun(binary: PathBuf, ranks: usize) {
    let mut mpirun = command("timeout");
    mpirun.args(["--kill-after=5", "100", "mpirun", "--oversubscribe", "--bind-to", "none", "-np", &ranks.to_string()]);
    mpirun.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    // MPI carries a few bytes; over the loopback it leaves no files of shared memory behind when a rank fails.
    mpirun.env("OMPI_MCA_btl", "self,tcp").env("OMPI_MCA_btl_tcp_if_include", "127.0.0.1/8");
    run(mpirun.arg(binary).arg("mpi"));
}

/// Compiles and runs a chapter in every way it knows.
fn chapter(name: &str) {
    for build in BUILDS {
        let binary = build.program(name, false);
        for way in WAYS {
            run(command(&binary).args([way, "4"]));
        }
        // What the ranks do under mpirun is the same in each build; the launcher differs.
        if (build.mpi || (name == "rccl_extras" && build.cxx)) && open_mpi() {
            under_mpirun(build.program(name, true), 4);
        }
    }
    // Another number of ranks, neither a power of two nor more than there are devices.
    for way in WAYS {
        run(command(BUILDS[0].binary(name, false)).args([way, "3"]));
    }
    // And so few that each may have a core: some calls go another way then. A communicator of two cannot grow from a smaller one.
    if name != "elastic" {
        for way in WAYS {
            run(command(BUILDS[1].binary(name, false)).args([way, "2"]));
        }
    }
}

macro_rules! chapters {
    ($($name:ident),* $(,)?) => { $(
        #[test]
        fn $name() {
            chapter(stringify!($name));
        }
    )* };
}

chapters!(again, collectives, elastic, errors, groups, lifecycle, memory, operators, p2p, rccl_extras, streams);

#[test]
fn survivors_shrink_after_a_rank_was_killed() {
    for build in BUILDS {
        let binary = build.program("shrink_abort", false);
        run(command(&binary).args(["processes", "4"]));
    }
    // More ranks than cores; and over the network, as between machines.
    let binary = BUILDS[0].binary("shrink_abort", false);
    run(command(&binary).args(["processes", "7"]));
    run(command(&binary).args(["processes", "4"]).env("NCCL_SHM_DISABLE", "1"));
}

#[test]
fn a_wrong_result_is_noticed() {
    // A library that forgets the last element of each all-reduce, between the program and this one.
    let source = folder().join("wrong.c");
    let text = "#include <nccl.h>\nncclResult_t ncclAllReduce(const void* s, void* r, size_t n, ncclDataType_t t, \
                ncclRedOp_t o, ncclComm_t c, cudaStream_t stream) {\n  return pncclAllReduce(s, r, n > 1 ? n - 1 : n, t, \
                o, c, stream);\n}\n";
    std::fs::write(&source, text).expect("the test folder takes files");
    let wrong = folder().join("libwrong.so");
    run(compiler(Nccl, false, "c11").args(["-shared", "-fPIC", "-o"]).arg(&wrong).arg(&source));
    let build = Build { standard: "c17", ..BUILDS[0] };
    let binary = build.program("collectives", false);
    for way in WAYS {
        let output = command(&binary).args([way, "2"]).env("LD_PRELOAD", &wrong).output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains("collective 0, type 0"), "{way}: {said}");
    }
}

#[test]
fn a_profiler_can_interpose() {
    for build in [BUILDS[0], BUILDS[2]] {
        let tool = folder().join(format!("libinterpose-{}.so", build.library.name()));
        let mut compile = compiler(build.library, false, "gnu11");
        compile.args(["-shared", "-fPIC", "-o"]).arg(&tool);
        run(compile.arg(common::sources().join("interpose.c")));
        let binary = build.program("interposed", false);
        for way in WAYS {
            let output = run(command(&binary).args([way, "4"]).env("LD_PRELOAD", &tool));
            let text = String::from_utf8(output.stdout).expect("programs print text");
            let numbers = |word: &str| -> Vec<u32> {
                let lines = text.lines().filter_map(|l| l.strip_prefix(word));
                lines.map(|n| n.trim().parse().expect("a number")).collect()
            };
            let made = numbers("allreduces")[0];
            let seen = numbers("interposed");
            assert!(made > 0 && seen.len() == if way == "processes" { 4 } else { 1 }, "{way}: {text}");
            assert!(seen.iter().all(|n| *n == made), "{way}: {text}");
        }
    }
}
