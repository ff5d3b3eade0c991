//! Draws a class's part of the tokens over time.

use std::fmt::Write as _;

/// The class's parts under one policy, step by step.
pub(crate) struct Line {
    /// Class of the line in the style sheet.
    pub(crate) class: &'static str,
    pub(crate) name: &'static str,
    pub(crate) parts: Vec<f64>,
}

const LEFT: f64 = 70.0;
const RIGHT: f64 = 630.0;
const TOP: f64 = 48.0;
const BOTTOM: f64 = 288.0;

fn y(part: f64) -> f64 {
    // From 40 % at the bottom to 90 % at the top.
    BOTTOM - (part - 0.4) / 0.5 * (BOTTOM - TOP)
}

/// Draws all lines over the requests that have ended.
pub(crate) fn picture(lines: &[Line], step: usize) -> String {
    let mut svg = HEAD.to_string();
    let steps = lines.iter().map(|line| line.parts.len()).max().unwrap_or(1);
    let x = |done: usize| LEFT + (RIGHT - LEFT) * done as f64 / steps as f64;
    for percent in (40..=90).step_by(10) {
        let y = y(f64::from(percent) / 100.0);
        let _ = writeln!(svg, r#"  <path class="grid" d="M{LEFT} {y:.1}H{RIGHT}"/>"#);
        let _ = writeln!(
            svg,
            r#"  <text class="small end" x="62" y="{:.1}">{percent} %</text>"#,
            y + 4.0
        );
    }
    for done in (0..=steps).step_by(5) {
        let (x, requests) = (x(done), done * step);
        let _ = writeln!(svg, r#"  <text class="small mid" x="{x:.1}" y="308">{requests}</text>"#);
    }
    let _ = writeln!(svg, r#"  <path class="wanted" d="M{LEFT} {:.1}H{RIGHT}"/>"#, y(0.8));
    let mut labels: Vec<(f64, &Line)> = Vec::new();
    for line in lines {
        let mut path = String::new();
        for (i, part) in line.parts.iter().enumerate() {
            let letter = if i == 0 { 'M' } else { 'L' };
            let _ = write!(path, "{letter}{:.1} {:.1}", x(i + 1), y(*part));
        }
        let _ = writeln!(svg, r#"  <path class="line {}" d="{path}"/>"#, line.class);
        let mean = line.parts.iter().sum::<f64>() / line.parts.len() as f64;
        labels.push((y(mean), line));
    }
    labels.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut lowest = 0.0f64;
    for (at, line) in labels {
        lowest = at.max(lowest + 17.0);
        let (class, name) = (line.class, line.name);
        let _ = writeln!(
            svg,
            r#"  <text class="t-{class}" x="640" y="{:.1}">{name}</text>"#,
            lowest + 4.0
        );
    }
    svg + FOOT
}

const HEAD: &str = r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 372" width="760" height="372" role="img" aria-label="The first class's part of the tokens over time, under share and drr">
  <style>
    .card { fill: #ffffff; stroke: #d0d7de; }
    .grid { stroke: #d8dee4; stroke-width: 1; fill: none; }
    .wanted { stroke: #57606a; stroke-width: 1.5; stroke-dasharray: 6 4; fill: none; }
    .line { stroke-width: 2.5; fill: none; }
    .share { stroke: #1a7f37; }
    .good { stroke: #0969da; }
    .drr { stroke: #bc4c00; }
    .worst { stroke: #cf222e; }
    text { font: 13px system-ui, sans-serif; fill: #1f2328; }
    .small { font-size: 12px; fill: #57606a; }
    .mid { text-anchor: middle; }
    .end { text-anchor: end; }
    .t-share { fill: #1a7f37; }
    .t-good { fill: #0969da; }
    .t-drr { fill: #bc4c00; }
    .t-worst { fill: #cf222e; }
    @media (prefers-color-scheme: dark) {
      .card { fill: #0d1117; stroke: #30363d; }
      .grid { stroke: #30363d; }
      .wanted { stroke: #9ea7b3; }
      .share { stroke: #3fb950; }
      .good { stroke: #58a6ff; }
      .drr { stroke: #f0883e; }
      .worst { stroke: #ff7b72; }
      text { fill: #e6edf3; }
      .small { fill: #9ea7b3; }
      .t-share { fill: #3fb950; }
      .t-good { fill: #58a6ff; }
      .t-drr { fill: #f0883e; }
      .t-worst { fill: #ff7b72; }
    }
  </style>
  <rect class="card" x="0.5" y="0.5" width="759" height="371" rx="8"/>
  <text class="small" x="20" y="28">the first class's part of the tokens; weights 4 : 1 or quanta 8000 : 2000 (dashed: 80 %)</text>
"#;

const FOOT: &str = r#"  <text class="small mid" x="350" y="328">requests that have ended</text>
  <text class="small mid" x="380" y="356">wspt: the cheapest goes first in the first class. 4×: the first class estimates four times too much.</text>
</svg>
"#;
