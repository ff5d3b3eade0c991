//! Computes the expected wait of a request: the number of requests in its flow that must be granted
//! up to and including this one, ÷ the flow's grants per second in the last minute.
//!
//! Only the function `expected_wait` of this module computes this time. `retry-after` is the same
//! time, limited to a range.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use fairgate_core::policy::Policy;
use fairgate_core::units::Micros;

use crate::flow_totals::FlowTotals;

const MINUTE_US: u64 = 60_000_000;
const BUCKETS: usize = 12;
const BUCKET_US: u64 = MINUTE_US / BUCKETS as u64;
/// Minimum `retry_after` of a refusal.
const RETRY_LEAST: Duration = Duration::from_secs(1);

/// Counts the grants of a flow in the last minute, in buckets of five seconds.
#[derive(Clone, Copy, Debug)]
pub struct RecentGrants {
    /// Time at which counting began.
    since: Micros,
    buckets: [GrantBucket; BUCKETS],
}

#[derive(Clone, Copy, Debug, Default)]
struct GrantBucket {
    number: u64,
    grants: u64,
}

impl RecentGrants {
    /// Returns an empty counter that begins to count at `since`.
    pub fn new(since: Micros) -> Self {
        Self { since, buckets: [GrantBucket::default(); BUCKETS] }
    }

    /// Counts one grant at the time `at`.
    pub fn note(&mut self, at: Micros) {
        let number = at.0 / BUCKET_US;
        // A remainder modulo 12 fits any index.
        let bucket =
            &mut self.buckets[usize::try_from(number % BUCKETS as u64).unwrap_or_default()];
        if bucket.number != number {
            *bucket = GrantBucket { number, grants: 0 };
        }
        bucket.grants += 1;
    }

    /// Returns the number of grants in the last minute.
    pub fn count(&self, now: Micros) -> u64 {
        let oldest = Self::oldest(now);
        let live = self.buckets.iter().filter(|bucket| bucket.number >= oldest);
        live.map(|bucket| bucket.grants).sum()
    }

    /// Returns the time over which the grants were counted: one minute, or less if counting began less than a minute
    /// ago.
    pub fn observed(&self, now: Micros) -> Duration {
        let from = self.since.0.max(Self::oldest(now).saturating_mul(BUCKET_US));
        Duration::from_micros(now.0.saturating_sub(from))
    }

    fn oldest(now: Micros) -> u64 {
        (now.0 / BUCKET_US).saturating_sub(BUCKETS as u64 - 1)
    }

    /// Returns the time until `ahead` requests are granted, at the rate of the last minute: `ahead`
    /// × observed time ÷ grants. `None` if nothing was granted in that minute.
    pub fn expected_wait(&self, ahead: u64, now: Micros) -> Option<Duration> {
        expected_wait(ahead, self.count(now), self.observed(now))
    }

    /// Returns the time after which to retry: the expected wait, but at least one second and at
    /// most `most`. If nothing was granted in the last minute, the observed time is used instead of
    /// the expected wait.
    pub fn retry_after(&self, ahead: u64, now: Micros, most: Duration) -> Duration {
        let wait = self.expected_wait(ahead, now).unwrap_or_else(|| self.observed(now));
        wait.clamp(RETRY_LEAST, most.max(RETRY_LEAST))
    }
}

/// Returns the time until `ahead` requests are granted, if `grants` requests were granted in the
/// time `observed`: `ahead` × `observed` ÷ `grants`. `None` if `grants` is 0.
pub fn expected_wait(ahead: u64, grants: u64, observed: Duration) -> Option<Duration> {
    let micros = observed.as_micros().saturating_mul(u128::from(ahead));
    let micros = micros.checked_div(u128::from(grants))?;
    Some(Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX)))
}

/// Grants of a flow in the last minute, and the flow's totals.
#[derive(Clone, Debug)]
pub struct FlowGrants {
    /// Names of the flow and of the flows around it, from the root down.
    pub path: Vec<Box<str>>,
    /// Requests of the flow that were granted in the last minute.
    pub grants: u64,
    /// Time over which `grants` were counted, at most one minute.
    pub observed: Duration,
    /// Cost that the flow has asked for and got since its counting began, in the unit of the pool.
    pub totals: FlowTotals,
}

/// Separator between the names of a path in a key. Names never contain it.
const SEPARATOR: char = '\0';

/// Queue lengths, recent grants and totals of the flows that have requests or had some in the last
/// minute.
#[derive(Debug, Default)]
pub(crate) struct FlowRates {
    flows: HashMap<Arc<str>, FlowRate>,
    /// Totals of all flows together.
    all: FlowTotals,
    swept: Micros,
}

