//! A pool's whole state as plain data.
//!
//! Call [`Pool::snapshot`] between any two events, and [`Pool::restore`] with the result. Both pools then give equal
//! decisions for equal further events. A snapshot holds everything that cannot be computed again: counters, requests
//! with their handles, meters, and the settings that events gave to flows and workers. Heads, rankings and the load of
//! each worker follow from these values, so restoring computes them.
//!
//! Equal events give equal snapshots, byte for byte when written. This holds even if one of two pools was restored in
//! between, so that replicas can compare their snapshots.
//!
//! A snapshot holds the timeout of each request and not its deadline: the sum of two 64-bit times may need 65 bits, and
//! journals have no wider numbers. The core compares deadlines in 128 bits.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::attribute::{Attribute, Attributes};
use crate::engine::{PoolEngine, PoolLimits};
use crate::event::{Pin, WorkerChange};
use crate::meter::{FlowMeter, FlowMeterCounters, NodeMeter};
use crate::policy::{BusyThresholds, Policy};
use crate::pool::{Pool, RequestEntry};
use crate::rate::WorkerRate;
use crate::requests::RequestHandle;
use crate::tree::{Discipline, FlowChild, PolicyTree};
use crate::units::{Alpha, Micros, OverlapCredit, TaskWeight, Ticks, Tokens, Weight};
use crate::workers::WorkerRecord;

/// The state of a pool between two events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Time of the last event.
    pub now: Micros,
    /// Number of granted requests that have ended.
    pub ticks: Ticks,
    /// The seq that the next accepted submit will get.
    pub next_seq: u64,
    /// Number of grants so far.
    pub grants: u64,
    /// Greatest number of requests in flight at once.
    pub capacity: u64,
    /// The policy that the pool uses now.
    pub policy: Policy,
    /// Greatest number of requests that may wait; no limit if absent.
    pub max_queue: Option<u64>,
    /// Longest time a request may wait; no limit if absent.
    pub queue_timeout: Option<Micros>,
    /// Wait above which a grant is marked with `brownout`; no grant is marked if absent.
    pub brownout_wait: Option<Micros>,
    /// The pool's busy thresholds, for classes that state none of their own.
    pub busy: BusyThresholds,
    /// Number of waiting tokens that one cached token counts for when a worker is chosen.
    pub overlap_credit: OverlapCredit,
    /// The flows that are held, by attribute and name.
    pub holds: Vec<(Attribute, Box<str>)>,
    /// The weights that events have set since the policy was last replaced, by attribute and flow name.
    pub weights: Vec<(Attribute, Box<str>, Weight)>,
    /// The caps that events have set since the policy was last replaced, with their use so far.
    pub caps: Vec<CapSnapshot>,
    /// The workers; `None` if the pool has never had one.
    pub workers: Option<WorkersSnapshot>,
    /// The requests that wait or are in flight, in the order of their `seq`.
    pub requests: Vec<RequestSnapshot>,
    /// The counters of the root node of the policy tree, and of all nodes inside it.
    pub root: NodeSnapshot,
}

/// The workers of a pool in a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkersSnapshot {
    /// The number that the next new worker will get.
    pub next_number: u32,
    /// The workers that are not gone, in the order of their numbers.
    pub list: Vec<WorkerSnapshot>,
}

/// A worker that is not gone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkerSnapshot {
    /// Number of the worker, in the order in which workers were added.
    pub number: u32,
    /// The worker's settings, as one event would state them. `requests_remaining` and `tokens_remaining` are absent.
    pub settings: WorkerChange,
    /// Present level of the worker's request rate; `None` if the worker has no request rate.
    pub requests: Option<RateLevelSnapshot>,
    /// Present level of the worker's token rate; `None` if the worker has no token rate.
    pub tokens: Option<RateLevelSnapshot>,
    /// Number of times that the level of one of the worker's rates was set, by a new rate or by a stated remaining
    /// amount.
    pub epochs: u64,
    /// For each rank, the sequence number of its last grant plus 1, or 0 if the rank never had a grant. Sequence
    /// numbers count the grants of the pool from 0. Ranks that the list leaves out at its end never had a grant.
    pub last_grants: Vec<u64>,
}

/// The level of one of a worker's rates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateLevelSnapshot {
    /// Units that are available; below 0 is debt. 60 000 000 units are one request or one token.
    pub level: i128,
    /// Value of [`WorkerSnapshot::epochs`] when the level was last set. Amounts that were taken before that moment are
    /// no longer corrected.
    pub epoch: u64,
}

