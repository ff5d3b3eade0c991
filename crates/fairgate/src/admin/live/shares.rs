//! The live view as text: classes, flows and providers of each pool.

use std::io::Write;

use anyhow::Result;
use fairgate_api::admin::{
    ClassView, GroupView, LedgerView, LiveView, PoolView, ServiceView, TenantView, TierUseView,
    TiersView,
};
use fairgate_api::admin::{ModelQuotaBody, QuotaBody, WorkerBody};
use fairgate_money::MicroUnits;
use fairgate_table::{TableCell, TextTable};

use super::super::pools::{AccountRate, rate, worker_state};
use super::super::{or_dash, span};
use crate::text_format::{one_line, percentage};

/// Unit of a pool that counts microseconds of a full worker.
const WORKER_TIME: &str = "worker_time";
const MONEY: &str = "money";

/// A row of the table of flows: a group, a tenant inside it, or a project of the fleet.
struct ShareRow<'a> {
    name: String,
    weight: u64,
    weight_share: Option<f64>,
    in_flight: u64,
    queued: u64,
    service: &'a ServiceView,
    /// True if the policy promises the flow its share of the service.
    promised: bool,
    /// The tenant; `None` for groups and projects.
    tenant: Option<&'a TenantView>,
}

impl<'a> ShareRow<'a> {
    fn of_group(name: String, group: &'a GroupView) -> Self {
        let GroupView { weight, weight_share, in_flight, queued, ref service, ref now, .. } =
            *group;
        let promised = now.promised;
        Self { name, weight, weight_share, in_flight, queued, service, promised, tenant: None }
    }

    /// Returns the row of a tenant, which is indented below the row of its group.
    fn of_tenant(tenant: &'a TenantView) -> Self {
        let TenantView { weight, weight_share, in_flight, queued, ref service, .. } = *tenant;
        let name = format!("  {}", one_line(&tenant.tenant_id));
        let (promised, tenant) = (tenant.now.promised, Some(tenant));
        Self { name, weight, weight_share, in_flight, queued, service, promised, tenant }
    }
}

