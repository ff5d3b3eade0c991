//! How many tasks of each project a round will need: a guess that only decides how many are loaded at first.
//!
//! Every agent goes to the project that is furthest below its share, and raises what that has spent. So projects are filled up to
//! a common gap, as water fills a landscape. With w a project's weight, s what it has spent, e what a task uses, ΣW all weights
//! and ΣT all that will have been spent, a gap of g tokens gives it (w·ΣT ÷ ΣW + g − s) ÷ e agents, no more than it has room for.
//! The gap at which all agents are given away is found by halving.

use super::scene::{ProjectRow, Scene};

/// How often the span of gaps is halved: until it is finer than any estimate.
const HALVINGS: u32 = 50;

/// A project that could start something.
struct Site {
    /// (w·ΣT ÷ ΣW − s), in tokens.
    below: i128,
    estimate: i128,
    most: u64,
}

/// How many tasks of each project to load; none of those that cannot start any.
pub(super) fn limits(scene: &Scene, default_estimate: u64) -> Vec<Option<u64>> {
    let agents = scene.waiting.len() as u64;
    let open = || scene.projects.iter().filter(|project| project.is_open());
    let estimate =
        |project: &ProjectRow| i128::from(project.learned.unwrap_or(default_estimate).max(1));
    let weight = |project: &ProjectRow| i128::from(project.weight.thousandths());
    let weights = open().map(weight).sum::<i128>().max(1);
    let mean =
        open().map(estimate).sum::<i128>() / i128::try_from(open().count().max(1)).unwrap_or(1);
    let spent = open().map(spent).sum::<i128>() + mean * i128::from(agents);
    let site = |project: &ProjectRow| Site {
        below: weight(project).saturating_mul(spent) / weights - self::spent(project),
        estimate: estimate(project),
        most: project.headroom().min(agents),
    };
    let sites: Vec<Option<Site>> =
        scene.projects.iter().map(|project| project.is_open().then(|| site(project))).collect();
    let gap = gap(&sites, spent, agents);
    let limit = |site: &Site| {
        let likely = site.given(gap);
        // A quarter more, as estimates differ, and one that stands in the comparison whatever happens.
        let with_spare = likely.saturating_add(likely.div_ceil(4)).saturating_add(1);
        with_spare.min(site.most.saturating_add(1))
    };
    sites.iter().map(|site| site.as_ref().map(limit)).collect()
}

/// The gap at which all agents are given away, or all that can be.
fn gap(sites: &[Option<Site>], spent: i128, agents: u64) -> i128 {
    let given =
        |gap: i128| sites.iter().flatten().map(|site| site.given(gap)).fold(0, u64::saturating_add);
    let largest = sites.iter().flatten().map(|site| site.estimate).max().unwrap_or(0);
    let widest = spent.saturating_add(largest.saturating_mul(agents.into()));
    let (mut low, mut high) = (-widest, widest);
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

impl Site {
    /// How many agents it has been given when it has risen to this gap.
    fn given(&self, gap: i128) -> u64 {
        let rise = (self.below + gap).max(0);
        let agents = (rise + self.estimate - 1) / self.estimate;
        u64::try_from(agents).unwrap_or(u64::MAX).min(self.most)
    }
}

fn spent(project: &ProjectRow) -> i128 {
    i128::from(project.used) + i128::from(project.reserved) + i128::from(project.baseline)
}
