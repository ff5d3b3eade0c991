//! The address of the server and its TLS mode, parsed from the URL. This module handles the
//! parameters `sslmode` and `sslrootcert`.
//!
//! `sslmode=disable` is the default. `require` and `verify-full` mean the same here: the
//! certificate and the name of the server are verified, against the public roots or those in the
//! PEM file `sslrootcert`. TLS without verification is not possible.

use std::fmt;
use std::future::poll_fn;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::{AsyncMessage, Client, Config, Connection, NoTls};

use super::tls::PostgresTls;

/// Connection settings of a server, as the store's URL states them.
pub struct PostgresAddress {
    config: Config,
    tls: Option<PostgresTls>,
}

impl PostgresAddress {
    /// Parses a URL. The error is a description of the problem.
    pub fn parse(url: &str) -> Result<Self, String> {
        let (place, query) = url.split_once('?').unwrap_or((url, ""));
        let (mut mode, mut roots, mut rest) = (None, None, Vec::new());
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("sslmode", value)) => mode = Some(value),
                Some(("sslrootcert", value)) => roots = Some(decoded(value)?),
                _ => rest.push(pair),
            }
        }
        let url =
            if rest.is_empty() { place.to_owned() } else { format!("{place}?{}", rest.join("&")) };
        let mut config: Config = url.parse().map_err(|problem: tokio_postgres::Error| {
            std::error::Error::source(&problem)
                .map_or_else(|| problem.to_string(), ToString::to_string)
        })?;
        let tls = match mode {
            None | Some("disable") => None,
            Some("require" | "verify-full") => Some(PostgresTls::new(roots.as_deref())?),
            Some(other) => {
                return Err(format!(
                    "sslmode={other} is not supported: use verify-full (with sslrootcert=FILE for a private \
                     authority), or disable"
                ));
            }
        };
        if tls.is_none() && roots.is_some() {
            return Err("sslrootcert needs sslmode=verify-full".to_owned());
        }
        if config.get_dbname().is_none() {
            return Err("it names no database: postgres://USER@HOST/DATABASE".to_owned());
        }
        if mode.is_none() && config.get_hosts().iter().any(|host| !is_here(host)) {
            tracing::warn!("the connection to PostgreSQL is not encrypted; sslmode=verify-full is");
        }
        config.ssl_mode(if tls.is_some() { SslMode::Require } else { SslMode::Disable });
        config.application_name("fairgate");
        config.connect_timeout(super::connection::CONNECT_TIMEOUT);
        config.tcp_user_timeout(super::connection::ANSWER_TIMEOUT);
        Ok(Self { config, tls })
    }

    /// Opens a connection. The I/O of the connection runs as an async task until the returned client is dropped.
    pub(super) async fn connect(&self) -> Result<Client, tokio_postgres::Error> {
        match &self.tls {
            Some(tls) => {
                let (client, connection) = self.config.connect(tls.clone()).await?;
                // The client that uses the connection gets the same error.
                tokio::spawn(async { drop(connection.await) });
                Ok(client)
            }
            None => {
                let (client, connection) = self.config.connect(NoTls).await?;
                tokio::spawn(async { drop(connection.await) });
                Ok(client)
            }
        }
    }

    /// Opens a connection, and calls `notified` with the payload of each notification that it receives. The I/O of the
    /// connection runs as an async task until the returned client is dropped; `notified` must not block.
    pub async fn connect_notified(
        &self,
        notified: impl Fn(&str) + Send + 'static,
    ) -> Result<Client, tokio_postgres::Error> {
        match &self.tls {
            Some(tls) => {
                let (client, connection) = self.config.connect(tls.clone()).await?;
                tokio::spawn(pass_on_notifications(connection, notified));
                Ok(client)
            }
            None => {
                let (client, connection) = self.config.connect(NoTls).await?;
                tokio::spawn(pass_on_notifications(connection, notified));
                Ok(client)
            }
        }
    }
}

impl fmt::Debug for PostgresAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The settings contain the password.
        f.debug_struct("PostgresAddress").field("has_tls", &self.tls.is_some()).finish()
    }
}

/// Does the I/O of a connection until it ends. The user of the client sees an error too.
async fn pass_on_notifications<S, T>(
    mut connection: Connection<S, T>,
    notified: impl Fn(&str) + Send + 'static,
) where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
        if let AsyncMessage::Notification(notification) = message {
            notified(notification.payload());
        }
    }
}

fn is_here(host: &Host) -> bool {
    match host {
        Host::Tcp(name) => {
            name == "localhost"
                || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
        }
        #[cfg(unix)]
        Host::Unix(_) => true,
    }
}

/// Decodes the percent-encoding of a URL value.
fn decoded(value: &str) -> Result<String, String> {
    let wrong = || format!("{value:?} is not percent-encoded UTF-8");
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, tail) = rest.split_at_checked(2).ok_or_else(wrong)?;
        let digits = std::str::from_utf8(digits).map_err(|_| wrong())?;
        bytes.push(u8::from_str_radix(digits, 16).map_err(|_| wrong())?);
        rest = tail;
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(url: &str) -> String {
        PostgresAddress::parse(url).err().unwrap_or_default()
    }

    #[test]
    fn good_addresses() {
        let good = [
            "postgres://u:p@localhost:5432/db",
            "postgresql://u@/db?host=/run/postgresql",
            "postgres://u@db.example/db?sslmode=require",
            "postgres://u@db.example/db?connect_timeout=3&sslmode=verify-full&keepalives=1",
            "postgres://u@db.example/db?sslmode=disable",
        ];
        for url in good {
            assert_eq!(problem(url), "", "{url}");
        }
    }

    #[test]
    fn bad_addresses() {
        assert!(problem("postgres://u@h/db?sslmode=prefer").contains("verify-full"));
        assert!(problem("postgres://u@h/db?sslrootcert=x").contains("sslmode"));
        let missing = problem("postgres://u@h/db?sslmode=require&sslrootcert=%2Fno%2Fsuch.pem");
        assert!(missing.contains("/no/such.pem"), "{missing}");
        assert!(problem("postgres://u@h").contains("database"));
        assert!(!problem("postgres://u@h:port/db").is_empty());
        assert!(!problem("postgres://u@h/db?sslrootcert=%zz&sslmode=require").is_empty());
    }
}
