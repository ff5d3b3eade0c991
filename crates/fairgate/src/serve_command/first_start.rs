//! What a newcomer sees: a first tenant with its key, and a line that works.

use std::io::{self, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use fairgate_config::Config;
use fairgate_gateway::Gateway;
use fairgate_store::{Change, Limits, Rights, Secret, Store, UnixMicros};

use super::admin_token;
use crate::admin::{DEFAULT_TOKEN_FILE, DEFAULT_URL};

const GROUP: &str = "default";
const TENANT: &str = "demo";
const WEIGHT: u64 = 100;

/// A first tenant and its key, where there is none yet.
pub(super) async fn first_key(store: &Store) -> Result<Option<Secret>> {
    if !store.directory().await?.keys.is_empty() {
        return Ok(None);
    }
    let limits = Limits::default;
    let group = Change::AddGroup { name: GROUP.into(), weight: WEIGHT, budgets: Vec::new() };
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
        rights: Rights::default(),
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

/// What `fairgate serve` says when it is ready.
pub(super) struct Greeting<'a> {
    pub(super) gateway: &'a Gateway,
    pub(super) config: &'a Config,
    /// The secret of a first key, where one was made.
    pub(super) first: Option<Secret>,
}

impl Greeting<'_> {
    /// Says where the gateway is, what the admin commands need, and to a newcomer what to do next.
    pub(super) fn write(&self, mut out: impl Write) -> io::Result<()> {
        let url = self.url(self.gateway.addr());
        writeln!(out, "Fairgate {} listens on {url}", env!("CARGO_PKG_VERSION"))?;
        tell_pools(&mut out, self.config)?;
        if self.config.admin.token.is_none() {
            writeln!(out, "  admin token  in {}", admin_token::file(self.config).display())?;
        }
        if self.gateway.admin_addr() != self.gateway.addr() {
            writeln!(out, "  admin API    {}/api/v1", self.url(self.gateway.admin_addr()))?;
        }
        match &self.first {
            Some(secret) => {
                writeln!(out, "  tenant       {TENANT}, in group {GROUP}")?;
                writeln!(out, "  key          {}   (shown this once)", secret.expose())?;
            }
            None => self.tell_keys(&mut out)?,
        }
        self.tell_variables(&mut out)?;
        if let Some(secret) = &self.first {
            writeln!(out, "\nTry it:")?;
            writeln!(
                out,
                "  curl {url}/v1/chat/completions -H 'Authorization: Bearer {}' \
                 -H 'Content-Type: application/json' \
                 -d '{{\"model\":\"sim\",\"messages\":[{{\"role\":\"user\",\"content\":\"Hello\"}}]}}'",
                secret.expose()
            )?;
        }
        out.flush()
    }

    fn url(&self, address: SocketAddr) -> String {
        let scheme = if self.config.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{address}")
    }

    /// How to come by a key: those that there are were shown once, perhaps to somebody else.
    fn tell_keys(&self, mut out: impl Write) -> io::Result<()> {
        let directory = self.gateway.app().identity.directory();
        match directory.tenants.first() {
            Some(tenant) => {
                let how = format!("`fairgate key create {}` makes one", tenant.name);
                let more = if directory.keys.is_empty() { "none yet; " } else { "" };
                writeln!(out, "  key          {more}{how}")
            }
            None => writeln!(
                out,
                "  tenant       none yet; `fairgate group add GROUP`, `fairgate tenant add TENANT --group GROUP` \
                 and `fairgate key create TENANT` make the first"
            ),
        }
    }

    /// What the admin commands must be told in another shell, where it is not what they take anyway.
    fn tell_variables(&self, mut out: impl Write) -> io::Result<()> {
        let url = self.url(reachable(self.gateway.admin_addr()));
        let token = admin_token::file(self.config);
        let configured = self.config.admin.token.is_some();
        if !configured && url == DEFAULT_URL && token == Path::new(DEFAULT_TOKEN_FILE) {
            return Ok(());
        }
        writeln!(out, "\nFor the admin commands, in another shell:")?;
        writeln!(out, "  export FAIRGATE_URL={url}")?;
        if configured {
            return writeln!(
                out,
                "  export FAIRGATE_ADMIN_TOKEN=…   # what `admin.token` of the configuration stands for"
            );
        }
        let token = std::path::absolute(&token).unwrap_or(token);
        writeln!(out, "  export FAIRGATE_ADMIN_TOKEN_FILE={}", quoted(&token))
    }
}

/// An address to connect to: one that means all addresses is reached at this machine's own.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    address
}

/// A path as a shell takes it.
fn quoted(path: &Path) -> String {
    let path = path.display().to_string();
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+:@%,".contains(c);
    match path.chars().all(is_plain) {
        true => path,
        false => format!("'{}'", path.replace('\'', "'\\''")),
    }
}

/// Says which pools a configuration has.
pub(crate) fn tell_pools(mut out: impl Write, config: &Config) -> io::Result<()> {
    for pool in &config.pools {
        let models: Vec<&str> = pool.models.iter().map(|model| model.name.as_str()).collect();
        let (models, workers) = (models.join(", "), pool.workers.join(", "));
        let (name, capacity) = (&pool.name, pool.capacity);
        match pool.leases {
            Some(_) => writeln!(out, "  pool         {name}: {capacity} slots to lease")?,
            None => {
                writeln!(out, "  pool         {name}: {models} on {workers}, {capacity} slots")?
            }
        }
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_takes_every_path() {
        assert_eq!(
            quoted(Path::new("/srv/fairgate-data/admin-token")),
            "/srv/fairgate-data/admin-token"
        );
        assert_eq!(quoted(Path::new("/my data/it's")), r"'/my data/it'\''s'");
    }

    #[test]
    fn all_addresses_are_reached_at_ones_own() {
        let reached = |text: &str| text.parse().map(reachable).map(|address| address.to_string());
        assert_eq!(reached("0.0.0.0:80").as_deref(), Ok("127.0.0.1:80"));
        assert_eq!(reached("[::]:80").as_deref(), Ok("[::1]:80"));
        assert_eq!(reached("10.1.2.3:80").as_deref(), Ok("10.1.2.3:80"));
    }
}
