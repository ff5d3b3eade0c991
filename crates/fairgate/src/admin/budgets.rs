//! The commands `fairgate hosted` and `fairgate price`, and the table of budgets that several commands print.

use std::io::Write;

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Value, json};

use super::limits::{self, HostedBudgetArgs};
use super::{AdminOptions, listed, text};
use crate::output::StdoutWriter;
use fairgate_table::{TableCell, TextTable};

/// Prints the budgets of a tenant, group or the hosted tier as a table. Prints nothing if there are none.
pub(super) fn print_budgets(budgets: &Value) -> Result<()> {
    if budgets.as_array().is_none_or(Vec::is_empty) {
        return Ok(());
    }
    let mut out = StdoutWriter::stdout();
    writeln!(out)?;
    table(budgets).write(&mut out)?;
    Ok(out.flush()?)
}

fn table(budgets: &Value) -> TextTable {
    let headings = ["budget of", "per", "workers", "limit", "used", "reserved", "resets"];
    let mut table = TextTable::new(headings.to_vec());
    for budget in budgets.as_array().into_iter().flatten() {
        let unit = text(budget, "unit");
        let unit_name = match unit.as_str() {
            "money" => text(budget, "currency"),
            _ => "tokens".to_owned(),
        };
        let amount = |what: &str| {
            TableCell::Number(format!("{} {unit_name}", text(budget, &format!("{what}_{unit}"))))
        };
        table.row(vec![
            TableCell::Text(text(budget, "scope")),
            TableCell::Text(text(budget, "period")),
            TableCell::Text(text(budget, "tier")),
            amount("limit"),
            amount("used"),
            amount("reserved"),
            TableCell::Text(text(budget, "resets_at")),
        ]);
    }
    table
}

/// Show or change the hosted tier's budgets, which all tenants share on hosted workers.
#[derive(Debug, Args)]
pub(crate) struct HostedCommand {
    #[command(flatten)]
    common: AdminOptions,
    #[command(subcommand)]
    action: HostedAction,
}

#[derive(Debug, Subcommand)]
enum HostedAction {
    /// Show the budgets of the hosted tier.
    Show,
    /// Change the budgets of the hosted tier. Budgets that are not given stay as they are, and `none` removes a budget.
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
                let limits = limits::merged_limits(given, before.get("limits"));
                client.send(Method::PATCH, HOSTED, Some(&json!({"limits": limits})))?
            }
        };
        match hosted["budgets"].as_array().is_some_and(Vec::is_empty) {
            true => self.common.print_line(&hosted, "the hosted tier as a whole has no budget"),
            false => self.common.print_table(&hosted, |hosted| table(&hosted["budgets"])),
        }
    }
}

/// Show prices of models, from the current and earlier configuration files.
#[derive(Debug, Args)]
pub(crate) struct PriceCommand {
    #[command(flatten)]
    common: AdminOptions,
    #[command(subcommand)]
    action: PriceAction,
}

#[derive(Debug, Subcommand)]
enum PriceAction {
    /// List all current and former prices, the oldest first.
    List,
}

impl PriceCommand {
    pub(crate) fn run(&self) -> Result<()> {
        let PriceAction::List = self.action;
        let mut prices = self.common.client()?.get("/api/v1/prices")?;
        self.common.print_table(&prices["items"].take(), |prices| {
            let columns = [
                ("price", "id", false),
                ("model", "model", false),
                ("upstream", "upstream", false),
                ("currency", "currency", false),
                ("input/M", "input_per_million_tokens", true),
                ("cached/M", "cached_input_per_million_tokens", true),
                ("write/M", "cache_write_per_million_tokens", true),
                ("write 1h/M", "cache_write_1h_per_million_tokens", true),
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
