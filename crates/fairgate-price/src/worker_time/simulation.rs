//! Simulations in virtual time, with tenants, the real scheduler, meters, and engines whose prices are known.
//!
//! The scheduler gets what a gateway would give it: estimates at the mean prices of the workers, and settlements at the
//! prices of the worker that served the request. The prices are those that apply at the grant, or at the end if the
//! prices at the grant were a guess. No weights of tokens are configured. The tests check each tenant's share of the
//! engines' own time, which the meters never see.

mod adversaries;
mod calibration;
mod changes;
mod engine;
mod many_engines;
mod ordinary;
mod tenants;

use core::time::Duration;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::format;
use std::vec;
use std::vec::Vec;

use fairgate_core::Pool;
use fairgate_core::attribute::{Attribute, Attributes};
use fairgate_core::decision::Decision;
use fairgate_core::event::{Event, PoolConfig, Submit, WorkerChange};
use fairgate_core::policy::{Policy, PolicyNode, SharePolicy};
use fairgate_core::units::{Micros, Tokens, Weight};
use fairgate_random::SeededRng;

use self::engine::{EnginePrices, SimulatedEngine};
use self::tenants::{SimulatedTenant, TenantConduct};
use super::meter::{GrantedRequest, WorkerTimeMeter};
use super::running_requests::MeteredRequest;
use super::work_sources::WorkSource;
use super::{RequestWork, WorkerPriceSet, WorkerPrices};

/// Time between the chunks of one burst.
const BURST_GAP_US: u64 = 10;

/// Time after which the gateway reads an answer further for a client that reads too slowly.
const READ_AHEAD_US: u64 = 25_000;

/// A request of the simulation.
struct SimulatedRequest {
    tenant: usize,
    work: RequestWork,
    worker: usize,
    metered: Option<MeteredRequest>,
    granted_us: u64,
    price_set: WorkerPriceSet,
    /// Number of tokens that the client has got.
    delivered: u64,
    /// Number of tokens that the engine has made.
    made: u64,
    /// Time of the last chunk that the client has read.
    read_us: u64,
    has_ended: bool,
}

/// An event of the simulation, which happens at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SimulatedEvent {
    /// The engine's present pass ends.
    PassEnds(usize),
    /// A chunk of a client that reads slowly is read.
    ChunkRead(usize),
    /// A client that reads slowly has read its whole answer.
    AnswerRead(usize),
}

/// A worker of the simulation.
struct SimulatedWorker {
    engine: SimulatedEngine,
    meter: WorkerTimeMeter,
    slots: u64,
}

/// Tenants, scheduler, meters and engines.
struct WorkerSimulation {
    rng: SeededRng,
    now_us: u64,
    pool: Pool,
    workers: Vec<SimulatedWorker>,
    tenants: Vec<SimulatedTenant>,
    requests: Vec<SimulatedRequest>,
    happenings: BinaryHeap<Reverse<(u64, u64, SimulatedEvent)>>,
    order: u64,
    /// Milliseconds of the engines' time, by tenant and second.
    spent: Vec<Vec<f64>>,
    /// Charged microseconds since the last reset, by tenant.
    charged: Vec<u64>,
    /// Number of ended requests since the last reset, by tenant.
    ended: Vec<u64>,
}

impl WorkerSimulation {
    fn new(seed: u64, engines: &[(EnginePrices, u64)], tenants: &[SimulatedTenant]) -> Self {
        Self::with_start_ratios(seed, engines, tenants, [1.0; 7])
    }

    fn with_start_ratios(
        seed: u64,
        engines: &[(EnginePrices, u64)],
        tenants: &[SimulatedTenant],
        ratio_factors: [f64; 7],
    ) -> Self {
        let mut share = SharePolicy::new(Attribute::Tenant);
        for (i, tenant) in tenants.iter().enumerate() {
            share.weights.insert(format!("{i}").into(), Weight::new(tenant.weight).unwrap());
        }
        let capacity = engines.iter().map(|(_, slots)| slots).sum();
        let mut config = PoolConfig::new(capacity, Policy::new(PolicyNode::Share(share)).unwrap());
        for (i, (_, slots)) in engines.iter().enumerate() {
            config.workers.push(worker_change(i, *slots));
        }
        let worker = |(prices, slots): &(EnginePrices, u64)| SimulatedWorker {
            engine: SimulatedEngine::new(*prices),
            meter: WorkerTimeMeter::with_start_ratios(*slots as u32, ratio_factors),
            slots: *slots,
        };
        let mut simulation = Self {
            rng: SeededRng::new(seed),
            now_us: 0,
            pool: Pool::new(config),
            workers: engines.iter().map(worker).collect(),
            tenants: tenants.to_vec(),
            requests: Vec::new(),
            happenings: BinaryHeap::new(),
            order: 0,
            spent: vec![Vec::new(); tenants.len()],
            charged: vec![0; tenants.len()],
            ended: vec![0; tenants.len()],
        };
        for tenant in 0..tenants.len() {
            simulation.fill_queue(tenant);
        }
        simulation
    }

