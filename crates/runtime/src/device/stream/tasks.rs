//! The tasks that a stream runs. Of those at the end that touch the same buffers in the same way one is asked for all: where
//! many calls of a loop are under way, each further one would otherwise ask every one of them.

use std::collections::VecDeque;
use std::ops::{Deref, IndexMut};

use super::Task;

/// What a task says of the memory that it touches and of the calls that it lets begin behind it, see [`Task::likeness`].
#[derive(Clone, Copy, Debug, Eq)]
pub(crate) struct Likeness(pub [usize; 6]);

impl PartialEq for Likeness {
    /// Word by word, as for [`Shape`](crate::request::Shape).
    #[inline]
    fn eq(&self, other: &Likeness) -> bool {
        self.0.iter().zip(other.0).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
    }
}

/// In the order in which they were begun.
#[derive(Default)]
pub(super) struct Tasks {
    all: VecDeque<Box<dyn Task>>,
    /// That of the last task, if it has one and was not changed since.
    likeness: Option<Likeness>,
    /// How many of the last tasks have it.
    alike: usize,
}

impl Deref for Tasks {
    type Target = VecDeque<Box<dyn Task>>;
    fn deref(&self) -> &Self::Target {
        &self.all
    }
}

impl Tasks {
    #[inline]
    pub(super) fn push_back(&mut self, task: Box<dyn Task>) {
        match task.likeness() {
            // Nothing is written then: it was made word by word, and a copy of more at once would wait for those.
            like if like.is_some() && like == self.likeness => self.alike += 1,
            like => (self.alike, self.likeness) = (usize::from(like.is_some()), like),
        }
        self.all.push_back(task);
    }

    #[inline]
    pub(super) fn remove(&mut self, index: usize) -> Option<Box<dyn Task>> {
        if index + self.alike >= self.all.len() && index < self.all.len() {
            self.alike -= usize::from(self.alike > 0);
        }
        if self.alike == 0 {
            self.likeness = None;
        }
        self.all.remove(index)
    }

    pub(super) fn pop_front(&mut self) -> Option<Box<dyn Task>> {
        self.remove(0)
    }

    /// Puts `task` in the place of one.
    pub(super) fn replace(&mut self, index: usize, task: Box<dyn Task>) {
        (self.likeness, self.alike) = (None, 0);
        self.all[index] = task;
    }

    /// To be stepped.
    #[inline]
    pub(super) fn at(&mut self, index: usize) -> &mut dyn Task {
        &mut **self.all.index_mut(index)
    }

    #[inline]
    pub(super) fn back_mut(&mut self) -> Option<&mut Box<dyn Task>> {
        self.all.back_mut()
    }

    /// All, but of those alike at the end one only.
    #[inline]
    pub(super) fn unlike(&self) -> impl Iterator<Item = &dyn Task> {
        let count = (self.all.len() + 1).saturating_sub(self.alike.max(1));
        self.all.iter().take(count).map(|task| &**task)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Step;

    struct Named(usize, Option<usize>);

    impl Task for Named {
        fn step(&mut self) -> Step {
            Step::Blocked
        }
        fn likeness(&self) -> Option<Likeness> {
            self.1.map(|n| Likeness([n; 6]))
        }
        fn written(&self) -> usize {
            self.0
        }
    }

    fn of(likenesses: &[Option<usize>]) -> Tasks {
        let mut tasks = Tasks::default();
        likenesses.iter().enumerate().for_each(|(n, like)| tasks.push_back(Box::new(Named(n, *like))));
        tasks
    }

    fn asked(tasks: &Tasks) -> Vec<usize> {
        tasks.unlike().map(|t| t.written()).collect()
    }

    #[test]
    fn of_those_alike_at_the_end_one_is_asked() {
        assert_eq!(asked(&of(&[])), []);
        assert_eq!(asked(&of(&[None, None])), [0, 1]);
        assert_eq!(asked(&of(&[Some(1), Some(1), Some(1)])), [0]);
        assert_eq!(asked(&of(&[Some(1), Some(1), Some(2), Some(2)])), [0, 1, 2]);
        assert_eq!(asked(&of(&[Some(1), Some(1), None])), [0, 1, 2]);
        assert_eq!(asked(&of(&[Some(1), None, Some(1), Some(1)])), [0, 1, 2]);
    }

    #[test]
    fn what_is_taken_out_is_no_longer_counted() {
        let mut tasks = of(&[Some(2), Some(1), Some(1)]);
        tasks.remove(2);
        assert_eq!(asked(&tasks), [0, 1]);
        tasks.remove(1);
        assert_eq!(asked(&tasks), [0]);
        // Alike again, but nobody knows: what was last is gone.
        tasks.push_back(Box::new(Named(3, Some(2))));
        assert_eq!(asked(&tasks), [0, 3]);
        let mut tasks = of(&[Some(2), Some(1), Some(1)]);
        tasks.pop_front();
        assert_eq!(asked(&tasks), [1]);
        tasks.pop_front();
        tasks.pop_front();
        assert!(tasks.pop_front().is_none() && asked(&tasks).is_empty());
        tasks.push_back(Box::new(Named(4, Some(1))));
        assert_eq!(asked(&tasks), [4]);
    }

    #[test]
    fn what_stands_for_another_is_asked() {
        let mut tasks = of(&[Some(1), Some(1), Some(1)]);
        tasks.replace(1, Box::new(Named(9, None)));
        assert_eq!(asked(&tasks), [0, 9, 2]);
    }
}