/// Formats all pools with their flows.
pub(super) fn format_pools(live: &LiveView) -> Result<String> {
    let mut out = Vec::new();
    if let Some(line) = ledger(live.ledger) {
        writeln!(out, "{line}\n")?;
    }
    let currency = live.currency.as_ref().map(|it| format!(" {it}")).unwrap_or_default();
    for pool in &live.pools {
        writeln!(
            out,
            "pool {}: {} of {} in flight, {} waiting; {}",
            one_line(&pool.pool),
            pool.global_in_flight,
            pool.max_in_flight,
            pool.global_queued,
            one_line(&pool.algorithm)
        )?;
        if let Some(classes) = classes(&pool.classes, &pool.unit) {
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

/// Describes problems of the ledger; `None` if there are none. Fewer than 10 000 rows that are not
/// in the database yet are no problem, because some rows are always in transit.
fn ledger(ledger: LedgerView) -> Option<String> {
    const MANY: u64 = 10_000;
    let LedgerView { rows_waiting: waiting, answers_without_row: without } = ledger;
    let waiting = (waiting >= MANY).then(|| format!("{waiting} rows are not in the database yet"));
    let without = (without > 0).then(|| format!("{without} answers were given out without a row"));
    let sentences: Vec<_> = waiting.into_iter().chain(without).collect();
    (!sentences.is_empty()).then(|| format!("ledger: {}", sentences.join("; ")))
}

/// Returns the groups of a pool with their tenants, then the fleet's projects that use the pool.
fn flows(pool: &PoolView) -> Vec<ShareRow<'_>> {
    let mut rows = Vec::new();
    for group in &pool.groups {
        rows.push(ShareRow::of_group(one_line(&group.name), group));
        let tenants = pool.tenants.iter().filter(|it| it.fairshare_group == group.name);
        rows.extend(tenants.map(ShareRow::of_tenant));
    }
    let projects = pool.projects.iter();
    rows.extend(
        projects.map(|it| ShareRow::of_group(format!("project {}", one_line(&it.name)), it)),
    );
    rows
}

fn shares(pool: &PoolView, currency: &str) -> TextTable {
    let (flows, unit) = (flows(pool), &*pool.unit);
    let TiersView { own, hosted, worker_us } = &pool.tiers;
    let has_time = *worker_us > 0;
    let has_tiers = hosted.requests > 0;
    let has_money = [own, hosted].into_iter().any(spends);
    let has_caps = flows.iter().any(|flow| flow.service.cap_use.is_some());
    let has_order = flows.iter().any(|flow| flow.service.strict.is_some());
    let mut headings = vec![
        "flow",
        "weight",
        "weight share",
        "in flight",
        "waiting",
        got_heading(unit),
        due_heading(unit),
        "difference",
        "bound",
    ];
    headings.extend(has_caps.then_some("cap use"));
    headings.extend(has_time.then_some(["of tokens", "of worker time"]).into_iter().flatten());
    headings.extend(has_tiers.then_some(["own tokens", "hosted tokens"]).into_iter().flatten());
    headings.extend(has_money.then_some("money"));
    headings.extend(has_order.then_some("order"));
    let mut table = TextTable::new(headings);
    for flow in flows {
        let service = flow.service;
        let mut row = vec![
            TableCell::Text(flow.name.clone()),
            TableCell::Number(weight(&flow)),
            TableCell::Number(percentage(flow.weight_share)),
            TableCell::Number(flow.in_flight.to_string()),
            TableCell::Number(flow.queued.to_string()),
            TableCell::Number(or_dash(service.got)),
            TableCell::Number(or_dash(service.due)),
            TableCell::Number(difference(service, flow.promised)),
            TableCell::Number(or_dash(service.bound)),
        ];
        row.extend(has_caps.then(|| TableCell::Number(percentage(service.cap_use))));
        if has_time {
            let part = |part: fn(&TenantView) -> Option<f64>| match flow.tenant {
                Some(tenant) => TableCell::Number(percentage(part(tenant))),
                None => TableCell::Number(String::new()),
            };
            row.extend([part(|it| it.share_of_tokens), part(|it| it.share_of_worker_time)]);
        }
        if has_tiers {
            let tokens = |used: fn(&TiersView) -> &TierUseView| {
                let tokens = flow.tenant.map(|it| used(&it.tiers).provider_tokens.to_string());
                TableCell::Number(tokens.unwrap_or_default())
            };
            row.extend([tokens(|tiers| &tiers.own), tokens(|tiers| &tiers.hosted)]);
        }
        if has_money {
            let money = flow
                .tenant
                .and_then(|it| spent(&it.tiers))
                .map(|money| format!("{money}{currency}"));
            row.push(TableCell::Number(money.unwrap_or_default()));
        }
        row.extend(has_order.then(|| order(service)));
        table.row(row);
    }
    table
}

/// Returns the word for the unit in which a pool counts.
fn unit_word(unit: &str) -> &'static str {
    match unit {
        WORKER_TIME => "µs",
        MONEY => "micro-units",
        _ => "tokens",
    }
}

fn got_heading(unit: &str) -> &'static str {
    match unit {
        WORKER_TIME => "got µs",
        MONEY => "got micro-units",
        _ => "got tokens",
    }
}

fn due_heading(unit: &str) -> &'static str {
    match unit {
        WORKER_TIME => "due µs",
        MONEY => "due micro-units",
        _ => "due tokens",
    }
}

/// Returns the cell with a flow's place in a strict order; empty if the flow has no such place.
fn order(service: &ServiceView) -> TableCell {
    TableCell::Text(service.strict.clone().unwrap_or_default())
}

/// Formats a flow's weight. Returns `-` for a flow of a strict order, which has no weight, and for a weight of 0, which
/// projects have if the policy does not share by projects.
fn weight(flow: &ShareRow<'_>) -> String {
    if flow.weight == 0 || flow.service.strict.is_some() {
        "-".to_owned()
    } else {
        flow.weight.to_string()
    }
}

