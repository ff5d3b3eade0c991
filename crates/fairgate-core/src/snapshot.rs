//! A pool's whole state as plain data.
//!
//! [`Pool::snapshot`] between any two events, then [`Pool::restore`], and the same further events give the same
//! decisions. A snapshot holds what cannot be worked out again: counters, requests, and what was said about
//! flows and workers. Heads, rankings and a place's load follow from those and are built anew.

use crate::attribute::{Attribute, Attributes};
use crate::event::{Pin, WorkerChange};
use crate::policy::{BusyThresholds, Policy};
use crate::pool::{Limits, Pool};
use crate::requests::Request;
use crate::tree::{Child, Directives, Discipline, Tree};
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
    /// How many requests may fly.
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
    pub caps: Vec<(Attribute, Box<str>, Option<u64>)>,
    /// The workers, where the pool has ever named one.
    pub workers: Option<WorkersSnapshot>,
    /// What waits and flies, in seq order.
    pub requests: Vec<RequestSnapshot>,
    /// The counters of the tree.
    pub root: NodeSnapshot,
}

/// The workers of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkersSnapshot {
    /// The number that the next new worker gets.
    pub next_number: u32,
    /// The workers that are not gone, each with its number; all of their fields are stated.
    pub list: Vec<(u32, WorkerChange)>,
}

/// A request that waits or flies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestSnapshot {
    /// Its id.
    pub id: Box<str>,
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
    /// Its priority.
    pub priority: i64,
    /// Its weight in `load`'s depth.
    pub weight: TaskWeight,
    /// Its cached tokens by worker.
    pub cached: Vec<(Box<str>, Tokens)>,
    /// Its pin.
    pub pin: Option<Pin>,
    /// The workers it may run on.
    pub allow: Option<Vec<Box<str>>>,
    /// The taints it requires.
    pub requires: Vec<Box<str>>,
    /// Its flight, where it flies.
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
        /// The deficit of every class, and what its bound knows: overruns not earned back, as a number below 0, and
        /// how high the deficit may be as of the last credit.
        deficits: Vec<(i128, i128, i128)>,
    },
    /// Share score.
    Share {
        /// Virtual time.
        virtual_time: u128,
        /// How often it has risen.
        rises: u64,
    },
    /// The load function.
    Load {
        /// Alpha now.
        alpha: Alpha,
        /// The last totals of depth, oldest first.
        history: Vec<u128>,
    },
}

/// A flow's counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowSnapshot {
    /// Its name.
    pub name: Box<str>,
    /// Its counters where it is a flow of a share node.
    pub share: Option<ShareFlowSnapshot>,
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
    /// Costs of its flying requests.
    pub pending: u128,
    /// How often it started anew.
    pub generation: u64,
    /// Virtual time when it stopped being ready.
    pub stopped: Option<u128>,
    /// What its bound has reached: how far its score fell, since which rise, and how far it ran ahead.
    pub bound: (u128, u64, u128),
}

impl Pool {
    /// The pool's whole state.
    pub fn snapshot(&self) -> Snapshot {
        let Limits { max_queue, queue_timeout, brownout_wait, busy } = self.limits;
        let Directives { held, weights, caps } = &self.tree.directives;
        let named = |by: usize| Attribute::ALL[by];
        let mut requests = self.requests.flying_slots();
        requests.extend(self.requests.waiting_slots());
        requests.sort_unstable_by_key(|slot| self.requests.get(*slot).seq);
        Snapshot {
            now: self.now,
            ticks: self.ticks,
            next_seq: self.next_seq,
            grants: self.grants,
            capacity: self.capacity,
            policy: self.policy.clone(),
            max_queue,
            queue_timeout,
            brownout_wait,
            busy,
            holds: (0..7)
                .flat_map(|by| held[by].iter().map(move |n| (named(by), n.clone())))
                .collect(),
            weights: (0..7)
                .flat_map(|by| weights[by].iter().map(move |(n, w)| (named(by), n.clone(), *w)))
                .collect(),
            caps: (0..7)
                .flat_map(|by| caps[by].iter().map(move |(n, c)| (named(by), n.clone(), *c)))
                .collect(),
            workers: self.workers.named.then(|| self.snapshot_workers()),
            requests: requests
                .into_iter()
                .map(|slot| self.snapshot_request(self.requests.get(slot)))
                .collect(),
            root: snapshot_node(&self.tree, 0, self.workers.all_blocked()),
        }
    }

