//! Options of the fleet, with their defaults.

use std::time::Duration;

use crate::webhooks::WebhookSubscriptions;

/// The owners among whom the fleet's agents are shared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FleetShare {
    /// All projects, by their weights.
    #[default]
    Project,
    /// First tenants, by their weights in the directory, and then the projects of the tenant that
    /// goes next.
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
    /// Budget of all projects together in one window, in tokens; `None` for no limit.
    pub budget: Option<u64>,
    /// If true, projects without a completed or failed task in the window get agents before all
    /// other projects.
    pub min_task_guarantee: bool,
    /// Expected usage of a task, in tokens, if neither the task nor its project has an estimate.
    pub default_estimate: u64,
    /// The owners among whom agents are shared: all projects, or first tenants and then their
    /// projects.
    pub share: FleetShare,
    /// Unit in which projects share agents.
    pub credit: FleetCredit,
    /// Price of an agent's second in tokens; `None` if it is learned from the work of all projects.
    pub agent_second_tokens: Option<u64>,
    /// Time without a heartbeat after which an agent loses its task.
    pub lease: Duration,
    /// Pause of a task after its first failure, and its maximum pause. The pause doubles with every
    /// failure up to the maximum.
    pub backoff: (Duration, Duration),
    /// Maximum size of the log of one claim, in bytes. If a log would exceed it, its oldest bytes
    /// are dropped.
    pub log_bytes_max: u64,
    /// Maximum total length of the prompts of a project's open tasks after an agent or a tenant has
    /// added tasks, in bytes. Operators may add more.
    pub prompt_bytes_max: u64,
    /// Folder of the journal of rounds; `None` if no journal is written.
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
