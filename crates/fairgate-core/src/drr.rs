//! Deficit round robin over policy classes.
//!
//! # Sources
//! Follows the page "Deficit Round Robin Queue Scheduling" of NVIDIA Dynamo's router, which is itself a variant of M.
//! Shreedhar and G. Varghese, "Efficient Fair Queueing using Deficit Round Robin" (1995). The paper adds a quantum at
//! every visit of a backlogged queue. The page, and so this module, adds none if the credit already covers the head,
//! adds none to a blocked class, and gives many rounds at once if one visit of the ring dispatches nothing.
//!
//! # The discipline
//! Classes form a ring. A visit of class *i* can give it one quantum *qᵢ* of credit, and the class spends its credit on
//! its requests. Unspent credit is the class's *deficit dᵢ*: tokens promised and not yet served. A request pays its
//! cost. The tokens that it really uses do not matter.
//!
//! A pick visits the ring from the cursor. With head cost *cᵢ*, a ready class needs
//!
//! ```text
//!     kᵢ = max(0, ⌈(cᵢ − dᵢ) / qᵢ⌉)
//! ```
//!
//! more rounds. One visit gives one quantum to a class with kᵢ ≥ 1 and dispatches it if kᵢ ≤ 1, so
//!
//! * the first class in ring order with kᵢ ≤ 1 wins, and every ready class passed on the way, each of which has kᵢ ≥ 2,
//!   earns one quantum;
//! * if no class has kᵢ ≤ 1, every ready class earns m = min kᵢ rounds at once (one by the visit, m − 1 as bulk credit)
//!   and the first class with kᵢ = m wins. A request that costs a million quanta still takes one step.
//!
//! A class that can afford its next head keeps the cursor (it *stayed*), so a burst is spent in one turn. A class that
//! has nothing ready at the moment keeps the cursor too, because a worker that was filled by the class's own grant must
//! not end the class's turn. If the class is still not ready at the next pick, the turn is over and the class is
//! visited last. Blocked classes keep their credit and earn none. An empty class has no credit: credit that is not used
//! now is not owed later.
//!
//! # In logarithmic time
//! A ring of at most 16 classes is simply scanned. In a longer ring a pick needs three operations on the kᵢ of *ready*
//! classes: the first with kᵢ ≤ 1 from the cursor on, the least, and "give a round to a stretch", which lowers each kᵢ
//! in it by one and leaves the others alone. `RoundsTree` (in `rounds.rs`) does each in O(log C). A class's stored
//! deficit is brought up to date only when its head, its quantum or its credit changes. In between, dᵢ is the stored
//! deficit plus qᵢ times the number of rounds by which kᵢ has fallen since it was stored. Empty, held and blocked
//! classes are not in the tree at all, so they cost nothing. If a class needs more rounds than the tree's 64 bits can
//! hold, the ring is scanned from then on.
//!
//! # The bound
//! Credit is only added if dᵢ < cᵢ, and never more rounds than kᵢ: after any credit dᵢ < cᵢ + qᵢ. Spending lowers dᵢ by
//! the cost, and only if dᵢ ≥ cᵢ. Let uᵢ be the value of cᵢ + qᵢ − 1 at the last credit, minus the tokens spent since
//! then, and let cᵢ be the cost of the present head. Then
//!
//! ```text
//!     0  ≤  dᵢ  ≤  max(uᵢ, cᵢ + qᵢ − 1)
//! ```
//!
//! both before and after the next credit. The quotient dᵢ/qᵢ is the number of rounds of credit that the class has
//! earned and not spent.
//!
//! That bounds the credit that a class has not spent. It does not bound the credit that classes *earn*, and classes do
//! not earn in proportion to their quanta:
//!
//! * Bulk credit gives m rounds to all ready classes, also to those behind the winner in the ring. The next scan starts
//!   right behind the winner and gives those classes one round more. So they earn up to (m + 1)/m times their part. As
//!   m ≥ 2, that factor is at most 3/2. With quanta 1 and 1 and costs 2 and 3 the ratio in tokens stays 2 : 3 forever.
//!   If every quantum is at least the largest cost, bulk rounds are never needed.
//! * A class whose credit already covers its head earns nothing at that visit. With a `wspt` queue inside, a cheap
//!   newcomer becomes the head. If the deficit covers its cost, the class does not earn the quantum of that visit. With
//!   real request sizes, quanta in the ratio 4 : 1 gave tokens in the ratio 1.5 : 1.
//! * A class whose estimates are too high pays too much, and the surplus is never paid back.
//! * A class whose workers are full whenever it is visited may wait forever.
//!
//! Quanta are therefore not shares. The node's meter ([`crate::fairness`]) shows the tokens that each class got, and
//! the tokens that it would have got if tokens were divided in proportion to the quanta. If ratios must be kept, use a
//! `share` node with classes.

