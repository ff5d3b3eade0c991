//! Remembers the worker of each session's last request, for pools without a prefix index.
//!
//! The earlier turns of a conversation are in the cache of the worker that answered them. For the session's next
//! request, the core therefore assumes that the tokens of these turns are cached on that worker, and weighs them
//! against load. The prompt is not inspected, so this assumption affects only the choice of the worker.
//!
//! The class and the cost of a request do not depend on the assumption, because a client chooses the name of its
//! session.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fairgate_core::units::Tokens;

/// Maximum number of sessions that a pool remembers. Each needs about 200 bytes.
const SESSIONS_MAX: usize = 65_536;
/// Maximum number of sessions of one key. A client that names a new session with every request can
/// therefore evict only the sessions of its own key.
const SESSIONS_PER_KEY_MAX: usize = 4_096;

/// The sessions of a pool, each with its last worker.
#[derive(Default)]
pub(crate) struct StickySessions(Mutex<SessionTable>);

#[derive(Default)]
struct SessionTable {
    sessions: HashMap<SessionId, SessionRecord>,
    /// All sessions, ordered by the end of their last request.
    by_age: BTreeMap<Age, SessionId>,
    /// Sessions of each key, ordered by the end of their last request.
    by_key: HashMap<Arc<str>, BTreeMap<Age, SessionId>>,
    /// Number of each worker's current incarnation. The number changes when a worker restarts,
    /// cannot be reached, or is removed and added again, because its cache is then lost.
    incarnations: HashMap<Arc<str>, Incarnation>,
    clock: u64,
}

/// Hash of a key's id and a session name. The hash is kept instead of the name, because names may be long.
type SessionId = [u8; 16];
/// A time that counts the changes of the table.
type Age = u64;
type Incarnation = u64;

/// The last request of a session.
struct SessionRecord {
    key: Arc<str>,
    worker: Arc<str>,
    incarnation: Incarnation,
    tokens: u64,
    age: Age,
}

/// Worker of a session's last request, and the tokens that this worker may have cached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LastWorker {
    pub(crate) worker: Box<str>,
    pub(crate) cached: Tokens,
}

impl StickySessions {
    fn known(&self) -> MutexGuard<'_, SessionTable> {
        // A panic can leave a wrong guess, but no worse damage.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the pool's workers. Sessions whose last worker has left are no longer found.
    pub(super) fn set_workers<'a>(&self, names: impl Iterator<Item = &'a Arc<str>>) {
        let names: HashSet<&Arc<str>> = names.collect();
        let known = &mut *self.known();
        known.incarnations.retain(|name, _| names.contains(name));
        for name in names {
            known.clock += 1;
            known.incarnations.entry(name.clone()).or_insert(known.clock);
        }
    }

    /// Returns the worker of the session's last request, for a new request with `input_tokens`. `None` if the worker
    /// is unknown, or has restarted or left since.
    pub(crate) fn last(&self, key: &str, session: &str, input_tokens: u64) -> Option<LastWorker> {
        let known = self.known();
        let last = known.sessions.get(&session_id(key, session))?;
        let is_alive = known.incarnations.get(&last.worker) == Some(&last.incarnation);
        let cached = Tokens(last.tokens.min(input_tokens));
        is_alive.then(|| LastWorker { worker: (&*last.worker).into(), cached })
    }

    /// Records that a request of the session has ended on this worker, with `tokens` of input and output.
    pub(crate) fn record_end(&self, key: &Arc<str>, session: &str, worker: &Arc<str>, tokens: u64) {
        let known = &mut *self.known();
        let Some(&life) = known.incarnations.get(worker) else { return };
        let id = session_id(key, session);
        known.remove(&id);
        known.make_room(key);
        known.clock += 1;
        let age = known.clock;
        known.by_age.insert(age, id);
        known.by_key.entry(key.clone()).or_default().insert(age, id);
        let last = SessionRecord {
            key: key.clone(),
            worker: worker.clone(),
            incarnation: life,
            tokens,
            age,
        };
        known.sessions.insert(id, last);
    }

    /// Invalidates the sessions of a worker that has restarted or cannot be reached, because its
    /// cache will be empty.
    pub(super) fn forget(&self, worker: &str) {
        let known = &mut *self.known();
        if let Some(life) = known.incarnations.get_mut(worker) {
            known.clock += 1;
            *life = known.clock;
        }
    }
}

