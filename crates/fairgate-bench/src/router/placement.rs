//! Rules by which a worker is chosen: Fairgate's current rule, as its core applies it, and others
//! for comparison.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use fairgate_core::Pool;
use fairgate_core::attribute::{Attribute, Attributes};
use fairgate_core::decision::Decision;
use fairgate_core::event::{Event, PoolConfig, Submit, WorkerChange};
use fairgate_core::units::{Micros, Tokens};

use super::testbed::SLOTS;
use crate::scenarios::tenants_of_equal_weight;

/// A rule by which a worker is chosen for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlacementRule {
    /// Fairgate's former rule, which the table lists under the name of the second edition. It
    /// chooses the worker with the fewest tokens to prefill, with this prompt's uncached tokens
    /// included. Ties go to the worker with the most cached tokens, then to the first worker.
    SecondEdition,
    /// The rule of [`SecondEdition`](Self::SecondEdition), except that a tie goes to the worker
    /// that was chosen longest ago.
    LeastToReadTiesByTurns,
    /// Chooses the worker with the most cached tokens of the prompt, regardless of load, if those
    /// are at least the fraction [`CACHED_PART_MIN`] of the prompt. Otherwise chooses the worker
    /// with the fewest tokens to prefill. A tie goes to the worker that was chosen longest ago.
    MostCachedIfMuch,
    /// Chooses the worker with the most cached tokens of the prompt, regardless of load. A tie goes
    /// to the worker that was chosen longest ago.
    MostCached,
    /// Fairgate's current rule, applied by its core.
    Core,
}

/// Fraction of a prompt that must be cached for [`PlacementRule::MostCachedIfMuch`] to disregard
/// load.
const CACHED_PART_MIN: f64 = 0.3;

/// A request that was placed, as the index of the request and the index of its worker.
pub(crate) type PlacedRequest = (usize, usize);

/// Decides which worker gets which request. The methods must be called in the order of `at`. A
/// worker takes [`SLOTS`] requests at once. A request that finds all workers full waits until
/// another request ends. Each method returns the requests that were placed as a result.
pub(crate) trait RequestPlacer {
    /// Handles the arrival of a request with `tokens` input tokens. `cached` has, for each worker,
    /// the number of the prompt's tokens that the worker is believed to have cached.
    fn submit(&mut self, at: Micros, id: usize, tokens: u64, cached: &[u64]) -> Vec<PlacedRequest>;

    /// Handles the first token of the answer, which shows that the worker has prefilled the prompt.
    fn first_token(&mut self, at: Micros, id: usize) -> Vec<PlacedRequest>;

    /// Handles the end of the answer, which frees the request's slot.
    fn end(&mut self, at: Micros, id: usize) -> Vec<PlacedRequest>;
}

impl PlacementRule {
    /// Returns a placer that applies this rule to the given number of workers.
    pub(crate) fn placer(self, workers: usize) -> Box<dyn RequestPlacer> {
        match self {
            Self::Core => Box::new(CorePlacer::new(workers)),
            rule => Box::new(CountingPlacer::new(rule, workers)),
        }
    }
}

/// A placer that uses Fairgate's core with one tenant.
struct CorePlacer {
    pool: Pool,
    names: Vec<Arc<str>>,
}

impl CorePlacer {
    fn new(workers: usize) -> Self {
        // With padded numbers, the names sort in the order of the numbers.
        let names: Vec<Arc<str>> =
            (0..workers).map(|number| format!("w{number:03}").into()).collect();
        let slots = SLOTS as u64;
        let mut config = PoolConfig::new(slots * workers as u64, tenants_of_equal_weight());
        let worker = |name: &Arc<str>| WorkerChange {
            name: (&**name).into(),
            slots: Some(slots),
            ..WorkerChange::default()
        };
        config.workers = names.iter().map(worker).collect();
        Self { pool: Pool::new(config), names }
    }

    fn apply(&mut self, at: Micros, event: Event) -> Vec<PlacedRequest> {
        let mut decisions = Vec::new();
        self.pool.apply(at, event, &mut decisions).expect("time goes on");
        let placed = |decision| {
            let Decision::Grant(grant) = decision else {
                panic!("nothing is refused: {decision:?}")
            };
            let place = grant.place.expect("there are workers");
            let worker = self.names.iter().position(|name| *name == place.worker);
            (grant.id.parse().expect("a number"), worker.expect("one of the workers"))
        };
        decisions.into_iter().map(placed).collect()
    }
}

impl RequestPlacer for CorePlacer {
    fn submit(&mut self, at: Micros, id: usize, tokens: u64, cached: &[u64]) -> Vec<PlacedRequest> {
        let cached = self.names.iter().zip(cached).filter(|(_, tokens)| **tokens > 0);
        let submit = Submit {
            attributes: Attributes::none().with(Attribute::Tenant, "bench"),
            input: Some(Tokens(tokens)),
            cached: cached.map(|(name, tokens)| (name.clone(), Tokens(*tokens))).collect(),
            ..Submit::new(&id.to_string())
        };
        self.apply(at, Event::Submit(Box::new(submit)))
    }

    fn first_token(&mut self, at: Micros, id: usize) -> Vec<PlacedRequest> {
        self.apply(at, Event::FirstToken { id: id.to_string().into() })
    }

    fn end(&mut self, at: Micros, id: usize) -> Vec<PlacedRequest> {
        self.apply(at, Event::Release { id: id.to_string().into(), tokens: None, quota: None })
    }
}

/// A placer for all rules except Fairgate's current one. It counts the load of each worker itself.
struct CountingPlacer {
    rule: PlacementRule,
    workers: Vec<PlacerWorkerLoad>,
    /// Requests that found all workers full: index, input tokens, and cached tokens on each worker.
    waiting: VecDeque<(usize, u64, Vec<u64>)>,
    placed: HashMap<usize, (usize, u64)>,
    turn: u64,
}

