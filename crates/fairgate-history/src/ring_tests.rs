use fairgate_core::units::Micros;
use fairgate_random::SeededRng;

use super::*;
use crate::view::RowSeries;

const TENANT: Attribute = Attribute::Tenant;

fn flow(name: &str, got: i64, asked: u64) -> FlowSample {
    FlowSample { got, asked, ..FlowSample::new((TENANT, name.into())) }
}

fn sample(step: u64, covers: u64, flows: Vec<FlowSample>) -> PoolSample {
    PoolSample { step, covers, slots: 8, flows, ..PoolSample::default() }
}

fn steps(history: &PoolHistory, first: u64, last: u64, name: &str) -> RowSeries {
    let view = history.view(HistoryResolution::Steps, (first, last), TENANT, Some(name));
    view.rows.into_iter().find(|row| row.0 == name).unwrap().1
}

/// Returns the sum of the service that all rows of a view got, including the others.
fn sum_of_got(history: &PoolHistory, resolution: HistoryResolution, range: (u64, u64)) -> i64 {
    let view = history.view(resolution, range, TENANT, None);
    let rows = view.rows.iter().map(|row| &row.1).chain(&view.others);
    rows.flat_map(|row| row.got.iter().flatten()).sum()
}

#[test]
fn points_come_back_and_missing_samples_are_gaps() {
    let mut history = PoolHistory::new();
    let met =
        |got, difference| FlowSample { difference: Some((difference, 90)), ..flow("a", got, 7) };
    history.add(sample(100, 1, vec![met(500, 0)]));
    history.add(sample(101, 1, vec![met(300, 50)]));
    history.add(sample(102, 1, vec![met(-40, 30)]));
    // Two minutes without a sample: nobody knows when in that time the tokens were served.
    history.add(sample(126, 24, vec![met(9_000, 10)]));
    let a = steps(&history, 99, 127, "a");
    assert_eq!(a.got[..4], [None, Some(500), Some(300), Some(-40)]);
    assert_eq!(a.due[..4], [None, None, Some(250), Some(-20)], "got minus the rise");
    assert_eq!((a.difference[2], a.bound[2], a.asked[2]), (Some(50), Some(90), Some(7)));
    assert!(a.got[4..27].iter().all(Option::is_none));
    assert_eq!((a.got[27], a.due[27], a.got[28]), (Some(9_000), None, None));
    let view = history.view(HistoryResolution::Steps, (99, 127), TENANT, None);
    assert_eq!((view.points, view.pool.slots[0], view.pool.slots[1]), (29, None, Some(8)));
}

#[test]
fn a_late_sample_is_divided_and_nothing_is_lost() {
    let mut history = PoolHistory::new();
    history.add(sample(10, 1, vec![flow("a", 0, 1)]));
    history.add(PoolSample { granted: 7, ..sample(13, 3, vec![flow("a", 100, 10)]) });
    let a = steps(&history, 11, 13, "a");
    assert_eq!(a.got, [Some(33), Some(33), Some(34)]);
    assert_eq!(a.asked, [Some(3), Some(3), Some(4)]);
    let view = history.view(HistoryResolution::Steps, (11, 13), TENANT, None);
    assert_eq!(view.pool.granted.iter().flatten().sum::<u64>(), 7);
    history.add(sample(13, 1, vec![flow("a", 5, 5)]));
    assert_eq!(steps(&history, 11, 13, "a").got[2], Some(34), "an older sample changes nothing");
}

#[test]
fn minutes_are_the_sums_of_their_steps() {
    let mut history = PoolHistory::new();
    let mut waits = WaitCounts::default();
    waits.note(Micros(3_000_000));
    for step in 1201..=1200 + 5 * MINUTE_STEPS {
        let row =
            FlowSample { waits, waiting: step, difference: Some((1, 2)), ..flow("a", 10, 20) };
        history.add(PoolSample { granted: 1, waits, ..sample(step, 1, vec![row]) });
    }
    let view = history.view(HistoryResolution::Minutes, (100, 104), TENANT, None);
    let a = &view.rows[0].1;
    assert_eq!(a.got, [Some(120), Some(120), Some(120), Some(120), None], "the last one runs");
    assert_eq!(a.asked[0], Some(240));
    assert_eq!(a.waiting[1], Some(1224), "the value at the end");
    assert_eq!(view.pool.granted[0], Some(12));
    assert!(a.wait_p95_ms[0].is_some_and(|wait| (2_500..5_000).contains(&wait)));
}

