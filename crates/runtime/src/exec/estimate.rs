//! What a call would take: the cost model's time for the plan that would serve it here.
//!
//! It looks and changes nothing: no sequence number, no turn, no cached plan. What peers would say when they meet is
//! not known before: their buffers are taken to lie in the kind of memory that this rank's lie in.

use oxccl_schedule::cost::{CostModel, Link, predict, predict_far, predict_sent};
use oxccl_schedule::exchange::{Traffic, predict_exchange};
use oxccl_schedule::ir::{Needs, Shape};
use oxccl_schedule::select::{Protocol, Query, Reach, candidates};
use oxccl_types::{Error, Result};

use super::call::Call;
use super::scratch::Scratch;
use super::{limits, links, plan, votes};
use crate::communicator::core::Core;
use crate::device;
use crate::request::{Request, VCounts};

fn model(core: &Core) -> CostModel {
    let cores = core.config.constants.cores_told.unwrap_or_else(oxccl_sys::affinity::available_cores);
    CostModel { cores: cores as f64, ..core.config.constants.model }
}

/// The way to `rank`.
fn link(core: &Core, rank: usize) -> Link {
    if core.member_of[rank] == usize::MAX { Link::Tcp } else { Link::Shm }
}

/// Microseconds of a collective.
pub(crate) fn collective(core: &Core, request: &Request) -> Result<f64> {
    let call = Call::new(request, core.ranks);
    if let Some(v) = &request.v {
        return Ok(all_to_all_v(core, &call, v));
    }
    let model = model(core);
    let shape = |channels| Shape {
        collective: call.collective,
        ranks: core.ranks as u32,
        root: call.root,
        channels,
        in_place: call.is_in_place(core.rank as u32, call.send),
        local: core.local,
    };
    let bytes = call.total_bytes(core.ranks);
    // What votes would say if all ranks had such memory.
    let direct = || votes::decide(core, &call) && is_mapped(core, &call);
    if core.ranks > 1 && limits::is_eager(core, &call) && !direct() {
        // Long payloads go by slots, which are memory like the scratch.
        let slots = if votes::decide(core, &call) { model.shm.copy_us_per_kib } else { f64::INFINITY };
        let query = Query {
            root: call.root,
            eager_limit: u64::MAX,
            model: CostModel { eager_us_per_kib: model.eager_us_per_kib.min(slots), ..model },
            ..Query::new(call.collective, bytes, core.ranks as u32, Reach::MappedScratch)
        };
        if let Some(found) = candidates(&query).into_iter().find(|c| c.protocol == Protocol::Eager) {
            return Ok(found.predicted_us);
        }
    }
    let choice = plan::choose(core, &call)?;
    let way = if core.whole { Link::Shm } else { Link::Tcp };
    let private = choice.algorithm.needs == Needs::MappedUser && !is_mapped(core, &call);
    let far = choice.far.filter(|_| private && core.reaches);
    let staged = choice.staged.filter(|_| private);
    let algorithm = far.or(staged).unwrap_or(choice.algorithm);
    let piece = match algorithm.needs {
        Needs::Messages => links::piece_bytes(core, call.collective, algorithm.min_slots),
        _ => Scratch::of(core).before() / core.ranks.max(1),
    };
    let shape = shape(choice.channels);
    if !algorithm.supports(&shape) {
        return Err(Error::internal(format!("{} was chosen for {} and cannot do it", algorithm.name, call.collective)));
    }
    let sent = choice.sent.filter(|(_, usual, in_place)| if shape.in_place { *in_place } else { *usual });
    if let (Some(_), Some((flat, ..))) = (far, sent)
        && let Some(us) = predict_sent(&model, flat, &shape, bytes)
    {
        return Ok(us);
    }
    Ok(match far {
        Some(far) => predict_far(&model, far, &shape, bytes),
        None => predict(&model, algorithm, &shape, bytes, way, piece as u64),
    })
}

/// Whether peers can reach the buffers of this rank.
fn is_mapped(core: &Core, call: &Call) -> bool {
    let rank = core.rank as u32;
    let lies = |at: *const u8, bytes: u64| bytes == 0 || device::allocation(at as usize).is_some();
    core.one_process
        || (lies(call.send, call.input_bytes(rank, core.ranks)) && lies(call.recv, call.output_bytes(rank, core.ranks)))
}

fn all_to_all_v(core: &Core, call: &Call, v: &VCounts) -> f64 {
    let element = call.dtype.size() as u64;
    let moves = (0..core.ranks).flat_map(|r| [(r, v.send_counts[r]), (r, v.recv_counts[r])]);
    of_moves(core, moves.map(|(rank, count)| (rank, count as u64 * element)))
}

/// Microseconds of the sends and receives of one communicator in a group.
pub(crate) fn exchange(core: &Core, requests: &[Request]) -> f64 {
    of_moves(core, requests.iter().map(|r| (r.root, (r.count * r.dtype.size()) as u64)))
}

fn of_moves(core: &Core, moves: impl Iterator<Item = (usize, u64)>) -> f64 {
    let mut traffic = [Link::Shm, Link::Tcp].map(|link| Traffic { link, messages: 0, bytes: 0 });
    let mut own = 0;
    for (rank, bytes) in moves {
        if rank == core.rank {
            // Told by the send and by the receive.
            own += bytes;
            continue;
        }
        let t = &mut traffic[usize::from(link(core, rank) == Link::Tcp)];
        t.messages += 1;
        t.bytes += bytes;
    }
    predict_exchange(&model(core), core.members.len() as u32, &traffic, own / 2)
}
