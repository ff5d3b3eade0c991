//! Compares each flow's results under both policies, side by side.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::{self, Write};

use fairgate_core::attribute::Attribute;
use fairgate_core::units::{Micros, Percentage};
use serde::{Serialize, Serializer};

use super::edition::OtherEdition;
use super::flow_tally::{FlowTallies, FlowTally};
use crate::shown_unit::ShownUnit;
use crate::text_format::{TimeSpan, counted, safe_name};
use fairgate_table::{TableCell, TextTable};

/// Results of two runs of the same arrivals, under the recorded and the other policy.
#[derive(Debug, Serialize)]
pub struct PolicyDiff {
    #[serde(skip_serializing_if = "Option::is_none")]
    other_edition: Option<OtherEdition>,
    by: &'static str,
    /// Unit of all costs; a journal does not state it.
    #[serde(serialize_with = "unit_name")]
    unit: ShownUnit,
    flows: Vec<FlowDiff>,
    /// Number of flows that [`PolicyDiff::keep_top`] left out.
    #[serde(skip_serializing_if = "is_zero")]
    omitted: u64,
    all: RunDiff,
}

/// Column by which the flows of a comparison are sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiffColumn {
    /// Number of requests, most first.
    Requests,
    /// Number of granted requests under the other policy, most first.
    Granted,
    /// Tokens under the other policy, most first.
    Tokens,
    /// Number of refused requests under the other policy, most first.
    Refused,
    /// Median wait under the other policy, longest first.
    WaitP50,
    /// 95th percentile of the waits under the other policy, longest first.
    WaitP95,
    /// Longest wait under the other policy, longest first.
    WaitMax,
}

