//! Random histories against a model that is too simple to be wrong.

use std::collections::{BTreeMap, HashMap};

use fairgate_store::{
    AttemptOutcome, AttemptRow, Budget, BudgetOwners, BudgetPeriod, BudgetScope, BudgetTier,
    BudgetUnit, DirectoryChange, DirectoryLimits, GroupPatch, HostedMaximum, KeyPatch, LedgerQuery,
    MicroUnits, Reservation, Store, TenantPatch, UnixMicros,
};

use crate::database::{Database, on_every_database};
use crate::money::everybody;
use crate::rows::{NOW, attempt, key, reservation, tenant};

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

type Sum = (BudgetScope, String, BudgetPeriod, u32);

/// The model of all requests.
const MODEL: &str = "llama";

/// An amount of each kind that a budget can count: what is hosted counts in both tiers.
const KINDS: [(BudgetTier, BudgetUnit); 4] = [
    (BudgetTier::Any, BudgetUnit::Tokens),
    (BudgetTier::Any, BudgetUnit::Money),
    (BudgetTier::Hosted, BudgetUnit::Tokens),
    (BudgetTier::Hosted, BudgetUnit::Money),
];
type Amounts = [u64; 4];

/// What must be in the store.
#[derive(Default)]
struct Model {
    budgets: HashMap<(BudgetScope, String), Vec<Budget>>,
    used: BTreeMap<Sum, Amounts>,
    held: BTreeMap<String, Held>,
    rows: BTreeMap<(String, u32), AttemptRow>,
}

#[derive(Clone)]
struct Held {
    asked: Reservation,
    hosted: bool,
    sums: Vec<Sum>,
}

impl Held {
    fn amounts(&self) -> Amounts {
        let asked = &self.asked;
        let there = asked.hosted.filter(|_| self.hosted).unwrap_or_default();
        [
            asked.provider_tokens.max(there.provider_tokens),
            asked.money.0.max(there.money.0),
            there.provider_tokens,
            there.money.0,
        ]
    }
}

fn used_by(row: &AttemptRow) -> Amounts {
    let hosted = u64::from(row.tier > 0);
    let (tokens, money) = (row.provider_tokens, row.money.0);
    [tokens, money, tokens * hosted, money * hosted]
}

/// All sums that a request counts in. The hosted tier, and a model there, have sums of their own, in which nothing else counts.
fn sums(tenant: &str, key: &str, moment: usize) -> Vec<Sum> {
    let (_, day, month) = MOMENTS[moment];
    let owners = [
        (BudgetScope::Tenant, tenant),
        (BudgetScope::Key, key),
        (BudgetScope::HostedModel, MODEL),
        (BudgetScope::Hosted, "*"),
        (BudgetScope::Group, "staff"),
    ];
    let both = |(scope, owner): (BudgetScope, &str)| {
        [(BudgetPeriod::Day, day), (BudgetPeriod::Month, month)]
            .map(|(period, first)| (scope, owner.to_owned(), period, first))
    };
    owners.into_iter().flat_map(both).collect()
}

fn moment_of(at: UnixMicros) -> usize {
    MOMENTS.iter().position(|(moment, ..)| *moment == at).unwrap()
}

impl Model {
    fn reserved(&self, sum: &Sum) -> Amounts {
        let of_sum = self.held.values().filter(|held| held.sums.contains(sum));
        of_sum.fold([0; 4], |all, held| plus(all, held.amounts()))
    }

    fn used(&self, sum: &Sum) -> Amounts {
        self.used.get(sum).copied().unwrap_or_default()
    }

    fn limit(&self, sum: &Sum, kind: (BudgetTier, BudgetUnit)) -> Option<u64> {
        let budgets = self.budgets.get(&(sum.0, sum.1.clone()))?;
        let is_it =
            |budget: &&Budget| (budget.tier, budget.unit, budget.period) == (kind.0, kind.1, sum.2);
        budgets.iter().find(is_it).map(|budget| budget.amount)
    }

    /// What the configuration allows the model on hosted workers.
    fn model_budgets(&self) -> Vec<Budget> {
        let of_model = (BudgetScope::HostedModel, MODEL.to_owned());
        self.budgets.get(&of_model).cloned().unwrap_or_default()
    }

    fn fits(&self, held: &Held) -> bool {
        let wanted = held.amounts();
        held.sums.iter().all(|sum| {
            let taken = plus(self.used(sum), self.reserved(sum));
            (0..4).all(|kind| {
                let limit = self.limit(sum, KINDS[kind]);
                wanted[kind] == 0 || limit.is_none_or(|limit| taken[kind] + wanted[kind] <= limit)
            })
        })
    }

