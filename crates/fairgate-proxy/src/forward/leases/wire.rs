//! Reads and checks the requests of the lease API, and builds its responses.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use fairgate_api::WeightNumber;
use fairgate_api::leases::{
    LeaseBody, LeaseLimitedBody, LeaseOutcome, LeaseRefusal, LeaseSettlementBody, LeaseState,
    LeaseSubmissionBody,
};
use fairgate_dialect::TokenUsage;
use fairgate_store::{DEADLINE_MS_MAX, UsageSource};
use http::StatusCode;
use serde::de::DeserializeOwned;

use super::super::attempt_charge::StatedUsage;
use super::super::provider::LeaseProviderResponse;
use super::super::request_guard::RequestCharge;
use super::lease::{LeaseHandle, LeaseReport, LeaseResult, LeaseStatus};
use crate::refusal::{self, Refusal};

/// The highest token count that a client may state. No call uses more, so a higher number is a mistake.
const TOKENS_MAX: u64 = 1_000_000_000;
/// Maximum length of a name in a lease, such as that of its agent or class, in bytes.
const NAME_BYTES_MAX: usize = 128;
/// Maximum length of the name of a model in a lease, in bytes.
const MODEL_BYTES_MAX: usize = 256;

/// Parses and checks a submission.
pub(super) fn submission(bytes: &Bytes) -> Result<LeaseSubmissionBody, Refusal> {
    let read: LeaseSubmissionBody = parsed(bytes)?;
    let names = [
        ("pool", &read.pool),
        ("id", &read.id),
        ("agent", &read.agent),
        ("session", &read.session),
        ("class", &read.class),
    ];
    for (field, text) in names {
        text.as_deref().map_or(Ok(()), |text| name(field, text, NAME_BYTES_MAX))?;
    }
    read.model.as_deref().map_or(Ok(()), |text| name("model", text, MODEL_BYTES_MAX))?;
    read.client.as_deref().map_or(Ok(()), client)?;
    tokens("cost", read.cost)?;
    tokens("input_tokens", read.input_tokens)?;
    tokens("output_tokens", read.output_tokens)?;
    if read.deadline_ms.is_some_and(|millis| !(1..=DEADLINE_MS_MAX).contains(&millis)) {
        let problem = format!("must be 1 to {DEADLINE_MS_MAX} milliseconds");
        return Err(refusal::bad_lease("deadline_ms", &problem));
    }
    Ok(read)
}

/// Parses the report of a call's end. An empty body means a completed call without token counts.
pub(super) fn report(bytes: &Bytes) -> Result<LeaseReport, Refusal> {
    let read: LeaseSettlementBody =
        if bytes.is_empty() { LeaseSettlementBody::default() } else { parsed(bytes)? };
    let LeaseSettlementBody { tokens: charged, input_tokens, cached_tokens, output_tokens, .. } =
        read;
    for (field, number) in [
        ("tokens", charged),
        ("input_tokens", input_tokens),
        ("cached_tokens", cached_tokens),
        ("output_tokens", output_tokens),
    ] {
        tokens(field, number)?;
    }
    let (input, cached) = (input_tokens.unwrap_or(0), cached_tokens.unwrap_or(0));
    if cached > input {
        return Err(refusal::bad_lease("cached_tokens", "cannot be more than input_tokens"));
    }
    let is_counted = input_tokens.is_some() || output_tokens.is_some();
    let stated = (charged.is_some() || is_counted).then(|| {
        // A total does not say which tokens were input; all of them count as output.
        let output = output_tokens.or(charged.filter(|_| !is_counted)).unwrap_or(0);
        let usage = TokenUsage { input, cached, output };
        StatedUsage { usage, charged, source: UsageSource::Reported }
    });
    let status = status(read.status.unwrap_or(200))?;
    let has_answered = read.status.is_some() || !read.headers.is_empty();
    let heard =
        has_answered.then(|| Box::new(provider_response(status, &read.headers, &read.body)));
    Ok(LeaseReport {
        stated,
        succeeded: matches!(read.outcome, LeaseOutcome::Completed),
        provider_response: heard,
    })
}