    /// Runs the simulation up to this second.
    fn run_to(&mut self, second: u64) {
        while let Some(Reverse((at, _, _))) = self.happenings.peek() {
            if *at > second * 1_000_000 {
                break;
            }
            let Some(Reverse((at, _, happening))) = self.happenings.pop() else { break };
            self.now_us = self.now_us.max(at);
            match happening {
                SimulatedEvent::PassEnds(worker) => self.end_pass(worker),
                SimulatedEvent::ChunkRead(request) => self.read_chunk(request),
                SimulatedEvent::AnswerRead(request) => self.end_request(request),
            }
        }
        self.now_us = self.now_us.max(second * 1_000_000);
    }

    /// Changes how many requests of a tenant are queued or in flight at once.
    fn set_clients(&mut self, tenant: usize, clients: usize) {
        self.tenants[tenant].clients = clients;
        self.fill_queue(tenant);
    }

    /// Changes the slots of a worker.
    fn set_slots(&mut self, worker: usize, slots: u64) {
        self.workers[worker].slots = slots;
        self.workers[worker].meter.set_slots(self.now_us, slots as u32);
        let capacity = self.workers.iter().map(|worker| worker.slots).sum();
        self.apply(Event::Worker(worker_change(worker, slots)));
        self.apply(Event::Capacity { slots: capacity });
    }

    /// Returns a tenant's share of the engines' time between two seconds.
    fn share(&self, tenant: usize, from: usize, to: usize) -> f64 {
        let sum = |tenant: usize| self.spent[tenant].iter().take(to).skip(from).sum::<f64>();
        let all: f64 = (0..self.tenants.len()).map(sum).sum();
        sum(tenant) / all
    }

    /// Returns the worst relative error of a tenant's share between two seconds, in percent of what the tenant is due
    /// by its weight.
    fn worst_error(&self, from: usize, to: usize) -> f64 {
        let weights: u64 = self.tenants.iter().map(|tenant| tenant.weight).sum();
        let error = |i: usize| {
            let due = self.tenants[i].weight as f64 / weights as f64;
            100.0 * (self.share(i, from, to) / due - 1.0)
        };
        let worse = |worst: f64, error: f64| if error.abs() > worst.abs() { error } else { worst };
        (0..self.tenants.len()).map(error).fold(0.0, worse)
    }

    /// Returns the worst error in percent over all windows of this many seconds.
    fn worst_window(&self, from: usize, to: usize, length: usize) -> f64 {
        let worse = |worst: f64, error: f64| if error.abs() > worst.abs() { error } else { worst };
        let starts = (from..=to - length).step_by(length / 2);
        starts.map(|start| self.worst_error(start, start + length)).fold(0.0, worse)
    }

    fn fill_queue(&mut self, tenant: usize) {
        while self.tenants[tenant].open < self.tenants[tenant].clients {
            self.submit(tenant);
        }
    }

    fn submit(&mut self, tenant: usize) {
        let work = self.tenants[tenant].next_request(&mut self.rng);
        self.tenants[tenant].open += 1;
        let prices: Vec<(WorkerPrices, u64)> = (self.workers.iter())
            .map(|worker| (worker.meter.price_set().prices, worker.slots))
            .collect();
        let expected = self.tenants[tenant].expected(work);
        let cost = WorkerPrices::mean(&prices).unwrap().cost(expected);
        let mut submit = Submit::new(&format!("{}", self.requests.len()));
        submit.attributes = Attributes::none().with(Attribute::Tenant, &format!("{tenant}"));
        submit.cost = Some(Tokens(cost));
        submit.input = Some(Tokens(work.input));
        submit.quota = Some(Tokens(work.input + work.output));
        self.requests.push(SimulatedRequest {
            tenant,
            work,
            worker: 0,
            metered: None,
            granted_us: 0,
            price_set: *self.workers[0].meter.price_set(),
            delivered: 0,
            made: 0,
            read_us: 0,
            has_ended: false,
        });
        self.apply(Event::Submit(submit.into()));
    }

    fn apply(&mut self, event: Event) {
        let mut decisions: Vec<Decision> = Vec::new();
        self.pool.apply(Micros(self.now_us), event, &mut decisions).unwrap();
        for decision in decisions {
            let Decision::Grant(grant) = decision else { panic!("{decision:?}") };
            let worker = grant.place.unwrap().worker.parse().unwrap();
            self.grant(grant.id.parse().unwrap(), worker);
        }
    }

    fn grant(&mut self, number: usize, worker: usize) {
        let now_us = self.now_us;
        let SimulatedWorker { engine, meter, .. } = &mut self.workers[worker];
        let request = &mut self.requests[number];
        let tenant = &self.tenants[request.tenant];
        let granted = GrantedRequest {
            source: WorkSource(request.tenant as u64),
            expected: tenant.expected(request.work),
            streams: tenant.streams(number),
        };
        request.worker = worker;
        request.metered = meter.granted(now_us, granted);
        request.granted_us = now_us;
        request.price_set = *meter.price_set();
        if engine.arrive(now_us, number, request.tenant, request.work) {
            self.start_pass(worker, now_us);
        }
    }

