//! Draws the share that a project got, and the share that it is due, as a bar of characters.

use crate::text_format::millionths;

/// Width of a bar in characters.
const WIDTH: u64 = 24;

/// Heading of a column of bars.
pub(super) const BAR_HEADING: &str = "got █ due │";

/// Draws a project's got share as the filled part, and its due share as a mark: `██████████│·····`.
pub(super) fn bar(got: Option<f64>, due: Option<f64>) -> String {
    let place = |part: f64| (millionths(part).min(1_000_000) * WIDTH + 500_000) / 1_000_000;
    let filled = got.map_or(0, place);
    // The mark is in the last cell that the due part fills.
    let mark = due.map(|due| place(due).max(1) - 1);
    let cell = |i: u64| match (mark == Some(i), i < filled) {
        (true, _) => '│',
        (false, true) => '█',
        (false, false) => '·',
    };
    (0..WIDTH).map(cell).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_show_got_and_due() {
        assert_eq!(bar(None, None), "························");
        assert_eq!(bar(Some(0.5), Some(0.5)), "███████████│············");
        assert_eq!(bar(Some(1.0), Some(0.75)), "█████████████████│██████");
        assert_eq!(bar(Some(0.0), Some(0.0)), "│·······················");
        assert_eq!(bar(Some(0.25), Some(1.0)), "██████·················│");
    }
}
