//! Groups and tenants.

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Map, Value, json};

use super::budgets::tell_budgets;
use super::limits::{self, GroupLimitArgs, LimitArgs};
use super::{Common, all, escaped, text};
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
        #[command(flatten)]
        limits: GroupLimitArgs,
    },
    /// Show one group and its budgets.
    Show {
        /// Its name.
        name: String,
    },
    /// Change a group; what is not given stays.
    Set {
        /// Its name.
        name: String,
        /// Its share among groups.
        #[arg(long)]
        weight: Option<u64>,
        #[command(flatten)]
        limits: GroupLimitArgs,
    },
    /// Remove a group that has no tenants.
    Remove {
        /// Its name.
        name: String,
    },
}

impl GroupCommand {
    pub(crate) fn run(&self) -> Result<()> {
        let client = self.common.client()?;
        let one = |answer: &Value| groups(&json!([answer]));
        match &self.action {
            GroupAction::List => {
                let list = all(&client, "/api/v1/groups")?;
                self.common.tell(&list, groups)
            }
            GroupAction::Show { name } => {
                let path = format!("/api/v1/groups/{}", escaped(name));
                let mut group = client.get(&path)?;
                let budgets = client.get(&format!("{path}/budgets"))?;
                group["budgets"] = budgets.get("items").cloned().unwrap_or_default();
                self.common.tell(&group, one)?;
                if self.common.json { Ok(()) } else { tell_budgets(&group["budgets"]) }
            }
            GroupAction::Add { name, weight, limits } => {
                let limits = limits::over(limits.given(), None);
                let body = json!({"name": name, "weight": weight, "limits": limits});
                let made = client.send(Method::POST, "/api/v1/groups", Some(&body))?;
                self.common.tell(&made, one)
            }
            GroupAction::Set { name, weight, limits } => {
                let path = format!("/api/v1/groups/{}", escaped(name));
                let mut patch = Map::new();
                patch.extend(weight.map(|weight| ("weight".to_owned(), json!(weight))));
                let given = limits.given();
                if !given.is_empty() {
                    let before = client.get(&path)?;
                    patch.insert("limits".into(), limits::over(given, before.get("limits")));
                }
                if patch.is_empty() {
                    bail!("nothing to change: see `fairgate group set --help`");
                }
                let set = client.send(Method::PATCH, &path, Some(&Value::Object(patch)))?;
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

fn groups(items: &Value) -> Table {
    let mut table = Table::new(vec!["group", "weight", "created", "limits"]);
    for item in items.as_array().into_iter().flatten() {
        table.row(vec![
            Cell::Text(text(item, "name")),
            Cell::Number(text(item, "weight")),
            Cell::Text(text(item, "created_at")),
            Cell::Text(limits::told(item)),
        ]);
    }
    table
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
                let limits = limits::over(limits.given(), None);
                let body =
                    json!({"name": name, "group": group, "weight": weight, "limits": limits});
                let made = client.send(Method::POST, "/api/v1/tenants", Some(&body))?;
                self.common.tell(&made, |tenant| tenants(&json!([tenant])))
            }
            TenantAction::Set { name, group, weight, limits } => {
                let mut patch = Map::new();
                patch.extend(group.as_ref().map(|group| ("group".to_owned(), json!(group))));
                patch.extend(weight.map(|weight| ("weight".to_owned(), json!(weight))));
                let given = limits.given();
                if !given.is_empty() {
                    let before = client.get(&path(name))?;
                    patch.insert("limits".into(), limits::over(given, before.get("limits")));
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