impl DiffColumn {
    /// All columns, with the names that the command line uses.
    pub const NAMES: [(&'static str, Self); 7] = [
        ("requests", Self::Requests),
        ("granted", Self::Granted),
        ("tokens", Self::Tokens),
        ("refused", Self::Refused),
        ("wait-p50", Self::WaitP50),
        ("wait-p95", Self::WaitP95),
        ("wait-max", Self::WaitMax),
    ];

    fn of(self, runs: &RunDiff) -> u128 {
        let wait = |wait: Option<u64>| wait.map_or(0, |wait| u128::from(wait) + 1);
        let is = &runs.what_if;
        match self {
            Self::Requests => runs.requests.into(),
            Self::Granted => is.granted.into(),
            Self::Tokens => is.tokens,
            Self::Refused => is.refused.into(),
            Self::WaitP50 => wait(is.wait_p50_us),
            Self::WaitP95 => wait(is.wait_p95_us),
            Self::WaitMax => wait(is.wait_max_us),
        }
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn unit_name<S: Serializer>(unit: &ShownUnit, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(unit.name())
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
    /// Number of the flow's requests under the other policy; `None` if it is the same under both. It differs if
    /// requests changed their class.
    #[serde(skip_serializing_if = "Option::is_none")]
    requests_what_if: Option<u64>,
    recorded: FlowRun,
    what_if: FlowRun,
}

/// Results of one flow under one of the two policies.
#[derive(Debug, Serialize)]
struct FlowRun {
    granted: u64,
    tokens: u128,
    refused: u64,
    wait_p50_us: Option<u64>,
    wait_p95_us: Option<u64>,
    wait_max_us: Option<u64>,
}

impl From<&FlowTally> for FlowRun {
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
        let requests_what_if = (what_if.requests != recorded.requests).then_some(what_if.requests);
        Self {
            requests: recorded.requests,
            requests_what_if,
            recorded: recorded.into(),
            what_if: what_if.into(),
        }
    }
}

impl PolicyDiff {
    /// Compares two runs of the same arrivals. A flow that exists in only one run, which is possible if flows are
    /// classes, has zeros for the other run.
    pub(crate) fn new(
        recorded: &FlowTallies,
        what_if: &FlowTallies,
        other_edition: Option<OtherEdition>,
    ) -> Self {
        let mut both: BTreeMap<&str, [&FlowTally; 2]> = BTreeMap::new();
        let nothing = FlowTally::default();
        for (run, tallies) in [recorded, what_if].into_iter().enumerate() {
            for (name, tally) in &tallies.flows {
                both.entry(name).or_insert([&nothing; 2])[run] = tally;
            }
        }
        let flows = both.into_iter().map(|(name, [before, after])| FlowDiff {
            flow: name.into(),
            runs: RunDiff::new(before, after),
        });
        let flows = flows.collect();
        let mut all = (FlowTally::default(), FlowTally::default());
        all.0.extend(recorded.flows.iter().map(|(_, tally)| tally));
        all.1.extend(what_if.flows.iter().map(|(_, tally)| tally));
        Self {
            other_edition,
            by: recorded.by.map_or("flow", Attribute::name),
            unit: ShownUnit::default(),
            flows,
            omitted: 0,
            all: RunDiff::new(&all.0, &all.1),
        }
    }

    /// Sorts the flows by a column, and keeps the first `top` of them. Flows that are equal stay in the order of their
    /// names.
    pub fn keep_top(&mut self, column: Option<DiffColumn>, top: Option<usize>) {
        if let Some(column) = column {
            self.flows.sort_by_key(|flow| Reverse(column.of(&flow.runs)));
        }
        let kept = top.unwrap_or(usize::MAX).min(self.flows.len());
        self.omitted = u64::try_from(self.flows.len() - kept).unwrap_or(u64::MAX);
        self.flows.truncate(kept);
    }

    /// Names the unit of the costs.
    pub fn set_unit(&mut self, unit: ShownUnit) {
        self.unit = unit;
    }

    /// Writes the comparison as one JSON object.
    pub fn write_json(&self, mut out: impl Write) -> io::Result<()> {
        serde_json::to_writer(&mut out, self)?;
        writeln!(out)
    }

    /// Writes the comparison as a table.
    pub fn write_table(&self, mut out: impl Write) -> io::Result<()> {
        let waits = ["wait p50", "wait p95", "wait max"];
        let mut headings = vec![self.by, "requests", "granted", self.unit.word(), "refused"];
        if self.is_by_class() {
            headings.insert(4, "share");
        }
        headings.extend(waits);
        let mut table = TextTable::new(headings);
        for flow in &self.flows {
            table.row(self.row(safe_name(&flow.flow), &flow.runs));
        }
        if self.flows.len() > 1 || self.omitted > 0 {
            table.row(self.row("(all)".into(), &self.all));
        }
        table.write(&mut out)?;
        if self.omitted > 0 {
            writeln!(out, "\n{} not shown", counted(self.omitted, "more flow"))?;
        }
        writeln!(out, "\nrecorded → what if; waits are of granted requests, exact, by nearest rank")
    }

    /// Returns true if the flows are classes, for which the part of all tokens is shown too.
    fn is_by_class(&self) -> bool {
        self.by == Attribute::Class.name()
    }

    fn row(&self, name: String, runs: &RunDiff) -> Vec<TableCell> {
        let RunDiff { requests, requests_what_if, recorded: was, what_if: is } = runs;
        let wait = |was: Option<u64>, is: Option<u64>| TableCell::Pair(span(was), span(is));
        let requests = requests.to_string();
        let mut row = vec![
            TableCell::Text(name),
            match self.flows.iter().any(|flow| flow.runs.requests_what_if.is_some()) {
                true => {
                    let then = requests_what_if.map_or_else(|| requests.clone(), |n| n.to_string());
                    TableCell::Pair(requests, then)
                }
                false => TableCell::Number(requests),
            },
            TableCell::Pair(was.granted.to_string(), is.granted.to_string()),
            TableCell::Pair(was.tokens.to_string(), is.tokens.to_string()),
            TableCell::Pair(was.refused.to_string(), is.refused.to_string()),
            wait(was.wait_p50_us, is.wait_p50_us),
            wait(was.wait_p95_us, is.wait_p95_us),
            wait(was.wait_max_us, is.wait_max_us),
        ];
        if self.is_by_class() {
            let all = [self.all.recorded.tokens, self.all.what_if.tokens];
            row.insert(4, TableCell::Pair(part(was.tokens, all[0]), part(is.tokens, all[1])));
        }
        row
    }
}

/// Formats `tokens` as a percentage of `all`.
fn part(tokens: u128, all: u128) -> String {
    Percentage::of(tokens, all).to_string()
}

fn span(wait: Option<u64>) -> String {
    wait.map_or_else(|| "–".into(), |wait| TimeSpan(Micros(wait)).to_string())
}
