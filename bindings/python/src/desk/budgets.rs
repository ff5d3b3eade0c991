//! Waiting for budget, which comes before waiting for a slot.

use fairgate_core::event::Submit;

use super::{Desk, Number, Refusal, Request};
use crate::agents::AgentIndex;
use crate::budget::{Budget, Terms};

/// A request that waits for budget, and how it will be submitted.
pub(super) struct Parked<W> {
    pub(super) request: Request,
    pub(super) waiter: Option<W>,
    pub(super) submit: Box<Submit>,
}

impl<W> Desk<W> {
    /// Gives an agent a limit, or takes it away. What it has spent stays; what it has under way is reserved.
    pub(crate) fn set_budget(&mut self, agent: &str, terms: Option<Terms>) {
        let now = self.moment();
        let agent = self.agents.named(agent);
        let in_pool = self.entries.iter().flatten().map(|entry| &entry.request);
        let under_way = in_pool
            .filter(|request| request.agent == agent)
            .fold(0u64, |sum, request| sum.saturating_add(request.cost));
        let its = self.agents.get(agent);
        // Whoever was told of a budget does not have the default one.
        its.has_own_terms = true;
        let Some(terms) = terms else {
            let Some(mut budget) = its.budget.take() else { return };
            // Without a limit everybody who waits for budget goes on at once.
            budget.terms.limit = u64::MAX;
            (budget.spent, budget.reserved) = (0, 0);
            its.budget = Some(budget);
            self.relieve_agent(agent);
            self.agents.get(agent).budget = None;
            return;
        };
        match &mut its.budget {
            Some(budget) => budget.change(terms, now),
            None => {
                let mut budget = Budget::new(terms, now);
                budget.reserved = under_way;
                its.budget = Some(budget);
            }
        }
        self.relieve_agent(agent);
    }

    /// Gives every agent that no other budget was stated for this one when it first asks.
    pub(crate) fn set_default_budget(&mut self, terms: Option<Terms>) {
        self.default_budget = terms;
    }

    /// Gives an agent that asks the default budget, where it has no own, and lets time pass for the one that it has.
    pub(super) fn prepare_budget(&mut self, agent: AgentIndex) {
        let its = self.agents.get(agent);
        if its.budget.is_none() && (its.has_own_terms || self.default_budget.is_none()) {
            return;
        }
        let now = self.moment();
        let its = self.agents.get(agent);
        match &mut its.budget {
            Some(budget) => budget.roll(now),
            None => its.budget = self.default_budget.clone().map(|terms| Budget::new(terms, now)),
        }
    }

    fn relieve_agent(&mut self, agent: AgentIndex) {
        self.relieved.insert(agent);
        self.relieve();
    }

    /// Lets time pass for all budgets, and those go on for whom there is enough now.
    pub(crate) fn roll_budgets(&mut self) {
        let now = self.moment();
        for (index, its) in self.agents.iter_mut().enumerate() {
            if let Some(budget) = &mut its.budget {
                budget.roll(now);
                if !budget.parked.is_empty() {
                    self.relieved.insert(index);
                }
            }
        }
        self.relieve();
    }

    /// After how many microseconds time alone may let somebody go on who waits for budget.
    pub(super) fn next_relief_us(&self) -> Option<u64> {
        if self.parked.is_empty() {
            return None;
        }
        let now = self.moment();
        let waited_for = self.agents.iter().filter_map(|its| its.budget.as_ref());
        waited_for
            .filter(|budget| !budget.parked.is_empty())
            .filter_map(|budget| budget.next_relief_us(now))
            .min()
    }

    /// Why a request may not even wait for budget.
    pub(super) fn refuse_to_park(&mut self, agent: AgentIndex, asked: u64) -> Option<Refusal> {
        let Budget { terms, spent, reserved, .. } = self.agents.get(agent).budget.as_ref()?;
        let (limit, spent, reserved) = (terms.limit, *spent, *reserved);
        if !terms.waits {
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
