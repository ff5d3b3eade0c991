//! Deficit round robin over policy classes.
//!
//! # The discipline
//! Classes stand in a ring. Class *i* earns a quantum *qᵢ* of credit each time the ring comes round to it
//! and spends credit on its requests, so that classes that always have work are served tokens in the ratio
//! of their quanta (how exactly: see the bound). Unspent credit is the class's *deficit dᵢ*: the tokens it has
//! been promised and not yet been given.
//!
//! A pick visits the ring from the cursor. With head cost *cᵢ*, a ready class needs
//!
//! ```text
//!     kᵢ = max(0, ⌈(cᵢ − dᵢ) / qᵢ⌉)
//! ```
//!
//! more rounds. One visit gives one quantum to a class with kᵢ ≥ 1 and dispatches it where kᵢ ≤ 1, so
//!
//! * the first class in ring order with kᵢ ≤ 1 wins, and every ready class passed on the way, each of
//!   which has kᵢ ≥ 2, earns one quantum;
//! * where there is none, the whole ring earns m = min kᵢ rounds at once (one by the visit, m − 1 as bulk
//!   credit) and the first class with kᵢ = m wins. A request a million quanta dear costs one step.
//!
//! A class that can afford its next head keeps the cursor (it *stayed*), so a burst is spent in one turn;
//! where the stay comes to nothing, its turn is over and it is visited last. Blocked classes keep what they
//! have and earn nothing. An empty class has no credit: what is not wanted now is not owed later.
//!
//! # In logarithmic time
//! All that a pick asks is about the kᵢ of *ready* classes: the first with kᵢ ≤ 1 from the cursor on, the
//! least, and "give a round to a stretch", which lowers each kᵢ in it by one and leaves the others alone.
//! `Rounds` (in `rounds.rs`) does each in O(log C). A class's deficit is brought up to date only when its head, its
//! quantum or its credit is touched: dᵢ = d + (k then − k now)·qᵢ. Empty, held and blocked classes are not
//! in the tree at all, so they cost nothing.
//!
//! # The bound
//! Credit is only added where dᵢ < cᵢ, and never more rounds than kᵢ: after any credit dᵢ < cᵢ + qᵢ. Spending
//! lowers dᵢ by the cost, and only where dᵢ ≥ cᵢ, so without settling 0 ≤ dᵢ. With `settle`, a refund adds what
//! the request did not use and an overrun takes what it used beyond its cost. So with uᵢ = c + q − 1 at the last
//! credit, less what was spent and plus what was refunded since, and cᵢ the head's cost now,
//!
//! ```text
//!     − overruns since dᵢ was last ≥ 0   ≤   dᵢ   ≤   max(uᵢ, cᵢ + qᵢ − 1)
//! ```
//!
//! before and after the next credit, and dᵢ/qᵢ is how many rounds the class is behind what it has earned.
//!
//! Earned alike? While no bulk rounds and no refunds are given, two classes that stay ready, with heads that change only by being
//! dispatched, receive the same number of quanta up to one, so their service per quantum differs by at most
//! 1 + (cᵢ + qᵢ)/qᵢ + (cⱼ + qⱼ)/qⱼ rounds. Bulk rounds are not so even: they give m rounds to the classes behind the
//! winner too, and the next scan starts right there and gives them one more. With quanta 1 and 1 and costs 2 and 3
//! this is 2 : 3 in tokens for ever, and in general a factor of (m + 1)/m, at most 3/2. That is the published rule,
//! kept as it is; quanta of at least the largest cost never need bulk rounds. And a class whose refund already covers
//! its next head earns no quantum at that visit: `settle` charges those who estimate too low, but serves those who
//! estimate too high by their estimates.

use crate::arbiter::{Arbiter, Context, Ended, Head, Local, Pick, View};
use crate::requests::Slot;
use crate::rounds::Rounds;
use crate::units::{Tokens, Weight};

/// The state of a drr node.
#[derive(Clone, Debug)]
pub(crate) struct Drr {
    pub(crate) classes: Vec<ClassState>,
    settle: bool,
    /// The rounds that each ready class needs.
    rounds: Rounds,
    pub(crate) cursor: Local,
    pub(crate) stayed: bool,
    /// The class just dispatched, until the next look shows what it has left.
    turn: Option<Local>,
    /// What the last pick found. Whatever happens to the ring is followed by a look, and so by a pick.
    picked: Option<(Local, Turn)>,
}

