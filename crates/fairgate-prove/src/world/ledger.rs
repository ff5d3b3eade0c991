//! The ledger, read back from the database after the gateway has closed it.

use std::collections::HashSet;

use fairgate_store::{
    Attempt, By, LedgerQuery, Owners, Store, StoreError, StoreOptions, UnixMicros, UsageQuery,
};

use super::setup::now;
use crate::evidence::Ledger;

/// The most rows that the store lists at once.
const PAGE: u32 = 1000;

/// Opens the database anew and reads everything. Whatever is still reserved then was left behind.
pub(super) async fn read(url: &str, tenants: &[&str]) -> Result<Ledger, StoreError> {
    let (store, resolved) = Store::open(url, StoreOptions::default()).await?;
    let mut ledger = Ledger { reservations_left: resolved.reservations, ..Ledger::default() };
    for tenant in tenants {
        rows(&store, tenant, &mut ledger.rows).await?;
        let sums = UsageQuery {
            by: By::Outcome,
            since: UnixMicros(0),
            until: None,
            tenant: Some((*tenant).to_owned()),
            model: None,
        };
        ledger.sums.push(((*tenant).to_owned(), store.usage(sums).await?));
        let budgets = store.budgets(Owners::tenant(tenant), now()).await?;
        ledger.budgets.push(((*tenant).to_owned(), budgets));
    }
    store.close().await?;
    Ok(ledger)
}

/// All rows of a tenant, page by page from the newest. Pages overlap by rows of one microsecond, which are met twice.
async fn rows(store: &Store, tenant: &str, all: &mut Vec<Attempt>) -> Result<(), StoreError> {
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
