//! Lets the submission of a lease pass the same checks as a request over HTTP.

use std::sync::Arc;
use std::time::Duration;

use fairgate_api::leases::LeaseSubmissionBody;
use fairgate_config::{HostedBudget, ModelConfig};
use fairgate_core::units::TaskWeight;
use fairgate_dialect::RequestFields;
use fairgate_dialect::estimate::TokenEstimate;

use super::super::accept::{ExpectedUsage, ReadSource, RequestSource};
use super::super::client_choices::{self, ClientChoices, LeaseChoices};
use super::super::cost;
use super::super::request_checks::ClientNames;
use super::super::request_guard::{RequestArrival, RequestIn};
use super::super::stage::RoutedRequest;
use crate::live_count::LiveCount;
use crate::pools::{PoolHandle, PoolSetup, ServedModel};
use crate::refusal::{self, Refusal};

/// The submission of a lease for a slot of `pool`.
pub(super) struct LeaseSource {
    pub(super) pool: Arc<PoolHandle>,
    pub(super) submission: LeaseSubmissionBody,
}

/// A submission whose fields are read and whose usage is estimated.
pub(super) struct ReadLeaseSource {
    pool: Arc<PoolHandle>,
    submission: LeaseSubmissionBody,
    expected: TokenEstimate,
    charged: u64,
}

impl RequestSource for LeaseSource {
    type Read = ReadLeaseSource;

    async fn read(
        self,
        arrival: &RequestArrival,
    ) -> Result<(RequestFields, ReadLeaseSource), Refusal> {
        let Self { pool, mut submission } = self;
        let name = submission.model.take().unwrap_or_default();
        let weights = pool.setup().weights;
        let fields = RequestFields::without_body(name.clone(), u64::MAX);
        let usual = pool.estimator.estimate(&arrival.caller.tenant, &name, &fields, None);
        let (expected, charged) = match (submission.input_tokens, submission.output_tokens) {
            (None, None) => match submission.cost {
                Some(cost) => (stated(0, cost), cost),
                None => (stated(0, usual.output), cost::estimate(weights, usual, 0)),
            },
            (input, output) => {
                let expected = stated(input.unwrap_or(0), output.unwrap_or(usual.output));
                let by_weights = cost::estimate(weights, expected, 0);
                (expected, submission.cost.unwrap_or(by_weights))
            }
        };
        let fields = RequestFields::without_body(name, expected.output);
        Ok((fields, ReadLeaseSource { pool, submission, expected, charged }))
    }
}

impl ReadSource for ReadLeaseSource {
    fn model(
        &mut self,
        arrival: &RequestArrival,
        fields: &RequestFields,
    ) -> Result<Arc<ServedModel>, Refusal> {
        let RequestArrival { app, caller, .. } = arrival;
        // A key's list of models says which pools it may use. A pool of leases has no models, so a model that another
        // pool serves gives no right to it.
        if caller.rights.models.is_some()
            && let Some(served) = app.pools.model(&fields.model)
        {
            return Err(refusal::model_of_another_pool(&fields.model, &served.pool.name));
        }
        let config = ModelConfig {
            name: fields.model.clone(),
            upstream_name: None,
            hosted: true,
            hosted_budget: HostedBudget::default(),
            context_tokens: None,
        };
        Ok(Arc::new(ServedModel { pool: self.pool.clone(), config, waiting: LiveCount::default() }))
    }

    fn choices(
        &mut self,
        arrival: &RequestArrival,
        setup: &PoolSetup,
        fields: &RequestFields,
    ) -> Result<ClientChoices, Refusal> {
        let deadline = self.submission.deadline_ms.map(Duration::from_millis);
        let LeaseSubmissionBody { class, priority, weight, .. } = &mut self.submission;
        let thousandths = weight.map(|weight| weight.thousandths().into());
        let stated = LeaseChoices {
            class: class.take(),
            priority: *priority,
            weight: thousandths.and_then(|weight| TaskWeight::from_thousandths(weight).ok()),
            deadline,
        };
        client_choices::read_for_lease(&arrival.caller.rights, setup, &fields.model, stated)
    }

    fn names(&mut self) -> Result<ClientNames, Refusal> {
        let LeaseSubmissionBody { agent, session, .. } = &mut self.submission;
        Ok(ClientNames { agent: agent.take(), session: session.take() })
    }

    async fn expected_usage(
        &self,
        routed: &RequestIn<'_, RoutedRequest>,
        setup: &PoolSetup,
        _: &ServedModel,
        chosen: &ClientChoices,
    ) -> Result<ExpectedUsage, Refusal> {
        let Self { expected, charged, .. } = *self;
        let uncached_input = expected.input;
        Ok(ExpectedUsage {
            expected,
            charged,
            charged_uncached: charged,
            scheduled: cost::scheduled(routed, setup, &chosen.worker, expected, None)?,
            uncached_input,
            prefix: None,
            last_worker: None,
        })
    }
}

/// Builds the estimate from the client's own numbers, which are also the most that is reserved.
fn stated(input: u64, output: u64) -> TokenEstimate {
    TokenEstimate { input, input_max: input, output, output_max: Some(output), has_files: false }
}
