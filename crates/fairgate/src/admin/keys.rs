//! The command `fairgate key`, which lists, creates and changes keys.

mod hash;

use std::io::Write;

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use fairgate_api::admin::{KeyBody, KeyWithSecret};
use fairgate_table::{TableCell, TextTable};
use http::Method;
use serde_json::{Map, Value, json};

use super::limits::{self, LimitArgs};
use super::rights::{self, RightsArgs};
use super::{AdminOptions, escaped, fetch_all};
use crate::text_format::one_line;

/// Manage keys of tenants. The secret of a key is shown once, when the key is created or rotated.
#[derive(Debug, Args)]
pub(crate) struct KeyCommand {
    #[command(flatten)]
    common: AdminOptions,
    #[command(subcommand)]
    action: KeyAction,
}

#[derive(Debug, Subcommand)]
enum KeyAction {
    /// List keys, including revoked and expired ones.
    List {
        /// Only keys of this tenant.
        #[arg(long)]
        tenant: Option<String>,
        /// Show each right of a key in a column of its own.
        #[arg(long)]
        wide: bool,
    },
    /// Create a key, and show its secret once.
    Create {
        /// Tenant of the key.
        tenant: String,
        #[command(flatten)]
        about: KeyArgs,
    },
    /// Change a key. Settings that are not given stay as they are.
    Set {
        /// Id of the key.
        id: String,
        #[command(flatten)]
        about: KeyArgs,
    },
    /// Give a key a new secret under the same id, and show the secret once. The old secret is refused at once.
    Rotate {
        /// Id of the key.
        id: String,
    },
    /// Print the hash by which a configuration file can declare a key. Asks no gateway.
    Hash(hash::KeyHashArgs),
    /// Refuse a key from now on. Requests of the key that are in flight continue.
    Revoke {
        /// Id of the key.
        id: String,
    },
}

#[derive(Debug, Args)]
struct KeyArgs {
    /// Name for people; need not be unique.
    #[arg(long)]
    name: Option<String>,
    /// Weight of the key, relative to the other keys of its tenant. A new key has 100.
    #[arg(long)]
    weight: Option<u64>,
    #[command(flatten)]
    rights: RightsArgs,
    /// Time from which the key is refused, such as 2027-01-01T00:00:00Z.
    #[arg(long, value_name = "TIME")]
    expires_at: Option<String>,
    #[command(flatten)]
    limits: LimitArgs,
}

impl KeyArgs {
    /// Returns the options that were given, except limits, under the names of the API's fields.
    fn given(&self) -> Result<Map<String, Value>> {
        let fields = [
            ("name", self.name.as_ref().map(|name| json!(name))),
            ("weight", self.weight.map(|weight| json!(weight))),
            ("expires_at", self.expires_at.as_ref().map(|time| json!(time))),
        ];
        let given = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        let mut given: Map<String, Value> = given.collect();
        if let Value::Object(rights) = serde_json::to_value(self.rights.patch())? {
            given.extend(rights);
        }
        Ok(given)
    }
}

impl KeyCommand {
    pub(crate) fn run(&self) -> Result<()> {
        if let KeyAction::Hash(args) = &self.action {
            return args.run(&self.common);
        }
        let client = self.common.client()?;
        let path = |id: &str| format!("/api/v1/keys/{}", escaped(id));
        match &self.action {
            KeyAction::List { tenant, wide } => {
                let of = tenant.as_ref().map(|tenant| format!("?tenant={}", escaped(tenant)));
                let list = fetch_all(&client, &format!("/api/v1/keys{}", of.unwrap_or_default()))?;
                let table = if *wide { wide_keys } else { keys };
                self.common.print_table(&list, |list: &Vec<KeyBody>| table(list))
            }
            KeyAction::Create { tenant, about } => {
                let mut body = about.given()?;
                body.insert("tenant".into(), json!(tenant));
                body.insert("limits".into(), limits::new_limits(about.limits.given()));
                let made = client.send(Method::POST, "/api/v1/keys", Some(&Value::Object(body)))?;
                self.print_secret(&made)
            }
            KeyAction::Set { id, about } => {
                let mut patch = about.given()?;
                let given = about.limits.given();
                if !given.is_empty() {
                    let before = client.get(&path(id))?;
                    let limits = limits::changed_limits(given, &before)?;
                    patch.insert("limits".into(), limits);
                }
                if patch.is_empty() {
                    bail!("nothing to change: see `fairgate key set --help`");
                }
                let set = client.send(Method::PATCH, &path(id), Some(&Value::Object(patch)))?;
                self.common.print_table(&set, one)
            }
            KeyAction::Rotate { id } => {
                let rotate = format!("{}/rotate", path(id));
                self.print_secret(&client.send(Method::POST, &rotate, None)?)
            }
            // This command ran above, because it needs no gateway.
            KeyAction::Hash(_) => Ok(()),
            KeyAction::Revoke { id } => {
                let revoke = format!("{}/revoke", path(id));
                let revoked = client.send(Method::POST, &revoke, None)?;
                self.common.print_table(&revoked, one)
            }
        }
    }

    fn print_secret(&self, made: &Value) -> Result<()> {
        self.common.print_parsed(made, |KeyWithSecret { key, secret }: &KeyWithSecret, out| {
            one(key).write(&mut *out)?;
            writeln!(out, "\n{}\nThis is the secret. It is shown this once.", one_line(secret))
        })
    }
}

fn one(key: &KeyBody) -> TextTable {
    keys(std::slice::from_ref(key))
}

fn keys(list: &[KeyBody]) -> TextTable {
    let headings = vec![
        "key", "tenant", "name", "secret", "weight", "state", "models", "classes", "rights",
        "limits",
    ];
    let mut table = TextTable::new(headings);
    for key in list {
        let mut row = key_cells(key);
        row.extend(
            [
                rights::names_or_all(key.rights.models.as_deref()),
                rights::classes(&key.rights),
                rights::summary(&key.rights),
                limits::format_limits(&key.limits),
            ]
            .map(TableCell::Text),
        );
        table.row(row);
    }
    table
}

fn wide_keys(list: &[KeyBody]) -> TextTable {
    let mut headings = vec!["key", "tenant", "name", "secret", "weight", "state"];
    headings.extend(rights::WIDE_HEADINGS);
    headings.push("limits");
    let mut table = TextTable::new(headings);
    for key in list {
        let mut row = key_cells(key);
        row.extend(rights::wide_cells(&key.rights));
        row.push(TableCell::Text(limits::format_limits(&key.limits)));
        table.row(row);
    }
    table
}

/// Returns the cells that identify a key, with its weight and its state.
fn key_cells(key: &KeyBody) -> Vec<TableCell> {
    let state = match (&key.revoked_at, &key.expires_at) {
        (None, None) => "in use".to_owned(),
        (None, Some(expires)) => format!("until {expires}"),
        (Some(revoked), _) => format!("revoked {revoked}"),
    };
    vec![
        TableCell::Text(one_line(&key.id)),
        TableCell::Text(one_line(&key.tenant)),
        TableCell::Text(one_line(&key.name)),
        TableCell::Text(format!("{}…", one_line(&key.hint))),
        TableCell::Number(key.weight.to_string()),
        TableCell::Text(state),
    ]
}
