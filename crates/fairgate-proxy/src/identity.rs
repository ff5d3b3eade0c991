//! Identifies callers by a copy of the directory in memory, indexed by the hash of each key.
//!
//! The tenant of a request comes from its key and never from a header. Clients name agents and
//! sessions themselves, so a policy may share by agent or session only below a tenant or a key. The
//! configuration is checked for that when it is loaded, and `client_flow_names` limits the number
//! of agent and session names of a key.
//!
//! Callers are checked again when their request is granted a slot (`CallerDirectory::recheck`). If the key was
//! revoked in the meantime, the slot is given back and charged 0 tokens. An identification costs one hash and one
//! look-up.

mod revoked_keys;
mod secret_from_headers;
mod task_keys;

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use fairgate_core::attribute::{Attribute, Attributes};
use fairgate_fleet::TaskKey;
use fairgate_store::{
    Budget, BudgetTier, BudgetUnit, Directory, DirectoryLimits, HostedUse, Key, KeyHash, KeyRights,
    Store, StoreError, TaskClaim, Tenant, UnixMicros,
};
use http::HeaderMap;
use tokio::sync::Mutex;

pub use secret_from_headers::presented_secret;

use self::task_keys::TaskKeyCache;
pub(crate) use self::task_keys::is_task_key;
use crate::fast_map::FastMap;
use crate::refusal::{Refusal, RefusalCode};

/// Prefix of the key ids of callers with a task key; the project's name follows. No key of the
/// directory has such an id.
const PROJECT_KEY: &str = "project:";

/// The owner of a request, with the rights and limits of its key and tenant. The callers of the
/// directory's keys are built once for each version of the directory.
#[derive(Debug)]
pub struct Caller {
    /// Name of the tenant's group.
    pub group: Arc<str>,
    /// Name of the tenant that owns the key or the project.
    pub tenant: Arc<str>,
    /// Id of the key; `project:NAME` for a task key.
    pub key: Arc<str>,
    /// Hash of the secret that was presented.
    pub secret: KeyHash,
    /// Rights of the key, or of the task key's project: models, classes, priorities, workers, leases and so on.
    pub rights: KeyRights,
    /// Attributes of a request that names no class: its group, tenant and key, and its project if it came with a task
    /// key.
    pub attributes: Attributes,
    /// Limits of the tenant, over all its keys.
    pub tenant_limits: DirectoryLimits,
    /// Limits of the key alone.
    pub key_limits: DirectoryLimits,
    /// True if the group, tenant or key has a budget that counts on any worker.
    pub budgeted: bool,
    /// True if the group, tenant or key, or the hosted tier as a whole, has a budget that counts on hosted workers.
    pub hosted_budgeted: bool,
    /// True if the group, tenant or key has a budget of money that counts on any worker.
    pub money_budgeted: bool,
    /// True if the group, tenant or key, or the hosted tier as a whole, has a budget of money that counts on hosted
    /// workers.
    pub hosted_money_budgeted: bool,
    /// True if both the tenant and the key may use hosted workers.
    pub may_use_hosted: bool,
    /// Claim of the task that the caller works on; `None` unless the caller presented a task key. With a claim, `key`
    /// is the id of the task's project, `project:NAME`.
    pub claim: Option<TaskClaim>,
    /// Name of the agent that holds the claim; `None` without a claim.
    pub task_agent: Option<Box<str>>,
}

/// The directory as the gateway uses it. Reads are lock-free; a change replaces the whole directory.
#[derive(Debug)]
pub struct CallerDirectory {
    index: ArcSwap<CallerIndex>,
    /// Allows one refresh at a time, so that an older directory never replaces a newer one.
    refreshing: Mutex<()>,
    pub(crate) task_keys: TaskKeyCache,
}

/// The directory, with an index of its callers by the hash of their secrets.
#[derive(Debug)]
struct CallerIndex {
    directory: Arc<Directory>,
    callers: FastMap<KeyHash, CallerEntry>,
}

/// A key of the directory. Revoked and expired keys, and those of disabled tenants, are kept too, so that a refusal can
/// state the reason.
#[derive(Debug)]
struct CallerEntry {
    caller: Arc<Caller>,
    expires_at: Option<UnixMicros>,
    revoked: bool,
    tenant_disabled: bool,
}

impl CallerDirectory {
    /// Reads the directory from the store.
    pub async fn load(store: &Store) -> Result<Self, StoreError> {
        Ok(Self::of(store.directory().await?))
    }

    /// Builds the index of callers from a directory.
    fn of(directory: Directory) -> Self {
        Self {
            index: ArcSwap::from_pointee(CallerIndex::new(directory)),
            refreshing: Mutex::new(()),
            task_keys: TaskKeyCache::default(),
        }
    }

