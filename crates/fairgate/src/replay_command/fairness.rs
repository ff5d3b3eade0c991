//! What every flow got beside what it was due, and how far the waiting ones are from their node's clock.

use std::io::{self, Write};

use fairgate_core::Pool;
use fairgate_core::fairness::{CapUse, FlowFairness, Lag, NodeFairness};
use fairgate_journal::write_fairness;

use crate::table::{Cell, Table};
use crate::words::{got_beside_due, shown};

/// Writes the tables of each node, and what their columns mean.
pub(crate) fn write_tables(pool: &Pool, mut out: impl Write) -> io::Result<()> {
    let nodes = pool.fairness();
    if nodes.is_empty() {
        return writeln!(out, "at the end the pool keeps no flow: nothing waits or is in flight");
    }
    for node in &nodes {
        writeln!(out, "{}", heading(node))?;
        service(node).write(&mut out)?;
        for flow in node.flows.iter().filter(|flow| !flow.is_within_bound()) {
            let name = format!("{} {}", node.by.name(), shown(&flow.name));
            writeln!(out, "! {name} {}", got_beside_due(flow.got, flow.due))?;
        }
        if node.flows.iter().any(|flow| flow.lag.is_some()) {
            writeln!(out)?;
            lags(node).write(&mut out)?;
        }
        writeln!(out)?;
    }
    write_legend(&nodes, out)
}

/// Writes the same as one JSON list, in the journal's form.
pub(crate) fn write_json(pool: &Pool, mut out: impl Write) -> io::Result<()> {
    writeln!(out, "{}", write_fairness(&pool.fairness()))
}

fn heading(node: &NodeFairness) -> String {
    let path: Vec<String> = node.path.iter().map(|name| shown(name)).collect();
    let place =
        if path.is_empty() { "at the root".into() } else { format!("in {}", path.join(" / ")) };
    format!("{} by {} {place}", node.kind, node.by.name())
}

/// Got beside due; only got where nothing is promised, and cap use where a flow has a cap.
fn service(node: &NodeFairness) -> Table {
    let promises = node.flows.iter().any(|flow| flow.due.is_some());
    let caps = node.flows.iter().any(|flow| flow.cap_use.is_some());
    let mut headings = vec![node.by.name()];
    headings.extend(promises.then_some("weight"));
    headings.extend(["waiting", "in flight", "got tokens"]);
    headings
        .extend(promises.then_some(["due tokens", "difference", "bound"]).into_iter().flatten());
    headings.extend(caps.then_some("cap use"));
    let mut table = Table::new(headings);
    for flow in &node.flows {
        let number = |it: String| Cell::Number(it);
        let mut cells = vec![Cell::Text(shown(&flow.name))];
        if promises {
            cells.push(number(flow.weight.map_or_else(none, |weight| weight.get().to_string())));
        }
        let counts = [flow.waiting.to_string(), flow.in_flight.to_string(), flow.got.to_string()];
        cells.extend(counts.map(number));
        if promises {
            cells.extend(against_due(flow).map(number));
        }
        if caps {
            cells.push(number(flow.cap_use.map_or_else(none, percent)));
        }
        table.row(cells);
    }
    table
}

/// Due, difference and bound.
fn against_due(flow: &FlowFairness) -> [String; 3] {
    let Some((due, difference)) = flow.due.zip(flow.difference()) else {
        return [none(), none(), none()];
    };
    let mark = if flow.is_within_bound() { "" } else { "! " };
    let sign = if difference > 0 { "+" } else { "" };
    [due.tokens.to_string(), format!("{mark}{sign}{difference}"), due.bound.to_string()]
}

fn percent(cap_use: CapUse) -> String {
    let thousandths = cap_use.thousandths();
    format!("{}.{} %", thousandths / 10, thousandths % 10)
}

/// How far the flows in which something waits are from the node's clock.
fn lags(node: &NodeFairness) -> Table {
    let mut table = Table::new(vec![node.by.name(), "lag", "least", "most"]);
    for flow in &node.flows {
        let Some(Lag { lag, bound }) = flow.lag else { continue };
        let (least, most) = match bound {
            Some((least, most)) => (least.to_string(), most.to_string()),
            None => (none(), none()),
        };
        let numbers = [lag.to_string(), least, most].map(Cell::Number);
        table.row([Cell::Text(shown(&flow.name))].into_iter().chain(numbers).collect());
    }
    table
}

fn none() -> String {
    "–".into()
}

/// What the columns mean that are there.
fn write_legend(nodes: &[NodeFairness], mut out: impl Write) -> io::Result<()> {
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
        writeln!(out, "{line}")?;
    }
    Ok(())
}
