//! The points of a history between two steps, oldest first.

use fairgate_core::attribute::Attribute;

use crate::columns::RowPoint;
use crate::ring::{HistoryResolution, PoolHistory, PoolPoint, RowHistory, due};

/// Points of a pool and its rows. `None` in any list is a gap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryView {
    /// Length of the points.
    pub resolution: HistoryResolution,
    /// Number of the first point: its step, or its minute.
    pub first: u64,
    /// Number of points in each list.
    pub points: usize,
    /// First step with a sample; `None` if there is none.
    pub since: Option<u64>,
    /// The pool as a whole.
    pub pool: PoolSeries,
    /// The rows that are kept by name, largest first.
    pub rows: Vec<(String, RowSeries)>,
    /// All other rows of the attribute together; `None` if there are none.
    pub others: Option<RowSeries>,
    /// Number of rows in `others` that had tokens lately.
    pub others_count: usize,
}

/// Points of a pool as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolSeries {
    /// Requests that may be in flight at once.
    pub slots: Vec<Option<u64>>,
    /// Number of requests in flight.
    pub in_flight: Vec<Option<u64>>,
    /// Number of requests that wait.
    pub waiting: Vec<Option<u64>>,
    /// Grants of each point.
    pub granted: Vec<Option<u64>>,
    /// Refusals of each point.
    pub refused: Vec<Option<u64>>,
    /// Median wait of each point's grants, in milliseconds.
    pub wait_p50_ms: Vec<Option<u64>>,
    /// Wait that 95 % of each point's grants did not exceed, in milliseconds.
    pub wait_p95_ms: Vec<Option<u64>>,
}

/// Points of a row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowSeries {
    /// True if the policy promises the row its share of the service.
    pub promised: bool,
    /// Service got in each point, in the unit of the pool.
    pub got: Vec<Option<i64>>,
    /// Service due in each point, in the unit of the pool.
    pub due: Vec<Option<i64>>,
    /// Difference at the end of each point, in the unit of the pool.
    pub difference: Vec<Option<i64>>,
    /// Bound of the difference, in the unit of the pool.
    pub bound: Vec<Option<u64>>,
    /// Service asked for in each point, in the unit of the pool.
    pub asked: Vec<Option<u64>>,
    /// Requests that wait at the end of each point.
    pub waiting: Vec<Option<u64>>,
    /// Requests in flight at the end of each point.
    pub in_flight: Vec<Option<u64>>,
    /// Refusals of each point.
    pub refused: Vec<Option<u64>>,
    /// Median wait of each point's grants, in milliseconds.
    pub wait_p50_ms: Vec<Option<u64>>,
    /// Wait that 95 % of each point's grants did not exceed, in milliseconds.
    pub wait_p95_ms: Vec<Option<u64>>,
}

impl PoolHistory {
    /// Returns the points from number `first` to number `last`, which are steps or minutes since 1970. `flow` selects
    /// one row; without it all rows of the attribute are in the view. Points that are no longer or not yet kept are
    /// gaps.
    pub fn view(
        &self,
        resolution: HistoryResolution,
        (first, last): (u64, u64),
        by: Attribute,
        flow: Option<&str>,
    ) -> HistoryView {
        let ring = match resolution {
            HistoryResolution::Steps => &self.steps,
            HistoryResolution::Minutes => &self.minutes,
        };
        let last = last.min(first.saturating_add(resolution.length() as u64).saturating_sub(1));
        let pool_point = |number: u64| ring.pool[ring.place(number)].filter(|_| ring.has(number));
        let row_point = |row: &RowHistory, number: u64| {
            let point = row.columns(resolution).get(ring.place(number));
            point.filter(|_| ring.has(number) && pool_point(number).is_some())
        };
        let series = |row: &RowHistory| {
            let mut series = RowSeries { promised: row.promised, ..RowSeries::default() };
            let mut before = first.checked_sub(1).and_then(|number| row_point(row, number));
            for number in first..=last {
                let point = row_point(row, number);
                series.push(point.as_ref(), before.as_ref());
                before = point;
            }
            series
        };
        let is_wanted = |name: &str| flow.is_none_or(|flow| flow == name);
        let mut rows: Vec<(&str, &RowHistory)> = (self.named.iter())
            .filter(|((of, name), _)| *of == by && is_wanted(name))
            .map(|((_, name), row)| (&**name, row))
            .collect();
        rows.sort_by(|a, b| b.1.size().cmp(&a.1.size()).then_with(|| a.0.cmp(b.0)));
        let mut pool = PoolSeries::default();
        (first..=last).for_each(|number| pool.push(pool_point(number)));
        HistoryView {
            resolution,
            first,
            points: pool.slots.len(),
            since: self.since,
            pool,
            rows: rows.into_iter().map(|(name, row)| (name.to_owned(), series(row))).collect(),
            others: self.others.get(&by).filter(|_| flow.is_none()).map(series),
            others_count: self.candidates.keys().filter(|(of, _)| *of == by).count(),
        }
    }
}

impl PoolSeries {
    fn push(&mut self, point: Option<PoolPoint>) {
        let number = |of: fn(&PoolPoint) -> u32| point.as_ref().map(|point| u64::from(of(point)));
        self.slots.push(number(|point| point.slots));
        self.in_flight.push(number(|point| point.in_flight));
        self.waiting.push(number(|point| point.waiting));
        self.granted.push(number(|point| point.granted));
        self.refused.push(number(|point| point.refused));
        self.wait_p50_ms.push(point.and_then(|point| point.p50.milliseconds()));
        self.wait_p95_ms.push(point.and_then(|point| point.p95.milliseconds()));
    }
}

impl RowSeries {
    fn push(&mut self, point: Option<&RowPoint>, before: Option<&RowPoint>) {
        let difference = point.and_then(|point| point.difference);
        self.got.push(point.map(|point| point.got));
        self.due.push(point.and_then(|point| due(point, before)));
        self.difference.push(difference.map(|(difference, _)| difference));
        self.bound.push(difference.map(|(_, bound)| bound));
        self.asked.push(point.map(|point| point.asked));
        self.waiting.push(point.map(|point| point.waiting));
        self.in_flight.push(point.map(|point| point.in_flight));
        self.refused.push(point.map(|point| point.refused));
        self.wait_p50_ms.push(point.and_then(|point| point.p50.milliseconds()));
        self.wait_p95_ms.push(point.and_then(|point| point.p95.milliseconds()));
    }
}
