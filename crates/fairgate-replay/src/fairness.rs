//! Reports the service that every flow got and was due, and the lag of flows with waiting requests.

use std::io::{self, Write};

use fairgate_core::Pool;
use fairgate_core::fairness::{FlowFairness, LagWithBound, NodeFairness};
use fairgate_journal::explain_text::{got_and_due, strict_order};
use fairgate_journal::write_fairness;

use serde::Serialize;
use serde_json::value::RawValue;

use super::edition::OtherEdition;
use crate::shown_unit::ShownUnit;
use crate::text_format::safe_name;
use fairgate_table::{TableCell, TextTable};

/// Writes the tables of each node with service in this unit, and a legend of the columns.
pub fn write_tables(pool: &Pool, unit: ShownUnit, mut out: impl Write) -> io::Result<()> {
    let nodes = pool.fairness();
    if nodes.is_empty() {
        return writeln!(out, "at the end the pool keeps no flow: nothing waits or is in flight");
    }
    for node in &nodes {
        writeln!(out, "{}", heading(node))?;
        service(node, unit).write(&mut out)?;
        for flow in node.flows.iter().filter(|flow| !flow.is_within_bound()) {
            let name = format!("{} {}", node.by.name(), safe_name(&flow.name));
            let told = got_and_due(flow.got, flow.due);
            writeln!(out, "! {name} {}", unit.in_words(&told))?;
        }
        if node.flows.iter().any(|flow| flow.lag.is_some()) {
            writeln!(out)?;
            lags(node).write(&mut out)?;
        }
        writeln!(out)?;
    }
    write_legend(&nodes, unit, out)
}

/// Writes the report as one JSON list, in the journal's format. Each node names the unit of its counters.
pub fn write_json(
    pool: &Pool,
    unit: ShownUnit,
    mut out: impl Write,
    other_edition: Option<OtherEdition>,
) -> io::Result<()> {
    let mut list = with_first_field(&write_fairness(&pool.fairness()), "unit", unit.name())?;
    if let Some(other) = other_edition {
        list = with_first_field(&list, "other_edition", other)?;
    }
    writeln!(out, "{list}")
}

/// Adds a field as the first one to each object of a JSON list. Numbers keep all their digits.
fn with_first_field(list: &str, name: &str, value: impl Serialize) -> serde_json::Result<String> {
    let objects: Vec<&RawValue> = serde_json::from_str(list)?;
    let value = serde_json::to_string(&value)?;
    let with =
        |object: &&RawValue| object.get().replacen('{', &format!("{{\"{name}\":{value},"), 1);
    Ok(format!("[{}]", objects.iter().map(with).collect::<Vec<_>>().join(",")))
}

fn heading(node: &NodeFairness) -> String {
    let path: Vec<String> = node.path.iter().map(|name| safe_name(name)).collect();
    let place =
        if path.is_empty() { "at the root".into() } else { format!("in {}", path.join(" / ")) };
    format!("{} by {} {place}", node.kind, node.by.name())
}

/// Builds a table of the service that each flow got and was due. The service due is left out if the node promises no
/// shares, and the use of caps is added if a flow has a cap.
fn service(node: &NodeFairness, unit: ShownUnit) -> TextTable {
    let (got, due) = match unit {
        ShownUnit::Tokens => ("got tokens", "due tokens"),
        ShownUnit::WorkerTime => ("got µs", "due µs"),
        ShownUnit::Money => ("got micro-units", "due micro-units"),
    };
    let promises = node.flows.iter().any(|flow| flow.due.is_some());
    let caps = node.flows.iter().any(|flow| flow.cap_use.is_some());
    let mut headings = vec![node.by.name()];
    headings.extend(promises.then_some("weight"));
    headings.extend(["waiting", "in flight", got]);
    headings.extend(promises.then_some([due, "difference", "bound"]).into_iter().flatten());
    headings.extend(caps.then_some("cap use"));
    let strict = node.flows.iter().any(|flow| flow.goes_before.is_some());
    headings.extend(strict.then_some("order"));
    let mut table = TextTable::new(headings);
    for flow in &node.flows {
        let number = |it: String| TableCell::Number(it);
        let mut cells = vec![TableCell::Text(safe_name(&flow.name))];
        if promises {
            cells.push(number(flow.weight.map_or_else(none, |weight| weight.get().to_string())));
        }
        let counts = [flow.waiting.to_string(), flow.in_flight.to_string(), flow.got.to_string()];
        cells.extend(counts.map(number));
        if promises {
            cells.extend(against_due(flow).map(number));
        }
        if caps {
            cells.push(number(
                flow.cap_use.map_or_else(none, |cap_use| cap_use.percentage().to_string()),
            ));
        }
        if let Some(goes_before) = &flow.goes_before {
            cells.push(TableCell::Text(strict_order(goes_before)));
        }
        table.row(cells);
    }
    table
}

