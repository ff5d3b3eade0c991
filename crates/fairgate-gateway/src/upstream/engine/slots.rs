//! How many slots a worker has whose engine says how it is doing.
//!
//! A request is better off in the gateway's queue than in the engine's: there it is first come, first served, and nobody's
//! share counts. So the engine should have as many requests as it can work on at once, and none in its own queue. It
//! does not say how many that is (it depends on the lengths of the requests), so it is found by trying, as TCP finds how much
//! a path carries:
//!
//! - **Down** while the engine's own queue is not empty at two looks in a row (a request that has just come waits a moment in
//!   any engine): by as many as waited at both, at most a quarter, and never below 1. Requests in flight beyond the slots do not
//!   count as waiting: they were sent before the last step down, and leave by themselves. Counted, they would take the slots far
//!   below what the engine works on, since requests take longer than looks.
//! - **Up** while all slots are busy and that queue is empty, at two looks in a row: by 1; by a quarter until it went down for the
//!   first time, so that a large engine is found in seconds and not in minutes. Busy means that the engine itself works on
//!   three quarters of them: others may be on their way to it or back, which looks like an empty queue.
//! - After it went down it stays for [`REST`] looks: a step up that fails would else be tried again at once, and something would
//!   always wait in the engine.

/// How many looks pass after a step down before the next step up.
const REST: u32 = 10;

/// The slots of one worker, of each of its ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotRule {
    slots: u64,
    first: u64,
    most: u64,
    ranks: u64,
    /// Whether it has gone down since it began.
    has_met_the_limit: bool,
    /// How many looks pass before it may go up.
    rest: u32,
    /// The look before.
    before: Option<Look>,
}

/// One look at an engine and at what it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Look {
    /// How many requests the gateway has in flight on it.
    pub(crate) in_flight: u64,
    /// How many requests the engine works on.
    pub(crate) running: u64,
    /// How many requests wait in the engine's own queue.
    pub(crate) waiting: u64,
}

impl Look {
    /// How many wait in the engine because there are so many slots, and not because there were more.
    fn waiting_for(self, slots: u64) -> u64 {
        self.waiting.saturating_sub(self.in_flight.saturating_sub(slots))
    }

    /// Whether so many slots are busy, and the engine's queue is empty.
    fn fills(self, slots: u64) -> bool {
        let is_at_work = self.running.saturating_mul(4) >= slots.saturating_mul(3);
        self.waiting == 0 && self.in_flight >= slots && is_at_work
    }
}

/// Why slots have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotChange {
    /// So many waited in the engine's own queue.
    Fewer { waiting: u64 },
    /// All were busy, and nothing waited in the engine.
    More,
    /// The engine was started anew: what was found is not true of it any more.
    Restarted,
}

impl std::fmt::Display for SlotChange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Fewer { waiting } => write!(f, "{waiting} waited in the engine's own queue"),
            Self::More => f.write_str("all were busy and the engine's own queue was empty"),
            Self::Restarted => f.write_str("the engine was restarted"),
        }
    }
}

impl SlotRule {
    /// Begins with `first` slots for each rank; never more than `most`.
    pub(crate) fn new(first: u64, most: u64, ranks: u64) -> Self {
        let first = first.clamp(1, most.max(1));
        Self {
            slots: first,
            first,
            most: most.max(1),
            ranks: ranks.max(1),
            has_met_the_limit: false,
            rest: 0,
            before: None,
        }
    }

    /// The slots of each rank.
    pub(crate) fn slots(&self) -> u64 {
        self.slots
    }

    /// Forgets what was found.
    pub(crate) fn restart(&mut self) -> Option<SlotChange> {
        let changed = self.slots != self.first;
        *self = Self::new(self.first, self.most, self.ranks);
        changed.then_some(SlotChange::Restarted)
    }

    /// What a look changes.
    pub(crate) fn look(&mut self, now: Look) -> Option<SlotChange> {
        let before = self.before.replace(now)?;
        self.rest = self.rest.saturating_sub(1);
        let all = self.slots.saturating_mul(self.ranks);
        let waiting = now.waiting_for(all).min(before.waiting_for(all));
        if waiting > 0 {
            return self.shrink(waiting);
        }
        let is_busy = |look: Look| look.fills(all);
        if is_busy(now) && is_busy(before) && self.rest == 0 && self.slots < self.most {
            let step = if self.has_met_the_limit { 1 } else { (self.slots / 4).max(1) };
            self.slots = (self.slots + step).min(self.most);
            // The new slots have not been busy yet.
            self.before = None;
            return Some(SlotChange::More);
        }
        None
    }

