//! Explains why a request was granted, and what a waiting request waits for. No explanation changes the pool.
//!
//! The runner-up at a node is the flow that the node would have picked if the winner had not been ready. It
//! is computed on a copy of the node.
//!
//! The place of a waiting request is the number of grants that come before the request's own grant, provided
//! that nothing else arrives, requests in flight end in the order in which they were granted, each request
//! uses exactly its cost, time does not advance and nothing expires. It is computed by running a copy of the
//! whole pool forward.
//!
//! Both results are exact. Computing them takes the time and memory of the copies.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::arbiter::{Arbiter, ArbiterContext, FlowUpdate, LocalFlow};
use crate::attribute::Attribute;
use crate::decision::GrantedPlace;
use crate::drr::DrrTurn;
use crate::engine::{EngineDecision, EngineDecisionSink, PoolEngine, WorkerNames, context};
use crate::fairness::DueService;
use crate::meter::{FlowMeter, NodeMeter};
use crate::pool::Pool;
use crate::requests::RequestHandle;
use crate::tree::{Discipline, FlowChild, PolicyTree, TreeFlow, TreeNode};
use crate::units::{Alpha, Micros, PerWeight, Ticks, Tokens, Weight};
use crate::workers::WatchRole;

/// The numbers that decided one grant, from the root of the tree down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantExplanation {
    /// Tokens that the request was charged.
    pub cost: Tokens,
    /// The choices on the request's path, one per node, from the root down.
    pub levels: Vec<FlowChoice>,
}

/// The choice of one flow at one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowChoice {
    /// The attribute by which the node divides service.
    pub by: Attribute,
    /// Name of the flow that was picked.
    pub flow: Arc<str>,
    /// The rule by which the node picked the flow.
    pub rule: PickRule,
    /// The flow's numbers right before the grant was charged to the flow.
    pub standing: FlowStanding,
    /// The flow that the node would have picked instead, with that flow's numbers; `None` if no other flow was ready.
    pub runner_up: Option<(Arc<str>, FlowStanding)>,
}

/// The rule by which a flow was picked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PickRule {
    /// In a drr node: the cursor stayed on the class, because the class's credit covers the cost of its head.
    Stayed,
    /// In a drr node: the class is the first in ring order that can afford its head with at most one more quantum.
    Visited,
    /// In a drr node: no class could afford its head with one more quantum. All ready classes got this many rounds at
    /// once, and the picked class was the first that could then afford its head.
    Bulk {
        /// Number of rounds of credit given to every ready class, including the one round that the visit itself gives.
        rounds: u64,
    },
    /// In a share node: the flow has the lowest score of the ready flows.
    LowestScore,
    /// In a partitioned share node: the flow has the lowest score of the ready flows with fewer requests in flight than
    /// slots.
    BelowItsSlots,
    /// In a load node: the flow has the largest load of the ready flows.
    LargestLoad,
    /// In a load node: the flow's oldest request has waited `max_wait_ticks`. Of several such flows, the one with the
    /// oldest request goes first.
    Late,
    /// In a bands node: the class is the first listed class that was ready.
    FirstBand,
}

/// The numbers of a flow by which its node compares it with the other flows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FlowStanding {
    /// Numbers of a class in a drr node.
    Drr {
        /// Credit of the class that is not spent yet, in tokens.
        deficit: u128,
        /// Credit in tokens that the class earns per round.
        quantum: Weight,
        /// Cost in tokens of the class's next request; `None` if the class is not ready.
        head_cost: Option<Tokens>,
        /// Number of further rounds until the class can afford its next request; `None` if the class is not ready.
        rounds_needed: Option<u64>,
        /// Tokens that the class got, and the tokens that it was due by its quantum.
        meter: MeteredService,
    },
    /// Numbers of a flow in a share node.
    Share {
        /// Tokens per weight that the flow got, with requests in flight counted at their costs. The flow with the
        /// lowest score goes next.
        score: PerWeight,
        /// Tokens per weight of the flow's ended requests.
        settled: PerWeight,
        /// The node's virtual time, in tokens per weight.
        virtual_time: PerWeight,
        /// Weight of the flow, relative to its siblings.
        weight: Weight,
        /// Summed costs in tokens of the flow's requests in flight.
        pending: u128,
        /// Slots that the partition gives the flow; `None` unless the node is partitioned and has at least as many
        /// slots as active flows.
        slots: Option<u64>,
        /// Greatest number of the flow's requests in flight; `None` if the flow has no cap.
        cap: Option<u64>,
        /// True if the flow's score was at or below virtual time when it started to wait, and it has had no grant
        /// since.
        new: bool,
        /// Tokens that the flow got, and the tokens that it was due by its weight.
        meter: MeteredService,
    },
    /// Numbers of a flow in a load node.
    Load {
        /// Summed weights of the flow's waiting requests, in thousandths.
        depth_thousandths: u64,
        /// Ticks since the flow's oldest waiting request was submitted.
        age: Ticks,
        /// The flow's load, in millionths of the largest possible load; `None` if the flow is not ready.
        load_millionths: Option<u64>,
        /// The node's present trade-off between depth and age.
        alpha: Alpha,
    },
    /// Numbers of a class in a bands node.
    Bands {
        /// Names of the classes that go before this class.
        comes_after: Vec<Arc<str>>,
        /// Names of the classes that go after this class.
        goes_before: Vec<Arc<str>>,
        /// Greatest number of the class's requests in flight; `None` if the class has no cap.
        cap: Option<u64>,
        /// Tokens that the class was served.
        got: i128,
    },
}