/// A cap that an event has set for a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapSnapshot {
    /// The attribute by whose value the flow is named.
    pub by: Attribute,
    /// Name of the capped flow.
    pub flow: Box<str>,
    /// Greatest number of the flow's requests in flight; no cap if absent.
    pub slots: Option<u64>,
    /// Use of the cap so far.
    pub cap_use: CapUseSnapshot,
}

/// Use of a cap, over the time in which a request waited in a flow to which the cap applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CapUseSnapshot {
    /// Number of requests in flight × microseconds, summed over the time in which a request waited.
    pub used: u128,
    /// Cap × microseconds, summed over the time in which a request waited.
    pub allowed: u128,
}

/// The meter of a node; see [`crate::meter`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeMeterSnapshot {
    /// The volume M: service that was due per unit of weight since the node began, in 2⁻³² tokens per weight.
    pub volume: i128,
    /// Sum of usage − cost over the ended requests, as far as no later grant has divided it among the flows, in 2⁻³²
    /// tokens.
    pub carried: i128,
    /// The largest `worst` ÷ weight that a flow of the node has ever had, in 2⁻³² tokens per weight.
    pub widest: u128,
}

/// The meter of a flow; see [`crate::meter`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowMeterSnapshot {
    /// Service that the flow was due so far, in 2⁻³² tokens.
    pub due: i128,
    /// Part of `due`, in 2⁻³² tokens, that the flow keeps while it is not ready although a request waits in it.
    pub floor: i128,
    /// Tokens that the flow was served. A grant counts at its cost, which is corrected to the real usage when the
    /// request ends.
    pub got: i128,
    /// Tokens that the last grant and later corrections have added to `got`, at least 0. In a drr node the quantum is
    /// included.
    pub rise: u128,
    /// Tokens by which `got` is below its highest value so far.
    pub fall: u128,
    /// The largest value that `rise` or `fall` has ever had, in tokens.
    pub worst: u128,
}

/// A request that waits or is in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestSnapshot {
    /// Number of the request's handle.
    pub handle: u32,
    /// Id of the request, as submitted.
    pub id: Arc<str>,
    /// The attributes by which the policy finds the request's flows.
    pub attributes: Attributes,
    /// Position of the request in the order of accepted submits.
    pub seq: u64,
    /// Time of the submit.
    pub at: Micros,
    /// The pool's tick count when the request was submitted.
    pub tick: Ticks,
    /// Tokens that the request is charged at its grant; 1 or more.
    pub cost: Tokens,
    /// Input tokens, cached ones included.
    pub input: Tokens,
    /// The greatest number of the request's input tokens that were cached on one eligible worker at the submit.
    pub cached_best: Tokens,
    /// Tokens that the request takes from its worker's token rate.
    pub quota: Tokens,
    /// Priority of the request; within its queue, a request with a higher priority goes first.
    pub priority: i64,
    /// Longest time the request may wait, also kept after its grant; no limit if absent.
    pub timeout: Option<Micros>,
    /// Weight of the request in the queue depth of a `load` node.
    pub weight: TaskWeight,
    /// Number of the request's input tokens that each worker has cached.
    pub cached: Vec<(Arc<str>, Tokens)>,
    /// The worker on which the request must run; `None` if the request is not pinned.
    pub pin: Option<Pin>,
    /// The workers that may run the request; all workers if absent.
    pub allow: Option<Vec<Box<str>>>,
    /// The taints that a worker must have to run the request.
    pub requires: Vec<Box<str>>,
    /// Data of the request's grant; `None` while the request waits.
    pub flight: Option<InFlightSnapshot>,
}

/// The data of a request in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InFlightSnapshot {
    /// Time of the grant.
    pub granted_at: Micros,
    /// Sequence number of the grant among all grants of the pool, counted from 0.
    pub number: u64,
    /// The generations of the flows under which the request was charged, innermost flow first; `None` if the policy
    /// tree that charged the request has been replaced.
    pub generations: Option<Vec<u64>>,
    /// Number of the worker that runs the request, and the rank; `None` if the pool has no workers.
    pub place: Option<(u32, u32)>,
    /// Prefill tokens of the request that its rank still counts as load.
    pub prefill: Tokens,
    /// Amount that the grant took from the worker's token rate, as the epoch of the rate's level and the number of
    /// units; `None` if the worker has no token rate.
    pub taken: Option<(u64, i128)>,
}

