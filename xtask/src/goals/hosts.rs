//! Two hosts on this machine: network namespaces joined by a pair of virtual Ethernet devices, and how programs start in them. They
//! are gone when this is dropped. Needs the right to make them (root) and `ip`.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::bench::MINUTE;
use crate::packages;
use crate::peers::output;
use crate::program::{bounded, end, exists};

/// The device of each, by the same name.
const DEVICE: &str = "veth0";

/// What Open MPI calls in place of `ssh`.
const AGENT: &str = "oxccl-agent";

/// What namespaces are called, before the process that made them and the host's number.
const NAME: &str = "oxccl-goals";

/// See the module.
pub struct Hosts {
    names: [String; 2],
    addresses: [String; 2],
    /// Where the agent is.
    folder: PathBuf,
}

impl Hosts {
    /// Two hosts that nobody else has; files go to `folder`.
    ///
    /// # Errors
    /// Where namespaces cannot be made.
    pub fn new(folder: &Path) -> Result<Hosts> {
        if !exists("ip") {
            packages::install("iproute2")?;
        }
        delete_left();
        let id = std::process::id();
        let hosts = Hosts {
            names: [0, 1].map(|host| format!("{NAME}-{id}-{host}")),
            addresses: [1, 2].map(|host| format!("10.213.77.{host}")),
            folder: folder.to_owned(),
        };
        hosts.make()?;
        hosts.write_agent()?;
        Ok(hosts)
    }

    /// Their network namespaces.
    pub fn names(&self) -> &[String; 2] {
        &self.names
    }

    fn make(&self) -> Result<()> {
        let ip = |words: &str| output(Command::new("ip").args(words.split(' ')));
        let [a, b] = &self.names;
        for name in &self.names {
            ip(&format!("netns add {name}")).context("network namespaces need root")?;
            ip(&format!("-n {name} link set lo up"))?;
        }
        ip(&format!("-n {a} link add {DEVICE} type veth peer name {DEVICE} netns {b}"))?;
        for (name, address) in self.names.iter().zip(&self.addresses) {
            ip(&format!("-n {name} addr add {address}/24 dev {DEVICE}"))?;
            ip(&format!("-n {name} link set {DEVICE} up"))?;
        }
        // Both sides alike: what the machine has may pace what is sent (bbr), which ours avoids on one machine only.
        const ALIKE: &str = "echo reno > /proc/sys/net/ipv4/tcp_congestion_control";
        for name in &self.names {
            output(Command::new("ip").args(["netns", "exec", name, "sh", "-c", ALIKE]))?;
        }
        // The kernel says a while later that the devices run; until then nobody uses them.
        let limit = Instant::now() + Duration::from_secs(10);
        for name in &self.names {
            while !ip(&format!("-n {name} -o link show {DEVICE}"))?.contains("state UP") {
                if Instant::now() > limit {
                    bail!("{DEVICE} of {name} does not come up");
                }
            }
        }
        Ok(())
    }

    /// Called with options, the host's address and a command line: runs that there, with a host name of its own, since Open MPI
    /// tells hosts by name.
    fn write_agent(&self) -> Result<()> {
        let choices: Vec<String> = self
            .addresses
            .iter()
            .zip(&self.names)
            .map(|(address, name)| format!("{address}) there={name} ;;"))
            .collect();
        let text = format!(
            "#!/bin/sh\nwhile [ \"${{1#-}}\" != \"$1\" ]; do shift; done\nhost=$1; shift\ncase $host in\n{}\n*) exit 1 ;;\nesac\n\
             exec ip netns exec $there unshare --uts sh -c \"hostname $there; $*\"\n",
            choices.join("\n")
        );
        let agent = self.folder.join(AGENT);
        std::fs::write(&agent, text)?;
        std::fs::set_permissions(&agent, std::fs::Permissions::from_mode(0o755))?;
        Ok(())
    }

    /// `program` on `host`, bounded: `ip` becomes it.
    fn on(&self, host: usize, program: &Path) -> Command {
        let mut command = bounded(2 * MINUTE, "ip");
        command.args(["netns", "exec", &self.names[host]]).arg(program);
        command
    }

    /// What Open MPI's `launcher` prints that starts `program`, half of `ranks` on each host. Those of one share memory, and yield
    /// where they are several.
    pub fn by_mpi(&self, launcher: &str, ranks: u32, program: &Path, words: &[&str]) -> Result<String> {
        let [a, b] = &self.addresses;
        let each = ranks / 2;
        // What carries messages within a host has another name in each version of it: it chooses by itself.
        let alone = if each > 1 { "--mca mpi_yield_when_idle 1" } else { "--mca btl tcp,self" };
        let options = format!(
            "--allow-run-as-root --bind-to none -np {ranks} --host {a}:{each},{b}:{each} --leave-session-attached \
             --mca plm_rsh_agent {AGENT} --mca oob_tcp_if_include {DEVICE} --mca pml ob1 \
             --mca btl_tcp_if_include {DEVICE} {alone}"
        );
        let mut command = self.on(0, Path::new(launcher));
        command.env("PATH", self.path()?);
        output(command.args(options.split_whitespace()).arg(program).args(words))
    }