    fn shrink(&mut self, waiting: u64) -> Option<SlotChange> {
        self.has_met_the_limit = true;
        self.rest = REST;
        let step = waiting.div_ceil(self.ranks).min((self.slots / 4).max(1));
        let fewer = self.slots.saturating_sub(step).max(1);
        if fewer == self.slots {
            return None;
        }
        self.slots = fewer;
        // What waits now waits because of the slots before.
        self.before = None;
        Some(SlotChange::Fewer { waiting })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(in_flight: u64, waiting: u64) -> Look {
        Look { in_flight, running: in_flight.saturating_sub(waiting), waiting }
    }

    #[test]
    fn one_look_says_nothing() {
        let mut rule = SlotRule::new(8, 256, 1);
        assert_eq!(rule.look(look(8, 5)), None);
        assert_eq!(rule.look(look(8, 0)), None);
        assert_eq!(rule.look(look(8, 5)), None);
        assert_eq!(rule.slots(), 8);
    }

    #[test]
    fn it_goes_down_by_what_waited_at_both_looks_and_by_a_quarter_at_most() {
        let mut rule = SlotRule::new(16, 256, 1);
        rule.look(look(16, 9));
        assert_eq!(rule.look(look(16, 2)), Some(SlotChange::Fewer { waiting: 2 }));
        assert_eq!(rule.slots(), 14);
        rule.look(look(14, 100));
        assert_eq!(rule.look(look(14, 100)), Some(SlotChange::Fewer { waiting: 100 }));
        assert_eq!(rule.slots(), 11);
        let mut least = SlotRule::new(1, 256, 1);
        least.look(look(1, 100));
        assert_eq!(least.look(look(1, 100)), None);
        assert_eq!(least.slots(), 1);
    }

    #[test]
    fn it_goes_up_only_while_all_are_busy_and_never_past_its_bound() {
        let mut rule = SlotRule::new(8, 11, 1);
        for _ in 0..10 {
            assert_eq!(rule.look(look(7, 0)), None, "one is free");
        }
        assert_eq!(rule.look(look(8, 0)), None);
        assert_eq!(rule.look(look(8, 0)), Some(SlotChange::More));
        assert_eq!(rule.slots(), 10);
        rule.look(look(10, 0));
        assert_eq!(rule.look(look(10, 0)), Some(SlotChange::More));
        assert_eq!(rule.slots(), 11);
        rule.look(look(11, 0));
        assert_eq!(rule.look(look(11, 0)), None);
    }

    #[test]
    fn a_worker_with_ranks_is_busy_when_all_its_ranks_are() {
        let mut rule = SlotRule::new(4, 256, 2);
        rule.look(look(7, 0));
        assert_eq!(rule.look(look(7, 0)), None);
        rule.look(look(8, 0));
        assert_eq!(rule.look(look(8, 0)), Some(SlotChange::More));
        assert_eq!(rule.slots(), 5);
        rule.look(look(10, 3));
        assert_eq!(rule.look(look(10, 3)), Some(SlotChange::Fewer { waiting: 3 }));
        assert_eq!(rule.slots(), 4, "a quarter of five at most");
    }

    #[test]
    fn it_does_not_go_below_what_the_engine_works_on_while_earlier_requests_are_still_there() {
        // llama.cpp with two slots: eight requests are on it, and none ends for a long while.
        let mut rule = SlotRule::new(8, 256, 1);
        let found: Vec<u64> = (0..40)
            .map(|_| {
                rule.look(look(8, 6));
                rule.slots()
            })
            .collect();
        assert_eq!(found.last(), Some(&2), "{found:?}");
    }

    #[test]
    fn it_does_not_go_up_while_the_engine_works_on_fewer() {
        let mut rule = SlotRule::new(3, 256, 1);
        let on_the_way = Look { in_flight: 3, running: 2, waiting: 0 };
        assert!((0..10).all(|_| rule.look(on_the_way).is_none()));
        let at_work = Look { running: 3, ..on_the_way };
        rule.look(at_work);
        assert_eq!(rule.look(at_work), Some(SlotChange::More));
    }

    /// An engine that works on `limit` requests at once, behind a gateway that always has more to send. A tick is one look.
    fn steps(rule: &mut SlotRule, limit: u64, ticks: u32) -> Vec<u64> {
        let steps = (0..ticks).map(|_| {
            let in_flight = rule.slots();
            rule.look(look(in_flight, in_flight.saturating_sub(limit)));
            rule.slots()
        });
        steps.collect()
    }

    #[test]
    fn it_finds_what_the_engine_works_on_at_once_and_stays_there() {
        let mut rule = SlotRule::new(8, 256, 1);
        let found = steps(&mut rule, 100, 60);
        let reached = found.iter().position(|slots| *slots >= 100).expect("it is found");
        assert!(reached <= 30, "{found:?}");
        let steady = steps(&mut rule, 100, 500);
        assert!(steady.iter().all(|slots| (95..=101).contains(slots)), "{steady:?}");
        let idle_queue = steady.iter().filter(|slots| **slots <= 100).count();
        assert!(idle_queue >= 400, "the engine's queue is mostly empty: {idle_queue} of 500");
        // The requests become longer, and the engine works on fewer.
        let fewer = steps(&mut rule, 20, 60);
        assert!(fewer.last().is_some_and(|slots| (18..=21).contains(slots)), "{fewer:?}");
    }

    #[test]
    fn a_restarted_engine_is_found_anew() {
        let mut rule = SlotRule::new(8, 256, 1);
        assert_eq!(rule.restart(), None);
        steps(&mut rule, 100, 60);
        assert_eq!(rule.restart(), Some(SlotChange::Restarted));
        assert_eq!(rule, SlotRule::new(8, 256, 1));
    }
}
