//! The checks that a request must pass before it is submitted, in one order for all requests. A request comes from HTTP
//! (`HttpSource`) or from the submission of a lease (`lease_source`).

use std::sync::{Arc, LazyLock};

use fairgate_config::OnStoreFailure;
use fairgate_dialect::RequestFields;
use fairgate_dialect::estimate::TokenEstimate;
use http::HeaderMap;
use hyper::body::Incoming;
use tokio::time::Instant;

use super::body::BufferedBody;
use super::client_choices::ClientChoices;
use super::deadline::RequestDeadline;
use super::request_checks::ClientNames;
use super::request_guard::{RequestArrival, RequestGuard, RequestIn};
use super::send::PoolRequest;
use super::stage::{AcceptedRequest, RoutedRequest, SubmitTerms};
use super::{
    body, budget, client_choices, cost, headers, previous_response, request_checks, rules,
};
use crate::pools::{LastWorker, PoolSetup, RequestPrefix, ServedModel};
use crate::refusal::{self, Refusal};

/// A request whose fields are not read yet.
pub(super) trait RequestSource {
    type Read: ReadSource;

    /// Reads the fields that the scheduler needs.
    async fn read(self, arrival: &RequestArrival) -> Result<(RequestFields, Self::Read), Refusal>;
}

/// The rest of a source after its fields were read. The methods are called in the order of their definition.
pub(super) trait ReadSource {
    /// Returns the model with its pool.
    fn model(
        &mut self,
        arrival: &RequestArrival,
        fields: &RequestFields,
    ) -> Result<Arc<ServedModel>, Refusal>;

    /// Runs the checks of this source that need the pool, and reads the client's choices.
    fn choices(
        &mut self,
        arrival: &RequestArrival,
        setup: &PoolSetup,
        fields: &RequestFields,
    ) -> Result<ClientChoices, Refusal>;

    /// Returns the names of the agent and the session.
    fn names(&mut self) -> Result<ClientNames, Refusal>;

    /// Estimates the usage of the request.
    async fn expected_usage(
        &self,
        routed: &RequestIn<'_, RoutedRequest>,
        setup: &PoolSetup,
        model: &ServedModel,
        chosen: &ClientChoices,
    ) -> Result<ExpectedUsage, Refusal>;
}

/// The expected usage of a request, and the workers that are believed to have its prompt cached.
pub(super) struct ExpectedUsage {
    pub(super) expected: TokenEstimate,
    /// Charged tokens of the expected usage.
    pub(super) charged: u64,
    /// Charged tokens of the expected usage as if no worker had the prompt cached.
    pub(super) charged_uncached: u64,
    /// Cost that the scheduler counts for the expected usage; `None` if the pool counts tokens.
    pub(super) scheduled: Option<ScheduledCost>,
    /// Input tokens of the prompt minus those that some worker is believed to have cached.
    pub(super) uncached_input: u64,
    pub(super) prefix: Option<Box<RequestPrefix>>,
    pub(super) last_worker: Option<Box<LastWorker>>,
}

/// Expected cost of a request in the unit of its pool.
#[derive(Clone, Copy)]
pub(super) struct ScheduledCost {
    pub(super) cost: u64,
    /// The cost as if no worker had the prompt cached.
    pub(super) uncached: u64,
}

/// Runs every check that can refuse a request before it is submitted, except the rate limits. Nothing is kept of a
/// refused request. Returns the accepted request, its requirements to the pool, and the source with the data that the
/// checks did not consume.
pub(super) async fn accept<S: RequestSource>(
    guard: &mut RequestGuard,
    source: S,
) -> Result<(RequestIn<'_, AcceptedRequest>, PoolRequest, S::Read), Refusal> {
    let app = guard.arrival.app.clone();
    if app.config.load().on_store_failure == OnStoreFailure::Refuse && !app.store.can_record() {
        return Err(refusal::rows_not_writable());
    }
    let (fields, mut source) = source.read(&guard.arrival).await?;
    let read = guard.read(fields);
    let model = source.model(read.arrival(), &read.ask)?;
    let setup = model.pool.setup();
    request_checks::check_right_to_model(&read.arrival().caller, &read.ask.model)?;
    let chosen = Box::new(source.choices(read.arrival(), &setup, &read.ask)?);
    let ClientNames { agent, session } = match ClientNames::of_task(&read.arrival().caller) {
        Some(names) => names,
        None => source.names()?,
    };
    let routed = read.route(model.pool.clone(), agent, session);
    let usage = source.expected_usage(&routed, &setup, &model, &chosen).await?;
    let RequestArrival { caller, kind, .. } = routed.arrival();
    let with_time = |charged| routed.pool.slot_time_price.expected(*kind, &caller.tenant, charged);
    let (estimate, estimate_uncached) =
        (with_time(usage.charged), with_time(usage.charged_uncached));
    let ScheduledCost { cost: scheduled, uncached: scheduled_uncached } = match &usage.scheduled {
        Some(scheduled) => *scheduled,
        None => ScheduledCost { cost: estimate, uncached: estimate_uncached },
    };
    let class = setup.class(chosen.class.as_deref(), usage.uncached_input);
    drop(setup);
    let ExpectedUsage { expected, prefix, last_worker, .. } = usage;
    let terms = SubmitTerms {
        expected,
        estimate,
        estimate_uncached,
        scheduled,
        scheduled_uncached,
        class,
        prefix,
        last_worker,
        uncached_cost: None,
        output_cap: None,
    };
    let terms = terms.with_uncached_cost(&model.pool, &routed.arrival().id);
    let mut accepted = routed.accept(terms);
    let deadline = RequestDeadline::of(&accepted, chosen.deadline)?;
    let cap = match accepted.arrival().caller.budgeted {
        true => Box::pin(budget::check(&accepted)).await?,
        false => None,
    };
    accepted.terms.output_cap = cap;
    Ok((accepted, PoolRequest { model, chosen, cap, deadline }, source))
}