    /// Whether it may, and then it does; where it may, whether on hosted workers too.
    fn reserve(&mut self, asked: &Reservation) -> Option<bool> {
        let sums = sums(&asked.tenant, &asked.key, moment_of(asked.at));
        let earlier = self.held.remove(&asked.request);
        let held = |hosted| Held { asked: asked.clone(), hosted, sums: sums.clone() };
        let answer =
            match (asked.hosted.is_some() && self.fits(&held(true)), self.fits(&held(false))) {
                (true, _) => Some(true),
                (false, true) => Some(false),
                (false, false) => None,
            };
        let Some(hosted) = answer else {
            self.held.extend(earlier.map(|earlier| (asked.request.clone(), earlier)));
            return None;
        };
        let is_counted = |sum: &Sum| {
            let kinds = if hosted { &KINDS[..] } else { &KINDS[..2] };
            kinds.iter().any(|kind| self.limit(sum, *kind).is_some())
        };
        if sums.iter().any(is_counted) {
            self.held.insert(asked.request.clone(), held(hosted));
        }
        Some(hosted)
    }

    /// Takes back the guess that a request was lost, where there is one; says where it had been counted.
    fn take_back(&mut self, request: &str) -> Option<Vec<Sum>> {
        let of_request = |(place, row): (&(String, u32), &AttemptRow)| {
            (place.0 == request && row.outcome == AttemptOutcome::Lost).then(|| place.clone())
        };
        let place = self.rows.iter().find_map(of_request)?;
        let guess = self.rows.remove(&place)?;
        let sums = sums(&guess.tenant, &guess.key, moment_of(guess.started_at));
        for sum in &sums {
            let used = self.used.get_mut(sum).unwrap();
            for (used, taken) in used.iter_mut().zip(used_by(&guess)) {
                *used -= taken;
            }
        }
        Some(sums)
    }

    fn count(&mut self, sums: Vec<Sum>, amounts: Amounts) {
        for sum in sums {
            let used = self.used.entry(sum).or_default();
            *used = plus(*used, amounts);
        }
    }

    fn record(&mut self, row: &AttemptRow) {
        let place = (row.request.clone(), row.attempt);
        let mut settles = self.held.get(&row.request).map(|held| held.sums.clone());
        if self.rows.contains_key(&place) {
            settles = self.take_back(&row.request).or(settles);
        }
        if let std::collections::btree_map::Entry::Vacant(free) = self.rows.entry(place) {
            free.insert(row.clone());
            let here = || sums(&row.tenant, &row.key, moment_of(row.started_at));
            self.count(settles.unwrap_or_else(here), used_by(row));
        }
        if row.last {
            self.held.remove(&row.request);
        }
    }

    /// The process ends with requests in flight.
    fn crash(&mut self) -> (u64, u64) {
        let mut resolved = (0, 0);
        for (request, held) in std::mem::take(&mut self.held) {
            self.take_back(&request);
            // It was reserved for a request that had ended: nobody lost anything.
            if self.rows.iter().any(|((other, _), row)| *other == request && row.last) {
                continue;
            }
            let made = self.rows.keys().filter(|(other, _)| *other == request);
            let number = made.map(|(_, number)| *number).max().unwrap_or(0) + 1;
            let mut row = attempt(&request, &held.asked.tenant, &held.asked.key, held.asked.tokens);
            (row.attempt, row.started_at, row.outcome) =
                (number, held.asked.at, AttemptOutcome::Lost);
            let [tokens, money, ..] = held.amounts();
            (row.provider_tokens, row.money) = (tokens, MicroUnits(money));
            row.tier = u32::from(held.hosted);
            self.count(held.sums, used_by(&row));
            self.rows.insert((request, number), row);
            resolved = (resolved.0 + 1, resolved.1 + held.asked.tokens);
        }
        resolved
    }
}

