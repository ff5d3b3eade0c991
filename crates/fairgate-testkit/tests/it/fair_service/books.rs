//! Counts each flow's service independently of the pool, and checks the inequalities.

use std::collections::BTreeMap;

use crate::fair_service::stage::Request;

/// The counts of one flow.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Books {
    /// Weight w or quantum q of the flow.
    pub(crate) weight: i128,
    /// The largest cost c of the flow's requests.
    pub(crate) largest: i128,
    /// U, the tokens that the ended requests really used.
    pub(crate) used: i128,
    /// The summed costs of all granted requests.
    pub(crate) costs: i128,
    /// The number of granted requests.
    pub(crate) grants: i128,
    /// Sums over the requests in flight.
    pub(crate) in_flight: Sums,
    /// The largest value of each of these sums so far.
    pub(crate) most: Sums,
    /// The least cost of any granted request.
    pub(crate) least_cost: Option<i128>,
    /// The least number of tokens that any granted request costs or uses.
    pub(crate) least: Option<i128>,
}

/// Sums over the requests in flight: of their costs, of their usage, and of the larger and the smaller of both.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sums {
    pub(crate) cost: i128,
    pub(crate) used: i128,
    pub(crate) larger: i128,
    pub(crate) smaller: i128,
}

impl Sums {
    fn of(request: Request) -> Self {
        let (cost, used) = (i128::from(request.cost), i128::from(request.used()));
        Self { cost, used, larger: cost.max(used), smaller: cost.min(used) }
    }

    fn with(self, other: Self, by: impl Fn(i128, i128) -> i128) -> Self {
        Self {
            cost: by(self.cost, other.cost),
            used: by(self.used, other.used),
            larger: by(self.larger, other.larger),
            smaller: by(self.smaller, other.smaller),
        }
    }
}

impl Books {
    pub(crate) fn new(weight: u64, largest: u64) -> Self {
        Self { weight: weight.into(), largest: largest.into(), ..Self::default() }
    }

    fn grant(&mut self, request: Request) {
        let sums = Sums::of(request);
        self.in_flight = self.in_flight.with(sums, |a, b| a + b);
        self.most = self.most.with(self.in_flight, i128::max);
        self.costs += sums.cost;
        self.grants += 1;
        let least = |so_far: Option<i128>, now: i128| so_far.map_or(now, |least| least.min(now));
        self.least_cost = Some(least(self.least_cost, sums.cost));
        self.least = Some(least(self.least, sums.smaller));
    }

    pub(crate) fn end(&mut self, request: Request) {
        let sums = Sums::of(request);
        self.in_flight = self.in_flight.with(sums, |a, b| a - b);
        self.used += sums.used;
    }

    /// Returns E, the real tokens of the ended requests plus the costs of the requests in flight.
    pub(crate) fn charged(&self) -> i128 {
        self.used + self.in_flight.cost
    }
}

/// The greatest left side of each inequality so far, in percent of its right side.
#[derive(Debug, Default)]
pub(crate) struct Nearest(BTreeMap<&'static str, i128>);

impl Nearest {
    pub(crate) fn holds(
        &mut self,
        what: &'static str,
        left: i128,
        right: i128,
    ) -> Result<(), String> {
        if left > right {
            return Err(format!("{what}: {left} is over {right}"));
        }
        let percent = if right > 0 { left.max(0) * 100 / right } else { 0 };
        let most = self.0.entry(what).or_default();
        *most = percent.max(*most);
        Ok(())
    }

    pub(crate) fn join(&mut self, other: &Self) {
        for (what, percent) in &other.0 {
            let most = self.0.entry(what).or_default();
            *most = (*percent).max(*most);
        }
    }

    pub(crate) fn percents(self) -> BTreeMap<&'static str, i128> {
        self.0
    }
}

/// The flows of one node, for comparison pair by pair.
pub(crate) struct Pairs {
    pub(crate) books: Vec<Books>,
    /// The least value of the running difference of i over j since both are watched.
    pub(crate) low: Vec<Vec<Option<i128>>>,
    /// For each flow, all books right before the flow's last grant; `None` if it has had no grant.
    pub(crate) before: Vec<Option<Vec<Books>>>,
    /// For each flow, all books right after the flow's last grant; `None` if it has had no grant.
    pub(crate) after: Vec<Option<Vec<Books>>>,
    pub(crate) nearest: Nearest,
}

impl Pairs {
    pub(crate) fn new(books: Vec<Books>) -> Self {
        let n = books.len();
        let (low, none) = (vec![vec![None; n]; n], vec![None; n]);
        Self { books, low, before: none.clone(), after: none, nearest: Nearest::default() }
    }

    /// Starts the comparison with all counts at 0. All flows must be waiting already.
    pub(crate) fn all_wait(mut self) -> Self {
        let n = self.books.len();
        self.low = vec![vec![Some(0); n]; n];
        self.before = vec![Some(self.books.clone()); n];
        self.after = self.before.clone();
        self
    }

    pub(crate) fn grant(&mut self, flow: usize, request: Request) {
        self.before[flow] = Some(self.books.clone());
        self.books[flow].grant(request);
        self.after[flow] = Some(self.books.clone());
    }

    pub(crate) fn pairs(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let n = self.books.len();
        (0..n).flat_map(move |i| (0..n).filter(move |j| *j != i).map(move |j| (i, j)))
    }

    /// Checks that the running difference has not risen by more than this since any earlier moment.
    pub(crate) fn rises(
        &mut self,
        what: &'static str,
        (i, j): (usize, usize),
        now: i128,
        most: i128,
    ) -> Result<(), String> {
        let Some(low) = &mut self.low[i][j] else { return Ok(()) };
        *low = now.min(*low);
        let rise = now - *low;
        self.nearest.holds(what, rise, most).map_err(|broken| format!("{i} over {j}: {broken}"))
    }
}
