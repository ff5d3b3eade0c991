//! Dots in a terminal: each cell has two by four of them, as braille.

/// A grid of cells, each with its dots and the series that drew them last.
pub(super) struct Canvas {
    columns: usize,
    rows: usize,
    cells: Vec<(u8, usize)>,
}

impl Canvas {
    pub(super) fn new(columns: usize, rows: usize) -> Self {
        Self { columns, rows, cells: vec![(0, 0); columns * rows] }
    }

    pub(super) fn dots_across(&self) -> usize {
        self.columns * 2
    }

    pub(super) fn dots_down(&self) -> usize {
        self.rows * 4
    }

    /// Sets one dot, counted from the upper left; outside nothing happens.
    pub(super) fn dot(&mut self, x: usize, y: usize, series: usize) {
        // The bits of a braille character, by column and row of its dots.
        const BITS: [[u8; 4]; 2] = [[0x01, 0x02, 0x04, 0x40], [0x08, 0x10, 0x20, 0x80]];
        if x < self.dots_across() && y < self.dots_down() {
            let cell = &mut self.cells[y / 4 * self.columns + x / 2];
            cell.0 |= BITS[x % 2][y % 4];
            cell.1 = series;
        }
    }

    /// A line upwards or downwards between two columns of dots that follow each other.
    pub(super) fn rise(&mut self, x: usize, from: usize, to: usize, series: usize) {
        for y in from.min(to)..=from.max(to) {
            self.dot(x, y, series);
        }
    }

    /// A row of cells: each character, and the series it belongs to.
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
        let mut canvas = Canvas::new(2, 1);
        canvas.dot(0, 0, 1);
        canvas.rise(3, 0, 3, 2);
        canvas.dot(99, 0, 3);
        let row: Vec<_> = canvas.row(0).collect();
        assert_eq!(row, [('⠁', 1), ('⢸', 2)]);
    }
}
