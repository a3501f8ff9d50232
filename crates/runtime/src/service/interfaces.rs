//! Which network addresses this process listens on: the rules of `NCCL_SOCKET_IFNAME` and `NCCL_SOCKET_FAMILY`.

use std::net::IpAddr;

use oxccl_types::{Error, Result};

/// `NCCL_SOCKET_FAMILY`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// `AF_INET`
    V4,
    /// `AF_INET6`
    V6,
}

impl Family {
    fn allows(self, ip: &IpAddr) -> bool {
        ip.is_ipv4() == (self == Family::V4)
    }
}

/// An address of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// `eth0`
    pub name: String,
    /// Its address.
    pub ip: IpAddr,
    /// Scope of a link-local IPv6 address, else 0.
    pub scope: u32,
}

/// The usable interfaces, best first, one address each. Never empty.
///
/// `ifname` is the value of `NCCL_SOCKET_IFNAME`: `[^][=]name[,name...]`.
///
/// # Errors
/// `InvalidUsage` when no interface is left.
pub fn choose(ifname: Option<&str>, family: Option<Family>) -> Result<Vec<Interface>> {
    let all = if_addrs::get_if_addrs()
        .map_err(|e| Error::system(format!("cannot list the network interfaces: {e}")))?
        .into_iter()
        .filter(|i| i.is_oper_up())
        .map(|i| {
            let scope = if i.ip().is_ipv6() && i.is_link_local() { i.index.unwrap_or(0) } else { 0 };
            Interface { ip: i.ip(), name: i.name, scope }
        })
        .collect();
    select(all, ifname, family)
}

fn select(mut all: Vec<Interface>, ifname: Option<&str>, family: Option<Family>) -> Result<Vec<Interface>> {
    all.retain(|i| family.is_none_or(|f| f.allows(&i.ip)) && (i.ip.is_ipv4() || !i.ip.is_loopback()));
    let names = all.iter().map(|i| i.name.clone()).collect::<Vec<_>>().join(", ");
    match ifname.filter(|n| n.len() > 1) {
        Some(filter) => {
            let (exclude, list) = filter.strip_prefix('^').map_or((false, filter), |l| (true, l));
            let (exact, list) = list.strip_prefix('=').map_or((false, list), |l| (true, l));
            let listed =
                |n: &str| list.split(',').any(|p| !p.is_empty() && if exact { n == p } else { n.starts_with(p) });
            all.retain(|i| listed(&i.name) != exclude);
        }
        // The automatic order; stable, so that the system's order decides within a class.
        None => all.sort_by_key(|i| {
            let classes = ["docker", "lo", "virbr"];
            match classes.iter().position(|c| i.name.starts_with(c)) {
                Some(class) => class + 2,
                None => usize::from(!i.name.starts_with("ib")),
            }
        }),
    }
    // Link-local addresses last, then the first address of each name.
    all.sort_by_key(|i| i.scope != 0 && ifname.is_none());
    let mut seen = Vec::new();
    all.retain(|i| {
        let fresh = !seen.contains(&i.name);
        seen.push(i.name.clone());
        fresh
    });
    if all.is_empty() {
        return Err(Error::usage(format!(
            "Bootstrap : no socket interface found: NCCL_SOCKET_IFNAME is {}, NCCL_SOCKET_FAMILY is {}, running \
             interfaces of that family: {}. Correct the variable, or bring up an interface (`ip link set lo up`)",
            ifname.unwrap_or("unset"),
            family.map_or("unset", |f| if f == Family::V4 { "AF_INET" } else { "AF_INET6" }),
            if names.is_empty() { "none" } else { &names },
        )));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Vec<Interface> {
        [
            ("lo", "127.0.0.1"),
            ("lo", "::1"),
            ("docker0", "172.17.0.1"),
            ("eth0", "10.0.0.1"),
            ("eth0", "fd00::1"),
            ("eth1", "10.1.0.1"),
            ("ib0", "10.2.0.1"),
        ]
        .map(|(n, a)| Interface { name: n.into(), ip: a.parse().unwrap(), scope: 0 })
        .to_vec()
    }

    fn names(ifname: Option<&str>, family: Option<Family>) -> String {
        let all = select(machine(), ifname, family);
        all.map_or("none".into(), |l| l.iter().map(|i| i.name.as_str()).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn the_documented_rules() {
        assert_eq!(names(None, None), "ib0 eth0 eth1 docker0 lo");
        assert_eq!(names(Some("eth"), None), "eth0 eth1");
        assert_eq!(names(Some("=eth1"), None), "eth1");
        assert_eq!(names(Some("=eth"), None), "none");
        assert_eq!(names(Some("^lo,docker"), None), "eth0 eth1 ib0");
        assert_eq!(names(Some("^=eth0,lo"), None), "docker0 eth1 ib0");
        assert_eq!(names(None, Some(Family::V6)), "eth0");
        let text = select(machine(), Some("wlan"), None).unwrap_err().into_text();
        assert!(text.contains("no socket interface found") && text.contains("eth0"), "{text}");
    }

    #[test]
    fn this_machine_has_an_interface() {
        assert!(!choose(None, None).unwrap().is_empty());
    }
}
