//! Statements about many rows at once.

/// How many rows one statement is about at most: with 25 columns each, it has fewer placeholders than either database takes.
pub(crate) const ROWS_MAX: usize = 500;

/// Placeholders in a list: `$2, $3, $4`.
pub(crate) fn list(first: usize, count: usize) -> String {
    let places: Vec<_> = (first..first + count).map(|place| format!("${place}")).collect();
    places.join(", ")
}

/// Rows of placeholders, to be selected from: `(VALUES (CAST($1 AS TEXT), CAST($2 AS BIGINT)), …)`. Both databases call
/// their columns `column1`, `column2`, ….
pub(crate) fn table(first: usize, types: &[&str], count: usize) -> String {
    let mut place = first;
    let mut cell = |kind: &&str| {
        let cell = format!("CAST(${place} AS {kind})");
        place += 1;
        cell
    };
    let mut row = || format!("({})", types.iter().map(&mut cell).collect::<Vec<_>>().join(", "));
    let rows: Vec<_> = (0..count).map(|_| row()).collect();
    format!("(VALUES {})", rows.join(", "))
}
