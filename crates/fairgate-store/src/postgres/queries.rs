//! What is only read, and changes of the directory.

use fairgate_money::{Currency, UnixMicros};
use tokio_postgres::Row;

use super::link::{SUM_TIMEOUT, Session};
use super::sql::LOCK_DIRECTORY;
use super::trouble::Trouble;
use crate::budget::{Budget, BudgetLeft, HOSTED_OWNER, Owners, Period, Scope};
use crate::change::{Concern, Found};
use crate::directory::{Change, Changed, Directory};
use crate::error::StoreError;
use crate::ledger::{
    Attempt, AuditEntry, AuditQuery, LedgerQuery, PriceVersion, UsageQuery, UsageRow,
};
use crate::rows::{self, Columns};
use crate::sql::{self, Statement, Value};
use crate::words::Word;

type Result<T> = std::result::Result<T, Trouble>;

fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

pub(super) async fn directory_version(session: &Session) -> Result<i64> {
    let version = session.first(sql::DIRECTORY_VERSION, &[], |row| row.int(0)).await?;
    Ok(version.ok_or_else(no_directory)?)
}

fn no_directory() -> StoreError {
    StoreError::Database("the table \"directory\" is empty".to_owned())
}

/// The whole directory, as it was at one moment.
pub(super) async fn directory(session: &Session) -> Result<Directory> {
    session.run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
    let directory = rows::directory(
        directory_version(session).await?,
        session.list(sql::GROUPS, &[], rows::group).await?,
        session.list(sql::TENANTS, &[], rows::tenant).await?,
        session.list(sql::KEYS, &[], rows::key).await?,
        session.list(sql::BUDGETS, &[], rows::budget).await?,
    );
    session.run("COMMIT").await?;
    Ok(directory)
}

/// What a change is about.
async fn found(session: &Session, concern: Concern<'_>) -> Result<Found> {
    let mut found = Found::default();
    if let Some(name) = concern.group {
        let query = [sql::GROUPS, sql::WHERE_NAME].concat();
        found.group = session.first(&query, &[text(name)], rows::group).await?;
        let tenants =
            session.first(sql::TENANTS_OF_GROUP, &[text(name)], |row| row.count(0)).await?;
        found.tenants_of_group = tenants.unwrap_or(0);
        if let Some(group) = &mut found.group {
            group.budgets = budgets_of(session, Scope::Group, name).await?;
        }
    }
    if concern.hosted {
        found.hosted = budgets_of(session, Scope::Hosted, HOSTED_OWNER).await?;
    }
    if concern.prices {
        found.prices = prices(session).await?;
    }
    if let Some(name) = concern.tenant {
        let query = [sql::TENANTS, sql::WHERE_NAME].concat();
        found.tenant = session.first(&query, &[text(name)], rows::tenant).await?;
        found.projects_of_tenant =
            session.list(sql::PROJECTS_OF_TENANT, &[text(name)], |row| row.text(0)).await?;
        found.keys_of_tenant =
            session.list(sql::KEYS_OF_TENANT, &[text(name)], |row| row.text(0)).await?;
        if let Some(tenant) = &mut found.tenant {
            tenant.limits.budgets = budgets_of(session, Scope::Tenant, name).await?;
        }
    }
    if let Some(id) = concern.key {
        let query = [sql::KEYS, sql::WHERE_ID].concat();
        found.key = session.first(&query, &[text(id)], rows::key).await?;
        if let Some(key) = &mut found.key {
            key.limits.budgets = budgets_of(session, Scope::Key, id).await?;
        }
    }
    Ok(found)
}

async fn budgets_of(session: &Session, scope: Scope, owner: &str) -> Result<Vec<Budget>> {
    let query = [sql::BUDGETS, sql::WHERE_OWNER].concat();
    let values = [text(scope.word()), text(owner)];
    let mut budgets = session.list(&query, &values, |row| Ok(rows::budget(row)?.budget)).await?;
    budgets.sort_by_key(Budget::kind);
    Ok(budgets)
}

