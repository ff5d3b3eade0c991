//! How many tasks of each project a round will need: a guess that only decides how many are loaded at first.
//!
//! Every agent goes to the project that is furthest below its share, and raises what that has spent. So those below a common
//! level of spent ÷ weight are filled up to it, as water fills a landscape, and the level rises until all agents are given away.
//! With w a project's weight, s what it has spent and e what a task uses, level L gives it (L·w − s) ÷ e agents, no more than it
//! has room for. The level is found by halving.

use super::scene::{ProjectRow, Scene};

/// How often the level is halved: from the largest to one that is exact enough.
const HALVINGS: u32 = 48;

/// How many tasks of each project to load; none of those that cannot start any.
pub(super) fn limits(scene: &Scene, default_estimate: u64) -> Vec<Option<u64>> {
    let agents = scene.waiting.len() as u64;
    let level = level(scene, default_estimate, agents);
    let limit = |project: &ProjectRow| {
        let likely = filled(project, level, default_estimate, agents);
        // A quarter more, as estimates differ, and one that stands in the comparison whatever happens.
        let with_spare = likely.saturating_add(likely.div_ceil(4)).saturating_add(1);
        project.is_open().then(|| with_spare.min(project.headroom().saturating_add(1)))
    };
    scene.projects.iter().map(limit).collect()
}

/// The level at which all agents are given away, in tokens for a thousandth of a weight, times 2^20.
fn level(scene: &Scene, default_estimate: u64, agents: u64) -> u128 {
    let given = |level: u128| {
        let open = scene.projects.iter().filter(|project| project.is_open());
        open.map(|project| filled(project, level, default_estimate, agents)).sum::<u64>()
    };
    let (mut low, mut high) = (0, highest(scene, default_estimate, agents));
    for _ in 0..HALVINGS {
        let middle = low + (high - low) / 2;
        if given(middle) < agents {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

/// A level that gives away everything that can be.
fn highest(scene: &Scene, default_estimate: u64, agents: u64) -> u128 {
    let of = |project: &ProjectRow| {
        let estimate = u128::from(project.learned.unwrap_or(default_estimate)) + 1;
        let all = spent(project) + estimate * u128::from(agents);
        (all << 20) / u128::from(project.weight.thousandths()) + 1
    };
    scene.projects.iter().map(of).max().unwrap_or(0)
}

/// How many agents a project has been given at this level.
fn filled(project: &ProjectRow, level: u128, default_estimate: u64, agents: u64) -> u64 {
    let estimate = u128::from(project.learned.unwrap_or(default_estimate).max(1));
    let weight = u128::from(project.weight.thousandths());
    let raised = (level.saturating_mul(weight) >> 20).saturating_sub(spent(project));
    let given = u64::try_from(raised.div_ceil(estimate)).unwrap_or(u64::MAX);
    given.min(project.headroom()).min(agents)
}

fn spent(project: &ProjectRow) -> u128 {
    u128::from(project.used) + u128::from(project.reserved) + u128::from(project.baseline)
}
