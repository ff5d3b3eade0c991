//! The keys of `fairgate top`.

use fairgate_api::admin::WorkerBody;
use fairgate_journal::explain_text;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::super::pools::outage;
use super::flow_rows::FlowRow;
use super::gateway_calls::{GatewayCall, TopChange};
use super::model::{NumberKind, PoolFlowName, TopDialog, TopModel, TopTab};
use super::screen::percent;
use crate::text_format::safe_name;

/// Greatest weight and cap that can be typed, in digits.
const DIGITS_MAX: usize = 7;
/// Greatest length of a filter, in characters.
const FILTER_MAX: usize = 40;

/// Effect of a key besides the change of the model.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TopEffect {
    None,
    Quit,
    /// Fetch the content of the tab at once.
    Look,
    Call(GatewayCall),
}

/// Handles a key that was pressed.
pub(super) fn press(model: &mut TopModel, key: KeyEvent) -> TopEffect {
    if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
        return TopEffect::Quit;
    }
    if model.filtering {
        return type_filter(model, key.code);
    }
    match model.dialog.take() {
        Some(dialog) => in_dialog(model, dialog, key.code),
        None => in_table(model, key.code),
    }
}

fn type_filter(model: &mut TopModel, code: KeyCode) -> TopEffect {
    match code {
        KeyCode::Char(typed) if model.filter.chars().count() < FILTER_MAX => {
            model.filter.push(typed);
        }
        KeyCode::Backspace => {
            model.filter.pop();
        }
        KeyCode::Enter => model.filtering = false,
        KeyCode::Esc => {
            model.filter.clear();
            model.filtering = false;
        }
        _ => {}
    }
    model.selected = 0;
    TopEffect::None
}

fn in_dialog(model: &mut TopModel, dialog: TopDialog, code: KeyCode) -> TopEffect {
    match dialog {
        TopDialog::Help => TopEffect::None,
        TopDialog::Story { title, lines, scroll } => {
            let last = lines.len().saturating_sub(1);
            let scroll = match code {
                KeyCode::Down | KeyCode::Char('j') => (scroll + 1).min(last),
                KeyCode::PageDown => (scroll + 10).min(last),
                KeyCode::Up | KeyCode::Char('k') => scroll.saturating_sub(1),
                KeyCode::PageUp => scroll.saturating_sub(10),
                _ => return TopEffect::None,
            };
            model.dialog = Some(TopDialog::Story { title, lines, scroll });
            TopEffect::None
        }
        TopDialog::Confirm { question, change } => match code {
            KeyCode::Char('y') => TopEffect::Call(GatewayCall::Change(change)),
            KeyCode::Char('n' | 'q') | KeyCode::Esc => {
                model.message = Some("nothing was changed".to_owned());
                TopEffect::None
            }
            // No other key answers the question.
            _ => {
                model.dialog = Some(TopDialog::Confirm { question, change });
                TopEffect::None
            }
        },
        TopDialog::Number { title, mut typed, kind, flow } => {
            match code {
                KeyCode::Char(digit) if digit.is_ascii_digit() && typed.len() < DIGITS_MAX => {
                    typed.push(digit);
                }
                KeyCode::Backspace => {
                    typed.pop();
                }
                KeyCode::Enter => {
                    model.dialog = confirm_number(&typed, kind, flow);
                    return TopEffect::None;
                }
                KeyCode::Esc => return TopEffect::None,
                _ => {}
            }
            model.dialog = Some(TopDialog::Number { title, typed, kind, flow });
            TopEffect::None
        }
    }
}

/// Returns the question whether to set a typed number; `None` if it cannot be set.
fn confirm_number(typed: &str, kind: NumberKind, flow: PoolFlowName) -> Option<TopDialog> {
    let shown = format!("{} {} in pool {}", flow.by, safe_name(&flow.flow), safe_name(&flow.pool));
    let (question, change) = match (kind, typed.parse::<u64>().ok()) {
        (NumberKind::Weight, Some(weight @ 1..)) => (
            format!("Give {shown} the weight {weight}? Nothing in flight is cut off."),
            TopChange::Weight { flow, weight },
        ),
        (NumberKind::Weight, _) => return None,
        (NumberKind::Cap, Some(slots)) => (
            format!("Cap {shown} at {slots} in flight? What is in flight goes on."),
            TopChange::Cap { flow, slots: Some(slots) },
        ),
        (NumberKind::Cap, None) => {
            (format!("Remove the cap of {shown}?"), TopChange::Cap { flow, slots: None })
        }
    };
    Some(TopDialog::Confirm { question, change })
}

