//! Requests of the gateway itself, which show whether an account of a provider serves a model.
//!
//! A probe must fail only because of the account or the model. It therefore has a fixed prompt, no tools, and the least
//! output that the API accepts. Of a client's request, it has only the model and the route.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::body_changes::cap_field;
use crate::route::Route;

/// Prompt of every probe.
const PROMPT: &str = "hi";
/// Greatest number of output tokens of a probe.
const TOKENS: u64 = 1;
/// Greatest number of output tokens of a probe through the Responses API, which refuses a lower limit.
const RESPONSES_TOKENS: u64 = 16;

/// A request that shows whether an account of a provider serves a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountProbe {
    /// Route of the probe.
    pub route: Route,
    /// JSON body of the probe.
    pub body: Bytes,
}

impl AccountProbe {
    /// Creates a probe of `model`, as the provider names it. `route` is the route of the request that the provider
    /// refused, because some models serve one route only. Instead of the route that counts tokens, the probe uses the
    /// route of messages, because counting may work without credit.
    pub fn new(route: Route, model: &str) -> Self {
        let route = if route == Route::CountTokens { Route::Messages } else { route };
        let tokens = if route == Route::Responses { RESPONSES_TOKENS } else { TOKENS };
        let mut body = match route {
            Route::Completions => json!({ "model": model, "prompt": PROMPT }),
            Route::Embeddings => json!({ "model": model, "input": PROMPT }),
            // The upstream need not store the answer, because nobody will continue it.
            Route::Responses => json!({ "model": model, "input": PROMPT, "store": false }),
            Route::ChatCompletions | Route::Messages | Route::CountTokens => {
                json!({ "model": model, "messages": [{ "role": "user", "content": PROMPT }] })
            }
        };
        if route.generates() {
            body[cap_field(route, model)] = Value::from(tokens);
        }
        Self { route, body: Bytes::from(body.to_string()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RequestFields;

    #[test]
    fn a_probe_is_a_request_of_its_route_with_the_least_output() {
        let caps = [
            (Route::ChatCompletions, "gpt-4o", "max_tokens", Some(1)),
            (Route::ChatCompletions, "gpt-5", "max_completion_tokens", Some(1)),
            (Route::Completions, "old", "max_tokens", Some(1)),
            (Route::Responses, "gpt-5", "max_output_tokens", Some(16)),
            (Route::Messages, "claude", "max_tokens", Some(1)),
            (Route::CountTokens, "claude", "max_tokens", Some(1)),
            (Route::Embeddings, "embed", "max_tokens", None),
        ];
        for (route, model, field, cap) in caps {
            let probe = AccountProbe::new(route, model);
            let read = RequestFields::read(probe.route, &probe.body).unwrap();
            assert_eq!((read.model.as_str(), read.max_tokens, read.stream), (model, cap, false));
            let body: Value = serde_json::from_slice(&probe.body).unwrap();
            assert_eq!(body[field].as_u64(), cap, "{route:?}");
        }
        assert_eq!(AccountProbe::new(Route::CountTokens, "claude").route, Route::Messages);
    }
}
