//! The screen of `fairgate top`, as lines.

use fairgate_api::admin::{PoolView, RequestBody, WorkerBody};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use super::super::pools::{next_try, utc_time};
use super::super::{or_dash, span, text_or_dash};
use super::flow_rows::FlowRow;
use super::model::{TopDialog, TopModel, TopTab};
use crate::text_format::{one_line, safe_name};

/// Least width of a screen that shows weights and bars, in characters.
const WIDE: u16 = 130;
/// Length of a bar for the whole pool, in characters.
const BAR: usize = 30;

const HELP: [&str; 12] = [
    "1 2 3 4      flows, requests, workers, fleet",
    "[ ]  ← →     the pool before, the next pool",
    "↑ ↓  j k     choose a row; Page Up, Page Down, Home, End",
    "/            filter by name; Enter keeps it, Esc removes it",
    "s            sort flows by groups, waiting, got, name",
    "p  space     pause, go on",
    "e  Enter     explain the chosen flow, request or worker",
    "h            hold the chosen flow, or resume it",
    "w            weight of the chosen flow",
    "c            cap of the chosen flow",
    "d            drain the chosen worker, or end its drain",
    "q            quit; whatever changes something asks first",
];

fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

fn dim() -> Style {
    Style::new().add_modifier(Modifier::DIM)
}

fn warning() -> Style {
    Style::new().fg(Color::Red).add_modifier(Modifier::BOLD)
}

/// Column of a table: heading, width, and true if its cells are flushed right.
type ScreenColumn = (&'static str, usize, bool);

/// Draws the screen in this size. There are at most `height` lines, none of them longer than `width`.
pub(super) fn lines(model: &TopModel, width: u16, height: u16) -> Vec<Line<'static>> {
    let (columns, height) = (usize::from(width), usize::from(height));
    let mut lines = vec![heading(model), tabs(model)];
    if model.tab != TopTab::Fleet {
        lines.push(pool_line(model));
    }
    let footer = footer(model, columns);
    let room = height.saturating_sub(lines.len() + footer.len());
    let body = match &model.dialog {
        Some(dialog) => dialog_lines(dialog, columns, room),
        None => match model.tab {
            TopTab::Flows => flows(model, width, room),
            TopTab::Requests => requests(model, room),
            TopTab::Workers => workers(model, room),
            TopTab::Fleet => fleet(model, room),
        },
    };
    lines.extend(body.into_iter().take(room));
    // The footer stays at the bottom.
    lines.resize(height.saturating_sub(footer.len()), Line::default());
    lines.extend(footer);
    lines.truncate(height);
    lines.into_iter().map(|line| cut(line, columns)).collect()
}

/// Cuts a line to a width.
fn cut(line: Line<'static>, width: usize) -> Line<'static> {
    let mut left = width;
    let mut spans = Vec::new();
    for span in line.spans {
        let content = fitted(&span.content, left);
        left -= Span::raw(content.clone()).width();
        spans.push(Span::styled(content, span.style));
    }
    Line::from(spans)
}

/// Returns as many characters of a text as fit into a width.
fn fitted(text: &str, width: usize) -> String {
    let mut fitted = String::new();
    for character in text.chars() {
        fitted.push(character);
        if Span::raw(fitted.as_str()).width() > width {
            fitted.pop();
            break;
        }
    }
    fitted
}

/// Returns a text that fills a cell of this width; a text that is too long ends in `…`.
fn cell(text: &str, width: usize, right: bool) -> String {
    let mut shown = text.to_owned();
    if Span::raw(text).width() > width {
        shown = fitted(text, width.saturating_sub(1));
        shown.push('…');
    }
    let pad = " ".repeat(width.saturating_sub(Span::raw(shown.as_str()).width()));
    if right { format!("{pad}{shown}") } else { format!("{shown}{pad}") }
}

fn row(columns: &[ScreenColumn], cells: &[String]) -> String {
    let cells = columns.iter().zip(cells);
    let cells = cells.map(|((_, width, right), text)| cell(text, *width, *right));
    cells.collect::<Vec<_>>().join(" ")
}

fn headings(columns: &[ScreenColumn]) -> Line<'static> {
    let names: Vec<String> = columns.iter().map(|(name, ..)| (*name).to_owned()).collect();
    Line::styled(row(columns, &names), dim())
}

/// Formats a share in percent; `–` if it is not known.
pub(super) fn percent(share: Option<f64>) -> String {
    share.map_or("–".to_owned(), |share| format!("{:.1} %", share * 100.0))
}

