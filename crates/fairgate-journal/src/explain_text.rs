//! Explains in sentences why a request waits, and how much service its flows got and were due.
//!
//! The gateway, `fairgate replay --explain` and the Python package all take their sentences from here. The same facts
//! are written as JSON by [`write_request_location`](crate::write_request_location) and
//! [`write_fairness`](crate::write_fairness).

use std::sync::Arc;

use fairgate_core::attribute::Attribute;
use fairgate_core::event::WorkerState;
use fairgate_core::explain::{
    FlowReadiness, FlowStanding, RequestsAhead, WaitingLevel, WaitingRequest,
};
use fairgate_core::fairness::DueService;
use fairgate_core::snapshot::{Snapshot, WorkerSnapshot};
use fairgate_core::units::Percentage;

/// Largest number of characters of a name that are shown.
const LONGEST_NAME: usize = 60;

/// Returns a name so that it is safe to show on a terminal. Control characters are escaped, and a long name is cut.
pub fn safe_name(name: &str) -> String {
    match name.char_indices().nth(LONGEST_NAME) {
        Some((end, _)) => format!("{}…", one_line(&name[..end])),
        None => one_line(name),
    }
}

/// Returns foreign text as one line that is safe to show on a terminal, with control characters escaped.
pub fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for each in text.chars() {
        match each.is_control() {
            true => line.extend(each.escape_default()),
            false => line.push(each),
        }
    }
    line
}

/// Formats a count with its noun, in the plural unless it is 1.
pub fn counted(count: impl Into<u128>, noun: &str) -> String {
    match count.into() {
        1 => format!("1 {noun}"),
        many => format!("{many} {noun}s"),
    }
}

/// Returns the name of a flow, preceded by the attribute that names it, such as `tenant chat`.
pub fn flow_name(by: Attribute, name: &str) -> String {
    format!("{} {}", by.name(), safe_name(name))
}

/// Describes everything that keeps a queued request from being granted now, from the outermost node to the innermost.
pub fn waiting_obstacles(waiting: &WaitingRequest) -> impl Iterator<Item = String> + '_ {
    let innermost = waiting.levels.len().saturating_sub(1);
    let levels = waiting.levels.iter().enumerate();
    levels.filter_map(move |(depth, level)| waiting_obstacle(level, depth == innermost))
}

/// Describes why the flow of one level cannot be granted anything now; `None` if it can. `has_queue` is true for the
/// innermost level, whose flow has a queue and no node inside.
pub fn waiting_obstacle(level: &WaitingLevel, has_queue: bool) -> Option<String> {
    let flow = flow_name(level.by, &level.flow);
    let cap = match &level.standing {
        FlowStanding::Share { cap, .. } | FlowStanding::Bands { cap, .. } => *cap,
        FlowStanding::Drr { .. } | FlowStanding::Load { .. } => None,
    };
    Some(match (level.readiness, cap) {
        (FlowReadiness::Ready, _) => return None,
        (FlowReadiness::Held, _) => format!("{flow} is held by an operator"),
        (FlowReadiness::AtCap, Some(cap)) => {
            format!("{flow} is at its cap: {} of {cap} in flight", level.in_flight)
        }
        (FlowReadiness::AtCap, None) => {
            format!("{flow} is at its cap: {} in flight", level.in_flight)
        }
        (FlowReadiness::Blocked, _) if has_queue => {
            format!("{flow} is blocked: no worker has room for its first request")
        }
        (FlowReadiness::Blocked, _) => format!("{flow} is blocked: nothing inside it is ready"),
    })
}

