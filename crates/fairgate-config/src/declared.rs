//! Groups, tenants and keys that the configuration file declares, so that a repository can define
//! them.
//!
//! These are the checked values of the file alone. The code that applies them decides what they
//! change in the database.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use fairgate_time::UnixMicros;

/// Groups, tenants and keys of a configuration file. Each tenant's group and each key's tenant are declared too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeclaredDirectory {
    /// Path of the file, as it was given to the program; empty if there is no file.
    pub file: PathBuf,
    /// True if the file has one of the sections `groups`, `tenants` and `keys`, even an empty one.
    pub is_stated: bool,
    /// The groups; names are unique.
    pub groups: Vec<DeclaredGroup>,
    /// The tenants; names are unique.
    pub tenants: Vec<DeclaredTenant>,
    /// The keys; names are unique in a tenant, and secrets are unique.
    pub keys: Vec<DeclaredKey>,
}

/// Group that the file declares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredGroup {
    /// Line of the file on which the group begins.
    pub line: usize,
    /// Name of the group.
    pub name: String,
    /// Weight of the group relative to the other groups (default 100).
    pub weight: u64,
    /// Budgets of all tenants of the group together; often none.
    pub budgets: Vec<DeclaredBudget>,
}

/// Tenant that the file declares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredTenant {
    /// Line of the file on which the tenant begins.
    pub line: usize,
    /// Name of the tenant.
    pub name: String,
    /// Name of the tenant's group, which is declared too.
    pub group: String,
    /// Weight of the tenant relative to the other tenants of its group (default 100).
    pub weight: u64,
    /// True if all keys of the tenant are refused (default false).
    pub disabled: bool,
    /// Limits of all keys of the tenant together.
    pub limits: DeclaredLimits,
    /// Labels that an agent must have to work on the tenant's tasks, sorted; often none.
    pub requires: Vec<String>,
}

/// Key that the file declares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredKey {
    /// Line of the file on which the key begins.
    pub line: usize,
    /// Name of the key's tenant, which is declared too.
    pub tenant: String,
    /// Name of the key, by which the file knows it; unique in its tenant.
    pub name: String,
    /// Hash of the key's secret.
    pub hash: DeclaredKeyHash,
    /// First characters of a secret that Fairgate made; empty for another kind of secret, or if
    /// only its hash is known.
    pub hint: String,
    /// Source of the secret or its hash, such as `environment variable CHAT_KEY`.
    pub source: String,
    /// Weight of the key relative to the other keys of its tenant (default 100).
    pub weight: u64,
    /// Limits of this key alone.
    pub limits: DeclaredLimits,
    /// Choices that the key may make for its requests.
    pub rights: DeclaredRights,
    /// Time from which on the key is refused; never if absent.
    pub expires_at: Option<UnixMicros>,
}

/// Blake3 hash of a key's secret. `Debug` hides it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeclaredKeyHash(pub [u8; 32]);

/// Number of hexadecimal digits of a hash.
const HASH_DIGITS: usize = 64;

impl DeclaredKeyHash {
    /// Returns the hash of a secret.
    pub fn of(secret: &[u8]) -> Self {
        Self(*blake3::hash(secret).as_bytes())
    }

    /// Parses 64 hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() != HASH_DIGITS || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        let mut hash = [0; 32];
        for (place, byte) in hash.iter_mut().enumerate() {
            *byte = u8::from_str_radix(text.get(2 * place..2 * place + 2)?, 16).ok()?;
        }
        Some(Self(hash))
    }
}

impl fmt::Display for DeclaredKeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for DeclaredKeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DeclaredKeyHash(…)")
    }
}

/// Limits of a declared tenant or key. Absent values set no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeclaredLimits {
    /// Largest number of requests in flight at once, in each pool.
    pub in_flight: Option<u64>,
    /// Largest number of requests that are queued at once.
    pub queued_requests: Option<u64>,
    /// Largest total size of the bodies of queued requests, in bytes.
    pub queued_bytes: Option<u64>,
    /// Largest number of requests per minute.
    pub requests_per_minute: Option<u64>,
    /// Largest number of charged tokens per minute.
    pub tokens_per_minute: Option<u64>,
    /// True if requests may not use hosted workers (default false).
    pub never_hosted: bool,
    /// Budgets of calendar days and months; at most one of each kind.
    pub budgets: Vec<DeclaredBudget>,
}

/// One budget of a declared group, tenant or key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeclaredBudget {
    /// True if only the use of hosted workers counts.
    pub is_hosted: bool,
    /// True for a calendar month, false for a day (UTC).
    pub is_monthly: bool,
    /// True for money, in micro-units; false for provider tokens.
    pub is_money: bool,
    /// Largest amount in a period.
    pub amount: u64,
}

/// Rights of a declared key. A right that the file does not state has the default of the admin API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredRights {
    /// Models, or patterns such as `gpt-*`, that the key may request; all if absent.
    pub models: Option<Vec<String>>,
    /// Policy classes and families that the key may name (default: none); all of the policy if
    /// absent.
    pub classes: Option<Vec<String>>,
    /// Highest priority that the key may request (default 0).
    pub priority_max: i64,
    /// Highest weight that a request may state, in thousandths.
    pub weight_max_milli: Option<u64>,
    /// Workers that requests may go to; all if absent.
    pub workers: Option<Vec<String>>,
    /// True if the key may choose the worker of a request.
    pub may_pin: bool,
    /// True if the key may open leases.
    pub may_lease: bool,
    /// True if requests may name files and other objects of the upstream's account.
    pub may_use_foreign_ids: bool,
    /// Taints that the key may require of a worker; all if absent (default: none).
    pub taints: Option<Vec<String>>,
    /// Deadline of requests that state none.
    pub deadline: Option<Duration>,
    /// Shortest deadline that a request may state.
    pub deadline_min: Option<Duration>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_written_and_read_and_not_shown() {
        let hash = DeclaredKeyHash::of(b"fg-secret");
        let text = hash.to_string();
        assert_eq!(text.len(), HASH_DIGITS);
        assert_eq!(DeclaredKeyHash::parse(&text), Some(hash));
        assert_eq!(DeclaredKeyHash::parse(&text.to_uppercase()), Some(hash));
        assert_eq!(format!("{hash:?}"), "DeclaredKeyHash(…)");
        let not_hexadecimal = format!("{}g", &text[1..]);
        for wrong in ["", "fg-secret", &text[1..], &format!("{text}0"), &not_hexadecimal] {
            assert_eq!(DeclaredKeyHash::parse(wrong), None, "{wrong}");
        }
        assert_eq!(DeclaredKeyHash::parse(&"é".repeat(32)), None);
    }
}
