//! share: real tokens by weight.
//!
//! Let sᵢ = settledᵢ, Pᵢ = the costs of i in flight, Rᵢ = the tokens that what it has in flight will really use, and
//! Eᵢ = Uᵢ + Pᵢ what it is charged; P̂ᵢ and R̂ᵢ are the largest that Pᵢ and Rᵢ have been. Take flows i and j that wait,
//! are ready whenever a slot is free, keep their weights, and are in one node that is not partitioned.
//!
//! # From a start at nothing
//! All flows wait before the first grant, so nobody's base is ever moved, and w·score = E. Whoever is granted had the
//! lowest score:
//!
//! ```text
//!     (0)  Eᵢ/wᵢ ≤ Eⱼ/wⱼ    right before each grant to i
//! ```
//!
//! Let g be i's last grant. By (0) Uᵢ(g)/wᵢ ≤ Uⱼ(g)/wⱼ + Pⱼ(g)/wⱼ. Since then Uᵢ grew only by what was in flight right
//! after g, and Uⱼ has not fallen. Hence at every moment
//!
//! ```text
//!     (1)  Uᵢ/wᵢ − Uⱼ/wⱼ ≤ R̂ᵢ/wᵢ + P̂ⱼ/wⱼ
//! ```
//!
//! # Among flows that came and went before
//! Ahead: sᵢ ≤ V + R̂ᵢ/wᵢ. At i's last grant its score was the lowest of the ready, so V was raised to sᵢ at least; since
//! then sᵢ grew only by what ended, all of it in flight after that grant. Starting to wait moves it to V at most.
//!
//! Behind, once j has had a grant: after each rise V ≤ scoreⱼ, so sⱼ ≥ V − P̂ⱼ/wⱼ, and until the next rise sⱼ does not
//! fall. While j is new, V may pass it. But then only flows with scores up to j's are granted, so no settled is further
//! above j's start than some flow's R̂/w, and neither is V: passed ≤ maxₖ R̂ₖ/wₖ.
//!
//! So sᵢ − sⱼ ≤ R̂ᵢ/wᵢ + P̂ⱼ/wⱼ + maxₖ R̂ₖ/wₖ, and between any two moments at which both wait
//!
//! ```text
//!     (2)  | ΔUᵢ/wᵢ − ΔUⱼ/wⱼ | ≤ Bᵢ/wᵢ + Bⱼ/wⱼ + 2·maxₖ R̂ₖ/wₖ,   B = R̂ + P̂ + L
//! ```
//!
//! where L is for what was in flight when the flow came to wait: if that started a new generation, what it used
//! up to its cost is in U and not in s, so L is the sum of the smaller of both. From a start at nothing L = 0 and
//! nobody is passed.
//!
//! Scores are rounded down to 2⁻³² and compared a handful of times above. Times wᵢ·wⱼ ≤ 10⁶ that is far below
//! 1, and both sides are whole numbers then, so that rounding cannot break them.
//!
//! # Starvation, from a start at nothing
//! Let i be granted at g, and j at a later τ, with none to i between. By (0) at g for i and at τ for j,
//!
//! ```text
//!     (3)  (Eⱼ(τ) − Eⱼ(g))/wⱼ ≤ (Eᵢ(τ) − Eᵢ(g))/wᵢ
//! ```
//!
//! The right side is at most Mᵢ/wᵢ, M the sum of the larger of cost and usage over what i has in flight after
//! g. On the left, each of the N grants to j between has added ρⱼ at least, the least that any of its requests
//! costs or uses, and what it had in flight at g took back at most Pⱼ(g). So before i's next grant j has at
//! most one more than N grants, where
//!
//! ```text
//!     (4)  N·ρⱼ/wⱼ ≤ Mᵢ/wᵢ + Pⱼ(g)/wⱼ
//! ```

use fairgate_core::attribute::Attribute;
use fairgate_testkit::workload::SeededRng;

use crate::fair_service::books::{Books, Nearest, Pairs};
use crate::fair_service::stage::{Leaf, Request, Stage, Watch};
use crate::fair_service::{Played, played, run};

/// The share nodes of a tree, and for each leaf the (node, flow) on its path.
struct ShareWatch {
    nodes: Vec<ShareNode>,
    paths: Vec<Vec<(usize, usize)>>,
    /// True if all flows start with counts of 0.
    fresh: bool,
}

struct ShareNode {
    pairs: Pairs,
    /// L of each watched flow; `None` for a flow that is not watched.
    before: Vec<Option<i128>>,
}

