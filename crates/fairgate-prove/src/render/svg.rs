//! The report as an SVG picture. The upper panel shows each tenant's tokens over time and its
//! ideal. The lower panel shows the difference between the two, with the proven bound; if slots are
//! judged, it shows the slots held instead.

use std::fmt::Write as _;

use super::axis::{label, ticks};
use crate::report::{ProveReport, TokensPoint};

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 560.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 640.0;

/// A panel of the picture, with its own vertical axis.
#[derive(Clone, Copy)]
struct SvgPanel {
    top: f64,
    bottom: f64,
    /// Value at the bottom of the panel; `most` is the value at the top.
    least: f64,
    most: f64,
    last_ms: f64,
}

impl SvgPanel {
    fn x(&self, at_ms: f64) -> f64 {
        LEFT + (RIGHT - LEFT) * (at_ms / self.last_ms).clamp(0.0, 1.0)
    }

    fn y(&self, value: f64) -> f64 {
        let part = (value - self.least) / (self.most - self.least).max(f64::MIN_POSITIVE);
        self.bottom - (self.bottom - self.top) * part.clamp(0.0, 1.0)
    }

    fn path(&self, points: impl Iterator<Item = (f64, f64)>) -> String {
        let mut path = String::new();
        for (i, (at, value)) in points.enumerate() {
            let letter = if i == 0 { 'M' } else { 'L' };
            let _ = write!(path, "{letter}{:.1} {:.1}", self.x(at), self.y(value));
        }
        path
    }
}

/// Renders the picture as the text of an SVG file.
pub fn svg(report: &ProveReport) -> String {
    let mut svg = String::new();
    head(&mut svg, report);
    if let Some(last) = report.course.points.last() {
        tokens(&mut svg, report, last);
        match report.by_slots {
            true => slots(&mut svg, report, last),
            false => deviation(&mut svg, report, last),
        }
    }
    svg.push_str("</svg>\n");
    svg
}

fn head(svg: &mut String, report: &ProveReport) {
    let (name, title) = (escape(report.scenario), escape(report.title));
    let verdict = if report.passed() { "every bar passed" } else { "a bar FAILED" };
    let _ = write!(
        svg,
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="{name}: {title}">
{STYLE}  <rect class="card" x="0.5" y="0.5" width="{}" height="{}" rx="8"/>
  <text class="title" x="20" y="28">{name}: {title}</text>
  <text class="small" x="20" y="47">capacity {}, {:.2} s of overlap, {verdict}</text>
"#,
        WIDTH - 1.0,
        HEIGHT - 1.0,
        report.capacity,
        report.overlap_ms / 1000.0,
    );
}

