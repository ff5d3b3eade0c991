//! Finds the changes of the fleet since the last look.

use std::collections::HashMap;

use fairgate_fleet::Fleet;
use serde::Serialize;
use serde_json::{Map, Value};

/// The rows of the last look, by list and name.
#[derive(Debug, Default)]
pub(super) struct FleetLook {
    last: Option<HashMap<(&'static str, String), Value>>,
}

impl FleetLook {
    /// Reads the projects, the running tasks and the agents. Returns the changed rows, and the
    /// names of rows that no longer exist. Returns `None` if nothing changed, at the first look, or
    /// if the database does not answer.
    pub(super) async fn look(&mut self, fleet: &Fleet) -> Option<Value> {
        let view = fleet.view().await.ok()?;
        let mut rows = HashMap::new();
        put_rows(&mut rows, "projects", &view.projects);
        put_rows(&mut rows, "running", &view.running);
        put_rows(&mut rows, "agents", &view.agents);
        let before = self.last.replace(rows)?;
        let now = self.last.as_ref()?;
        let mut changed: Map<String, Value> = Map::new();
        for ((list, _), row) in now.iter().filter(|(key, row)| before.get(*key) != Some(*row)) {
            push(&mut changed, list, row.clone());
        }
        let mut gone = Map::new();
        for (list, name) in before.keys().filter(|key| !now.contains_key(*key)) {
            push(&mut gone, list, name.clone().into());
        }
        if changed.is_empty() && gone.is_empty() {
            return None;
        }
        changed.insert("at".to_owned(), fairgate_time::to_rfc3339(view.at).into());
        if !gone.is_empty() {
            changed.insert("gone".to_owned(), Value::Object(gone));
        }
        Some(Value::Object(changed))
    }
}

fn put_rows<T: Serialize>(
    rows: &mut HashMap<(&'static str, String), Value>,
    list: &'static str,
    of: &[T],
) {
    for row in of {
        let row = serde_json::to_value(row).unwrap_or_default();
        let name = row["id"].as_str().unwrap_or_default().to_owned();
        rows.insert((list, name), row);
    }
}

fn push(lists: &mut Map<String, Value>, list: &str, row: Value) {
    let rows = lists.entry(list).or_insert_with(|| Value::Array(Vec::new()));
    if let Value::Array(rows) = rows {
        rows.push(row);
    }
}
