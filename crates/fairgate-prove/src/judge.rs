//! The judge, with one function per bar. Each function compares accounts that were kept
//! independently of each other, and reports the difference.

mod classes;
mod deadlines;
mod fairness;
mod harm;
mod ledger;
mod order;
mod quota;
mod strict_priority;
mod wait_ticks;

use fairgate_core::units::Micros;

pub(crate) use self::deadlines::DEADLINE_PASSED;

use crate::evidence::{AnswerEnd, ClientResult, ExperimentEvidence};
use crate::replay::{ReplayedJournal, replay};
use crate::report::{ProveBar, ProveReport, TenantReport, TokensOverTime, TokensPoint};
use crate::scenario::{AttackComparison, Scenario, ScenarioPolicy};
use crate::service::{self, MeasuredService};
use crate::slots::{self, SlotMeasurement};

/// Greatest difference between the tokens that a tenant got and its ideal, in percent of the ideal,
/// at the end of the measured window.
pub const SHARE_PERCENT: u32 = 3;

/// Evidence of one pool, with the replay and the measurements that the bars are computed from.
pub(crate) struct JudgedCase<'a> {
    scenario: &'a Scenario,
    evidence: &'a ExperimentEvidence,
    replay: ReplayedJournal,
    service: MeasuredService,
    slots: Option<SlotMeasurement>,
}

impl<'a> JudgedCase<'a> {
    fn new(scenario: &'a Scenario, evidence: &'a ExperimentEvidence) -> Self {
        let replay = replay(&evidence.journal, evidence.last_snapshot.as_ref(), |name| {
            scenario.tenant(name)
        });
        let service = service::measure(scenario, &replay);
        let slots = slots::due(scenario).map(|due| slots::measure(scenario, &service, due));
        Self { scenario, evidence, replay, service, slots }
    }
}

/// Judges the evidence of an experiment and returns the report.
pub fn judge(scenario: &Scenario, evidence: &ExperimentEvidence) -> ProveReport {
    let second = evidence.second.as_ref().map(|second| JudgedCase::new(scenario, second));
    report(&JudgedCase::new(scenario, evidence), second.as_ref(), None)
}

/// Judges an experiment with an attack by comparing its evidence with that of the run without the
/// attack, `honest`.
pub fn judge_harm(
    scenario: &Scenario,
    harm: &AttackComparison,
    evidence: &ExperimentEvidence,
    honest: &ExperimentEvidence,
) -> ProveReport {
    let honest = JudgedCase::new(&harm.honest, honest);
    report(&JudgedCase::new(scenario, evidence), None, Some((harm, &honest)))
}