/// One class of the ring.
#[derive(Clone, Debug)]
pub(crate) struct ClassState {
    /// The deficit when the class was last touched; [`Drr::deficit`] has it now.
    deficit: i128,
    pub(crate) quantum: Weight,
    head: Option<Head>,
    waiting: u32,
    /// The rounds it needed when it was last touched.
    needed: u128,
    /// What its waiting requests add up to, for its limits.
    pub(crate) input: u128,
    pub(crate) cached: u128,
    /// The deficit stays below this: see the bound.
    ceiling: i128,
    /// What it used beyond its costs since its deficit was last 0 or more.
    overrun: i128,
}

/// Why the picked class goes, in the words of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// The cursor stayed on it and it can afford its head.
    Stays,
    /// The scan that began at `start` came to it.
    Visited {
        /// Where the scan began.
        start: Local,
        /// The rounds given to every ready class; 0 where the scan alone was enough, which gives one to those it
        /// passes and to the winner where it needs one.
        bulk: u128,
    },
}

impl Drr {
    /// A ring of classes with these quanta.
    pub(crate) fn new(quanta: impl Iterator<Item = Weight>, settle: bool) -> Self {
        let classes: Vec<_> = quanta.map(ClassState::new).collect();
        let rounds = Rounds::new(classes.len());
        Self { classes, settle, rounds, cursor: 0, stayed: false, turn: None, picked: None }
    }

    /// A class's deficit as it is now.
    pub(crate) fn deficit(&self, class: Local) -> i128 {
        let state = &self.classes[class as usize];
        let now = self.rounds.get(class).unwrap_or(state.needed);
        state.deficit + state.credit(state.needed - now)
    }

    /// The range in which the discipline keeps a class's deficit: (least, most).
    pub(crate) fn deficit_bound(&self, class: Local) -> (i128, i128) {
        let state = &self.classes[class as usize];
        let (least, reached) = self.reached(class);
        (least, state.head.map_or(reached, |_| reached.max(state.ceiling_with_credit())))
    }

    /// What the bound knows of a class: its overruns that are not earned back, and how high its deficit may be as
    /// of its last credit.
    pub(crate) fn reached(&self, class: Local) -> (i128, i128) {
        let state = &self.classes[class as usize];
        let now = self.rounds.get(class).unwrap_or(state.needed);
        let most = if now < state.needed { state.ceiling_with_credit() } else { state.ceiling };
        let least = if self.deficit(class) >= 0 { 0 } else { -state.overrun };
        (least, most)
    }

    /// The cost of a class's head, where it is ready.
    pub(crate) fn head_cost(&self, class: Local) -> Option<Tokens> {
        self.classes[class as usize].head.map(|head| head.cost)
    }

    /// The further rounds that a ready class's head needs.
    pub(crate) fn rounds_needed(&self, class: Local) -> Option<u128> {
        self.rounds.get(class)
    }

    /// Restores a class's counters from a snapshot.
    pub(crate) fn restore(&mut self, class: Local, deficit: i128, reached: (i128, i128)) {
        let state = &mut self.classes[class as usize];
        state.deficit = deficit;
        state.overrun = -reached.0;
        state.ceiling = reached.1;
    }

    /// Brings a class's stored deficit up to date.
    fn touch(&mut self, class: Local) {
        let Some(now) = self.rounds.get(class) else { return };
        let state = &mut self.classes[class as usize];
        if now < state.needed {
            state.deficit += state.credit(state.needed - now);
            state.ceiling = state.ceiling_with_credit();
            state.needed = now;
            state.forgive();
        }
    }

    /// Enters what a class needs into the ring, after its head, quantum or deficit changed.
    fn enter(&mut self, class: Local) {
        let state = &mut self.classes[class as usize];
        let needed = state.head.map(|head| state.rounds_for(head.cost));
        state.needed = needed.unwrap_or(0);
        self.rounds.set(class, needed);
    }

    /// The class that goes next, and how it came to it.
    pub(crate) fn scan(&self) -> Option<(Local, Turn)> {
        let count = u32::try_from(self.classes.len()).expect("classes fit in 32 bits");
        if self.stayed && self.rounds.get(self.cursor) == Some(0) {
            return Some((self.cursor, Turn::Stays));
        }
        let start = if self.stayed { (self.cursor + 1) % count } else { self.cursor };
        let first = |within: u128| {
            self.rounds
                .first_within(start, count, within)
                .or_else(|| self.rounds.first_within(0, start, within))
        };
        let least = self.rounds.least()?;
        let class = first(least.max(1))?;
        Some((class, Turn::Visited { start, bulk: if least > 1 { least } else { 0 } }))
    }

