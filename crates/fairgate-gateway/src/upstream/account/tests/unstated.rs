//! A provider that states nothing, in virtual time. Gate, reporter and account are those of production; a token bucket
//! stands in for the provider and its sockets.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fairgate_config::{Config, UpstreamConfig};
use fairgate_core::event::{PoolConfig, Submit, WorkerChange};
use fairgate_core::units::Tokens;
use fairgate_dialect::limits::RateLimitHeaders;
use fairgate_journal::parse_policy;
use fairgate_runtime::{Gate, GateOptions, start};
use tokio::time::{Instant, sleep, sleep_until};

use super::super::{AccountMember, ProviderAccount};
use super::account;
use crate::live_count::LiveCount;
use crate::pools::{PoolWorker, WorkerReporter};
use crate::upstream::Upstream;

const MINUTE: Duration = Duration::from_secs(60);
/// For how long it is measured, after the first minute.
const MEASURED: Duration = Duration::from_secs(180);
/// From when a request is sent to when the provider decides about it, and from then to the end of its answer.
const TO_PROVIDER: Duration = Duration::from_millis(5);
const ANSWER: Duration = Duration::from_millis(10);
const CLIENTS: usize = 96;
const CAPACITY: u64 = 16;

/// A bucket of requests whose rate the provider does not state.
struct Provider {
    per_minute: f64,
    depth: f64,
    state: std::sync::Mutex<(f64, Instant)>,
    accepted: AtomicU64,
    refused: AtomicU64,
}

impl Provider {
    fn new(per_minute: f64, saved_for: Duration) -> Self {
        let depth = (per_minute * saved_for.as_secs_f64() / 60.0).max(1.0);
        let state = std::sync::Mutex::new((depth, Instant::now()));
        Self { per_minute, depth, state, accepted: AtomicU64::new(0), refused: AtomicU64::new(0) }
    }

    fn takes(&self) -> bool {
        let now = Instant::now();
        let mut state = self.state.lock().unwrap();
        let (level, filled_at) = *state;
        let came = (now - filled_at).as_secs_f64() * self.per_minute / 60.0;
        let level = (level + came).min(self.depth);
        let takes = level >= 1.0;
        *state = (if takes { level - 1.0 } else { level }, now);
        let count = if takes { &self.accepted } else { &self.refused };
        count.fetch_add(1, Ordering::Relaxed);
        takes
    }

    fn counts(&self) -> (u64, u64) {
        (self.accepted.load(Ordering::Relaxed), self.refused.load(Ordering::Relaxed))
    }
}

/// A pool with one hosted worker.
struct House {
    gate: Gate,
    reporter: Arc<WorkerReporter>,
    account: Arc<ProviderAccount>,
    provider: Provider,
}

impl House {
    fn new(provider: Provider) -> Arc<Self> {
        let policy = parse_policy(r#"{"share":{"by":"tenant"}}"#).unwrap();
        let worker =
            WorkerChange { name: "w".into(), slots: Some(CAPACITY), ..WorkerChange::default() };
        let config = PoolConfig {
            workers: vec![worker],
            max_queue: Some(2 * CLIENTS as u64),
            ..PoolConfig::new(CAPACITY, policy)
        };
        let gate = start(config, GateOptions::default()).unwrap();
        let (config, worker) = hosted_worker();
        let name = worker.upstream.name.clone();
        let reporter = Arc::new(WorkerReporter::start(gate.clone(), &config));
        reporter.set_workers(&[worker], &config);
        let account = Arc::new(account(None, None));
        let member = AccountMember::new("p".into(), name, &reporter, gate.clone());
        let stated = account.lock().stated.clone();
        account.set_members(stated, vec![member]);
        tokio::spawn(ProviderAccount::run_updates(Arc::downgrade(&account)));
        Arc::new(Self { gate, reporter, account, provider })
    }

    /// Asks one request after another, each until the provider takes it.
    async fn ask(self: Arc<Self>, client: usize, until: Instant) {
        let mut number = 0_u64;
        while Instant::now() < until {
            number += 1;
            let id = format!("{client}-{number}");
            let mut priority = 0;
            while !self.attempt(&id, priority).await {
                priority = 2;
            }
        }
    }

    async fn attempt(&self, id: &str, priority: i64) -> bool {
        let submit = Submit { cost: Some(Tokens(1000)), priority, ..Submit::new(id) };
        let permit = self.gate.admit(submit).await.unwrap();
        let ticket = self.account.sent("p", "w", 1000);
        sleep(TO_PROVIDER).await;
        if self.provider.takes() {
            self.account.accepted(ticket, &RateLimitHeaders::default());
            sleep(ANSWER).await;
            permit.settle(Tokens(1000));
            return true;
        }
        self.account.refused(ticket, &RateLimitHeaders::default(), None, None);
        permit.give_back();
        self.reporter.wait_flushed().await;
        false
    }
}

/// A pool's configuration, and its one worker, which is never reached.
fn hosted_worker() -> (fairgate_config::PoolConfig, Arc<PoolWorker>) {
    let nowhere = ("127.0.0.1:0".parse().unwrap(), "http://127.0.0.1:9".parse().unwrap());
    let mut config = Config::embedded("unused".into(), nowhere.0, nowhere.1);
    let upstream = UpstreamConfig { name: "w".into(), ..config.upstreams.remove(0) };
    let upstream = Arc::new(Upstream::new(upstream, None).unwrap());
    let worker = PoolWorker {
        upstream,
        in_flight: LiveCount::default(),
        is_drained: false,
        hits: Default::default(),
        expects_hits: false,
    };
    let pool = fairgate_config::PoolConfig { capacity: CAPACITY, ..config.pools.remove(0) };
    (pool, Arc::new(worker))
}

/// The parts of the rate used and of the attempts refused, after the first minute.
async fn measure(per_minute: f64, saved_for: Duration) -> (f64, f64) {
    let house = House::new(Provider::new(per_minute, saved_for));
    let began = Instant::now();
    let until = began + MINUTE + MEASURED;
    let clients: Vec<_> =
        (0..CLIENTS).map(|client| tokio::spawn(house.clone().ask(client, until))).collect();
    sleep_until(began + MINUTE).await;
    let before = house.provider.counts();
    sleep_until(until).await;
    let after = house.provider.counts();
    clients.iter().for_each(tokio::task::JoinHandle::abort);
    let (accepted, refused) = ((after.0 - before.0) as f64, (after.1 - before.1) as f64);
    (accepted * 60.0 / (per_minute * MEASURED.as_secs_f64()), refused / (accepted + refused))
}

#[tokio::test(start_paused = true)]
async fn after_the_first_minute_the_rate_is_used_and_hardly_anything_refused() {
    for (per_minute, saved_for) in [
        (90.0, 60),
        (90.0, 5),
        (400.0, 60),
        (400.0, 10),
        (400.0, 1),
        (1200.0, 60),
        (1200.0, 6),
        (4000.0, 6),
    ] {
        let (used, refused) = measure(per_minute, Duration::from_secs(saved_for)).await;
        let told = format!("{per_minute} a minute, saved up for {saved_for} s");
        eprintln!("{told}: {:.1} % used, {:.2} % refused", used * 100.0, refused * 100.0);
        assert!(used >= 0.85, "{told}: {:.1} % used", used * 100.0);
        assert!(refused <= 0.03, "{told}: {:.2} % refused", refused * 100.0);
    }
}
