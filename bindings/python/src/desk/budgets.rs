//! Waiting for budget, which comes before waiting for a slot.

use fairgate_core::event::Submit;

use super::{Desk, Number, Refusal, Request};
use crate::agents::AgentIndex;
use crate::budget::Budget;

/// A request that waits for budget, and how it will be submitted.
pub(super) struct Parked<W> {
    pub(super) request: Request,
    pub(super) waiter: W,
    pub(super) submit: Box<Submit>,
}

impl<W> Desk<W> {
    /// Gives an agent a limit, or takes it away. What it has spent stays; what it has under way is reserved.
    pub(crate) fn set_budget(&mut self, agent: &str, limit: Option<u64>, waits: bool) {
        let agent = self.agents.named(agent);
        let in_pool = self.entries.iter().flatten().map(|entry| &entry.request);
        let under_way = in_pool
            .filter(|request| request.agent == agent)
            .fold(0u64, |sum, request| sum.saturating_add(request.cost));
        let before = self.agents.get(agent).budget.take();
        // Without a limit everybody who waits for budget goes on at once.
        let mut budget = Budget::new(limit.unwrap_or(u64::MAX), waits);
        budget.reserved = under_way;
        if let Some(before) = before {
            budget.spent = before.spent;
            budget.parked = before.parked;
        }
        if limit.is_none() {
            (budget.spent, budget.reserved) = (0, 0);
        }
        self.agents.get(agent).budget = Some(budget);
        self.relieved.insert(agent);
        self.relieve();
        if limit.is_none() {
            self.agents.get(agent).budget = None;
        }
    }

    /// Why a request may not even wait for budget.
    pub(super) fn refuse_to_park(&mut self, agent: AgentIndex, asked: u64) -> Option<Refusal> {
        let Budget { limit, spent, reserved, waits, .. } =
            *self.agents.get(agent).budget.as_ref()?;
        if !waits {
            return Some(Refusal::OverBudget { limit, spent, reserved, asked });
        }
        let waiting = self.pool.waiting() + self.parked();
        let limit = self.config.max_queue.filter(|max| waiting >= *max)?;
        let retry_us = self.pace.interval_us();
        Some(Refusal::QueueFull { reason: "queue_full", waiting, limit, retry_us })
    }

    /// A request starts to wait for budget.
    pub(super) fn park(&mut self, parked: Parked<W>) {
        let request = &parked.request;
        self.owners.starts_to_wait(request.waiting_owner());
        let its = self.agents.get(request.agent);
        its.parked += 1;
        if let Some(budget) = &mut its.budget {
            budget.parked.push_back(request.number);
        }
        self.parked.insert(request.number, parked);
    }

    /// Takes out a request that waits for budget.
    pub(super) fn unpark(&mut self, number: Number) -> Option<Parked<W>> {
        let parked = self.parked.remove(&number)?;
        self.leave_budget(&parked.request);
        Some(parked)
    }

    /// A request that was taken out of `parked` no longer waits for budget.
    pub(super) fn leave_budget(&mut self, request: &Request) {
        self.owners.stops_waiting(request.waiting_owner());
        let its = self.agents.get(request.agent);
        its.parked -= 1;
        if let Some(budget) = &mut its.budget {
            budget.parked.retain(|other| *other != request.number);
            // Whoever is behind it may fit.
            self.relieved.insert(request.agent);
        }
    }

    /// Lets those go on for whom there is budget now.
    pub(super) fn relieve(&mut self) {
        while let Some(agent) = self.relieved.pop_first() {
            while let Some(number) = self.admit_parked(agent) {
                let Some(Parked { request, waiter, submit }) = self.unpark(number) else {
                    continue;
                };
                // Where the pool is full it is told so like anybody who waits.
                let _ = self.submit(request, waiter, submit, false);
            }
        }
    }

    fn admit_parked(&mut self, agent: AgentIndex) -> Option<Number> {
        let parked = &self.parked;
        let cost_of = |number| parked.get(&number).map_or(0, |its| its.request.cost);
        self.agents.get(agent).budget.as_mut()?.admit(cost_of)
    }
}