#[derive(Debug)]
struct FlowRate {
    waiting: u64,
    in_flight: u64,
    /// Time at which a request last arrived, was granted or ended.
    touched: Micros,
    grants: RecentGrants,
    totals: FlowTotals,
}

impl FlowRate {
    fn new(at: Micros) -> Self {
        Self {
            waiting: 0,
            in_flight: 0,
            touched: at,
            grants: RecentGrants::new(at),
            totals: FlowTotals::new(at),
        }
    }
}

impl FlowRates {
    /// Returns the key of a flow: the names of its path, joined by the separator.
    pub(crate) fn key(path: &[&str]) -> Arc<str> {
        let mut key = String::with_capacity(path.iter().map(|name| name.len() + 1).sum());
        for (depth, name) in path.iter().enumerate() {
            if depth > 0 {
                key.push(SEPARATOR);
            }
            key.push_str(name);
        }
        key.into()
    }

    /// Returns the rates of a new pool, whose counting begins at `since`.
    pub(crate) fn new(since: Micros) -> Self {
        Self { all: FlowTotals::new(since), ..Self::default() }
    }

    /// Counts the arrival of a request with this cost that was not queued.
    pub(crate) fn ask(&mut self, flow: &Arc<str>, at: Micros, cost: u64) {
        self.sweep(at);
        let rate = self.flows.entry(flow.clone()).or_insert_with(|| FlowRate::new(at));
        rate.touched = at;
        rate.totals.ask(cost);
        self.all.ask(cost);
    }

    /// Counts the arrival of a request with this cost that was queued.
    pub(crate) fn begin_wait(&mut self, flow: &Arc<str>, at: Micros, cost: u64) {
        self.sweep(at);
        let rate = self.flows.entry(flow.clone()).or_insert_with(|| FlowRate::new(at));
        rate.waiting += 1;
        rate.touched = at;
        rate.totals.ask(cost);
        self.all.ask(cost);
    }

    pub(crate) fn end_wait(&mut self, flow: &str) {
        if let Some(rate) = self.flows.get_mut(flow) {
            rate.waiting = rate.waiting.saturating_sub(1);
        }
    }

    /// Counts a grant with its cost.
    pub(crate) fn grant(&mut self, flow: &str, at: Micros, cost: u64, waited: Micros) {
        self.all.grant(cost, waited);
        if let Some(rate) = self.flows.get_mut(flow) {
            rate.waiting = rate.waiting.saturating_sub(1);
            rate.in_flight += 1;
            rate.touched = at;
            rate.grants.note(at);
            rate.totals.grant(cost, waited);
        }
    }

    /// Counts the end of a granted request. `difference` is the number of tokens that it used
    /// beyond the cost of its grant.
    pub(crate) fn end_flight(&mut self, flow: &str, at: Micros, difference: i64) {
        self.all.correct(difference);
        if let Some(rate) = self.flows.get_mut(flow) {
            rate.in_flight = rate.in_flight.saturating_sub(1);
            rate.touched = at;
            rate.totals.correct(difference);
        }
    }

    /// Counts a request in another flow, because a new policy puts the request there. Tokens that
    /// were already counted stay with the old flow.
    pub(crate) fn move_request(&mut self, from: &str, to: &Arc<str>, waits: bool, at: Micros) {
        if let Some(rate) = self.flows.get_mut(from) {
            match waits {
                true => rate.waiting = rate.waiting.saturating_sub(1),
                false => rate.in_flight = rate.in_flight.saturating_sub(1),
            }
        }
        let rate = self.flows.entry(to.clone()).or_insert_with(|| FlowRate::new(at));
        match waits {
            true => rate.waiting += 1,
            false => rate.in_flight += 1,
        }
    }

    /// Forgets flows that have no requests and do not exist in the new policy.
    pub(crate) fn keep_paths_of(&mut self, policy: &Policy) {
        self.flows.retain(|key, rate| {
            rate.waiting > 0 || rate.in_flight > 0 || is_path(policy, key.split(SEPARATOR))
        });
    }

    /// Returns the expected wait of one more request of a flow (`None` if the flow had no grants in the last minute),
    /// and the time after which to retry.
    pub(crate) fn of_one_more(
        &self,
        flow: &str,
        now: Micros,
        most: Duration,
    ) -> (Option<Duration>, Duration) {
        match self.flows.get(flow) {
            Some(FlowRate { waiting, grants, .. }) => {
                let ahead = waiting.saturating_add(1);
                (grants.expected_wait(ahead, now), grants.retry_after(ahead, now, most))
            }
            None => (None, RETRY_LEAST),
        }
    }

