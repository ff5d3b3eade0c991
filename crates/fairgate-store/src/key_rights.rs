//! Rights: the choices that a key, or the task keys of a project, may make for its requests.
//!
//! Keys and projects have the same rights in the same form. A new key or project is closed: its
//! requests get the default class of their pool. It may not open leases, use ids that the gateway
//! has not given it, or choose workers. A right that is missing in a stored text is therefore read
//! as closed.

use serde::{Deserialize, Serialize};

use crate::error::StoreError;

/// The highest priority that a key may have, as in Dynamo. Higher priorities are reserved for the
/// gateway itself.
pub const PRIORITY_MAX: i64 = i32::MAX as i64;
/// The lowest priority of a request. Every key may use priorities down to this one.
pub const PRIORITY_MIN: i64 = i32::MIN as i64;

/// The maximum deadline of a request, in milliseconds: one day.
pub const DEADLINE_MS_MAX: u64 = 24 * 60 * 60 * 1000;

/// The maximum weight of a request, in thousandths.
pub const WEIGHT_MILLI_MAX: u64 = 1_000_000_000;

/// Choices that a key may make for its requests. A request that chooses anything else is refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct KeyRights {
    /// Models that the key may request; `None` allows all models. A pattern such as `gpt-*` allows
    /// all names with this beginning.
    pub models: Option<Vec<String>>,
    /// Policy classes and families that the key may name. If a request names none, the first of the
    /// list is used. With `None`, the key may name all classes of the policy. With an empty list,
    /// the key gets only the policy's default.
    pub classes: Option<Vec<String>>,
    /// Highest priority that the key may request, 0 to [`PRIORITY_MAX`]. Lower priorities are always allowed, down to
    /// [`PRIORITY_MIN`].
    pub priority_max: i64,
    /// Highest weight that a request of the key may state, in thousandths, 1 to
    /// [`WEIGHT_MILLI_MAX`]. A weight up to that of the request's model is always allowed, also
    /// with `None`.
    pub weight_max_milli: Option<u64>,
    /// Workers that requests of the key may go to; `None` allows all workers.
    pub workers: Option<Vec<String>>,
    /// True if the key may choose the worker of a request.
    pub may_pin: bool,
    /// True if the key may open leases.
    pub may_lease: bool,
    /// True if requests may name files, vector stores, containers and stored prompts of the upstream's account. The
    /// gateway does not know which tenant owns these.
    pub may_use_foreign_ids: bool,
    /// Taints that the key may require of a worker; `None` allows all taints.
    pub taints: Option<Vec<String>>,
    /// Deadline of requests that state none, in milliseconds, 1 to [`DEADLINE_MS_MAX`]. With
    /// `None`, such requests get the deadline of their class.
    pub deadline_ms: Option<u64>,
    /// Shortest deadline that a request of the key may state in an `edf` queue, in milliseconds, 1
    /// to [`DEADLINE_MS_MAX`]. With `None`, it is the deadline that the request would get if it
    /// stated none.
    pub deadline_min_ms: Option<u64>,
}

impl Default for KeyRights {
    /// Returns the rights of a new key or project.
    fn default() -> Self {
        Self {
            models: None,
            classes: Some(Vec::new()),
            priority_max: 0,
            weight_max_milli: None,
            workers: None,
            may_pin: false,
            may_lease: false,
            may_use_foreign_ids: false,
            taints: Some(Vec::new()),
            deadline_ms: None,
            deadline_min_ms: None,
        }
    }
}

impl KeyRights {
    /// Returns the rights after a change. Rights that the patch does not name stay as they are.
    #[must_use]
    pub fn patched(self, patch: RightsPatch) -> Self {
        Self {
            models: patch.models.unwrap_or(self.models),
            classes: patch.classes.unwrap_or(self.classes),
            priority_max: patch.priority_max.unwrap_or(self.priority_max),
            weight_max_milli: patch.weight_max_milli.unwrap_or(self.weight_max_milli),
            workers: patch.workers.unwrap_or(self.workers),
            may_pin: patch.may_pin.unwrap_or(self.may_pin),
            may_lease: patch.may_lease.unwrap_or(self.may_lease),
            may_use_foreign_ids: patch.may_use_foreign_ids.unwrap_or(self.may_use_foreign_ids),
            taints: patch.taints.unwrap_or(self.taints),
            deadline_ms: patch.deadline_ms.unwrap_or(self.deadline_ms),
            deadline_min_ms: patch.deadline_min_ms.unwrap_or(self.deadline_min_ms),
        }
    }

