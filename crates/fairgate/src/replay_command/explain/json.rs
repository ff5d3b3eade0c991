//! A request's story as JSON. Times are microseconds; scores are tokens per weight.

use fairgate_core::attribute::{Attribute, Attributes};
use fairgate_core::decision::Grant;
use fairgate_core::event::Event;
use fairgate_core::explain::{Choice, Readiness, Rule, Standing, Waiting};
use fairgate_journal::Writer;
use serde_json::{Map, Value, json};

use super::super::fairness::per_weight;
use super::settlement::{Books, Settled};
use super::story::{Cause, Chapter, Ending, Fate, Flight, Moment, When};

/// All requests of one id.
pub(crate) fn story(id: &str, chapters: &[Chapter]) -> Value {
    let requests: Vec<Value> = chapters.iter().map(chapter).collect();
    json!({ "id": id, "requests": requests })
}

fn chapter(chapter: &Chapter) -> Value {
    let path: Vec<Value> =
        chapter.path.iter().map(|l| json!({ "by": l.by.name(), "flow": l.flow })).collect();
    let mut object = json!({
        "submitted": when(&chapter.submitted),
        "attributes": attributes(&chapter.attributes),
        "cost": chapter.cost.0,
        "priority": chapter.priority,
        "path": path,
        "moments": chapter.moments.iter().map(moment).collect::<Vec<_>>(),
        "moments_untold": chapter.untold,
        "outcome": outcome(&chapter.fate),
    });
    if let Some(arrival) = &chapter.arrival {
        object["waiting"] = waiting(arrival);
    }
    object
}

fn when(when: &When) -> Value {
    let mut object = json!({ "at": when.at.0 });
    if let Some(line) = when.line {
        object["line"] = line.into();
    }
    object
}

fn attributes(attributes: &Attributes) -> Value {
    let given = |a: Attribute| Some((a.name().to_owned(), attributes.get(a)?.into()));
    Value::Object(Attribute::ALL.into_iter().filter_map(given).collect::<Map<_, _>>())
}

fn moment(moment: &Moment) -> Value {
    let mut object = when(&moment.when);
    object["event"] = event(&moment.when, &moment.event);
    object["waiting"] = waiting(&moment.waiting);
    object
}

/// An event as the journal has it.
fn event(when: &When, event: &Event) -> Value {
    let mut writer = Writer::new(Vec::new());
    let written = writer.write_event(when.at, event);
    written
        .ok()
        .and_then(|()| serde_json::from_slice(&writer.into_inner()).ok())
        .unwrap_or_default()
}

fn waiting(waiting: &Waiting) -> Value {
    let levels = waiting.levels.iter().map(|level| {
        let readiness = match level.readiness {
            Readiness::Ready => "ready",
            Readiness::Held => "held",
            Readiness::AtCap => "at_cap",
            Readiness::Blocked => "blocked",
        };
        json!({
            "by": level.by.name(),
            "flow": &*level.flow,
            "readiness": readiness,
            "waiting": level.waiting,
            "flying": level.flying,
            "standing": standing(&level.standing),
        })
    });
    let ahead = waiting.ahead.iter().map(|ahead| {
        let path: Vec<&str> = ahead.path.iter().map(|name| &**name).collect();
        json!({ "path": path, "requests": ahead.requests, "tokens": number(ahead.tokens) })
    });
    json!({
        "levels": levels.collect::<Vec<_>>(),
        "ahead_in_queue": waiting.ahead_in_queue,
        "ahead": ahead.collect::<Vec<_>>(),
        "place": waiting.place,
    })
}

fn outcome(fate: &Fate) -> Value {
    let with = |at: &When, outcome: &str| {
        let mut object = when(at);
        object["outcome"] = outcome.into();
        object
    };
    match fate {
        Fate::Waits => json!({ "outcome": "waiting" }),
        Fate::GaveUp { when } => with(when, "cancelled"),
        Fate::Expired { when, timeout } => {
            let mut object = with(when, "expired");
            object["queue_timeout_us"] = json!(timeout.map(|t| t.0));
            object
        }
        Fate::Refused { when, reject, cause } => {
            let mut object = with(when, "rejected");
            object["reason"] = reject.reason.code().into();
            if let Some(limit) = &reject.limit {
                object["limit"] = json!({
                    "class": limit.class.as_deref(),
                    "current": number(limit.current),
                    "limit": number(limit.limit),
                });
            }
            match cause {
                Cause::ItsOwn => {}
                Cause::Newcomer(id) => object["for"] = json!(id),
                Cause::Worker(name) => object["worker"] = json!(name),
            }
            object
        }
        Fate::Granted(flight) => {
            let mut object = with(&flight.when, "granted");
            granted(&mut object, flight);
            object
        }
    }
}

