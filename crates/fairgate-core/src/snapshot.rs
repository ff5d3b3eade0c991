//! A pool's whole state as plain data.
//!
//! [`Pool::snapshot`] between any two events, then [`Pool::restore`], and the same further events give the same
//! decisions. A snapshot holds what cannot be worked out again: counters, requests with their handles, meters, and what
//! was said about flows and workers. Heads, rankings and a place's load follow from those and are built anew.
//!
//! Equal events give equal snapshots, to the byte when written, also where one of two pools was restored on the way:
//! replicas compare them.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::attribute::{Attribute, Attributes};
use crate::engine::{Engine, Limits};
use crate::event::{Pin, WorkerChange};
use crate::meter::{Counters, FlowMeter, NodeMeter};
use crate::policy::{BusyThresholds, Policy};
use crate::pool::{Entry, Pool};
use crate::rate::Rate;
use crate::requests::Handle;
use crate::tree::{Child, Discipline, Tree};
use crate::units::{Alpha, Micros, TaskWeight, Ticks, Tokens, Weight};
use crate::workers::Worker;

/// A pool at rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The time of the last event.
    pub now: Micros,
    /// How many granted requests have ended.
    pub ticks: Ticks,
    /// The seq that the next accepted submit gets.
    pub next_seq: u64,
    /// How many grants there were.
    pub grants: u64,
    /// How many requests may be in flight.
    pub capacity: u64,
    /// The policy in force.
    pub policy: Policy,
    /// How many may wait.
    pub max_queue: Option<u64>,
    /// How long a request may wait.
    pub queue_timeout: Option<Micros>,
    /// After how long a wait a grant is marked.
    pub brownout_wait: Option<Micros>,
    /// The pool's busy thresholds.
    pub busy: BusyThresholds,
    /// The flows that are held.
    pub holds: Vec<(Attribute, Box<str>)>,
    /// The weights that events have set since the policy came.
    pub weights: Vec<(Attribute, Box<str>, Weight)>,
    /// The caps that events have set since the policy came.
    pub caps: Vec<CapSnapshot>,
    /// The workers, where the pool has ever named one.
    pub workers: Option<WorkersSnapshot>,
    /// What waits and what is in flight, in seq order.
    pub requests: Vec<RequestSnapshot>,
    /// The counters of the tree.
    pub root: NodeSnapshot,
}

/// The workers of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkersSnapshot {
    /// The number that the next new worker gets.
    pub next_number: u32,
    /// The workers that are not gone, by number.
    pub list: Vec<WorkerSnapshot>,
}

/// A worker that is not gone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkerSnapshot {
    /// Its place in the order in which workers came.
    pub number: u32,
    /// All that a worker event can say of it, but for what remains.
    pub said: WorkerChange,
    /// The level of its request rate now.
    pub requests: Option<LevelSnapshot>,
    /// The level of its token rate now.
    pub tokens: Option<LevelSnapshot>,
    /// How many fillings its rates have had.
    pub epochs: u64,
}

/// The level of a rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LevelSnapshot {
    /// In units of which 60 000 000 are one request or token.
    pub level: i128,
    /// Which filling it is.
    pub epoch: u64,
}

/// A cap that an event has set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapSnapshot {
    /// The attribute that names the flow.
    pub by: Attribute,
    /// The flow's name.
    pub flow: Box<str>,
    /// How many of its requests may be in flight; any number where absent.
    pub slots: Option<u64>,
    /// How it was used so far.
    pub cap_use: CapUseSnapshot,
}

/// How a cap was used while something waited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CapUseSnapshot {
    /// Requests in flight × µs.
    pub used: u128,
    /// Cap × µs.
    pub allowed: u128,
}

/// The meter of a node; see [`crate::meter`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeMeterSnapshot {
    /// Tokens per weight that were due, in 2⁻³².
    pub volume: i128,
    /// What ended otherwise than estimated and is still to be divided, in 2⁻³² tokens.
    pub carried: i128,
    /// The largest step of any flow, in 2⁻³² tokens per weight.
    pub widest: u128,
}

