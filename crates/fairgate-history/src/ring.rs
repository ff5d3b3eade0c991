//! The two rings of points of a pool, and the choice of the rows that are kept by name.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use fairgate_core::attribute::Attribute;
use fairgate_runtime::WaitCounts;

use crate::columns::{PointColumns, RowPoint};
use crate::quantile::WaitQuantile;
use crate::sample::{FlowSample, PoolSample, RowName};
use crate::step::MINUTE_STEPS;
use crate::window::{WindowRing, WindowShares};

/// Number of rows that are kept by name.
pub const NAMED_ROWS_MAX: usize = 100;
/// Number of other rows whose size is remembered, so that they can replace a kept row.
const CANDIDATES_MAX: usize = 10_000;
/// Number of kept rows that may be replaced in a minute.
const REPLACED_MAX: usize = 10;

/// Length of the points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HistoryResolution {
    /// Points of five seconds, for an hour.
    Steps,
    /// Points of one minute, for a day.
    Minutes,
}

impl HistoryResolution {
    /// Returns the number of points that are kept.
    pub const fn length(self) -> usize {
        match self {
            Self::Steps => 720,
            Self::Minutes => 1440,
        }
    }

    /// Returns the length of a point in steps.
    pub const fn steps(self) -> u64 {
        match self {
            Self::Steps => 1,
            Self::Minutes => MINUTE_STEPS,
        }
    }
}

/// One point of the pool as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PoolPoint {
    pub(crate) slots: u32,
    pub(crate) in_flight: u32,
    pub(crate) waiting: u32,
    pub(crate) granted: u32,
    pub(crate) refused: u32,
    pub(crate) p50: WaitQuantile,
    pub(crate) p95: WaitQuantile,
}

/// Points of one resolution in a ring. `newest` is the number of the newest point.
#[derive(Debug)]
pub(crate) struct PointRing {
    /// Number of the newest point; `None` before the first.
    pub(crate) newest: Option<u64>,
    /// The pool's points; `None` is a gap.
    pub(crate) pool: Box<[Option<PoolPoint>]>,
}

impl PointRing {
    fn new(resolution: HistoryResolution) -> Self {
        Self { newest: None, pool: vec![None; resolution.length()].into() }
    }

    /// Returns the index of a point in the ring. Two points whose numbers differ by the ring's
    /// length have the same index.
    pub(crate) fn place(&self, number: u64) -> usize {
        usize::try_from(number % self.pool.len() as u64).unwrap_or_default()
    }

    /// Returns true if the ring reaches back to this point.
    pub(crate) fn has(&self, number: u64) -> bool {
        let length = self.pool.len() as u64;
        self.newest.is_some_and(|newest| number <= newest && newest - number < length)
    }
}

/// Sums over the current minute.
#[derive(Clone, Debug)]
struct MinuteSum {
    got: i64,
    asked: u64,
    refused: u64,
    waits: WaitCounts,
    last: RowPoint,
    has_points: bool,
}

impl Default for MinuteSum {
    fn default() -> Self {
        Self {
            got: 0,
            asked: 0,
            refused: 0,
            waits: WaitCounts::default(),
            last: RowPoint::STILL,
            has_points: false,
        }
    }
}

impl MinuteSum {
    fn add(&mut self, point: &RowPoint, waits: &WaitCounts) {
        self.got = self.got.saturating_add(point.got);
        self.asked = self.asked.saturating_add(point.asked);
        self.refused = self.refused.saturating_add(point.refused);
        self.waits.add(waits);
        self.last = *point;
        self.has_points = true;
    }

    /// Adds the sums of another row for the same minute.
    fn join(&mut self, other: &Self) {
        self.got = self.got.saturating_add(other.got);
        self.asked = self.asked.saturating_add(other.asked);
        self.refused = self.refused.saturating_add(other.refused);
        self.waits.add(&other.waits);
        self.last = self.last.and(other.last);
        self.has_points |= other.has_points;
    }

    fn point(&self) -> Option<RowPoint> {
        self.has_points.then(|| RowPoint {
            got: self.got,
            asked: self.asked,
            refused: self.refused,
            p50: WaitQuantile::of(&self.waits, 50),
            p95: WaitQuantile::of(&self.waits, 95),
            ..self.last
        })
    }
}

/// The points of a kept row, or of the others of an attribute.
#[derive(Debug)]
pub(crate) struct RowHistory {
    pub(crate) promised: bool,
    /// Tokens of about the last hour, by which rows are compared.
    size: u64,
    pub(crate) steps: PointColumns,
    pub(crate) minutes: PointColumns,
    minute: MinuteSum,
}

