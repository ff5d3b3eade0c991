//! What each flow got under both policies, side by side.

use std::io::{self, Write};

use fairgate_core::attribute::Attribute;
use fairgate_core::units::Micros;
use serde::Serialize;

use super::tally::{FlowTally, Tallies};
use crate::table::{Cell, Table};
use crate::words::{Span, shown};

/// Two runs of the same arrivals.
#[derive(Debug, Serialize)]
pub(crate) struct Diff {
    by: &'static str,
    flows: Vec<FlowDiff>,
    all: RunDiff,
}

#[derive(Debug, Serialize)]
struct FlowDiff {
    flow: Box<str>,
    #[serde(flatten)]
    runs: RunDiff,
}

#[derive(Debug, Serialize)]
struct RunDiff {
    requests: u64,
    recorded: Run,
    what_if: Run,
}

/// What a flow got in one run.
#[derive(Debug, Serialize)]
struct Run {
    granted: u64,
    tokens: u128,
    refused: u64,
    wait_p50_us: Option<u64>,
    wait_p95_us: Option<u64>,
    wait_max_us: Option<u64>,
}

impl From<&FlowTally> for Run {
    fn from(tally: &FlowTally) -> Self {
        let wait = |percent| tally.wait(percent).map(|wait| wait.0);
        Self {
            granted: tally.granted,
            tokens: tally.tokens,
            refused: tally.refused,
            wait_p50_us: wait(50),
            wait_p95_us: wait(95),
            wait_max_us: wait(100),
        }
    }
}

impl RunDiff {
    fn new(recorded: &FlowTally, what_if: &FlowTally) -> Self {
        let requests = recorded.requests;
        Self { requests, recorded: recorded.into(), what_if: what_if.into() }
    }
}

impl Diff {
    /// Both runs have the same flows, for they have the same arrivals.
    pub(crate) fn new(recorded: &Tallies, what_if: &Tallies) -> Self {
        let flows =
            recorded.flows.iter().zip(&what_if.flows).map(|((name, before), (_, after))| {
                FlowDiff { flow: name.clone(), runs: RunDiff::new(before, after) }
            });
        let flows = flows.collect();
        let mut all = (FlowTally::default(), FlowTally::default());
        all.0.extend(recorded.flows.iter().map(|(_, tally)| tally));
        all.1.extend(what_if.flows.iter().map(|(_, tally)| tally));
        Self {
            by: recorded.by.map_or("flow", Attribute::name),
            flows,
            all: RunDiff::new(&all.0, &all.1),
        }
    }

    /// Writes it as one JSON object.
    pub(crate) fn write_json(&self, mut out: impl Write) -> io::Result<()> {
        serde_json::to_writer(&mut out, self)?;
        writeln!(out)
    }

    /// Writes it as a table.
    pub(crate) fn write_table(&self, mut out: impl Write) -> io::Result<()> {
        let waits = ["wait p50", "wait p95", "wait max"];
        let mut headings = vec![self.by, "requests", "granted", "tokens", "refused"];
        headings.extend(waits);
        let mut table = Table::new(headings);
        for flow in &self.flows {
            table.row(row(shown(&flow.flow), &flow.runs));
        }
        if self.flows.len() > 1 {
            table.row(row("(all)".into(), &self.all));
        }
        table.write(&mut out)?;
        writeln!(out, "\nrecorded → what if; waits are of granted requests, exact, by nearest rank")
    }
}

fn row(name: String, runs: &RunDiff) -> Vec<Cell> {
    let RunDiff { requests, recorded: was, what_if: is } = runs;
    let wait = |was: Option<u64>, is: Option<u64>| Cell::Pair(span(was), span(is));
    vec![
        Cell::Text(name),
        Cell::Number(requests.to_string()),
        Cell::Pair(was.granted.to_string(), is.granted.to_string()),
        Cell::Pair(was.tokens.to_string(), is.tokens.to_string()),
        Cell::Pair(was.refused.to_string(), is.refused.to_string()),
        wait(was.wait_p50_us, is.wait_p50_us),
        wait(was.wait_p95_us, is.wait_p95_us),
        wait(was.wait_max_us, is.wait_max_us),
    ]
}

fn span(wait: Option<u64>) -> String {
    wait.map_or_else(|| "–".into(), |wait| Span(Micros(wait)).to_string())
}
