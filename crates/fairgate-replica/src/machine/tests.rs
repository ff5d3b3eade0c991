//! Tests of single rules of the machine, record by record. [`crate::tests::simulation`] tests all
//! rules together.

use std::sync::Arc;

use fairgate_core::decision::Decision;
use fairgate_core::event::{Event, PoolConfig, Submit, WorkerChange};
use fairgate_core::units::{Micros, Tokens};
use fairgate_journal::parse_policy;

use super::*;
use crate::cluster_config::ClusterConfig;
use crate::decision::{JoinRefusal, MemberEnd};
use crate::line::{JoinLine, PoolLine};
use crate::members::MemberState;
use crate::record::{LOG_VERSION, encode_record};
use crate::replica::Replica;
use crate::snapshot::SnapshotError;

/// A replica with the log that it reads, and the members that write it.
struct TestLog {
    replica: Replica,
    stamp: u64,
    effects: ClusterEffects,
}

/// A member that writes records.
#[derive(Clone, Copy)]
struct TestMember {
    number: MemberNumber,
    epoch: MemberEpoch,
    batch: u64,
}

fn config(weight: u64) -> ClusterConfig {
    let policy = format!(r#"{{"share":{{"by":"tenant","weights":{{"a":{weight}}}}}}}"#);
    let mut pool = PoolConfig::new(1, parse_policy(&policy).unwrap());
    pool.workers.push(WorkerChange { name: "w".into(), ..WorkerChange::default() });
    let mut config = ClusterConfig::default();
    config.pools.insert("p".into(), pool);
    config
}

fn join_line(name: &str, process: &str) -> JoinLine {
    JoinLine {
        name: name.into(),
        process: process.into(),
        attempt: 1,
        knows: (1, 1),
        address: "https://10.0.0.1:8443".into(),
        directory: 0,
        spool_lock: false,
        config: config(100),
    }
}

fn submit(id: &str) -> LogLine {
    LogLine::Pool(PoolLine::new(&"p".into(), Event::Submit(Box::new(Submit::new(id)))))
}

fn cluster(line: ClusterLine) -> LogLine {
    LogLine::Cluster(line)
}

impl TestLog {
    fn new() -> Self {
        let replica = Replica::new(ClusterMachine::new("test", 1));
        Self { replica, stamp: 1_000_000, effects: ClusterEffects::with_pool_events() }
    }

    fn machine(&self) -> &ClusterMachine {
        self.replica.machine()
    }

    fn record(&self, sender: TestMember, lines: &[LogLine]) -> Vec<u8> {
        let machine = self.machine();
        self.record_built_on(sender, lines, (machine.position(), machine.hash()))
    }

    fn record_built_on(
        &self,
        sender: TestMember,
        lines: &[LogLine],
        built_on: (LogPosition, ShortHash),
    ) -> Vec<u8> {
        let header = RecordHeader {
            fairgate_log: LOG_VERSION,
            cluster: "test".into(),
            generation: self.machine().generation(),
            machine: 1,
            member: sender.number,
            epoch: sender.epoch,
            batch: sender.batch,
            built_on,
            lines: lines.len(),
        };
        let mut texts = vec![String::new(); lines.len()];
        lines.iter().zip(&mut texts).for_each(|(line, text)| line.write(text));
        encode_record(&header, texts.iter().map(String::as_str))
    }

    /// Takes a record `after` µs after the last one, and returns its decisions.
    fn take(
        &mut self,
        record: &[u8],
        after: u64,
    ) -> Result<(RecordOutcome, Vec<ClusterDecision>), ApplyError> {
        self.stamp += after;
        let (position, stamp) = (self.machine().position().next(), EngineStamp(self.stamp));
        let receipt =
            self.replica.apply(&LogEntry { position, stamp, record }, &mut self.effects)?;
        Ok((receipt.outcome, std::mem::take(&mut self.effects.decisions)))
    }

    fn say(&mut self, sender: &mut TestMember, lines: &[LogLine]) -> Vec<ClusterDecision> {
        sender.batch += 1;
        let record = self.record(*sender, lines);
        let (outcome, decisions) = self.take(&record, 1).unwrap();
        assert_eq!(outcome, RecordOutcome::Applied);
        decisions
    }

    fn try_join(&mut self, join: JoinLine) -> Vec<ClusterDecision> {
        let nobody = TestMember { number: MemberNumber(0), epoch: MemberEpoch(0), batch: 0 };
        let record = self.record(nobody, &[cluster(ClusterLine::Join(Box::new(join)))]);
        self.take(&record, 1).unwrap().1
    }

    fn join(&mut self, join: JoinLine) -> TestMember {
        let (name, process) = (join.name.clone(), join.process.clone());
        self.try_join(join);
        let (number, epoch) = self.machine().epoch_of(&name, &process).expect("it has joined");
        TestMember { number, epoch, batch: 0 }
    }

    /// Lets time pass by adding records without effect.
    fn wait(&mut self, seconds: u64) -> Vec<ClusterDecision> {
        let stranger = TestMember { number: MemberNumber(99), epoch: MemberEpoch(1), batch: 1 };
        let record = self.record(stranger, &[cluster(ClusterLine::Tick {})]);
        (0..seconds).flat_map(|_| self.take(&record, 1_000_000).unwrap().1).collect()
    }
}

fn granted(decisions: &[ClusterDecision]) -> Vec<&str> {
    let of = |decision| match decision {
        &ClusterDecision::Pool { decision: Decision::Grant(ref grant), .. } => Some(&*grant.id),
        _ => None,
    };
    decisions.iter().filter_map(of).collect()
}

#[test]
fn a_record_counts_once_and_in_its_order() {
    let mut log = TestLog::new();
    let mut member = log.join(join_line("a", "a-1"));
    member.batch = 2;
    let second = log.record(member, &[submit("r2")]);
    member.batch = 1;
    let first = log.record(member, &[submit("r1")]);
    assert_eq!(log.take(&second, 1).unwrap(), (RecordOutcome::Missing, vec![]));
    assert_eq!(granted(&log.take(&first, 1).unwrap().1), ["r1"]);
    assert_eq!(log.take(&first, 1).unwrap(), (RecordOutcome::Duplicate, vec![]));
    assert_eq!(log.take(&second, 1).unwrap().0, RecordOutcome::Applied);
    assert_eq!(log.machine().pool("p").unwrap().waiting(), 1);
    member.epoch = MemberEpoch(99);
    let of_another_epoch = log.record(member, &[submit("r3")]);
    assert_eq!(log.take(&of_another_epoch, 1).unwrap().0, RecordOutcome::NotCounted);
}

#[test]
fn a_member_must_apply_what_it_says() {
    let mut log = TestLog::new();
    let mut member = log.join(join_line("a", "a-1"));
    log.say(&mut member, &[submit("r1"), submit("r2")]);
    let at_first = log.machine().now();
    for _ in 0..5 {
        assert_eq!(log.wait(1), []);
        let alive = ClusterLine::Alive { applied_at: at_first, directory: 0 };
        log.say(&mut member, &[cluster(alive)]);
    }
    // The last one that counted was a lease after the moment that it names.
    let ended = log.wait(6);
    assert!(matches!(
        &ended[..],
        [
            ClusterDecision::MemberEnded { reason: MemberEnd::Lapsed, .. },
            ClusterDecision::EndedByCluster { was_in_flight: false, id, .. },
        ] if **id == *"r2"
    ));
    assert_eq!(log.machine().pool("p").unwrap().in_flight(), 1, "its slot stays taken");
    let freed = log.wait(31);
    assert!(matches!(&freed[..], [ClusterDecision::EndedByCluster { was_in_flight: true, .. }]));
    assert_eq!(log.wait(10), []);
    assert_eq!(log.machine().members().count(), 0, "it is forgotten");
}

#[test]
fn two_live_processes_cannot_have_one_name() {
    let mut log = TestLog::new();
    let mut first = log.join(join_line("a", "a-1"));
    log.say(&mut first, &[submit("r1")]);
    let refused = log.try_join(join_line("a", "a-2"));
    assert!(matches!(
        refused[..],
        [ClusterDecision::JoinRefused { reason: JoinRefusal::NameTaken, .. }]
    ));
    // One that holds the lock of the spool proves that the other is dead.
    let locked = JoinLine { spool_lock: true, attempt: 2, ..join_line("a", "a-2") };
    let replaced = log.try_join(locked.clone());
    let ends = |decision: &&ClusterDecision| {
        matches!(decision, ClusterDecision::EndedByCluster { was_in_flight: true, .. })
    };
    assert_eq!(replaced.iter().filter(ends).count(), 1, "{replaced:?}");
    assert_eq!(log.machine().pool("p").unwrap().in_flight(), 0);
    assert_eq!(log.try_join(locked), [], "a join that comes twice counts once");
}

#[test]
fn odd_names_and_unknown_rules_are_refused() {
    let mut log = TestLog::new();
    let mut reason = |join| match &log.try_join(join)[..] {
        [ClusterDecision::JoinRefused { reason, .. }] => *reason,
        other => panic!("{other:?}"),
    };
    assert_eq!(reason(join_line("a\nb", "1")), JoinRefusal::BadName);
    assert_eq!(reason(join_line("a", "")), JoinRefusal::BadName);
    let newer = JoinLine { knows: (2, 3), ..join_line("a", "1") };
    assert_eq!(reason(newer), JoinRefusal::UnknownVersion { in_force: 1 });
}

#[test]
fn a_new_file_counts_from_the_first_member_that_has_it() {
    let mut log = TestLog::new();
    let with = |weight, name: &str, attempt| JoinLine {
        config: config(weight),
        attempt,
        ..join_line(name, name)
    };
    let in_force = |log: &TestLog| log.machine().config_digest().unwrap();
    let mut old = log.join(with(100, "a", 1));
    log.join(with(100, "b", 1));
    log.join(with(400, "c", 1));
    assert_eq!(in_force(&log), config(400).digest(), "the cluster never had it");
    log.join(with(100, "b", 2));
    assert_eq!(in_force(&log), config(400).digest(), "an old member does not bring it back");
    log.join(with(100, "c", 2));
    assert_eq!(in_force(&log), config(100).digest(), "all have it");
    let reload = ClusterLine::Reload { config: Box::new(config(400)) };
    log.say(&mut old, &[cluster(reload)]);
    assert_eq!(in_force(&log), config(400).digest(), "at once");
}

#[test]
fn a_pool_that_goes_refuses_what_waits_and_runs_empty() {
    let mut log = TestLog::new();
    let mut member = log.join(join_line("a", "a-1"));
    log.say(&mut member, &[submit("r1"), submit("r2")]);
    let without = ClusterLine::Reload { config: Box::default() };
    let decisions = log.say(&mut member, &[cluster(without), submit("r3")]);
    let refused = decisions.iter().filter_map(|decision| match decision {
        ClusterDecision::SubmitRefused { id, reason: SubmitRefusal::NoPool, .. } => Some(&**id),
        _ => None,
    });
    assert_eq!(refused.collect::<Vec<_>>(), ["r2", "r3"]);
    assert_eq!(log.machine().pool("p").unwrap().in_flight(), 1);
    let release = Event::Release { id: "r1".into(), tokens: Some(Tokens(1)), quota: None };
    let decisions = log.say(&mut member, &[LogLine::Pool(PoolLine::new(&"p".into(), release))]);
    assert!(matches!(decisions[..], [ClusterDecision::PoolRemoved { .. }]));
}

#[test]
fn forks_and_lost_records_are_found() {
    let mut log = TestLog::new();
    let mut member = log.join(join_line("a", "a-1"));
    member.batch = 1;
    let (position, hash) = (log.machine().position(), log.machine().hash());
    let ahead = log.record_built_on(member, &[], (position.next(), hash));
    assert!(matches!(log.take(&ahead, 1), Err(ApplyError::LostRecords { .. })));
    let other = log.record_built_on(member, &[], (position, ShortHash([0; 8])));
    assert!(matches!(log.take(&other, 1), Err(ApplyError::Fork { .. })));
    assert_eq!(log.machine().position(), position, "nothing has changed");
    let mut damaged = log.record(member, &[submit("r1")]);
    damaged[9] ^= 1;
    assert!(matches!(log.take(&damaged, 1), Err(ApplyError::Unreadable { .. })));
    assert_eq!(log.say(&mut TestMember { batch: 0, ..member }, &[]), []);
}

#[test]
fn a_line_that_stops_the_machine_is_left_out() {
    let mut log = TestLog::new();
    let mut member = log.join(join_line("a", "a-1"));
    log.say(&mut member, &[submit("r1")]);
    let decisions = log.say(&mut member, &[submit("r2"), submit("stops-1"), submit("r3")]);
    let refused = |decision: &ClusterDecision| match decision {
        ClusterDecision::SubmitRefused { id, reason: SubmitRefusal::InternalError, .. } => {
            **id == *"stops-1"
        }
        _ => false,
    };
    assert!(decisions.iter().any(refused), "{decisions:?}");
    assert_eq!(log.machine().pool("p").unwrap().waiting(), 2);
    let left_out: Vec<_> = log.replica.lines_left_out().collect();
    assert_eq!(left_out, [(log.machine().position(), 1)]);
}

#[test]
fn the_rules_change_when_all_have_known_the_next_ones_for_a_while() {
    let mut log = TestLog::new();
    log.replica.machine_mut().knows = (1, 2);
    let knowing = |name: &str, knows| JoinLine { knows, ..join_line(name, name) };
    let mut member = log.join(knowing("a", (1, 2)));
    let alive = |log: &TestLog| {
        let applied_at = log.machine().now();
        cluster(ClusterLine::Alive { applied_at, directory: 0 })
    };
    for _ in 0..59 {
        log.wait(1);
        let line = alive(&log);
        log.say(&mut member, &[line, cluster(ClusterLine::Upgrade { to: 2 })]);
    }
    assert_eq!((log.machine().version(), log.machine().allowed_upgrade()), (1, None));
    log.wait(1);
    assert_eq!(log.machine().allowed_upgrade(), Some(2));
    log.say(&mut member, &[cluster(ClusterLine::Upgrade { to: 3 })]);
    assert_eq!(log.machine().version(), 1, "one at a time");
    log.say(&mut member, &[cluster(ClusterLine::Upgrade { to: 2 })]);
    assert_eq!(log.machine().version(), 2);
    let error = ClusterMachine::restore(&log.machine().snapshot()).unwrap_err();
    assert_eq!(error, SnapshotError::UnknownVersion { in_force: 2, knows: (1, 1) });
    assert!(error.to_string().contains("start a release that knows it"), "{error}");
}

#[test]
fn members_take_turns_at_snapshots() {
    let mut log = TestLog::new();
    let (mut one, two) = (log.join(join_line("a", "a")), log.join(join_line("b", "b")));
    let mut taker = || match log.say(&mut one, &[cluster(ClusterLine::Mark {})])[..] {
        [ClusterDecision::SnapshotDue { taker }] => taker,
        ref other => panic!("{other:?}"),
    };
    assert_eq!([taker(), taker(), taker()], [one.number, two.number, one.number]);
    let stored = |position| ClusterLine::SnapshotStored {
        position: LogPosition(position),
        hash: ShortHash([0; 8]),
    };
    let prune = |decisions: &[ClusterDecision]| match decisions {
        [ClusterDecision::SnapshotStored { prune_up_to, .. }] => Some(prune_up_to.0),
        _ => None,
    };
    assert_eq!(prune(&log.say(&mut one, &[cluster(stored(3))])), Some(0));
    assert_eq!(prune(&log.say(&mut one, &[cluster(stored(4))])), Some(3));
    assert_eq!(prune(&log.say(&mut one, &[cluster(stored(4))])), None);
    assert_eq!(prune(&log.say(&mut one, &[cluster(stored(999))])), None, "not there yet");
}

#[test]
fn a_new_generation_keeps_what_waits_and_what_runs() {
    let mut log = TestLog::new();
    let mut member = log.join(join_line("a", "a-1"));
    log.say(&mut member, &[submit("r1"), submit("r2"), submit("r3")]);
    log.replica.begin_generation(2);
    let mut again = log.join(JoinLine { attempt: 2, ..join_line("a", "a-1") });
    assert_eq!((again.number, log.machine().generation()), (member.number, 2));
    let mut held = PoolLine::new(&"p".into(), Event::Submit(Box::new(Submit::new("r1"))));
    held.fields.held = true;
    let ready = cluster(ClusterLine::Ready {});
    let lines = [LogLine::Pool(held), submit("r3"), ready];
    let decisions = log.say(&mut again, &lines);
    let taken_up = decisions.iter().filter_map(|decision| match decision {
        ClusterDecision::TakenUp { id, .. } => Some(&**id),
        _ => None,
    });
    assert_eq!(taken_up.collect::<Vec<_>>(), ["r1", "r3"]);
    let pool = log.machine().pool("p").unwrap();
    assert_eq!((pool.in_flight(), pool.waiting()), (1, 1), "r2 was not named, so it has ended");
    let state = log.machine().member(again.number).unwrap().state;
    assert_eq!(state, MemberState::Live(again.epoch));
}

/// The events of a pool are a journal: when they are applied again, they give the same decisions.
#[test]
fn a_pool_replays_to_the_line() {
    let mut log = TestLog::new();
    let mut member = log.join(join_line("a", "a-1"));
    let mut decided = log.say(&mut member, &[submit("r1"), submit("r2"), submit("r3")]);
    let release = Event::Release { id: "r1".into(), tokens: Some(Tokens(7)), quota: None };
    decided.extend(log.say(&mut member, &[LogLine::Pool(PoolLine::new(&"p".into(), release))]));
    decided.extend(log.wait(50));
    let stated = config(100).pools.remove(&Arc::from("p")).unwrap();
    let mut pool = fairgate_core::Pool::new(PoolConfig { workers: Vec::new(), ..stated });
    let mut replayed: Vec<Decision> = Vec::new();
    for applied in &log.effects.pool_events {
        pool.apply(Micros(applied.at.0), applied.event.clone(), &mut replayed).unwrap();
    }
    let of_pool = decided.into_iter().filter_map(|decision| match decision {
        ClusterDecision::Pool { decision, .. } => Some(decision),
        _ => None,
    });
    assert_eq!(of_pool.collect::<Vec<_>>(), replayed);
    assert_eq!(replayed.len(), 2, "r1 and r2 were granted, r3 was cancelled");
    assert_eq!(pool.snapshot(), log.machine().pool("p").unwrap().snapshot());
}