/// Parses the report of a provider's refusal. Fails if the response is not about a limit.
pub(super) fn limited(bytes: &Bytes) -> Result<Box<LeaseProviderResponse>, Refusal> {
    let LeaseLimitedBody { status, headers, body } = parsed(bytes)?;
    let status = self::status(status)?;
    let heard = provider_response(status, &headers, &body);
    match heard.refusal {
        fairgate_dialect::rate_limit_headers::ProviderRefusal::Other => Err(refusal::not_a_limit()),
        _ => Ok(Box::new(heard)),
    }
}

fn status(number: u16) -> Result<StatusCode, Refusal> {
    let bad = |_| refusal::bad_lease("status", "must be an HTTP status such as 429");
    StatusCode::from_u16(number).map_err(bad)
}

fn provider_response(
    status: StatusCode,
    headers: &BTreeMap<String, String>,
    body: &str,
) -> LeaseProviderResponse {
    let names: Vec<String> = headers.keys().map(|name| name.to_ascii_lowercase()).collect();
    let pairs = names.iter().map(String::as_str).zip(headers.values().map(String::as_bytes));
    LeaseProviderResponse::read(status, pairs, body.as_bytes())
}

fn parsed<T: DeserializeOwned>(bytes: &Bytes) -> Result<T, Refusal> {
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let read = serde_path_to_error::deserialize(&mut json);
    let read = read.map_err(|error| refusal::unread_lease(&error.to_string()))?;
    json.end().map_err(|error| refusal::unread_lease(&error.to_string()))?;
    Ok(read)
}

fn tokens(field: &'static str, number: Option<u64>) -> Result<(), Refusal> {
    match number {
        Some(number) if number > TOKENS_MAX => {
            Err(refusal::bad_lease(field, "must be at most 1000000000 tokens"))
        }
        _ => Ok(()),
    }
}

fn name(field: &'static str, text: &str, bytes_max: usize) -> Result<(), Refusal> {
    let fits = !text.is_empty() && text.len() <= bytes_max && !text.chars().any(char::is_control);
    match fits {
        true => Ok(()),
        false if bytes_max == NAME_BYTES_MAX => {
            Err(refusal::bad_lease(field, "must be 1 to 128 bytes without control characters"))
        }
        false => {
            Err(refusal::bad_lease(field, "must be 1 to 256 bytes without control characters"))
        }
    }
}

/// Checks the name of a client program. The name is also a query parameter, so few characters are
/// allowed.
pub(super) fn client(text: &str) -> Result<(), Refusal> {
    let words = "must be 1 to 64 letters, digits, -, _ and ., and start with a letter or digit";
    fairgate_config::check_name(text).map_err(|_| refusal::bad_lease("client", words))
}

/// Returns the JSON body of a lease. `expected_wait_ms` is shown only while the lease is queued.
pub(super) fn lease_body(
    lease: &LeaseHandle,
    state: &LeaseStatus,
    expected_wait_ms: Option<u64>,
) -> LeaseBody {
    let mut shown = LeaseBody {
        id: lease.id.to_string(),
        own_id: lease.own_id.as_deref().map(str::to_owned),
        pool: lease.pool.to_string(),
        ttl_ms: millis(lease.ttl),
        weight: lease.weight().map(|weight| {
            weight.and_then(|weight| WeightNumber::from_thousandths(weight.thousandths().into()))
        }),
        ..LeaseBody::default()
    };
    match state {
        LeaseStatus::Opening | LeaseStatus::Queued => {
            shown.expected_wait_ms = Some(expected_wait_ms)
        }
        LeaseStatus::Granted { attempt, waited } => {
            shown.attempt = Some(*attempt);
            shown.waited_ms = Some(millis(*waited));
            shown.state = LeaseState::Granted;
        }
        LeaseStatus::Over(over) => match &**over {
            LeaseResult::Settled(charge) => set_charge(&mut shown, LeaseState::Settled, charge),
            LeaseResult::Cancelled(charge) => set_charge(&mut shown, LeaseState::Cancelled, charge),
            LeaseResult::Lost(charge) => set_charge(&mut shown, LeaseState::Lost, charge),
            LeaseResult::Refused(refusal) => {
                shown.error = Some(LeaseRefusal {
                    status: refusal.problem.status.as_u16(),
                    code: refusal.code.as_str().to_owned(),
                    message: refusal.problem.message.to_string(),
                    retry_after_ms: refusal.retry_after.map(millis),
                });
                shown.state = LeaseState::Refused;
            }
        },
    }
    shown
}