/// A request over HTTP whose body is still to come.
pub(super) struct HttpSource {
    pub(super) headers: HeaderMap,
    pub(super) body: Incoming,
}

/// A request over HTTP with its body.
pub(super) struct ReadHttpSource {
    pub(super) headers: HeaderMap,
    pub(super) body: BufferedBody,
}

impl ReadHttpSource {
    /// Returns the headers in which a client states names and choices; an empty map if it states none, as most do. Each
    /// look-up hashes a name, and there are more than ten.
    fn headers_with_choices(&self) -> &HeaderMap {
        static NONE: LazyLock<HeaderMap> = LazyLock::new(HeaderMap::new);
        match self.headers.keys().any(headers::may_be_choice) {
            true => &self.headers,
            false => &NONE,
        }
    }
}

impl RequestSource for HttpSource {
    type Read = ReadHttpSource;

    async fn read(
        self,
        arrival: &RequestArrival,
    ) -> Result<(RequestFields, ReadHttpSource), Refusal> {
        let RequestArrival { app, caller, route, .. } = arrival;
        let Self { headers, body } = self;
        let config = app.config.load_full();
        // A caller that is over its limits is refused before it sends its body.
        let bytes = body::announced_length(&headers).unwrap_or(0);
        app.limits.check(caller, bytes, Instant::now().into_std())?;
        let held = app.body_memory.start_body(&caller.tenant);
        let body = body::read(&headers, body, &config.limits, held).await?;
        let fields = RequestFields::read(*route, &body.bytes)?;
        Ok((fields, ReadHttpSource { headers, body }))
    }
}

impl ReadSource for ReadHttpSource {
    fn model(
        &mut self,
        arrival: &RequestArrival,
        fields: &RequestFields,
    ) -> Result<Arc<ServedModel>, Refusal> {
        let model = arrival.app.pools.model(&fields.model);
        model.ok_or_else(|| refusal::unknown_model(&fields.model))
    }

    fn choices(
        &mut self,
        arrival: &RequestArrival,
        setup: &PoolSetup,
        fields: &RequestFields,
    ) -> Result<ClientChoices, Refusal> {
        let (body, rights) = (&self.body.bytes, &arrival.caller.rights);
        request_checks::check_dialect(setup, arrival.route, &fields.model)?;
        rules::check(setup, arrival.route, fields, body, &self.headers)?;
        client_choices::read(rights, setup, self.headers_with_choices(), fields, body)
    }

    fn names(&mut self) -> Result<ClientNames, Refusal> {
        request_checks::read_client_names(self.headers_with_choices())
    }

    async fn expected_usage(
        &self,
        routed: &RequestIn<'_, RoutedRequest>,
        setup: &PoolSetup,
        model: &ServedModel,
        chosen: &ClientChoices,
    ) -> Result<ExpectedUsage, Refusal> {
        let RequestArrival { app, caller, route, .. } = routed.arrival();
        let body = &self.body.bytes;
        // Boxed to keep this future small: few requests name an id.
        let history = previous_response::history_tokens(app, caller, *route, &routed.ask, body);
        let history = Box::pin(history).await?;
        let expected =
            cost::expect(routed, &model.config, setup, body).await.with_more_input(history);
        let prefix = cost::look_up_prefix(routed, &model.config, body, expected.input);
        let cached = cost::most_cached(setup, chosen, route.dialect(), prefix.as_deref());
        let known_cached = prefix.is_some().then_some(cached);
        Ok(ExpectedUsage {
            expected,
            scheduled: cost::scheduled(routed, setup, &chosen.worker, expected, known_cached)?,
            charged: cost::estimate(setup.weights, expected, cached),
            charged_uncached: cost::estimate(setup.weights, expected, 0),
            uncached_input: expected.input.saturating_sub(cached),
            prefix,
            last_worker: cost::last_worker(routed, expected.input),
        })
    }
}
