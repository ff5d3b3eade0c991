//! Computes the differences between two views of a pool, as JSON without the former names of
//! fields.

use std::collections::{HashMap, HashSet};

use fairgate_api::admin::{ClassView, GroupView, PoolView, TenantView, WorkerBody};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::live::without_rows;

/// Former names of fields, which are left out of events.
const FORMER_NAMES: [&str; 7] = [
    "queued",
    "slot_cap",
    "tenant_id",
    "fairshare_group",
    "max_in_flight",
    "global_in_flight",
    "global_queued",
];
/// Fields of a pool that are lists of rows.
const LISTS: [&str; 5] = ["classes", "groups", "tenants", "projects", "workers"];

/// A row of a view, with a name that is unique in its list.
pub(super) trait NamedRow: Serialize {
    /// Returns the name of the row.
    fn name(&self) -> &str;

    /// Returns true if the row need not be sent again. Numbers that change merely because time
    /// passes are ignored.
    fn is_like(&self, other: &Self) -> bool;
}

impl NamedRow for ClassView {
    fn name(&self) -> &str {
        &self.name
    }

    fn is_like(&self, other: &Self) -> bool {
        let Self { expected_wait_ms, oldest_wait_us, service, .. } = self.clone();
        let mut same = Self { expected_wait_ms, oldest_wait_us, ..other.clone() };
        same.service.cap_use = service.cap_use;
        same == *self
    }
}

impl NamedRow for GroupView {
    fn name(&self) -> &str {
        &self.name
    }

    fn is_like(&self, other: &Self) -> bool {
        let expected_wait_ms = self.expected_wait_ms;
        let mut same = Self { expected_wait_ms, ..other.clone() };
        same.service.cap_use = self.service.cap_use;
        same == *self
    }
}

impl NamedRow for TenantView {
    fn name(&self) -> &str {
        &self.tenant
    }

    fn is_like(&self, other: &Self) -> bool {
        let expected_wait_ms = self.expected_wait_ms;
        let mut same = Self { expected_wait_ms, ..other.clone() };
        same.service.cap_use = self.service.cap_use;
        same == *self
    }
}

impl NamedRow for WorkerBody {
    fn name(&self) -> &str {
        &self.name
    }

    fn is_like(&self, other: &Self) -> bool {
        self == other
    }
}

/// Returns the whole view of a pool as JSON.
pub(super) fn whole(view: &PoolView) -> Value {
    let mut pool = serde_json::to_value(view).unwrap_or_default();
    for list in LISTS {
        let rows = pool.get_mut(list).and_then(Value::as_array_mut);
        rows.into_iter().flatten().for_each(remove_former_names);
    }
    remove_former_names(&mut pool);
    pool
}

/// Returns the changes between two views of a pool: its changed fields, whole rows that changed or
/// are new, and the names of rows that no longer exist. `None` if nothing changed.
pub(super) fn change(before: &PoolView, now: &PoolView) -> Option<Value> {
    let mut change = fields_changed(before, now);
    let mut gone = Map::new();
    let mut list = |name: &str, (rows, missing): (Vec<Value>, Vec<Value>)| {
        if !rows.is_empty() {
            change.insert(name.to_owned(), Value::Array(rows));
        }
        if !missing.is_empty() {
            gone.insert(name.to_owned(), Value::Array(missing));
        }
    };
    list("classes", rows_changed(&before.classes, &now.classes));
    list("groups", rows_changed(&before.groups, &now.groups));
    list("tenants", rows_changed(&before.tenants, &now.tenants));
    list("projects", rows_changed(&before.projects, &now.projects));
    list("workers", rows_changed(&before.workers, &now.workers));
    if !gone.is_empty() {
        change.insert("gone".to_owned(), Value::Object(gone));
    }
    if change.is_empty() {
        return None;
    }
    change.insert("pool".to_owned(), now.pool.clone().into());
    Some(Value::Object(change))
}

/// Returns the changed fields of the pool itself.
fn fields_changed(before: &PoolView, now: &PoolView) -> Map<String, Value> {
    let fields = |view: &PoolView| match whole(&without_rows(view)) {
        Value::Object(fields) => fields,
        _ => Map::new(),
    };
    let (before, mut now) = (fields(before), fields(now));
    now.retain(|name, value| !LISTS.contains(&&**name) && before.get(name) != Some(&*value));
    now
}

/// Returns the changed and new rows, and the names of the rows that no longer exist.
pub(super) fn rows_changed<T: NamedRow>(before: &[T], now: &[T]) -> (Vec<Value>, Vec<Value>) {
    let known: HashMap<&str, &T> = before.iter().map(|row| (row.name(), row)).collect();
    let is_news = |row: &&T| known.get(row.name()).is_none_or(|before| !row.is_like(before));
    let rows = now.iter().filter(is_news).map(|row| {
        let mut row = serde_json::to_value(row).unwrap_or_default();
        remove_former_names(&mut row);
        row
    });
    let here: HashSet<&str> = now.iter().map(NamedRow::name).collect();
    let gone = before.iter().filter(|row| !here.contains(row.name()));
    (rows.collect(), gone.map(|row| row.name().into()).collect())
}

pub(super) fn remove_former_names(row: &mut Value) {
    if let Value::Object(fields) = row {
        FORMER_NAMES.iter().for_each(|name| drop(fields.remove(*name)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str, waiting: u64) -> TenantView {
        let mut row = TenantView { tenant: name.to_owned(), ..TenantView::default() };
        row.now.waiting = waiting;
        row
    }

    #[test]
    fn only_what_changed_is_told() {
        let before = [tenant("a", 1), tenant("b", 1), tenant("c", 1)];
        let mut later = vec![tenant("a", 1), tenant("b", 2), tenant("d", 0)];
        later[0].expected_wait_ms = Some(7);
        let (rows, gone) = rows_changed(&before, &later);
        let names: Vec<&Value> = rows.iter().map(|row| &row["tenant"]).collect();
        assert_eq!(names, ["b", "d"], "that a wait is a little longer is no news");
        assert_eq!(gone, ["c"]);
        assert_eq!((&rows[0]["waiting"], rows[0].get("queued")), (&2.into(), None));
    }
}
