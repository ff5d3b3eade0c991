//! The directory: groups, tenants and keys, with their limits.

use fairgate_money::Price;
use fairgate_time::UnixMicros;
use serde::{Deserialize, Serialize};

use crate::budget::{Budget, HostedUse};
use crate::declaration_record::{DeclarationRecord, DeclaredSource};
use crate::key_rights::{KeyRights, RightsPatch};
use crate::ledger::AuditEntry;
use crate::secret::KeyHash;

/// The groups, tenants and keys of an installation, by which a gateway identifies its callers. A
/// directory is small enough to be in memory as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Directory {
    /// Version number of the directory, which increases with every change.
    pub version: i64,
    /// Groups, sorted by name.
    pub groups: Vec<Group>,
    /// Tenants, sorted by name.
    pub tenants: Vec<Tenant>,
    /// Keys, sorted by id. Revoked and expired keys are included.
    pub keys: Vec<Key>,
    /// Budgets of the hosted tier as a whole, over all groups.
    pub hosted: Vec<Budget>,
    /// Notes about the groups, tenants and keys that a configuration file declares or once
    /// declared, sorted by kind and name.
    pub declared: Vec<DeclarationRecord>,
    /// The file that was applied last; `None` if no file ever declared anything.
    pub declared_source: Option<DeclaredSource>,
}

impl Directory {
    /// Sets the notes about declared objects, and sorts them.
    pub(crate) fn set_declarations(
        &mut self,
        mut declared: Vec<DeclarationRecord>,
        source: Option<DeclaredSource>,
    ) {
        declared.sort_by(|one, other| (one.kind, &one.name).cmp(&(other.kind, &other.name)));
        (self.declared, self.declared_source) = (declared, source);
    }
}

/// A set of tenants with a weight and budgets of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// Name of the group: 1 to 128 bytes, no control characters.
    pub name: String,
    /// Weight of the group relative to the other groups; 1 or more.
    pub weight: u64,
    /// Budgets of all tenants of the group together; at most one for each period, unit and tier.
    #[serde(default)]
    pub budgets: Vec<Budget>,
    /// Time at which the group was created.
    pub created_at: UnixMicros,
}

/// A team, customer or program with a weight, limits and budgets. The names of tenants are unique across groups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tenant {
    /// Name of the tenant: 1 to 128 bytes, no control characters.
    pub name: String,
    /// Name of the tenant's group.
    pub group: String,
    /// Weight of the tenant relative to the other tenants of its group; 1 or more.
    pub weight: u64,
    /// True if all keys of the tenant are refused.
    pub disabled: bool,
    /// Limits on all keys of the tenant together.
    pub limits: DirectoryLimits,
    /// Labels that an agent must have to work on the tenant's tasks, sorted; often none.
    #[serde(default)]
    pub requires: Vec<String>,
    /// Time at which the tenant was created.
    pub created_at: UnixMicros,
}

/// A key of a tenant. The secret itself is stored nowhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    /// Id of the key: `key-` and 16 lower-case letters and digits. The id names the key's flow in journals and is not a
    /// secret.
    pub id: String,
    /// Name of the key's tenant.
    pub tenant: String,
    /// Label of the key, chosen by its owner; may be empty.
    pub name: String,
    /// First characters of the secret, so that a person can tell keys apart.
    pub hint: String,
    /// Hash of the key's secret; not serialized.
    #[serde(skip, default = "no_hash")]
    pub hash: KeyHash,
    /// Weight of the key relative to the other keys of its tenant; 1 or more.
    pub weight: u64,
    /// Limits on this key alone.
    pub limits: DirectoryLimits,
    /// Choices that the key may make for its requests, such as a class or a priority.
    #[serde(flatten)]
    pub rights: KeyRights,
    /// Time at which the key was created.
    pub created_at: UnixMicros,
    /// Time from which on the key is refused; `None` for a key that never expires.
    pub expires_at: Option<UnixMicros>,
    /// Time at which the key was revoked; `None` if the key is not revoked.
    pub revoked_at: Option<UnixMicros>,
}

fn no_hash() -> KeyHash {
    KeyHash([0; 32])
}

/// Name that the ledger uses as tenant and group of the gateway's own requests. No other tenant or
/// group can have this name.
pub const GATEWAY_TENANT: &str = "fairgate";

/// Limits of a tenant or a key. `None` sets no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DirectoryLimits {
    /// Maximum number of requests in flight at once, in each pool. The core enforces this limit.
    pub in_flight: Option<u64>,
    /// Maximum number of queued requests at once.
    pub queued_requests: Option<u64>,
    /// Maximum total size of the bodies of queued requests, in bytes.
    pub queued_bytes: Option<u64>,
    /// Maximum number of requests per minute.
    pub requests_per_minute: Option<u64>,
    /// Maximum number of tokens per minute, weighted as in the ledger's `charged`.
    pub tokens_per_minute: Option<u64>,
    /// Budgets of provider tokens or money for a calendar day or month (UTC); at most one for each period, unit and
    /// tier.
    pub budgets: Vec<Budget>,
    /// Permission to use hosted workers. Requests go to hosted workers only if both the key and its tenant have it.
    pub hosted: HostedUse,
}

