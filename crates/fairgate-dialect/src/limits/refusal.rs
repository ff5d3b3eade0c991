//! Why a provider refused a request: whose fault it is, and what helps.
//!
//! Codes decide, not sentences: a provider may quote the request in its message, and whoever sent that request must not be able to
//! take a worker out of service. The few sentences that decide stand at the very beginning of a message.
//!
//! Google says "You exceeded your current quota, please check your plan and billing details" of a limit per minute,
//! and OpenAI of spent credit. Only the codes tell the two apart.

use std::time::Duration;

use http::StatusCode;

use super::complaint::Complaint;
use super::phrase::{self, Phrase};
use super::{Counted, Limit, Told, UnixMicros, Window, later, told};

/// Why an upstream refused, and what the gateway can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A rate limit: wait, then send it again.
    Rate {
        /// What the limit counts; `None` where nothing says it.
        counted: Option<Counted>,
        /// The time over which it counts.
        window: Option<Window>,
        /// How many it allows in that time.
        limit: Option<u64>,
        /// How long to wait. Where no wait was stated, the time until the empty limit is full again; `None` where nothing
        /// says that either.
        retry_after: Option<Duration>,
    },
    /// This one request is larger than the whole limit. Waiting never helps: the client must send less.
    TooLargeForLimit {
        /// What the limit counts.
        counted: Option<Counted>,
        /// How many it allows.
        limit: Option<u64>,
        /// How many the provider took the request for.
        requested: Option<u64>,
    },
    /// The account has no money or no quota left. Waiting does not help until somebody pays or a month begins.
    Spent {
        /// The provider's code, such as `insufficient_quota`.
        reason: String,
    },
    /// The account or its key is not accepted.
    Blocked {
        /// The provider's code, such as `account_deactivated`.
        reason: String,
    },
    /// The provider has too much to do. The account's own limits are not the reason.
    Overloaded {
        /// How long to wait; `None` where nothing says it.
        retry_after: Option<Duration>,
    },
    /// Something else, most likely about the request itself.
    Other,
}

/// Money or a quota of money is gone.
const SPENT: [&str; 16] = [
    "credit_balance_exhausted",
    "credit_balance_too_low",
    "organization_spend_limit_exceeded",
    "project_spend_limit_exceeded",
    "organization_usage_limit_exceeded",
    "enforced_spend_limit_reached",
    "billing_hard_limit_reached",
    "billing_not_active",
    "billing_disabled",
    "billing_error",
    "insufficient_credits",
    "insufficient_balance",
    "insufficient_funds",
    "payment_required",
    "budget_exhausted",
    // The last, because OpenAI sends it as the type beside a more exact code.
    "insufficient_quota",
];

/// Anthropic has no code for these two; both come with status 400.
const SPENT_SENTENCES: [(&str, &str); 3] = [
    ("Your credit balance is too low", "credit_balance_too_low"),
    ("You have reached your specified API usage limits", "spend_limit_reached"),
    ("You have reached your specified workspace API usage limits", "spend_limit_reached"),
];

const BLOCKED: [&str; 12] = [
    "account_deactivated",
    "account_suspended",
    "access_terminated",
    "organization_deactivated",
    "invalid_api_key",
    "api_key_invalid",
    "api_key_expired",
    "key_revoked",
    "ip_not_authorized",
    "unsupported_country_region_territory",
    "consumer_suspended",
    "service_disabled",
];

const OVERLOADED: [&str; 10] = [
    "overloaded_error",
    "overloaded",
    "server_is_overloaded",
    "engine_overloaded",
    "engine_overloaded_error",
    "model_overloaded",
    "slow_down",
    "capacity_exceeded",
    "service_tier_capacity_exceeded",
    "nocapacity",
];

/// Reads an answer with an error status: `headers` is what [`told`] made of its headers. Limits and absurd values that only
/// the body names are added to `headers`. Reads at most 64 KiB of body; a larger one is left alone.
pub fn refusal(status: StatusCode, body: &[u8], headers: &mut Told, now: UnixMicros) -> Refusal {
    if !status.is_client_error() && !status.is_server_error() {
        return Refusal::Other;
    }
    let complaint = Complaint::read(body);
    let in_body = complaint.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
    headers.add(told(in_body, now));
    let phrase = phrase::read(&complaint.message);
    if let Some((value, bad)) = &phrase.absurd {
        headers.doubt("body", value.as_bytes(), bad.0);
    }
    if let Some(refusal) = account(status, &complaint) {
        return refusal;
    }
    let wait = later(later(complaint.wait, phrase.wait), headers.retry_after);
    match status.as_u16() {
        429 if complaint.code(&OVERLOADED).is_some() => Refusal::Overloaded { retry_after: wait },
        413 | 429 if too_large(&complaint, &phrase) => Refusal::TooLargeForLimit {
            counted: phrase.counted,
            limit: phrase.limit,
            requested: phrase.requested,
        },
        429 => rate(&complaint, &phrase, wait, headers),
        529 => Refusal::Overloaded { retry_after: wait },
        498 | 503 if wait.is_some() || complaint.code(&OVERLOADED).is_some() => {
            Refusal::Overloaded { retry_after: wait }
        }
        503 if complaint.code(&["unavailable"]).is_some() => {
            Refusal::Overloaded { retry_after: wait }
        }
        _ => Refusal::Other,
    }
}

