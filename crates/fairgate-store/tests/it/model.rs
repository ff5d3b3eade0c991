//! Random histories against a model that is too simple to be wrong.

use std::collections::{BTreeMap, HashMap};

use fairgate_store::{
    Attempt, Change, KeyPatch, LedgerQuery, Limits, Outcome, Period, Reservation, Scope, Store,
    TenantPatch, UnixMicros,
};

use crate::database::{Database, on_every_database};
use crate::rows::{NOW, attempt, budgets, key, reservation, tenant};

on_every_database!(random_histories);

/// Moments with the day and the month that they lie in, as anyone can read from a calendar.
const MOMENTS: [(UnixMicros, u32, u32); 4] = [
    (NOW, 1115, 11),
    (UnixMicros(NOW.0 + 86_400_000_000), 1116, 11),
    (UnixMicros(1_796_083_199_999_999), 1130, 11),
    (UnixMicros(1_796_083_200_000_000), 1201, 12),
];

/// Small and good enough: a linear congruence, of which the upper bits are used.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[usize::try_from(self.below(from.len() as u64)).unwrap()]
    }
}

type Sum = (Scope, String, Period, u32);

/// What must be in the store.
#[derive(Default)]
struct Model {
    budgets: HashMap<(Scope, String), Limits>,
    used: BTreeMap<Sum, u64>,
    held: BTreeMap<String, (Reservation, [Sum; 4])>,
    rows: BTreeMap<(String, u32), Attempt>,
}

fn sums(tenant: &str, key: &str, moment: usize) -> [Sum; 4] {
    let (_, day, month) = MOMENTS[moment];
    [
        (Scope::Tenant, tenant.to_owned(), Period::Day, day),
        (Scope::Tenant, tenant.to_owned(), Period::Month, month),
        (Scope::Key, key.to_owned(), Period::Day, day),
        (Scope::Key, key.to_owned(), Period::Month, month),
    ]
}

fn moment_of(at: UnixMicros) -> usize {
    MOMENTS.iter().position(|(moment, ..)| *moment == at).unwrap()
}

impl Model {
    fn reserved(&self, sum: &Sum) -> u64 {
        let of_sum = self.held.values().filter(|(_, sums)| sums.contains(sum));
        of_sum.map(|(held, _)| held.tokens).sum()
    }

    fn limit(&self, sum: &Sum) -> Option<u64> {
        let limits = self.budgets.get(&(sum.0, sum.1.clone()))?;
        limits.budgets.iter().find(|budget| budget.period == sum.2).map(|budget| budget.tokens)
    }

    /// Whether it may, and then it does.
    fn reserve(&mut self, asked: &Reservation) -> bool {
        let sums = sums(&asked.tenant, &asked.key, moment_of(asked.at));
        let earlier = self.held.remove(&asked.request);
        let fits = |sum: &Sum| {
            let taken = self.used.get(sum).unwrap_or(&0) + self.reserved(sum);
            self.limit(sum).is_none_or(|limit| taken + asked.tokens <= limit)
        };
        let yes = sums.iter().all(fits);
        if !yes {
            self.held.extend(earlier.map(|earlier| (asked.request.clone(), earlier)));
        } else if sums.iter().any(|sum| self.limit(sum).is_some()) {
            self.held.insert(asked.request.clone(), (asked.clone(), sums));
        }
        yes
    }

    /// Takes back the guess that a request was lost, where there is one; says where it had been charged.
    fn take_back(&mut self, request: &str) -> Option<[Sum; 4]> {
        let of_request = |(place, row): (&(String, u32), &Attempt)| {
            (place.0 == request && row.outcome == Outcome::Lost).then(|| place.clone())
        };
        let place = self.rows.iter().find_map(of_request)?;
        let guess = self.rows.remove(&place)?;
        let sums = sums(&guess.tenant, &guess.key, moment_of(guess.started_at));
        for sum in &sums {
            *self.used.get_mut(sum).unwrap() -= guess.charged;
        }
        Some(sums)
    }

    fn record(&mut self, row: &Attempt) {
        let place = (row.request.clone(), row.attempt);
        let mut settles = self.held.get(&row.request).map(|(_, sums)| sums.clone());
        if self.rows.contains_key(&place) {
            settles = self.take_back(&row.request).or(settles);
        }
        if let std::collections::btree_map::Entry::Vacant(free) = self.rows.entry(place) {
            free.insert(row.clone());
            let here = || sums(&row.tenant, &row.key, moment_of(row.started_at));
            for sum in settles.unwrap_or_else(here) {
                *self.used.entry(sum).or_default() += row.charged;
            }
        }
        if row.last {
            self.held.remove(&row.request);
        }
    }

    /// The process ends with requests in flight.
    fn crash(&mut self) -> (u64, u64) {
        let mut resolved = (0, 0);
        for (request, (held, sums)) in std::mem::take(&mut self.held) {
            self.take_back(&request);
            // It was reserved for a request that had ended: nobody lost anything.
            if self.rows.iter().any(|((other, _), row)| *other == request && row.last) {
                continue;
            }
            let made = self.rows.keys().filter(|(other, _)| *other == request);
            let number = made.map(|(_, number)| *number).max().unwrap_or(0) + 1;
            let mut row = attempt(&request, &held.tenant, &held.key, held.tokens);
            (row.attempt, row.started_at, row.outcome) = (number, held.at, Outcome::Lost);
            self.rows.insert((request, number), row);
            for sum in sums {
                *self.used.entry(sum).or_default() += held.tokens;
            }
            resolved = (resolved.0 + 1, resolved.1 + held.tokens);
        }
        resolved
    }
}

