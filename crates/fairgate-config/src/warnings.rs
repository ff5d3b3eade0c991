//! Warnings about settings that are valid but probably a mistake: policies with which some requests
//! may wait forever, and weights of tokens that differ much from the workers' real costs.

use std::fmt;
use std::sync::Arc;

use fairgate_core::attribute::Attribute;
use fairgate_core::policy::{
    BandsPolicy, BusyThresholds, DrrPolicy, FlowInside, Policy, PolicyNode, QueueOrder, QueuePolicy,
};

use crate::classes::{ClassArbiter, ClassInside, PolicyClass, PolicyClasses};
use crate::config::{Config, CostConfig, CostUnit, PoolConfig, UpstreamConfig};

/// Warning about a setting of a policy that may let requests wait forever, with a remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyWarning {
    /// Path of the setting, such as `policy.bands.classes[0]`, or `policy_classes[0]` in a policy file.
    pub field: String,
    /// Description of the risk and the remedy.
    pub message: String,
}

impl fmt::Display for PolicyWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

impl Config {
    /// Returns the warnings about the policy of one of the configuration's pools.
    pub fn warnings(&self, pool: &PoolConfig) -> Vec<PolicyWarning> {
        let is_worker = |upstream: &&UpstreamConfig| pool.workers.contains(&upstream.name);
        let surroundings = WarningContext {
            capacity: Some(pool.capacity),
            workers: self.upstreams.iter().filter(is_worker).collect(),
        };
        match &pool.classes {
            Some(classes) => of_classes(classes, &surroundings),
            None => of_policy(&pool.policy, &surroundings),
        }
    }
}

impl Config {
    /// Returns true if all tokens of a pool weigh the same although it has own workers, which spend far more time on an
    /// output token than on an input token.
    pub fn has_equal_weights(&self, pool: &PoolConfig) -> bool {
        let CostConfig { unit, input_milli, cached_milli, output_milli, .. } = pool.cost;
        let is_own = |upstream: &UpstreamConfig| {
            pool.workers.contains(&upstream.name)
                && upstream.tier == 0
                && !upstream.quota.is_hosted()
        };
        let are_equal = input_milli == output_milli && cached_milli == output_milli;
        unit == CostUnit::Tokens && are_equal && self.upstreams.iter().any(is_own)
    }
}

/// Warning about pools with [equal weights](Config::has_equal_weights).
pub const EQUAL_WEIGHTS_WARNING: &str = "input, cached and output tokens weigh the same, but an output token takes a GPU many \
    times as long as an input token, so tenants with long answers get more of its time. `fairgate calibrate POOL` shows what \
    each tenant uses, and `cost: {unit: worker_time}` shares the time. See docs/currency.md#equal-weights";

impl PolicyClasses {
    /// Returns the warnings about a policy file, independent of any pool.
    pub fn warnings(&self) -> Vec<PolicyWarning> {
        of_classes(self, &WarningContext { capacity: None, workers: Vec::new() })
    }
}

/// Capacity and workers of the pool that has the policy, if they are known.
struct WarningContext<'a> {
    capacity: Option<u64>,
    workers: Vec<&'a UpstreamConfig>,
}

fn of_policy(policy: &Policy, around: &WarningContext<'_>) -> Vec<PolicyWarning> {
    let mut walk = PolicyTraversal { around, found: Vec::new() };
    let root = policy.root();
    walk.node(root, &format!("policy.{}", root.kind()), false);
    walk.found
}

fn of_classes(classes: &PolicyClasses, around: &WarningContext<'_>) -> Vec<PolicyWarning> {
    let mut walk = PolicyTraversal { around, found: Vec::new() };
    let all = classes.all();
    if classes.arbiter() == ClassArbiter::Bands {
        walk.uncapped(
            "policy_classes[0]",
            &names(all.iter().map(|class| class.name.as_str())),
            all[0].cap,
        );
        walk.default_family(classes);
    }
    if let PolicyNode::Drr(drr) = &**classes.policy().root() {
        walk.drr(drr, "policy_classes", "arbiter: share");
    }
    for (i, class) in all.iter().enumerate() {
        walk.policy_class(class, &format!("policy_classes[{i}]"), classes.arbiter());
    }
    walk.found
}

fn names<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    names.collect()
}

/// Joins names as `a`, `a and b`, `a, b and c`.
fn listed(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [all @ .., last] => format!("{} and {last}", all.join(", ")),
    }
}

/// Traversal of a policy tree, with the warnings found so far.
struct PolicyTraversal<'a> {
    around: &'a WarningContext<'a>,
    found: Vec<PolicyWarning>,
}