fn heading(model: &TopModel) -> Line<'static> {
    let time = utc_time(model.look.live.as_ref().map_or("–", |live| &live.at));
    let mut spans = vec![
        Span::styled("fairgate top", bold()),
        Span::raw(format!("  {}  every {} s", one_line(&time), model.every)),
    ];
    if model.paused {
        spans.push(Span::styled("  paused", warning()));
    }
    if let Some(error) = &model.error {
        spans.push(Span::styled(format!("  not connected: {error}"), warning()));
    }
    Line::from(spans)
}

fn tabs(model: &TopModel) -> Line<'static> {
    let mut spans = Vec::new();
    for (key, name, tab) in TopTab::ALL {
        let style = if tab == model.tab { bold().add_modifier(Modifier::REVERSED) } else { dim() };
        spans.push(Span::styled(format!(" {key} {name} "), style));
        spans.push(Span::raw(" "));
    }
    spans.push(Span::raw("│"));
    for (place, pool) in model.pools().iter().enumerate() {
        let name = safe_name(&pool.pool);
        let style = if place == model.pool_place() { bold() } else { dim() };
        spans.push(Span::styled(format!(" {name}"), style));
    }
    Line::from(spans)
}

fn pool_line(model: &TopModel) -> Line<'static> {
    let Some(pool) = model.shown_pool() else { return Line::raw("there is no pool") };
    let PoolView { in_flight, slots, waiting, refused, window_s, algorithm, .. } = pool;
    let wait = or_dash(pool.wait_p95_ms.map(wait));
    Line::raw(format!(
        "slots {in_flight}/{slots}  waiting {waiting}  wait p95 {wait}  refused {refused} in {window_s} s  {}",
        one_line(algorithm)
    ))
}

/// Formats a wait in milliseconds for people.
fn wait(ms: u64) -> String {
    span(ms.saturating_mul(1000)).to_string()
}

fn footer(model: &TopModel, width: usize) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    match (&model.dialog, model.filtering, &model.message) {
        (Some(TopDialog::Confirm { question, .. }), ..) => {
            lines.extend(wrapped(&format!("{question}  [y] yes  [n] no"), width, warning()));
        }
        (Some(TopDialog::Number { title, typed, .. }), ..) => {
            lines.push(Line::styled(format!("{title}: {typed}_   Enter, Esc"), bold()));
        }
        (_, true, _) => lines.push(Line::styled(format!("/{}_", one_line(&model.filter)), bold())),
        (_, false, Some(message)) => lines.push(Line::styled(message.clone(), bold())),
        (_, false, None) if !model.filter.is_empty() => {
            lines.push(Line::raw(format!("filter: {}", one_line(&model.filter))));
        }
        _ => {}
    }
    let keys = match model.tab {
        TopTab::Flows => format!("s sort ({})  h hold  w weight  c cap  ", model.sort.name()),
        TopTab::Workers => "d drain  ".to_owned(),
        TopTab::Requests | TopTab::Fleet => String::new(),
    };
    lines.push(Line::styled(format!("{keys}e explain  / filter  p pause  ? help  q quit"), dim()));
    lines
}

/// Breaks a text into lines of this width, between words.
fn wrapped(text: &str, width: usize, style: Style) -> Vec<Line<'static>> {
    let mut lines: Vec<String> = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last().map_or(0, |line| Span::raw(line.as_str()).width());
        if line > 0 && line + 1 + Span::raw(word).width() > width {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines.into_iter().map(|line| Line::styled(line, style)).collect()
}

fn dialog_lines(dialog: &TopDialog, width: usize, room: usize) -> Vec<Line<'static>> {
    match dialog {
        TopDialog::Help => {
            let keys = HELP.iter().map(|line| Line::raw(format!("  {line}")));
            std::iter::once(Line::styled("keys", bold())).chain(keys).collect()
        }
        TopDialog::Story { title, lines, scroll } => {
            let inside = width.saturating_sub(2);
            let story = lines.iter().flat_map(|line| wrapped(line, inside, Style::new()));
            let story = story.skip(*scroll).take(room.saturating_sub(2));
            let indented =
                story.map(|line| Line::from([vec![Span::raw("  ")], line.spans].concat()));
            let mut shown = vec![Line::styled(title.clone(), bold())];
            shown.extend(indented);
            shown.push(Line::styled("  any other key goes back", dim()));
            shown
        }
        TopDialog::Confirm { question, .. } => wrapped(question, width, bold()),
        TopDialog::Number { title, .. } => vec![Line::styled(title.clone(), bold())],
    }
}

/// Returns the rows that fit, with the selected one among them.
fn window<T>(rows: Vec<T>, selected: usize, room: usize) -> (usize, Vec<T>) {
    let first = (selected + 1).saturating_sub(room);
    (first, rows.into_iter().skip(first).take(room).collect())
}

