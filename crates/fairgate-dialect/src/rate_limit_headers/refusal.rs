//! Classifies a provider's refusal by its cause. The cause decides how the gateway can react.
//!
//! The cause is taken from codes and not from messages. A provider may quote the request in its message, and the sender
//! of the request must not be able to take a worker out of service with a quoted text. Only a few messages decide the
//! cause, and only if they match from their first character.
//!
//! Google writes "You exceeded your current quota, please check your plan and billing details" when a limit per minute
//! is reached. OpenAI writes the same text when the credit is spent. Only the codes distinguish the two.

use std::time::Duration;

use http::StatusCode;

use super::error_message::{self, ErrorMessageNumbers};
use super::provider_error::ProviderErrorBody;
use super::{
    EpochMicros, LimitUnit, LimitWindow, RateLimit, RateLimitHeaders, later, read_rate_limits,
};

/// The cause of an upstream's refusal, and with it the gateway's possible reaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProviderRefusal {
    /// A rate limit was reached. The request can be sent again after a wait.
    Rate {
        /// The unit that the limit counts; `None` if it is not stated.
        counted: Option<LimitUnit>,
        /// The time span over which the limit counts; `None` if it is not stated.
        window: Option<LimitWindow>,
        /// Number of requests or tokens allowed per window; `None` if it is not stated.
        limit: Option<u64>,
        /// Time to wait that the provider stated. If it stated none, this is the time until the exhausted limit is full
        /// again; `None` if that time is unknown too.
        retry_after: Option<Duration>,
    },
    /// The request alone is larger than the whole limit. Waiting never helps, so the client must send a smaller
    /// request.
    TooLargeForLimit {
        /// The unit that the limit counts; `None` if it is unknown.
        counted: Option<LimitUnit>,
        /// Number of tokens or requests that the limit allows; `None` if it is not stated.
        limit: Option<u64>,
        /// Number of tokens that the provider counted for the request; `None` if it is not stated.
        requested: Option<u64>,
    },
    /// The account has no money or no quota left. Waiting does not help until someone pays or a new month begins.
    Spent {
        /// The provider's code, such as `insufficient_quota`.
        reason: String,
    },
    /// The provider does not accept the account or its key.
    Blocked {
        /// The provider's code, such as `account_deactivated`.
        reason: String,
    },
    /// The provider is overloaded. The account's own limits are not the cause.
    Overloaded {
        /// Time to wait that the provider stated; `None` if it stated none.
        retry_after: Option<Duration>,
    },
    /// Any other error, most likely about the request itself.
    Other,
}

/// Codes for an account without money or quota.
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
    // This code must be last, because OpenAI sends it as the type beside a more exact code.
    "insufficient_quota",
];

/// Beginnings of messages that Anthropic sends with status 400 and without a code of their own, each with the code that
/// is used here instead.
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

/// Classifies an answer with an error status. `headers` is the result of [`read_rate_limits`] for the answer's headers.
/// Limits and ignored values that only the body names are added to `headers`. A body larger than 64 KiB is not read.
pub fn classify_refusal(
    status: StatusCode,
    body: &[u8],
    headers: &mut RateLimitHeaders,
    now: EpochMicros,
) -> ProviderRefusal {
    if !status.is_client_error() && !status.is_server_error() {
        return ProviderRefusal::Other;
    }
    let complaint = ProviderErrorBody::read(body);
    let in_body = complaint.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
    headers.add(read_rate_limits(in_body, now));
    let phrase = error_message::read(&complaint.message);
    if let Some((value, bad)) = &phrase.absurd {
        headers.note_ignored("body", value.as_bytes(), bad.0);
    }
    if let Some(refusal) = account(status, &complaint) {
        return refusal;
    }
    let wait = later(later(complaint.wait, phrase.wait), headers.retry_after);
    match status.as_u16() {
        429 if complaint.code(&OVERLOADED).is_some() => {
            ProviderRefusal::Overloaded { retry_after: wait }
        }
        413 | 429 if too_large(&complaint, &phrase) => ProviderRefusal::TooLargeForLimit {
            counted: phrase.counted,
            limit: phrase.limit,
            requested: phrase.requested,
        },
        429 => rate(&complaint, &phrase, wait, headers),
        529 => ProviderRefusal::Overloaded { retry_after: wait },
        498 | 503 if wait.is_some() || complaint.code(&OVERLOADED).is_some() => {
            ProviderRefusal::Overloaded { retry_after: wait }
        }
        503 if complaint.code(&["unavailable"]).is_some() => {
            ProviderRefusal::Overloaded { retry_after: wait }
        }
        _ => ProviderRefusal::Other,
    }
}

