//! From a request to its response: read, wait, work, tell.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, HeaderValue};
use hyper::{HeaderMap, Request, Response, StatusCode};
use serde_json::json;
use tokio::time::Instant;

use crate::answer::{Answer, Input, Usage};
use crate::ask::{Ask, Route};
use crate::backend::Backend;
use crate::body::Body;
use crate::connection::Fate;
use crate::dialect::{Dialect, Refusal};
use crate::fault::Fault;
use crate::flight::Flight;
use crate::options::SimOptions;
use crate::prompt::Wishes;
use crate::statement;
use crate::stats::Outcome;
use crate::telling::Telling;
use crate::wire;

/// Answers a request to one of the model's routes.
pub(crate) async fn respond(
    backend: &Arc<Backend>,
    fate: Arc<Fate>,
    route: Route,
    path: &'static str,
    request: Request<Incoming>,
) -> Response<Body> {
    let flight = Flight::begin(backend, route, path, request.headers());
    let id = flight.id();
    let mut response = match admit(flight, route, request).await {
        Ok(mut admitted) => {
            let stated = std::mem::take(&mut admitted.stated);
            let mut response = admitted.respond(fate, route).await;
            response.headers_mut().extend(stated);
            response
        }
        Err(refusal) => refusal.into_response(route.dialect()),
    };
    let name = match route.dialect() {
        Dialect::OpenAi => "x-request-id",
        Dialect::Anthropic => "request-id",
    };
    if let Ok(id) = HeaderValue::try_from(format!("req_{id}")) {
        response.headers_mut().insert(name, id);
    }
    response
}

/// A request whose prompt was worked through and whose answer may begin.
struct Admitted {
    flight: Flight,
    ask: Ask,
    input: Input,
    fault: Option<Fault>,
    /// What its account says about its limits.
    stated: HeaderMap,
}

async fn admit(
    mut flight: Flight,
    route: Route,
    request: Request<Incoming>,
) -> Result<Admitted, Refusal> {
    match prepare(&mut flight, route, request).await {
        Ok((ask, input, fault, stated)) => Ok(Admitted { flight, ask, input, fault, stated }),
        Err(refusal) => {
            flight.end(Outcome::Refused(refusal.status.as_u16()));
            Err(refusal)
        }
    }
}

async fn prepare(
    flight: &mut Flight,
    route: Route,
    request: Request<Incoming>,
) -> Result<(Ask, Input, Option<Fault>, HeaderMap), Refusal> {
    let backend = Arc::clone(&flight.backend);
    let options = &backend.options;
    let (parts, body) = request.into_parts();
    check_key(&parts.headers, options)?;
    let wishes = header_wishes(&parts.headers, options)?;
    let mut ask = Ask::read(route, &read_body(body, options.body_bytes_max).await?, options)?;
    for prompt in &mut ask.prompts {
        prompt.wishes = wishes.or(prompt.wishes);
    }
    let wished = ask.prompts.iter().find_map(|prompt| prompt.wishes.fault);
    let fault = wished.or_else(|| backend.take_fault());
    flight.understood(&ask, fault);
    if let Some(Fault::Status { code, retry_after_seconds }) = fault {
        return Err(told_to_fail(code).retry_after(retry_after_seconds));
    }
    if route == Route::CountTokens {
        flight.skip_slot();
        return Ok((ask, Input::default(), fault, HeaderMap::new()));
    }
    let stated = charge(flight, route, &ask, &parts.headers)?;
    flight.take_slot().await?;
    if let Some(Fault::SlowStatus { code, after }) = fault {
        tokio::time::sleep(after).await;
        return Err(told_to_fail(code));
    }
    let input = backend.input(&ask);
    flight.prefill(input).await;
    Ok((ask, input, fault, stated))
}

fn told_to_fail(code: u16) -> Refusal {
    let status = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    Refusal::new(status, "The simulated backend was told to fail.").code("simulated_fault")
}

