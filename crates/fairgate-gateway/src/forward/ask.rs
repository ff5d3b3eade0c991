//! What a request asks for, checked against what its key may ask for: model, dialect, and the names that it gives to its
//! own parts. What it chooses of the scheduler is in `chosen`.

use fairgate_core::attribute::{Attribute, Attributes};
use fairgate_dialect::{Dialect, Route};
use http::{HeaderMap, HeaderName};

use super::passage::Arrival;
use super::stage::Accepted;
use crate::identity::Caller;
use crate::pools::Setup;
use crate::refusal::{self, Refusal};

const AGENT: HeaderName = HeaderName::from_static("x-fairgate-agent");
const SESSION: HeaderName = HeaderName::from_static("x-fairgate-session");
/// The longest name that a client may give.
const NAME_BYTES_MAX: usize = 128;

/// A name out of a header: short, and nothing that a terminal or a journal would have to escape.
pub(super) fn named(headers: &HeaderMap, header: &HeaderName) -> Result<Option<Box<str>>, Refusal> {
    let Some(value) = headers.get(header) else { return Ok(None) };
    match value.to_str() {
        Ok(name) if !name.is_empty() && name.len() <= NAME_BYTES_MAX => Ok(Some(name.into())),
        _ => Err(refusal::bad_name(header.as_str())),
    }
}

/// The names that a client gives to its own parts.
pub(super) struct OwnNames {
    pub(super) agent: Option<Box<str>>,
    pub(super) session: Option<Box<str>>,
}

/// Reads these names.
pub(super) fn own_names(headers: &HeaderMap) -> Result<OwnNames, Refusal> {
    Ok(OwnNames { agent: named(headers, &AGENT)?, session: named(headers, &SESSION)? })
}

/// Whether the caller may ask for this model over this route.
pub(super) fn check_model(
    caller: &Caller,
    setup: &Setup,
    route: Route,
    model: &str,
) -> Result<(), Refusal> {
    if caller.models.as_ref().is_some_and(|allowed| !allowed.iter().any(|name| name == model)) {
        return Err(refusal::forbidden_model(model));
    }
    if !setup.speaks(route.dialect()) {
        let instead = match route.dialect() {
            Dialect::OpenAi => Route::Messages.path(),
            Dialect::Anthropic => Route::ChatCompletions.path(),
        };
        return Err(refusal::unserved_dialect(model, instead));
    }
    Ok(())
}

/// Who the core takes the request to belong to. What clients name themselves is handed on only where the policy shares
/// by it. Without such names this costs a reference count: who the caller is was put together when its key was read.
pub(super) fn attributes(arrival: &Arrival, accepted: &Accepted, setup: &Setup) -> Attributes {
    let caller = &arrival.caller;
    let class = accepted.terms.class.as_deref();
    let flow = |by, name: &Option<Box<str>>, shared_by| match (name, shared_by) {
        (Some(name), true) => {
            let max = arrival.app.config.load().limits.names_per_key_max;
            Some(Box::from(accepted.pool.names.flow(&caller.key, by, name, max)))
        }
        _ => None,
    };
    let agent: Option<Box<str>> = flow(Attribute::Agent, &accepted.agent, setup.by_agent);
    let session: Option<Box<str>> = flow(Attribute::Session, &accepted.session, setup.by_session);
    if class.is_none() && agent.is_none() && session.is_none() {
        return caller.attributes.clone();
    }
    let mut texts = Attribute::ALL.map(|by| caller.attributes.get(by));
    texts[Attribute::Class as usize] = class;
    texts[Attribute::Agent as usize] = agent.as_deref();
    texts[Attribute::Session as usize] = session.as_deref();
    Attributes::of(texts)
}
