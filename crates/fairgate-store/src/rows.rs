//! From a database's rows to our types: one way for both databases.

use crate::calendar::{Day, hour_name};
use crate::directory::{Budget, Directory, Group, Key, Limits, Period, Tenant, UnixMicros};
use crate::error::StoreError;
use crate::ledger::{
    Attempt, AuditEntry, BudgetLeft, By, Outcome, Reservation, Scope, UsageRow, UsageSource,
};
use crate::secret::KeyHash;
use crate::words::Word;

type Result<T> = std::result::Result<T, StoreError>;

/// A row's columns, by their place.
pub(crate) trait Columns {
    fn int_or_null(&self, column: usize) -> Result<Option<i64>>;
    fn text_or_null(&self, column: usize) -> Result<Option<String>>;
    fn flag(&self, column: usize) -> Result<bool>;
    fn bytes(&self, column: usize) -> Result<Vec<u8>>;

    fn int(&self, column: usize) -> Result<i64> {
        self.int_or_null(column)?.ok_or_else(|| null(column))
    }

    fn text(&self, column: usize) -> Result<String> {
        self.text_or_null(column)?.ok_or_else(|| null(column))
    }

    /// A number of something: 0 or more.
    fn count(&self, column: usize) -> Result<u64> {
        let number = self.int(column)?;
        u64::try_from(number).map_err(|_| negative(column, number))
    }

    fn count_or_null(&self, column: usize) -> Result<Option<u64>> {
        let count = |number| u64::try_from(number).map_err(|_| negative(column, number));
        self.int_or_null(column)?.map(count).transpose()
    }

    fn moment(&self, column: usize) -> Result<UnixMicros> {
        self.int(column).map(UnixMicros)
    }

    fn moment_or_null(&self, column: usize) -> Result<Option<UnixMicros>> {
        Ok(self.int_or_null(column)?.map(UnixMicros))
    }

    fn word<W: Word>(&self, column: usize) -> Result<W> {
        W::from_word(&self.text(column)?)
    }
}

fn null(column: usize) -> StoreError {
    StoreError::Database(format!("column {} of a row is null", column + 1))
}

fn negative(column: usize, number: i64) -> StoreError {
    StoreError::Database(format!("column {} of a row is {number}: below 0", column + 1))
}

pub(crate) fn group(row: &impl Columns) -> Result<Group> {
    Ok(Group { name: row.text(0)?, weight: row.count(1)?, created_at: row.moment(2)? })
}

/// A tenant without its budgets, which are rows of their own.
pub(crate) fn tenant(row: &impl Columns) -> Result<Tenant> {
    Ok(Tenant {
        name: row.text(0)?,
        group: row.text(1)?,
        weight: row.count(2)?,
        disabled: row.flag(3)?,
        limits: limits(row, 4)?,
        created_at: row.moment(9)?,
    })
}

/// A key without its budgets, which are rows of their own.
pub(crate) fn key(row: &impl Columns) -> Result<Key> {
    let list = |text: String| {
        serde_json::from_str::<Vec<String>>(&text)
            .map_err(|problem| StoreError::Database(format!("a key's list of names: {problem}")))
    };
    let hash = row.bytes(4)?.try_into();
    Ok(Key {
        id: row.text(0)?,
        tenant: row.text(1)?,
        name: row.text(2)?,
        hint: row.text(3)?,
        hash: KeyHash(hash.map_err(|_| StoreError::Database("a key's hash is cut".to_owned()))?),
        weight: row.count(5)?,
        limits: limits(row, 6)?,
        models: row.text_or_null(11)?.map(list).transpose()?,
        classes: list(row.text(12)?)?,
        created_at: row.moment(13)?,
        expires_at: row.moment_or_null(14)?,
        revoked_at: row.moment_or_null(15)?,
    })
}

fn limits(row: &impl Columns, first: usize) -> Result<Limits> {
    Ok(Limits {
        in_flight: row.count_or_null(first)?,
        queued_requests: row.count_or_null(first + 1)?,
        queued_bytes: row.count_or_null(first + 2)?,
        requests_per_minute: row.count_or_null(first + 3)?,
        tokens_per_minute: row.count_or_null(first + 4)?,
        budgets: Vec::new(),
    })
}

/// A budget and whose it is.
pub(crate) struct Owned {
    scope: Scope,
    owner: String,
    pub(crate) budget: Budget,
}

pub(crate) fn budget(row: &impl Columns) -> Result<Owned> {
    let budget = Budget { tokens: row.count(3)?, period: row.word(2)? };
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
    budgets.sort_by_key(|owned| owned.budget.period);
    for Owned { scope, owner, budget } in budgets {
        let limits = match scope {
            Scope::Tenant => tenants
                .binary_search_by(|tenant| tenant.name.cmp(&owner))
                .map(|place| &mut tenants[place].limits),
            Scope::Key => {
                keys.binary_search_by(|key| key.id.cmp(&owner)).map(|place| &mut keys[place].limits)
            }
        };
        if let Ok(limits) = limits {
            limits.budgets.push(budget);
        }
    }
    Directory { version, groups, tenants, keys }
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
    })
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
    Ok(Reservation {
        request: row.text(0)?,
        group: row.text(1)?,
        tenant: row.text(2)?,
        key: row.text(3)?,
        model: row.text(4)?,
        tokens: row.count(5)?,
        at: row.moment(6)?,
    })
}

/// How a budget stands in the period that `at` lies in.
pub(crate) fn budget_left(row: &impl Columns, at: UnixMicros) -> Result<BudgetLeft> {
    let period: Period = row.word(1)?;
    Ok(BudgetLeft {
        scope: row.word(0)?,
        period,
        limit: row.count(2)?,
        used: row.count(3)?,
        reserved: row.count(4)?,
        resets_at: period.resets_at(at),
    })
}
