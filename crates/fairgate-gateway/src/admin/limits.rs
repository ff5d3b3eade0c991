//! JSON bodies of limits, with one field for each limit.

use fairgate_money::MicroUnits;
use fairgate_store::{Budget, BudgetPeriod, BudgetTier, BudgetUnit, DirectoryLimits, HostedUse};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::money::MoneyText;
use super::name::{JsonObject, JsonWholeNumber};

/// Limits of a key, or of a tenant over all its keys. An absent or null field means no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
#[schema(as = Limits)]
pub(super) struct LimitsBody {
    /// Maximum number of requests in flight in each pool.
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 1_000_000_000_000_000_u64)]
    pub(super) in_flight: Option<JsonWholeNumber>,
    /// Maximum number of queued requests.
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 1_000_000_000_000_000_u64)]
    pub(super) queued_requests: Option<JsonWholeNumber>,
    /// Maximum total size of the bodies of queued requests, in bytes.
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 1_000_000_000_000_000_u64)]
    pub(super) queued_bytes: Option<JsonWholeNumber>,
    /// Maximum number of requests per minute.
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 1_000_000_000_000_000_u64)]
    pub(super) requests_per_minute: Option<JsonWholeNumber>,
    /// Maximum number of charged tokens per minute.
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 1_000_000_000_000_000_u64)]
    pub(super) tokens_per_minute: Option<JsonWholeNumber>,
    /// Maximum number of provider tokens per calendar day (UTC). Provider tokens are input and output tokens, not
    /// weighted.
    #[schema(value_type = Option<u64>, minimum = 0, maximum = 1_000_000_000_000_000_u64)]
    pub(super) tokens_per_day: Option<JsonWholeNumber>,
    /// Maximum number of provider tokens per calendar month (UTC).
    #[schema(value_type = Option<u64>, minimum = 0, maximum = 1_000_000_000_000_000_u64)]
    pub(super) tokens_per_month: Option<JsonWholeNumber>,
    /// Maximum amount of money per calendar day (UTC), as a decimal text in the installation's currency.
    #[schema(value_type = Option<String>, pattern = "^[0-9]{1,9}(\\.[0-9]{1,6})?$")]
    pub(super) money_per_day: Option<MoneyText>,
    /// Maximum amount of money per calendar month (UTC), as a decimal text.
    #[schema(value_type = Option<String>, pattern = "^[0-9]{1,9}(\\.[0-9]{1,6})?$")]
    pub(super) money_per_month: Option<MoneyText>,
    /// Maximum number of provider tokens per calendar day (UTC) on hosted workers.
    #[schema(value_type = Option<u64>, minimum = 0, maximum = 1_000_000_000_000_000_u64)]
    pub(super) hosted_tokens_per_day: Option<JsonWholeNumber>,
    /// Maximum number of provider tokens per calendar month (UTC) on hosted workers.
    #[schema(value_type = Option<u64>, minimum = 0, maximum = 1_000_000_000_000_000_u64)]
    pub(super) hosted_tokens_per_month: Option<JsonWholeNumber>,
    /// Maximum amount of money per calendar day (UTC) on hosted workers, as a decimal text.
    #[schema(value_type = Option<String>, pattern = "^[0-9]{1,9}(\\.[0-9]{1,6})?$")]
    pub(super) hosted_money_per_day: Option<MoneyText>,
    /// Maximum amount of money per calendar month (UTC) on hosted workers, as a decimal text.
    #[schema(value_type = Option<String>, pattern = "^[0-9]{1,9}(\\.[0-9]{1,6})?$")]
    pub(super) hosted_money_per_month: Option<MoneyText>,
    /// Permission to use hosted workers: `allowed` (the default, also for null) or `never`.
    #[schema(value_type = Option<HostedUseBody>)]
    pub(super) hosted: Option<HostedUseBody>,
}

/// Permission to use hosted workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = HostedUse)]
pub(super) enum HostedUseBody {
    Allowed,
    Never,
}

/// Limits for all tenants of a group together. An absent or null field means no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
#[schema(as = GroupLimits)]
pub(super) struct GroupLimits {
    /// Maximum number of provider tokens per calendar day (UTC). Provider tokens are input and output tokens, not
    /// weighted.
    #[schema(value_type = Option<u64>, minimum = 0, maximum = 1_000_000_000_000_000_u64)]
    pub(super) tokens_per_day: Option<JsonWholeNumber>,
    /// Maximum number of provider tokens per calendar month (UTC).
    #[schema(value_type = Option<u64>, minimum = 0, maximum = 1_000_000_000_000_000_u64)]
    pub(super) tokens_per_month: Option<JsonWholeNumber>,
    /// Maximum amount of money per calendar day (UTC), as a decimal text in the installation's currency.
    #[schema(value_type = Option<String>, pattern = "^[0-9]{1,9}(\\.[0-9]{1,6})?$")]
    pub(super) money_per_day: Option<MoneyText>,
    /// Maximum amount of money per calendar month (UTC), as a decimal text.
    #[schema(value_type = Option<String>, pattern = "^[0-9]{1,9}(\\.[0-9]{1,6})?$")]
    pub(super) money_per_month: Option<MoneyText>,
    /// Maximum number of provider tokens per calendar day (UTC) on hosted workers.
    #[schema(value_type = Option<u64>, minimum = 0, maximum = 1_000_000_000_000_000_u64)]
    pub(super) hosted_tokens_per_day: Option<JsonWholeNumber>,
    /// Maximum number of provider tokens per calendar month (UTC) on hosted workers.
    #[schema(value_type = Option<u64>, minimum = 0, maximum = 1_000_000_000_000_000_u64)]
    pub(super) hosted_tokens_per_month: Option<JsonWholeNumber>,
    /// Maximum amount of money per calendar day (UTC) on hosted workers, as a decimal text.
    #[schema(value_type = Option<String>, pattern = "^[0-9]{1,9}(\\.[0-9]{1,6})?$")]
    pub(super) hosted_money_per_day: Option<MoneyText>,
    /// Maximum amount of money per calendar month (UTC) on hosted workers, as a decimal text.
    #[schema(value_type = Option<String>, pattern = "^[0-9]{1,9}(\\.[0-9]{1,6})?$")]
    pub(super) hosted_money_per_month: Option<MoneyText>,
}

