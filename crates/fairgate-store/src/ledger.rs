//! What was used: attempts, reservations, sums, and the audit trail.

use serde::{Deserialize, Serialize};

use fairgate_money::{MicroUnits, Price, UnixMicros};

use crate::budget::Budget;
use crate::claims::FleetTerms;
use crate::fleet::TaskClaim;

/// One attempt, one row. A request that was tried on two workers has two rows, of which the last is `final`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// The request's id, as in the response header and the journal.
    pub request: String,
    /// 1 for the first attempt.
    pub attempt: u32,
    /// Whether it was the request's last attempt. Exactly one row of each request is.
    pub last: bool,
    /// When the request came in.
    pub started_at: UnixMicros,
    /// The caller's group.
    pub group: String,
    /// The caller's tenant.
    pub tenant: String,
    /// The caller's key id.
    pub key: String,
    /// The agent that the caller named.
    pub agent: Option<String>,
    /// The session that the caller named.
    pub session: Option<String>,
    /// The path, such as `/v1/chat/completions`.
    pub route: String,
    /// Whether the answer was streamed.
    pub stream: bool,
    /// The model, as the caller named it.
    pub model: String,
    /// The pool; absent where it got to none.
    pub pool: Option<String>,
    /// The worker; absent where it got to none.
    pub worker: Option<String>,
    /// What it was expected to use, as charged, in tokens.
    pub estimate: u64,
    /// Input tokens, cached ones included.
    pub input_tokens: u64,
    /// How many of the input tokens the upstream said were cached.
    pub cached_tokens: u64,
    /// Output tokens.
    pub output_tokens: u64,
    /// What the scheduler was charged, in weighted tokens: what is shared. No budget counts these.
    pub charged: u64,
    /// Where the token numbers are from.
    pub usage: UsageSource,
    /// How long it waited for its grant, in microseconds.
    pub waited_us: u64,
    /// From the request's arrival to the first byte of the answer's body, in microseconds.
    pub first_token_us: Option<u64>,
    /// From the request's arrival to its end, in microseconds.
    pub total_us: u64,
    /// The HTTP status that the caller saw; 499 where it had left.
    pub status: u16,
    /// How it ended.
    pub outcome: Outcome,
    /// The stable error code, where it was no success.
    pub code: Option<String>,
    /// Whether its output was capped because it had waited long.
    pub brownout: bool,
    /// What the scheduler counted for an attempt that did not complete, in tokens: more than what it was charged where the
    /// worker was at fault. 0 where it completed.
    #[serde(default)]
    pub occupied: u64,
    /// What providers and token budgets count: input and output tokens, not weighted.
    #[serde(default = "not_said")]
    pub provider_tokens: u64,
    /// What it cost, in micro-units of the installation's currency; 0 where the model has no price.
    #[serde(default)]
    pub money: MicroUnits,
    /// The id of the price that applied; absent where the model has none.
    #[serde(default)]
    pub price: Option<String>,
    /// The tier of its worker: 0 is an own one, from 1 on a hosted one. 0 where it got to none.
    #[serde(default)]
    pub tier: u32,
    /// The policy class that it was queued in; absent where the pool's policy has no classes, or it got to no pool.
    #[serde(default)]
    pub class: Option<String>,
    /// The task that it was made for, where it came with a task's key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<TaskClaim>,
}

/// What an earlier version, which did not count provider tokens, says of them in a spool: see
/// [`Attempt::of_any_version`].
fn not_said() -> u64 {
    u64::MAX
}

impl Attempt {
    /// A row as it was read from a spool. Where an earlier version wrote it, budgets counted what was charged.
    pub(crate) fn of_any_version(mut self) -> Self {
        if self.provider_tokens == not_said() {
            self.provider_tokens = self.charged;
        }
        self
    }
}

/// Where token numbers are from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UsageSource {
    /// The upstream said so.
    Reported,
    /// The upstream said nothing, or nonsense: what passed was counted.
    Counted,
    /// Nothing was used.
    None,
    /// Unknown, and the estimate was charged: the process died, or the caller left a stream after its last text and the
    /// upstream did not say what it used.
    Assumed,
    /// It did not complete, and its time in the slot was charged: more than what was metered.
    Occupied,
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The answer ended as it should.
    Completed,
    /// It was refused, by a limit, a budget or the pool.
    Refused,
    /// The upstream failed, or answered with an error.
    UpstreamError,
    /// The upstream took too long.
    Timeout,
    /// The caller left before the end.
    ClientLeft,
    /// It failed before the first byte, and another worker was tried.
    Retried,
    /// The process died with it in flight; found by the next one.
    Lost,
}

