//! Routes each request to the handler of its path.

use std::sync::Arc;

use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use serde_json::{Value, json};

use crate::backend::BackendState;
use crate::body::SimBody;
use crate::connection::ConnectionControl;
use crate::error_response::{ApiDialect, SimErrorResponse, json_response};
use crate::fault::InjectedFaults;
use crate::options::SimMode;
use crate::respond::{check_key, read_body, respond};
use crate::route::SimRoute;
use crate::{metrics, trivial, wire};

const STEERING_BYTES_MAX: usize = 1024;

/// Answers one HTTP request of a connection, on any path.
pub(crate) async fn serve(
    backend: Arc<BackendState>,
    fate: Arc<ConnectionControl>,
    request: Request<Incoming>,
) -> Response<SimBody> {
    let path = request.uri().path();
    let get = request.method() == Method::GET;
    if let Some((route, path)) = SimRoute::of(path) {
        return match (request.method() == Method::POST, backend.options.mode) {
            (true, SimMode::Model) => respond(&backend, fate, route, path, request).await,
            (true, SimMode::Trivial(trivial)) => trivial::respond(&backend, trivial, request).await,
            (false, _) => wrong_method("POST").into_response(route.dialect()),
        };
    }
    let response = match path {
        "/health" if get => Ok(health(&backend)),
        "/metrics" if get => Ok(metrics(&backend)),
        "/v1/models" if get => {
            check_key(request.headers(), &backend.options).map(|()| models(&backend))
        }
        "/sim/stats" if get && backend.options.steering => {
            Ok(json_response(StatusCode::OK, &stats(&backend)))
        }
        "/sim/fault" if request.method() == Method::PUT && backend.options.steering => {
            set_fault(&backend, request).await
        }
        "/health" | "/metrics" | "/v1/models" => Err(wrong_method("GET")),
        _ => Err(SimErrorResponse::new(StatusCode::NOT_FOUND, "There is no such path here.")),
    };
    response.unwrap_or_else(|refusal| refusal.into_response(ApiDialect::OpenAi))
}

fn wrong_method(allowed: &'static str) -> SimErrorResponse {
    let message = format!("This path takes {allowed} only.");
    SimErrorResponse::new(StatusCode::METHOD_NOT_ALLOWED, message).allow(allowed)
}

fn health(backend: &BackendState) -> Response<SimBody> {
    match backend.is_healthy() {
        true => json_response(StatusCode::OK, &json!({"status": "ok"})),
        false => json_response(StatusCode::SERVICE_UNAVAILABLE, &json!({"status": "unhealthy"})),
    }
}

fn metrics(backend: &BackendState) -> Response<SimBody> {
    let mut response = Response::new(SimBody::whole(metrics::text(backend)));
    let content_type = HeaderValue::from_static(metrics::CONTENT_TYPE);
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

fn stats(backend: &BackendState) -> Value {
    let mut stats = backend.stats().to_json();
    if let Some(account) = &backend.options.account {
        stats["account"] = account.counts().to_json();
    }
    stats
}

fn models(backend: &BackendState) -> Response<SimBody> {
    json_response(StatusCode::OK, &wire::models(&backend.options.models))
}

/// Handles `PUT /sim/fault`, whose body is the text form of a fault, or `none`.
async fn set_fault(
    backend: &BackendState,
    request: Request<Incoming>,
) -> Result<Response<SimBody>, SimErrorResponse> {
    let body = read_body(request.into_body(), STEERING_BYTES_MAX).await?;
    let text = String::from_utf8_lossy(&body);
    let mischief = match text.trim() {
        "none" => InjectedFaults::None,
        fault => {
            InjectedFaults::Always(fault.parse().map_err(|error: crate::UnknownFaultError| {
                SimErrorResponse::new(StatusCode::BAD_REQUEST, error.to_string())
            })?)
        }
    };
    backend.set_injected_faults(mischief);
    Ok(json_response(StatusCode::OK, &json!({"fault": text.trim()})))
}
