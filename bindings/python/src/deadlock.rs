//! Detects waits that can never end, with one wait graph over all schedulers of the process.
//!
//! A waiting task or thread does not give back a slot that it holds before its wait ends. A scheduler is *stuck* if all
//! its slots are held by waiting owners, and every scheduler for which one of these owners waits is stuck too. A wait
//! for a stuck scheduler never ends. A scheduler can become stuck only when an owner of a slot starts to wait, so the
//! check is made at that moment.
//!
//! A detected deadlock raises an error in the program, so only certain cases count as one. A slot may still become free
//! if anyone may give it back, or if its owner waits with a timeout. The scheduler of such a slot is never stuck.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::local_scheduler::LocalScheduler;
use crate::owners::SlotOwner;
use crate::shared_scheduler::SharedScheduler;
use crate::waiter::PythonWaiter;

/// All schedulers of the process.
static SCHEDULERS: Mutex<Vec<Weak<Mutex<LocalScheduler<PythonWaiter>>>>> = Mutex::new(Vec::new());

/// Adds a scheduler to the wait graph. Also removes schedulers that no longer exist.
pub(crate) fn register(scheduler: &SharedScheduler) {
    let mut desks = lock(&SCHEDULERS);
    desks.retain(|scheduler| scheduler.strong_count() > 0);
    desks.push(Arc::downgrade(scheduler));
}

/// Returns true if the wait that `caller` has just begun at a scheduler can never end.
pub(crate) fn is_deadlocked(scheduler: &SharedScheduler, caller: SlotOwner) -> bool {
    if caller == SlotOwner::NOBODY {
        return false;
    }
    let desks: Vec<SharedScheduler> = lock(&SCHEDULERS).iter().filter_map(Weak::upgrade).collect();
    if !desks.iter().any(|scheduler| lock(scheduler).owners.held(caller) > 0) {
        return false;
    }
    let mut reached = vec![scheduler.clone()];
    let mut looked_at = 0;
    while let Some(next) = reached.get(looked_at).cloned() {
        looked_at += 1;
        let Some(holders) = stuck_candidates(&next) else { return false };
        for holder in holders.into_iter().filter(|holder| *holder != caller) {
            let mut waits = false;
            for other in desks.iter().filter(|other| lock(other).owners.is_waiting(holder)) {
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

/// Returns the owners of all slots of a scheduler; `None` if a slot is free or has no known owner, because then the
/// scheduler is not stuck.
fn stuck_candidates(scheduler: &SharedScheduler) -> Option<Vec<SlotOwner>> {
    let scheduler = lock(scheduler);
    scheduler.is_all_owned().then(|| scheduler.owners.holders().collect())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The state is only read, so a panic of another thread does no harm.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
