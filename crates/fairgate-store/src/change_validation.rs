//! Checks the fields of a change.

use fairgate_time::UnixMicros;

use crate::budget::{Budget, BudgetTier};
use crate::directory::{DirectoryChange, DirectoryLimits, GATEWAY_TENANT, KeyPatch};
use crate::error::StoreError;
use crate::key_rights::{DEADLINE_MS_MAX, PRIORITY_MAX, RightsPatch, WEIGHT_MILLI_MAX};

type Result = std::result::Result<(), StoreError>;

/// Maximum length of the name of a group, tenant or other object, in bytes.
const NAME_MAX: usize = 128;
/// Maximum length of the name of a model, in bytes.
const MODEL_MAX: usize = 256;
/// Maximum length of a label, in bytes.
const LABEL_MAX: usize = 129;
/// Maximum number of names in a list of models, classes, taints or labels.
const LIST_MAX: usize = 256;
/// Maximum weight of a group, tenant or key.
const WEIGHT_MAX: u64 = 1_000_000;
/// Maximum value of a limit. It fits into every number type with which limits are compared.
const LIMIT_MAX: u64 = 1_000_000_000_000_000;
/// Start of the year 10000. A key must expire before this moment, or never.
const EXPIRY_MAX: UnixMicros = UnixMicros(253_402_300_800_000_000);

fn invalid(field: &'static str, problem: String) -> StoreError {
    StoreError::Invalid { field, problem }
}

/// Checks the number and the lengths of labels. Their form is checked elsewhere.
fn labels(labels: &[String]) -> Result {
    match labels.len() {
        count if count > LIST_MAX => {
            Err(invalid("requires", format!("has {count} labels; at most {LIST_MAX} are allowed")))
        }
        _ => labels.iter().try_for_each(|label| bounded("requires", label, LABEL_MAX)),
    }
}

/// Checks those fields of a change that can be checked without the directory.
pub(crate) fn change(actor: &str, at: UnixMicros, change: &DirectoryChange) -> Result {
    name("actor", actor)?;
    match change {
        DirectoryChange::AddGroup { name: group, weight: share, budgets: allowed } => {
            name("name", group)?;
            unreserved(group)?;
            weight(Some(*share))?;
            budgets(allowed)
        }
        DirectoryChange::PatchGroup { patch, .. } => {
            weight(patch.weight)?;
            patch.budgets.as_deref().map_or(Ok(()), budgets)
        }
        DirectoryChange::SetHosted { budgets: allowed } => {
            if allowed.iter().any(|budget| budget.tier != BudgetTier::Hosted) {
                let problem = "those of the hosted tier must all be of tier \"hosted\"".to_owned();
                return Err(invalid("budgets", problem));
            }
            budgets(allowed)
        }
        DirectoryChange::KeepPrices { prices } => prices.iter().try_for_each(|price| {
            bounded("model", &price.model, MODEL_MAX)?;
            price.upstream.as_deref().map_or(Ok(()), |upstream| name("upstream", upstream))
        }),
        DirectoryChange::AddTenant {
            name: tenant,
            group,
            weight: share,
            limits: allowed,
            requires,
        } => {
            name("name", tenant)?;
            unreserved(tenant)?;
            name("group", group)?;
            weight(Some(*share))?;
            labels(requires)?;
            limits(allowed)
        }
        DirectoryChange::PatchTenant { patch, .. } => {
            patch.group.as_deref().map_or(Ok(()), |group| name("group", group))?;
            weight(patch.weight)?;
            patch.requires.as_deref().map_or(Ok(()), labels)?;
            patch.limits.as_ref().map_or(Ok(()), limits)
        }
        DirectoryChange::CreateKey { name, weight: share, limits, rights, expires_at, .. } => key(
            at,
            &KeyPatch {
                name: Some(name.clone()),
                weight: Some(*share),
                limits: Some(limits.clone()),
                rights: rights.clone().into(),
                expires_at: Some(*expires_at),
            },
        ),
        DirectoryChange::PatchKey { patch, .. } => key(at, patch),
        DirectoryChange::Note { subject, .. } => name("subject", subject),
        // The inverse change is checked later, when it is known.
        DirectoryChange::Undo { .. }
        | DirectoryChange::RemoveGroup { .. }
        | DirectoryChange::RemoveTenant { .. }
        | DirectoryChange::RotateKey { .. }
        | DirectoryChange::RevokeKey { .. } => Ok(()),
    }
}

/// Refuses the name that the ledger uses for the gateway's own requests.
fn unreserved(text: &str) -> Result {
    match text == GATEWAY_TENANT {
        true => Err(invalid(
            "name",
            format!(
                "must not be {GATEWAY_TENANT:?}: the ledger calls the gateway's own requests so"
            ),
        )),
        false => Ok(()),
    }
}

