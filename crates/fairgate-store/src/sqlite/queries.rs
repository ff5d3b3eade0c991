//! Read-only queries on a SQLite connection.

use fairgate_money::Currency;
use fairgate_time::UnixMicros;
use rusqlite::Connection;

use super::columns::{ask, first, list};
use crate::budget::{Budget, BudgetBalance, BudgetOwners, BudgetPeriod, BudgetScope, HOSTED_OWNER};
use crate::change::{ChangeLookup, ChangeSubject};
use crate::declaration_rows::{self, DECLARED, DECLARED_SOURCE, WHERE_KIND_AND_NAME};
use crate::directory::Directory;
use crate::error::StoreError;
use crate::ledger::{
    AttemptRow, AuditEntry, AuditQuery, LedgerQuery, PriceVersion, Reservation, UsageQuery,
    UsageSums,
};
use crate::rows::{self, RowColumns};
use crate::sql;
use crate::stored_words::StoredWord;

type Result<T> = std::result::Result<T, StoreError>;

pub(super) fn directory_version(connection: &Connection) -> Result<i64> {
    let version = first(connection, sql::DIRECTORY_VERSION, [], |row| row.int(0))?;
    version.ok_or_else(|| StoreError::Database("the table \"directory\" is empty".to_owned()))
}

/// Reads the whole directory in one snapshot.
pub(super) fn directory(connection: &Connection) -> Result<Directory> {
    let moment = connection.unchecked_transaction()?;
    let mut directory = rows::directory(
        directory_version(&moment)?,
        list(&moment, sql::GROUPS, [], |row| rows::group(row))?,
        list(&moment, sql::TENANTS, [], |row| rows::tenant(row))?,
        list(&moment, sql::KEYS, [], |row| rows::key(row))?,
        list(&moment, sql::BUDGETS, [], |row| rows::budget(row))?,
    );
    directory.set_declarations(
        list(&moment, DECLARED, [], |row| declaration_rows::record(row))?,
        first(&moment, DECLARED_SOURCE, [], |row| declaration_rows::source(row))?,
    );
    Ok(directory)
}

/// Looks up the objects that a change names.
pub(super) fn found(connection: &Connection, concern: ChangeSubject<'_>) -> Result<ChangeLookup> {
    let mut found = ChangeLookup::default();
    let budgets = |scope: BudgetScope, owner: &str| {
        let query = [sql::BUDGETS, sql::WHERE_OWNER].concat();
        let read = |row: &rusqlite::Row<'_>| Ok(rows::budget(row)?.budget);
        let mut budgets = list(connection, &query, [scope.word(), owner], read)?;
        budgets.sort_by_key(Budget::kind);
        Ok::<_, StoreError>(budgets)
    };
    if let Some((kind, name)) = concern.changed {
        let query = [DECLARED, WHERE_KIND_AND_NAME].concat();
        let values = [kind.word(), name];
        found.declared = first(connection, &query, values, |row| declaration_rows::record(row))?;
    }
    if let Some(name) = concern.group {
        let query = [sql::GROUPS, sql::WHERE_NAME].concat();
        found.group = first(connection, &query, [name], |row| rows::group(row))?;
        let tenants = first(connection, sql::TENANTS_OF_GROUP, [name], |row| row.count(0))?;
        found.tenants_of_group = tenants.unwrap_or(0);
        if let Some(group) = &mut found.group {
            group.budgets = budgets(BudgetScope::Group, name)?;
        }
    }
    if concern.hosted {
        found.hosted = budgets(BudgetScope::Hosted, HOSTED_OWNER)?;
    }
    if concern.prices {
        found.prices = prices(connection)?;
    }
    if let Some(name) = concern.tenant {
        let query = [sql::TENANTS, sql::WHERE_NAME].concat();
        found.tenant = first(connection, &query, [name], |row| rows::tenant(row))?;
        found.projects_of_tenant =
            list(connection, fairgate_usage::sql::PROJECTS_OF_TENANT, [name], |row| row.text(0))?;
        found.keys_of_tenant = list(connection, sql::KEYS_OF_TENANT, [name], |row| row.text(0))?;
        if let Some(tenant) = &mut found.tenant {
            tenant.limits.budgets = budgets(BudgetScope::Tenant, name)?;
        }
    }
    if let Some(id) = concern.key {
        let query = [sql::KEYS, sql::WHERE_ID].concat();
        found.key = first(connection, &query, [id], |row| rows::key(row))?;
        if let Some(key) = &mut found.key {
            key.limits.budgets = budgets(BudgetScope::Key, id)?;
        }
    }
    Ok(found)
}

pub(super) fn budgets(
    connection: &Connection,
    owners: BudgetOwners<'_>,
    at: UnixMicros,
) -> Result<Vec<BudgetBalance>> {
    let [day, month] = BudgetPeriod::ALL.map(|period| period.first_day(at).0);
    let BudgetOwners { group, tenant, key, model, .. } = owners;
    let values = rusqlite::params![day, month, tenant, key, group, owners.hosted_owner()];
    let mut left =
        list(connection, sql::BUDGETS_LEFT, values, |row| rows::budget_balance(row, at))?;
    if let Some(model) = model.filter(|(_, budgets)| !budgets.is_empty()) {
        let values = rusqlite::params![model.0, day, month];
        let sums = list(connection, sql::MODEL_SUMS, values, |row| rows::model_sum(row))?;
        left.extend(rows::model_budget_balances(model, &sums, at));
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

pub(super) fn usage(connection: &Connection, query: &UsageQuery) -> Result<UsageSums> {
    let rows = ask(connection, &sql::usage(query), |row| rows::usage(row, query))?;
    Ok(rows::usage_report(rows))
}

pub(super) fn attempts(connection: &Connection, query: &LedgerQuery) -> Result<Vec<AttemptRow>> {
    ask(connection, &sql::attempts(query), |row| rows::attempt(row))
}

pub(super) fn audit(connection: &Connection, query: &AuditQuery) -> Result<Vec<AuditEntry>> {
    ask(connection, &sql::audit(query), |row| rows::audit(row))
}
