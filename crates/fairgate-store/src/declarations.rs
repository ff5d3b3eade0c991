//! Plans the changes of the directory for the groups, tenants and keys that a configuration file
//! declares.
//!
//! [`plan_declarations`] compares a file with the directory. Without a database, it decides what to
//! create, to change and to disable. A tenant that the last file declared and this one does not is
//! disabled, and such a key is revoked. Such a group does not change, but the admin API may change
//! it again. The rows of all these objects stay, and a file that declares them again restores them.
//! Objects that no file ever declared are not changed.
//!
//! A declared group or tenant is identified by its name. A declared key is identified by the hash
//! of its secret. If no key has that hash, the key is identified by the name under which the file
//! declared it before; it then gets the new secret and keeps its id.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use fairgate_time::UnixMicros;

use crate::budget::Budget;
use crate::declaration_record::{DeclarationRecord, DeclaredKind, DeclaredSource};
use crate::directory::{Directory, Group, Key, Tenant};
use crate::error::StoreError;
use crate::secret::KeyHash;

/// Groups, tenants and keys that a file declares. The caller has checked that names and secrets are unique, and that
/// each tenant's group and each key's tenant are declared too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Declarations {
    /// Path of the file, for messages.
    pub file: String,
    /// Name of the gateway that applies the file, for messages.
    pub gateway: String,
    /// True if the file has a section for groups, tenants or keys, even an empty one.
    pub is_stated: bool,
    /// The groups. `created_at` has no effect.
    pub groups: Vec<DeclaredObject<Group>>,
    /// The tenants. `created_at` has no effect.
    pub tenants: Vec<DeclaredObject<Tenant>>,
    /// The keys. `id`, `created_at` and `revoked_at` have no effect.
    pub keys: Vec<DeclaredObject<Key>>,
}

/// A declared group, tenant or key, with its line in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredObject<T> {
    /// Line of the object in the file, from 1.
    pub line: u64,
    /// The settings that the file states.
    pub object: T,
}

/// Changes of the directory that a file makes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeclarationPlan {
    /// The changes, in the order in which they are made.
    pub steps: Vec<DeclarationStep>,
    /// Notes about declared objects that differ from those in the database.
    pub(crate) records: Vec<DeclarationRecord>,
    /// Number of tenants and keys that are declared in the directory now and not disabled or
    /// revoked.
    pub usable: usize,
    /// The source to write, if it differs from the one in the database.
    pub(crate) source: Option<DeclaredSource>,
    /// The source of another gateway with other declarations, which this file replaces; `None` if
    /// there is none.
    pub replaces: Option<DeclaredSource>,
    /// The source of another file whose declarations stay, because this file declares nothing at
    /// all; `None` if there is none.
    pub leaves: Option<DeclaredSource>,
}

/// One change of the directory that a file makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclarationStep {
    /// Action on the object.
    pub action: DeclarationAction,
    /// The object before the step, if it existed, and after it.
    pub(crate) change: DeclaredChange,
    /// Path of the file. `line` is the line of the object in it, and `None` if the file no longer
    /// declares the object.
    pub(crate) file: String,
    pub(crate) line: Option<u64>,
}

/// Action of a [`DeclarationStep`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeclarationAction {
    /// The object does not exist and is created.
    Create,
    /// The object gets other settings.
    Change,
    /// The key gets another secret under its id.
    Rotate,
    /// The object already has the settings of the file. From now on only the file may change it.
    Declare,
    /// The file no longer declares the tenant, which is disabled, or the key, which is revoked.
    Disable,
    /// The file no longer declares the object, which keeps its settings. The admin API may change
    /// it again.
    Release,
}

/// States of an object before and after a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DeclaredChange {
    Group(Option<Group>, Group),
    Tenant(Option<Box<Tenant>>, Box<Tenant>),
    Key(Option<Box<Key>>, Box<Key>),
}