/// Builds the lines of a table: its headings, and the rows that fit. The text of an empty table is shown instead of rows.
fn table(
    columns: &[ScreenColumn],
    rows: Vec<(Vec<String>, Style)>,
    selected: usize,
    room: usize,
    empty: &str,
) -> Vec<Line<'static>> {
    let mut lines = vec![headings(columns)];
    if rows.is_empty() {
        lines.push(Line::raw(empty.to_owned()));
    }
    let (first, shown) = window(rows, selected, room.saturating_sub(1));
    for (place, (cells, style)) in shown.into_iter().enumerate() {
        let style = match first + place == selected {
            true => style.add_modifier(Modifier::REVERSED),
            false => style,
        };
        lines.push(Line::styled(row(columns, &cells), style));
    }
    lines
}

fn flows(model: &TopModel, width: u16, room: usize) -> Vec<Line<'static>> {
    let mut columns: Vec<ScreenColumn> = vec![("flow", 18, false), ("state", 12, false)];
    let wide = width >= WIDE;
    if wide {
        columns[0].1 = 28;
        columns.push(("weight", 7, true));
    }
    columns.extend([("due", 7, true), ("got", 7, true), ("asked", 7, true)]);
    columns.extend([("in flight", 9, true), ("waiting", 7, true), ("p95", 6, true)]);
    if wide {
        columns.push(("got ▇ due │", BAR + 1, false));
    }
    let flows = model.flows();
    let rows = flows.iter().map(|flow| (flow_cells(flow, wide), flow_style(flow)));
    let empty = match model.filter.is_empty() {
        true => "no flow has sent anything yet",
        false => "no flow has this in its name",
    };
    table(&columns, rows.collect(), model.selected, room, empty)
}

fn flow_style(flow: &FlowRow) -> Style {
    match (flow.outside, flow.state) {
        (true, _) => warning(),
        (false, "held" | "at cap" | "over budget" | "rate limited" | "disabled") => {
            Style::new().fg(Color::Yellow)
        }
        _ => Style::new(),
    }
}

fn flow_cells(flow: &FlowRow, wide: bool) -> Vec<String> {
    let indent = if flow.inside { "  " } else { "" };
    let kind = match flow.by {
        "class" | "project" => format!("{} ", flow.by),
        _ => String::new(),
    };
    let mark = if flow.outside { "! " } else { "" };
    let mut cells =
        vec![format!("{indent}{mark}{kind}{}", safe_name(&flow.name)), flow.state.to_owned()];
    if wide {
        cells.push(flow.weight.map_or("–".to_owned(), |weight| weight.to_string()));
    }
    cells.extend([flow.due, flow.got, flow.asked].map(percent));
    let cap = flow.cap.map(|cap| format!("/{cap}")).unwrap_or_default();
    cells.push(format!("{}{cap}", flow.in_flight));
    cells.push(flow.waiting.to_string());
    cells.push(flow.wait_p95_ms.map_or("–".to_owned(), wait));
    if wide {
        cells.push(bar(flow.got, flow.due));
    }
    cells
}

/// Draws a share as a bar, with a tick at the due share.
fn bar(got: Option<f64>, due: Option<f64>) -> String {
    // Shares are at most 1, so the length fits.
    let place = |share: f64| (0..BAR).filter(|step| share > *step as f64 / BAR as f64).count();
    let (full, tick) = (got.map_or(0, place), due.map(place));
    let character = |at: usize| match at {
        _ if tick == Some(at) => '│',
        _ if at < full => '▇',
        _ => ' ',
    };
    (0..=BAR).map(character).collect()
}

fn requests(model: &TopModel, room: usize) -> Vec<Line<'static>> {
    let columns: [ScreenColumn; 7] = [
        ("request", 24, false),
        ("state", 9, false),
        ("tenant", 14, false),
        ("worker", 10, false),
        ("cost", 6, true),
        ("waited", 10, true),
        ("flight", 10, true),
    ];
    let cells = |request: &RequestBody| {
        vec![
            one_line(&request.id),
            request.state.word().replace('_', " "),
            text_or_dash(request.tenant.as_deref()),
            text_or_dash(request.worker.as_deref()),
            request.cost.to_string(),
            span(request.waited_us).to_string(),
            or_dash(request.in_flight_us.map(span)),
        ]
    };
    let rows = model.requests().into_iter().map(|request| (cells(request), Style::new()));
    table(&columns, rows.collect(), model.selected, room, "nothing waits or is in flight")
}

