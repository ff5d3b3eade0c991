//! `GET /v1/models` and `GET /v1/models/{model}`, in the caller's dialect.

use std::sync::Arc;

use bytes::Bytes;
use fairgate_dialect::Dialect;
use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};

use super::passage::unix_now;
use crate::app::App;
use crate::refusal::{self, Refusal};
use crate::reply::{self, Reply};

/// Lists the models that the caller may ask for, or tells about the one that is named.
pub(crate) fn models(
    app: &Arc<App>,
    dialect: Dialect,
    headers: &HeaderMap,
    named: Option<&str>,
) -> Reply {
    let id = app.ids.next();
    let mut reply = match listing(app, dialect, headers, named) {
        Ok(listing) => reply::json(StatusCode::OK, Bytes::from(listing.to_string())),
        Err(refusal) => {
            app.metrics.turned_away(refusal.problem.code);
            return refusal.reply(dialect, &id);
        }
    };
    refusal::name(&mut reply, dialect, &id);
    reply
}

fn listing(
    app: &App,
    dialect: Dialect,
    headers: &HeaderMap,
    named: Option<&str>,
) -> Result<Value, Refusal> {
    let caller = app.identity.caller(headers, unix_now())?;
    let may = |model: &str| {
        caller.models.as_ref().is_none_or(|allowed| allowed.iter().any(|name| name == model))
    };
    let mut names = app.pools.models();
    names.retain(|name| may(name));
    match named {
        None => Ok(list(dialect, &names)),
        Some(named) => match names.iter().find(|name| *name == named) {
            Some(name) => Ok(one(dialect, name)),
            None => Err(refusal::unknown_model(named)),
        },
    }
}

fn list(dialect: Dialect, names: &[String]) -> Value {
    let data: Vec<Value> = names.iter().map(|name| one(dialect, name)).collect();
    match dialect {
        Dialect::OpenAi => json!({ "object": "list", "data": data }),
        Dialect::Anthropic => json!({
            "data": data,
            "has_more": false,
            "first_id": names.first(),
            "last_id": names.last(),
        }),
    }
}

/// When a model was made is not known here: both dialects want a time, and get the beginning of it.
fn one(dialect: Dialect, name: &str) -> Value {
    match dialect {
        Dialect::OpenAi => {
            json!({ "id": name, "object": "model", "created": 0, "owned_by": "fairgate" })
        }
        Dialect::Anthropic => json!({
            "type": "model",
            "id": name,
            "display_name": name,
            "created_at": "1970-01-01T00:00:00Z",
        }),
    }
}