    fn start_pass(&mut self, worker: usize, at_us: u64) {
        if let Some(end_us) = self.workers[worker].engine.start_pass(at_us, &mut self.rng) {
            self.order += 1;
            self.happenings.push(Reverse((end_us, self.order, SimulatedEvent::PassEnds(worker))));
        }
    }

    /// Sends the chunks of a pass, and starts the next one.
    fn end_pass(&mut self, worker: usize) {
        let ended_us = self.now_us;
        let mut burst = core::mem::take(&mut self.workers[worker].engine.burst);
        for i in (1..burst.len()).rev() {
            burst.swap(i, self.rng.index(i + 1));
        }
        let second = (ended_us / 1_000_000) as usize;
        for (tenant, spent) in self.workers[worker].engine.spent.drain(..) {
            let seconds = &mut self.spent[tenant];
            if seconds.len() <= second {
                seconds.resize(second + 1, 0.0);
            }
            seconds[second] += spent;
        }
        // A request that arrives during the burst is read in a later pass.
        self.start_pass(worker, ended_us);
        for token in burst.drain(..) {
            self.now_us += BURST_GAP_US;
            self.make_token(token.request, token.is_last);
        }
        self.now_us = self.now_us.max(ended_us);
        let engine = &mut self.workers[worker].engine;
        if engine.burst.is_empty() {
            engine.burst = burst;
        }
        if engine.is_idle() {
            self.start_pass(worker, self.now_us);
        }
    }

    /// Sends a token to its client if a chunk is full, and ends the request after the last one.
    fn make_token(&mut self, number: usize, is_last: bool) {
        let request = &mut self.requests[number];
        if request.has_ended {
            return;
        }
        request.made += 1;
        let tenant = &self.tenants[request.tenant];
        let is_chunk =
            request.made == 1 || is_last || request.made.is_multiple_of(tenant.chunk_tokens);
        if let TenantConduct::ReadsSlowly { gap_us } = tenant.conduct {
            // The gateway reads ahead for a client that is behind.
            request.read_us =
                self.now_us.max(request.read_us + gap_us).min(self.now_us + READ_AHEAD_US);
            let at = request.read_us;
            self.order += 1;
            self.happenings.push(Reverse((at, self.order, SimulatedEvent::ChunkRead(number))));
            if is_last {
                self.order += 1;
                self.happenings.push(Reverse((at, self.order, SimulatedEvent::AnswerRead(number))));
            }
            return;
        }
        if is_chunk {
            self.read_chunk(number);
        }
        if is_last {
            self.end_request(number);
        }
    }

    fn read_chunk(&mut self, number: usize) {
        let request = &mut self.requests[number];
        if request.has_ended {
            return;
        }
        request.delivered = request.made;
        let tenant = &self.tenants[request.tenant];
        if let Some(metered) = request.metered.filter(|_| tenant.streams(number)) {
            self.workers[request.worker].meter.chunk(self.now_us, metered);
        }
        if tenant.conduct.leaves(request.delivered, request.work.output) {
            self.workers[request.worker].engine.leave(number);
            self.end_request(number);
        }
    }

    fn end_request(&mut self, number: usize) {
        let request = &mut self.requests[number];
        if request.has_ended {
            return;
        }
        request.has_ended = true;
        let tenant = request.tenant;
        let is_complete = request.made == request.work.output;
        let work = RequestWork { output: request.made, ..request.work };
        let now = self.workers[request.worker].meter.price_set();
        let set = if request.price_set.is_guess { now } else { &request.price_set };
        let WorkerPriceSet { prices, batch, .. } = *set;
        let held = Duration::from_micros(self.now_us - request.granted_us);
        let mut cost = prices.cost(work);
        if !is_complete {
            cost = cost.max(batch.slot_cost(held));
        }
        if let Some(metered) = request.metered {
            self.workers[request.worker].meter.ended(self.now_us, metered, Some(work));
        }
        self.charged[tenant] += cost;
        self.ended[tenant] += 1;
        self.tenants[tenant].open -= 1;
        let release = Event::Release {
            id: format!("{number}").into(),
            tokens: Some(Tokens(cost)),
            quota: Some(Tokens(work.input + work.output)),
        };
        self.apply(release);
        self.fill_queue(tenant);
    }
}

/// The seeds of all simulations: `FAIRGATE_SEED` alone, or 1 to `FAIRGATE_SEEDS`, or 1.
fn seeds() -> core::ops::RangeInclusive<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    match number("FAIRGATE_SEED") {
        Some(seed) => seed..=seed,
        None => 1..=number("FAIRGATE_SEEDS").unwrap_or(1),
    }
}

fn worker_change(worker: usize, slots: u64) -> WorkerChange {
    WorkerChange { name: format!("{worker}").into(), slots: Some(slots), ..WorkerChange::default() }
}
