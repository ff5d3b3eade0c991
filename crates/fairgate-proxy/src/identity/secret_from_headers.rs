//! Reads the secret from a request's headers.

use http::HeaderMap;
use http::header::AUTHORIZATION;

use crate::refusal::{Refusal, RefusalCode};

/// The longest secret, in bytes. Longer texts are not keys of this gateway, and are not hashed.
const LONGEST_SECRET: usize = 256;

/// Returns the secret in `Authorization: Bearer …` or `x-api-key: …`. If both are present, or one of them twice, all
/// values must be equal. Only headers are read, because URLs end up in logs.
pub fn presented_secret(headers: &HeaderMap) -> Result<&[u8], Refusal> {
    let bearers = headers.get_all(AUTHORIZATION).iter().map(|value| bearer(value.as_bytes()));
    let keys = headers.get_all("x-api-key").iter().map(|value| Some(value.as_bytes().trim_ascii()));
    let mut found: Option<&[u8]> = None;
    for secret in bearers.chain(keys) {
        let secret = secret.ok_or_else(|| {
            invalid("the Authorization header must be \"Bearer \" and an API key")
        })?;
        match found {
            Some(other) if other != secret => {
                return Err(invalid("two different API keys were sent; send one"));
            }
            _ => found = Some(secret),
        }
    }
    let secret = found.ok_or_else(|| {
        invalid(
            "no API key was sent; send it as \"Authorization: Bearer …\" or as \"x-api-key: …\"",
        )
    })?;
    match secret.len() {
        1..=LONGEST_SECRET => Ok(secret),
        0 => Err(invalid("the API key is empty")),
        _ => Err(invalid("this is no API key of this gateway: it is too long")),
    }
}

fn bearer(value: &[u8]) -> Option<&[u8]> {
    let value = value.trim_ascii();
    let (scheme, rest) = value.split_at_checked(b"bearer".len())?;
    let spaced = rest.first().is_some_and(u8::is_ascii_whitespace);
    (scheme.eq_ignore_ascii_case(b"bearer") && spaced).then(|| rest.trim_ascii_start())
}

fn invalid(message: &str) -> Refusal {
    Refusal::new(RefusalCode::InvalidApiKey, message)
}
