//! Teams: strided subsets of the ranks, and which ranks reach each other's memory by loads and stores.
//!
//! Pure arithmetic. The *LSA team* (load/store accessible) of a rank are consecutive ranks that share memory; all LSA
//! teams of a communicator have the same size. The *rail* of a rank has one rank of every LSA team.

/// A strided subset of the ranks of a communicator, as one of its members sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Team {
    /// Number of members.
    pub ranks: usize,
    /// This rank's number among them.
    pub rank: usize,
    /// Distance of neighbours in the communicator.
    pub stride: usize,
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The size of the LSA teams: the greatest number that divides the length of every run of consecutive ranks with equal
/// `node_of`, and `limit` where that is not 0.
pub(super) fn lsa_size(node_of: &[usize], limit: usize) -> usize {
    let runs = node_of.chunk_by(|a, b| a == b).map(<[usize]>::len);
    runs.fold(limit, gcd).max(1)
}

/// The teams that `rank` of `ranks` ranks is in when LSA teams have `lsa` ranks: LSA team and rail.
pub(super) fn teams(rank: usize, ranks: usize, lsa: usize) -> (Team, Team) {
    (Team { ranks: lsa, rank: rank % lsa, stride: 1 }, Team { ranks: ranks / lsa, rank: rank / lsa, stride: lsa })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_divide_every_run() {
        assert_eq!(lsa_size(&[0; 8], 0), 8);
        assert_eq!(lsa_size(&[0; 8], 2), 2);
        assert_eq!(lsa_size(&[0; 8], 3), 1);
        assert_eq!(lsa_size(&[0, 0, 0, 0, 4, 4], 0), 2);
        assert_eq!(lsa_size(&[0, 0, 0, 3, 3], 0), 1);
        assert_eq!(lsa_size(&[0, 1, 0, 1], 0), 1);
        assert_eq!(lsa_size(&[0, 0, 2, 2, 0, 0], 0), 2);
        assert_eq!(lsa_size(&[0], 0), 1);
    }

    #[test]
    fn every_rank_is_in_one_team_and_one_rail() {
        for (ranks, lsa) in [(8, 4), (6, 2), (5, 1), (7, 7)] {
            for rank in 0..ranks {
                let (team, rail) = teams(rank, ranks, lsa);
                assert_eq!(team.ranks * rail.ranks, ranks);
                assert_eq!(rail.rank * rail.stride + team.rank * team.stride, rank);
            }
        }
    }
}
