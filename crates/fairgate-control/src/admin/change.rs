//! The one function through which the admin API changes the directory.

use fairgate_store::{Budget, BudgetUnit, DirectoryChange, DirectoryChangeResult, DirectoryLimits};
use http::StatusCode;

use super::api_error::ApiError;
use super::auth::AdminCaller;
use super::money;
use crate::control_plane::ControlPlane;
use fairgate_time::wall_clock;

/// Changes the directory, and audits the change. When this function returns, keys, limits and pools already use the new
/// state.
pub(super) async fn change(
    app: &ControlPlane,
    admin: &AdminCaller,
    change: DirectoryChange,
) -> Result<DirectoryChangeResult, ApiError> {
    if counts_money(&change) && money::currency(app).await?.is_none() {
        let message = "a budget in money needs a currency and prices, or it would never count anything: add `prices` to the \
                       configuration file and reload it first";
        // A conflict, because the request is well-formed: nothing has a price yet.
        let status = StatusCode::CONFLICT;
        return Err(ApiError::new(status, "no_currency", message).in_field("limits"));
    }
    let changed = app.data.store.change(&admin.actor, wall_clock::now(), change).await?;
    // The change is stored. If the refresh fails now, the next one applies it.
    if let Err(error) = app.data.directory_sync.refresh().await {
        tracing::warn!(%error, "a change was made and could not be read back yet");
    }
    Ok(changed)
}

/// Returns the result of a change. Returns an error if the store gave none, which does not happen for this kind of
/// change.
pub(super) fn require_result<T>(what: Option<T>) -> Result<T, ApiError> {
    what.ok_or_else(|| {
        ApiError::unavailable("store_unavailable", "the change was made; its result is not known")
    })
}

/// Returns true if the change sets a budget in money.
fn counts_money(change: &DirectoryChange) -> bool {
    let any = |budgets: &[Budget]| budgets.iter().any(|budget| budget.unit == BudgetUnit::Money);
    let limits =
        |limits: Option<&DirectoryLimits>| limits.is_some_and(|limits| any(&limits.budgets));
    match change {
        DirectoryChange::AddGroup { budgets, .. } | DirectoryChange::SetHosted { budgets } => {
            any(budgets)
        }
        DirectoryChange::PatchGroup { patch, .. } => patch.budgets.as_deref().is_some_and(any),
        DirectoryChange::AddTenant { limits: new, .. }
        | DirectoryChange::CreateKey { limits: new, .. } => limits(Some(new)),
        DirectoryChange::PatchTenant { patch, .. } => limits(patch.limits.as_ref()),
        DirectoryChange::PatchKey { patch, .. } => limits(patch.limits.as_ref()),
        _ => false,
    }
}
