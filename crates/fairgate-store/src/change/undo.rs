//! Computes the inverse of a change from its audit entry.
//!
//! Only the fields that the change itself has changed are set back, and only if they still have the
//! values that the change gave them. Later changes of other fields or objects stay. The objects are
//! looked up in the transaction that makes the inverse change, so nobody can change them between
//! the comparison and the change.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value as Json};

use super::{ChangeLookup, ChangeSubject};
use crate::budget::Budget;
use crate::declaration_record::DeclaredKind;
use crate::directory::{DirectoryChange, GroupPatch, Key, KeyPatch, TenantPatch};
use crate::error::StoreError;
use crate::key_rights::RightsPatch;
use crate::ledger::AuditEntry;

type Result<T> = std::result::Result<T, StoreError>;

/// Budgets of the hosted tier in an audit entry.
#[derive(serde::Deserialize)]
struct HostedEntry {
    budgets: Vec<Budget>,
}

/// Returns the objects that the inverse change names.
pub(crate) fn subject(entry: &AuditEntry) -> ChangeSubject<'_> {
    let (none, name) = (ChangeSubject::default(), Some(entry.subject.as_str()));
    match entry.action.as_str() {
        "group.patch" => {
            let changed = Some((DeclaredKind::Group, entry.subject.as_str()));
            ChangeSubject { group: name, changed, ..none }
        }
        "tenant.patch" => {
            let group = entry.before.as_ref().and_then(|before| before["group"].as_str());
            let changed = Some((DeclaredKind::Tenant, entry.subject.as_str()));
            ChangeSubject { group, tenant: name, changed, ..none }
        }
        "key.patch" => {
            let changed = Some((DeclaredKind::Key, entry.subject.as_str()));
            ChangeSubject { key: name, changed, ..none }
        }
        "hosted.set" => ChangeSubject { hosted: true, ..none },
        _ => none,
    }
}

/// Returns the change that undoes the change of an audit entry. Fails if a later change has affected
/// the same fields, or if this kind of change cannot be undone.
pub(crate) fn inverse(entry: &AuditEntry, found: &ChangeLookup) -> Result<DirectoryChange> {
    let name = entry.subject.clone();
    match entry.action.as_str() {
        "group.patch" => {
            let fields = Json::Object(fields_to_set_back(entry, found.group.as_ref())?);
            let patch: GroupPatch = read(entry, Some(&fields))?;
            Ok(DirectoryChange::PatchGroup { name, patch })
        }
        "tenant.patch" => {
            let fields = Json::Object(fields_to_set_back(entry, found.tenant.as_ref())?);
            let patch: TenantPatch = read(entry, Some(&fields))?;
            Ok(DirectoryChange::PatchTenant { name, patch })
        }
        "key.patch" => {
            let fields = fields_to_set_back(entry, found.key.as_ref())?;
            let now = found.key.as_ref().ok_or_else(|| changed_since(entry))?;
            let before: Key = read(entry, entry.before.as_ref())?;
            Ok(DirectoryChange::PatchKey { id: name, patch: key_patch(&fields, before, now) })
        }
        "hosted.set" => {
            let (before, after): (HostedEntry, HostedEntry) =
                (read(entry, entry.before.as_ref())?, read(entry, entry.after.as_ref())?);
            match found.hosted == after.budgets {
                true => Ok(DirectoryChange::SetHosted { budgets: before.budgets }),
                false => Err(changed_since(entry)),
            }
        }
        _ => Err(not_undoable(entry)),
    }
}

fn changed_since(entry: &AuditEntry) -> StoreError {
    StoreError::ChangedSince { subject: entry.subject.clone(), entry: entry.id }
}

fn not_undoable(entry: &AuditEntry) -> StoreError {
    StoreError::NotUndoable { entry: entry.id }
}

fn read<T: DeserializeOwned>(entry: &AuditEntry, state: Option<&Json>) -> Result<T> {
    let state = state.cloned().ok_or_else(|| not_undoable(entry))?;
    serde_json::from_value(state).map_err(|_| not_undoable(entry))
}

/// Returns the fields that the change of an entry has changed, with their values before the change. Fails if
/// a field no longer has the value that the change gave it, or if the object is gone.
pub fn fields_to_set_back(
    entry: &AuditEntry,
    now: Option<&impl serde::Serialize>,
) -> Result<Map<String, Json>> {
    let now = now.ok_or_else(|| changed_since(entry))?;
    let now = serde_json::to_value(now).unwrap_or_default();
    let before: Map<String, Json> = read(entry, entry.before.as_ref())?;
    let after: Map<String, Json> = read(entry, entry.after.as_ref())?;
    let changed = before.into_iter().filter(|(name, value)| after.get(name) != Some(value));
    let changed: Map<String, Json> = changed.collect();
    match changed.keys().all(|name| after.get(name) == now.get(name)) {
        true => Ok(changed),
        false => Err(changed_since(entry)),
    }
}

/// Returns the patch that gives these fields of a key their values in `before`. The rights of a key
/// are set as a whole, so rights that did not change get their present values.
fn key_patch(fields: &Map<String, Json>, before: Key, now: &Key) -> KeyPatch {
    let has = |name: &str| fields.contains_key(name);
    let others = ["name", "weight", "limits", "expires_at"];
    let mut rights = serde_json::to_value(&now.rights).unwrap_or_default();
    if let Json::Object(rights) = &mut rights {
        let changed = fields.iter().filter(|(name, _)| !others.contains(&name.as_str()));
        rights.extend(changed.map(|(name, value)| (name.clone(), value.clone())));
    }
    let rights = serde_json::from_value(rights).unwrap_or(before.rights);
    KeyPatch {
        name: has("name").then_some(before.name),
        weight: has("weight").then_some(before.weight),
        limits: has("limits").then_some(before.limits),
        rights: RightsPatch::from(rights),
        expires_at: has("expires_at").then_some(before.expires_at),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_was_changed_is_set_back_and_only_if_it_is_still_so() {
        let entry: AuditEntry = serde_json::from_value(json!({
            "id": 7, "at": 0, "actor": "admin", "action": "tenant.patch", "subject": "chat",
            "before": {"a": 1, "b": null, "c": 3}, "after": {"a": 2, "b": 5, "c": 3},
        }))
        .unwrap();
        let now = |a: u64, c: u64| json!({"a": a, "b": 5, "c": c});
        let fields = fields_to_set_back(&entry, Some(&now(2, 3))).unwrap();
        assert_eq!(Json::Object(fields.clone()), json!({"a": 1, "b": null}));
        assert_eq!(fields_to_set_back(&entry, Some(&now(2, 9))).unwrap(), fields, "c is another's");
        let refused = fields_to_set_back(&entry, Some(&now(9, 3)));
        assert!(matches!(refused, Err(StoreError::ChangedSince { entry: 7, .. })));
        let gone = fields_to_set_back(&entry, None::<&Key>);
        assert!(matches!(gone, Err(StoreError::ChangedSince { entry: 7, .. })));
    }
}