/// Returns the number of requests in flight if a pool is full: at its capacity, or with no free slot on any worker that
/// takes requests.
pub fn full_pool_flights(snapshot: &Snapshot) -> Option<u64> {
    let flights = || snapshot.requests.iter().filter_map(|request| request.flight.as_ref());
    let in_flight = flights().count() as u64;
    let workers = snapshot.workers.iter().flat_map(|workers| &workers.list);
    let is_up =
        |worker: &&WorkerSnapshot| matches!(worker.settings.state, None | Some(WorkerState::Up));
    let has_no_slot = |worker: &WorkerSnapshot| {
        let on_it = flights()
            .filter(|flight| flight.place.is_some_and(|(number, _)| number == worker.number));
        let ranks = u64::from(worker.settings.ranks.unwrap_or(1));
        let slots = worker.settings.slots.map(|slots| slots.saturating_mul(ranks));
        slots.is_some_and(|slots| on_it.count() as u64 >= slots)
    };
    let mut up = workers.filter(is_up).peekable();
    let is_full = in_flight >= snapshot.capacity || (up.peek().is_some() && up.all(has_no_slot));
    is_full.then_some(in_flight)
}

/// Removes the obstacle that the pool is full, because it concerns all flows and not just the
/// request's own.
pub fn set_unblocked(waiting: &mut WaitingRequest) {
    for level in &mut waiting.levels {
        if level.readiness == FlowReadiness::Blocked {
            level.readiness = FlowReadiness::Ready;
        }
    }
}

/// Describes a pool whose slots are all taken.
pub fn full_pool(in_flight: u64) -> String {
    format!("the pool is full: {} in flight", counted(in_flight, "request"))
}

/// Describes the numbers by which a level's node orders its flows, and how many requests of the level's flow wait and
/// are in flight.
pub fn waiting_standing(level: &WaitingLevel) -> String {
    let flow = flow_name(level.by, &level.flow);
    let requests = format!("{} waiting, {} in flight", level.waiting, level.in_flight);
    match &level.standing {
        FlowStanding::Share { score, virtual_time, weight, slots, .. } => {
            let slots = slots.map(|slots| format!(", {}", counted(slots, "slot")));
            format!(
                "{flow} has a score of {score} tokens per weight (weight {}{}), and the virtual time is {virtual_time}; \
                 the lowest score goes next; {requests}",
                weight.get(),
                slots.unwrap_or_default()
            )
        }
        FlowStanding::Drr { deficit, quantum, .. } => format!(
            "{flow} has a credit of {} and gets {} in each round; {requests}",
            counted(*deficit, "token"),
            quantum.get()
        ),
        FlowStanding::Load { age, .. } => {
            format!("{flow}: its oldest request has waited {}; {requests}", counted(age.0, "tick"))
        }
        FlowStanding::Bands { comes_after, goes_before, .. } => {
            format!("{flow} is {}; {requests}", place_in_strict_order(comes_after, goes_before))
        }
    }
}

/// Describes how many requests of a level's flow wait and how many are in flight.
pub fn waiting_requests(level: &WaitingLevel) -> String {
    let flow = flow_name(level.by, &level.flow);
    format!("{flow} has {} waiting and {} in flight", level.waiting, level.in_flight)
}

/// Describes the place of a class in a strict order: the classes that go after it, and the classes for which it waits.
fn place_in_strict_order(comes_after: &[Arc<str>], goes_before: &[Arc<str>]) -> String {
    if comes_after.is_empty() && goes_before.is_empty() {
        return "the only class of its strict order".to_owned();
    }
    let waits = format!("waits while {} could go", names(comes_after, " or "));
    match (comes_after, goes_before) {
        ([], below) => strict_order(below),
        (_, []) => format!("strict: {waits}"),
        (_, below) => format!("{}, {waits}", strict_order(below)),
    }
}

/// Describes the place of a class in a strict order by the classes that go after it.
pub fn strict_order(goes_before: &[Arc<str>]) -> String {
    match goes_before {
        [] => "strict: goes last".to_owned(),
        below => format!("strict: goes before {}", names(below, ", ")),
    }
}

fn names(list: &[Arc<str>], between: &str) -> String {
    list.iter().map(|name| safe_name(name)).collect::<Vec<_>>().join(between)
}

/// Describes the place of a queued request by the requests that would be granted before it. `place` is the number of
/// these grants, or `None` if the request would never be granted.
pub fn waiting_place(place: Option<u64>, ahead: &[RequestsAhead]) -> String {
    let line = place_in_line(place);
    match place {
        None => line,
        Some(0) => format!("it waits, {line}"),
        Some(_) => {
            let ahead: Vec<String> = ahead.iter().map(requests_ahead).collect();
            format!("it waits; {line}: {}", ahead.join(", "))
        }
    }
}

