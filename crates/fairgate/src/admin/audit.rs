//! The command `fairgate audit`, which shows the changes made through the admin API.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use anyhow::Result;
use clap::Args;
use fairgate_store::MicroUnits;
use serde_json::Value;

use super::{AdminOptions, text};
use crate::output::{StdoutWriter, terminal_width};
use fairgate_table::{TableCell, TextTable};

/// Show the changes made through the admin API, newest first.
///
/// For changes made with these commands, the column "who" is the user who ran the command ($USER). With --json, each
/// change has the full state before and after it.
#[derive(Debug, Args)]
pub(crate) struct AuditArgs {
    #[command(flatten)]
    common: AdminOptions,
    /// Greatest number of changes to show.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,
}

impl AuditArgs {
    pub(crate) fn run(&self) -> Result<()> {
        let page = self.common.client()?.get(&format!("/api/v1/audit?limit={}", self.limit))?;
        let items = &page["items"];
        if self.common.json {
            return self.common.print_line(items, "");
        }
        let mut out = StdoutWriter::stdout();
        table(items).write_within(&mut out, terminal_width())?;
        Ok(out.flush()?)
    }
}

fn table(items: &Value) -> TextTable {
    let mut table = TextTable::new(vec!["at", "who", "what", "to", "change"]);
    for item in items.as_array().into_iter().flatten() {
        table.row(vec![
            TableCell::Text(to_the_second(&text(item, "at"))),
            TableCell::Text(text(item, "actor")),
            TableCell::Text(text(item, "action")),
            TableCell::Text(text(item, "subject")),
            TableCell::Text(change(item)),
        ]);
    }
    table
}

/// Returns a time without its fraction of a second.
pub(super) fn to_the_second(moment: &str) -> String {
    match moment.split_once('.') {
        Some((seconds, _)) => format!("{seconds}Z"),
        None => moment.to_owned(),
    }
}

/// Describes a change by the fields that differ before and after it, or by all fields of an object that was added or
/// removed.
fn change(item: &Value) -> String {
    let (before, after) = (fields(&item["before"]), fields(&item["after"]));
    let listed = |fields: &BTreeMap<String, String>| {
        let subject = text(item, "subject");
        let shown = fields.iter().filter(|(name, value)| {
            !matches!(name.as_str(), "created_at" | "hint")
                && **value != subject
                && !matches!(value.as_str(), "none" | "false" | "allowed")
        });
        let shown: Vec<String> = shown.map(|(name, value)| format!("{name}: {value}")).collect();
        shown.join(", ")
    };
    match (before.is_empty(), after.is_empty()) {
        (true, true) => "-".to_owned(),
        (true, false) => listed(&after),
        (false, true) => format!("was {}", listed(&before)),
        (false, false) => {
            let none = "none".to_owned();
            let of =
                |fields: &BTreeMap<String, String>, name| fields.get(name).unwrap_or(&none).clone();
            let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
            let pairs = names.into_iter().map(|name| (name, of(&before, name), of(&after, name)));
            let changed = pairs.filter(|(_, was, is)| was != is);
            let shown = changed.map(|(name, was, is)| format!("{name}: {was} → {is}"));
            let shown: Vec<String> = shown.collect();
            if shown.is_empty() { "-".to_owned() } else { shown.join(", ") }
        }
    }
}

/// Returns all fields of an object and of the objects inside it, with their values. Budgets have the names that the
/// commands use.
fn fields(value: &Value) -> BTreeMap<String, String> {
    let mut fields = BTreeMap::new();
    collect(value, &mut fields);
    fields
}

fn collect(value: &Value, fields: &mut BTreeMap<String, String>) {
    for (name, value) in value.as_object().into_iter().flatten() {
        match value {
            Value::Object(_) => collect(value, fields),
            Value::Array(budgets) if name == "budgets" => {
                fields.extend(budgets.iter().map(budget));
            }
            _ => {
                let shown = text(
                    &Value::Object([(name.clone(), value.clone())].into_iter().collect()),
                    name,
                );
                fields.insert(name.clone(), if shown == "-" { "none".to_owned() } else { shown });
            }
        }
    }
}

/// Returns a budget's name, as the commands write it, and its amount.
fn budget(budget: &Value) -> (String, String) {
    let tier = if budget["tier"] == "hosted" { "hosted_" } else { "" };
    let period = text(budget, "period");
    // Entries of earlier versions have only tokens.
    if budget["tokens"].is_u64() {
        return (format!("tokens_per_{period}"), text(budget, "tokens"));
    }
    let unit = text(budget, "unit");
    let amount = match budget["amount"].as_u64() {
        Some(amount) if unit == "money" => MicroUnits(amount).to_string(),
        _ => text(budget, "amount"),
    };
    (format!("{tier}{unit}_per_{period}"), amount)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_changed_is_told() {
        let limits =
            |budgets: Value, rate: Value| json!({"budgets": budgets, "requests_per_minute": rate});
        let day = json!([{"period": "day", "tokens": 1000}]);
        let before = json!({"name": "chat", "weight": 100, "limits": limits(day, json!(1))});
        let after =
            json!({"name": "chat", "weight": 100, "limits": limits(json!([]), Value::Null)});
        let patch = json!({"subject": "chat", "before": before, "after": after});
        assert_eq!(change(&patch), "requests_per_minute: 1 → none, tokens_per_day: 1000 → none");
        let add = json!({"subject": "chat", "before": null, "after": before});
        assert_eq!(change(&add), "requests_per_minute: 1, tokens_per_day: 1000, weight: 100");
        let remove = json!({"subject": "chat", "before": after, "after": null});
        assert_eq!(change(&remove), "was weight: 100");
        let budget = |unit: &str, tier: &str, amount: u64| json!({"period": "day", "unit": unit, "tier": tier, "amount": amount});
        let set = json!([budget("money", "hosted", 250_000), budget("tokens", "any", 7)]);
        let set =
            json!({"subject": "hosted", "before": {"budgets": []}, "after": {"budgets": set}});
        assert_eq!(change(&set), "hosted_money_per_day: 0.25, tokens_per_day: 7");
        assert_eq!(to_the_second("2026-11-15T12:57:45.409124Z"), "2026-11-15T12:57:45Z");
    }
}