/// Tokens that a flow was served, and the tokens that it was due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeteredService {
    /// Tokens that the flow was served. A grant counts at its cost, which is corrected to the real usage when the
    /// request ends.
    pub got: i128,
    /// The tokens that the flow was due: its share, by weight, of all tokens served while it was ready.
    pub due: DueService,
}

/// The state of a request in the pool, either queued or in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestLocation {
    /// The request is queued.
    Waiting(Box<WaitingRequest>),
    /// The request was granted a slot and has not ended.
    InFlight {
        /// Time of the grant.
        granted_at: Micros,
        /// The worker and rank that run the request; `None` if the pool has no workers or the worker is gone.
        place: Option<GrantedPlace>,
    },
}

/// The state of a queued request: its flows, and the requests that go before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingRequest {
    /// Time of the submit.
    pub submitted_at: Micros,
    /// Tokens that the request will be charged at its grant.
    pub cost: Tokens,
    /// The flows that the request belongs to, one per level from the root down.
    pub levels: Vec<WaitingLevel>,
    /// Number of requests before this request in its own queue.
    pub ahead_in_queue: u64,
    /// The requests that would be granted before this request if nothing else arrived, grouped by flow and sorted by
    /// path.
    pub ahead: Vec<RequestsAhead>,
    /// Number of grants that would come before this request's grant; `None` if the request would never be granted
    /// unless something changes.
    pub place: Option<u64>,
}

/// One level of a waiting request's path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingLevel {
    /// The attribute by which the node divides service.
    pub by: Attribute,
    /// Name of the request's flow at this level.
    pub flow: Arc<str>,
    /// Readiness of the flow to dispatch a request now. If the flow is not ready, this states the obstacle.
    pub readiness: FlowReadiness,
    /// Number of requests that wait in the flow.
    pub waiting: u32,
    /// Number of the flow's requests in flight.
    pub in_flight: u32,
    /// The flow's numbers by which its node compares it with the other flows.
    pub standing: FlowStanding,
}

/// The readiness of a flow to dispatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowReadiness {
    /// The flow could dispatch now.
    Ready,
    /// An operator holds the flow.
    Held,
    /// The flow's requests in flight have reached its cap.
    AtCap,
    /// The flow's head has no open worker, or nothing inside the flow is ready.
    Blocked,
}

impl FlowReadiness {
    /// Returns the word that journals and the API use for this readiness.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Held => "held",
            Self::AtCap => "at_cap",
            Self::Blocked => "blocked",
        }
    }
}

/// The requests of one flow that would be granted before a waiting request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestsAhead {
    /// Names of the flows around the queue that holds these requests, from the root down.
    pub path: Vec<Arc<str>>,
    /// Number of this flow's requests that go before the waiting request.
    pub requests: u64,
    /// Summed costs of these requests, in tokens.
    pub tokens: u128,
}

