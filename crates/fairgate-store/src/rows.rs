//! From a database's rows to our types: one way for both databases.

use fairgate_money::{Currency, Day, MicroUnits, PerMillion, Price, Rates, UnixMicros};

use crate::budget::{Budget, BudgetLeft, Period, Scope};
use crate::calendar::hour_name;
use crate::claims::FleetTerms;
use crate::directory::{AllowedTaints, Directory, Group, Key, Limits, Rights, Tenant};
use crate::error::StoreError;
use crate::fleet::TaskClaim;
use crate::ledger::{
    Attempt, AuditEntry, By, HostedMost, Outcome, PriceVersion, Reservation, UsageRow, UsageSource,
};
use crate::secret::KeyHash;
use crate::sums::{Payers, Sum};
use crate::words::Word;

type Result<T> = std::result::Result<T, StoreError>;

/// A row's columns, by their place, from 0 on.
pub trait Columns {
    /// A whole number, where there is one.
    fn int_or_null(&self, column: usize) -> Result<Option<i64>>;
    /// A text, where there is one.
    fn text_or_null(&self, column: usize) -> Result<Option<String>>;
    /// Yes or no.
    fn flag(&self, column: usize) -> Result<bool>;
    /// Bytes.
    fn bytes(&self, column: usize) -> Result<Vec<u8>>;

    /// A whole number.
    fn int(&self, column: usize) -> Result<i64> {
        self.int_or_null(column)?.ok_or_else(|| null(column))
    }

    /// A text.
    fn text(&self, column: usize) -> Result<String> {
        self.text_or_null(column)?.ok_or_else(|| null(column))
    }

    /// A number of something: 0 or more.
    fn count(&self, column: usize) -> Result<u64> {
        let number = self.int(column)?;
        u64::try_from(number).map_err(|_| negative(column, number))
    }

    /// A number of something, where there is one.
    fn count_or_null(&self, column: usize) -> Result<Option<u64>> {
        let count = |number| u64::try_from(number).map_err(|_| negative(column, number));
        self.int_or_null(column)?.map(count).transpose()
    }

    /// An amount of money.
    fn money(&self, column: usize) -> Result<MicroUnits> {
        self.count(column).map(MicroUnits)
    }

    /// A moment.
    fn moment(&self, column: usize) -> Result<UnixMicros> {
        self.int(column).map(UnixMicros)
    }

    /// A moment, where there is one.
    fn moment_or_null(&self, column: usize) -> Result<Option<UnixMicros>> {
        Ok(self.int_or_null(column)?.map(UnixMicros))
    }
}

/// Words of ours in a row.
pub(crate) trait Words: Columns {
    fn word<W: Word>(&self, column: usize) -> Result<W> {
        W::from_word(&self.text(column)?)
    }
}

impl<C: Columns + ?Sized> Words for C {}

fn null(column: usize) -> StoreError {
    StoreError::Database(format!("column {} of a row is null", column + 1))
}

fn negative(column: usize, number: i64) -> StoreError {
    StoreError::Database(format!("column {} of a row is {number}: below 0", column + 1))
}

/// A group without its budgets, which are rows of their own.
pub(crate) fn group(row: &impl Columns) -> Result<Group> {
    Ok(Group {
        name: row.text(0)?,
        weight: row.count(1)?,
        budgets: Vec::new(),
        created_at: row.moment(2)?,
    })
}

/// A tenant without its budgets, which are rows of their own.
pub(crate) fn tenant(row: &impl Columns) -> Result<Tenant> {
    Ok(Tenant {
        name: row.text(0)?,
        group: row.text(1)?,
        weight: row.count(2)?,
        disabled: row.flag(3)?,
        limits: limits(row, 4)?,
        created_at: row.moment(10)?,
    })
}

