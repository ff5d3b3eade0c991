//! Why a request was granted, and what a waiting one waits for. Asking changes nothing.
//!
//! The runner-up of a level is whoever would have been picked had the winner not been ready; the place of a
//! waiting request is how many grants come before its own if nothing else arrives, flights end in the order in
//! which they were granted, each uses its cost, time stands still and nothing expires. Both are found by asking a copy (of a node; of
//! the whole pool), so they are true by construction and cost that copy.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::arbiter::{Arbiter, Context, Local, View};
use crate::attribute::Attribute;
use crate::decision::GrantedPlace;
use crate::drr::Turn;
use crate::engine::{Engine, Verdict, Verdicts, WorkerNames, context};
use crate::fairness::Due;
use crate::meter::{FlowMeter, NodeMeter};
use crate::pool::Pool;
use crate::requests::Handle;
use crate::tree::{Child, Discipline, Flow, NodeState, Tree};
use crate::units::{Alpha, Micros, PerWeight, Ticks, Tokens, Weight};

/// The numbers that decided one grant, from the root of the tree down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Why {
    /// What the request was charged.
    pub cost: Tokens,
    /// One choice per level.
    pub levels: Vec<Choice>,
}

/// Why one flow of one node went next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The attribute by which the node shares.
    pub by: Attribute,
    /// The flow that was picked.
    pub flow: Arc<str>,
    /// The rule that picked it.
    pub rule: Rule,
    /// Its numbers before it was charged.
    pub standing: Standing,
    /// Who would have gone without it, with its numbers; nobody where no other flow was ready.
    pub runner_up: Option<(Arc<str>, Standing)>,
}

/// The rule by which a flow was picked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// drr: the cursor stayed on the class, whose credit covers its head.
    Stayed,
    /// drr: the first class in ring order that could afford its head with at most one more quantum.
    Visited,
    /// drr: nobody could; this many rounds were given to all at once, and it was the first to afford its head.
    Bulk {
        /// The rounds given to every ready class, the one of the visit itself included.
        rounds: u64,
    },
    /// share: the lowest score.
    LowestScore,
    /// share, partitioned: the lowest score among those with fewer in flight than their slots.
    BelowItsSlots,
    /// load: the largest load.
    LargestLoad,
    /// load: its oldest request has waited `max_wait_ticks`; the oldest of those goes first.
    Late,
}

/// A flow's numbers in its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// In a drr node.
    Drr {
        /// Unspent credit, in tokens.
        deficit: u128,
        /// Credit per round.
        quantum: Weight,
        /// The cost of its head, where it is ready.
        head_cost: Option<Tokens>,
        /// The further rounds that its head needs.
        rounds_needed: Option<u64>,
        /// What it was served and what its quantum made it due.
        meter: Metered,
    },
    /// In a share node.
    Share {
        /// Its height with what is in flight; the lowest goes next.
        score: PerWeight,
        /// Its height without.
        settled: PerWeight,
        /// The node's virtual time.
        virtual_time: PerWeight,
        /// Its weight.
        weight: Weight,
        /// The costs of what is in flight.
        pending: u128,
        /// Its slots, where the node is partitioned and slots decide.
        slots: Option<u64>,
        /// Its cap, where it has one.
        cap: Option<u64>,
        /// Whether it has had no grant since it started to wait at virtual time.
        new: bool,
        /// What it was served and what its weight made it due.
        meter: Metered,
    },
    /// In a load node.
    Load {
        /// Summed weights of what waits, in thousandths.
        depth_thousandths: u64,
        /// Ticks since its oldest request came.
        age: Ticks,
        /// Its load in millionths of the largest possible, where it is ready.
        load_millionths: Option<u64>,
        /// The node's trade-off now.
        alpha: Alpha,
    },
}

/// What a flow was served beside what it was due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metered {
    /// In tokens.
    pub got: i128,
    /// By weight, of all that was served while it was ready.
    pub due: Due,
}

