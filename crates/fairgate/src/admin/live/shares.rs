//! The live view as text: classes, flows and providers of each pool.

use std::io::Write;

use anyhow::Result;
use fairgate_core::units::Percentage;
use fairgate_money::MicroUnits;
use serde_json::{Value, json};

use super::super::pools::{rate, state};
use super::super::{span, text};
use fairgate_table::{TableCell, TextTable};

/// Formats all pools with their flows.
pub(super) fn format_pools(live: &Value) -> Result<String> {
    let mut out = Vec::new();
    if let Some(line) = ledger(&live["ledger"]) {
        writeln!(out, "{line}\n")?;
    }
    let currency = live["currency"].as_str().map(|it| format!(" {it}")).unwrap_or_default();
    for pool in live["pools"].as_array().into_iter().flatten() {
        writeln!(
            out,
            "pool {}: {} of {} in flight, {} waiting; {}",
            text(pool, "pool"),
            text(pool, "global_in_flight"),
            text(pool, "max_in_flight"),
            text(pool, "global_queued"),
            text(pool, "algorithm")
        )?;
        if let Some(classes) = classes(pool) {
            classes.write(&mut out)?;
            writeln!(out)?;
        }
        shares(pool, &currency).write(&mut out)?;
        for line in outside(pool).into_iter().chain(providers(pool)) {
            writeln!(out, "{line}")?;
        }
        writeln!(out)?;
    }
    Ok(String::from_utf8(out)?)
}

/// Describes problems of the ledger; `None` if there are none. Fewer than 10 000 rows that are not in the database yet
/// are no problem, because some rows are always on their way.
fn ledger(ledger: &Value) -> Option<String> {
    const MANY: u64 = 10_000;
    let number = |field: &str| ledger[field].as_u64().unwrap_or(0);
    let (waiting, without) = (number("rows_waiting"), number("answers_without_row"));
    let waiting = (waiting >= MANY).then(|| format!("{waiting} rows are not in the database yet"));
    let without = (without > 0).then(|| format!("{without} answers were given out without a row"));
    let sentences: Vec<_> = waiting.into_iter().chain(without).collect();
    (!sentences.is_empty()).then(|| format!("ledger: {}", sentences.join("; ")))
}

/// Iterates over the groups of a pool with their tenants, then over the fleet's projects that use the pool.
fn flows(pool: &Value) -> impl Iterator<Item = (String, &Value)> {
    let tenants = || pool["tenants"].as_array().into_iter().flatten();
    let projects = pool["projects"].as_array().into_iter().flatten();
    let projects = projects.map(|project| (format!("project {}", text(project, "name")), project));
    let groups = pool["groups"].as_array().into_iter().flatten();
    let groups = groups.flat_map(move |group| {
        let name = text(group, "name");
        let inside = name.clone();
        let of_group = move |tenant: &&Value| text(tenant, "fairshare_group") == inside;
        let tenants = tenants()
            .filter(of_group)
            .map(|tenant| (format!("  {}", text(tenant, "tenant_id")), tenant));
        std::iter::once((name, group)).chain(tenants)
    });
    groups.chain(projects)
}

fn shares(pool: &Value, currency: &str) -> TextTable {
    let has_tiers = pool["hosted"]["requests"].as_u64().is_some_and(|requests| requests > 0);
    let has_money = ["own", "hosted"].iter().any(|tier| spends(&pool[*tier]));
    let has_caps = flows(pool).any(|(_, flow)| !flow["cap_use"].is_null());
    let has_order = flows(pool).any(|(_, flow)| flow["strict"].is_string());
    let mut headings = vec![
        "flow",
        "weight",
        "share",
        "in flight",
        "waiting",
        "got tokens",
        "due tokens",
        "difference",
        "bound",
    ];
    headings.extend(has_caps.then_some("cap use"));
    headings.extend(has_tiers.then_some(["own tokens", "hosted tokens"]).into_iter().flatten());
    headings.extend(has_money.then_some("money"));
    headings.extend(has_order.then_some("order"));
    let mut table = TextTable::new(headings);
    for (name, flow) in flows(pool) {
        let number = |field: &str| TableCell::Number(text(flow, field));
        let share = |field: &str| TableCell::Number(percentage(flow, field));
        let mut row = vec![
            TableCell::Text(name),
            TableCell::Number(weight(flow)),
            share("weight_share"),
            number("in_flight"),
            number("queued"),
            number("got_tokens"),
            number("due_tokens"),
            TableCell::Number(difference(flow)),
            number("bound_tokens"),
        ];
        row.extend(has_caps.then(|| share("cap_use")));
        if has_tiers {
            row.extend(["own", "hosted"].map(|tier| {
                let tokens = flow[tier]["provider_tokens"].as_u64();
                TableCell::Number(tokens.map_or_else(String::new, |tokens| tokens.to_string()))
            }));
        }
        if has_money {
            let money = spent(flow).map(|money| format!("{money}{currency}"));
            row.push(TableCell::Number(money.unwrap_or_default()));
        }
        row.extend(has_order.then(|| order(flow)));
        table.row(row);
    }
    table
}