/// Tokens and money held for a request in flight. Made before it is queued, gone with [`crate::Store::record`] of the same
/// request's last row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// The request's id; a request has one reservation at a time.
    pub request: String,
    /// The caller's group.
    pub group: String,
    /// The caller's tenant.
    pub tenant: String,
    /// The caller's key id.
    pub key: String,
    /// The model.
    pub model: String,
    /// Weighted tokens: what its row says it was charged in case the process dies. No budget counts these.
    pub tokens: u64,
    /// The most provider tokens that it may use on an own worker; where there is none, on a hosted one.
    pub provider_tokens: u64,
    /// The most that it may cost on an own worker, in micro-units; where there is none, on a hosted one. 0 without a price.
    pub money: MicroUnits,
    /// The most that it may use on a hosted worker. Absent where it must not or cannot go to one.
    pub hosted: Option<HostedMost>,
    /// What the configuration allows its model on hosted workers. Not kept with the reservation: it says what may be held,
    /// not what is.
    pub model_budgets: Vec<Budget>,
    /// The task that it is for, where it comes with a task's key. It is granted only while that claim is in force.
    pub claim: Option<TaskClaim>,
    /// What the configuration says of the fleet, for one with a claim. Not kept either.
    pub fleet: FleetTerms,
    /// When.
    pub at: UnixMicros,
}

/// The most that a request may use on a hosted worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostedMost {
    /// Provider tokens.
    pub provider_tokens: u64,
    /// Micro-units of the installation's currency; 0 without a price.
    pub money: MicroUnits,
}

/// A price that was in force at some time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PriceVersion {
    /// The price.
    #[serde(flatten)]
    pub price: Price,
    /// When a process first had it in its configuration.
    pub first_seen: UnixMicros,
}

/// What was found of processes that died.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resolved {
    /// How many reservations were turned into rows of outcome `lost`.
    pub reservations: u64,
    /// How many weighted tokens they were charged: the most that they might have used.
    pub tokens: u64,
}

/// What usage is summed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "the names say it")]
pub enum By {
    Group,
    Tenant,
    Key,
    Model,
    Pool,
    Worker,
    Outcome,
    Agent,
    Day,
    Hour,
    Tier,
    Class,
    Project,
}

/// Which rows to sum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageQuery {
    /// By what.
    pub by: By,
    /// From when on.
    pub since: UnixMicros,
    /// Until before when.
    pub until: Option<UnixMicros>,
    /// Of this tenant only.
    pub tenant: Option<String>,
    /// Of this model only.
    pub model: Option<String>,
}

/// A sum of rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageRow {
    /// The tenant, model or whatever was summed by; `-` where it is absent in the rows.
    pub name: String,
    /// Final rows: one each request.
    pub requests: u64,
    /// Of these, how many did not complete.
    pub failed: u64,
    /// Input tokens, cached ones included.
    pub input_tokens: u64,
    /// Of these, cached ones.
    pub cached_tokens: u64,
    /// Output tokens.
    pub output_tokens: u64,
    /// What the scheduler was charged, in weighted tokens.
    pub charged: u64,
    /// What providers and token budgets count: input and output tokens, not weighted.
    pub provider_tokens: u64,
    /// What it cost, in micro-units of the installation's currency.
    pub money: MicroUnits,
    /// The mean wait of final rows, in microseconds.
    pub waited_us_mean: u64,
    /// The longest wait, in microseconds.
    pub waited_us_max: u64,
    /// The mean time to the first token, of the rows that have one, in microseconds.
    pub first_token_us_mean: Option<u64>,
}

/// Which rows to list, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LedgerQuery {
    /// Of this request only.
    pub request: Option<String>,
    /// Of this tenant only.
    pub tenant: Option<String>,
    /// Of this project's tasks only.
    pub project: Option<String>,
    /// Of this task only.
    pub task: Option<String>,
    /// From when on.
    pub since: Option<UnixMicros>,
    /// Until before when.
    pub until: Option<UnixMicros>,
    /// At most this many; 1 000 at most, and where it is 0.
    pub limit: u32,
}

/// One change, and who made it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// Its number; rises.
    pub id: i64,
    /// When.
    pub at: UnixMicros,
    /// Who: `admin`, `config`, `first-start`.
    pub actor: String,
    /// What, such as `tenant.patch`.
    pub action: String,
    /// To which, such as `chat`.
    pub subject: String,
    /// What it was before, as JSON; no hash, no secret.
    pub before: Option<serde_json::Value>,
    /// What it was after, as JSON; no hash, no secret.
    pub after: Option<serde_json::Value>,
}

/// Which audit entries to list, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditQuery {
    /// Only those before this id.
    pub before: Option<i64>,
    /// At most this many; 1 000 at most, and where it is 0.
    pub limit: u32,
}