fn granted(object: &mut Value, flight: &Flight) {
    let Grant { waited, brownout, place, why, .. } = &flight.grant;
    object["waited_us"] = waited.0.into();
    if let Some(brownout) = brownout {
        object["brownout"] = (*brownout).into();
    }
    if let Some(place) = place {
        object["worker"] = json!(&*place.worker);
        object["rank"] = place.rank.into();
    }
    if let Some(why) = why {
        object["why"] = why.levels.iter().map(choice).collect();
    }
    if let Some(first) = &flight.first_token {
        object["first_token"] = when(first);
    }
    if let Some(ending) = &flight.ending {
        object["end"] = end(ending);
    }
}

fn choice(choice: &Choice) -> Value {
    let (rule, rounds) = match choice.rule {
        Rule::Stayed => ("stayed", None),
        Rule::Visited => ("visited", None),
        Rule::Bulk { rounds } => ("bulk", Some(rounds)),
        Rule::LowestScore => ("lowest_score", None),
        Rule::BelowItsSlots => ("below_its_slots", None),
        Rule::LargestLoad => ("largest_load", None),
        Rule::Late => ("late", None),
    };
    let mut object = json!({
        "by": choice.by.name(),
        "flow": &*choice.flow,
        "rule": rule,
        "standing": standing(&choice.standing),
        "runner_up": null,
    });
    if let Some(rounds) = rounds {
        object["rounds"] = number(rounds);
    }
    if let Some((name, theirs)) = &choice.runner_up {
        object["runner_up"] = json!({ "flow": &**name, "standing": standing(theirs) });
    }
    object
}

fn standing(standing: &Standing) -> Value {
    match standing {
        Standing::Drr { deficit, quantum, head_cost, rounds_needed } => json!({
            "deficit": signed(*deficit),
            "quantum": quantum.get(),
            "head_cost": head_cost.map(|cost| cost.0),
            "rounds_needed": rounds_needed.map(number),
        }),
        Standing::Share { score, settled, virtual_time, weight, pending, slots, cap } => json!({
            "score": per_weight(*score),
            "settled": per_weight(*settled),
            "virtual_time": per_weight(*virtual_time),
            "weight": weight.get(),
            "pending": number(*pending),
            "slots": slots,
            "cap": cap,
        }),
        Standing::Load { depth_thousandths, age, load_millionths, alpha } => json!({
            "depth_thousandths": depth_thousandths,
            "age_ticks": age.0,
            "load_millionths": load_millionths,
            "alpha_millionths": alpha.millionths(),
        }),
    }
}

fn end(ending: &Ending) -> Value {
    let mut object = when(&ending.when);
    object["by"] = if ending.cancelled { "cancel".into() } else { "release".into() };
    object["tokens"] = json!(ending.tokens.map(|tokens| tokens.0));
    object["settled"] = ending.settled.iter().map(settled).collect();
    object
}

fn settled(settled: &Settled) -> Value {
    let (name, was, is) = match &settled.books {
        Books::Share { score, served, pending } => {
            let side = |score, served, pending| json!({ "score": per_weight(score), "served": number(served), "pending": number(pending) });
            let was = side(score.0, served.0, pending.0);
            ("share", was, side(score.1, served.1, pending.1))
        }
        Books::Drr { deficit } => {
            let side = |deficit| json!({ "deficit": signed(deficit) });
            ("drr", side(deficit.0), side(deficit.1))
        }
        Books::Load { ticks } => ("load", json!({ "ticks": ticks.0 }), json!({ "ticks": ticks.1 })),
    };
    json!({
        "by": settled.level.by.name(),
        "flow": settled.level.flow,
        "kind": name,
        "before": was,
        "after": is,
    })
}

/// A number as JSON has it, or its digits as text where it is beyond 64 bits.
fn number(number: u128) -> Value {
    u64::try_from(number).map_or_else(|_| number.to_string().into(), Value::from)
}

fn signed(number: i128) -> Value {
    i64::try_from(number).map_or_else(|_| number.to_string().into(), Value::from)
}