impl RowHistory {
    fn new(promised: bool) -> Self {
        Self {
            promised,
            size: 0,
            steps: PointColumns::new(HistoryResolution::Steps.length()),
            minutes: PointColumns::new(HistoryResolution::Minutes.length()),
            minute: MinuteSum::default(),
        }
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    pub(crate) fn columns(&self, resolution: HistoryResolution) -> &PointColumns {
        match resolution {
            HistoryResolution::Steps => &self.steps,
            HistoryResolution::Minutes => &self.minutes,
        }
    }
}

/// The history of one pool.
#[derive(Debug)]
pub struct PoolHistory {
    pub(crate) steps: PointRing,
    pub(crate) minutes: PointRing,
    /// First step with a sample.
    pub(crate) since: Option<u64>,
    pub(crate) named: HashMap<RowName, RowHistory>,
    pub(crate) others: HashMap<Attribute, RowHistory>,
    /// Sizes of the rows that are not kept by name.
    pub(crate) candidates: HashMap<RowName, u64>,
    window: WindowRing,
    pool_minute: (u64, u64, WaitCounts),
}

impl Default for PoolHistory {
    fn default() -> Self {
        Self::new()
    }
}

impl PoolHistory {
    /// Returns an empty history.
    pub fn new() -> Self {
        Self {
            steps: PointRing::new(HistoryResolution::Steps),
            minutes: PointRing::new(HistoryResolution::Minutes),
            since: None,
            named: HashMap::new(),
            others: HashMap::new(),
            candidates: HashMap::new(),
            window: WindowRing::default(),
            pool_minute: (0, 0, WaitCounts::default()),
        }
    }

    /// Adds a sample. A sample that is not later than the newest one is left out.
    pub fn add(&mut self, sample: PoolSample) {
        let Some(before) = sample.step.checked_sub(1) else { return };
        if self.steps.newest.is_some_and(|newest| newest >= sample.step) {
            return;
        }
        let covers = sample.covers.max(1);
        if covers > MINUTE_STEPS {
            // It is not known when in that time the amounts arose.
            self.advance(before);
        }
        let divided = if covers > MINUTE_STEPS { 1 } else { covers };
        let newest = self.steps.newest;
        let is_new_minute = newest.is_some_and(|it| minute_of(it) != minute_of(sample.step));
        self.since.get_or_insert(sample.step + 1 - divided);
        let rows = self.kept_rows(&sample);
        for part in 0..divided {
            let step = sample.step + 1 - divided + part;
            self.advance(step);
            self.put_part(&sample, &rows, step, (part, divided));
        }
        // Once a minute, after the sample was added, because the rows of the sample are those that
        // are kept now.
        if is_new_minute {
            self.replace_small_rows();
        }
        self.window.add(sample);
    }

    /// Returns the service that the rows got, were due and asked for in the last minute.
    pub fn window(&mut self) -> Arc<WindowShares> {
        self.window.shares()
    }

    /// Returns the bytes that the points hold.
    pub fn bytes(&self) -> usize {
        let length = HistoryResolution::Steps.length() + HistoryResolution::Minutes.length();
        let rows = self.named.len() + self.others.len();
        rows * (PointColumns::bytes(length) + size_of::<RowHistory>() + size_of::<RowName>())
            + length * size_of::<Option<PoolPoint>>()
    }

    /// Advances both rings to a step, and clears the points that are reused.
    fn advance(&mut self, step: u64) {
        if self.steps.newest.is_some_and(|newest| minute_of(newest) != minute_of(step)) {
            self.end_minute();
        }
        self.clear_until(HistoryResolution::Steps, step);
    }

    fn clear_until(&mut self, resolution: HistoryResolution, number: u64) {
        let ring = match resolution {
            HistoryResolution::Steps => &mut self.steps,
            HistoryResolution::Minutes => &mut self.minutes,
        };
        let length = ring.pool.len() as u64;
        let first = ring.newest.map_or(number, |newest| newest + 1);
        let first = first.max((number + 1).saturating_sub(length));
        for free in first..=number {
            let place = ring.place(free);
            ring.pool[place] = None;
            for row in self.named.values_mut().chain(self.others.values_mut()) {
                match resolution {
                    HistoryResolution::Steps => row.steps.remove(place),
                    HistoryResolution::Minutes => row.minutes.remove(place),
                }
            }
        }
        ring.newest = Some(number);
    }

