//! The judge: one function a bar. Each compares accounts that different parties kept, and says by how much they differ.

mod books;
mod classes;
mod fairness;
mod harm;
mod late;
mod order;
mod quota;

use fairgate_core::units::Micros;

use crate::evidence::{Evidence, Seen, Sighting};
use crate::replay::{Replay, replay};
use crate::report::{Bar, Course, Point, Report, TenantReport};
use crate::scenario::{Harm, Policy, Scenario};
use crate::service::{self, Service};
use crate::slots::{self, Slots};

/// How far from its ideal a tenant may be in the end, in percent of the ideal.
pub const SHARE_PERCENT: u32 = 3;

/// Everything that a bar may look at.
pub(crate) struct Case<'a> {
    scenario: &'a Scenario,
    evidence: &'a Evidence,
    replay: Replay,
    service: Service,
    slots: Option<Slots>,
}

impl<'a> Case<'a> {
    fn new(scenario: &'a Scenario, evidence: &'a Evidence) -> Self {
        let replay =
            replay(&evidence.journal, evidence.last.as_ref(), |name| scenario.tenant(name));
        let service = service::measure(scenario, &replay);
        let slots = scenario.policy.is_partition().then(|| slots::measure(scenario, &service));
        Self { scenario, evidence, replay, service, slots }
    }
}

/// Judges what an experiment left behind.
pub fn judge(scenario: &Scenario, evidence: &Evidence) -> Report {
    let second = evidence.second.as_ref().map(|second| Case::new(scenario, second));
    report(&Case::new(scenario, evidence), second.as_ref(), None)
}

/// Judges an attack beside the same experiment without it.
pub fn judge_harm(
    scenario: &Scenario,
    harm: &Harm,
    evidence: &Evidence,
    honest: &Evidence,
) -> Report {
    let honest = Case::new(&harm.honest, honest);
    report(&Case::new(scenario, evidence), None, Some((harm, &honest)))
}