/// A declaration that contradicts the directory. The file is then not applied at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct DeclarationConflict {
    /// Line of the file.
    pub line: u64,
    /// Path of the field, such as `keys[2].secret`.
    pub field: String,
    /// Description of the problem, and of what can be done.
    pub problem: String,
}

/// Reason why a file's declarations were not applied. The directory is then unchanged.
#[derive(Debug, thiserror::Error)]
pub enum DeclarationError {
    /// A declaration contradicts the directory.
    #[error(transparent)]
    Conflict(#[from] DeclarationConflict),
    /// The file would disable more than half of what is declared, and the caller does not allow that.
    #[error("would disable {disabled} of {usable} declared tenants and keys")]
    DisablesMost {
        /// Number of tenants and keys that would be disabled.
        disabled: usize,
        /// Number of tenants and keys that are declared in the directory now and not disabled or
        /// revoked.
        usable: usize,
    },
    /// The database could not be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl DeclarationStep {
    /// Returns true if the step disables a tenant or revokes a key because the file no longer
    /// declares it.
    pub fn is_disabling(&self) -> bool {
        self.action == DeclarationAction::Disable
    }
}

impl fmt::Display for DeclarationStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_key = matches!(self.change, DeclaredChange::Key(..));
        match &self.change {
            DeclaredChange::Group(_, group) => write!(f, "group {}", group.name)?,
            DeclaredChange::Tenant(_, tenant) => write!(f, "tenant {}", tenant.name)?,
            DeclaredChange::Key(_, key) => {
                write!(f, "key {} of tenant {} ({})", key.name, key.tenant, key.id)?;
            }
        }
        f.write_str(": ")?;
        f.write_str(match self.action {
            DeclarationAction::Create => "created",
            DeclarationAction::Change => "changed",
            DeclarationAction::Rotate => "gets another secret",
            DeclarationAction::Declare => "declared as it is",
            DeclarationAction::Disable if is_key => "revoked",
            DeclarationAction::Disable => "disabled",
            DeclarationAction::Release => "released",
        })?;
        match self.line {
            Some(line) => write!(f, ", {}:{line}", self.file),
            None => f.write_str(", no longer declared"),
        }
    }
}

impl DeclarationPlan {
    /// Returns the number of tenants and keys that are disabled because the file no longer declares
    /// them.
    pub fn disabled(&self) -> usize {
        self.steps.iter().filter(|step| step.is_disabling()).count()
    }

    /// Returns true if more than half of the usable declared tenants and keys would be disabled.
    pub fn disables_most(&self) -> bool {
        2 * self.disabled() > self.usable
    }

    /// Returns true if nothing is written to the database.
    pub(crate) fn is_empty(&self) -> bool {
        self.steps.is_empty() && self.records.is_empty() && self.source.is_none()
    }
}

impl Directory {
    /// Returns the note about an object; `None` unless the file that was applied last declares the
    /// object.
    pub fn declaration(&self, kind: DeclaredKind, name: &str) -> Option<&DeclarationRecord> {
        let place = |record: &DeclarationRecord| (record.kind, &*record.name).cmp(&(kind, name));
        let found = self.declared.binary_search_by(place).ok()?;
        Some(&self.declared[found]).filter(|record| !record.is_withdrawn)
    }
}

impl Declarations {
    /// Returns the digest of the file's declarations, without paths and lines.
    pub fn digest(&self) -> String {
        let mut parts = Vec::new();
        parts.extend(self.groups.iter().map(|group| format!("group {:?}", group.object)));
        parts.extend(self.tenants.iter().map(|tenant| format!("tenant {:?}", tenant.object)));
        // `Debug` hides the hash of a key, so it is added here.
        let hash = |hash: KeyHash| blake3::Hash::from_bytes(hash.0).to_hex();
        let key = |key: &DeclaredObject<Key>| {
            // The hint is left out, because it depends on how the file states the secret.
            let object = Key { hint: String::new(), ..key.object.clone() };
            format!("key {object:?} {}", hash(object.hash))
        };
        parts.extend(self.keys.iter().map(key));
        parts.sort_unstable();
        blake3::hash(parts.join("\n").as_bytes()).to_hex().to_string()
    }
}

