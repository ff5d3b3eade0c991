//! Reloads the configuration file, for SIGHUP and for the admin API.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use fairgate_config::{ConfigError, ConfigErrors, ConfigReload, ProcessEnvironment, ReloadPlan};
use fairgate_control::control_plane::{
    AppliedReload, CheckFuture, ConfigPreview, ConfigReloader, ReloadFuture,
};
use fairgate_gateway::{Gateway, GatewayDeclarationError, GatewayReloadError};
use fairgate_store::DirectoryChange;

use fairgate_time::wall_clock;

/// Reads the file, checks it, and only then applies it.
pub(super) async fn reload(
    gateway: &Gateway,
    file: &Path,
    actor: &str,
    may_disable_most: bool,
) -> Result<AppliedReload, ConfigErrors> {
    let current = gateway.data_plane().config.load_full();
    let path = file.to_owned();
    // The file, and the files that it names, may be on a disk that hangs.
    let read = move || ConfigReload::from_file(&current, &path, &ProcessEnvironment);
    let read = tokio::task::spawn_blocking(read).await;
    let reload = read.map_err(|problem| about(file, problem.to_string()))??;
    let reloaded = match may_disable_most {
        true => gateway.reload_disabling_any(reload.next).await,
        false => gateway.reload(reload.next).await,
    };
    let reloaded = reloaded.map_err(|error| errors(file, error))?;
    if !reloaded.plan.is_empty() {
        audit(gateway, &reloaded.plan, actor).await;
    }
    Ok(reloaded)
}

/// Checks a text as if it were the file, and changes nothing.
async fn check(
    gateway: &Gateway,
    file: &Path,
    text: String,
) -> Result<ConfigPreview, ConfigErrors> {
    let current = gateway.data_plane().config.load_full();
    let path = file.to_owned();
    let read = move || ConfigReload::parse(&current, &text, &path, &ProcessEnvironment);
    let read = tokio::task::spawn_blocking(read).await;
    let reload = read.map_err(|problem| about(file, problem.to_string()))??;
    gateway.preview(reload.next).await.map_err(|error| errors(file, error))
}

fn errors(file: &Path, error: GatewayReloadError) -> ConfigErrors {
    match error {
        GatewayReloadError::Config(errors)
        | GatewayReloadError::Declarations(GatewayDeclarationError::Conflict(errors)) => errors,
        other => about(file, other.to_string()),
    }
}

/// Records the reload in the audit trail. The new configuration applies even if this fails.
async fn audit(gateway: &Gateway, plan: &ReloadPlan, actor: &str) {
    let changes: Vec<String> = plan.changes.iter().map(ToString::to_string).collect();
    let note = DirectoryChange::Note {
        action: "config.reload",
        subject: "configuration".into(),
        before: None,
        after: serde_json::json!({ "changes": changes }),
    };
    if let Err(error) = gateway.data_plane().store.change(actor, wall_clock::now(), note).await {
        tracing::error!(%error, "the reload is in force, and is not in the audit trail");
    }
}

fn about(file: &Path, message: String) -> ConfigErrors {
    let error =
        ConfigError { file: Some(file.to_owned()), place: None, field: String::new(), message };
    ConfigErrors::from(error)
}

fn gateway_is_ending_error(file: &Path) -> ConfigErrors {
    about(file, "the gateway is ending".into())
}

/// Handler of `POST /api/v1/config/reload` and `POST /api/v1/config/check`. The gateway owns the handler, so the handler must not own the gateway.
pub(super) struct FileReloader {
    gateway: Weak<Gateway>,
    file: PathBuf,
}

impl FileReloader {
    pub(super) fn new(gateway: &Arc<Gateway>, file: &Path) -> Self {
        Self { gateway: Arc::downgrade(gateway), file: file.to_owned() }
    }
}

impl ConfigReloader for FileReloader {
    fn reload<'a>(&'a self, actor: &'a str, may_disable_most: bool) -> ReloadFuture<'a> {
        Box::pin(async move {
            let gateway =
                self.gateway.upgrade().ok_or_else(|| gateway_is_ending_error(&self.file))?;
            reload(&gateway, &self.file, actor, may_disable_most).await
        })
    }

    fn check(&self, text: String) -> CheckFuture<'_> {
        Box::pin(async move {
            let gateway =
                self.gateway.upgrade().ok_or_else(|| gateway_is_ending_error(&self.file))?;
            check(&gateway, &self.file, text).await
        })
    }
}
