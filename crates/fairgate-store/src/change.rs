//! Computes the statements and the result of a change of the directory, with the same code for both
//! databases.

pub(crate) mod undo;

use fairgate_money::Price;
use fairgate_time::UnixMicros;
use serde_json::Value as Json;

use crate::budget::Budget;
use crate::change_validation;
use crate::declaration_record::{DeclarationRecord, DeclaredKind};
use crate::directory::{
    DirectoryChange, DirectoryChangeResult, Group, GroupPatch, Key, KeyPatch, Tenant, TenantPatch,
};
use crate::error::StoreError;
use crate::ledger::PriceVersion;
use crate::secret::KeySecret;
use crate::sql::{self, SqlStatement};

type Result<T> = std::result::Result<T, StoreError>;

/// Names and ids of the objects that a change names. These objects are looked up before the effects
/// of the change are computed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ChangeSubject<'a> {
    pub(crate) group: Option<&'a str>,
    pub(crate) tenant: Option<&'a str>,
    pub(crate) key: Option<&'a str>,
    pub(crate) hosted: bool,
    pub(crate) prices: bool,
    /// The existing object that the change affects.
    pub(crate) changed: Option<(DeclaredKind, &'a str)>,
}

/// The objects that were found for a [`ChangeSubject`].
#[derive(Debug, Default)]
pub(crate) struct ChangeLookup {
    pub(crate) group: Option<Group>,
    pub(crate) tenant: Option<Tenant>,
    pub(crate) key: Option<Key>,
    /// Number of tenants in the group that the change refers to.
    pub(crate) tenants_of_group: u64,
    /// Ids of all keys of the tenant that the change refers to.
    pub(crate) keys_of_tenant: Vec<String>,
    /// Names of all projects of the tenant that the change refers to.
    pub(crate) projects_of_tenant: Vec<String>,
    /// Budgets of the hosted tier as a whole.
    pub(crate) hosted: Vec<Budget>,
    /// All prices that were ever stored.
    pub(crate) prices: Vec<PriceVersion>,
    /// The note about the affected object, if a file declares it or once declared it.
    pub(crate) declared: Option<DeclarationRecord>,
}

/// SQL statements to run for a change; none if the change has no effect.
#[derive(Debug)]
pub(crate) struct DirectoryEdit {
    pub(crate) statements: Vec<SqlStatement>,
    /// Result of the change for the caller. The version is set later.
    pub(crate) changed: DirectoryChangeResult,
}

