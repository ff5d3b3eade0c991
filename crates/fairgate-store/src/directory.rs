//! Who there is: groups, tenants, keys, and what each may use.

use fairgate_money::{Price, UnixMicros};
use serde::{Deserialize, Serialize};

use crate::budget::{Budget, HostedUse};
use crate::secret::KeyHash;

/// Everything that the gateway must know to tell who asks. Small enough to be held in memory as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Directory {
    /// Rises with every change.
    pub version: i64,
    /// Sorted by name.
    pub groups: Vec<Group>,
    /// Sorted by name.
    pub tenants: Vec<Tenant>,
    /// Sorted by id; revoked and expired ones included.
    pub keys: Vec<Key>,
    /// The budgets of the hosted tier as a whole, over all groups.
    pub hosted: Vec<Budget>,
}

/// A group of tenants, which share what the group gets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// Its name: 1 to 128 bytes, no control characters.
    pub name: String,
    /// Its share among groups; 1 or more.
    pub weight: u64,
    /// What all its tenants together may use; at most one for each period, unit and tier.
    #[serde(default)]
    pub budgets: Vec<Budget>,
    /// When it was made.
    pub created_at: UnixMicros,
}

/// A tenant: what shares are given to. Names are unique across groups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tenant {
    /// Its name: 1 to 128 bytes, no control characters.
    pub name: String,
    /// The group it belongs to.
    pub group: String,
    /// Its share within its group; 1 or more.
    pub weight: u64,
    /// A disabled tenant's keys are refused.
    pub disabled: bool,
    /// What all its keys together may use.
    pub limits: Limits,
    /// When it was made.
    pub created_at: UnixMicros,
}

/// A key of a tenant. The secret itself is nowhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    /// `key-` and 16 lower-case letters and digits. Names the flow in journals; it is no secret.
    pub id: String,
    /// Its tenant.
    pub tenant: String,
    /// What its owner calls it; may be empty.
    pub name: String,
    /// The first characters of the secret.
    pub hint: String,
    /// The hash of the secret.
    #[serde(skip, default = "no_hash")]
    pub hash: KeyHash,
    /// Its share within its tenant; 1 or more.
    pub weight: u64,
    /// What this key alone may use.
    pub limits: Limits,
    /// The models that it may ask for; all where absent.
    pub models: Option<Vec<String>>,
    /// What it may choose for its requests.
    #[serde(flatten)]
    pub rights: Rights,
    /// When it was made.
    pub created_at: UnixMicros,
    /// From when on it is refused.
    pub expires_at: Option<UnixMicros>,
    /// When it was revoked.
    pub revoked_at: Option<UnixMicros>,
}

fn no_hash() -> KeyHash {
    KeyHash([0; 32])
}

/// The highest priority that a key can be allowed; what the gateway raises by itself is above it. Dynamo's range.
pub const PRIORITY_MAX: i64 = i32::MAX as i64;
/// The lowest priority that a request may have. Every key may lower its requests this far.
pub const PRIORITY_MIN: i64 = i32::MIN as i64;

/// What a key may choose for its requests. A request that chooses anything else is refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rights {
    /// The policy classes and families that it may name; the first is used where a request names none. Absent: all that the
    /// policy has. Empty: the policy's default only.
    pub classes: Option<Vec<String>>,
    /// The highest priority that it may ask for, 0 to [`PRIORITY_MAX`]. Lower ones are always allowed, down to
    /// [`PRIORITY_MIN`].
    pub priority_max: i64,
    /// Whether it may say which worker takes a request.
    pub may_pin: bool,
    /// The taints that it may require of a worker.
    pub taints: AllowedTaints,
}

/// The taints that a key may require of a worker: a list of names, or all. JSON has null for all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AllowedTaints(pub Option<Vec<String>>);

impl Default for AllowedTaints {
    fn default() -> Self {
        Self(Some(Vec::new()))
    }
}

/// What a tenant or a key may use. What is absent is not limited.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// How many of its requests may fly at once, in each pool. Decided in the core.
    pub in_flight: Option<u64>,
    /// How many of its requests may wait at once.
    pub queued_requests: Option<u64>,
    /// How many bytes of request bodies it may have waiting at once.
    pub queued_bytes: Option<u64>,
    /// Requests a minute.
    pub requests_per_minute: Option<u64>,
    /// Tokens a minute, as charged.
    pub tokens_per_minute: Option<u64>,
    /// Provider tokens or money for a calendar day or month (UTC); at most one for each period, unit and tier.
    pub budgets: Vec<Budget>,
    /// Whether it may use hosted workers at all. A key may if its tenant may too.
    pub hosted: HostedUse,
}