impl Pool {
    /// Returns the present trade-off of the load function, which `auto_tune` changes over time; `None` if the root of
    /// the policy is not a load node.
    ///
    /// ```
    /// use fairgate_core::Pool;
    /// use fairgate_core::attribute::Attribute;
    /// use fairgate_core::event::PoolConfig;
    /// use fairgate_core::policy::{FlowInside, LoadPolicy, PolicyNode, Policy};
    /// use fairgate_core::units::Alpha;
    ///
    /// let root = PolicyNode::Load(LoadPolicy {
    ///     by: Attribute::Agent,
    ///     alpha: Alpha::THROUGHPUT,
    ///     auto_tune: false,
    ///     max_wait_ticks: None,
    ///     inside: FlowInside::FCFS,
    /// });
    /// let pool = Pool::new(PoolConfig::new(1, Policy::new(root)?));
    /// assert_eq!(pool.alpha(), Some(Alpha::THROUGHPUT));
    /// # Ok::<(), fairgate_core::policy::PolicyError>(())
    /// ```
    pub fn alpha(&self) -> Option<Alpha> {
        match &self.engine.tree.nodes.first()?.discipline {
            Discipline::Load(load) => Some(load.alpha()),
            Discipline::Drr(_) | Discipline::Share(_) | Discipline::Bands(_) => None,
        }
    }

    /// Returns the state of a request: queued, with the requests that go before it, or in flight. Returns `None` if no
    /// request with this id waits or is in flight.
    pub fn request_location(&self, id: &str) -> Option<RequestLocation> {
        self.engine.request_location(self.request_ids.find(id)?)
    }

    /// Returns the handle of the request with this id; `None` if no such request waits or is in flight.
    pub fn find(&self, id: &str) -> Option<RequestHandle> {
        self.request_ids.find(id)
    }

    /// Returns true if the request with this id is in flight and false if it waits; `None` if there is no such request.
    /// This costs one look-up of the id.
    pub fn flight_state(&self, id: &str) -> Option<bool> {
        let handle = self.request_ids.find(id)?;
        Some(self.engine.requests.get(handle).is_in_flight())
    }
}

impl PoolEngine {
    /// Returns the state of a request: queued, with the requests that go before it, or in flight. Returns `None` if no
    /// request has this handle.
    pub fn request_location(&self, handle: RequestHandle) -> Option<RequestLocation> {
        if !self.requests.is_live(handle) {
            return None;
        }
        match self.requests.flight(handle) {
            Some(flight) => Some(RequestLocation::InFlight {
                granted_at: flight.granted_at,
                place: flight.place.and_then(|place| {
                    let worker = WorkerNames(&self.workers).get(place.worker)?;
                    Some(GrantedPlace { worker, rank: place.rank })
                }),
            }),
            None => Some(RequestLocation::Waiting(Box::new(self.waiting_for(handle)))),
        }
    }

    fn waiting_for(&self, handle: RequestHandle) -> WaitingRequest {
        let request = self.requests.get(handle);
        let mut flows: Vec<u32> = self.tree.flows_around(request.queue).collect();
        flows.reverse();
        let blocked = self.workers.all_blocked();
        let levels = flows.iter().map(|flow| {
            let inside_ready = !blocked && self.is_inside_ready(*flow);
            level(&self.tree, *flow, inside_ready, blocked, context!(self))
        });
        let queue = &self.tree.queues[request.queue as usize];
        let (ahead, place) = self.granted_before(handle);
        WaitingRequest {
            submitted_at: request.at,
            cost: request.cost,
            levels: levels.collect(),
            ahead_in_queue: queue.ahead_of(handle, &self.requests) as u64,
            ahead,
            place,
        }
    }

    /// Returns true if the queue or node inside a flow had a request to dispatch at the last look.
    fn is_inside_ready(&self, flow: u32) -> bool {
        let flow = &self.tree.flows[flow as usize];
        match flow.child {
            FlowChild::Node(node) => self.tree.nodes[node as usize].has_head(),
            FlowChild::Queue(queue) => {
                // A flow in a group is not visited when its head's workers fill up, so its head may be outdated.
                let queue = &self.tree.queues[queue as usize];
                let watched = queue.watched[WatchRole::Head as usize].filter(|_| queue.is_grouped);
                flow.head.is_some()
                    && watched.is_none_or(|demand| self.workers.is_reported_open(demand))
            }
        }
    }

