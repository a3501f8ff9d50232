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
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "| {} | {} | {} |", self.goal, self.measured, if self.met { "yes" } else { "no" })
    }
}

/// How many times as long as ours others take.
#[derive(Default)]
pub struct Points(Vec<(String, String, f64)>);

impl Points {
    /// `None`: not measured, and no point.
    pub fn add(&mut self, collective: &str, size: &str, others_us: Option<f64>, ours_us: Option<f64>) {
        if let Some((others, ours)) = others_us.zip(ours_us) {
            eprintln!("{collective} {size}: {others:.3} us over {ours:.3}: {:.2}", others / ours);
            self.0.push((collective.into(), size.into(), others / ours));
        }
    }

    /// Those of some sizes, and the rest.
    pub fn split(self, first: impl Fn(&str) -> bool) -> (Points, Points) {
        let (a, b) = self.0.into_iter().partition(|point| first(&point.1));
        (Points(a), Points(b))
    }

    /// Whether each is at least what `least` says.
    pub fn ahead(&self, goal: &str, least: impl Fn(&str, &str) -> f64) -> Row {
        let behind: Vec<String> =
            self.0.iter().filter(|p| p.2 < least(&p.0, &p.1)).map(|p| format!("{} {} {:.2}", p.0, p.1, p.2)).collect();
        let least = self.0.iter().map(|p| p.2).fold(f64::INFINITY, f64::min);
        let mut measured = format!("{} of {} points, least {least:.2}", self.0.len() - behind.len(), self.0.len());
        if !behind.is_empty() {
            measured += &format!(" (not: {})", behind.join(", "));
        }
        Row::new(goal, measured, behind.is_empty() && !self.0.is_empty())
    }

    /// Whether their geometric mean is at least `least`.
    pub fn in_the_mean(&self, goal: &str, least: f64) -> Row {
        let mean = mean(self.0.iter().map(|p| p.2));
        Row::new(goal, format!("{mean:.2}"), mean >= least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_is_met_when_every_point_is_and_there_are_some() {
        let mut points = Points::default();
        assert!(!points.ahead("g", |_, _| 1.0).met);
        points.add("gather", "8", Some(3.0), Some(1.0));
        points.add("gather", "8K", Some(3.0), None);
        assert!(points.ahead("g", |_, _| 1.0).met && points.in_the_mean("g", 3.0).met);
        points.add("scatter", "8", Some(1.0), Some(2.0));
        let row = points.ahead("g", |_, _| 1.0).to_string();
        assert_eq!(row, "| g | 1 of 2 points, least 0.50 (not: scatter 8 0.50) | no |");
        let (small, rest) = points.split(|size| size == "8");
        assert_eq!((small.0.len(), rest.0.len()), (2, 0));
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
