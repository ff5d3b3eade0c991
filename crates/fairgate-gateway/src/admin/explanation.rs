//! Explains the state of a request in sentences.

use std::sync::Arc;

use fairgate_core::attribute::Attribute;
use fairgate_core::explain::{
    FlowReadiness, FlowStanding, RequestsAhead, WaitingLevel, WaitingRequest,
};

use crate::live::ServiceView;

/// Replaces the names of other owners by the number of these owners, because a tenant may not see the names. The
/// classes of a bands node by group, tenant, key or project are owners. The classes of a bands node by `class` are
/// names of the policy, and stay.
pub(super) fn hide_others(waiting: &mut WaitingRequest, services: &mut [ServiceView]) {
    let counted = |names: &mut Vec<Arc<str>>| match names.len() {
        0 => {}
        1 => *names = vec!["one other".into()],
        many => *names = vec![format!("{many} others").into()],
    };
    for (level, service) in waiting.levels.iter_mut().zip(services) {
        let is_owner = matches!(
            level.by,
            Attribute::Group | Attribute::Tenant | Attribute::Key | Attribute::Project
        );
        if let FlowStanding::Bands { comes_after, goes_before, .. } = &mut level.standing
            && is_owner
        {
            counted(comes_after);
            counted(goes_before);
            *service = std::mem::take(service).without_names();
        }
    }
}

/// Returns the sentences that explain why a request is still queued.
pub(super) fn explain_waiting(
    waiting: &WaitingRequest,
    ahead: &[RequestsAhead],
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
        (FlowReadiness::Ready, _) => return None,
        (FlowReadiness::Held, _) => format!("{flow} is held by an operator"),
        (
            FlowReadiness::AtCap,
            FlowStanding::Share { cap: Some(cap), .. } | FlowStanding::Bands { cap: Some(cap), .. },
        ) => {
            format!("{flow} is at its cap: {} of {cap} in flight", level.in_flight)
        }
        (FlowReadiness::AtCap, _) => format!("{flow} is at its cap: {} in flight", level.in_flight),
        (FlowReadiness::Blocked, _) if has_queue => {
            format!("{flow} is blocked: no worker has room for what is first in it")
        }
        (FlowReadiness::Blocked, _) => format!("{flow} is blocked: nothing inside it can go"),
    })
}

fn standing(level: &WaitingLevel) -> String {
    let flow = flow(level);
    let under_way = format!("{} waiting, {} in flight", level.waiting, level.in_flight);
    match &level.standing {
        FlowStanding::Share { score, virtual_time, weight, slots, .. } => {
            let slots = slots.map(|slots| format!(", {slots} slot(s)")).unwrap_or_default();
            format!(
                "{flow} stands at {score} tokens per weight (weight {}{slots}), where the pool is at {virtual_time}; \
                 the lowest goes next; {under_way}",
                weight.get()
            )
        }
        FlowStanding::Drr { deficit, quantum, .. } => format!(
            "{flow} has a credit of {deficit} tokens and earns {} a round; {under_way}",
            quantum.get()
        ),
        FlowStanding::Load { age, .. } => {
            format!("{flow}: its oldest has waited {} tick(s); {under_way}", age.0)
        }
        FlowStanding::Bands { comes_after, goes_before, .. } => {
            format!("{flow} {}; {under_way}", strict_order(comes_after, goes_before))
        }
    }
}

/// Describes a class in a strict order by the classes that it goes before, and the classes for which it waits.
fn strict_order(comes_after: &[Arc<str>], goes_before: &[Arc<str>]) -> String {
    match (comes_after, goes_before) {
        ([], []) => "is the only class of its strict order".to_owned(),
        ([], below) => format!("is strict: goes before {}", below.join(", ")),
        (above, []) => format!("is strict: waits while {} could go", above.join(" or ")),
        (above, below) => format!(
            "is strict: goes before {}, waits while {} could go",
            below.join(", "),
            above.join(" or ")
        ),
    }
}

/// Describes the tokens that a flow got and the tokens that it was due, or only the former if the policy promises no
/// share.
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

fn place(place: Option<u64>, ahead: &[RequestsAhead]) -> String {
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
