//! Writes a request's history as text.

mod choice_reason;

use std::fmt::Write as _;
use std::io::{self, Write};

use fairgate_core::attribute::{Attribute, Attributes};
use fairgate_core::decision::{Grant, RejectedRequest, RejectionReason};
use fairgate_core::event::Event;
use fairgate_core::fairness::FlowFairness;
use fairgate_core::units::{Micros, Tokens};
use fairgate_journal::explain_text::{self, flow_name as flow, got_and_due};
use fairgate_time::to_rfc3339;

use self::choice_reason::{metered, reason, runner_up};
use super::history::{
    GrantedRun, GrantedRunEnd, JournalTime, RejectionCause, RequestHistory, RequestOutcome,
    WaitEvent, WaitingState,
};
use super::settlement::{DisciplineCounters, SettledLevel};
use crate::shown_unit::ShownUnit;
use crate::text_format::{TimeSpan, counted, safe_name};

/// Writes the histories, one request after the other.
pub(crate) fn write(
    mut out: impl Write,
    unit: ShownUnit,
    id: &str,
    histories: &[RequestHistory],
) -> io::Result<()> {
    let id = safe_name(id);
    match histories.len() {
        1 => writeln!(out, "request {id}")?,
        many => writeln!(out, "request {id}: {many} of that id")?,
    }
    for history in histories {
        writeln!(out)?;
        let mut text = String::new();
        write_history(&mut text, history);
        out.write_all(unit.in_words(&text).as_bytes())?;
    }
    Ok(())
}

fn write_history(text: &mut String, history: &RequestHistory) {
    submitted(text, history);
    for moment in &history.wait_events {
        tell_moment(text, moment);
    }
    if history.unreported > 0 {
        let untold = counted(history.unreported, "further change");
        detail(text, &format!("(and {untold} of capacity, workers or its flows while it waited)"));
    }
    let waited =
        |when: &JournalTime| TimeSpan(Micros(when.at.0.saturating_sub(history.submitted.at.0)));
    match &history.fate {
        RequestOutcome::Waits => detail(text, "it still waits at the end of the journal"),
        RequestOutcome::GaveUp { when } => {
            headline(
                text,
                when,
                &format!("cancelled after {} in the queue, uncharged", waited(when)),
            );
        }
        RequestOutcome::Refused { when, reject, cause } => {
            let verdict = refusal(reject, cause);
            match cause {
                RejectionCause::OwnSubmit => detail(text, &verdict),
                _ => {
                    headline(text, when, &format!("{verdict}, after {} in the queue", waited(when)))
                }
            }
        }
        RequestOutcome::Expired { when, timeout } => {
            let limit =
                timeout.map_or_else(String::new, |t| format!("; the limit is {}", TimeSpan(t)));
            headline(text, when, &format!("expired after {} in the queue{limit}", waited(when)));
        }
        RequestOutcome::Granted(flight) => tell_flight(text, flight),
    }
}

fn submitted(text: &mut String, history: &RequestHistory) {
    let mut line = match history.submitted.line {
        Some(_) => "submitted".to_owned(),
        None => "submitted, before this journal begins,".to_owned(),
    };
    let cost = history.cost.map(|cost| format!("a cost of {}", counted(cost.0, "token")));
    let priority = (history.priority != 0).then(|| format!("priority {}", history.priority));
    let stated: Vec<String> = [cost, priority].into_iter().flatten().collect();
    if !stated.is_empty() {
        let _ = write!(line, " with {}", stated.join(" and "));
    }
    let attributes = attributes(&history.attributes);
    if !attributes.is_empty() {
        let _ = write!(line, ", for {attributes}");
    }
    headline(text, &history.submitted, &line);
    let flows: Vec<String> = history.path.iter().map(|l| flow(l.by, &l.flow)).collect();
    detail(text, &format!("its path: {}", flows.join(" → ")));
    if let Some(waiting) = &history.arrival {
        for level in &waiting.request.levels {
            if let Some(meter) = metered(&level.standing) {
                let flow = flow(level.by, &level.flow);
                detail(text, &format!("{flow} had {}", got_and_due(meter.got, Some(meter.due))));
            }
        }
        tell_waiting(text, waiting);
    }
}

