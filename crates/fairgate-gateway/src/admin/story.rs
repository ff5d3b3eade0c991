//! Where a request is and why, in words.

use fairgate_core::explain::{Ahead, Readiness, Standing, Waiting, WaitingLevel};

use crate::live::ServiceView;

/// What a waiting request waits for, sentence by sentence.
pub(super) fn of_waiting(
    waiting: &Waiting,
    ahead: &[Ahead],
    services: &[ServiceView],
) -> Vec<String> {
    let innermost = waiting.levels.len().saturating_sub(1);
    let mut story: Vec<String> = Vec::new();
    for (depth, level) in waiting.levels.iter().enumerate() {
        story.extend(obstacle(level, depth == innermost));
        story.push(standing(level));
        story.extend(services.get(depth).and_then(|it| service(level, it)));
        story.extend(services.get(depth).and_then(|it| cap_use(level, it)));
    }
    story.push(place(waiting.place, ahead));
    story
}

fn flow(level: &WaitingLevel) -> String {
    format!("{} {}", level.by.name(), level.flow)
}

fn obstacle(level: &WaitingLevel, has_queue: bool) -> Option<String> {
    let flow = flow(level);
    Some(match (level.readiness, &level.standing) {
        (Readiness::Ready, _) => return None,
        (Readiness::Held, _) => format!("{flow} is held by an operator"),
        (Readiness::AtCap, Standing::Share { cap: Some(cap), .. }) => {
            format!("{flow} is at its cap: {} of {cap} in flight", level.in_flight)
        }
        (Readiness::AtCap, _) => format!("{flow} is at its cap: {} in flight", level.in_flight),
        (Readiness::Blocked, _) if has_queue => {
            format!("{flow} is blocked: no worker has room for what is first in it")
        }
        (Readiness::Blocked, _) => format!("{flow} is blocked: nothing inside it can go"),
    })
}

fn standing(level: &WaitingLevel) -> String {
    let flow = flow(level);
    let under_way = format!("{} waiting, {} in flight", level.waiting, level.in_flight);
    match &level.standing {
        Standing::Share { score, virtual_time, weight, slots, .. } => {
            let slots = slots.map(|slots| format!(", {slots} slot(s)")).unwrap_or_default();
            format!(
                "{flow} stands at {score} tokens per weight (weight {}{slots}), where the pool is at {virtual_time}; \
                 the lowest goes next; {under_way}",
                weight.get()
            )
        }
        Standing::Drr { deficit, quantum, .. } => format!(
            "{flow} has a credit of {deficit} tokens and earns {} a round; {under_way}",
            quantum.get()
        ),
        Standing::Load { age, .. } => {
            format!("{flow}: its oldest has waited {} tick(s); {under_way}", age.0)
        }
    }
}

/// What a flow got beside what it was due; only what it got where nothing is promised.
fn service(level: &WaitingLevel, service: &ServiceView) -> Option<String> {
    let (flow, got) = (flow(level), service.got_tokens?);
    let due = service.due_tokens.zip(service.difference_tokens).zip(service.bound_tokens);
    let Some(((due, difference), bound)) = due else {
        return Some(format!("{flow} got {got} tokens so far"));
    };
    let off = match difference {
        0 => "no difference".to_owned(),
        1.. => format!("{difference} more"),
        _ => format!("{} fewer", difference.unsigned_abs()),
    };
    let within = if service.within_bound == Some(false) { "outside" } else { "within" };
    Some(format!(
        "{flow} got {got} tokens so far and was due {due}: {off}, {within} its bound of {bound} tokens"
    ))
}

fn cap_use(level: &WaitingLevel, service: &ServiceView) -> Option<String> {
    let percent = service.cap_use? * 100.0;
    Some(format!("{} used {percent:.1} % of its cap while something of it waited", flow(level)))
}

fn place(place: Option<u64>, ahead: &[Ahead]) -> String {
    match place {
        None => "as things are, it would never be granted".to_owned(),
        Some(0) => "it is next in line for a slot".to_owned(),
        Some(place) => {
            let ahead: Vec<String> = ahead
                .iter()
                .map(|each| {
                    let path = each.path.join(" / ");
                    format!("{} of {path} ({} tokens)", each.requests, each.tokens)
                })
                .collect();
            format!(
                "if nothing else came, {place} grant(s) would come before its own: {}",
                ahead.join(", ")
            )
        }
    }
}
