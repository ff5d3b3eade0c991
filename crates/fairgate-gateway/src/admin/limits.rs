//! Limits, as the API shows them: one number each.

use fairgate_money::MicroUnits;
use fairgate_store::{Budget, BudgetTier, HostedUse, Limits, Period, Unit};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::money::Money;
use super::name::{Object, Whole};

/// What a tenant, with all its keys, or a key may use. What is absent or null is not limited.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
#[schema(as = Limits)]
pub(super) struct LimitsBody {
    /// How many of its requests may be in flight at once, in each pool.
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 1_000_000_000_000_000_u64)]
    pub(super) in_flight: Option<Whole>,
    /// How many of its requests may wait at once.
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 1_000_000_000_000_000_u64)]
    pub(super) queued_requests: Option<Whole>,
    /// How many bytes of request bodies it may have waiting at once.
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 1_000_000_000_000_000_u64)]
    pub(super) queued_bytes: Option<Whole>,
    /// Requests a minute.
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 1_000_000_000_000_000_u64)]
    pub(super) requests_per_minute: Option<Whole>,
    /// Tokens a minute, as charged.
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 1_000_000_000_000_000_u64)]
    pub(super) tokens_per_minute: Option<Whole>,
    /// Provider tokens a calendar day (UTC): input and output tokens, not weighted.
    #[schema(value_type = Option<u64>, minimum = 0, maximum = 1_000_000_000_000_000_u64)]
    pub(super) tokens_per_day: Option<Whole>,
    /// Provider tokens a calendar month (UTC).
    #[schema(value_type = Option<u64>, minimum = 0, maximum = 1_000_000_000_000_000_u64)]
    pub(super) tokens_per_month: Option<Whole>,
    /// Money a calendar day (UTC), as a decimal text in the installation's currency.
    #[schema(value_type = Option<String>, pattern = "^[0-9]{1,9}(\\.[0-9]{1,6})?$")]
    pub(super) money_per_day: Option<Money>,
    /// Money a calendar month (UTC), as a decimal text.
    #[schema(value_type = Option<String>, pattern = "^[0-9]{1,9}(\\.[0-9]{1,6})?$")]
    pub(super) money_per_month: Option<Money>,
    /// Provider tokens a calendar day on hosted workers.
    #[schema(value_type = Option<u64>, minimum = 0, maximum = 1_000_000_000_000_000_u64)]
    pub(super) hosted_tokens_per_day: Option<Whole>,
    /// Provider tokens a calendar month on hosted workers.
    #[schema(value_type = Option<u64>, minimum = 0, maximum = 1_000_000_000_000_000_u64)]
    pub(super) hosted_tokens_per_month: Option<Whole>,
    /// Money a calendar day on hosted workers, as a decimal text.
    #[schema(value_type = Option<String>, pattern = "^[0-9]{1,9}(\\.[0-9]{1,6})?$")]
    pub(super) hosted_money_per_day: Option<Money>,
    /// Money a calendar month on hosted workers, as a decimal text.
    #[schema(value_type = Option<String>, pattern = "^[0-9]{1,9}(\\.[0-9]{1,6})?$")]
    pub(super) hosted_money_per_month: Option<Money>,
    /// Whether it may use hosted workers at all: `allowed` (the default, also where it is null) or `never`.
    #[schema(value_type = Option<HostedUseBody>)]
    pub(super) hosted: Option<HostedUseBody>,
}

/// Whether hosted workers may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = HostedUse)]
pub(super) enum HostedUseBody {
    Allowed,
    Never,
}

