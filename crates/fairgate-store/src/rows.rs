//! Converts database rows to the types of this crate, with the same code for both databases.

use fairgate_money::{Currency, MicroUnits, PerMillion, Price, PriceRates};
use fairgate_time::{UnixMicros, UtcDay};
use fairgate_usage::{ClaimUsage, TaskClaim, UsageColumns, UsageTerms};

use crate::budget::{Budget, BudgetBalance, BudgetPeriod, BudgetScope};
use crate::calendar::hour_name;
use crate::directory::{Directory, DirectoryLimits, Group, Key, Tenant};
use crate::error::StoreError;
use crate::key_rights::KeyRights;
use crate::ledger::{
    AttemptOutcome, AttemptRow, AuditEntry, HostedMaximum, PriceVersion, Reservation,
    UsageGrouping, UsageQuery, UsageRow, UsageSource, UsageSums,
};
use crate::secret::KeyHash;
use crate::stored_words::StoredWord;
use crate::sums::{SumOwners, UsageSum};

type Result<T> = std::result::Result<T, StoreError>;

/// Access to the columns of a database row, which are numbered from 0.
pub trait RowColumns {
    /// Returns an integer, or `None` for null.
    fn int_or_null(&self, column: usize) -> Result<Option<i64>>;
    /// Returns a text, or `None` for null.
    fn text_or_null(&self, column: usize) -> Result<Option<String>>;
    /// Returns a boolean; null is an error.
    fn flag(&self, column: usize) -> Result<bool>;
    /// Returns bytes; null is an error.
    fn bytes(&self, column: usize) -> Result<Vec<u8>>;

    /// Returns an integer; null is an error.
    fn int(&self, column: usize) -> Result<i64> {
        self.int_or_null(column)?.ok_or_else(|| null(column))
    }

    /// Returns a text; null is an error.
    fn text(&self, column: usize) -> Result<String> {
        self.text_or_null(column)?.ok_or_else(|| null(column))
    }

    /// Returns a non-negative integer; null and negative values are errors.
    fn count(&self, column: usize) -> Result<u64> {
        let number = self.int(column)?;
        u64::try_from(number).map_err(|_| negative(column, number))
    }

    /// Returns a non-negative integer, or `None` for null; a negative value is an error.
    fn count_or_null(&self, column: usize) -> Result<Option<u64>> {
        let count = |number| u64::try_from(number).map_err(|_| negative(column, number));
        self.int_or_null(column)?.map(count).transpose()
    }

    /// Returns an amount of money, in micro-units; null and negative values are errors.
    fn money(&self, column: usize) -> Result<MicroUnits> {
        self.count(column).map(MicroUnits)
    }

    /// Returns a time; null is an error.
    fn moment(&self, column: usize) -> Result<UnixMicros> {
        self.int(column).map(UnixMicros)
    }

    /// Returns a time, or `None` for null.
    fn moment_or_null(&self, column: usize) -> Result<Option<UnixMicros>> {
        Ok(self.int_or_null(column)?.map(UnixMicros))
    }
}

impl UsageColumns for dyn RowColumns + '_ {
    type Error = StoreError;

    fn int(&self, column: usize) -> Result<i64> {
        RowColumns::int(self, column)
    }

    fn int_or_null(&self, column: usize) -> Result<Option<i64>> {
        RowColumns::int_or_null(self, column)
    }

    fn count(&self, column: usize) -> Result<u64> {
        RowColumns::count(self, column)
    }

    fn count_or_null(&self, column: usize) -> Result<Option<u64>> {
        RowColumns::count_or_null(self, column)
    }

    fn text(&self, column: usize) -> Result<String> {
        RowColumns::text(self, column)
    }

    fn text_or_null(&self, column: usize) -> Result<Option<String>> {
        RowColumns::text_or_null(self, column)
    }
}

/// Reads columns with enum values, which are stored as words.
pub(crate) trait WordColumns: RowColumns {
    fn word<W: StoredWord>(&self, column: usize) -> Result<W> {
        W::from_word(&self.text(column)?)
    }
}

impl<C: RowColumns + ?Sized> WordColumns for C {}

fn null(column: usize) -> StoreError {
    StoreError::Database(format!("column {} of a row is null", column + 1))
}

fn negative(column: usize, number: i64) -> StoreError {
    StoreError::Database(format!("column {} of a row is {number}: below 0", column + 1))
}