fn in_table(model: &mut TopModel, code: KeyCode) -> TopEffect {
    let last = model.rows().saturating_sub(1);
    match code {
        KeyCode::Char('q') => return TopEffect::Quit,
        KeyCode::Char('?') => model.dialog = Some(TopDialog::Help),
        KeyCode::Char('p' | ' ') => {
            model.paused = !model.paused;
            return if model.paused { TopEffect::None } else { TopEffect::Look };
        }
        KeyCode::Char('/') => model.filtering = true,
        KeyCode::Char('s') => model.sort = model.sort.next(),
        KeyCode::Down | KeyCode::Char('j') => model.selected = (model.selected + 1).min(last),
        KeyCode::Up | KeyCode::Char('k') => model.selected = model.selected.saturating_sub(1),
        KeyCode::PageDown => model.selected = (model.selected + 10).min(last),
        KeyCode::PageUp => model.selected = model.selected.saturating_sub(10),
        KeyCode::Home => model.selected = 0,
        KeyCode::End => model.selected = last,
        KeyCode::Right | KeyCode::Char(']') => model.turn_pool(true),
        KeyCode::Left | KeyCode::Char('[') => model.turn_pool(false),
        KeyCode::Char(key) if TopTab::ALL.iter().any(|(of, ..)| *of == key) => {
            let tab = TopTab::ALL.iter().find(|(of, ..)| *of == key);
            model.tab = tab.map_or(TopTab::Flows, |(.., tab)| *tab);
            model.selected = 0;
            return TopEffect::Look;
        }
        KeyCode::Char('h') => hold(model),
        KeyCode::Char('w') => ask_number(model, NumberKind::Weight),
        KeyCode::Char('c') => ask_number(model, NumberKind::Cap),
        KeyCode::Char('d') => drain(model),
        KeyCode::Char('e') | KeyCode::Enter => return explain(model),
        KeyCode::Esc => {
            (model.message, model.filter) = (None, String::new());
        }
        _ => {}
    }
    TopEffect::None
}

fn named(model: &TopModel, row: &FlowRow) -> PoolFlowName {
    PoolFlowName { pool: model.pool_name(), by: row.by, flow: row.name.clone() }
}

fn hold(model: &mut TopModel) {
    let Some(row) = model.selected_flow() else {
        model.message = Some("choose a flow first (1)".to_owned());
        return;
    };
    let shown =
        format!("{} {} in pool {}", row.by, safe_name(&row.name), safe_name(&model.pool_name()));
    let (in_flight, waiting) = (row.in_flight, row.waiting);
    let question = match row.held {
        false => format!(
            "Hold {shown}? What is in flight ({in_flight}) goes on; what waits ({waiting}) stays, and new requests wait too."
        ),
        true => format!("Resume {shown}? What waits ({waiting}) goes on."),
    };
    let change = TopChange::Hold { flow: named(model, &row), held: !row.held };
    model.dialog = Some(TopDialog::Confirm { question, change });
}

fn ask_number(model: &mut TopModel, kind: NumberKind) {
    let Some(row) = model.selected_flow() else {
        model.message = Some("choose a flow first (1)".to_owned());
        return;
    };
    if (row.by, kind) == ("group", NumberKind::Cap) {
        model.message = Some("the cap of a group is in the configuration file".to_owned());
        return;
    }
    let name = format!("{} {}", row.by, safe_name(&row.name));
    let number =
        |number: Option<u64>| number.map_or("none".to_owned(), |number| number.to_string());
    let title = match kind {
        NumberKind::Weight => format!("weight of {name} (now {})", number(row.weight)),
        NumberKind::Cap => {
            format!("most in flight for {name} (now {}; empty: no cap)", number(row.cap))
        }
    };
    let flow = named(model, &row);
    model.dialog = Some(TopDialog::Number { title, typed: String::new(), kind, flow });
}