fn workers(model: &TopModel, room: usize) -> Vec<Line<'static>> {
    let columns: [ScreenColumn; 5] = [
        ("worker", 20, false),
        ("state", 11, false),
        ("in flight", 11, true),
        ("tier", 4, true),
        ("reason", 60, false),
    ];
    let cells = |worker: &WorkerBody| {
        let slots = worker.slots.map(|slots| format!("/{slots}")).unwrap_or_default();
        vec![
            one_line(&worker.name),
            worker.state.clone(),
            format!("{}{slots}", worker.in_flight),
            worker.tier.to_string(),
            reason(worker),
        ]
    };
    let style = |worker: &WorkerBody| match worker.state.as_str() {
        "up" => Style::new(),
        "drained" | "paused" => Style::new().fg(Color::Yellow),
        _ => warning(),
    };
    let rows = model.workers().into_iter().map(|worker| (cells(worker), style(worker)));
    table(&columns, rows.collect(), model.selected, room, "this pool has no worker")
}

/// Returns the reason for a worker's state, after the time of the next try if the worker has an outage.
fn reason(worker: &WorkerBody) -> String {
    match (&worker.down_since, worker.reason.as_deref()) {
        (None, reason) => text_or_dash(reason),
        (Some(_), None) => next_try(worker),
        (Some(_), Some(reason)) => format!("{}: {}", next_try(worker), one_line(reason)),
    }
}

fn fleet(model: &TopModel, room: usize) -> Vec<Line<'static>> {
    let Some(lines) = &model.look.fleet else { return vec![Line::raw("…")] };
    let first = model.selected.min(lines.len().saturating_sub(room));
    lines.iter().skip(first).take(room).map(|line| Line::raw(line.clone())).collect()
}

#[cfg(test)]
mod tests {
    use fairgate_api::admin::LiveView;
    use serde_json::json;

    use super::super::flow_rows::tests::pool;
    use super::super::gateway_calls::{GatewayReply, TopLook};
    use super::*;

    fn model() -> TopModel {
        let mut model = TopModel::new(None, 1);
        let mut llama = pool("llama");
        let worker = json!({
            "name": "vllm-c", "state": "broken", "reason": "connect: refused",
            "down_since": "2026-11-18T12:01:11.000000Z", "retry_at": "2026-11-18T12:03:53.250000Z", "source": "file", "address": "http://a/",
            "in_flight": 0, "prefill_tokens": 0, "slots": 16, "slots_reason": null, "engine": null, "cache": null,
            "cache_size": null, "tier": 0, "quota": null, "models": [],
        });
        llama.workers.push(serde_json::from_value(worker).unwrap());
        let live = LiveView {
            at: "2026-11-18T12:03:41.000000Z".to_owned(),
            ledger: Default::default(),
            currency: None,
            one: None,
            pools: vec![llama],
        };
        let look = TopLook { live: Some(live), ..TopLook::default() };
        model.take(GatewayReply::Looked(Ok(Box::new(look))));
        model
    }

    fn text(model: &TopModel, width: u16, height: u16) -> Vec<String> {
        let lines = lines(model, width, height);
        lines.iter().map(|line| line.spans.iter().map(|span| &*span.content).collect()).collect()
    }

    #[test]
    fn a_frame_has_the_size_of_the_terminal() {
        for (width, height) in [(80, 24), (200, 50), (20, 5), (1, 1)] {
            for tab in [TopTab::Flows, TopTab::Requests, TopTab::Workers, TopTab::Fleet] {
                let model = TopModel { tab, dialog: Some(TopDialog::Help), ..model() };
                let shown = text(&model, width, height);
                assert_eq!(shown.len(), usize::from(height));
                let longest = shown.iter().map(|line| Span::raw(line.as_str()).width()).max();
                assert!(longest.is_some_and(|longest| longest <= usize::from(width)));
            }
        }
    }

    #[test]
    fn flows_show_due_and_got() {
        let shown = text(&model(), 80, 24);
        assert_eq!(shown[0], "fairgate top  12:03:41 UTC  every 1 s");
        let line = "slots 32/32  waiting 214  wait p95 38 s  refused 3 in 60 s  share by gro";
        assert!(shown[2].starts_with(line), "{}", shown[2]);
        assert_eq!(
            shown[3..7],
            [
                "flow               state            due     got   asked in flight waiting    p95",
                "prod               waiting       50.0 % 100.0 %  71.0 %         9       4 900 ms",
                "  chat\\u{1b}[2J    waiting       50.0 %  25.0 %  71.0 %         9       4 900 ms",
                "  ! xxxxxxxxxxxxx… idle          50.0 %  75.0 %  71.0 %       0/4       0 900 ms",
            ]
        );
        let wide = text(&model(), 140, 24);
        let drawn = format!("{}{}│{}", "▇".repeat(8), " ".repeat(7), " ".repeat(15));
        assert!(wide[5].ends_with(&drawn), "{}", wide[5]);
        let workers = TopModel { tab: TopTab::Workers, ..model() };
        let line = "vllm-c               broken             0/16    0 tried again at 12:03:53 UTC: connect: refused";
        assert!(text(&workers, 120, 24)[4].contains(line));
    }
}
