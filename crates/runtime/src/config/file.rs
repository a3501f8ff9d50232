//! Configuration files: variables for all programs of a user or a machine. The environment goes before them.
//!
//! `NCCL_CONF_FILE`, else `~/.nccl.conf` (the home of the password file), then `/etc/nccl.conf`; RCCL reads `~/.rccl.conf`
//! and `/etc/rccl.conf`. One `NAME=VALUE` per line, `#` in the first column begins a comment, nothing is trimmed; a name
//! keeps its first value. Read once per process; unlike in the originals the values do not enter the environment, so
//! child processes read the files themselves.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::OnceLock;

use crate::log::{self, Flavour};

/// Longest name and longest value, bytes.
const LONGEST: usize = 1023;

/// The value that the files give `name`.
pub(super) fn value(name: &str, conf_file: impl FnOnce() -> Option<String>) -> Option<String> {
    static VALUES: OnceLock<HashMap<String, String>> = OnceLock::new();
    VALUES.get_or_init(|| load(conf_file(), log::flavour())).get(name).cloned()
}

fn load(conf_file: Option<String>, flavour: Flavour) -> HashMap<String, String> {
    let name = if flavour == Flavour::Rccl { "rccl.conf" } else { "nccl.conf" };
    let own = match conf_file {
        Some(path) => Some(PathBuf::from(path)),
        None => home().map(|home| home.join(format!(".{name}"))),
    };
    let mut values = HashMap::new();
    for path in own.into_iter().chain([PathBuf::from("/etc").join(name)]) {
        // Who has no such file has nothing to say.
        if let Ok(bytes) = std::fs::read(path) {
            read(&String::from_utf8_lossy(&bytes), &mut values);
        }
    }
    values
}

fn read(text: &str, values: &mut HashMap<String, String>) {
    for line in text.lines().filter(|l| !l.starts_with('#')) {
        let Some((name, value)) = line.split_once('=') else { continue };
        if name.len() <= LONGEST && value.len() <= LONGEST {
            values.entry(name.to_string()).or_insert_with(|| value.to_string());
        }
    }
}

/// The home of this user, as the password file says.
fn home() -> Option<PathBuf> {
    let uid = rustix::process::getuid().as_raw().to_string();
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    // name:password:uid:gid:comment:home:shell
    let mine = users.lines().map(|l| l.split(':').collect::<Vec<_>>()).find(|f| f.get(2) == Some(&uid.as_str()))?;
    mine.get(5).filter(|home| !home.is_empty()).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_they_are() {
        let mut values = HashMap::new();
        let text = "# no\nNCCL_DEBUG=INFO\n NCCL_ALGO=ring\nnothing\nA==x\nB=\nNCCL_DEBUG=WARN\n #C=1\n";
        read(text, &mut values);
        read("NCCL_DEBUG=TRACE\nD=2 ", &mut values);
        let of = |name: &str| values.get(name).map(String::as_str);
        assert_eq!((of("NCCL_DEBUG"), of(" NCCL_ALGO"), of("NCCL_ALGO")), (Some("INFO"), Some("ring"), None));
        assert_eq!((of("A"), of("B"), of("D"), of(" #C")), (Some("=x"), Some(""), Some("2 "), Some("1")));
        read(&format!("{}=1\nE={}", "N".repeat(1024), "v".repeat(1024)), &mut values);
        assert_eq!((values.len(), values.get("E")), (6, None));
    }

    #[test]
    fn a_named_file_is_read_instead_of_the_users() {
        let path = std::env::temp_dir().join(format!("oxccl-conf-test-{}", std::process::id()));
        std::fs::write(&path, "OXCCL_TEST_VALUE=7\n").unwrap();
        let values = load(Some(path.display().to_string()), Flavour::Nccl);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(values.get("OXCCL_TEST_VALUE").map(String::as_str), Some("7"));
        assert!(!load(Some("/nowhere".into()), Flavour::Rccl).contains_key("OXCCL_TEST_VALUE"));
    }
}