    /// Stores the point of the minute that ends, and compares the rows' sizes.
    fn end_minute(&mut self) {
        let Some(newest) = self.steps.newest else { return };
        let minute = minute_of(newest);
        self.clear_until(HistoryResolution::Minutes, minute);
        let place = self.minutes.place(minute);
        let (granted, refused, waits) = std::mem::take(&mut self.pool_minute);
        if let Some(last) = self.steps.pool[self.steps.place(newest)] {
            self.minutes.pool[place] = Some(PoolPoint {
                granted: narrow(granted),
                refused: narrow(refused),
                p50: WaitQuantile::of(&waits, 50),
                p95: WaitQuantile::of(&waits, 95),
                ..last
            });
            for row in self.named.values_mut().chain(self.others.values_mut()) {
                if let Some(point) = std::mem::take(&mut row.minute).point() {
                    row.minutes.put(place, &point);
                }
            }
        }
        let sizes = self.named.values_mut().map(|row| &mut row.size);
        sizes.chain(self.candidates.values_mut()).for_each(|size| *size -= size.div_ceil(60));
        self.candidates.retain(|_, size| *size > 0);
    }

    /// Replaces kept rows by rows that are more than twice as large. The history of a replaced row
    /// is added to the others.
    fn replace_small_rows(&mut self) {
        for _ in 0..REPLACED_MAX {
            if self.named.len() < NAMED_ROWS_MAX {
                return;
            }
            // Equal sizes are ordered by name, so that equal samples leave equal histories.
            let by_size = |a: &(&RowName, u64), b: &(&RowName, u64)| (a.1, a.0).cmp(&(b.1, b.0));
            let largest = self.candidates.iter().map(|(name, size)| (name, *size));
            let Some((name, size)) = largest.max_by(by_size) else { return };
            let kept = self.named.iter().map(|(name, row)| (name, row.size));
            let Some((small, small_size)) = kept.min_by(by_size) else { return };
            if size / 2 <= small_size {
                return;
            }
            let (name, small) = (name.clone(), small.clone());
            self.candidates.remove(&name);
            let Some(gone) = self.named.remove(&small) else { return };
            self.candidates.insert(small.clone(), gone.size);
            self.add_to_others(small.0, &gone);
            self.named.insert(name, RowHistory { size, ..RowHistory::new(gone.promised) });
        }
    }

    fn add_to_others(&mut self, by: Attribute, gone: &RowHistory) {
        let others = self.others.entry(by).or_insert_with(|| RowHistory::new(true));
        others.promised &= gone.promised;
        let columns = [
            (&mut others.steps, &gone.steps, &self.steps),
            (&mut others.minutes, &gone.minutes, &self.minutes),
        ];
        for (sums, of_row, ring) in columns {
            for place in 0..ring.pool.len() {
                let Some(point) = of_row.get(place) else { continue };
                let sum = sums.get(place).unwrap_or(RowPoint::STILL).and(point);
                sums.put(place, &sum);
            }
        }
        others.minute.join(&gone.minute);
    }

    /// Divides a sample among the kept rows: the rows with a name, and the sum of the others of
    /// each attribute.
    fn kept_rows(&mut self, sample: &PoolSample) -> KeptRows {
        let mut rows = KeptRows::default();
        let mut fresh: BTreeSet<&RowName> = BTreeSet::new();
        let is_new = |flow: &&FlowSample| !flow.is_still() && !self.named.contains_key(&flow.name);
        for flow in sample.flows.iter().filter(is_new) {
            // A row that was among the others has its earlier points there.
            if !self.candidates.contains_key(&flow.name) {
                fresh.insert(&flow.name);
            }
        }
        for name in fresh {
            if self.named.len() >= NAMED_ROWS_MAX {
                break;
            }
            let row = self.still_row();
            self.named.insert(name.clone(), row);
        }
        for flow in &sample.flows {
            let size = flow.got.max(0).unsigned_abs().saturating_add(flow.asked);
            if let Some(row) = self.named.get_mut(&flow.name) {
                row.size = row.size.saturating_add(size);
                row.promised = flow.promised;
                rows.named.insert(flow.name.clone(), flow.clone());
                continue;
            }
            if flow.is_still() {
                continue;
            }
            let has_room = self.candidates.len() < CANDIDATES_MAX;
            match self.candidates.get_mut(&flow.name) {
                Some(known) => *known = known.saturating_add(size),
                None if has_room => drop(self.candidates.insert(flow.name.clone(), size)),
                None => {}
            }
            let by = flow.name.0;
            match rows.others.get_mut(&by) {
                Some(sum) => sum.add(flow),
                None => drop(rows.others.insert(by, flow.clone())),
            }
        }
        for by in rows.others.keys() {
            self.others.entry(*by).or_insert_with(|| RowHistory::new(true));
        }
        rows
    }

