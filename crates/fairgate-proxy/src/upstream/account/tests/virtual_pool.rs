//! A pool with one hosted worker in virtual time. Gate, reporter and account are those of
//! production. A stub replaces the provider and its sockets.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fairgate_config::{Config, UpstreamConfig};
use fairgate_core::event::{PoolConfig, Submit, WorkerChange};
use fairgate_core::units::Tokens;
use fairgate_dialect::rate_limit_headers::{LimitUnit, RateLimitHeaders};
use fairgate_journal::parse_policy;
use fairgate_runtime::{Gate, GateOptions, start};
use tokio::time::{Instant, sleep, sleep_until};

use super::super::{AccountMember, ProviderAccount};
use crate::live_count::LiveCount;
use crate::pools::PoolWorker;
use crate::upstream::Upstream;
use crate::worker_reporter::WorkerReporter;

const CAPACITY: u64 = 16;
const CLIENTS_MAX: u64 = 96;

/// A provider that decides about a request as soon as it arrives.
pub(super) trait ProviderStub: Send + Sync + 'static {
    fn decide(&self, tokens: u64) -> StubDecision;
}

/// The decision of a provider about a request.
pub(super) struct StubDecision {
    pub(super) accepts: bool,
    pub(super) headers: RateLimitHeaders,
    pub(super) counted: Option<LimitUnit>,
    pub(super) asked: Option<Duration>,
}

/// The properties of a request, by its client and its number.
#[derive(Clone, Copy)]
pub(super) struct RequestShape {
    pub(super) tokens: fn(u64) -> u64,
    /// Time from the sending of a request until the provider decides about it.
    pub(super) to_provider: fn(u64) -> Duration,
    /// Time from the decision to the end of the answer.
    pub(super) answer: Duration,
}

/// Requests and tokens that a provider accepted, and requests that it refused.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ProviderCounts {
    pub(super) accepted: u64,
    pub(super) tokens: u64,
    pub(super) refused: u64,
}

/// A pool with one hosted worker.
pub(super) struct VirtualPool<P> {
    gate: Gate,
    reporter: Arc<WorkerReporter>,
    account: Arc<ProviderAccount>,
    provider: P,
    shape: RequestShape,
    accepted: AtomicU64,
    tokens: AtomicU64,
    refused: AtomicU64,
}

impl<P: ProviderStub> VirtualPool<P> {
    pub(super) fn new(provider: P, account: ProviderAccount, shape: RequestShape) -> Arc<Self> {
        let policy = parse_policy(r#"{"share":{"by":"tenant"}}"#).unwrap();
        let worker =
            WorkerChange { name: "w".into(), slots: Some(CAPACITY), ..WorkerChange::default() };
        let config = PoolConfig {
            workers: vec![worker],
            max_queue: Some(2 * CLIENTS_MAX),
            ..PoolConfig::new(CAPACITY, policy)
        };
        let gate = start(config, GateOptions::default()).unwrap();
        let (config, worker) = hosted_worker();
        let name = worker.upstream.name.clone();
        let reporter = Arc::new(WorkerReporter::start(gate.clone(), &config));
        reporter.set_workers(&[worker], &config);
        let account = Arc::new(account);
        let member = AccountMember::new("p".into(), name, &reporter, Vec::new());
        let stated = account.lock().stated.clone();
        account.set_members(stated, vec![member]);
        tokio::spawn(ProviderAccount::run_updates(Arc::downgrade(&account)));
        let (accepted, tokens, refused) = Default::default();
        Arc::new(Self { gate, reporter, account, provider, shape, accepted, tokens, refused })
    }

    /// Runs this many clients, and counts the requests that the provider accepts and refuses
    /// between two times after the start.
    pub(super) async fn measure(
        self: &Arc<Self>,
        clients: u64,
        from: Duration,
        until: Duration,
    ) -> ProviderCounts {
        let began = Instant::now();
        let asking: Vec<_> = (0..clients)
            .map(|client| tokio::spawn(self.clone().ask(client, began + until)))
            .collect();
        sleep_until(began + from).await;
        let before = self.counts();
        sleep_until(began + until).await;
        let after = self.counts();
        asking.iter().for_each(tokio::task::JoinHandle::abort);
        ProviderCounts {
            accepted: after.accepted - before.accepted,
            tokens: after.tokens - before.tokens,
            refused: after.refused - before.refused,
        }
    }

    fn counts(&self) -> ProviderCounts {
        ProviderCounts {
            accepted: self.accepted.load(Ordering::Relaxed),
            tokens: self.tokens.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
        }
    }

    /// Sends one request after another, and repeats each until the provider accepts it.
    async fn ask(self: Arc<Self>, client: u64, until: Instant) {
        let mut number = 0_u64;
        while Instant::now() < until {
            number += 1;
            let (id, seed) = (format!("{client}-{number}"), client << 32 | number);
            let mut priority = 0;
            while !self.attempt(&id, seed, priority).await {
                priority = 2;
            }
        }
    }

    async fn attempt(&self, id: &str, seed: u64, priority: i64) -> bool {
        let tokens = (self.shape.tokens)(seed);
        let submit = Submit { cost: Some(Tokens(tokens)), priority, ..Submit::new(id) };
        let permit = self.gate.admit(submit).await.unwrap();
        let ticket = self.account.sent("p", "w", tokens);
        sleep((self.shape.to_provider)(seed)).await;
        let StubDecision { accepts, headers, counted, asked } = self.provider.decide(tokens);
        if accepts {
            self.accepted.fetch_add(1, Ordering::Relaxed);
            self.tokens.fetch_add(tokens, Ordering::Relaxed);
            self.account.accepted(ticket, &headers);
            sleep(self.shape.answer).await;
            permit.settle(Tokens(tokens));
            return true;
        }
        self.refused.fetch_add(1, Ordering::Relaxed);
        self.account.refused(ticket, &headers, counted, asked);
        permit.give_back();
        self.reporter.wait_flushed().await;
        false
    }
}

/// Returns a pool's configuration, and its one worker, to which nothing is ever sent.
fn hosted_worker() -> (fairgate_config::PoolConfig, Arc<PoolWorker>) {
    let nowhere = ("127.0.0.1:0".parse().unwrap(), "http://127.0.0.1:9".parse().unwrap());
    let mut config = Config::embedded("unused".into(), nowhere.0, nowhere.1);
    let upstream = UpstreamConfig { name: "w".into(), ..config.upstreams.remove(0) };
    let upstream = Arc::new(Upstream::new(upstream).unwrap());
    let worker = PoolWorker {
        name: upstream.name.clone(),
        account: None,
        models: None,
        waiting: Vec::new(),
        first_slots: CAPACITY,
        upstream,
        in_flight: LiveCount::default(),
        is_drained: false,
        hits: Default::default(),
        meter: None,
        metered_slots: Default::default(),
        expects_hits: false,
    };
    let pool = fairgate_config::PoolConfig { capacity: CAPACITY, ..config.pools.remove(0) };
    (pool, Arc::new(worker))
}
