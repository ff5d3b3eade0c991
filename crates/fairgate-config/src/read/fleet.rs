//! Reads the settings of projects, tasks and agents.

use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use super::webhooks::webhooks;
use crate::config::{FleetConfig, FleetCreditUnit, FleetShareLevel};
use crate::defaults;
use crate::field::ConfigField;

const FLEET: &[&str] = &[
    "window",
    "budget",
    "min_task_guarantee",
    "default_estimate",
    "share",
    "credit",
    "agent_second_tokens",
    "lease",
    "backoff",
    "backoff_max",
    "log_size_max",
    "prompt_size_max",
    "journal",
    "webhooks",
];

/// Range of the window: from 24 seconds, for trials, to 90 days.
const WINDOW: RangeInclusive<Duration> =
    Duration::from_secs(24)..=Duration::from_secs(2160 * 60 * 60);
/// Range of the lease. The shortest leaves an agent enough time for a heartbeat, and the longest is still acceptable as
/// the wait for the task of a dead agent.
const LEASE: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(60 * 60);
const BACKOFF: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(24 * 60 * 60);
/// Largest budget of all projects together, in tokens.
const TOKENS_MAX: u64 = 1_000_000_000_000_000;
const ESTIMATE_MAX: u64 = 1_000_000_000_000;
/// Highest price of a second of an agent, in tokens.
const SECOND_TOKENS_MAX: u64 = 1_000_000_000;
/// Range of the total length of a project's prompts: at least one prompt of the largest size.
const PROMPT_BYTES: RangeInclusive<u64> = 1 << 20..=1 << 40;
const SHARE: [(&str, FleetShareLevel); 2] =
    [("project", FleetShareLevel::Project), ("tenant", FleetShareLevel::Tenant)];
const CREDIT: [(&str, FleetCreditUnit); 3] = [
    ("larger", FleetCreditUnit::Larger),
    ("tokens", FleetCreditUnit::Tokens),
    ("time", FleetCreditUnit::Time),
];

pub(crate) fn default_fleet(data_dir: &Path) -> FleetConfig {
    FleetConfig {
        window: defaults::FLEET_WINDOW,
        budget: None,
        min_task_guarantee: true,
        default_estimate: defaults::FLEET_ESTIMATE,
        share: FleetShareLevel::Project,
        credit: FleetCreditUnit::Larger,
        agent_second_tokens: None,
        lease: defaults::FLEET_LEASE,
        backoff: defaults::FLEET_BACKOFF.0,
        backoff_max: defaults::FLEET_BACKOFF.1,
        log_bytes_max: defaults::FLEET_LOG_BYTES_MAX,
        prompt_bytes_max: defaults::FLEET_PROMPT_BYTES_MAX,
        journal: Some(data_dir.join(defaults::FLEET_FOLDER)),
        webhooks: Vec::new(),
    }
}

pub(super) fn fleet(field: ConfigField<'_>, data_dir: &Path) -> Option<FleetConfig> {
    let fleet = field.section(FLEET)?;
    let default = default_fleet(data_dir);
    let window = fleet.or("window", default.window, |field| field.duration(WINDOW));
    let budget = fleet.optional("budget", |field| field.integer(0..=TOKENS_MAX));
    let min_task_guarantee =
        fleet.or("min_task_guarantee", default.min_task_guarantee, ConfigField::boolean);
    let default_estimate = fleet
        .or("default_estimate", default.default_estimate, |field| field.integer(1..=ESTIMATE_MAX));
    let share = fleet.or("share", default.share, |field| field.one_of(&SHARE));
    let credit = fleet.or("credit", default.credit, |field| field.one_of(&CREDIT));
    let agent_second_tokens =
        fleet.optional("agent_second_tokens", |field| field.integer(1..=SECOND_TOKENS_MAX));
    let lease = fleet.or("lease", default.lease, |field| field.duration(LEASE));
    let backoff = fleet.or("backoff", default.backoff, |field| field.duration(BACKOFF));
    // A stated first wait that is longer than the default maximum raises the maximum.
    let most = default.backoff_max.max(backoff.unwrap_or_default());
    let backoff_max = fleet.or("backoff_max", most, |field| field.duration(BACKOFF));
    let log_bytes_max =
        fleet.or("log_size_max", default.log_bytes_max, |field| field.size(0..=1 << 30));
    let prompt_bytes_max =
        fleet.or("prompt_size_max", default.prompt_bytes_max, |field| field.size(PROMPT_BYTES));
    let webhooks = fleet.or("webhooks", Vec::new(), webhooks);
    let journal = fleet.or("journal", true, ConfigField::boolean);
    if let (Some(first), Some(most)) = (backoff, backoff_max)
        && most < first
    {
        return fleet.field.wrong("backoff_max must be at least backoff");
    }
    Some(FleetConfig {
        window: window?,
        budget: budget?,
        min_task_guarantee: min_task_guarantee?,
        default_estimate: default_estimate?,
        share: share?,
        credit: credit?,
        agent_second_tokens: agent_second_tokens?,
        lease: lease?,
        backoff: backoff?,
        backoff_max: backoff_max?,
        log_bytes_max: log_bytes_max?,
        prompt_bytes_max: prompt_bytes_max?,
        journal: default.journal.filter(|_| journal == Some(true)),
        webhooks: webhooks?,
    })
}