impl ShareNode {
    fn new(weights: &[u64], fresh: bool) -> Self {
        let pairs = Pairs::new(weights.iter().map(|w| Books::new(*w, 0)).collect());
        let before = vec![fresh.then_some(0); weights.len()];
        Self { pairs: if fresh { pairs.all_wait() } else { pairs }, before }
    }

    /// Watches a flow, which waits from now on.
    fn joined(&mut self, flow: usize) {
        if self.before[flow].is_some() {
            return;
        }
        self.before[flow] = Some(self.pairs.books[flow].in_flight.smaller);
        for (i, j) in self.pairs.pairs() {
            if (i == flow || j == flow) && self.before[i].is_some() && self.before[j].is_some() {
                self.pairs.low[i][j] = Some(self.difference(i, j));
            }
        }
    }

    /// Returns (Uᵢ/wᵢ − Uⱼ/wⱼ)·wᵢ·wⱼ.
    fn difference(&self, i: usize, j: usize) -> i128 {
        let (a, b) = (&self.pairs.books[i], &self.pairs.books[j]);
        a.used * b.weight - b.used * a.weight
    }

    /// Returns 2·maxₖ R̂ₖ/wₖ times both weights; 0 if all flows start with counts of 0.
    fn passed(&self, weights: i128, fresh: bool) -> i128 {
        if fresh {
            return 0;
        }
        let each = self.pairs.books.iter().map(|k| 2 * k.most.used * weights / k.weight + 1);
        each.max().unwrap_or(0)
    }

    fn check_service(&mut self, fresh: bool) -> Result<(), String> {
        for (i, j) in self.pairs.pairs() {
            let (Some(old_i), Some(old_j)) = (self.before[i], self.before[j]) else { continue };
            let (a, b) = (self.pairs.books[i], self.pairs.books[j]);
            let now = self.difference(i, j);
            let most = (a.most.used + a.most.cost + old_i) * b.weight
                + (b.most.used + b.most.cost + old_j) * a.weight
                + self.passed(a.weight * b.weight, fresh);
            self.pairs.rises("(2) service", (i, j), now, most)?;
            if fresh {
                let most = a.most.used * b.weight + b.most.cost * a.weight;
                let holds = self.pairs.nearest.holds("(1) service from the start", now, most);
                holds.map_err(|broken| format!("{i} over {j}: {broken}"))?;
            }
        }
        Ok(())
    }

    /// Checks the inequalities before a grant to j, if all flows start with counts of 0.
    fn check_grant(&mut self, j: usize) -> Result<(), String> {
        let Pairs { books, before, after, nearest, .. } = &mut self.pairs;
        let b = books[j];
        for (i, a) in books.iter().enumerate().filter(|(i, _)| *i != j) {
            let failed = |broken| format!("{j} goes before {i}: {broken}");
            let (left, right) = (b.charged() * a.weight, a.charged() * b.weight);
            nearest.holds("(0) lowest score", left, right).map_err(failed)?;
            let (Some(before), Some(after)) = (&before[i], &after[i]) else { continue };
            let left = (b.charged() - before[j].charged()) * a.weight;
            let right = (a.charged() - before[i].charged()) * b.weight;
            nearest.holds("(3) tokens while another waits", left, right).map_err(failed)?;
            let left = (b.grants - before[j].grants) * b.least.unwrap_or(0) * a.weight;
            let right = after[i].in_flight.larger * b.weight + before[j].in_flight.cost * a.weight;
            nearest.holds("(4) grants while another waits", left, right).map_err(failed)?;
        }
        Ok(())
    }
}

impl ShareWatch {
    fn joined(&mut self, leaf: usize) {
        for (node, flow) in &self.paths[leaf] {
            self.nodes[*node].joined(*flow);
        }
    }
}

impl Watch for ShareWatch {
    fn ended(&mut self, request: Request) -> Result<(), String> {
        for (node, flow) in &self.paths[request.leaf] {
            let at = |broken| format!("node {node}: {broken}");
            let node = &mut self.nodes[*node];
            node.pairs.books[*flow].end(request);
            node.check_service(self.fresh).map_err(at)?;
        }
        Ok(())
    }

    fn granted(&mut self, request: Request) -> Result<(), String> {
        for (node, flow) in &self.paths[request.leaf] {
            let at = |broken| format!("node {node}: {broken}");
            let node = &mut self.nodes[*node];
            if self.fresh {
                node.check_grant(*flow).map_err(at)?;
            }
            node.pairs.grant(*flow, request);
        }
        Ok(())
    }
}

fn random_weights(n: usize, rng: &mut SeededRng) -> Vec<u64> {
    let most = rng.one_of(&[1, 4, 100, 1000]);
    (0..n).map(|_| rng.range(1..=most)).collect()
}