use alloc::vec::Vec;

use crate::arbiter::{
    Arbiter, ArbiterContext, EndedRequest, FlowHead, FlowPick, FlowUpdate, LocalFlow, SettleEffect,
};
use crate::meter::{FlowMeter, FlowPresence, NodeMeter};
use crate::requests::PoolRequestState;
use crate::rounds::{MAX_ROUNDS, RoundsTree};
use crate::units::{Tokens, Weight};

/// Longest ring, in classes, that is scanned; a longer one uses [`RoundsTree`].
const MAX_SCANNED_CLASSES: usize = 16;

/// The state of a deficit round robin node.
#[derive(Clone, Debug)]
pub(crate) struct DrrState {
    pub(crate) classes: Vec<DrrClassState>,
    /// The rounds that each ready class still needs; `None` if the ring is scanned instead.
    rounds: Option<RoundsTree>,
    pub(crate) cursor: LocalFlow,
    pub(crate) stayed: bool,
    /// The class of the last grant, until the next look reports the new head of that class. `None` at other times.
    turn: Option<LocalFlow>,
    /// Result of the last pick; `None` if no class was ready. Every change of the ring is followed by a look, and so by
    /// a new pick.
    picked: Option<(LocalFlow, DrrTurn)>,
    pub(crate) meter: NodeMeter,
}

/// State of one class of the ring.
#[derive(Clone, Debug)]
pub(crate) struct DrrClassState {
    /// The deficit in tokens when the class was last updated; [`DrrState::deficit`] computes the present one.
    deficit: u128,
    pub(crate) quantum: Weight,
    head: Option<FlowHead>,
    waiting: u32,
    /// The rounds that the class needed when it was last updated; only used in a ring that is not scanned.
    needed: u64,
    /// Upper bound of the deficit in tokens; see the section "The bound" of the module.
    ceiling: u128,
    pub(crate) meter: FlowMeter,
}

/// The rule by which a class was picked, in the terms of Dynamo's page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DrrTurn {
    /// The cursor stayed on the class, because the class's credit covers the cost of its head.
    Stays,
    /// The scan that began at `start` reached the class.
    Visited {
        /// The class at which the scan began.
        start: LocalFlow,
        /// Number of rounds given to every ready class at once, including the round of the visit itself. If it is 0,
        /// the scan gave one round to each ready class that it passed, and to the winner if the winner needed one.
        bulk: u64,
    },
}

impl DrrState {
    /// Creates a ring of classes with these quanta.
    pub(crate) fn new(quanta: impl Iterator<Item = Weight>) -> Self {
        let classes: Vec<_> = quanta.map(DrrClassState::new).collect();
        let rounds = (classes.len() > MAX_SCANNED_CLASSES).then(|| RoundsTree::new(classes.len()));
        Self {
            classes,
            rounds,
            cursor: 0,
            stayed: false,
            turn: None,
            picked: None,
            meter: NodeMeter::default(),
        }
    }

    fn count(&self) -> LocalFlow {
        LocalFlow::try_from(self.classes.len()).expect("classes fit in 32 bits")
    }

    /// Returns true if the cursor is as in a new ring. For a ring without requests, only the meter can then differ.
    pub(crate) fn is_fresh(&self) -> bool {
        self.cursor == 0 && !self.stayed
    }

    /// Returns the present deficit of a class, in tokens.
    pub(crate) fn deficit(&self, class: LocalFlow) -> u128 {
        let state = &self.classes[class as usize];
        state.deficit + state.credit(state.needed - self.needed_now(class))
    }

    fn needed_now(&self, class: LocalFlow) -> u64 {
        let state = &self.classes[class as usize];
        self.rounds.as_ref().and_then(|rounds| rounds.get(class)).unwrap_or(state.needed)
    }

    /// Returns the greatest deficit that the discipline allows a class, in tokens. If `blocked` is true, no class is
    /// ready, whatever the last look reported.
    pub(crate) fn deficit_bound(&self, class: LocalFlow, blocked: bool) -> u128 {
        let state = &self.classes[class as usize];
        let reached = self.reached(class);
        match state.head.is_some() && !blocked {
            true => reached.max(state.ceiling_with_credit()),
            false => reached,
        }
    }