impl DirectoryChange {
    pub(crate) fn subject(&self) -> ChangeSubject<'_> {
        let none = ChangeSubject { changed: self.changed_object(), ..ChangeSubject::default() };
        match self {
            Self::AddGroup { name, .. }
            | Self::PatchGroup { name, .. }
            | Self::RemoveGroup { name } => ChangeSubject { group: Some(name), ..none },
            Self::AddTenant { name, group, .. } => {
                ChangeSubject { group: Some(group), tenant: Some(name), ..none }
            }
            Self::PatchTenant { name, patch } => {
                ChangeSubject { group: patch.group.as_deref(), tenant: Some(name), ..none }
            }
            Self::RemoveTenant { name } => ChangeSubject { tenant: Some(name), ..none },
            Self::CreateKey { tenant, .. } => ChangeSubject { tenant: Some(tenant), ..none },
            Self::PatchKey { id, .. } | Self::RotateKey { id } | Self::RevokeKey { id } => {
                ChangeSubject { key: Some(id), ..none }
            }
            Self::SetHosted { .. } => ChangeSubject { hosted: true, ..none },
            Self::Undo { entry } => undo::subject(entry),
            Self::KeepPrices { .. } => ChangeSubject { prices: true, ..none },
            Self::Note { .. } => none,
        }
    }

    /// Returns true if the change affects the directory that gateways keep in memory. A change that
    /// only writes an audit entry does not.
    pub(crate) fn changes_directory(&self) -> bool {
        !matches!(self, Self::Note { .. })
    }

    /// Returns the existing object that the change affects.
    fn changed_object(&self) -> Option<(DeclaredKind, &str)> {
        match self {
            Self::PatchGroup { name, .. } | Self::RemoveGroup { name } => {
                Some((DeclaredKind::Group, name))
            }
            Self::PatchTenant { name, .. } | Self::RemoveTenant { name } => {
                Some((DeclaredKind::Tenant, name))
            }
            Self::PatchKey { id, .. } | Self::RotateKey { id } | Self::RevokeKey { id } => {
                Some((DeclaredKind::Key, id))
            }
            Self::AddGroup { .. }
            | Self::AddTenant { .. }
            | Self::CreateKey { .. }
            | Self::SetHosted { .. }
            | Self::KeepPrices { .. }
            | Self::Undo { .. }
            | Self::Note { .. } => None,
        }
    }

    /// Computes the statements of the change, including its audit entry.
    pub(crate) fn edit(
        &self,
        actor: &str,
        at: UnixMicros,
        found: ChangeLookup,
    ) -> Result<DirectoryEdit> {
        let writer = AuditWriter { actor, at };
        if let Some(DeclarationRecord { kind, name, file, line, is_withdrawn: false }) =
            &found.declared
        {
            let (name, file) = (name.clone(), file.clone());
            return Err(StoreError::Declared { what: kind.word(), name, file, line: *line });
        }
        match self.clone() {
            Self::AddGroup { name, weight, budgets } => {
                let group = Group { name, weight, budgets, created_at: at };
                add_group(writer, found, group)
            }
            Self::PatchGroup { name, patch } => patch_group(writer, found, &name, patch),
            Self::SetHosted { budgets } => Ok(set_hosted(writer, found, budgets)),
            Self::Undo { entry } => {
                let inverse = undo::inverse(&entry, &found)?;
                change_validation::change(actor, at, &inverse)?;
                inverse.edit(actor, at, found)
            }
            Self::KeepPrices { prices } => keep_prices(writer, found, &prices),
            Self::RemoveGroup { name } => remove_group(writer, found, &name),
            Self::AddTenant { name, group, weight, limits, requires } => {
                let (disabled, created_at) = (false, at);
                let tenant = Tenant { name, group, weight, disabled, limits, requires, created_at };
                add_tenant(writer, found, tenant)
            }
            Self::PatchTenant { name, patch } => patch_tenant(writer, found, &name, patch),
            Self::RemoveTenant { name } => remove_tenant(writer, found, &name),
            Self::CreateKey { tenant, name, weight, limits, rights, expires_at } => {
                check_exists(found.tenant, "tenant", &tenant)?;
                let secret = secret()?;
                let key = Key {
                    id: key_id()?,
                    tenant,
                    name,
                    hint: secret.hint(),
                    hash: secret.hash(),
                    weight,
                    limits,
                    rights,
                    created_at: at,
                    expires_at,
                    revoked_at: None,
                };
                Ok(writer.key("key.create", None, key, Some(secret)))
            }
            Self::PatchKey { id, patch } => patch_key(writer, found, &id, patch),
            Self::RotateKey { id } => rotate_key(writer, found, &id),
            Self::RevokeKey { id } => {
                let before = check_exists(found.key, "key", &id)?;
                let revoked_at = before.revoked_at.or(Some(at));
                let after = Key { revoked_at, ..before.clone() };
                Ok(writer.key("key.revoke", Some(before), after, None))
            }
            Self::Note { action, subject, before, after } => {
                let statements = vec![writer.audit(action, &subject, before, Some(after))];
                Ok(DirectoryEdit { statements, changed: unchanged() })
            }
        }
    }
}

fn check_exists<T>(found: Option<T>, what: &'static str, name: &str) -> Result<T> {
    found.ok_or_else(|| StoreError::NotFound { what, name: name.to_owned() })
}

fn check_new<T>(found: Option<&T>, what: &'static str, name: &str) -> Result<()> {
    match found {
        Some(_) => Err(StoreError::Exists { what, name: name.to_owned() }),
        None => Ok(()),
    }
}

