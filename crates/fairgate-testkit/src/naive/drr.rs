//! The `drr` node: deficit round robin.

use fairgate_core::attribute::Attribute;
use fairgate_core::policy::{BusyThresholds, DrrClassPolicy, DrrPolicy};

use super::request::NaiveRequest;
use super::state::NaiveState;
use super::tree::{ClassSettings, NaiveFlow, NaivePick, NodeChange, NodeChoice, NodeRule};

#[derive(Clone, Debug)]
pub(super) struct NaiveDrrNode {
    policy: DrrPolicy,
    classes: Vec<NaiveDrrClass>,
    /// Index of the class at the cursor.
    cursor: usize,
    stayed: bool,
}

#[derive(Clone, Debug)]
struct NaiveDrrClass {
    flow: NaiveFlow,
    deficit: i128,
}

/// State of a class when the node looks for the next request.
struct ClassAtLook {
    is_empty: bool,
    /// Request at the head of the class; `None` if the class is not ready.
    pick: Option<NaivePick>,
    quantum: i128,
}

impl NaiveDrrNode {
    pub(super) fn new(policy: &DrrPolicy) -> Self {
        let flow = |class: &DrrClassPolicy| NaiveFlow::new(&class.name, &class.inside);
        let classes = policy.classes.iter().map(|c| NaiveDrrClass { flow: flow(c), deficit: 0 });
        Self { policy: policy.clone(), classes: classes.collect(), cursor: 0, stayed: false }
    }

    fn listed(&self, name: &str) -> Option<&DrrClassPolicy> {
        self.policy.classes.iter().find(|class| *class.name == *name)
    }

    fn next(&self, index: usize) -> usize {
        (index + 1) % self.classes.len()
    }

    fn quantum(&self, index: usize, world: &NaiveState) -> i128 {
        let class = &self.policy.classes[index];
        let event = world.weight_event(self.policy.by, &class.name);
        i128::from(event.unwrap_or(class.quantum.get()))
    }

    fn pick_in_class(
        &self,
        index: usize,
        world: &NaiveState,
        busy: BusyThresholds,
    ) -> Option<NaivePick> {
        let class = &self.policy.classes[index];
        let busy = if class.busy.is_stated() { class.busy } else { busy };
        self.classes[index].flow.pick(self.policy.by, world, busy)
    }

    fn see(&self, index: usize, world: &NaiveState, busy: BusyThresholds) -> ClassAtLook {
        ClassAtLook {
            is_empty: self.classes[index].flow.is_empty(),
            pick: self.pick_in_class(index, world, busy),
            quantum: self.quantum(index, world),
        }
    }

    /// Returns the classes in ring order from the cursor. If the cursor stayed on a class that cannot be dispatched
    /// now, the class's turn is over. The scan then begins with the next class and visits that class last.
    fn visiting_order(&self) -> Vec<usize> {
        let first = if self.stayed { self.next(self.cursor) } else { self.cursor };
        (0..self.classes.len()).map(|i| (first + i) % self.classes.len()).collect()
    }

    /// Chooses the class to dispatch. Returns its index, and the deficits of all classes before the dispatched request
    /// is charged.
    fn choose(&self, seen: &[ClassAtLook]) -> Option<(usize, Vec<i128>)> {
        let mut deficits: Vec<i128> = self.classes.iter().map(|class| class.deficit).collect();
        let covers = |index: usize, deficit: i128| cost(&seen[index]).is_some_and(|c| deficit >= c);

        // 1. "Where the cursor stayed on its class and that class is ready and can afford its head, dispatch
        // it."
        if self.stayed && covers(self.cursor, deficits[self.cursor]) {
            return Some((self.cursor, deficits));
        }

        // 2. "Visit each class once. Empty: its deficit becomes 0. Not ready: skip, the deficit stays.
        // Deficit covers the head's cost: dispatch. Else add one quantum; dispatch if that covers it."
        let order = self.visiting_order();
        for &index in &order {
            if seen[index].is_empty {
                deficits[index] = 0;
                continue;
            }
            if seen[index].pick.is_none() {
                continue;
            }
            if !covers(index, deficits[index]) {
                deficits[index] += seen[index].quantum;
            }
            if covers(index, deficits[index]) {
                return Some((index, deficits));
            }
        }

        // 3. "Over the ready classes take the fewest further whole rounds that any of them needs; add that
        // many quanta to every ready class; dispatch the first, in the order just visited, that can afford
        // its head. No ready class: no credit, no pick."
        let ready: Vec<usize> = order.into_iter().filter(|&i| seen[i].pick.is_some()).collect();
        let needs = |&index: &usize| {
            let missing = cost(&seen[index]).expect("it is ready") - deficits[index];
            div_ceil(missing, seen[index].quantum)
        };
        let rounds = ready.iter().map(needs).min()?;
        for &index in &ready {
            deficits[index] += rounds * seen[index].quantum;
        }
        let first = ready.into_iter().find(|&index| covers(index, deficits[index]));
        Some((first.expect("the one that needs the fewest rounds"), deficits))
    }
}

