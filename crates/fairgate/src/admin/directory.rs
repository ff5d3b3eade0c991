//! Groups, tenants and keys.

use std::io::Write;

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Map, Value, json};

use super::limits::{self, LimitArgs};
use super::{Common, all, escaped, listed, text};
use crate::output::Output;
use crate::table::{Cell, Table};

/// Groups of tenants, which share what their group gets.
#[derive(Debug, Args)]
pub(crate) struct GroupCommand {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    action: GroupAction,
}

#[derive(Debug, Subcommand)]
enum GroupAction {
    /// List all groups.
    List,
    /// Add a group.
    Add {
        /// Its name.
        name: String,
        /// Its share among groups.
        #[arg(long, default_value_t = 100)]
        weight: u64,
    },
    /// Change a group.
    Set {
        /// Its name.
        name: String,
        /// Its share among groups.
        #[arg(long)]
        weight: u64,
    },
    /// Remove a group that has no tenants.
    Remove {
        /// Its name.
        name: String,
    },
}

const GROUP: [(&str, &str, bool); 3] =
    [("group", "name", false), ("weight", "weight", true), ("created", "created_at", false)];

impl GroupCommand {
    pub(crate) fn run(&self) -> Result<()> {
        let client = self.common.client()?;
        let one = |answer: &Value| listed(&json!([answer]), &GROUP);
        match &self.action {
            GroupAction::List => {
                let groups = all(&client, "/api/v1/groups")?;
                self.common.tell(&groups, |groups| listed(groups, &GROUP))
            }
            GroupAction::Add { name, weight } => {
                let body = json!({"name": name, "weight": weight});
                let made = client.send(Method::POST, "/api/v1/groups", Some(&body))?;
                self.common.tell(&made, one)
            }
            GroupAction::Set { name, weight } => {
                let path = format!("/api/v1/groups/{}", escaped(name));
                let set = client.send(Method::PATCH, &path, Some(&json!({"weight": weight})))?;
                self.common.tell(&set, one)
            }
            GroupAction::Remove { name } => {
                let path = format!("/api/v1/groups/{}", escaped(name));
                let gone = client.send(Method::DELETE, &path, None)?;
                self.common.say(&gone, &format!("group {name} is removed"))
            }
        }
    }
}

/// Tenants: what shares are given to.
#[derive(Debug, Args)]
pub(crate) struct TenantCommand {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    action: TenantAction,
}

#[derive(Debug, Subcommand)]
enum TenantAction {
    /// List all tenants.
    List,
    /// Show one tenant and its budgets.
    Show {
        /// Its name.
        name: String,
    },
    /// Add a tenant.
    Add {
        /// Its name.
        name: String,
        /// The group it belongs to.
        #[arg(long, default_value = "default")]
        group: String,
        /// Its share within its group.
        #[arg(long, default_value_t = 100)]
        weight: u64,
        #[command(flatten)]
        limits: LimitArgs,
    },
    /// Change a tenant; what is not given stays.
    Set {
        /// Its name.
        name: String,
        /// The group it belongs to.
        #[arg(long)]
        group: Option<String>,
        /// Its share within its group.
        #[arg(long)]
        weight: Option<u64>,
        #[command(flatten)]
        limits: LimitArgs,
    },
    /// Refuse a tenant's keys from now on.
    Disable {
        /// Its name.
        name: String,
    },
    /// Take a tenant's keys again.
    Enable {
        /// Its name.
        name: String,
    },
    /// Remove a tenant and its keys. What it used stays in the ledger.
    Remove {
        /// Its name.
        name: String,
    },
}

impl TenantCommand {
    pub(crate) fn run(&self) -> Result<()> {
        let client = self.common.client()?;
        let path = |name: &str| format!("/api/v1/tenants/{}", escaped(name));
        let patched = |name: &str, patch: Value| -> Result<()> {
            if patch.as_object().is_some_and(Map::is_empty) {
                bail!("nothing to change: see `fairgate tenant set --help`");
            }
            let set = client.send(Method::PATCH, &path(name), Some(&patch))?;
            self.common.tell(&set, |tenant| tenants(&json!([tenant])))
        };
        match &self.action {
            TenantAction::List => {
                let list = all(&client, "/api/v1/tenants")?;
                self.common.tell(&list, tenants)
            }
            TenantAction::Show { name } => {
                let mut tenant = client.get(&path(name))?;
                let budgets = client.get(&format!("{}/budgets", path(name)))?;
                tenant["budgets"] = budgets.get("items").cloned().unwrap_or_default();
                self.common.tell(&tenant, |tenant| tenants(&json!([tenant])))?;
                if self.common.json { Ok(()) } else { tell_budgets(&tenant["budgets"]) }
            }
            TenantAction::Add { name, group, weight, limits } => {
                let limits = limits.over(None);
                let body =
                    json!({"name": name, "group": group, "weight": weight, "limits": limits});
                let made = client.send(Method::POST, "/api/v1/tenants", Some(&body))?;
                self.common.tell(&made, |tenant| tenants(&json!([tenant])))
            }
            TenantAction::Set { name, group, weight, limits } => {
                let mut patch = Map::new();
                patch.extend(group.as_ref().map(|group| ("group".to_owned(), json!(group))));
                patch.extend(weight.map(|weight| ("weight".to_owned(), json!(weight))));
                if limits.is_given() {
                    let before = client.get(&path(name))?;
                    patch.insert("limits".into(), limits.over(before.get("limits")));
                }
                patched(name, Value::Object(patch))
            }
            TenantAction::Disable { name } => patched(name, json!({"disabled": true})),
            TenantAction::Enable { name } => patched(name, json!({"disabled": false})),
            TenantAction::Remove { name } => {
                let gone = client.send(Method::DELETE, &path(name), None)?;
                self.common.say(&gone, &format!("tenant {name} and its keys are removed"))
            }
        }
    }
}

fn tenants(items: &Value) -> Table {
    let mut table = Table::new(vec!["tenant", "group", "weight", "state", "limits"]);
    for item in items.as_array().into_iter().flatten() {
        let disabled = item.get("disabled").and_then(Value::as_bool) == Some(true);
        table.row(vec![
            Cell::Text(text(item, "name")),
            Cell::Text(text(item, "group")),
            Cell::Number(text(item, "weight")),
            Cell::Text(if disabled { "disabled" } else { "enabled" }.into()),
            Cell::Text(limits::told(item)),
        ]);
    }
    table
}

fn tell_budgets(budgets: &Value) -> Result<()> {
    if budgets.as_array().is_none_or(Vec::is_empty) {
        return Ok(());
    }
    let mut out = Output::stdout();
    writeln!(out)?;
    let columns = [
        ("budget of", "scope", false),
        ("per", "period", false),
        ("tokens", "limit_tokens", true),
        ("used", "used_tokens", true),
        ("reserved", "reserved_tokens", true),
        ("resets", "resets_at", false),
    ];
    listed(budgets, &columns).write(&mut out)?;
    Ok(out.flush()?)
}

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
                body.insert("limits".into(), about.limits.over(None));
                let made = client.send(Method::POST, "/api/v1/keys", Some(&Value::Object(body)))?;
                self.tell_secret(&made)
            }
            KeyAction::Set { id, about } => {
                let mut patch = about.given();
                if about.limits.is_given() {
                    let before = client.get(&path(id))?;
                    patch.insert("limits".into(), about.limits.over(before.get("limits")));
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
