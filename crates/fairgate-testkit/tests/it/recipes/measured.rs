//! Repeats the measurements of the page: drr compared with share, and waits with and without a longest wait.

use std::fs;

use fairgate_core::attribute::{Attribute, Attributes};
use fairgate_core::event::{PoolConfig, WorkerChange};
use fairgate_journal::parse_policy;

use super::closed_loop::{ClosedLoop, Estimate, Sender};
use super::page::{folder, readme, table, text};
use super::picture::{Line, picture};
use super::sizes::{Size, Traces};

const SLOTS: u64 = 8;
const CLIENTS: usize = 12;
const ENDS: usize = 20_000;

/// Two classes, by default in the ratio 4 : 1.
struct Case {
    name: &'static str,
    weights: (u64, u64),
    quanta: (u64, u64),
    /// Order of the first class's queue. The second class is always first come, first served.
    queue: &'static str,
    estimates: (Estimate, Estimate),
    sizes: (Vec<Size>, Vec<Size>),
    limit: Limit,
}

/// The limit on the number of requests in flight.
#[derive(Clone, Copy)]
enum Limit {
    Capacity,
    /// The slots of the only worker.
    Slots,
}

impl Case {
    fn four_to_one(name: &'static str, queue: &'static str, traces: &Traces) -> Self {
        let mut code = traces.code.clone();
        let half = code.len() / 2;
        code.rotate_left(half);
        Self {
            name,
            weights: (4, 1),
            quanta: (8000, 2000),
            queue,
            estimates: (Estimate::Exact, Estimate::Exact),
            sizes: (traces.conversation.clone(), code),
            limit: Limit::Capacity,
        }
    }

    fn share(&self) -> String {
        let ((first, second), queue) = (self.weights, self.queue);
        format!(
            r#"{{"share":{{"by":"class","classes":[{{"name":"first","weight":{first},"queue":"{queue}"}},{{"name":"second","weight":{second}}}]}}}}"#
        )
    }

    fn drr(&self) -> String {
        let ((first, second), queue) = (self.quanta, self.queue);
        format!(
            r#"{{"drr":{{"by":"class","classes":[{{"name":"first","quantum":{first},"queue":"{queue}"}},{{"name":"second","quantum":{second}}}]}}}}"#
        )
    }

    fn start(&self, policy: &str) -> ClosedLoop {
        let sender = |name, sizes: &Vec<Size>, estimate| Sender {
            attributes: Attributes::none().with(Attribute::Class, name),
            clients: CLIENTS,
            sizes: sizes.clone(),
            estimate,
        };
        let first = sender("first", &self.sizes.0, self.estimates.0);
        let second = sender("second", &self.sizes.1, self.estimates.1);
        ClosedLoop::start(pool(policy, self.limit), &[first, second])
    }

    /// Returns the first class's part of the tokens, from 0 to 1.
    fn part(&self, policy: &str) -> f64 {
        let mut pool = self.start(policy);
        pool.run(ENDS);
        first_part(&tokens(&pool), &[0, 0])
    }
}

fn pool(policy: &str, limit: Limit) -> PoolConfig {
    let worker = WorkerChange { name: "w".into(), slots: Some(SLOTS), ..WorkerChange::default() };
    let policy = parse_policy(policy).expect("a good policy");
    match limit {
        Limit::Capacity => PoolConfig::new(SLOTS, policy),
        Limit::Slots => PoolConfig { workers: vec![worker], ..PoolConfig::new(1000, policy) },
    }
}

fn tokens(pool: &ClosedLoop) -> Vec<u64> {
    pool.outcomes().iter().map(|outcome| outcome.tokens).collect()
}

fn first_part(now: &[u64], before: &[u64]) -> f64 {
    let got: Vec<f64> = now.iter().zip(before).map(|(now, before)| (now - before) as f64).collect();
    got[0] / got.iter().sum::<f64>()
}

fn cases(traces: &Traces) -> Vec<Case> {
    let fcfs = |name| Case::four_to_one(name, "fcfs", traces);
    let wspt = |name| Case::four_to_one(name, "wspt", traces);
    let both = |estimate| (estimate, estimate);
    let fixed = |cost| vec![Size { input: cost, output: 0 }];
    vec![
        fcfs("`fcfs` in both, exact estimates"),
        Case {
            estimates: both(Estimate::Noisy),
            ..fcfs("`fcfs` in both, estimates from a half to twice the real use")
        },
        wspt(README_CASE),
        Case {
            limit: Limit::Slots,
            ..wspt("the same, but the slots of a worker are the limit and not the capacity")
        },
        Case {
            estimates: both(Estimate::Learned),
            ..wspt("`wspt` in the first, learned estimates")
        },
        Case {
            estimates: (Estimate::Times(4), Estimate::Exact),
            ..fcfs("`fcfs` in both, the first estimates four times too much")
        },
        Case {
            weights: (1, 1),
            quanta: (1, 1),
            sizes: (fixed(2), fixed(3)),
            ..fcfs("all requests of the first cost 2, of the second 3, quanta 1 : 1")
        },
    ]
}

/// Name of the case whose numbers are also in the README.
const README_CASE: &str = "`wspt` in the first, exact estimates";

const RATIOS: &str = "| the two classes | shares wanted | `share` gives | `drr` gives |";

