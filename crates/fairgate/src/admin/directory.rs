//! The commands `fairgate group` and `fairgate tenant`.

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use fairgate_api::admin::{GroupBody, TenantBody};
use fairgate_table::{TableCell, TextTable};
use http::Method;
use serde_json::{Map, Value, json};

use super::budgets::print_budgets;
use super::client::AdminClient;
use super::limits::{self, GroupLimitArgs, LimitArgs};
use super::{AdminOptions, escaped, fetch_all, given_names, items, names, understood};
use crate::text_format::one_line;

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
        let one = |group: &GroupBody| groups(std::slice::from_ref(group));
        match &self.action {
            GroupAction::List => {
                let list = fetch_all(&client, "/api/v1/groups")?;
                self.common.print_table(&list, |list: &Vec<GroupBody>| groups(list))
            }
            GroupAction::Show { name } => {
                let path = format!("/api/v1/groups/{}", escaped(name));
                let (group, budgets) = with_budgets(&client, &path)?;
                self.common.print_table(&group, one)?;
                if self.common.json { Ok(()) } else { print_budgets(&budgets) }
            }
            GroupAction::Add { name, weight, limits } => {
                let limits = limits::new_limits(limits.given());
                let mut body = object([("name", json!(name)), ("limits", limits)]);
                body.extend(weight.map(|weight| ("weight".to_owned(), json!(weight))));
                let body = Value::Object(body);
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
                    patch.insert("limits".into(), limits::changed_limits(given, &before)?);
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

/// Returns an object with these fields.
fn object<const N: usize>(fields: [(&str, Value); N]) -> Map<String, Value> {
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Fetches a group or tenant, and its budgets. The budgets are also a field of the returned object, as --json shows it.
fn with_budgets(client: &AdminClient, path: &str) -> Result<(Value, Value)> {
    let mut owner: Map<String, Value> = understood(&client.get(path)?)?;
    let budgets = items(&client.get(&format!("{path}/budgets"))?)?;
    owner.insert("budgets".to_owned(), budgets.clone());
    Ok((Value::Object(owner), budgets))
}

fn groups(list: &[GroupBody]) -> TextTable {
    let mut table = TextTable::new(vec!["group", "weight", "created", "limits"]);
    for group in list {
        table.row(vec![
            TableCell::Text(one_line(&group.name)),
            TableCell::Number(group.weight.to_string()),
            TableCell::Text(group.created_at.clone()),
            TableCell::Text(limits::format_limits(&group.limits)),
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
        let one = |tenant: &TenantBody| tenants(std::slice::from_ref(tenant));
        let patched = |name: &str, patch: Value| -> Result<()> {
            if patch.as_object().is_some_and(Map::is_empty) {
                bail!("nothing to change: see `fairgate tenant set --help`");
            }
            let set = client.send(Method::PATCH, &path(name), Some(&patch))?;
            self.common.print_table(&set, one)
        };
        match &self.action {
            TenantAction::List => {
                let list = fetch_all(&client, "/api/v1/tenants")?;
                self.common.print_table(&list, |list: &Vec<TenantBody>| tenants(list))
            }
            TenantAction::Show { name } => {
                let (tenant, budgets) = with_budgets(&client, &path(name))?;
                self.common.print_table(&tenant, one)?;
                if self.common.json { Ok(()) } else { print_budgets(&budgets) }
            }
            TenantAction::Add { name, group, weight, requires, limits } => {
                let limits = limits::new_limits(limits.given());
                let mut body =
                    object([("name", json!(name)), ("group", json!(group)), ("limits", limits)]);
                if !requires.is_empty() {
                    body.insert("requires".to_owned(), json!(given_names(requires)));
                }
                body.extend(weight.map(|weight| ("weight".to_owned(), json!(weight))));
                let body = Value::Object(body);
                let made = client.send(Method::POST, "/api/v1/tenants", Some(&body))?;
                self.common.print_table(&made, one)
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
                    patch.insert("limits".into(), limits::changed_limits(given, &before)?);
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

fn tenants(list: &[TenantBody]) -> TextTable {
    let headings = vec!["tenant", "group", "weight", "state", "requires", "limits"];
    let mut table = TextTable::new(headings);
    for tenant in list {
        table.row(vec![
            TableCell::Text(one_line(&tenant.name)),
            TableCell::Text(one_line(&tenant.group)),
            TableCell::Number(tenant.weight.to_string()),
            TableCell::Text(if tenant.disabled { "disabled" } else { "enabled" }.into()),
            TableCell::Text(names(&tenant.requires)),
            TableCell::Text(limits::format_limits(&tenant.limits)),
        ]);
    }
    table
}
