//! The settings of one communicator: what the program chose, and what the environment makes of it.
//!
//! Ranges of what the program gives are checked by the interfaces. The environment overrides the program, for every
//! communicator that is made, also out of another one; what it says out of range is told in the log and replaced.

use crate::config;
use crate::log::{self, Flavour, Subsys};

/// Settings of one communicator; `None` leaves the choice to the library. Fields that only mean something to GPUs or to
/// network plug-ins are kept, so that a child inherits them, and change nothing on host devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommConfig {
    /// `false`: management calls return before they are complete; see
    /// [`Communicator::async_error`](super::Communicator::async_error). Default: `true`.
    pub blocking: Option<bool>,
    /// Name for logs.
    pub name: Option<String>,
    /// Fewest channels of a message program, at least 1.
    pub min_ctas: Option<i32>,
    /// Most channels of a message program, at least 1.
    pub max_ctas: Option<i32>,
    /// Network to use: `Socket`, in any case of letters.
    pub net_name: Option<String>,
    /// Whether communicators that are split off share resources with this one. Default: no.
    pub split_share: Option<bool>,
    /// Whether communicators that this one shrinks to share resources with it. Default: no.
    pub shrink_share: Option<bool>,
    /// Whether what a device is given runs in the order in which the host gives it (`NCCL_LAUNCH_ORDER_IMPLICIT`).
    /// Default: no. C programs have only the variable.
    pub launch_order: Option<bool>,
    /// Contexts for one-sided operations, at least 0. Default: 1.
    pub num_rma_ctx: Option<i32>,
    /// Traffic class for network plug-ins. The network of sockets has none.
    pub traffic_class: Option<i32>,
    /// Most peers that one rank exchanges messages with, at least 1. A promise of the program that saves GPUs memory;
    /// host devices open connections as they are used.
    pub max_p2p_peers: Option<i32>,
    /// 0: the program captures nothing; 1: one graph at a time; 2: graphs and other work at once. Host devices serve
    /// all three alike. Default: 2.
    pub graph_usage_mode: Option<i32>,
    /// Whether captured calls keep order with the streams of their communicator; host devices always do. Default: yes.
    pub graph_stream_ordering: Option<bool>,
    /// Channels per network peer: kept only.
    pub channels_per_net_peer: Option<i32>,
    /// Size of thread block clusters: kept only.
    pub cga_cluster_size: Option<i32>,
    /// Reductions in the network: kept only.
    pub collnet_enable: Option<bool>,
    /// How blocks are spent, bits 1 (efficiency) and 2 (none): kept only.
    pub cta_policy: Option<i32>,
    /// Blocks for multicast: kept only.
    pub nvls_ctas: Option<i32>,
    /// Schedule for the utilisation of links: kept only.
    pub nvlink_centric_sched: Option<bool>,
}

const EFFICIENCY: i32 = 1;
const ZERO: i32 = 2;

/// Greatest number of channels that either library knows; host devices use fewer.
pub fn most_channels(flavour: Flavour) -> i32 {
    match flavour {
        Flavour::Nccl => 64,
        Flavour::Rccl => 256,
    }
}

/// Where the overrides come from.
struct Environment<'a> {
    text: &'a dyn Fn(&str) -> Option<String>,
    most: i32,
}

impl Environment<'_> {
    fn integer(&self, name: &str) -> Option<i32> {
        let text = (self.text)(name)?;
        let value = config::parse_integer(&text).and_then(|n| i32::try_from(n).ok());
        if value.is_none() {
            say(&format!("{name}={text} is beyond 32 bits: it changes nothing"));
        }
        value
    }

    /// An override within `least..=most`; others change nothing.
    fn number(&self, field: &str, name: &str, least: i32, most: i32, into: &mut Option<i32>) {
        let Some(value) = self.integer(name) else { return };
        if value < least {
            let kept = into.map_or("automatic".to_string(), |v| v.to_string());
            say(&format!("{name} {value} is too low, leaving it set at {kept}"));
            return;
        }
        let value = value.min(most);
        say(&format!("Comm config {field} reset to {name}={value}"));
        *into = Some(value);
    }

    fn flag(&self, field: &str, name: &str, into: &mut Option<bool>) {
        match self.integer(name) {
            None => {}
            Some(value @ (0 | 1)) => {
                say(&format!("Comm config {field} reset to {name}={value}"));
                *into = Some(value == 1);
            }
            Some(value) => {
                say(&format!("{name}={value} is neither 0 nor 1: {field} is set to 0"));
                *into = Some(false);
            }
        }
    }
}

