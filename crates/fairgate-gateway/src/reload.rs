//! The reload of a gateway, in order.

use std::sync::Arc;

use fairgate_config::{Config, ConfigErrors, ConfigReload};
use fairgate_control::control_plane::{AppliedReload, ConfigPreview};
use fairgate_control::webhooks;
use fairgate_proxy::gateway_name;
use fairgate_proxy::pools::PoolsError;
use fairgate_proxy::tls::{self, TlsError};
use fairgate_store::{KeyHash, StoreError};

use crate::declared::{self, GatewayDeclarationError, declarations};
use crate::gateway::{Boxed, Gateway, keep_prices};

/// Reason why a new configuration was not applied. After such an error nothing has changed.
#[derive(Debug, thiserror::Error)]
pub enum GatewayReloadError {
    /// The configuration changes fields that are fixed while the gateway runs.
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    /// The certificate or its key cannot be used.
    #[error("tls: {0}")]
    Tls(#[from] TlsError),
    /// A pool or an upstream could not be prepared.
    #[error(transparent)]
    Pools(#[from] PoolsError),
    /// The configuration's groups, tenants and keys were not applied.
    #[error(transparent)]
    Declarations(#[from] GatewayDeclarationError),
    /// The prices could not be stored in the database, which needs them before a row names them.
    #[error("the prices cannot be kept: {0}")]
    Store(#[from] StoreError),
}

impl Gateway {
    /// Applies another configuration, and returns the changes. Everything that can fail is tried
    /// before anything is changed, so a bad configuration changes nothing. Refuses to disable more
    /// than half of the declared tenants and keys.
    pub fn reload(&self, next: Config) -> Boxed<'_, Result<AppliedReload, GatewayReloadError>> {
        Box::pin(self.reload_unboxed(next, false))
    }

    /// Does the same as [`reload`](Self::reload), and disables any number of tenants and keys that are no longer
    /// declared.
    pub fn reload_disabling_any(
        &self,
        next: Config,
    ) -> Boxed<'_, Result<AppliedReload, GatewayReloadError>> {
        Box::pin(self.reload_unboxed(next, true))
    }

    /// Returns the changes that a reload of another configuration would make, and changes nothing.
    pub fn preview(&self, next: Config) -> Boxed<'_, Result<ConfigPreview, GatewayReloadError>> {
        Box::pin(async move {
            let plan = ConfigReload::plan(&self.data.config.load(), &next)?;
            let declared = declarations(&next.declared, gateway_name(self.addr().port()));
            let directory = declared::preview(&self.data.store, &declared).await?;
            Ok(ConfigPreview { plan, directory })
        })
    }

    async fn reload_unboxed(
        &self,
        next: Config,
        may_disable_most: bool,
    ) -> Result<AppliedReload, GatewayReloadError> {
        let _one = self.reloading.lock().await;
        let plan = ConfigReload::plan(&self.data.config.load(), &next)?;
        let tls = next.tls.as_ref().map(tls::for_clients).transpose()?;
        let prepared = self.data.pools.prepare(&next).await?;
        if self.data.config.load().prices != next.prices {
            keep_prices(&self.data.store, &next.prices).await?;
        }
        let declared = declarations(&next.declared, gateway_name(self.addr().port()));
        let directory = declared::apply(&self.data.store, &declared, may_disable_most).await?;
        self.data.directory_sync.declarations.note_applied(&declared);
        // From here on nothing can fail.
        self.data.pools.switch(prepared, next.drain_grace).await;
        self.server.tls.store(tls);
        if let Some(token) = &next.admin.token {
            self.control.admin_token.store(Arc::new(KeyHash::of(token.expose().as_bytes())));
        }
        self.control.fleet.set_webhooks(webhooks::subscriptions(&next.fleet.webhooks));
        self.data.config.store(Arc::new(next));
        // A new policy does not have the directory's weights and caps yet.
        if let Err(error) = self.data.directory_sync.refresh().await {
            tracing::warn!(%error, "the directory could not be read; weights and caps follow soon");
        }
        for change in &plan.changes {
            tracing::info!(%change, "reloaded");
        }
        Ok(AppliedReload {
            plan,
            directory: directory.steps.iter().map(ToString::to_string).collect(),
        })
    }
}