/// The meter of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowMeterSnapshot {
    /// In 2⁻³² tokens.
    pub due: i128,
    /// What it keeps of that where it is not ready but something waits, in 2⁻³² tokens.
    pub floor: i128,
    /// In tokens.
    pub got: i128,
    /// How far got has risen since right before the last grant, in tokens.
    pub rise: u128,
    /// How far got is below its highest, in tokens.
    pub fall: u128,
    /// The most that either has been.
    pub worst: u128,
}

/// A request that waits or is in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestSnapshot {
    /// Its handle's number.
    pub handle: u32,
    /// Its id.
    pub id: Arc<str>,
    /// Who it belongs to.
    pub attributes: Attributes,
    /// Its place in the order of accepted submits.
    pub seq: u64,
    /// When it was submitted.
    pub at: Micros,
    /// The pool's ticks then.
    pub tick: Ticks,
    /// Its cost.
    pub cost: Tokens,
    /// Its input tokens.
    pub input: Tokens,
    /// The most of its input that was cached on an eligible worker then.
    pub cached_best: Tokens,
    /// What it takes from its worker's token rate.
    pub quota: Tokens,
    /// Its priority.
    pub priority: i64,
    /// Its weight in `load`'s depth.
    pub weight: TaskWeight,
    /// Its cached tokens by worker.
    pub cached: Vec<(Arc<str>, Tokens)>,
    /// Its pin.
    pub pin: Option<Pin>,
    /// The workers it may run on.
    pub allow: Option<Vec<Box<str>>>,
    /// The taints it requires.
    pub requires: Vec<Box<str>>,
    /// Its flight, where it was granted.
    pub flight: Option<FlightSnapshot>,
}

/// A flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlightSnapshot {
    /// When it was granted.
    pub granted_at: Micros,
    /// Its place in the order of grants.
    pub number: u64,
    /// The generations it was charged under, innermost flow first; none where its tree is gone.
    pub generations: Option<Vec<u64>>,
    /// The number of its worker and its rank.
    pub place: Option<(u32, u32)>,
    /// What is left of its prefill.
    pub prefill: Tokens,
    /// What its grant took from its worker's token rate: the filling and the units.
    pub taken: Option<(u64, i128)>,
}

/// A node's counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSnapshot {
    /// The counters of its discipline.
    pub state: NodeCounters,
    /// Its flows, by name.
    pub flows: Vec<FlowSnapshot>,
}

/// The counters of a discipline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeCounters {
    /// Deficit round robin.
    Drr {
        /// The class that the next scan begins with.
        cursor: u32,
        /// Whether the cursor stayed.
        stayed: bool,
        /// Every class.
        classes: Vec<ClassSnapshot>,
        /// The node's meter.
        meter: NodeMeterSnapshot,
    },
    /// Share score.
    Share {
        /// Virtual time.
        virtual_time: u128,
        /// How often it has risen.
        rises: u64,
        /// How many moments were numbered.
        moments: u64,
        /// The node's meter.
        meter: NodeMeterSnapshot,
    },
    /// The load function.
    Load {
        /// Alpha now.
        alpha: Alpha,
        /// The last totals of depth, oldest first.
        history: Vec<u128>,
    },
}

/// A drr class's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassSnapshot {
    /// Its unspent credit.
    pub deficit: u128,
    /// How high the deficit may be as of the last credit.
    pub reached: u128,
    /// Its meter.
    pub meter: FlowMeterSnapshot,
}

/// A flow's counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowSnapshot {
    /// Its name.
    pub name: Box<str>,
    /// Its counters where it is a flow of a share node.
    pub share: Option<ShareFlowSnapshot>,
    /// The tokens it was served, where it is a flow of a load node.
    pub load_got: Option<i128>,
    /// The node inside it, where there is one.
    pub inside: Option<Box<NodeSnapshot>>,
}