fn add_group(writer: AuditWriter<'_>, found: ChangeLookup, group: Group) -> Result<DirectoryEdit> {
    check_new(found.group.as_ref(), "group", &group.name)?;
    Ok(writer.group("group.add", None, group))
}

fn patch_group(
    writer: AuditWriter<'_>,
    found: ChangeLookup,
    name: &str,
    patch: GroupPatch,
) -> Result<DirectoryEdit> {
    let before = check_exists(found.group, "group", name)?;
    let mut after = before.clone();
    after.weight = patch.weight.unwrap_or(after.weight);
    after.budgets = patch.budgets.unwrap_or(after.budgets);
    Ok(writer.group("group.patch", Some(before), after))
}

/// The hosted tier, in the form of the audit trail.
#[derive(PartialEq, serde::Serialize)]
struct HostedTier {
    budgets: Vec<Budget>,
}

fn set_hosted(
    writer: AuditWriter<'_>,
    found: ChangeLookup,
    mut budgets: Vec<Budget>,
) -> DirectoryEdit {
    sort_budgets(&mut budgets);
    let (before, after) = (HostedTier { budgets: found.hosted }, HostedTier { budgets });
    let put = |tier: &HostedTier| sql::put_hosted(&tier.budgets);
    let statements = writer.put("hosted.set", "hosted", Some(&before), &after, put);
    DirectoryEdit {
        statements,
        changed: DirectoryChangeResult { hosted: Some(after.budgets), ..unchanged() },
    }
}

/// Formats a price for the audit trail, with amounts as decimals in the price's currency.
fn price_json(price: &Price) -> Json {
    let rates = &price.rates;
    serde_json::json!({
        "id": price.id,
        "model": price.model,
        "upstream": price.upstream,
        "currency": price.currency,
        "input_per_million_tokens": rates.input.to_string(),
        "cached_input_per_million_tokens": rates.cached_input.to_string(),
        "cache_write_per_million_tokens": rates.cache_write.map(|rate| rate.to_string()),
        "cache_write_1h_per_million_tokens": rates.cache_write_1h.map(|rate| rate.to_string()),
        "output_per_million_tokens": rates.output.to_string(),
        "per_request": rates.request.to_string(),
        "from": price.from.map(fairgate_time::UtcDay::name),
    })
}

/// Builds one statement and one audit entry for each price that is not stored yet.
fn keep_prices(
    writer: AuditWriter<'_>,
    found: ChangeLookup,
    prices: &[Price],
) -> Result<DirectoryEdit> {
    let known = found.prices;
    let currency = known.first().map(|known| &known.price).or(prices.first());
    let mut statements = Vec::new();
    for (place, price) in prices.iter().enumerate() {
        if let Some(first) = currency.filter(|first| first.currency != price.currency) {
            let problem = format!(
                "is {}, and this database counts money in {}: an installation has one currency; go back to {}, or start \
                 with a new database",
                price.currency, first.currency, first.currency
            );
            return Err(StoreError::Invalid { field: "prices.currency", problem });
        }
        let is_known = known.iter().any(|known| known.price.id == price.id);
        if is_known || prices[..place].iter().any(|earlier| earlier.id == price.id) {
            continue;
        }
        // The replaced price is the last one for the same model and upstream.
        let is_same = |known: &&PriceVersion| {
            (&known.price.model, &known.price.upstream) == (&price.model, &price.upstream)
        };
        let before = known.iter().rfind(is_same).map(|known| price_json(&known.price));
        statements.push(sql::put_price(price, writer.at));
        statements.push(writer.audit("price.add", &price.model, before, Some(price_json(price))));
    }
    Ok(DirectoryEdit { statements, changed: unchanged() })
}

