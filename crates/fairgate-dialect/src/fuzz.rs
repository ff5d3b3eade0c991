//! Entry points of the fuzz targets and the property tests. A failed check panics.

use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::body_changes::refuses_max_tokens;
use crate::rate_limit_headers::{
    self, COUNT_MAX, EpochMicros, ProviderRefusal, RateLimitHeaders, SPAN_MAX,
};
use crate::{
    BodyChanges, BodyFraming, InvalidRequestCode, MeasuredUsage, RequestFields, Route, TokenUsage,
    UsageMeter,
};

/// Names of the fields that a change may touch.
const CHANGEABLE: [&str; 7] = [
    "model",
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "stream_options",
    "min_tokens",
    "thinking",
];

/// Reads any bytes as a request and checks the result. The first three bytes choose a route, the changes and the cap,
/// and the rest is the body.
pub fn ask(data: &[u8]) {
    let Some((&[route, changes, cap], body)) = data.split_first_chunk() else { return };
    let route = Route::ALL[usize::from(route) % Route::ALL.len()];
    let changes = BodyChanges {
        model: (changes & 1 != 0).then_some("up\"stream"),
        max_tokens: (changes & 2 != 0).then_some(u64::from(cap)),
        ask_usage: changes & 4 != 0,
        ..BodyChanges::default()
    };
    check_ask(route, body, changes);
}

/// Meters any bytes as an answer and checks the result. The first two bytes choose a route and a framing, the next two
/// choose the sizes of the chunks, and the rest is the answer's body.
pub fn meter(data: &[u8]) {
    let Some((&[route, framing, first, second], body)) = data.split_first_chunk() else { return };
    let route = Route::ALL[usize::from(route) % Route::ALL.len()];
    let hide = framing & 4 != 0;
    let framing =
        [BodyFraming::Sse, BodyFraming::Json, BodyFraming::Opaque][usize::from(framing & 3) % 3];
    let sizes = [usize::from(first) + 1, usize::from(second) + 1];
    check_meter(route, framing, hide, body, &sizes);
}

/// Reads any bytes as a provider's error and checks the result. The first two bytes are the status. Then come header
/// lines of the form `name: value`, an empty line, and the body.
pub fn limits(data: &[u8]) {
    let Some((status, rest)) = data.split_first_chunk() else { return };
    let status = 400 + u16::from_be_bytes(*status) % 200;
    let Ok(status) = StatusCode::from_u16(status) else { return };
    let (mut headers, mut body) = (Vec::new(), rest);
    while let Some(end) = body.iter().position(|&byte| byte == b'\n') {
        let (line, after) = (&body[..end], &body[end + 1..]);
        body = after;
        let Some(colon) = line.iter().position(|&byte| byte == b':') else { break };
        let Ok(name) = std::str::from_utf8(&line[..colon]) else { continue };
        headers.push((name, &line[colon + 1..]));
    }
    check_limits(status, &headers, body);
}

/// Checks that all values read from an answer stay within their bounds, whatever the answer contains.
pub fn check_limits(
    status: StatusCode,
    headers: &[(&str, &[u8])],
    body: &[u8],
) -> (RateLimitHeaders, ProviderRefusal) {
    // 2026-11-16T02:08:05Z.
    let now = EpochMicros(1_794_794_885_000_000);
    let mut told = rate_limit_headers::read_rate_limits(headers.iter().copied(), now);
    assert_eq!(
        told,
        rate_limit_headers::read_rate_limits(headers.iter().copied(), now),
        "read twice"
    );
    check_rate_limits(&told);
    let refusal = rate_limit_headers::classify_refusal(status, body, &mut told, now);
    check_rate_limits(&told);
    let (limit, wait) = match &refusal {
        ProviderRefusal::Rate { limit, retry_after, .. } => (*limit, *retry_after),
        ProviderRefusal::TooLargeForLimit { limit, requested, .. } => {
            assert!(requested.is_none_or(|requested| requested <= COUNT_MAX));
            (None, limit.map(|_| Duration::ZERO))
        }
        ProviderRefusal::Overloaded { retry_after } => (None, *retry_after),
        ProviderRefusal::Spent { reason } | ProviderRefusal::Blocked { reason } => {
            assert!((1..=64).contains(&reason.len()), "{reason}");
            (None, None)
        }
        ProviderRefusal::Other => (None, None),
    };
    assert!(limit.is_none_or(|limit| (1..=COUNT_MAX).contains(&limit)));
    assert!(wait.is_none_or(|wait| wait <= SPAN_MAX));
    (told, refusal)
}

fn check_rate_limits(told: &RateLimitHeaders) {
    assert!(told.retry_after.is_none_or(|wait| wait <= SPAN_MAX));
    assert!(told.ignored.len() <= 16);
    for limit in told.limits.iter().chain(told.requests()).chain(told.tokens()) {
        assert!(limit.limit.is_none_or(|limit| (1..=COUNT_MAX).contains(&limit)), "{limit:?}");
        let most = limit.limit.unwrap_or(COUNT_MAX);
        assert!(limit.remaining.is_none_or(|left| left <= most), "{limit:?}");
        assert!(limit.reset_after.is_none_or(|reset| reset <= SPAN_MAX), "{limit:?}");
        assert!(limit.per_minute().is_none_or(|rate| rate > 0), "{limit:?}");
    }
}