/// The counters of a share flow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShareFlowSnapshot {
    /// Where its score started.
    pub base: u128,
    /// Tokens of its ended requests.
    pub served: u128,
    /// Costs of its requests in flight.
    pub pending: u128,
    /// How often it started anew.
    pub generation: u64,
    /// When it was last granted something or started as new.
    pub moment: u64,
    /// Whether it has had no grant since it started at or below virtual time.
    pub new: bool,
    /// Virtual time when it stopped being ready.
    pub stopped: Option<u128>,
    /// What its bound has reached: how far its score fell, since which rise, and how far it ran ahead.
    pub bound: (u128, u64, u128),
    /// Its meter.
    pub meter: FlowMeterSnapshot,
    /// How the policy's cap was used.
    pub cap_use: CapUseSnapshot,
}

impl Pool {
    /// The pool's whole state.
    pub fn snapshot(&self) -> Snapshot {
        let engine = &self.engine;
        let Limits { max_queue, queue_timeout, brownout_wait, busy } = engine.limits;
        let said = engine.tree.names.said();
        let named = || said.iter().map(|((by, text), name)| (*by, Box::from(&**text), *name));
        let mut requests = engine.requests.handles_in_flight();
        requests.extend(engine.requests.waiting_handles());
        requests.sort_unstable_by_key(|handle| engine.requests.get(*handle).seq);
        let entry = |handle: Handle| Some((handle, self.book.get(handle)?));
        Snapshot {
            now: engine.now,
            ticks: engine.ticks,
            next_seq: engine.next_seq,
            grants: engine.grants,
            capacity: engine.capacity,
            policy: engine.policy.clone(),
            max_queue,
            queue_timeout,
            brownout_wait,
            busy,
            holds: named().filter(|n| n.2.said.held).map(|(by, flow, _)| (by, flow)).collect(),
            weights: named()
                .filter_map(|(by, flow, name)| Some((by, flow, name.said.weight?)))
                .collect(),
            caps: named()
                .filter_map(|(by, flow, name)| {
                    let slots = name.said.cap?;
                    let (used, allowed) = name.cap_meter.read(engine.now);
                    let cap_use = CapUseSnapshot { used, allowed };
                    Some(CapSnapshot { by, flow, slots, cap_use })
                })
                .collect(),
            workers: engine.workers.named.then(|| engine.snapshot_workers()),
            requests: requests
                .into_iter()
                .filter_map(entry)
                .map(|(handle, entry)| engine.snapshot_request(handle, entry))
                .collect(),
            root: engine.snapshot_node(crate::tree::ROOT),
        }
    }
}

impl Engine {
    fn snapshot_workers(&self) -> WorkersSnapshot {
        let level = |rate: &Option<Rate>, worker: &Worker| {
            let mut rate = (*rate)?;
            rate.advance(self.now, worker.burst);
            Some(LevelSnapshot { level: rate.level, epoch: rate.epoch })
        };
        let per_minute = |rate: &Option<Rate>| Some(rate.as_ref().map(|rate| rate.per_minute));
        let list = self.workers.list.iter().map(|(number, worker)| WorkerSnapshot {
            number: *number,
            said: WorkerChange {
                name: (*worker.name).into(),
                state: Some(worker.state),
                ranks: Some(worker.ranks),
                slots: worker.slots,
                taints: Some(worker.taints.iter().cloned().collect()),
                batch_tokens: worker.batch,
                tier: Some(worker.tier),
                requests_per_minute: per_minute(&worker.requests),
                tokens_per_minute: per_minute(&worker.tokens),
                burst_seconds: Some(worker.burst),
                requests_remaining: None,
                tokens_remaining: None,
                pause_until: Some(worker.pause_until),
            },
            requests: level(&worker.requests, worker),
            tokens: level(&worker.tokens, worker),
            epochs: worker.epochs,
        });
        WorkersSnapshot { next_number: self.workers.next_number, list: list.collect() }
    }