fn key(at: UnixMicros, patch: &KeyPatch) -> Result {
    if let Some(label) = patch.name.as_deref().filter(|label| !label.is_empty()) {
        name("name", label)?;
    }
    weight(patch.weight)?;
    patch.limits.as_ref().map_or(Ok(()), limits)?;
    patch.rights.check()?;
    match patch.expires_at.flatten() {
        Some(expiry) if expiry <= at => {
            Err(invalid("expires_at", "has passed; to refuse a key at once, revoke it".to_owned()))
        }
        Some(expiry) if expiry >= EXPIRY_MAX => {
            Err(invalid("expires_at", "is after the year 9999; leave it out for never".to_owned()))
        }
        _ => Ok(()),
    }
}

impl RightsPatch {
    /// Checks the range of each number, the length of each list, and the length of each name in a
    /// list.
    pub fn check(&self) -> Result {
        let lists = [
            ("models", &self.models, MODEL_MAX),
            ("classes", &self.classes, NAME_MAX),
            ("workers", &self.workers, NAME_MAX),
            ("taints", &self.taints, NAME_MAX),
        ];
        for (field, list, bytes_max) in lists {
            if let Some(Some(list)) = list {
                names(field, list, bytes_max)?;
            }
        }
        // A `*` at another position would look like a pattern and match nothing.
        let is_odd = |name: &&String| name.strip_suffix('*').unwrap_or(name).contains('*');
        if let Some(Some(models)) = &self.models
            && let Some(name) = models.iter().find(is_odd)
        {
            let problem = format!("{name:?} may have a * only at its end, for any ending");
            return Err(invalid("models", problem));
        }
        if let Some(priority) = self.priority_max.filter(|most| !(0..=PRIORITY_MAX).contains(most))
        {
            let problem = format!("must be 0 to {PRIORITY_MAX} and is {priority}");
            return Err(invalid("priority_max", problem));
        }
        let weight = self.weight_max_milli.flatten();
        if let Some(weight) = weight.filter(|most| !(1..=WEIGHT_MILLI_MAX).contains(most)) {
            let problem = format!("must be 1 to {WEIGHT_MILLI_MAX} thousandths and is {weight}");
            return Err(invalid("weight_max", problem));
        }
        deadline("deadline_ms", self.deadline_ms.flatten())?;
        deadline("deadline_min_ms", self.deadline_min_ms.flatten())
    }
}

fn deadline(field: &'static str, millis: Option<u64>) -> Result {
    match millis.filter(|millis| !(1..=DEADLINE_MS_MAX).contains(millis)) {
        Some(millis) => {
            let problem = format!("must be 1 to {DEADLINE_MS_MAX} milliseconds and is {millis}");
            Err(invalid(field, problem))
        }
        None => Ok(()),
    }
}

fn name(field: &'static str, name: &str) -> Result {
    bounded(field, name, NAME_MAX)
}

fn bounded(field: &'static str, name: &str, max: usize) -> Result {
    if name.is_empty() || name.len() > max {
        return Err(invalid(
            field,
            format!("must be 1 to {max} bytes long and has {}", name.len()),
        ));
    }
    if name.contains(char::is_control) {
        return Err(invalid(field, "must have no control characters".to_owned()));
    }
    Ok(())
}

fn names(field: &'static str, names: &[String], max: usize) -> Result {
    if names.len() > LIST_MAX {
        return Err(invalid(field, format!("may have {LIST_MAX} names and has {}", names.len())));
    }
    names.iter().try_for_each(|name| bounded(field, name, max))
}

fn weight(weight: Option<u64>) -> Result {
    match weight {
        Some(weight) if !(1..=WEIGHT_MAX).contains(&weight) => {
            Err(invalid("weight", format!("must be 1 to {WEIGHT_MAX} and is {weight}")))
        }
        _ => Ok(()),
    }
}

fn limits(limits: &DirectoryLimits) -> Result {
    let at_least = |field, limit: Option<u64>, min: u64| match limit {
        Some(limit) if !(min..=LIMIT_MAX).contains(&limit) => {
            Err(invalid(field, format!("must be {min} to {LIMIT_MAX} and is {limit}")))
        }
        _ => Ok(()),
    };
    at_least("in_flight", limits.in_flight, 1)?;
    at_least("queued_requests", limits.queued_requests, 1)?;
    at_least("queued_bytes", limits.queued_bytes, 1)?;
    at_least("requests_per_minute", limits.requests_per_minute, 1)?;
    at_least("tokens_per_minute", limits.tokens_per_minute, 1)?;
    budgets(&limits.budgets)
}

fn budgets(budgets: &[Budget]) -> Result {
    for (place, budget) in budgets.iter().enumerate() {
        if budget.amount > LIMIT_MAX {
            let problem = format!("must be 0 to {LIMIT_MAX} and is {}", budget.amount);
            return Err(invalid("budgets", problem));
        }
        if budgets[..place].iter().any(|earlier| earlier.kind() == budget.kind()) {
            let problem = "may have one budget for each period, unit and tier and has two for one";
            return Err(invalid("budgets", problem.to_owned()));
        }
    }
    Ok(())
}
