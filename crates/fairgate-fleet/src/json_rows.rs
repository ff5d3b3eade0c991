//! SQL for statements about many rows. All rows are one parameter, a JSON list of lists, so the
//! text of a statement does not depend on the number of rows. Both databases can therefore keep the
//! statement prepared, and SQLite has few placeholders to look up.

use fairgate_store::{DatabaseKind, SqlValue};
use serde_json::{Value as Json, json};

/// Returns a subquery over the parameter with the number `place`, which is a JSON list of lists.
/// The columns of the subquery are named `column1`, `column2` and so on, and have the types
/// `types`.
pub(crate) fn table(database: DatabaseKind, place: usize, types: &[&str]) -> String {
    let cell = |(number, kind): (usize, &&str)| match database {
        DatabaseKind::Sqlite => {
            format!("CAST(json_extract(e.value, '$[{number}]') AS {kind}) AS column{}", number + 1)
        }
        DatabaseKind::Postgres => {
            format!("CAST(e.value ->> {number} AS {kind}) AS column{}", number + 1)
        }
    };
    let cells: Vec<_> = types.iter().enumerate().map(cell).collect();
    format!("(SELECT {} FROM {})", cells.join(", "), elements(database, place, ""))
}

/// Returns a subquery for `id IN (…)` over the parameter with the number `place`, which is a JSON list of texts.
pub(crate) fn texts(database: DatabaseKind, place: usize) -> String {
    match database {
        DatabaseKind::Sqlite => format!("(SELECT e.value FROM {})", elements(database, place, "")),
        DatabaseKind::Postgres => {
            format!("(SELECT e.value FROM {})", elements(database, place, "_text"))
        }
    }
}

fn elements(database: DatabaseKind, place: usize, kind: &str) -> String {
    match database {
        DatabaseKind::Sqlite => format!("json_each(${place}) AS e"),
        DatabaseKind::Postgres => {
            format!("jsonb_array_elements{kind}(CAST(CAST(${place} AS TEXT) AS JSONB)) AS e(value)")
        }
    }
}

/// Returns an SQL expression that converts hexadecimal digits to bytes. `text` is the expression
/// for the digits.
pub(crate) fn unhex(database: DatabaseKind, text: &str) -> String {
    match database {
        DatabaseKind::Sqlite => format!("unhex({text})"),
        DatabaseKind::Postgres => format!("decode({text}, 'hex')"),
    }
}

/// Returns the parameter for [`table`]: the rows as a JSON list.
pub(crate) fn value(rows: impl IntoIterator<Item = Json>) -> SqlValue {
    Json::Array(rows.into_iter().collect()).to_string().into()
}

/// Returns the parameter for [`texts`]: a JSON list of texts.
pub(crate) fn names<'a>(names: impl IntoIterator<Item = &'a str>) -> SqlValue {
    value(names.into_iter().map(|name| json!(name)))
}