/// Returns the cost of the request at a class's head; `None` if the class is not ready.
fn cost(seen: &ClassAtLook) -> Option<i128> {
    seen.pick.as_ref().map(|pick| i128::from(pick.request.cost))
}

/// Returns a divided by b, rounded up, for b > 0.
fn div_ceil(a: i128, b: i128) -> i128 {
    a.div_euclid(b) + i128::from(a.rem_euclid(b) != 0)
}

impl NodeRule for NaiveDrrNode {
    fn by(&self) -> Attribute {
        self.policy.by
    }

    /// Returns the class of a request. A request that names none of the classes goes to the class named in `default`,
    /// or else to the first listed class.
    fn flow_name<'a>(&'a self, request: &'a NaiveRequest) -> &'a str {
        let named = request.submit.attributes.get(self.policy.by);
        let listed = named.filter(|name| self.listed(name).is_some());
        let default = self.policy.default.as_deref();
        listed.or(default).unwrap_or(&self.policy.classes[0].name)
    }

    fn flow_count(&self) -> usize {
        self.classes.len()
    }

    fn flow(&self, index: usize) -> &NaiveFlow {
        &self.classes[index].flow
    }

    fn flow_mut(&mut self, index: usize) -> &mut NaiveFlow {
        &mut self.classes[index].flow
    }

    /// Does nothing, because the flows are "Only the listed classes", which exist from the start.
    fn create_flow(&mut self, _name: &str) {}

    fn pick(&self, world: &NaiveState, busy: BusyThresholds) -> Option<NaivePick> {
        let see = |index| self.see(index, world, busy);
        let mut seen: Vec<ClassAtLook> = (0..self.classes.len()).map(see).collect();
        let (index, deficits) = self.choose(&seen)?;
        let pick = seen.swap_remove(index).pick.expect("what is chosen is ready");
        Some(pick.through(index, NodeChange::Deficits(deficits)))
    }

    /// Charges the cost and moves the cursor. If the class is now empty, its deficit becomes 0 and the cursor moves to
    /// the next class. The cursor also moves if the class's next head is ready and costs more than the deficit that is
    /// left. Otherwise the cursor stays: the next head is affordable, or nothing in the class is ready now.
    fn charge(&mut self, step: &NodeChoice, cost: u64, world: &NaiveState, busy: BusyThresholds) {
        if let NodeChange::Deficits(deficits) = &step.change {
            for (class, deficit) in self.classes.iter_mut().zip(deficits) {
                class.deficit = *deficit;
            }
        }
        self.classes[step.flow].deficit -= i128::from(cost);

        if self.classes[step.flow].flow.is_empty() {
            self.classes[step.flow].deficit = 0;
            (self.cursor, self.stayed) = (self.next(step.flow), false);
            return;
        }
        let left = self.classes[step.flow].deficit;
        let next_head = self.pick_in_class(step.flow, world, busy);
        if next_head.is_some_and(|pick| left < i128::from(pick.request.cost)) {
            (self.cursor, self.stayed) = (self.next(step.flow), false);
        } else {
            (self.cursor, self.stayed) = (step.flow, true);
        }
    }

    /// Resets the deficit of a class that lost its last waiting request in any way other than a grant.
    fn emptied(&mut self, index: usize) {
        self.classes[index].deficit = 0;
    }

    fn class(&self, name: &str) -> Option<ClassSettings> {
        self.listed(name).map(|class| ClassSettings { busy: class.busy, limits: class.limits })
    }
}