/// Checks that a body is accepted only if it is JSON, and that changes alter only the fields that they name.
pub fn check_ask(route: Route, body: &[u8], changes: BodyChanges<'_>) {
    let grammar = std::str::from_utf8(body)
        .is_ok_and(|text| serde_json::from_str::<IgnoredAny>(text).is_ok());
    let ask = match RequestFields::read(route, body) {
        Ok(ask) => ask,
        Err(bad) => {
            let readable = serde_json::from_slice::<Map<String, Value>>(body).is_ok();
            assert!(
                bad.code != InvalidRequestCode::InvalidJson || !readable,
                "refused a JSON object: {bad}"
            );
            return;
        }
    };
    assert!(grammar, "accepted what is no JSON");
    let text = Bytes::copy_from_slice(body);
    let changed = ask.changed(route, text.clone(), changes);
    if changed == text {
        assert_eq!(changed.as_ptr(), text.as_ptr(), "copied without need");
    }
    let again = RequestFields::read(route, &changed).expect("what was changed can be read");
    let untouched = ask.changed(route, text, BodyChanges::default());
    assert_eq!(untouched.len(), body.len());
    assert_eq!(again.changed(route, changed.clone(), changes), changed, "changed twice");
    // Numbers out of range and half surrogates are JSON, but have no value in `serde_json`.
    let Ok(before) = serde_json::from_slice::<Value>(body) else { return };
    assert_eq!(remainder(&changed, inserted(route, body, &changed)), remainder(body, 0));
    let after: Value = serde_json::from_slice(&changed).expect("still a value");
    assert_eq!(after, expected(route, before, changes));
}

/// Computes the body that these changes should produce, independently of the code under test.
fn expected(route: Route, mut body: Value, changes: BodyChanges<'_>) -> Value {
    if let Some(model) = changes.model {
        body["model"] = model.into();
    }
    let caps: &[&str] = match route {
        Route::ChatCompletions => &["max_tokens", "max_completion_tokens"],
        Route::Completions | Route::Messages => &["max_tokens"],
        Route::Responses => &["max_output_tokens"],
        Route::Embeddings | Route::CountTokens => &[],
    };
    let reasoning = body["model"].as_str().is_some_and(refuses_max_tokens);
    let fresh = if reasoning { caps.last() } else { caps.first() };
    let thinking = body["thinking"]["budget_tokens"].as_u64().filter(|_| route == Route::Messages);
    let least = thinking.map_or(0, |budget| (budget + u64::from(budget > 0)).min(1025));
    if let (Some(cap), Some(_)) = (changes.max_tokens.map(|cap| cap.max(least)), fresh) {
        if thinking.is_some_and(|budget| budget >= cap) {
            body["thinking"]["budget_tokens"] = cap.saturating_sub(1).into();
        }
        let least = body["min_tokens"]
            .as_u64()
            .filter(|_| matches!(route, Route::ChatCompletions | Route::Completions));
        if least.is_some_and(|least| least > cap) {
            body["min_tokens"] = cap.into();
        }
    }
    if let (Some(cap), Some(fresh)) = (changes.max_tokens.map(|cap| cap.max(least)), fresh) {
        let stated: Vec<_> = caps.iter().filter(|&name| body[name].is_u64()).collect();
        for &&name in &stated {
            body[name] = body[name].as_u64().map_or(cap, |allowed| allowed.min(cap)).into();
        }
        if stated.is_empty() {
            let null = caps.iter().find(|&&name| body.get(name).is_some());
            body[null.unwrap_or(fresh)] = cap.into();
        }
    }
    let on_demand = matches!(route, Route::ChatCompletions | Route::Completions);
    if changes.ask_usage && on_demand && body["stream"] == true {
        if !body["stream_options"].is_object() {
            body["stream_options"] = Value::Object(Map::new());
        }
        body["stream_options"]["include_usage"] = true.into();
    }
    body
}

/// Returns the number of bytes that the change inserted after the body's opening brace.
fn inserted(route: Route, body: &[u8], changed: &[u8]) -> usize {
    let (before, after) = (members(body), members(changed));
    let new = after.len() - before.len();
    let of = |members: &[(String, usize, usize)], name: &str| members.iter().any(|m| m.0 == name);
    let fresh = &after[..new];
    for (name, ..) in fresh {
        assert!(CHANGEABLE.contains(&&**name), "{name} was put in");
        assert!(!of(&before, name) || !matters(route, name), "{name} was put in twice");
    }
    let brace = changed.iter().position(|&byte| byte == b'{').map_or(0, |at| at + 1);
    // A comma follows each new member.
    fresh.last().map_or(0, |&(_, _, end)| end + 1 - brace)
}

