//! Explains the state of a request in sentences.

use std::sync::Arc;

use fairgate_core::attribute::Attribute;
use fairgate_core::explain::{FlowStanding, RequestsAhead, WaitingLevel, WaitingRequest};
use fairgate_core::fairness::DueService;
use fairgate_core::units::Percentage;
use fairgate_journal::explain_text;

use crate::live::ServiceView;
use crate::rounding::floor_to_u64;

/// Replaces the names of other owners by their count, because a tenant may not see the names. At a bands node by group,
/// tenant, key or project, the classes are owners. At a bands node by `class`, they are names of the policy, and stay.
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

/// Removes the levels at which the flow is a class of a family. Such a level would show a tenant what is cached,
/// because that decides which class of its family a request is in.
pub(super) fn hide_buckets(
    waiting: &mut WaitingRequest,
    services: &mut Vec<ServiceView>,
    is_in_family: impl Fn(&str) -> bool,
) {
    let is_shown =
        |level: &WaitingLevel| level.by != Attribute::Class || !is_in_family(&level.flow);
    let shown: Vec<bool> = waiting.levels.iter().map(is_shown).collect();
    let mut levels = shown.iter();
    waiting.levels.retain(|_| levels.next().copied().unwrap_or(true));
    let mut levels = shown.iter();
    services.retain(|_| levels.next().copied().unwrap_or(true));
}

/// Tells if an explanation shows the token counts of the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ShownTokens {
    All,
    /// For a tenant, if the tenants of the pool share cached prompts. The cost of a request then depends on the prompts
    /// of others.
    Hidden,
}

/// Returns the sentences that explain why a request is still queued.
pub(super) fn explain_waiting(
    waiting: &WaitingRequest,
    ahead: &[RequestsAhead],
    services: &[ServiceView],
    tokens: ShownTokens,
) -> Vec<String> {
    let innermost = waiting.levels.len().saturating_sub(1);
    let mut story: Vec<String> = Vec::new();
    for (depth, level) in waiting.levels.iter().enumerate() {
        story.extend(explain_text::waiting_obstacle(level, depth == innermost));
        story.push(match (tokens, &level.standing) {
            (ShownTokens::Hidden, FlowStanding::Share { .. } | FlowStanding::Drr { .. }) => {
                explain_text::waiting_requests(level)
            }
            _ => explain_text::waiting_standing(level),
        });
        if let Some(service) = services.get(depth) {
            story.extend(service_sentences(level, service));
        }
    }
    story.push(match tokens {
        ShownTokens::All => explain_text::waiting_place(waiting.place, ahead),
        ShownTokens::Hidden => {
            format!("it waits; {}", explain_text::place_in_line(waiting.place))
        }
    });
    story
}

/// Describes the tokens that a flow got and was due, and how much of its cap it used.
fn service_sentences(level: &WaitingLevel, service: &ServiceView) -> impl Iterator<Item = String> {
    let flow = explain_text::flow_name(level.by, &level.flow);
    let due = service.due_tokens.zip(service.bound_tokens).map(|(tokens, bound)| DueService {
        tokens: tokens.into(),
        bound: bound.unsigned_abs().into(),
    });
    let got = service
        .got_tokens
        .map(|got| format!("{flow} {}", explain_text::got_and_due(got.into(), due)));
    let cap_use = service.cap_use.map(|part| {
        let used = Percentage::from_ppm(floor_to_u64((part * 1_000_000.0).round()));
        explain_text::cap_use(&flow, used)
    });
    got.into_iter().chain(cap_use)
}
