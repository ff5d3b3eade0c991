//! Tests that a journal of several files is replayed like one file, in whole and in part.

use std::fs::{self, File};
use std::path::Path;

use fairgate_core::Pool;
use fairgate_core::attribute::{Attribute, Attributes};
use fairgate_core::decision::Decision;
use fairgate_core::event::{Event, PoolConfig, Submit};
use fairgate_core::units::{Micros, Tokens, Weight};
use fairgate_journal::{JournalClock, JournalWriter, parse_policy};
use fairgate_replay::{
    DecisionPrinter, DiffColumn, FlowWeight, OtherPolicy, ReplayError, ReplayJournal, ReplayPlan,
    ReplayRange, policy_diff, replay,
};
use fairgate_time::UnixMicros;

/// Time of day at the journal's time 0.
const START: u64 = 1_763_200_000_000_000;
const SECOND: u64 = 1_000_000;

fn at_second(second: u64) -> UnixMicros {
    UnixMicros(i64::try_from(START + second * SECOND).expect("a time"))
}

fn range(since: Option<u64>, until: Option<u64>) -> ReplayRange {
    ReplayRange { since: since.map(at_second), until: until.map(at_second) }
}

/// Returns forty requests of two tenants, one per second. Each runs for three seconds, in one slot.
fn events() -> Vec<(Micros, Event)> {
    let mut events = Vec::new();
    for number in 0..40_u64 {
        let tenant = if number % 4 == 0 { "quiet" } else { "loud" };
        let attributes = Attributes::none().with(Attribute::Tenant, tenant);
        let submit =
            Submit { attributes, cost: Some(Tokens(100)), ..Submit::new(&format!("r{number}")) };
        events.push((Micros(number * SECOND), Event::Submit(Box::new(submit))));
    }
    events
}

/// Writes the journal into files of some lines each, and returns all decisions. A request ends
/// three seconds after its grant.
fn record(
    folder: &Path,
    lines_a_file: usize,
    gap_before: Option<usize>,
) -> Vec<(Micros, Decision)> {
    let policy = parse_policy(r#"{"share":{"by":"tenant"}}"#).expect("a policy");
    let mut pool = Pool::new(PoolConfig::new(1, policy));
    let clock = JournalClock { at: Micros(0), unix_us: START };
    let mut decisions = Vec::new();
    let mut arrivals = events().into_iter().peekable();
    let mut running: Option<(Micros, String)> = None;
    let mut writer: Option<JournalWriter<File>> = None;
    let mut written = 0;
    for number in 0.. {
        let release =
            running.clone().filter(|(end, _)| arrivals.peek().is_none_or(|(at, _)| end <= at));
        let (at, event) = match release {
            Some((at, id)) => {
                running = None;
                (
                    at,
                    Event::Release {
                        id: id.as_str().into(),
                        tokens: Some(Tokens(100)),
                        quota: None,
                    },
                )
            }
            None => match arrivals.next() {
                Some(next) => next,
                None => break,
            },
        };
        if number % lines_a_file == 0 {
            let kind = match number / lines_a_file {
                0 => "start",
                file if gap_before == Some(file) => "gap",
                _ => "next",
            };
            let path = folder.join(format!("{:08}-{kind}.jsonl", number / lines_a_file));
            let mut next =
                JournalWriter::new(File::create(path).expect("a file")).with_clock(clock);
            next.write_snapshot(&pool.snapshot()).expect("it is written");
            writer = Some(next);
        }
        writer.as_mut().expect("a file").write_event(at, &event).expect("it is written");
        written += 1;
        let mut decided: Vec<Decision> = Vec::new();
        pool.apply(at, event, &mut decided).expect("in order");
        for decision in decided {
            if let Decision::Grant(grant) = &decision {
                running = Some((Micros(at.0 + 3 * SECOND), grant.id.to_string()));
            }
            decisions.push((at, decision));
        }
    }
    assert_eq!(written, 80, "each request came and ended");
    decisions
}

fn replayed(plan: &ReplayPlan) -> Result<String, ReplayError> {
    let (mut pool, mut journal) = ReplayJournal::open(plan)?;
    let mut text = Vec::new();
    replay(&mut pool, &mut journal, &mut DecisionPrinter::new(&mut text))?;
    Ok(String::from_utf8(text).expect("text"))
}

fn written(decisions: &[(Micros, Decision)], is_in: impl Fn(u64) -> bool) -> String {
    let mut writer = JournalWriter::new(Vec::new());
    for (at, decision) in decisions.iter().filter(|(at, _)| is_in(at.0 / SECOND)) {
        writer.write_decision(*at, decision).expect("it is written");
    }
    String::from_utf8(writer.into_inner()).expect("text")
}

#[test]
fn files_are_one_journal_in_whole_and_in_part() {
    for lines_a_file in [1, 7, 30, 80] {
        let folder = tempfile::tempdir().expect("a folder");
        let decisions = record(folder.path(), lines_a_file, None);
        let whole = ReplayPlan::of_folder(folder.path(), ReplayRange::default()).expect("a plan");
        assert_eq!(whole.begins(), Some(at_second(0)));
        assert_eq!(replayed(&whole).expect("replayed"), written(&decisions, |_| true));
        for (since, until) in [(0, 200), (10, 20), (11, 12), (39, 130), (100, 110)] {
            let asked = range(Some(since), Some(until));
            let plan = ReplayPlan::of_folder(folder.path(), asked).expect("a plan");
            let expected = written(&decisions, |at| (since..until).contains(&at));
            assert_eq!(replayed(&plan).expect("replayed"), expected, "{since} to {until}");
        }
    }
}

#[test]
fn a_line_that_is_being_written_is_left_out() {
    let folder = tempfile::tempdir().expect("a folder");
    let decisions = record(folder.path(), 80, None);
    let file = folder.path().join("00000000-start.jsonl");
    let mut text = fs::read(&file).expect("a file");
    text.extend_from_slice(b"{\"at\":999999999,\"eve");
    fs::write(&file, text).expect("a file");
    let plan = ReplayPlan::of_folder(folder.path(), ReplayRange::default()).expect("a plan");
    assert_eq!(replayed(&plan).expect("replayed"), written(&decisions, |_| true));
}

#[test]
fn ranges_that_cannot_be_read_are_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let none = ReplayPlan::of_folder(folder.path(), ReplayRange::default());
    assert!(matches!(none, Err(ReplayError::NoFiles { .. })));
    record(folder.path(), 20, Some(2));
    let plan = |since, until| ReplayPlan::of_folder(folder.path(), range(since, until));
    let Err(ReplayError::Interrupted { resumed, .. }) = plan(Some(0), None) else {
        panic!("events are missing");
    };
    assert!(resumed.starts_with("2025-11-15T"), "{resumed}");
    assert!(plan(Some(0), Some(5)).is_ok(), "before the gap");
    let newest = ReplayPlan::of_folder(folder.path(), ReplayRange::default()).expect("a plan");
    assert_eq!(newest.begins().map(fairgate_time::to_rfc3339), Some(resumed), "from the gap on");
    assert!(matches!(plan(Some(5), Some(5)), Err(ReplayError::EmptyRange { .. })));
    let early = ReplayRange { since: Some(UnixMicros(0)), until: None };
    let early = ReplayPlan::of_folder(folder.path(), early);
    assert!(matches!(early, Err(ReplayError::NotKept { .. })));
    let short = plan(Some(0), Some(10)).expect("a plan").with_lines_max(3);
    assert!(matches!(replayed(&short), Err(ReplayError::TooLong { lines_max: 3, reached: 3, .. })));
    let file = folder.path().join("00000000-start.jsonl");
    let text = fs::read_to_string(&file).expect("a file");
    let bare = text.replacen("\"clock\":", "\"klock\":", 1);
    fs::write(folder.path().join("bare.jsonl"), bare).expect("a file");
    let bare = ReplayPlan::of_file(&folder.path().join("bare.jsonl"), range(Some(1), None));
    assert!(matches!(bare, Err(ReplayError::NoClock { .. })));
}