/// Charges the account, if there is one: input tokens, and for each choice as many output tokens as it may have.
fn charge(
    flight: &mut Flight,
    route: Route,
    ask: &Ask,
    headers: &HeaderMap,
) -> Result<HeaderMap, Refusal> {
    let options = &flight.backend.options;
    let Some(account) = options.account.clone() else { return Ok(HeaderMap::new()) };
    let each = match route {
        Route::Embeddings | Route::CountTokens => 0,
        _ => ask.output_tokens_max.unwrap_or(account.options.output_tokens_assumed),
    };
    let output = ask.choices().saturating_mul(each);
    let tokens = ask.input_tokens(options).saturating_add(output);
    let (decided, standing) = account.admit(keys(headers).next(), tokens, Instant::now());
    let dialect = route.dialect();
    match decided {
        Ok(charge) => {
            flight.charged(charge);
            Ok(statement::headers(&account, standing, dialect))
        }
        Err(shortage) => {
            Err(statement::refusal(&account, shortage, standing, tokens, &ask.model, dialect))
        }
    }
}

/// The keys that a request carries, as `Authorization: Bearer …` and as `x-api-key`.
fn keys(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    let bearer = headers.get(AUTHORIZATION).and_then(|value| {
        let (scheme, key) = value.as_bytes().split_at_checked(7)?;
        scheme.eq_ignore_ascii_case(b"bearer ").then_some(key)
    });
    let plain = headers.get("x-api-key").map(HeaderValue::as_bytes);
    [bearer, plain].into_iter().flatten()
}

/// Refuses a request without the key that the backend wants.
pub(crate) fn check_key(headers: &HeaderMap, options: &SimOptions) -> Result<(), Refusal> {
    let Some(key) = &options.api_key else { return Ok(()) };
    if keys(headers).any(|given| key.is(given)) {
        return Ok(());
    }
    let message =
        "The API key is missing or wrong. Send it as `Authorization: Bearer …` or `x-api-key`.";
    Err(Refusal::new(StatusCode::UNAUTHORIZED, message).code("invalid_api_key"))
}

fn header_wishes(headers: &HeaderMap, options: &SimOptions) -> Result<Wishes, Refusal> {
    let text = |name| headers.get(name).map(|value: &HeaderValue| value.to_str().unwrap_or("?"));
    if !options.steering {
        return Ok(Wishes::default());
    }
    let fault = text("x-sim-fault").map(str::parse::<Fault>).transpose();
    let tokens = text("x-sim-tokens").map(str::parse).transpose();
    Ok(Wishes {
        fault: fault.map_err(|error| Refusal::field("x-sim-fault", error.to_string()))?,
        tokens: tokens.map_err(|_| {
            Refusal::field("x-sim-tokens", "`x-sim-tokens` must be a whole number of tokens.")
        })?,
    })
}

pub(crate) async fn read_body(body: Incoming, bytes_max: usize) -> Result<Bytes, Refusal> {
    match Limited::new(body, bytes_max).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            let message = format!("The body is larger than {bytes_max} bytes.");
            Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, message))
        }
        Err(_) => Err(Refusal::new(StatusCode::BAD_REQUEST, "The body did not arrive whole.")),
    }
}

impl Admitted {
    async fn respond(self, fate: Arc<Fate>, route: Route) -> Response<Body> {
        let Self { mut flight, ask, input, fault, .. } = self;
        match fault {
            Some(Fault::HangBefore) => {
                flight.backend.ending().await;
                fate.close();
                return std::future::pending().await;
            }
            Some(Fault::ResetBefore) => {
                flight.end(Outcome::Broken);
                fate.reset();
                return std::future::pending().await;
            }
            _ => {}
        }
        let options = &flight.backend.options;
        let answer = Arc::new(Answer::new(flight.id(), &ask, input, fault, options));
        let Some(voice) = wire::voice(route, &ask, &answer) else {
            let whole = match route {
                Route::Embeddings => {
                    wire::embeddings(&ask, &Usage { output: 0, ..answer.usage }).to_string()
                }
                _ => json!({"input_tokens": ask.input_tokens(options)}).to_string(),
            };
            return Telling { flight, fate, fault }.whole(whole);
        };
        if ask.stream {
            return Telling { flight, fate, fault }.stream(answer, voice);
        }
        let whole = match fault {
            // There is no end to wait for.
            Some(Fault::Endless) => String::new(),
            _ => {
                flight.think(&answer).await;
                flight.decode_silently(&answer).await;
                voice.whole(&answer).to_string()
            }
        };
        Telling { flight, fate, fault }.whole(whole)
    }
}