/// Where a request is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whereabouts {
    /// It waits.
    Waiting(Box<Waiting>),
    /// It was granted a slot and has not ended.
    InFlight {
        /// When it was granted.
        granted_at: Micros,
        /// Where it runs.
        place: Option<GrantedPlace>,
    },
}

/// What a waiting request waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// When it was submitted.
    pub submitted_at: Micros,
    /// What it will be charged.
    pub cost: Tokens,
    /// The flows it is in, from the root down.
    pub levels: Vec<WaitingLevel>,
    /// How many requests stand before it in its own queue.
    pub ahead_in_queue: u64,
    /// What would be granted before it, if nothing else arrived, by flow: names from the root down.
    pub ahead: Vec<Ahead>,
    /// How many grants would come before its own; none where it would never be granted as things are.
    pub place: Option<u64>,
}

/// One level of a waiting request's path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingLevel {
    /// The attribute by which the node shares.
    pub by: Attribute,
    /// The flow.
    pub flow: Arc<str>,
    /// Whether the flow could dispatch now, and if not, why.
    pub readiness: Readiness,
    /// How many requests wait in the flow.
    pub waiting: u32,
    /// How many of its requests are in flight.
    pub in_flight: u32,
    /// Its numbers.
    pub standing: Standing,
}

/// Whether a flow could dispatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// It could.
    Ready,
    /// An operator holds it.
    Held,
    /// As many of its requests are in flight as may be.
    AtCap,
    /// Its head has no open worker, or nothing inside it is ready.
    Blocked,
}

/// What goes before a waiting request in one flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ahead {
    /// The flows around the queue, from the root down.
    pub path: Vec<Arc<str>>,
    /// How many of its requests go first.
    pub requests: u64,
    /// Their costs together.
    pub tokens: u128,
}

impl Pool {
    /// The trade-off of the load function now, where the root of the policy is a load node: with `auto_tune` it
    /// moves.
    ///
    /// ```
    /// use fairgate_core::Pool;
    /// use fairgate_core::attribute::Attribute;
    /// use fairgate_core::event::PoolConfig;
    /// use fairgate_core::policy::{Inside, Load, Node, Policy};
    /// use fairgate_core::units::Alpha;
    ///
    /// let root = Node::Load(Load {
    ///     by: Attribute::Agent,
    ///     alpha: Alpha::THROUGHPUT,
    ///     auto_tune: false,
    ///     max_wait_ticks: None,
    ///     inside: Inside::FCFS,
    /// });
    /// let pool = Pool::new(PoolConfig::new(1, Policy::new(root)?));
    /// assert_eq!(pool.alpha(), Some(Alpha::THROUGHPUT));
    /// # Ok::<(), fairgate_core::policy::PolicyError>(())
    /// ```
    pub fn alpha(&self) -> Option<Alpha> {
        match &self.engine.tree.nodes.first()?.discipline {
            Discipline::Load(load) => Some(load.alpha()),
            Discipline::Drr(_) | Discipline::Share(_) => None,
        }
    }

    /// Where a request is, and if it waits, why: nothing where no request of that id waits or is in flight.
    pub fn whereabouts(&self, id: &str) -> Option<Whereabouts> {
        self.engine.whereabouts(self.book.find(id)?)
    }

    /// The handle of the request of that id, where it waits or is in flight.
    pub fn find(&self, id: &str) -> Option<Handle> {
        self.book.find(id)
    }

    /// Whether the request of that id is in flight; nothing where there is none. It costs one look-up.
    pub fn is_in_flight(&self, id: &str) -> Option<bool> {
        let handle = self.book.find(id)?;
        Some(self.engine.requests.get(handle).is_in_flight())
    }
}

