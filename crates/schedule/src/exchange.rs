//! The cost of an exchange: sends and receives of one rank that progress together.
//!
//! A closed form like those of `cost`; it knows no buffers and no matching of messages.

use crate::cost::{CostModel, Link, LinkCost};

/// What one rank sends or receives over one kind of link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Traffic {
    /// The way.
    pub link: Link,
    /// Messages, sent and received.
    pub messages: u64,
    /// Bytes of all of them.
    pub bytes: u64,
}

/// Predicted time in us until a rank has done all of `traffic` and copied `own` bytes to itself, when `neighbours` ranks
/// of its machine do the like at the same time. One thread serves all messages of a rank in turn.
pub fn predict_exchange(m: &CostModel, neighbours: u32, traffic: &[Traffic], own: u64) -> f64 {
    let crowd = (f64::from(neighbours) / m.cores).max(1.0);
    let switch = m.round_us(f64::from(neighbours));
    let mut latency = 0.0_f64;
    let mut work = kib(own) * m.direct.copy_us_per_kib;
    for t in traffic.iter().filter(|t| t.messages > 0) {
        let cost = cost_of(m, t.link);
        latency = latency.max(cost.latency_us + switch);
        work += t.messages as f64 * cost.op_us + kib(t.bytes) * cost.copy_us_per_kib;
    }
    latency + crowd * (m.start_us + work)
}

fn kib(bytes: u64) -> f64 {
    bytes as f64 / 1024.0
}

fn cost_of(m: &CostModel, link: Link) -> &LinkCost {
    match link {
        Link::Direct => &m.direct,
        Link::Shm => &m.shm,
        Link::Tcp => &m.tcp,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_bytes_more_messages_and_slower_links_cost_more() {
        let m = CostModel::default();
        let of = |link, messages, bytes| predict_exchange(&m, 2, &[Traffic { link, messages, bytes }], 0);
        let base = of(Link::Shm, 2, 1 << 20);
        assert!(base > 0.0 && of(Link::Shm, 2, 1 << 21) > base && of(Link::Shm, 9, 1 << 20) > base);
        assert!(of(Link::Tcp, 2, 1 << 20) > base);
        assert!(predict_exchange(&m, 64, &[], 1 << 20) > predict_exchange(&m, 1, &[], 1 << 20));
        assert!(predict_exchange(&m, 1, &[], 0) < 1.0);
    }
}
