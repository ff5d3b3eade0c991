//! Checks the ids in a request that name something the upstream stores: an earlier response or
//! conversation that the request continues, items of earlier responses, files, vector stores,
//! containers and stored prompts. The owners of responses, conversations and items are in
//! `response_ids`.

use std::time::Instant;

use bytes::Bytes;
use fairgate_config::Config;
use fairgate_dialect::{RequestFields, Route, StoredIds, TokenUsage, UsageMeter};

use super::data_plane::DataPlane;
use crate::forward::response_id_owners::{ResponseIdBounds, ResponseIdOwner};
use crate::identity::Caller;
use crate::refusal::{self, Refusal};

/// Builds the refusal for an unknown id.
type UnknownIdRefusal = fn(&str) -> Refusal;

/// Checks the ids of stored things in a request. Returns the number of tokens in the earlier
/// response or conversation that the request continues.
///
/// Another tenant's id is refused in the same words as an id that does not exist. An unknown id is refused unless the
/// configuration allows foreign ids; then it counts 0 tokens. Ids whose owner the gateway cannot know, such as those of
/// files, are allowed only if the key has the right to use foreign ids.
pub(super) async fn history_tokens(
    app: &DataPlane,
    caller: &Caller,
    route: Route,
    ask: &RequestFields,
    body: &Bytes,
) -> Result<u64, Refusal> {
    let config = app.config.load_full();
    let allows_unknown = config.limits.foreign_response_ids;
    let StoredIds { items, account_field } = match ask.stored_ids(route, body) {
        Ok(found) => found,
        Err(_) if allows_unknown && caller.rights.may_use_foreign_ids => StoredIds::default(),
        Err(error) => return Err(refusal::unsearchable_ids(&error)),
    };
    if let Some(field) = account_field.filter(|_| !caller.rights.may_use_foreign_ids) {
        return Err(refusal::foreign_id(field));
    }
    let response = ask
        .previous_response
        .as_deref()
        .map(|id| (id, refusal::unknown_response as UnknownIdRefusal));
    let conversation = ask
        .conversation
        .as_deref()
        .map(|id| (id, refusal::unknown_conversation as UnknownIdRefusal));
    let items = items.iter().map(|id| (&**id, refusal::unknown_item as UnknownIdRefusal));
    let (ids, refusals): (Vec<&str>, Vec<UnknownIdRefusal>) =
        response.into_iter().chain(conversation).chain(items).unzip();
    if ids.is_empty() {
        return Ok(0);
    }
    let owners = app.response_ids.owners(&app.store, &ids, &caller.tenant, bounds(&config)).await;
    let owners = owners.map_err(|error| {
        let what = "response ids cannot be looked up";
        if let Some(left_out) = app.log_throttle.admit(what, tokio::time::Instant::now()) {
            tracing::error!(%error, left_out, "{what}");
        }
        refusal::ids_unavailable()
    })?;
    let mut history = 0_u64;
    for ((id, refusal), owner) in ids.iter().zip(refusals).zip(owners) {
        match owner {
            ResponseIdOwner::Own { tokens } => history = history.saturating_add(tokens),
            ResponseIdOwner::Unknown if allows_unknown => {}
            ResponseIdOwner::Unknown | ResponseIdOwner::OtherTenant => return Err(refusal(id)),
        }
    }
    Ok(history)
}

fn bounds(config: &Config) -> ResponseIdBounds {
    ResponseIdBounds {
        per_tenant_max: config.limits.response_ids_per_tenant_max,
        lifetime: config.limits.response_id_lifetime,
    }
}

/// Remembers the ids under which the upstream stores an answer, with the number of tokens of
/// history that each now stands for.
pub(super) fn remember(
    app: &DataPlane,
    caller: &Caller,
    ask: &RequestFields,
    meter: Option<&UsageMeter>,
    usage: TokenUsage,
) {
    let response = meter.and_then(UsageMeter::response_id);
    let conversation = ask.conversation.as_deref().filter(|_| meter.is_some());
    if response.is_none() && conversation.is_none() {
        return;
    }
    let (keep, now) = (bounds(&app.config.load()), Instant::now());
    // Items go first: if there is no room for all ids, that of the response itself is kept.
    for item in meter.map(UsageMeter::item_ids).unwrap_or_default() {
        app.response_ids.remember(item, &caller.tenant, 0, keep, now);
    }
    let tokens = usage.input.saturating_add(usage.output);
    for id in response.into_iter().chain(conversation) {
        app.response_ids.remember(id, &caller.tenant, tokens, keep, now);
    }
}