    /// Returns the upper bound uᵢ of a class's deficit, in tokens; see the section "The bound" of the module.
    pub(crate) fn reached(&self, class: LocalFlow) -> u128 {
        let state = &self.classes[class as usize];
        match self.needed_now(class) < state.needed {
            true => state.ceiling_with_credit(),
            false => state.ceiling,
        }
    }

    /// Returns the cost of a class's head, or `None` if the class is not ready.
    pub(crate) fn head_cost(&self, class: LocalFlow) -> Option<Tokens> {
        self.classes[class as usize].head.map(|head| head.cost)
    }

    /// Returns the number of further rounds that a class needs to afford its head; `None` if the class is not ready.
    pub(crate) fn rounds_needed(&self, class: LocalFlow) -> Option<u64> {
        let state = &self.classes[class as usize];
        let cost = state.head?.cost;
        Some(rounds_for(cost, self.deficit(class), state.quantum))
    }

    /// Restores a class's counters from a snapshot.
    pub(crate) fn restore(&mut self, class: LocalFlow, deficit: u128, reached: u128) {
        let state = &mut self.classes[class as usize];
        state.deficit = deficit;
        state.ceiling = reached;
    }

    /// Adds the credit that a class has earned since its last update to its stored deficit.
    fn update_deficit(&mut self, class: LocalFlow) {
        let Some(now) = self.rounds.as_ref().and_then(|rounds| rounds.get(class)) else { return };
        let state = &mut self.classes[class as usize];
        if now < state.needed {
            state.add_credit(state.needed - now);
            state.needed = now;
        }
    }

    /// Enters the rounds that a class needs into the tree, after its head, quantum or deficit changed.
    fn update_rounds(&mut self, class: LocalFlow) {
        let Some(rounds) = &mut self.rounds else { return };
        let state = &mut self.classes[class as usize];
        let needed = state.head.map(|head| rounds_for(head.cost, state.deficit, state.quantum));
        if needed.is_some_and(|needed| needed >= MAX_ROUNDS) {
            return self.scan_from_now_on();
        }
        state.needed = needed.unwrap_or(0);
        rounds.set(class, needed);
    }

    /// Drops the tree of rounds and scans the ring from now on.
    fn scan_from_now_on(&mut self) {
        for class in 0..self.count() {
            self.update_deficit(class);
            self.classes[class as usize].needed = 0;
        }
        self.rounds = None;
    }

    /// Returns the class that goes next and the rule that chose it; `None` if no class is ready.
    pub(crate) fn scan(&self) -> Option<(LocalFlow, DrrTurn)> {
        let cursor = &self.classes[self.cursor as usize];
        if self.stayed
            && let Some(head) = cursor.head
            // The deficit is up to date: it was updated when the class stayed, and no class has earned credit since.
            && cursor.deficit >= u128::from(head.cost.0)
        {
            return Some((self.cursor, DrrTurn::Stays));
        }
        let start = if self.stayed { self.next(self.cursor) } else { self.cursor };
        let (class, bulk) = match &self.rounds {
            Some(rounds) => {
                let least = rounds.least()?;
                let within = least.max(1);
                let class = rounds
                    .first_within(start, within)
                    .or_else(|| rounds.first_within(0, within))?;
                (class, if least > 1 { least } else { 0 })
            }
            None => self.scan_short(start)?,
        };
        Some((class, DrrTurn::Visited { start, bulk }))
    }

    /// Returns the first class from `start` on that can afford its head with at most one more quantum; otherwise the
    /// first of the classes that need the fewest rounds. The second value is the number of rounds of bulk credit, or 0
    /// if none is needed. Returns `None` if no class is ready.
    fn scan_short(&self, start: LocalFlow) -> Option<(LocalFlow, u64)> {
        let (before, from) = self.classes.split_at(start as usize);
        let ring = (start..).zip(from).chain((0..).zip(before));
        let ready = || ring.clone().filter_map(|(class, state)| Some((class, state, state.head?)));
        let affords = |(_, state, head): &(LocalFlow, &DrrClassState, FlowHead)| {
            state.deficit + u128::from(state.quantum.get()) >= u128::from(head.cost.0)
        };
        if let Some((class, _, _)) = ready().find(affords) {
            return Some((class, 0));
        }
        let needed = ready().map(|(class, state, head)| {
            (rounds_for(head.cost, state.deficit, state.quantum), class)
        });
        // `min_by_key` returns the first of equal minima, in the order of the scan.
        let (bulk, class) = needed.min_by_key(|(needed, _)| *needed)?;
        Some((class, bulk))
    }

