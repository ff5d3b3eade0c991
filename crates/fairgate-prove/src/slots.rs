//! Slots, measured: how many requests of each tenant are in flight at once in a partitioned pool.
//!
//! Capacity is divided by weight (`fairgate_core::apportion`), and a free slot goes to a tenant that waits and has fewer
//! in flight than its slots before it goes to anyone else. So while all wait: from the join on each slot that comes free moves
//! to whoever is short, and once each has its slots, each keeps them; a tenant's request that ends is followed at once by
//! another of its own.

use fairgate_core::apportion::apportion;
use fairgate_core::units::{Micros, Weight};

use crate::scenario::Scenario;
use crate::service::{Moment, Service};

/// What was measured.
#[derive(Clone, Debug)]
pub(crate) struct Slots {
    /// Of each tenant.
    pub(crate) due: Vec<u64>,
    /// How long after the join each had its slots; none where they never all did.
    pub(crate) handed_over: Option<Micros>,
    /// How many moments there were since.
    pub(crate) moments: u64,
    /// The moments at which somebody had more or fewer than its slots, or a slot went past one who was short.
    pub(crate) breaches: Vec<String>,
    /// Slots held since, times microseconds, by tenant.
    pub(crate) held_us: Vec<u128>,
}

/// Measures the slots while all wait.
pub(crate) fn measure(scenario: &Scenario, service: &Service) -> Slots {
    let weights = scenario.tenants.iter().filter_map(|tenant| Weight::new(tenant.weight).ok());
    let due = apportion(scenario.capacity, &weights.collect::<Vec<_>>());
    let mut slots = Slots {
        held_us: vec![0; due.len()],
        due,
        handed_over: None,
        moments: 0,
        breaches: Vec::new(),
    };
    let Some((from, until)) = service.window else { return slots };
    let within = service.course.iter().filter(|m| m.ideal_times_weights.is_some());
    let moments: Vec<&Moment> = within.filter(|m| (from..=until).contains(&m.at)).collect();
    let mut even = false;
    for pair in moments.windows(2) {
        let [before, now] = pair else { continue };
        even = match before.all_wait && now.all_wait {
            // A slot that its owner does not want is lent: then it comes back as after the join.
            false => false,
            true if even => slots.hold(before, now),
            true => slots.hand_over(scenario, before, now),
        };
        if even && slots.handed_over.is_none() {
            slots.handed_over = Some(Micros(now.at.0 - from.0));
        }
    }
    slots
}

impl Slots {
    /// Slots move to who is short. Says whether each has its own now.
    fn hand_over(&mut self, scenario: &Scenario, before: &Moment, now: &Moment) -> bool {
        for (i, tenant) in scenario.tenants.iter().enumerate() {
            let (had, has, due) = (before.in_flight[i], now.in_flight[i], self.due[i]);
            if has > had.max(due) {
                let name = tenant.name;
                self.breach(now.at, format!("{name} took a slot more: {has} where {due} are due"));
            }
        }
        now.in_flight == self.due
    }

    /// Each has its own, and keeps them.
    fn hold(&mut self, before: &Moment, now: &Moment) -> bool {
        self.moments += 1;
        for (held, in_flight) in self.held_us.iter_mut().zip(&before.in_flight) {
            *held += u128::from(*in_flight) * u128::from(now.at.0 - before.at.0);
        }
        if now.in_flight != self.due {
            let (has, due) = (&now.in_flight, &self.due);
            let breach = format!("{has:?} in flight where {due:?} are due");
            self.breach(now.at, breach);
        }
        true
    }

    fn breach(&mut self, at: Micros, what: String) {
        self.breaches.push(format!("at {} µs {what}", at.0));
    }
}
