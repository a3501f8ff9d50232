//! AlltoAllv made again: a call with the type, the counts and the displacements of the communicator's last one is carried out
//! as that was, without being checked and translated anew. Only where each rank has a core: elsewhere calls begin behind each
//! other.

use std::sync::Arc;

use oxccl_types::DataType;

use super::at_once::{Free, advance_v, fail_v, leave_v};
use super::call::Call;
use super::eager_v::Way;
use super::pair_v::Pair;
use crate::communicator::core::{Core, Lane};
use crate::communicator::hub::SMALL_BYTES;
use crate::device::{self, Stream, caught};
use crate::request::{VCounts, VLists};

/// The last AlltoAllv of a communicator that was over at once. Later ones that had to wait do not replace it.
#[derive(Default)]
pub(super) struct Last(Option<Box<Made>>);

struct Made {
    /// With the signature that it has without the history of the communicator.
    call: Call,
    way: Way,
    /// What the lists come to, where that is worked out once.
    pair: Option<Pair>,
    /// None since a task took them: the call was not over at once.
    v: Option<Box<VCounts>>,
}

impl Last {
    /// Remembers a checked call that is over.
    pub(super) fn keep(&mut self, core: &Core, call: Call, v: Box<VCounts>, way: Way) {
        if !may_be_kept(core, call.dtype, &v.send_counts) {
            return v.recycle();
        }
        let pair = Pair::of(core, &call, &v, way);
        match &mut self.0 {
            Some(made) => {
                (made.call, made.way, made.pair) = (call, way, pair);
                if let Some(old) = made.v.replace(v) {
                    old.recycle();
                }
            }
            None => self.0 = Some(Box::new(Made { call, way, pair, v: Some(v) })),
        }
    }

    /// Takes the last call out if it had this type and these lists.
    fn take(&mut self, dtype: DataType, lists: &VLists<'_>) -> Option<Box<Made>> {
        let made = self.0.as_ref()?;
        let same = |v: &VCounts| made.pair.as_ref().map_or_else(|| v.is(lists), |pair| pair.is(lists));
        let serves = made.call.dtype == dtype && made.v.as_deref().is_some_and(same);
        if serves { self.0.take() } else { None }
    }
}

/// Whether a call may be kept: ranks have cores, and so little is sent that it goes beside the line, but for a few bytes, wherever
/// it lies. Longer calls of mapped memory are not over at once, and need not look for one made before.
#[inline]
pub(crate) fn may_be_kept(core: &Core, dtype: DataType, send_counts: &[usize]) -> bool {
    // Numbers that are no memory's may wrap: they are only another way to say no, or to look in vain.
    let all = send_counts.iter().fold(0, |all: usize, count| all.wrapping_add(*count));
    all.wrapping_mul(dtype.size()) <= SMALL_BYTES && !core.crowded
}

/// Carries out, or begins, an AlltoAllv as the last one was; `false` when that differed, or it cannot be begun now. [`may_be_kept`]
/// holds, and neither buffer is null.
pub(crate) fn run(
    core: &Arc<Core>,
    dtype: DataType,
    lists: &VLists<'_>,
    buffers: (*const u8, *mut u8),
    stream: &Stream,
) -> bool {
    if device::is_capturing(stream) || core.config.launch_order {
        return false;
    }
    let Some(idle) = stream.try_idle() else { return false };
    let Some(mut engine) = core.engine.try_lock() else { return false };
    let Some(mut made) = engine.known_v.take(dtype, lists) else { return false };
    let turn = core.issue_at_once(Lane::Collectives);
    let Some((turn, v)) = turn.and_then(|turn| made.v.take().map(|v| (turn, v))) else {
        engine.known_v.0 = Some(made);
        return false;
    };
    let signature = made.call.signature;
    (made.call.send, made.call.recv) = buffers;
    let (mut seq, mut published) = (0, false);
    let start = made.way.start(core, &mut engine, &made.call, &v);
    let run = || match &made.pair {
        Some(pair) => pair.advance(core, &mut engine, &mut made.call, (&v, made.way), &mut seq, &mut published),
        None => advance_v(core, &mut engine, &mut made.call, (&v, start), &mut seq, &mut published, true),
    };
    // Told apart where it lies: to move it, it would be read in other pieces than it was written in, which waits for the stores.
    match caught(run) {
        Ok(Ok(None)) => {
            core.pass_turn(Lane::Collectives, turn);
            made.v = Some(v);
            made.call.signature = signature;
            engine.known_v.0 = Some(made);
        }
        Ok(Ok(Some(pause))) => {
            let call = made.call.clone();
            engine.known_v.0 = Some(made);
            leave_v((core, None), Free { idle, engine, turn }, (call, v, start), (seq, published), pause);
        }
        Ok(Err(error)) | Err(error) => fail_v(core, Free { idle, engine, turn }, made.call.clone(), seq, error),
    }
    true
}
