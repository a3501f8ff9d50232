//! The id that the ranks of a communicator share.

use oxccl_types::Result;

use crate::bootstrap;
use crate::communicator::bootstrap_config;
use crate::config::Config;

/// The 128 bytes that name a communicator before it exists. They carry its secret: whoever has them can join.
#[derive(Clone)]
pub struct UniqueId(pub(crate) bootstrap::UniqueId);

impl UniqueId {
    /// Makes an id and the root that the ranks will meet at, in this process. With `NCCL_COMM_ID` the id is derived
    /// from it, the same everywhere, and rank 0 starts the root.
    ///
    /// # Errors
    /// `InvalidUsage` without a network interface, `InvalidArgument` for a malformed `NCCL_COMM_ID`, `SystemError`.
    pub fn create() -> Result<UniqueId> {
        bootstrap::UniqueId::create(&bootstrap_config(&Config::from_env())).map(UniqueId)
    }

    /// The id in `bytes`. `InvalidArgument` when they are no id of this library.
    pub fn from_bytes(bytes: [u8; 128]) -> Result<UniqueId> {
        bootstrap::UniqueId::from_bytes(bytes).map(UniqueId)
    }

    /// The bytes to hand to the other ranks.
    pub fn to_bytes(&self) -> [u8; 128] {
        self.0.to_bytes()
    }
}
