//! Samples the pools for their histories: every five seconds, from their flows and never from their queues.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fairgate_history::{FlowReadings, PoolHistory, WindowShares};
use fairgate_proxy::forward::{DataPlane, RecentRefusals};
use fairgate_proxy::phase::GatewayPhase;
use fairgate_proxy::pools::PoolHandle;
use fairgate_time::{UnixMicros, wall_clock};
use tokio::time::{Instant, sleep, timeout};

/// Time limit for a pool's answer. A pool that does not answer leaves a gap.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest time that a sample may keep the pool's task busy without a delay of the next sample.
const BUSY_MAX: Duration = Duration::from_millis(5);
/// The delay of the next sample ÷ the time for which the last sample kept the pool's task busy.
const BUSY_FACTOR: u32 = 100;
/// Length of a step of the histories.
const STEP_US: i64 = 5_000_000;

/// The histories of all pools.
#[derive(Debug, Default)]
pub(crate) struct PoolHistories {
    pools: Mutex<HashMap<Arc<str>, Arc<Mutex<SampledPool>>>>,
    /// Fixed time of a test, in microseconds; 0 outside tests.
    time_of_test: AtomicI64,
}

/// The history of a pool, with the data for its next sample.
#[derive(Debug, Default)]
pub(crate) struct SampledPool {
    pub(crate) history: PoolHistory,
    readings: FlowReadings,
    /// Time before which no sample is taken, because the last sample kept the pool busy.
    not_before: Option<Instant>,
}

impl PoolHistories {
    /// Calls `read` with the history of a pool.
    pub(crate) fn with<T>(&self, pool: &str, read: impl FnOnce(&mut PoolHistory) -> T) -> T {
        let sampled = self.lock().get(pool).cloned();
        match sampled {
            Some(sampled) => read(&mut lock(&sampled).history),
            // A pool that has just started.
            None => read(&mut PoolHistory::new()),
        }
    }

    /// Returns the sums of a pool's last minute.
    pub(crate) fn window(&self, pool: &str) -> Arc<WindowShares> {
        self.with(pool, PoolHistory::window)
    }

    /// Returns the time by which samples are taken and histories are shown.
    pub(crate) fn now(&self) -> UnixMicros {
        match self.time_of_test.load(Ordering::Relaxed) {
            0 => wall_clock::now(),
            time => UnixMicros(time),
        }
    }

    /// Fixes the time of the histories at this moment.
    pub(crate) fn set_time(&self, time: UnixMicros) {
        self.time_of_test.store(time.0, Ordering::Relaxed);
    }

    /// Takes a sample of each pool, and drops the histories of pools that no longer exist.
    pub(crate) async fn sample(&self, pools: &[Arc<PoolHandle>], refusals: &RecentRefusals) {
        self.lock().retain(|name, _| pools.iter().any(|pool| pool.name == *name));
        for pool in pools {
            let sampled = self.lock().entry(pool.name.clone()).or_default().clone();
            if lock(&sampled).not_before.is_some_and(|time| time > Instant::now()) {
                continue;
            }
            let Ok(Ok(counts)) = timeout(ANSWER_TIMEOUT, pool.gate.flow_counts()).await else {
                continue;
            };
            let (refused, by_owner) = refusals.of_pool(&pool.name);
            let mut sampled = lock(&sampled);
            let busy = counts.took;
            sampled.not_before = (busy > BUSY_MAX).then(|| Instant::now() + busy * BUSY_FACTOR);
            if let Some(sample) = sampled.readings.sample(self.step(), &counts, by_owner, refused) {
                sampled.history.add(sample);
            }
        }
    }

    /// Returns the number of the step that has just ended. It is rounded to the nearest end of a step, because a timer may
    /// fire a little early.
    fn step(&self) -> u64 {
        u64::try_from((self.now().0 + STEP_US / 2) / STEP_US).unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Arc<Mutex<SampledPool>>>> {
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn lock(sampled: &Mutex<SampledPool>) -> MutexGuard<'_, SampledPool> {
    sampled.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the time until the next step ends.
fn until_step_ends() -> Duration {
    let passed = wall_clock::now().0.rem_euclid(STEP_US);
    Duration::from_micros(u64::try_from(STEP_US - passed).unwrap_or_default())
}

/// Takes samples until the gateway stops serving. The first sample only sets the counts from which
/// the second one differs.
pub(crate) async fn sample_until_closing(histories: Arc<PoolHistories>, data: Arc<DataPlane>) {
    let mut phase = data.phase.watch();
    let closing =
        async move { phase.wait_for(|stage| *stage != GatewayPhase::Serving).await.map(drop) };
    let sampling = async {
        loop {
            histories.sample(&data.pools.all(), &data.refusals).await;
            sleep(until_step_ends()).await;
        }
    };
    tokio::select! {
        _ = closing => {}
        () = sampling => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_that_of_the_histories() {
        assert_eq!(STEP_US, i64::try_from(fairgate_history::STEP_SECONDS).unwrap() * 1_000_000);
    }
}