/// Compares the declarations of a file with the directory, and decides what to change. Fails if the
/// file may not declare one of its keys. `at` is the time at which the file is applied.
pub fn plan_declarations(
    declared: &Declarations,
    directory: &Directory,
    at: UnixMicros,
) -> Result<DeclarationPlan, DeclarationConflict> {
    let before = directory.declared_source.as_ref();
    if !declared.is_stated && before.is_none_or(|source| source.file != declared.file) {
        // A file without any of the sections does not affect the declarations of other files.
        return Ok(DeclarationPlan { leaves: before.cloned(), ..DeclarationPlan::default() });
    }
    let mut planner = DeclarationPlanner {
        declared,
        at,
        records: directory.declared.iter().map(|it| ((it.kind, &*it.name), it)).collect(),
        declared_now: BTreeSet::new(),
        plan: DeclarationPlan { usable: usable(directory), ..DeclarationPlan::default() },
    };
    planner.groups(directory);
    planner.tenants(directory);
    planner.keys(directory)?;
    planner.withdraw(directory);
    let mut plan = planner.plan;
    let digest = declared.digest();
    let is_same = before.is_some_and(|source| source.digest == digest);
    if !is_same {
        let is_other = |source: &&DeclaredSource| source.gateway != declared.gateway;
        plan.replaces = before.filter(is_other).cloned();
        let Declarations { gateway, file, .. } = declared.clone();
        plan.source = Some(DeclaredSource { gateway, file, digest, applied_at: at });
    }
    Ok(plan)
}

/// Returns the number of declared tenants and keys that can be used.
fn usable(directory: &Directory) -> usize {
    let is_declared = |kind, name: &str| directory.declaration(kind, name).is_some();
    let tenants = directory.tenants.iter().filter(|tenant| !tenant.disabled);
    let tenants = tenants.filter(|tenant| is_declared(DeclaredKind::Tenant, &tenant.name));
    let keys = directory.keys.iter().filter(|key| key.revoked_at.is_none());
    tenants.count() + keys.filter(|key| is_declared(DeclaredKind::Key, &key.id)).count()
}

struct DeclarationPlanner<'a> {
    declared: &'a Declarations,
    at: UnixMicros,
    records: BTreeMap<(DeclaredKind, &'a str), &'a DeclarationRecord>,
    /// Names and ids of the objects that the file declares.
    declared_now: BTreeSet<(DeclaredKind, String)>,
    plan: DeclarationPlan,
}

