//! Reloads the configuration file, for SIGHUP and for the admin API.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use fairgate_config::{ConfigError, ConfigErrors, ConfigReload, ProcessEnvironment, ReloadPlan};
use fairgate_control::control_plane::{ConfigReloader, ReloadFuture};
use fairgate_gateway::{Gateway, GatewayReloadError};
use fairgate_store::DirectoryChange;

use fairgate_time::wall_clock;

/// Reads the file, checks it, and only then applies it.
pub(super) async fn reload(
    gateway: &Gateway,
    file: &Path,
    actor: &str,
) -> Result<ReloadPlan, ConfigErrors> {
    let current = gateway.data_plane().config.load_full();
    let path = file.to_owned();
    // The file, and the files that it names, may be on a disk that hangs.
    let read = move || ConfigReload::from_file(&current, &path, &ProcessEnvironment);
    let read = tokio::task::spawn_blocking(read).await;
    let reload = read.map_err(|problem| about(file, problem.to_string()))??;
    let plan = gateway.reload(reload.next).await.map_err(|error| match error {
        GatewayReloadError::Config(errors) => errors,
        other => about(file, other.to_string()),
    })?;
    if !plan.is_empty() {
        audit(gateway, &plan, actor).await;
    }
    Ok(plan)
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

/// Handler of `POST /api/v1/config/reload`. The gateway owns the handler, so the handler must not own the gateway.
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
    fn reload<'a>(&'a self, actor: &'a str) -> ReloadFuture<'a> {
        Box::pin(async move {
            match self.gateway.upgrade() {
                Some(gateway) => reload(&gateway, &self.file, actor).await,
                None => Err(about(&self.file, "the gateway is ending".into())),
            }
        })
    }
}
