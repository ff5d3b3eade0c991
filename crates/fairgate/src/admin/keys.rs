//! The command `fairgate key`, which lists, creates and changes keys.

use std::io::Write;

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Map, Value, json};

use super::limits::{self, LimitArgs};
use super::{AdminOptions, escaped, fetch_all, text};
use crate::output::StdoutWriter;
use crate::table::{TableCell, TextTable};

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
    /// Models that the key may request. Default: all.
    #[arg(long, value_delimiter = ',', value_name = "MODEL,…")]
    models: Option<Vec<String>>,
    /// Policy classes and families that the key may name. A request that names none gets the first one. With an empty
    /// list, requests get the policy's default class only. A new key has no list and may name all classes of the
    /// policy, or only the default class if classes have a strict order (`bands`).
    #[arg(long, value_delimiter = ',', value_name = "CLASS,…")]
    classes: Option<Vec<String>>,
    /// Remove the list of classes. The key may then name all classes and families of the policy, or only the default
    /// class if classes have a strict order (`bands`).
    #[arg(long, conflicts_with = "classes")]
    all_classes: bool,
    /// Highest priority that the key may request. A new key has 0. Lower priorities are always allowed.
    #[arg(long, value_name = "PRIORITY")]
    priority_max: Option<u64>,
    /// True to allow requests of the key to choose their worker. A new key has false.
    #[arg(long, value_name = "true|false")]
    may_pin: Option<bool>,
    /// Taints that the key may require of a worker. A new key has none.
    #[arg(long, value_delimiter = ',', value_name = "TAINT,…")]
    taints: Option<Vec<String>>,
    /// Allow the key to require any taint.
    #[arg(long, conflicts_with = "taints")]
    all_taints: bool,
    /// Longest wait of requests that state no deadline, such as 5s or 750ms. Default: the longest wait of the request's
    /// class.
    #[arg(long, value_name = "TIME", value_parser = deadline)]
    deadline: Option<DeadlineArg>,
    /// Remove the key's own deadline. Requests of the key may then wait as long as their class allows.
    #[arg(long, conflicts_with = "deadline")]
    no_deadline: bool,
    /// Shortest deadline that requests may state in an edf queue, such as 500ms. Default: the deadline that a request
    /// gets if it states none.
    #[arg(long, value_name = "TIME", value_parser = deadline)]
    deadline_min: Option<DeadlineArg>,
    /// Remove the key's shortest deadline. In an edf queue, the shortest deadline that a request may state is then the
    /// one that it gets if it states none.
    #[arg(long, conflicts_with = "deadline_min")]
    no_deadline_min: bool,
    /// Time from which the key is refused, such as 2027-01-01T00:00:00Z.
    #[arg(long, value_name = "TIME")]
    expires_at: Option<String>,
    #[command(flatten)]
    limits: LimitArgs,
}

impl KeyArgs {
    /// Returns the options that were given, except limits, under the names of the API's fields.
    fn given(&self) -> Map<String, Value> {
        let fields = [
            ("name", self.name.as_ref().map(|name| json!(name))),
            ("weight", self.weight.map(|weight| json!(weight))),
            ("models", self.models.as_ref().map(|models| json!(models))),
            ("classes", list_or_all(self.classes.as_deref(), self.all_classes)),
            ("priority_max", self.priority_max.map(|most| json!(most))),
            ("may_pin", self.may_pin.map(|may| json!(may))),
            ("taints", list_or_all(self.taints.as_deref(), self.all_taints)),
            ("deadline_ms", time_or_none(self.deadline, self.no_deadline)),
            ("deadline_min_ms", time_or_none(self.deadline_min, self.no_deadline_min)),
            ("expires_at", self.expires_at.as_ref().map(|time| json!(time))),
        ];
        let given = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        given.collect()
    }
}

/// A time span in milliseconds.
#[derive(Clone, Copy, Debug)]
struct DeadlineArg(u64);

