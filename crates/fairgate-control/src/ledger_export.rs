//! The task that exports the ledger.

use std::sync::Arc;

use fairgate_proxy::phase::GatewayPhase;

use crate::control_plane::ControlPlane;

/// Exports the ledger, if the configuration asks for it, until the gateway closes. Rows that were
/// not exported by then are exported by the next process.
pub async fn export_until_closing(app: Arc<ControlPlane>) {
    let Some(export) = app.export.clone() else { return };
    let mut phase = app.data.phase.watch();
    tokio::select! {
        () = export.run() => {}
        _ = phase.wait_for(|stage| *stage >= GatewayPhase::Closing) => {}
    }
}
