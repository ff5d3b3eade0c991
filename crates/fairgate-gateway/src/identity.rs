//! Who asks: the directory, held in memory, found by the hash of a key.

mod presented;
mod task_keys;

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use fairgate_core::attribute::{Attribute, Attributes};
use fairgate_dialect::Problem;
use fairgate_fleet::TaskKey;
use fairgate_store::{
    Budget, BudgetTier, Directory, HostedUse, Key, KeyHash, Limits, Rights, Store, StoreError,
    TaskClaim, Tenant, UnixMicros,
};
use http::{HeaderMap, StatusCode};
use tokio::sync::Mutex;

pub(crate) use presented::presented_secret;

use self::task_keys::TaskKeys;

/// What the key ids of projects begin with. No key of the directory has such an id.
const PROJECT_KEY: &str = "project:";

/// Who a request belongs to, and what that caller may do. Made once for each key when the directory is read.
#[derive(Debug)]
pub struct Caller {
    /// The group of its tenant.
    pub group: Arc<str>,
    /// Its tenant.
    pub tenant: Arc<str>,
    /// The id of its key.
    pub key: Arc<str>,
    /// The hash of the secret that it came with.
    pub secret: KeyHash,
    /// The models that it may ask for; all where absent.
    pub models: Option<Vec<String>>,
    /// What it may choose for its requests.
    pub rights: Rights,
    /// The attributes of a request that names no class: group, tenant and key.
    pub attributes: Attributes,
    /// Its tenant's limits.
    pub tenant_limits: Limits,
    /// Its key's limits.
    pub key_limits: Limits,
    /// Whether its group, tenant or key has a budget that counts on any worker.
    pub budgeted: bool,
    /// Whether its group, tenant or key, or the hosted tier as a whole, has a budget that counts on hosted workers.
    pub hosted_budgeted: bool,
    /// Whether its tenant and its key may use hosted workers.
    pub may_use_hosted: bool,
    /// The task that it works on, where it came with a task's key. Its key id is then that of its project.
    pub claim: Option<TaskClaim>,
}

/// The directory as the gateway uses it. Reading is lock-free; a change swaps the whole.
#[derive(Debug)]
pub struct Identity {
    book: ArcSwap<Book>,
    /// One refresh at a time, so that an older reading never replaces a newer one.
    refreshing: Mutex<()>,
    task_keys: TaskKeys,
}

/// The directory and the callers in it, by the hash of their secret.
#[derive(Debug)]
struct Book {
    directory: Arc<Directory>,
    callers: HashMap<KeyHash, Entry>,
}

/// A key, also one that is refused: its owner is told why.
#[derive(Debug)]
struct Entry {
    caller: Arc<Caller>,
    expires_at: Option<UnixMicros>,
    revoked: bool,
    tenant_disabled: bool,
}

impl Identity {
    /// Reads the directory.
    pub async fn load(store: &Store) -> Result<Self, StoreError> {
        Ok(Self::of(store.directory().await?))
    }

    /// An identity with this directory in it.
    fn of(directory: Directory) -> Self {
        Self {
            book: ArcSwap::from_pointee(Book::new(directory)),
            refreshing: Mutex::new(()),
            task_keys: TaskKeys::default(),
        }
    }

    /// The caller behind `Authorization: Bearer …` or `x-api-key: …`. 401 `invalid_api_key` (missing, malformed,
    /// unknown, two different ones), 401 `key_revoked`, 401 `key_expired`, 403 `tenant_disabled`.
    ///
    /// Asked when a request comes, and again by [`still`](Self::still) when it has its slot: what is in flight when a key is
    /// revoked goes on.
    pub fn caller(&self, headers: &HeaderMap, now: UnixMicros) -> Result<Arc<Caller>, Problem> {
        let secret = presented_secret(headers)?;
        Ok(self.book.load().admitted(&KeyHash::of(secret), now)?.caller.clone())
    }

    /// Whether a caller that was let in would be let in now. It may have waited for minutes, and a leaked key must not
    /// have what it queued served after it was revoked.
    pub fn still(&self, caller: &Caller, now: UnixMicros) -> Result<(), Problem> {
        let book = self.book.load();
        match &caller.claim {
            Some(_) => book.tenant(&caller.tenant).map(drop),
            None => book.admitted(&caller.secret, now).map(drop),
        }
    }

    /// The caller that a task's key stands for. 401 `invalid_api_key` where its tenant is not known here, 403
    /// `tenant_disabled`.
    fn of_task(&self, key: &TaskKey, secret: KeyHash) -> Result<Arc<Caller>, Problem> {
        let book = self.book.load();
        let tenant = book.tenant(&key.tenant)?;
        Ok(Arc::new(Caller::of_task(key, secret, tenant, &book.directory)))
    }

    /// The directory in force.
    pub fn directory(&self) -> Arc<Directory> {
        self.book.load().directory.clone()
    }