    /// Returns the caller whose key is in `Authorization: Bearer …` or `x-api-key: …`. Refuses a
    /// missing, malformed or unknown key, and two different keys, with 401 `invalid_api_key`. Other
    /// refusals are 401 `key_revoked`, 401 `key_expired` and 403 `tenant_disabled`.
    ///
    /// Called when a request arrives, and again by `recheck` when the request gets its slot. A request
    /// that is in flight when its key is revoked is not cut off.
    pub fn caller(&self, headers: &HeaderMap, now: UnixMicros) -> Result<Arc<Caller>, Refusal> {
        let secret = presented_secret(headers)?;
        Ok(self.index.load().admitted(&KeyHash::of(secret), now)?.caller.clone())
    }

    /// Returns the caller whose key has this hash. Refuses like [`caller`](Self::caller).
    pub fn caller_of_secret(
        &self,
        secret: KeyHash,
        now: UnixMicros,
    ) -> Result<Arc<Caller>, Refusal> {
        Ok(self.index.load().admitted(&secret, now)?.caller.clone())
    }

    /// Returns the caller with the key of this id. Refuses like [`caller`](Self::caller).
    pub fn caller_of_key(&self, key: &str, now: UnixMicros) -> Result<Arc<Caller>, Refusal> {
        let index = self.index.load();
        let keys = &index.directory.keys;
        let place = keys.binary_search_by(|known| (*known.id).cmp(key));
        let hash = place.map_or(KeyHash([0; 32]), |place| keys[place].hash);
        Ok(index.admitted(&hash, now)?.caller.clone())
    }

    /// Returns the caller of a task key. Refuses with 401 `invalid_api_key` if the directory does not have the key's
    /// tenant, and with 403 `tenant_disabled`.
    pub(crate) fn of_task(&self, key: &TaskKey, secret: KeyHash) -> Result<Arc<Caller>, Refusal> {
        let book = self.index.load();
        let tenant = book.tenant(&key.tenant)?;
        Ok(Arc::new(Caller::of_task(key, secret, tenant, &book.directory)))
    }

    /// Returns whether the directory in force has a tenant of this name.
    pub(crate) fn has_tenant(&self, name: &str) -> bool {
        self.index.load().tenant_of(name).is_some()
    }

    /// Returns the directory in force.
    pub fn directory(&self) -> Arc<Directory> {
        self.index.load().directory.clone()
    }

    /// Reads the directory again if its version has changed. Returns true if the version had changed.
    pub async fn refresh(&self, store: &Store) -> Result<bool, StoreError> {
        let _one_at_a_time = self.refreshing.lock().await;
        if store.directory_version().await? == self.index.load().directory.version {
            return Ok(false);
        }
        let directory = store.directory().await?;
        self.index.store(Arc::new(CallerIndex::new(directory)));
        Ok(true)
    }
}

impl CallerIndex {
    fn new(directory: Directory) -> Self {
        let tenants: HashMap<&str, &Tenant> =
            directory.tenants.iter().map(|tenant| (tenant.name.as_str(), tenant)).collect();
        // Nobody can use a key without a tenant.
        let entry = |key: &Key| {
            let tenant = tenants.get(key.tenant.as_str())?;
            Some((key.hash, CallerEntry::new(key, tenant, &directory)))
        };
        let callers = directory.keys.iter().filter_map(entry).collect();
        Self { directory: Arc::new(directory), callers }
    }

    /// Returns the entry of the key with this hash. Refuses a key that is unknown or not valid at `now`.
    fn admitted(&self, secret: &KeyHash, now: UnixMicros) -> Result<&CallerEntry, Refusal> {
        let entry = self.callers.get(secret).ok_or_else(|| {
            Refusal::new(
                RefusalCode::InvalidApiKey,
                "this API key is not known here; check it, or ask for a new one",
            )
        })?;
        entry.admit(now)?;
        Ok(entry)
    }

    /// Returns the tenant of this name. Refuses a tenant that is unknown or disabled.
    fn tenant(&self, name: &str) -> Result<&Tenant, Refusal> {
        let tenant = self.tenant_of(name).ok_or_else(|| {
            Refusal::new(
                RefusalCode::InvalidApiKey,
                "the tenant of this task key is not known here",
            )
        })?;
        if tenant.disabled { Err(disabled(name)) } else { Ok(tenant) }
    }

    fn tenant_of(&self, name: &str) -> Option<&Tenant> {
        let tenants = &self.directory.tenants;
        let place = tenants.binary_search_by(|tenant| (*tenant.name).cmp(name));
        place.ok().map(|place| &tenants[place])
    }
}

