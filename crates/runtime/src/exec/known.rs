//! The small calls that a communicator made last, by their shape: the next one of a shape is carried out as the last was,
//! without being checked, translated and planned again.
//!
//! Only calls that the eager protocol serves are kept, and of these only what does not depend on the buffers.

use super::call::Call;
use super::direct::Words;
use super::eager::Form;
use crate::communicator::core::Core;
use crate::communicator::hub::Slots;
use crate::request::Shape;

/// Places of calls with a shape; each shape has one, which another may take.
pub(super) const SHAPES: usize = 16;

/// A call as it was made last.
pub(super) struct Made {
    /// None of a call that is not made again.
    shape: Option<Shape>,
    /// Where calls of the shape are kept.
    place: usize,
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
    fn new(core: &Core, shape: Option<Shape>, call: Call) -> Made {
        let (sends, receives) = call.needs(core.rank as u32);
        let form = Form::new(core, &call);
        Made {
            shape,
            place: place_of(shape.as_ref()),
            signature: call.signature,
            form,
            lent: None,
            call,
            sends,
            receives,
        }
    }

    /// See [`Form::trails`].
    #[inline]
    pub fn trails(&self) -> Option<u64> {
        self.form.trails(self.lent.is_some())
    }

    #[inline]
    fn serves(&self, shape: &Shape, send: *const u8, recv: *const u8) -> bool {
        let missing = self.sends && send.is_null() || self.receives && recv.is_null();
        self.shape.as_ref() == Some(shape) && !missing
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

#[inline]
fn place_of(shape: Option<&Shape>) -> usize {
    shape.map_or(SHAPES, |shape| shape.mix() as usize % SHAPES)
}

/// The calls of one communicator.
#[derive(Default)]
pub(super) struct Known {
    // Boxes, since a call is taken out while it is carried out. One more place is for calls without a shape.
    places: [Option<Box<Made>>; SHAPES + 1],
    /// How many bytes of each slot of this rank are in memory.
    populated: [usize; Slots::ALL.len()],
}

impl Known {
    /// Takes the last call of `shape` out and gives it these buffers. `None` when there is none, or a buffer is missing.
    #[inline]
    pub(super) fn take(&mut self, shape: &Shape, send: *const u8, recv: *mut u8) -> Option<Box<Made>> {
        let place = &mut self.places[place_of(Some(shape))];
        if !place.as_ref()?.serves(shape, send, recv.cast_const()) {
            return None;
        }
        let mut made = place.take()?;
        (made.call.send, made.call.recv, made.call.signature, made.lent) = (send, recv, made.signature, None);
        Some(made)
    }

    /// Whether there is a last call of `shape`.
    pub(super) fn knows(&self, shape: &Shape) -> bool {
        self.places[place_of(Some(shape))].as_ref().is_some_and(|made| made.shape.as_ref() == Some(shape))
    }

    /// An eager `call`, checked, to be kept for the next of its `shape`; in the box of the one that had its place.
    pub(super) fn make(&mut self, core: &Core, shape: Option<Shape>, call: Call) -> Box<Made> {
        let made = Made::new(core, shape, call);
        if let Some(slots) = made.form.slots() {
            self.populate(core, slots, made.form.gives());
        }
        renewed(self.places[made.place].take(), made)
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
        let place = made.place;
        self.places[place] = Some(made);
    }
}
