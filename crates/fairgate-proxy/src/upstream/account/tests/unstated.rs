//! Tests, in virtual time, with a provider that states no limits.

use std::sync::Mutex;
use std::time::Duration;

use fairgate_dialect::rate_limit_headers::RateLimitHeaders;
use tokio::time::Instant;

use super::account;
use super::virtual_pool::{ProviderStub, RequestShape, StubDecision, VirtualPool};

const MINUTE: Duration = Duration::from_secs(60);
/// Duration of the measurement, after the first minute.
const MEASURED: Duration = Duration::from_secs(180);
const CLIENTS: u64 = 96;
const SHAPE: RequestShape = RequestShape {
    tokens: |_| 1000,
    to_provider: |_| Duration::from_millis(5),
    answer: Duration::from_millis(10),
};

/// A bucket of requests whose rate the provider does not state.
struct Provider {
    per_minute: f64,
    depth: f64,
    state: Mutex<(f64, Instant)>,
}

impl Provider {
    fn new(per_minute: f64, saved_for: Duration) -> Self {
        let depth = (per_minute * saved_for.as_secs_f64() / 60.0).max(1.0);
        Self { per_minute, depth, state: Mutex::new((depth, Instant::now())) }
    }
}

impl ProviderStub for Provider {
    fn decide(&self, _tokens: u64) -> StubDecision {
        let now = Instant::now();
        let mut state = self.state.lock().unwrap();
        let (level, filled_at) = *state;
        let came = (now - filled_at).as_secs_f64() * self.per_minute / 60.0;
        let level = (level + came).min(self.depth);
        let accepts = level >= 1.0;
        *state = (if accepts { level - 1.0 } else { level }, now);
        let headers = RateLimitHeaders::default();
        StubDecision { accepts, headers, counted: None, asked: None }
    }
}

/// Returns the fraction of the rate that is used, and the fraction of attempts that are refused,
/// after the first minute.
async fn measure(per_minute: f64, saved_for: Duration) -> (f64, f64) {
    let provider = Provider::new(per_minute, saved_for);
    let pool = VirtualPool::new(provider, account(None, None), SHAPE);
    let counts = pool.measure(CLIENTS, MINUTE, MINUTE + MEASURED).await;
    let (accepted, refused) = (counts.accepted as f64, counts.refused as f64);
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
