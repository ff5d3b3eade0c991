//! One way to change the directory.

use fairgate_store::{Budget, Change, Changed, Limits, Unit};
use http::StatusCode;

use super::api_error::ApiError;
use super::auth::Admin;
use super::money;
use crate::app::App;
use crate::forward::unix_now;
use crate::sync;

/// Makes a change, audited, and has everything follow it before the caller hears of it.
pub(super) async fn change(app: &App, admin: &Admin, change: Change) -> Result<Changed, ApiError> {
    if counts_money(&change) && money::currency(app).await?.is_none() {
        let message = "a budget in money needs a currency and prices, or it would never count anything: add `prices` to the \
                       configuration file and reload it first";
        // Not the request is wrong: as things stand, nothing has a price.
        let status = StatusCode::CONFLICT;
        return Err(ApiError::new(status, "no_currency", message).in_field("limits"));
    }
    let changed = app.store.change(&admin.actor, unix_now(), change).await?;
    // The change is made: should following it fail now, the next look at the directory finds it.
    if let Err(error) = sync::refresh(app).await {
        tracing::warn!(%error, "a change was made and could not be read back yet");
    }
    Ok(changed)
}

/// What a change left, which the store always gives for changes of its kind.
pub(super) fn made<T>(what: Option<T>) -> Result<T, ApiError> {
    what.ok_or_else(|| {
        ApiError::unavailable("store_unavailable", "the change was made; its result is not known")
    })
}

/// Whether a change sets a budget in money.
fn counts_money(change: &Change) -> bool {
    let any = |budgets: &[Budget]| budgets.iter().any(|budget| budget.unit == Unit::Money);
    let limits = |limits: Option<&Limits>| limits.is_some_and(|limits| any(&limits.budgets));
    match change {
        Change::AddGroup { budgets, .. } | Change::SetHosted { budgets } => any(budgets),
        Change::PatchGroup { patch, .. } => patch.budgets.as_deref().is_some_and(any),
        Change::AddTenant { limits: new, .. } | Change::CreateKey { limits: new, .. } => {
            limits(Some(new))
        }
        Change::PatchTenant { patch, .. } => limits(patch.limits.as_ref()),
        Change::PatchKey { patch, .. } => limits(patch.limits.as_ref()),
        _ => false,
    }
}