#[test]
fn share_keeps_the_ratio_and_drr_gives_what_the_page_says() {
    let traces = Traces::load();
    let mean = |sizes: &[Size]| {
        let tokens: u64 = sizes.iter().map(|size| size.tokens()).sum();
        (tokens as f64 / sizes.len() as f64).round()
    };
    let means = (mean(&traces.conversation), mean(&traces.code));
    assert_eq!(means, (1366.0, 2076.0));
    let mut rows = format!("{RATIOS}\n|---|---|---|---|\n");
    for case in cases(&traces) {
        let (share, drr) = (case.part(&case.share()), case.part(&case.drr()));
        let (first, second) = case.weights;
        let wanted = first as f64 / (first + second) as f64;
        assert!((share - wanted).abs() < 0.005, "{}: share gives {share:.4}", case.name);
        let parts @ [_, by_share, by_drr] =
            &[wanted, share, drr].map(|part| format!("{part:.2} : {:.2}", 1.0 - part));
        rows += &format!("| {} | {} |\n", case.name, parts.join(" | "));
        if case.name == README_CASE {
            let said = format!("`share` gave {by_share} of the tokens and `drr` {by_drr}");
            assert!(readme().contains(&said), "the README does not say: {said}");
        }
    }
    compare(RATIOS, &rows);
}

const WAITS: &str = "| queue | half wait at most | 99 % wait at most | the longest wait |";

/// Twelve clients of one tenant send requests, with estimates as a gateway learns them.
#[test]
fn waits_are_as_the_page_says() {
    let traces = Traces::load();
    let sender = Sender {
        attributes: Attributes::none().with(Attribute::Tenant, "a"),
        clients: CLIENTS,
        sizes: traces.conversation.clone(),
        estimate: Estimate::Learned,
    };
    let queues = [
        ("`fcfs`", r#""fcfs""#),
        ("`wspt`", r#""wspt""#),
        ("`wspt`, `max_wait_us` of 10 s", r#"{"order":"wspt","max_wait_us":10000000}"#),
        ("`wspt`, `max_wait_us` of 2 s", r#"{"order":"wspt","max_wait_us":2000000}"#),
    ];
    let mut rows = format!("{WAITS}\n|---|---|---|---|\n");
    let mut longest = Vec::new();
    for (name, queue) in queues {
        let policy = format!(r#"{{"share":{{"by":"tenant","queue":{queue}}}}}"#);
        let mut pool =
            ClosedLoop::start(pool(&policy, Limit::Slots), std::slice::from_ref(&sender));
        pool.run(5000);
        let mut waits = pool.outcomes()[0].waits_us.clone();
        waits.sort_unstable();
        let rank = |percent: usize| waits[(waits.len() * percent).div_ceil(100) - 1];
        let most = waits[waits.len() - 1].max(pool.oldest_wait_us());
        let cells = [rank(50), rank(99), most].map(|us| format!("{:.1} s", us as f64 / 1e6));
        rows += &format!("| {name} | {} |\n", cells.join(" | "));
        longest.push(most);
        let minutes = pool.pool().now().0 / 60_000_000;
        assert_eq!(minutes, 54, "the length of the run");
    }
    let [fcfs, wspt, bounded, _] = longest[..] else { panic!("four queues") };
    assert!(wspt > 10 * fcfs && bounded < 16_000_000, "{longest:?}");
    compare(WAITS, &rows);
}

fn compare(heading: &str, measured: &str) {
    let said = table(&text(), heading);
    assert!(said == measured, "the page says\n{said}\nmeasured\n{measured}");
}

/// Returns the first class's part of the tokens in each step of ended requests.
fn over_time(case: &Case, policy: &str) -> Vec<f64> {
    let mut pool = case.start(policy);
    let mut before = vec![0, 0];
    let step = |_| {
        pool.run(STEP);
        let now = tokens(&pool);
        let part = first_part(&now, &before);
        before = now;
        part
    };
    (0..STEPS).map(step).collect()
}

const STEP: usize = 200;
const STEPS: usize = 30;

#[test]
fn the_picture_is_as_measured() {
    let traces = Traces::load();
    let cases = cases(&traces);
    let [fcfs, _, wspt, _, _, inflated, _] = &cases[..] else { panic!("seven cases") };
    let worst = Case {
        estimates: (Estimate::Times(4), Estimate::Exact),
        ..Case::four_to_one("both", "wspt", &traces)
    };
    let lines = [
        Line { class: "share", name: "share, wspt, 4×", parts: over_time(&worst, &worst.share()) },
        Line { class: "good", name: "drr, fcfs", parts: over_time(fcfs, &fcfs.drr()) },
        Line { class: "drr", name: "drr, wspt", parts: over_time(wspt, &wspt.drr()) },
        Line { class: "worst", name: "drr, 4×", parts: over_time(inflated, &inflated.drr()) },
    ];
    let drawn = picture(&lines, STEP);
    let path = folder().join("img/drr-and-share.svg");
    if std::env::var_os("FAIRGATE_DRAW").is_some() {
        fs::write(&path, &drawn).expect("it can be written");
    }
    let there = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        there == drawn,
        "docs/img/drr-and-share.svg is not what was measured; FAIRGATE_DRAW=1 draws it"
    );
}
