//! Reads the ledger from the database after the gateway has closed it.

use std::collections::HashSet;

use fairgate_store::{
    AttemptRow, BudgetOwners, LedgerQuery, Store, StoreError, StoreOptions, UnixMicros,
    UsageGrouping, UsageQuery,
};

use crate::evidence::LedgerEvidence;
use fairgate_time::wall_clock;

/// Greatest number of rows that the store returns per page.
const PAGE: u32 = 1000;

/// Opens the database again and reads one ledger for each of `models`; `None` stands for all
/// models. Counts the reservations that are still open, which the gateway should have settled.
pub(super) async fn read(
    url: &str,
    tenants: &[&str],
    models: &[Option<&str>],
) -> Result<Vec<LedgerEvidence>, StoreError> {
    let (store, resolved) = Store::open(url, StoreOptions::default()).await?;
    let mut ledgers = Vec::new();
    for model in models {
        let mut ledger = of_model(&store, tenants, *model).await?;
        ledger.reservations_left = resolved.reservations;
        ledgers.push(ledger);
    }
    store.close().await?;
    Ok(ledgers)
}

async fn of_model(
    store: &Store,
    tenants: &[&str],
    model: Option<&str>,
) -> Result<LedgerEvidence, StoreError> {
    let mut ledger = LedgerEvidence::default();
    for tenant in tenants {
        rows(store, tenant, &mut ledger.rows).await?;
        let sums = UsageQuery {
            by: UsageGrouping::Outcome,
            since: UnixMicros(0),
            until: None,
            tenant: Some((*tenant).to_owned()),
            model: model.map(str::to_owned),
            ..UsageQuery::default()
        };
        ledger.sums.push(((*tenant).to_owned(), store.usage(sums).await?.rows));
        let budgets = store.budgets(BudgetOwners::tenant(tenant), wall_clock::now()).await?;
        ledger.budgets.push(((*tenant).to_owned(), budgets));
    }
    ledger.rows.retain(|row| model.is_none_or(|model| row.model == model));
    Ok(ledger)
}

/// Reads all rows of a tenant, page by page from the newest. Rows that started in the microsecond
/// of a page's oldest row are read again with the next page, and the duplicates are dropped.
async fn rows(store: &Store, tenant: &str, all: &mut Vec<AttemptRow>) -> Result<(), StoreError> {
    let mut met = HashSet::new();
    let mut until = None;
    loop {
        let query = LedgerQuery {
            tenant: Some(tenant.to_owned()),
            until,
            limit: PAGE,
            ..LedgerQuery::default()
        };
        let page = store.attempts(query).await?;
        let oldest = page.last().map(|row| UnixMicros(row.started_at.0 + 1));
        let before = all.len();
        all.extend(page.into_iter().filter(|row| met.insert((row.request.clone(), row.attempt))));
        if oldest.is_none() || all.len() == before {
            return Ok(());
        }
        until = oldest;
    }
}
