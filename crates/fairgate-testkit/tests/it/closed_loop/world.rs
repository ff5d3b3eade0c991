//! A pool in virtual time with sources in closed loops. A granted request runs for a time that grows with its tokens,
//! and is released with its real usage. Its source already has the next request waiting.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use fairgate_core::Pool;
use fairgate_core::attribute::{Attribute, Attributes};
use fairgate_core::decision::Decision;
use fairgate_core::event::{Event, PoolConfig, Submit, WorkerChange};
use fairgate_core::policy::Policy;
use fairgate_core::units::{Micros, Tokens};
use fairgate_journal::parse_policy;
use fairgate_testkit::workload::SeededRng;

use crate::closed_loop::sizes::{Estimate, Sizes};

/// A source of requests, which keeps a fixed number of requests waiting.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) by: Attribute,
    pub(crate) name: String,
    pub(crate) waiting: usize,
    pub(crate) sizes: &'static Sizes,
    pub(crate) estimate: Estimate,
    /// Size of all requests; `None` to draw it from `sizes`.
    pub(crate) size: Option<(u64, u64)>,
    /// True if every request has its own flow name.
    pub(crate) fresh: bool,
    /// Longest idle time in microseconds between the end of a request and the next; `None` if the source is never idle.
    pub(crate) idle_us: Option<u64>,
    /// Allow-lists of workers. Each request has one of these lists; `None` allows all workers.
    pub(crate) allow: Vec<Option<Vec<&'static str>>>,
    pub(crate) priorities: i64,
    /// If set, requests state a quota other than their cost, and end with a different quota.
    pub(crate) quotas: Option<u64>,
}

impl Source {
    /// Creates a source with this value of an attribute. It keeps three requests waiting and estimates exactly.
    pub(crate) fn new(by: Attribute, name: &str, sizes: &'static Sizes) -> Self {
        Self {
            by,
            name: name.into(),
            waiting: 3,
            sizes,
            estimate: Estimate::Exact,
            size: None,
            fresh: false,
            idle_us: None,
            allow: vec![None],
            priorities: 0,
            quotas: None,
        }
    }

    /// Allows only these workers.
    pub(crate) fn on(mut self, workers: &[&'static str]) -> Self {
        self.allow = vec![Some(workers.to_vec())];
        self
    }

    pub(crate) fn estimating(mut self, estimate: Estimate) -> Self {
        self.estimate = estimate;
        self
    }
}

/// A request as its source knows it.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) source: usize,
    pub(crate) cost: u64,
    pub(crate) used: u64,
    input: u64,
    output: u64,
    pub(crate) submitted_at: u64,
    /// Tokens that the request takes from a worker's token rate, at its grant and finally.
    pub(crate) quota: (u64, u64),
    pub(crate) allow: Option<Vec<&'static str>>,
    /// Worker that runs or ran the request; `None` before the grant, or without workers.
    pub(crate) worker: Option<Arc<str>>,
}

/// One event and its results. Requests are given by their numbers in the order of submits.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) at: u64,
    pub(crate) submitted: Option<usize>,
    pub(crate) ended: Option<usize>,
    pub(crate) granted: Vec<usize>,
}

/// A planned event.
enum Planned {
    Submit(usize),
    FirstToken(usize),
    End(usize),
    Event(Event),
}

pub(crate) struct World {
    pub(crate) pool: Pool,
    pub(crate) now: u64,
    pub(crate) rng: SeededRng,
    sources: Vec<Source>,
    pub(crate) requests: Vec<Request>,
    to_submit: VecDeque<usize>,
    plan: BTreeMap<(u64, u64), Planned>,
    planned: u64,
    has_workers: bool,
    ticked_at: Option<u64>,
    /// The capacity to set once all sources have requests waiting; `None` afterwards.
    opens_with: Option<u64>,
}

impl World {
    /// Creates a pool without slots. It gets its slots when all sources have their requests
    /// waiting.
    pub(crate) fn new(mut config: PoolConfig, sources: Vec<Source>, seed: u64) -> Self {
        let opens_with = Some(std::mem::take(&mut config.capacity));
        let to_submit = (0..sources.len()).flat_map(|s| vec![s; sources[s].waiting]).collect();
        Self {
            has_workers: !config.workers.is_empty(),
            pool: Pool::new(config),
            now: 0,
            rng: SeededRng::new(seed),
            sources,
            requests: Vec::new(),
            to_submit,
            plan: BTreeMap::new(),
            planned: 0,
            ticked_at: None,
            opens_with,
        }
    }

    /// Shuffles the first requests, so that the number of a source does not matter.
    pub(crate) fn shuffled(mut self) -> Self {
        let slice = self.to_submit.make_contiguous();
        for i in (1..slice.len()).rev() {
            let j = self.rng.index(i + 1);
            slice.swap(i, j);
        }
        self
    }