/// Returns the refusal if it concerns the account itself and not the account's rates; otherwise `None`.
fn account(status: StatusCode, complaint: &ProviderErrorBody) -> Option<ProviderRefusal> {
    if !status.is_client_error() {
        return None;
    }
    // Another Fairgate sends this code while requests in flight have reserved the tokens, which they release later.
    let passing = complaint.code(&["budget_reserved"]).is_some();
    let spent = complaint.code(&SPENT).filter(|_| !passing).or_else(|| {
        let begins = |(sentence, _): &&(&str, _)| complaint.message.starts_with(sentence);
        SPENT_SENTENCES.iter().find(begins).map(|(_, reason)| *reason)
    });
    if let Some(reason) = spent {
        return Some(ProviderRefusal::Spent { reason: reason.to_owned() });
    }
    if let Some(reason) = complaint.code(&BLOCKED) {
        return Some(ProviderRefusal::Blocked { reason: reason.to_owned() });
    }
    let named = |otherwise: &str| complaint.name().unwrap_or(otherwise).to_owned();
    match status.as_u16() {
        401 => Some(ProviderRefusal::Blocked { reason: named("unauthorized") }),
        402 => Some(ProviderRefusal::Spent { reason: named("payment_required") }),
        _ => None,
    }
}

/// Returns true if one request needs more than the limit ever allows. OpenAI reports this with 429, Groq with 413.
fn too_large(complaint: &ProviderErrorBody, phrase: &ErrorMessageNumbers) -> bool {
    match (phrase.requested, phrase.limit) {
        (Some(requested), Some(limit)) => requested > limit,
        _ => {
            complaint.message.starts_with("Request too large")
                && complaint.code(&["rate_limit_exceeded"]).is_some()
        }
    }
}

fn rate(
    complaint: &ProviderErrorBody,
    phrase: &ErrorMessageNumbers,
    wait: Option<Duration>,
    headers: &mut RateLimitHeaders,
) -> ProviderRefusal {
    let quota = complaint.quota;
    let by_type = complaint.code(&["tokens", "requests"]).map(|kind| match kind {
        "tokens" => LimitUnit::Tokens,
        _ => LimitUnit::Requests,
    });
    let named = phrase.counted.or(quota.and_then(|quota| quota.counted)).or(by_type);
    let empty = headers
        .limits
        .iter()
        .filter(|limit| limit.remaining == Some(0))
        .filter(|limit| named.is_none_or(|named| named == limit.counted));
    // Of the exhausted limits, the limit with the longest window admits a request last.
    let empty = empty.max_by_key(|limit| (limit.window, limit.reset_after)).copied();
    let counted = named.or(empty.map(|limit| limit.counted));
    let window = quota.and_then(|quota| quota.window).or(phrase.window);
    let window = window.or(empty.and_then(|limit| limit.window));
    let limit = phrase.limit.filter(|limit| *limit > 0);
    let limit = limit.or(quota.and_then(|quota| quota.limit));
    if let (Some(counted), Some(limit)) = (counted, limit) {
        let remaining = phrase.used.map(|used| limit.saturating_sub(used));
        headers.add_limit(RateLimit {
            counted,
            window,
            limit: Some(limit),
            remaining,
            reset_after: None,
        });
    }
    ProviderRefusal::Rate {
        counted,
        window,
        limit: limit.or(empty.and_then(|limit| limit.limit)),
        retry_after: wait.or(empty.and_then(|limit| limit.reset_after)),
    }
}

impl RateLimitHeaders {
    /// Adds the limits from headers that the body of an error repeats.
    fn add(&mut self, other: RateLimitHeaders) {
        self.retry_after = later(self.retry_after, other.retry_after);
        other.limits.into_iter().for_each(|limit| self.add_limit(limit));
        let room = super::IGNORED_MAX.saturating_sub(self.ignored.len());
        self.ignored.extend(other.ignored.into_iter().take(room));
    }

    /// Adds a limit, unless a limit of the same unit and window is already known.
    fn add_limit(&mut self, limit: RateLimit) {
        let same = |known: &RateLimit| {
            let windows = known.window.zip(limit.window);
            known.counted == limit.counted && windows.is_none_or(|(one, other)| one == other)
        };
        if !self.limits.iter().any(same) {
            self.limits.push(limit);
        }
    }
}
