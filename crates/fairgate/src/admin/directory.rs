//! The commands `fairgate group` and `fairgate tenant`.

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Map, Value, json};

use super::budgets::print_budgets;
use super::limits::{self, GroupLimitArgs, LimitArgs};
use super::{AdminOptions, escaped, fetch_all, given_names, text};
use fairgate_table::{TableCell, TextTable};

/// Manage groups. The tenants of a group divide the group's share.
#[derive(Debug, Args)]
pub(crate) struct GroupCommand {
    #[command(flatten)]
    common: AdminOptions,
    #[command(subcommand)]
    action: GroupAction,
}

#[derive(Debug, Subcommand)]
enum GroupAction {
    /// List all groups with their weights and limits.
    List,
    /// Add a group, with a weight and limits.
    Add {
        /// Name of the group.
        name: String,
        /// Weight of the group, relative to the other groups. Default: 100.
        #[arg(long)]
        weight: Option<u64>,
        #[command(flatten)]
        limits: GroupLimitArgs,
    },
    /// Show one group and its budgets.
    Show {
        /// Name of the group.
        name: String,
    },
    /// Change a group. Settings that are not given stay as they are.
    Set {
        /// Name of the group.
        name: String,
        /// Weight of the group, relative to the other groups.
        #[arg(long)]
        weight: Option<u64>,
        #[command(flatten)]
        limits: GroupLimitArgs,
    },
    /// Remove a group that has no tenants.
    Remove {
        /// Name of the group.
        name: String,
    },
}

impl GroupCommand {
    pub(crate) fn run(&self) -> Result<()> {
        let client = self.common.client()?;
        let one = |answer: &Value| groups(&json!([answer]));
        match &self.action {
            GroupAction::List => {
                let list = fetch_all(&client, "/api/v1/groups")?;
                self.common.print_table(&list, groups)
            }
            GroupAction::Show { name } => {
                let path = format!("/api/v1/groups/{}", escaped(name));
                let mut group = client.get(&path)?;
                let budgets = client.get(&format!("{path}/budgets"))?;
                group["budgets"] = budgets.get("items").cloned().unwrap_or_default();
                self.common.print_table(&group, one)?;
                if self.common.json { Ok(()) } else { print_budgets(&group["budgets"]) }
            }
            GroupAction::Add { name, weight, limits } => {
                let limits = limits::merged_limits(limits.given(), None);
                let mut body = json!({"name": name, "limits": limits});
                if let Some(weight) = weight {
                    body["weight"] = json!(weight);
                }
                let made = client.send(Method::POST, "/api/v1/groups", Some(&body))?;
                self.common.print_table(&made, one)
            }
            GroupAction::Set { name, weight, limits } => {
                let path = format!("/api/v1/groups/{}", escaped(name));
                let mut patch = Map::new();
                patch.extend(weight.map(|weight| ("weight".to_owned(), json!(weight))));
                let given = limits.given();
                if !given.is_empty() {
                    let before = client.get(&path)?;
                    patch.insert(
                        "limits".into(),
                        limits::merged_limits(given, before.get("limits")),
                    );
                }
                if patch.is_empty() {
                    bail!("nothing to change: see `fairgate group set --help`");
                }
                let set = client.send(Method::PATCH, &path, Some(&Value::Object(patch)))?;
                self.common.print_table(&set, one)
            }
            GroupAction::Remove { name } => {
                let path = format!("/api/v1/groups/{}", escaped(name));
                let gone = client.send(Method::DELETE, &path, None)?;
                self.common.print_line(&gone, &format!("group {name} is removed"))
            }
        }
    }
}

fn groups(items: &Value) -> TextTable {
    let mut table = TextTable::new(vec!["group", "weight", "created", "limits"]);
    for item in items.as_array().into_iter().flatten() {
        table.row(vec![
            TableCell::Text(text(item, "name")),
            TableCell::Number(text(item, "weight")),
            TableCell::Text(text(item, "created_at")),
            TableCell::Text(limits::format_limits(item)),
        ]);
    }
    table
}

/// Manage tenants, which are the teams, customers or programs that have shares, limits and budgets.
#[derive(Debug, Args)]
pub(crate) struct TenantCommand {
    #[command(flatten)]
    common: AdminOptions,
    #[command(subcommand)]
    action: TenantAction,
}