    /// Runs a copy of the engine until the request is granted. Returns the requests granted before it, grouped by flow,
    /// and the number of these grants, which is `None` if the copy never grants the request.
    fn granted_before(&self, handle: RequestHandle) -> (Vec<RequestsAhead>, Option<u64>) {
        let mut engine = self.clone();
        engine.limits.queue_timeout = None;
        engine.requests.forget_deadlines();
        let mut landing: VecDeque<RequestHandle> = engine.requests.handles_in_flight().into();
        let mut before: BTreeMap<u32, RequestsAhead> = BTreeMap::new();
        let mut count = 0;
        while let Some(first) = landing.pop_front() {
            let mut granted = GrantCollector(Vec::new());
            if engine.begin(engine.now, &mut granted).is_err() {
                break;
            }
            engine.release(first, None, None);
            engine.finish(&mut granted);
            for next in granted.0 {
                if next == handle {
                    return (by_path(before), Some(count));
                }
                count += 1;
                landing.push_back(next);
                engine.count_ahead(next, &mut before);
            }
        }
        (by_path(before), None)
    }

    fn count_ahead(&self, handle: RequestHandle, before: &mut BTreeMap<u32, RequestsAhead>) {
        let request = self.requests.get(handle);
        let ahead = before.entry(request.queue).or_insert_with(|| {
            let innermost = self.tree.queues[request.queue as usize].flow;
            RequestsAhead { path: self.tree.path(Some(innermost)), requests: 0, tokens: 0 }
        });
        ahead.requests += 1;
        ahead.tokens += u128::from(request.cost.0);
    }

    /// Returns the numbers that decide the grant of a request. The request must be the head of the tree.
    pub(crate) fn why(&self, handle: RequestHandle) -> GrantExplanation {
        let request = self.requests.get(handle);
        let mut flows: Vec<u32> = self.tree.flows_around(request.queue).collect();
        flows.reverse();
        let choices = flows.iter().map(|flow| choice(&self.tree, *flow, context!(self)));
        GrantExplanation { cost: request.cost, levels: choices.collect() }
    }
}

/// Collects the handles of granted requests.
struct GrantCollector(Vec<RequestHandle>);

impl EngineDecisionSink for GrantCollector {
    fn decided(
        &mut self,
        request: RequestHandle,
        decision: EngineDecision,
        _workers: &WorkerNames<'_>,
    ) {
        if let EngineDecision::Grant { .. } = decision {
            self.0.push(request);
        }
    }
}

fn by_path(before: BTreeMap<u32, RequestsAhead>) -> Vec<RequestsAhead> {
    let mut ahead: Vec<_> = before.into_values().collect();
    ahead.sort_by(|a, b| a.path.cmp(&b.path));
    ahead
}

fn choice(tree: &PolicyTree, index: u32, cx: ArbiterContext<'_>) -> FlowChoice {
    let flow = &tree.flows[index as usize];
    let mut node = tree.nodes[flow.node as usize].clone();
    let rule = rule(&mut node.discipline, flow.local, cx);
    let standing = standing(&mut node, flow.local, cx);
    // The numbers of both flows are from the node with the winner. Only the search for the runner-up leaves the winner
    // out.
    let runner_up = next_without(&mut node.clone(), flow, cx).and_then(|next| {
        let name = node.flow_name(next, &tree.flows)?;
        Some((name, self::standing(&mut node, next, cx)))
    });
    FlowChoice { by: node.level.node.by(), flow: flow.name.clone(), rule, standing, runner_up }
}

/// Returns the flow that the node would pick if the given flow were not ready; `None` if no other flow is ready.
fn next_without(node: &mut TreeNode, flow: &TreeFlow, cx: ArbiterContext<'_>) -> Option<LocalFlow> {
    let view = FlowUpdate {
        head: None,
        waiting: flow.waiting,
        in_flight: flow.in_flight,
        oldest: None,
        oldest_open: false,
        is_kept: false,
        may_join: false,
    };
    node.arbiter().look(flow.local, view, cx);
    node.arbiter().pick(cx).map(|pick| pick.flow)
}

fn rule(discipline: &mut Discipline, flow: LocalFlow, cx: ArbiterContext<'_>) -> PickRule {
    match discipline {
        Discipline::Drr(drr) => match drr.scan() {
            Some((_, DrrTurn::Stays)) => PickRule::Stayed,
            Some((_, DrrTurn::Visited { bulk, .. })) if bulk > 0 => PickRule::Bulk { rounds: bulk },
            _ => PickRule::Visited,
        },
        Discipline::Share(share) => match share.below_slots().next() {
            Some(below) if below == flow => PickRule::BelowItsSlots,
            _ => PickRule::LowestScore,
        },
        Discipline::Load(load) => match load.is_late(cx.ticks) {
            true => PickRule::Late,
            false => PickRule::LargestLoad,
        },
        Discipline::Bands(_) => PickRule::FirstBand,
    }
}