    fn next(&self, class: LocalFlow) -> LocalFlow {
        let next = class + 1;
        if next == self.count() { 0 } else { next }
    }

    /// Gives the classes the credit for a scan from `start` to the winner, and brings the winner's deficit up to date.
    fn credit_scan(&mut self, class: LocalFlow, start: LocalFlow, bulk: u64) {
        let count = self.count();
        if self.rounds.is_none() {
            return self.credit_short(class, start, bulk);
        }
        let Some(rounds) = &mut self.rounds else { return };
        if bulk > 0 {
            rounds.give(0, count, bulk);
        } else if start <= class {
            rounds.give(start, class, 1);
        } else {
            rounds.give(start, count, 1);
            rounds.give(0, class, 1);
        }
        self.update_deficit(class);
        let state = &mut self.classes[class as usize];
        if bulk == 0 && state.needed == 1 {
            // The tree need not be updated, because the look that follows the grant enters the class again.
            state.add_credit(1);
        }
    }

    fn credit_short(&mut self, class: LocalFlow, start: LocalFlow, bulk: u64) {
        if bulk > 0 {
            let ready = self.classes.iter_mut().filter(|state| state.head.is_some());
            return ready.for_each(|state| state.add_credit(bulk));
        }
        let mut visited = start;
        loop {
            let state = &mut self.classes[visited as usize];
            if let Some(head) = state.head
                && state.deficit < u128::from(head.cost.0)
            {
                state.add_credit(1);
            }
            if visited == class {
                return;
            }
            visited = self.next(visited);
        }
    }
}

/// Returns ⌈(cost − deficit) / quantum⌉, or 0 if the deficit covers the cost.
fn rounds_for(cost: Tokens, deficit: u128, quantum: Weight) -> u64 {
    match u64::try_from(deficit) {
        Ok(deficit) => cost.0.saturating_sub(deficit).div_ceil(quantum.get()),
        Err(_) => 0,
    }
}

impl DrrClassState {
    fn new(quantum: Weight) -> Self {
        Self {
            deficit: 0,
            quantum,
            head: None,
            waiting: 0,
            needed: 0,
            ceiling: 0,
            meter: FlowMeter::default(),
        }
    }

    fn credit(&self, rounds: u64) -> u128 {
        u128::from(rounds) * u128::from(self.quantum.get())
    }

    fn add_credit(&mut self, rounds: u64) {
        self.deficit += self.credit(rounds);
        self.ceiling = self.ceiling_with_credit();
    }

    fn ceiling_with_credit(&self) -> u128 {
        let cost = self.head.map_or(0, |head| head.cost.0);
        u128::from(cost) + u128::from(self.quantum.get()) - 1
    }
}

impl Arbiter for DrrState {
    fn arrived(&mut self, class: LocalFlow, _request: &PoolRequestState) -> bool {
        self.classes[class as usize].waiting += 1;
        false
    }

    fn left(&mut self, class: LocalFlow, _request: &PoolRequestState, remaining: u32) -> bool {
        if remaining == 0 {
            self.update_deficit(class);
            self.classes[class as usize].deficit = 0;
        }
        self.classes[class as usize].waiting = remaining;
        false
    }

    fn look(&mut self, class: LocalFlow, view: FlowUpdate, _cx: ArbiterContext<'_>) {
        self.update_deficit(class);
        let state = &mut self.classes[class as usize];
        state.head = view.head;
        let presence = FlowPresence::of(view.waiting > 0, view.head.is_some());
        self.meter.set_presence(class, &mut state.meter, state.quantum, presence);
        self.update_rounds(class);
    }

    /// Ends the turn of the class that was just dispatched if the class is empty, or is ready but cannot afford its
    /// head.
    fn looked(&mut self, blocked: bool) {
        let Some(class) = self.turn.take() else { return };
        let state = &self.classes[class as usize];
        self.stayed = state.waiting > 0
            && match state.head {
                // The look just before has brought the deficit up to date.
                Some(head) if !blocked => state.deficit >= u128::from(head.cost.0),
                _ => true,
            };
        self.cursor = if self.stayed { class } else { self.next(class) };
    }

    fn pick(&mut self, _cx: ArbiterContext<'_>) -> Option<FlowPick> {
        self.picked = self.scan();
        self.picked.map(|(flow, _)| FlowPick { flow, late: None })
    }

