//! The small calls that a communicator made last, by their shape: the next one of a shape is carried out as the last was,
//! without being checked, translated and planned again.
//!
//! Only calls that the eager protocol serves are kept, and of these only what does not depend on the buffers.

use super::by_shape::{ByShape, Shaped};
use super::call::Call;
use super::direct::Words;
use super::eager::Form;
use crate::communicator::core::Core;
use crate::communicator::hub::Slots;
use crate::request::Shape;

/// A call as it was made last.
pub(super) struct Made {
    /// None of a call that is not made again.
    shape: Option<Shape>,
    /// Where it is kept; `None` of one without a shape.
    place: Option<u8>,
    /// Its signature, without the history of the communicator.
    pub signature: [u64; 2],
    pub call: Call,
    pub form: Form,
    /// What its line says if its input is lent, see `eager_lent`.
    pub lent: Option<Words>,
    /// Whether there must be a buffer to read and one to write.
    sends: bool,
    receives: bool,
}

impl Made {
    fn new(core: &Core, shape: Option<Shape>, place: Option<u8>, call: Call) -> Made {
        let (sends, receives) = call.needs(core.rank as u32);
        let form = Form::new(core, &call);
        Made { shape, place, signature: call.signature, form, lent: None, call, sends, receives }
    }

    /// See [`Form::trails`].
    #[inline]
    pub fn trails(&self, behind: bool) -> Option<u64> {
        self.form.trails(self.lent.is_some(), behind)
    }

    #[inline]
    fn serves(&self, send: *const u8, recv: *const u8) -> bool {
        !(self.sends && send.is_null() || self.receives && recv.is_null())
    }
}

impl Shaped for Made {
    #[inline]
    fn shape(&self) -> Option<&Shape> {
        self.shape.as_ref()
    }
}

/// `made` in the box of the one that had its place.
pub(super) fn renewed<T>(old: Option<Box<T>>, made: T) -> Box<T> {
    match old {
        Some(mut place) => {
            *place = made;
            place
        }
        None => Box::new(made),
    }
}

/// The calls of one communicator.
#[derive(Default)]
pub(super) struct Known {
    shaped: ByShape<Made>,
    /// The last one without a shape.
    other: Option<Box<Made>>,
    /// How many bytes of each slot of this rank are in memory.
    populated: [usize; Slots::ALL.len()],
}

impl Known {
    /// Takes the last call of `shape` out and gives it these buffers. `None` when there is none, or a buffer is missing.
    #[inline]
    pub(super) fn take(&mut self, shape: &Shape, send: *const u8, recv: *mut u8) -> Option<Box<Made>> {
        let place = self.shaped.find(shape)?;
        if !self.shaped.get(place)?.serves(send, recv.cast_const()) {
            return None;
        }
        let mut made = self.shaped.take(place)?;
        (made.call.send, made.call.recv, made.call.signature, made.lent) = (send, recv, made.signature, None);
        Some(made)
    }

    /// Whether there is a last call of `shape`.
    pub(super) fn knows(&self, shape: &Shape) -> bool {
        self.shaped.find(shape).is_some()
    }

    /// An eager `call`, checked, to be kept for the next of its `shape`; in the box of the one that had its place.
    pub(super) fn make(&mut self, core: &Core, shape: Option<Shape>, call: Call) -> Box<Made> {
        let place = shape.as_ref().map(|shape| self.shaped.place_for(shape));
        let made = Made::new(core, shape, place, call);
        if let Some(slots) = made.form.slots() {
            self.populate(core, slots, made.form.gives());
        }
        let old = match place {
            Some(place) => self.shaped.take(place),
            None => self.other.take(),
        };
        renewed(old, made)
    }

    /// This rank will write `bytes` bytes to each of its `slots`: has all of them in memory, since each of the first calls that found its own
    /// missing would take 1 to 2 us longer. Peers then find many of them with one fault.
    #[inline]
    pub(super) fn populate(&mut self, core: &Core, slots: Slots, bytes: usize) {
        let populated = &mut self.populated[slots as usize];
        if bytes > *populated {
            *populated = core.hub.populate(core.me, slots, bytes);
        }
    }

    /// Puts it to its place.
    #[inline]
    pub(super) fn keep(&mut self, made: Box<Made>) {
        match made.place {
            Some(place) => self.shaped.put(place, made),
            None => self.other = Some(made),
        }
    }
}