/// What concerns the account and not its rates.
fn account(status: StatusCode, complaint: &Complaint) -> Option<Refusal> {
    if !status.is_client_error() {
        return None;
    }
    // Another Fairgate: tokens are set aside by requests in flight, and come back.
    let passing = complaint.code(&["budget_reserved"]).is_some();
    let spent = complaint.code(&SPENT).filter(|_| !passing).or_else(|| {
        let begins = |(sentence, _): &&(&str, _)| complaint.message.starts_with(sentence);
        SPENT_SENTENCES.iter().find(begins).map(|(_, reason)| *reason)
    });
    if let Some(reason) = spent {
        return Some(Refusal::Spent { reason: reason.to_owned() });
    }
    if let Some(reason) = complaint.code(&BLOCKED) {
        return Some(Refusal::Blocked { reason: reason.to_owned() });
    }
    let named = |otherwise: &str| complaint.name().unwrap_or(otherwise).to_owned();
    match status.as_u16() {
        401 => Some(Refusal::Blocked { reason: named("unauthorized") }),
        402 => Some(Refusal::Spent { reason: named("payment_required") }),
        _ => None,
    }
}

/// Whether one request asks for more than the limit ever allows. OpenAI says so with 429, Groq with 413.
fn too_large(complaint: &Complaint, phrase: &Phrase) -> bool {
    match (phrase.requested, phrase.limit) {
        (Some(requested), Some(limit)) => requested > limit,
        _ => {
            complaint.message.starts_with("Request too large")
                && complaint.code(&["rate_limit_exceeded"]).is_some()
        }
    }
}

fn rate(
    complaint: &Complaint,
    phrase: &Phrase,
    wait: Option<Duration>,
    headers: &mut Told,
) -> Refusal {
    let quota = complaint.quota;
    let by_type = complaint.code(&["tokens", "requests"]).map(|kind| match kind {
        "tokens" => Counted::Tokens,
        _ => Counted::Requests,
    });
    let named = phrase.counted.or(quota.and_then(|quota| quota.counted)).or(by_type);
    let empty = headers
        .limits
        .iter()
        .filter(|limit| limit.remaining == Some(0))
        .filter(|limit| named.is_none_or(|named| named == limit.counted));
    // The one over the longest time is the last to admit anything.
    let empty = empty.max_by_key(|limit| (limit.window, limit.reset_after)).copied();
    let counted = named.or(empty.map(|limit| limit.counted));
    let window = quota.and_then(|quota| quota.window).or(phrase.window);
    let window = window.or(empty.and_then(|limit| limit.window));
    let limit = phrase.limit.filter(|limit| *limit > 0);
    let limit = limit.or(quota.and_then(|quota| quota.limit));
    if let (Some(counted), Some(limit)) = (counted, limit) {
        let remaining = phrase.used.map(|used| limit.saturating_sub(used));
        headers.learn(Limit { counted, window, limit: Some(limit), remaining, reset_after: None });
    }
    Refusal::Rate {
        counted,
        window,
        limit: limit.or(empty.and_then(|limit| limit.limit)),
        retry_after: wait.or(empty.and_then(|limit| limit.reset_after)),
    }
}

impl Told {
    /// Takes over what a body repeats of other headers.
    fn add(&mut self, other: Told) {
        self.retry_after = later(self.retry_after, other.retry_after);
        other.limits.into_iter().for_each(|limit| self.learn(limit));
        let room = super::ABSURD_MAX.saturating_sub(self.absurd.len());
        self.absurd.extend(other.absurd.into_iter().take(room));
    }

    /// Adds a limit that no header named.
    fn learn(&mut self, limit: Limit) {
        let same = |known: &Limit| {
            let windows = known.window.zip(limit.window);
            known.counted == limit.counted && windows.is_none_or(|(one, other)| one == other)
        };
        if !self.limits.iter().any(same) {
            self.limits.push(limit);
        }
    }
}
