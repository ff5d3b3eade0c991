//! Reports for people: as text with a table, a plot and the bars, or as an SVG picture.

mod axis;
mod canvas;
mod plot;
mod svg;
mod text;

pub use svg::svg;
pub use text::{TextStyle, text};
