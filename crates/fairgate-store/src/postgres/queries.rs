//! Read-only queries, and changes of the directory.

use fairgate_money::Currency;
use fairgate_time::UnixMicros;
use tokio_postgres::Row;

use super::connection::{PostgresSession, SUM_TIMEOUT};
use super::error::PostgresError;
use super::sql::{LOCK_DIRECTORY, SYNCED};
use crate::budget::{Budget, BudgetBalance, BudgetOwners, BudgetPeriod, BudgetScope, HOSTED_OWNER};
use crate::change::{ChangeLookup, ChangeSubject};
use crate::declaration_rows::{self, DECLARED, DECLARED_SOURCE, WHERE_KIND_AND_NAME};
use crate::directory::{Directory, DirectoryChange, DirectoryChangeResult};
use crate::error::StoreError;
use crate::ledger::{
    AttemptRow, AuditEntry, AuditQuery, LedgerQuery, PriceVersion, UsageQuery, UsageSums,
};
use crate::rows::{self, RowColumns};
use crate::sql::{self, SqlStatement, SqlValue};
use crate::stored_words::StoredWord;

type Result<T> = std::result::Result<T, PostgresError>;

fn text(text: &str) -> SqlValue {
    SqlValue::Text(text.to_owned())
}

pub(super) async fn directory_version(session: &PostgresSession) -> Result<i64> {
    let version = session.first(sql::DIRECTORY_VERSION, &[], |row| row.int(0)).await?;
    Ok(version.ok_or_else(no_directory)?)
}

fn no_directory() -> StoreError {
    StoreError::Database("the table \"directory\" is empty".to_owned())
}

/// Reads the whole directory in one snapshot.
pub(super) async fn directory(session: &PostgresSession) -> Result<Directory> {
    session.run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
    let mut directory = rows::directory(
        directory_version(session).await?,
        session.list(sql::GROUPS, &[], rows::group).await?,
        session.list(sql::TENANTS, &[], rows::tenant).await?,
        session.list(sql::KEYS, &[], rows::key).await?,
        session.list(sql::BUDGETS, &[], rows::budget).await?,
    );
    directory.set_declarations(
        session.list(DECLARED, &[], declaration_rows::record).await?,
        session.first(DECLARED_SOURCE, &[], declaration_rows::source).await?,
    );
    session.run("COMMIT").await?;
    Ok(directory)
}

/// Looks up the objects that a change names.
async fn found(session: &PostgresSession, concern: ChangeSubject<'_>) -> Result<ChangeLookup> {
    let mut found = ChangeLookup::default();
    if let Some((kind, name)) = concern.changed {
        let query = [DECLARED, WHERE_KIND_AND_NAME].concat();
        let values = [text(kind.word()), text(name)];
        found.declared = session.first(&query, &values, declaration_rows::record).await?;
    }
    if let Some(name) = concern.group {
        let query = [sql::GROUPS, sql::WHERE_NAME].concat();
        found.group = session.first(&query, &[text(name)], rows::group).await?;
        let tenants =
            session.first(sql::TENANTS_OF_GROUP, &[text(name)], |row| row.count(0)).await?;
        found.tenants_of_group = tenants.unwrap_or(0);
        if let Some(group) = &mut found.group {
            group.budgets = budgets_of(session, BudgetScope::Group, name).await?;
        }
    }
    if concern.hosted {
        found.hosted = budgets_of(session, BudgetScope::Hosted, HOSTED_OWNER).await?;
    }
    if concern.prices {
        found.prices = prices(session).await?;
    }
    if let Some(name) = concern.tenant {
        let query = [sql::TENANTS, sql::WHERE_NAME].concat();
        found.tenant = session.first(&query, &[text(name)], rows::tenant).await?;
        found.projects_of_tenant = session
            .list(fairgate_usage::sql::PROJECTS_OF_TENANT, &[text(name)], |row| row.text(0))
            .await?;
        found.keys_of_tenant =
            session.list(sql::KEYS_OF_TENANT, &[text(name)], |row| row.text(0)).await?;
        if let Some(tenant) = &mut found.tenant {
            tenant.limits.budgets = budgets_of(session, BudgetScope::Tenant, name).await?;
        }
    }
    if let Some(id) = concern.key {
        let query = [sql::KEYS, sql::WHERE_ID].concat();
        found.key = session.first(&query, &[text(id)], rows::key).await?;
        if let Some(key) = &mut found.key {
            key.limits.budgets = budgets_of(session, BudgetScope::Key, id).await?;
        }
    }
    Ok(found)
}

