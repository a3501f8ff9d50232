//! Two hosts on this machine: network namespaces joined by a pair of virtual Ethernet devices, and how programs start in them. They
//! are gone when this is dropped. Needs the right to make them (root) and `ip`.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::packages;
use crate::peers::output;
use crate::program::exists;

/// The device of each, by the same name.
const DEVICE: &str = "veth0";

/// See the module.
pub struct Hosts {
    names: [String; 2],
    addresses: [String; 2],
    /// What Open MPI calls in place of `ssh`.
    agent: PathBuf,
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
        let id = std::process::id();
        let hosts = Hosts {
            names: [0, 1].map(|host| format!("oxccl-goals-{id}-{host}")),
            addresses: [1, 2].map(|host| format!("10.213.77.{host}")),
            agent: folder.join("agent"),
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
        std::fs::write(&self.agent, text)?;
        std::fs::set_permissions(&self.agent, std::fs::Permissions::from_mode(0o755))?;
        Ok(())
    }

    /// `program` on `host`, at most `seconds` long.
    fn on(&self, host: usize, seconds: u32, program: &Path) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.names[host], "timeout", &seconds.to_string()]).arg(program);
        command
    }

    /// What Open MPI's `launcher` prints that starts `program`, half of `ranks` on each host. Those of one share memory, and yield
    /// where they are several.
    pub fn by_mpi(&self, launcher: &str, ranks: u32, program: &Path, words: &[&str]) -> Result<String> {
        let [a, b] = &self.addresses;
        let (agent, each) = (self.agent.display(), ranks / 2);
        // What carries messages within a host has another name in each version of it: it chooses by itself.
        let alone = if each > 1 { "--mca mpi_yield_when_idle 1" } else { "--mca btl tcp,self" };
        let options = format!(
            "--allow-run-as-root --bind-to none -np {ranks} --host {a}:{each},{b}:{each} --leave-session-attached \
             --mca plm_rsh_agent {agent} --mca oob_tcp_if_include {DEVICE} --mca pml ob1 \
             --mca btl_tcp_if_include {DEVICE} {alone}"
        );
        let mut command = self.on(0, 120, Path::new(launcher));
        output(command.args(options.split_whitespace()).arg(program).args(words))
    }

    /// Runs `program` as so many ranks, half of them on each host, as a launcher that spans hosts does.
    pub fn by_ranks(&self, ranks: u32, program: &Path, words: &[&str]) -> Result<()> {
        const PORT: u16 = 29_400;
        let each = ranks as usize / 2;
        let start = |rank: usize| -> Result<Child> {
            let host = rank / each;
            let mut command = self.on(host, 120, program);
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
                    // They would wait for it. They may be over by themselves.
                    started.iter_mut().for_each(|child| drop(child.kill().and_then(|()| child.wait())));
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
        for name in &self.names {
            // One that was not made is not there.
            let _ = Command::new("ip").args(["netns", "del", name]).stderr(Stdio::null()).status();
        }
    }
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
            agent: folder.join("agent"),
        };
        hosts.write_agent().unwrap();
        // In place of `ip`: prints what it is called with.
        let ip = folder.join("ip");
        std::fs::write(&ip, "#!/bin/sh\necho \"$@\"\n").unwrap();
        std::fs::set_permissions(&ip, std::fs::Permissions::from_mode(0o755)).unwrap();
        let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
        let call = |words: &[&str]| output(Command::new(&hosts.agent).args(words).env("PATH", &path));
        let told = call(&["-x", "-q", "10.0.0.2", "orted", "-mca", "x"]).unwrap();
        let there = "netns exec oxccl-test-two unshare --uts sh -c hostname oxccl-test-two; orted -mca x\n";
        assert_eq!(told, there);
        call(&["10.0.0.3", "orted"]).expect_err("no such host");
    }
}
