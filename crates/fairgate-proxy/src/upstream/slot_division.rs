//! Divides the slots of an upstream among its workers in a pool, one for each model.
//!
//! The rule is that of an account's rates (`account/rate_division.rs`). A worker whose models have
//! no queued requests gets the slots that it uses and a few more. The rest is divided equally among
//! the workers whose models have queued requests. If there are fewer slots than workers, the
//! workers with queued requests take turns.
//!
//! The workers together must not have more requests in flight than the upstream has slots. A worker whose slots are
//! reduced may still have requests in flight in the slots that it loses. So another worker gets these slots only once
//! they are free.

use super::account::rate_division::{RateUse, divide};
use crate::rounding::{floor_to_u64, to_f64};

/// Use of an upstream's slots by one of its workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlotUse {
    pub(super) in_flight: u64,
    /// True if requests for the worker's models are queued and the worker is not paused. Requests that wait for the end of
    /// a pause need no slots.
    pub(super) has_queue: bool,
    /// Slots that the worker has now.
    pub(super) now: u64,
}

/// Returns the slots of each worker. `turn` is the number of the call; it decides which workers
/// come first if there are fewer slots than workers.
pub(super) fn divide_slots(total: u64, uses: &[SlotUse], turn: u64) -> Vec<u64> {
    let targets = targets(total, uses, turn);
    let taken = uses.iter().map(|it| it.in_flight.max(it.now)).fold(0, u64::saturating_add);
    let mut free = total.saturating_sub(taken);
    let limited = uses.iter().zip(targets).map(|(it, target)| {
        let more = target.saturating_sub(it.now).min(free);
        free -= more;
        target.min(it.now.saturating_add(more))
    });
    limited.collect()
}

/// Returns the slots that each worker should have; they add up to `total`.
fn targets(total: u64, uses: &[SlotUse], turn: u64) -> Vec<u64> {
    let count = uses.len() as u64;
    if total < count {
        return in_turn(total, uses, turn);
    }
    let draws: Vec<RateUse> = uses
        .iter()
        .map(|it| RateUse {
            used: to_f64(it.in_flight) / to_f64(total.max(1)),
            has_queue: it.has_queue,
        })
        .collect();
    // Each worker gets one slot, so that every model can start at once.
    let rest = total - count;
    let mut slots: Vec<u64> =
        divide(&draws).into_iter().map(|part| 1 + floor_to_u64(to_f64(rest) * part)).collect();
    let mut left = total.saturating_sub(slots.iter().sum());
    let has_queues = uses.iter().any(|it| it.has_queue);
    while left > 0 && !slots.is_empty() {
        for (slots, it) in slots.iter_mut().zip(uses) {
            if left > 0 && (it.has_queue || !has_queues) {
                *slots += 1;
                left -= 1;
            }
        }
    }
    slots
}

/// Gives one slot each to `total` of the workers, first to those with queued requests. With each
/// `turn`, another one of them comes first.
fn in_turn(total: u64, uses: &[SlotUse], turn: u64) -> Vec<u64> {
    let count = uses.len() as u64;
    let mut order: Vec<usize> = (0..uses.len()).collect();
    order.sort_by_key(|&place| match uses[place].has_queue {
        true => (0, (place as u64 + turn) % count.max(1)),
        false => (1, place as u64),
    });
    let mut slots = vec![0; uses.len()];
    for (_, place) in (0..total).zip(order) {
        slots[place] = 1;
    }
    slots
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker(in_flight: u64, has_queue: bool, now: u64) -> SlotUse {
        SlotUse { in_flight, has_queue, now }
    }

    #[test]
    fn the_slots_go_to_the_models_that_wait() {
        assert_eq!(targets(8, &[worker(4, true, 4), worker(0, false, 4)], 0), [7, 1]);
        assert_eq!(targets(8, &[worker(4, true, 4), worker(4, true, 4)], 0), [4, 4]);
        assert_eq!(targets(7, &[worker(0, false, 4), worker(0, false, 3)], 0), [4, 3]);
        for total in 0..40 {
            for workers in 1..8_u64 {
                let uses: Vec<SlotUse> =
                    (0..workers).map(|number| worker(number, number % 2 == 0, 1)).collect();
                assert_eq!(targets(total, &uses, total).iter().sum::<u64>(), total);
            }
        }
    }

    #[test]
    fn slots_move_only_once_they_are_free() {
        // The first worker uses all of its slots: the second one must wait for them.
        let mut uses = [worker(8, true, 8), worker(0, true, 0)];
        let next = divide_slots(8, &uses, 0);
        assert_eq!(next, [4, 0]);
        (uses[0].now, uses[0].in_flight) = (4, 6);
        assert_eq!(divide_slots(8, &uses, 0), [4, 2]);
        (uses[0].in_flight, uses[1]) = (4, worker(2, true, 2));
        assert_eq!(divide_slots(8, &uses, 0), [4, 4]);
    }

    #[test]
    fn fewer_slots_than_models_go_round_among_those_that_wait() {
        let uses = [worker(0, true, 0), worker(0, false, 0), worker(0, true, 0)];
        let mut got = [0, 0, 0];
        for turn in 0..30 {
            let slots = divide_slots(1, &uses, turn);
            assert_eq!(slots.iter().sum::<u64>(), 1);
            got.iter_mut().zip(slots).for_each(|(sum, slots)| *sum += slots);
        }
        assert!(got[0] >= 10 && got[2] >= 10 && got[1] == 0, "{got:?}");
        assert_eq!(divide_slots(1, &[worker(1, false, 1), worker(0, true, 0)], 0), [0, 0]);
        assert_eq!(divide_slots(1, &[worker(0, false, 0), worker(0, true, 0)], 0), [0, 1]);
    }
}