/// Limits for all tenants together on hosted workers. An absent or null field means no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
#[schema(as = HostedLimits)]
pub(super) struct HostedLimits {
    /// Maximum number of provider tokens per calendar day (UTC) on hosted workers.
    #[schema(value_type = Option<u64>, minimum = 0, maximum = 1_000_000_000_000_000_u64)]
    pub(super) hosted_tokens_per_day: Option<JsonWholeNumber>,
    /// Maximum number of provider tokens per calendar month (UTC) on hosted workers.
    #[schema(value_type = Option<u64>, minimum = 0, maximum = 1_000_000_000_000_000_u64)]
    pub(super) hosted_tokens_per_month: Option<JsonWholeNumber>,
    /// Maximum amount of money per calendar day (UTC) on hosted workers, as a decimal text.
    #[schema(value_type = Option<String>, pattern = "^[0-9]{1,9}(\\.[0-9]{1,6})?$")]
    pub(super) hosted_money_per_day: Option<MoneyText>,
    /// Maximum amount of money per calendar month (UTC) on hosted workers, as a decimal text.
    #[schema(value_type = Option<String>, pattern = "^[0-9]{1,9}(\\.[0-9]{1,6})?$")]
    pub(super) hosted_money_per_month: Option<MoneyText>,
}

impl From<&[Budget]> for GroupLimits {
    fn from(budgets: &[Budget]) -> Self {
        let amount = |unit, tier, period| {
            let is_it = |it: &&Budget| (it.unit, it.tier, it.period) == (unit, tier, period);
            budgets.iter().find(is_it).map(|budget| budget.amount)
        };
        let tokens = |tier, period| amount(BudgetUnit::Tokens, tier, period).map(JsonWholeNumber);
        let money = |tier, period| {
            amount(BudgetUnit::Money, tier, period).map(|it| MoneyText(MicroUnits(it)))
        };
        Self {
            tokens_per_day: tokens(BudgetTier::Any, BudgetPeriod::Day),
            tokens_per_month: tokens(BudgetTier::Any, BudgetPeriod::Month),
            money_per_day: money(BudgetTier::Any, BudgetPeriod::Day),
            money_per_month: money(BudgetTier::Any, BudgetPeriod::Month),
            hosted_tokens_per_day: tokens(BudgetTier::Hosted, BudgetPeriod::Day),
            hosted_tokens_per_month: tokens(BudgetTier::Hosted, BudgetPeriod::Month),
            hosted_money_per_day: money(BudgetTier::Hosted, BudgetPeriod::Day),
            hosted_money_per_month: money(BudgetTier::Hosted, BudgetPeriod::Month),
        }
    }
}

impl From<GroupLimits> for Vec<Budget> {
    fn from(body: GroupLimits) -> Self {
        let tokens = [
            (BudgetTier::Any, BudgetPeriod::Day, body.tokens_per_day),
            (BudgetTier::Any, BudgetPeriod::Month, body.tokens_per_month),
            (BudgetTier::Hosted, BudgetPeriod::Day, body.hosted_tokens_per_day),
            (BudgetTier::Hosted, BudgetPeriod::Month, body.hosted_tokens_per_month),
        ];
        let money = [
            (BudgetTier::Any, BudgetPeriod::Day, body.money_per_day),
            (BudgetTier::Any, BudgetPeriod::Month, body.money_per_month),
            (BudgetTier::Hosted, BudgetPeriod::Day, body.hosted_money_per_day),
            (BudgetTier::Hosted, BudgetPeriod::Month, body.hosted_money_per_month),
        ];
        let tokens = tokens.into_iter().filter_map(|(tier, period, tokens)| {
            Some(Budget { period, unit: BudgetUnit::Tokens, tier, amount: tokens?.0 })
        });
        let money = money.into_iter().filter_map(|(tier, period, money)| {
            Some(Budget { period, unit: BudgetUnit::Money, tier, amount: money?.0.0 })
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

impl From<&DirectoryLimits> for LimitsBody {
    fn from(limits: &DirectoryLimits) -> Self {
        let budgets = GroupLimits::from(limits.budgets.as_slice());
        Self {
            in_flight: limits.in_flight.map(JsonWholeNumber),
            queued_requests: limits.queued_requests.map(JsonWholeNumber),
            queued_bytes: limits.queued_bytes.map(JsonWholeNumber),
            requests_per_minute: limits.requests_per_minute.map(JsonWholeNumber),
            tokens_per_minute: limits.tokens_per_minute.map(JsonWholeNumber),
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

impl From<JsonObject<LimitsBody>> for DirectoryLimits {
    fn from(body: JsonObject<LimitsBody>) -> Self {
        body.0.into()
    }
}

impl From<LimitsBody> for DirectoryLimits {
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
