//! Keys.

use std::io::Write;

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Map, Value, json};

use super::limits::{self, LimitArgs};
use super::{Common, all, escaped, text};
use crate::output::Output;
use crate::table::{Cell, Table};

/// Keys of tenants. A secret is shown once: when its key is created or rotated.
#[derive(Debug, Args)]
pub(crate) struct KeyCommand {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    action: KeyAction,
}

#[derive(Debug, Subcommand)]
enum KeyAction {
    /// List keys, revoked and expired ones included.
    List {
        /// Of this tenant only.
        #[arg(long)]
        tenant: Option<String>,
    },
    /// Create a key, and show its secret once.
    Create {
        /// Its tenant.
        tenant: String,
        #[command(flatten)]
        about: KeyArgs,
    },
    /// Change a key; what is not given stays.
    Set {
        /// Its id.
        id: String,
        #[command(flatten)]
        about: KeyArgs,
    },
    /// Give a key a new secret under the same id, and show it once. The old one is refused at once.
    Rotate {
        /// Its id.
        id: String,
    },
    /// Refuse a key from now on. What is in flight with it goes on.
    Revoke {
        /// Its id.
        id: String,
    },
}

#[derive(Debug, Args)]
struct KeyArgs {
    /// What its owner calls it.
    #[arg(long)]
    name: Option<String>,
    /// Its share within its tenant (100 for a new key).
    #[arg(long)]
    weight: Option<u64>,
    /// The models that it may ask for; all where not given.
    #[arg(long, value_delimiter = ',', value_name = "MODEL,…")]
    models: Option<Vec<String>>,
    /// The policy classes that it may name in a header.
    #[arg(long, value_delimiter = ',', value_name = "CLASS,…")]
    classes: Option<Vec<String>>,
    /// From when on it is refused, such as 2027-01-01T00:00:00Z.
    #[arg(long, value_name = "TIME")]
    expires_at: Option<String>,
    #[command(flatten)]
    limits: LimitArgs,
}

impl KeyArgs {
    /// What was given, by the API's names; without limits.
    fn given(&self) -> Map<String, Value> {
        let fields = [
            ("name", self.name.as_ref().map(|name| json!(name))),
            ("weight", self.weight.map(|weight| json!(weight))),
            ("models", self.models.as_ref().map(|models| json!(models))),
            ("classes", self.classes.as_ref().map(|classes| json!(classes))),
            ("expires_at", self.expires_at.as_ref().map(|time| json!(time))),
        ];
        let given = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        given.collect()
    }
}

impl KeyCommand {
    pub(crate) fn run(&self) -> Result<()> {
        let client = self.common.client()?;
        let path = |id: &str| format!("/api/v1/keys/{}", escaped(id));
        match &self.action {
            KeyAction::List { tenant } => {
                let of = tenant.as_ref().map(|tenant| format!("?tenant={}", escaped(tenant)));
                let list = all(&client, &format!("/api/v1/keys{}", of.unwrap_or_default()))?;
                self.common.tell(&list, keys)
            }
            KeyAction::Create { tenant, about } => {
                let mut body = about.given();
                body.insert("tenant".into(), json!(tenant));
                body.insert("limits".into(), limits::over(about.limits.given(), None));
                let made = client.send(Method::POST, "/api/v1/keys", Some(&Value::Object(body)))?;
                self.tell_secret(&made)
            }
            KeyAction::Set { id, about } => {
                let mut patch = about.given();
                let given = about.limits.given();
                if !given.is_empty() {
                    let before = client.get(&path(id))?;
                    patch.insert("limits".into(), limits::over(given, before.get("limits")));
                }
                if patch.is_empty() {
                    bail!("nothing to change: see `fairgate key set --help`");
                }
                let set = client.send(Method::PATCH, &path(id), Some(&Value::Object(patch)))?;
                self.common.tell(&set, |key| keys(&json!([key])))
            }
            KeyAction::Rotate { id } => {
                let rotate = format!("{}/rotate", path(id));
                self.tell_secret(&client.send(Method::POST, &rotate, None)?)
            }
            KeyAction::Revoke { id } => {
                let revoke = format!("{}/revoke", path(id));
                let revoked = client.send(Method::POST, &revoke, None)?;
                self.common.tell(&revoked, |key| keys(&json!([key])))
            }
        }
    }

    fn tell_secret(&self, made: &Value) -> Result<()> {
        let key = made.get("key").cloned().unwrap_or_default();
        self.common.tell(made, |_| keys(&json!([key])))?;
        if !self.common.json {
            let mut out = Output::stdout();
            writeln!(
                out,
                "\n{}\nThis is the secret. It is shown this once.",
                text(made, "secret")
            )?;
            out.flush()?;
        }
        Ok(())
    }
}

fn keys(items: &Value) -> Table {
    let headings = vec!["key", "tenant", "name", "secret", "weight", "state", "models", "limits"];
    let mut table = Table::new(headings);
    for item in items.as_array().into_iter().flatten() {
        let state = match (text(item, "revoked_at").as_str(), text(item, "expires_at").as_str()) {
            ("-", "-") => "in use".to_owned(),
            ("-", expires) => format!("until {expires}"),
            (revoked, _) => format!("revoked {revoked}"),
        };
        let models = text(item, "models");
        table.row(vec![
            Cell::Text(text(item, "id")),
            Cell::Text(text(item, "tenant")),
            Cell::Text(text(item, "name")),
            Cell::Text(format!("{}…", text(item, "hint"))),
            Cell::Number(text(item, "weight")),
            Cell::Text(state),
            Cell::Text(if models == "-" { "all".to_owned() } else { models }),
            Cell::Text(limits::told(item)),
        ]);
    }
    table
}