pub(super) async fn prices(session: &Session) -> Result<Vec<PriceVersion>> {
    session.list(sql::PRICES, &[], rows::price).await
}

pub(super) async fn currency(session: &Session) -> Result<Option<Currency>> {
    session.first(sql::CURRENCY, &[], |row| rows::currency(row, 0)).await
}

/// Has a commit wait for the server's disk, where somebody has set the database to acknowledge before that: a revoked key must
/// not come back. Stricter settings, which wait for other servers too, stay.
const SYNCED: &str = "SELECT set_config('synchronous_commit', 'on', true) \
     WHERE current_setting('synchronous_commit') = 'off'";

/// Makes a change, one at a time over all processes. It is on the server's disk when this returns.
pub(super) async fn change(
    session: &Session,
    actor: &str,
    at: UnixMicros,
    change: &Change,
) -> Result<Changed> {
    session.run(&format!("BEGIN; {SYNCED}")).await?;
    let version = session.first(LOCK_DIRECTORY, &[], |row| row.int(0)).await?;
    let mut version = version.ok_or_else(no_directory)?;
    let edit = change.edit(actor, at, found(session, change.concern()).await?)?;
    if !edit.statements.is_empty() {
        let bumped = session.first(sql::BUMP_VERSION, &[], |row| row.int(0)).await?;
        version = bumped.ok_or_else(no_directory)?;
    }
    for Statement { sql, values } in &edit.statements {
        session.client.execute(sql, &super::link::references(values)).await?;
    }
    session.run("COMMIT").await?;
    Ok(Changed { version, ..edit.changed })
}

pub(super) async fn budgets(
    session: &Session,
    owners: Owners<'_>,
    at: UnixMicros,
) -> Result<Vec<BudgetLeft>> {
    let days = Period::ALL.map(|period| Value::Int(period.first_day(at).0));
    let [day, month] = days;
    let names = [owners.tenant, owners.key, owners.group, owners.hosted_owner()];
    let [tenant, key, group, hosted] = names.map(|name| Value::MaybeText(name.map(str::to_owned)));
    let values = [day, month, tenant, key, group, hosted];
    let mut left =
        session.list(sql::BUDGETS_LEFT, &values, |row| rows::budget_left(row, at)).await?;
    if let Some(model) = owners.model.filter(|(_, budgets)| !budgets.is_empty()) {
        let [day, month, ..] = values;
        let values = [text(model.0), day, month];
        let sums = session.list(sql::MODEL_SUMS, &values, rows::model_sum).await?;
        left.extend(rows::model_budgets_left(model, &sums, at));
        left.sort_by_key(|left| left.scope);
    }
    Ok(left)
}

async fn ask<T>(
    session: &Session,
    statement: Statement,
    read: impl Fn(&Row) -> std::result::Result<T, StoreError>,
) -> Result<Vec<T>> {
    session.list(&statement.sql, &statement.values, read).await
}

/// Sums, which may take longer than other answers.
pub(super) async fn usage(session: &Session, query: &UsageQuery) -> Result<Vec<UsageRow>> {
    let limit = SUM_TIMEOUT.as_millis();
    session.run(&format!("BEGIN READ ONLY; SET LOCAL statement_timeout = {limit}")).await?;
    let sums = ask(session, sql::usage(query), |row| rows::usage(row, query.by)).await?;
    session.run("COMMIT").await?;
    Ok(sums)
}

pub(super) async fn attempts(session: &Session, query: &LedgerQuery) -> Result<Vec<Attempt>> {
    ask(session, sql::attempts(query), rows::attempt).await
}

pub(super) async fn audit(session: &Session, query: &AuditQuery) -> Result<Vec<AuditEntry>> {
    ask(session, sql::audit(query), rows::audit).await
}

pub(super) async fn prune_some(session: &Session, before: UnixMicros) -> Result<u64> {
    Ok(session.client.execute(sql::PRUNE, &[&before.0, &sql::PRUNE_ROWS]).await?)
}

pub(super) async fn ping(session: &Session) -> Result<()> {
    session.first(sql::PING, &[], |row| row.int(0)).await.map(drop)
}