/// A key without its budgets, which are rows of their own.
pub(crate) fn key(row: &impl Columns) -> Result<Key> {
    let hash = row.bytes(4)?.try_into();
    Ok(Key {
        id: row.text(0)?,
        tenant: row.text(1)?,
        name: row.text(2)?,
        hint: row.text(3)?,
        hash: KeyHash(hash.map_err(|_| StoreError::Database("a key's hash is cut".to_owned()))?),
        weight: row.count(5)?,
        limits: limits(row, 6)?,
        models: row.text_or_null(12)?.map(list).transpose()?,
        rights: Rights {
            classes: list(row.text(13)?)?,
            priority_max: row.int(14)?,
            may_pin: row.flag(15)?,
            taints: AllowedTaints(list(row.text(16)?)?),
        },
        created_at: row.moment(17)?,
        expires_at: row.moment_or_null(18)?,
        revoked_at: row.moment_or_null(19)?,
    })
}

/// A list of names, or what stands for all of them.
fn list<T: serde::de::DeserializeOwned>(text: String) -> Result<T> {
    serde_json::from_str(&text)
        .map_err(|problem| StoreError::Database(format!("a key's list of names: {problem}")))
}

fn limits(row: &impl Columns, first: usize) -> Result<Limits> {
    Ok(Limits {
        in_flight: row.count_or_null(first)?,
        queued_requests: row.count_or_null(first + 1)?,
        queued_bytes: row.count_or_null(first + 2)?,
        requests_per_minute: row.count_or_null(first + 3)?,
        tokens_per_minute: row.count_or_null(first + 4)?,
        hosted: row.word(first + 5)?,
        budgets: Vec::new(),
    })
}

/// A budget and whose it is.
#[derive(Clone)]
pub(crate) struct Owned {
    pub(crate) scope: Scope,
    pub(crate) owner: String,
    pub(crate) budget: Budget,
}

pub(crate) fn budget(row: &impl Columns) -> Result<Owned> {
    let budget = Budget {
        period: row.word(2)?,
        unit: row.word(3)?,
        tier: row.word(4)?,
        amount: row.count(5)?,
    };
    Ok(Owned { scope: row.word(0)?, owner: row.text(1)?, budget })
}

/// The parts of a directory put together and in order.
pub(crate) fn directory(
    version: i64,
    mut groups: Vec<Group>,
    mut tenants: Vec<Tenant>,
    mut keys: Vec<Key>,
    mut budgets: Vec<Owned>,
) -> Directory {
    groups.sort_by(|one, other| one.name.cmp(&other.name));
    tenants.sort_by(|one, other| one.name.cmp(&other.name));
    keys.sort_by(|one, other| one.id.cmp(&other.id));
    budgets.sort_by_key(|owned| owned.budget.kind());
    let mut hosted = Vec::new();
    for Owned { scope, owner, budget } in budgets {
        let budgets = match scope {
            Scope::Tenant => tenants
                .binary_search_by(|tenant| tenant.name.cmp(&owner))
                .map(|place| &mut tenants[place].limits.budgets),
            Scope::Key => keys
                .binary_search_by(|key| key.id.cmp(&owner))
                .map(|place| &mut keys[place].limits.budgets),
            Scope::Hosted => Ok(&mut hosted),
            // Those of models are in the configuration.
            Scope::HostedModel => continue,
            Scope::Group => groups
                .binary_search_by(|group| group.name.cmp(&owner))
                .map(|place| &mut groups[place].budgets),
        };
        if let Ok(budgets) = budgets {
            budgets.push(budget);
        }
    }
    Directory { version, groups, tenants, keys, hosted }
}

pub(crate) fn currency(row: &impl Columns, column: usize) -> Result<Currency> {
    let wrong = |problem| StoreError::Database(format!("a price: {problem}"));
    row.text(column)?.try_into().map_err(wrong)
}

