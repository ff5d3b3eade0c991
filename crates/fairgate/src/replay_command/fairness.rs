//! How far every waiting flow is from its share, and how far it could be.

use std::io::{self, Write};

use fairgate_core::Pool;
use fairgate_core::fairness::{FlowFairness, NodeFairness};
use fairgate_journal::write_fairness;

use crate::table::{Cell, Table};
use crate::words::shown;

/// Writes a table for each share and drr node in which something waits.
pub(crate) fn write_tables(pool: &Pool, mut out: impl Write) -> io::Result<()> {
    let nodes = pool.fairness();
    if nodes.is_empty() {
        return writeln!(out, "at the end nothing waits in a share or drr node");
    }
    for node in &nodes {
        writeln!(out, "{}", heading(node))?;
        let mut table =
            Table::new(vec![node.by.name(), "weight", "waiting", "flying", "lag", "least", "most"]);
        for flow in &node.flows {
            table.row(row(flow));
        }
        table.write(&mut out)?;
        writeln!(out)?;
    }
    writeln!(
        out,
        "lag: what the flow is owed, in tokens per weight; below 0 it is ahead of its share.\n\
         least, most: where the policy keeps the lag, given what is in flight."
    )
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

fn row(flow: &FlowFairness) -> Vec<Cell> {
    let (least, most) = match flow.bound {
        Some((least, most)) => (least.to_string(), most.to_string()),
        None => ("–".into(), "–".into()),
    };
    vec![
        Cell::Text(shown(&flow.name)),
        Cell::Number(flow.weight.get().to_string()),
        Cell::Number(flow.waiting.to_string()),
        Cell::Number(flow.flying.to_string()),
        Cell::Number(flow.lag.to_string()),
        Cell::Number(least),
        Cell::Number(most),
    ]
}
