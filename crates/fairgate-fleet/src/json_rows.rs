//! Statements about many rows whose text does not depend on how many: the rows are one value, a JSON list of lists. Both
//! databases keep such a statement prepared, and SQLite looks no placeholders up.

use fairgate_store::{Database, Value};
use serde_json::{Value as Json, json};

/// Rows to be selected from, whose columns are `column1`, `column2`, …, each of its type; the value is a JSON list of lists.
pub(crate) fn table(database: Database, place: usize, types: &[&str]) -> String {
    let cell = |(number, kind): (usize, &&str)| match database {
        Database::Sqlite => {
            format!("CAST(json_extract(e.value, '$[{number}]') AS {kind}) AS column{}", number + 1)
        }
        Database::Postgres => {
            format!("CAST(e.value ->> {number} AS {kind}) AS column{}", number + 1)
        }
    };
    let cells: Vec<_> = types.iter().enumerate().map(cell).collect();
    format!("(SELECT {} FROM {})", cells.join(", "), elements(database, place, ""))
}

/// A list of texts, to be looked for in: `id IN (…)`; the value is a JSON list.
pub(crate) fn texts(database: Database, place: usize) -> String {
    match database {
        Database::Sqlite => format!("(SELECT e.value FROM {})", elements(database, place, "")),
        Database::Postgres => {
            format!("(SELECT e.value FROM {})", elements(database, place, "_text"))
        }
    }
}

fn elements(database: Database, place: usize, kind: &str) -> String {
    match database {
        Database::Sqlite => format!("json_each(${place}) AS e"),
        Database::Postgres => {
            format!("jsonb_array_elements{kind}(CAST(CAST(${place} AS TEXT) AS JSONB)) AS e(value)")
        }
    }
}

/// Bytes that were given as hexadecimal digits.
pub(crate) fn unhex(database: Database, text: &str) -> String {
    match database {
        Database::Sqlite => format!("unhex({text})"),
        Database::Postgres => format!("decode({text}, 'hex')"),
    }
}

/// The value of a list.
pub(crate) fn value(rows: impl IntoIterator<Item = Json>) -> Value {
    Json::Array(rows.into_iter().collect()).to_string().into()
}

/// The value of a list of texts.
pub(crate) fn names<'a>(names: impl IntoIterator<Item = &'a str>) -> Value {
    value(names.into_iter().map(|name| json!(name)))
}
