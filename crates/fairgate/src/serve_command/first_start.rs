//! The output of a first start, with a first tenant, its key, and a command to try.

use std::io::{self, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use anyhow::Result;
use fairgate_api::client::DEFAULT_URL;
use fairgate_config::{Config, DeclaredDirectory};
use fairgate_gateway::Gateway;
use fairgate_store::{DirectoryChange, DirectoryLimits, KeyRights, KeySecret, Store};
use fairgate_time::wall_clock;

use super::admin_token;
use crate::admin::DEFAULT_TOKEN_FILE;

const GROUP: &str = "default";
const TENANT: &str = "demo";
const WEIGHT: u64 = 100;

/// Creates a first tenant and its key, if there is no key yet. Returns the key's secret; `None` if there was a key. The
/// key has the default rights of a new key.
pub(super) async fn first_key(store: &Store) -> Result<Option<KeySecret>> {
    if !store.directory().await?.keys.is_empty() {
        return Ok(None);
    }
    let limits = DirectoryLimits::default;
    let group =
        DirectoryChange::AddGroup { name: GROUP.into(), weight: WEIGHT, budgets: Vec::new() };
    let (tenant, name) = (TENANT.to_owned(), "first".to_owned());
    let add = DirectoryChange::AddTenant {
        requires: Vec::new(),
        name: tenant.clone(),
        group: GROUP.into(),
        weight: WEIGHT,
        limits: limits(),
    };
    let key = DirectoryChange::CreateKey {
        tenant,
        name,
        weight: WEIGHT,
        limits: limits(),
        rights: KeyRights::default(),
        expires_at: None,
    };
    let mut secret = None;
    for change in [group, add, key] {
        match store.change("first-start", wall_clock::now(), change).await {
            Ok(changed) => secret = changed.secret,
            // Created by an earlier start that was interrupted.
            Err(fairgate_store::StoreError::Exists { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(secret)
}

/// The text that `fairgate serve` prints when it is ready.
pub(super) struct StartupMessage<'a> {
    pub(super) gateway: &'a Gateway,
    pub(super) config: &'a Config,
    /// Secret of the first key; `None` if no key was created.
    pub(super) first: Option<KeySecret>,
}

impl StartupMessage<'_> {
    /// Prints the gateway's address, the settings for the admin commands, and on a first start a
    /// command to try. All lines are written at once, so that a program that has read the first
    /// line finds the others.
    pub(super) fn write(&self, mut out: impl Write) -> io::Result<()> {
        let mut text = Vec::new();
        self.print(&mut text)?;
        out.write_all(&text)?;
        out.flush()
    }

    fn print(&self, mut out: impl Write) -> io::Result<()> {
        let url = self.url(self.gateway.addr());
        writeln!(out, "Fairgate {} listens on {url}", env!("CARGO_PKG_VERSION"))?;
        print_pools(&mut out, self.config)?;
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
            None => self.print_keys(&mut out)?,
        }
        self.print_variables(&mut out)?;
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
        Ok(())
    }

    fn url(&self, address: SocketAddr) -> String {
        let scheme = if self.config.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{address}")
    }

    /// Prints how to create a key, because the secrets of existing keys were shown only once, perhaps to another
    /// person.
    fn print_keys(&self, mut out: impl Write) -> io::Result<()> {
        let directory = self.gateway.data_plane().identity.directory();
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

    /// Prints the variables that the admin commands need in another shell, unless the defaults fit.
    fn print_variables(&self, mut out: impl Write) -> io::Result<()> {
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

/// Returns an address to connect to. The unspecified address, such as 0.0.0.0, becomes the loopback address.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    address
}

/// Quotes a path for a shell.
fn quoted(path: &Path) -> String {
    let path = path.display().to_string();
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+:@%,".contains(c);
    match path.chars().all(is_plain) {
        true => path,
        false => format!("'{}'", path.replace('\'', "'\\''")),
    }
}

/// Prints the pools of a configuration.
pub(crate) fn print_pools(mut out: impl Write, config: &Config) -> io::Result<()> {
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
    let DeclaredDirectory { is_stated, groups, tenants, keys, .. } = &config.declared;
    if *is_stated {
        let [groups, tenants, keys] = [groups.len(), tenants.len(), keys.len()];
        writeln!(out, "  declared     groups: {groups}, tenants: {tenants}, keys: {keys}")?;
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
