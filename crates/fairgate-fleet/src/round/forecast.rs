//! Forecasts how many tasks of each project start in a round. The forecast only decides how many
//! tasks are loaded at first, so it need not be exact.
//!
//! Every agent is assigned to the project that is furthest below its share. The agent's task adds
//! to the tokens that this project has spent. So all projects approach a common distance from their
//! shares, the gap. For a project, let w be the weight, s the tokens spent so far, and e the
//! expected usage of a task. Let ΣW be the sum of all weights, and ΣT the tokens that all projects
//! will have spent after the round. Then a gap of g tokens gives the project (w·ΣT ÷ ΣW + g − s) ÷
//! e agents, but no more than it has room for. The gap at which all agents are assigned is found by
//! bisection.

use super::round_input::{ProjectRow, RoundInput};

/// Maximum number of bisection steps. It is enough to find the gap more exactly than any estimate.
const HALVINGS: u32 = 50;

/// Values of a project that could start a task, for the formula in the module's documentation.
struct ProjectDemand {
    /// Tokens by which the project is below its share, w·ΣT ÷ ΣW − s; negative if it is above its share.
    below: i128,
    estimate: i128,
    most: u64,
}

/// Returns the number of tasks to load of each project; `None` for projects that cannot start a task.
pub(super) fn limits(input: &RoundInput, default_estimate: u64) -> Vec<Option<u64>> {
    let agents = input.waiting.len() as u64;
    let open = || input.projects.iter().filter(|project| project.is_open());
    let estimate = |project: &ProjectRow| {
        let tokens = project.learned.unwrap_or(default_estimate);
        i128::from(tokens.max(project.learned_credit.unwrap_or(0)).max(1))
    };
    let weight = |project: &ProjectRow| i128::from(project.weight.thousandths());
    let weights = open().map(weight).sum::<i128>().max(1);
    let mean =
        open().map(estimate).sum::<i128>() / i128::try_from(open().count().max(1)).unwrap_or(1);
    let spent = open().map(spent).sum::<i128>() + mean * i128::from(agents);
    let demand = |project: &ProjectRow| ProjectDemand {
        below: weight(project).saturating_mul(spent) / weights - self::spent(project),
        estimate: estimate(project),
        most: project.headroom().min(agents),
    };
    let demands: Vec<Option<ProjectDemand>> =
        input.projects.iter().map(|project| project.is_open().then(|| demand(project))).collect();
    let gap = gap(&demands, spent, agents);
    let limit = |demand: &ProjectDemand| {
        // A project that misses the gap by less than half a task may get one more.
        let likely = demand.given(gap.saturating_add(demand.estimate / 2));
        // Adds a quarter, because the estimates of tasks differ, and one task, so that every project takes part in the
        // comparison.
        let with_spare = likely.saturating_add(likely.div_ceil(4)).saturating_add(1);
        with_spare.min(demand.most.saturating_add(1))
    };
    demands.iter().map(|demand| demand.as_ref().map(limit)).collect()
}

/// Returns the smallest gap at which all agents are assigned, or a very large gap if the projects have no room for all.
fn gap(demands: &[Option<ProjectDemand>], spent: i128, agents: u64) -> i128 {
    let given = |gap: i128| {
        demands.iter().flatten().map(|demand| demand.given(gap)).fold(0, u64::saturating_add)
    };
    let largest = demands.iter().flatten().map(|demand| demand.estimate).max().unwrap_or(0);
    let widest = spent.saturating_add(largest.saturating_mul(agents.into()));
    let (mut low, mut high) = (-widest, widest);
    for _ in 0..HALVINGS {
        if high - low <= 1 {
            break;
        }
        let middle = low + (high - low) / 2;
        if given(middle) < agents {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

impl ProjectDemand {
    /// Returns the number of agents that the project gets at the gap `gap`.
    fn given(&self, gap: i128) -> u64 {
        let rise = self.below + gap;
        if rise <= 0 {
            return 0;
        }
        // Most calls end here or before, without the division, which takes far longer than a
        // multiplication at 128 bits.
        if rise > self.estimate.saturating_mul(self.most.into()) {
            return self.most;
        }
        let agents = match (u64::try_from(rise), u64::try_from(self.estimate)) {
            (Ok(rise), Ok(estimate)) => rise.div_ceil(estimate),
            _ => u64::try_from((rise + self.estimate - 1) / self.estimate).unwrap_or(u64::MAX),
        };
        agents.min(self.most)
    }
}

fn spent(project: &ProjectRow) -> i128 {
    let spent =
        i128::from(project.used) + i128::from(project.reserved) + i128::from(project.baseline);
    (spent + i128::from(project.extra)).max(0)
}
