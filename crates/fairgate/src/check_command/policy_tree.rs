//! Draws a policy as a tree of lines.

use std::io::{self, Write};

use fairgate_config::{ClassArbiter, ClassCell, ClassInside, PolicyClass, PolicyClasses};
use fairgate_core::policy::{
    BusyThresholds, ClassLimits, FlowInside, LoadPolicy, Policy, PolicyNode, QueueOrder,
    QueuePolicy, SharePolicy,
};

use crate::text_format::{DecimalThousandths, TimeSpan, counted, safe_name};

/// A line, and the lines below it.
pub(super) struct PolicyTreeLine {
    text: String,
    below: Vec<PolicyTreeLine>,
}

impl PolicyTreeLine {
    fn leaf(text: impl Into<String>) -> Self {
        Self { text: text.into(), below: Vec::new() }
    }

    /// Draws the classes of a policy file, with the requests that each class gets.
    pub(super) fn of_classes(whose: &str, classes: &PolicyClasses) -> Self {
        let (discipline, number) = match classes.arbiter() {
            ClassArbiter::Drr => ("drr by class", "quantum"),
            ClassArbiter::Share => ("share by class", "weight"),
            ClassArbiter::Bands => ("bands by class: strict, the first goes before the next", ""),
        };
        let default = classes.default_family();
        let text = format!("{whose}: {discipline}, default family {default}");
        let class = |class: &PolicyClass| {
            let leads = match &class.cell {
                Some(ClassCell { family, bucket }) => {
                    let (from, to) = classes.range(bucket).unwrap_or_default();
                    let range = match to {
                        Some(to) => format!("{from} to {} uncached tokens", to.saturating_sub(1)),
                        None => format!("{from} uncached tokens and more"),
                    };
                    format!("{family} × {bucket} ({range})")
                }
                None => "explicit: requests name it".to_owned(),
            };
            let quantum = class.quantum.map(|quantum| format!(", {number} {}", quantum.get()));
            let cap = match (class.cap, classes.arbiter()) {
                (Some(cap), _) => format!(", at most {cap} in flight"),
                (None, ClassArbiter::Bands) => ", any number in flight".to_owned(),
                (None, _) => String::new(),
            };
            let text = format!("{}: {leads}{}{cap}", class.name, quantum.unwrap_or_default());
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

    /// Draws any policy, from its root.
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

fn node(node: &PolicyNode) -> PolicyTreeLine {
    let by = node.by().name();
    match node {
        PolicyNode::Drr(drr) => {
            let below = drr.classes.iter().map(|class| {
                let text = format!("{}: quantum {}", safe_name(&class.name), class.quantum.get());
                let mut below = rules(&class.busy, &class.limits);
                below.push(inside(&class.inside));
                PolicyTreeLine { text, below }
            });
            PolicyTreeLine { text: format!("drr by {by}"), below: below.collect() }
        }
        PolicyNode::Share(share) if share.classes.is_empty() => {
            let text = format!("share by {by}{}", weights(share));
            PolicyTreeLine { text, below: vec![inside(&share.inside)] }
        }
        PolicyNode::Share(share) => {
            let below = share.classes.iter().map(|class| {
                let cap = class.cap.map(|cap| format!(", at most {cap} in flight"));
                let cap = cap.unwrap_or_default();
                let text =
                    format!("{}: weight {}{cap}", safe_name(&class.name), class.weight.get());
                let mut below = rules(&class.busy, &class.limits);
                below.push(inside(&class.inside));
                PolicyTreeLine { text, below }
            });
            PolicyTreeLine { text: format!("share by {by}"), below: below.collect() }
        }
        PolicyNode::Bands(bands) => {
            let below = bands.classes.iter().map(|class| {
                let cap = match class.cap {
                    Some(cap) => format!("at most {cap} in flight"),
                    None => "any number in flight".to_owned(),
                };
                let text = format!("{}: {cap}", safe_name(&class.name));
                let mut below = rules(&class.busy, &class.limits);
                below.push(inside(&class.inside));
                PolicyTreeLine { text, below }
            });
            let default = bands.default_class().map(safe_name).unwrap_or_default();
            let text =
                format!("bands by {by}: strict, the first goes before the next; default {default}");
            PolicyTreeLine { text, below: below.collect() }
        }
        PolicyNode::Load(load) => {
            let text = format!("load by {by}{}", settings(load));
            PolicyTreeLine { text, below: vec![inside(&load.inside)] }
        }
    }
}

fn inside(inside: &FlowInside) -> PolicyTreeLine {
    match inside {
        FlowInside::Queue(of_it) => PolicyTreeLine::leaf(queue(of_it)),
        FlowInside::Node(below) => node(below),
    }
}

fn weights(share: &SharePolicy) -> String {
    let mut words: Vec<String> = share
        .weights
        .iter()
        .map(|(flow, weight)| format!("{} {}", safe_name(flow), weight.get()))
        .chain(
            share
                .caps
                .iter()
                .map(|(flow, cap)| format!("{} at most {cap} in flight", safe_name(flow))),
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

fn settings(load: &LoadPolicy) -> String {
    let tuned = if load.auto_tune { ", tuned while it runs" } else { "" };
    let late =
        load.max_wait_ticks.map(|ticks| format!(", at most {} of waiting", counted(ticks, "tick")));
    let millionths = load.alpha.millionths();
    let alpha = format!("{}.{:06}", millionths / 1_000_000, millionths % 1_000_000);
    let alpha = alpha.trim_end_matches('0').trim_end_matches('.');
    format!(": alpha {alpha}{tuned}{}", late.unwrap_or_default())
}

fn queue(queue: &QueuePolicy) -> String {
    let order = match queue.order {
        QueueOrder::Fcfs => "first come, first served (fcfs)",
        QueueOrder::Wspt => "the cheapest first (wspt)",
        QueueOrder::Edf => "the earliest deadline first (edf)",
    };
    match queue.max_wait {
        Some(wait) => {
            format!("{order}; after {} a request goes before all later ones", TimeSpan(wait))
        }
        None => order.to_owned(),
    }
}

/// Describes the thresholds above which workers count as busy for a class, and the class's queue limits; empty if
/// neither is set.
fn rules(busy: &BusyThresholds, limits: &ClassLimits) -> Vec<PolicyTreeLine> {
    let tokens = busy.tokens.map(|tokens| counted(tokens.0, "token"));
    let fraction = busy
        .fraction
        .map(|part| format!("{} of a batch", DecimalThousandths(part.thousandths().into())));
    let over: Vec<String> = tokens.into_iter().chain(fraction).collect();
    let requests = limits.requests_per_worker.map(|most| counted(most, "request"));
    let input = limits.input_tokens_per_worker.map(|most| counted(most.0, "input token"));
    let cached = limits.cached_tokens_per_worker.map(|most| counted(most.0, "cached token"));
    let most: Vec<String> = requests.into_iter().chain(input).chain(cached).collect();
    let mut rules = Vec::new();
    if !over.is_empty() {
        let over = over.join(" or ");
        rules.push(PolicyTreeLine::leaf(format!("a worker is busy above {over} in prefill")));
    }
    if !most.is_empty() {
        let most = most.join(", ");
        rules.push(PolicyTreeLine::leaf(format!("queue limits per worker: {most}")));
    }
    rules
}