pub(crate) fn price(row: &impl Columns) -> Result<PriceVersion> {
    let per_million = |column| row.count(column).map(PerMillion);
    let rates = Rates {
        input: per_million(4)?,
        cached_input: per_million(5)?,
        output: per_million(6)?,
        request: row.money(7)?,
    };
    let price = Price {
        id: row.text(0)?,
        model: row.text(1)?,
        upstream: row.text_or_null(2)?,
        currency: currency(row, 3)?,
        rates,
        from: row.int_or_null(8)?.map(Day),
    };
    Ok(PriceVersion { price, first_seen: row.moment(9)? })
}

pub(crate) fn attempt(row: &impl Columns) -> Result<Attempt> {
    let small = |column: usize| row.int(column).map(|number| u32::try_from(number).unwrap_or(0));
    Ok(Attempt {
        request: row.text(0)?,
        attempt: small(1)?,
        last: row.flag(2)?,
        started_at: row.moment(3)?,
        group: row.text(4)?,
        tenant: row.text(5)?,
        key: row.text(6)?,
        agent: row.text_or_null(7)?,
        session: row.text_or_null(8)?,
        route: row.text(9)?,
        stream: row.flag(10)?,
        model: row.text(11)?,
        pool: row.text_or_null(12)?,
        worker: row.text_or_null(13)?,
        estimate: row.count(14)?,
        input_tokens: row.count(15)?,
        cached_tokens: row.count(16)?,
        output_tokens: row.count(17)?,
        charged: row.count(18)?,
        usage: row.word::<UsageSource>(19)?,
        waited_us: row.count(20)?,
        first_token_us: row.count_or_null(21)?,
        total_us: row.count(22)?,
        status: u16::try_from(row.int(23)?).unwrap_or(0),
        outcome: row.word::<Outcome>(24)?,
        code: row.text_or_null(25)?,
        brownout: row.flag(26)?,
        occupied: row.count(27)?,
        provider_tokens: row.count(28)?,
        money: row.money(29)?,
        price: row.text_or_null(30)?,
        tier: small(31)?,
        class: row.text_or_null(32)?,
        claim: claim(row, 33)?,
    })
}

/// The task that a row or a reservation is for, from a column on.
fn claim(row: &impl Columns, first: usize) -> Result<Option<TaskClaim>> {
    let project = row.text_or_null(first)?;
    let (task, epoch) = (row.text_or_null(first + 1)?, row.count_or_null(first + 2)?);
    let claim = |((project, task), epoch)| TaskClaim { project, task, epoch };
    Ok(project.zip(task).zip(epoch).map(claim))
}

pub(crate) fn usage(row: &impl Columns, by: By) -> Result<UsageRow> {
    let name = row.text(0)?;
    let number = || name.parse::<i64>().unwrap_or(0);
    let requests = row.count(1)?;
    let mean = |sum: u64, of: u64| sum.checked_div(of);
    Ok(UsageRow {
        requests,
        failed: row.count(2)?,
        input_tokens: row.count(3)?,
        cached_tokens: row.count(4)?,
        output_tokens: row.count(5)?,
        charged: row.count(6)?,
        waited_us_mean: mean(row.count(7)?, requests).unwrap_or(0),
        waited_us_max: row.count(8)?,
        first_token_us_mean: mean(row.count(9)?, row.count(10)?),
        provider_tokens: row.count(11)?,
        money: row.money(12)?,
        name: match by {
            By::Day => Day(number()).name(),
            By::Hour => hour_name(number()),
            _ => name,
        },
    })
}

pub(crate) fn audit(row: &impl Columns) -> Result<AuditEntry> {
    let json = |text: String| {
        serde_json::from_str(&text)
            .map_err(|problem| StoreError::Database(format!("an audit entry: {problem}")))
    };
    Ok(AuditEntry {
        id: row.int(0)?,
        at: row.moment(1)?,
        actor: row.text(2)?,
        action: row.text(3)?,
        subject: row.text(4)?,
        before: row.text_or_null(5)?.map(json).transpose()?,
        after: row.text_or_null(6)?.map(json).transpose()?,
    })
}

