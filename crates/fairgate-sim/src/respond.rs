//! Handles a request to a model: parses it, waits for a slot, and sends the response.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, HeaderValue};
use hyper::{HeaderMap, Request, Response, StatusCode};
use serde_json::json;
use tokio::time::Instant;

use crate::answer::{InputTokens, SimAnswer, SimUsage};
use crate::answer_sender::AnswerSender;
use crate::backend::BackendState;
use crate::body::SimBody;
use crate::connection::ConnectionControl;
use crate::error_response::{ApiDialect, SimErrorResponse};
use crate::fault::SimFault;
use crate::in_flight::SimInFlight;
use crate::limit_headers;
use crate::options::SimOptions;
use crate::prompt::SteeringOptions;
use crate::request::SimRequest;
use crate::route::SimRoute;
use crate::stats::SimOutcome;
use crate::wire;

/// Answers a request to one of the model's routes.
pub(crate) async fn respond(
    backend: &Arc<BackendState>,
    fate: Arc<ConnectionControl>,
    route: SimRoute,
    path: &'static str,
    request: Request<Incoming>,
) -> Response<SimBody> {
    let flight = SimInFlight::begin(backend, route, path, request.headers());
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
        ApiDialect::OpenAi => "x-request-id",
        ApiDialect::Anthropic => "request-id",
    };
    if let Ok(id) = HeaderValue::try_from(format!("req_{id}")) {
        response.headers_mut().insert(name, id);
    }
    response
}

/// A request whose prompt was prefilled and whose answer may begin.
struct AdmittedRequest {
    flight: SimInFlight,
    request: SimRequest,
    input: InputTokens,
    fault: Option<SimFault>,
    /// Headers in which the account states its limits; empty if the backend has no account.
    stated: HeaderMap,
}

async fn admit(
    mut flight: SimInFlight,
    route: SimRoute,
    request: Request<Incoming>,
) -> Result<AdmittedRequest, SimErrorResponse> {
    match prepare(&mut flight, route, request).await {
        Ok((request, input, fault, stated)) => {
            Ok(AdmittedRequest { flight, request, input, fault, stated })
        }
        Err(refusal) => {
            flight.end(SimOutcome::Refused(refusal.status.as_u16()));
            Err(refusal)
        }
    }
}

async fn prepare(
    flight: &mut SimInFlight,
    route: SimRoute,
    request: Request<Incoming>,
) -> Result<(SimRequest, InputTokens, Option<SimFault>, HeaderMap), SimErrorResponse> {
    let backend = Arc::clone(&flight.backend);
    let options = &backend.options;
    let (parts, body) = request.into_parts();
    check_key(&parts.headers, options)?;
    let steering_options = steering_headers(&parts.headers, options)?;
    let mut request =
        SimRequest::read(route, &read_body(body, options.body_bytes_max).await?, options)?;
    for prompt in &mut request.prompts {
        prompt.steering_options = steering_options.or(prompt.steering_options);
    }
    let steered_fault = request.prompts.iter().find_map(|prompt| prompt.steering_options.fault);
    let fault = steered_fault.or_else(|| backend.take_fault());
    flight.set_request(&request, fault);
    if let Some(SimFault::Status { code, retry_after_seconds }) = fault {
        return Err(simulated_fault(code).retry_after(retry_after_seconds));
    }
    if route == SimRoute::CountTokens {
        flight.skip_slot();
        return Ok((request, InputTokens::default(), fault, HeaderMap::new()));
    }
    let stated = charge(flight, route, &request, &parts.headers)?;
    flight.take_slot().await?;
    if let Some(SimFault::SlowStatus { code, after }) = fault {
        tokio::time::sleep(after).await;
        return Err(simulated_fault(code));
    }
    let input = backend.input(&request);
    flight.prefill(input).await;
    Ok((request, input, fault, stated))
}

fn simulated_fault(code: u16) -> SimErrorResponse {
    let status = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    SimErrorResponse::new(status, "The simulated backend was told to fail.").code("simulated_fault")
}

