//! Applies the rules for fields and headers that are not part of the APIs. The rules are described at
//! `fairgate_config::FieldRules`.

use bytes::Bytes;
use fairgate_config::{FieldRule, FieldRules, UpstreamConfig};
use fairgate_dialect::{RequestFields, Route};
use http::{HeaderMap, HeaderName};

use crate::pools::PoolSetup;
use crate::refusal::{self, Refusal};

/// Refuses a request if any worker of its pool would refuse it, so that the response does not
/// depend on the choice of the worker.
pub(super) fn check(
    setup: &PoolSetup,
    route: Route,
    ask: &RequestFields,
    body: &Bytes,
    headers: &HeaderMap,
) -> Result<(), Refusal> {
    let dialect = route.dialect();
    let workers = setup.workers.iter().map(|worker| &worker.upstream);
    for upstream in workers.filter(|upstream| upstream.speaks(dialect)) {
        let UpstreamConfig { fields, headers: header_rules, .. } = &upstream.config;
        let mut members = ask.other_members(body);
        if let Some((_, name)) = members.find(|(_, name)| fields.field(name) == FieldRule::Refuse) {
            return Err(refusal::field_not_allowed(&name));
        }
        let mut names = headers.keys().map(HeaderName::as_str);
        if let Some(name) = names.find(|name| header_rules.header(name) == FieldRule::Refuse) {
            return Err(refusal::header_not_allowed(name));
        }
    }
    Ok(())
}

/// Returns the indexes of the body's members that this upstream must not get, as `BodyChanges::strip` takes them.
pub(super) fn stripped_fields(rules: &FieldRules, ask: &RequestFields, body: &Bytes) -> Vec<usize> {
    let members = ask.other_members(body);
    let stripped = members.filter(|(_, name)| rules.field(name) != FieldRule::Allow);
    stripped.map(|(number, _)| number).collect()
}

/// Removes the headers that this upstream must not get.
pub(super) fn strip_headers(rules: &FieldRules, headers: &mut HeaderMap) {
    let stripped = |name: &&HeaderName| rules.header(name.as_str()) != FieldRule::Allow;
    let names: Vec<HeaderName> = headers.keys().filter(stripped).cloned().collect();
    for name in &names {
        headers.remove(name);
    }
}
