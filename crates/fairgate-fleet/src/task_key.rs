//! Task keys. A task key is the gateway key of one claim.
//!
//! A task key identifies the agent and its claim, and so the tenant and project that pay for a
//! request. The key is derived from the agent's token, the task and the epoch. So a repeated claim
//! gives the same key, and no secret is stored. Tokens for a request with a task key are reserved
//! in the transaction that checks the claim. So an agent that has lost its claim can spend nothing,
//! even if a cache still has the key.

use fairgate_store::{KeyHash, KeyRights};

/// Prefix of every task key.
const PREFIX: &str = "fgt-";
/// Characters of a task key after its prefix. Each of them carries 6 bits.
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
/// Number of characters of a task key after its prefix, which carry 258 bits in total.
const CHARACTERS: usize = 43;

/// The claim to which a task key belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskKey {
    /// Name of the tenant that owns the project.
    pub tenant: String,
    /// Name of the project that owns the task.
    pub project: String,
    /// Name of the task that is claimed.
    pub task: String,
    /// Number of the task's claim, counted from 1.
    pub epoch: u64,
    /// Name of the agent that holds the task.
    pub agent: String,
    /// Rights of the project.
    pub rights: KeyRights,
    /// True if the task has a cap in money.
    pub has_money_max: bool,
}

/// Derives the key of a claim from the agent's seed, the task and the epoch. Equal arguments give
/// the same key, so a claim can be repeated and no key needs to be stored. Without the seed, the
/// keys look random.
pub(crate) fn task_key(seed: &[u8; 32], task: &str, epoch: u64) -> String {
    let mut hasher = blake3::Hasher::new_keyed(seed);
    // The epoch comes first and has a fixed length, so no two claims give the same bytes.
    hasher.update(&epoch.to_le_bytes()).update(task.as_bytes());
    let mut bytes = [0; CHARACTERS];
    hasher.finalize_xof().fill(&mut bytes);
    let characters = bytes.map(|byte| char::from(ALPHABET[usize::from(byte & 63)]));
    PREFIX.chars().chain(characters).collect()
}

/// Returns the hash of a key, in the form in which the database stores it.
pub(crate) fn hash_of(key: &str) -> KeyHash {
    KeyHash::of(key.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_belongs_to_one_agent_one_task_and_one_claim() {
        let key = task_key(&[1; 32], "t-1", 1);
        assert_eq!(key, task_key(&[1; 32], "t-1", 1));
        assert!(key.starts_with("fgt-") && key.len() == 47, "{key}");
        let others = [(2, "t-1", 1), (1, "t-2", 1), (1, "t-1", 2), (1, "", 1)];
        for (seed, task, epoch) in others {
            assert_ne!(key, task_key(&[seed; 32], task, epoch));
        }
        assert_ne!(hash_of(&key), hash_of(&key[1..]));
    }
}
