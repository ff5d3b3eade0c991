//! Learns the real size of a worker's cache, from the cached tokens that its answers report.
//!
//! Metrics and configuration state a size. The stated size may be too large: the engine keeps running requests in the
//! same memory, several routers may share a worker, or somebody guessed. An index that assumes 2 to 4 times the real
//! cache routes requests to prefixes that are gone, which under overload is worse than no index.
//!
//! **The meaning of a report.** The index keeps blocks in the order of their last use, as the engine does. The *depth*
//! d of a block is the number of blocks that were used more recently. A cache of n blocks holds the block if d < n. A
//! *hit* is a prefix that was expected to be cached and was cached. It shows that the cache is larger than the prefix's
//! depth. A *miss* is a prefix that was expected to be cached and was not. It shows that the cache is no larger than
//! that depth. Only blocks that the engine has read before, as an earlier answer showed, are used as evidence. If more
//! was cached than expected, and the index was full, the cache holds blocks for which the index had no room. This
//! counts as a hit deeper than all blocks held.
//!
//! **The estimate.** Sizes and depths are sorted into 21 steps, from 1/32 of the stated size to all of it, with 4 steps
//! to each doubling. A size loses one point for each hit at a depth that a cache of this size does not reach, and two
//! points for each miss at a depth within this size. A miss costs more, because it is worse to expect a block that is
//! gone than not to expect a block that is cached. The estimate is the largest size that loses at most [`TOLERANCE`]
//! points more than the best one, so one report alone does not change the estimate. The estimate falls at once, but
//! rises by at most one step in [`PERIOD`] reports. The counts of a cohort (below) move by one towards 0 after every
//! [`PERIOD`] reports of the cohort, and after every [`PERIODS_OF_OTHERS`] times [`PERIOD`] reports of the worker. So
//! old reports lose their weight, and a size that was ruled out is tried again. While the estimate is the whole stated
//! size, there is no learned size. Without reports nothing changes.
//!
//! **Protection against a single tenant.** Reports come from the engine; a client cannot write them. But a tenant
//! chooses its prompts, and it may know an option that makes the engine ignore its cache. Then every prompt that the
//! tenant repeats is a miss, at a depth that the tenant chooses. Therefore:
//! - Tenants are divided into [`COHORTS`] cohorts by a secret hash. A cohort adds at most [`VOTE_MAX`] points to the
//!   loss of a size, however many reports it sends. A tenant that misses everywhere cannot outvote one other cohort
//!   that hits at the depths in question: if both use all their points, the larger size wins.
//! - A miss makes the index forget all blocks that were used less recently than the missing ones. It does not if one of
//!   the last 4 reports of another cohort was a hit at that depth or deeper ([`CacheSize::is_disputed`]).
//! - At depths where no other tenant has reports, the tenant decides alone, within the bounds: the estimate is never
//!   below 1/32 of the stated size nor above it. If the tenant's misses are false, the index wrongly assumes that other
//!   tenants' older prefixes are gone, and sends their requests to other workers, which read the prefixes again. Hits
//!   of those tenants at these depths raise the estimate again.
//! - A tenant that really fills the cache, with many prompts or long answers, leaves less of it to all others. Then the
//!   estimate falls with good reason.

/// Number of cohorts, which are groups of tenants whose reports are counted separately.
const COHORTS: usize = 8;
/// Number of sizes that are distinguished. Step 0 is 1/32 of the stated size, and the last step is the whole stated
/// size.
const STEPS: usize = 21;
/// Index of the last step, which is the whole stated size.
const WHOLE: usize = STEPS - 1;
/// Limit of the points, above or below 0, that a cohort's reports give to one step. It is also the greatest number of
/// points that a cohort adds to the loss of one size.
const VOTE_MAX: i32 = 8;
const MISS_POINTS: i32 = 2;
/// Number of points that the chosen size may lose beyond the best size. This is more than one miss costs, and less than
/// two misses cost.
const TOLERANCE: i32 = 3;
/// Least number of the worker's reports between two rises of the estimate. After as many reports of one cohort, that
/// cohort's points move by one towards 0.
const PERIOD: u32 = 32;
/// Number of periods of the worker's reports after which the points of all cohorts move by one towards 0. The number is
/// large, so that a tenant cannot displace the reports of others by sending many of its own.
const PERIODS_OF_OTHERS: u32 = 16;
/// Number of the last reports of a cohort that can dispute a miss of another cohort.
const RECENT: usize = 4;

/// The evidence of one report about the depth, in blocks, at which a worker's cache ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DepthEvidence {
    /// The greatest depth at which a block was still cached; `None` if the report shows none.
    pub(crate) hit: Option<usize>,
    /// The least depth at which a block was no longer cached; `None` if the report shows none.
    pub(crate) miss: Option<usize>,
}

/// The evidence of all reports of one worker so far, and the estimated size of its cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CacheSize {
    stated: usize,
    cohorts: [ReportCohort; COHORTS],
    /// Number of the worker's reports so far, modulo [`PERIOD`] × [`PERIODS_OF_OTHERS`].
    reports: u32,
    step: usize,
}