/// Reads a group without its budgets, which are in a table of their own.
pub(crate) fn group(row: &(impl RowColumns + ?Sized)) -> Result<Group> {
    Ok(Group {
        name: row.text(0)?,
        weight: row.count(1)?,
        budgets: Vec::new(),
        created_at: row.moment(2)?,
    })
}

/// Reads a tenant without its budgets, which are in a table of their own.
pub(crate) fn tenant(row: &(impl RowColumns + ?Sized)) -> Result<Tenant> {
    Ok(Tenant {
        name: row.text(0)?,
        group: row.text(1)?,
        weight: row.count(2)?,
        disabled: row.flag(3)?,
        limits: limits(row, 4)?,
        created_at: row.moment(10)?,
        requires: labels(&row.text(11)?)?,
    })
}

fn labels(text: &str) -> Result<Vec<String>> {
    let wrong =
        |problem| StoreError::Database(format!("a tenant's labels are {text:?}: {problem}"));
    serde_json::from_str(text).map_err(wrong)
}

/// Reads a key without its budgets, which are in a table of their own.
pub(crate) fn key(row: &(impl RowColumns + ?Sized)) -> Result<Key> {
    let hash = row.bytes(4)?.try_into();
    Ok(Key {
        id: row.text(0)?,
        tenant: row.text(1)?,
        name: row.text(2)?,
        hint: row.text(3)?,
        hash: KeyHash(hash.map_err(|_| StoreError::Database("a key's hash is cut".to_owned()))?),
        weight: row.count(5)?,
        limits: limits(row, 6)?,
        rights: KeyRights::from_stored_text(&row.text(12)?)?,
        created_at: row.moment(13)?,
        expires_at: row.moment_or_null(14)?,
        revoked_at: row.moment_or_null(15)?,
    })
}

fn limits(row: &(impl RowColumns + ?Sized), first: usize) -> Result<DirectoryLimits> {
    Ok(DirectoryLimits {
        in_flight: row.count_or_null(first)?,
        queued_requests: row.count_or_null(first + 1)?,
        queued_bytes: row.count_or_null(first + 2)?,
        requests_per_minute: row.count_or_null(first + 3)?,
        tokens_per_minute: row.count_or_null(first + 4)?,
        hosted: row.word(first + 5)?,
        budgets: Vec::new(),
    })
}

/// Budget together with its owner.
#[derive(Clone)]
pub(crate) struct OwnedBudget {
    pub(crate) scope: BudgetScope,
    pub(crate) owner: String,
    pub(crate) budget: Budget,
}

pub(crate) fn budget(row: &(impl RowColumns + ?Sized)) -> Result<OwnedBudget> {
    let budget = Budget {
        period: row.word(2)?,
        unit: row.word(3)?,
        tier: row.word(4)?,
        amount: row.count(5)?,
    };
    Ok(OwnedBudget { scope: row.word(0)?, owner: row.text(1)?, budget })
}

/// Assembles a directory from its groups, tenants, keys and budgets, which may be in any order. Sorts all lists of the
/// directory.
pub(crate) fn directory(
    version: i64,
    mut groups: Vec<Group>,
    mut tenants: Vec<Tenant>,
    mut keys: Vec<Key>,
    mut budgets: Vec<OwnedBudget>,
) -> Directory {
    groups.sort_by(|one, other| one.name.cmp(&other.name));
    tenants.sort_by(|one, other| one.name.cmp(&other.name));
    keys.sort_by(|one, other| one.id.cmp(&other.id));
    budgets.sort_by_key(|owned| owned.budget.kind());
    let mut hosted = Vec::new();
    for OwnedBudget { scope, owner, budget } in budgets {
        let budgets = match scope {
            BudgetScope::Tenant => tenants
                .binary_search_by(|tenant| tenant.name.cmp(&owner))
                .map(|place| &mut tenants[place].limits.budgets),
            BudgetScope::Key => keys
                .binary_search_by(|key| key.id.cmp(&owner))
                .map(|place| &mut keys[place].limits.budgets),
            BudgetScope::Hosted => Ok(&mut hosted),
            // The budgets of models are in the configuration.
            BudgetScope::HostedModel => continue,
            BudgetScope::Group => groups
                .binary_search_by(|group| group.name.cmp(&owner))
                .map(|place| &mut groups[place].budgets),
        };
        if let Ok(budgets) = budgets {
            budgets.push(budget);
        }
    }
    let (declared, declared_source) = (Vec::new(), None);
    Directory { version, groups, tenants, keys, hosted, declared, declared_source }
}

