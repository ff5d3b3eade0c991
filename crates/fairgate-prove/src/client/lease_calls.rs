//! The calls of a client that leases slots: it submits a lease, holds the slot as if it called a
//! provider, and reports the result.

use std::time::Duration;

use bytes::Bytes;
use fairgate_api::leases::{
    LEASES, LeaseBody, LeaseSettlementBody, LeaseState, LeaseSubmissionBody,
};
use http_body_util::{BodyExt, Full};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, Request, StatusCode};
use serde::Serialize;

use super::{ClientConnection, ProveClient};
use crate::evidence::AnswerEnd;
use crate::scenario::ScenarioLeaseReport;

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
        let submission =
            LeaseSubmissionBody { cost: Some(cost), wait_ms: WAIT_MS, ..Default::default() };
        let mut answer =
            self.ask_gateway(connection, Method::POST, LEASES, Some(&submission)).await;
        let lease = loop {
            let LeaseBody { id: lease, state, .. } = match answer {
                Ok(lease) => lease,
                Err(end) => return end,
            };
            *id = Some(lease.clone());
            match state {
                LeaseState::Granted => break lease,
                LeaseState::Queued => {}
                state => return broken(format!("a lease that is {state:?}")),
            }
            let path = format!("{LEASES}/{lease}?wait_ms={WAIT_MS}");
            answer = self.ask_gateway(connection, Method::GET, &path, None::<&()>).await;
        };
        tokio::time::sleep(held).await;
        let (settlement, end) = match report {
            ScenarioLeaseReport::Used => (
                LeaseSettlementBody {
                    input_tokens: Some(input),
                    output_tokens: Some(output),
                    ..Default::default()
                },
                AnswerEnd::Completed { input, output },
            ),
            ScenarioLeaseReport::NothingAndLowLimits => {
                let headers = [
                    ("x-ratelimit-limit-requests", "1"),
                    ("x-ratelimit-remaining-requests", "0"),
                    ("x-ratelimit-reset-requests", "60s"),
                ];
                let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned()));
                (
                    LeaseSettlementBody {
                        tokens: Some(0),
                        status: Some(200),
                        headers: headers.into(),
                        ..Default::default()
                    },
                    AnswerEnd::Completed { input: 0, output: 0 },
                )
            }
        };
        let path = format!("{LEASES}/{lease}/settle");
        match self.ask_gateway(connection, Method::POST, &path, Some(&settlement)).await {
            Ok(_) => end,
            Err(end) => end,
        }
    }

    /// Returns the lease of a response with status 200. For any other response, the error is the result that the client
    /// records for the lease.
    async fn ask_gateway(
        &self,
        connection: &mut ClientConnection,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<LeaseBody, AnswerEnd> {
        let body = body.map(serde_json::to_vec).transpose();
        let body = body.map_err(|error| broken(error.to_string()))?.unwrap_or_default();
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
