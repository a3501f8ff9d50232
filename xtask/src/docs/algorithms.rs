//! `docs/algorithms.md`: every algorithm with a drawing, from the schedules themselves.

/// The text, or `None` while the schedule crate has no generator.
pub fn render() -> Option<String> {
    None
}