/// The counters of a node and of its flows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSnapshot {
    /// The counters of the node's discipline.
    pub state: NodeCounters,
    /// The node's flows, sorted by name.
    pub flows: Vec<FlowSnapshot>,
}

/// The counters of a node's discipline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeCounters {
    /// Counters of a deficit round robin node.
    Drr {
        /// Index of the class with which the next scan of the ring begins.
        cursor: u32,
        /// True if the cursor stayed on the class, because the class has not finished its turn.
        stayed: bool,
        /// Counters of every class, in ring order.
        classes: Vec<DrrClassSnapshot>,
        /// The meter of the drr node.
        meter: NodeMeterSnapshot,
    },
    /// Counters of a share node.
    Share {
        /// Virtual time, in 2⁻³² tokens per weight.
        virtual_time: u128,
        /// Number of times that virtual time has risen. The flows' `bound` refers to this count.
        rises: u64,
        /// The last moment given out. Moments number the grants and starts within the node in order, from 1.
        moments: u64,
        /// The meter of the share node.
        meter: NodeMeterSnapshot,
    },
    /// Counters of a load node.
    Load {
        /// The node's present trade-off between depth and age.
        alpha: Alpha,
        /// The last totals of the queue depth over all flows, in thousandths, oldest first.
        history: Vec<u128>,
    },
    /// A strict priority node, which has no counters.
    Bands,
}

/// The counters of a class in a drr node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DrrClassSnapshot {
    /// Unspent credit, in tokens.
    pub deficit: u128,
    /// Upper bound uᵢ of the deficit, in tokens; see the section "The bound" of [`crate::drr`].
    pub reached: u128,
    /// The meter of the class.
    pub meter: FlowMeterSnapshot,
}

/// The counters of a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowSnapshot {
    /// Name of the flow; unique within its node.
    pub name: Box<str>,
    /// Counters of a flow of a share node; `None` in other nodes.
    pub share: Option<ShareFlowSnapshot>,
    /// Tokens that a flow of a load node was served; `None` in other nodes.
    pub load_got: Option<i128>,
    /// Meters of a class of a bands node; `None` in other nodes.
    pub band: Option<BandSnapshot>,
    /// The counters of the node inside the flow; `None` if a queue is inside.
    pub inside: Option<Box<NodeSnapshot>>,
}

/// The counters of a flow in a share node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShareFlowSnapshot {
    /// The score at which the flow's present generation started, in 2⁻³² tokens per weight.
    pub base: u128,
    /// Tokens of the flow's requests that ended in the present generation. Of a request granted in an earlier
    /// generation, only the tokens beyond its cost count.
    pub served: u128,
    /// Summed costs of the flow's requests in flight in the present generation, in tokens.
    pub pending: u128,
    /// Number of times that the flow was reset to virtual time.
    pub generation: u64,
    /// The moment of the flow's last grant, or of the flow's start as new.
    pub moment: u64,
    /// True if the flow's score was at or below virtual time when it started to wait, and it has had no grant since.
    pub new: bool,
    /// Virtual time when the flow stopped being ready; `None` while the flow is ready or idle.
    pub stopped: Option<u128>,
    /// State of the bound on the flow's lag: `fallen`, the count of `rises` for which `fallen` is valid, and `ended`.
    /// See the section "The bound" of [`crate::share`].
    pub bound: (u128, u64, u128),
    /// The meter of the flow.
    pub meter: FlowMeterSnapshot,
    /// Use of the cap that the policy gives the flow.
    pub cap_use: CapUseSnapshot,
}

/// The meters of a class of a bands node; no decision depends on them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BandSnapshot {
    /// Tokens that the class was served.
    pub got: i128,
    /// Use of the cap that the policy gives the class.
    pub cap_use: CapUseSnapshot,
}

impl Pool {
    /// Returns the pool's whole state.
    pub fn snapshot(&self) -> Snapshot {
        let mut requests = self.engine.requests.handles_in_flight();
        requests.extend(self.engine.requests.waiting_handles());
        self.snapshot_with(requests)
    }

    /// Returns the pool's state without the requests that wait, so that its size does not depend on the length of the
    /// queues. A pool cannot be restored from this snapshot.
    pub fn snapshot_without_queues(&self) -> Snapshot {
        self.snapshot_with(self.engine.requests.handles_in_flight())
    }

