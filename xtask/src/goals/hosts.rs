//! Two hosts on this machine: network namespaces joined by a pair of virtual Ethernet devices, and how programs start in them. They
//! are gone when this is dropped. Needs the right to make them (root) and `ip`.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

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
            bail!("`ip` is not installed: iproute2");
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

    /// What Open MPI's `launcher` prints that starts `program`, one rank on each host.
    pub fn by_mpi(&self, launcher: &str, program: &Path, words: &[&str]) -> Result<String> {
        let [a, b] = &self.addresses;
        let agent = self.agent.display();
        let options = format!(
            "--allow-run-as-root --bind-to none -np 2 --host {a}:1,{b}:1 --leave-session-attached --mca plm_rsh_agent {agent} \
             --mca oob_tcp_if_include {DEVICE} --mca pml ob1 --mca btl tcp,self --mca btl_tcp_if_include {DEVICE}"
        );
        let mut command = self.on(0, 120, Path::new(launcher));
        output(command.args(options.split_whitespace()).arg(program).args(words))
    }

    /// Runs `program` as rank 0 and 1, one on each host, as a launcher that spans hosts does.
    pub fn by_ranks(&self, program: &Path, words: &[&str]) -> Result<()> {
        const PORT: u16 = 29_400;
        let start = |rank: usize| -> Result<Child> {
            let mut command = self.on(rank, 120, program);
            command.args(words).arg("--rendezvous").arg(format!("{}:{PORT}", self.addresses[0]));
            command.envs([("RANK", rank.to_string()), ("WORLD_SIZE", "2".into()), ("LOCAL_RANK", rank.to_string())]);
            // The two namespaces share the machine's memory, which hosts do not.
            command.env("OXCCL_SHM", "0").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
            command.spawn().with_context(|| format!("cannot start {}", program.display()))
        };
        let mut first = start(0)?;
        let second = start(1).inspect_err(|_| {
            // Alone it would wait for the other. It may be over by itself.
            let _ = first.kill().and_then(|()| first.wait());
        })?;
        let both = [first, second];
        // Each ends by itself, by its limit at the latest: both are waited for before one is judged.
        for (rank, out) in both.map(Child::wait_with_output).into_iter().enumerate() {
            let out = out?;
            if !out.status.success() {
                bail!("rank {rank} on {}: {}\n{}", self.names[rank], out.status, String::from_utf8_lossy(&out.stderr));
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
