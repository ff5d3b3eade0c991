//! What a client may send to an upstream beyond the APIs: see `fairgate_config::Rules`.

use bytes::Bytes;
use fairgate_config::{Rule, Rules, UpstreamConfig};
use fairgate_dialect::{Ask, Route};
use http::{HeaderMap, HeaderName};

use crate::pools::Setup;
use crate::refusal::{self, Refusal};

/// Refuses what any worker that could take the request would refuse, so that the answer does not depend on where the
/// request is placed.
pub(super) fn check(
    setup: &Setup,
    route: Route,
    ask: &Ask,
    body: &Bytes,
    headers: &HeaderMap,
) -> Result<(), Refusal> {
    let dialect = route.dialect();
    let workers = setup.workers.iter().map(|worker| &worker.upstream);
    for upstream in workers.filter(|upstream| upstream.speaks(dialect)) {
        let UpstreamConfig { fields, headers: header_rules, .. } = &upstream.config;
        let mut members = ask.other_members(body);
        if let Some((_, name)) = members.find(|(_, name)| fields.field(name) == Rule::Refuse) {
            return Err(refusal::field_not_allowed(&name));
        }
        let mut names = headers.keys().map(HeaderName::as_str);
        if let Some(name) = names.find(|name| header_rules.header(name) == Rule::Refuse) {
            return Err(refusal::header_not_allowed(name));
        }
    }
    Ok(())
}

/// The members of a body that an upstream does not get, as `Changes::strip` has them.
pub(super) fn stripped_fields(rules: &Rules, ask: &Ask, body: &Bytes) -> Vec<usize> {
    let members = ask.other_members(body);
    let stripped = members.filter(|(_, name)| rules.field(name) != Rule::Allow);
    stripped.map(|(number, _)| number).collect()
}

/// Takes out the headers that an upstream does not get.
pub(super) fn strip_headers(rules: &Rules, headers: &mut HeaderMap) {
    let stripped = |name: &&HeaderName| rules.header(name.as_str()) != Rule::Allow;
    let names: Vec<HeaderName> = headers.keys().filter(stripped).cloned().collect();
    for name in &names {
        headers.remove(name);
    }
}
