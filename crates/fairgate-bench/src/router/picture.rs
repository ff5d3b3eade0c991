//! Draws the runs as an SVG picture with three panels. Each panel has one bar per router for each
//! workload and number of workers.

use std::fmt::Write as _;

use super::RouterRun;
use super::testbed::RouterKind;

const WIDTH: f64 = 760.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 740.0;
const PANEL: f64 = 150.0;
const FIRST: f64 = 84.0;

/// One panel of the picture: its title, the value of each bar, and the bars' labels.
struct PicturePanel {
    title: &'static str,
    value: fn(&RouterRun) -> f64,
    text: fn(f64) -> String,
}

const PANELS: [PicturePanel; 3] = [
    PicturePanel {
        title: "prefill tokens saved, of all input tokens; more is better",
        value: |run| run.seen.saved() * 100.0,
        text: |value| format!("{value:.0} %"),
    },
    PicturePanel {
        title: "time to the first token, p99; less is better",
        value: |run| run.seen.first_token_ms(0.99),
        text: |value| format!("{value:.0} ms"),
    },
    PicturePanel {
        title: "prefill tokens of the busiest worker over the mean; 1 is best",
        value: |run| run.seen.imbalance(),
        text: |value| format!("{value:.2}"),
    },
];

/// Renders the picture as the text of an SVG file.
pub(crate) fn svg(runs: &[RouterRun]) -> String {
    let height = FIRST + PANELS.len() as f64 * (PANEL + 50.0);
    let mut svg = format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img" aria-label="Fairgate beside other routers">
{STYLE}  <rect class="card" x="0.5" y="0.5" width="{}" height="{}" rx="8"/>
  <text class="title" x="20" y="28">Fairgate beside other routers</text>
"#,
        WIDTH - 1.0,
        height - 1.0,
    );
    for (number, router) in RouterKind::ALL.into_iter().enumerate() {
        let x = 20.0 + number as f64 * 170.0;
        let _ = writeln!(
            svg,
            r#"  <rect class="r{number}" x="{x}" y="42" width="12" height="12"/><text class="small" x="{}" y="52">{}</text>"#,
            x + 18.0,
            router.name(),
        );
    }
    for (number, panel) in PANELS.iter().enumerate() {
        let top = FIRST + number as f64 * (PANEL + 50.0);
        draw(&mut svg, panel, runs, top);
    }
    svg.push_str("</svg>\n");
    svg
}

fn draw(svg: &mut String, panel: &PicturePanel, runs: &[RouterRun], top: f64) {
    let bottom = top + PANEL;
    let finite = |run: &RouterRun| Some((panel.value)(run)).filter(|value| value.is_finite());
    let most = runs.iter().filter_map(finite).fold(f64::MIN_POSITIVE, f64::max);
    let _ =
        writeln!(svg, r#"  <text class="small" x="20" y="{}">{}</text>"#, top - 4.0, panel.title);
    let _ = writeln!(svg, r#"  <path class="grid" d="M{LEFT} {bottom}H{RIGHT}"/>"#);
    let groups: Vec<&[RouterRun]> = runs
        .chunk_by(|one, two| (one.workload, one.workers) == (two.workload, two.workers))
        .collect();
    let width = (RIGHT - LEFT) / groups.len().max(1) as f64;
    for (number, group) in groups.iter().enumerate() {
        let left = LEFT + number as f64 * width;
        let bar = width / (group.len() as f64 + 1.0);
        for (place, run) in group.iter().enumerate() {
            let Some(value) = finite(run) else { continue };
            let high = (PANEL - 34.0) * value / most;
            let (x, y) = (left + bar * (place as f64 + 0.5), bottom - high);
            let series =
                RouterKind::ALL.iter().position(|router| *router == run.router).unwrap_or(0);
            let _ = writeln!(
                svg,
                r#"  <rect class="r{series}" x="{x:.1}" y="{y:.1}" width="{:.1}" height="{high:.1}"/><text class="small mid" x="{:.1}" y="{:.1}">{}</text>"#,
                bar - 4.0,
                x + bar / 2.0 - 2.0,
                y - 4.0,
                (panel.text)(value),
            );
        }
        if let Some(run) = group.first() {
            let _ = writeln!(
                svg,
                r#"  <text class="small mid" x="{:.1}" y="{:.1}">{}, {} workers</text>"#,
                left + width / 2.0,
                bottom + 16.0,
                run.workload,
                run.workers,
            );
        }
    }
}

const STYLE: &str = "  <style>
    .card { fill: #ffffff; stroke: #d0d7de; }
    .grid { stroke: #d8dee4; stroke-width: 1; fill: none; }
    .r0 { fill: #8c959f; } .r1 { fill: #bc4c00; } .r2 { fill: #1a7f37; } .r3 { fill: #0969da; }
    text { font: 13px system-ui, sans-serif; }
    .title { font-weight: 600; fill: #1f2328; }
    .small { font-size: 11px; fill: #57606a; }
    .mid { text-anchor: middle; }
    @media (prefers-color-scheme: dark) {
      .card { fill: #0d1117; stroke: #30363d; }
      .grid { stroke: #30363d; }
      .r0 { fill: #6e7681; } .r1 { fill: #f0883e; } .r2 { fill: #3fb950; } .r3 { fill: #58a6ff; }
      .title { fill: #e6edf3; }
      .small { fill: #9ea7b3; }
    }
  </style>
";