/// Builds the table of a pool's policy classes; `None` if the policy has no classes. Only classes under deficit round
/// robin have deficits.
fn classes(classes: &[ClassView], unit: &str) -> Option<TextTable> {
    if classes.is_empty() {
        return None;
    }
    let has_deficits = classes.iter().any(|class| class.deficit.is_some());
    let has_order = classes.iter().any(|class| class.service.strict.is_some());
    let has_caps = has_order && classes.iter().any(|class| class.service.cap_use.is_some());
    let mut headings = vec![
        "class",
        if has_deficits { "quantum" } else { "weight" },
        "weight share",
        "in flight",
        "waiting",
        "oldest wait",
        got_heading(unit),
        due_heading(unit),
        "difference",
        "bound",
    ];
    headings.extend(has_deficits.then_some("deficit"));
    headings.extend(has_caps.then_some("cap use"));
    headings.extend(has_order.then_some("order"));
    let mut table = TextTable::new(headings);
    for class in classes {
        let service = &class.service;
        let mut row = vec![
            TableCell::Text(one_line(&class.name)),
            TableCell::Number(or_dash(class.weight)),
            TableCell::Number(percentage(class.weight_share)),
            TableCell::Number(class.in_flight.to_string()),
            TableCell::Number(class.queued.to_string()),
            TableCell::Number(or_dash(class.oldest_wait_us.map(span))),
            TableCell::Number(or_dash(service.got)),
            TableCell::Number(or_dash(service.due)),
            TableCell::Number(difference(service, class.now.promised)),
            TableCell::Number(or_dash(service.bound)),
        ];
        row.extend(has_deficits.then(|| TableCell::Number(or_dash(class.deficit))));
        row.extend(has_caps.then(|| TableCell::Number(percentage(service.cap_use))));
        row.extend(has_order.then(|| order(service)));
        table.row(row);
    }
    Some(table)
}

/// Formats the service that a flow got minus the service that it was due, with the sign, and with a mark if the
/// difference is outside the bound.
fn difference(service: &ServiceView, promised: bool) -> String {
    let Some(difference) = service.difference else { return "-".to_owned() };
    let mark = if is_outside(service, promised) { "! " } else { "" };
    let sign = if difference > 0 { "+" } else { "" };
    format!("{mark}{sign}{difference}")
}

/// Returns true if the difference of a flow is beyond its promised bound. A flow without a promised
/// share, such as a class in deficit round robin, is never outside.
fn is_outside(service: &ServiceView, promised: bool) -> bool {
    promised && service.within_bound == Some(false)
}

/// Returns a sentence for each flow whose service differs from the service due by more than the bound.
fn outside(pool: &PoolView) -> Vec<String> {
    let (flows, unit) = (flows(pool), unit_word(&pool.unit));
    let outside = flows.iter().filter(|flow| is_outside(flow.service, flow.promised)).map(|flow| {
        format!(
            "! {} is outside its bound: got {} {unit}, due {}, bound {} {unit}",
            flow.name.trim_start(),
            or_dash(flow.service.got),
            or_dash(flow.service.due),
            or_dash(flow.service.bound)
        )
    });
    outside.collect()
}

/// Returns the money that a flow spent on all workers; `None` if an amount cannot be read.
fn spent(tiers: &TiersView) -> Option<MicroUnits> {
    let (own, hosted) =
        (MicroUnits::parse(&tiers.own.money)?, MicroUnits::parse(&tiers.hosted.money)?);
    Some(MicroUnits(own.0.saturating_add(hosted.0)))
}

fn spends(tier: &TierUseView) -> bool {
    MicroUnits::parse(&tier.money).is_some_and(|money| money > MicroUnits::ZERO)
}

/// Returns a sentence for each worker that has a provider's limits, with the limits, their source,
/// and the pause if there is one. A worker whose models have separate limits has a sentence for
/// each model. A worker with an outage has a sentence with its times.
fn providers(pool: &PoolView) -> Vec<String> {
    let mut sentences = Vec::new();
    for worker in &pool.workers {
        let is_down = worker.down_since.is_some();
        if is_down && (worker.quota.is_none() || !worker.models.is_empty()) {
            sentences.push(format!("worker {}: {}", one_line(&worker.name), worker_state(worker)));
        }
        let Some(quota) = &worker.quota else { continue };
        if worker.models.is_empty() {
            sentences.push(of_account(&one_line(&worker.name), &worker_state(worker), quota));
        }
        sentences.extend(worker.models.iter().map(|model| of_model(worker, model)));
    }
    sentences
}

