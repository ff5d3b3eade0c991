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
    /// The policy classes and families that it may name; the first is used where a request names none. An empty list allows
    /// the policy's default only. A new key may name all that the policy has.
    #[arg(long, value_delimiter = ',', value_name = "CLASS,…")]
    classes: Option<Vec<String>>,
    /// It may name all classes and families that the policy has.
    #[arg(long, conflicts_with = "classes")]
    all_classes: bool,
    /// The highest priority that it may ask for (0 for a new key). Lower ones are always allowed.
    #[arg(long, value_name = "PRIORITY")]
    priority_max: Option<u64>,
    /// Whether it may say which worker takes a request (not for a new key).
    #[arg(long, value_name = "true|false")]
    may_pin: Option<bool>,
    /// The taints that it may require of a worker (none for a new key).
    #[arg(long, value_delimiter = ',', value_name = "TAINT,…")]
    taints: Option<Vec<String>>,
    /// It may require any taint.
    #[arg(long, conflicts_with = "taints")]
    all_taints: bool,
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
            ("classes", list_or_all(self.classes.as_deref(), self.all_classes)),
            ("priority_max", self.priority_max.map(|most| json!(most))),
            ("may_pin", self.may_pin.map(|may| json!(may))),
            ("taints", list_or_all(self.taints.as_deref(), self.all_taints)),
            ("expires_at", self.expires_at.as_ref().map(|time| json!(time))),
        ];
        let given = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        given.collect()
    }
}

/// A list of names, of which `""` is an empty one; null where all are meant; nothing where nothing was said.
fn list_or_all(list: Option<&[String]>, all: bool) -> Option<Value> {
    let named = |list: &[String]| {
        let names: Vec<&String> = list.iter().filter(|name| !name.is_empty()).collect();
        json!(names)
    };
    if all { Some(Value::Null) } else { list.map(named) }
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
    let headings = vec![
        "key", "tenant", "name", "secret", "weight", "state", "models", "classes", "rights",
        "limits",
    ];
    let mut table = Table::new(headings);
    for item in items.as_array().into_iter().flatten() {
        let state = match (text(item, "revoked_at").as_str(), text(item, "expires_at").as_str()) {
            ("-", "-") => "in use".to_owned(),
            ("-", expires) => format!("until {expires}"),
            (revoked, _) => format!("revoked {revoked}"),
        };
        let or_all = |field: &str| match &item[field] {
            Value::Null => "all".to_owned(),
            _ => text(item, field),
        };
        table.row(vec![
            Cell::Text(text(item, "id")),
            Cell::Text(text(item, "tenant")),
            Cell::Text(text(item, "name")),
            Cell::Text(format!("{}…", text(item, "hint"))),
            Cell::Number(text(item, "weight")),
            Cell::Text(state),
            Cell::Text(or_all("models")),
            Cell::Text(match &item["classes"] {
                Value::Array(list) if list.is_empty() => "default".to_owned(),
                _ => or_all("classes"),
            }),
            Cell::Text(rights(item)),
            Cell::Text(limits::told(item)),
        ]);
    }
    table
}

/// What a key may choose beside its class, where it may: `priority 5, pins, taints eu`.
fn rights(key: &Value) -> String {
    let mut told = Vec::new();
    if key["priority_max"].as_i64().is_some_and(|most| most > 0) {
        told.push(format!("priority {}", text(key, "priority_max")));
    }
    if key["may_pin"] == true {
        told.push("pins".to_owned());
    }
    match &key["taints"] {
        Value::Null => told.push("all taints".to_owned()),
        Value::Array(list) if !list.is_empty() => {
            told.push(format!("taints {}", text(key, "taints")))
        }
        _ => {}
    }
    if told.is_empty() { "-".to_owned() } else { told.join(", ") }
}
