//! The second check of a caller, when its request gets a slot: the key may have been revoked while the request waited.

use fairgate_time::UnixMicros;

use super::{Caller, CallerDirectory};
use crate::refusal::Refusal;

impl CallerDirectory {
    /// Refuses a caller whose key, claim or tenant has become invalid since its request was
    /// admitted. A request may wait for minutes, and the queued requests of a leaked key must not
    /// be served after the key was revoked.
    pub(crate) fn recheck(&self, caller: &Caller, now: UnixMicros) -> Result<(), Refusal> {
        let book = self.index.load();
        match &caller.claim {
            Some(_) => book.tenant(&caller.tenant).map(drop),
            None => book.admitted(&caller.secret, now).map(drop),
        }
    }
}
