//! A naive index that follows the same rules as directly as possible. It uses no hashes, compares prefixes symbol by
//! symbol, and searches whole lists.

use std::collections::HashMap;

use crate::TOKENS;

pub(crate) type Prefix = Vec<u8>;

pub(crate) struct NaiveIndex {
    pub(crate) blocks_max: usize,
    pub(crate) workers: Vec<NaiveWorker>,
    time: u64,
}

pub(crate) struct NaiveWorker {
    pub(crate) name: usize,
    size: NaiveSize,
    capacity: usize,
    restarts: usize,
    /// The blocks that the worker is expected to hold, most recent first.
    held: Vec<Block>,
    /// Times at which the stretches of time began, oldest first. Blocks of one stretch are counted
    /// together.
    marks: Vec<u64>,
}

/// The reports of a worker, counted by cohort and step.
struct NaiveSize {
    stated: usize,
    counts: HashMap<(u64, usize), i64>,
    reports: HashMap<u64, u64>,
    /// For each cohort, the step of the hit of each report, in order; `None` for a report without a
    /// hit.
    hits: HashMap<u64, Vec<Option<usize>>>,
    reports_in_all: u64,
    step: usize,
}

struct Block {
    prefix: Prefix,
    touched: u64,
    confirmed: Option<u64>,
}

/// The state of the index when a prompt was sent.
pub(crate) struct NaiveRoute {
    worker: usize,
    restarts: usize,
    /// The times of the last use and of the last confirmation, for each of the first blocks that an answer has
    /// confirmed.
    known: Vec<(u64, u64)>,
    depths: Vec<usize>,
    /// All blocks that the worker was expected to hold, as prefixes.
    held: Vec<Prefix>,
    /// True if at least 7/8 of the capacity were taken.
    is_full: bool,
    sent: u64,
}

impl NaiveIndex {
    pub(crate) fn new(blocks_max: usize) -> Self {
        Self { blocks_max, workers: Vec::new(), time: 0 }
    }

    pub(crate) fn add(&mut self, name: usize, blocks: usize) {
        self.workers.push(NaiveWorker {
            name,
            size: NaiveSize::new(blocks),
            capacity: 0,
            restarts: 0,
            held: Vec::new(),
            marks: Vec::new(),
        });
        self.divide();
    }

    pub(crate) fn remove(&mut self, name: usize) {
        self.workers.retain(|worker| worker.name != name);
        self.divide();
    }

    pub(crate) fn resize(&mut self, name: usize, blocks: usize) {
        let worker = self.worker(name).unwrap();
        if worker.size.stated != blocks {
            worker.size = NaiveSize::new(blocks);
        }
        self.divide();
    }

    pub(crate) fn forget(&mut self, name: usize) {
        let worker = self.worker(name).unwrap();
        worker.held.clear();
        worker.marks.clear();
        worker.restarts += 1;
    }

    pub(crate) fn overlap(&self, name: usize, prompt: &[u8]) -> u64 {
        let Some(worker) = self.workers.iter().find(|worker| worker.name == name) else { return 0 };
        let holds = |end: usize| worker.held.iter().any(|block| block.prefix == prompt[..end]);
        (1..=prompt.len()).take_while(|&end| holds(end)).count() as u64 * TOKENS
    }

    pub(crate) fn routed(&mut self, name: usize, prompt: &[u8]) -> Option<NaiveRoute> {
        let worker = self.worker(name)?;
        let find = |end: usize| worker.held.iter().find(|block| block.prefix == prompt[..end]);
        let known = (1..=prompt.len()).map_while(find);
        let known = known.map_while(|block| Some((block.touched, block.confirmed?)));
        let known: Vec<(u64, u64)> = known.collect();
        let depths = (1..=known.len()).map(|end| worker.depth(prompt, end)).collect();
        let held = worker.held.iter().map(|block| block.prefix.clone()).collect();
        let restarts = worker.restarts;
        let is_full = worker.held.len() >= worker.capacity - worker.capacity / 8;
        self.touch(name, prompt, false);
        Some(NaiveRoute { worker: name, restarts, known, depths, held, is_full, sent: self.time })
    }