impl PolicyTraversal<'_> {
    fn warn(&mut self, field: impl Into<String>, message: String) {
        self.found.push(PolicyWarning { field: field.into(), message });
    }

    /// Checks a node and everything inside it. `owned` is true if all requests in the node belong to one tenant or key.
    fn node(&mut self, node: &PolicyNode, path: &str, owned: bool) {
        let owns = matches!(node.by(), Attribute::Tenant | Attribute::Key);
        match node {
            PolicyNode::Bands(bands) => self.bands(bands, path),
            PolicyNode::Drr(drr) => self.drr(drr, path, "share with classes"),
            PolicyNode::Share(_) | PolicyNode::Load(_) => {}
        }
        for PolicyFlowBranch { at, inside, is_shared_by_many } in branches(node, path) {
            let owned = owned || owns && !is_shared_by_many;
            match inside {
                FlowInside::Node(inner) => {
                    self.node(inner, &format!("{at}.inside.{}", inner.kind()), owned);
                }
                FlowInside::Queue(queue) => {
                    // After max_wait_ticks a load node dispatches a flow's oldest request, whatever
                    // the order of its queue.
                    let ages =
                        matches!(node, PolicyNode::Load(load) if load.max_wait_ticks.is_some());
                    self.queue(queue, &format!("{at}.queue"), ages, "max_wait_us");
                    if matches!(node, PolicyNode::Bands(_)) && !owned {
                        self.plain_queue(&at, "give it `inside`, such as {share: {by: tenant}}");
                    }
                }
            }
        }
    }

    fn policy_class(&mut self, class: &PolicyClass, at: &str, arbiter: ClassArbiter) {
        match &class.inside {
            ClassInside::Owners => self.queue(&class.queue, at, false, "max_wait"),
            ClassInside::Queue => {
                self.queue(&class.queue, at, false, "max_wait");
                if arbiter == ClassArbiter::Bands {
                    self.plain_queue(at, "remove `inside: queue`, and its owners share it");
                }
            }
            ClassInside::Tree(tree) => {
                let root = tree.root();
                self.node(root, &format!("{at}.inside.{}", root.kind()), false);
            }
        }
    }

    fn bands(&mut self, bands: &BandsPolicy, path: &str) {
        let names = names(bands.classes.iter().map(|class| &*class.name));
        let (Some(first), Some(last)) = (bands.classes.first(), names.last()) else { return };
        self.uncapped(&format!("{path}.classes[0]"), &names, first.cap);
        let default = bands.default_class().unwrap_or_default();
        let place = names.iter().position(|name| *name == default).unwrap_or(0);
        if place + 1 < names.len() {
            let message = format!(
                "requests that name none of the classes go to {default}, before {}: who is new or unknown goes before them. \
                 Write `default: {last}`, or list {default} last",
                listed(&names[place + 1..])
            );
            self.warn(format!("{path}.default"), message);
        }
    }

    /// Warns if the first class of a strict order has no cap that leaves slots for the others.
    fn uncapped(&mut self, field: &str, names: &[&str], cap: Option<u64>) {
        let [first, below @ ..] = names else { return };
        let capacity = self.around.capacity;
        let problem = match (cap, capacity) {
            _ if below.is_empty() => return,
            (None, _) => "has no cap".to_owned(),
            (Some(cap), Some(capacity)) if cap >= capacity => {
                format!("has a cap of {cap}, and the pool has {capacity} slots")
            }
            (Some(_), _) => return,
        };
        let below = listed(below);
        let most = match capacity {
            Some(capacity) if capacity > 1 => format!("a cap below {capacity}"),
            _ => "a cap below the pool's capacity".to_owned(),
        };
        self.warn(
            field,
            format!(
                "{first} goes before {below} and {problem}: while it has work for all slots, nothing of {below} goes. Give it \
                 {most}, which leaves the rest to those below"
            ),
        );
    }

    /// Warns if another class comes after a class of the default family. Requests that name no family get the default
    /// family, and would go before the requests of that other class.
    fn default_family(&mut self, classes: &PolicyClasses) {
        let family = classes.default_family();
        let is_default =
            |class: &PolicyClass| class.cell.as_ref().is_some_and(|cell| cell.family == family);
        let all = classes.all();
        let Some(first) = all.iter().position(is_default) else { return };
        let below = all[first..].iter().filter(|class| !is_default(class));
        let below = names(below.map(|class| class.name.as_str()));
        if !below.is_empty() {
            let message = format!(
                "requests that name no family are of {family}, whose class {} goes before {}: who is new or unknown goes before \
                 them. List the classes of {family} last, or name another default family",
                all[first].name,
                listed(&below)
            );
            self.warn("default_policy_family", message);
        }
    }

    fn plain_queue(&mut self, at: &str, remedy: &str) {
        let message = format!(
            "one queue for everybody: nothing shares this band between tenants, so one of them can fill it while the others wait. \
             To share it, {remedy}"
        );
        self.warn(at, message);
    }

    fn queue(&mut self, queue: &QueuePolicy, at: &str, ages: bool, option: &str) {
        if queue.order == QueueOrder::Wspt && queue.max_wait.is_none() && !ages {
            let message = format!(
                "wspt without {option}: the cheapest goes first, so a large request waits for as long as smaller ones come. State \
                 {option}, after which a request goes before all that came later"
            );
            self.warn(at, message);
        }
    }

    /// Warns about starvation under deficit round robin. drr skips a class that no worker can serve
    /// now, and does not make up for it later. A worker can be full for one class and open for
    /// another at the same time. Then drr may skip the first class every time.
    fn drr(&mut self, drr: &DrrPolicy, path: &str, instead: &str) {
        if drr.classes.len() < 2 {
            return;
        }
        let thresholds = |class: usize| drr.classes[class].busy;
        let differ = (1..drr.classes.len()).any(|class| thresholds(class) != thresholds(0));
        let stated = drr.classes.iter().filter(|class| class.busy != BusyThresholds::default());
        let stated = names(stated.map(|class| &*class.name));
        if differ {
            let message = format!(
                "{} may wait for ever: with busy thresholds of their own, workers can be full for them and open for other classes, \
                 and drr passes over a class whose workers are full, each time. State the same thresholds for all classes",
                listed(&stated)
            );
            self.warn(path, message);
        }
        if let Some(difference) = self.difference_of_workers() {
            let message = format!(
                "a class whose requests need certain workers may wait for ever: the workers of this pool differ in their \
                 {difference}, and drr passes over a class whose workers are full, each time. Quanta are not shares then; use \
                 {instead}, where who was passed over goes next"
            );
            self.warn(path, message);
        }
    }

    /// Returns the property in which the workers of the pool differ. Because of it, a request may
    /// need certain workers. Returns `None` if the workers are alike.
    fn difference_of_workers(&self) -> Option<&'static str> {
        let (first, others) = self.around.workers.split_first()?;
        let differ = |is_other: fn(&UpstreamConfig, &UpstreamConfig) -> bool| {
            others.iter().any(|other| is_other(first, other))
        };
        if differ(|a, b| a.taints != b.taints) {
            return Some("taints");
        }
        if differ(|a, b| a.dialects != b.dialects) {
            return Some("dialects");
        }
        None
    }
}

