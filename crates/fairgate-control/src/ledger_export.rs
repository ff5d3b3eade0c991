//! The export of the ledger to ClickHouse, as the configuration asks for it.

use std::sync::Arc;

use fairgate_config::ClickHouseConfig;
use fairgate_export::{ClickHouseTarget, ExportOptions, LedgerExport};
use fairgate_proxy::phase::GatewayPhase;
use fairgate_store::Store;

use crate::control_plane::ControlPlane;

/// Creates the export to the ClickHouse of a configuration. It does nothing before it is run.
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

/// Exports the ledger, if the configuration asks for it, until the gateway closes. The rows of the last moments stay in the
/// ledger for the next process.
pub async fn export_until_closing(app: Arc<ControlPlane>) {
    let Some(export) = app.export.clone() else { return };
    let mut phase = app.data.phase.watch();
    tokio::select! {
        () = export.run() => {}
        _ = phase.wait_for(|stage| *stage >= GatewayPhase::Closing) => {}
    }
}