    pub(crate) fn refused(&mut self, route: &NaiveRoute, prompt: &[u8]) {
        let Some(worker) = self.worker(route.worker) else { return };
        if worker.restarts == route.restarts {
            worker.held.retain(|block| {
                let is_new =
                    prompt.starts_with(&block.prefix) && !route.held.contains(&block.prefix);
                !is_new || block.touched != route.sent
            });
        }
    }

    pub(crate) fn observed(
        &mut self,
        route: &NaiveRoute,
        prompt: &[u8],
        cached: usize,
        origin: u64,
    ) {
        let Some(worker) = self.worker(route.worker) else { return };
        if worker.restarts != route.restarts {
            return;
        }
        let believed = (1..=prompt.len())
            .take_while(|&end| route.held.iter().any(|prefix| prefix == &prompt[..end]));
        let surplus = cached > believed.count() + (cached / 8).max(4);
        let known = route.known.len();
        let slack = (known / 8).max(4);
        let (mut hit, mut miss) = (known, None);
        if cached + slack < known {
            let missing = route.known[cached + slack];
            let first = (cached..).find(|&block| route.known[block] == missing).unwrap();
            if !worker.size.others_hit(origin % 8, route.depths[first]) {
                worker.held.retain(|block| block.touched > missing.1);
            }
            (hit, miss) = (cached, Some(route.depths[first]));
        }
        let mut hit = hit.checked_sub(1).map(|block| route.depths[block]);
        if surplus && route.is_full {
            (hit, miss) = (Some(route.held.len()), None);
        }
        worker.size.learn(origin % 8, hit, miss);
        self.divide();
        self.touch(route.worker, prompt, true);
    }

    pub(crate) fn learned(&self, name: usize) -> Option<usize> {
        let worker = self.workers.iter().find(|worker| worker.name == name)?;
        (worker.size.step < 20).then(|| worker.size.limit(worker.size.step))
    }

    pub(crate) fn held_blocks(&self, name: usize) -> usize {
        let worker = self.workers.iter().find(|worker| worker.name == name);
        worker.map_or(0, |worker| worker.held.len())
    }

    fn touch(&mut self, name: usize, prompt: &[u8], answered: bool) {
        self.time += 1;
        let now = self.time;
        let worker = self.worker(name).unwrap();
        worker.mark(now);
        for end in (1..=prompt.len().min(worker.capacity)).rev() {
            let place = worker.held.iter().position(|block| block.prefix == prompt[..end]);
            let known = place.map(|place| worker.held.remove(place).confirmed);
            let confirmed = if answered { Some(now) } else { known.flatten() };
            worker
                .held
                .insert(0, Block { prefix: prompt[..end].to_vec(), touched: now, confirmed });
        }
        worker.held.truncate(worker.capacity);
    }

    fn divide(&mut self) {
        let wanted: usize = self.workers.iter().map(|worker| worker.size.blocks()).sum();
        for worker in &mut self.workers {
            let (own, fits) = (worker.size.blocks(), wanted <= self.blocks_max);
            worker.capacity = if fits { own } else { own * self.blocks_max / wanted };
            worker.held.truncate(worker.capacity);
        }
    }

    fn worker(&mut self, name: usize) -> Option<&mut NaiveWorker> {
        self.workers.iter_mut().find(|worker| worker.name == name)
    }
}

impl NaiveWorker {
    /// Returns the number of blocks that were last used at `from` or later and before `until`.
    fn used(&self, from: u64, until: u64) -> usize {
        self.held.iter().filter(|block| (from..until).contains(&block.touched)).count()
    }

    /// Begins another stretch if the last stretch has at least 1/64 of the capacity. If there are 128 stretches, merges
    /// neighbours that together have at most 1/32 of the capacity.
    fn mark(&mut self, now: u64) {
        let last = self.marks.last().copied();
        if last.is_some_and(|last| self.used(last, u64::MAX) < (self.capacity / 64).max(1)) {
            return;
        }
        if self.marks.len() == 128 {
            let ends = |at: usize| self.marks.get(at).copied().unwrap_or(u64::MAX);
            let kept = (0..128).filter(|&at| {
                at % 2 == 0 || self.used(ends(at - 1), ends(at + 1)) > self.capacity / 32
            });
            self.marks = kept.map(|at| self.marks[at]).collect();
        }
        self.marks.push(now);
    }

