//! The choice of a worker for a granted request. The choice weighs the cached part of the prompt against the tokens
//! that wait at each worker.

use core::cmp::Reverse;

use super::{PoolWorkers, WorkerConstraints, WorkerRank};
use crate::policy::BusyThresholds;
use crate::requests::PoolRequestState;
use crate::units::{OverlapCredit, Tokens};

impl PoolWorkers {
    /// Returns the greatest number of the request's input tokens that are cached on one worker that may run the
    /// request.
    pub(crate) fn most_cached(
        &self,
        want: &WorkerConstraints,
        request: &PoolRequestState,
    ) -> Tokens {
        if request.cached.is_none() {
            return Tokens(0);
        }
        let eligible = self.list.values().filter(|w| !w.eligible_ranks(want).is_empty());
        let mut cached = request.cached_in_turn();
        eligible.map(|w| cached.on(&w.name)).max().unwrap_or_default()
    }

    /// Chooses an open rank for a request in the lowest tier that has one; `None` if no rank is open. The rank with the
    /// fewest waiting tokens wins, after the request's cached tokens are credited. Ties go to the rank with the most
    /// cached tokens of the request, then with the fewest requests in flight, then with the longest time without a
    /// grant, then to the worker that was added first, then to the lowest rank.
    pub(crate) fn choose(
        &self,
        request: &PoolRequestState,
        busy: BusyThresholds,
        credit: OverlapCredit,
    ) -> Option<WorkerRank> {
        // Without cached tokens there is nothing to credit.
        let credit = match request.cached {
            Some(_) => self.credit_for(request, busy, credit),
            None => 0,
        };
        let want = self.wants.get(request.want);
        let mut cached = request.cached_in_turn();
        let mut best = None;
        for (number, worker) in &self.list {
            let mut on_worker = None;
            for rank in worker.open_ranks(want, busy) {
                // The worker's cached tokens are looked up once for all its ranks, and only if a rank is open.
                let cached = *on_worker.get_or_insert_with(|| cached.on(&worker.name));
                let load = worker.load(rank);
                let (prefill, flights, last_grant) =
                    load.map_or((0, 0, 0), |load| (load.prefill, load.flights, load.last_grant));
                let burden = 1000 * signed(prefill) - credit * i128::from(cached.0);
                let key = (worker.tier, burden, Reverse(cached), flights, last_grant);
                if best.as_ref().is_none_or(|(least, _): &(_, WorkerRank)| key < *least) {
                    best = Some((key, WorkerRank { worker: *number, rank }));
                }
            }
        }
        best.map(|(_, place)| place)
    }

    /// Returns the worth of one cached token of this request, in thousandths of a waiting token. This is the pool's
    /// overlap credit, but at most ½ · (n + i) / i, where n is the number of open ranks of the lowest tier and i is the
    /// number of those without prefill tokens. If all these ranks are idle, a cached token is worth at most one waiting
    /// token. The fewer ranks are idle, the more it may be worth. If none is idle, it is worth the overlap credit.
    fn credit_for(
        &self,
        request: &PoolRequestState,
        busy: BusyThresholds,
        credit: OverlapCredit,
    ) -> i128 {
        let want = self.wants.get(request.want);
        let (mut tier, mut open, mut idle) = (u64::MAX, 0u64, 0u64);
        for worker in self.list.values() {
            if worker.tier > tier {
                continue;
            }
            for rank in worker.open_ranks(want, busy) {
                if worker.tier < tier {
                    (tier, open, idle) = (worker.tier, 0, 0);
                }
                open += 1;
                idle += u64::from(worker.load(rank).is_none_or(|load| load.prefill == 0));
            }
        }
        let credit = u64::from(credit.thousandths());
        let most = (500 * (open + idle)).checked_div(idle).unwrap_or(credit);
        credit.min(most).into()
    }
}

/// Converts a sum of tokens to a signed number. Such sums are always far below 2¹²⁷.
fn signed(tokens: u128) -> i128 {
    i128::try_from(tokens).unwrap_or(i128::MAX)
}
