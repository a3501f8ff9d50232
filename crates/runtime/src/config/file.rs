//! Configuration files: variables for all programs of a user or a machine. The environment goes before them.
//!
//! `NCCL_CONF_FILE`, else `~/.nccl.conf` (the home of the password file), then `/etc/nccl.conf`; RCCL reads `~/.rccl.conf`
//! and `/etc/rccl.conf`. One `NAME=VALUE` per line, `#` in the first column begins a comment, nothing is trimmed or cut; a name
//! keeps its first value. Read once per process; unlike in the originals the values do not enter the environment, so
//! child processes read the files themselves.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::OnceLock;

use crate::log::{self, Flavour};

/// The value that the files give `name`.
pub(super) fn value(name: &str, conf_file: impl FnOnce() -> Option<OsString>) -> Option<Vec<u8>> {
    static VALUES: OnceLock<HashMap<String, Vec<u8>>> = OnceLock::new();
    VALUES.get_or_init(|| load(conf_file(), log::flavour())).get(name).cloned()
}

fn load(conf_file: Option<OsString>, flavour: Flavour) -> HashMap<String, Vec<u8>> {
    let name = if flavour == Flavour::Rccl { "rccl.conf" } else { "nccl.conf" };
    let own = match conf_file {
        Some(path) => Some(PathBuf::from(path)),
        None => oxccl_sys::host::home().map(|home| home.join(format!(".{name}"))),
    };
    let mut values = HashMap::new();
    for path in own.into_iter().chain([PathBuf::from("/etc").join(name)]) {
        // Who has no such file has nothing to say.
        if let Ok(bytes) = std::fs::read(path) {
            read(&bytes, &mut values);
        }
    }
    values
}

fn read(text: &[u8], values: &mut HashMap<String, Vec<u8>>) {
    let lines = text.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    for line in lines.filter(|line| !line.starts_with(b"#")) {
        let Some(at) = line.iter().position(|byte| *byte == b'=') else { continue };
        // No variable of ours has another name.
        if let Ok(name) = std::str::from_utf8(&line[..at]) {
            values.entry(name.to_string()).or_insert_with(|| line[at + 1..].to_vec());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_they_are() {
        let mut values = HashMap::new();
        let text = "# no\nNCCL_DEBUG=INFO\n NCCL_ALGO=ring\nnothing\nA==x\nB=\nNCCL_DEBUG=WARN\n #C=1\n";
        read(text.as_bytes(), &mut values);
        read(b"NCCL_DEBUG=TRACE\nD=2 ", &mut values);
        let of = |name: &str| values.get(name).map(|value| std::str::from_utf8(value).unwrap());
        assert_eq!((of("NCCL_DEBUG"), of(" NCCL_ALGO"), of("NCCL_ALGO")), (Some("INFO"), Some("ring"), None));
        assert_eq!((of("A"), of("B"), of("D"), of(" #C")), (Some("=x"), Some(""), Some("2 "), Some("1")));
        let long = "v".repeat(5000);
        read(format!("E={long}\r\n").as_bytes(), &mut values);
        assert_eq!(
            values.get("E").map(Vec::as_slice),
            Some(long.as_bytes()),
            "a secret that is cut would be another one"
        );
        read(b"F=\xff\xfe\n\xff=1", &mut values);
        assert_eq!((values.len(), values.get("F").map(Vec::as_slice)), (8, Some(&b"\xff\xfe"[..])));
    }

    #[test]
    fn a_named_file_is_read_instead_of_the_users() {
        let path = std::env::temp_dir().join(format!("oxccl-conf-test-{}", std::process::id()));
        std::fs::write(&path, "OXCCL_TEST_VALUE=7\n").unwrap();
        let values = load(Some(path.clone().into()), Flavour::Nccl);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(values.get("OXCCL_TEST_VALUE").map(Vec::as_slice), Some(&b"7"[..]));
        assert!(!load(Some("/nowhere".into()), Flavour::Rccl).contains_key("OXCCL_TEST_VALUE"));
    }
}
