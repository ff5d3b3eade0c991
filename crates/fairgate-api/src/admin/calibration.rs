//! Prices of the time of a pool's workers, and its use by tenants.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Prices of the time of a pool's own workers, learned or stated, and the use of that time by tenants.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Calibration)]
pub struct CalibrationBody {
    /// Name of the pool.
    pub pool: String,
    /// Unit in which the pool's scheduler counts: `tokens`, `worker_time` or `money`.
    pub unit: String,
    /// Mean prices of the workers, weighted by their slots. Null if no worker of the pool has a time that the gateway
    /// can price: all are hosted, or the pool does not observe its workers and states no prices.
    pub prices: Option<WorkerPricesBody>,
    /// The workers whose time has a price.
    pub workers: Vec<WorkerCalibrationBody>,
    /// Work of each tenant since the meters started, sorted by the tenant's name.
    pub tenants: Vec<TenantWorkBody>,
    /// Changes that `unit: worker_time` would bring, for the load of the last minute. Null if the pool does not count
    /// tokens, if its policy does not divide by tenant, or if its own workers completed no request in that minute.
    #[serde(default)]
    pub switch: Option<UnitSwitchBody>,
    /// Weights of tokens that come nearest to worker time for the typical requests; null if there are no typical
    /// requests.
    #[serde(default)]
    pub token_weights: Option<NearestTokenWeightsBody>,
}

/// Changes if the pool counted worker time instead of tokens, for the load of the last minute.
///
/// Tenants whose requests waited less than 10 ms (median) are assumed to get all that they ask for, before and after
/// the change. The others share the remaining worker time in proportion to the shares that they were due.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = UnitSwitch)]
pub struct UnitSwitchBody {
    /// Time over which the load was counted, in seconds: 60, or less soon after a start.
    pub window_s: u64,
    /// Shares of each tenant, sorted by the tenant's name.
    pub tenants: Vec<TenantSwitchBody>,
}

/// A tenant's shares before and after the change of the unit, each from 0 to 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = TenantSwitch)]
pub struct TenantSwitchBody {
    /// Name of the tenant.
    pub tenant: String,
    /// Share of the tokens that the tenant was due.
    pub due_share: f64,
    /// Share of the tokens that the tenant got.
    pub got_share: f64,
    /// Share of the worker time that the tenant got.
    pub worker_time_share: f64,
    /// Share of the worker time that the tenant would get.
    pub worker_time_share_after: f64,
    /// Relative change of the number of the tenant's completed requests; -0.5 means half as many.
    /// Null if the tenant got no worker time.
    pub change: Option<f64>,
}

/// Weights of tokens, as in the `cost` of a pool, that come nearest to worker time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = NearestTokenWeights)]
pub struct NearestTokenWeightsBody {
    /// Weight of an uncached input token: 1, or 0 if uncached input should weigh nothing.
    pub input: f64,
    /// Weight of a cached input token; null if no typical request has any.
    pub cached_input: Option<f64>,
    /// Weight of an output token.
    pub output: f64,
    /// Relative error for the typical request that these weights undercharge most: charge per
    /// worker time ÷ mean charge per worker time − 1. For example, -0.18 means 18 % too little.
    pub least: f64,
    /// Relative error for the typical request that these weights overcharge most.
    pub most: f64,
}

/// Six prices of a worker's time, in picoseconds of the full worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = WorkerPrices)]
pub struct WorkerPricesBody {
    /// Price of a request, whatever its size.
    pub request: u64,
    /// Price of an uncached input token.
    pub input: u64,
    /// Additional price of an uncached input token, for each token before that token.
    pub input_input: u64,
    /// Price of a cached input token.
    pub cached: u64,
    /// Price of an output token. The first output token of an answer is free.
    pub output: u64,
    /// Additional price of an output token after the first, for each token before that token.
    pub context_output: u64,
}

/// The meter of one worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = WorkerCalibration)]
pub struct WorkerCalibrationBody {
    /// Name of the worker.
    pub worker: String,
    /// State of the learning: `start` (no window is complete yet), `learning`, `nothing_streams`
    /// (requests end, but none of them streams, so the prices do not change), `quiet` (there is too
    /// little work, so the prices do not change) or `stated`.
    pub learning: String,
    /// Number of the price set, counted from 0 since the meter started.
    pub price_set: u64,
    /// The prices that apply now.
    pub prices: WorkerPricesBody,
    /// Number of the worker's slots, over all ranks.
    pub slots: u64,
    /// Number of requests that the full worker decodes at once.
    pub batch: f64,
    /// Part of the slots that decode while the worker is full, from 0 to 1.
    pub fill: f64,
    /// Number of windows that the prices come from.
    pub windows: u64,
    /// Usual difference between the measured and the predicted length of a window, as a part of the
    /// predicted length. 0.015 to 0.04 is normal.
    pub deviation: f64,
    /// Number of times at which the worker was found changed, so that its prices were learned again.
    pub changes: u64,
    /// Known reasons why the prices are not exact, one sentence each; empty if there are none.
    pub notes: Vec<String>,
    /// A typical request of each tenant and model that the worker served lately.
    pub requests: Vec<TypicalRequestBody>,
    /// The last windows from which prices were learned, at most 128, oldest first; empty if the prices are stated.
    #[serde(default)]
    pub recent_windows: Vec<PredictedWindowBody>,
}

/// A measured stretch of a worker's time, and the length that was predicted from earlier windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = PredictedWindow)]
pub struct PredictedWindowBody {
    /// Measured length of the window, in microseconds.
    pub measured_us: u64,
    /// Predicted length in microseconds.
    pub predicted_us: u64,
}

/// A typical request of a tenant for a model, computed from the means of recent requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = TypicalRequest)]
pub struct TypicalRequestBody {
    /// Name of the tenant.
    pub tenant: String,
    /// Model, as clients name it.
    pub model: String,
    /// Input tokens, cached ones included.
    pub input_tokens: u64,
    /// Input tokens that the worker had cached.
    pub cached_tokens: u64,
    /// Output tokens of all answers together.
    pub output_tokens: u64,
    /// Cost of the request, in microseconds of the full worker.
    pub cost_us: u64,
    /// Margin of error of the cost, in microseconds: two standard deviations. Null if the prices are stated, or come
    /// from fewer than 16 windows.
    #[serde(default)]
    pub margin_us: Option<u64>,
}

/// Completed work of a tenant on the pool's own workers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = TenantWork)]
pub struct TenantWorkBody {
    /// Name of the tenant.
    pub tenant: String,
    /// Input and output tokens.
    pub provider_tokens: u64,
    /// Cost in microseconds of the full worker. Each request counts with the prices that applied
    /// when it ended.
    pub worker_us: u64,
    /// Part of the tokens of all tenants, from 0 to 1.
    pub share_of_tokens: f64,
    /// Part of the worker time of all tenants, from 0 to 1.
    pub share_of_worker_time: f64,
}
