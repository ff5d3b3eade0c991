//! What goes over the wire about leases, in JSON.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use fairgate_dialect::Usage;
use fairgate_store::UsageSource;
use http::StatusCode;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::super::bill::Stated;
use super::super::passage::Charge;
use super::super::provider::Heard;
use super::lease::{Lease, Over, Report, State};
use crate::refusal::{self, Refusal};

/// More than any call uses: a number beyond is a mistake.
const TOKENS_MAX: u64 = 1_000_000_000;
/// The longest name, in bytes, and the longest name of a model.
const NAME_BYTES_MAX: usize = 128;
const MODEL_BYTES_MAX: usize = 256;

/// What a client asks for.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = LeaseSubmission)]
pub(super) struct Submission {
    /// The pool; the only one that leases where absent.
    #[schema(value_type = Option<String>)]
    pub(super) pool: Option<Box<str>>,
    /// What the client calls the lease: repeated, it is the same lease.
    #[schema(value_type = Option<String>)]
    pub(super) id: Option<Box<str>>,
    /// What the client program calls itself: it can ask for the news of all its leases at once.
    #[schema(value_type = Option<String>)]
    pub(super) client: Option<Box<str>>,
    /// Whose call it is, where the pool's policy shares by agent.
    #[schema(value_type = Option<String>)]
    pub(super) agent: Option<Box<str>>,
    /// The session of the call, where the pool's policy shares by session.
    #[schema(value_type = Option<String>)]
    pub(super) session: Option<Box<str>>,
    /// The class of the call, where its key may choose one.
    #[schema(value_type = Option<String>)]
    pub(super) class: Option<Box<str>>,
    /// Higher goes first within its flow; 0 where absent.
    pub(super) priority: i64,
    /// For the ledger, prices and the key's list of models.
    pub(super) model: Option<String>,
    /// What it is expected to be charged, in weighted tokens.
    pub(super) cost: Option<u64>,
    /// The tokens of input that it is expected to use.
    pub(super) input_tokens: Option<u64>,
    /// The tokens of output that it is expected to use.
    pub(super) output_tokens: Option<u64>,
    /// How long to wait for the grant before this is answered, in milliseconds; at most half of the lease's life.
    pub(super) wait_ms: u64,
}

impl Submission {
    pub(super) fn read(bytes: &Bytes) -> Result<Self, Refusal> {
        let read: Self = parsed(bytes)?;
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
        Ok(read)
    }
}

/// How a call ended. Where it says nothing of tokens, the estimate is charged.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = LeaseSettlement)]
pub(super) struct Settlement {
    /// What it is charged, in weighted tokens; by the pool's weights where absent. 0 of a completed call is charged 0.
    tokens: Option<u64>,
    /// The tokens of input that it used.
    input_tokens: Option<u64>,
    /// How many of these its provider had in its cache.
    cached_tokens: Option<u64>,
    /// The tokens of output that it used.
    output_tokens: Option<u64>,
    outcome: Outcome,
    /// The HTTP status of the provider's answer, where the client has seen it.
    status: Option<u16>,
    /// The body of an answer that was an error.
    body: String,
    /// The answer's headers, of which those about limits are read.
    headers: BTreeMap<String, String>,
}

/// Whether a call did what it was made for. One that failed is charged at least what its time in the slot is worth.
#[derive(Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = LeaseOutcome)]
pub(super) enum Outcome {
    #[default]
    Completed,
    Failed,
}

/// An answer in which a provider says that it has not taken a call on.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = LeaseLimited)]
pub(super) struct Limited {
    /// The HTTP status of the provider's answer.
    status: u16,
    /// The answer's headers, of which those about limits are read.
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default)]
    body: String,
}

/// A lease, as its client is told of it.
#[derive(Debug, Default, Serialize, ToSchema)]
#[schema(as = Lease)]
pub(super) struct LeaseBody {
    /// The gateway's id of it.
    id: String,
    /// What its client calls it.
    #[serde(skip_serializing_if = "Option::is_none")]
    own_id: Option<String>,
    pool: String,
    /// How long it lives without being renewed, in milliseconds.
    ttl_ms: u64,
    state: LeaseState,
    /// How many grants come before its own, where it is queued and that was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    place: Option<Option<u64>>,
    /// Which grant of it this is: 1 before its provider has refused it.
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt: Option<u32>,
    /// How long it was queued, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    waited_ms: Option<u64>,
    /// What its tenant was charged, in weighted tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    charged: Option<u64>,
    /// What it took of budgets in tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    provider_tokens: Option<u64>,
    /// What it cost, in millionths of the installation's currency.
    #[serde(skip_serializing_if = "Option::is_none")]
    money_micro_units: Option<u64>,
    /// Why it was refused, in the news of a client program.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<LeaseRefusal>,
}

/// Where a lease is. What is refused or lost is an error where one lease is asked about, and stands in the news of its client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum LeaseState {
    #[default]
    Queued,
    Granted,
    Settled,
    Cancelled,
    Lost,
    Refused,
}

/// Why a lease was refused.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct LeaseRefusal {
    /// The HTTP status that goes with it.
    status: u16,
    /// Its stable code.
    code: &'static str,
    message: String,
    /// After how many milliseconds to try again, where that is known.
    retry_after_ms: Option<u64>,
}

/// An error in the form that the clients of OpenAI know.
#[derive(ToSchema)]
#[schema(as = DialectError)]
#[expect(dead_code, reason = "it describes in the OpenAPI document what the dialect writes")]
pub(super) struct ErrorInDialect {
    error: ErrorFields,
}