impl DeclarationPlanner<'_> {
    /// Plans a declared object. Adds a step if the object must be created or changed, and a note if
    /// it differs from the stored one.
    fn put(&mut self, kind: DeclaredKind, name: &str, line: u64, change: DeclaredChange) {
        let known = self.records.get(&(kind, name)).copied();
        let is_declared = known.is_some_and(|record| !record.is_withdrawn);
        let action = match &change {
            change if change.is_new() => Some(DeclarationAction::Create),
            change if change.is_rotation() => Some(DeclarationAction::Rotate),
            change if !change.is_unchanged() => Some(DeclarationAction::Change),
            _ if !is_declared => Some(DeclarationAction::Declare),
            _ => None,
        };
        let file = self.declared.file.clone();
        if let Some(action) = action {
            let step = DeclarationStep { action, change, file: file.clone(), line: Some(line) };
            self.plan.steps.push(step);
        }
        let record =
            DeclarationRecord { kind, name: name.to_owned(), file, line, is_withdrawn: false };
        if known != Some(&record) {
            self.plan.records.push(record);
        }
        self.declared_now.insert((kind, name.to_owned()));
    }

    fn groups(&mut self, directory: &Directory) {
        for DeclaredObject { line, object } in &self.declared.groups {
            let before = directory.groups.iter().find(|group| group.name == object.name);
            let created_at = before.map_or(self.at, |group| group.created_at);
            let after = Group { created_at, budgets: sorted(&object.budgets), ..object.clone() };
            let change = DeclaredChange::Group(before.cloned(), after);
            self.put(DeclaredKind::Group, &object.name, *line, change);
        }
    }

    fn tenants(&mut self, directory: &Directory) {
        for DeclaredObject { line, object } in &self.declared.tenants {
            let before = directory.tenants.iter().find(|tenant| tenant.name == object.name);
            let mut after = object.clone();
            after.created_at = before.map_or(self.at, |tenant| tenant.created_at);
            after.limits.budgets = sorted(&after.limits.budgets);
            let change = DeclaredChange::Tenant(before.cloned().map(Box::new), Box::new(after));
            self.put(DeclaredKind::Tenant, &object.name, *line, change);
        }
    }

    fn keys(&mut self, directory: &Directory) -> Result<(), DeclarationConflict> {
        let by_hash: HashMap<KeyHash, &Key> =
            directory.keys.iter().map(|key| (key.hash, key)).collect();
        let ids: BTreeSet<&str> = directory.keys.iter().map(|key| &*key.id).collect();
        // A key that is found by its secret must not be found again by its name.
        let mut found: Vec<Option<&Key>> = Vec::with_capacity(self.declared.keys.len());
        for (place, declared) in self.declared.keys.iter().enumerate() {
            let key = by_hash.get(&declared.object.hash).copied();
            if let Some(problem) = key.and_then(|key| self.conflict(key, &declared.object)) {
                let field = format!("keys[{place}].secret");
                return Err(DeclarationConflict { line: declared.line, field, problem });
            }
            found.push(key);
        }
        let mut taken: BTreeSet<&str> = found.iter().flatten().map(|key| &*key.id).collect();
        let mut new_ids: Vec<String> = Vec::new();
        for (declared, by_secret) in self.declared.keys.iter().zip(found) {
            let wanted = &declared.object;
            let is_it = |key: &&Key| {
                (&key.tenant, &key.name) == (&wanted.tenant, &wanted.name)
                    && self.records.contains_key(&(DeclaredKind::Key, &*key.id))
                    && !taken.contains(&*key.id)
            };
            let before = by_secret.or_else(|| directory.keys.iter().find(is_it));
            let mut after = wanted.clone();
            after.limits.budgets = sorted(&after.limits.budgets);
            after.revoked_at = None;
            match before {
                Some(key) => {
                    taken.insert(&key.id);
                    after.id = key.id.clone();
                    after.created_at = key.created_at;
                    if after.hash == key.hash {
                        after.hint = key.hint.clone();
                    }
                }
                None => {
                    after.id = new_key_id(wanted, |id| {
                        ids.contains(id) || new_ids.iter().any(|new| new == id)
                    });
                    after.created_at = self.at;
                    new_ids.push(after.id.clone());
                }
            }
            let id = after.id.clone();
            let change = DeclaredChange::Key(before.cloned().map(Box::new), Box::new(after));
            self.put(DeclaredKind::Key, &id, declared.line, change);
        }
        Ok(())
    }

    /// Returns the reason why a file may not declare a key with the secret of the key `known`;
    /// `None` if it may.
    fn conflict(&self, known: &Key, wanted: &Key) -> Option<String> {
        if known.tenant != wanted.tenant {
            return Some(format!(
                "is the secret of the key {} of the tenant {:?}: give this key another secret",
                known.id, known.tenant
            ));
        }
        let is_noted = self.records.contains_key(&(DeclaredKind::Key, &*known.id));
        (known.revoked_at.is_some() && !is_noted).then(|| {
            format!(
                "is the secret of the key {}, which was revoked and stays so: give this key another secret",
                known.id
            )
        })
    }

    /// Plans the objects that the last file declared and this one does not: disables tenants,
    /// revokes keys, releases groups.
    fn withdraw(&mut self, directory: &Directory) {
        // Keys come before their tenants, as if a person removed them one by one.
        for record in directory.declared.iter().rev() {
            let key = (record.kind, record.name.clone());
            if record.is_withdrawn || self.declared_now.contains(&key) {
                continue;
            }
            if let Some((action, change)) = withdrawal(record, directory, self.at) {
                let file = record.file.clone();
                self.plan.steps.push(DeclarationStep { action, change, file, line: None });
            }
            self.plan.records.push(DeclarationRecord { is_withdrawn: true, ..record.clone() });
        }
    }
}

