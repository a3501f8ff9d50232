//! Small calls that begin before those in front of them have ended, where ranks share cores.
//!
//! A call by which every rank waits for every other costs a switch of the core on each of them. As many calls as follow
//! one another without needing each other's results are therefore announced first, and finished together: what one
//! switch costs then serves up to a [`WINDOW`](crate::communicator::hub::WINDOW) of them.
//!
//! Each remains a task of its own, with its number, its line and its turn; the stream keeps their order.

use super::known::Made;
use crate::communicator::core::Core;
use crate::device::IdleStream;

/// Whether the call `made` may begin behind the calls that the stream holds: it does not read what they
/// will write.
pub(super) fn may_follow(core: &Core, stream: &IdleStream<'_>, made: &Made) -> bool {
    let from = made.call.send.addr();
    let bytes = made.call.input_bytes(core.rank as u32, core.ranks) as usize;
    made.form.may_trail && made.call.bias.is_null() && !stream.will_write(from..from + bytes)
}
