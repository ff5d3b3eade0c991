//! Conversion of the `fleet` section of the configuration to the fleet's options.

use fairgate_config::{FleetConfig, FleetCreditUnit, FleetShareLevel};
use fairgate_fleet::{FleetCredit, FleetOptions, FleetShare, WebhookSubscriptions};

use crate::webhooks;

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
