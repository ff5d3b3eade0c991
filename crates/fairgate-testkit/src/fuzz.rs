//! Functions of the fuzz targets, which the tests also call with the stored corpus. They report a
//! finding by a panic.

use fairgate_core::Pool;
use fairgate_core::attribute::{Attribute, Attributes};
use fairgate_core::decision::Decision;
use fairgate_core::event::{Event, Pin, Submit, WorkerChange, WorkerState};
use fairgate_core::units::{BurstSeconds, Micros, PerMinute, TaskWeight, Tokens, Weight};
use fairgate_journal::{JournalReader, JournalWriter};

use crate::naive::{ComparedDecision, NaivePool};
use crate::workload::{TrafficGenerator, WorkloadShape};

/// Greatest number of events per input, so that the fuzzer searches for different inputs instead of
/// long ones.
const MAX_EVENTS: usize = 2000;

/// Parses any bytes as a journal and replays the events up to the first that cannot be parsed. Each
/// parsed event, written and parsed again, must give the same event, and the pool must not panic.
pub fn journal_bytes(data: &[u8]) {
    let Ok((start, mut reader)) = JournalReader::open(data) else { return };
    let Ok(mut pool) = start.into_pool() else { return };
    for _ in 0..MAX_EVENTS {
        let Ok(Some((at, event))) = reader.next_event() else { return };
        reads_back(at, &event);
        let mut decisions: Vec<Decision> = Vec::new();
        pool.apply(at, event, &mut decisions).expect("the reader checks that time goes on");
    }
}

fn reads_back(at: Micros, event: &Event) {
    let mut text =
        br#"{"fairgate_journal":1,"pool":{"capacity":0,"policy":{"load":{"by":"agent"}}}}"#
            .to_vec();
    text.push(b'\n');
    JournalWriter::new(&mut text).write_event(at, event).expect("written to memory");
    let (_, mut reader) = JournalReader::open(&text[..]).expect("a good header");
    let again = reader.next_event().expect("what was written can be read");
    assert_eq!(again.as_ref(), Some(&(at, event.clone())));
}

/// Interprets any bytes as a policy and operations on a pool. The fast scheduler must make the same
/// decisions as the naive one, also after its state has been saved and restored.
///
/// The first byte gives the shape, the next two bytes give the seed of the journal's policy, and the fourth byte gives
/// the index of the operation after which the pool is restored. Each operation takes five bytes: the kind of event, the
/// number in the name of its flow or request, and three small numbers.
pub fn pool_ops(data: &[u8]) {
    let Some((head, operations)) = data.split_at_checked(4) else { return };
    let shapes = WorkloadShape::quick();
    let (_, shape) = &shapes[usize::from(head[0]) % shapes.len()];
    let seed = u64::from(u16::from_le_bytes([head[1], head[2]]));
    let mut traffic = TrafficGenerator::new(shape, seed);
    let config = traffic.config().clone();
    let mut pool = Pool::new(config.clone());
    let mut naive = NaivePool::new(config);
    let mut now = 0;
    for (i, bytes) in operations.chunks_exact(5).take(MAX_EVENTS).enumerate() {
        let operation = [bytes[0], bytes[1], bytes[2], bytes[3], bytes[4]];
        now += u64::from(bytes[4] % 8) * 97;
        // Some events need a whole policy or worker. The generator makes those.
        let made = if bytes[0] % 16 == 15 { traffic.next_event() } else { None };
        let event = made.map_or_else(|| event(operation, i), |(_, event)| event);
        let mut decisions = Vec::new();
        pool.apply(Micros(now), event.clone(), &mut decisions).expect("time goes on");
        let decided: Vec<_> = decisions.iter().map(ComparedDecision::from).collect();
        assert_eq!(decided, naive.apply(Micros(now), &event), "operation {i}: {event:?}");
        if usize::from(head[3]) == i {
            pool = Pool::restore(pool.snapshot()).expect("its own snapshot restores");
        }
    }
    for node in pool.fairness() {
        for flow in node.flows {
            let Some(lag) = flow.lag else { continue };
            let inside = lag.bound.is_none_or(|(least, most)| (least..=most).contains(&lag.lag));
            assert!(inside, "{} lags {} outside {:?}", flow.name, lag.lag, lag.bound);
        }
    }
}

