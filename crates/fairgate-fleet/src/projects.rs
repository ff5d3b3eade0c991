//! Adds and changes projects for operators.

use std::collections::BTreeMap;

use fairgate_api::RightsPatchBody;
use fairgate_api::fleet::FleetProjectStatus;
use fairgate_api::fleet::{NewProject, ProjectPatch, ProjectShareWeight};
use fairgate_core::proportional::CreditWeight;
use fairgate_store::{
    AuditEntry, KeyRights, SqlValue, StoreError, Transaction, fields_to_set_back,
};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::agent_access;
use crate::call_context::{CallContext, bump_version, not_found, reserve_creation_order};
use crate::error::FleetError;
use crate::project_baseline;
use crate::rights::rights_patch;
use crate::validate::{self, invalid, unknown};

/// Maximum number of agents at once for a project that does not set `concurrency`.
const CONCURRENCY: u32 = 2;
/// Maximum number of agent types in the `agent_max` of a project.
const TYPES_MAX: usize = 64;

/// Settings of a project, as the audit trail shows them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct ProjectSettings {
    tenant: String,
    status: FleetProjectStatus,
    weight: ProjectShareWeight,
    concurrency: u32,
    exclusive: bool,
    agent_max: BTreeMap<String, u32>,
    requires: Vec<String>,
    budget: Option<u64>,
    rights: KeyRights,
}

impl ProjectSettings {
    fn check(&self) -> Result<(), FleetError> {
        if self.concurrency == 0 {
            return Err(invalid(
                "concurrency",
                "must be at least 1; to stop a project, set its status to PAUSED",
            ));
        }
        if self.agent_max.len() > TYPES_MAX {
            let problem = format!(
                "names {} types, and at most {TYPES_MAX} are allowed",
                self.agent_max.len()
            );
            return Err(invalid("agent_max", problem));
        }
        for kind in self.agent_max.keys() {
            validate::check_name(
                &format!("agent_max.{}", validate::cut(kind, 80)),
                kind,
                validate::NAME_MAX,
            )?;
        }
        self.budget.map_or(Ok(0), |budget| {
            validate::check_tokens("budget", budget, validate::BUDGET_MAX)
        })?;
        Ok(())
    }

    fn json(&self) -> Json {
        serde_json::to_value(self).unwrap_or_default()
    }

    /// Returns the parameters for `status`, `weight`, `concurrency`, `exclusive`, `agent_max`, `budget`, `rights` and
    /// `requires`, in this order.
    fn values(&self) -> Vec<SqlValue> {
        let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let agent_max = serde_json::to_string(&self.agent_max).unwrap_or_default();
        vec![
            <&str>::from(self.status).into(),
            signed(self.weight.0.thousandths()).into(),
            self.concurrency.into(),
            self.exclusive.into(),
            agent_max.into(),
            self.budget.map(signed).into(),
            self.rights.to_stored_text().into(),
            agent_access::stored(&self.requires).into(),
        ]
    }
}

pub(crate) fn add(
    tx: &mut dyn Transaction,
    call: &CallContext,
    project: NewProject,
) -> Result<(), FleetError> {
    let NewProject {
        id,
        tenant,
        weight,
        concurrency,
        exclusive,
        agent_max,
        requires,
        budget,
        rights,
    } = project;
    validate::check_name("id", &id, validate::NAME_MAX)?;
    let settings = ProjectSettings {
        tenant,
        status: FleetProjectStatus::Active,
        weight: weight.unwrap_or(ProjectShareWeight(CreditWeight::ONE)),
        concurrency: concurrency.unwrap_or(CONCURRENCY),
        exclusive,
        agent_max,
        requires: agent_access::checked_labels("requires", requires)?,
        budget,
        rights: patched_rights(KeyRights::default(), rights)?,
    };
    settings.check()?;
    let tenant = settings.tenant.as_str();
    let has = "SELECT 1 FROM tenants WHERE name = $1";
    if tx.first(has, &[tenant.into()], |_| Ok(()))?.is_none() {
        return Err(unknown(
            "tenant",
            format!("there is no tenant {:?}", validate::cut(tenant, 80)),
        ));
    }
    if exists(tx, &id)? {
        return Err(FleetError::Exists { what: "project", id });
    }
    let made = reserve_creation_order(tx, 1)?;
    let now = call.now;
    let mut values: Vec<SqlValue> = vec![
        id.as_str().into(),
        tenant.into(),
        made.into(),
        false.into(),
        0_i64.into(),
        now.into(),
        call.window().bucket(now).into(),
    ];
    values.extend(settings.values());
    tx.run(
        "INSERT INTO fleet_projects (id, tenant, made, busy, baseline, baseline_at, created_at, window_bucket, \
         window_tokens, window_oldest, window_completed, status, weight, concurrency, exclusive, agent_max, budget, \
         rights, requires) VALUES ($1, $2, $3, $4, $5, $6, $6, $7, $5, $5, $5, $8, $9, $10, $11, $12, $13, $14, $15)",
        &values,
    )?;
    call.audit(tx, "project.add", &id, None, Some(&settings.json()))?;
    bump_version(tx)?;
    Ok(())
}