    /// Reads the directory again where its version is another, and says whether it was.
    pub async fn refresh(&self, store: &Store) -> Result<bool, StoreError> {
        let _one_at_a_time = self.refreshing.lock().await;
        if store.directory_version().await? == self.book.load().directory.version {
            return Ok(false);
        }
        let directory = store.directory().await?;
        self.book.store(Arc::new(Book::new(directory)));
        Ok(true)
    }
}

impl Book {
    fn new(directory: Directory) -> Self {
        let tenants: HashMap<&str, &Tenant> =
            directory.tenants.iter().map(|tenant| (tenant.name.as_str(), tenant)).collect();
        // A key whose tenant is not there was read in the middle of nothing: it is nobody's.
        let entry = |key: &Key| {
            let tenant = tenants.get(key.tenant.as_str())?;
            Some((key.hash, Entry::new(key, tenant, &directory)))
        };
        let callers = directory.keys.iter().filter_map(entry).collect();
        Self { directory: Arc::new(directory), callers }
    }

    /// The entry of this secret, where it may come in.
    fn admitted(&self, secret: &KeyHash, now: UnixMicros) -> Result<&Entry, Problem> {
        let entry = self.callers.get(secret).ok_or_else(|| {
            refused(
                "invalid_api_key",
                "this API key is not known here; check it, or ask for a new one",
            )
        })?;
        entry.admit(now)?;
        Ok(entry)
    }

    /// The tenant of this name, where it may come in.
    fn tenant(&self, name: &str) -> Result<&Tenant, Problem> {
        let tenants = &self.directory.tenants;
        let place = tenants.binary_search_by(|tenant| (*tenant.name).cmp(name));
        let tenant = place.ok().map(|place| &tenants[place]).ok_or_else(|| {
            refused("invalid_api_key", "the tenant of this task key is not known here")
        })?;
        if tenant.disabled { Err(disabled(name)) } else { Ok(tenant) }
    }
}

impl Caller {
    /// A tenant that comes with one of its keys.
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
            models: key.models.clone(),
            rights: key.rights.clone(),
            attributes,
            tenant_limits: tenant.limits.clone(),
            key_limits: key.limits.clone(),
            budgeted: budgets().any(|budget| !is_hosted(budget)),
            hosted_budgeted: budgets().any(is_hosted),
            may_use_hosted: [tenant.limits.hosted, key.limits.hosted]
                .iter()
                .all(|hosted| *hosted == HostedUse::Allowed),
            claim: None,
        }
    }

    /// An agent that works on a task of a tenant's project. All agents of a project are one key, whichever task they have.
    fn of_task(key: &TaskKey, secret: KeyHash, tenant: &Tenant, directory: &Directory) -> Self {
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
            models: None,
            rights: Rights::default(),
            attributes,
            tenant_limits: tenant.limits.clone(),
            key_limits: Limits::default(),
            // Its project's budget, and that its claim is in force, are looked at when it reserves.
            budgeted: true,
            hosted_budgeted: budgets_of(tenant, directory).any(is_hosted),
            may_use_hosted: tenant.limits.hosted == HostedUse::Allowed,
            claim: Some(TaskClaim {
                project: key.project.clone(),
                task: key.task.clone(),
                epoch: key.epoch,
            }),
        }
    }
}

/// The budgets that the requests of all of a tenant's keys count in.
fn budgets_of<'a>(
    tenant: &'a Tenant,
    directory: &'a Directory,
) -> impl Iterator<Item = &'a Budget> {
    let group = directory.groups.binary_search_by(|group| group.name.cmp(&tenant.group));
    let of_group = group.ok().map(|place| &directory.groups[place].budgets);
    tenant.limits.budgets.iter().chain(of_group.into_iter().flatten()).chain(&directory.hosted)
}

fn is_hosted(budget: &Budget) -> bool {
    budget.tier == BudgetTier::Hosted
}

impl Entry {
    fn new(key: &Key, tenant: &Tenant, directory: &Directory) -> Self {
        Self {
            caller: Arc::new(Caller::of_key(key, tenant, directory)),
            expires_at: key.expires_at,
            revoked: key.revoked_at.is_some(),
            tenant_disabled: tenant.disabled,
        }
    }

    fn admit(&self, now: UnixMicros) -> Result<(), Problem> {
        if self.revoked {
            return Err(refused("key_revoked", "this API key was revoked; ask for a new one"));
        }
        if self.expires_at.is_some_and(|end| end <= now) {
            return Err(refused("key_expired", "this API key has expired; ask for a new one"));
        }
        if self.tenant_disabled {
            return Err(disabled(&self.caller.tenant));
        }
        Ok(())
    }
}

fn disabled(tenant: &str) -> Problem {
    let message =
        format!("tenant {tenant:?} is disabled; an operator of this gateway can enable it");
    let (status, code) = (StatusCode::FORBIDDEN, "tenant_disabled");
    Problem { status, code, message, param: None, reached: None }
}

/// A 401.
fn refused(code: &'static str, message: &str) -> Problem {
    let (status, message) = (StatusCode::UNAUTHORIZED, message.to_owned());
    Problem { status, code, message, param: None, reached: None }
}

#[cfg(test)]
mod tests;
