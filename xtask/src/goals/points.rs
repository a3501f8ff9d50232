//! What was measured, as ratios by collective and size, and rows of the table of goals.

use std::fmt;

/// Geometric mean.
pub fn mean(ratios: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = ratios.fold((0.0, 0.0), |(sum, count), ratio| (sum + ratio.ln(), count + 1.0));
    (sum / count).exp()
}

/// Blocks of the size that counts (the larger buffer of a rank) that all ranks together move.
pub fn bytes_moved(collective: &str, ranks: u32) -> f64 {
    let n = f64::from(ranks);
    match collective {
        "gather" | "scatter" => (n - 1.0) / n,
        "sendrecv" => n,
        "allreduce" => 2.0 * (n - 1.0),
        _ => n - 1.0,
    }
}

/// A goal and what came of it.
pub struct Row {
    goal: String,
    measured: String,
    met: bool,
}

impl Row {
    pub fn new(goal: &str, measured: String, met: bool) -> Row {
        Row { goal: goal.into(), measured, met }
    }

    /// Not met, for want of a measurement.
    pub fn not_measured(goal: &str, e: &anyhow::Error) -> Row {
        // A row is a line.
        let why: Vec<String> = format!("{e:#}").split_whitespace().map(|word| word.replace('|', "\\|")).collect();
        Row::new(goal, format!("not measured: {}", why.join(" ")), false)
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "| {} | {} | {} |", self.goal, self.measured, if self.met { "yes" } else { "no" })
    }
}

/// The times of others and of ours, us, and how many times as long the others' should be at least.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pair {
    others: f64,
    ours: f64,
    goal: f64,
}

impl Pair {
    /// `None`: one of the two was not measured.
    pub fn of(others: Option<f64>, ours: Option<f64>, goal: f64) -> Option<Pair> {
        others.zip(ours).map(|(others, ours)| Pair { others, ours, goal })
    }

    /// How many times as long as ours others take.
    pub fn ratio(&self) -> f64 {
        self.others / self.ours
    }

    /// `ours of others`, us.
    pub fn ours_of_others(&self) -> String {
        format!("{:.2} of {:.2}", self.ours, self.others)
    }

    /// Whether it is.
    pub fn is_met(&self) -> bool {
        self.ratio() >= self.goal
    }

    /// Whether one measurement does not tell if the goal is met: it is missed, or not met by far.
    pub fn is_close(&self) -> bool {
        const FAR: f64 = 1.25;
        self.ratio().is_nan() || self.ratio() < FAR * self.goal
    }

    /// The middle one of several measurements of a point by its ratio.
    pub fn median(mut all: Vec<Pair>) -> Option<Pair> {
        all.sort_by(|a, b| a.ratio().total_cmp(&b.ratio()));
        all.get(all.len().checked_sub(1)? / 2).copied()
    }
}

impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} times: {:.3} us, {:.3} the others", self.ratio(), self.ours, self.others)
    }
}

/// A point by collective and size.
struct Point {
    collective: String,
    size: String,
    pair: Pair,
}

/// What was measured of one kind.
#[derive(Default)]
pub struct Points(Vec<Point>);

impl Points {
    /// `None`: not measured, and no point.
    pub fn add(&mut self, collective: &str, size: &str, pair: Option<Pair>) {
        if let Some(pair) = pair {
            eprintln!("{collective} {size}: {:.3} us over {:.3}: {:.2}", pair.others, pair.ours, pair.ratio());
            self.0.push(Point { collective: collective.into(), size: size.into(), pair });
        }
    }

    /// Those of some sizes, and the rest.
    pub fn split(self, first: impl Fn(&str) -> bool) -> (Points, Points) {
        let (a, b) = self.0.into_iter().partition(|point| first(&point.size));
        (Points(a), Points(b))
    }

    /// Whether each meets its goal.
    pub fn ahead(&self, goal: &str) -> Row {
        let missed = self.0.iter().filter(|p| !p.pair.is_met());
        let behind: Vec<String> =
            missed.map(|p| format!("{} {} {:.2}", p.collective, p.size, p.pair.ratio())).collect();
        let least = self.0.iter().map(|p| p.pair.ratio()).fold(f64::INFINITY, f64::min);
        let mut measured = format!("{} of {} points, least {least:.2}", self.0.len() - behind.len(), self.0.len());
        if !behind.is_empty() {
            measured += &format!(" (not: {})", behind.join(", "));
        }
        Row::new(goal, measured, behind.is_empty() && !self.0.is_empty())
    }

    /// Whether their geometric mean is at least `least`.
    pub fn in_the_mean(&self, goal: &str, least: f64) -> Row {
        let mean = mean(self.0.iter().map(|p| p.pair.ratio()));
        Row::new(goal, format!("{mean:.2}"), mean >= least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_is_met_when_every_point_is_and_there_are_some() {
        let mut points = Points::default();
        assert!(!points.ahead("g").met);
        points.add("gather", "8", Pair::of(Some(3.0), Some(1.0), 1.0));
        points.add("gather", "8K", Pair::of(Some(3.0), None, 1.0));
        assert!(points.ahead("g").met && points.in_the_mean("g", 3.0).met);
        points.add("scatter", "8", Pair::of(Some(1.0), Some(2.0), 1.0));
        let row = points.ahead("g").to_string();
        assert_eq!(row, "| g | 1 of 2 points, least 0.50 (not: scatter 8 0.50) | no |");
        let (small, rest) = points.split(|size| size == "8");
        assert_eq!((small.0.len(), rest.0.len()), (2, 0));
    }

    #[test]
    fn what_is_close_is_told_by_the_middle_of_several() {
        let pair = |others| Pair::of(Some(others), Some(1.0), 2.0).unwrap();
        assert!(pair(1.9).is_close() && pair(2.4).is_close() && !pair(2.6).is_close());
        assert_eq!(Pair::median(vec![pair(3.0), pair(1.0), pair(2.0)]), Some(pair(2.0)));
        assert_eq!(Pair::median(vec![]), None);
    }

    #[test]
    fn the_mean_is_the_geometric_one() {
        assert!((mean([1.0, 4.0].into_iter()) - 2.0).abs() < 1e-9);
    }

    #[test]
    fn every_rank_of_an_all_to_all_keeps_a_block() {
        assert_eq!(bytes_moved("alltoall", 8) / bytes_moved("alltoall", 2), 7.0);
        assert_eq!(bytes_moved("gather", 8) / bytes_moved("gather", 2), 1.75);
    }
}