pub(crate) fn patch(
    tx: &mut dyn Transaction,
    call: &CallContext,
    id: &str,
    patch: ProjectPatch,
) -> Result<(), FleetError> {
    let before = settings(tx, id)?.ok_or_else(|| not_found("project", id))?;
    let ProjectPatch {
        status,
        weight,
        concurrency,
        exclusive,
        agent_max,
        requires,
        budget,
        rights,
    } = patch;
    let requires = requires.map(|labels| agent_access::checked_labels("requires", labels));
    let after = ProjectSettings {
        tenant: before.tenant.clone(),
        status: status.unwrap_or(before.status),
        weight: weight.unwrap_or(before.weight),
        concurrency: concurrency.unwrap_or(before.concurrency),
        exclusive: exclusive.unwrap_or(before.exclusive),
        agent_max: agent_max.unwrap_or_else(|| before.agent_max.clone()),
        requires: requires.transpose()?.unwrap_or_else(|| before.requires.clone()),
        budget: budget.unwrap_or(before.budget),
        rights: patched_rights(before.rights.clone(), rights)?,
    };
    after.check()?;
    match after == before {
        true => Ok(()),
        false => replace(tx, call, id, &before, &after),
    }
}

/// Sets back the settings that a change had changed. Fails if one of them is no longer as the change left it.
pub(crate) fn undo_patch(
    tx: &mut dyn Transaction,
    call: &CallContext,
    entry: &AuditEntry,
) -> Result<(), FleetError> {
    let id = entry.subject.as_str();
    let before = settings(tx, id)?.ok_or_else(|| not_found("project", id))?;
    let mut after = before.json();
    for (name, value) in fields_to_set_back(entry, Some(&before))? {
        after[name] = value;
    }
    let after: ProjectSettings =
        serde_json::from_value(after).map_err(|_| StoreError::NotUndoable { entry: entry.id })?;
    replace(tx, call, id, &before, &after)
}

/// Replaces the settings of a project by others that are valid.
fn replace(
    tx: &mut dyn Transaction,
    call: &CallContext,
    id: &str,
    before: &ProjectSettings,
    after: &ProjectSettings,
) -> Result<(), FleetError> {
    if after.status == FleetProjectStatus::Archived && before.status != after.status {
        check_unheld(tx, id)?;
    }
    let mut values = after.values();
    values.push(id.into());
    tx.run(
        "UPDATE fleet_projects SET status = $1, weight = $2, concurrency = $3, exclusive = $4, agent_max = $5, \
         budget = $6, rights = $7, requires = $8 WHERE id = $9",
        &values,
    )?;
    if after.budget != before.budget {
        // An alert about the old budget is not an alert about the new one.
        let sql =
            "UPDATE fleet_projects SET budget_notified = 0, budget_notified_at = 0 WHERE id = $1";
        tx.run(sql, &[id.into()])?;
    }
    call.audit(tx, "project.patch", id, Some(&before.json()), Some(&after.json()))?;
    project_baseline::update_busy(tx, call.terms(), &[id], call.now)?;
    bump_version(tx)?;
    Ok(())
}

/// Returns the rights after a change. Fails if the change has a number or a name that is not
/// allowed.
fn patched_rights(before: KeyRights, patch: RightsPatchBody) -> Result<KeyRights, FleetError> {
    let patch = rights_patch(patch);
    match patch.check() {
        Ok(()) => Ok(before.patched(patch)),
        Err(StoreError::Invalid { field, problem }) => {
            Err(invalid(format!("rights.{field}"), problem))
        }
        Err(error) => Err(error.into()),
    }
}

