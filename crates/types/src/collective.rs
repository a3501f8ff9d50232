//! The collectives and the shape of their buffers.

/// A collective operation or one half of a point-to-point transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Collective {
    /// Every rank gets the reduction of all inputs.
    AllReduce = 0,
    /// The root's input reaches every output.
    Broadcast = 1,
    /// The root gets the reduction of all inputs.
    Reduce = 2,
    /// Every rank gets its block of the reduction of all inputs.
    ReduceScatter = 3,
    /// Every rank gets all inputs, in rank order.
    AllGather = 4,
    /// The root gets all inputs, in rank order.
    Gather = 5,
    /// Every rank gets its block of the root's input.
    Scatter = 6,
    /// Every rank gets block `r` of every input.
    AllToAll = 7,
    /// As `AllToAll` with counts and displacements per peer.
    AllToAllV = 8,
    /// One message to a peer.
    Send = 9,
    /// One message from a peer.
    Recv = 10,
}

impl Collective {
    /// How many there are; their values are smaller.
    pub const COUNT: usize = 11;

    /// All collectives that have schedules (`Send` and `Recv` are made from the group).
    pub const SCHEDULED: [Collective; 9] = [
        Collective::AllReduce,
        Collective::Broadcast,
        Collective::Reduce,
        Collective::ReduceScatter,
        Collective::AllGather,
        Collective::Gather,
        Collective::Scatter,
        Collective::AllToAll,
        Collective::AllToAllV,
    ];

    /// The collective with discriminant `v`.
    pub fn from_u8(v: u8) -> Option<Collective> {
        match v {
            9 => Some(Collective::Send),
            10 => Some(Collective::Recv),
            v => Self::SCHEDULED.get(v as usize).copied(),
        }
    }

    /// The spelling of logs (`AllReduce`).
    pub const fn name(self) -> &'static str {
        match self {
            Collective::AllReduce => "AllReduce",
            Collective::Broadcast => "Broadcast",
            Collective::Reduce => "Reduce",
            Collective::ReduceScatter => "ReduceScatter",
            Collective::AllGather => "AllGather",
            Collective::Gather => "Gather",
            Collective::Scatter => "Scatter",
            Collective::AllToAll => "AlltoAll",
            Collective::AllToAllV => "AlltoAllv",
            Collective::Send => "Send",
            Collective::Recv => "Recv",
        }
    }

    /// The spelling of command lines (`all_reduce`).
    pub const fn snake(self) -> &'static str {
        match self {
            Collective::AllReduce => "all_reduce",
            Collective::Broadcast => "broadcast",
            Collective::Reduce => "reduce",
            Collective::ReduceScatter => "reduce_scatter",
            Collective::AllGather => "all_gather",
            Collective::Gather => "gather",
            Collective::Scatter => "scatter",
            Collective::AllToAll => "alltoall",
            Collective::AllToAllV => "alltoallv",
            Collective::Send => "send",
            Collective::Recv => "recv",
        }
    }

    /// Whether inputs are combined by a `ReduceOp`.
    pub const fn reduces(self) -> bool {
        matches!(self, Collective::AllReduce | Collective::Reduce | Collective::ReduceScatter)
    }

    /// Whether one rank is the root.
    pub const fn rooted(self) -> bool {
        matches!(self, Collective::Broadcast | Collective::Reduce | Collective::Gather | Collective::Scatter)
    }

    /// Blocks of `count` elements in the send buffer of a rank (of the root, where only it sends).
    pub const fn input_blocks(self, ranks: usize) -> usize {
        match self {
            Collective::ReduceScatter | Collective::Scatter | Collective::AllToAll | Collective::AllToAllV => ranks,
            _ => 1,
        }
    }

    /// Blocks of `count` elements in the receive buffer of a rank (of the root, where only it receives).
    pub const fn output_blocks(self, ranks: usize) -> usize {
        match self {
            Collective::AllGather | Collective::Gather | Collective::AllToAll | Collective::AllToAllV => ranks,
            _ => 1,
        }
    }
}

impl std::fmt::Display for Collective {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
