//! Waiting for budget, which comes before waiting for a slot.

use fairgate_core::event::Submit;

use super::{Desk, Id, Phase, Refusal};
use crate::agents::AgentIndex;
use crate::budget::Budget;
use crate::owners::Owner;

impl<W> Desk<W> {
    /// Gives an agent a limit, or takes it away. What it has spent stays; what it has under way is reserved.
    pub(crate) fn set_budget(&mut self, agent: &str, limit: Option<u64>, waits: bool) {
        let agent = self.agents.named(agent);
        let under_way: u64 = (self.entries.values())
            .filter(|e| e.agent == agent && !matches!(e.phase, Phase::Parked { .. }))
            .map(|e| e.cost)
            .fold(0, u64::saturating_add);
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
        let waiting = self.pool.waiting() + self.parked;
        let limit = self.config.max_queue.filter(|max| waiting >= *max)?;
        let retry_us = self.pace.interval_us();
        Some(Refusal::QueueFull { reason: "queue_full", waiting, limit, retry_us })
    }

    /// A request starts to wait for budget.
    pub(super) fn park(&mut self, id: Id, agent: AgentIndex, owner: Owner) {
        self.parked += 1;
        self.owners.starts_to_wait(owner);
        let its = self.agents.get(agent);
        its.parked += 1;
        if let Some(budget) = &mut its.budget {
            budget.parked.push_back(id);
        }
    }

    /// A request no longer waits for budget. Its entry is left as one that holds a slot, for the caller to mend.
    pub(super) fn unpark(&mut self, id: Id) -> Option<(W, Box<Submit>)> {
        let entry = self.entries.get_mut(&id)?;
        let Phase::Parked { waiter, submit } = std::mem::replace(&mut entry.phase, Phase::Flying)
        else {
            return None;
        };
        self.parked -= 1;
        self.owners.stops_waiting(entry.owner);
        let its = self.agents.get(entry.agent);
        its.parked -= 1;
        if let Some(budget) = &mut its.budget {
            budget.parked.retain(|other| *other != id);
            // Whoever is behind it may fit.
            self.relieved.insert(entry.agent);
        }
        Some((waiter, submit))
    }

    /// Lets those go on for whom there is budget now.
    pub(super) fn relieve(&mut self) {
        while let Some(agent) = self.relieved.pop_first() {
            while let Some(id) = self.admit_parked(agent) {
                let Some((waiter, submit)) = self.unpark(id) else { continue };
                if let Some(entry) = self.entries.get_mut(&id) {
                    entry.phase = Phase::Waiting { waiter, since: self.pool.ticks() };
                }
                // Where the pool is full it is told so like anybody who waits.
                let _ = self.submit(id, submit, None);
            }
        }
    }

    fn admit_parked(&mut self, agent: AgentIndex) -> Option<Id> {
        let entries = &self.entries;
        let cost_of = |id: Id| entries.get(&id).map_or(0, |entry| entry.cost);
        self.agents.get(agent).budget.as_mut()?.admit(cost_of)
    }
}