/// One flow of a node, or all flows of the node that have the same `inside`.
struct PolicyFlowBranch<'a> {
    /// Path, in the policy, of the setting that defines `inside`.
    at: String,
    inside: &'a FlowInside,
    /// True if this flow is that of the default class, which also gets all requests whose names have no class.
    is_shared_by_many: bool,
}

fn branches<'a>(node: &'a PolicyNode, path: &str) -> Vec<PolicyFlowBranch<'a>> {
    let (classes, default, own): (Vec<(&str, &FlowInside)>, _, &FlowInside) = match node {
        PolicyNode::Share(share) if share.classes.is_empty() => (Vec::new(), None, &share.inside),
        PolicyNode::Load(load) => (Vec::new(), None, &load.inside),
        PolicyNode::Share(share) => {
            let classes = share.classes.iter().map(|class| (&*class.name, &class.inside));
            (classes.collect(), share.default.as_deref(), &share.inside)
        }
        PolicyNode::Drr(drr) => {
            let classes = drr.classes.iter().map(|class| (&*class.name, &class.inside));
            (classes.collect(), drr.default.as_deref(), &drr.inside)
        }
        PolicyNode::Bands(bands) => {
            let classes = bands.classes.iter().map(|class| (&*class.name, &class.inside));
            (classes.collect(), bands.default.as_deref(), &bands.inside)
        }
    };
    if classes.is_empty() {
        return vec![PolicyFlowBranch {
            at: path.to_owned(),
            inside: own,
            is_shared_by_many: false,
        }];
    }
    let mut told_of_own = false;
    let branch = |(i, (name, inside)): (usize, (&str, &'a FlowInside))| {
        let is_shared_by_many = default.map_or(i == 0, |default| default == name);
        let is_own = match (inside, own) {
            (FlowInside::Node(inside), FlowInside::Node(own)) => Arc::ptr_eq(inside, own),
            _ => false,
        };
        // The `inside` that a node gives to all its classes is checked only once.
        let again = is_own && std::mem::replace(&mut told_of_own, is_own);
        let at = if is_own { path.to_owned() } else { format!("{path}.classes[{i}]") };
        (!again).then_some(PolicyFlowBranch { at, inside, is_shared_by_many })
    };
    classes.into_iter().enumerate().filter_map(branch).collect()
}
