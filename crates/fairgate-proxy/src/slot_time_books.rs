//! The price of time in a pool's slots, by kind of work. The rules are in `fairgate-price`. This module keeps one book
//! for each kind of work, which records what attempts of that kind paid and how long they held their slots.
//!
//! In a second, embeddings use hundreds of times the tokens of generated text. So each kind of work
//! has a book of its own, and embeddings do not affect the price of a chat. But all kinds use the
//! same slots, and a kind that nobody else uses must not be a cheap way to hold them. So a second
//! of embeddings or of token counts costs at least as much as a second of generated text.
//!
//! If the worker was at fault, the scheduler counts the attempt's time in the slot, but no budget pays for that time.
//!
//! Books are not stored. After a restart a second costs `output_default` ÷ 10, until requests have completed.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fairgate_dialect::Route;
use fairgate_price::{SlotTimeBook, TokenRate};

/// Time in a slot that costs the pool's `output_default` until requests have completed.
const DEFAULT_TIME: Duration = Duration::from_secs(10);

/// Kind of work in a slot. Each kind has its own price per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkKind {
    /// Text that a model writes, whatever the API.
    Generation,
    Embeddings,
    TokenCounts,
    /// Calls that their clients make themselves.
    Leases,
}

impl WorkKind {
    pub(crate) fn of(route: Route) -> Self {
        match route {
            Route::ChatCompletions | Route::Completions | Route::Responses | Route::Messages => {
                Self::Generation
            }
            Route::Embeddings => Self::Embeddings,
            Route::CountTokens => Self::TokenCounts,
        }
    }
}

/// The books of a pool, one for each kind of work.
pub(crate) struct SlotTimePrice {
    books: Mutex<PoolSlotTimeBooks>,
    /// Time 0 of the books' clock.
    started: Instant,
}

#[derive(Default)]
struct PoolSlotTimeBooks {
    generation: SlotTimeBook,
    embeddings: SlotTimeBook,
    token_counts: SlotTimeBook,
    leases: SlotTimeBook,
}

impl PoolSlotTimeBooks {
    fn of(&self, kind: WorkKind) -> &SlotTimeBook {
        match kind {
            WorkKind::Generation => &self.generation,
            WorkKind::Embeddings => &self.embeddings,
            WorkKind::TokenCounts => &self.token_counts,
            WorkKind::Leases => &self.leases,
        }
    }

    fn of_mut(&mut self, kind: WorkKind) -> &mut SlotTimeBook {
        match kind {
            WorkKind::Generation => &mut self.generation,
            WorkKind::Embeddings => &mut self.embeddings,
            WorkKind::TokenCounts => &mut self.token_counts,
            WorkKind::Leases => &mut self.leases,
        }
    }
}

/// One attempt's time in a slot.
#[derive(Clone, Copy)]
pub(crate) struct SlotTime<'a> {
    pub(crate) tenant: &'a str,
    pub(crate) kind: WorkKind,
    /// Time for which the attempt held its slot.
    pub(crate) held: Duration,
    /// Time at which the attempt ended.
    pub(crate) at: Instant,
}

impl SlotTimePrice {
    pub(crate) fn new() -> Self {
        Self { books: Mutex::default(), started: Instant::now() }
    }

    /// Records a completed attempt that pays for its tokens.
    pub(crate) fn record_completed(&self, slot: SlotTime<'_>, tokens: u64) {
        let now = self.span(slot.at);
        let mut books = self.lock();
        books.of_mut(slot.kind).record_completed(slot.tenant, tokens, slot.held, now);
    }

    /// Records an attempt that pays at least for its time. `charge` is the number of tokens that the scheduler counted.
    pub(crate) fn record_paid_by_time(&self, slot: SlotTime<'_>, charge: u64) {
        let now = self.span(slot.at);
        let mut books = self.lock();
        books.of_mut(slot.kind).record_paid_by_time(slot.tenant, charge, slot.held, now);
    }

    /// Records a completed lease with the tokens that its holder reports and the tokens that the scheduler counted.
    pub(crate) fn record_reported(
        &self,
        slot: SlotTime<'_>,
        reported: u64,
        charge: u64,
        output_default: u64,
    ) {
        let SlotTime { tenant, kind, held, at } = slot;
        let (now, default) = (self.span(at), TokenRate::new(output_default, DEFAULT_TIME));
        let mut books = self.lock();
        books.of_mut(kind).record_reported(tenant, reported, charge, held, default, now);
    }

    /// Returns the expected charge of a tenant's request in tokens. This is `usual`, or more if the
    /// tenant's recent attempts paid for their time and their charge was higher than `usual`.
    pub(crate) fn expected(&self, kind: WorkKind, tenant: &str, usual: u64) -> u64 {
        self.lock().of(kind).expected(tenant, usual)
    }

    /// Returns the price of an attempt's time in the slot, in whole tokens, rounded up.
    pub(crate) fn price(&self, slot: SlotTime<'_>, output_default: u64) -> u64 {
        let SlotTime { tenant, kind, held, at } = slot;
        let now = self.span(at);
        let default = TokenRate::new(output_default, DEFAULT_TIME);
        let books = self.lock();
        let rate = books.of(kind).price(tenant, default, now);
        let rate = match kind {
            WorkKind::Generation | WorkKind::Leases => rate,
            WorkKind::Embeddings | WorkKind::TokenCounts => {
                rate.max(books.generation.price(tenant, default, now))
            }
        };
        rate.cost(held)
    }

    fn span(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.started)
    }

    fn lock(&self) -> MutexGuard<'_, PoolSlotTimeBooks> {
        // After a panic the sums may lack one attempt, which does no harm.
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn slot(price: &SlotTimePrice, tenant: &'static str, kind: WorkKind) -> SlotTime<'static> {
        SlotTime { tenant, kind, held: SECOND, at: price.started }
    }

    #[test]
    fn embeddings_have_no_part_in_the_price_of_a_chat() {
        let price = SlotTimePrice::new();
        let chat = slot(&price, "chat", WorkKind::Generation);
        price.record_completed(chat, 200);
        price.record_completed(slot(&price, "other", WorkKind::Generation), 100);
        assert_eq!(price.price(chat, 512), 100);
        price.record_completed(slot(&price, "loud", WorkKind::Embeddings), 30_000_000);
        assert_eq!(price.price(chat, 512), 100);
        let victim = slot(&price, "victim", WorkKind::Embeddings);
        assert_eq!(price.price(victim, 512), 64 * 52 - 51);
    }

    #[test]
    fn a_kind_in_which_nobody_works_is_no_cheap_way_to_hold_a_slot() {
        let price = SlotTimePrice::new();
        price.record_completed(slot(&price, "honest", WorkKind::Generation), 400);
        for kind in [WorkKind::Embeddings, WorkKind::TokenCounts] {
            price.record_completed(slot(&price, "cheat", kind), 1);
            assert_eq!(price.price(slot(&price, "cheat", kind), 512), 400, "{kind:?}");
        }
        // Leases have pools of their own.
        assert_eq!(price.price(slot(&price, "cheat", WorkKind::Leases), 512), 52);
    }

    #[test]
    fn every_route_has_a_kind() {
        for route in Route::ALL {
            let kind = WorkKind::of(route);
            assert_eq!(kind == WorkKind::Generation, route.generates(), "{route:?}");
        }
    }
}
