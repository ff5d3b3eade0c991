//! Plot of tokens over time, for a terminal.

use super::axis::{label, ticks};
use super::canvas::BrailleCanvas;
use super::text::{TextStyle, paint};
use crate::report::{ProveReport, TokensPoint};

const ROWS: usize = 12;
/// Columns left of the plot, for the numbers on the vertical axis.
const MARGIN: usize = 8;
/// Series of the mark at the join, which has no colour because it belongs to no tenant.
const NOBODY: usize = usize::MAX;

/// Draws the tokens settled since the first request, as one curve per tenant with the tenant's name
/// at its end. Returns no lines if the report has no points or the width is less than 48 columns.
pub(super) fn plot(report: &ProveReport, style: TextStyle) -> Vec<String> {
    let Some(last) = report.course.points.last().filter(|_| style.width >= 48) else {
        return Vec::new();
    };
    let names = report.tenants.iter().map(|tenant| tenant.name.chars().count()).max().unwrap_or(0);
    let columns = style.width.saturating_sub(MARGIN + 2 + names + 1).clamp(16, 100);
    let most = last.tokens.iter().copied().max().unwrap_or(0).max(1) as f64;
    let canvas = BrailleCanvas::new(columns, ROWS);
    let mut plot = TokenPlot { report, style, canvas, columns, most, last_ms: last.at_ms.max(1.0) };
    plot.draw_join();
    (0..report.tenants.len()).for_each(|series| plot.draw(series));
    plot.lines(last)
}

struct TokenPlot<'a> {
    report: &'a ProveReport,
    style: TextStyle,
    canvas: BrailleCanvas,
    columns: usize,
    most: f64,
    last_ms: f64,
}

impl TokenPlot<'_> {
    fn across(&self, at_ms: f64) -> usize {
        nearest(at_ms / self.last_ms * (self.canvas.dots_across() - 1) as f64)
    }

    fn down(&self, tokens: f64) -> usize {
        let most = self.canvas.dots_down() - 1;
        most - nearest(tokens / self.most * most as f64).min(most)
    }

    fn draw_join(&mut self) {
        let x = self.across(self.report.course.join_ms);
        (0..self.canvas.dots_down()).step_by(3).for_each(|y| self.canvas.dot(x, y, NOBODY));
    }

    fn draw(&mut self, series: usize) {
        let mut points = self.report.course.points.iter().peekable();
        let mut before = self.down(0.0);
        let mut tokens = 0.0;
        for x in 0..self.canvas.dots_across() {
            while let Some(point) = points.next_if(|point| self.across(point.at_ms) <= x) {
                tokens = point.tokens[series] as f64;
            }
            let now = self.down(tokens);
            if tokens > 0.0 {
                self.canvas.rise(x, now, before.saturating_sub(1).max(now), series);
            }
            before = now;
        }
    }

    fn lines(&self, last: &TokensPoint) -> Vec<String> {
        let marks = ticks(self.most, 4.0);
        let names = self.names_by_row(last);
        let mut lines = vec![format!("{:MARGIN$} tokens settled", "")];
        for (row, name) in names.into_iter().enumerate() {
            let mark = marks.iter().find(|mark| self.down(**mark) / 4 == row);
            let mark = mark.map_or_else(String::new, |mark| label(*mark, &marks));
            let axis = if mark.is_empty() { '│' } else { '┤' };
            let mut line = format!("{mark:>MARGIN$} {axis}");
            self.write_row(row, &mut line);
            if let Some(series) = name {
                let name = format!(" {}", self.report.tenants[series].name);
                line.push_str(&paint(&name, series, self.style));
            }
            lines.push(line.trim_end().to_owned());
        }
        lines.extend(self.time_axis());
        lines
    }

    /// Appends a row of the canvas to `line`, with neighbouring cells of the same colour painted
    /// together.
    fn write_row(&self, row: usize, line: &mut String) {
        let mut run = (String::new(), NOBODY);
        for (cell, series) in self.canvas.row(row) {
            if run.1 != series {
                line.push_str(&paint(&run.0, run.1, self.style));
                run = (String::new(), series);
            }
            run.0.push(cell);
        }
        line.push_str(&paint(&run.0, run.1, self.style));
    }

    /// Returns the tenant whose name is written in each row of the plot. A name is written in the
    /// row in which the tenant's curve ends or, if that is taken, in the next free one.
    fn names_by_row(&self, last: &TokensPoint) -> Vec<Option<usize>> {
        let mut rows: Vec<Option<usize>> = vec![None; ROWS];
        for series in 0..self.report.tenants.len() {
            let wanted = self.down(last.tokens[series] as f64) / 4;
            let free = (wanted..ROWS).chain((0..wanted).rev()).find(|row| rows[*row].is_none());
            if let Some(row) = free {
                rows[row] = Some(series);
            }
        }
        rows
    }

    fn time_axis(&self) -> [String; 2] {
        let marks = ticks(self.last_ms / 1000.0, 6.0);
        let mut axis = vec!['─'; self.columns];
        let mut numbers = vec![' '; self.columns + MARGIN];
        for mark in &marks {
            let column = (self.across(mark * 1000.0) / 2).min(self.columns - 1);
            axis[column] = '┬';
            for (i, character) in label(*mark, &marks).chars().enumerate() {
                numbers[column + i] = character;
            }
        }
        let (axis, numbers) = (String::from_iter(axis), String::from_iter(numbers));
        let join = self.report.course.join_ms / 1000.0;
        [
            format!("{:MARGIN$} └{axis}", ""),
            format!(
                "{:MARGIN$}  {} s; the dotted line is the join, at {join:.2} s",
                "",
                numbers.trim_end()
            ),
        ]
    }
}

/// Rounds to the nearest whole number, limited to the size of a screen.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to a screen")]
fn nearest(value: f64) -> usize {
    value.round().clamp(0.0, 1e6) as usize
}