    /// Returns the history of a row that is seen for the first time. The row was idle in all
    /// existing points.
    fn still_row(&self) -> RowHistory {
        let mut row = RowHistory::new(true);
        for (place, point) in self.steps.pool.iter().enumerate() {
            if point.is_some() {
                row.steps.put(place, &RowPoint::STILL);
            }
        }
        for (place, point) in self.minutes.pool.iter().enumerate() {
            if point.is_some() {
                row.minutes.put(place, &RowPoint::STILL);
            }
        }
        row
    }

    /// Writes one part of a sample as the point of a step.
    fn put_part(&mut self, sample: &PoolSample, rows: &KeptRows, step: u64, part: (u64, u64)) {
        let place = self.steps.place(step);
        let is_last = part.0 + 1 == part.1;
        let waits = if is_last { sample.waits } else { WaitCounts::default() };
        let granted = part_of(sample.granted, part);
        let refused = part_of(sample.refused, part);
        self.steps.pool[place] = Some(PoolPoint {
            slots: narrow(sample.slots),
            in_flight: narrow(sample.in_flight),
            waiting: narrow(sample.waiting),
            granted: narrow(granted),
            refused: narrow(refused),
            p50: WaitQuantile::of(&sample.waits, 50),
            p95: WaitQuantile::of(&sample.waits, 95),
        });
        self.pool_minute.0 += granted;
        self.pool_minute.1 += refused;
        self.pool_minute.2.add(&waits);
        let of_part = |row: &mut RowHistory, flow: Option<&FlowSample>| {
            let point = flow.map_or(RowPoint::STILL, |flow| point_of(flow, part));
            row.steps.put(place, &point);
            let waits = flow.filter(|_| is_last).map_or(WaitCounts::default(), |flow| flow.waits);
            row.minute.add(&point, &waits);
        };
        for (name, row) in &mut self.named {
            of_part(row, rows.named.get(name));
        }
        for (by, row) in &mut self.others {
            let flow = rows.others.get(by);
            if let Some(flow) = flow {
                row.promised = flow.promised;
            }
            of_part(row, flow);
        }
    }
}

/// The rows of one sample, as they are kept.
#[derive(Default)]
struct KeptRows {
    named: HashMap<RowName, FlowSample>,
    others: HashMap<Attribute, FlowSample>,
}

/// Returns the point of a part of a sample. The amounts are divided; the values are those at the end of the sample.
fn point_of(flow: &FlowSample, part: (u64, u64)) -> RowPoint {
    RowPoint {
        got: signed_part_of(flow.got, part),
        asked: part_of(flow.asked, part),
        refused: part_of(flow.refused, part),
        difference: flow.difference,
        waiting: flow.waiting,
        in_flight: flow.in_flight,
        p50: WaitQuantile::of(&flow.waits, 50),
        p95: WaitQuantile::of(&flow.waits, 95),
    }
}

/// Returns part `part.0` of an amount that is divided into `part.1` parts. The parts add up to the amount.
fn part_of(amount: u64, (part, of): (u64, u64)) -> u64 {
    let until = |part: u64| u128::from(amount) * u128::from(part) / u128::from(of.max(1));
    u64::try_from(until(part + 1) - until(part)).unwrap_or(u64::MAX)
}

fn signed_part_of(amount: i64, part: (u64, u64)) -> i64 {
    let size = i64::try_from(part_of(amount.unsigned_abs(), part)).unwrap_or(i64::MAX);
    if amount < 0 { -size } else { size }
}

/// Returns the minute that contains a step.
fn minute_of(step: u64) -> u64 {
    step.saturating_sub(1) / MINUTE_STEPS
}

fn narrow(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Returns the service due in a point: got minus the rise of the difference since the point before.
pub(crate) fn due(point: &RowPoint, before: Option<&RowPoint>) -> Option<i64> {
    let (now, _) = point.difference?;
    let (then, _) = before?.difference.unwrap_or((0, 0));
    Some(point.got.saturating_sub(now - then))
}

#[cfg(test)]
#[path = "ring_tests.rs"]
mod tests;
