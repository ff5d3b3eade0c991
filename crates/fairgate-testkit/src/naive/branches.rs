//! Counters of the branches of the replay rules that a journal took. A branch that random journals
//! never take is not tested by comparing schedulers on those journals.

use std::cell::RefCell;
use std::collections::BTreeMap;

/// A branch of the replay rules that random journals should take often. A look, which some of them
/// mention, updates which flows wait and which are ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RuleBranch {
    /// The first class of a `bands` node is granted a slot.
    FirstBand,
    /// The second class of a `bands` node is granted a slot.
    SecondBand,
    /// The third class of a `bands` node is granted a slot.
    ThirdBand,
    /// A class of a `bands` node is granted while only the policy's cap blocks a higher class.
    BandBelowCapped,
    /// A class of a `bands` node is granted while only an event's cap blocks a higher class.
    BandBelowCappedByEvent,
    /// A class of a `bands` node is granted while a higher class is held or waits for a worker.
    BandBelowBlocked,
    /// A request expires by its own timeout, which is shorter than the pool's or the only one.
    ExpiredByOwnTimeout,
    /// A request with its own timeout expires by the pool's timeout, which is shorter.
    ExpiredByPoolTimeout,
    /// A request with timeout 0 expires.
    ExpiredWithTimeoutZero,
    /// A request with timeout 0 is granted by the event that submits it.
    GrantedWithTimeoutZero,
    /// An `edf` queue dispatches a different request than an `fcfs` queue would.
    EarliestDeadlineOvertakes,
    /// An `edf` queue dispatches a request with a deadline before an older request of the same
    /// priority without one.
    DeadlineBeforeNone,
    /// An `edf` queue dispatches a request without a deadline.
    NoDeadlineGranted,
    /// An `edf` queue dispatches its oldest late request (`max_wait_us`), which is not the first in
    /// the queue's order.
    LateBeforeEarliestDeadline,
    /// The best place is better than the second best in prefill minus the credit for cached tokens.
    PlacedByBurden,
    /// Without any credit for cached tokens the request would go to another place.
    PlacedByCredit,
    /// The credit for cached tokens is limited because some places are idle, and without the limit
    /// the request would go to another place.
    PlacedByLimitedCredit,
    /// The best place is equal to the second best in all criteria before cached tokens, and has
    /// more cached tokens.
    PlacedByMostCached,
    /// The best place is equal to the second best in all criteria before requests in flight, and
    /// has fewer of them.
    PlacedByFlights,
    /// The best place is equal to the second best in all criteria before the last grant, and its
    /// last grant is older.
    PlacedByLastGrant,
    /// The two best places differ only in the order in which their workers were added.
    PlacedByWorkerOrder,
    /// The two best places differ only in their rank at the same worker.
    PlacedByRank,
    /// An event removes a worker that does not exist, while requests are queued.
    UnknownWorkerGone,
    /// Two or more flows of a share node become ready at the same look.
    TurnedReadyTogether,
    /// Five or more flows of a share node become ready at the same look.
    FiveTurnedReadyTogether,
    /// A flow that becomes ready at the same look as others keeps its base, because its score is
    /// not below virtual time.
    TogetherNotLifted,
    /// A flow that becomes ready at the same look as others has its score raised to virtual time.
    TogetherLiftedToVirtualTime,
    /// A flow that becomes ready at the same look as others has its score raised by as much as
    /// virtual time has risen, and is still below virtual time.
    TogetherLiftedByTheRise,
}

impl RuleBranch {
    /// All branches, in order of declaration.
    pub const ALL: [Self; 28] = [
        Self::FirstBand,
        Self::SecondBand,
        Self::ThirdBand,
        Self::BandBelowCapped,
        Self::BandBelowCappedByEvent,
        Self::BandBelowBlocked,
        Self::ExpiredByOwnTimeout,
        Self::ExpiredByPoolTimeout,
        Self::ExpiredWithTimeoutZero,
        Self::GrantedWithTimeoutZero,
        Self::EarliestDeadlineOvertakes,
        Self::DeadlineBeforeNone,
        Self::NoDeadlineGranted,
        Self::LateBeforeEarliestDeadline,
        Self::PlacedByBurden,
        Self::PlacedByCredit,
        Self::PlacedByLimitedCredit,
        Self::PlacedByMostCached,
        Self::PlacedByFlights,
        Self::PlacedByLastGrant,
        Self::PlacedByWorkerOrder,
        Self::PlacedByRank,
        Self::UnknownWorkerGone,
        Self::TurnedReadyTogether,
        Self::FiveTurnedReadyTogether,
        Self::TogetherNotLifted,
        Self::TogetherLiftedToVirtualTime,
        Self::TogetherLiftedByTheRise,
    ];
}

/// Number of times that each branch was taken. A `RefCell` holds the numbers, because methods that
/// only read the pool count branches too.
#[derive(Clone, Debug, Default)]
pub(super) struct BranchCounts(RefCell<BTreeMap<RuleBranch, u64>>);

impl BranchCounts {
    pub(super) fn note(&self, branch: RuleBranch) {
        *self.0.borrow_mut().entry(branch).or_default() += 1;
    }

    pub(super) fn counts(&self) -> BTreeMap<RuleBranch, u64> {
        self.0.borrow().clone()
    }
}