    fn snapshot_workers(&self) -> WorkersSnapshot {
        let change = |worker: &Worker| WorkerChange {
            name: (*worker.name).into(),
            state: Some(worker.state),
            ranks: Some(worker.ranks),
            slots: worker.slots,
            taints: Some(worker.taints.iter().cloned().collect()),
            batch_tokens: worker.batch,
        };
        let list = self.workers.list.iter().map(|(number, w)| (*number, change(w))).collect();
        WorkersSnapshot { next_number: self.workers.next_number, list }
    }

    fn snapshot_request(&self, request: &Request) -> RequestSnapshot {
        let want = self.workers.want(request.want);
        RequestSnapshot {
            id: request.texts.id().into(),
            attributes: request.texts.attributes(),
            seq: request.seq.0,
            at: request.at,
            tick: request.tick,
            cost: request.cost,
            input: request.input,
            cached_best: request.cached_best,
            priority: request.priority,
            weight: request.weight,
            cached: request.cached.as_deref().cloned().unwrap_or_default(),
            pin: want.pin.clone(),
            allow: want.allow.clone(),
            requires: want.requires.clone(),
            flight: request.flight.as_ref().map(|flight| FlightSnapshot {
                granted_at: flight.granted_at,
                number: flight.number,
                generations: flight.generations.clone(),
                place: flight.place.map(|place| (place.worker, place.rank)),
                prefill: flight.prefill,
            }),
        }
    }
}

/// `blocked`: nothing in the pool has an open place, which the flows need not have been told.
fn snapshot_node(tree: &Tree, node: u32, blocked: bool) -> NodeSnapshot {
    let state = &tree.nodes[node as usize];
    let counters = match &state.discipline {
        Discipline::Drr(drr) => NodeCounters::Drr {
            cursor: drr.cursor,
            stayed: drr.stayed,
            deficits: (0..)
                .zip(&drr.classes)
                .map(|(class, _)| {
                    let (least, most) = drr.reached(class);
                    (drr.deficit(class), least, most)
                })
                .collect(),
        },
        Discipline::Share(share) => {
            NodeCounters::Share { virtual_time: share.virtual_time, rises: share.rises }
        }
        Discipline::Load(load) => {
            NodeCounters::Load { alpha: load.alpha(), history: load.history.clone() }
        }
    };
    let flows = state.flows.values().map(|flow| snapshot_flow(tree, *flow, blocked)).collect();
    NodeSnapshot { state: counters, flows }
}

fn snapshot_flow(tree: &Tree, flow: u32, blocked: bool) -> FlowSnapshot {
    let flow = &tree.flows[flow as usize];
    let share = match &tree.nodes[flow.node as usize].discipline {
        Discipline::Share(share) => {
            let state = &share.flows[flow.local as usize];
            let bound = share.bound_now(flow.local);
            let stops = (blocked && flow.waiting > 0).then_some(share.virtual_time);
            Some(ShareFlowSnapshot {
                base: state.base,
                served: state.served,
                pending: state.pending,
                generation: state.generation,
                stopped: state.stopped.or(stops),
                bound: (bound.fallen, bound.rise, bound.ended),
            })
        }
        _ => None,
    };
    let inside = match flow.child {
        Child::Node(node) => Some(Box::new(snapshot_node(tree, node, blocked))),
        Child::Queue(_) => None,
    };
    FlowSnapshot { name: (*flow.name).into(), share, inside }
}
