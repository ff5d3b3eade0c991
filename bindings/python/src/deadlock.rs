//! Waits that could never end: one wait graph over all schedulers of the process.
//!
//! A slot that is held by a task or thread which itself waits will not be given back before that wait ends. A scheduler
//! is *stuck* where all its slots are held so, and every scheduler that one of these holders waits for is stuck, too.
//! Whoever waits for a stuck scheduler waits for ever. That state can only be entered by somebody who holds a slot and
//! starts to wait, so that is when it is looked for.
//!
//! An alarm is an error in the program that gets it, so only what is certain counts: a slot that may be given back by
//! anybody, or by somebody whose own wait has a timeout, is one that may become free.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::desk::Desk;
use crate::gate::SharedDesk;
use crate::owners::Owner;
use crate::wake::Waiter;

/// All schedulers of the process.
static DESKS: Mutex<Vec<Weak<Mutex<Desk<Waiter>>>>> = Mutex::new(Vec::new());

/// Lets waits for this scheduler count from now on.
pub(crate) fn register(desk: &SharedDesk) {
    let mut desks = lock(&DESKS);
    desks.retain(|desk| desk.strong_count() > 0);
    desks.push(Arc::downgrade(desk));
}

/// Whether the wait that `asker` has just begun at a scheduler can never end.
pub(crate) fn is_certain(desk: &SharedDesk, asker: Owner) -> bool {
    if asker == Owner::NOBODY {
        return false;
    }
    let desks: Vec<SharedDesk> = lock(&DESKS).iter().filter_map(Weak::upgrade).collect();
    if !desks.iter().any(|desk| lock(desk).owners.held(asker) > 0) {
        return false;
    }
    let mut reached = vec![desk.clone()];
    let mut looked_at = 0;
    while let Some(next) = reached.get(looked_at).cloned() {
        looked_at += 1;
        let Some(holders) = stuck_candidates(&next) else { return false };
        for holder in holders.into_iter().filter(|holder| *holder != asker) {
            let mut waits = false;
            for other in desks.iter().filter(|other| lock(other).owners.waits(holder)) {
                waits = true;
                if !reached.iter().any(|known| Arc::ptr_eq(known, other)) {
                    reached.push(other.clone());
                }
            }
            if !waits {
                return false;
            }
        }
    }
    true
}

/// Who holds the slots, where all of them are taken by somebody in particular.
fn stuck_candidates(desk: &SharedDesk) -> Option<Vec<Owner>> {
    let desk = lock(desk);
    desk.is_all_owned().then(|| desk.owners.holders().collect())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What a panic left behind is only looked at.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
