//! Keeps track of busy and idle tenants and sets their baselines, if the fleet shares agents
//! between tenants first.
//!
//! A tenant is busy while one of its projects is busy. The rule of [`crate::project_baseline`]
//! applies to tenants too: a tenant that was idle starts at the level of the busy tenant that has
//! spent the fewest tokens per weight. A tenant's spent tokens are the sum of what its projects
//! were charged. The baselines of the projects are not in the sum: they serve only to compare
//! projects of one tenant, and otherwise a tenant would pay for adding a project.

use fairgate_store::{StoreError, Transaction};
use fairgate_time::UnixMicros;
use fairgate_usage::CreditSums;
use serde_json::json;

use crate::baseline::{ProjectLevel, baseline};
use crate::json_rows;
use crate::project_account::ProjectAccount;
use crate::window_usage::{UsageWindow, WindowSums};

/// Number of thousandths in a tenant's weight of 1.
const THOUSANDTHS: u64 = 1_000;

/// A tenant with projects, with the data by which tenants share agents.
#[derive(Clone, Debug)]
pub(crate) struct TenantRow {
    pub(crate) name: String,
    /// Weight in the directory, in thousandths.
    pub(crate) weight: u64,
    /// True if one of the tenant's projects is busy now.
    is_busy: bool,
    /// True if one of them was busy when `busy` was last written.
    was_busy: bool,
    /// Tokens that the tenant's projects were charged in the window.
    charged: u64,
    /// Part of the tenant's baseline that has not faded yet, in tokens.
    pub(crate) baseline: u64,
}

/// Returns the tenants that have projects, ordered by name.
pub(crate) fn tenants(
    tx: &mut dyn Transaction,
    window: UsageWindow,
    now: UnixMicros,
) -> Result<Vec<TenantRow>, StoreError> {
    let sql = format!(
        "SELECT p.tenant, t.weight, p.busy, COALESCE(f.baseline, 0), COALESCE(f.baseline_at, 0), \
         EXISTS (SELECT 1 FROM fleet_tenants b WHERE b.tenant = p.tenant AND b.busy), {}, {} \
         FROM fleet_projects p JOIN tenants t ON t.name = p.tenant \
         LEFT JOIN fleet_tenants f ON f.tenant = p.tenant ORDER BY p.tenant",
        WindowSums::COLUMNS,
        CreditSums::COLUMNS
    );
    let mut tenants: Vec<TenantRow> = Vec::new();
    tx.each(&sql, &[], &mut |row| {
        let account = ProjectAccount {
            baseline: row.count(3)?,
            baseline_at: row.moment(4)?,
            sums: WindowSums::read(row, 6)?,
            credit: CreditSums::read(row, 10)?,
        };
        let (name, is_busy) = (row.text(0)?, row.flag(2)?);
        let charged = account.charged(window, now);
        match tenants.last_mut().filter(|tenant| tenant.name == name) {
            Some(tenant) => {
                tenant.is_busy |= is_busy;
                tenant.charged = tenant.charged.saturating_add(charged);
            }
            None => tenants.push(TenantRow {
                name,
                weight: row.count(1)?.max(1).saturating_mul(THOUSANDTHS),
                is_busy,
                was_busy: row.flag(5)?,
                charged,
                baseline: account.baseline(window, now),
            }),
        }
        Ok(())
    })?;
    Ok(tenants)
}

/// Writes which tenants are busy, and sets the baselines of those that became busy. Must be called
/// after the projects' `busy` was written.
pub(crate) fn update_busy(
    tx: &mut dyn Transaction,
    window: UsageWindow,
    now: UnixMicros,
) -> Result<(), StoreError> {
    let tenants = tenants(tx, window, now)?;
    let level = |tenant: &TenantRow| {
        let TenantRow { weight, charged, baseline, .. } = *tenant;
        ProjectLevel { weight, spent: charged, baseline }
    };
    // Tenants that become busy are compared with those that were busy already.
    let others: Vec<_> = tenants.iter().filter(|it| it.was_busy && it.is_busy).map(level).collect();
    let row = |tenant: &TenantRow| {
        let level = level(tenant);
        let joins = baseline(level.weight, level.spent, others.iter().copied());
        let joins = if tenant.is_busy { joins.max(level.baseline) } else { level.baseline };
        let joins = i64::try_from(joins).unwrap_or(i64::MAX);
        json!([tenant.name, i64::from(tenant.is_busy), joins])
    };
    let changed = tenants.iter().filter(|tenant| tenant.is_busy != tenant.was_busy);
    let rows: Vec<_> = changed.map(row).collect();
    if rows.is_empty() {
        return Ok(());
    }
    let table = json_rows::table(tx.database(), 2, &["TEXT", "BIGINT", "BIGINT"]);
    let sql = format!(
        "INSERT INTO fleet_tenants (tenant, busy, baseline, baseline_at) \
         SELECT v.column1, v.column2 = 1, v.column3, CAST($1 AS BIGINT) FROM {table} AS v WHERE true \
         ON CONFLICT (tenant) DO UPDATE SET busy = excluded.busy, baseline = excluded.baseline, \
         baseline_at = excluded.baseline_at"
    );
    tx.run(&sql, &[now.into(), json_rows::value(rows)])?;
    Ok(())
}
