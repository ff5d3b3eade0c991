//! The salts that keep prompts apart in the cache of an engine.
//!
//! An engine reuses a cached prompt only for requests with the same `cache_salt`. So anybody who
//! knows a salt and can send it to the engine can find out, from the time of an answer, whether a
//! prompt was sent with that salt. Several pools may use one engine, even pools of other gateways.
//! A client of one pool could therefore send the salt of a tenant of another pool. For this reason,
//! no salt that a client chose reaches an engine. The engine gets a hash instead, keyed by a secret
//! that only the store has. All gateways on one database compute the same salts, so they share the
//! engine's cached prompts.

use bytes::Bytes;
use fairgate_config::PrefixScope;
use fairgate_store::InstallationSecret;

use super::request_guard::RequestIn;
use super::stage::InFlightRequest;

/// Name of the secret in the store.
pub(crate) const SECRET_NAME: &str = "cache_salts";
/// Name of the field in a request's body.
const FIELD: &str = "cache_salt";

/// The requests that share one salt, and thus cached prompts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SaltOwner<'a> {
    /// All requests of one tenant, in every pool.
    Tenant(&'a str),
    /// All requests of one pool.
    Pool(&'a str),
}

/// Returns the salt for a request's body, and adds the client's own salt to `strip`, which lists the fields to remove.
/// `None` leaves the body without a salt.
///
/// An own worker gets a salt if the pool's index keeps tenants apart. Otherwise a worker gets a salt only if the client
/// sent one that the rules do not remove; hosted APIs do not have this field. If the client sent a salt, it is part of
/// the input of the hash.
pub(super) fn of_request(
    in_flight: &RequestIn<'_, InFlightRequest>,
    body: &Bytes,
    strip: &mut Vec<usize>,
) -> Option<String> {
    let ask = &in_flight.ask;
    let own = ask.other_members(body).filter(|(_, name)| name == FIELD);
    let own: Vec<usize> = own.map(|(number, _)| number).collect();
    let worker = &in_flight.flight.worker;
    let is_hosted = worker.account.is_some() || worker.is_hosted_tier();
    let scope = in_flight.pool.caches.index().map(|index| index.scope());
    let owner = match scope {
        Some(PrefixScope::Tenant) if !is_hosted => {
            SaltOwner::Tenant(&in_flight.arrival().caller.tenant)
        }
        // A field that the rules remove anyway is not put back.
        _ if own.iter().all(|number| strip.contains(number)) => return None,
        Some(PrefixScope::Tenant) => SaltOwner::Tenant(&in_flight.arrival().caller.tenant),
        Some(PrefixScope::Pool) | None => SaltOwner::Pool(&in_flight.pool.name),
    };
    let value = own.last().and_then(|&number| ask.other_value(body, number)).unwrap_or_default();
    let salt = keyed_salt(&in_flight.arrival().app.salt_secret, owner, value);
    strip.extend(own);
    strip.sort_unstable();
    strip.dedup();
    Some(salt)
}

/// Computes a salt: 32 hexadecimal digits. `own` is the client's salt as written in the body; empty if it sent none.
fn keyed_salt(secret: &InstallationSecret, owner: SaltOwner<'_>, own: &[u8]) -> String {
    let (kind, name) = match owner {
        SaltOwner::Tenant(name) => (b't', name),
        SaltOwner::Pool(name) => (b'p', name),
    };
    let mut hasher = blake3::Hasher::new_keyed(secret.expose());
    hasher.update(&[kind]).update(&(name.len() as u64).to_le_bytes());
    hasher.update(name.as_bytes()).update(own);
    hasher.finalize().to_hex()[..32].to_owned()
}