/// Describes the place of a queued request. `place` is the number of grants before its own, or `None` if the request
/// would never be granted.
pub fn place_in_line(place: Option<u64>) -> String {
    match place {
        None => "as things are, it would never be granted".to_owned(),
        Some(0) => "next in line for a slot".to_owned(),
        Some(place) => {
            format!("if nothing else came, {} would come before its own", counted(place, "grant"))
        }
    }
}

fn requests_ahead(ahead: &RequestsAhead) -> String {
    let requests = counted(ahead.requests, "request");
    format!("{requests} of {} ({})", names(&ahead.path, " / "), counted(ahead.tokens, "token"))
}

/// Describes the service that a flow got and was due, such as `got 2400 tokens and was due 2000: 400 more, within its
/// bound of 3000 tokens`. If `due` is `None`, because the flow's node promises no shares, only the service that the
/// flow got is described.
pub fn got_and_due(got: i128, due: Option<DueService>) -> String {
    let tokens = match got {
        1 => "1 token".to_owned(),
        _ => format!("{got} tokens"),
    };
    let Some(due) = due else { return format!("got {tokens}") };
    let difference = got.saturating_sub(due.tokens);
    let off = match difference {
        0 => "no difference".to_owned(),
        1.. => format!("{difference} more"),
        _ => format!("{} fewer", difference.unsigned_abs()),
    };
    let side = if difference.unsigned_abs() <= due.bound { "within" } else { "outside" };
    let bound = counted(due.bound, "token");
    format!("got {tokens} and was due {}: {off}, {side} its bound of {bound}", due.tokens)
}

/// Words for the unit of a pool that counts worker time.
pub const WORKER_TIME: &str = "µs of worker time";

/// Words for the unit of a pool that counts money.
pub const MONEY: &str = "micro-units of money";

/// Replaces the word for tokens after each number by the words for the pool's unit. Tokens of input
/// and of caches are tokens in every pool. They have another word before "tokens", and are not
/// changed.
pub fn in_unit(text: &str, unit: &str) -> String {
    let mut parts = text.split(" token");
    let mut told = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let is_count = told.ends_with(|last: char| last.is_ascii_digit());
        match part.strip_prefix('s').or(Some(part)).filter(|_| is_count) {
            Some(rest) => told.extend([" ", unit, rest]),
            None => told.extend([" token", part]),
        }
    }
    told
}

/// Describes the part of a flow's cap that was in use while requests of the flow waited.
pub fn cap_use(flow: &str, used: Percentage) -> String {
    format!("{flow} used {used} of its cap while requests of it waited")
}

#[cfg(test)]
mod tests {
    use fairgate_core::explain::MeteredService;
    use fairgate_core::units::{PerWeight, Weight};

    use super::*;

    fn share(cap: Option<u64>) -> FlowStanding {
        let due = DueService { tokens: 0, bound: 0 };
        FlowStanding::Share {
            score: PerWeight(0),
            settled: PerWeight(0),
            virtual_time: PerWeight(0),
            weight: Weight::new(100).unwrap(),
            pending: 0,
            slots: Some(1),
            cap,
            new: false,
            meter: MeteredService { got: 0, due },
        }
    }

    fn bands(comes_after: &[&str], goes_before: &[&str], cap: Option<u64>) -> FlowStanding {
        let all = |names: &[&str]| names.iter().map(|&name| name.into()).collect();
        let (comes_after, goes_before) = (all(comes_after), all(goes_before));
        FlowStanding::Bands { comes_after, goes_before, cap, got: 0 }
    }

    fn level(readiness: FlowReadiness, standing: FlowStanding) -> WaitingLevel {
        WaitingLevel {
            by: Attribute::Tenant,
            flow: "chat".into(),
            readiness,
            waiting: 2,
            in_flight: 3,
            standing,
        }
    }

