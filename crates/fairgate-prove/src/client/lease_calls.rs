//! The calls of a client that leases slots: it submits a lease, holds the slot as if it called a
//! provider, and reports the result.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, Request, StatusCode};
use serde_json::{Value, json};

use super::{ClientConnection, ProveClient};
use crate::evidence::AnswerEnd;
use crate::scenario::ScenarioLeaseReport;

/// Path of the lease API.
const LEASES: &str = "/v1/leases";
/// Longest time for which the gateway may delay the response to one request about a queued lease, in milliseconds.
const WAIT_MS: u64 = 5000;

impl ProveClient {
    /// Takes one lease from its submission to its settlement.
    pub(super) async fn lease(
        &self,
        connection: &mut ClientConnection,
        (held, report): (Duration, ScenarioLeaseReport),
        id: &mut Option<String>,
    ) -> AnswerEnd {
        let (input, output) = (self.pattern.prompt_tokens, self.pattern.output_tokens.0);
        let cost = match report {
            ScenarioLeaseReport::Used => input + output,
            ScenarioLeaseReport::NothingAndLowLimits => 1,
        };
        let submission = json!({"cost": cost, "wait_ms": WAIT_MS});
        let mut answer = self.ask_gateway(connection, Method::POST, LEASES, &submission).await;
        let lease = loop {
            let body = match answer {
                Ok(body) => body,
                Err(end) => return end,
            };
            let Some(lease) = body["id"].as_str().map(str::to_owned) else {
                return broken("a lease without an id".into());
            };
            *id = Some(lease.clone());
            match body["state"].as_str() {
                Some("granted") => break lease,
                Some("queued") => {}
                state => return broken(format!("a lease that is {state:?}")),
            }
            let path = format!("{LEASES}/{lease}?wait_ms={WAIT_MS}");
            answer = self.ask_gateway(connection, Method::GET, &path, &Value::Null).await;
        };
        tokio::time::sleep(held).await;
        let (settlement, end) = match report {
            ScenarioLeaseReport::Used => (
                json!({"input_tokens": input, "output_tokens": output}),
                AnswerEnd::Completed { input, output },
            ),
            ScenarioLeaseReport::NothingAndLowLimits => {
                let headers = json!({
                    "x-ratelimit-limit-requests": "1",
                    "x-ratelimit-remaining-requests": "0",
                    "x-ratelimit-reset-requests": "60s",
                });
                (
                    json!({"tokens": 0, "status": 200, "headers": headers}),
                    AnswerEnd::Completed { input: 0, output: 0 },
                )
            }
        };
        let path = format!("{LEASES}/{lease}/settle");
        match self.ask_gateway(connection, Method::POST, &path, &settlement).await {
            Ok(_) => end,
            Err(end) => end,
        }
    }

    /// Returns the JSON of a response with status 200. For any other response, the error is the result that the client
    /// records for the lease.
    async fn ask_gateway(
        &self,
        connection: &mut ClientConnection,
        method: Method,
        path: &str,
        body: &Value,
    ) -> Result<Value, AnswerEnd> {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, self.gateway.to_string())
            .header(AUTHORIZATION, &self.credential)
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| broken(error.to_string()))?;
        let response = connection.send(request).await.map_err(|error| broken(error.to_string()))?;
        if response.status() != StatusCode::OK {
            return Err(super::read_error(response).await);
        }
        let body = response.into_body().collect().await;
        let body = body.map_err(|error| broken(error.to_string()))?.to_bytes();
        serde_json::from_slice(&body).map_err(|error| broken(error.to_string()))
    }
}

fn broken(how: String) -> AnswerEnd {
    AnswerEnd::Broken { how }
}