/// Returns the cell with a flow's place in a strict order; empty if the flow is in none.
fn order(flow: &Value) -> TableCell {
    TableCell::Text(flow["strict"].as_str().unwrap_or_default().to_owned())
}

/// Formats a flow's weight. Returns `-` for a class of a strict order, which has no weight, and for a weight of 0,
/// which projects have if the policy does not share by projects.
fn weight(flow: &Value) -> String {
    if flow["weight"] == 0 || flow["strict"].is_string() {
        "-".to_owned()
    } else {
        text(flow, "weight")
    }
}

/// Builds the table of a pool's policy classes; `None` if the policy has no classes. Only classes under deficit round
/// robin have deficits.
fn classes(pool: &Value) -> Option<TextTable> {
    let classes = pool["classes"].as_array().filter(|classes| !classes.is_empty())?;
    let has_deficits = classes.iter().any(|class| !class["deficit_tokens"].is_null());
    let has_order = classes.iter().any(|class| class["strict"].is_string());
    let has_caps = has_order && classes.iter().any(|class| !class["cap_use"].is_null());
    let mut headings = vec![
        "class",
        if has_deficits { "quantum" } else { "weight" },
        "share",
        "in flight",
        "waiting",
        "oldest wait",
        "got tokens",
        "due tokens",
        "difference",
        "bound",
    ];
    headings.extend(has_deficits.then_some("deficit"));
    headings.extend(has_caps.then_some("cap use"));
    headings.extend(has_order.then_some("order"));
    let mut table = TextTable::new(headings);
    for class in classes {
        let number = |field: &str| TableCell::Number(text(class, field));
        let mut row = vec![
            TableCell::Text(text(class, "name")),
            number("weight"),
            TableCell::Number(percentage(class, "weight_share")),
            number("in_flight"),
            number("queued"),
            TableCell::Number(span(class, "oldest_wait_us")),
            number("got_tokens"),
            number("due_tokens"),
            TableCell::Number(difference(class)),
            number("bound_tokens"),
        ];
        row.extend(has_deficits.then(|| number("deficit_tokens")));
        row.extend(has_caps.then(|| TableCell::Number(percentage(class, "cap_use"))));
        row.extend(has_order.then(|| order(class)));
        table.row(row);
    }
    Some(table)
}

/// Formats a field from 0 to 1 as a percentage, or as a dash if it is absent.
fn percentage(flow: &Value, field: &str) -> String {
    let part = flow.get(field).and_then(Value::as_f64);
    part.map_or("-".to_owned(), |part| Percentage::from_ppm(millionths(part)).to_string())
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a part is from 0 to 1, and other numbers saturate"
)]
fn millionths(part: f64) -> u64 {
    (part * 1_000_000.0).round() as u64
}

/// Formats the service that a flow got minus the service that it was due, with the sign, and with a mark if the
/// difference is outside the bound.
fn difference(flow: &Value) -> String {
    let Some(difference) = flow["difference_tokens"].as_i64() else { return "-".to_owned() };
    let mark = if is_outside(flow) { "! " } else { "" };
    let sign = if difference > 0 { "+" } else { "" };
    format!("{mark}{sign}{difference}")
}

