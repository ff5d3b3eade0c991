//! Tables with aligned columns, as text or as Markdown. This is the only table printer of the workspace.

use std::borrow::Cow;
use std::io::{self, Write};

/// A table with a heading and a cell for each column in every row.
#[derive(Debug)]
pub struct TextTable {
    headings: Vec<Cow<'static, str>>,
    rows: Vec<Vec<TableCell>>,
}

/// One cell of a table.
#[derive(Clone, Debug)]
pub enum TableCell {
    /// A text, aligned left.
    Text(String),
    /// A number as text, aligned right.
    Number(String),
    /// A value before a change and a value after it, each aligned right in its half of the column.
    Pair(String, String),
}

const ARROW: &str = " → ";

impl TextTable {
    /// Creates a table with these headings and no rows.
    pub fn new<H: Into<Cow<'static, str>>>(headings: impl IntoIterator<Item = H>) -> Self {
        Self { headings: headings.into_iter().map(Into::into).collect(), rows: Vec::new() }
    }

    /// Adds a row with a cell for each heading.
    pub fn row(&mut self, cells: Vec<TableCell>) {
        self.rows.push(cells);
    }

    /// Writes the whole table.
    pub fn write(&self, out: impl Write) -> io::Result<()> {
        self.write_within(out, None)
    }

    /// Writes the table, with lines cut at a width if one is given.
    pub fn write_within(&self, mut out: impl Write, most: Option<usize>) -> io::Result<()> {
        let columns = (0..self.headings.len()).map(|column| self.measure(column));
        let columns: Vec<TableColumn> = columns.collect();
        let mut line = String::new();
        for (heading, column) in self.headings.iter().zip(&columns) {
            column.heading(&mut line, heading);
        }
        writeln!(out, "{}", cut(line.trim_end(), most))?;
        for row in &self.rows {
            line.clear();
            for (cell, column) in row.iter().zip(&columns) {
                column.cell(&mut line, cell);
            }
            writeln!(out, "{}", cut(line.trim_end(), most))?;
        }
        Ok(())
    }

    /// Writes the table as Markdown. Columns of numbers are aligned right.
    pub fn write_markdown(&self, mut out: impl Write) -> io::Result<()> {
        let columns: Vec<_> = (0..self.headings.len()).map(|column| self.measure(column)).collect();
        let line = |cells: Vec<String>| format!("| {} |", cells.join(" | "));
        let aligned = |place: &dyn Fn(&TableColumn, usize, &mut String)| {
            let cells = columns.iter().enumerate().map(|(index, column)| {
                let mut cell = String::new();
                place(&TableColumn { first: true, ..*column }, index, &mut cell);
                cell
            });
            line(cells.collect())
        };
        writeln!(out, "{}", aligned(&|column, i, cell| column.heading(cell, &self.headings[i])))?;
        let rule = |column: &TableColumn| if column.text { "---" } else { "--:" }.to_owned();
        writeln!(out, "{}", line(columns.iter().map(rule).collect()))?;
        for row in &self.rows {
            writeln!(out, "{}", aligned(&|column, i, cell| column.cell(cell, &row[i])))?;
        }
        Ok(())
    }

    fn measure(&self, index: usize) -> TableColumn {
        let mut column =
            TableColumn { first: index == 0, text: false, left: 0, right: 0, width: 0 };
        for cell in self.rows.iter().filter_map(|row| row.get(index)) {
            match cell {
                TableCell::Text(text) => {
                    column.text = true;
                    column.width = column.width.max(width(text));
                }
                TableCell::Number(text) => column.width = column.width.max(width(text)),
                TableCell::Pair(was, is) => {
                    column.left = column.left.max(width(was));
                    column.right = column.right.max(width(is));
                }
            }
        }
        if column.right > 0 {
            column.width = column.width.max(column.left + width(ARROW) + column.right);
        }
        column.width = column.width.max(width(&self.headings[index]));
        column
    }
}

#[derive(Clone, Copy)]
struct TableColumn {
    first: bool,
    text: bool,
    left: usize,
    right: usize,
    width: usize,
}

impl TableColumn {
    fn heading(&self, line: &mut String, heading: &str) {
        // Over pairs of numbers the heading is centred.
        let spare = self.width - width(heading);
        let before = match (self.text, self.right > 0) {
            (true, _) => 0,
            (_, true) => spare / 2,
            _ => spare,
        };
        self.place(line, heading, before);
    }

    fn cell(&self, line: &mut String, cell: &TableCell) {
        match cell {
            TableCell::Text(text) => self.place(line, text, 0),
            TableCell::Number(text) => self.place(line, text, self.width - width(text)),
            TableCell::Pair(was, is) => {
                let (was_gap, is_gap) = (self.left - width(was), self.right - width(is));
                let pair = format!("{:was_gap$}{was}{ARROW}{:is_gap$}{is}", "", "");
                self.place(line, &pair, (self.width - width(&pair)).div_ceil(2));
            }
        }
    }

    fn place(&self, line: &mut String, text: &str, before: usize) {
        let gap = if self.first { 0 } else { 2 };
        line.extend(std::iter::repeat_n(' ', gap + before));
        line.push_str(text);
        line.extend(std::iter::repeat_n(' ', self.width - before - width(text)));
    }
}

/// Cuts a line at a width in characters; `None` cuts nothing.
fn cut(line: &str, most: Option<usize>) -> Cow<'_, str> {
    match most {
        Some(most) if width(line) > most => {
            let kept: String = line.chars().take(most.saturating_sub(1)).collect();
            Cow::Owned(format!("{kept}…"))
        }
        _ => Cow::Borrowed(line),
    }
}

fn width(text: &str) -> usize {
    text.chars().count()
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_cut() {
        assert_eq!(cut("a → b", None), "a → b");
        assert_eq!(cut("a → b", Some(5)), "a → b");
        assert_eq!(cut("a → bc", Some(5)), "a → …");
    }

    #[test]
    fn columns_are_aligned() {
        let mut table = TextTable::new(vec!["flow", "n", "waited"]);
        let row = |name: &str, n: &str, was: &str, is: &str| {
            vec![
                TableCell::Text(name.into()),
                TableCell::Number(n.into()),
                TableCell::Pair(was.into(), is.into()),
            ]
        };
        table.row(row("a", "1", "5 µs", "10 ms"));
        table.row(row("longer", "100", "20 ms", "1 s"));
        let mut text = Vec::new();
        table.write(&mut text).unwrap();
        let expected = "\
flow      n     waited
a         1   5 µs → 10 ms
longer  100  20 ms →   1 s
";
        assert_eq!(String::from_utf8(text).unwrap(), expected);
    }

    #[test]
    fn markdown_aligns_numbers_to_the_right() {
        let mut table = TextTable::new(["what", "n"]);
        table.row(vec![TableCell::Text("a".into()), TableCell::Number("100".into())]);
        let mut text = Vec::new();
        table.write_markdown(&mut text).unwrap();
        let expected = "| what |   n |\n| --- | --: |\n| a    | 100 |\n";
        assert_eq!(String::from_utf8(text).unwrap(), expected);
    }
}
