//! Sums over the last minute of a pool: the service that its rows got, were due and asked for. The
//! sums cover all rows, also those that are not kept by name.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use fairgate_core::attribute::Attribute;
use fairgate_runtime::WaitCounts;

use crate::quantile::WaitQuantile;
use crate::sample::{FlowSample, PoolSample, RowName};
use crate::step::{MINUTE_STEPS, STEP_SECONDS};

/// The samples of the last minute.
#[derive(Debug, Default)]
pub(crate) struct WindowRing {
    samples: VecDeque<PoolSample>,
    shares: Option<Arc<WindowShares>>,
}

/// Sums over the last minute.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WindowShares {
    /// Time over which the sums go, in seconds: a minute, or less after the start.
    pub seconds: u64,
    /// Grants of the pool.
    pub granted: u64,
    /// Refusals of the pool.
    pub refused: u64,
    waits: WaitCounts,
    rows: HashMap<RowName, FlowSample>,
    sums: HashMap<Attribute, WindowSum>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct WindowSum {
    got: i128,
    due: i128,
    asked: u128,
}

/// Sums of a row over the last minute. A part is in millionths of the sum over all rows of the same
/// attribute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowWindow {
    /// Part of the service due; `None` if nothing was due, or if it is not known.
    pub due_ppm: Option<u64>,
    /// Part of the service got; `None` if nothing was served. It is 0 for a row with more refunds
    /// than grants.
    pub got_ppm: Option<u64>,
    /// Part of the service asked for; `None` if nothing was asked for.
    pub asked_ppm: Option<u64>,
    /// Service that was asked for, in the unit of the pool.
    pub asked: u64,
    /// Number of the row's grants.
    pub granted: u64,
    /// Number of the row's refusals.
    pub refused: u64,
    /// Median wait of the grants, in milliseconds.
    pub wait_p50_ms: Option<u64>,
    /// Wait that 95 % of the grants did not exceed, in milliseconds.
    pub wait_p95_ms: Option<u64>,
}

impl WindowRing {
    /// Adds a sample, and drops the samples that are more than a minute older.
    pub(crate) fn add(&mut self, mut sample: PoolSample) {
        let oldest = sample.step.saturating_sub(MINUTE_STEPS);
        self.shares = None;
        if sample.covers > MINUTE_STEPS {
            self.samples.clear();
            return;
        }
        sample.flows.retain(|flow| !flow.is_still());
        while self.samples.front().is_some_and(|first| first.step <= oldest) {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
    }

    /// Returns the sums, which are computed once for each sample.
    pub(crate) fn shares(&mut self) -> Arc<WindowShares> {
        let samples = &self.samples;
        self.shares.get_or_insert_with(|| Arc::new(WindowShares::of(samples))).clone()
    }
}

impl WindowShares {
    fn of(samples: &VecDeque<PoolSample>) -> Self {
        let mut shares = Self::default();
        for sample in samples {
            shares.seconds += sample.covers.min(MINUTE_STEPS) * STEP_SECONDS;
            shares.granted += sample.granted;
            shares.refused += sample.refused;
            shares.waits.add(&sample.waits);
            for flow in &sample.flows {
                match shares.rows.get_mut(&flow.name) {
                    Some(row) => row.add(flow),
                    None => drop(shares.rows.insert(flow.name.clone(), flow.clone())),
                }
            }
        }
        for (name, row) in &shares.rows {
            let all = shares.sums.entry(name.0).or_default();
            all.got += i128::from(row.got.max(0));
            all.due += i128::from(row.due.unwrap_or(0).max(0));
            all.asked += u128::from(row.asked);
        }
        shares
    }

    /// Returns the sums of a row.
    pub fn row(&self, by: Attribute, name: &str) -> RowWindow {
        let (Some(row), Some(all)) = (self.rows.get(&(by, Arc::from(name))), self.sums.get(&by))
        else {
            return self.still_row(by);
        };
        let signed = |part: i64| i128::from(part.max(0));
        RowWindow {
            due_ppm: row.due.and_then(|due| ppm(signed(due), all.due)),
            got_ppm: ppm(signed(row.got), all.got),
            asked_ppm: ppm(i128::from(row.asked), i128::try_from(all.asked).unwrap_or(i128::MAX)),
            asked: row.asked,
            granted: row.waits.total(),
            refused: row.refused,
            wait_p50_ms: WaitQuantile::of(&row.waits, 50).milliseconds(),
            wait_p95_ms: WaitQuantile::of(&row.waits, 95).milliseconds(),
        }
    }

    /// Returns the median wait of the pool's grants, and the wait that 95 % of them did not exceed,
    /// in milliseconds.
    pub fn waits_ms(&self) -> (Option<u64>, Option<u64>) {
        let quantile = |percent| WaitQuantile::of(&self.waits, percent).milliseconds();
        (quantile(50), quantile(95))
    }

    /// Returns the sums of a row in which nothing happened: a part of 0 of the service of all rows.
    fn still_row(&self, by: Attribute) -> RowWindow {
        let all = self.sums.get(&by);
        let none_of = |sum: i128| (sum > 0).then_some(0);
        RowWindow {
            got_ppm: all.and_then(|all| none_of(all.got)),
            due_ppm: all.and_then(|all| none_of(all.due)),
            asked_ppm: all.and_then(|all| (all.asked > 0).then_some(0)),
            ..RowWindow::default()
        }
    }
}

fn ppm(part: i128, of: i128) -> Option<u64> {
    u64::try_from(part.saturating_mul(1_000_000).checked_div(of)?).ok()
}