fn remove_group(writer: AuditWriter<'_>, found: ChangeLookup, name: &str) -> Result<DirectoryEdit> {
    let before = check_exists(found.group, "group", name)?;
    if found.tenants_of_group > 0 {
        let by = format!("it has {} tenants; move or remove them first", found.tenants_of_group);
        return Err(StoreError::InUse { what: "group", name: name.to_owned(), by });
    }
    let mut statements = sql::drop_group(name);
    statements.push(writer.audit("group.remove", name, Some(json(&before)), None));
    Ok(DirectoryEdit { statements, changed: unchanged() })
}

fn add_tenant(
    writer: AuditWriter<'_>,
    found: ChangeLookup,
    tenant: Tenant,
) -> Result<DirectoryEdit> {
    check_new(found.tenant.as_ref(), "tenant", &tenant.name)?;
    check_exists(found.group, "group", &tenant.group)?;
    Ok(writer.tenant("tenant.add", None, tenant))
}

fn patch_tenant(
    writer: AuditWriter<'_>,
    found: ChangeLookup,
    name: &str,
    patch: TenantPatch,
) -> Result<DirectoryEdit> {
    let before = check_exists(found.tenant, "tenant", name)?;
    if let Some(group) = &patch.group {
        check_exists(found.group, "group", group)?;
    }
    let mut after = before.clone();
    after.group = patch.group.unwrap_or(after.group);
    after.weight = patch.weight.unwrap_or(after.weight);
    after.disabled = patch.disabled.unwrap_or(after.disabled);
    after.limits = patch.limits.unwrap_or(after.limits);
    after.requires = patch.requires.unwrap_or(after.requires);
    Ok(writer.tenant("tenant.patch", Some(before), after))
}

fn remove_tenant(
    writer: AuditWriter<'_>,
    found: ChangeLookup,
    name: &str,
) -> Result<DirectoryEdit> {
    let mut before = json(&check_exists(found.tenant, "tenant", name)?);
    if let Some(project) = found.projects_of_tenant.first() {
        let count = found.projects_of_tenant.len();
        let by = format!(
            "it has {count} projects, such as {project:?}; archive them, and disable it instead"
        );
        return Err(StoreError::InUse { what: "tenant", name: name.to_owned(), by });
    }
    // The tenant's keys are removed too; the audit entry lists them.
    before["keys"] = Json::from(found.keys_of_tenant.as_slice());
    let mut statements = sql::drop_tenant(name, &found.keys_of_tenant);
    statements.push(writer.audit("tenant.remove", name, Some(before), None));
    Ok(DirectoryEdit { statements, changed: unchanged() })
}

fn patch_key(
    writer: AuditWriter<'_>,
    found: ChangeLookup,
    id: &str,
    patch: KeyPatch,
) -> Result<DirectoryEdit> {
    let before = check_exists(found.key, "key", id)?;
    let mut after = before.clone();
    after.name = patch.name.unwrap_or(after.name);
    after.weight = patch.weight.unwrap_or(after.weight);
    after.limits = patch.limits.unwrap_or(after.limits);
    after.rights = after.rights.patched(patch.rights);
    after.expires_at = patch.expires_at.unwrap_or(after.expires_at);
    Ok(writer.key("key.patch", Some(before), after, None))
}

fn rotate_key(writer: AuditWriter<'_>, found: ChangeLookup, id: &str) -> Result<DirectoryEdit> {
    let before = check_exists(found.key, "key", id)?;
    if before.revoked_at.is_some() {
        let problem = format!("key {id:?} is revoked, and stays so; create a new key");
        return Err(StoreError::Invalid { field: "id", problem });
    }
    let secret = secret()?;
    let after = Key { hint: secret.hint(), hash: secret.hash(), ..before.clone() };
    Ok(writer.key("key.rotate", Some(before), after, Some(secret)))
}

/// Actor and time of a change. Converts the states of an object before and after the change to
/// statements and an audit entry.
#[derive(Clone, Copy)]
struct AuditWriter<'a> {
    actor: &'a str,
    at: UnixMicros,
}