    /// Gives the credit that the scan gives on its way to the winner.
    fn credit_scan(&mut self, class: Local, start: Local, bulk: u128) {
        let count = u32::try_from(self.classes.len()).expect("classes fit in 32 bits");
        if bulk > 0 {
            self.rounds.give(0, count, bulk);
            return;
        }
        if start <= class {
            self.rounds.give(start, class, 1);
        } else {
            self.rounds.give(start, count, 1);
            self.rounds.give(0, class, 1);
        }
        if self.rounds.get(class) == Some(1) {
            self.rounds.give(class, class + 1, 1);
        }
    }

    /// An idle class keeps no credit; a debt stays where debts exist.
    fn reset_credit(&mut self, class: Local) {
        self.touch(class);
        let state = &mut self.classes[class as usize];
        state.deficit = if self.settle { state.deficit.min(0) } else { 0 };
    }
}

impl ClassState {
    fn new(quantum: Weight) -> Self {
        Self {
            deficit: 0,
            quantum,
            head: None,
            waiting: 0,
            needed: 0,
            input: 0,
            cached: 0,
            ceiling: 0,
            overrun: 0,
        }
    }

    /// ⌈(cost − deficit) / quantum⌉, or 0 where the deficit covers the cost.
    fn rounds_for(&self, cost: Tokens) -> u128 {
        let short = i128::from(cost.0).saturating_sub(self.deficit);
        u128::try_from(short).map_or(0, |short| short.div_ceil(u128::from(self.quantum.get())))
    }

    fn credit(&self, rounds: u128) -> i128 {
        let credit = rounds.saturating_mul(u128::from(self.quantum.get()));
        i128::try_from(credit).unwrap_or(i128::MAX)
    }

    fn ceiling_with_credit(&self) -> i128 {
        let cost = self.head.map_or(0, |head| head.cost.0);
        i128::from(cost) + i128::from(self.quantum.get()) - 1
    }

    fn forgive(&mut self) {
        if self.deficit >= 0 {
            self.overrun = 0;
        }
    }
}

impl Arbiter for Drr {
    fn arrived(&mut self, class: Local, slot: Slot, _before: u32, cx: Context<'_>) {
        let request = cx.requests.get(slot);
        let state = &mut self.classes[class as usize];
        state.waiting += 1;
        state.input += u128::from(request.input.0);
        state.cached += u128::from(request.cached_best.0);
    }

    fn left(&mut self, class: Local, slot: Slot, remaining: u32, cx: Context<'_>) {
        let request = cx.requests.get(slot);
        let state = &mut self.classes[class as usize];
        state.waiting = remaining;
        state.input -= u128::from(request.input.0);
        state.cached -= u128::from(request.cached_best.0);
        if remaining == 0 {
            self.reset_credit(class);
        }
    }

    fn look(&mut self, class: Local, view: View) {
        self.touch(class);
        self.classes[class as usize].head = view.head;
        self.enter(class);
    }

    /// The turn ends unless the class just dispatched can afford what it would dispatch next.
    fn looked(&mut self, blocked: bool) {
        let Some(class) = self.turn.take() else { return };
        let count = u32::try_from(self.classes.len()).expect("classes fit in 32 bits");
        self.stayed = !blocked && self.rounds.get(class) == Some(0);
        self.cursor = if self.stayed { class } else { (class + 1) % count };
    }

    fn pick(&mut self, _cx: Context<'_>) -> Option<Pick> {
        self.picked = self.scan();
        self.picked.map(|(flow, _)| Pick { flow, oldest: false })
    }

    fn charge(&mut self, class: Local, cost: Tokens) -> u64 {
        let picked = self.picked.take();
        debug_assert_eq!(picked.map(|(class, _)| class), Some(class), "only a pick is charged");
        if let Some((_, Turn::Visited { start, bulk })) = picked {
            self.credit_scan(class, start, bulk);
        }
        self.touch(class);
        let state = &mut self.classes[class as usize];
        state.deficit -= i128::from(cost.0);
        state.ceiling -= i128::from(cost.0);
        self.turn = Some(class);
        0
    }

    fn settle(&mut self, class: Local, ended: Ended) {
        let Some(tokens) = ended.tokens.filter(|_| self.settle) else { return };
        self.touch(class);
        let state = &mut self.classes[class as usize];
        let correction = i128::from(tokens.0) - i128::from(ended.cost.0);
        state.deficit = state.deficit.saturating_sub(correction);
        state.overrun = state.overrun.saturating_add(correction.max(0));
        state.ceiling = state.ceiling.saturating_add((-correction).max(0));
        state.forgive();
        if state.waiting == 0 {
            self.reset_credit(class);
        }
    }

    fn reweigh(&mut self, class: Local, quantum: Weight) {
        self.touch(class);
        self.classes[class as usize].quantum = quantum;
        self.enter(class);
    }
}
