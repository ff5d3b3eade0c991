//! Draws a project's share as a bar of characters.

/// Width of a bar in characters.
const WIDTH: u64 = 24;

/// Draws a project's share as the filled part and its target as a mark: `██████████│·····`.
pub(super) fn bar(share_ppm: u64, target_ppm: Option<u64>) -> String {
    let place = |ppm: u64| (ppm.min(1_000_000) * WIDTH + 500_000) / 1_000_000;
    let filled = place(share_ppm);
    // The mark is in the last cell that the target fills.
    let mark = target_ppm.map(|target| place(target).max(1) - 1);
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
    fn bars_show_share_and_target() {
        assert_eq!(bar(0, None), "························");
        assert_eq!(bar(500_000, Some(500_000)), "███████████│············");
        assert_eq!(bar(1_000_000, Some(750_000)), "█████████████████│██████");
        assert_eq!(bar(0, Some(0)), "│·······················");
        assert_eq!(bar(250_000, Some(1_000_000)), "██████·················│");
    }
}