/// The evidence of the reports on requests of one cohort of tenants.
#[derive(Clone, Copy, Debug, Default)]
struct ReportCohort {
    /// Points of each step. A hit at a depth of the step adds one point, and a miss there subtracts [`MISS_POINTS`].
    counts: [i8; STEPS],
    /// Number of the cohort's reports in its present period; below [`PERIOD`].
    reports: u32,
    /// The step of the hit of each of the cohort's last reports, plus 1, latest first; 0 for a report without a hit.
    reached: [usize; RECENT],
}

impl ReportCohort {
    fn count(&mut self, step: usize, points: i32) {
        let sum = (i32::from(self.counts[step]) + points).clamp(-VOTE_MAX, VOTE_MAX);
        self.counts[step] = i8::try_from(sum).unwrap_or_default();
    }

    fn decay_counts(&mut self) {
        self.counts.iter_mut().for_each(|count| *count -= count.signum());
    }

    /// Returns the loss of each size: first that of an empty cache, then those of the steps. The points of a size are
    /// the sum of the points of all steps within it. Its loss is the points of the best size minus its own points, at
    /// most [`VOTE_MAX`].
    fn losses(&self) -> [i32; STEPS + 1] {
        let mut values = [0; STEPS + 1];
        for (step, &count) in self.counts.iter().enumerate() {
            values[step + 1] = values[step] + i32::from(count);
        }
        let best = values.into_iter().max().unwrap_or_default();
        values.map(|value| (best - value).min(VOTE_MAX))
    }
}

impl CacheSize {
    /// Creates an estimate that starts with the stated size, in blocks.
    pub(crate) fn new(stated: usize) -> Self {
        Self { stated, cohorts: [ReportCohort::default(); COHORTS], reports: 0, step: WHOLE }
    }

    /// Returns the size that was stated, in blocks.
    pub(crate) fn stated(&self) -> usize {
        self.stated
    }

    /// Returns the size to assume, in blocks: the learned size if there is one, otherwise the stated size.
    pub(crate) fn blocks(&self) -> usize {
        self.blocks_of_step(self.step)
    }

    /// Returns the learned size, in blocks; `None` while reports have not shown that the cache is smaller than stated.
    pub(crate) fn learned(&self) -> Option<usize> {
        (self.step < WHOLE).then(|| self.blocks())
    }

    /// Learns from a report on a request of a tenant; `origin` is the tenant's hash.
    pub(crate) fn learn(&mut self, origin: u64, sighting: DepthEvidence) {
        if sighting == DepthEvidence::default() {
            return;
        }
        let [hit, miss] = [sighting.hit, sighting.miss].map(|depth| Some(self.step_of(depth?)));
        let cohort = &mut self.cohorts[cohort_of(origin)];
        hit.inspect(|step| cohort.count(*step, 1));
        miss.inspect(|step| cohort.count(*step, -MISS_POINTS));
        cohort.reached.rotate_right(1);
        cohort.reached[0] = hit.map_or(0, |step| step + 1);
        cohort.reports += 1;
        if cohort.reports == PERIOD {
            cohort.reports = 0;
            cohort.decay_counts();
        }
        self.reports = (self.reports + 1) % (PERIOD * PERIODS_OF_OTHERS);
        if self.reports == 0 {
            self.cohorts.iter_mut().for_each(ReportCohort::decay_counts);
        }
        let best = self.best_step();
        if best < self.step {
            self.step = best;
        } else if best > self.step && self.reports.is_multiple_of(PERIOD) {
            self.step += 1;
        }
    }

    /// Returns true if recent reports of other cohorts show that the cache holds deeper blocks than this miss allows.
    /// The miss then proves nothing about older blocks.
    pub(crate) fn is_disputed(&self, origin: u64, miss: usize) -> bool {
        let (step, own) = (self.step_of(miss), cohort_of(origin));
        let others = self.cohorts.iter().enumerate().filter(|(cohort, _)| *cohort != own);
        others.flat_map(|(_, cohort)| cohort.reached).any(|reached| reached > step)
    }

    /// Returns the step of the smallest size whose cache would hold a block at this depth; the last step if no size
    /// would.
    fn step_of(&self, depth: usize) -> usize {
        (0..WHOLE).find(|&step| depth < self.blocks_of_step(step)).unwrap_or(WHOLE)
    }

    /// Returns the step of the largest size that loses at most [`TOLERANCE`] points more than the best size. Returns
    /// the smallest step if only an empty cache loses so few points.
    fn best_step(&self) -> usize {
        let mut losses = [0; STEPS + 1];
        for cohort in &self.cohorts {
            losses.iter_mut().zip(cohort.losses()).for_each(|(loss, more)| *loss += more);
        }
        let least = losses.into_iter().min().unwrap_or_default();
        let best = losses.iter().rposition(|&loss| loss <= least + TOLERANCE);
        best.map_or(WHOLE, |size| size.saturating_sub(1))
    }