fn matters(route: Route, name: &str) -> bool {
    match name {
        "max_tokens" => {
            matches!(route, Route::ChatCompletions | Route::Completions | Route::Messages)
        }
        "max_completion_tokens" => route == Route::ChatCompletions,
        "max_output_tokens" => route == Route::Responses,
        _ => true,
    }
}

/// Returns a body's text without its first `inserted` bytes after the opening brace and without the values of the
/// changeable fields.
fn remainder(text: &[u8], inserted: usize) -> Vec<u8> {
    let brace = text.iter().position(|&byte| byte == b'{').map_or(0, |at| at + 1);
    let mut rest = text[..brace].to_vec();
    let mut from = brace + inserted;
    for (name, start, end) in members(text) {
        if start >= from && CHANGEABLE.contains(&&*name) {
            rest.extend_from_slice(&text[from..start]);
            from = end;
        }
    }
    rest.extend_from_slice(&text[from..]);
    rest
}

/// Returns the members of a JSON object in order, each as its name and the start and end of its value.
fn members(text: &[u8]) -> Vec<(String, usize, usize)> {
    struct Members<'a>(Vec<(Value, &'a RawValue)>);
    impl<'de> serde::Deserialize<'de> for Members<'de> {
        fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            struct Visitor;
            impl<'de> serde::de::Visitor<'de> for Visitor {
                type Value = Members<'de>;
                fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    f.write_str("an object")
                }
                fn visit_map<A: serde::de::MapAccess<'de>>(
                    self,
                    mut map: A,
                ) -> Result<Self::Value, A::Error> {
                    let mut members = Vec::new();
                    while let Some(member) = map.next_entry()? {
                        members.push(member);
                    }
                    Ok(Members(members))
                }
            }
            deserializer.deserialize_map(Visitor)
        }
    }
    let Ok(Members(members)) = serde_json::from_slice(text) else { return Vec::new() };
    let base = text.as_ptr().addr();
    let place = |(name, value): (Value, &RawValue)| {
        let start = value.get().as_ptr().addr() - base;
        (name.as_str().unwrap_or_default().to_owned(), start, start + value.get().len())
    };
    members.into_iter().map(place).collect()
}

/// Checks that the chunk boundaries change neither the bytes that are forwarded nor the usage that is measured, and
/// that the usage so far never decreases.
pub fn check_meter(
    route: Route,
    framing: BodyFraming,
    hide: bool,
    body: &[u8],
    sizes: &[usize],
) -> MeasuredUsage {
    let whole = metered(route, framing, hide, body, &[body.len().max(1)]);
    let cut = metered(route, framing, hide, body, sizes);
    assert_eq!(cut, whole, "cut into pieces of {sizes:?}");
    let hides = hide && framing == BodyFraming::Sse && route.usage_on_demand();
    if hides {
        assert!(is_thinned(&whole.0, body), "more was taken out than events");
    } else {
        assert_eq!(whole.0, body, "something was taken out");
    }
    whole.1
}

/// Meters the body in chunks whose sizes are taken from the list in turn. Returns the bytes that the client gets, the
/// measured usage, and the number of chunks that were marked as the first token.
fn metered(
    route: Route,
    framing: BodyFraming,
    hide: bool,
    body: &[u8],
    sizes: &[usize],
) -> (Vec<u8>, MeasuredUsage, usize) {
    let mut meter = UsageMeter::new(route, framing, hide, 1000);
    let mut client = Vec::new();
    let mut rest = body;
    let mut used = TokenUsage::default();
    let (mut ends, mut firsts) = (0, 0);
    for &size in sizes.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (chunk, after) = rest.split_at(size.clamp(1, rest.len()));
        rest = after;
        let passed = meter.pass(Bytes::copy_from_slice(chunk));
        ends += usize::from(passed.terminal);
        firsts += usize::from(passed.first_token);
        assert!(passed.terminal || passed.end.is_empty(), "an end without a terminal event");
        passed.forward.iter().chain(&passed.end).for_each(|part| client.extend_from_slice(part));
        let so_far = meter.so_far();
        let grown = so_far.input >= used.input
            && so_far.cached >= used.cached
            && so_far.output >= used.output;
        assert!(grown, "{so_far:?} after {used:?}");
        used = so_far;
        let measured = meter.measured();
        assert!(passed.terminal <= (measured.complete || ends > 0));
        assert!(measured.usage.cached <= measured.usage.input);
    }
    assert!(ends <= 1 && firsts <= 1, "{ends} ends, {firsts} first tokens");
    let (left, measured) = meter.finish();
    left.iter().for_each(|part| client.extend_from_slice(part));
    assert_eq!(meter.finish(), (Vec::new(), measured), "finished twice");
    (client, measured, firsts)
}

/// Returns true if `thin` equals `full` with any number of bytes left out.
fn is_thinned(thin: &[u8], full: &[u8]) -> bool {
    let mut full = full.iter();
    thin.iter().all(|byte| full.any(|other| other == byte))
}