impl Engine {
    /// Where a request is, and if it waits, why: nothing where none has this handle.
    pub fn whereabouts(&self, handle: Handle) -> Option<Whereabouts> {
        if !self.requests.is_live(handle) {
            return None;
        }
        match self.requests.flight(handle) {
            Some(flight) => Some(Whereabouts::InFlight {
                granted_at: flight.granted_at,
                place: flight.place.and_then(|place| {
                    let worker = WorkerNames(&self.workers).get(place.worker)?;
                    Some(GrantedPlace { worker, rank: place.rank })
                }),
            }),
            None => Some(Whereabouts::Waiting(Box::new(self.waiting_for(handle)))),
        }
    }

    fn waiting_for(&self, handle: Handle) -> Waiting {
        let request = self.requests.get(handle);
        let mut flows: Vec<u32> = self.tree.flows_around(request.queue).collect();
        flows.reverse();
        let blocked = self.workers.all_blocked();
        let levels = flows.iter().map(|flow| level(&self.tree, *flow, blocked, context!(self)));
        let queue = &self.tree.queues[request.queue as usize];
        let (ahead, place) = self.granted_before(handle);
        Waiting {
            submitted_at: request.at,
            cost: request.cost,
            levels: levels.collect(),
            ahead_in_queue: queue.ahead_of(handle, &self.requests) as u64,
            ahead,
            place,
        }
    }