fn drain(model: &mut TopModel) {
    let worker = match model.tab {
        TopTab::Workers => model.workers().get(model.selected).map(|worker| (*worker).clone()),
        _ => None,
    };
    let Some(WorkerBody { name, state, in_flight, .. }) = worker else {
        model.message = Some("choose a worker first (3)".to_owned());
        return;
    };
    let drained = state != "drained";
    let question = match drained {
        true => format!(
            "Drain worker {}? It gets no new requests; what is in flight ({in_flight}) goes on.",
            safe_name(&name),
        ),
        false => format!("Let worker {} take requests again?", safe_name(&name)),
    };
    let change = TopChange::Drain { pool: model.pool_name(), worker: name, drained };
    model.dialog = Some(TopDialog::Confirm { question, change });
}

fn explain(model: &mut TopModel) -> TopEffect {
    match model.tab {
        TopTab::Requests => {
            let requests = model.requests();
            requests.get(model.selected).map_or(TopEffect::None, |request| {
                TopEffect::Call(GatewayCall::ExplainRequest(request.id.clone()))
            })
        }
        TopTab::Flows => {
            let Some(row) = model.selected_flow() else { return TopEffect::None };
            let unit = model.shown_pool().map_or("", |pool| &*pool.unit);
            let lines = flow_story(&row, unit);
            if row.by == "tenant" {
                let (pool, tenant) = (model.pool_name(), row.name);
                return TopEffect::Call(GatewayCall::ExplainTenant { pool, tenant, lines });
            }
            let title = format!("{} {}", row.by, safe_name(&row.name));
            model.dialog = Some(TopDialog::Story { title, lines, scroll: 0 });
            TopEffect::None
        }
        TopTab::Workers => {
            let workers = model.workers();
            let Some(worker) = workers.get(model.selected) else { return TopEffect::None };
            let WorkerBody { name, state, reason, source, address, slots_reason, .. } = worker;
            let title = format!("worker {}", safe_name(name));
            let known = |text: &Option<String>| text.clone().unwrap_or_else(|| "–".to_owned());
            let times = outage(worker).map_or(String::new(), |times| format!(" {times}"));
            let lines = [
                format!("state: {state}{times}"),
                format!("reason: {}", known(reason)),
                format!("address: {address}"),
                format!("source: {source}"),
                format!("last change of its slots: {}", known(slots_reason)),
            ];
            model.dialog = Some(TopDialog::Story { title, lines: lines.to_vec(), scroll: 0 });
            TopEffect::None
        }
        TopTab::Fleet => TopEffect::None,
    }
}

/// Describes a flow, one sentence a line, with amounts in the unit of its pool.
fn flow_story(row: &FlowRow, unit: &str) -> Vec<String> {
    let unit = unit_words(unit);
    let amount = |amount: Option<i64>| amount.map_or("–".to_owned(), |it| format!("{it} {unit}"));
    let mut lines = vec![
        format!("state {}: {} in flight, {} waiting", row.state, row.in_flight, row.waiting),
        format!("due {} of the pool, got {}", percent(row.due), percent(row.got)),
    ];
    if row.difference.is_some() {
        let (difference, bound) = (amount(row.difference), amount(row.bound));
        lines.push(format!("got less due: {difference}; the bound is {bound}"));
    }
    if row.outside {
        lines.push("! it is outside the bound that the policy promises".to_owned());
    }
    if let Some(cap) = row.cap {
        lines.push(format!("at most {cap} in flight"));
    }
    lines
}