    /// Returns true if the key may request this model.
    pub fn allows_model(&self, model: &str) -> bool {
        let matches = |name: &String| match name.strip_suffix('*') {
            Some(beginning) => model.starts_with(beginning),
            None => name == model,
        };
        self.models.as_ref().is_none_or(|allowed| allowed.iter().any(matches))
    }

    /// Returns these rights as the text that is stored in the database.
    pub fn to_stored_text(&self) -> String {
        // Lists, numbers and flags always serialize.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Parses rights from the text that is stored in the database.
    pub fn from_stored_text(text: &str) -> Result<Self, StoreError> {
        serde_json::from_str(text)
            .map_err(|problem| StoreError::Database(format!("stored rights: {problem}")))
    }
}

/// Change of the rights of a key or project. `None` leaves a right as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RightsPatch {
    /// Models that the key may request; `Some(None)` allows all models.
    pub models: Option<Option<Vec<String>>>,
    /// Policy classes and families that the key may name; `Some(None)` allows all that the policy has.
    pub classes: Option<Option<Vec<String>>>,
    /// Highest priority that the key may request, 0 to [`PRIORITY_MAX`].
    pub priority_max: Option<i64>,
    /// Highest weight that a request of the key may state, in thousandths. With `Some(None)` this is the weight of its
    /// model.
    pub weight_max_milli: Option<Option<u64>>,
    /// Workers that requests of the key may go to; `Some(None)` allows all workers.
    pub workers: Option<Option<Vec<String>>>,
    /// True if the key may choose the worker of a request.
    pub may_pin: Option<bool>,
    /// True if the key may open leases.
    pub may_lease: Option<bool>,
    /// True if requests may name files, vector stores, containers and stored prompts of the upstream's account.
    pub may_use_foreign_ids: Option<bool>,
    /// Taints that the key may require of a worker; `Some(None)` allows all taints.
    pub taints: Option<Option<Vec<String>>>,
    /// Deadline of the key's requests that state no deadline, in milliseconds. With `Some(None)` they get the deadline
    /// of their class.
    pub deadline_ms: Option<Option<u64>>,
    /// Shortest deadline that a request of the key may state in an `edf` queue, in milliseconds. With `Some(None)` this
    /// is the deadline that the request would get if it stated none.
    pub deadline_min_ms: Option<Option<u64>>,
}

impl From<KeyRights> for RightsPatch {
    /// Returns the patch that sets all of these rights.
    fn from(rights: KeyRights) -> Self {
        Self {
            models: Some(rights.models),
            classes: Some(rights.classes),
            priority_max: Some(rights.priority_max),
            weight_max_milli: Some(rights.weight_max_milli),
            workers: Some(rights.workers),
            may_pin: Some(rights.may_pin),
            may_lease: Some(rights.may_lease),
            may_use_foreign_ids: Some(rights.may_use_foreign_ids),
            taints: Some(rights.taints),
            deadline_ms: Some(rights.deadline_ms),
            deadline_min_ms: Some(rights.deadline_min_ms),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_stands_for_any_ending() {
        let rights = |models: Option<&[&str]>| KeyRights {
            models: models.map(|models| models.iter().map(|model| (*model).into()).collect()),
            ..KeyRights::default()
        };
        let allowed = |models: &[&str], model: &str| rights(Some(models)).allows_model(model);
        assert!(rights(None).allows_model("any"));
        assert!(allowed(&["llama", "gpt-*"], "gpt-5") && allowed(&["gpt-*"], "gpt-"));
        assert!(allowed(&["*"], "any") && allowed(&["llama"], "llama"));
        assert!(!allowed(&["gpt-*"], "gpt") && !allowed(&["llama"], "llama-8b"));
        assert!(!allowed(&[], "llama") && !allowed(&["gpt-*"], "GPT-5"));
    }

    #[test]
    fn a_right_that_a_stored_text_does_not_name_is_closed() {
        assert_eq!(KeyRights::from_stored_text("{}").unwrap(), KeyRights::default());
        let open = KeyRights::from_stored_text(r#"{"classes":null,"may_lease":true}"#).unwrap();
        assert_eq!(open, KeyRights { classes: None, may_lease: true, ..KeyRights::default() });
        assert_eq!(KeyRights::from_stored_text(&open.to_stored_text()).unwrap(), open);
        assert!(KeyRights::from_stored_text("null").is_err());
    }
}
