//! Whether the ranks of a machine outnumber the cores that they may use: each brings to the meeting on which processors it
//! may run, so ranks that are bound to a core each are not taken for ranks that share one.
//!
//! It decides how a rank waits, and nothing on which ranks must agree.

use oxccl_sys::affinity;

/// What a rank brings: the number of bytes, then the processors of the calling thread as bits.
pub(super) fn encode() -> Vec<u8> {
    let mut bits = affinity::allowed();
    // More processors than that are as good as these.
    bits.truncate(usize::from(u8::MAX));
    bits.insert(0, bits.len() as u8);
    bits
}

/// What `bytes` begins with, and the rest. Nothing where it cannot be read.
pub(super) fn split(bytes: &[u8]) -> (&[u8], &[u8]) {
    let found = bytes.split_first().and_then(|(length, rest)| rest.split_at_checked(usize::from(*length)));
    found.unwrap_or_default()
}

/// Whether ranks with these processors share some: they are more than all processors together, or than this process may
/// use at a time, or two are bound to the same one.
pub(super) fn are_shared(sets: &[&[u8]]) -> bool {
    let count = |set: &[u8]| set.iter().map(|b| b.count_ones() as usize).sum::<usize>();
    let mut all = Vec::new();
    let mut bound = Vec::new();
    for set in sets {
        if all.len() < set.len() {
            all.resize(set.len(), 0);
        }
        all.iter_mut().zip(*set).for_each(|(a, b)| *a |= b);
        if count(set) == 1 {
            bound.push(*set);
        }
    }
    bound.sort_unstable();
    let own = count(&affinity::allowed());
    let usable = match affinity::available_cores() {
        // The quota of a control group.
        quota if quota < own => quota.min(count(&all)),
        _ => count(&all),
    };
    sets.len() > usable.max(1) || bound.windows(2).any(|w| w[0] == w[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bound_ranks_share_only_where_they_are_bound_to_the_same() {
        assert!(!are_shared(&[&[1], &[2]]));
        assert!(!are_shared(&[&[1], &[0, 1]]));
        assert!(are_shared(&[&[1], &[1], &[0b1110]]));
        assert!(!are_shared(&[&[3], &[3]]));
        assert!(are_shared(&[&[3], &[3], &[3]]));
        assert!(are_shared(&[&[1], &[2], &[3]]));
    }

    #[test]
    fn what_was_encoded_is_split_off() {
        let mut bytes = encode();
        let own = bytes[1..].to_vec();
        bytes.extend([7, 8]);
        assert_eq!(split(&bytes), (&own[..], &[7, 8][..]));
        assert_eq!(split(&[5, 1]), Default::default());
        assert_eq!(split(&[]), Default::default());
    }
}