pub(crate) fn reservation(row: &impl Columns) -> Result<Reservation> {
    let hosted = match (row.count_or_null(9)?, row.count_or_null(10)?) {
        (Some(provider_tokens), money) => {
            Some(HostedMost { provider_tokens, money: MicroUnits(money.unwrap_or(0)) })
        }
        (None, _) => None,
    };
    Ok(Reservation {
        request: row.text(0)?,
        group: row.text(1)?,
        tenant: row.text(2)?,
        key: row.text(3)?,
        model: row.text(4)?,
        tokens: row.count(5)?,
        at: row.moment(6)?,
        provider_tokens: row.count(7)?,
        money: row.money(8)?,
        hosted,
        model_budgets: Vec::new(),
        claim: claim(row, 11)?,
        fleet: FleetTerms::default(),
    })
}

/// A row that was guessed, and is taken back.
pub(crate) struct Guess {
    pub(crate) request: String,
    pub(crate) payers: Payers<'static>,
    /// To which moment its amounts belong.
    pub(crate) at: UnixMicros,
    pub(crate) uses: Sum,
    /// The task that it was for.
    pub(crate) claim: Option<TaskClaim>,
}

pub(crate) fn guess(row: &impl Columns) -> Result<Guess> {
    let payers = Payers {
        group: row.text(1)?.into(),
        tenant: row.text(2)?.into(),
        key: row.text(3)?.into(),
        model: row.text(8)?.into(),
    };
    let uses = Sum::of_row(row.int(5)?, row.int(6)?, row.int(7)?);
    Ok(Guess { request: row.text(0)?, payers, at: row.moment(4)?, uses, claim: claim(row, 9)? })
}

/// The amounts of a sum, from a column on; nothing where they are null.
pub(crate) fn sum(row: &impl Columns, first: usize) -> Result<Sum> {
    let mut columns = [0; 8];
    for (place, amount) in columns.iter_mut().enumerate() {
        *amount = row.int_or_null(first + place)?.unwrap_or(0);
    }
    Ok(Sum::from_columns(columns))
}

/// How a budget stands in the period that `at` lies in.
pub(crate) fn budget_left(row: &impl Columns, at: UnixMicros) -> Result<BudgetLeft> {
    Ok(budget(row)?.left(&sum(row, 6)?, at))
}

/// A sum of a model on the hosted tier, and its period.
pub(crate) fn model_sum(row: &impl Columns) -> Result<(Period, Sum)> {
    Ok((row.word(0)?, sum(row, 1)?))
}

/// How a model's budgets stand, with these sums in the periods that `at` lies in.
pub(crate) fn model_budgets_left(
    (model, budgets): (&str, &[Budget]),
    sums: &[(Period, Sum)],
    at: UnixMicros,
) -> Vec<BudgetLeft> {
    let left = |budget: &Budget| {
        let sum = sums.iter().find(|(period, _)| *period == budget.period);
        let sum = sum.map(|(_, sum)| *sum).unwrap_or_default();
        Owned::of_model(model, *budget).left(&sum, at)
    };
    budgets.iter().map(left).collect()
}

impl Owned {
    /// A budget that the configuration gives a model on the hosted tier.
    pub(crate) fn of_model(model: &str, budget: Budget) -> Self {
        Self { scope: Scope::HostedModel, owner: model.to_owned(), budget }
    }

    /// How it stands, with this sum in the period that `at` lies in.
    pub(crate) fn left(self, sum: &Sum, at: UnixMicros) -> BudgetLeft {
        let Budget { period, unit, tier, amount } = self.budget;
        let (used, reserved) = sum.standing(unit, tier);
        BudgetLeft {
            scope: self.scope,
            owner: self.owner,
            period,
            unit,
            tier,
            limit: amount,
            used: u64::try_from(used).unwrap_or(0),
            reserved: u64::try_from(reserved).unwrap_or(0),
            resets_at: period.resets_at(at),
        }
    }
}
