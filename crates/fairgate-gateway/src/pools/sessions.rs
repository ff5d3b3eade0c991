//! Where a session's last request ran: for pools that have no index of prefixes.
//!
//! A conversation that goes on has its earlier turns in the cache of the worker that answered them. The core is told so with
//! the next request of the session, as tokens that are cached there, and weighs that against load. It is a guess: nobody
//! looks at the prompt, so it changes where a request goes and never what it costs.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fairgate_core::units::Tokens;

/// How many sessions a pool remembers. About 200 bytes each.
const SESSIONS_MAX: usize = 65_536;
/// How many of these may be one key's: whoever names a new session with every request pushes out its own.
const SESSIONS_PER_KEY_MAX: usize = 4_096;

/// The sessions of a pool.
#[derive(Default)]
pub(crate) struct Sessions(Mutex<Known>);

#[derive(Default)]
struct Known {
    sessions: HashMap<SessionId, Last>,
    /// All sessions, in the order in which they last ended a request.
    by_age: BTreeMap<Age, SessionId>,
    /// The same of each key.
    by_key: HashMap<Arc<str>, BTreeMap<Age, SessionId>>,
    /// What a worker has in its cache ends with its life; a name may have several lives.
    lives: HashMap<Arc<str>, Life>,
    clock: u64,
}

/// The hash of a key's id and the name that its client gave: names may be long.
type SessionId = [u8; 16];
/// When something happened, as a count of what happened before.
type Age = u64;
type Life = u64;

/// The last request of a session.
struct Last {
    key: Arc<str>,
    worker: Arc<str>,
    life: Life,
    tokens: u64,
    age: Age,
}

/// The worker that ran a session's last request, and how many tokens it may have cached of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LastWorker {
    pub(crate) worker: Box<str>,
    pub(crate) cached: Tokens,
}

impl Sessions {
    fn known(&self) -> MutexGuard<'_, Known> {
        // What a panic left is at worst a wrong guess.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on these are the pool's workers. What ran on others is forgotten.
    pub(super) fn employ<'a>(&self, names: impl Iterator<Item = &'a Arc<str>>) {
        let names: HashSet<&Arc<str>> = names.collect();
        let known = &mut *self.known();
        known.lives.retain(|name, _| names.contains(name));
        for name in names {
            known.clock += 1;
            known.lives.entry(name.clone()).or_insert(known.clock);
        }
    }

    /// Where the session's last request ran, for one of so many input tokens. `None` where that is not known, or the worker
    /// has restarted or gone since.
    pub(crate) fn last(&self, key: &str, session: &str, input_tokens: u64) -> Option<LastWorker> {
        let known = self.known();
        let last = known.sessions.get(&session_id(key, session))?;
        let is_alive = known.lives.get(&last.worker) == Some(&last.life);
        let cached = Tokens(last.tokens.min(input_tokens));
        is_alive.then(|| LastWorker { worker: (&*last.worker).into(), cached })
    }

    /// A request of the session has ended on this worker, with so many tokens of input and output.
    pub(crate) fn ended(&self, key: &Arc<str>, session: &str, worker: &Arc<str>, tokens: u64) {
        let known = &mut *self.known();
        let Some(&life) = known.lives.get(worker) else { return };
        let id = session_id(key, session);
        known.remove(&id);
        known.make_room(key);
        known.clock += 1;
        let age = known.clock;
        known.by_age.insert(age, id);
        known.by_key.entry(key.clone()).or_default().insert(age, id);
        let last = Last { key: key.clone(), worker: worker.clone(), life, tokens, age };
        known.sessions.insert(id, last);
    }

    /// The worker has restarted, or cannot be reached: its cache is empty when it is back.
    pub(super) fn forget(&self, worker: &str) {
        let known = &mut *self.known();
        if let Some(life) = known.lives.get_mut(worker) {
            known.clock += 1;
            *life = known.clock;
        }
    }
}

impl Known {
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

    /// The oldest session of the key goes where it has its part; else the oldest of all where there is no room.
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

    fn sessions() -> Sessions {
        let sessions = Sessions::default();
        sessions.employ([named("a"), named("b")].iter());
        sessions
    }

    fn last(sessions: &Sessions, key: &str, session: &str) -> Option<(String, u64)> {
        let found = sessions.last(key, session, 1_000)?;
        Some((found.worker.into(), found.cached.0))
    }

    #[test]
    fn a_session_is_one_keys_and_is_where_it_ran_last() {
        let sessions = sessions();
        let (key, other) = (named("k1"), named("k2"));
        sessions.ended(&key, "chat", &named("a"), 70);
        assert_eq!(last(&sessions, "k1", "chat"), Some(("a".into(), 70)));
        assert_eq!(last(&sessions, "k2", "chat"), None);
        sessions.ended(&key, "chat", &named("b"), 5_000);
        sessions.ended(&other, "chat", &named("a"), 9);
        // Never more than the prompt has.
        assert_eq!(last(&sessions, "k1", "chat"), Some(("b".into(), 1_000)));
        assert_eq!(last(&sessions, "k2", "chat"), Some(("a".into(), 9)));
    }

    #[test]
    fn what_a_worker_held_ends_with_it() {
        let sessions = sessions();
        let key = named("k");
        for worker in ["a", "b"] {
            sessions.ended(&key, worker, &named(worker), 7);
        }
        sessions.forget("a");
        assert_eq!(last(&sessions, "k", "a"), None);
        assert_eq!(last(&sessions, "k", "b"), Some(("b".into(), 7)));
        sessions.ended(&key, "a", &named("a"), 8);
        assert_eq!(last(&sessions, "k", "a"), Some(("a".into(), 8)));
        sessions.employ([named("a")].iter());
        assert_eq!(last(&sessions, "k", "b"), None);
        assert_eq!(last(&sessions, "k", "a"), Some(("a".into(), 8)));
        // One that comes back under its name is another one.
        sessions.employ([named("a"), named("b")].iter());
        assert_eq!(last(&sessions, "k", "b"), None);
        sessions.ended(&key, "late", &named("gone"), 1);
        assert_eq!(last(&sessions, "k", "late"), None);
    }

    #[test]
    fn it_is_bounded_and_a_key_pushes_out_its_own() {
        let sessions = sessions();
        let worker = named("a");
        sessions.ended(&named("honest"), "chat", &worker, 1);
        let greedy = named("greedy");
        for number in 0..SESSIONS_PER_KEY_MAX + 10 {
            sessions.ended(&greedy, &number.to_string(), &worker, 1);
        }
        assert_eq!(last(&sessions, "honest", "chat"), Some(("a".into(), 1)));
        assert_eq!(last(&sessions, "greedy", "9"), None);
        assert_eq!(last(&sessions, "greedy", "10"), Some(("a".into(), 1)));
        for number in 0..SESSIONS_MAX {
            sessions.ended(&named(&format!("k{}", number / 64)), &number.to_string(), &worker, 1);
        }
        assert_eq!(last(&sessions, "honest", "chat"), None);
        let known = sessions.known();
        assert_eq!(known.sessions.len(), SESSIONS_MAX);
        assert_eq!(known.by_age.len(), SESSIONS_MAX);
        assert_eq!(known.by_key.values().map(BTreeMap::len).sum::<usize>(), SESSIONS_MAX);
        assert_eq!(known.by_key.len(), SESSIONS_MAX / 64);
    }
}
