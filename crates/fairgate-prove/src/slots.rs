//! Measurement of slots: the number of requests that each tenant has in flight, in a partitioned
//! pool or in a strict order with caps.
//!
//! A partitioned pool divides its capacity by weight (`fairgate_core::apportion`). A free slot goes
//! first to a waiting tenant that has fewer requests in flight than its slots. So while all tenants
//! wait, each slot that becomes free after the join moves to a tenant that has too few. Once each
//! tenant has its slots, each keeps them, because a request that ends is followed at once by
//! another of the same tenant.
//!
//! In a strict order (`fairgate_core::bands`), a free slot goes to the first waiting class that has
//! fewer requests in flight than its cap. So while all classes wait, each capped class holds as
//! many slots as its cap, and the last class holds the rest. The checks are those of a partitioned
//! pool, with these numbers as the slots that each tenant is due.

use fairgate_core::apportion::apportion;
use fairgate_core::units::{Micros, Weight};

use crate::scenario::{Scenario, ScenarioPolicy};
use crate::service::{MeasuredService, ServiceMoment};

/// Measured slots of all tenants.
#[derive(Clone, Debug)]
pub(crate) struct SlotMeasurement {
    /// Slots that each tenant is due.
    pub(crate) due: Vec<u64>,
    /// Time from the join to the hand-over, the first moment at which each tenant had the slots
    /// that it is due; `None` if there was no such moment.
    pub(crate) hand_over_time: Option<Micros>,
    /// Number of moments checked after the hand-over.
    pub(crate) moments: u64,
    /// Descriptions of the moments at which a tenant had more or fewer slots than it was due, or
    /// took a slot that another tenant was due.
    pub(crate) breaches: Vec<String>,
    /// Slots that each tenant held after the hand-over, times the time for which it held them, in slot-microseconds.
    pub(crate) held_us: Vec<u128>,
}

/// Returns the slots that each tenant is due while all tenants wait; `None` if the policy does not
/// divide slots.
pub(crate) fn due(scenario: &Scenario) -> Option<Vec<u64>> {
    match scenario.policy {
        ScenarioPolicy::Share { partition: true } => {
            let weights = scenario.tenants.iter().map(|tenant| Weight::new(tenant.weight).ok());
            Some(apportion(scenario.capacity, &weights.flatten().collect::<Vec<_>>()))
        }
        ScenarioPolicy::Bands { caps } => {
            let rest = scenario.capacity.saturating_sub(caps.iter().sum());
            Some(caps.iter().copied().chain([rest]).collect())
        }
        _ => None,
    }
}

/// Measures the slots that each tenant held within the measured window.
pub(crate) fn measure(
    scenario: &Scenario,
    service: &MeasuredService,
    due: Vec<u64>,
) -> SlotMeasurement {
    let mut slots = SlotMeasurement {
        held_us: vec![0; due.len()],
        due,
        hand_over_time: None,
        moments: 0,
        breaches: Vec::new(),
    };
    let Some((from, until)) = service.window else { return slots };
    let within = service.course.iter().filter(|m| m.ideal_times_weights.is_some());
    let moments: Vec<&ServiceMoment> = within.filter(|m| (from..=until).contains(&m.at)).collect();
    let mut even = false;
    for pair in moments.windows(2) {
        let [before, now] = pair else { continue };
        even = match before.all_wait && now.all_wait {
            // An unused slot is lent to another tenant; it comes back in the same way as after the
            // join.
            false => false,
            true if even => slots.hold(before, now),
            true => slots.hand_over(scenario, before, now),
        };
        if even && slots.hand_over_time.is_none() {
            slots.hand_over_time = Some(Micros(now.at.0 - from.0));
        }
    }
    slots
}

impl SlotMeasurement {
    /// Checks a moment before the hand-over, at which only a tenant with fewer slots than it is due
    /// may gain one. Returns whether all tenants now have the slots that they are due.
    fn hand_over(
        &mut self,
        scenario: &Scenario,
        before: &ServiceMoment,
        now: &ServiceMoment,
    ) -> bool {
        for (i, tenant) in scenario.tenants.iter().enumerate() {
            let (had, has, due) = (before.in_flight[i], now.in_flight[i], self.due[i]);
            if has > had.max(due) {
                let name = tenant.name;
                self.breach(now.at, format!("{name} took a slot more: {has} where {due} are due"));
            }
        }
        now.in_flight == self.due
    }

    /// Checks a moment after the hand-over, at which each tenant must hold exactly the slots that
    /// it is due.
    fn hold(&mut self, before: &ServiceMoment, now: &ServiceMoment) -> bool {
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
