//! What a newcomer sees: a first tenant with its key, and a line that works.

use std::io::{self, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use fairgate_config::Config;
use fairgate_gateway::Gateway;
use fairgate_store::{Change, Limits, Secret, Store, UnixMicros};

use super::admin_token;

const GROUP: &str = "default";
const TENANT: &str = "demo";
const WEIGHT: u64 = 100;

/// A first tenant and its key, where there is none yet.
pub(super) async fn first_key(store: &Store) -> Result<Option<Secret>> {
    if !store.directory().await?.keys.is_empty() {
        return Ok(None);
    }
    let limits = Limits::default;
    let group = Change::AddGroup { name: GROUP.into(), weight: WEIGHT };
    let (tenant, name) = (TENANT.to_owned(), "first".to_owned());
    let add = Change::AddTenant {
        name: tenant.clone(),
        group: GROUP.into(),
        weight: WEIGHT,
        limits: limits(),
    };
    let key = Change::CreateKey {
        tenant,
        name,
        weight: WEIGHT,
        limits: limits(),
        models: None,
        classes: Vec::new(),
        expires_at: None,
    };
    let mut secret = None;
    for change in [group, add, key] {
        match store.change("first-start", now(), change).await {
            Ok(changed) => secret = changed.secret,
            // A start that was cut off between these has left it.
            Err(fairgate_store::StoreError::Exists { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(secret)
}

/// The system's time.
pub(super) fn now() -> UnixMicros {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMicros(i64::try_from(now.as_micros()).unwrap_or(i64::MAX))
}

/// Says where the gateway is, and to a newcomer what to do next.
pub(super) fn greet(
    mut out: impl Write,
    gateway: &Gateway,
    config: &Config,
    first: Option<&Secret>,
) -> io::Result<()> {
    let scheme = if config.tls.is_some() { "https" } else { "http" };
    let url = format!("{scheme}://{}", gateway.addr());
    writeln!(out, "Fairgate {} listens on {url}", env!("CARGO_PKG_VERSION"))?;
    tell_pools(&mut out, config)?;
    if config.admin.token.is_none() {
        writeln!(out, "  admin token  in {}", admin_token::file(config).display())?;
    }
    if gateway.admin_addr() != gateway.addr() {
        writeln!(out, "  admin API    {scheme}://{}/api/v1", gateway.admin_addr())?;
    }
    if let Some(secret) = first {
        let key = secret.expose();
        writeln!(out, "  tenant       {TENANT}, in group {GROUP}")?;
        writeln!(out, "  key          {key}   (shown this once)")?;
        writeln!(out, "\nTry it:")?;
        writeln!(
            out,
            "  curl {url}/v1/chat/completions -H 'Authorization: Bearer {key}' \
             -H 'Content-Type: application/json' \
             -d '{{\"model\":\"sim\",\"messages\":[{{\"role\":\"user\",\"content\":\"Hello\"}}]}}'"
        )?;
    }
    out.flush()
}

/// Says which pools a configuration has.
pub(super) fn tell_pools(mut out: impl Write, config: &Config) -> io::Result<()> {
    for pool in &config.pools {
        let models: Vec<&str> = pool.models.iter().map(|model| model.name.as_str()).collect();
        let (models, workers) = (models.join(", "), pool.workers.join(", "));
        let (name, capacity) = (&pool.name, pool.capacity);
        writeln!(out, "  pool         {name}: {models} on {workers}, {capacity} slots")?;
    }
    out.flush()
}