impl Caller {
    /// Builds the caller of a directory key.
    fn of_key(key: &Key, tenant: &Tenant, directory: &Directory) -> Self {
        let attributes = Attributes::none()
            .with(Attribute::Group, &tenant.group)
            .with(Attribute::Tenant, &tenant.name)
            .with(Attribute::Key, &key.id);
        let budgets = || budgets_of(tenant, directory).chain(&key.limits.budgets);
        Self {
            group: tenant.group.as_str().into(),
            tenant: tenant.name.as_str().into(),
            key: key.id.as_str().into(),
            secret: key.hash,
            rights: key.rights.clone(),
            attributes,
            tenant_limits: tenant.limits.clone(),
            key_limits: key.limits.clone(),
            budgeted: budgets().any(|budget| !is_hosted(budget)),
            hosted_budgeted: budgets().any(is_hosted),
            money_budgeted: budgets().any(|budget| is_money(budget) && !is_hosted(budget)),
            hosted_money_budgeted: budgets().any(|budget| is_money(budget) && is_hosted(budget)),
            may_use_hosted: [tenant.limits.hosted, key.limits.hosted]
                .iter()
                .all(|hosted| *hosted == HostedUse::Allowed),
            claim: None,
            task_agent: None,
        }
    }

    /// Builds the caller of a task key. All agents of a project share one key id, whatever their task.
    pub(crate) fn of_task(
        key: &TaskKey,
        secret: KeyHash,
        tenant: &Tenant,
        directory: &Directory,
    ) -> Self {
        let key_id = format!("{PROJECT_KEY}{}", key.project);
        let attributes = Attributes::none()
            .with(Attribute::Group, &tenant.group)
            .with(Attribute::Tenant, &tenant.name)
            .with(Attribute::Key, &key_id)
            .with(Attribute::Project, &key.project);
        Self {
            group: tenant.group.as_str().into(),
            tenant: tenant.name.as_str().into(),
            key: key_id.into(),
            secret,
            rights: key.rights.clone(),
            attributes,
            tenant_limits: tenant.limits.clone(),
            key_limits: DirectoryLimits::default(),
            // The project's budget and the validity of the claim are checked at the reservation.
            budgeted: true,
            hosted_budgeted: budgets_of(tenant, directory).any(is_hosted),
            // A cap of money must refuse a model without a price, as a budget does, because the
            // model would cost nothing.
            money_budgeted: key.has_money_max
                || budgets_of(tenant, directory)
                    .any(|budget| is_money(budget) && !is_hosted(budget)),
            hosted_money_budgeted: budgets_of(tenant, directory)
                .any(|budget| is_money(budget) && is_hosted(budget)),
            may_use_hosted: tenant.limits.hosted == HostedUse::Allowed,
            claim: Some(TaskClaim {
                project: key.project.clone(),
                task: key.task.clone(),
                epoch: key.epoch,
            }),
            task_agent: Some(key.agent.as_str().into()),
        }
    }
}

/// Returns the budgets that count all requests of a tenant: the tenant's own, its group's, and those of the hosted
/// tier.
fn budgets_of<'a>(
    tenant: &'a Tenant,
    directory: &'a Directory,
) -> impl Iterator<Item = &'a Budget> {
    let group = directory.groups.binary_search_by(|group| group.name.cmp(&tenant.group));
    let of_group = group.ok().map(|place| &directory.groups[place].budgets);
    tenant.limits.budgets.iter().chain(of_group.into_iter().flatten()).chain(&directory.hosted)
}

fn is_money(budget: &Budget) -> bool {
    budget.unit == BudgetUnit::Money
}

fn is_hosted(budget: &Budget) -> bool {
    budget.tier == BudgetTier::Hosted
}

impl CallerEntry {
    fn new(key: &Key, tenant: &Tenant, directory: &Directory) -> Self {
        Self {
            caller: Arc::new(Caller::of_key(key, tenant, directory)),
            expires_at: key.expires_at,
            revoked: key.revoked_at.is_some(),
            tenant_disabled: tenant.disabled,
        }
    }

    fn admit(&self, now: UnixMicros) -> Result<(), Refusal> {
        if self.revoked {
            return Err(Refusal::new(
                RefusalCode::KeyRevoked,
                "this API key was revoked; ask for a new one",
            ));
        }
        if self.expires_at.is_some_and(|end| end <= now) {
            return Err(Refusal::new(
                RefusalCode::KeyExpired,
                "this API key has expired; ask for a new one",
            ));
        }
        if self.tenant_disabled {
            return Err(disabled(&self.caller.tenant));
        }
        Ok(())
    }
}

fn disabled(tenant: &str) -> Refusal {
    let message =
        format!("tenant {tenant:?} is disabled; an operator of this gateway can enable it");
    Refusal::new(RefusalCode::TenantDisabled, message)
}

#[cfg(test)]
mod tests;