fn is_outside(flow: &Value) -> bool {
    flow["within_bound"] == Value::Bool(false)
}

/// Returns a sentence for each flow whose service differs from the service due by more than the bound.
fn outside(pool: &Value) -> Vec<String> {
    let outside = flows(pool).filter(|(_, flow)| is_outside(flow)).map(|(name, flow)| {
        format!(
            "! {} is outside its bound: got {} tokens, due {}, bound {} tokens",
            name.trim_start(),
            text(flow, "got_tokens"),
            text(flow, "due_tokens"),
            text(flow, "bound_tokens")
        )
    });
    outside.collect()
}

/// Returns the money that a flow spent on all workers; `None` if the API does not state it for this flow.
fn spent(flow: &Value) -> Option<MicroUnits> {
    let of = |tier: &str| flow[tier]["money"].as_str().and_then(MicroUnits::parse);
    Some(MicroUnits(of("own")?.0.saturating_add(of("hosted")?.0)))
}

fn spends(tier: &Value) -> bool {
    let money = tier["money"].as_str().and_then(MicroUnits::parse);
    money.is_some_and(|money| money > MicroUnits::ZERO)
}

/// Returns a sentence for each worker that has a provider's limits, with the limits, their source, and the pause if
/// there is one.
fn providers(pool: &Value) -> Vec<String> {
    let workers = pool["workers"].as_array().into_iter().flatten();
    let hosted = workers.filter(|worker| worker["quota"].is_object());
    // A worker whose models have limits of their own has a sentence for each.
    let each = hosted.flat_map(|worker| match worker["models"].as_array() {
        Some(models) if !models.is_empty() => {
            models.iter().map(|model| of_model(worker, model)).collect()
        }
        _ => vec![worker.clone()],
    });
    let sentences = each.map(|worker| {
        let worker = &worker;
        let asked = worker["quota"]["asked_ms"].as_u64();
        let asked = asked.map(|ms| format!(" (its provider asked for {} s)", ms.div_ceil(1000)));
        format!(
            "worker {}, account {}: {}{}; requests/min {}, tokens/min {}",
            text(worker, "name"),
            text(&worker["quota"], "account"),
            state(worker),
            asked.unwrap_or_default(),
            rate(worker, "requests"),
            rate(worker, "tokens")
        )
    });
    sentences.collect()
}