/// A change of the directory. Each is one transaction together with its audit entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Adds a group.
    AddGroup {
        /// Its name.
        name: String,
        /// Its weight.
        weight: u64,
        /// Its budgets.
        budgets: Vec<Budget>,
    },
    /// Changes a group.
    PatchGroup {
        /// Its name.
        name: String,
        /// What is new.
        patch: GroupPatch,
    },
    /// Removes a group that has no tenants.
    RemoveGroup {
        /// Its name.
        name: String,
    },
    /// Adds a tenant.
    AddTenant {
        /// Its name.
        name: String,
        /// Its group, which must exist.
        group: String,
        /// Its weight.
        weight: u64,
        /// Its limits.
        limits: Limits,
    },
    /// Changes a tenant.
    PatchTenant {
        /// Its name.
        name: String,
        /// What is new.
        patch: TenantPatch,
    },
    /// Removes a tenant and its keys. What it used stays in the ledger.
    RemoveTenant {
        /// Its name.
        name: String,
    },
    /// Adds a key; [`Changed::secret`] is the only place where its secret ever appears.
    CreateKey {
        /// Its tenant.
        tenant: String,
        /// What its owner calls it.
        name: String,
        /// Its weight within its tenant.
        weight: u64,
        /// Its limits.
        limits: Limits,
        /// The models that it may ask for.
        models: Option<Vec<String>>,
        /// What it may choose for its requests.
        rights: Rights,
        /// From when on it is refused.
        expires_at: Option<UnixMicros>,
    },
    /// Changes a key.
    PatchKey {
        /// Its id.
        id: String,
        /// What is new.
        patch: KeyPatch,
    },
    /// Gives a key a new secret under the same id; the old one is refused at once.
    RotateKey {
        /// Its id.
        id: String,
    },
    /// Refuses a key from now on. Revoking it again changes nothing.
    RevokeKey {
        /// Its id.
        id: String,
    },
    /// Sets the budgets of the hosted tier as a whole, all of them at once. Each must be one of the hosted tier.
    SetHosted {
        /// All of its budgets: those absent in here are lifted.
        budgets: Vec<Budget>,
    },
    /// Keeps these prices for ever. Those that are known already are left alone; each new one is one audit entry. All
    /// prices that were ever kept must be in one currency.
    KeepPrices {
        /// The prices in force.
        prices: Vec<Price>,
    },
    /// Changes nothing in the directory: leaves an audit entry for something that was done elsewhere.
    Note {
        /// What was done, such as `pool.hold`.
        action: &'static str,
        /// To which: 1 to 128 bytes, no control characters.
        subject: String,
        /// What it is now; no secret.
        after: serde_json::Value,
    },
}

/// What is new about a group; what is absent stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GroupPatch {
    /// Its weight.
    pub weight: Option<u64>,
    /// All of its budgets: those absent in here are lifted.
    pub budgets: Option<Vec<Budget>>,
}

/// What is new about a tenant; what is absent stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TenantPatch {
    /// Its group.
    pub group: Option<String>,
    /// Its weight.
    pub weight: Option<u64>,
    /// Whether its keys are refused.
    pub disabled: Option<bool>,
    /// All of its limits: those absent in here are lifted.
    pub limits: Option<Limits>,
}

/// What is new about a key; what is absent stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KeyPatch {
    /// What its owner calls it.
    pub name: Option<String>,
    /// Its weight.
    pub weight: Option<u64>,
    /// All of its limits: those absent in here are lifted.
    pub limits: Option<Limits>,
    /// The models that it may ask for; `Some(None)` is all.
    #[serde(deserialize_with = "given")]
    pub models: Option<Option<Vec<String>>>,
    /// The classes and families that it may name; `Some(None)` is all that the policy has.
    #[serde(deserialize_with = "given")]
    pub classes: Option<Option<Vec<String>>>,
    /// The highest priority that it may ask for.
    pub priority_max: Option<i64>,
    /// Whether it may say which worker takes a request.
    pub may_pin: Option<bool>,
    /// The taints that it may require.
    #[serde(deserialize_with = "given")]
    pub taints: Option<AllowedTaints>,
    /// From when on it is refused; `Some(None)` is never.
    #[serde(deserialize_with = "given")]
    pub expires_at: Option<Option<UnixMicros>>,
}

/// A field that is there, also where it is null.
fn given<'de, T: Deserialize<'de>, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// What a change made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// The directory's version after it.
    pub version: i64,
    /// The group, as it is now, where the change was about one.
    pub group: Option<Group>,
    /// The tenant, as it is now, where the change was about one.
    pub tenant: Option<Tenant>,
    /// The key, as it is now, where the change was about one.
    pub key: Option<Key>,
    /// The budgets of the hosted tier, as they are now, where the change was about them.
    pub hosted: Option<Vec<Budget>>,
    /// The new secret, where there is one: shown once.
    pub secret: Option<crate::secret::Secret>,
}