/// Charges the input tokens and the greatest number of output tokens of each choice to the account,
/// if there is one. Returns the headers that state the account's limits.
fn charge(
    flight: &mut SimInFlight,
    route: SimRoute,
    request: &SimRequest,
    headers: &HeaderMap,
) -> Result<HeaderMap, SimErrorResponse> {
    let options = &flight.backend.options;
    let Some(account) = options.account.clone() else { return Ok(HeaderMap::new()) };
    let each = match route {
        SimRoute::Embeddings | SimRoute::CountTokens => 0,
        _ => request.output_tokens_max.unwrap_or(account.options.output_tokens_assumed),
    };
    let output = request.choices().saturating_mul(each);
    let tokens = request.input_tokens(options).saturating_add(output);
    let (decided, standing) = account.admit(keys(headers).next(), tokens, Instant::now());
    let dialect = route.dialect();
    match decided {
        Ok(charge) => {
            flight.set_charge(charge);
            Ok(limit_headers::headers(&account, standing, dialect))
        }
        Err(shortage) => Err(limit_headers::refusal(
            &account,
            shortage,
            standing,
            tokens,
            &request.model,
            dialect,
        )),
    }
}

/// Iterates over the keys of a request, from `Authorization: Bearer …` and `x-api-key`.
fn keys(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    let bearer = headers.get(AUTHORIZATION).and_then(|value| {
        let (scheme, key) = value.as_bytes().split_at_checked(7)?;
        scheme.eq_ignore_ascii_case(b"bearer ").then_some(key)
    });
    let plain = headers.get("x-api-key").map(HeaderValue::as_bytes);
    [bearer, plain].into_iter().flatten()
}

/// Fails with 401 if the backend requires an API key and the request does not have it.
pub(crate) fn check_key(headers: &HeaderMap, options: &SimOptions) -> Result<(), SimErrorResponse> {
    let Some(key) = &options.api_key else { return Ok(()) };
    if keys(headers).any(|given| key.matches(given)) {
        return Ok(());
    }
    let message =
        "The API key is missing or wrong. Send it as `Authorization: Bearer …` or `x-api-key`.";
    Err(SimErrorResponse::new(StatusCode::UNAUTHORIZED, message).code("invalid_api_key"))
}

fn steering_headers(
    headers: &HeaderMap,
    options: &SimOptions,
) -> Result<SteeringOptions, SimErrorResponse> {
    let text = |name| headers.get(name).map(|value: &HeaderValue| value.to_str().unwrap_or("?"));
    if !options.steering {
        return Ok(SteeringOptions::default());
    }
    let fault = text("x-sim-fault").map(str::parse::<SimFault>).transpose();
    let tokens = text("x-sim-tokens").map(str::parse).transpose();
    Ok(SteeringOptions {
        fault: fault.map_err(|error| SimErrorResponse::field("x-sim-fault", error.to_string()))?,
        tokens: tokens.map_err(|_| {
            SimErrorResponse::field(
                "x-sim-tokens",
                "`x-sim-tokens` must be a whole number of tokens.",
            )
        })?,
    })
}

pub(crate) async fn read_body(body: Incoming, bytes_max: usize) -> Result<Bytes, SimErrorResponse> {
    match Limited::new(body, bytes_max).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            let message = format!("The body is larger than {bytes_max} bytes.");
            Err(SimErrorResponse::new(StatusCode::PAYLOAD_TOO_LARGE, message))
        }
        Err(_) => {
            Err(SimErrorResponse::new(StatusCode::BAD_REQUEST, "The body did not arrive whole."))
        }
    }
}

impl AdmittedRequest {
    async fn respond(self, fate: Arc<ConnectionControl>, route: SimRoute) -> Response<SimBody> {
        let Self { mut flight, request, input, fault, .. } = self;
        match fault {
            Some(SimFault::HangBefore) => {
                flight.backend.wait_ending().await;
                fate.close();
                return std::future::pending().await;
            }
            Some(SimFault::ResetBefore) => {
                flight.end(SimOutcome::Broken);
                fate.reset();
                return std::future::pending().await;
            }
            _ => {}
        }
        let options = &flight.backend.options;
        let answer = Arc::new(SimAnswer::new(flight.id(), &request, input, fault, options));
        let Some(answer_format) = wire::answer_format(route, &request, &answer) else {
            let whole = match route {
                SimRoute::Embeddings => {
                    wire::embeddings(&request, &SimUsage { output: 0, ..answer.usage }).to_string()
                }
                _ => json!({"input_tokens": request.input_tokens(options)}).to_string(),
            };
            return AnswerSender { flight, fate, fault }.whole(whole);
        };
        if request.stream {
            return AnswerSender { flight, fate, fault }.stream(answer, answer_format);
        }
        let whole = match fault {
            // An endless answer has no end to wait for.
            Some(SimFault::Endless) => String::new(),
            _ => {
                flight.generate_hidden(&answer).await;
                flight.generate_whole(&answer).await;
                answer_format.whole(&answer).to_string()
            }
        };
        AnswerSender { flight, fate, fault }.whole(whole)
    }
}
