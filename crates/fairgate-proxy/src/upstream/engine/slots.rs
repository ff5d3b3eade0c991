//! Adjusts the slots of a worker to its engine's metrics.
//!
//! A request should wait in the gateway's queue and not in the engine's, which is first come, first
//! served and ignores shares. So the engine should get as many requests as it can work on at once,
//! and none in its own queue. The engine does not state that number, which depends on the lengths
//! of the requests. It is found by trial, as TCP finds the capacity of a path:
//!
//! - **Down** if the engine's own queue is not empty at two readings in a row. One reading is not
//!   enough, because a request that has just arrived waits a moment in any engine. The slots fall
//!   by the number of requests that waited at both readings, but by at most a quarter, and never
//!   below 1. Requests in flight beyond the slots do not count as waiting: they were sent before
//!   the last step down, and will end without replacement. If they counted, the slots would fall
//!   far below what the engine works on, because requests take longer than the interval of
//!   readings.
//! - **Up** if all slots are busy and the engine's own queue is empty at two readings in a row. The
//!   slots rise by 1. Before the first step down they rise by a quarter, so that the limit of a
//!   large engine is found in seconds and not in minutes. The engine itself must work on at least
//!   three quarters of the slots, because its queue also looks empty while many requests are still
//!   being sent to it.
//! - After a step down the slots do not rise for [`COOLDOWN_READINGS`] readings. Otherwise a failed step up would be
//!   repeated at once, and some requests would always wait in the engine.

/// Number of readings after a step down before the slots may rise again.
const COOLDOWN_READINGS: u32 = 10;

/// Rule that adjusts the slots of one worker. All numbers of slots are per rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotRule {
    slots: u64,
    first: u64,
    most: u64,
    ranks: u64,
    /// True once the slots have gone down since the start.
    has_stepped_down: bool,
    /// Number of readings that must still come before the slots may rise again.
    cooldown: u32,
    /// The previous reading; `None` at the start and after each change of the slots.
    before: Option<SlotReading>,
}

/// One reading of an engine, with the gateway's requests in flight at that time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotReading {
    /// Number of requests that the gateway has in flight on the engine.
    pub(crate) in_flight: u64,
    /// Number of requests that the engine works on.
    pub(crate) running: u64,
    /// Number of requests in the engine's own queue.
    pub(crate) waiting: u64,
}

impl SlotReading {
    /// Returns the number of requests that wait in the engine, without those that are in flight beyond `slots`.
    fn waiting_for(self, slots: u64) -> u64 {
        self.waiting.saturating_sub(self.in_flight.saturating_sub(slots))
    }

    /// Returns true if all `slots` are busy and the engine's queue is empty.
    fn fills(self, slots: u64) -> bool {
        let is_at_work = self.running.saturating_mul(4) >= slots.saturating_mul(3);
        self.waiting == 0 && self.in_flight >= slots && is_at_work
    }
}

