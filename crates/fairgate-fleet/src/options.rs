//! Options of the fleet, with their defaults.

use std::time::Duration;

use crate::webhooks::WebhookSubscriptions;

/// Sharers of the fleet's agents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FleetShare {
    /// All projects, by their weights.
    #[default]
    Project,
    /// Tenants by their weights in the directory, and then the projects of the tenant that goes next.
    Tenant,
}

/// Unit in which projects share agents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FleetCredit {
    /// Each claim is charged the larger of its tokens and the price of its time.
    #[default]
    Larger,
    /// Each claim is charged its tokens. Work without calls through the gateway is free.
    Tokens,
    /// Each claim is charged the price of its time, whatever its tokens.
    Time,
}

/// Options of a fleet.
#[derive(Clone, Debug)]
pub struct FleetOptions {
    /// Length of the rolling window over which the usage of projects is counted.
    pub window: Duration,
    /// Budget of all projects together in one window, in tokens; no limit if `None`.
    pub budget: Option<u64>,
    /// If true, projects of which no task was completed or failed in the window get agents before all other projects.
    pub min_task_guarantee: bool,
    /// Expected usage of a task, in tokens, if the task has no estimate and its project has not learned one.
    pub default_estimate: u64,
    /// Sharers of the agents: all projects, or tenants first and then the projects of each.
    pub share: FleetShare,
    /// Unit in which projects share agents.
    pub credit: FleetCredit,
    /// Tokens that a second of an agent costs; learned from the work of all projects if `None`.
    pub agent_second_tokens: Option<u64>,
    /// Time without a heartbeat after which an agent loses its task.
    pub lease: Duration,
    /// Pause of a task after its first failure, and its longest pause. The pause doubles with every failure up to the
    /// longest.
    pub backoff: (Duration, Duration),
    /// Largest size of the log of one claim, in bytes. If a log grows beyond this size, its oldest bytes are dropped.
    pub log_bytes_max: u64,
    /// Largest total length of the prompts of a project's open tasks after an agent or a tenant has added tasks, in bytes.
    /// Operators have no such limit.
    pub prompt_bytes_max: u64,
    /// Folder of the journal of rounds; no journal is written if `None`.
    pub journal: Option<std::path::PathBuf>,
    /// Webhooks that are notified of events; see [`Fleet::set_webhooks`](crate::Fleet::set_webhooks).
    pub webhooks: WebhookSubscriptions,
}

impl Default for FleetOptions {
    fn default() -> Self {
        Self {
            window: Duration::from_secs(24 * 3600),
            budget: None,
            min_task_guarantee: true,
            default_estimate: 20_000,
            share: FleetShare::default(),
            credit: FleetCredit::default(),
            agent_second_tokens: None,
            lease: Duration::from_secs(60),
            backoff: (Duration::from_secs(60), Duration::from_secs(300)),
            log_bytes_max: 1 << 20,
            prompt_bytes_max: 256 << 20,
            journal: None,
            webhooks: WebhookSubscriptions::default(),
        }
    }
}