/// Returns the words for the unit of a pool, as the API names it.
fn unit_words(unit: &str) -> &'static str {
    match unit {
        "worker_time" => explain_text::WORKER_TIME,
        "money" => explain_text::MONEY,
        _ => "tokens",
    }
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
        let mut first = pool("p");
        first.tenants[0].tenant = "t".to_owned();
        first.tenants.truncate(1);
        let worker = json!({
            "name": "w", "state": "up", "reason": null, "source": "file", "address": "http://a/", "in_flight": 2,
            "prefill_tokens": 0, "slots": 8, "slots_reason": null, "engine": null, "cache": null, "cache_size": null,
            "tier": 0, "quota": null, "models": [],
        });
        first.workers.push(serde_json::from_value(worker).unwrap());
        let mut second = pool("q");
        (second.groups, second.tenants) = (Vec::new(), Vec::new());
        let request = json!({
            "id": "r", "pool": "p", "state": "waiting", "priority": 0, "requires": [], "cost": 1,
            "submitted_at": "2026-11-18T12:00:00Z", "waited_us": 5,
        });
        let live = LiveView {
            at: "2026-11-18T12:03:41.000000Z".to_owned(),
            ledger: Default::default(),
            currency: None,
            one: None,
            pools: vec![first, second],
        };
        let look = TopLook {
            live: Some(live),
            pools: Vec::new(),
            requests: Some(vec![serde_json::from_value(request).unwrap()]),
            fleet: None,
        };
        model.take(GatewayReply::Looked(Ok(Box::new(look))));
        model
    }

    fn keys(model: &mut TopModel, keys: &str) -> TopEffect {
        let mut effect = TopEffect::None;
        for key in keys.chars() {
            let code = if key == '\n' { KeyCode::Enter } else { KeyCode::Char(key) };
            effect = press(model, KeyEvent::from(code));
        }
        effect
    }

    fn tenant() -> PoolFlowName {
        PoolFlowName { pool: "p".into(), by: "tenant", flow: "t".into() }
    }

    #[test]
    fn a_change_is_made_only_after_a_yes() {
        let mut model = model();
        assert_eq!(keys(&mut model, "jh"), TopEffect::None);
        assert!(
            matches!(&model.dialog, Some(TopDialog::Confirm { question, .. }) if question.contains("tenant t"))
        );
        assert_eq!(keys(&mut model, "xh\n"), TopEffect::None, "no answer");
        assert!(model.dialog.is_some());
        let hold = TopChange::Hold { flow: tenant(), held: true };
        assert_eq!(keys(&mut model, "y"), TopEffect::Call(GatewayCall::Change(hold)));
        assert_eq!(keys(&mut model, "hny"), TopEffect::None);
        assert_eq!(model.message.as_deref(), Some("nothing was changed"));
    }

    #[test]
    fn a_flow_is_explained_in_the_unit_of_its_pool() {
        for (unit, words) in [
            ("tokens", "tokens"),
            ("worker_time", "µs of worker time"),
            ("money", "micro-units of money"),
        ] {
            let mut model = model();
            let pool = &mut model.look.live.as_mut().unwrap().pools[0];
            pool.unit = unit.to_owned();
            (pool.groups[0].service.difference, pool.groups[0].service.bound) = (Some(-7), Some(9));
            keys(&mut model, "e");
            let Some(TopDialog::Story { lines, .. }) = &model.dialog else { panic!("no story") };
            assert_eq!(lines[2], format!("got less due: -7 {words}; the bound is 9 {words}"));
        }
    }

    #[test]
    fn numbers_are_typed() {
        let mut model = model();
        assert_eq!(keys(&mut model, "jw5x0\n"), TopEffect::None);
        let weight = TopChange::Weight { flow: tenant(), weight: 50 };
        assert_eq!(keys(&mut model, "y"), TopEffect::Call(GatewayCall::Change(weight)));
        assert_eq!(keys(&mut model, "w0\ny"), TopEffect::None, "no flow has the weight 0");
        let cap = TopChange::Cap { flow: tenant(), slots: None };
        assert_eq!(keys(&mut model, "c\ny"), TopEffect::Call(GatewayCall::Change(cap)));
        assert_eq!(keys(&mut model, "kc8\ny"), TopEffect::None);
        assert!(model.message.as_deref().is_some_and(|text| text.contains("configuration")));
    }

    #[test]
    fn workers_are_drained_and_requests_explained() {
        let mut model = model();
        assert_eq!(keys(&mut model, "d"), TopEffect::None);
        assert_eq!(keys(&mut model, "3"), TopEffect::Look);
        let drain = TopChange::Drain { pool: "p".into(), worker: "w".into(), drained: true };
        assert_eq!(keys(&mut model, "dy"), TopEffect::Call(GatewayCall::Change(drain)));
        let explain = TopEffect::Call(GatewayCall::ExplainRequest("r".into()));
        assert_eq!(keys(&mut model, "2e"), explain);
        assert!(matches!(
            keys(&mut model, "1je"),
            TopEffect::Call(GatewayCall::ExplainTenant { lines, .. }) if lines[0].contains("9 in flight")
        ));
        keys(&mut model, "]");
        assert_eq!((model.pool_name().as_str(), model.rows()), ("q", 0));
        assert_eq!(keys(&mut model, "hwcde"), TopEffect::None, "nothing is selected");
        keys(&mut model, "]/t");
        assert_eq!((model.pool_name().as_str(), model.filter.as_str()), ("p", "t"));
        assert_eq!(keys(&mut model, "q\nq"), TopEffect::Quit, "the first q is typed");
        assert_eq!(model.filter, "tq");
    }
}
