//! Workers and the limits of their providers, as they are shown.

use std::time::Duration;

use serde::Serialize;
use utoipa::ToSchema;

use crate::pools::{QuotaView, WorkerView};

/// A worker of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Worker)]
pub struct WorkerBody {
    /// Its name.
    pub name: String,
    /// `up`, `unhealthy` (health checks fail), `broken` (requests fail on it), `paused` (its provider wants nothing for a
    /// while) or `out` (its provider's account is spent or blocked).
    pub state: &'static str,
    /// How many requests are in flight on it.
    pub in_flight: u64,
    /// How many it takes; null is any number.
    pub slots: Option<u64>,
    /// Its tier: 0 is an own worker, higher ones are used when no lower one has room.
    pub tier: u32,
    /// The limits of its provider's account; null where it is not hosted.
    pub quota: Option<QuotaBody>,
}

/// The limits of a provider's account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Quota)]
pub struct QuotaBody {
    /// The account's name.
    pub account: String,
    /// Requests a minute; null is no limit.
    pub requests_per_minute: Option<u64>,
    /// Where that number is from: `file`, `header` (the provider said so) or `learned`.
    pub requests_from: Option<&'static str>,
    /// Tokens a minute, as the provider counts them; null is no limit.
    pub tokens_per_minute: Option<u64>,
    /// Where that number is from: `file` or `header`.
    pub tokens_from: Option<&'static str>,
    /// For how many milliseconds nothing more is sent, because the provider refused a request.
    pub paused_ms: Option<u64>,
    /// How many milliseconds the provider asked for; no pause is longer than 60 000.
    pub asked_ms: Option<u64>,
    /// Why nothing is sent until somebody pays or asks: the provider's own word.
    pub out: Option<String>,
}

impl From<QuotaView> for QuotaBody {
    fn from(quota: QuotaView) -> Self {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Self {
            account: quota.account,
            requests_per_minute: quota.requests.map(|(rate, _)| rate),
            requests_from: quota.requests.map(|(_, from)| from),
            tokens_per_minute: quota.tokens.map(|(rate, _)| rate),
            tokens_from: quota.tokens.map(|(_, from)| from),
            paused_ms: quota.paused.map(ms),
            asked_ms: quota.asked.map(ms),
            out: quota.out,
        }
    }
}

impl From<WorkerView> for WorkerBody {
    fn from(worker: WorkerView) -> Self {
        Self {
            name: worker.name,
            state: worker.state,
            in_flight: worker.in_flight,
            slots: worker.slots,
            tier: worker.tier,
            quota: worker.quota.map(QuotaBody::from),
        }
    }
}
