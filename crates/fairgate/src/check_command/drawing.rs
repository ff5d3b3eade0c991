//! A policy as a tree of lines.

use std::io::{self, Write};

use fairgate_config::{Arbiter, Cell, ClassInside, Classes, PolicyClass};
use fairgate_core::policy::{
    BusyThresholds, ClassLimits, Inside, Load, Node, Order, Policy, Queue, Share,
};

use crate::words::{Span, Thousandths, counted, shown};

/// A line, and the lines below it.
pub(super) struct Branch {
    text: String,
    below: Vec<Branch>,
}

impl Branch {
    fn leaf(text: impl Into<String>) -> Self {
        Self { text: text.into(), below: Vec::new() }
    }

    /// Classes of a policy file, with what leads to each.
    pub(super) fn of_classes(whose: &str, classes: &Classes) -> Self {
        let (discipline, number) = match classes.arbiter() {
            Arbiter::Drr => ("drr by class", "quantum"),
            Arbiter::Share => ("share by class", "weight"),
        };
        let default = classes.default_family();
        let text = format!("{whose}: {discipline}, default family {default}");
        let class = |class: &PolicyClass| {
            let leads = match &class.cell {
                Some(Cell { family, bucket }) => {
                    let (from, to) = classes.range(bucket).unwrap_or_default();
                    let range = match to {
                        Some(to) => format!("{from} to {} uncached tokens", to.saturating_sub(1)),
                        None => format!("{from} uncached tokens and more"),
                    };
                    format!("{family} × {bucket} ({range})")
                }
                None => "explicit: requests name it".to_owned(),
            };
            let text = format!("{}: {leads}, {number} {}", class.name, class.quantum.get());
            let inside = match &class.inside {
                ClassInside::Owners => Self::leaf(format!(
                    "share by group, then tenant, then key; {}",
                    queue(&class.queue)
                )),
                ClassInside::Queue => Self::leaf(format!("one queue: {}", queue(&class.queue))),
                ClassInside::Tree(tree) => node(tree.root()),
            };
            let mut below = rules(&class.busy, &class.limits);
            below.push(inside);
            Self { text, below }
        };
        Self { text, below: classes.all().iter().map(class).collect() }
    }

    /// Any policy.
    pub(super) fn of_policy(whose: &str, policy: &Policy) -> Self {
        let Self { text, below } = node(policy.root());
        Self { text: format!("{whose}: {text}"), below }
    }

    pub(super) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "{}", self.text)?;
        self.write_below(out, "")
    }

    fn write_below(&self, out: &mut impl Write, margin: &str) -> io::Result<()> {
        for (i, branch) in self.below.iter().enumerate() {
            let is_last = i + 1 == self.below.len();
            let (fork, rest) = if is_last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
            writeln!(out, "{margin}{fork}{}", branch.text)?;
            branch.write_below(out, &format!("{margin}{rest}"))?;
        }
        Ok(())
    }
}

fn node(node: &Node) -> Branch {
    let by = node.by().name();
    match node {
        Node::Drr(drr) => {
            let below = drr.classes.iter().map(|class| {
                let text = format!("{}: quantum {}", shown(&class.name), class.quantum.get());
                let mut below = rules(&class.busy, &class.limits);
                below.push(inside(&class.inside));
                Branch { text, below }
            });
            Branch { text: format!("drr by {by}"), below: below.collect() }
        }
        Node::Share(share) if share.classes.is_empty() => {
            let text = format!("share by {by}{}", weights(share));
            Branch { text, below: vec![inside(&share.inside)] }
        }
        Node::Share(share) => {
            let below = share.classes.iter().map(|class| {
                let cap = class.cap.map(|cap| format!(", at most {cap} in flight"));
                let cap = cap.unwrap_or_default();
                let text = format!("{}: weight {}{cap}", shown(&class.name), class.weight.get());
                let mut below = rules(&class.busy, &class.limits);
                below.push(inside(&class.inside));
                Branch { text, below }
            });
            Branch { text: format!("share by {by}"), below: below.collect() }
        }
        Node::Load(load) => {
            let text = format!("load by {by}{}", settings(load));
            Branch { text, below: vec![inside(&load.inside)] }
        }
    }
}

fn inside(inside: &Inside) -> Branch {
    match inside {
        Inside::Queue(of_it) => Branch::leaf(queue(of_it)),
        Inside::Node(below) => node(below),
    }
}

fn weights(share: &Share) -> String {
    let mut words: Vec<String> = share
        .weights
        .iter()
        .map(|(flow, weight)| format!("{} {}", shown(flow), weight.get()))
        .chain(
            share.caps.iter().map(|(flow, cap)| format!("{} at most {cap} in flight", shown(flow))),
        )
        .collect();
    if !share.weights.is_empty() {
        words.push(format!("others {}", share.default_weight.get()));
    }
    words.extend(share.default_cap.map(|cap| format!("each at most {cap} in flight")));
    words.extend(share.partition.then(|| "slots divided first".to_owned()));
    match words.is_empty() {
        true => String::new(),
        false => format!(": {}", words.join(", ")),
    }
}

fn settings(load: &Load) -> String {
    let tuned = if load.auto_tune { ", tuned while it runs" } else { "" };
    let late =
        load.max_wait_ticks.map(|ticks| format!(", at most {} of waiting", counted(ticks, "tick")));
    let millionths = load.alpha.millionths();
    let alpha = format!("{}.{:06}", millionths / 1_000_000, millionths % 1_000_000);
    let alpha = alpha.trim_end_matches('0').trim_end_matches('.');
    format!(": alpha {alpha}{tuned}{}", late.unwrap_or_default())
}

fn queue(queue: &Queue) -> String {
    let order = match queue.order {
        Order::Fcfs => "first come, first served (fcfs)",
        Order::Wspt => "the cheapest first (wspt)",
    };
    match queue.max_wait {
        Some(wait) => format!("{order}; after {} a request goes before all later ones", Span(wait)),
        None => order.to_owned(),
    }
}

/// When workers are busy for a class, and how much may wait in it; nothing where that is not said.
fn rules(busy: &BusyThresholds, limits: &ClassLimits) -> Vec<Branch> {
    let tokens = busy.tokens.map(|tokens| counted(tokens.0, "token"));
    let fraction =
        busy.fraction.map(|part| format!("{} of a batch", Thousandths(part.thousandths().into())));
    let over: Vec<String> = tokens.into_iter().chain(fraction).collect();
    let requests = limits.requests_per_worker.map(|most| counted(most, "request"));
    let input = limits.input_tokens_per_worker.map(|most| counted(most.0, "input token"));
    let cached = limits.cached_tokens_per_worker.map(|most| counted(most.0, "cached token"));
    let most: Vec<String> = requests.into_iter().chain(input).chain(cached).collect();
    let mut rules = Vec::new();
    if !over.is_empty() {
        let over = over.join(" or ");
        rules.push(Branch::leaf(format!("a worker is busy above {over} in prefill")));
    }
    if !most.is_empty() {
        let most = most.join(", ");
        rules.push(Branch::leaf(format!("queue limits per worker: {most}")));
    }
    rules
}
