//! Probes: small requests of the gateway itself, which show whether an account is spent or blocked.
//!
//! `upstream/account/account_closing.rs` decides when an account is probed, at most once a minute.
//! A probe needs no slot, because an account has at most one probe at a time. The probe's row in
//! the ledger has the tenant `fairgate`. No real tenant can have this name, so no tenant's budget
//! pays for the probe.

use std::sync::Arc;
use std::time::Duration;

use fairgate_dialect::rate_limit_headers::{self, EpochMicros, ProviderRefusal, RateLimitHeaders};
use fairgate_dialect::{
    AccountProbe, BodyFraming, Dialect, MeasuredUsage, Route, TokenUsage, UsageMeter,
};
use fairgate_money::{MicroUnits, TokenCounts};
use fairgate_store::{AttemptOutcome, AttemptRow, GATEWAY_TENANT, UsageSource};
use http::header::CONTENT_TYPE;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::forward::DataPlane;
use crate::forward::RowWrite;
use crate::phase::GatewayPhase;
use crate::pools::ServedModel;
use crate::refusal::{EndCode, Refusal};
use crate::upstream::{
    OutgoingRequest, PROBE_EVERY, ProbeOutcome, ProbeTarget, ProviderAccount, Upstream,
    UpstreamFailure,
};
use fairgate_time::wall_clock;

/// Interval at which accounts are checked for a due probe.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Maximum duration of a probe; shorter than the time between two probes.
const PROBE_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of bytes of a probe's answer that are read.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// Id of the key in the row of a probe.
const PROBE_KEY: &str = "probe";
/// Header and value without which Anthropic refuses every request.
const ANTHROPIC_VERSION: (HeaderName, HeaderValue) =
    (HeaderName::from_static("anthropic-version"), HeaderValue::from_static("2023-06-01"));

/// Sends every probe that is due, until the gateway drains.
pub(crate) async fn run_probes(app: Arc<DataPlane>) {
    let mut ticks = interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if !app.phase.is_serving() {
            return;
        }
        for account in accounts_to_probe(&app.pools.accounts(), Instant::now()) {
            if let Some(target) = account.take_probe() {
                tokio::spawn(probe(app.clone(), account, target));
            }
        }
    }
}

/// Returns the models to probe now. An account is probed at most once a minute, with one of its
/// models that need a probe: the one whose last probe was the longest ago. So one model cannot take
/// the probes of all others. In `models`, the models of one account must be adjacent.
fn accounts_to_probe(models: &[Arc<ProviderAccount>], now: Instant) -> Vec<Arc<ProviderAccount>> {
    let of_account = models.chunk_by(|one, next| one.name == next.name);
    let due = of_account.filter_map(|models| {
        let last = models.iter().filter_map(|model| model.probed_at()).max();
        let is_early = last.is_some_and(|last| now.saturating_duration_since(last) < PROBE_EVERY);
        let needing = models.iter().filter(|model| !is_early && model.needs_probe());
        needing.min_by_key(|model| model.probed_at()).cloned()
    });
    due.collect()
}

/// Records the result of a probe. If the account is usable again, opens all of its models that were
/// closed for the same reason. If the provider still refuses one of these models, that model's own
/// probe closes the model again.
fn record(app: &DataPlane, account: &ProviderAccount, outcome: ProbeOutcome) {
    let reason = account.block_reason().filter(|_| outcome == ProbeOutcome::Usable);
    account.record_probe(outcome);
    if let Some(reason) = reason {
        let models = app.pools.accounts();
        let same = models.iter().filter(|model| model.name == account.name);
        same.for_each(|model| model.open_if_closed_for(&reason));
    }
}

/// Probes an account, records the result, and writes the row.
async fn probe(app: Arc<DataPlane>, account: Arc<ProviderAccount>, target: ProbeTarget) {
    // A drain waits for the row.
    let _counted = app.detached_rows.count_one();
    let served = app.pools.model(&target.model).filter(|model| model.pool.name == target.pool);
    let worker = served.as_ref().and_then(|model| {
        let setup = model.pool.setup();
        setup.worker(&target.upstream).map(|worker| worker.upstream.clone())
    });
    let (Some(served), Some(upstream)) = (served, worker) else {
        // A reload removed the model or the worker. The account is opened, because no further probe
        // could open it.
        record(&app, &account, ProbeOutcome::Usable);
        return;
    };
    let probe = AccountProbe::new(target.route, upstream.config.model_name(&served.config));
    let mut report = ProbeReport::new(&app, probe.route);
    let mut phase = app.phase.watch();
    let outcome = tokio::select! {
        outcome = report.ask(&upstream, probe) => outcome,
        _ = phase.wait_for(|phase| *phase >= GatewayPhase::Closing) => {
            report.set_cut_off();
            ProbeOutcome::Unknown
        }
    };
    log_result(&account, &target, &outcome);
    record(&app, &account, outcome);
    // `RowWrite` logs and counts a row that cannot be written.
    let _ = RowWrite::start(app.clone(), report.row(&app, &target, &served, &upstream)).await;
}

fn log_result(account: &ProviderAccount, target: &ProbeTarget, outcome: &ProbeOutcome) {
    let was_closed = account.block_reason().is_some();
    let (account, ProbeTarget { upstream: worker, model, .. }) = (&account.name, target);
    match outcome {
        ProbeOutcome::Refused(reason) if !was_closed => {
            tracing::error!(%account, %worker, %model, %reason, "a provider refuses the gateway's own request too: the account gets no requests, and is asked again every minute");
        }
        ProbeOutcome::Usable if was_closed => {
            tracing::info!(%account, %worker, %model, "a provider accepts requests again");
        }
        ProbeOutcome::Usable => {
            tracing::info!(%account, %worker, %model, "a provider refused a request for its account, and accepts the gateway's own: the account stays open");
        }
        ProbeOutcome::Refused(_) | ProbeOutcome::Unknown => {}
    }
}

