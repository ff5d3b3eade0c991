//! HTTP client of the gateway for agents and operators. Each call opens its own connection.

use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::failed;
use crate::client::MODELS;
use crate::error::ProveError;

/// Address of the gateway, and its admin token.
#[derive(Clone)]
pub(super) struct GatewayApiClient {
    address: SocketAddr,
    admin: String,
}

impl GatewayApiClient {
    pub(super) fn new(address: SocketAddr, admin: String) -> Self {
        Self { address, admin }
    }

    pub(super) async fn admin_get(&self, path: &str) -> Result<Value, ProveError> {
        let (status, answer) = self.ask(Method::GET, path, &self.admin, None).await?;
        good(path, status, answer)
    }

    pub(super) async fn admin_post(&self, path: &str, body: &Value) -> Result<Value, ProveError> {
        let (status, answer) = self.ask(Method::POST, path, &self.admin, Some(body)).await?;
        good(path, status, answer)
    }

    /// Sends a POST with an agent's token, and returns the response's status and body.
    pub(super) async fn post(
        &self,
        path: &str,
        token: &str,
        body: &Value,
    ) -> Result<(u16, Value), ProveError> {
        self.ask(Method::POST, path, token, Some(body)).await
    }

    /// Sends a chat completion with a task key, and returns the response's status and body.
    pub(super) async fn chat(
        &self,
        key: &str,
        prompt: &str,
        max_tokens: u64,
    ) -> Result<(u16, Value), ProveError> {
        let body = json!({
            "model": MODELS[0],
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": max_tokens,
        });
        self.ask(Method::POST, "/v1/chat/completions", key, Some(&body)).await
    }

    async fn ask(
        &self,
        method: Method,
        path: &str,
        token: &str,
        body: Option<&Value>,
    ) -> Result<(u16, Value), ProveError> {
        let wrong = |error: &dyn ToString| failed(&format!("{path}: {}", error.to_string()));
        let stream = TcpStream::connect(self.address).await.map_err(|error| wrong(&error))?;
        stream.set_nodelay(true).map_err(|error| wrong(&error))?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| wrong(&error))?;
        let driver = tokio::spawn(async { drop(connection.await) });
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, self.address.to_string())
            .header(AUTHORIZATION, format!("Bearer {token}"))
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body.map(Value::to_string).unwrap_or_default())))
            .map_err(|error| wrong(&error))?;
        let response = sender.send_request(request).await.map_err(|error| wrong(&error))?;
        let status = response.status().as_u16();
        let bytes = response.into_body().collect().await.map_err(|error| wrong(&error))?.to_bytes();
        driver.abort();
        Ok((status, serde_json::from_slice(&bytes).unwrap_or(Value::Null)))
    }
}

fn good(path: &str, status: u16, answer: Value) -> Result<Value, ProveError> {
    if (200..300).contains(&status) {
        Ok(answer)
    } else {
        Err(failed(&format!("{path}: {status} {answer}")))
    }
}