pub(crate) fn currency(row: &impl RowColumns, column: usize) -> Result<Currency> {
    let wrong = |problem| StoreError::Database(format!("a price: {problem}"));
    row.text(column)?.try_into().map_err(wrong)
}

pub(crate) fn price(row: &impl RowColumns) -> Result<PriceVersion> {
    let per_million = |column| row.count(column).map(PerMillion);
    let rates = PriceRates {
        input: per_million(4)?,
        cached_input: per_million(5)?,
        cache_write: row.count_or_null(10)?.map(PerMillion),
        cache_write_1h: row.count_or_null(11)?.map(PerMillion),
        output: per_million(6)?,
        request: row.money(7)?,
    };
    let price = Price {
        id: row.text(0)?,
        model: row.text(1)?,
        upstream: row.text_or_null(2)?,
        currency: currency(row, 3)?,
        rates,
        from: row.int_or_null(8)?.map(UtcDay),
    };
    Ok(PriceVersion { price, first_seen: row.moment(9)? })
}

pub(crate) fn attempt(row: &(impl RowColumns + ?Sized)) -> Result<AttemptRow> {
    let small = |column: usize| row.int(column).map(|number| u32::try_from(number).unwrap_or(0));
    Ok(AttemptRow {
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
        outcome: row.word::<AttemptOutcome>(24)?,
        code: row.text_or_null(25)?,
        brownout: row.flag(26)?,
        occupied: row.count(27)?,
        provider_tokens: row.count(28)?,
        money: row.money(29)?,
        price: row.text_or_null(30)?,
        tier: small(31)?,
        class: row.text_or_null(32)?,
        claim: claim(row, 33)?,
        estimate_uncached: row.count(36)?,
        charged_uncached: row.count(37)?,
        cache_written_tokens: row.count(38)?,
        cache_written_1h_tokens: row.count(39)?,
        worker_us: row.count(40)?,
        price_set: row.text_or_null(41)?,
    })
}

/// Reads the task and claim of a ledger row or reservation, starting at column `first`; `None` if it was not made for a
/// task.
fn claim(row: &(impl RowColumns + ?Sized), first: usize) -> Result<Option<TaskClaim>> {
    let project = row.text_or_null(first)?;
    let (task, epoch) = (row.text_or_null(first + 1)?, row.count_or_null(first + 2)?);
    let claim = |((project, task), epoch)| TaskClaim { project, task, epoch };
    Ok(project.zip(task).zip(epoch).map(claim))
}

/// Reads the sums of one group, and the totals over all groups, which each row contains.
pub(crate) fn usage(row: &impl RowColumns, query: &UsageQuery) -> Result<(UsageRow, UsageTotals)> {
    let named = |name: String, by: UsageGrouping| {
        let number = || name.parse::<i64>().unwrap_or(0);
        match by {
            UsageGrouping::Day => UtcDay(number()).name(),
            UsageGrouping::Hour => hour_name(number()),
            _ => name,
        }
    };
    let split = row.text(1)?;
    let requests = row.count(2)?;
    let mean = |sum: u64, of: u64| sum.checked_div(of);
    let sums = UsageRow {
        name: named(row.text(0)?, query.by),
        split: query.split.map(|by| named(split, by)),
        requests,
        failed: row.count(3)?,
        input_tokens: row.count(4)?,
        cached_tokens: row.count(5)?,
        output_tokens: row.count(6)?,
        charged: row.count(7)?,
        waited_us_mean: mean(row.count(8)?, requests).unwrap_or(0),
        waited_us_max: row.count(9)?,
        first_token_us_mean: mean(row.count(10)?, row.count(11)?),
        provider_tokens: row.count(12)?,
        money: row.money(13)?,
        waited_us_p50: row.count_or_null(14)?,
        waited_us_p95: row.count_or_null(15)?,
        worker_us: row.count(18)?,
    };
    let totals =
        UsageTotals { charged: row.count(16)?, groups: row.count(17)?, worker_us: row.count(19)? };
    Ok((sums, totals))
}

/// Assembles the result of a usage query from its rows.
pub(crate) fn usage_report(rows: Vec<(UsageRow, UsageTotals)>) -> UsageSums {
    let totals = rows.first().map(|(_, totals)| *totals).unwrap_or_default();
    let UsageTotals { charged, groups, worker_us } = totals;
    let rows: Vec<UsageRow> = rows.into_iter().map(|(row, _)| row).collect();
    let shown = u64::try_from(rows.len()).unwrap_or(u64::MAX);
    UsageSums { rows, omitted: groups.saturating_sub(shown), charged, worker_us }
}

