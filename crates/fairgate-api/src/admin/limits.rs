//! Limits of groups, tenants, keys and the hosted tier, with one field for each limit.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::money::MoneyLimitText;
use crate::whole_number::JsonWholeNumber;

/// Limits of a key, or of a tenant over all its keys. An absent or null field means no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
#[schema(as = Limits)]
pub struct LimitsBody {
    /// Maximum number of requests in flight in each pool.
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 1_000_000_000_000_000_u64)]
    pub in_flight: Option<JsonWholeNumber>,
    /// Maximum number of queued requests.
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 1_000_000_000_000_000_u64)]
    pub queued_requests: Option<JsonWholeNumber>,
    /// Maximum total size of the bodies of queued requests, in bytes.
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 1_000_000_000_000_000_u64)]
    pub queued_bytes: Option<JsonWholeNumber>,
    /// Maximum number of requests per minute.
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 1_000_000_000_000_000_u64)]
    pub requests_per_minute: Option<JsonWholeNumber>,
    /// Maximum number of charged tokens per minute.
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 1_000_000_000_000_000_u64)]
    pub tokens_per_minute: Option<JsonWholeNumber>,
    /// Maximum number of provider tokens per calendar day (UTC). Provider tokens are input and output tokens, not
    /// weighted.
    #[schema(value_type = Option<u64>, minimum = 0, maximum = 1_000_000_000_000_000_u64)]
    pub tokens_per_day: Option<JsonWholeNumber>,
    /// Maximum number of provider tokens per calendar month (UTC).
    #[schema(value_type = Option<u64>, minimum = 0, maximum = 1_000_000_000_000_000_u64)]
    pub tokens_per_month: Option<JsonWholeNumber>,
    /// Maximum amount of money per calendar day (UTC), as a decimal text in the installation's currency.
    #[schema(value_type = Option<String>, pattern = "^[0-9]{1,9}(\\.[0-9]{1,6})?$")]
    pub money_per_day: Option<MoneyLimitText>,
    /// Maximum amount of money per calendar month (UTC), as a decimal text.
    #[schema(value_type = Option<String>, pattern = "^[0-9]{1,9}(\\.[0-9]{1,6})?$")]
    pub money_per_month: Option<MoneyLimitText>,
    /// Maximum number of provider tokens per calendar day (UTC) on hosted workers.
    #[schema(value_type = Option<u64>, minimum = 0, maximum = 1_000_000_000_000_000_u64)]
    pub hosted_tokens_per_day: Option<JsonWholeNumber>,
    /// Maximum number of provider tokens per calendar month (UTC) on hosted workers.
    #[schema(value_type = Option<u64>, minimum = 0, maximum = 1_000_000_000_000_000_u64)]
    pub hosted_tokens_per_month: Option<JsonWholeNumber>,
    /// Maximum amount of money per calendar day (UTC) on hosted workers, as a decimal text.
    #[schema(value_type = Option<String>, pattern = "^[0-9]{1,9}(\\.[0-9]{1,6})?$")]
    pub hosted_money_per_day: Option<MoneyLimitText>,
    /// Maximum amount of money per calendar month (UTC) on hosted workers, as a decimal text.
    #[schema(value_type = Option<String>, pattern = "^[0-9]{1,9}(\\.[0-9]{1,6})?$")]
    pub hosted_money_per_month: Option<MoneyLimitText>,
    /// Permission to use hosted workers: `allowed` (the default, also for null) or `never`.
    #[schema(value_type = Option<HostedUseBody>)]
    pub hosted: Option<HostedUseBody>,
}

/// Permission to use hosted workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = HostedUse)]
pub enum HostedUseBody {
    /// Requests may use hosted workers.
    Allowed,
    /// Requests use own workers only.
    Never,
}

/// Limits for all tenants of a group together. An absent or null field means no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
#[schema(as = GroupLimits)]
pub struct GroupLimits {
    /// Maximum number of provider tokens per calendar day (UTC). Provider tokens are input and output tokens, not
    /// weighted.
    #[schema(value_type = Option<u64>, minimum = 0, maximum = 1_000_000_000_000_000_u64)]
    pub tokens_per_day: Option<JsonWholeNumber>,
    /// Maximum number of provider tokens per calendar month (UTC).
    #[schema(value_type = Option<u64>, minimum = 0, maximum = 1_000_000_000_000_000_u64)]
    pub tokens_per_month: Option<JsonWholeNumber>,
    /// Maximum amount of money per calendar day (UTC), as a decimal text in the installation's currency.
    #[schema(value_type = Option<String>, pattern = "^[0-9]{1,9}(\\.[0-9]{1,6})?$")]
    pub money_per_day: Option<MoneyLimitText>,
    /// Maximum amount of money per calendar month (UTC), as a decimal text.
    #[schema(value_type = Option<String>, pattern = "^[0-9]{1,9}(\\.[0-9]{1,6})?$")]
    pub money_per_month: Option<MoneyLimitText>,
    /// Maximum number of provider tokens per calendar day (UTC) on hosted workers.
    #[schema(value_type = Option<u64>, minimum = 0, maximum = 1_000_000_000_000_000_u64)]
    pub hosted_tokens_per_day: Option<JsonWholeNumber>,
    /// Maximum number of provider tokens per calendar month (UTC) on hosted workers.
    #[schema(value_type = Option<u64>, minimum = 0, maximum = 1_000_000_000_000_000_u64)]
    pub hosted_tokens_per_month: Option<JsonWholeNumber>,
    /// Maximum amount of money per calendar day (UTC) on hosted workers, as a decimal text.
    #[schema(value_type = Option<String>, pattern = "^[0-9]{1,9}(\\.[0-9]{1,6})?$")]
    pub hosted_money_per_day: Option<MoneyLimitText>,
    /// Maximum amount of money per calendar month (UTC) on hosted workers, as a decimal text.
    #[schema(value_type = Option<String>, pattern = "^[0-9]{1,9}(\\.[0-9]{1,6})?$")]
    pub hosted_money_per_month: Option<MoneyLimitText>,
}

/// Limits for all tenants together on hosted workers. An absent or null field means no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
#[schema(as = HostedLimits)]
pub struct HostedLimits {
    /// Maximum number of provider tokens per calendar day (UTC) on hosted workers.
    #[schema(value_type = Option<u64>, minimum = 0, maximum = 1_000_000_000_000_000_u64)]
    pub hosted_tokens_per_day: Option<JsonWholeNumber>,
    /// Maximum number of provider tokens per calendar month (UTC) on hosted workers.
    #[schema(value_type = Option<u64>, minimum = 0, maximum = 1_000_000_000_000_000_u64)]
    pub hosted_tokens_per_month: Option<JsonWholeNumber>,
    /// Maximum amount of money per calendar day (UTC) on hosted workers, as a decimal text.
    #[schema(value_type = Option<String>, pattern = "^[0-9]{1,9}(\\.[0-9]{1,6})?$")]
    pub hosted_money_per_day: Option<MoneyLimitText>,
    /// Maximum amount of money per calendar month (UTC) on hosted workers, as a decimal text.
    #[schema(value_type = Option<String>, pattern = "^[0-9]{1,9}(\\.[0-9]{1,6})?$")]
    pub hosted_money_per_month: Option<MoneyLimitText>,
}