fn attributes(attributes: &Attributes) -> String {
    let given = Attribute::ALL.into_iter().filter_map(|a| Some(flow(a, attributes.get(a)?)));
    given.collect::<Vec<_>>().join(", ")
}

fn tell_waiting(text: &mut String, waiting: &WaitingState) {
    let WaitingState { request: waiting, full_pool } = waiting;
    if let Some(in_flight) = full_pool {
        detail(text, &explain_text::full_pool(*in_flight));
    }
    for obstacle in explain_text::waiting_obstacles(waiting) {
        detail(text, &obstacle);
    }
    detail(text, &explain_text::waiting_place(waiting.place, &waiting.ahead));
}

fn tell_moment(text: &mut String, moment: &WaitEvent) {
    let what = match &moment.event {
        Event::Hold { by, flow: name } => format!("{} is held", flow(*by, name)),
        Event::Resume { by, flow: name } => format!("{} goes on", flow(*by, name)),
        Event::Weight { by, flow: name, weight } => {
            format!("{} now has weight {}", flow(*by, name), weight.get())
        }
        Event::Cap { by, flow: name, slots: Some(slots) } => {
            format!("{} may now have {slots} in flight", flow(*by, name))
        }
        Event::Cap { by, flow: name, slots: None } => format!("{} has no cap now", flow(*by, name)),
        Event::Policy(_) => "a new policy is in place".to_owned(),
        Event::Capacity { slots } => format!("the pool now has {}", counted(*slots, "slot")),
        Event::Worker(change) => {
            let state = change.state.map_or_else(String::new, |s| format!(", now {}", s.name()));
            format!("worker {} is added or changed{state}", safe_name(&change.name))
        }
        _ => "something happens".to_owned(),
    };
    headline(text, &moment.when, &what);
    tell_waiting(text, &moment.waiting);
}

fn refusal(reject: &RejectedRequest, cause: &RejectionCause) -> String {
    let full = |noun: &str| match &reject.limit {
        Some(limit) => {
            let class = limit.class.as_ref().map(|name| format!(" in class {}", safe_name(name)));
            let held = format!("{}{}", counted(limit.current, noun), class.unwrap_or_default());
            format!("{held} waiting, where the limit is {}", limit.limit)
        }
        None => "the limit is reached".to_owned(),
    };
    match (reject.reason, cause) {
        (RejectionReason::Duplicate, _) => {
            "rejected (duplicate): a request of this id was waiting or in flight".to_owned()
        }
        (RejectionReason::QueueFull, _) => format!(
            "rejected (queue_full): {}, and of the fullest flow it would be the last",
            full("request")
        ),
        (RejectionReason::PushedOut, RejectionCause::OtherSubmit(id)) => format!(
            "pushed out (pushed_out) of the full queue, to make room for {}: {}, and it was the last of the fullest flow",
            safe_name(id),
            full("request")
        ),
        (RejectionReason::PushedOut, _) => format!("pushed out (pushed_out): {}", full("request")),
        (RejectionReason::NoWorker, RejectionCause::Worker(name)) => {
            format!(
                "rejected (no_worker): worker {} changed, and none is left that may take it",
                safe_name(name)
            )
        }
        (RejectionReason::NoWorker, _) => {
            "rejected (no_worker): there is no worker that may take it".to_owned()
        }
        (RejectionReason::Overloaded, _) => {
            "rejected (overloaded): all workers that may take it are overloaded".to_owned()
        }
        (RejectionReason::ClassRequests, _) => {
            format!("rejected (class_requests): {}", full("request"))
        }
        (RejectionReason::ClassInputTokens, _) => {
            format!("rejected (class_input_tokens): {}", full("input token"))
        }
        (RejectionReason::ClassCachedTokens, _) => {
            format!("rejected (class_cached_tokens): {}", full("cached token"))
        }
    }
}