    /// Applies the next event: a submit if one is due, otherwise the earliest planned event.
    pub(crate) fn step(&mut self) -> Step {
        if let Some(source) = self.to_submit.pop_front() {
            return self.submit(source);
        }
        if let Some(slots) = self.opens_with.take() {
            return self.apply(Event::Capacity { slots }, None, None);
        }
        let next = self.plan.first_key_value().map(|((at, _), _)| *at);
        let change = self.pool.next_change().map(|at| at.0.max(self.now));
        if let Some(change) = change.filter(|change| next.is_none_or(|next| *change < next)) {
            assert_ne!(self.ticked_at, Some(change), "a tick at {change} changed nothing");
            self.ticked_at = Some(change);
            self.now = change;
            return self.apply(Event::Tick, None, None);
        }
        self.ticked_at = None;
        let ((at, _), planned) = self.plan.pop_first().expect("something is to come");
        self.now = at;
        let id = |number: usize| Arc::from(format!("r{number}"));
        match planned {
            Planned::Submit(source) => self.submit(source),
            Planned::FirstToken(number) => {
                self.apply(Event::FirstToken { id: id(number) }, None, None)
            }
            Planned::End(number) => {
                let Request { source, used, quota, cost, .. } = self.requests[number];
                if let Some(most) = self.sources[source].idle_us {
                    let at = self.now + self.rng.range(0..=most);
                    self.put(at, Planned::Submit(source));
                }
                let release = Event::Release {
                    id: id(number),
                    tokens: Some(Tokens(used)),
                    quota: (quota != (cost, used)).then_some(Tokens(quota.1)),
                };
                self.apply(release, None, Some(number))
            }
            Planned::Event(event) => self.apply(event, None, None),
        }
    }

    /// Applies an event at the present time.
    pub(crate) fn happen(&mut self, event: Event) -> Step {
        self.apply(event, None, None)
    }

    /// Returns the requests in flight.
    pub(crate) fn in_flight(&self) -> Vec<usize> {
        let end = |planned: &Planned| match planned {
            Planned::End(number) => Some(*number),
            _ => None,
        };
        self.plan.values().filter_map(end).collect()
    }

    /// Plans an event for a later time.
    pub(crate) fn plan(&mut self, at: u64, event: Event) {
        self.put(at, Planned::Event(event));
    }

    fn put(&mut self, at: u64, planned: Planned) {
        self.planned += 1;
        self.plan.insert((at, self.planned), planned);
    }

    fn submit(&mut self, index: usize) -> Step {
        let number = self.requests.len();
        let source = &self.sources[index];
        let (input, output) = source.size.unwrap_or_else(|| source.sizes.draw(&mut self.rng));
        let used = (input + output).max(1);
        let cost = source.estimate.of(used, source.sizes);
        let name = match source.fresh {
            true => format!("{}-{number}", source.name),
            false => source.name.clone(),
        };
        let allow = source.allow[self.rng.index(source.allow.len())].clone();
        let priority = match source.priorities {
            0 => 0,
            most => {
                i64::try_from(self.rng.index(usize::try_from(most).expect("few") + 1)).expect("few")
            }
        };
        let quota = match source.quotas {
            None => (cost, used),
            Some(most) => (self.rng.range(0..=most), self.rng.range(0..=most)),
        };
        let mut submit = Submit::new(&format!("r{number}"));
        submit.attributes = Attributes::none().with(source.by, &name);
        submit.cost = Some(Tokens(cost));
        submit.input = Some(Tokens(input));
        submit.priority = priority;
        submit.allow = allow.as_ref().map(|list| list.iter().map(|name| (*name).into()).collect());
        submit.quota = source.quotas.map(|_| Tokens(quota.0));
        let request = Request {
            source: index,
            cost: cost.max(1),
            used,
            input,
            output,
            submitted_at: self.now,
            quota,
            allow,
            worker: None,
        };
        self.requests.push(request);
        self.apply(Event::Submit(Box::new(submit)), Some(number), None)
    }

    fn apply(&mut self, event: Event, submitted: Option<usize>, ended: Option<usize>) -> Step {
        let mut decisions = Vec::new();
        self.pool.apply(Micros(self.now), event, &mut decisions).expect("time goes on");
        let mut granted = Vec::new();
        for decision in decisions {
            let Decision::Grant(grant) = decision else {
                panic!("nothing here is refused: {decision:?}");
            };
            let number: usize = grant.id[1..].parse().expect("r and a number");
            self.requests[number].worker = grant.place.map(|place| place.worker);
            granted.push(number);
            let source = self.requests[number].source;
            if self.sources[source].idle_us.is_none() {
                self.to_submit.push_back(source);
            }
            self.run(number);
        }
        Step { at: self.now, submitted, ended, granted }
    }

    /// Plans the first token and the end of a granted request.
    fn run(&mut self, number: usize) {
        let Request { input, output, .. } = self.requests[number];
        let jitter = self.rng.range(80..=120);
        let (reads, writes) = (prefill_us(input) * jitter / 100, decode_us(output) * jitter / 100);
        let first_token = self.now + reads;
        if self.has_workers {
            self.put(first_token, Planned::FirstToken(number));
        }
        self.put(first_token + writes, Planned::End(number));
    }
}

fn prefill_us(input: u64) -> u64 {
    20_000 + 30 * input
}

fn decode_us(output: u64) -> u64 {
    5_000 * output
}

/// Returns the mean time in microseconds that a request of these sizes runs.
pub(crate) fn service_us((input, output): (u64, u64)) -> u64 {
    prefill_us(input) + decode_us(output)
}

pub(crate) fn policy(text: &str) -> Policy {
    parse_policy(text).unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// Builds a worker with this number of slots.
pub(crate) fn worker(name: &str, slots: u64) -> WorkerChange {
    WorkerChange { name: name.into(), slots: Some(slots), ..WorkerChange::default() }
}
