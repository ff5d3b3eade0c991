//! Finds the budgets of which a given part is used.

use fairgate_time::UnixMicros;

use crate::budget::{BudgetBalance, BudgetPeriod};
use crate::error::StoreError;
use crate::rows;
use crate::sql::BUDGETS_USED;
use crate::transaction::Transaction;

/// Returns the balances of those budgets of tenants and groups of which at least `percent` is used
/// in the period that contains `at`. Budgets of 0 are left out, because they serve to stop a
/// tenant.
pub fn budgets_used(
    tx: &mut dyn Transaction,
    percent: u32,
    at: UnixMicros,
) -> Result<Vec<BudgetBalance>, StoreError> {
    let [day, month] = BudgetPeriod::ALL.map(|period| period.first_day(at).0);
    let values = [day.into(), month.into(), i64::from(percent).into()];
    let balances = tx.list(BUDGETS_USED, &values, |row| rows::budget_balance(row, at))?;
    // The statement divides first, so that no product overflows. It may therefore return a few
    // budgets too many.
    Ok(balances.into_iter().filter(|balance| balance.is_used(percent)).collect())
}

impl BudgetBalance {
    /// Returns true if at least this percentage of the limit is used.
    pub fn is_used(&self, percent: u32) -> bool {
        u128::from(self.used) * 100 >= u128::from(self.limit) * u128::from(percent)
    }
}