    #[test]
    fn an_obstacle_names_its_flow_and_its_cause() {
        let obstacle = |readiness, standing, has_queue| {
            waiting_obstacle(&level(readiness, standing), has_queue).unwrap_or_default()
        };
        assert_eq!(obstacle(FlowReadiness::Ready, share(None), true), "");
        let held = "tenant chat is held by an operator";
        assert_eq!(obstacle(FlowReadiness::Held, share(None), true), held);
        let at_cap = "tenant chat is at its cap: 3 of 3 in flight";
        assert_eq!(obstacle(FlowReadiness::AtCap, share(Some(3)), true), at_cap);
        assert_eq!(obstacle(FlowReadiness::AtCap, bands(&[], &[], Some(3)), true), at_cap);
        let uncapped = "tenant chat is at its cap: 3 in flight";
        assert_eq!(obstacle(FlowReadiness::AtCap, share(None), true), uncapped);
        let full = "tenant chat is blocked: no worker has room for its first request";
        assert_eq!(obstacle(FlowReadiness::Blocked, share(None), true), full);
        let inside = "tenant chat is blocked: nothing inside it is ready";
        assert_eq!(obstacle(FlowReadiness::Blocked, share(None), false), inside);
    }

    #[test]
    fn a_standing_says_what_its_node_compares() {
        let standing = |standing| waiting_standing(&level(FlowReadiness::Ready, standing));
        let by_score = "tenant chat has a score of 0.000 tokens per weight (weight 100, 1 slot), and the virtual time is \
                        0.000; the lowest score goes next; 2 waiting, 3 in flight";
        assert_eq!(standing(share(None)), by_score);
        let strict = |after: &[&str], before: &[&str]| {
            let text = standing(bands(after, before, None));
            text.replace("; 2 waiting, 3 in flight", "").replace("tenant chat is ", "")
        };
        assert_eq!(strict(&[], &[]), "the only class of its strict order");
        assert_eq!(strict(&[], &["b", "c"]), "strict: goes before b, c");
        assert_eq!(strict(&["a", "b"], &[]), "strict: waits while a or b could go");
        assert_eq!(strict(&["a"], &["c"]), "strict: goes before c, waits while a could go");
    }

    #[test]
    fn a_place_counts_the_grants_before_it() {
        assert_eq!(waiting_place(None, &[]), "as things are, it would never be granted");
        assert_eq!(waiting_place(Some(0), &[]), "it waits, next in line for a slot");
        let path = vec!["g".into(), "a\nb".into()];
        let ahead = [RequestsAhead { path, requests: 1, tokens: 70 }];
        let text = "it waits; if nothing else came, 2 grants would come before its own: 1 request of g / a\\nb (70 tokens)";
        assert_eq!(waiting_place(Some(2), &ahead), text);
    }

    #[test]
    fn the_service_that_a_flow_got_is_compared_with_its_bound() {
        let due = |tokens, bound| Some(DueService { tokens, bound });
        let cases = [
            (5, None, "got 5 tokens"),
            (
                2400,
                due(2000, 400),
                "got 2400 tokens and was due 2000: 400 more, within its bound of 400 tokens",
            ),
            (
                1,
                due(402, 400),
                "got 1 token and was due 402: 401 fewer, outside its bound of 400 tokens",
            ),
            (
                -3,
                due(-3, 1),
                "got -3 tokens and was due -3: no difference, within its bound of 1 token",
            ),
        ];
        for (got, due, expected) in cases {
            assert_eq!(got_and_due(got, due), expected);
        }
    }

    #[test]
    fn names_are_cut_and_escaped() {
        assert_eq!(safe_name("a\u{1b}[1m"), "a\\u{1b}[1m");
        assert_eq!(safe_name(&"x".repeat(61)), format!("{}…", "x".repeat(60)));
        assert_eq!([counted(1_u64, "token"), counted(0_u64, "token")], ["1 token", "0 tokens"]);
    }

    #[test]
    fn only_counts_of_tokens_become_another_unit() {
        let told = "tenant tokens got 2400 tokens and was due 1 token; 3 input tokens wait; flow a tokens waits";
        assert_eq!(
            in_unit(told, WORKER_TIME),
            "tenant tokens got 2400 µs of worker time and was due 1 µs of worker time; 3 input tokens wait; flow a tokens \
             waits"
        );
    }
}