/// `second`: the case of the second pool. The table and the picture are of the first.
fn report(case: &Case<'_>, second: Option<&Case<'_>>, harm: Option<(&Harm, &Case<'_>)>) -> Report {
    let scenario = case.scenario;
    let overlap = case.service.window.map_or(0, |(from, until)| until.0 - from.0);
    Report {
        scenario: scenario.name,
        title: scenario.title,
        capacity: scenario.capacity,
        partition: scenario.policy.is_partition(),
        overlap_ms: millis(Micros(overlap)),
        journal_events: case.replay.events,
        journal_files: case.evidence.journal.len(),
        tenants: (0..scenario.tenants.len()).map(|i| tenant(case, i)).collect(),
        bars: bars(case, second, harm),
        course: course(&case.service),
    }
}

fn bars(case: &Case<'_>, second: Option<&Case<'_>>, harm: Option<(&Harm, &Case<'_>)>) -> Vec<Bar> {
    let mut bars = of_both(service_bars, case, second);
    if let Some((harm, honest)) = harm {
        bars.push(order::no_errors(honest).renamed("no errors without it"));
        bars.extend(harm::no_harm(case, honest, harm));
    }
    if let (Some(quota), Some(provider)) = (case.scenario.quota, case.evidence.provider) {
        let cases: Vec<_> = [Some(case), second].into_iter().flatten().collect();
        bars.extend([quota::few_refused(quota, provider), quota::is_used(&cases, quota)]);
        bars.extend(quota.only.map(|hosted| quota::own_first(case, hosted)));
    }
    bars.extend(case.scenario.gain.map(|gain| fairness::no_gain(case, gain)));
    bars.extend(of_both(account_bars, case, second));
    bars
}

/// The same bars of one pool or of two, each named once.
fn of_both(
    bars: impl Fn(&Case<'_>) -> Vec<Bar>,
    case: &Case<'_>,
    second: Option<&Case<'_>>,
) -> Vec<Bar> {
    let first = bars(case);
    match second.map(bars) {
        None => first,
        Some(second) => {
            first.into_iter().zip(second).map(|(first, also)| first.and(also)).collect()
        }
    }
}

/// How a pool served its tenants.
fn service_bars(case: &Case<'_>) -> Vec<Bar> {
    let mut bars = vec![order::replayed(case), fairness::backlogged(case)];
    match (&case.slots, case.scenario.policy) {
        (Some(slots), _) => bars.push(fairness::slots_held(case, slots)),
        (None, Policy::Load { ticks_max }) => bars.push(late::late_first(case, ticks_max)),
        (None, Policy::Drr) => {}
        (None, Policy::Share { .. } | Policy::ShareClasses) => bars.extend(by_score(case)),
        (None, Policy::Classes { .. }) => {
            bars.extend(by_score(case));
            bars.extend([classes::by_quanta(case), classes::own_class(case)]);
        }
    }
    bars
}

/// What the share score promises.
fn by_score(case: &Case<'_>) -> [Bar; 3] {
    [fairness::within_bound(case), fairness::within_share(case), fairness::no_long_gap(case)]
}

/// What was written down about it, and what is left of it.
fn account_bars(case: &Case<'_>) -> Vec<Bar> {
    vec![
        books::rows_match(case),
        books::tokens_match(case),
        order::no_errors(case),
        order::nothing_left(case),
    ]
}

fn tenant(case: &Case<'_>, i: usize) -> TenantReport {
    let tenant = &case.scenario.tenants[i];
    let flow = &case.service.flows[i];
    let weights = case.scenario.weights() as f64;
    let (ideal_percent, got_percent) = match &case.slots {
        Some(slots) => {
            let held: u128 = slots.held_us.iter().sum();
            (
                percent(slots.due[i] as f64, case.scenario.capacity as f64),
                percent(slots.held_us[i] as f64, held as f64),
            )
        }
        None => {
            let all: i128 = case.service.flows.iter().map(|flow| flow.got).sum();
            (percent(tenant.weight as f64, weights), percent(flow.got as f64, all as f64))
        }
    };
    let sightings = || case.sightings(i);
    let count = |kind: fn(&Seen) -> bool| sightings().filter(|s| kind(&s.end)).count() as u64;
    let by_score = case.slots.is_none() && case.scenario.policy.shares_tokens();
    TenantReport {
        name: tenant.name,
        weight: tenant.weight,
        slots: case.slots.as_ref().map(|slots| slots.due[i]),
        ideal_percent,
        got_percent,
        deviation_percent: percent(got_percent - ideal_percent, ideal_percent),
        got_tokens: u64::try_from(flow.got).unwrap_or_default(),
        ideal_tokens: by_score.then_some(flow.ideal_times_weights as f64 / weights),
        bound_tokens: by_score.then(|| flow.off.bound_tokens()),
        off_tokens: by_score.then(|| flow.off.measured_tokens()),
        gap_tokens: u64::try_from(flow.gap_max).unwrap_or_default(),
        gap_closest_tokens: by_score.then(|| flow.gap.measured_tokens()),
        gap_bound_tokens: by_score.then(|| flow.gap.bound_tokens()),
        wait_p50_ms: quantile(&flow.waits, 50),
        wait_p95_ms: quantile(&flow.waits, 95),
        wait_p99_ms: quantile(&flow.waits, 99),
        grants: flow.grants,
        requests: sightings().count() as u64,
        completed: count(|seen| matches!(seen, Seen::Completed { .. })),
        left: count(|seen| matches!(seen, Seen::Left)),
        failed: count(|seen| matches!(seen, Seen::Broken { .. } | Seen::Failed { .. })),
        rows: case.final_rows(i).count() as u64,
    }
}

impl Case<'_> {
    /// What the clients of a tenant saw.
    fn sightings(&self, tenant: usize) -> impl Iterator<Item = &Sighting> {
        self.evidence.sightings.iter().filter(move |sighting| sighting.tenant == tenant)
    }

    /// The final rows of a tenant.
    fn final_rows(&self, tenant: usize) -> impl Iterator<Item = &fairgate_store::Attempt> {
        let name = self.scenario.tenants[tenant].name;
        self.evidence.ledger.rows.iter().filter(move |row| row.last && row.tenant == name)
    }

    fn names(&self) -> impl Iterator<Item = (usize, &'static str)> {
        self.scenario.tenants.iter().map(|tenant| tenant.name).enumerate()
    }
}

/// At most this many points are drawn.
const POINTS_MAX: u64 = 480;

/// The last moment of each of many equal spans.
fn course(service: &Service) -> Course {
    let (Some(first), Some(last)) = (service.course.first(), service.course.last()) else {
        return Course::default();
    };
    let start = first.at.0;
    let since = |at: Micros| millis(Micros(at.0.saturating_sub(start)));
    let span = (last.at.0 - start).div_ceil(POINTS_MAX).max(1);
    let (join, end) = service.window.unwrap_or((last.at, last.at));
    let at_join = service.course.iter().rfind(|moment| moment.at <= join).unwrap_or(first);
    let weights = service.weights as f64;
    let mut points: Vec<(u64, Point)> = Vec::new();
    for moment in &service.course {
        let bucket = (moment.at.0 - start) / span;
        if points.last().is_some_and(|(last, _)| *last == bucket) {
            points.pop();
        }
        let ideal = moment.ideal_times_weights.as_ref().map(|ideal| {
            let with = |(ideal, then): (&i128, &i128)| *ideal as f64 / weights + *then as f64;
            ideal.iter().zip(&at_join.used).map(with).collect()
        });
        let bound = moment.bound_times_weights.as_ref();
        points.push((
            bucket,
            Point {
                at_ms: since(moment.at),
                tokens: moment.used.iter().map(|u| u64::try_from(*u).unwrap_or_default()).collect(),
                ideal_tokens: ideal,
                bound_tokens: bound.map(|b| b.iter().map(|b| *b as f64 / weights).collect()),
                in_flight: moment.in_flight.clone(),
            },
        ));
    }
    let points = points.into_iter().map(|(_, point)| point).collect();
    Course { join_ms: since(join), end_ms: since(end), points }
}

/// The wait that so many in a hundred did not exceed, in milliseconds.
fn quantile(waits: &[Micros], percent: usize) -> f64 {
    let mut sorted = waits.to_vec();
    sorted.sort_unstable();
    let rank = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(rank).map_or(0.0, |wait| millis(*wait))
}

fn millis(span: Micros) -> f64 {
    span.0 as f64 / 1000.0
}

fn percent(part: f64, whole: f64) -> f64 {
    if whole == 0.0 { 0.0 } else { part * 100.0 / whole }
}
