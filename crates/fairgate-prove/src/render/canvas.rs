//! A canvas of dots in a terminal. Each cell is one braille character, two dots wide and four dots
//! high.

/// Grid of cells. Each cell has its dots, and the series that drew the last dot in it.
pub(super) struct BrailleCanvas {
    columns: usize,
    rows: usize,
    cells: Vec<(u8, usize)>,
}

impl BrailleCanvas {
    pub(super) fn new(columns: usize, rows: usize) -> Self {
        Self { columns, rows, cells: vec![(0, 0); columns * rows] }
    }

    pub(super) fn dots_across(&self) -> usize {
        self.columns * 2
    }

    pub(super) fn dots_down(&self) -> usize {
        self.rows * 4
    }

    /// Sets the dot at column `x` and row `y`, counted from the upper left. Dots outside the canvas
    /// are ignored.
    pub(super) fn dot(&mut self, x: usize, y: usize, series: usize) {
        // The bits of a braille character, by column and row of its dots.
        const BITS: [[u8; 4]; 2] = [[0x01, 0x02, 0x04, 0x40], [0x08, 0x10, 0x20, 0x80]];
        if x < self.dots_across() && y < self.dots_down() {
            let cell = &mut self.cells[y / 4 * self.columns + x / 2];
            cell.0 |= BITS[x % 2][y % 4];
            cell.1 = series;
        }
    }

    /// Draws a vertical line in the column `x` of dots, between the rows `from` and `to`.
    pub(super) fn rise(&mut self, x: usize, from: usize, to: usize, series: usize) {
        for y in from.min(to)..=from.max(to) {
            self.dot(x, y, series);
        }
    }

    /// Iterates over a row of cells, with each cell's character and the series that drew in it
    /// last.
    pub(super) fn row(&self, row: usize) -> impl Iterator<Item = (char, usize)> + '_ {
        let cells = &self.cells[row * self.columns..(row + 1) * self.columns];
        cells.iter().map(|(dots, series)| match dots {
            0 => (' ', *series),
            _ => (char::from_u32(0x2800 + u32::from(*dots)).unwrap_or(' '), *series),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dots_become_braille() {
        let mut canvas = BrailleCanvas::new(2, 1);
        canvas.dot(0, 0, 1);
        canvas.rise(3, 0, 3, 2);
        canvas.dot(99, 0, 3);
        let row: Vec<_> = canvas.row(0).collect();
        assert_eq!(row, [('⠁', 1), ('⢸', 2)]);
    }
}