impl AuditWriter<'_> {
    fn audit(
        self,
        action: &str,
        subject: &str,
        before: Option<Json>,
        after: Option<Json>,
    ) -> SqlStatement {
        let text = |json: Json| json.to_string();
        sql::put_audit(self.actor, self.at, action, subject, before.map(text), after.map(text))
    }

    fn group(self, action: &str, before: Option<Group>, mut after: Group) -> DirectoryEdit {
        sort_budgets(&mut after.budgets);
        let statements = self.put(action, &after.name, before.as_ref(), &after, sql::put_group);
        DirectoryEdit {
            statements,
            changed: DirectoryChangeResult { group: Some(after), ..unchanged() },
        }
    }

    fn tenant(self, action: &str, before: Option<Tenant>, mut after: Tenant) -> DirectoryEdit {
        sort_budgets(&mut after.limits.budgets);
        let statements = self.put(action, &after.name, before.as_ref(), &after, sql::put_tenant);
        DirectoryEdit {
            statements,
            changed: DirectoryChangeResult { tenant: Some(after), ..unchanged() },
        }
    }

    fn key(
        self,
        action: &str,
        before: Option<Key>,
        mut after: Key,
        secret: Option<KeySecret>,
    ) -> DirectoryEdit {
        sort_budgets(&mut after.limits.budgets);
        let statements = self.put(action, &after.id, before.as_ref(), &after, sql::put_key);
        DirectoryEdit {
            statements,
            changed: DirectoryChangeResult { key: Some(after), secret, ..unchanged() },
        }
    }

    /// Builds the statements of a change and its audit entry. Builds nothing if the states before and after are equal.
    fn put<T: PartialEq + serde::Serialize>(
        self,
        action: &str,
        subject: &str,
        before: Option<&T>,
        after: &T,
        put: fn(&T) -> Vec<SqlStatement>,
    ) -> Vec<SqlStatement> {
        if before == Some(after) {
            return Vec::new();
        }
        let mut statements = put(after);
        statements.push(self.audit(action, subject, before.map(json), Some(json(after))));
        statements
    }
}

fn sort_budgets(budgets: &mut [Budget]) {
    budgets.sort_by_key(Budget::kind);
}

fn unchanged() -> DirectoryChangeResult {
    DirectoryChangeResult {
        version: 0,
        group: None,
        tenant: None,
        key: None,
        hosted: None,
        secret: None,
    }
}

/// Converts a group, tenant or key to JSON, without a key's hash. Cannot fail, because the value is plain data.
fn json(value: &impl serde::Serialize) -> Json {
    serde_json::to_value(value).unwrap_or(Json::Null)
}

fn no_randomness(problem: getrandom::Error) -> StoreError {
    StoreError::Database(format!("the system gives no random bytes for a key: {problem}"))
}

fn secret() -> Result<KeySecret> {
    KeySecret::generate().map_err(no_randomness)
}

/// Generates the id of a key: `key-` and 16 lower-case letters and digits, all equally likely.
fn key_id() -> Result<String> {
    const ALPHABET: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    const LENGTH: usize = "key-".len() + 16;
    let mut id = String::from("key-");
    while id.len() < LENGTH {
        let mut random = [0_u8; 32];
        getrandom::fill(&mut random).map_err(no_randomness)?;
        // Bytes from 252 on are dropped, because they would make the first characters of the
        // alphabet more likely.
        let characters = random.iter().filter(|byte| **byte < 252);
        let characters = characters.map(|byte| char::from(ALPHABET[usize::from(byte % 36)]));
        id.extend(characters.take(LENGTH - id.len()));
    }
    Ok(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_ids_look_as_promised_and_differ() {
        let ids: std::collections::BTreeSet<_> = (0..1_000).map(|_| key_id().unwrap()).collect();
        assert_eq!(ids.len(), 1_000);
        for id in &ids {
            let characters = id.strip_prefix("key-").unwrap();
            assert_eq!(characters.len(), 16);
            assert!(characters.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit()));
        }
        let used: std::collections::BTreeSet<_> =
            ids.iter().flat_map(|id| id[4..].chars()).collect();
        assert_eq!(used.len(), 36);
    }
}
