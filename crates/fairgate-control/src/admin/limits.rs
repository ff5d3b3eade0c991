//! Conversions between limits as the API shows them and as the directory keeps them.

use fairgate_api::JsonWholeNumber;
use fairgate_api::admin::{GroupLimits, HostedLimits, HostedUseBody, LimitsBody, MoneyLimitText};
use fairgate_money::MicroUnits;
use fairgate_store::{Budget, BudgetPeriod, BudgetTier, BudgetUnit, DirectoryLimits, HostedUse};

/// Returns the limits of a group with these budgets.
pub(super) fn group_limits(budgets: &[Budget]) -> GroupLimits {
    let amount = |unit, tier, period| {
        let is_it = |it: &&Budget| (it.unit, it.tier, it.period) == (unit, tier, period);
        budgets.iter().find(is_it).map(|budget| budget.amount)
    };
    let tokens = |tier, period| amount(BudgetUnit::Tokens, tier, period).map(JsonWholeNumber);
    let money = |tier, period| {
        amount(BudgetUnit::Money, tier, period).map(|it| MoneyLimitText(MicroUnits(it)))
    };
    GroupLimits {
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

/// Returns the budgets that these limits set.
pub(super) fn group_budgets(body: GroupLimits) -> Vec<Budget> {
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

/// Returns the limits of the hosted tier with these budgets.
pub(super) fn hosted_limits(budgets: &[Budget]) -> HostedLimits {
    let all = group_limits(budgets);
    HostedLimits {
        hosted_tokens_per_day: all.hosted_tokens_per_day,
        hosted_tokens_per_month: all.hosted_tokens_per_month,
        hosted_money_per_day: all.hosted_money_per_day,
        hosted_money_per_month: all.hosted_money_per_month,
    }
}

/// Returns the budgets of the hosted tier that these limits set.
pub(super) fn hosted_budgets(body: HostedLimits) -> Vec<Budget> {
    group_budgets(GroupLimits {
        hosted_tokens_per_day: body.hosted_tokens_per_day,
        hosted_tokens_per_month: body.hosted_tokens_per_month,
        hosted_money_per_day: body.hosted_money_per_day,
        hosted_money_per_month: body.hosted_money_per_month,
        ..GroupLimits::default()
    })
}

/// Returns the limits of a tenant or key as the API shows them.
pub(super) fn limits_body(limits: &DirectoryLimits) -> LimitsBody {
    let budgets = group_limits(&limits.budgets);
    LimitsBody {
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

/// Returns the limits of a tenant or key as the directory keeps them.
pub(super) fn directory_limits(body: LimitsBody) -> DirectoryLimits {
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
    DirectoryLimits {
        in_flight: body.in_flight.map(|limit| limit.0),
        queued_requests: body.queued_requests.map(|limit| limit.0),
        queued_bytes: body.queued_bytes.map(|limit| limit.0),
        requests_per_minute: body.requests_per_minute.map(|limit| limit.0),
        tokens_per_minute: body.tokens_per_minute.map(|limit| limit.0),
        budgets: group_budgets(budgets),
        hosted: match body.hosted {
            Some(HostedUseBody::Never) => HostedUse::Never,
            Some(HostedUseBody::Allowed) | None => HostedUse::Allowed,
        },
    }
}