    /// PATH with the agent in front: Open MPI takes a path that has spaces for a command line.
    fn path(&self) -> Result<OsString> {
        let others = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::iter::once(self.folder.clone()).chain(std::env::split_paths(&others));
        std::env::join_paths(folders).context("the agent's folder cannot be in PATH")
    }

    /// Runs `program` as so many ranks, half of them on each host, as a launcher that spans hosts does.
    pub fn by_ranks(&self, ranks: u32, program: &Path, words: &[&str]) -> Result<()> {
        const PORT: u16 = 29_400;
        let each = ranks as usize / 2;
        let start = |rank: usize| -> Result<Child> {
            let host = rank / each;
            let mut command = self.on(host, program);
            command.args(words).arg("--rendezvous").arg(format!("{}:{PORT}", self.addresses[0]));
            let numbers = [("RANK", rank), ("WORLD_SIZE", 2 * each), ("LOCAL_RANK", rank % each)];
            command.envs(numbers.map(|(name, number)| (name, number.to_string())));
            // The two namespaces share the machine's memory, which hosts do not.
            command.env("NCCL_HOSTID", &self.names[host]);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
            command.spawn().with_context(|| format!("cannot start {}", program.display()))
        };
        let mut started = Vec::new();
        for rank in 0..2 * each {
            match start(rank) {
                Ok(child) => started.push(child),
                Err(e) => {
                    // They would wait for it.
                    started.iter_mut().for_each(end);
                    return Err(e);
                }
            }
        }
        // Each ends by itself, by its limit at the latest: all are waited for before one is judged.
        let read = |child: Child| std::thread::spawn(|| child.wait_with_output());
        let ended: Vec<_> = started.into_iter().map(read).collect();
        for (rank, out) in ended.into_iter().map(|ended| ended.join()).enumerate() {
            let out = out.map_err(|_| anyhow::anyhow!("reading rank {rank} failed"))?;
            let (out, host) = (out?, &self.names[rank / each]);
            if !out.status.success() {
                bail!("rank {rank} on {host}: {}\n{}", out.status, String::from_utf8_lossy(&out.stderr));
            }
        }
        Ok(())
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        self.names.iter().for_each(|name| delete(name));
    }
}

/// Deletes a namespace. One that was not made is not there.
fn delete(name: &str) {
    let _ = Command::new("ip").args(["netns", "del", name]).stderr(Stdio::null()).status();
}

/// Deletes the namespaces of processes that ended without doing so, as those that are interrupted do.
fn delete_left() {
    // Who may not list them may not make any either, which is told then.
    let Ok(list) = output(Command::new("ip").args(["netns", "list"])) else { return };
    left(&list, |process| Path::new("/proc").join(process).exists()).for_each(delete);
}

/// Those in `list`, of `ip netns list`, whose process is not there.
fn left(list: &str, is_there: impl Fn(&str) -> bool) -> impl Iterator<Item = &str> {
    list.lines().filter_map(|line| line.split_whitespace().next()).filter(move |name| {
        let numbers = name.strip_prefix(NAME).and_then(|rest| rest.strip_prefix('-')?.split_once('-'));
        numbers.is_some_and(|(process, _)| !is_there(process))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agent_finds_the_host_behind_options() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let hosts = Hosts {
            names: ["oxccl-test-one".into(), "oxccl-test-two".into()],
            addresses: ["10.0.0.1".into(), "10.0.0.2".into()],
            folder: folder.to_owned(),
        };
        hosts.write_agent().unwrap();
        // In place of `ip`: prints what it is called with.
        let ip = folder.join("ip");
        std::fs::write(&ip, "#!/bin/sh\necho \"$@\"\n").unwrap();
        std::fs::set_permissions(&ip, std::fs::Permissions::from_mode(0o755)).unwrap();
        let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
        let call = |words: &[&str]| output(Command::new(folder.join(AGENT)).args(words).env("PATH", &path));
        let told = call(&["-x", "-q", "10.0.0.2", "orted", "-mca", "x"]).unwrap();
        let there = "netns exec oxccl-test-two unshare --uts sh -c hostname oxccl-test-two; orted -mca x\n";
        assert_eq!(told, there);
        call(&["10.0.0.3", "orted"]).expect_err("no such host");
    }

    #[test]
    fn what_processes_that_are_gone_left_is_deleted() {
        let list = "oxccl-goals-7-1 (id: 3)\noxccl-goals-7-0\noxccl-goals-8-0 (id: 1)\nother-7-0\noxccl-goals\n";
        assert_eq!(left(list, |process| process == "8").collect::<Vec<_>>(), ["oxccl-goals-7-1", "oxccl-goals-7-0"]);
    }
}