impl SessionTable {
    fn remove(&mut self, id: &SessionId) {
        let Some(last) = self.sessions.remove(id) else { return };
        self.by_age.remove(&last.age);
        if let Some(own) = self.by_key.get_mut(&last.key) {
            own.remove(&last.age);
            if own.is_empty() {
                self.by_key.remove(&last.key);
            }
        }
    }

    /// Removes the oldest session of the key if the key is at its limit; else the oldest session of all keys if the
    /// pool is full.
    fn make_room(&mut self, key: &str) {
        let own = self.by_key.get(key).filter(|own| own.len() >= SESSIONS_PER_KEY_MAX);
        let oldest = match own {
            Some(own) => own.first_key_value(),
            None if self.sessions.len() >= SESSIONS_MAX => self.by_age.first_key_value(),
            None => None,
        };
        if let Some((_, &id)) = oldest {
            self.remove(&id);
        }
    }
}

fn session_id(key: &str, session: &str) -> SessionId {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&(key.len() as u64).to_le_bytes());
    hasher.update(key.as_bytes()).update(session.as_bytes());
    let mut id = SessionId::default();
    hasher.finalize_xof().fill(&mut id);
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> Arc<str> {
        name.into()
    }

    fn sessions() -> StickySessions {
        let sessions = StickySessions::default();
        sessions.set_workers([named("a"), named("b")].iter());
        sessions
    }

    fn last(sessions: &StickySessions, key: &str, session: &str) -> Option<(String, u64)> {
        let found = sessions.last(key, session, 1_000)?;
        Some((found.worker.into(), found.cached.0))
    }

    #[test]
    fn a_session_is_one_keys_and_is_where_it_ran_last() {
        let sessions = sessions();
        let (key, other) = (named("k1"), named("k2"));
        sessions.record_end(&key, "chat", &named("a"), 70);
        assert_eq!(last(&sessions, "k1", "chat"), Some(("a".into(), 70)));
        assert_eq!(last(&sessions, "k2", "chat"), None);
        sessions.record_end(&key, "chat", &named("b"), 5_000);
        sessions.record_end(&other, "chat", &named("a"), 9);
        // Never more than the prompt has.
        assert_eq!(last(&sessions, "k1", "chat"), Some(("b".into(), 1_000)));
        assert_eq!(last(&sessions, "k2", "chat"), Some(("a".into(), 9)));
    }

    #[test]
    fn what_a_worker_held_ends_with_it() {
        let sessions = sessions();
        let key = named("k");
        for worker in ["a", "b"] {
            sessions.record_end(&key, worker, &named(worker), 7);
        }
        sessions.forget("a");
        assert_eq!(last(&sessions, "k", "a"), None);
        assert_eq!(last(&sessions, "k", "b"), Some(("b".into(), 7)));
        sessions.record_end(&key, "a", &named("a"), 8);
        assert_eq!(last(&sessions, "k", "a"), Some(("a".into(), 8)));
        sessions.set_workers([named("a")].iter());
        assert_eq!(last(&sessions, "k", "b"), None);
        assert_eq!(last(&sessions, "k", "a"), Some(("a".into(), 8)));
        // One that comes back under its name is another one.
        sessions.set_workers([named("a"), named("b")].iter());
        assert_eq!(last(&sessions, "k", "b"), None);
        sessions.record_end(&key, "late", &named("gone"), 1);
        assert_eq!(last(&sessions, "k", "late"), None);
    }

    #[test]
    fn it_is_bounded_and_a_key_pushes_out_its_own() {
        let sessions = sessions();
        let worker = named("a");
        sessions.record_end(&named("honest"), "chat", &worker, 1);
        let greedy = named("greedy");
        for number in 0..SESSIONS_PER_KEY_MAX + 10 {
            sessions.record_end(&greedy, &number.to_string(), &worker, 1);
        }
        assert_eq!(last(&sessions, "honest", "chat"), Some(("a".into(), 1)));
        assert_eq!(last(&sessions, "greedy", "9"), None);
        assert_eq!(last(&sessions, "greedy", "10"), Some(("a".into(), 1)));
        for number in 0..SESSIONS_MAX {
            sessions.record_end(
                &named(&format!("k{}", number / 64)),
                &number.to_string(),
                &worker,
                1,
            );
        }
        assert_eq!(last(&sessions, "honest", "chat"), None);
        let known = sessions.known();
        assert_eq!(known.sessions.len(), SESSIONS_MAX);
        assert_eq!(known.by_age.len(), SESSIONS_MAX);
        assert_eq!(known.by_key.values().map(BTreeMap::len).sum::<usize>(), SESSIONS_MAX);
        assert_eq!(known.by_key.len(), SESSIONS_MAX / 64);
    }
}