#[derive(Clone, Copy, Default)]
struct PlacerWorkerLoad {
    in_flight: usize,
    to_read: u64,
    chosen: u64,
}

impl CountingPlacer {
    fn new(rule: PlacementRule, workers: usize) -> Self {
        Self {
            rule,
            workers: vec![PlacerWorkerLoad::default(); workers],
            waiting: VecDeque::new(),
            placed: HashMap::new(),
            turn: 0,
        }
    }

    fn choose(&self, tokens: u64, cached: &[u64]) -> Option<usize> {
        let most = cached.iter().copied().max().unwrap_or_default();
        let is_much = most as f64 >= tokens as f64 * CACHED_PART_MIN;
        let key = |place: &usize| {
            let (worker, cached) = (self.workers[*place], cached[*place]);
            let load = worker.to_read + tokens - cached;
            match self.rule {
                PlacementRule::SecondEdition => (load, Reverse(cached), *place as u64),
                PlacementRule::MostCached => (0, Reverse(cached), worker.chosen),
                PlacementRule::MostCachedIfMuch if is_much => (0, Reverse(cached), worker.chosen),
                _ => (load, Reverse(cached), worker.chosen),
            }
        };
        let open = |place: &usize| self.workers[*place].in_flight < SLOTS;
        (0..self.workers.len()).filter(open).min_by_key(key)
    }

    fn place_waiting(&mut self) -> Vec<PlacedRequest> {
        let mut placed = Vec::new();
        while let Some((id, tokens, cached)) = self.waiting.front() {
            let Some(place) = self.choose(*tokens, cached) else { break };
            let to_read = tokens - cached[place];
            self.turn += 1;
            let worker = &mut self.workers[place];
            worker.in_flight += 1;
            worker.to_read += to_read;
            worker.chosen = self.turn;
            self.placed.insert(*id, (place, to_read));
            placed.push((*id, place));
            self.waiting.pop_front();
        }
        placed
    }
}

impl RequestPlacer for CountingPlacer {
    fn submit(&mut self, _: Micros, id: usize, tokens: u64, cached: &[u64]) -> Vec<PlacedRequest> {
        let cached = cached.iter().map(|cached| (*cached).min(tokens)).collect();
        self.waiting.push_back((id, tokens, cached));
        self.place_waiting()
    }

    fn first_token(&mut self, _: Micros, id: usize) -> Vec<PlacedRequest> {
        if let Some((place, to_read)) = self.placed.get_mut(&id) {
            self.workers[*place].to_read -= std::mem::take(to_read);
        }
        Vec::new()
    }

    fn end(&mut self, at: Micros, id: usize) -> Vec<PlacedRequest> {
        self.first_token(at, id);
        if let Some((place, _)) = self.placed.remove(&id) {
            self.workers[place].in_flight -= 1;
        }
        self.place_waiting()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Submits requests of 100 tokens one after another, each when the one before has ended.
    fn alone(rule: PlacementRule, cached: &[&[u64]]) -> Vec<usize> {
        let mut placer = rule.placer(cached[0].len());
        let place = |(id, cached): (usize, &&[u64])| {
            let placed = placer.submit(Micros(id as u64), id, 100, cached);
            assert_eq!(placer.end(Micros(id as u64), id), []);
            assert_eq!((placed.len(), placed[0].0), (1, id));
            placed[0].1
        };
        cached.iter().enumerate().map(place).collect()
    }

    #[test]
    fn ties_go_to_the_first_worker_or_by_turns() {
        let nothing: [&[u64]; 5] = [&[0, 0, 0]; 5];
        assert_eq!(alone(PlacementRule::SecondEdition, &nothing), [0; 5]);
        for rule in
            [PlacementRule::LeastToReadTiesByTurns, PlacementRule::MostCached, PlacementRule::Core]
        {
            assert_eq!(alone(rule, &nothing), [0, 1, 2, 0, 1], "{rule:?}");
        }
    }

    #[test]
    fn a_cache_is_weighed_against_what_waits() {
        for rule in [PlacementRule::SecondEdition, PlacementRule::Core, PlacementRule::MostCached] {
            assert_eq!(alone(rule, &[&[0, 50, 40][..]; 3]), [1; 3], "{rule:?}");
        }
        // The worker with the cache has 60 tokens to read, the others nothing: 60 more than its 50 are worth, and less than twice.
        let second = |rule: PlacementRule| {
            let mut placer = rule.placer(2);
            assert_eq!(placer.submit(Micros(0), 0, 100, &[40, 0]), [(0, 0)]);
            placer.submit(Micros(0), 1, 100, &[50, 0])[0].1
        };
        assert_eq!(second(PlacementRule::SecondEdition), 1);
        assert_eq!(second(PlacementRule::Core), 0);
        assert_eq!(second(PlacementRule::MostCached), 0);
        assert_eq!(second(PlacementRule::MostCachedIfMuch), 0);
    }

    #[test]
    fn who_finds_all_full_waits_for_the_next_end() {
        for rule in [PlacementRule::SecondEdition, PlacementRule::Core] {
            let mut placer = rule.placer(1);
            for id in 0..SLOTS {
                assert_eq!(placer.submit(Micros(0), id, 10, &[0]), [(id, 0)]);
            }
            assert_eq!(placer.submit(Micros(0), SLOTS, 10, &[0]), []);
            assert_eq!(placer.first_token(Micros(1), 0), []);
            assert_eq!(placer.end(Micros(2), 0), [(SLOTS, 0)], "{rule:?}");
        }
    }
}