/// What is wrong.
#[derive(ToSchema)]
#[schema(as = DialectErrorFields)]
#[expect(dead_code, reason = "it describes in the OpenAPI document what the dialect writes")]
struct ErrorFields {
    message: String,
    r#type: String,
    /// The field that it is about, where it is about one.
    param: Option<String>,
    /// The stable code.
    code: String,
}

/// The leases of a client program that have changed.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct LeaseNews {
    pub(super) leases: Vec<LeaseBody>,
    /// The number of the last change among them: the `after` of the next question.
    pub(super) latest: u64,
}

/// Reads how a call ended.
pub(super) fn report(bytes: &Bytes) -> Result<Report, Refusal> {
    let read: Settlement = if bytes.is_empty() { Settlement::default() } else { parsed(bytes)? };
    let Settlement { tokens: charged, input_tokens, cached_tokens, output_tokens, .. } = read;
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
        // Of a total nobody knows which tokens it was.
        let output = output_tokens.or(charged.filter(|_| !is_counted)).unwrap_or(0);
        let usage = Usage { input, cached, output };
        Stated { usage, charged, source: UsageSource::Reported }
    });
    let status = status(read.status.unwrap_or(200))?;
    let has_answered = read.status.is_some() || !read.headers.is_empty();
    let heard = has_answered.then(|| Box::new(heard(status, &read.headers, &read.body)));
    Ok(Report { stated, succeeded: matches!(read.outcome, Outcome::Completed), heard })
}

/// Reads what a provider said that has not taken a call on.
pub(super) fn limited(bytes: &Bytes) -> Result<Box<Heard>, Refusal> {
    let Limited { status, headers, body } = parsed(bytes)?;
    let status = self::status(status)?;
    let heard = heard(status, &headers, &body);
    match heard.said {
        fairgate_dialect::limits::Refusal::Other => Err(refusal::not_a_limit()),
        _ => Ok(Box::new(heard)),
    }
}

fn status(number: u16) -> Result<StatusCode, Refusal> {
    let bad = |_| refusal::bad_lease("status", "must be an HTTP status such as 429");
    StatusCode::from_u16(number).map_err(bad)
}

fn heard(status: StatusCode, headers: &BTreeMap<String, String>, body: &str) -> Heard {
    let names: Vec<String> = headers.keys().map(|name| name.to_ascii_lowercase()).collect();
    let pairs = names.iter().map(String::as_str).zip(headers.values().map(String::as_bytes));
    Heard::read(status, pairs, body.as_bytes())
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

/// The name of a client program: it stands in a query.
pub(super) fn client(text: &str) -> Result<(), Refusal> {
    let words = "must be 1 to 64 letters, digits, -, _ and ., and start with a letter or digit";
    fairgate_config::check_name(text).map_err(|_| refusal::bad_lease("client", words))
}

/// What a client is told of a lease. `place`: how many grants come before its own, where that was asked.
pub(super) fn shown(lease: &Lease, state: &State, place: Option<u64>) -> LeaseBody {
    let mut shown = LeaseBody {
        id: lease.id.to_string(),
        own_id: lease.own_id.as_deref().map(str::to_owned),
        pool: lease.pool.to_string(),
        ttl_ms: millis(lease.ttl),
        ..LeaseBody::default()
    };
    match state {
        State::Opening | State::Queued => shown.place = Some(place),
        State::Granted { attempt, waited } => {
            shown.attempt = Some(*attempt);
            shown.waited_ms = Some(millis(*waited));
            shown.state = LeaseState::Granted;
        }
        State::Over(over) => match &**over {
            Over::Settled(charge) => shown.charged(LeaseState::Settled, charge),
            Over::Cancelled(charge) => shown.charged(LeaseState::Cancelled, charge),
            Over::Lost(charge) => shown.charged(LeaseState::Lost, charge),
            Over::Refused(refusal) => {
                shown.error = Some(LeaseRefusal {
                    status: refusal.problem.status.as_u16(),
                    code: refusal.problem.code,
                    message: refusal.problem.message.to_string(),
                    retry_after_ms: refusal.retry_after.map(millis),
                });
                shown.state = LeaseState::Refused;
            }
        },
    }
    shown
}

impl LeaseBody {
    fn charged(&mut self, state: LeaseState, charge: &Charge) {
        self.charged = Some(charge.charged);
        self.provider_tokens = Some(charge.provider_tokens);
        self.money_micro_units = Some(charge.money.0);
        self.state = state;
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn code<T>(read: Result<T, Refusal>) -> Result<T, &'static str> {
        read.map_err(|refusal| refusal.problem.code)
    }

    #[test]
    fn what_a_call_used_is_read_in_every_way_it_can_be_said() {
        let stated = |body: &'static str| {
            let report = code(report(&Bytes::from_static(body.as_bytes())))?;
            Ok(report.stated.map(|stated| (stated.usage, stated.charged)))
        };
        let usage = |input, cached, output| Usage { input, cached, output };
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
        assert_eq!(heard.told.retry_after, Some(Duration::from_secs(2)));
        assert_eq!(limited(r#"{"status": 400}"#).err(), Some("not_a_limit"));
        assert_eq!(limited(r#"{"status": 42}"#).err(), Some("invalid_lease"));
        assert_eq!(limited("{}").err(), Some("invalid_lease"));
    }

    #[test]
    fn names_and_numbers_are_bounded() {
        let read = |body: String| code(Submission::read(&Bytes::from(body))).map(drop);
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