/// Returns the sentence for one of the models of a worker, with the model's own state and limits.
fn of_model(worker: &WorkerBody, model: &ModelQuotaBody) -> String {
    let ModelQuotaBody { model, quota } = model;
    let state = match (&quota.out, quota.paused_ms) {
        (Some(_), _) => "out",
        (None, Some(_)) => "paused",
        (None, None) => &worker.state,
    };
    let name = format!("{} for {}", one_line(&worker.name), one_line(model));
    of_account(&name, &super::super::pools::quota_state(state, quota, None), quota)
}

fn of_account(name: &str, state: &str, quota: &QuotaBody) -> String {
    let asked = quota.asked_ms;
    let asked = asked.map(|ms| format!(" (its provider asked for {} s)", ms.div_ceil(1000)));
    format!(
        "worker {name}, account {}: {state}{}; requests/min {}, tokens/min {}",
        one_line(&quota.account),
        asked.unwrap_or_default(),
        rate(Some(quota), AccountRate::Requests),
        rate(Some(quota), AccountRate::Tokens)
    )
}

#[cfg(test)]
mod tests {
    use fairgate_api::admin::FlowNow;

    use super::*;

    fn live(pools: Vec<PoolView>) -> LiveView {
        let (at, ledger) = ("2026-11-15T12:57:45Z".into(), LedgerView::default());
        LiveView { at, ledger, currency: None, one: None, pools }
    }

    fn pool(name: &str, algorithm: &str) -> PoolView {
        PoolView {
            unit: "tokens".to_owned(),
            pool: name.into(),
            algorithm: algorithm.into(),
            slots: 8,
            in_flight: 8,
            waiting: 4,
            max_in_flight: 8,
            global_in_flight: 8,
            global_queued: 4,
            ..PoolView::default()
        }
    }

    #[test]
    fn who_is_outside_its_bound_is_marked_and_named() {
        let flow = |name: &str, difference: i64, within: bool| GroupView {
            name: name.into(),
            weight: 100,
            weight_share: Some(0.5),
            in_flight: 4,
            queued: 2,
            now: FlowNow { promised: true, ..FlowNow::default() },
            service: ServiceView {
                got: Some(1_200_000 + difference),
                due: Some(1_200_000),
                difference: Some(difference),
                bound: Some(9000),
                within_bound: Some(within),
                cap_use: within.then_some(0.875),
                ..ServiceView::default()
            },
            ..GroupView::default()
        };
        let groups = vec![flow("a", 120, true), flow("b", -9500, false)];
        let live = live(vec![PoolView { groups, ..pool("sim", "share by group") }]);
        let expected = "\
pool sim: 8 of 8 in flight, 4 waiting; share by group
flow  weight  weight share  in flight  waiting  got tokens  due tokens  difference  bound  cap use
a        100        50.0 %          4        2     1200120     1200000        +120   9000   87.5 %
b        100        50.0 %          4        2     1190500     1200000     ! -9500   9000        -
! b is outside its bound: got 1190500 tokens, due 1200000, bound 9000 tokens

";
        assert_eq!(format_pools(&live).unwrap(), expected);
    }

    #[test]
    fn a_strict_order_is_told_and_promises_nothing() {
        let class = |name: &str, strict: &str, cap_use: Option<f64>| ClassView {
            name: name.into(),
            in_flight: 4,
            queued: 2,
            oldest_wait_us: Some(1_500_000),
            service: ServiceView {
                got: Some(900),
                cap_use,
                strict: Some(strict.into()),
                ..ServiceView::default()
            },
            ..ClassView::default()
        };
        let classes = vec![
            class("batch", "strict: goes last", None),
            class("chat", "strict: goes before batch", Some(0.75)),
        ];
        let pool = PoolView { classes, ..pool("sim", "bands by class in strict order") };
        let text = format_pools(&live(vec![pool])).unwrap();
        let expected = "\
class  weight  weight share  in flight  waiting  oldest wait  got tokens  due tokens  difference  bound  cap use  order
batch       -             -          4        2        1.5 s         900           -           -      -        -  strict: goes last
chat        -             -          4        2        1.5 s         900           -           -      -   75.0 %  strict: goes before batch
";
        assert!(text.contains(expected), "{text}");
    }

