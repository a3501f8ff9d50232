//! The quota of processor time of this process: how many cores' worth, and of which control group, so that processes can tell
//! whether they have it together. Knows control groups v1 and v2 where they are mounted as usual; else there is none.

use std::fs::{metadata, read_to_string};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Where control groups are mounted.
const MOUNT: &str = "/sys/fs/cgroup";

/// Processor time of a control group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quota {
    /// Whole cores, at least one.
    pub cores: u32,
    /// The group, of all those of the machine; not 0.
    pub group: u64,
}

/// The least quota of the groups that this process is in, if there is one. Asks the system.
pub(crate) fn own() -> Option<Quota> {
    of(Path::new(MOUNT), &read_to_string("/proc/self/cgroup").ok()?)
}

/// The same of a process whose groups are listed in `groups`, as in `/proc/self/cgroup`.
fn of(mount: &Path, groups: &str) -> Option<Quota> {
    groups.lines().filter_map(|line| least(mount, line)).min_by_key(|quota| quota.cores)
}

/// That of one line of the list: a number, the controllers, and the group's path.
fn least(mount: &Path, line: &str) -> Option<Quota> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (controllers, path) = (fields.next()?, fields.next()?);
    let roots: Vec<PathBuf> = match controllers {
        "" => vec![mount.to_path_buf(), mount.join("unified")],
        list if list.split(',').any(|c| c == "cpu") => vec![mount.join(list), mount.join("cpu")],
        _ => return None,
    };
    let root = roots.iter().find(|root| root.join("cgroup.procs").exists())?;
    let path = Path::new(path.trim_start_matches('/'));
    // A container may see its own group as the root, under the path that it has outside.
    let groups = path.ancestors().map(|group| root.join(group)).filter(|group| group.starts_with(root));
    let named = |group: PathBuf| {
        let cores = cores(&group)?;
        let of = metadata(&group).ok()?;
        Some(Quota { cores, group: (of.dev().rotate_left(48) ^ of.ino()).max(1) })
    };
    groups.filter_map(named).min_by_key(|quota| quota.cores)
}

/// The whole cores that a group may use at a time, at least one; `None` where it may use all.
fn cores(group: &Path) -> Option<u32> {
    let number = |text: &str| text.trim().parse::<u64>().ok();
    let read = |name: &str| read_to_string(group.join(name)).ok();
    let (quota, period) = match read("cpu.max") {
        // "max" is no number.
        Some(text) => text.split_once(' ').and_then(|(quota, period)| Some((number(quota)?, number(period)?)))?,
        // -1 is none.
        None => (number(&read("cpu.cfs_quota_us")?)?, number(&read("cpu.cfs_period_us")?)?),
    };
    u32::try_from(quota.checked_div(period)?.max(1)).ok()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// A folder that looks like control groups, and goes with the value.
    struct Groups(PathBuf);

    impl Groups {
        fn new(name: &str, files: &[(&str, &str)]) -> Groups {
            let root = std::env::temp_dir().join(format!("oxccl-quota-{name}-{}", std::process::id()));
            for (file, text) in files {
                let file = root.join(file);
                std::fs::create_dir_all(file.parent().unwrap()).unwrap();
                std::fs::write(file, text).unwrap();
            }
            Groups(root)
        }

        fn quota(&self, groups: &str) -> Option<Quota> {
            of(&self.0, groups)
        }
    }

    impl Drop for Groups {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_least_quota_of_the_groups_counts_and_names_its_group() {
        let groups = Groups::new(
            "v2",
            &[
                ("cgroup.procs", ""),
                ("pod/cpu.max", "400000 100000\n"),
                ("pod/a/cpu.max", "250000 100000\n"),
                ("pod/a/x/cpu.max", "max 100000\n"),
                ("pod/b/cpu.max", "50000 100000\n"),
                ("pod/c/cpu.max", "max 100000\n"),
            ],
        );
        let cores = |path: &str| groups.quota(&format!("0::{path}\n")).map(|q| q.cores);
        assert_eq!((cores("/"), cores("/pod"), cores("/pod/a")), (None, Some(4), Some(2)));
        assert_eq!((cores("/pod/b"), cores("/pod/c"), cores("/nowhere")), (Some(1), Some(4), None));
        let group = |path: &str| groups.quota(&format!("0::{path}\n")).unwrap().group;
        assert_eq!(group("/pod/a"), group("/pod/a/x"));
        assert_eq!(group("/pod"), group("/pod/c"));
        assert!(group("/pod/a") != group("/pod") && group("/pod/a") != group("/pod/b"));
    }

    #[test]
    fn older_groups_have_a_list_for_each_controller() {
        let groups = Groups::new(
            "v1",
            &[
                ("cpu,cpuacct/cgroup.procs", ""),
                ("cpu,cpuacct/a/cpu.cfs_quota_us", "300000\n"),
                ("cpu,cpuacct/a/cpu.cfs_period_us", "100000\n"),
                ("cpu,cpuacct/b/cpu.cfs_quota_us", "-1\n"),
                ("cpu,cpuacct/b/cpu.cfs_period_us", "100000\n"),
                ("memory/cgroup.procs", ""),
                ("unified/cgroup.procs", ""),
            ],
        );
        let cores = |path: &str| groups.quota(&format!("7:memory:/a\n4:cpu,cpuacct:{path}\n0::/\n")).map(|q| q.cores);
        assert_eq!((cores("/a"), cores("/a/b"), cores("/b"), cores("/")), (Some(3), Some(3), None, None));
        assert_eq!(groups.quota("not a list\n4:cpu,cpuacct\n"), None);
    }

    #[test]
    fn the_own_quota_is_no_more_than_the_system_says() {
        let Some(quota) = own() else {
            let _ = writeln!(std::io::stderr(), "SKIPPED: a test of the own quota: this process has none");
            return;
        };
        assert!(quota.group != 0 && quota.cores >= 1);
        assert!(std::thread::available_parallelism().map_or(1, |n| n.get()) <= quota.cores as usize);
    }
}