fn tokens(svg: &mut String, report: &ProveReport, last: &TokensPoint) {
    let most = last.tokens.iter().copied().max().unwrap_or(0).max(1) as f64;
    let panel =
        SvgPanel { top: 84.0, bottom: 316.0, least: 0.0, most, last_ms: last.at_ms.max(1.0) };
    let dashed = if report.by_slots { "" } else { "; dashed: the ideal since the join" };
    let _ = writeln!(
        svg,
        r#"  <text class="small" x="20" y="72">tokens settled since the first request{dashed}</text>"#
    );
    horizontal(svg, &panel, &ticks(most, 5.0));
    vertical(svg, &panel, report);
    let points = &report.course.points;
    let mut labels = Vec::new();
    for (i, tenant) in report.tenants.iter().enumerate() {
        let path = panel.path(points.iter().map(|point| (point.at_ms, point.tokens[i] as f64)));
        let _ = writeln!(svg, r#"  <path class="line s{}" d="{path}"/>"#, i % COLOURS);
        let ideal = |point: &TokensPoint| Some((point.at_ms, point.ideal_tokens.as_ref()?[i]));
        if !report.by_slots {
            let path = panel.path(points.iter().filter_map(ideal));
            let _ = writeln!(svg, r#"  <path class="ideal" d="{path}"/>"#);
        }
        let says = format!("{} {:.1} %", tenant.name, tenant.got_percent);
        labels.push((panel.y(last.tokens[i] as f64), i, says));
    }
    write_labels(svg, &panel, labels);
}

/// Draws the difference between each tenant's tokens and its ideal, and the proven bound.
fn deviation(svg: &mut String, report: &ProveReport, last: &TokensPoint) {
    let points = &report.course.points;
    let bounds = points.iter().filter_map(|point| point.bound_tokens.as_ref());
    let most = bounds.flatten().fold(1.0, |most: f64, bound| most.max(*bound)) * 1.08;
    let panel =
        SvgPanel { top: 374.0, bottom: 514.0, least: -most, most, last_ms: last.at_ms.max(1.0) };
    let _ = writeln!(
        svg,
        r#"  <text class="small" x="20" y="360">tokens from the ideal; the bands: how far the proof allows</text>"#
    );
    let mut marks = ticks(most, 2.0);
    marks.extend(marks.clone().iter().skip(1).map(|mark| -mark));
    let mut labels = Vec::new();
    for (i, tenant) in report.tenants.iter().enumerate() {
        let bound = |point: &TokensPoint| Some((point.at_ms, point.bound_tokens.as_ref()?[i]));
        let over: Vec<(f64, f64)> = points.iter().filter_map(bound).collect();
        let under = over.iter().rev().map(|(at, bound)| (*at, -bound));
        let band = panel.path(over.iter().copied().chain(under));
        let _ = writeln!(svg, r#"  <path class="band s{}" d="{band}Z"/>"#, i % COLOURS);
        let most = over.last().map_or(0.0, |(_, bound)| *bound);
        labels.push((panel.y(most), i, format!("{} ±{most:.0}", tenant.name)));
    }
    horizontal(svg, &panel, &marks);
    vertical(svg, &panel, report);
    for i in 0..report.tenants.len() {
        let off = |point: &TokensPoint| {
            Some((point.at_ms, point.tokens[i] as f64 - point.ideal_tokens.as_ref()?[i]))
        };
        let path = panel.path(points.iter().filter_map(off));
        let _ = writeln!(svg, r#"  <path class="thin s{}" d="{path}"/>"#, i % COLOURS);
    }
    write_labels(svg, &panel, labels);
}

/// Draws each tenant's requests in flight over time.
fn slots(svg: &mut String, report: &ProveReport, last: &TokensPoint) {
    let most = report.capacity as f64;
    let panel =
        SvgPanel { top: 374.0, bottom: 514.0, least: 0.0, most, last_ms: last.at_ms.max(1.0) };
    let _ = writeln!(svg, r#"  <text class="small" x="20" y="360">requests in flight</text>"#);
    horizontal(svg, &panel, &ticks(most, 4.0));
    vertical(svg, &panel, report);
    let mut labels = Vec::new();
    for (i, tenant) in report.tenants.iter().enumerate() {
        let mut before = 0.0;
        let steps = report.course.points.iter().flat_map(|point| {
            let was = std::mem::replace(&mut before, point.in_flight[i] as f64);
            [(point.at_ms, was), (point.at_ms, before)]
        });
        let path = panel.path(steps);
        let _ = writeln!(svg, r#"  <path class="thin s{}" d="{path}"/>"#, i % COLOURS);
        let slots = tenant.slots.unwrap_or_default();
        let plural = if slots == 1 { "" } else { "s" };
        let says = format!("{} {slots} slot{plural}", tenant.name);
        labels.push((panel.y(slots as f64), i, says));
    }
    write_labels(svg, &panel, labels);
}

fn horizontal(svg: &mut String, panel: &SvgPanel, marks: &[f64]) {
    for mark in marks {
        let y = panel.y(*mark);
        let text = match *mark < 0.0 {
            true => format!("−{}", label(-mark, marks)),
            false => label(*mark, marks),
        };
        let _ = writeln!(
            svg,
            r#"  <path class="grid" d="M{LEFT} {y:.1}H{RIGHT}"/><text class="small end" x="{}" y="{:.1}">{text}</text>"#,
            LEFT - 8.0,
            y + 4.0,
        );
    }
}

fn vertical(svg: &mut String, panel: &SvgPanel, report: &ProveReport) {
    let marks = ticks(panel.last_ms / 1000.0, 7.0);
    for mark in &marks {
        let text = label(*mark, &marks);
        let _ = writeln!(
            svg,
            r#"  <text class="small mid" x="{:.1}" y="{}">{text} s</text>"#,
            panel.x(mark * 1000.0),
            panel.bottom + 18.0,
        );
    }
    let marks =
        [(report.course.join_ms, "join", "", 4.0), (report.course.end_ms, "end", " end", -4.0)];
    for (at, what, class, aside) in marks {
        let x = panel.x(at);
        let _ = writeln!(
            svg,
            r#"  <path class="mark" d="M{x:.1} {}V{}"/><text class="small{class}" x="{:.1}" y="{}">{what}</text>"#,
            panel.top - 4.0,
            panel.bottom,
            x + aside,
            panel.top + 6.0,
        );
    }
}

/// Writes tenants' names to the right of the panel, moved apart so that they do not overlap.
fn write_labels(svg: &mut String, panel: &SvgPanel, mut labels: Vec<(f64, usize, String)>) {
    labels.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut free = panel.top;
    let after = |n: usize| n as f64 * 16.0;
    let count = labels.len();
    for (i, (y, series, says)) in labels.into_iter().enumerate() {
        // Leave room for the labels below.
        let y = y.max(free).min(panel.bottom - after(count - 1 - i));
        free = y + 16.0;
        let (x, y, series) = (RIGHT + 8.0, y + 4.0, series % COLOURS);
        let _ = writeln!(
            svg,
            r#"  <text class="name t{series}" x="{x}" y="{y:.1}">{}</text>"#,
            escape(&says)
        );
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

const COLOURS: usize = 3;

const STYLE: &str = "  <style>
    .card { fill: #ffffff; stroke: #d0d7de; }
    .grid { stroke: #d8dee4; stroke-width: 1; fill: none; }
    .mark { stroke: #57606a; stroke-width: 1; stroke-dasharray: 2 3; fill: none; }
    .line { stroke-width: 2.5; fill: none; stroke-linejoin: round; }
    .thin { stroke-width: 1.5; fill: none; stroke-linejoin: round; }
    .ideal { stroke: #1f2328; stroke-width: 1.2; stroke-dasharray: 5 4; fill: none; }
    .line.s0, .thin.s0 { stroke: #0969da; } .t0 { fill: #0969da; } .band.s0 { fill: #0969da; }
    .line.s1, .thin.s1 { stroke: #bc4c00; } .t1 { fill: #bc4c00; } .band.s1 { fill: #bc4c00; }
    .line.s2, .thin.s2 { stroke: #1a7f37; } .t2 { fill: #1a7f37; } .band.s2 { fill: #1a7f37; }
    .band { opacity: 0.12; stroke: none; }
    text { font: 13px system-ui, sans-serif; }
    .title { font-weight: 600; fill: #1f2328; }
    .small { font-size: 12px; fill: #57606a; }
    .name { font-size: 12px; }
    .mid { text-anchor: middle; }
    .end { text-anchor: end; }
    @media (prefers-color-scheme: dark) {
      .card { fill: #0d1117; stroke: #30363d; }
      .grid { stroke: #30363d; }
      .mark { stroke: #9ea7b3; }
      .ideal { stroke: #e6edf3; }
      .line.s0, .thin.s0 { stroke: #58a6ff; } .t0 { fill: #58a6ff; } .band.s0 { fill: #58a6ff; }
      .line.s1, .thin.s1 { stroke: #f0883e; } .t1 { fill: #f0883e; } .band.s1 { fill: #f0883e; }
      .line.s2, .thin.s2 { stroke: #3fb950; } .t2 { fill: #3fb950; } .band.s2 { fill: #3fb950; }
      .band { opacity: 0.16; }
      .title { fill: #e6edf3; }
      .small { fill: #9ea7b3; }
    }
  </style>
";
