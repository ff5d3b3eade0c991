//! SQL placeholders for statements about many rows at once.

/// Maximum number of rows in one statement. Even with 25 columns, a statement then has fewer
/// placeholders than both databases allow.
pub(crate) const ROWS_MAX: usize = 500;

/// Returns a list of `count` placeholders, such as `$2, $3, $4` if `first` is 2.
pub(crate) fn list(first: usize, count: usize) -> String {
    let places: Vec<_> = (first..first + count).map(|place| format!("${place}")).collect();
    places.join(", ")
}

/// Returns `count` rows of placeholders as a table to select from: `(VALUES (CAST($1 AS TEXT), CAST($2 AS BIGINT)),
/// …)`. Both databases name the columns of this table `column1`, `column2` and so on.
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