#[test]
fn an_hour_of_steps_and_a_day_of_minutes_are_kept() {
    let mut history = PoolHistory::new();
    let last = 40_000;
    for step in 1..=last {
        history.add(sample(step, 1, vec![flow("a", 1, 1)]));
    }
    let kept = |resolution, first, last| sum_of_got(&history, resolution, (first, last));
    assert_eq!(kept(HistoryResolution::Steps, last - 719, last), 720);
    assert_eq!(kept(HistoryResolution::Steps, last - 1439, last - 720), 0, "older ones are gone");
    let minute = last / MINUTE_STEPS - 1;
    assert_eq!(kept(HistoryResolution::Minutes, minute - 1439, minute), 1440 * 12);
}

#[test]
fn a_thousand_rows_fit_and_no_token_is_lost() {
    let seed = std::env::var("FAIRGATE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(26);
    println!("FAIRGATE_SEED={seed}");
    let mut random = SeededRng::new(seed);
    let mut history = PoolHistory::new();
    let mut total = 0;
    for step in 1..=720_u64 {
        let flows: Vec<FlowSample> = (0..40)
            .map(|_| {
                let number = random.next_u64() % 1000;
                // In the second half other rows are the largest.
                let is_large = number % 7 == u64::from(step > 360);
                let got = if is_large { 5_000 * (1 + 9 * i64::from(step > 360)) } else { 3 };
                flow(&format!("tenant-{number}"), got, 1)
            })
            .collect();
        let mut by_name: HashMap<RowName, FlowSample> = HashMap::new();
        for flow in flows {
            total += flow.got;
            match by_name.get_mut(&flow.name) {
                Some(known) => known.add(&flow),
                None => drop(by_name.insert(flow.name.clone(), flow)),
            }
        }
        history.add(sample(step, 1, by_name.into_values().collect()));
    }
    assert_eq!(sum_of_got(&history, HistoryResolution::Steps, (1, 720)), total);
    // The last minute runs; what it has so far is in no minute yet.
    let running: i64 = sum_of_got(&history, HistoryResolution::Steps, (709, 720));
    assert_eq!(sum_of_got(&history, HistoryResolution::Minutes, (0, 60)), total - running);
    assert_eq!(history.named.len(), NAMED_ROWS_MAX);
    assert!(history.bytes() <= 6_000_000, "{} bytes", history.bytes());
    let large = history.named.keys().filter(|(_, name)| {
        name.trim_start_matches("tenant-").parse::<u64>().is_ok_and(|number| number % 7 == 1)
    });
    assert!(large.count() > 60, "rows that became large are kept by name");
}

#[test]
fn the_window_has_the_parts_of_all_rows() {
    let mut history = PoolHistory::new();
    for step in 1..=30 {
        let due = |flow: FlowSample, due| FlowSample { due: Some(due), ..flow };
        let flows = vec![due(flow("a", 75, 900), 50), due(flow("b", 25, 100), 50)];
        history.add(PoolSample { granted: 2, ..sample(step, 1, flows) });
    }
    let window = history.window();
    let a = window.row(TENANT, "a");
    assert_eq!((window.seconds, window.granted), (60, 24));
    assert_eq!((a.due_ppm, a.got_ppm, a.asked_ppm), (Some(500_000), Some(750_000), Some(900_000)));
    assert_eq!(a.asked, 900 * 12);
    assert_eq!(window.row(TENANT, "c").got_ppm, Some(0), "it got nothing of what was served");
    assert_eq!(window.row(Attribute::Group, "a").got_ppm, None, "nobody knows");
}