    #[test]
    fn projects_of_the_fleet_are_told_after_the_groups() {
        let flow = |name: &str, weight| GroupView {
            name: name.into(),
            weight,
            in_flight: 3,
            queued: 1,
            ..GroupView::default()
        };
        let (groups, projects) = (vec![flow("a", 100)], vec![flow("web", 0)]);
        let text =
            format_pools(&live(vec![PoolView { groups, projects, ..pool("sim", "") }])).unwrap();
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
        let used = |requests: u64, money: &str| TierUseView {
            requests,
            provider_tokens: requests * 10,
            money: money.into(),
        };
        let tiers =
            TiersView { own: used(7, "0.00"), hosted: used(3, "1.25"), worker_us: 5_000_000 };
        let tenant = TenantView {
            tenant_id: "chat".into(),
            fairshare_group: "staff".into(),
            share_of_tokens: Some(1.0),
            share_of_worker_time: Some(0.25),
            tiers: tiers.clone(),
            ..TenantView::default()
        };
        let worker = |name: &str, state: &str, quota: Option<QuotaBody>| WorkerBody {
            name: name.into(),
            state: state.into(),
            reason: None,
            down_since: None,
            retry_at: None,
            source: "file".into(),
            address: String::new(),
            in_flight: 0,
            prefill_tokens: 0,
            slots: None,
            slots_reason: None,
            engine: None,
            cache: None,
            cache_size: None,
            tier: 0,
            quota,
            models: Vec::new(),
        };
        let quota = QuotaBody {
            account: "main".into(),
            requests_per_minute: Some(500),
            requests_from: Some("learned".into()),
            tokens_per_minute: None,
            tokens_from: None,
            paused_ms: Some(59_500),
            asked_ms: Some(31_536_000_000),
            out: None,
        };
        let down = WorkerBody {
            reason: Some("connect: refused".into()),
            down_since: Some("2026-11-18T12:03:41.000000Z".into()),
            retry_at: Some("2026-11-18T12:03:53.250000Z".into()),
            ..worker("vllm-c", "broken", None)
        };
        let pool = PoolView {
            groups: vec![GroupView { name: "staff".into(), ..GroupView::default() }],
            tenants: vec![tenant],
            workers: vec![
                worker("vllm", "up", None),
                worker("openai", "paused", Some(quota)),
                down,
            ],
            tiers,
            ..pool("gpt", "")
        };
        let live = LiveView { currency: Some("USD".into()), ..live(vec![pool]) };
        let text = format_pools(&live).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let columns = "of tokens  of worker time  own tokens  hosted tokens     money";
        assert!(lines[1].ends_with(columns), "{text}");
        assert!(lines[2].ends_with('-'), "{text}");
        let cells = "  100.0 %          25.0 %          70             30  1.25 USD";
        assert!(lines[3].ends_with(cells), "{text}");
        assert_eq!(
            lines[4],
            "worker openai, account main: paused for 59.5 s (its provider asked for 31536000 s); requests/min 500 (learned), \
             tokens/min –"
        );
        assert_eq!(
            lines[5],
            "worker vllm-c: broken since 2026-11-18 12:03:41 UTC, tried again at 12:03:53 UTC: connect: refused"
        );
    }

    #[test]
    fn what_is_wrong_with_the_ledger_is_told_first() {
        let text = |rows_waiting: u64, answers_without_row: u64| {
            let ledger = LedgerView { rows_waiting, answers_without_row };
            format_pools(&LiveView { ledger, ..live(Vec::new()) }).unwrap()
        };
        assert_eq!(text(500, 0), "");
        assert_eq!(text(20_000, 0), "ledger: 20000 rows are not in the database yet\n\n");
        let both = "ledger: 20000 rows are not in the database yet; 3 answers were given out without a row\n\n";
        assert_eq!(text(20_000, 3), both);
    }
}
