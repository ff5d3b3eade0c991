//! The options of the fleet, and the data plane's calls to the fleet.

use fairgate_config::{FleetConfig, FleetCreditUnit, FleetShareLevel};
use fairgate_control::webhooks;
use fairgate_fleet::{
    Fleet, FleetCredit, FleetError, FleetOptions, FleetShare, LimitCause, TaskKey,
    WebhookSubscriptions,
};
use fairgate_proxy::fleet_calls::{FleetCall, FleetCalls};
use fairgate_store::{BudgetExhausted, KeyHash, Store, StoreError, TaskClaim, UnixMicros};

/// The real fleet behind [`FleetCalls`].
pub(crate) struct FleetOfRequests {
    pub(crate) fleet: Fleet,
    pub(crate) store: Store,
}

impl FleetCalls for FleetOfRequests {
    fn task_key(&self, hash: KeyHash) -> FleetCall<'_, Result<Option<TaskKey>, FleetError>> {
        self.fleet.task_key(hash)
    }

    fn note_limit<'a>(
        &'a self,
        claim: &'a TaskClaim,
        until: Option<UnixMicros>,
        cause: LimitCause,
    ) -> FleetCall<'a, Result<(), FleetError>> {
        self.fleet.note_limit(claim, until, cause)
    }

    fn note_budget_refusal(&self, refused: &BudgetExhausted) {
        self.fleet.note_budget_refusal(refused);
    }

    fn project_weights(&self) -> FleetCall<'_, Result<Vec<(String, u64)>, StoreError>> {
        Box::pin(self.store.inspect(|transaction| fairgate_fleet::project_weights(transaction)))
    }
}

/// Converts the section `fleet` of the configuration to the fleet's options.
pub(crate) fn fleet_options(config: &FleetConfig) -> FleetOptions {
    FleetOptions {
        window: config.window,
        budget: config.budget,
        min_task_guarantee: config.min_task_guarantee,
        default_estimate: config.default_estimate,
        share: match config.share {
            FleetShareLevel::Project => FleetShare::Project,
            FleetShareLevel::Tenant => FleetShare::Tenant,
        },
        credit: credit(config.credit),
        agent_second_tokens: config.agent_second_tokens,
        lease: config.lease,
        backoff: (config.backoff, config.backoff_max),
        log_bytes_max: config.log_bytes_max,
        prompt_bytes_max: config.prompt_bytes_max,
        journal: config.journal.clone(),
        webhooks: WebhookSubscriptions::new(webhooks::subscriptions(&config.webhooks)),
    }
}

fn credit(unit: FleetCreditUnit) -> FleetCredit {
    match unit {
        FleetCreditUnit::Larger => FleetCredit::Larger,
        FleetCreditUnit::Tokens => FleetCredit::Tokens,
        FleetCreditUnit::Time => FleetCredit::Time,
    }
}
