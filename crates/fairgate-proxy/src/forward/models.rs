//! `GET /v1/models` and `GET /v1/models/{model}`, in the caller's dialect.

use std::sync::Arc;

use bytes::Bytes;
use fairgate_dialect::{Dialect, model_body, models_body};
use http::{HeaderMap, StatusCode};

use super::data_plane::DataPlane;
use super::worker_filter::WorkerFilter;
use crate::identity::Caller;
use crate::refusal::{self, Refusal};
use crate::reply::{self, Reply};

/// Lists the models that the caller may use, or describes the named one.
pub(crate) async fn models(
    app: &Arc<DataPlane>,
    dialect: Dialect,
    headers: &HeaderMap,
    named: Option<&str>,
) -> Reply {
    let id = app.request_ids.next();
    let mut reply = match listing(app, dialect, headers, named).await {
        Ok(listing) => reply::json(StatusCode::OK, listing),
        Err(refusal) => {
            app.metrics.count_refusal(refusal.code);
            return refusal.reply(dialect, &id);
        }
    };
    refusal::set_request_id(&mut reply, dialect, &id);
    reply
}

/// Returns true if the caller may use a worker of this model.
fn has_worker(app: &DataPlane, caller: &Caller, model: &str) -> bool {
    app.pools
        .model(model)
        .is_some_and(|model| WorkerFilter::of_key(&caller.rights, &model.pool.setup()).is_ok())
}

async fn listing(
    app: &DataPlane,
    dialect: Dialect,
    headers: &HeaderMap,
    named: Option<&str>,
) -> Result<Bytes, Refusal> {
    let caller = app.caller(headers).await?;
    let may = |model: &str| caller.rights.allows_model(model);
    let mut names = app.pools.models();
    names.retain(|name| may(name) && has_worker(app, &caller, name));
    match named {
        None => Ok(models_body(dialect, names.iter().map(String::as_str))),
        Some(named) if names.iter().any(|name| name == named) => Ok(model_body(dialect, named)),
        Some(named) => Err(refusal::unknown_model(named)),
    }
}
