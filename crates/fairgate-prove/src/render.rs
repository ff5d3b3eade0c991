//! Reports for people: a table, a plot and the bars as text; a picture as SVG.

mod axis;
mod canvas;
mod plot;
mod svg;
mod table;
mod text;

pub use svg::svg;
pub use text::{Style, text};