fn say(text: &str) {
    log::info(Subsys::ENV, text);
}

/// `DEFAULT`, `EFFICIENCY` and `ZERO` joined by `|`, or a digit up to 2; the default for anything else.
fn policy(text: &str) -> i32 {
    if let Some(digit) = text.parse().ok().filter(|d| (0..=2).contains(d)) {
        return digit;
    }
    let mut bits = text.split('|').map(|word| match word.trim().to_ascii_uppercase().as_str() {
        "DEFAULT" => Some(0),
        "EFFICIENCY" => Some(EFFICIENCY),
        "ZERO" => Some(ZERO),
        _ => None,
    });
    bits.try_fold(0, |all, bit| Some(all | bit?)).unwrap_or_else(|| {
        say(&format!("NCCL_CTA_POLICY={text} is no policy (valid: DEFAULT, EFFICIENCY, ZERO): the default is used"));
        0
    })
}

impl CommConfig {
    /// The environment overrides the program; called for every communicator of `ranks` ranks.
    pub(super) fn resolved(self, ranks: usize) -> CommConfig {
        self.under(&Environment { text: &config::text, most: most_channels(log::flavour()) }, ranks)
    }

    fn under(mut self, env: &Environment<'_>, ranks: usize) -> CommConfig {
        const MAX: i32 = i32::MAX;
        let most = env.most;
        if let Some(value @ (0 | 1)) = env.integer("NCCL_COMM_BLOCKING") {
            say(&format!("Comm config blocking reset to NCCL_COMM_BLOCKING={value}"));
            self.blocking = Some(value == 1);
        }
        env.number("cgaClusterSize", "NCCL_CGA_CLUSTER_SIZE", 0, 8, &mut self.cga_cluster_size);
        env.number("minCTAs", "NCCL_MIN_CTAS", 1, most, &mut self.min_ctas);
        env.number("maxCTAs", "NCCL_MAX_CTAS", 1, most, &mut self.max_ctas);
        env.number("nChannelsPerNetPeer", "NCCL_NCHANNELS_PER_NET_PEER", 1, most, &mut self.channels_per_net_peer);
        env.number("numRmaCtx", "NCCL_NUM_RMA_CTX", 0, MAX, &mut self.num_rma_ctx);
        let peers = i32::try_from(ranks).unwrap_or(MAX);
        env.number("maxP2pPeers", "NCCL_P2P_MAX_PEERS", 1, peers, &mut self.max_p2p_peers);
        env.flag("splitShare", "NCCL_COMM_SPLIT_SHARE_RESOURCES", &mut self.split_share);
        env.flag("shrinkShare", "NCCL_COMM_SHRINK_SHARE_RESOURCES", &mut self.shrink_share);
        env.flag("collnetEnable", "NCCL_COLLNET_ENABLE", &mut self.collnet_enable);
        let sched = "NCCL_NVLINK_UTIL_CENTRIC_SCHED_ENABLE";
        env.flag("nvlinkCentricSched", sched, &mut self.nvlink_centric_sched);
        env.flag("graphStreamOrdering", "NCCL_GRAPH_STREAM_ORDERING", &mut self.graph_stream_ordering);
        if let Some(mixing) = env.integer("NCCL_GRAPH_MIXING_SUPPORT").filter(|m| (0..=1).contains(m)) {
            say(&format!("Comm config graphUsageMode reset to NCCL_GRAPH_MIXING_SUPPORT={mixing}"));
            self.graph_usage_mode = Some(2 * mixing);
        }
        if let Some(channels) = env.integer("NCCL_NVLS_NCHANNELS") {
            say(&format!("Comm config nvlsCTAs reset to NCCL_NVLS_NCHANNELS={channels}"));
            self.nvls_ctas = Some(channels);
        }
        if let Some(text) = (env.text)("NCCL_CTA_POLICY") {
            say(&format!("Comm config CTAPolicy reset to NCCL_CTA_POLICY={text}"));
            self.cta_policy = Some(policy(&text));
        }
        if let Some(name) = (env.text)("NCCL_NET") {
            say(&format!("Comm config netName reset to NCCL_NET={name}"));
            self.net_name = Some(name);
        }
        self.clamped(most)
    }

