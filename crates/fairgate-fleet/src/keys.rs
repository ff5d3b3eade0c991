//! Task keys: the gateway key of one claim.

use fairgate_store::KeyHash;

/// What every task key begins with.
const PREFIX: &str = "fgt-";
/// The characters of a key, each of which carries 6 bits.
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
/// How many of them: 256 bits and a little.
const CHARACTERS: usize = 43;

/// The key of this claim of this task by the agent whose seed this is: the same each time, so that a claim may be repeated
/// and no key is kept. Whoever does not know the seed cannot tell one key from another.
pub(crate) fn task_key(seed: &[u8; 32], task: &str, epoch: u64) -> String {
    let mut hasher = blake3::Hasher::new_keyed(seed);
    // The epoch first: it has a fixed length, so that no two claims give the same bytes.
    hasher.update(&epoch.to_le_bytes()).update(task.as_bytes());
    let mut bytes = [0; CHARACTERS];
    hasher.finalize_xof().fill(&mut bytes);
    let characters = bytes.map(|byte| char::from(ALPHABET[usize::from(byte & 63)]));
    PREFIX.chars().chain(characters).collect()
}

/// What the row of a claim keeps of its key.
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