#[test]
fn weights_change_the_shares_and_an_equal_weight_changes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    record(folder.path(), 33, None);
    let plan = ReplayPlan::of_folder(folder.path(), ReplayRange::default()).expect("a plan");
    let diff = |weight: u64| {
        let weight = Weight::new(weight).expect("a weight");
        let set = FlowWeight { by: Attribute::Tenant, flow: "quiet".into(), weight };
        let other = OtherPolicy::of_weights(vec![set]);
        let run = policy_diff(&other, None, &|_| ReplayJournal::open(&plan)).expect("both passes");
        assert_eq!(run.lines, 83, "80 events and the first lines of three files");
        let mut json = Vec::new();
        run.diff.write_json(&mut json).expect("it is written");
        let json: serde_json::Value = serde_json::from_slice(&json).expect("JSON");
        (json["flows"][1].clone(), run.diff)
    };
    let (quiet, _) = diff(100);
    assert_eq!((&quiet["flow"], &quiet["recorded"]), (&"quiet".into(), &quiet["what_if"]));
    let (quiet, _) = diff(1);
    let wait = |run: &str| quiet[run]["wait_p95_us"].as_u64().expect("a wait");
    assert!(wait("what_if") > 2 * wait("recorded"), "{quiet}");
    let (_, mut sorted) = diff(1);
    sorted.keep_top(Some(DiffColumn::Requests), Some(1));
    let mut json = Vec::new();
    sorted.write_json(&mut json).expect("it is written");
    let text = String::from_utf8(json).expect("text");
    assert!(
        text.starts_with("{\"by\":\"tenant\",\"unit\":\"tokens\",\"flows\":[{\"flow\":\"loud\"")
            && text.contains("\"omitted\":1"),
        "{text}"
    );
}

#[test]
fn weights_are_typed() {
    let parsed: FlowWeight = "tenant:a=b:c=50".parse().expect("a weight");
    assert_eq!((parsed.by, &*parsed.flow, parsed.weight.get()), (Attribute::Tenant, "a=b:c", 50));
    for wrong in ["", "tenant", "tenant:a", "color:a=5", "tenant:a=0", "tenant:a=x"] {
        assert!(wrong.parse::<FlowWeight>().is_err(), "{wrong}");
    }
}