/// Reason why the slots changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotChange {
    /// `waiting` requests waited in the engine's own queue.
    Fewer { waiting: u64 },
    /// All slots were busy, and the engine's own queue was empty.
    More,
    /// The engine was restarted, so earlier results no longer apply.
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
    /// Creates a rule that starts with `first` slots per rank and never allows more than `most`.
    pub(crate) fn new(first: u64, most: u64, ranks: u64) -> Self {
        let first = first.clamp(1, most.max(1));
        Self {
            slots: first,
            first,
            most: most.max(1),
            ranks: ranks.max(1),
            has_stepped_down: false,
            cooldown: 0,
            before: None,
        }
    }

    /// Returns the slots per rank.
    pub(crate) fn slots(&self) -> u64 {
        self.slots
    }

    /// Resets to the first number of slots. Returns the change, if there is one.
    pub(crate) fn restart(&mut self) -> Option<SlotChange> {
        let changed = self.slots != self.first;
        *self = Self::new(self.first, self.most, self.ranks);
        changed.then_some(SlotChange::Restarted)
    }

    /// Adjusts the slots to a reading. Returns the change, if there is one.
    pub(crate) fn adjust(&mut self, now: SlotReading) -> Option<SlotChange> {
        let before = self.before.replace(now)?;
        self.cooldown = self.cooldown.saturating_sub(1);
        let all = self.slots.saturating_mul(self.ranks);
        let waiting = now.waiting_for(all).min(before.waiting_for(all));
        if waiting > 0 {
            return self.shrink(waiting);
        }
        let is_busy = |look: SlotReading| look.fills(all);
        if is_busy(now) && is_busy(before) && self.cooldown == 0 && self.slots < self.most {
            let step = if self.has_stepped_down { 1 } else { (self.slots / 4).max(1) };
            self.slots = (self.slots + step).min(self.most);
            // The new slots were not in use at the earlier reading.
            self.before = None;
            return Some(SlotChange::More);
        }
        None
    }

    fn shrink(&mut self, waiting: u64) -> Option<SlotChange> {
        self.has_stepped_down = true;
        self.cooldown = COOLDOWN_READINGS;
        let step = waiting.div_ceil(self.ranks).min((self.slots / 4).max(1));
        let fewer = self.slots.saturating_sub(step).max(1);
        if fewer == self.slots {
            return None;
        }
        self.slots = fewer;
        // Requests that wait now were sent under the earlier number of slots.
        self.before = None;
        Some(SlotChange::Fewer { waiting })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(in_flight: u64, waiting: u64) -> SlotReading {
        SlotReading { in_flight, running: in_flight.saturating_sub(waiting), waiting }
    }

    #[test]
    fn one_look_says_nothing() {
        let mut rule = SlotRule::new(8, 256, 1);
        assert_eq!(rule.adjust(look(8, 5)), None);
        assert_eq!(rule.adjust(look(8, 0)), None);
        assert_eq!(rule.adjust(look(8, 5)), None);
        assert_eq!(rule.slots(), 8);
    }

    #[test]
    fn it_goes_down_by_what_waited_at_both_looks_and_by_a_quarter_at_most() {
        let mut rule = SlotRule::new(16, 256, 1);
        rule.adjust(look(16, 9));
        assert_eq!(rule.adjust(look(16, 2)), Some(SlotChange::Fewer { waiting: 2 }));
        assert_eq!(rule.slots(), 14);
        rule.adjust(look(14, 100));
        assert_eq!(rule.adjust(look(14, 100)), Some(SlotChange::Fewer { waiting: 100 }));
        assert_eq!(rule.slots(), 11);
        let mut least = SlotRule::new(1, 256, 1);
        least.adjust(look(1, 100));
        assert_eq!(least.adjust(look(1, 100)), None);
        assert_eq!(least.slots(), 1);
    }

    #[test]
    fn it_goes_up_only_while_all_are_busy_and_never_past_its_bound() {
        let mut rule = SlotRule::new(8, 11, 1);
        for _ in 0..10 {
            assert_eq!(rule.adjust(look(7, 0)), None, "one is free");
        }
        assert_eq!(rule.adjust(look(8, 0)), None);
        assert_eq!(rule.adjust(look(8, 0)), Some(SlotChange::More));
        assert_eq!(rule.slots(), 10);
        rule.adjust(look(10, 0));
        assert_eq!(rule.adjust(look(10, 0)), Some(SlotChange::More));
        assert_eq!(rule.slots(), 11);
        rule.adjust(look(11, 0));
        assert_eq!(rule.adjust(look(11, 0)), None);
    }

    #[test]
    fn a_worker_with_ranks_is_busy_when_all_its_ranks_are() {
        let mut rule = SlotRule::new(4, 256, 2);
        rule.adjust(look(7, 0));
        assert_eq!(rule.adjust(look(7, 0)), None);
        rule.adjust(look(8, 0));
        assert_eq!(rule.adjust(look(8, 0)), Some(SlotChange::More));
        assert_eq!(rule.slots(), 5);
        rule.adjust(look(10, 3));
        assert_eq!(rule.adjust(look(10, 3)), Some(SlotChange::Fewer { waiting: 3 }));
        assert_eq!(rule.slots(), 4, "a quarter of five at most");
    }

    #[test]
    fn it_does_not_go_below_what_the_engine_works_on_while_earlier_requests_are_still_there() {
        // llama.cpp with two slots: eight requests are on it, and none ends for a long while.
        let mut rule = SlotRule::new(8, 256, 1);
        let found: Vec<u64> = (0..40)
            .map(|_| {
                rule.adjust(look(8, 6));
                rule.slots()
            })
            .collect();
        assert_eq!(found.last(), Some(&2), "{found:?}");
    }

    #[test]
    fn it_does_not_go_up_while_the_engine_works_on_fewer() {
        let mut rule = SlotRule::new(3, 256, 1);
        let on_the_way = SlotReading { in_flight: 3, running: 2, waiting: 0 };
        assert!((0..10).all(|_| rule.adjust(on_the_way).is_none()));
        let at_work = SlotReading { running: 3, ..on_the_way };
        rule.adjust(at_work);
        assert_eq!(rule.adjust(at_work), Some(SlotChange::More));
    }

    /// Simulates an engine that works on `limit` requests at once, behind a gateway that always has
    /// more requests. Each tick is one reading.
    fn steps(rule: &mut SlotRule, limit: u64, ticks: u32) -> Vec<u64> {
        let steps = (0..ticks).map(|_| {
            let in_flight = rule.slots();
            rule.adjust(look(in_flight, in_flight.saturating_sub(limit)));
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