    /// Returns the number of blocks that were used more recently than the last block of this prefix, as estimated from
    /// the stretches.
    fn depth(&self, prompt: &[u8], end: usize) -> usize {
        let find = |end: usize| self.held.iter().find(|block| block.prefix == prompt[..end]);
        let block = find(end).unwrap();
        let is_same =
            |other: &Block| (other.touched, other.confirmed) == (block.touched, block.confirmed);
        let part = (1..=prompt.len()).map_while(find).filter(|other| is_same(other)).count();
        let first = (1..end).rev().take_while(|&end| is_same(find(end).unwrap())).count();
        let begin = self.marks.iter().rev().find(|mark| **mark <= block.touched).unwrap();
        let after = self.marks.iter().find(|mark| *mark > begin).copied().unwrap_or(u64::MAX);
        let others = self.used(*begin, after) - part;
        self.used(after, u64::MAX) + others / 2 + first
    }
}

impl NaiveSize {
    fn new(stated: usize) -> Self {
        let (counts, reports, hits) = (HashMap::new(), HashMap::new(), HashMap::new());
        Self { stated, counts, reports, hits, reports_in_all: 0, step: 20 }
    }

    fn limit(&self, step: usize) -> usize {
        (self.stated * ((4 + step % 4) << (step / 4))).div_ceil(128)
    }

    fn blocks(&self) -> usize {
        self.limit(self.step)
    }

    fn step_of(&self, depth: usize) -> usize {
        (0..=20).find(|&step| depth < self.limit(step)).unwrap_or(20)
    }

    /// Returns true if one of the last four reports of another cohort was a hit at this depth or
    /// deeper.
    fn others_hit(&self, cohort: u64, depth: usize) -> bool {
        let others = self.hits.iter().filter(|(of, _)| **of != cohort);
        let mut steps = others.flat_map(|(_, hits)| hits.iter().rev().take(4).flatten());
        steps.any(|step| *step >= self.step_of(depth))
    }

    fn learn(&mut self, cohort: u64, hit: Option<usize>, miss: Option<usize>) {
        if (hit, miss) == (None, None) {
            return;
        }
        let reached = hit.map(|depth| self.step_of(depth));
        self.hits.entry(cohort).or_default().push(reached);
        for (depth, points) in [(hit, 1), (miss, -2)] {
            let Some(depth) = depth else { continue };
            let step = self.step_of(depth);
            let count = self.counts.entry((cohort, step)).or_default();
            *count = (*count + points).clamp(-8, 8);
        }
        let own = self.reports.entry(cohort).or_default();
        *own += 1;
        let own = *own;
        self.reports_in_all += 1;
        for ((of, _), count) in &mut self.counts {
            let is_own = *of == cohort && own.is_multiple_of(32);
            for _ in 0..u8::from(is_own) + u8::from(self.reports_in_all.is_multiple_of(512)) {
                *count -= count.signum();
            }
        }
        // A size of 0 steps is a cache of nothing; the size of a step has all steps up to it.
        let value = |cohort: u64, size: usize| -> i64 {
            let own = self.counts.iter().filter(|((of, step), _)| *of == cohort && *step < size);
            own.map(|(_, count)| count).sum()
        };
        let loss = |size: usize| -> i64 {
            let best = |cohort| (0..=21).map(|size| value(cohort, size)).max().unwrap();
            (0..8).map(|cohort| (best(cohort) - value(cohort, size)).min(8)).sum()
        };
        let losses: Vec<i64> = (0..=21).map(loss).collect();
        let least = losses.iter().min().unwrap();
        let best = losses.iter().rposition(|loss| *loss <= least + 3).unwrap().saturating_sub(1);
        if best < self.step {
            self.step = best;
        } else if best > self.step && self.reports_in_all.is_multiple_of(32) {
            self.step += 1;
        }
    }
}