/// Builds the report. `second` is the second pool, if there is one; its bars are merged into those
/// of the first, but the table and the picture show only the first pool.
fn report(
    case: &JudgedCase<'_>,
    second: Option<&JudgedCase<'_>>,
    harm: Option<(&AttackComparison, &JudgedCase<'_>)>,
) -> ProveReport {
    let scenario = case.scenario;
    let overlap = case.service.window.map_or(0, |(from, until)| until.0 - from.0);
    ProveReport {
        scenario: scenario.name,
        title: scenario.title,
        capacity: scenario.capacity,
        partition: scenario.policy.is_partition(),
        by_slots: case.slots.is_some(),
        overlap_ms: millis(Micros(overlap)),
        journal_events: case.replay.events,
        journal_files: case.evidence.journal.len(),
        tenants: (0..scenario.tenants.len()).map(|i| tenant(case, i)).collect(),
        bars: bars(case, second, harm),
        course: course(&case.service),
    }
}

fn bars(
    case: &JudgedCase<'_>,
    second: Option<&JudgedCase<'_>>,
    harm: Option<(&AttackComparison, &JudgedCase<'_>)>,
) -> Vec<ProveBar> {
    let mut bars = of_both(service_bars, case, second);
    if let Some((harm, honest)) = harm {
        bars.push(order::no_errors(honest).renamed("no errors without it"));
        bars.extend(harm::no_harm(case, honest, harm));
    }
    if let (Some(quota), Some(provider)) = (case.scenario.quota, case.evidence.provider) {
        let cases: Vec<_> = [Some(case), second].into_iter().flatten().collect();
        bars.extend([quota::few_refused(quota, provider), quota::used_share(&cases, quota)]);
        bars.extend(quota.only.map(|hosted| quota::own_first(case, hosted)));
    }
    bars.extend(case.scenario.gain.map(|gain| fairness::no_gain(case, gain)));
    bars.extend(of_both(account_bars, case, second));
    bars
}

/// Computes bars for the first pool and for the second, if there is one, and merges bars of the
/// same name.
fn of_both(
    bars: impl Fn(&JudgedCase<'_>) -> Vec<ProveBar>,
    case: &JudgedCase<'_>,
    second: Option<&JudgedCase<'_>>,
) -> Vec<ProveBar> {
    let first = bars(case);
    match second.map(bars) {
        None => first,
        Some(second) => {
            first.into_iter().zip(second).map(|(first, also)| first.and(also)).collect()
        }
    }
}

/// Returns the bars about the service that a pool gave its tenants.
fn service_bars(case: &JudgedCase<'_>) -> Vec<ProveBar> {
    if case.scenario.policy == ScenarioPolicy::Edf {
        return vec![order::replayed(case), deadlines::kept(case), deadlines::earliest_first(case)];
    }
    let mut bars = vec![order::replayed(case), fairness::backlogged(case)];
    match (&case.slots, case.scenario.policy) {
        (Some(slots), policy) => {
            if let ScenarioPolicy::Bands { caps } = policy {
                bars.extend([strict_priority::in_order(case, caps), classes::own_class(case)]);
            }
            bars.push(fairness::slots_held(case, slots));
        }
        (None, ScenarioPolicy::Load { ticks_max }) => {
            bars.push(wait_ticks::late_first(case, ticks_max))
        }
        (None, ScenarioPolicy::Drr | ScenarioPolicy::Bands { .. } | ScenarioPolicy::Edf) => {}
        // The bounds hold for flows whose requests can all go to some worker. Here, some requests
        // wait for the end of a pause, so the victim is compared with a run without these requests.
        (None, ScenarioPolicy::Share { .. }) if case.scenario.hosted => {}
        (None, ScenarioPolicy::Share { .. } | ScenarioPolicy::ShareClasses) => {
            bars.extend(by_score(case))
        }
        (None, ScenarioPolicy::Classes { .. }) => {
            bars.extend(by_score(case));
            bars.extend([classes::by_quanta(case), classes::own_class(case)]);
        }
    }
    bars
}

/// Returns the bars for the guarantees of the share node's score.
fn by_score(case: &JudgedCase<'_>) -> [ProveBar; 3] {
    [fairness::within_bound(case), fairness::within_share(case), fairness::no_long_gap(case)]
}

/// Returns the bars about the ledger, about errors, and about requests left over at the end.
fn account_bars(case: &JudgedCase<'_>) -> Vec<ProveBar> {
    vec![
        ledger::rows_match(case),
        ledger::tokens_match(case),
        order::no_errors(case),
        order::nothing_left(case),
    ]
}

fn tenant(case: &JudgedCase<'_>, i: usize) -> TenantReport {
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
    let sightings = || case.client_results(i);
    let count = |kind: fn(&AnswerEnd) -> bool| sightings().filter(|s| kind(&s.end)).count() as u64;
    let by_score = case.slots.is_none() && case.scenario.policy.shares_tokens();
    TenantReport {
        name: tenant.name,
        weight: tenant.weight,
        slots: case.slots.as_ref().map(|slots| slots.due[i]),
        ideal_percent,
        got_percent,
        deviation_percent: percent(got_percent - ideal_percent, ideal_percent),
        worker_time_percent: case.worker_time_percent(i),
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
        completed: count(|seen| matches!(seen, AnswerEnd::Completed { .. })),
        left: count(|seen| matches!(seen, AnswerEnd::Left)),
        failed: count(|seen| matches!(seen, AnswerEnd::Broken { .. } | AnswerEnd::Failed { .. })),
        rows: case.final_rows(i).count() as u64,
    }
}

impl JudgedCase<'_> {
    /// Iterates over the results that the clients of a tenant saw.
    fn client_results(&self, tenant: usize) -> impl Iterator<Item = &ClientResult> {
        self.evidence.results.iter().filter(move |sighting| sighting.tenant == tenant)
    }

    /// Iterates over the final rows of a tenant.
    fn final_rows(&self, tenant: usize) -> impl Iterator<Item = &fairgate_store::AttemptRow> {
        let name = self.scenario.tenants[tenant].name;
        self.evidence.ledger.rows.iter().filter(move |row| row.last && row.tenant == name)
    }

    /// Returns the part of the own workers' time that a tenant's attempts took, in percent; `None` if there is no such
    /// time.
    fn worker_time_percent(&self, tenant: usize) -> Option<f64> {
        let name = self.scenario.tenants[tenant].name;
        let rows = &self.evidence.ledger.rows;
        let all: u64 = rows.iter().map(|row| row.worker_us).sum();
        let own: u64 = rows.iter().filter(|row| row.tenant == name).map(|row| row.worker_us).sum();
        (all > 0).then(|| percent(own as f64, all as f64))
    }

    fn names(&self) -> impl Iterator<Item = (usize, &'static str)> {
        self.scenario.tenants.iter().map(|tenant| tenant.name).enumerate()
    }
}

/// Greatest number of points per curve in the picture.
const POINTS_MAX: u64 = 480;

/// Thins out the course of the measured service. Divides the time into [`POINTS_MAX`] equal spans
/// and keeps the last moment of each.
fn course(service: &MeasuredService) -> TokensOverTime {
    let (Some(first), Some(last)) = (service.course.first(), service.course.last()) else {
        return TokensOverTime::default();
    };
    let start = first.at.0;
    let since = |at: Micros| millis(Micros(at.0.saturating_sub(start)));
    let span = (last.at.0 - start).div_ceil(POINTS_MAX).max(1);
    let (join, end) = service.window.unwrap_or((last.at, last.at));
    let at_join = service.course.iter().rfind(|moment| moment.at <= join).unwrap_or(first);
    let weights = service.weights as f64;
    let mut points: Vec<(u64, TokensPoint)> = Vec::new();
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
            TokensPoint {
                at_ms: since(moment.at),
                tokens: moment.used.iter().map(|u| u64::try_from(*u).unwrap_or_default()).collect(),
                ideal_tokens: ideal,
                bound_tokens: bound.map(|b| b.iter().map(|b| *b as f64 / weights).collect()),
                in_flight: moment.in_flight.clone(),
            },
        ));
    }
    let points = points.into_iter().map(|(_, point)| point).collect();
    TokensOverTime { join_ms: since(join), end_ms: since(end), points }
}

/// Returns the wait that `percent` percent of the grants did not exceed, in milliseconds; 0 without
/// grants.
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
