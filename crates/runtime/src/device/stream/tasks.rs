//! The tasks that a stream runs. Of those that touch the same buffers in the same way one is asked for all: where many calls of a
//! loop are under way, each further one would otherwise ask every one of them. Of those that have buffers of their own only those are
//! asked that touch what is asked about.

use std::collections::VecDeque;
use std::ops::{Deref, IndexMut, Range};

use super::Task;

/// What a task says of the memory that it touches and of the calls that it lets begin behind it, see [`Task::likeness`].
#[derive(Clone, Copy, Debug, Default, Eq)]
pub(crate) struct Likeness(pub [usize; 6]);

impl PartialEq for Likeness {
    /// Word by word, as for [`Shape`](crate::request::Shape).
    #[inline]
    fn eq(&self, other: &Likeness) -> bool {
        self.0.iter().zip(other.0).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
    }
}

/// Within what a task reads and writes for as long as it runs, and how many may be under way of which it is one, see
/// [`Task::touches`].
#[derive(Clone, Debug)]
pub(crate) struct Touches {
    pub reads: Range<usize>,
    pub writes: Range<usize>,
    pub window: u64,
}

impl Touches {
    /// Of a task of which nothing is known: it is always asked.
    const UNKNOWN: Touches = Touches { reads: 0..usize::MAX, writes: 0..usize::MAX, window: 0 };

    #[inline]
    pub(super) fn may_write(&self, bytes: &Range<usize>) -> bool {
        may_meet(&self.writes, bytes)
    }

    #[inline]
    pub(super) fn may_touch(&self, bytes: &Range<usize>) -> bool {
        may_meet(&self.reads, bytes) | may_meet(&self.writes, bytes)
    }
}

/// Whether two ranges may have bytes in common; without a jump, since many are looked at of which few do.
#[inline]
fn may_meet(a: &Range<usize>, b: &Range<usize>) -> bool {
    (a.start < b.end) & (b.start < a.end)
}

/// Kinds of alike tasks that are told apart: loops make few different calls, or calls of few communicators in turn.
const KINDS: usize = 8;

/// So many tasks are asked without a look at what they touch.
const FEW: usize = 4;

