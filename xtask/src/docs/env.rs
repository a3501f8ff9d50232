//! `docs/env.md`: every environment variable, from the runtime's table of them.

use oxccl_runtime::config::VARIABLES;

/// The text.
pub fn render() -> String {
    let mut text = String::from(
        "# Environment variables\n\n\
         Written by `cargo xtask docs` from the table in `crates/runtime/src/config.rs`; do not edit.\n\n\
         The environment is read when a communicator is made; the number of devices and the times of spinning and of the\n\
         helper once per process. A value outside its range is refused with a warning that names the variable, and the\n\
         default is used; but any number except 0 is 1 to `NCCL_LAUNCH_ORDER_IMPLICIT` and `NCCL_LAUNCH_RACE_FATAL`, and\n\
         `NCCL_NUM_RMA_CTX` is capped. Variables of NCCL for the log, the network and the config of communicators are in\n\
         [the guide](guide/environment.md).\n\n\
         | variable | takes | default | valid | what it does |\n|---|---|---|---|---|\n",
    );
    for v in VARIABLES {
        let default = if v.default.is_empty() { "(unset)".to_owned() } else { format!("`{}`", cell(v.default)) };
        text += &format!("| `{}` | {} | {default} | {} | {} |\n", v.name, cell(v.kind), cell(v.range), cell(v.doc));
    }
    text
}

/// `text` as one cell of a table.
fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variable_has_a_row() {
        let text = render();
        assert!(!VARIABLES.is_empty());
        assert!(VARIABLES.iter().all(|v| text.contains(&format!("\n| `{}` | ", v.name))));
    }

    #[test]
    fn cells_hold_no_bars_and_no_line_ends() {
        assert_eq!(cell("a |\n  b"), "a \\| b");
    }
}
