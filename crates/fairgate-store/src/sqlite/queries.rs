//! What is only read.

use fairgate_money::{Currency, UnixMicros};
use rusqlite::Connection;

use super::columns::{ask, first, list};
use crate::budget::{Budget, BudgetLeft, HOSTED_OWNER, Owners, Period, Scope};
use crate::change::{Concern, Found};
use crate::directory::Directory;
use crate::error::StoreError;
use crate::ledger::{
    Attempt, AuditEntry, AuditQuery, LedgerQuery, PriceVersion, Reservation, UsageQuery, UsageRow,
};
use crate::rows::{self, Columns};
use crate::sql;
use crate::words::Word;

type Result<T> = std::result::Result<T, StoreError>;

pub(super) fn directory_version(connection: &Connection) -> Result<i64> {
    let version = first(connection, sql::DIRECTORY_VERSION, [], |row| row.int(0))?;
    version.ok_or_else(|| StoreError::Database("the table \"directory\" is empty".to_owned()))
}

/// The whole directory, as it was at one moment.
pub(super) fn directory(connection: &Connection) -> Result<Directory> {
    let moment = connection.unchecked_transaction()?;
    Ok(rows::directory(
        directory_version(&moment)?,
        list(&moment, sql::GROUPS, [], |row| rows::group(row))?,
        list(&moment, sql::TENANTS, [], |row| rows::tenant(row))?,
        list(&moment, sql::KEYS, [], |row| rows::key(row))?,
        list(&moment, sql::BUDGETS, [], |row| rows::budget(row))?,
    ))
}

/// What a change is about.
pub(super) fn found(connection: &Connection, concern: Concern<'_>) -> Result<Found> {
    let mut found = Found::default();
    let budgets = |scope: Scope, owner: &str| {
        let query = [sql::BUDGETS, sql::WHERE_OWNER].concat();
        let read = |row: &rusqlite::Row<'_>| Ok(rows::budget(row)?.budget);
        let mut budgets = list(connection, &query, [scope.word(), owner], read)?;
        budgets.sort_by_key(Budget::kind);
        Ok::<_, StoreError>(budgets)
    };
    if let Some(name) = concern.group {
        let query = [sql::GROUPS, sql::WHERE_NAME].concat();
        found.group = first(connection, &query, [name], |row| rows::group(row))?;
        let tenants = first(connection, sql::TENANTS_OF_GROUP, [name], |row| row.count(0))?;
        found.tenants_of_group = tenants.unwrap_or(0);
        if let Some(group) = &mut found.group {
            group.budgets = budgets(Scope::Group, name)?;
        }
    }
    if concern.hosted {
        found.hosted = budgets(Scope::Hosted, HOSTED_OWNER)?;
    }
    if concern.prices {
        found.prices = prices(connection)?;
    }
    if let Some(name) = concern.tenant {
        let query = [sql::TENANTS, sql::WHERE_NAME].concat();
        found.tenant = first(connection, &query, [name], |row| rows::tenant(row))?;
        found.projects_of_tenant =
            list(connection, sql::PROJECTS_OF_TENANT, [name], |row| row.text(0))?;
        found.keys_of_tenant = list(connection, sql::KEYS_OF_TENANT, [name], |row| row.text(0))?;
        if let Some(tenant) = &mut found.tenant {
            tenant.limits.budgets = budgets(Scope::Tenant, name)?;
        }
    }
    if let Some(id) = concern.key {
        let query = [sql::KEYS, sql::WHERE_ID].concat();
        found.key = first(connection, &query, [id], |row| rows::key(row))?;
        if let Some(key) = &mut found.key {
            key.limits.budgets = budgets(Scope::Key, id)?;
        }
    }
    Ok(found)
}

pub(super) fn budgets(
    connection: &Connection,
    owners: Owners<'_>,
    at: UnixMicros,
) -> Result<Vec<BudgetLeft>> {
    let [day, month] = Period::ALL.map(|period| period.first_day(at).0);
    let Owners { group, tenant, key, model, .. } = owners;
    let values = rusqlite::params![day, month, tenant, key, group, owners.hosted_owner()];
    let mut left = list(connection, sql::BUDGETS_LEFT, values, |row| rows::budget_left(row, at))?;
    if let Some(model) = model.filter(|(_, budgets)| !budgets.is_empty()) {
        let values = rusqlite::params![model.0, day, month];
        let sums = list(connection, sql::MODEL_SUMS, values, |row| rows::model_sum(row))?;
        left.extend(rows::model_budgets_left(model, &sums, at));
        left.sort_by_key(|left| left.scope);
    }
    Ok(left)
}

pub(super) fn prices(connection: &Connection) -> Result<Vec<PriceVersion>> {
    list(connection, sql::PRICES, [], |row| rows::price(row))
}

pub(super) fn currency(connection: &Connection) -> Result<Option<Currency>> {
    first(connection, sql::CURRENCY, [], |row| rows::currency(row, 0))
}

pub(super) fn reservations(connection: &Connection) -> Result<Vec<Reservation>> {
    list(connection, sql::RESERVATIONS, [], |row| rows::reservation(row))
}

pub(super) fn usage(connection: &Connection, query: &UsageQuery) -> Result<Vec<UsageRow>> {
    ask(connection, &sql::usage(query), |row| rows::usage(row, query.by))
}

pub(super) fn attempts(connection: &Connection, query: &LedgerQuery) -> Result<Vec<Attempt>> {
    ask(connection, &sql::attempts(query), |row| rows::attempt(row))
}

pub(super) fn audit(connection: &Connection, query: &AuditQuery) -> Result<Vec<AuditEntry>> {
    ask(connection, &sql::audit(query), |row| rows::audit(row))
}
