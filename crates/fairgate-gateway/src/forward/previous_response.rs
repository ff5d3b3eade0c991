//! Checks requests that continue an earlier response or a conversation that the upstream stores. The owners of the ids
//! are in `response_ids`.

use std::time::Instant;

use fairgate_config::LimitsConfig;
use fairgate_dialect::{RequestFields, TokenUsage, UsageMeter};

use crate::app::App;
use crate::identity::Caller;
use crate::refusal::{self, Refusal};
use crate::response_ids::{ResponseIdBounds, ResponseIdOwner};

/// Returns the tokens of history behind the response or conversation that a request continues. Refuses another tenant's
/// id in the same words as one that does not exist. An unknown id is refused unless the configuration allows foreign
/// ids; then it counts 0 tokens.
pub(super) fn history_tokens(
    app: &App,
    caller: &Caller,
    ask: &RequestFields,
    limits: &LimitsConfig,
) -> Result<u64, Refusal> {
    let now = Instant::now();
    let behind = |id: &str, refusal: fn(&str) -> Refusal| match app.response_ids.owner(
        id,
        &caller.tenant,
        now,
    ) {
        ResponseIdOwner::Own { tokens } => Ok(tokens),
        ResponseIdOwner::Unknown if limits.foreign_response_ids => Ok(0),
        ResponseIdOwner::Unknown | ResponseIdOwner::OtherTenant => Err(refusal(id)),
    };
    let response = ask.previous_response.as_deref();
    let response = response.map_or(Ok(0), |id| behind(id, refusal::unknown_response))?;
    let conversation = ask.conversation.as_deref();
    let conversation =
        conversation.map_or(Ok(0), |id| behind(id, refusal::unknown_conversation))?;
    Ok(response.saturating_add(conversation))
}

/// Remembers the ids under which the upstream stores an answer, with the tokens of history that are now behind them.
pub(super) fn remember(
    app: &App,
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
    let config = app.config.load();
    let keep = ResponseIdBounds {
        per_tenant_max: config.limits.response_ids_per_tenant_max,
        lifetime: config.limits.response_id_lifetime,
    };
    let tokens = usage.input.saturating_add(usage.output);
    for id in response.into_iter().chain(conversation) {
        app.response_ids.remember(id, &caller.tenant, tokens, keep, Instant::now());
    }
}