/// In the order in which they were begun.
#[derive(Default)]
pub(crate) struct Tasks {
    all: VecDeque<Box<dyn Task>>,
    /// The number of the first of them: how many were in front of them.
    first: u64,
    /// From the task with this number on, each is of one of the kinds.
    since: u64,
    /// What the first tasks touch: those before that, or more of them, or fewer where [`FEW`] are before it.
    touches: VecDeque<Touches>,
    /// At most the least window of those.
    window: u64,
    /// Kinds of tasks, each with the number of the last one of it. That may be over.
    kinds: [(Likeness, u64); KINDS],
    known: usize,
    /// Where the kind of the last task is.
    latest: usize,
    /// Past the number of the last one that [may lend](Task::may_lend), or of one more.
    lenders: u64,
    /// How many there are of each [lane](Task::lane).
    lanes: Vec<(usize, u64)>,
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
        let number = self.first + self.all.len() as u64;
        let (like, lane) = (task.likeness(), task.lane());
        if task.may_lend() {
            self.lenders = number + 1;
        }
        match self.lanes.iter_mut().find(|(of, _)| *of == lane) {
            Some((_, count)) => *count += 1,
            None if lane != 0 => self.lanes.push((lane, 1)),
            None => {}
        }
        self.all.push_back(task);
        match like {
            Some(like) => self.is_like(like, number),
            None => self.forget(number + 1),
        }
    }

    /// The task `number`, which is new, says this of itself.
    #[inline]
    fn is_like(&mut self, like: Likeness, number: u64) {
        // Most follow one of their kind, or come in the same order again.
        let next = if self.latest + 1 < self.known { self.latest + 1 } else { 0 };
        let is = |at: usize| at < self.known && self.kinds[at].0 == like;
        let found = match (is(self.latest), is(next)) {
            (true, _) => Some(self.latest),
            (_, true) => Some(next),
            _ => (0..self.known).find(|at| is(*at)),
        };
        self.latest = found.unwrap_or_else(|| self.add(like, number));
        self.kinds[self.latest].1 = number;
    }

    /// A place for a new kind.
    fn add(&mut self, like: Likeness, number: u64) -> usize {
        if self.known < KINDS {
            self.known += 1;
        } else if let Some(over) = self.kinds.iter().position(|(_, last)| *last < self.first) {
            self.kinds[over].0 = like;
            return over;
        } else {
            self.forget(number);
            self.known = 1;
        }
        self.kinds[self.known - 1].0 = like;
        self.known - 1
    }

    /// Tasks before `number` are told by what they touch, or are asked where they are few.
    fn forget(&mut self, number: u64) {
        (self.since, self.known, self.latest) = (number, 0, 0);
        let told = (number - self.first) as usize;
        if told > FEW {
            let all = self.all.range(self.touches.len()..told);
            self.touches.extend(all.map(|task| task.touches().unwrap_or(Touches::UNKNOWN)));
            self.window = self.least_window();
        }
    }

    fn least_window(&self) -> u64 {
        self.touches.iter().map(|touches| touches.window).min().unwrap_or(u64::MAX)
    }

    #[inline]
    pub(super) fn remove(&mut self, index: usize) -> Option<Box<dyn Task>> {
        let task = self.all.remove(index)?;
        self.touches.remove(index);
        self.leaves(task.lane());
        match index {
            0 => self.first += 1,
            // Those behind it have other numbers now.
            _ => self.forget(self.first + self.all.len() as u64),
        }
        Some(task)
    }

    /// A task of that lane is no longer here.
    #[inline]
    fn leaves(&mut self, lane: usize) {
        if let Some(at) = self.lanes.iter().position(|(of, _)| *of == lane) {
            self.lanes[at].1 -= 1;
            if self.lanes[at].1 == 0 {
                self.lanes.swap_remove(at);
            }
        }
    }

    pub(super) fn pop_front(&mut self) -> Option<Box<dyn Task>> {
        self.remove(0)
    }

    /// Puts `task` in the place of one.
    pub(super) fn replace(&mut self, index: usize, task: Box<dyn Task>) {
        debug_assert_eq!(task.lane(), 0, "what stands for a task is no operation");
        self.leaves(self.all[index].lane());
        if task.may_lend() {
            self.lenders = self.first + self.all.len() as u64;
        }
        self.all[index] = task;
        if let Some(touches) = self.touches.get_mut(index) {
            (*touches, self.window) = (Touches::UNKNOWN, 0);
        }
        self.forget(self.first + self.all.len() as u64);
    }

    /// To be stepped.
    #[inline]
    pub(super) fn at(&mut self, index: usize) -> &mut dyn Task {
        &mut **self.all.index_mut(index)
    }

    #[inline]
    pub(super) fn front_mut(&mut self) -> Option<&mut Box<dyn Task>> {
        self.all.front_mut()
    }

    #[inline]
    pub(super) fn back_mut(&mut self) -> Option<&mut Box<dyn Task>> {
        self.all.back_mut()
    }

    /// How many there are of `lane`.
    #[inline]
    pub(crate) fn of(&self, lane: usize) -> u64 {
        self.lanes.iter().find(|(of, _)| *of == lane).map_or(0, |(_, count)| *count)
    }

    /// The last one of `lane`.
    #[inline]
    pub(crate) fn last_of(&self, lane: usize) -> Option<&dyn Task> {
        self.all.iter().rev().find(|task| task.lane() == lane).map(|task| &**task)
    }

    /// Does something with the last one of each lane.
    pub(super) fn each_last(&mut self, mut with: impl FnMut(&mut dyn Task)) {
        for (lane, _) in &self.lanes {
            if let Some(last) = self.all.iter_mut().rev().find(|task| task.lane() == *lane) {
                with(&mut **last);
            }
        }
    }

    /// Whether there are operations of more than one lane.
    #[inline]
    pub(super) fn is_mixed(&self) -> bool {
        self.lanes.len() > 1
    }

    /// The last of them, which is of no kind, touches more than it said, and `lends` perhaps some of it.
    #[inline]
    pub(super) fn last_grew(&mut self, lends: bool) {
        self.touches.truncate(self.all.len() - 1);
        if lends {
            self.lenders = self.first + self.all.len() as u64;
        }
    }

    /// Whether one of them may lend anything.
    #[inline]
    pub(super) fn any_lends(&self) -> bool {
        self.lenders > self.first
    }

    /// All, but of those that are known to be alike only the last.
    #[inline]
    pub(super) fn unlike(&self) -> impl Iterator<Item = &dyn Task> {
        self.concerned(|_| true)
    }

    /// The same, but those that are known to touch nothing that concerns who asks.
    #[inline]
    pub(super) fn concerned(&self, concerns: impl Fn(&Touches) -> bool) -> impl Iterator<Item = &dyn Task> {
        let told = self.told();
        let known = told.min(self.touches.len());
        let (front, back) = self.touches.as_slices();
        let front = &front[..known.min(front.len())];
        let touching = front.iter().chain(&back[..known - front.len()]).enumerate();
        let touching = touching.filter(move |(_, touches)| concerns(touches)).map(|(at, _)| &*self.all[at]);
        touching.chain(self.asked(known, told)).chain(self.alike())
    }

    /// How many are of no kind, the first ones.
    #[inline]
    fn told(&self) -> usize {
        self.since.saturating_sub(self.first).min(self.all.len() as u64) as usize
    }

    /// Those of no kind of which it is not known what they touch.
    #[inline]
    fn asked(&self, known: usize, told: usize) -> impl Iterator<Item = &dyn Task> {
        self.all.range(known..told).map(|task| &**task)
    }

    /// The last one of each kind.
    #[inline]
    fn alike(&self) -> impl Iterator<Item = &dyn Task> {
        let kinds = self.kinds[..self.known].iter().filter(|(_, last)| *last >= self.first);
        kinds.map(|(_, last)| &*self.all[(last - self.first) as usize])
    }

    /// Whether one more may be under way, as far as the [windows](Task::window) go of those that are.
    #[inline]
    pub(super) fn has_room(&mut self) -> bool {
        let (running, told) = (self.all.len() as u64, self.told());
        let known = told.min(self.touches.len());
        if known > 0 && running >= self.window {
            // Those that had the least may have gone.
            self.window = self.least_window();
            if running >= self.window {
                return self.concerned(|touches| touches.window <= running).all(|t| running < t.window());
            }
        }
        self.asked(known, told).chain(self.alike()).all(|t| running < t.window())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Step;

    struct Named(usize, Option<usize>, usize);

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
        fn lane(&self) -> usize {
            self.2
        }
    }

    #[test]
    fn the_last_of_each_lane_is_told() {
        let mut tasks = Tasks::default();
        [1, 2, 1, 0, 2, 0]
            .into_iter()
            .enumerate()
            .for_each(|(n, lane)| tasks.push_back(Box::new(Named(n, None, lane))));
        let told = |tasks: &mut Tasks| {
            let mut told = vec![];
            tasks.each_last(|task| told.push(task.written()));
            told.sort_unstable();
            told
        };
        assert_eq!(told(&mut tasks), [2, 4]);
        tasks.remove(4);
        assert_eq!(told(&mut tasks), [1, 2]);
        tasks.remove(1);
        assert_eq!(told(&mut tasks), [2]);
    }

    fn of(likenesses: &[Option<usize>]) -> Tasks {
        let mut tasks = Tasks::default();
        likenesses.iter().enumerate().for_each(|(n, like)| tasks.push_back(Box::new(Named(n, *like, 1))));
        tasks
    }

    fn asked(tasks: &Tasks) -> Vec<usize> {
        let mut asked: Vec<usize> = tasks.unlike().map(|t| t.written()).collect();
        asked.sort_unstable();
        asked
    }

    #[test]
    fn of_those_alike_one_is_asked() {
        assert_eq!(asked(&of(&[])), []);
        assert_eq!(asked(&of(&[None, None])), [0, 1]);
        assert_eq!(asked(&of(&[Some(1), Some(1), Some(1)])), [2]);
        assert_eq!(asked(&of(&[Some(1), Some(2), Some(1), Some(2), Some(1)])), [3, 4]);
        assert_eq!(asked(&of(&[Some(1), Some(1), None])), [0, 1, 2]);
        assert_eq!(asked(&of(&[Some(1), None, Some(1), Some(1)])), [0, 1, 3]);
        // As many kinds as are told apart, and one more.
        let turns = |kinds: usize| of(&(0..3 * kinds).map(|n| Some(n % kinds)).collect::<Vec<_>>());
        assert_eq!(asked(&turns(KINDS)), (2 * KINDS..3 * KINDS).collect::<Vec<_>>());
        assert!(asked(&turns(KINDS + 1)).len() > 2 * KINDS);
    }

    /// Whoever is not asked is like one who is.
    #[test]
    fn nobody_is_left_out() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut rng = fastrand::Rng::with_seed(seed);
        for kinds in [1, 2, KINDS, KINDS + 1, 3 * KINDS] {
            let (mut tasks, mut number) = (Tasks::default(), 0);
            for _ in 0..2000 {
                match rng.u32(..20) {
                    0 if !tasks.is_empty() => drop(tasks.remove(rng.usize(..tasks.len()))),
                    1 if !tasks.is_empty() => tasks.replace(rng.usize(..tasks.len()), Box::new(Named(number, None, 0))),
                    2..=9 => drop(tasks.pop_front()),
                    n => {
                        let like = Some(1 + rng.usize(..kinds)).filter(|_| n < 19);
                        tasks.push_back(Box::new(Named(number, like, rng.usize(..4))));
                    }
                }
                number += 1;
                let asked = asked(&tasks);
                assert!(asked.windows(2).all(|pair| pair[0] != pair[1]), "one is asked twice");
                for task in tasks.iter() {
                    let like = |n: &usize| tasks.iter().any(|t| t.written() == *n && t.likeness() == task.likeness());
                    assert!(asked.contains(&task.written()) || task.likeness().is_some() && asked.iter().any(like));
                }
                for lane in 1..4 {
                    assert_eq!(tasks.of(lane), tasks.iter().filter(|t| t.lane() == lane).count() as u64);
                }
            }
        }
    }

    /// A task that writes some bytes, lends others, and says so or not.
    struct Uses {
        reads: Range<usize>,
        writes: Range<usize>,
        window: u64,
        like: Option<usize>,
        says: bool,
        lends: bool,
    }

    impl Task for Uses {
        fn step(&mut self) -> Step {
            Step::Blocked
        }
        fn likeness(&self) -> Option<Likeness> {
            self.like.map(|n| Likeness([n; 6]))
        }
        fn touches(&self) -> Option<Touches> {
            let (reads, writes, window) = (self.reads.clone(), self.writes.clone(), self.window);
            self.says.then_some(Touches { reads, writes, window })
        }
        fn writes(&self, bytes: &Range<usize>) -> bool {
            may_meet(&self.writes, bytes)
        }
        fn lent(&self, bytes: &Range<usize>) -> bool {
            self.lends && may_meet(&self.reads, bytes)
        }
        fn may_lend(&self) -> bool {
            self.lends
        }
        fn window(&self) -> u64 {
            self.window
        }
    }

    /// What is asked of those that are concerned is what all would say.
    #[test]
    fn whoever_is_concerned_is_asked() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut rng = fastrand::Rng::with_seed(seed);
        let (mut met, mut lends) = ([[0; 2]; 3], [0; 2]);
        for kinds in [1, KINDS, 3 * KINDS] {
            let mut tasks = Tasks::default();
            let range = |at: usize| 100 * at..100 * at + 90;
            let mut windows = [5, 20, 40][rng.usize(..3)];
            for _ in 0..4000 {
                match rng.u32(..24) {
                    0 if !tasks.is_empty() => drop(tasks.remove(rng.usize(..tasks.len()))),
                    1 if !tasks.is_empty() => {
                        tasks.replace(rng.usize(..tasks.len()), Box::new(Named(0, None, 0)));
                    }
                    2 => windows = [5, 20, 40][rng.usize(..3)],
                    3..=12 => drop(tasks.pop_front()),
                    n => {
                        let kind = rng.usize(..kinds);
                        let (reads, writes) = (range(2 * kind), range(2 * kind + 1));
                        let (like, says) = ((n < 22).then_some(kind), rng.u8(..8) > 0);
                        let window = if like.is_some() { 5 + kind as u64 } else { windows };
                        // Those alike say the same.
                        let lends = if like.is_some() { kind % 2 == 1 } else { rng.bool() };
                        tasks.push_back(Box::new(Uses { reads, writes, window, like, says, lends }));
                    }
                }
                let bytes = range(rng.usize(..2 * kinds + 1));
                let (running, all) = (tasks.len() as u64, &tasks.all);
                let expected = [
                    all.iter().any(|t| t.writes(&bytes)),
                    all.iter().any(|t| t.lent(&bytes)),
                    all.iter().all(|t| running < t.window()),
                ];
                let room = tasks.has_room();
                lends[usize::from(tasks.any_lends())] += 1;
                assert!(tasks.any_lends() || !tasks.iter().any(|t| t.may_lend()));
                let told = [
                    tasks.concerned(|touches| touches.may_write(&bytes)).any(|t| t.writes(&bytes)),
                    tasks.concerned(|touches| touches.may_touch(&bytes)).any(|t| t.lent(&bytes)),
                    room,
                ];
                assert_eq!(told, expected, "{bytes:?} of {running}");
                (0..3).for_each(|i| met[i][usize::from(told[i])] += 1);
            }
        }
        assert!(met.iter().flatten().chain(&lends).all(|times| *times > 100), "{met:?} {lends:?}");
    }

    #[test]
    fn what_is_taken_out_is_no_longer_counted() {
        let mut tasks = of(&[Some(2), Some(1), Some(1)]);
        tasks.remove(2);
        assert_eq!(asked(&tasks), [0, 1]);
        tasks.remove(1);
        assert_eq!(asked(&tasks), [0]);
        // Alike again, but nobody knows: what was last is gone.
        tasks.push_back(Box::new(Named(3, Some(2), 1)));
        assert_eq!(asked(&tasks), [0, 3]);
        let mut tasks = of(&[Some(2), Some(1), Some(1)]);
        tasks.pop_front();
        assert_eq!(asked(&tasks), [2]);
        tasks.pop_front();
        tasks.pop_front();
        assert!(tasks.pop_front().is_none() && asked(&tasks).is_empty());
        tasks.push_back(Box::new(Named(4, Some(1), 1)));
        assert_eq!(asked(&tasks), [4]);
    }

    #[test]
    fn what_stands_for_another_is_asked() {
        let mut tasks = of(&[Some(1), Some(1), Some(1)]);
        tasks.replace(1, Box::new(Named(9, None, 0)));
        assert_eq!(asked(&tasks), [0, 2, 9]);
    }
}
