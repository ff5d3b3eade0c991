//! Who asks: the directory, held in memory, found by the hash of a key.

use std::sync::Arc;

use fairgate_dialect::Problem;
use fairgate_store::{Directory, Store, StoreError, UnixMicros};
use http::HeaderMap;

/// Who a request belongs to, and what that caller may do. Made once for each key when the directory is read.
#[derive(Debug)]
pub struct Caller {
    /// The group of its tenant.
    pub group: Arc<str>,
    /// Its tenant.
    pub tenant: Arc<str>,
    /// The id of its key.
    pub key: Arc<str>,
    /// The models that it may ask for; all where absent.
    pub models: Option<Vec<String>>,
    /// The classes that it may name.
    pub classes: Vec<String>,
    /// Its tenant's limits.
    pub tenant_limits: fairgate_store::Limits,
    /// Its key's limits.
    pub key_limits: fairgate_store::Limits,
    /// Whether its tenant or key has a budget.
    pub budgeted: bool,
}

/// The directory as the gateway uses it. Reading is lock-free; a change swaps the whole.
pub struct Identity {/* control plane */}

#[allow(clippy::todo, unused_variables, clippy::unused_async, missing_docs)]
impl Identity {
    /// Reads the directory.
    pub async fn load(store: &Store) -> Result<Self, StoreError> {
        todo!()
    }

    /// The caller behind `Authorization: Bearer …` or `x-api-key: …`. 401 `invalid_api_key` (missing, malformed,
    /// unknown, two different ones), 401 `key_revoked`, 401 `key_expired`, 403 `tenant_disabled`.
    pub fn caller(&self, headers: &HeaderMap, now: UnixMicros) -> Result<Arc<Caller>, Problem> {
        todo!()
    }

    /// The directory in force.
    pub fn directory(&self) -> Arc<Directory> {
        todo!()
    }

    /// Reads the directory again where its version is another, and says whether it was.
    pub async fn refresh(&self, store: &Store) -> Result<bool, StoreError> {
        todo!()
    }
}
