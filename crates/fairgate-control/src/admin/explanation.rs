//! Explains the state of a request in sentences.

use crate::live::without_names;
use std::sync::Arc;

use fairgate_core::attribute::Attribute;
use fairgate_core::explain::{
    FlowReadiness, FlowStanding, RequestsAhead, WaitingLevel, WaitingRequest,
};
use fairgate_core::fairness::DueService;
use fairgate_core::units::Percentage;
use fairgate_journal::explain_text;
use fairgate_store::AttemptRow;

use fairgate_api::admin::ServiceView;
use fairgate_proxy::rounding::floor_to_u64;

/// Name that a tenant sees instead of the names of all other tenants.
pub(super) const OTHERS: &str = "others";

/// Replaces the names of other owners by their count, because a tenant may not see these names. At
/// a bands node by group, tenant, key or project, the classes are owners. At a bands node by
/// `class`, the classes are names of the policy, and stay.
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
            *service = without_names(std::mem::take(service));
        }
    }
}

/// Removes the levels at which the flow is a class of a family. What is cached decides which class
/// of its family a request is in, so such a level would show a tenant what is cached.
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

/// States whether an explanation shows the token counts of the scheduler.
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

/// Returns one sentence about a waiting request: the reason for its wait, the number of requests
/// before it and their owners, and the expected wait.
pub(super) fn first_sentence(
    waiting: &WaitingRequest,
    ahead: &[RequestsAhead],
    is_full: bool,
    expected_wait_ms: Option<u64>,
) -> String {
    let obstacle = waiting.levels.iter().find(|level| level.readiness != FlowReadiness::Ready);
    let flow = |level: &WaitingLevel| explain_text::flow_name(level.by, &level.flow);
    let reason = match obstacle {
        Some(level) if level.readiness == FlowReadiness::Held => {
            format!("An operator holds {}", flow(level))
        }
        Some(level) if level.readiness == FlowReadiness::AtCap => {
            format!(
                "{} has as many requests in flight as its cap allows",
                capitalised(&flow(level))
            )
        }
        _ if is_full => "The pool is full".to_owned(),
        Some(_) => "No worker that it may use can take it now".to_owned(),
        None => "It is about to get a slot".to_owned(),
    };
    let place = match waiting.place {
        None => Some("it cannot be granted until that changes".to_owned()),
        Some(0) => Some("it goes next".to_owned()),
        Some(1) => Some("1 goes before it".to_owned()),
        Some(before) => Some(format!("{before} go before it")),
    };
    let wait = expected_wait_ms
        .filter(|_| waiting.place.is_some())
        .map(|wait| format!("about {}", duration(wait)));
    let parts = [Some(reason), place, wait, who_goes_before(waiting, ahead)];
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// Names the flow with most of the requests that go before this one, and the rule that orders them
/// so.
fn who_goes_before(waiting: &WaitingRequest, ahead: &[RequestsAhead]) -> Option<String> {
    let most = ahead.iter().max_by_key(|ahead| ahead.requests)?;
    let own: Vec<&str> = waiting.levels.iter().map(|level| &*level.flow).collect();
    let shared = most.path.iter().zip(&own).take_while(|(theirs, own)| ***theirs == ***own).count();
    // The requests of others that are hidden from a tenant have one name for their whole path.
    let level = waiting.levels.get(shared.min(own.len().saturating_sub(1)))?;
    if shared == own.len() {
        return Some("most of them came before it in its own queue".to_owned());
    }
    let name = most.path.get(shared).or(most.path.last())?;
    let are_others = &**name == OTHERS;
    let name = match are_others {
        true => OTHERS.to_owned(),
        false => explain_text::flow_name(level.by, name),
    };
    let (has, goes) = if are_others { ("have", "go") } else { ("has", "goes") };
    Some(match &level.standing {
        FlowStanding::Share { .. } => {
            format!("{name} {has} had less for {} weight", their(are_others))
        }
        FlowStanding::Drr { .. } => format!("it is the turn of {name}"),
        FlowStanding::Bands { .. } => format!("{name} always {goes} first"),
        FlowStanding::Load { .. } => format!("{name} {goes} first by the load function"),
    })
}

fn their(are_many: bool) -> &'static str {
    if are_many { "their" } else { "its" }
}

/// Returns one sentence on how a request ended.
pub(super) fn ended_sentence(row: &AttemptRow) -> String {
    let ms = |micros: u64| duration(micros / 1000);
    let code = row.code.as_ref().map(|code| format!(" ({code})")).unwrap_or_default();
    format!(
        "It ended with status {}{code} after {}, of which it waited {} for a slot",
        row.status,
        ms(row.total_us),
        ms(row.waited_us)
    )
}

/// Returns the text with a capital letter at its beginning.
pub(super) fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}

/// Prints a wait for people: milliseconds below a second, tenths below ten seconds, else whole seconds or minutes.
pub(super) fn duration(milliseconds: u64) -> String {
    match milliseconds {
        0..1_000 => format!("{milliseconds} ms"),
        1_000..10_000 => format!("{}.{} s", milliseconds / 1_000, milliseconds % 1_000 / 100),
        10_000..120_000 => format!("{} s", milliseconds / 1_000),
        _ => format!("{} min", milliseconds / 60_000),
    }
}

/// Describes the tokens that a flow got and was due, and how much of its cap it used.
fn service_sentences(level: &WaitingLevel, service: &ServiceView) -> impl Iterator<Item = String> {
    let flow = explain_text::flow_name(level.by, &level.flow);
    let due = service.due.zip(service.bound).map(|(tokens, bound)| DueService {
        tokens: tokens.into(),
        bound: bound.unsigned_abs().into(),
    });
    let got =
        service.got.map(|got| format!("{flow} {}", explain_text::got_and_due(got.into(), due)));
    let cap_use = service.cap_use.map(|part| {
        let used = Percentage::from_ppm(floor_to_u64((part * 1_000_000.0).round()));
        explain_text::cap_use(&flow, used)
    });
    got.into_iter().chain(cap_use)
}
