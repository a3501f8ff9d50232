//! The calls of a communicator that were made last, by their shape. Programs make calls of many: each tensor has a length of its own.

use crate::request::Shape;

/// Calls of one shape may lie in so many places, which follow one another; calls of others may, too.
const WAYS: usize = 4;
/// How many places there are.
pub(super) const PLACES: usize = 256;
const _: () = assert!(PLACES.is_power_of_two() && PLACES <= 1 << u8::BITS && PLACES.is_multiple_of(WAYS));

/// What is kept of a call.
pub(super) trait Shaped {
    /// `None`: it is no call that is looked for.
    fn shape(&self) -> Option<&Shape>;
}

/// Boxes, since what is kept is taken out while the call is made.
pub(super) struct ByShape<T> {
    places: [Option<Box<T>>; PLACES],
    /// Which of the ways was given up last.
    turn: usize,
}

impl<T> Default for ByShape<T> {
    fn default() -> ByShape<T> {
        ByShape { places: [const { None }; PLACES], turn: 0 }
    }
}

impl<T: Shaped> ByShape<T> {
    /// The first place for calls of `shape`.
    #[inline]
    fn first(shape: &Shape) -> usize {
        shape.mix() as usize % (PLACES / WAYS) * WAYS
    }

    /// Where the last call of `shape` is, if there is one.
    #[inline]
    pub(super) fn find(&self, shape: &Shape) -> Option<u8> {
        let first = Self::first(shape);
        let is = |kept: &T| kept.shape() == Some(shape);
        (first..first + WAYS).find(|place| self.places[*place].as_deref().is_some_and(is)).map(|place| place as u8)
    }

    /// Where the next call of `shape` goes: where the last one is, or nothing, or else each of the ways in turn.
    pub(super) fn place_for(&mut self, shape: &Shape) -> u8 {
        let first = Self::first(shape);
        let free = || (first..first + WAYS).find(|place| self.places[*place].is_none()).map(|place| place as u8);
        self.find(shape).or_else(free).unwrap_or_else(|| {
            self.turn = (self.turn + 1) % WAYS;
            (first + self.turn) as u8
        })
    }

    #[inline]
    pub(super) fn get(&self, place: u8) -> Option<&T> {
        self.places[usize::from(place)].as_deref()
    }

    #[inline]
    pub(super) fn take(&mut self, place: u8) -> Option<Box<T>> {
        self.places[usize::from(place)].take()
    }

    #[inline]
    pub(super) fn put(&mut self, place: u8, kept: Box<T>) {
        self.places[usize::from(place)] = Some(kept);
    }

    /// All that is kept.
    pub(super) fn all(&mut self) -> impl Iterator<Item = &mut T> {
        self.places.iter_mut().flatten().map(|kept| &mut **kept)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use oxccl_types::Collective;

    use super::*;

    struct Kept(Shape, usize);

    impl Shaped for Kept {
        fn shape(&self) -> Option<&Shape> {
            Some(&self.0)
        }
    }

    fn shape(count: usize) -> Shape {
        Shape::new(Collective::AllReduce, 7, 0, 0, count)
    }

    fn keep(calls: &mut ByShape<Kept>, count: usize, value: usize) -> u8 {
        let place = calls.place_for(&shape(count));
        calls.put(place, Box::new(Kept(shape(count), value)));
        place
    }

    fn value(calls: &ByShape<Kept>, count: usize) -> Option<usize> {
        calls.find(&shape(count)).and_then(|place| calls.get(place)).map(|kept| kept.1)
    }

    #[test]
    fn the_last_call_of_each_shape_is_found() {
        let mut calls = ByShape::default();
        assert_eq!(value(&calls, 1), None);
        for (n, count) in (64..96).enumerate() {
            keep(&mut calls, count, n);
            assert_eq!(value(&calls, count), Some(n));
        }
        // Few of those have gone, if any: no place is everybody's.
        let kept = |calls: &ByShape<Kept>| (64..96).filter(|count| value(calls, *count).is_some()).count();
        assert!(kept(&calls) >= 28, "{} of 32", kept(&calls));
        let (place, before) = (calls.find(&shape(95)), calls.all().count());
        assert_eq!(Some(keep(&mut calls, 95, 1000)), place);
        assert_eq!((value(&calls, 95), calls.all().count()), (Some(1000), before), "it is there once");
    }

    /// However many there are: what is found is what was asked for, and what was kept last is there.
    #[test]
    fn more_shapes_than_places_take_each_others() {
        let mut calls = ByShape::default();
        for count in 1..4 * PLACES {
            keep(&mut calls, count, count);
            assert_eq!(value(&calls, count), Some(count));
        }
        let found: Vec<usize> = (1..4 * PLACES).filter(|count| value(&calls, *count).is_some()).collect();
        assert!(found.len() > PLACES / 2 && found.len() <= PLACES, "{}", found.len());
        assert!(found.iter().all(|count| value(&calls, *count) == Some(*count)));
        assert_eq!(calls.all().count(), found.len());
    }

    #[test]
    fn what_was_taken_out_leaves_its_place() {
        let mut calls = ByShape::default();
        let place = keep(&mut calls, 5, 1);
        assert!(calls.take(place).is_some() && calls.take(place).is_none() && value(&calls, 5).is_none());
        assert_eq!(keep(&mut calls, 5, 2), place);
    }
}