/// What all tenants of a group together may use. What is absent or null is not limited.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
#[schema(as = GroupLimits)]
pub(super) struct GroupLimits {
    /// Provider tokens a calendar day (UTC): input and output tokens, not weighted.
    #[schema(value_type = Option<u64>, minimum = 0, maximum = 1_000_000_000_000_000_u64)]
    pub(super) tokens_per_day: Option<Whole>,
    /// Provider tokens a calendar month (UTC).
    #[schema(value_type = Option<u64>, minimum = 0, maximum = 1_000_000_000_000_000_u64)]
    pub(super) tokens_per_month: Option<Whole>,
    /// Money a calendar day (UTC), as a decimal text in the installation's currency.
    #[schema(value_type = Option<String>, pattern = "^[0-9]{1,9}(\\.[0-9]{1,6})?$")]
    pub(super) money_per_day: Option<Money>,
    /// Money a calendar month (UTC), as a decimal text.
    #[schema(value_type = Option<String>, pattern = "^[0-9]{1,9}(\\.[0-9]{1,6})?$")]
    pub(super) money_per_month: Option<Money>,
    /// Provider tokens a calendar day on hosted workers.
    #[schema(value_type = Option<u64>, minimum = 0, maximum = 1_000_000_000_000_000_u64)]
    pub(super) hosted_tokens_per_day: Option<Whole>,
    /// Provider tokens a calendar month on hosted workers.
    #[schema(value_type = Option<u64>, minimum = 0, maximum = 1_000_000_000_000_000_u64)]
    pub(super) hosted_tokens_per_month: Option<Whole>,
    /// Money a calendar day on hosted workers, as a decimal text.
    #[schema(value_type = Option<String>, pattern = "^[0-9]{1,9}(\\.[0-9]{1,6})?$")]
    pub(super) hosted_money_per_day: Option<Money>,
    /// Money a calendar month on hosted workers, as a decimal text.
    #[schema(value_type = Option<String>, pattern = "^[0-9]{1,9}(\\.[0-9]{1,6})?$")]
    pub(super) hosted_money_per_month: Option<Money>,
}

/// What all tenants together may use on hosted workers. What is absent or null is not limited.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
#[schema(as = HostedLimits)]
pub(super) struct HostedLimits {
    /// Provider tokens a calendar day on hosted workers.
    #[schema(value_type = Option<u64>, minimum = 0, maximum = 1_000_000_000_000_000_u64)]
    pub(super) hosted_tokens_per_day: Option<Whole>,
    /// Provider tokens a calendar month on hosted workers.
    #[schema(value_type = Option<u64>, minimum = 0, maximum = 1_000_000_000_000_000_u64)]
    pub(super) hosted_tokens_per_month: Option<Whole>,
    /// Money a calendar day on hosted workers, as a decimal text.
    #[schema(value_type = Option<String>, pattern = "^[0-9]{1,9}(\\.[0-9]{1,6})?$")]
    pub(super) hosted_money_per_day: Option<Money>,
    /// Money a calendar month on hosted workers, as a decimal text.
    #[schema(value_type = Option<String>, pattern = "^[0-9]{1,9}(\\.[0-9]{1,6})?$")]
    pub(super) hosted_money_per_month: Option<Money>,
}

impl From<&[Budget]> for GroupLimits {
    fn from(budgets: &[Budget]) -> Self {
        let amount = |unit, tier, period| {
            let is_it = |it: &&Budget| (it.unit, it.tier, it.period) == (unit, tier, period);
            budgets.iter().find(is_it).map(|budget| budget.amount)
        };
        let tokens = |tier, period| amount(Unit::Tokens, tier, period).map(Whole);
        let money =
            |tier, period| amount(Unit::Money, tier, period).map(|it| Money(MicroUnits(it)));
        Self {
            tokens_per_day: tokens(BudgetTier::Any, Period::Day),
            tokens_per_month: tokens(BudgetTier::Any, Period::Month),
            money_per_day: money(BudgetTier::Any, Period::Day),
            money_per_month: money(BudgetTier::Any, Period::Month),
            hosted_tokens_per_day: tokens(BudgetTier::Hosted, Period::Day),
            hosted_tokens_per_month: tokens(BudgetTier::Hosted, Period::Month),
            hosted_money_per_day: money(BudgetTier::Hosted, Period::Day),
            hosted_money_per_month: money(BudgetTier::Hosted, Period::Month),
        }
    }
}