async fn random_histories(database: Database) {
    let from_outside = std::env::var("FAIRGATE_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = from_outside.unwrap_or_else(|| {
        std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().subsec_nanos().into()
    });
    println!("FAIRGATE_SEED={seed}");
    let kind = database.kind;
    history(database, seed).await;
    for seed in [1, 2] {
        println!("FAIRGATE_SEED={seed}");
        history(Database::new(kind).await, seed).await;
    }
}

async fn history(database: Database, seed: u64) {
    let mut dice = Dice(seed);
    let mut store = database.open().await;
    let mut model = Model::default();
    let mut who = Vec::new();
    for name in ["chat", "batch"] {
        tenant(&store, name, Limits::default()).await;
        for _ in 0..2 {
            who.push((name, key(&store, name, Limits::default()).await));
        }
    }
    // A request: whose, how many attempts it has had, whether it is over.
    let mut requests: Vec<(usize, u32, bool)> = Vec::new();
    for step in 0..250 {
        match dice.below(20) {
            0 => {
                store.close().await.unwrap();
                let expected = model.crash();
                let resolved;
                (store, resolved) = database.try_open().await.unwrap();
                assert_eq!(
                    (resolved.reservations, resolved.tokens),
                    expected,
                    "seed {seed} step {step}"
                );
            }
            1 | 2 => set_budgets(&store, &mut model, &who, &mut dice).await,
            3..=9 => {
                if requests.is_empty() || dice.below(4) > 0 {
                    requests.push((usize::try_from(dice.below(4)).unwrap(), 0, false));
                }
                let number = usize::try_from(dice.below(requests.len() as u64)).unwrap();
                let (owner, _, over) = requests[number];
                if over {
                    continue;
                }
                let (tenant, key) = &who[owner];
                let asked = Reservation {
                    at: dice.pick(&MOMENTS).0,
                    ..reservation(&format!("r{number}"), tenant, key, dice.below(300))
                };
                let yes = store.reserve(asked.clone()).await.unwrap().is_ok();
                assert_eq!(yes, model.reserve(&asked), "seed {seed} step {step}: {asked:?}");
            }
            _ if requests.is_empty() => {}
            _ => {
                let number = usize::try_from(dice.below(requests.len() as u64)).unwrap();
                let request = &mut requests[number];
                // Sometimes the last row is written again.
                if !request.2 {
                    request.1 += 1;
                    request.2 = dice.below(3) > 0;
                }
                let (tenant, key) = &who[request.0];
                let mut row = attempt(&format!("r{number}"), tenant, key, dice.below(250));
                (row.attempt, row.last) = (request.1, request.2);
                row.started_at = dice.pick(&MOMENTS).0;
                store.record(row.clone()).await.unwrap();
                model.record(&row);
            }
        }
        compare(&store, &model, &who, &format!("seed {seed} step {step}")).await;
    }
    compare_rows(&store, &model, seed).await;
    for (number, (_, _, over)) in requests.iter().enumerate() {
        let of_request = |place: &&(String, u32)| place.0 == format!("r{number}");
        let lasts = model.rows.keys().filter(of_request).filter(|place| model.rows[place].last);
        assert!(lasts.count() <= 1 || !over, "seed {seed}: r{number} ended twice");
    }
    store.close().await.unwrap();
}

async fn set_budgets(
    store: &Store,
    model: &mut Model,
    who: &[(&'static str, String)],
    dice: &mut Dice,
) {
    let mut limit = || (dice.below(3) > 0).then(|| dice.below(2_000));
    let limits = budgets(limit(), limit());
    let (tenant, key) = dice.pick(who);
    let (scope, owner, change) = if dice.below(2) == 0 {
        let patch = TenantPatch { limits: Some(limits.clone()), ..TenantPatch::default() };
        let name = (*tenant).to_owned();
        (Scope::Tenant, name.clone(), Change::PatchTenant { name, patch })
    } else {
        let patch = KeyPatch { limits: Some(limits.clone()), ..KeyPatch::default() };
        (Scope::Key, key.clone(), Change::PatchKey { id: key.clone(), patch })
    };
    store.change("test", NOW, change).await.unwrap();
    model.budgets.insert((scope, owner), limits);
}

async fn compare(store: &Store, model: &Model, who: &[(&'static str, String)], when: &str) {
    for (tenant, key) in who {
        for (moment, (at, ..)) in MOMENTS.iter().enumerate() {
            let expected: Vec<_> = sums(tenant, key, moment)
                .into_iter()
                .filter_map(|sum| {
                    let limit = model.limit(&sum)?;
                    let used = model.used.get(&sum).copied().unwrap_or(0);
                    Some((sum.0, sum.2, limit, used, model.reserved(&sum)))
                })
                .collect();
            let left = store.budgets(tenant, Some(key), *at).await.unwrap();
            let found: Vec<_> = left
                .iter()
                .map(|left| (left.scope, left.period, left.limit, left.used, left.reserved))
                .collect();
            assert_eq!(found, expected, "{when}: {tenant}/{key} at {moment}");
        }
    }
}

async fn compare_rows(store: &Store, model: &Model, seed: u64) {
    let rows = store.attempts(LedgerQuery::default()).await.unwrap();
    assert!(rows.len() < 1_000, "one page");
    let found: BTreeMap<_, _> = rows
        .into_iter()
        .map(|row| {
            ((row.request, row.attempt), (row.charged, row.last, row.outcome, row.started_at))
        })
        .collect();
    let expected: BTreeMap<_, _> = model
        .rows
        .iter()
        .map(|(place, row)| (place.clone(), (row.charged, row.last, row.outcome, row.started_at)))
        .collect();
    assert_eq!(found, expected, "seed {seed}");
}
