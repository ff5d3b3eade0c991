//! The report as plain text.

use std::fmt::Write as _;

use console::Term;
use fairgate_table::{TableCell, TextTable};

use super::plot::plot;
use crate::report::{ProveBar, ProveReport, TenantReport};

/// Width and colours of the text output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextStyle {
    /// Width of the output in columns.
    pub width: usize,
    /// True to use colours in the output.
    pub colour: bool,
}

/// Width of output that is not a terminal, in columns.
const WIDTH_ELSEWHERE: usize = 100;

impl TextStyle {
    /// Returns the style for standard output: the terminal's width, and colours if standard output
    /// is a terminal that has them and `NO_COLOR` is not set.
    pub fn for_stdout() -> Self {
        let size = Term::stdout().size_checked();
        let width = size.map_or(WIDTH_ELSEWHERE, |(_, columns)| usize::from(columns));
        Self { width, colour: console::colors_enabled() }
    }
}

/// Renders the whole report: the scenario, the table, the plot, and every bar with its numbers.
pub fn text(report: &ProveReport, style: TextStyle) -> String {
    let mut text = String::new();
    let mut line = |line: &str| {
        text.push_str(line);
        text.push('\n');
    };
    line(&bold(&format!("{}: {}", report.scenario, report.title), style));
    line(&format!(
        "capacity {}{}, {:.2} s of overlap, {} journal events in {} files",
        report.capacity,
        if report.partition { ", partitioned" } else { "" },
        report.overlap_ms / 1000.0,
        report.journal_events,
        report.journal_files,
    ));
    line("");
    tenants(report).iter().for_each(|row| line(row));
    line("");
    plot(report, style).iter().for_each(|row| line(row));
    line("");
    report.bars.iter().for_each(|bar| line(&bar_line(bar, style)));
    text
}

fn tenants(report: &ProveReport) -> Vec<String> {
    let shares = if report.by_slots { "slot time" } else { "tokens" };
    let headings = [
        ("tenant", ""),
        ("weight", ""),
        ("ideal", shares),
        ("got", shares),
        ("off", "of ideal"),
        ("worker time", "of all"),
        ("got", "tokens"),
        ("furthest/bound", "tokens"),
        ("gap/bound", "tokens"),
        ("wait p50", "ms"),
        ("p95", "ms"),
        ("grants", ""),
        ("requests", ""),
        ("rows", ""),
    ];
    let mut table = TextTable::new(headings.map(|(first, _)| first));
    table.row(cells(headings.map(|(_, second)| second.to_owned())));
    report.tenants.iter().for_each(|tenant| table.row(cells(row(tenant))));
    let mut text = Vec::new();
    // Writing to a vector cannot fail.
    let _ = table.write(&mut text);
    String::from_utf8_lossy(&text).lines().map(str::to_owned).collect()
}

/// Aligns the first column to the left and the others to the right.
fn cells(texts: impl IntoIterator<Item = String>) -> Vec<TableCell> {
    let cell = |(column, text)| match column {
        0 => TableCell::Text(text),
        _ => TableCell::Number(text),
    };
    texts.into_iter().enumerate().map(cell).collect()
}

fn row(tenant: &TenantReport) -> Vec<String> {
    let of = |measured: Option<f64>, bound: Option<f64>| match (measured, bound) {
        (Some(measured), Some(bound)) => format!("{measured:.0}/{bound:.0}"),
        _ => "–".into(),
    };
    vec![
        tenant.name.into(),
        tenant.weight.to_string(),
        format!("{:.2} %", tenant.ideal_percent),
        format!("{:.2} %", tenant.got_percent),
        format!("{:+.2} %", tenant.deviation_percent),
        tenant.worker_time_percent.map_or("–".into(), |part| format!("{part:.2} %")),
        tenant.got_tokens.to_string(),
        of(tenant.off_tokens, tenant.bound_tokens),
        match tenant.gap_bound_tokens {
            Some(_) => of(tenant.gap_closest_tokens, tenant.gap_bound_tokens),
            None => tenant.gap_tokens.to_string(),
        },
        format!("{:.1}", tenant.wait_p50_ms),
        format!("{:.1}", tenant.wait_p95_ms),
        tenant.grants.to_string(),
        tenant.requests.to_string(),
        tenant.rows.to_string(),
    ]
}

fn bar_line(bar: &ProveBar, style: TextStyle) -> String {
    let (mark, colour) = if bar.passed { ("pass", GREEN) } else { ("FAIL", RED) };
    let mut line = coloured(mark, colour, style);
    // The longest name has 22 characters.
    let _ = write!(line, "  {:22} {}", bar.name, bar.says);
    line
}

const RED: u8 = 31;
const GREEN: u8 = 32;
const COLOURS: [u8; 6] = [34, 33, 32, 35, 36, 31];

/// Colours a text as the tenant with the index `series`; `usize::MAX` stands for no colour.
pub(super) fn paint(text: &str, series: usize, style: TextStyle) -> String {
    let blank = text.trim().is_empty() || series == usize::MAX;
    if blank { text.into() } else { coloured(text, COLOURS[series % COLOURS.len()], style) }
}

fn coloured(text: &str, colour: u8, style: TextStyle) -> String {
    if style.colour { format!("\x1b[{colour}m{text}\x1b[0m") } else { text.into() }
}

fn bold(text: &str, style: TextStyle) -> String {
    if style.colour { format!("\x1b[1m{text}\x1b[0m") } else { text.into() }
}