/// Change of the directory. The change and its audit entry are written in one transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DirectoryChange {
    /// Adds a group, whose name must be unused.
    AddGroup {
        /// Name of the new group: 1 to 128 bytes, no control characters.
        name: String,
        /// Weight of the group relative to the other groups; 1 or more.
        weight: u64,
        /// Budgets of the group; may be empty.
        budgets: Vec<Budget>,
    },
    /// Changes fields of a group.
    PatchGroup {
        /// Name of the existing group.
        name: String,
        /// Fields to change; absent fields stay as they are.
        patch: GroupPatch,
    },
    /// Removes a group that has no tenants.
    RemoveGroup {
        /// Name of the existing group.
        name: String,
    },
    /// Adds a tenant to a group.
    AddTenant {
        /// Name of the new tenant, which must be unused.
        name: String,
        /// Name of the tenant's group, which must exist.
        group: String,
        /// Weight of the tenant relative to the other tenants of its group; 1 or more.
        weight: u64,
        /// Limits on all keys of the tenant together.
        limits: DirectoryLimits,
        /// Labels that an agent must have to work on the tenant's tasks, sorted.
        requires: Vec<String>,
    },
    /// Changes fields of a tenant.
    PatchTenant {
        /// Name of the existing tenant.
        name: String,
        /// Fields to change; absent fields stay as they are.
        patch: TenantPatch,
    },
    /// Removes a tenant and its keys. The tenant's usage stays in the ledger.
    RemoveTenant {
        /// Name of the existing tenant.
        name: String,
    },
    /// Adds a key. The secret of the key appears only once, in [`DirectoryChangeResult::secret`].
    CreateKey {
        /// Name of the key's tenant, which must exist.
        tenant: String,
        /// Label of the key, chosen by its owner; may be empty.
        name: String,
        /// Weight of the key relative to the other keys of its tenant; 1 or more.
        weight: u64,
        /// Limits on this key alone.
        limits: DirectoryLimits,
        /// Choices that the key may make for its requests, such as a class or a priority.
        rights: KeyRights,
        /// Time from which on the key is refused; `None` for a key that never expires.
        expires_at: Option<UnixMicros>,
    },
    /// Changes fields of a key.
    PatchKey {
        /// Id of the existing key.
        id: String,
        /// Fields to change; absent fields stay as they are.
        patch: KeyPatch,
    },
    /// Gives a key a new secret. The key keeps its id, and its old secret is refused at once.
    RotateKey {
        /// Id of the existing key.
        id: String,
    },
    /// Revokes a key, which is refused from now on. Revoking a revoked key has no effect.
    RevokeKey {
        /// Id of the existing key.
        id: String,
    },
    /// Replaces all budgets of the hosted tier as a whole. Each new budget must have the tier `hosted`.
    SetHosted {
        /// All budgets of the hosted tier. Budgets that are not listed are removed.
        budgets: Vec<Budget>,
    },
    /// Makes the inverse of an earlier change of a group, tenant, key or the hosted tier: sets back
    /// the fields that the change had changed. Fails with
    /// [`StoreError::ChangedSince`](crate::StoreError::ChangedSince) if one of these fields was
    /// changed again since. The transaction of the inverse change checks this.
    Undo {
        /// Audit entry of the change, as it was read from the store.
        entry: Box<AuditEntry>,
    },
    /// Stores these prices permanently. Known prices are left unchanged, and each new price gets an audit entry. All
    /// prices that were ever stored must have the same currency.
    KeepPrices {
        /// The prices of the current configuration.
        prices: Vec<Price>,
    },
    /// Writes an audit entry for an action outside of the directory. The directory itself does not change.
    Note {
        /// Name of the action, such as `pool.hold`.
        action: &'static str,
        /// Name of the affected object: 1 to 128 bytes, no control characters.
        subject: String,
        /// State before the action, without secrets; `None` if the action changes no state.
        before: Option<serde_json::Value>,
        /// State after the action, without secrets.
        after: serde_json::Value,
    },
}

/// Fields of a group to change; absent fields stay as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GroupPatch {
    /// Weight of the group relative to the other groups; 1 or more.
    pub weight: Option<u64>,
    /// All budgets of the group. Budgets that are not listed are removed.
    pub budgets: Option<Vec<Budget>>,
}

/// Fields of a tenant to change; absent fields stay as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TenantPatch {
    /// Name of the tenant's new group, which must exist.
    pub group: Option<String>,
    /// Weight of the tenant relative to the other tenants of its group; 1 or more.
    pub weight: Option<u64>,
    /// True to refuse all keys of the tenant, false to accept them again.
    pub disabled: Option<bool>,
    /// All limits of the tenant. Limits that are not given are removed.
    pub limits: Option<DirectoryLimits>,
    /// All labels that an agent must have to work on the tenant's tasks, sorted.
    pub requires: Option<Vec<String>>,
}

/// Fields of a key to change; absent fields stay as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyPatch {
    /// Label of the key, chosen by its owner; may be empty.
    pub name: Option<String>,
    /// Weight of the key relative to the other keys of its tenant; 1 or more.
    pub weight: Option<u64>,
    /// All limits of the key. Limits that are not given are removed.
    pub limits: Option<DirectoryLimits>,
    /// Change of the key's rights; rights that it does not name stay as they are.
    pub rights: RightsPatch,
    /// Time from which on the key is refused; `Some(None)` if it never expires.
    pub expires_at: Option<Option<UnixMicros>>,
}

/// Result of a change of the directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryChangeResult {
    /// Version of the directory after the change.
    pub version: i64,
    /// State of the group after the change; `None` if the change did not affect a group.
    pub group: Option<Group>,
    /// State of the tenant after the change; `None` if the change did not affect a tenant.
    pub tenant: Option<Tenant>,
    /// State of the key after the change; `None` if the change did not affect a key.
    pub key: Option<Key>,
    /// Budgets of the hosted tier after the change; `None` if the change did not affect them.
    pub hosted: Option<Vec<Budget>>,
    /// New secret of the key, which is shown only once; `None` if the change created no secret.
    pub secret: Option<crate::secret::KeySecret>,
}