/// Returns the service that a flow was due, the difference from the service that it got, and the bound of this
/// difference.
fn against_due(flow: &FlowFairness) -> [String; 3] {
    let Some((due, difference)) = flow.due.zip(flow.difference()) else {
        return [none(), none(), none()];
    };
    let mark = if flow.is_within_bound() { "" } else { "! " };
    let sign = if difference > 0 { "+" } else { "" };
    [due.tokens.to_string(), format!("{mark}{sign}{difference}"), due.bound.to_string()]
}

/// Builds a table of the lags of flows with waiting requests.
fn lags(node: &NodeFairness) -> TextTable {
    let mut table = TextTable::new(vec![node.by.name(), "lag", "least", "most"]);
    for flow in &node.flows {
        let Some(LagWithBound { lag, bound }) = flow.lag else { continue };
        let (least, most) = match bound {
            Some((least, most)) => (least.to_string(), most.to_string()),
            None => (none(), none()),
        };
        let numbers = [lag.to_string(), least, most].map(TableCell::Number);
        table.row([TableCell::Text(safe_name(&flow.name))].into_iter().chain(numbers).collect());
    }
    table
}

fn none() -> String {
    "–".into()
}

/// Writes a legend of the columns that are present.
fn write_legend(nodes: &[NodeFairness], unit: ShownUnit, mut out: impl Write) -> io::Result<()> {
    let any = |is: fn(&FlowFairness) -> bool| nodes.iter().flat_map(|node| &node.flows).any(is);
    let promises = any(|flow| flow.due.is_some());
    let off_in_drr = nodes
        .iter()
        .any(|node| node.kind == "drr" && node.flows.iter().any(|flow| !flow.is_within_bound()));
    let lines = [
        (
            true,
            "got: tokens served: costs of granted requests, corrected to what they used when they end.",
        ),
        (
            promises,
            "due: the flow's part, by weight, of all that was served while it took part, in tokens.",
        ),
        (
            promises,
            "difference: got less due, in tokens; bound: the most that it should be, either way.",
        ),
        (any(|flow| !flow.is_within_bound()), "!: outside its bound."),
        (
            off_in_drr,
            "In drr quanta are no shares, so a class may drift; share with classes keeps the bound.",
        ),
        (
            any(|flow| flow.cap_use.is_some()),
            "cap use: requests in flight ÷ cap, over the time in which something waited.",
        ),
        (
            any(|flow| flow.lag.is_some()),
            "lag: how far a waiting flow is behind its node's clock, in tokens per weight; below 0 it is ahead.\nleast, most: where the policy keeps the lag, given what is in flight.",
        ),
    ];
    for (_, line) in lines.iter().filter(|(is_there, _)| *is_there) {
        match unit.words() {
            None => writeln!(out, "{line}")?,
            Some(words) => {
                let line = line.replace("tokens served", &format!("{words} served"));
                writeln!(out, "{}", line.replace("in tokens", &format!("in {words}")))?;
            }
        }
    }
    Ok(())
}
