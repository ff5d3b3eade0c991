//! The same rules once more, as directly as they read: no hashes, prefixes compared symbol by symbol, lists searched from end to
//! end.

use crate::TOKENS;

pub(crate) type Prefix = Vec<u8>;

pub(crate) struct NaiveIndex {
    pub(crate) blocks_max: usize,
    pub(crate) workers: Vec<NaiveWorker>,
    time: u64,
}

pub(crate) struct NaiveWorker {
    pub(crate) name: usize,
    stated: usize,
    capacity: usize,
    restarts: usize,
    /// Most recent first.
    held: Vec<Block>,
}

struct Block {
    prefix: Prefix,
    touched: u64,
    confirmed: Option<u64>,
}

/// What was known when a prompt was sent.
pub(crate) struct NaiveRoute {
    worker: usize,
    restarts: usize,
    /// For each of the first blocks, when an answer last confirmed it.
    confirmed: Vec<u64>,
    /// What was held of anything before.
    held: Vec<Prefix>,
    sent: u64,
}

impl NaiveIndex {
    pub(crate) fn new(blocks_max: usize) -> Self {
        Self { blocks_max, workers: Vec::new(), time: 0 }
    }

    pub(crate) fn add(&mut self, name: usize, blocks: usize) {
        self.workers.push(NaiveWorker {
            name,
            stated: blocks,
            capacity: 0,
            restarts: 0,
            held: Vec::new(),
        });
        self.divide();
    }

    pub(crate) fn remove(&mut self, name: usize) {
        self.workers.retain(|worker| worker.name != name);
        self.divide();
    }

    pub(crate) fn resize(&mut self, name: usize, blocks: usize) {
        self.worker(name).unwrap().stated = blocks;
        self.divide();
    }

    pub(crate) fn forget(&mut self, name: usize) {
        let worker = self.worker(name).unwrap();
        worker.held.clear();
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
        let confirmed = (1..=prompt.len()).map_while(|end| find(end)?.confirmed).collect();
        let held = worker.held.iter().map(|block| block.prefix.clone()).collect();
        let restarts = worker.restarts;
        self.touch(name, prompt, false);
        Some(NaiveRoute { worker: name, restarts, confirmed, held, sent: self.time })
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

    pub(crate) fn observed(&mut self, route: &NaiveRoute, prompt: &[u8], cached_blocks: usize) {
        let Some(worker) = self.worker(route.worker) else { return };
        if worker.restarts != route.restarts {
            return;
        }
        let known = route.confirmed.len();
        if cached_blocks + (known / 8).max(4) < known {
            let lost = route.confirmed[cached_blocks];
            worker.held.retain(|block| block.touched > lost);
        }
        self.touch(route.worker, prompt, true);
    }

    pub(crate) fn held_blocks(&self, name: usize) -> usize {
        let worker = self.workers.iter().find(|worker| worker.name == name);
        worker.map_or(0, |worker| worker.held.len())
    }

    fn touch(&mut self, name: usize, prompt: &[u8], answered: bool) {
        self.time += 1;
        let now = self.time;
        let worker = self.worker(name).unwrap();
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
        let stated: usize = self.workers.iter().map(|worker| worker.stated).sum();
        for worker in &mut self.workers {
            let fits = stated <= self.blocks_max;
            worker.capacity =
                if fits { worker.stated } else { worker.stated * self.blocks_max / stated };
            worker.held.truncate(worker.capacity);
        }
    }

    fn worker(&mut self, name: usize) -> Option<&mut NaiveWorker> {
        self.workers.iter_mut().find(|worker| worker.name == name)
    }
}