/// Result of a probe, from which its row is built.
struct ProbeReport {
    id: Box<str>,
    route: Route,
    began: Instant,
    started_at: fairgate_store::UnixMicros,
    status: u16,
    outcome: AttemptOutcome,
    code: Option<EndCode>,
    usage: TokenUsage,
    source: UsageSource,
}

impl ProbeReport {
    fn new(app: &DataPlane, route: Route) -> Self {
        Self {
            id: app.request_ids.next(),
            route,
            began: Instant::now(),
            started_at: wall_clock::now(),
            status: 0,
            outcome: AttemptOutcome::UpstreamError,
            code: None,
            usage: TokenUsage::default(),
            source: UsageSource::None,
        }
    }

    /// Sends the probe and reads its answer.
    async fn ask(&mut self, upstream: &Upstream, probe: AccountProbe) -> ProbeOutcome {
        let dialect = probe.route.dialect();
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if dialect == Dialect::Anthropic {
            let (name, value) = ANTHROPIC_VERSION;
            headers.insert(name, value);
        }
        let path = PathAndQuery::from_static(probe.route.path());
        let outgoing = OutgoingRequest { dialect, path, headers, body: probe.body };
        let due = self.began + PROBE_TIMEOUT;
        match upstream.ask(outgoing, due, ANSWER_BYTES_MAX).await {
            Ok(answer) => self.read_answer(answer.status, &answer.headers, answer.text),
            Err(failure) => {
                self.set_failed(&failure);
                ProbeOutcome::Unknown
            }
        }
    }

    fn read_answer(
        &mut self,
        status: StatusCode,
        headers: &HeaderMap,
        body: Option<Vec<u8>>,
    ) -> ProbeOutcome {
        self.status = status.as_u16();
        let body = body.unwrap_or_default();
        if status.is_success() {
            let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
            let mut meter = UsageMeter::new(self.route, BodyFraming::of(content_type), false, 1);
            meter.pass(body.into());
            let MeasuredUsage { usage, reported, .. } = meter.finish().1;
            self.usage = usage;
            self.source = if reported { UsageSource::Reported } else { UsageSource::Counted };
            self.outcome = AttemptOutcome::Completed;
            return ProbeOutcome::Usable;
        }
        self.code = Some(EndCode::UpstreamStatus);
        let now = EpochMicros(self.started_at.0);
        match rate_limit_headers::classify_refusal(
            status,
            &body,
            &mut RateLimitHeaders::default(),
            now,
        ) {
            ProviderRefusal::Spent { reason } | ProviderRefusal::Blocked { reason } => {
                ProbeOutcome::Refused(reason.into())
            }
            ProviderRefusal::Overloaded { .. } => ProbeOutcome::Unknown,
            // A failing server does not show the state of the account.
            _ if status.is_server_error() => ProbeOutcome::Unknown,
            _ => ProbeOutcome::Usable,
        }
    }

    fn set_failed(&mut self, failure: &UpstreamFailure) {
        let refusal = Refusal::from(failure);
        self.status = refusal.problem.status.as_u16();
        (self.outcome, self.code) = (refusal.outcome, Some(refusal.code.into()));
    }

    fn set_cut_off(&mut self) {
        (self.outcome, self.code) = (AttemptOutcome::Timeout, Some(EndCode::Drained));
    }

    fn row(
        self,
        app: &DataPlane,
        target: &ProbeTarget,
        served: &ServedModel,
        upstream: &Upstream,
    ) -> AttemptRow {
        let config = app.config.load();
        let model = &served.config.name;
        let price = config.prices.price(model, upstream.config.name_in_file(), self.started_at);
        let price = price.filter(|_| self.source != UsageSource::None);
        let TokenUsage { input, cached, output } = self.usage;
        let money = price.map_or(MicroUnits::ZERO, |price| {
            price.cost(TokenCounts { input, cached, output, ..TokenCounts::default() })
        });
        AttemptRow {
            request: self.id.into(),
            attempt: 1,
            last: true,
            started_at: self.started_at,
            group: GATEWAY_TENANT.into(),
            tenant: GATEWAY_TENANT.into(),
            key: PROBE_KEY.into(),
            agent: None,
            session: None,
            route: self.route.path().into(),
            stream: false,
            model: model.clone(),
            pool: Some((*target.pool).into()),
            worker: Some((*target.upstream).into()),
            estimate: 0,
            input_tokens: input,
            cached_tokens: cached,
            output_tokens: output,
            charged: 0,
            usage: self.source,
            waited_us: 0,
            first_token_us: None,
            total_us: u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX),
            status: self.status,
            outcome: self.outcome,
            code: self.code.map(|code| code.as_str().into()),
            brownout: false,
            occupied: 0,
            provider_tokens: input.saturating_add(output),
            money,
            price: price.map(|price| price.id.to_string()),
            tier: upstream.config.tier,
            class: None,
            cache_written_tokens: 0,
            cache_written_1h_tokens: 0,
            estimate_uncached: 0,
            charged_uncached: 0,
            worker_us: 0,
            price_set: None,
            claim: None,
        }
    }
}
