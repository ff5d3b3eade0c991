//! How budgets stand, the hosted tier as a whole, and prices.

use std::io::Write;

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Value, json};

use super::limits::{self, HostedBudgetArgs};
use super::{Common, listed, text};
use crate::output::Output;
use crate::table::{Cell, Table};

/// Budgets as a table below what they belong to; nothing where there is none.
pub(super) fn tell_budgets(budgets: &Value) -> Result<()> {
    if budgets.as_array().is_none_or(Vec::is_empty) {
        return Ok(());
    }
    let mut out = Output::stdout();
    writeln!(out)?;
    table(budgets).write(&mut out)?;
    Ok(out.flush()?)
}

fn table(budgets: &Value) -> Table {
    let headings = ["budget of", "per", "workers", "limit", "used", "reserved", "resets"];
    let mut table = Table::new(headings.to_vec());
    for budget in budgets.as_array().into_iter().flatten() {
        let unit = text(budget, "unit");
        let unit_name = match unit.as_str() {
            "money" => text(budget, "currency"),
            _ => "tokens".to_owned(),
        };
        let amount = |what: &str| {
            Cell::Number(format!("{} {unit_name}", text(budget, &format!("{what}_{unit}"))))
        };
        table.row(vec![
            Cell::Text(text(budget, "scope")),
            Cell::Text(text(budget, "period")),
            Cell::Text(text(budget, "tier")),
            amount("limit"),
            amount("used"),
            amount("reserved"),
            Cell::Text(text(budget, "resets_at")),
        ]);
    }
    table
}

/// The hosted tier: what all tenants together may use on hosted workers.
#[derive(Debug, Args)]
pub(crate) struct HostedCommand {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    action: HostedAction,
}

#[derive(Debug, Subcommand)]
enum HostedAction {
    /// Show its budgets.
    Show,
    /// Change its budgets; what is not given stays, `none` lifts one.
    Set {
        #[command(flatten)]
        limits: HostedBudgetArgs,
    },
}

const HOSTED: &str = "/api/v1/hosted";

impl HostedCommand {
    pub(crate) fn run(&self) -> Result<()> {
        let client = self.common.client()?;
        let hosted = match &self.action {
            HostedAction::Show => client.get(HOSTED)?,
            HostedAction::Set { limits } => {
                let given = limits.given();
                if given.is_empty() {
                    bail!("nothing to change: see `fairgate hosted set --help`");
                }
                let before = client.get(HOSTED)?;
                let limits = limits::over(given, before.get("limits"));
                client.send(Method::PATCH, HOSTED, Some(&json!({"limits": limits})))?
            }
        };
        match hosted["budgets"].as_array().is_some_and(Vec::is_empty) {
            true => self.common.say(&hosted, "the hosted tier as a whole has no budget"),
            false => self.common.tell(&hosted, |hosted| table(&hosted["budgets"])),
        }
    }
}

/// Prices of models, as the configuration file has or had them.
#[derive(Debug, Args)]
pub(crate) struct PriceCommand {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    action: PriceAction,
}

#[derive(Debug, Subcommand)]
enum PriceAction {
    /// List all prices that are, or were, in force, the oldest first.
    List,
}

impl PriceCommand {
    pub(crate) fn run(&self) -> Result<()> {
        let PriceAction::List = self.action;
        let mut prices = self.common.client()?.get("/api/v1/prices")?;
        self.common.tell(&prices["items"].take(), |prices| {
            let columns = [
                ("price", "id", false),
                ("model", "model", false),
                ("upstream", "upstream", false),
                ("currency", "currency", false),
                ("input/M", "input_per_million_tokens", true),
                ("cached/M", "cached_input_per_million_tokens", true),
                ("output/M", "output_per_million_tokens", true),
                ("request", "per_request", true),
                ("from", "from", false),
                ("first seen", "first_seen", false),
                ("in the file", "configured", false),
            ];
            listed(prices, &columns)
        })
    }
}