    fn snapshot_with(&self, mut requests: Vec<RequestHandle>) -> Snapshot {
        let engine = &self.engine;
        let PoolLimits { max_queue, queue_timeout, brownout_wait, busy, overlap_credit } =
            engine.limits;
        let directives = engine.tree.names.with_directives();
        let named = || directives.iter().map(|((by, text), name)| (*by, Box::from(&**text), *name));
        requests.sort_unstable_by_key(|handle| engine.requests.get(*handle).seq);
        let entry = |handle: RequestHandle| Some((handle, self.request_ids.get(handle)?));
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
            overlap_credit,
            holds: named().filter(|n| n.2.directive.held).map(|(by, flow, _)| (by, flow)).collect(),
            weights: named()
                .filter_map(|(by, flow, name)| Some((by, flow, name.directive.weight?)))
                .collect(),
            caps: named()
                .filter_map(|(by, flow, name)| {
                    let slots = name.directive.cap?;
                    let (used, allowed) = name.cap_meter.read(engine.now);
                    let cap_use = CapUseSnapshot { used, allowed };
                    Some(CapSnapshot { by, flow, slots, cap_use })
                })
                .collect(),
            workers: engine.workers.has_workers.then(|| engine.snapshot_workers()),
            requests: requests
                .into_iter()
                .filter_map(entry)
                .map(|(handle, entry)| engine.snapshot_request(handle, entry))
                .collect(),
            root: engine.snapshot_node(crate::tree::ROOT),
        }
    }
}

impl PoolEngine {
    fn snapshot_workers(&self) -> WorkersSnapshot {
        let level = |rate: &Option<WorkerRate>, worker: &WorkerRecord| {
            let mut rate = (*rate)?;
            rate.advance(self.now, worker.burst);
            Some(RateLevelSnapshot { level: rate.level, epoch: rate.epoch })
        };
        let per_minute =
            |rate: &Option<WorkerRate>| Some(rate.as_ref().map(|rate| rate.per_minute));
        let list = self.workers.list.iter().map(|(number, worker)| WorkerSnapshot {
            number: *number,
            settings: WorkerChange {
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
            last_grants: worker.last_grants(),
        });
        WorkersSnapshot { next_number: self.workers.next_number, list: list.collect() }
    }

    fn snapshot_request(&self, handle: RequestHandle, entry: &RequestEntry) -> RequestSnapshot {
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
            timeout: request.timeout,
            weight: request.weight,
            cached: request.cached.as_deref().cloned().unwrap_or_default(),
            pin: want.pin.clone(),
            allow: want.allow.clone(),
            requires: want.requires.clone(),
            flight: self.requests.flight(handle).map(|flight| InFlightSnapshot {
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
                    .map(|(class, state)| DrrClassSnapshot {
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
            Discipline::Bands(_) => NodeCounters::Bands,
        };
        let flows = state.flows.values().map(|flow| self.snapshot_flow(*flow)).collect();
        NodeSnapshot { state: counters, flows }
    }

    fn snapshot_flow(&self, flow: u32) -> FlowSnapshot {
        let tree: &PolicyTree = &self.tree;
        let flow = &tree.flows[flow as usize];
        let mut share_flow = None;
        let mut load_got = None;
        let mut band = None;
        match &tree.nodes[flow.node as usize].discipline {
            Discipline::Share(share) => {
                let state = share.flow_now(flow.local);
                let bound = share.bound_now(flow.local);
                // While no queue's head has an open worker, flows need not have been looked at, and may still count as
                // ready.
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
            Discipline::Bands(bands) => {
                let state = &bands.classes[flow.local as usize];
                let (used, allowed) = state.cap_meter.read(self.now);
                let cap_use = CapUseSnapshot { used, allowed };
                band = Some(BandSnapshot { got: state.got, cap_use });
            }
            Discipline::Drr(_) => {}
        }
        let inside = match flow.child {
            FlowChild::Node(node) => Some(Box::new(self.snapshot_node(node))),
            FlowChild::Queue(_) => None,
        };
        FlowSnapshot { name: (*flow.name).into(), share: share_flow, load_got, band, inside }
    }
}

fn node_meter(meter: &NodeMeter) -> NodeMeterSnapshot {
    NodeMeterSnapshot { volume: meter.volume, carried: meter.carried, widest: meter.widest }
}

fn flow_meter(meter: &FlowMeter, node: &NodeMeter, weight: Weight) -> FlowMeterSnapshot {
    let FlowMeterCounters { due, floor, got, rise, fall, worst } = meter.counters(node, weight);
    let [rise, fall, worst] = [rise, fall, worst].map(u128::from);
    FlowMeterSnapshot { due, floor, got, rise, fall, worst }
}