    fn snapshot_request(&self, handle: Handle, entry: &Entry) -> RequestSnapshot {
        let request = self.requests.get(handle);
        let want = self.workers.want(request.want);
        RequestSnapshot {
            handle: handle.0,
            id: entry.id.clone(),
            attributes: entry.attributes.clone(),
            seq: request.seq.0,
            at: request.at,
            tick: request.tick,
            cost: request.cost,
            input: request.input,
            cached_best: request.cached_best,
            quota: request.quota,
            priority: request.priority,
            weight: request.weight,
            cached: request.cached.as_deref().cloned().unwrap_or_default(),
            pin: want.pin.clone(),
            allow: want.allow.clone(),
            requires: want.requires.clone(),
            flight: self.requests.flight(handle).map(|flight| FlightSnapshot {
                granted_at: flight.granted_at,
                number: flight.number,
                generations: flight.charged.then(|| flight.generations.clone()),
                place: flight.place.map(|place| (place.worker, place.rank)),
                prefill: flight.prefill,
                taken: flight.taken.map(|taken| (taken.epoch, taken.units)),
            }),
        }
    }

    fn snapshot_node(&self, node: u32) -> NodeSnapshot {
        let state = &self.tree.nodes[node as usize];
        let counters = match &state.discipline {
            Discipline::Drr(drr) => NodeCounters::Drr {
                cursor: drr.cursor,
                stayed: drr.stayed,
                classes: (0..)
                    .zip(&drr.classes)
                    .map(|(class, state)| ClassSnapshot {
                        deficit: drr.deficit(class),
                        reached: drr.reached(class),
                        meter: flow_meter(&state.meter, &drr.meter, state.quantum),
                    })
                    .collect(),
                meter: node_meter(&drr.meter),
            },
            Discipline::Share(share) => NodeCounters::Share {
                virtual_time: share.virtual_time,
                rises: share.rises,
                moments: share.moments,
                meter: node_meter(&share.meter),
            },
            Discipline::Load(load) => {
                NodeCounters::Load { alpha: load.alpha(), history: load.history.clone() }
            }
        };
        let flows = state.flows.values().map(|flow| self.snapshot_flow(*flow)).collect();
        NodeSnapshot { state: counters, flows }
    }

    fn snapshot_flow(&self, flow: u32) -> FlowSnapshot {
        let tree: &Tree = &self.tree;
        let flow = &tree.flows[flow as usize];
        let mut share_flow = None;
        let mut load_got = None;
        match &tree.nodes[flow.node as usize].discipline {
            Discipline::Share(share) => {
                let state = &share.flows[flow.local as usize];
                let bound = share.bound_now(flow.local);
                // Nothing in the pool has an open place, which the flows need not have been told.
                let blocked = self.workers.all_blocked() && flow.waiting > 0;
                let (used, allowed) = state.cap_meter.read(self.now);
                share_flow = Some(ShareFlowSnapshot {
                    base: state.base,
                    served: state.served,
                    pending: state.pending,
                    generation: state.generation,
                    moment: state.moment,
                    new: state.new,
                    stopped: state.stopped.or(blocked.then_some(share.virtual_time)),
                    bound: (bound.fallen, bound.rise, bound.ended),
                    meter: flow_meter(&state.meter, &share.meter, state.weight),
                    cap_use: CapUseSnapshot { used, allowed },
                });
            }
            Discipline::Load(load) => load_got = Some(load.flows[flow.local as usize].got),
            Discipline::Drr(_) => {}
        }
        let inside = match flow.child {
            Child::Node(node) => Some(Box::new(self.snapshot_node(node))),
            Child::Queue(_) => None,
        };
        FlowSnapshot { name: (*flow.name).into(), share: share_flow, load_got, inside }
    }
}

fn node_meter(meter: &NodeMeter) -> NodeMeterSnapshot {
    NodeMeterSnapshot { volume: meter.volume, carried: meter.carried, widest: meter.widest }
}

fn flow_meter(meter: &FlowMeter, node: &NodeMeter, weight: Weight) -> FlowMeterSnapshot {
    let Counters { due, floor, got, rise, fall, worst } = meter.counters(node, weight);
    let [rise, fall, worst] = [rise, fall, worst].map(u128::from);
    FlowMeterSnapshot { due, floor, got, rise, fall, worst }
}
