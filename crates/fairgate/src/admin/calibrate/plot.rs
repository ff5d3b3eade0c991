//! A plot of measured against predicted windows, in characters.

use fairgate_api::admin::PredictedWindowBody;

/// Size of the plot in characters. A character is about twice as high as it is wide, so the plot is square.
const COLUMNS: usize = 48;
const ROWS: usize = 20;

/// Plots the windows of a worker: a point on the diagonal was predicted exactly. Returns nothing if there are none.
pub(super) fn plot(windows: &[PredictedWindowBody]) -> Vec<String> {
    let lengths = windows.iter().flat_map(|window| [window.measured_us, window.predicted_us]);
    let (Some(least), Some(most)) = (lengths.clone().min(), lengths.max()) else {
        return Vec::new();
    };
    let range = LengthRange { least, most };
    let mut counts = [[0_u32; COLUMNS]; ROWS];
    for window in windows {
        counts[range.place(window.measured_us, ROWS)][range.place(window.predicted_us, COLUMNS)] +=
            1;
    }
    let (top, bottom) = (milliseconds(most), milliseconds(least));
    let width = top.len().max(bottom.len());
    let mut lines = vec![format!(
        "  the last {} windows in ms, measured (up) against predicted (right); · as predicted, + one, * two to four, # more",
        windows.len()
    )];
    for (row, counts) in counts.iter().enumerate().rev() {
        let label = match row {
            0 => &*bottom,
            _ if row == ROWS - 1 => &*top,
            _ => "",
        };
        let marks: String = counts
            .iter()
            .enumerate()
            .map(|(column, count)| mark(*count, column * ROWS / COLUMNS == row))
            .collect();
        lines.push(format!("  {label:>width$} |{}", marks.trim_end()));
    }
    lines.push(format!("  {:width$} +{}", "", "-".repeat(COLUMNS)));
    let space = COLUMNS.saturating_sub(bottom.len());
    lines.push(format!("  {:width$}  {bottom}{top:>space$}", ""));
    lines
}

/// The least and the greatest length in a plot, in microseconds.
struct LengthRange {
    least: u64,
    most: u64,
}

impl LengthRange {
    /// Returns the index of the cell for a length, among `places` cells.
    fn place(&self, length: u64, places: usize) -> usize {
        let (above, range) = (u128::from(length - self.least), u128::from(self.most - self.least));
        let place = above * places as u128 / range.max(1);
        usize::try_from(place).unwrap_or(places).min(places - 1)
    }
}

fn mark(count: u32, is_diagonal: bool) -> char {
    match count {
        0 if is_diagonal => '·',
        0 => ' ',
        1 => '+',
        2..=4 => '*',
        _ => '#',
    }
}

fn milliseconds(micros: u64) -> String {
    format!("{}", (micros + 500) / 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(measured_ms: u64, predicted_ms: u64) -> PredictedWindowBody {
        PredictedWindowBody { measured_us: 1000 * measured_ms, predicted_us: 1000 * predicted_ms }
    }

    #[test]
    fn points_lie_where_their_lengths_are() {
        let mut windows = vec![window(250, 250), window(1200, 1200), window(1200, 250)];
        windows.extend([window(700, 700); 3]);
        windows.extend([window(250, 1200); 9]);
        let lines = plot(&windows);
        assert!(lines[0].contains("the last 15 windows in ms"), "{}", lines[0]);
        assert_eq!(lines.len(), ROWS + 3);
        let inside = |line: &str| line.split_once('|').unwrap().1.to_owned();
        let (top, bottom) = (inside(&lines[1]), inside(&lines[ROWS]));
        assert!(lines[1].starts_with("  1200 |+") && top.ends_with('+'), "{top}");
        assert!(lines[ROWS].starts_with("   250 |+") && bottom.ends_with('#'), "{bottom}");
        assert_eq!((top.chars().count(), bottom.chars().count()), (COLUMNS, COLUMNS));
        let middle = inside(&lines[ROWS - 9]);
        assert!(middle.contains('*') && middle.contains('·'), "{lines:#?}");
        assert_eq!(lines[ROWS + 2], format!("        250{:>45}", 1200));
    }

    #[test]
    fn no_windows_have_no_plot_and_equal_ones_are_one_point() {
        assert!(plot(&[]).is_empty());
        let lines = plot(&[window(300, 300); 2]);
        assert_eq!(lines.iter().filter(|line| line.contains('|') && line.contains('*')).count(), 1);
    }
}