    /// Lets a copy run on until the request is granted: what is granted before it.
    fn granted_before(&self, handle: Handle) -> (Vec<Ahead>, Option<u64>) {
        let mut engine = self.clone();
        engine.limits.queue_timeout = None;
        let mut landing: VecDeque<Handle> = engine.requests.handles_in_flight().into();
        let mut before: BTreeMap<u32, Ahead> = BTreeMap::new();
        let mut count = 0;
        while let Some(first) = landing.pop_front() {
            let mut granted = Granted(Vec::new());
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

    fn count_ahead(&self, handle: Handle, before: &mut BTreeMap<u32, Ahead>) {
        let request = self.requests.get(handle);
        let ahead = before.entry(request.queue).or_insert_with(|| {
            let innermost = self.tree.queues[request.queue as usize].flow;
            Ahead { path: self.tree.path(Some(innermost)), requests: 0, tokens: 0 }
        });
        ahead.requests += 1;
        ahead.tokens += u128::from(request.cost.0);
    }

    /// The numbers that decide the grant of the tree's head.
    pub(crate) fn why(&self, handle: Handle) -> Why {
        let request = self.requests.get(handle);
        let mut flows: Vec<u32> = self.tree.flows_around(request.queue).collect();
        flows.reverse();
        let choices = flows.iter().map(|flow| choice(&self.tree, *flow, context!(self)));
        Why { cost: request.cost, levels: choices.collect() }
    }
}

/// Takes down who is granted.
struct Granted(Vec<Handle>);

impl Verdicts for Granted {
    fn decided(&mut self, request: Handle, verdict: Verdict, _workers: &WorkerNames<'_>) {
        if let Verdict::Grant { .. } = verdict {
            self.0.push(request);
        }
    }
}

fn by_path(before: BTreeMap<u32, Ahead>) -> Vec<Ahead> {
    let mut ahead: Vec<_> = before.into_values().collect();
    ahead.sort_by(|a, b| a.path.cmp(&b.path));
    ahead
}

fn choice(tree: &Tree, index: u32, cx: Context<'_>) -> Choice {
    let flow = &tree.flows[index as usize];
    let mut node = tree.nodes[flow.node as usize].clone();
    let rule = rule(&mut node.discipline, flow.local, cx);
    let standing = standing(&mut node.discipline, flow.local, cx);
    // Its numbers are those of the contest that it lost; only who it is is found without the winner.
    let runner_up = next_without(&mut node.clone(), flow, cx).and_then(|next| {
        let name = node.flow_name(next, &tree.flows)?;
        Some((name, self::standing(&mut node.discipline, next, cx)))
    });
    Choice { by: node.level.node.by(), flow: flow.name.clone(), rule, standing, runner_up }
}

/// Who would be picked were this flow not ready.
fn next_without(node: &mut NodeState, flow: &Flow, cx: Context<'_>) -> Option<Local> {
    let view = View {
        head: None,
        waiting: flow.waiting,
        in_flight: flow.in_flight,
        oldest: None,
        oldest_open: false,
    };
    node.arbiter().look(flow.local, view, cx);
    node.arbiter().pick(cx).map(|pick| pick.flow)
}

fn rule(discipline: &mut Discipline, flow: Local, cx: Context<'_>) -> Rule {
    match discipline {
        Discipline::Drr(drr) => match drr.scan() {
            Some((_, Turn::Stays)) => Rule::Stayed,
            Some((_, Turn::Visited { bulk, .. })) if bulk > 0 => Rule::Bulk { rounds: bulk },
            _ => Rule::Visited,
        },
        Discipline::Share(share) => match share.below_slots().next() {
            Some(below) if below == flow => Rule::BelowItsSlots,
            _ => Rule::LowestScore,
        },
        Discipline::Load(load) => match load.is_late(cx.ticks) {
            true => Rule::Late,
            false => Rule::LargestLoad,
        },
    }
}

fn standing(discipline: &mut Discipline, flow: Local, cx: Context<'_>) -> Standing {
    match discipline {
        Discipline::Drr(drr) => Standing::Drr {
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
            let state = &share.flows[flow as usize];
            Standing::Share {
                score: PerWeight::from_score(state.score()),
                settled: PerWeight::from_score(state.settled()),
                virtual_time: PerWeight::from_score(share.virtual_time),
                weight: state.weight,
                pending: state.pending,
                slots: share.slots(flow),
                cap: state.cap,
                new: state.new,
                meter: metered(&state.meter, &share.meter, state.weight),
            }
        }
        Discipline::Load(load) => Standing::Load {
            depth_thousandths: load.flows[flow as usize].depth,
            age: Ticks(load.age(flow, cx.ticks)),
            load_millionths: load.load_millionths(flow, cx.ticks),
            alpha: load.alpha(),
        },
    }
}

fn metered(flow: &FlowMeter, node: &NodeMeter, weight: Weight) -> Metered {
    let due = Due { tokens: flow.due(node, weight), bound: flow.bound(node, weight) };
    Metered { got: flow.got, due }
}

fn level(tree: &Tree, index: u32, blocked: bool, cx: Context<'_>) -> WaitingLevel {
    let flow = &tree.flows[index as usize];
    let inside_ready = !blocked
        && match flow.child {
            Child::Queue(_) => flow.head.is_some(),
            Child::Node(node) => tree.nodes[node as usize].has_head(),
        };
    let mut node = tree.nodes[flow.node as usize].clone();
    let name = &tree.names.list[flow.named as usize];
    let at_cap = match &node.discipline {
        Discipline::Share(share) => {
            let own = || share.flows[flow.local as usize].at_cap(flow.in_flight);
            name.at_cap().unwrap_or_else(own)
        }
        _ => false,
    };
    let mut standing = standing(&mut node.discipline, flow.local, cx);
    match &mut standing {
        Standing::Share { cap, slots, .. } => {
            *cap = name.said.cap.unwrap_or(*cap);
            *slots = slots.filter(|_| !blocked);
        }
        // While no worker takes anything a flow need not have been told that it is not ready.
        Standing::Drr { head_cost, rounds_needed, .. } if blocked => {
            (*head_cost, *rounds_needed) = (None, None);
        }
        Standing::Load { load_millionths, .. } if blocked => *load_millionths = None,
        _ => {}
    }
    let readiness = match (name.said.held, at_cap, inside_ready) {
        (true, _, _) => Readiness::Held,
        (_, true, _) => Readiness::AtCap,
        (_, _, false) => Readiness::Blocked,
        _ => Readiness::Ready,
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