async fn budgets_of(
    session: &PostgresSession,
    scope: BudgetScope,
    owner: &str,
) -> Result<Vec<Budget>> {
    let query = [sql::BUDGETS, sql::WHERE_OWNER].concat();
    let values = [text(scope.word()), text(owner)];
    let mut budgets = session.list(&query, &values, |row| Ok(rows::budget(row)?.budget)).await?;
    budgets.sort_by_key(Budget::kind);
    Ok(budgets)
}

pub(super) async fn prices(session: &PostgresSession) -> Result<Vec<PriceVersion>> {
    session.list(sql::PRICES, &[], rows::price).await
}

/// Returns the number of other live processes on the database.
pub(super) async fn other_gateways(session: &PostgresSession) -> Result<u64> {
    let live = session.first(super::sql::LIVE_INSTANCES, &[], |row| row.count(0)).await?;
    Ok(live.unwrap_or(0).saturating_sub(1))
}

pub(super) async fn currency(session: &PostgresSession) -> Result<Option<Currency>> {
    session.first(sql::CURRENCY, &[], |row| rows::currency(row, 0)).await
}

/// Applies a change of the directory. Only one change at a time runs, over all processes. The
/// change is on the server's disk when this function returns.
pub(super) async fn change(
    session: &PostgresSession,
    actor: &str,
    at: UnixMicros,
    change: &DirectoryChange,
) -> Result<DirectoryChangeResult> {
    session.run(&format!("BEGIN; {SYNCED}")).await?;
    let version = session.first(LOCK_DIRECTORY, &[], |row| row.int(0)).await?;
    let mut version = version.ok_or_else(no_directory)?;
    let edit = change.edit(actor, at, found(session, change.subject()).await?)?;
    if !edit.statements.is_empty() && change.changes_directory() {
        let bumped = session.first(sql::BUMP_VERSION, &[], |row| row.int(0)).await?;
        version = bumped.ok_or_else(no_directory)?;
    }
    for SqlStatement { sql, values } in &edit.statements {
        session.client.execute(sql, &super::connection::references(values)).await?;
    }
    session.run("COMMIT").await?;
    Ok(DirectoryChangeResult { version, ..edit.changed })
}

pub(super) async fn budgets(
    session: &PostgresSession,
    owners: BudgetOwners<'_>,
    at: UnixMicros,
) -> Result<Vec<BudgetBalance>> {
    let days = BudgetPeriod::ALL.map(|period| SqlValue::Int(period.first_day(at).0));
    let [day, month] = days;
    let names = [owners.tenant, owners.key, owners.group, owners.hosted_owner()];
    let [tenant, key, group, hosted] =
        names.map(|name| SqlValue::MaybeText(name.map(str::to_owned)));
    let values = [day, month, tenant, key, group, hosted];
    let mut left =
        session.list(sql::BUDGETS_LEFT, &values, |row| rows::budget_balance(row, at)).await?;
    if let Some(model) = owners.model.filter(|(_, budgets)| !budgets.is_empty()) {
        let [day, month, ..] = values;
        let values = [text(model.0), day, month];
        let sums = session.list(sql::MODEL_SUMS, &values, rows::model_sum).await?;
        left.extend(rows::model_budget_balances(model, &sums, at));
        left.sort_by_key(|left| left.scope);
    }
    Ok(left)
}

async fn ask<T>(
    session: &PostgresSession,
    statement: SqlStatement,
    read: impl Fn(&Row) -> std::result::Result<T, StoreError>,
) -> Result<Vec<T>> {
    session.list(&statement.sql, &statement.values, read).await
}

/// Returns sums of ledger rows. The server may take up to [`SUM_TIMEOUT`] to compute them.
pub(super) async fn usage(session: &PostgresSession, query: &UsageQuery) -> Result<UsageSums> {
    let limit = SUM_TIMEOUT.as_millis();
    session.run(&format!("BEGIN READ ONLY; SET LOCAL statement_timeout = {limit}")).await?;
    let sums = ask(session, sql::usage(query), |row| rows::usage(row, query)).await?;
    session.run("COMMIT").await?;
    Ok(rows::usage_report(sums))
}

pub(super) async fn attempts(
    session: &PostgresSession,
    query: &LedgerQuery,
) -> Result<Vec<AttemptRow>> {
    ask(session, sql::attempts(query), rows::attempt).await
}

pub(super) async fn audit(
    session: &PostgresSession,
    query: &AuditQuery,
) -> Result<Vec<AuditEntry>> {
    ask(session, sql::audit(query), rows::audit).await
}

pub(super) async fn prune_some(session: &PostgresSession, before: UnixMicros) -> Result<u64> {
    Ok(session.client.execute(sql::PRUNE, &[&before.0, &sql::PRUNE_ROWS]).await?)
}

pub(super) async fn ping(session: &PostgresSession) -> Result<()> {
    session.first(sql::PING, &[], |row| row.int(0)).await.map(drop)
}
