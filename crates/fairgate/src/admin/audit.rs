//! The command `fairgate audit`, which shows the changes made through the admin API.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use clap::Args;
use fairgate_api::admin::AuditBody;
use fairgate_money::MicroUnits;
use fairgate_table::{TableCell, TextTable};
use http::Method;
use serde::Deserialize;
use serde_json::Value;

use super::{AdminOptions, escaped, items, or_dash, text_or_dash, understood};
use crate::output::terminal_width;
use crate::text_format::one_line;

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
    /// Only changes of this actor, such as admin:oncall; `admin` also stands for each admin:NAME.
    #[arg(long)]
    actor: Option<String>,
    /// Only changes of this kind, such as tenant.patch; `tenant` also stands for each tenant.KIND.
    #[arg(long)]
    action: Option<String>,
    /// Only changes of this object.
    #[arg(long)]
    subject: Option<String>,
    /// Only changes since this time: an age such as 24h, or a time such as 2026-11-15T00:00:00Z.
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Only changes before this time, in the formats of --since.
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Undo the change of this id, unless somebody has changed the same since. --json shows the ids.
    #[arg(long, value_name = "ID", conflicts_with_all = ["actor", "action", "subject", "since", "until", "limit"])]
    undo: Option<u64>,
}

/// A change that was undone.
#[derive(Deserialize)]
struct UndoneChange {
    action: String,
    subject: String,
}

impl AuditArgs {
    pub(crate) fn run(&self) -> Result<()> {
        let client = self.common.client()?;
        if let Some(id) = self.undo {
            let answer = client.send(Method::POST, &format!("/api/v1/audit/{id}/undo"), None)?;
            let undone: UndoneChange = understood(&answer)?;
            let (action, subject) = (one_line(&undone.action), one_line(&undone.subject));
            return self.common.print_line(&answer, &format!("undone: {action} of {subject}"));
        }
        let mut path = format!("/api/v1/audit?limit={}", self.limit);
        let filters = [
            ("actor", &self.actor),
            ("action", &self.action),
            ("subject", &self.subject),
            ("since", &self.since),
            ("until", &self.until),
        ];
        for (name, value) in filters {
            if let Some(value) = value {
                path.push_str(&format!("&{name}={}", escaped(value)));
            }
        }
        let page = client.get(&path)?;
        self.common.print_parsed(&items(&page)?, |changes: &Vec<AuditBody>, out| {
            table(changes).write_within(out, terminal_width())
        })
    }
}

fn table(changes: &[AuditBody]) -> TextTable {
    let mut table = TextTable::new(vec!["at", "who", "what", "to", "change"]);
    for entry in changes {
        table.row(vec![
            TableCell::Text(to_the_second(&entry.at)),
            TableCell::Text(one_line(&entry.actor)),
            TableCell::Text(one_line(&entry.action)),
            TableCell::Text(one_line(&entry.subject)),
            TableCell::Text(change(entry)),
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
fn change(entry: &AuditBody) -> String {
    let (before, after) = (fields(entry.before.as_ref()), fields(entry.after.as_ref()));
    let listed = |fields: &BTreeMap<String, String>| {
        let subject = one_line(&entry.subject);
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
fn fields(value: Option<&Value>) -> BTreeMap<String, String> {
    let mut fields = BTreeMap::new();
    if let Some(value) = value {
        collect(value, &mut fields);
    }
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
                fields.insert(name.clone(), shown(value));
            }
        }
    }
}

/// Formats a value of an entry; `none` if it is null or an empty list.
fn shown(value: &Value) -> String {
    let shown = match value {
        Value::Null => None,
        Value::String(text) => Some(one_line(text)),
        Value::Array(items) => {
            let items: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
            (!items.is_empty()).then(|| one_line(&items.join(",")))
        }
        other => Some(other.to_string()),
    };
    shown.filter(|shown| shown != "-").unwrap_or_else(|| "none".to_owned())
}

/// A budget in an entry, as the store wrote it. Entries of earlier versions have only a period and tokens.
#[derive(Default, Deserialize)]
#[serde(default)]
struct RecordedBudget {
    period: Option<String>,
    unit: Option<String>,
    tier: Option<String>,
    amount: Option<u64>,
    tokens: Option<u64>,
}

/// Returns a budget's name, as the commands write it, and its amount.
fn budget(budget: &Value) -> (String, String) {
    let budget = RecordedBudget::deserialize(budget).unwrap_or_default();
    let period = text_or_dash(budget.period.as_deref());
    if let Some(tokens) = budget.tokens {
        return (format!("tokens_per_{period}"), tokens.to_string());
    }
    let tier = if budget.tier.as_deref() == Some("hosted") { "hosted_" } else { "" };
    let unit = text_or_dash(budget.unit.as_deref());
    let amount = match budget.amount {
        Some(amount) if unit == "money" => MicroUnits(amount).to_string(),
        amount => or_dash(amount),
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
        let entry = |subject: &str, before: Value, after: Value| AuditBody {
            id: 1,
            at: "2026-11-15T12:57:45Z".into(),
            actor: "admin".into(),
            action: "patch".into(),
            subject: subject.into(),
            before: Some(before).filter(|value| !value.is_null()),
            after: Some(after).filter(|value| !value.is_null()),
            undo: false,
        };
        let patch = entry("chat", before.clone(), after.clone());
        assert_eq!(change(&patch), "requests_per_minute: 1 → none, tokens_per_day: 1000 → none");
        let add = entry("chat", Value::Null, before);
        assert_eq!(change(&add), "requests_per_minute: 1, tokens_per_day: 1000, weight: 100");
        let remove = entry("chat", after, Value::Null);
        assert_eq!(change(&remove), "was weight: 100");
        let budget = |unit: &str, tier: &str, amount: u64| json!({"period": "day", "unit": unit, "tier": tier, "amount": amount});
        let set = json!([budget("money", "hosted", 250_000), budget("tokens", "any", 7)]);
        let set = entry("hosted", json!({"budgets": []}), json!({ "budgets": set }));
        assert_eq!(change(&set), "hosted_money_per_day: 0.25, tokens_per_day: 7");
        assert_eq!(to_the_second("2026-11-15T12:57:45.409124Z"), "2026-11-15T12:57:45Z");
    }
}