fn tell_flight(text: &mut String, flight: &GrantedRun) {
    let cost = flight.grant.cost;
    headline(text, &flight.when, &granted(&flight.grant));
    for level in flight.grant.why.iter().flat_map(|why| &why.levels) {
        detail(text, &reason(level, cost));
        if let Some(meter) = metered(&level.standing) {
            detail(text, &format!("  it had {}", got_and_due(meter.got, Some(meter.due))));
        }
        detail(text, &format!("  {}", runner_up(level)));
        let next = level.runner_up.as_ref().and_then(|(_, standing)| metered(standing));
        if let Some(meter) = next {
            detail(text, &format!("    it had {}", got_and_due(meter.got, Some(meter.due))));
        }
    }
    let since = |when: &JournalTime| TimeSpan(Micros(when.at.0.saturating_sub(flight.when.at.0)));
    if let Some(first) = &flight.first_token {
        headline(text, first, &format!("first token, {} after the grant", since(first)));
    }
    match &flight.ending {
        None => detail(text, "it is still in flight at the end of the journal"),
        Some(ending) => {
            headline(text, &ending.when, &ended(ending, since(&ending.when), cost));
            for settled in &ending.settled {
                detail(text, &counter_changes(settled));
                if let Some(after) = &settled.after {
                    let FlowFairness { got, due, .. } = after.service;
                    detail(text, &format!("  it has {}", got_and_due(got, due)));
                }
            }
        }
    }
}

fn granted(grant: &Grant) -> String {
    let mut line = match grant.waited.0 {
        0 => "granted at once".to_owned(),
        _ => format!("granted after {}", TimeSpan(grant.waited)),
    };
    if let Some(place) = &grant.place {
        let _ = write!(line, ", on worker {} rank {}", safe_name(&place.worker), place.rank);
    }
    if grant.brownout == Some(true) {
        line.push_str(", past the brownout wait");
    }
    line
}

fn ended(ending: &GrantedRunEnd, after: TimeSpan, cost: Tokens) -> String {
    let charged = counted(cost.0, "token");
    match (ending.cancelled, ending.tokens) {
        (true, _) => format!("cancelled after {after} in flight; its cost of {charged} stands"),
        (_, None) => format!("ended after {after}; its cost of {charged} stands"),
        (_, Some(tokens)) => {
            let used = counted(tokens.0, "token");
            let against = match tokens.0.cmp(&cost.0) {
                std::cmp::Ordering::Equal => "exactly its cost".to_owned(),
                std::cmp::Ordering::Less => {
                    format!("{} fewer than its cost of {}", cost.0 - tokens.0, cost.0)
                }
                std::cmp::Ordering::Greater => {
                    format!("{} more than its cost of {}", tokens.0 - cost.0, cost.0)
                }
            };
            format!("ended after {after} with {used}, {against}")
        }
    }
}

fn counter_changes(settled: &SettledLevel) -> String {
    let flow = flow(settled.level.by, &settled.level.flow);
    let Some(after) = &settled.after else {
        return format!(
            "{flow}: nothing of it is left, so it is forgotten and starts anew if it comes back"
        );
    };
    match (&settled.before.kept, &after.kept) {
        (
            DisciplineCounters::Share { score, served, pending },
            DisciplineCounters::Share {
                score: then_score,
                served: then_served,
                pending: then_pending,
            },
        ) => format!(
            "{flow}: tokens served {served} → {then_served}, in flight {pending} → {then_pending}; \
             score {score} → {then_score} tokens per weight"
        ),
        (DisciplineCounters::Drr { deficit }, DisciplineCounters::Drr { deficit: then })
            if deficit == then =>
        {
            format!(
                "{flow}: its credit stays at {deficit} tokens; drr charges costs, not what was used"
            )
        }
        (DisciplineCounters::Drr { deficit }, DisciplineCounters::Drr { deficit: then }) => {
            format!("{flow}: credit {deficit} → {then} tokens")
        }
        (DisciplineCounters::Load { ticks }, DisciplineCounters::Load { ticks: then }) => {
            format!("{flow}: the pool's ticks {ticks} → {then}")
        }
        (DisciplineCounters::Bands, DisciplineCounters::Bands) => {
            format!("{flow}: strict order counts nothing, so nothing of its order changed")
        }
        _ => format!("{flow}: its policy has changed"),
    }
}

fn headline(text: &mut String, when: &JournalTime, what: &str) {
    let line = when.line.map_or_else(String::new, |line| format!(", line {line}"));
    let _ = match when.time {
        Some(time) => writeln!(text, "at {} ({} µs{line}): {what}", to_rfc3339(time), when.at.0),
        None => writeln!(text, "at {} µs{line}: {what}", when.at.0),
    };
}

fn detail(text: &mut String, what: &str) {
    let _ = writeln!(text, "    {what}");
}