fn plus(one: Amounts, other: Amounts) -> Amounts {
    std::array::from_fn(|kind| one[kind] + other[kind])
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
        tenant(&store, name, DirectoryLimits::default()).await;
        for _ in 0..2 {
            who.push((name, key(&store, name, DirectoryLimits::default()).await));
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
            1..=3 => set_budgets(&store, &mut model, &who, &mut dice).await,
            4..=10 => {
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
                    model_budgets: model.model_budgets(),
                    ..asked(&format!("r{number}"), tenant, key, &mut dice)
                };
                let granted = store.reserve(asked.clone()).await.unwrap();
                let expected = model.reserve(&asked);
                let told = granted.as_ref().ok().map(|granted| granted.hosted);
                assert_eq!(told, expected, "seed {seed} step {step}: {asked:?} {granted:?}");
                if let Ok(granted) = granted {
                    let is_told_why = asked.hosted.is_some() && !granted.hosted;
                    assert_eq!(granted.hosted_exhausted.is_some(), is_told_why);
                }
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
                row.provider_tokens = dice.below(250);
                row.money = MicroUnits(dice.below(9_000));
                row.tier = u32::try_from(dice.below(3)).unwrap();
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

fn asked(request: &str, tenant: &str, key: &str, dice: &mut Dice) -> Reservation {
    let mut asked = Reservation {
        at: dice.pick(&MOMENTS).0,
        provider_tokens: dice.below(300),
        ..reservation(request, tenant, key, dice.below(300))
    };
    asked.money = MicroUnits(if dice.below(2) == 0 { 0 } else { dice.below(5_000) });
    asked.hosted = (dice.below(3) > 0).then(|| HostedMaximum {
        provider_tokens: dice.below(300),
        money: MicroUnits(dice.below(9_000)),
    });
    asked
}

async fn set_budgets(
    store: &Store,
    model: &mut Model,
    who: &[(&'static str, String)],
    dice: &mut Dice,
) {
    let (tenant, key) = dice.pick(who);
    let (scope, owner) = match dice.below(5) {
        0 => (BudgetScope::Tenant, *tenant),
        1 => (BudgetScope::Key, key.as_str()),
        2 => (BudgetScope::Group, "staff"),
        3 => (BudgetScope::HostedModel, MODEL),
        _ => (BudgetScope::Hosted, "*"),
    };
    let mut budgets = Vec::new();
    for (tier, unit) in KINDS {
        for period in [BudgetPeriod::Day, BudgetPeriod::Month] {
            let is_hosted = matches!(scope, BudgetScope::Hosted | BudgetScope::HostedModel);
            if dice.below(3) == 0 && (!is_hosted || tier == BudgetTier::Hosted) {
                let most = if unit == BudgetUnit::Money { 40_000 } else { 2_000 };
                budgets.push(Budget { period, unit, tier, amount: dice.below(most) });
            }
        }
    }
    let limits = Some(DirectoryLimits { budgets: budgets.clone(), ..DirectoryLimits::default() });
    let name = owner.to_owned();
    let change = match scope {
        BudgetScope::Tenant => DirectoryChange::PatchTenant {
            name,
            patch: TenantPatch { limits, ..TenantPatch::default() },
        },
        BudgetScope::Key => DirectoryChange::PatchKey {
            id: name,
            patch: KeyPatch { limits, ..KeyPatch::default() },
        },
        BudgetScope::Group => {
            let patch = GroupPatch { budgets: Some(budgets.clone()), ..GroupPatch::default() };
            DirectoryChange::PatchGroup { name, patch }
        }
        BudgetScope::Hosted => DirectoryChange::SetHosted { budgets: budgets.clone() },
        // They come with each reservation.
        BudgetScope::HostedModel => {
            model.budgets.insert((scope, name), budgets);
            return;
        }
    };
    store.change("test", NOW, change).await.unwrap();
    model.budgets.insert((scope, owner.to_owned()), budgets);
}

async fn compare(store: &Store, model: &Model, who: &[(&'static str, String)], when: &str) {
    for (tenant, key) in who {
        for (moment, (at, ..)) in MOMENTS.iter().enumerate() {
            let mut expected = Vec::new();
            for sum in sums(tenant, key, moment) {
                let (used, reserved) = (model.used(&sum), model.reserved(&sum));
                for (kind, (tier, unit)) in KINDS.into_iter().enumerate() {
                    let Some(limit) = model.limit(&sum, (tier, unit)) else { continue };
                    let stands = (limit, used[kind], reserved[kind]);
                    expected.push((sum.0, tier, unit, sum.2, stands));
                }
            }
            expected.sort();
            let budgets = model.model_budgets();
            let owners = BudgetOwners { model: Some((MODEL, &budgets)), ..everybody(tenant, key) };
            let left = store.budgets(owners, *at).await.unwrap();
            // Also in this order.
            let found: Vec<_> = left
                .iter()
                .map(|left| {
                    let stands = (left.limit, left.used, left.reserved);
                    (left.scope, left.tier, left.unit, left.period, stands)
                })
                .collect();
            assert_eq!(found, expected, "{when}: {tenant}/{key} at {moment}");
        }
    }
}

async fn compare_rows(store: &Store, model: &Model, seed: u64) {
    let rows = store.attempts(LedgerQuery::default()).await.unwrap();
    assert!(rows.len() < 1_000, "one page");
    let told = |row: &AttemptRow| {
        let uses = (row.charged, row.provider_tokens, row.money, row.tier);
        (uses, row.last, row.outcome, row.started_at)
    };
    let found: BTreeMap<_, _> =
        rows.iter().map(|row| ((row.request.clone(), row.attempt), told(row))).collect();
    let expected: BTreeMap<_, _> =
        model.rows.iter().map(|(place, row)| (place.clone(), told(row))).collect();
    assert_eq!(found, expected, "seed {seed}");
}
