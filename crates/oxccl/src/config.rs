//! What may be chosen for a communicator.
//!
//! Ranges are checked here; what the environment makes of the choices is the runtime's affair.

use oxccl_runtime::CommConfig;
use oxccl_types::{Error, Result};

/// What may be chosen when a rank joins, or for a communicator that is made out of another one; the default is right
/// for most programs. All ranks of a communicator choose the same, device and name excepted. Environment variables
/// override the choices, as for `ncclConfig_t`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// The host device of this rank, below [`crate::device_count`]. Default: the rank modulo that count. A communicator
    /// that is made out of another one has the device of that.
    pub device: Option<usize>,
    /// The communicator's name in logs and errors (`commName`).
    pub name: Option<String>,
    /// Whether calls that make or end communicators return before they are complete (`blocking` 0): see
    /// [`crate::Communicator::poll`]. Calls that move data are not concerned.
    pub nonblocking: bool,
    /// Fewest and most channels that a message over connections is divided over, at least 1 (`minCTAs`, `maxCTAs`).
    /// Default: what the library takes for best.
    pub channels: Option<(u32, u32)>,
    /// The network between machines, `Socket` in any case of letters (`netName`). Default: the best there is.
    pub network: Option<String>,
    /// Whether communicators that [`crate::Communicator::split`] makes of this one share resources with it
    /// (`splitShare`): mappings of peers' memory and watches of their processes are used in common, and the child has
    /// less staging memory of its own, so that it costs less and moves large private buffers more slowly. Neither can
    /// be suspended while both exist; otherwise they are independent of each other.
    pub split_share: bool,
    /// The same for [`crate::Communicator::shrink`] (`shrinkShare`).
    pub shrink_share: bool,
    /// Whether what one device is given, on any communicator and stream, runs in the order in which it was issued. All
    /// ranks must then issue in the same order (`NCCL_LAUNCH_ORDER_IMPLICIT`).
    pub launch_order: bool,
}

impl Config {
    /// The runtime's form.
    pub(crate) fn to_runtime(&self) -> Result<CommConfig> {
        let number = |n: u32| i32::try_from(n).unwrap_or(i32::MAX);
        if let Some((least, most)) = self.channels
            && (least < 1 || most < least)
        {
            return Err(Error::argument(format!(
                "Config: channels are ({least}, {most}); the first must be at least 1 and the second not below it"
            )));
        }
        Ok(CommConfig {
            blocking: Some(!self.nonblocking),
            name: self.name.clone(),
            min_ctas: self.channels.map(|c| number(c.0)),
            max_ctas: self.channels.map(|c| number(c.1)),
            net_name: self.network.clone(),
            split_share: Some(self.split_share),
            shrink_share: Some(self.shrink_share),
            launch_order: Some(self.launch_order),
            ..CommConfig::default()
        })
    }
}