/// Returns an object like a worker's, for one of the worker's models: with the names of both, and with the state and
/// limits of the model.
fn of_model(worker: &Value, model: &Value) -> Value {
    let quota = &model["quota"];
    let state = match (quota["out"].is_null(), quota["paused_ms"].is_null()) {
        (false, _) => "out".to_owned(),
        (true, false) => "paused".to_owned(),
        (true, true) => text(worker, "state"),
    };
    let name = format!("{} for {}", text(worker, "name"), text(model, "model"));
    json!({ "name": name, "state": state, "quota": quota })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_outside_its_bound_is_marked_and_named() {
        let flow = |name: &str, difference: i64, within: bool| {
            json!({
                "name": name, "weight": 100, "weight_share": 0.5, "in_flight": 4, "queued": 2,
                "got_tokens": 1_200_000 + difference, "due_tokens": 1_200_000,
                "difference_tokens": difference, "bound_tokens": 9000, "within_bound": within,
                "cap_use": if within { json!(0.875) } else { json!(null) },
            })
        };
        let live = json!({ "pools": [{
            "pool": "sim", "algorithm": "share by group", "max_in_flight": 8, "global_in_flight": 8,
            "global_queued": 4, "groups": [flow("a", 120, true), flow("b", -9500, false)], "tenants": [],
        }] });
        let expected = "\
pool sim: 8 of 8 in flight, 4 waiting; share by group
flow  weight   share  in flight  waiting  got tokens  due tokens  difference  bound  cap use
a        100  50.0 %          4        2     1200120     1200000        +120   9000   87.5 %
b        100  50.0 %          4        2     1190500     1200000     ! -9500   9000        -
! b is outside its bound: got 1190500 tokens, due 1200000, bound 9000 tokens

";
        assert_eq!(format_pools(&live).unwrap(), expected);
    }

    #[test]
    fn a_strict_order_is_told_and_promises_nothing() {
        let class = |name: &str, strict: &str, cap_use: Value| {
            json!({
                "name": name, "weight": null, "weight_share": null, "in_flight": 4, "queued": 2,
                "oldest_wait_us": 1_500_000, "deficit_tokens": null, "got_tokens": 900, "due_tokens": null,
                "difference_tokens": null, "bound_tokens": null, "within_bound": null, "cap_use": cap_use,
                "strict": strict,
            })
        };
        let classes = json!([
            class("batch", "strict: goes last", json!(null)),
            class("chat", "strict: goes before batch", json!(0.75)),
        ]);
        let live = json!({"pools": [{
            "pool": "sim", "algorithm": "bands by class in strict order", "max_in_flight": 8,
            "global_in_flight": 8, "global_queued": 4, "classes": classes, "groups": [], "tenants": [],
        }]});
        let text = format_pools(&live).unwrap();
        let expected = "\
class  weight  share  in flight  waiting  oldest wait  got tokens  due tokens  difference  bound  cap use  order
batch       -      -          4        2        1.5 s         900           -           -      -        -  strict: goes last
chat        -      -          4        2        1.5 s         900           -           -      -   75.0 %  strict: goes before batch
";
        assert!(text.contains(expected), "{text}");
    }

    #[test]
    fn projects_of_the_fleet_are_told_after_the_groups() {
        let project = json!({"name": "web", "weight": 0, "in_flight": 3, "queued": 1});
        let group = json!({"name": "a", "weight": 100, "in_flight": 3, "queued": 1});
        let live = json!({"pools": [{"pool": "sim", "groups": [group], "projects": [project]}]});
        let text = format_pools(&live).unwrap();
        let words: Vec<Vec<&str>> =
            text.lines().skip(2).map(|line| line.split_whitespace().collect()).collect();
        let none = ["-"; 4];
        assert_eq!(words[0], [&["a", "100", "-", "3", "1"][..], &none].concat(), "{text}");
        assert_eq!(
            words[1],
            [&["project", "web", "-", "-", "3", "1"][..], &none].concat(),
            "{text}"
        );
    }

    #[test]
    fn both_tiers_and_what_providers_say_are_told() {
        let tiers = |own: u64, hosted: u64, money: &str| {
            json!({
                "own": {"requests": own, "provider_tokens": own * 10, "money": "0.00"},
                "hosted": {"requests": hosted, "provider_tokens": hosted * 10, "money": money},
            })
        };
        let mut tenant = tiers(7, 3, "1.25");
        tenant["tenant_id"] = json!("chat");
        tenant["fairshare_group"] = json!("staff");
        let mut pool = tiers(7, 3, "1.25");
        pool["pool"] = json!("gpt");
        pool["groups"] = json!([{"name": "staff"}]);
        pool["tenants"] = json!([tenant]);
        pool["workers"] = json!([
            {"name": "vllm", "state": "up", "quota": null},
            {"name": "openai", "state": "paused", "quota": {
                "account": "main", "requests_per_minute": 500, "requests_from": "learned",
                "paused_ms": 59_500, "asked_ms": 31_536_000_000_u64,
            }},
        ]);
        let text = format_pools(&json!({"currency": "USD", "pools": [pool]})).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].ends_with("own tokens  hosted tokens     money"), "{text}");
        assert!(lines[3].ends_with("70             30  1.25 USD"), "{text}");
        assert_eq!(
            lines[4],
            "worker openai, account main: paused for 59.5 s (its provider asked for 31536000 s); requests/min 500 (learned), \
             tokens/min –"
        );
    }

    #[test]
    fn what_is_wrong_with_the_ledger_is_told_first() {
        let text = |waiting: u64, without: u64| {
            let ledger = json!({"rows_waiting": waiting, "answers_without_row": without});
            format_pools(&json!({"ledger": ledger, "pools": []})).unwrap()
        };
        assert_eq!(text(500, 0), "");
        assert_eq!(text(20_000, 0), "ledger: 20000 rows are not in the database yet\n\n");
        let both = "ledger: 20000 rows are not in the database yet; 3 answers were given out without a row\n\n";
        assert_eq!(text(20_000, 3), both);
    }
}