/// Parses a time span such as `5s`, `2.5s` or `750ms`.
fn deadline(text: &str) -> Result<DeadlineArg, String> {
    let time = fairgate_config::parse_deadline(text);
    let millis = time.and_then(|time| u64::try_from(time.as_millis()).ok());
    millis.map(DeadlineArg).ok_or_else(|| fairgate_config::DEADLINE_FORMS.to_owned())
}

/// Returns the value for the API: a time in milliseconds, null if the option for no time was given, or `None` if
/// neither option was given.
fn time_or_none(time: Option<DeadlineArg>, none: bool) -> Option<Value> {
    if none { Some(Value::Null) } else { time.map(|DeadlineArg(millis)| json!(millis)) }
}

/// Returns the value for the API: a list of names (`""` is the empty list), null if the option for all names was given,
/// or `None` if neither option was given.
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
                let list = fetch_all(&client, &format!("/api/v1/keys{}", of.unwrap_or_default()))?;
                self.common.print_table(&list, keys)
            }
            KeyAction::Create { tenant, about } => {
                let mut body = about.given();
                body.insert("tenant".into(), json!(tenant));
                body.insert("limits".into(), limits::merged_limits(about.limits.given(), None));
                let made = client.send(Method::POST, "/api/v1/keys", Some(&Value::Object(body)))?;
                self.print_secret(&made)
            }
            KeyAction::Set { id, about } => {
                let mut patch = about.given();
                let given = about.limits.given();
                if !given.is_empty() {
                    let before = client.get(&path(id))?;
                    patch.insert(
                        "limits".into(),
                        limits::merged_limits(given, before.get("limits")),
                    );
                }
                if patch.is_empty() {
                    bail!("nothing to change: see `fairgate key set --help`");
                }
                let set = client.send(Method::PATCH, &path(id), Some(&Value::Object(patch)))?;
                self.common.print_table(&set, |key| keys(&json!([key])))
            }
            KeyAction::Rotate { id } => {
                let rotate = format!("{}/rotate", path(id));
                self.print_secret(&client.send(Method::POST, &rotate, None)?)
            }
            KeyAction::Revoke { id } => {
                let revoke = format!("{}/revoke", path(id));
                let revoked = client.send(Method::POST, &revoke, None)?;
                self.common.print_table(&revoked, |key| keys(&json!([key])))
            }
        }
    }

    fn print_secret(&self, made: &Value) -> Result<()> {
        let key = made.get("key").cloned().unwrap_or_default();
        self.common.print_table(made, |_| keys(&json!([key])))?;
        if !self.common.json {
            let mut out = StdoutWriter::stdout();
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

fn keys(items: &Value) -> TextTable {
    let headings = vec![
        "key", "tenant", "name", "secret", "weight", "state", "models", "classes", "rights",
        "limits",
    ];
    let mut table = TextTable::new(headings);
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
            TableCell::Text(text(item, "id")),
            TableCell::Text(text(item, "tenant")),
            TableCell::Text(text(item, "name")),
            TableCell::Text(format!("{}…", text(item, "hint"))),
            TableCell::Number(text(item, "weight")),
            TableCell::Text(state),
            TableCell::Text(or_all("models")),
            TableCell::Text(match &item["classes"] {
                Value::Array(list) if list.is_empty() => "default".to_owned(),
                _ => or_all("classes"),
            }),
            TableCell::Text(rights(item)),
            TableCell::Text(limits::format_limits(item)),
        ]);
    }
    table
}

/// Lists the choices besides the class that requests of a key may make, and the key's deadlines, such as `priority 5,
/// pins, taints eu, deadline 5000 ms`.
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
    for (field, words) in [("deadline_ms", "deadline"), ("deadline_min_ms", "deadline from")] {
        if key[field].is_u64() {
            told.push(format!("{words} {} ms", text(key, field)));
        }
    }
    if told.is_empty() { "-".to_owned() } else { told.join(", ") }
}