/// Builds an event from the five bytes of an operation. As in the random journals, a flow's name is
/// the first letter of its attribute and a number, and requests are named r0, r1, ….
fn event([kind, who, a, b, _]: [u8; 5], line: usize) -> Event {
    let id = |n: u8| format!("r{}", n % 32).into();
    let by = Attribute::ALL[usize::from(who) % 7];
    let flow = format!("{}{}", &by.name()[..1], a % 6).into();
    match kind % 16 {
        0..=6 => Event::Submit(Box::new(submit([who, a, b], line))),
        7..=9 => Event::Release {
            id: id(who),
            tokens: (b % 3 > 0).then(|| Tokens(amount(a, b))),
            quota: (b % 7 == 0).then(|| Tokens(amount(b, a))),
        },
        10 => Event::Cancel { id: id(who) },
        11 if b % 2 == 0 => Event::Hold { by, flow },
        11 => Event::Resume { by, flow },
        12 => Event::Capacity { slots: u64::from(a % 12) },
        13 if b % 2 == 0 => Event::Cap { by, flow, slots: (b % 3 > 0).then(|| u64::from(b % 5)) },
        13 => Event::Weight { by, flow, weight: Weight::new(amount(a, b).max(1)).expect("over 0") },
        14 if who % 2 == 0 => Event::FirstToken { id: id(a) },
        14 => Event::Worker(WorkerChange {
            name: format!("w{}", a % 4).into(),
            state: Some(WorkerState::ALL[usize::from(b) % 4]),
            slots: (a % 3 == 0).then(|| u64::from(b % 4)),
            ranks: (a % 5 == 0).then(|| u32::from(b % 3)),
            tier: (a % 4 == 1).then(|| u64::from(b % 3)),
            // A rate of 0 removes the rate.
            requests_per_minute: (a % 8 == 2).then(|| PerMinute::new(amount(a, b)).ok()),
            tokens_per_minute: (a % 8 == 3).then(|| PerMinute::new(amount(b, a)).ok()),
            burst_seconds: (a % 7 == 0)
                .then(|| BurstSeconds::new(1 + u64::from(b % 60)).expect("in range")),
            requests_remaining: (b % 16 == 5).then(|| u64::from(a % 3)),
            tokens_remaining: (b % 16 == 6).then(|| amount(a, b)),
            pause_until: (a % 6 == 5).then(|| Micros(u64::from(b) * 97)),
            ..WorkerChange::default()
        }),
        _ => Event::Tick,
    }
}

fn submit([who, a, b]: [u8; 3], line: usize) -> Submit {
    let id = if who % 8 == 0 { format!("r{}", a % 32) } else { format!("r{}", line % 32) };
    let mut submit = Submit::new(&id);
    let mut attributes = Attributes::none();
    for attribute in Attribute::ALL {
        let n = (u32::from(who) * 31 + u32::from(a)) >> (attribute as u8 % 4);
        if !n.is_multiple_of(7) {
            attributes.set(attribute, &format!("{}{}", &attribute.name()[..1], n % 6));
        }
    }
    submit.attributes = attributes;
    submit.cost = (b % 5 > 0).then(|| Tokens(amount(a, b)));
    submit.input = (a % 4 == 0).then(|| Tokens(u64::from(b) * 16));
    submit.priority = i64::from(b % 4) - 1;
    submit.weight = TaskWeight::from_thousandths(u64::from(a) * 10 + 1).expect("in range");
    submit.quota = (a % 9 == 0).then(|| Tokens(amount(b, a)));
    submit.timeout = (b % 4 == 1).then(|| timeout(a));
    if a % 6 == 0 {
        let cached = |worker: u8| (format!("w{worker}").into(), Tokens(u64::from(b % 3) * 50));
        submit.cached = (0..a % 4).map(cached).collect();
    }
    if b % 11 == 0 {
        submit.pin = Some(Pin { worker: format!("w{}", a % 4).into(), rank: None });
    }
    submit
}

/// Maps a byte to a timeout: 0, a short time, a longer time, or nearly the largest number.
fn timeout(a: u8) -> Micros {
    Micros(match a % 8 {
        0 => 0,
        1 => u64::MAX - u64::from(a),
        2..=5 => u64::from(a) * 4,
        _ => u64::from(a) * 97,
    })
}

/// Maps two bytes to an amount, mostly a small one, sometimes nearly the largest number.
fn amount(a: u8, b: u8) -> u64 {
    match b % 16 {
        0 => u64::MAX - u64::from(a),
        1..=3 => u64::from(a) * 257,
        _ => u64::from(a % 16),
    }
}
