//! Measures the share of each class under drr and under share. Simulated clients send requests to the real scheduler in
//! a closed loop, on a simulated clock.
//!
//! Each class has twelve clients, and each client sends its next request when its last one has ended. Eight requests
//! are in flight at once, and 20 000 are counted. A class's requests have the sizes of real requests that fall into its
//! bucket. Under drr a request costs its uncached input, as in Dynamo. Under share it costs its estimate of input and
//! output, which is exact here, and is settled with its real tokens.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use fairgate_config::{ClassArbiter, PolicyClasses};
use fairgate_core::Pool;
use fairgate_core::attribute::{Attribute, Attributes};
use fairgate_core::decision::Decision;
use fairgate_core::event::{Event, PoolConfig, Submit};
use fairgate_core::units::{Micros, Tokens};

use super::sizes::{RequestSize, SIZES};
use fairgate_table::{TableCell, TextTable};

const SLOTS: u64 = 8;
const CLIENTS: usize = 12;
const ENDS: usize = 20_000;

/// Tokens that a class got.
#[derive(Clone, Copy, Default)]
struct ClassTokens {
    input: u64,
    tokens: u64,
}

/// Builds a table with a row for each class.
pub(super) fn table(classes: &PolicyClasses) -> TextTable {
    let headings = vec![
        "class",
        "by quanta",
        "drr, of the input",
        "drr, of all tokens",
        "share, of all tokens",
    ];
    let quanta: Vec<u64> =
        classes.all().iter().filter_map(|class| class.quantum).map(|q| q.get()).collect();
    let [drr, share] =
        [ClassArbiter::Drr, ClassArbiter::Share].map(|arbiter| measure(classes, arbiter));
    let column = |of: fn(&ClassTokens) -> u64, got: &[ClassTokens]| {
        parts(&got.iter().map(of).collect::<Vec<_>>())
    };
    let columns = [
        parts(&quanta),
        column(|got| got.input, &drr),
        column(|got| got.tokens, &drr),
        column(|got| got.tokens, &share),
    ];
    let mut table = TextTable::new(headings);
    for (i, class) in classes.all().iter().enumerate() {
        let parts = columns.iter().map(|column| TableCell::Number(format!("{:.3}", column[i])));
        table.row(std::iter::once(TableCell::Text(class.name.to_string())).chain(parts).collect());
    }
    table
}

fn parts(amounts: &[u64]) -> Vec<f64> {
    let whole: f64 = amounts.iter().map(|amount| *amount as f64).sum();
    amounts.iter().map(|amount| *amount as f64 / whole).collect()
}

fn measure(classes: &PolicyClasses, arbiter: ClassArbiter) -> Vec<ClassTokens> {
    let mut scene = ClosedLoopRun::new(classes, arbiter);
    for class in 0..scene.sizes.len() {
        for _ in 0..CLIENTS {
            scene.submit(class);
        }
    }
    for _ in 0..ENDS {
        scene.end_next();
    }
    scene.got
}

/// One run with clients that send their next request as soon as the last one has ended.
struct ClosedLoopRun<'a> {
    classes: &'a PolicyClasses,
    arbiter: ClassArbiter,
    pool: Pool,
    now: Micros,
    /// Sizes of each class's requests, and the index of the size that the class's next request gets.
    sizes: Vec<(Vec<RequestSize>, usize)>,
    /// Class and size of each request that was submitted and has not ended, by the request's number.
    open: BTreeMap<u64, (usize, RequestSize)>,
    /// Times at which the requests in flight end, each with the request's number.
    ends: BinaryHeap<Reverse<(Micros, u64)>>,
    submitted: u64,
    got: Vec<ClassTokens>,
}

impl<'a> ClosedLoopRun<'a> {
    fn new(classes: &'a PolicyClasses, arbiter: ClassArbiter) -> Self {
        let sizes: Vec<(Vec<RequestSize>, usize)> = (0..classes.all().len())
            .map(|class| {
                let sizes = sizes_of(classes, class);
                // Shifts the classes against each other, so that they do not send the same sizes at the same time.
                let first = class * sizes.len() / classes.all().len();
                (sizes, first)
            })
            .collect();
        let got = vec![ClassTokens::default(); sizes.len()];
        let pool = Pool::new(PoolConfig::new(SLOTS, classes.policy_under(arbiter)));
        let (now, open, ends) = (Micros(0), BTreeMap::new(), BinaryHeap::new());
        Self { classes, arbiter, pool, now, sizes, open, ends, submitted: 0, got }
    }

    fn submit(&mut self, class: usize) {
        let (sizes, next) = &mut self.sizes[class];
        let size = sizes[*next % sizes.len()];
        *next += 1;
        self.submitted += 1;
        self.open.insert(self.submitted, (class, size));
        let mut submit = Submit::new(&self.submitted.to_string());
        let name = self.classes.all()[class].name.as_str();
        submit.attributes = Attributes::none().with(Attribute::Class, name);
        submit.cost = Some(Tokens(match self.arbiter {
            ClassArbiter::Drr => size.input,
            ClassArbiter::Share | ClassArbiter::Bands => size.input + size.output,
        }));
        self.apply(Event::Submit(Box::new(submit)));
    }

    /// Ends the request in flight that ends first, and submits the next request of its client.
    fn end_next(&mut self) {
        let Some(Reverse((at, id))) = self.ends.pop() else { return };
        let Some((class, size)) = self.open.remove(&id) else { return };
        self.now = at;
        let got = &mut self.got[class];
        got.input += size.input;
        got.tokens += size.input + size.output;
        let tokens = Some(Tokens(size.input + size.output));
        self.apply(Event::Release { id: id.to_string().into(), tokens, quota: None });
        self.submit(class);
    }

    fn apply(&mut self, event: Event) {
        let mut decisions: Vec<Decision> = Vec::new();
        let applied = self.pool.apply(self.now, event, &mut decisions);
        applied.expect("time does not go back, and ids are used once");
        for decision in decisions {
            let Decision::Grant(grant) = decision else { continue };
            let id: u64 = grant.id.parse().expect("ids are numbers");
            let (_, size) = self.open[&id];
            // Models a worker that reads 10 000 tokens a second and writes 50.
            let lasts = size.input * 100 + size.output * 20_000;
            self.ends.push(Reverse((Micros(self.now.0 + lasts), id)));
        }
    }
}

/// Returns the real sizes that fall into the class's bucket; if there are none, all sizes, changed so that they fall
/// into it.
fn sizes_of(classes: &PolicyClasses, class: usize) -> Vec<RequestSize> {
    let cell = classes.all()[class].cell.as_ref();
    let range = cell.and_then(|cell| classes.range(&cell.bucket));
    let (from, to) = range.unwrap_or((0, None));
    let fits = |size: &RequestSize| size.input >= from && to.is_none_or(|to| size.input < to);
    let fitting: Vec<RequestSize> = SIZES.iter().copied().filter(fits).collect();
    if !fitting.is_empty() {
        return fitting;
    }
    let last = to.unwrap_or(u64::MAX).saturating_sub(1);
    let moved = |size: &RequestSize| RequestSize { input: (from + size.input).min(last), ..*size };
    SIZES.iter().map(moved).collect()
}
