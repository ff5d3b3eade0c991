//! Reading the configuration file again, for SIGHUP and for the admin API.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use fairgate_config::{ConfigError, ConfigErrors, Plan, ProcessEnvironment, Reload};
use fairgate_gateway::control::{Reloader, Reloading};
use fairgate_gateway::{Gateway, ReloadError};
use fairgate_store::Change;

use super::first_start::now;

/// Reads the file, checks it, and only then puts it in force.
pub(super) async fn reload(
    gateway: &Gateway,
    file: &Path,
    actor: &str,
) -> Result<Plan, ConfigErrors> {
    let current = gateway.app().config.load_full();
    let path = file.to_owned();
    // A file may be on a disk that hangs, and what is read beside it too.
    let read = move || Reload::from_file(&current, &path, &ProcessEnvironment);
    let read = tokio::task::spawn_blocking(read).await;
    let reload = read.map_err(|problem| about(file, problem.to_string()))??;
    let plan = gateway.reload(reload.next).await.map_err(|error| match error {
        ReloadError::Config(errors) => errors,
        other => about(file, other.to_string()),
    })?;
    if !plan.is_empty() {
        audit(gateway, &plan, actor).await;
    }
    Ok(plan)
}

/// The configuration is in force whether this can be written or not.
async fn audit(gateway: &Gateway, plan: &Plan, actor: &str) {
    let changes: Vec<String> = plan.changes.iter().map(ToString::to_string).collect();
    let note = Change::Note {
        action: "config.reload",
        subject: "configuration".into(),
        after: serde_json::json!({ "changes": changes }),
    };
    if let Err(error) = gateway.app().store.change(actor, now(), note).await {
        tracing::error!(%error, "the reload is in force, and is not in the audit trail");
    }
}

fn about(file: &Path, message: String) -> ConfigErrors {
    let error =
        ConfigError { file: Some(file.to_owned()), place: None, field: String::new(), message };
    ConfigErrors::from(error)
}

/// What `POST /api/v1/config/reload` calls. The gateway holds it, so it must not hold the gateway.
pub(super) struct FromFile {
    gateway: Weak<Gateway>,
    file: PathBuf,
}

impl FromFile {
    pub(super) fn new(gateway: &Arc<Gateway>, file: &Path) -> Self {
        Self { gateway: Arc::downgrade(gateway), file: file.to_owned() }
    }
}

impl Reloader for FromFile {
    fn reload<'a>(&'a self, actor: &'a str) -> Reloading<'a> {
        Box::pin(async move {
            match self.gateway.upgrade() {
                Some(gateway) => reload(&gateway, &self.file, actor).await,
                None => Err(about(&self.file, "the gateway is ending".into())),
            }
        })
    }
}