/// Returns the weights of the projects that are not archived, in thousandths, in the order of their
/// creation.
pub fn project_weights(tx: &mut dyn Transaction) -> Result<Vec<(String, u64)>, StoreError> {
    let sql = "SELECT id, weight FROM fleet_projects WHERE status <> 'ARCHIVED' ORDER BY made";
    tx.list(sql, &[], |row| Ok((row.text(0)?, row.count(1)?)))
}

/// Fails if agents still work for the project, because such a project must not be archived.
fn check_unheld(tx: &mut dyn Transaction, id: &str) -> Result<(), FleetError> {
    let running = tx.first(
        concat!(
            "SELECT COUNT(*) FROM fleet_tasks WHERE state IN ",
            fairgate_usage::held_states!(),
            " AND project = $1"
        ),
        &[id.into()],
        |row| row.count(0),
    )?;
    match running.unwrap_or(0) {
        0 => Ok(()),
        running => {
            let by = format!(
                "agents work on {running} of its tasks; set its status to PAUSED and wait for them, or cancel them"
            );
            Err(FleetError::InUse { what: "project", id: id.to_owned(), by })
        }
    }
}

fn exists(tx: &mut dyn Transaction, id: &str) -> Result<bool, StoreError> {
    let found = tx.first("SELECT 1 FROM fleet_projects WHERE id = $1", &[id.into()], |_| Ok(()))?;
    Ok(found.is_some())
}

fn settings(tx: &mut dyn Transaction, id: &str) -> Result<Option<ProjectSettings>, StoreError> {
    let sql = "SELECT tenant, status, weight, concurrency, exclusive, agent_max, budget, rights, requires \
               FROM fleet_projects WHERE id = $1";
    tx.first(sql, &[id.into()], |row| {
        let wrong = |what: &str| StoreError::Database(format!("project {id:?}: its {what}"));
        let status = row.text(1)?.parse::<FleetProjectStatus>().map_err(|_| wrong("status"))?;
        let weight = CreditWeight::from_thousandths(row.count(2)?).map_err(|_| wrong("weight"))?;
        let agent_max = serde_json::from_str(&row.text(5)?).map_err(|_| wrong("agent_max"))?;
        Ok(ProjectSettings {
            tenant: row.text(0)?,
            status,
            weight: ProjectShareWeight(weight),
            concurrency: u32::try_from(row.int(3)?).map_err(|_| wrong("concurrency"))?,
            exclusive: row.flag(4)?,
            agent_max,
            budget: row.count_or_null(6)?,
            rights: KeyRights::from_stored_text(&row.text(7)?)?,
            requires: agent_access::read_list(&row.text(8)?)?,
        })
    })
}

/// Fields of a project that are needed to add tasks and workspaces.
#[derive(Clone, Debug)]
pub(crate) struct ProjectSummary {
    pub(crate) tenant: String,
    pub(crate) status: FleetProjectStatus,
    pub(crate) learned: Option<u64>,
    /// Labels that the project or its tenant requires.
    pub(crate) requires: Vec<String>,
}

/// Checks that a project exists and is not archived. `field` is the request's field that names the project.
pub(crate) fn check_not_archived(
    field: String,
    id: &str,
    known: Option<&ProjectSummary>,
) -> Result<(), FleetError> {
    match known.map(|known| known.status) {
        None => Err(unknown(field, format!("there is no project {:?}", validate::cut(id, 80)))),
        Some(FleetProjectStatus::Archived) => {
            Err(FleetError::Archived { field, project: id.to_owned() })
        }
        Some(FleetProjectStatus::Active | FleetProjectStatus::Paused) => Ok(()),
    }
}

/// Returns the project with this id; `None` if there is no such project.
pub(crate) fn known(
    tx: &mut dyn Transaction,
    id: &str,
) -> Result<Option<ProjectSummary>, StoreError> {
    let sql = "SELECT p.tenant, p.status, p.learned, p.requires, t.requires FROM fleet_projects p \
               JOIN tenants t ON t.name = p.tenant WHERE p.id = $1";
    tx.first(sql, &[id.into()], |row| {
        let unknown = || StoreError::Database(format!("project {id:?} is in an unknown status"));
        let status = row.text(1)?.parse::<FleetProjectStatus>().map_err(|_| unknown())?;
        let own = agent_access::read_list(&row.text(3)?)?;
        let requires = agent_access::union(&own, &agent_access::read_list(&row.text(4)?)?);
        let (tenant, learned) = (row.text(0)?, row.count_or_null(2)?);
        Ok(ProjectSummary { tenant, status, learned, requires })
    })
}