    fn charge(&mut self, class: LocalFlow, cost: Tokens) -> u64 {
        let picked = self.picked.take();
        debug_assert_eq!(picked.map(|(class, _)| class), Some(class), "only a pick is charged");
        if let Some((_, DrrTurn::Visited { start, bulk })) = picked {
            self.credit_scan(class, start, bulk);
        }
        debug_assert_eq!(self.classes[class as usize].needed, self.needed_now(class), "touched");
        let state = &mut self.classes[class as usize];
        state.deficit -= u128::from(cost.0);
        state.ceiling = state.ceiling.saturating_sub(u128::from(cost.0));
        let quantum = state.quantum;
        self.meter.grant(&mut state.meter, quantum, cost.0, quantum.get());
        self.turn = Some(class);
        0
    }

    fn settle(&mut self, class: LocalFlow, ended: EndedRequest) -> SettleEffect {
        let state = &mut self.classes[class as usize];
        self.meter.settle(class, &mut state.meter, state.quantum, ended.error());
        SettleEffect::Nothing
    }

    fn set_weight(&mut self, class: LocalFlow, quantum: Weight) {
        self.update_deficit(class);
        let state = &mut self.classes[class as usize];
        self.meter.set_weight(class, &mut state.meter, state.quantum, quantum);
        state.quantum = quantum;
        self.update_rounds(class);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::requests::{RequestHandle, RequestTable, SubmitSeq};
    use crate::units::{Micros, Ticks};

    /// Compares a ring that is too long to be scanned with the same ring if it is scanned. Both must pick the same
    /// class, give the same credit and have the same deficits.
    #[test]
    fn a_long_ring_decides_as_a_scanned_one() {
        let mut state = 11u64;
        let mut next = move |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
            (state >> 33) % below
        };
        let requests = RequestTable::new();
        let cx = ArbiterContext {
            requests: &requests,
            now: Micros(0),
            ticks: Ticks(0),
            capacity: u64::MAX,
        };
        for _ in 0..60 {
            let count = 17 + next(60);
            let quanta: Vec<_> =
                (0..count).map(|_| Weight::new(1 + next(500)).expect("over 0")).collect();
            let mut long = DrrState::new(quanta.iter().copied());
            let mut scanned = DrrState { rounds: None, ..DrrState::new(quanta.iter().copied()) };
            assert!(long.rounds.is_some());
            let mut waiting = alloc::vec![0u32; count as usize];
            for seq in 0..400 {
                let show =
                    |ring: &mut DrrState, class: LocalFlow, cost: Option<u64>, waiting: u32| {
                        let head = cost.map(|cost| FlowHead {
                            request: RequestHandle(0),
                            seq: SubmitSeq(seq),
                            cost: Tokens(cost),
                        });
                        let view = FlowUpdate {
                            head,
                            waiting,
                            in_flight: 0,
                            oldest: None,
                            oldest_open: true,
                            is_kept: false,
                            may_join: false,
                        };
                        ring.look(class, view, cx);
                    };
                // Some classes turn ready or not, with heads up to many quanta.
                for _ in 0..next(4) {
                    let class = next(count) as LocalFlow;
                    let cost = (next(5) > 0).then(|| 1 + next(20_000));
                    waiting[class as usize] = if cost.is_some() { 1 + next(4) as u32 } else { 0 };
                    for ring in [&mut long, &mut scanned] {
                        ring.classes[class as usize].waiting = waiting[class as usize];
                        if cost.is_none() {
                            ring.update_deficit(class);
                            ring.classes[class as usize].deficit = 0;
                        }
                        show(ring, class, cost, waiting[class as usize]);
                    }
                }
                let picks = [&mut long, &mut scanned].map(|ring| (ring.pick(cx), ring.picked));
                assert_eq!(picks[0], picks[1]);
                let Some(FlowPick { flow, .. }) = picks[0].0 else { continue };
                let cost = long.head_cost(flow).expect("it was picked");
                let left = waiting[flow as usize] - 1;
                waiting[flow as usize] = left;
                let next_cost = (left > 0).then(|| 1 + next(20_000));
                for ring in [&mut long, &mut scanned] {
                    ring.charge(flow, cost);
                    ring.classes[flow as usize].waiting = left;
                    if left == 0 {
                        ring.update_deficit(flow);
                        ring.classes[flow as usize].deficit = 0;
                    }
                    show(ring, flow, next_cost, left);
                    ring.looked(false);
                }
                assert_eq!((long.cursor, long.stayed), (scanned.cursor, scanned.stayed));
                for class in 0..count as LocalFlow {
                    assert_eq!(long.deficit(class), scanned.deficit(class), "class {class}");
                    assert_eq!(long.rounds_needed(class), scanned.rounds_needed(class));
                }
            }
        }
    }
}