fn set_charge(shown: &mut LeaseBody, state: LeaseState, charge: &RequestCharge) {
    shown.charged = Some(charge.charged);
    shown.provider_tokens = Some(charge.provider_tokens);
    shown.money_micro_units = Some(charge.money.0);
    shown.state = state;
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn code<T>(read: Result<T, Refusal>) -> Result<T, &'static str> {
        read.map_err(|refusal| refusal.code.as_str())
    }

    #[test]
    fn what_a_call_used_is_read_in_every_way_it_can_be_said() {
        let stated = |body: &'static str| {
            let report = code(report(&Bytes::from_static(body.as_bytes())))?;
            Ok(report.stated.map(|stated| (stated.usage, stated.charged)))
        };
        let usage = |input, cached, output| TokenUsage { input, cached, output };
        assert_eq!(stated(""), Ok(None));
        assert_eq!(stated("{}"), Ok(None));
        assert_eq!(stated(r#"{"tokens": 7}"#), Ok(Some((usage(0, 0, 7), Some(7)))));
        assert_eq!(
            stated(r#"{"input_tokens": 5, "cached_tokens": 2, "output_tokens": 3}"#),
            Ok(Some((usage(5, 2, 3), None)))
        );
        assert_eq!(
            stated(r#"{"tokens": 9, "input_tokens": 5}"#),
            Ok(Some((usage(5, 0, 0), Some(9))))
        );
        assert_eq!(stated(r#"{"tokens": 1000000001}"#), Err("invalid_lease"));
        assert_eq!(stated(r#"{"tokens": -1}"#), Err("invalid_lease"));
        assert_eq!(stated(r#"{"cached_tokens": 1}"#), Err("invalid_lease"));
        assert_eq!(stated(r#"{"token": 1}"#), Err("invalid_lease"));
    }

    #[test]
    fn only_a_providers_limit_is_one() {
        let limited = |body: &'static str| code(limited(&Bytes::from_static(body.as_bytes())));
        let heard = limited(r#"{"status": 429, "headers": {"Retry-After": "2"}}"#).unwrap();
        assert_eq!(heard.rate_limits.retry_after, Some(Duration::from_secs(2)));
        assert_eq!(limited(r#"{"status": 400}"#).err(), Some("not_a_limit"));
        assert_eq!(limited(r#"{"status": 42}"#).err(), Some("invalid_lease"));
        assert_eq!(limited("{}").err(), Some("invalid_lease"));
    }

    #[test]
    fn names_and_numbers_are_bounded() {
        let read = |body: String| code(submission(&Bytes::from(body))).map(drop);
        assert_eq!(read("{}".into()), Ok(()));
        assert_eq!(read(json!({"agent": "ü".repeat(64), "model": "m"}).to_string()), Ok(()));
        for field in ["pool", "id", "agent", "session", "class", "client", "model"] {
            for text in [String::new(), "\n".into(), "x".repeat(300)] {
                let body = json!({ field: text });
                assert_eq!(read(body.to_string()), Err("invalid_lease"), "{body}");
            }
        }
        assert_eq!(read(r#"{"cost": 1000000001}"#.into()), Err("invalid_lease"));
        assert_eq!(read(r#"{"costs": 1}"#.into()), Err("invalid_lease"));
    }
}
