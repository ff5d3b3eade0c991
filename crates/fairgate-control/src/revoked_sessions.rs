//! Remembers for a moment which sessions were revoked, so that not every request asks the database.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Time for which a session that was looked up counts as not revoked. On the gateway that revokes
/// the session, it ends at once.
const REVOKED_AGE_MAX: Duration = Duration::from_secs(2);
/// Number of sessions whose state is remembered.
const REMEMBERED_MAX: usize = 4096;

/// Sessions that were looked up, by their ids.
#[derive(Debug, Default)]
pub(crate) struct RevokedSessions(Mutex<HashMap<String, LookedUpSession>>);

/// Result of looking up a session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LookedUpSession {
    at: Instant,
    /// True if the session was revoked.
    pub(crate) revoked: bool,
}

impl LookedUpSession {
    /// Returns true if the session need not be looked up again. A revoked one stays revoked.
    pub(crate) fn is_fresh(&self) -> bool {
        self.revoked || self.at.elapsed() < REVOKED_AGE_MAX
    }
}

impl RevokedSessions {
    /// Returns the result of the last look-up, however old it is.
    pub(crate) fn known(&self, id: &str) -> Option<LookedUpSession> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(id).copied()
    }

    /// Remembers if a session is revoked.
    pub(crate) fn remember(&self, id: String, revoked: bool) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= REMEMBERED_MAX {
            known.retain(|_, session| session.is_fresh());
        }
        if known.len() >= REMEMBERED_MAX {
            known.clear();
        }
        known.insert(id, LookedUpSession { at: Instant::now(), revoked });
    }
}