fn standing(node: &mut TreeNode, flow: LocalFlow, cx: ArbiterContext<'_>) -> FlowStanding {
    match &mut node.discipline {
        Discipline::Drr(drr) => FlowStanding::Drr {
            deficit: drr.deficit(flow),
            quantum: drr.classes[flow as usize].quantum,
            head_cost: drr.head_cost(flow),
            rounds_needed: drr.rounds_needed(flow),
            meter: metered(
                &drr.classes[flow as usize].meter,
                &drr.meter,
                drr.classes[flow as usize].quantum,
            ),
        },
        Discipline::Share(share) => {
            share.divide(cx.capacity);
            let state = share.flow_now(flow);
            FlowStanding::Share {
                score: PerWeight::from_score(state.score()),
                settled: PerWeight::from_score(state.settled()),
                virtual_time: PerWeight::from_score(share.virtual_time),
                weight: state.weight,
                pending: state.pending,
                slots: share.slots(flow),
                cap: state.cap,
                new: state.new,
                meter: MeteredService {
                    got: state.meter.got(),
                    due: DueService {
                        tokens: state.meter.due(&share.meter, state.weight),
                        bound: share.due_bound(flow, &share.score_sums()),
                    },
                },
            }
        }
        Discipline::Load(load) => FlowStanding::Load {
            depth_thousandths: load.flows[flow as usize].depth,
            age: Ticks(load.age(flow, cx.ticks)),
            load_millionths: load.load_millionths(flow, cx.ticks),
            alpha: load.alpha(),
        },
        Discipline::Bands(bands) => {
            let state = &bands.classes[flow as usize];
            let names = || node.level.class_names().map(Arc::from);
            FlowStanding::Bands {
                comes_after: names().take(flow as usize).collect(),
                goes_before: names().skip(flow as usize + 1).collect(),
                cap: state.cap,
                got: state.got,
            }
        }
    }
}

fn metered(flow: &FlowMeter, node: &NodeMeter, weight: Weight) -> MeteredService {
    let due = DueService { tokens: flow.due(node, weight), bound: flow.bound(node, weight) };
    MeteredService { got: flow.got, due }
}

fn level(
    tree: &PolicyTree,
    index: u32,
    inside_ready: bool,
    blocked: bool,
    cx: ArbiterContext<'_>,
) -> WaitingLevel {
    let flow = &tree.flows[index as usize];
    let mut node = tree.nodes[flow.node as usize].clone();
    let name = &tree.names.list[flow.name_number as usize];
    let at_cap = match &node.discipline {
        Discipline::Share(share) => {
            let own = || share.flows[flow.local as usize].at_cap(flow.in_flight);
            name.at_cap().unwrap_or_else(own)
        }
        Discipline::Bands(bands) => {
            let own = || bands.classes[flow.local as usize].at_cap(flow.in_flight);
            name.at_cap().unwrap_or_else(own)
        }
        _ => false,
    };
    let mut standing = standing(&mut node, flow.local, cx);
    match &mut standing {
        FlowStanding::Share { cap, slots, .. } => {
            *cap = name.directive.cap.unwrap_or(*cap);
            *slots = slots.filter(|_| !blocked);
        }
        FlowStanding::Bands { cap, .. } => *cap = name.directive.cap.unwrap_or(*cap),
        // While no queue's head has an open worker, a flow need not have been looked at, and may still count as ready.
        FlowStanding::Drr { head_cost, rounds_needed, .. } if blocked => {
            (*head_cost, *rounds_needed) = (None, None);
        }
        FlowStanding::Load { load_millionths, .. } if blocked => *load_millionths = None,
        _ => {}
    }
    let readiness = match (name.directive.held, at_cap, inside_ready) {
        (true, _, _) => FlowReadiness::Held,
        (_, true, _) => FlowReadiness::AtCap,
        (_, _, false) => FlowReadiness::Blocked,
        _ => FlowReadiness::Ready,
    };
    WaitingLevel {
        by: node.level.node.by(),
        flow: flow.name.clone(),
        readiness,
        waiting: flow.waiting,
        in_flight: flow.in_flight,
        standing,
    }
}