    /// What does not go together is put right and told.
    fn clamped(mut self, most: i32) -> CommConfig {
        for (name, value) in [("minCTAs", &mut self.min_ctas), ("maxCTAs", &mut self.max_ctas)] {
            if let Some(v) = value.filter(|v| *v > most) {
                say(&format!("{name} {v} is more than there can be and set to {most}"));
                *value = Some(most);
            }
        }
        if let (Some(min), Some(max)) = (self.min_ctas, self.max_ctas)
            && min > max
        {
            say(&format!("minCTAs {min} is more than maxCTAs {max} and set to it"));
            self.min_ctas = Some(max);
        }
        if self.nvls_ctas.is_some_and(|n| n <= 0) {
            say("nvlsCTAs is not positive: it is chosen automatically");
            self.nvls_ctas = None;
        }
        if self.cta_policy == Some(EFFICIENCY | ZERO) {
            log::warn("CTAPolicy has both EFFICIENCY and ZERO, which exclude each other: EFFICIENCY is dropped");
            self.cta_policy = Some(ZERO);
        }
        if self.graph_stream_ordering == Some(false) && self.graph_usage_mode.unwrap_or(2) == 2 {
            log::warn("graphStreamOrdering 0 needs graphUsageMode 0 or 1: it is set to 1");
            self.graph_stream_ordering = Some(true);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn under(config: CommConfig, variables: &[(&str, &str)]) -> CommConfig {
        let text = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| v.to_string());
        config.under(&Environment { text: &text, most: 64 }, 4)
    }

    #[test]
    fn the_environment_overrides_every_field() {
        let set = under(
            CommConfig { min_ctas: Some(3), split_share: Some(false), ..CommConfig::default() },
            &[
                ("NCCL_COMM_BLOCKING", "0"),
                ("NCCL_CGA_CLUSTER_SIZE", "99"),
                ("NCCL_MIN_CTAS", "2"),
                ("NCCL_MAX_CTAS", "1000"),
                ("NCCL_NCHANNELS_PER_NET_PEER", "0x10"),
                ("NCCL_NUM_RMA_CTX", "5"),
                ("NCCL_P2P_MAX_PEERS", "100"),
                ("NCCL_COMM_SPLIT_SHARE_RESOURCES", "1"),
                ("NCCL_COMM_SHRINK_SHARE_RESOURCES", "7"),
                ("NCCL_COLLNET_ENABLE", "1"),
                ("NCCL_NVLINK_UTIL_CENTRIC_SCHED_ENABLE", "1"),
                ("NCCL_GRAPH_STREAM_ORDERING", "0"),
                ("NCCL_GRAPH_MIXING_SUPPORT", "0"),
                ("NCCL_NVLS_NCHANNELS", "6"),
                ("NCCL_CTA_POLICY", "efficiency"),
                ("NCCL_NET", "socket"),
            ],
        );
        let wanted = CommConfig {
            blocking: Some(false),
            name: None,
            min_ctas: Some(2),
            max_ctas: Some(64),
            net_name: Some("socket".into()),
            split_share: Some(true),
            shrink_share: Some(false),
            launch_order: None,
            num_rma_ctx: Some(5),
            traffic_class: None,
            max_p2p_peers: Some(4),
            graph_usage_mode: Some(0),
            graph_stream_ordering: Some(false),
            channels_per_net_peer: Some(16),
            cga_cluster_size: Some(8),
            collnet_enable: Some(true),
            cta_policy: Some(EFFICIENCY),
            nvls_ctas: Some(6),
            nvlink_centric_sched: Some(true),
        };
        assert_eq!(set, wanted);
    }

    #[test]
    fn what_is_out_of_range_changes_nothing_or_is_put_right() {
        let given = CommConfig { min_ctas: Some(3), max_ctas: Some(9), ..CommConfig::default() };
        let set = under(given.clone(), &[("NCCL_MIN_CTAS", "0"), ("NCCL_MAX_CTAS", "-4"), ("NCCL_COMM_BLOCKING", "2")]);
        assert_eq!(set, given);
        let set =
            under(given.clone(), &[("NCCL_MAX_CTAS", "2"), ("NCCL_NVLS_NCHANNELS", "0"), ("NCCL_CTA_POLICY", "x")]);
        assert_eq!((set.min_ctas, set.max_ctas, set.nvls_ctas, set.cta_policy), (Some(2), Some(2), None, Some(0)));
        assert_eq!(under(given.clone(), &[("NCCL_CTA_POLICY", "ZERO|EFFICIENCY")]).cta_policy, Some(ZERO));
        assert_eq!(under(given.clone(), &[("NCCL_CTA_POLICY", "2")]).cta_policy, Some(ZERO));
        // Ordering can be given up only where graphs do not run beside other work.
        assert_eq!(under(given, &[("NCCL_GRAPH_STREAM_ORDERING", "0")]).graph_stream_ordering, Some(true));
        assert_eq!(under(CommConfig::default(), &[]), CommConfig::default());
    }
}