/// Totals over all groups of a usage query, which each of its rows has.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct UsageTotals {
    charged: u64,
    groups: u64,
    worker_us: u64,
}

pub(crate) fn audit(row: &impl RowColumns) -> Result<AuditEntry> {
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

pub(crate) fn reservation(row: &impl RowColumns) -> Result<Reservation> {
    let hosted = match (row.count_or_null(9)?, row.count_or_null(10)?) {
        (Some(provider_tokens), money) => {
            Some(HostedMaximum { provider_tokens, money: MicroUnits(money.unwrap_or(0)) })
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
        has_files: row.int(14)? != 0,
        terms: UsageTerms::default(),
    })
}

/// A guessed row, with the outcome `lost`, that is being deleted. Its amounts are subtracted from
/// the sums.
pub(crate) struct GuessedRow {
    pub(crate) request: String,
    pub(crate) payers: SumOwners<'static>,
    /// Time of the guessed row. Its amounts were counted in the periods that contain this time.
    pub(crate) at: UnixMicros,
    pub(crate) uses: UsageSum,
    /// Task and claim of the guessed row; `None` if its request was not made for a task.
    pub(crate) claim: Option<TaskClaim>,
}

impl GuessedRow {
    /// Returns negative usage that cancels the charge of the guessed row, because the real row
    /// replaces it. Returns `None` if the request was not made for a task.
    pub(crate) fn refund(&self) -> Option<(&TaskClaim, ClaimUsage)> {
        let used = &self.uses.used;
        let (tokens, money) = (-used.tokens, -used.money);
        let refund = ClaimUsage { tokens, calls: -1, money, answered_at: 0 };
        self.claim.as_ref().map(|claim| (claim, refund))
    }
}

pub(crate) fn guess(row: &impl RowColumns) -> Result<GuessedRow> {
    let payers = SumOwners {
        group: row.text(1)?.into(),
        tenant: row.text(2)?.into(),
        key: row.text(3)?.into(),
        model: row.text(8)?.into(),
    };
    let uses = UsageSum::of_row(row.int(5)?, row.int(6)?, row.int(7)?);
    Ok(GuessedRow {
        request: row.text(0)?,
        payers,
        at: row.moment(4)?,
        uses,
        claim: claim(row, 9)?,
    })
}

/// Reads the amounts of a sum, starting at column `first`; nulls count as 0.
pub(crate) fn sum(row: &(impl RowColumns + ?Sized), first: usize) -> Result<UsageSum> {
    let mut columns = [0; 8];
    for (place, amount) in columns.iter_mut().enumerate() {
        *amount = row.int_or_null(first + place)?.unwrap_or(0);
    }
    Ok(UsageSum::from_columns(columns))
}

/// Reads the balance of a budget in the period that contains `at`.
pub(crate) fn budget_balance(
    row: &(impl RowColumns + ?Sized),
    at: UnixMicros,
) -> Result<BudgetBalance> {
    Ok(budget(row)?.balance(&sum(row, 6)?, at))
}

/// Reads the period and the amounts of a model's sum on the hosted tier.
pub(crate) fn model_sum(row: &impl RowColumns) -> Result<(BudgetPeriod, UsageSum)> {
    Ok((row.word(0)?, sum(row, 1)?))
}

/// Returns the balances of a model's budgets, given the model's sums in the periods that contain `at`.
pub(crate) fn model_budget_balances(
    (model, budgets): (&str, &[Budget]),
    sums: &[(BudgetPeriod, UsageSum)],
    at: UnixMicros,
) -> Vec<BudgetBalance> {
    let left = |budget: &Budget| {
        let sum = sums.iter().find(|(period, _)| *period == budget.period);
        let sum = sum.map(|(_, sum)| *sum).unwrap_or_default();
        OwnedBudget::of_model(model, *budget).balance(&sum, at)
    };
    budgets.iter().map(left).collect()
}

impl OwnedBudget {
    /// Creates the budget of a model on the hosted tier, as the configuration states it.
    pub(crate) fn of_model(model: &str, budget: Budget) -> Self {
        Self { scope: BudgetScope::HostedModel, owner: model.to_owned(), budget }
    }

    /// Returns the balance of the budget, given the owner's sum in the period that contains `at`.
    pub(crate) fn balance(self, sum: &UsageSum, at: UnixMicros) -> BudgetBalance {
        let Budget { period, unit, tier, amount } = self.budget;
        let (used, reserved) = sum.used_and_reserved(unit, tier);
        BudgetBalance {
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
