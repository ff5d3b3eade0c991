//! The commands `fairgate hosted` and `fairgate price`, and the table of budgets that several commands print.

use std::io::Write;

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use fairgate_api::admin::{BudgetBody, HostedBody, MoneyText, PriceBody};
use fairgate_table::{TableCell, TextTable};
use http::Method;
use serde_json::{Value, json};

use super::limits::{self, HostedBudgetArgs};
use super::{AdminOptions, items, or_dash, text_or_dash, understood};
use crate::output::StdoutWriter;
use crate::text_format::one_line;

/// Prints the budgets of a tenant, group or the hosted tier as a table. Prints nothing if there are none.
pub(super) fn print_budgets(budgets: &Value) -> Result<()> {
    let budgets: Vec<BudgetBody> = understood(budgets)?;
    if budgets.is_empty() {
        return Ok(());
    }
    let mut out = StdoutWriter::stdout();
    writeln!(out)?;
    table(&budgets).write(&mut out)?;
    Ok(out.flush()?)
}

fn table(budgets: &[BudgetBody]) -> TextTable {
    let headings = ["budget of", "per", "workers", "limit", "used", "reserved", "resets"];
    let mut table = TextTable::new(headings.to_vec());
    for budget in budgets {
        let amount = |tokens: Option<u64>, money: Option<MoneyText>| {
            TableCell::Number(match budget.unit.as_str() {
                "money" => {
                    format!("{} {}", or_dash(money), text_or_dash(budget.currency.as_deref()))
                }
                _ => format!("{} tokens", or_dash(tokens)),
            })
        };
        table.row(vec![
            TableCell::Text(budget.scope.clone()),
            TableCell::Text(budget.period.clone()),
            TableCell::Text(budget.tier.clone()),
            amount(budget.limit_tokens, budget.limit_money),
            amount(budget.used_tokens, budget.used_money),
            amount(budget.reserved_tokens, budget.reserved_money),
            TableCell::Text(budget.resets_at.clone()),
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
                let limits = limits::changed_limits(given, &before)?;
                client.send(Method::PATCH, HOSTED, Some(&json!({"limits": limits})))?
            }
        };
        self.common.print_parsed(&hosted, |HostedBody { budgets, .. }: &HostedBody, out| {
            match &budgets[..] {
                [] => writeln!(out, "the hosted tier as a whole has no budget"),
                budgets => table(budgets).write(out),
            }
        })
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
        let prices = self.common.client()?.get("/api/v1/prices")?;
        self.common.print_table(&items(&prices)?, |list: &Vec<PriceBody>| prices_table(list))
    }
}

fn prices_table(list: &[PriceBody]) -> TextTable {
    let mut table = TextTable::new(vec![
        "price",
        "model",
        "upstream",
        "currency",
        "input/M",
        "cached/M",
        "write/M",
        "write 1h/M",
        "output/M",
        "request",
        "from",
        "first seen",
        "in the file",
    ]);
    for price in list {
        table.row(vec![
            TableCell::Text(price.id.clone()),
            TableCell::Text(one_line(&price.model)),
            TableCell::Text(text_or_dash(price.upstream.as_deref())),
            TableCell::Text(price.currency.clone()),
            TableCell::Number(price.input_per_million_tokens.to_string()),
            TableCell::Number(price.cached_input_per_million_tokens.to_string()),
            TableCell::Number(or_dash(price.cache_write_per_million_tokens)),
            TableCell::Number(or_dash(price.cache_write_1h_per_million_tokens)),
            TableCell::Number(price.output_per_million_tokens.to_string()),
            TableCell::Number(price.per_request.to_string()),
            TableCell::Text(or_dash(price.from.as_ref())),
            TableCell::Text(price.first_seen.clone()),
            TableCell::Text(price.configured.to_string()),
        ]);
    }
    table
}