/// Returns the action and the change for an object that is no longer declared; `None` if the object
/// does not exist.
fn withdrawal(
    record: &DeclarationRecord,
    directory: &Directory,
    at: UnixMicros,
) -> Option<(DeclarationAction, DeclaredChange)> {
    let (is_disabled, change) = match record.kind {
        DeclaredKind::Group => {
            let group = directory.groups.iter().find(|group| group.name == record.name)?;
            (true, DeclaredChange::Group(Some(group.clone()), group.clone()))
        }
        DeclaredKind::Tenant => {
            let tenant = directory.tenants.iter().find(|tenant| tenant.name == record.name)?;
            let after = Tenant { disabled: true, ..tenant.clone() };
            let before = Some(Box::new(tenant.clone()));
            (tenant.disabled, DeclaredChange::Tenant(before, Box::new(after)))
        }
        DeclaredKind::Key => {
            let key = directory.keys.iter().find(|key| key.id == record.name)?;
            let revoked_at = key.revoked_at.or(Some(at));
            let after = Key { revoked_at, ..key.clone() };
            let change = DeclaredChange::Key(Some(Box::new(key.clone())), Box::new(after));
            (key.revoked_at.is_some(), change)
        }
    };
    let action = if is_disabled { DeclarationAction::Release } else { DeclarationAction::Disable };
    Some((action, change))
}

impl DeclaredChange {
    fn is_new(&self) -> bool {
        match self {
            Self::Group(before, _) => before.is_none(),
            Self::Tenant(before, _) => before.is_none(),
            Self::Key(before, _) => before.is_none(),
        }
    }

    fn is_rotation(&self) -> bool {
        matches!(self, Self::Key(Some(before), after) if before.hash != after.hash)
    }

    fn is_unchanged(&self) -> bool {
        match self {
            Self::Group(before, after) => before.as_ref() == Some(after),
            Self::Tenant(before, after) => before.as_ref() == Some(after),
            Self::Key(before, after) => before.as_ref() == Some(after),
        }
    }
}

fn sorted(budgets: &[Budget]) -> Vec<Budget> {
    let mut budgets = budgets.to_vec();
    budgets.sort_by_key(Budget::kind);
    budgets
}

/// Returns the id of a new declared key: `key-` and 16 lower-case letters and digits. The id
/// follows from tenant, name and secret, so equal files give equal ids in each database.
fn new_key_id(key: &Key, is_taken: impl Fn(&str) -> bool) -> String {
    const ALPHABET: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    let mut tries: u64 = 0;
    loop {
        let mut hasher = blake3::Hasher::new();
        for part in [key.tenant.as_bytes(), key.name.as_bytes()] {
            hasher.update(part).update(&[0]);
        }
        hasher.update(&key.hash.0).update(&tries.to_le_bytes());
        let bytes = hasher.finalize();
        let characters = bytes.as_bytes().iter().take(16);
        let characters = characters.map(|byte| char::from(ALPHABET[usize::from(byte % 36)]));
        let id: String = "key-".chars().chain(characters).collect();
        if !is_taken(&id) {
            return id;
        }
        tries += 1;
    }
}

#[cfg(test)]
mod tests;
