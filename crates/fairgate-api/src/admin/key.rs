//! Keys of tenants, with their limits and rights.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::declared::DeclaredInBody;
use super::limits::LimitsBody;
use crate::rights::RightsBody;

/// A key of a tenant. The secret is not shown, because only a hash of the secret is stored.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Key)]
pub struct KeyBody {
    /// Id of the key in journals, the ledger and this API; not secret.
    pub id: String,
    /// Name of the tenant that owns the key.
    pub tenant: String,
    /// Name that the owner gave the key; may be empty.
    pub name: String,
    /// The first characters of the secret, by which people recognise the key.
    pub hint: String,
    /// Weight of the key relative to the tenant's other keys, 1 to 1 000 000.
    pub weight: u64,
    /// Limits for this key alone.
    pub limits: LimitsBody,
    /// Rights of the key.
    #[serde(flatten)]
    pub rights: RightsBody,
    /// Time of creation, RFC 3339 in UTC.
    #[schema(format = DateTime)]
    pub created_at: String,
    /// Time from which the key is refused, RFC 3339 in UTC; null means never.
    #[schema(format = DateTime)]
    pub expires_at: Option<String>,
    /// Time of revocation, RFC 3339 in UTC; null if the key is not revoked.
    #[schema(format = DateTime)]
    pub revoked_at: Option<String>,
    /// Time of the last request that was made with the key, RFC 3339 in UTC, a minute old at most; null if it was never
    /// used.
    #[schema(format = DateTime)]
    pub last_used_at: Option<String>,
    /// Place in the configuration file that declares the key; null if no file does.
    pub declared: Option<DeclaredInBody>,
}

/// A key with its new secret.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[schema(as = KeyWithSecret)]
pub struct KeyWithSecret {
    /// The key itself, without the secret.
    pub key: KeyBody,
    /// The secret that clients send. It is shown only in this response.
    pub secret: String,
}

/// A page of keys, sorted by id.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = KeyPage)]
pub struct KeyPage {
    /// The keys, including revoked and expired ones.
    pub items: Vec<KeyBody>,
    /// Value for `after` to get the next page; null on the last page.
    pub next: Option<String>,
}