#[derive(Debug, Subcommand)]
enum TenantAction {
    /// List all tenants with their groups, weights and limits.
    List,
    /// Show one tenant and its budgets.
    Show {
        /// Name of the tenant.
        name: String,
    },
    /// Add a tenant to a group.
    Add {
        /// Name of the tenant.
        name: String,
        /// Group that the tenant belongs to.
        #[arg(long, default_value = "default")]
        group: String,
        /// Weight of the tenant, relative to the other tenants of its group. Default: 100.
        #[arg(long)]
        weight: Option<u64>,
        /// Labels that an agent must have to work on the tenant's tasks, such as docker or machine:m1.
        #[arg(long, value_delimiter = ',', value_name = "LABEL,…")]
        requires: Vec<String>,
        #[command(flatten)]
        limits: LimitArgs,
    },
    /// Change a tenant. Settings that are not given stay as they are.
    Set {
        /// Name of the tenant.
        name: String,
        /// Group that the tenant belongs to.
        #[arg(long)]
        group: Option<String>,
        /// Weight of the tenant, relative to the other tenants of its group.
        #[arg(long)]
        weight: Option<u64>,
        /// Labels that an agent must have to work on the tenant's tasks. The given labels replace all earlier ones, and ""
        /// removes all.
        #[arg(long, value_delimiter = ',', value_name = "LABEL,…")]
        requires: Option<Vec<String>>,
        #[command(flatten)]
        limits: LimitArgs,
    },
    /// Refuse a tenant's keys from now on.
    Disable {
        /// Name of the tenant.
        name: String,
    },
    /// Accept a tenant's keys again.
    Enable {
        /// Name of the tenant.
        name: String,
    },
    /// Remove a tenant and its keys. The tenant's usage stays in the ledger.
    Remove {
        /// Name of the tenant.
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
            self.common.print_table(&set, |tenant| tenants(&json!([tenant])))
        };
        match &self.action {
            TenantAction::List => {
                let list = fetch_all(&client, "/api/v1/tenants")?;
                self.common.print_table(&list, tenants)
            }
            TenantAction::Show { name } => {
                let mut tenant = client.get(&path(name))?;
                let budgets = client.get(&format!("{}/budgets", path(name)))?;
                tenant["budgets"] = budgets.get("items").cloned().unwrap_or_default();
                self.common.print_table(&tenant, |tenant| tenants(&json!([tenant])))?;
                if self.common.json { Ok(()) } else { print_budgets(&tenant["budgets"]) }
            }
            TenantAction::Add { name, group, weight, requires, limits } => {
                let limits = limits::merged_limits(limits.given(), None);
                let mut body = json!({"name": name, "group": group, "limits": limits});
                if !requires.is_empty() {
                    body["requires"] = json!(given_names(requires));
                }
                if let Some(weight) = weight {
                    body["weight"] = json!(weight);
                }
                let made = client.send(Method::POST, "/api/v1/tenants", Some(&body))?;
                self.common.print_table(&made, |tenant| tenants(&json!([tenant])))
            }
            TenantAction::Set { name, group, weight, requires, limits } => {
                let mut patch = Map::new();
                let requires = requires.as_deref().map(given_names);
                patch.extend(requires.map(|labels| ("requires".to_owned(), json!(labels))));
                patch.extend(group.as_ref().map(|group| ("group".to_owned(), json!(group))));
                patch.extend(weight.map(|weight| ("weight".to_owned(), json!(weight))));
                let given = limits.given();
                if !given.is_empty() {
                    let before = client.get(&path(name))?;
                    patch.insert(
                        "limits".into(),
                        limits::merged_limits(given, before.get("limits")),
                    );
                }
                patched(name, Value::Object(patch))
            }
            TenantAction::Disable { name } => patched(name, json!({"disabled": true})),
            TenantAction::Enable { name } => patched(name, json!({"disabled": false})),
            TenantAction::Remove { name } => {
                let gone = client.send(Method::DELETE, &path(name), None)?;
                self.common.print_line(&gone, &format!("tenant {name} and its keys are removed"))
            }
        }
    }
}

fn tenants(items: &Value) -> TextTable {
    let headings = vec!["tenant", "group", "weight", "state", "requires", "limits"];
    let mut table = TextTable::new(headings);
    for item in items.as_array().into_iter().flatten() {
        let disabled = item.get("disabled").and_then(Value::as_bool) == Some(true);
        table.row(vec![
            TableCell::Text(text(item, "name")),
            TableCell::Text(text(item, "group")),
            TableCell::Number(text(item, "weight")),
            TableCell::Text(if disabled { "disabled" } else { "enabled" }.into()),
            TableCell::Text(text(item, "requires")),
            TableCell::Text(limits::format_limits(item)),
        ]);
    }
    table
}