impl From<GroupLimits> for Vec<Budget> {
    fn from(body: GroupLimits) -> Self {
        let tokens = [
            (BudgetTier::Any, Period::Day, body.tokens_per_day),
            (BudgetTier::Any, Period::Month, body.tokens_per_month),
            (BudgetTier::Hosted, Period::Day, body.hosted_tokens_per_day),
            (BudgetTier::Hosted, Period::Month, body.hosted_tokens_per_month),
        ];
        let money = [
            (BudgetTier::Any, Period::Day, body.money_per_day),
            (BudgetTier::Any, Period::Month, body.money_per_month),
            (BudgetTier::Hosted, Period::Day, body.hosted_money_per_day),
            (BudgetTier::Hosted, Period::Month, body.hosted_money_per_month),
        ];
        let tokens = tokens.into_iter().filter_map(|(tier, period, tokens)| {
            Some(Budget { period, unit: Unit::Tokens, tier, amount: tokens?.0 })
        });
        let money = money.into_iter().filter_map(|(tier, period, money)| {
            Some(Budget { period, unit: Unit::Money, tier, amount: money?.0.0 })
        });
        tokens.chain(money).collect()
    }
}

impl From<&[Budget]> for HostedLimits {
    fn from(budgets: &[Budget]) -> Self {
        let all = GroupLimits::from(budgets);
        Self {
            hosted_tokens_per_day: all.hosted_tokens_per_day,
            hosted_tokens_per_month: all.hosted_tokens_per_month,
            hosted_money_per_day: all.hosted_money_per_day,
            hosted_money_per_month: all.hosted_money_per_month,
        }
    }
}

impl From<HostedLimits> for Vec<Budget> {
    fn from(body: HostedLimits) -> Self {
        GroupLimits {
            hosted_tokens_per_day: body.hosted_tokens_per_day,
            hosted_tokens_per_month: body.hosted_tokens_per_month,
            hosted_money_per_day: body.hosted_money_per_day,
            hosted_money_per_month: body.hosted_money_per_month,
            ..GroupLimits::default()
        }
        .into()
    }
}

impl From<&Limits> for LimitsBody {
    fn from(limits: &Limits) -> Self {
        let budgets = GroupLimits::from(limits.budgets.as_slice());
        Self {
            in_flight: limits.in_flight.map(Whole),
            queued_requests: limits.queued_requests.map(Whole),
            queued_bytes: limits.queued_bytes.map(Whole),
            requests_per_minute: limits.requests_per_minute.map(Whole),
            tokens_per_minute: limits.tokens_per_minute.map(Whole),
            tokens_per_day: budgets.tokens_per_day,
            tokens_per_month: budgets.tokens_per_month,
            money_per_day: budgets.money_per_day,
            money_per_month: budgets.money_per_month,
            hosted_tokens_per_day: budgets.hosted_tokens_per_day,
            hosted_tokens_per_month: budgets.hosted_tokens_per_month,
            hosted_money_per_day: budgets.hosted_money_per_day,
            hosted_money_per_month: budgets.hosted_money_per_month,
            hosted: match limits.hosted {
                HostedUse::Allowed => None,
                HostedUse::Never => Some(HostedUseBody::Never),
            },
        }
    }
}

impl From<Object<LimitsBody>> for Limits {
    fn from(body: Object<LimitsBody>) -> Self {
        body.0.into()
    }
}

impl From<LimitsBody> for Limits {
    fn from(body: LimitsBody) -> Self {
        let budgets = GroupLimits {
            tokens_per_day: body.tokens_per_day,
            tokens_per_month: body.tokens_per_month,
            money_per_day: body.money_per_day,
            money_per_month: body.money_per_month,
            hosted_tokens_per_day: body.hosted_tokens_per_day,
            hosted_tokens_per_month: body.hosted_tokens_per_month,
            hosted_money_per_day: body.hosted_money_per_day,
            hosted_money_per_month: body.hosted_money_per_month,
        };
        Self {
            in_flight: body.in_flight.map(|limit| limit.0),
            queued_requests: body.queued_requests.map(|limit| limit.0),
            queued_bytes: body.queued_bytes.map(|limit| limit.0),
            requests_per_minute: body.requests_per_minute.map(|limit| limit.0),
            tokens_per_minute: body.tokens_per_minute.map(|limit| limit.0),
            budgets: budgets.into(),
            hosted: match body.hosted {
                Some(HostedUseBody::Never) => HostedUse::Never,
                Some(HostedUseBody::Allowed) | None => HostedUse::Allowed,
            },
        }
    }
}