/// `"name0":w0,"name1":w1`
fn weights_text(name: &str, weights: &[u64]) -> String {
    let each: Vec<_> =
        weights.iter().enumerate().map(|(i, w)| format!(r#""{name}{i}":{w}"#)).collect();
    each.join(",")
}

/// Runs a journal of share nodes. Either all flows wait from the start, or flows first come and go, and then one after
/// the other keeps waiting.
fn share_journal(mut stage: Stage, mut watch: ShareWatch) -> Played {
    let outcome = match watch.fresh {
        true => from_nothing(&mut stage, &mut watch),
        false => after_traffic(&mut stage, &mut watch),
    };
    let mut nearest = Nearest::default();
    for node in &watch.nodes {
        nearest.join(&node.pairs.nearest);
    }
    played(outcome, nearest, stage)
}

fn from_nothing(stage: &mut Stage, watch: &mut ShareWatch) -> Result<(), String> {
    let all: Vec<usize> = (0..stage.count()).collect();
    stage.start_full(watch)?;
    stage.run(&all, 200, watch)
}

fn after_traffic(stage: &mut Stage, watch: &mut ShareWatch) -> Result<(), String> {
    let all: Vec<usize> = (0..stage.count()).collect();
    stage.change_slots(watch)?;
    for _ in 0..60 {
        if !stage.has_in_flight() || stage.rng.percent(55) {
            let leaf = stage.rng.one_of(&all);
            stage.submit(leaf, watch)?;
        } else {
            stage.end_one(watch)?;
        }
    }
    let mut stay: Vec<usize> = Vec::new();
    while stay.len() < all.len() {
        let away: Vec<_> = all.iter().copied().filter(|l| !stay.contains(l)).collect();
        for _ in 0..stage.rng.count(1..=away.len()) {
            let leaf = stage.rng.one_of(&away);
            stage.fill(leaf, watch)?;
            if !stay.contains(&leaf) {
                watch.joined(leaf);
                stay.push(leaf);
            }
        }
        for leaf in &stay {
            stage.fill(*leaf, watch)?;
        }
        stage.run(&stay, 40, watch)?;
    }
    stage.run(&all, 100, watch)
}

fn flat(seed: u64) -> Played {
    let mut rng = SeededRng::new(seed);
    let n = rng.count(2..=8);
    let weights = random_weights(n, &mut rng);
    let listed = weights_text("t", &weights);
    let policy = format!(r#"{{"share":{{"by":"tenant","weights":{{{listed}}}}}}}"#);
    let leaf = |i| Leaf::random(Attribute::Tenant, &format!("t{i}"), &mut rng);
    let leaves = (0..n).map(leaf).collect();
    let fresh = rng.percent(60);
    let watch = ShareWatch {
        nodes: vec![ShareNode::new(&weights, fresh)],
        paths: (0..n).map(|i| vec![(0, i)]).collect(),
        fresh,
    };
    share_journal(Stage::new(rng, &policy, leaves), watch)
}

/// Runs a journal with groups and tenants inside each group. Every node is checked by itself.
fn nested(seed: u64) -> Played {
    let mut rng = SeededRng::new(seed);
    let groups = rng.count(2..=4);
    let sizes: Vec<usize> = (0..groups).map(|_| rng.count(1..=3)).collect();
    let (group_weights, weights) = (random_weights(groups, &mut rng), random_weights(3, &mut rng));
    let inside =
        format!(r#"{{"share":{{"by":"tenant","weights":{{{}}}}}}}"#, weights_text("t", &weights));
    let listed = weights_text("g", &group_weights);
    let policy =
        format!(r#"{{"share":{{"by":"group","weights":{{{listed}}},"inside":{inside}}}}}"#);
    let fresh = rng.percent(60);
    let mut nodes = vec![ShareNode::new(&group_weights, fresh)];
    let (mut paths, mut leaves) = (Vec::new(), Vec::new());
    for (group, size) in sizes.into_iter().enumerate() {
        for tenant in 0..size {
            let mut leaf = Leaf::random(Attribute::Tenant, &format!("t{tenant}"), &mut rng);
            leaf.attributes.set(Attribute::Group, &format!("g{group}"));
            leaves.push(leaf);
            paths.push(vec![(0, group), (nodes.len(), tenant)]);
        }
        nodes.push(ShareNode::new(&weights[..size], fresh));
    }
    share_journal(Stage::new(rng, &policy, leaves), ShareWatch { nodes, paths, fresh })
}

#[test]
fn share_serves_real_tokens_by_weight() {
    run("share", flat);
}

#[test]
fn share_in_share_serves_real_tokens_by_weight_on_each_level() {
    run("share in share", nested);
}
