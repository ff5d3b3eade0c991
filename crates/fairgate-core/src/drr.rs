//! Deficit round robin over policy classes, as published.
//!
//! # The discipline
//! Classes stand in a ring. Class *i* earns a quantum *qᵢ* of credit each time the ring comes round to it
//! and spends credit on its requests. Unspent credit is the class's *deficit dᵢ*: the tokens it has been
//! promised and not yet been given. What a request really used changes nothing: its cost is what it pays.
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
//! A class that can afford its next head keeps the cursor (it *stayed*), so a burst is spent in one turn; so does one
//! that has nothing ready right now, because a worker that its own grant filled must not end its turn. Where the stay
//! comes to nothing, its turn is over and it is visited last. Blocked classes keep what they have and earn nothing.
//! An empty class has no credit: what is not wanted now is not owed later.
//!
//! # In logarithmic time
//! A handful of classes is simply scanned. In a longer ring all that a pick asks is about the kᵢ of *ready* classes:
//! the first with kᵢ ≤ 1 from the cursor on, the least, and "give a round to a stretch", which lowers each kᵢ in it by
//! one and leaves the others alone. `Rounds` (in `rounds.rs`) does each in O(log C). A class's deficit is brought up to
//! date only when its head, its quantum or its credit is touched: dᵢ = d + (k then − k now)·qᵢ. Empty, held and blocked
//! classes are not in the tree at all, so they cost nothing. Where a class needs more rounds than the tree's 64 bits
//! take, the ring is scanned from then on.
//!
//! # The bound
//! Credit is only added where dᵢ < cᵢ, and never more rounds than kᵢ: after any credit dᵢ < cᵢ + qᵢ. Spending
//! lowers dᵢ by the cost, and only where dᵢ ≥ cᵢ. So with uᵢ = c + q − 1 at the last credit, less what was spent since,
//! and cᵢ the head's cost now,
//!
//! ```text
//!     0  ≤  dᵢ  ≤  max(uᵢ, cᵢ + qᵢ − 1)
//! ```
//!
//! before and after the next credit, and dᵢ/qᵢ is how many rounds the class is behind what it has earned.
//!
//! That bounds what a class has not spent. It says nothing of what classes *earn*, and they do not earn alike:
//!
//! * Bulk rounds give m rounds to the classes behind the winner too, and the next scan starts right there and gives
//!   them one more. With quanta 1 and 1 and costs 2 and 3 this is 2 : 3 in tokens for ever, in general a factor of
//!   (m + 1)/m, at most 3/2. Quanta of at least the largest cost never need bulk rounds.
//! * A class whose credit already covers its head earns nothing at that visit. With `wspt` inside, a cheap newcomer
//!   that the deficit covers costs its class the quantum: 4 : 1 became 1.5 : 1 on real request sizes.
//! * Who estimates too much pays too much and never gets it back.
//! * A class whose workers are full whenever it is visited may wait for ever.
//!
//! Quanta are therefore not shares. The node's meter ([`crate::fairness`]) shows what each class got beside what shares
//! by quantum would have been due; where ratios must hold, `share` with classes keeps them.

use alloc::vec::Vec;

use crate::arbiter::{Arbiter, Context, Ended, Head, Local, Pick, Touched, View};
use crate::meter::{FlowMeter, NodeMeter, Presence};
use crate::requests::Request;
use crate::rounds::{MOST, Rounds};
use crate::units::{Tokens, Weight};

/// Up to so many classes are scanned.
const SHORT: usize = 16;

/// The state of a drr node.
#[derive(Clone, Debug)]
pub(crate) struct Drr {
    pub(crate) classes: Vec<ClassState>,
    /// The rounds that each ready class needs; none where the ring is scanned.
    rounds: Option<Rounds>,
    pub(crate) cursor: Local,
    pub(crate) stayed: bool,
    /// The class just dispatched, until the next look shows what it has left.
    turn: Option<Local>,
    /// What the last pick found. Whatever happens to the ring is followed by a look, and so by a pick.
    picked: Option<(Local, Turn)>,
    pub(crate) meter: NodeMeter,
}

