//! Text tables with aligned columns. The first column is aligned to the left, the others to the
//! right.

/// Formats a table, headings first. Each heading has two lines; the second may be empty.
pub(super) fn table(headings: &[(&str, &str)], rows: &[Vec<String>]) -> Vec<String> {
    let width = |text: &str| text.chars().count();
    let columns = 0..headings.len();
    let widths: Vec<usize> = columns
        .map(|column| {
            let (first, second) = headings[column];
            let cells = rows.iter().map(|row| width(&row[column])).max().unwrap_or(0);
            cells.max(width(first)).max(width(second))
        })
        .collect();
    let line = |cells: Vec<&str>| {
        let mut line = String::new();
        for (column, (cell, most)) in cells.iter().zip(&widths).enumerate() {
            let spare = " ".repeat(most - width(cell));
            match column {
                0 => line.extend([*cell, &spare]),
                _ => line.extend(["  ", &spare, cell]),
            }
        }
        line.trim_end().to_owned()
    };
    let mut lines = vec![
        line(headings.iter().map(|(first, _)| *first).collect()),
        line(headings.iter().map(|(_, second)| *second).collect()),
    ];
    lines.extend(rows.iter().map(|row| line(row.iter().map(String::as_str).collect())));
    lines
}
