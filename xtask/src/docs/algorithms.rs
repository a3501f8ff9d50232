//! `docs/algorithms.md`: every algorithm with a drawing, from the schedules themselves.

/// The text.
pub fn render() -> String {
    oxccl_schedule::explain::algorithms_markdown()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_text_is_a_document() {
        let text = super::render();
        assert!(text.starts_with("# ") && text.ends_with('\n'), "{text}");
        assert_eq!(text, super::render(), "the text differs from run to run");
    }
}
