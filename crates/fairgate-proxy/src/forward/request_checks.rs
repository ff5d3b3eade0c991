//! Checks the requested model and dialect against the key's rights, and reads the names that a client gives to its own
//! agents and sessions. Scheduling choices (class, priority, worker) are in `client_choices`.

use fairgate_core::attribute::{Attribute, Attributes};
use fairgate_dialect::{Dialect, Route};
use http::{HeaderMap, HeaderName};

use super::request_guard::RequestArrival;
use super::stage::AcceptedRequest;
use crate::identity::Caller;
use crate::pools::PoolSetup;
use crate::refusal::{self, Refusal};

const AGENT: HeaderName = HeaderName::from_static("x-fairgate-agent");
const SESSION: HeaderName = HeaderName::from_static("x-fairgate-session");
/// The longest agent or session name, in bytes.
const NAME_BYTES_MAX: usize = 128;

/// Reads a name from a header: at most [`NAME_BYTES_MAX`] visible ASCII characters, so that terminals and journals need
/// not escape any of them.
pub(super) fn read_name(
    headers: &HeaderMap,
    header: &HeaderName,
) -> Result<Option<Box<str>>, Refusal> {
    let Some(value) = headers.get(header) else { return Ok(None) };
    match value.to_str() {
        Ok(name) if !name.is_empty() && name.len() <= NAME_BYTES_MAX => Ok(Some(name.into())),
        _ => Err(refusal::bad_name(header.as_str())),
    }
}

/// The agent and session names that a client states in headers.
pub(super) struct ClientNames {
    pub(super) agent: Option<Box<str>>,
    pub(super) session: Option<Box<str>>,
}

impl ClientNames {
    /// Returns the agent and the task of a task key, as agent and session; `None` for any other key. With a task key,
    /// the names that the client states are ignored, because its agent and task are known.
    pub(super) fn of_task(caller: &Caller) -> Option<Self> {
        let claim = caller.claim.as_ref()?;
        Some(Self { agent: caller.task_agent.clone(), session: Some(claim.task.as_str().into()) })
    }
}

/// Reads the agent and session headers. Refuses names that are empty, too long, or not visible ASCII.
pub(super) fn read_client_names(headers: &HeaderMap) -> Result<ClientNames, Refusal> {
    Ok(ClientNames { agent: read_name(headers, &AGENT)?, session: read_name(headers, &SESSION)? })
}

/// Refuses a model that the caller's key may not request.
pub(super) fn check_right_to_model(caller: &Caller, model: &str) -> Result<(), Refusal> {
    match &caller.rights.models {
        Some(allowed) if !caller.rights.allows_model(model) => {
            Err(refusal::forbidden_model(model, allowed))
        }
        _ => Ok(()),
    }
}

/// Refuses a route that the pool's upstreams do not serve.
pub(super) fn check_dialect(setup: &PoolSetup, route: Route, model: &str) -> Result<(), Refusal> {
    if setup.speaks(route.dialect()) {
        return Ok(());
    }
    let instead = match route.dialect() {
        Dialect::OpenAi => Route::Messages.path(),
        Dialect::Anthropic => Route::ChatCompletions.path(),
    };
    Err(refusal::unserved_dialect(model, instead))
}

/// Returns the attributes by which the core queues the request. Agent and session names are passed
/// on only if the policy shares by them. Without such names and without a class, the caller's
/// prepared attributes are shared and not copied.
pub(super) fn attributes(
    arrival: &RequestArrival,
    accepted: &AcceptedRequest,
    setup: &PoolSetup,
) -> Attributes {
    let caller = &arrival.caller;
    let class = accepted.terms.class.as_deref();
    let flow = |by, name: &Option<Box<str>>, shared_by| match (name, shared_by) {
        // The fleet limits how many agents and tasks of a project run at once.
        (Some(name), true) if caller.claim.is_some() => Some(name.clone()),
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