    /// Returns the size of a step in blocks, rounded up. The size is (4, 5, 6 or 7) × 2ⁿ ÷ 128 of the stated size,
    /// where n rises by 1 every four steps.
    fn blocks_of_step(&self, step: usize) -> usize {
        let part = (4 + step as u128 % 4) << (step / 4);
        usize::try_from((self.stated as u128 * part).div_ceil(128)).unwrap_or(usize::MAX)
    }
}

fn cohort_of(origin: u64) -> usize {
    usize::try_from(origin % COHORTS as u64).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hit(depth: usize) -> DepthEvidence {
        DepthEvidence { hit: Some(depth), miss: None }
    }

    fn miss(depth: usize) -> DepthEvidence {
        DepthEvidence { hit: None, miss: Some(depth) }
    }

    #[test]
    fn steps_go_from_a_part_to_the_whole() {
        let size = CacheSize::new(12_800);
        let limits: Vec<usize> = (0..STEPS).map(|step| size.blocks_of_step(step)).collect();
        assert_eq!(limits[..6], [400, 500, 600, 700, 800, 1000]);
        assert_eq!(limits[WHOLE - 4..], [6400, 8000, 9600, 11_200, 12_800]);
        assert_eq!(
            CacheSize::new(3).blocks_of_step(0),
            1,
            "never nothing where something was stated"
        );
        assert_eq!(CacheSize::new(usize::MAX).blocks_of_step(WHOLE), usize::MAX);
        assert_eq!((size.blocks(), size.learned()), (12_800, None));
    }

    #[test]
    fn one_miss_moves_nothing_and_two_do_at_once() {
        let mut size = CacheSize::new(12_800);
        (0..20).for_each(|_| size.learn(1, hit(3000)));
        size.learn(1, miss(6500));
        assert_eq!(size.learned(), None);
        size.learn(1, miss(6500));
        assert_eq!(size.learned(), Some(6400));
        // Many that came true outweigh a few that did not.
        (0..8).for_each(|_| size.learn(1, hit(6500)));
        (0..3).for_each(|_| size.learn(1, miss(6500)));
        assert_eq!(size.best_step(), WHOLE);
    }

    #[test]
    fn it_rises_one_step_a_period_and_only_where_it_should() {
        let mut size = CacheSize::new(12_800);
        (0..4).for_each(|_| size.learn(1, miss(3300)));
        assert_eq!(size.learned(), Some(3200));
        let mut sizes = vec![3200];
        for _ in 0..32 * PERIOD {
            // The cache has grown: whatever is believed comes true.
            let depth = size.blocks() - 1;
            size.learn(1, hit(depth));
            if sizes.last() != Some(&size.blocks()) {
                sizes.push(size.blocks());
            }
        }
        assert_eq!(sizes, [3200, 4000, 4800, 5600, 6400, 8000, 9600, 11_200, 12_800]);
    }

    #[test]
    fn a_report_without_a_believed_prefix_is_no_report() {
        let mut size = CacheSize::new(12_800);
        (0..2).for_each(|_| size.learn(1, miss(3300)));
        (0..1000).for_each(|_| size.learn(2, DepthEvidence::default()));
        assert_eq!(size.learned(), Some(3200));
    }

    #[test]
    fn one_tenant_that_always_misses_does_not_outvote_another_that_hits() {
        for hits_first in [true, false] {
            let mut size = CacheSize::new(12_800);
            for turn in 0..4000 {
                // Ten times as many reports, at every depth.
                let misses = |size: &mut CacheSize| {
                    (0..10).for_each(|n| size.learn(1, miss((turn * 10 + n) * 37 % 12_800)));
                };
                if hits_first {
                    size.learn(2, hit(turn * 101 % 12_800));
                    misses(&mut size);
                } else {
                    misses(&mut size);
                    size.learn(2, hit(turn * 101 % 12_800));
                }
            }
            assert!(size.blocks() >= 6400, "{}", size.blocks());
        }
    }

    #[test]
    fn a_miss_is_disputed_where_others_hit_as_deep() {
        let mut size = CacheSize::new(12_800);
        assert!(!size.is_disputed(1, 100));
        size.learn(1, hit(6000));
        assert!(!size.is_disputed(1, 100) && size.is_disputed(2, 100));
        assert!(size.is_disputed(2, 6300) && !size.is_disputed(2, 6500));
        assert!(!size.is_disputed(9, 100), "the same cohort");
        (0..4).for_each(|_| size.learn(1, hit(10)));
        assert!(size.is_disputed(2, 10) && !size.is_disputed(2, 1000), "that was a while ago");
    }

    #[test]
    fn whatever_is_reported_it_stays_within_its_bounds() {
        let mut size = CacheSize::new(12_800);
        for origin in 0..8 {
            (0..1000).for_each(|depth| size.learn(origin, miss(depth % 3)));
        }
        assert_eq!(size.learned(), Some(400));
        (0..10_000).for_each(|_| size.learn(1, hit(usize::MAX)));
        assert_eq!((size.blocks(), size.learned()), (12_800, None));
        let mut empty = CacheSize::new(0);
        (0..100).for_each(|_| empty.learn(1, miss(0)));
        assert_eq!(empty.blocks(), 0);
    }
}
