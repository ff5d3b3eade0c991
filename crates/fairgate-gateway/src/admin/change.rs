//! One way to change the directory.

use fairgate_store::{Change, Changed};

use super::api_error::ApiError;
use super::auth::Admin;
use crate::app::App;
use crate::forward::unix_now;
use crate::sync;

/// Makes a change, audited, and has everything follow it before the caller hears of it.
pub(super) async fn change(app: &App, admin: &Admin, change: Change) -> Result<Changed, ApiError> {
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
