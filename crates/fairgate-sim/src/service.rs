//! Which path leads where.

use std::sync::Arc;

use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use serde_json::{Value, json};

use crate::ask::Route;
use crate::backend::Backend;
use crate::body::Body;
use crate::connection::Fate;
use crate::dialect::{Dialect, Refusal, json_response};
use crate::fault::Mischief;
use crate::options::Mode;
use crate::respond::{check_key, read_body, respond};
use crate::{metrics, trivial, wire};

const STEERING_BYTES_MAX: usize = 1024;

/// Answers any request.
pub(crate) async fn serve(
    backend: Arc<Backend>,
    fate: Arc<Fate>,
    request: Request<Incoming>,
) -> Response<Body> {
    let path = request.uri().path();
    let get = request.method() == Method::GET;
    if let Some((route, path)) = Route::of(path) {
        return match (request.method() == Method::POST, backend.options.mode) {
            (true, Mode::Model) => respond(&backend, fate, route, path, request).await,
            (true, Mode::Trivial(trivial)) => trivial::respond(&backend, trivial, request).await,
            (false, _) => wrong_method("POST").into_response(route.dialect()),
        };
    }
    let told = match path {
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
        _ => Err(Refusal::new(StatusCode::NOT_FOUND, "There is no such path here.")),
    };
    told.unwrap_or_else(|refusal| refusal.into_response(Dialect::OpenAi))
}

fn wrong_method(allowed: &'static str) -> Refusal {
    let message = format!("This path takes {allowed} only.");
    Refusal::new(StatusCode::METHOD_NOT_ALLOWED, message).allow(allowed)
}

fn health(backend: &Backend) -> Response<Body> {
    match backend.healthy() {
        true => json_response(StatusCode::OK, &json!({"status": "ok"})),
        false => json_response(StatusCode::SERVICE_UNAVAILABLE, &json!({"status": "unhealthy"})),
    }
}

fn metrics(backend: &Backend) -> Response<Body> {
    let mut response = Response::new(Body::whole(metrics::text(backend)));
    let content_type = HeaderValue::from_static(metrics::CONTENT_TYPE);
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

fn stats(backend: &Backend) -> Value {
    let mut told = backend.stats().to_json();
    if let Some(account) = &backend.options.account {
        told["account"] = account.counts().to_json();
    }
    told
}

fn models(backend: &Backend) -> Response<Body> {
    json_response(StatusCode::OK, &wire::models(&backend.options.models))
}

/// `PUT /sim/fault` with a fault's text, or `none`.
async fn set_fault(
    backend: &Backend,
    request: Request<Incoming>,
) -> Result<Response<Body>, Refusal> {
    let body = read_body(request.into_body(), STEERING_BYTES_MAX).await?;
    let text = String::from_utf8_lossy(&body);
    let mischief = match text.trim() {
        "none" => Mischief::None,
        fault => Mischief::Always(fault.parse().map_err(|error: crate::UnknownFault| {
            Refusal::new(StatusCode::BAD_REQUEST, error.to_string())
        })?),
    };
    backend.set_mischief(mischief);
    Ok(json_response(StatusCode::OK, &json!({"fault": text.trim()})))
}