    /// Returns the expected wait of the last queued request of a flow; `None` if the flow had no
    /// grants in the last minute.
    pub(crate) fn of_flow(&self, flow: &str, now: Micros) -> Option<Duration> {
        let FlowRate { waiting, grants, .. } = self.flows.get(flow)?;
        grants.expected_wait(*waiting, now)
    }

    /// Returns the recent grants of all flows.
    pub(crate) fn all(&self, now: Micros) -> Vec<FlowGrants> {
        let flow = |(key, rate): (&Arc<str>, &FlowRate)| FlowGrants {
            path: key.split(SEPARATOR).map(Into::into).collect(),
            grants: rate.grants.count(now),
            observed: rate.grants.observed(now),
            totals: rate.totals,
        };
        self.flows.iter().map(flow).collect()
    }

    /// Returns the totals of all flows together.
    pub(crate) fn totals(&self) -> FlowTotals {
        self.all
    }

    /// Forgets flows without requests now and in the last minute. Runs at most once a minute.
    fn sweep(&mut self, now: Micros) {
        if now.0.saturating_sub(self.swept.0) >= MINUTE_US {
            self.swept = now;
            let is_used = |rate: &FlowRate| {
                let is_recent = now.0.saturating_sub(rate.touched.0) < MINUTE_US;
                rate.waiting > 0 || rate.in_flight > 0 || is_recent || rate.grants.count(now) > 0
            };
            self.flows.retain(|_, rate| is_used(rate));
        }
    }
}

/// Returns true if these names are a path from the root of a policy to a queue.
fn is_path<'a>(policy: &Policy, names: impl Iterator<Item = &'a str>) -> bool {
    let mut node = Some(&**policy.root());
    for name in names {
        let Some(level) = node else { return false };
        if level.flow_of(Some(name)) != name {
            return false;
        }
        node = level.node_inside_of(name);
    }
    node.is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000;

    #[test]
    fn it_is_what_is_ahead_by_the_grants_of_the_last_minute() {
        let mut grants = RecentGrants::new(Micros(0));
        assert_eq!(grants.expected_wait(5, Micros(0)), None);
        assert_eq!(grants.retry_after(5, Micros(7 * S), RETRY_LEAST * 60).as_secs(), 7);
        for second in 0..1000 {
            grants.note(Micros(second * S));
            grants.note(Micros(second * S));
        }
        let now = Micros(1000 * S - 1);
        assert_eq!((grants.count(now), grants.observed(now).as_secs()), (120, 59));
        let wait = grants.expected_wait(400, now).unwrap();
        assert_eq!(wait.as_secs(), 199, "it is not clamped");
        assert_eq!(grants.retry_after(400, now, RETRY_LEAST * 60).as_secs(), 60);
        assert_eq!(grants.retry_after(0, now, RETRY_LEAST * 60), RETRY_LEAST);
        assert_eq!(grants.expected_wait(1, Micros(1061 * S)), None, "a minute ago");
        assert_eq!(expected_wait(u64::MAX, 1, Duration::MAX).unwrap().as_micros(), u64::MAX.into());
    }

    #[test]
    fn flows_are_apart_and_forgotten() {
        let mut rates = FlowRates::default();
        let (chat, batch) = (FlowRates::key(&["chat", "t"]), FlowRates::key(&["batch"]));
        for _ in 0..3 {
            rates.begin_wait(&chat, Micros(0), 100);
        }
        rates.begin_wait(&batch, Micros(0), 7);
        rates.grant(&chat, Micros(10 * S), 100, Micros(10 * S));
        let (wait, retry) = rates.of_one_more(&chat, Micros(10 * S), Duration::from_secs(20));
        assert_eq!((wait, retry), (Some(Duration::from_secs(30)), Duration::from_secs(20)));
        assert_eq!(rates.of_one_more(&batch, Micros(10 * S), Duration::from_secs(20)).0, None);
        rates.end_wait(&batch);
        let all = rates.all(Micros(10 * S));
        assert_eq!(all.len(), 2);
        let of_chat = all.iter().find(|flow| flow.path.len() == 2).unwrap();
        assert_eq!((&*of_chat.path[0], &*of_chat.path[1], of_chat.grants), ("chat", "t", 1));
        assert_eq!((of_chat.totals.asked, of_chat.totals.got), (300, 100));
        rates.begin_wait(&chat, Micros(100 * S), 1);
        assert_eq!(rates.all(Micros(100 * S)).len(), 1, "batch is forgotten");
        rates.end_flight(&chat, Micros(101 * S), -40);
        assert_eq!(rates.all(Micros(101 * S))[0].totals.got, 60, "a refund lowers what it got");
        assert_eq!((rates.totals().asked, rates.totals().got), (308, 60));
    }
}