/// One class of the ring.
#[derive(Clone, Debug)]
pub(crate) struct ClassState {
    /// The deficit when the class was last touched; [`Drr::deficit`] has it now.
    deficit: u128,
    pub(crate) quantum: Weight,
    head: Option<Head>,
    waiting: u32,
    /// The rounds it needed when it was last touched, in a ring that is not scanned.
    needed: u64,
    /// The deficit stays at or below this: see the bound.
    ceiling: u128,
    pub(crate) meter: FlowMeter,
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
        bulk: u64,
    },
}

impl Drr {
    /// A ring of classes with these quanta.
    pub(crate) fn new(quanta: impl Iterator<Item = Weight>) -> Self {
        let classes: Vec<_> = quanta.map(ClassState::new).collect();
        let rounds = (classes.len() > SHORT).then(|| Rounds::new(classes.len()));
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

    fn count(&self) -> Local {
        Local::try_from(self.classes.len()).expect("classes fit in 32 bits")
    }

    /// Whether the ring is as it was at the start, but for its meter.
    pub(crate) fn is_fresh(&self) -> bool {
        self.cursor == 0 && !self.stayed
    }

    /// A class's deficit as it is now.
    pub(crate) fn deficit(&self, class: Local) -> u128 {
        let state = &self.classes[class as usize];
        state.deficit + state.credit(state.needed - self.needed_now(class))
    }

    fn needed_now(&self, class: Local) -> u64 {
        let state = &self.classes[class as usize];
        self.rounds.as_ref().and_then(|rounds| rounds.get(class)).unwrap_or(state.needed)
    }

    /// The most that the discipline lets a class's deficit be. `blocked`: no class is ready, whatever was last seen.
    pub(crate) fn deficit_bound(&self, class: Local, blocked: bool) -> u128 {
        let state = &self.classes[class as usize];
        let reached = self.reached(class);
        match state.head.is_some() && !blocked {
            true => reached.max(state.ceiling_with_credit()),
            false => reached,
        }
    }

    /// How high a class's deficit may be as of its last credit.
    pub(crate) fn reached(&self, class: Local) -> u128 {
        let state = &self.classes[class as usize];
        match self.needed_now(class) < state.needed {
            true => state.ceiling_with_credit(),
            false => state.ceiling,
        }
    }

    /// The cost of a class's head, where it is ready.
    pub(crate) fn head_cost(&self, class: Local) -> Option<Tokens> {
        self.classes[class as usize].head.map(|head| head.cost)
    }

    /// The further rounds that a ready class's head needs.
    pub(crate) fn rounds_needed(&self, class: Local) -> Option<u64> {
        let state = &self.classes[class as usize];
        let cost = state.head?.cost;
        Some(rounds_for(cost, self.deficit(class), state.quantum))
    }

    /// Restores a class's counters from a snapshot.
    pub(crate) fn restore(&mut self, class: Local, deficit: u128, reached: u128) {
        let state = &mut self.classes[class as usize];
        state.deficit = deficit;
        state.ceiling = reached;
    }

    /// Brings a class's stored deficit up to date.
    fn touch(&mut self, class: Local) {
        let Some(now) = self.rounds.as_ref().and_then(|rounds| rounds.get(class)) else { return };
        let state = &mut self.classes[class as usize];
        if now < state.needed {
            state.add_credit(state.needed - now);
            state.needed = now;
        }
    }

    /// Enters what a class needs into the ring, after its head, quantum or deficit changed.
    fn enter(&mut self, class: Local) {
        let Some(rounds) = &mut self.rounds else { return };
        let state = &mut self.classes[class as usize];
        let needed = state.head.map(|head| rounds_for(head.cost, state.deficit, state.quantum));
        if needed.is_some_and(|needed| needed >= MOST) {
            return self.scan_from_now_on();
        }
        state.needed = needed.unwrap_or(0);
        rounds.set(class, needed);
    }

    /// Gives the tree of rounds up.
    fn scan_from_now_on(&mut self) {
        for class in 0..self.count() {
            self.touch(class);
            self.classes[class as usize].needed = 0;
        }
        self.rounds = None;
    }

    /// The class that goes next, and how it came to it.
    pub(crate) fn scan(&self) -> Option<(Local, Turn)> {
        let cursor = &self.classes[self.cursor as usize];
        if self.stayed
            && let Some(head) = cursor.head
            // It was touched when it stayed, and nobody has been given anything since.
            && cursor.deficit >= u128::from(head.cost.0)
        {
            return Some((self.cursor, Turn::Stays));
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
        Some((class, Turn::Visited { start, bulk }))
    }

    /// The first class that one quantum at most brings to its head; else the first of those that need fewest rounds.
    fn scan_short(&self, start: Local) -> Option<(Local, u64)> {
        let (before, from) = self.classes.split_at(start as usize);
        let ring = (start..).zip(from).chain((0..).zip(before));
        let ready = || ring.clone().filter_map(|(class, state)| Some((class, state, state.head?)));
        let affords = |(_, state, head): &(Local, &ClassState, Head)| {
            state.deficit + u128::from(state.quantum.get()) >= u128::from(head.cost.0)
        };
        if let Some((class, _, _)) = ready().find(affords) {
            return Some((class, 0));
        }
        let needed = ready().map(|(class, state, head)| {
            (rounds_for(head.cost, state.deficit, state.quantum), class)
        });
        // The first of the least, in the order of the scan.
        let (bulk, class) = needed.min_by_key(|(needed, _)| *needed)?;
        Some((class, bulk))
    }

    fn next(&self, class: Local) -> Local {
        let next = class + 1;
        if next == self.count() { 0 } else { next }
    }

    /// Gives the credit that the scan gives on its way to the winner, and brings the winner's deficit up to date.
    fn credit_scan(&mut self, class: Local, start: Local, bulk: u64) {
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
        self.touch(class);
        let state = &mut self.classes[class as usize];
        if bulk == 0 && state.needed == 1 {
            // The tree need not know: the look that follows the grant enters the class anew.
            state.add_credit(1);
        }
    }

    fn credit_short(&mut self, class: Local, start: Local, bulk: u64) {
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

/// ⌈(cost − deficit) / quantum⌉, or 0 where the deficit covers the cost.
fn rounds_for(cost: Tokens, deficit: u128, quantum: Weight) -> u64 {
    match u64::try_from(deficit) {
        Ok(deficit) => cost.0.saturating_sub(deficit).div_ceil(quantum.get()),
        Err(_) => 0,
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

impl Arbiter for Drr {
    fn arrived(&mut self, class: Local, _request: &Request) -> bool {
        self.classes[class as usize].waiting += 1;
        false
    }

    fn left(&mut self, class: Local, _request: &Request, remaining: u32) -> bool {
        if remaining == 0 {
            self.touch(class);
            self.classes[class as usize].deficit = 0;
        }
        self.classes[class as usize].waiting = remaining;
        false
    }

    fn look(&mut self, class: Local, view: View, _cx: Context<'_>) {
        self.touch(class);
        let state = &mut self.classes[class as usize];
        state.head = view.head;
        let presence = Presence::of(view.waiting > 0, view.head.is_some());
        self.meter.see(class, &mut state.meter, state.quantum, presence);
        self.enter(class);
    }

    /// The turn ends where the class just dispatched is empty, or has a head that is ready and that it cannot afford.
    fn looked(&mut self, blocked: bool) {
        let Some(class) = self.turn.take() else { return };
        let state = &self.classes[class as usize];
        self.stayed = state.waiting > 0
            && match state.head {
                // It was touched by the look just before.
                Some(head) if !blocked => state.deficit >= u128::from(head.cost.0),
                _ => true,
            };
        self.cursor = if self.stayed { class } else { self.next(class) };
    }

    fn pick(&mut self, _cx: Context<'_>) -> Option<Pick> {
        self.picked = self.scan();
        self.picked.map(|(flow, _)| Pick { flow, late: None })
    }

    fn charge(&mut self, class: Local, cost: Tokens) -> u64 {
        let picked = self.picked.take();
        debug_assert_eq!(picked.map(|(class, _)| class), Some(class), "only a pick is charged");
        if let Some((_, Turn::Visited { start, bulk })) = picked {
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

    fn settle(&mut self, class: Local, ended: Ended) -> Touched {
        let state = &mut self.classes[class as usize];
        self.meter.settle(class, &mut state.meter, state.quantum, ended.error());
        Touched::Nothing
    }

    fn reweigh(&mut self, class: Local, quantum: Weight) {
        self.touch(class);
        let state = &mut self.classes[class as usize];
        self.meter.reweigh(class, &mut state.meter, state.quantum, quantum);
        state.quantum = quantum;
        self.enter(class);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::requests::{Handle, Requests, Seq};
    use crate::units::{Micros, Ticks};

    /// A ring that is too long to be scanned, beside the same ring scanned: they pick the same class, give the same credit
    /// and come to the same deficits.
    #[test]
    fn a_long_ring_decides_as_a_scanned_one() {
        let mut state = 11u64;
        let mut next = move |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
            (state >> 33) % below
        };
        let requests = Requests::new();
        let cx =
            Context { requests: &requests, now: Micros(0), ticks: Ticks(0), capacity: u64::MAX };
        for _ in 0..60 {
            let count = 17 + next(60);
            let quanta: Vec<_> =
                (0..count).map(|_| Weight::new(1 + next(500)).expect("over 0")).collect();
            let mut long = Drr::new(quanta.iter().copied());
            let mut scanned = Drr { rounds: None, ..Drr::new(quanta.iter().copied()) };
            assert!(long.rounds.is_some());
            let mut waiting = alloc::vec![0u32; count as usize];
            for seq in 0..400 {
                let show = |ring: &mut Drr, class: Local, cost: Option<u64>, waiting: u32| {
                    let head = cost.map(|cost| Head {
                        request: Handle(0),
                        seq: Seq(seq),
                        cost: Tokens(cost),
                    });
                    let view =
                        View { head, waiting, in_flight: 0, oldest: None, oldest_open: true };
                    ring.look(class, view, cx);
                };
                // Some classes turn ready or not, with heads up to many quanta.
                for _ in 0..next(4) {
                    let class = next(count) as Local;
                    let cost = (next(5) > 0).then(|| 1 + next(20_000));
                    waiting[class as usize] = if cost.is_some() { 1 + next(4) as u32 } else { 0 };
                    for ring in [&mut long, &mut scanned] {
                        ring.classes[class as usize].waiting = waiting[class as usize];
                        if cost.is_none() {
                            ring.touch(class);
                            ring.classes[class as usize].deficit = 0;
                        }
                        show(ring, class, cost, waiting[class as usize]);
                    }
                }
                let picks = [&mut long, &mut scanned].map(|ring| (ring.pick(cx), ring.picked));
                assert_eq!(picks[0], picks[1]);
                let Some(Pick { flow, .. }) = picks[0].0 else { continue };
                let cost = long.head_cost(flow).expect("it was picked");
                let left = waiting[flow as usize] - 1;
                waiting[flow as usize] = left;
                let next_cost = (left > 0).then(|| 1 + next(20_000));
                for ring in [&mut long, &mut scanned] {
                    ring.charge(flow, cost);
                    ring.classes[flow as usize].waiting = left;
                    if left == 0 {
                        ring.touch(flow);
                        ring.classes[flow as usize].deficit = 0;
                    }
                    show(ring, flow, next_cost, left);
                    ring.looked(false);
                }
                assert_eq!((long.cursor, long.stayed), (scanned.cursor, scanned.stayed));
                for class in 0..count as Local {
                    assert_eq!(long.deficit(class), scanned.deficit(class), "class {class}");
                    assert_eq!(long.rounds_needed(class), scanned.rounds_needed(class));
                }
            }
        }
    }
}
