//! Requests that go on from an earlier response or a conversation, which the upstream keeps: see `response_ids`.

use std::time::Instant;

use fairgate_config::LimitsConfig;
use fairgate_dialect::{Ask, Meter, Usage};

use crate::app::App;
use crate::identity::Caller;
use crate::refusal::{self, Refusal};
use crate::response_ids::{Keep, Whose};

/// How many tokens are behind what a request goes on from. Refuses what is not the tenant's own, in the same words as what
/// does not exist; what nobody knows only where the configuration says so.
pub(super) fn tokens_behind(
    app: &App,
    caller: &Caller,
    ask: &Ask,
    limits: &LimitsConfig,
) -> Result<u64, Refusal> {
    let now = Instant::now();
    let behind = |id: &str, refusal: fn(&str) -> Refusal| match app.response_ids.whose(
        id,
        &caller.tenant,
        now,
    ) {
        Whose::Own { tokens } => Ok(tokens),
        Whose::Unknown if limits.foreign_response_ids => Ok(0),
        Whose::Unknown | Whose::Anothers => Err(refusal(id)),
    };
    let response = ask.previous_response.as_deref();
    let response = response.map_or(Ok(0), |id| behind(id, refusal::unknown_response))?;
    let conversation = ask.conversation.as_deref();
    let conversation =
        conversation.map_or(Ok(0), |id| behind(id, refusal::unknown_conversation))?;
    Ok(response.saturating_add(conversation))
}

/// Remembers under which ids the upstream keeps an answer, and what is behind them now.
pub(super) fn remember(app: &App, caller: &Caller, ask: &Ask, meter: Option<&Meter>, usage: Usage) {
    let response = meter.and_then(Meter::response_id);
    let conversation = ask.conversation.as_deref().filter(|_| meter.is_some());
    if response.is_none() && conversation.is_none() {
        return;
    }
    let config = app.config.load();
    let keep = Keep {
        per_tenant_max: config.limits.response_ids_per_tenant_max,
        lifetime: config.limits.response_id_lifetime,
    };
    let tokens = usage.input.saturating_add(usage.output);
    for id in response.into_iter().chain(conversation) {
        app.response_ids.remember(id, &caller.tenant, tokens, keep, Instant::now());
    }
}
