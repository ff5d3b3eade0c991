//! The export of the ledger to the ClickHouse that the configuration names.

use std::sync::Arc;

use fairgate_config::ClickHouseConfig;
use fairgate_export::{ClickHouseTarget, ExportOptions, LedgerExport};
use fairgate_store::Store;

/// Creates the export to the ClickHouse of a configuration. The export does nothing until it is
/// run.
pub(crate) fn export_to(clickhouse: &ClickHouseConfig, store: &Store) -> Arc<LedgerExport> {
    let credential = clickhouse.user_and_password();
    let target = ClickHouseTarget {
        url: clickhouse.url.clone(),
        database: clickhouse.database.clone(),
        credential: credential.map(|(user, password)| (user.to_owned(), password.to_owned())),
        ca: clickhouse.ca.clone(),
    };
    LedgerExport::new(store.clone(), &target, ExportOptions::default())
}
