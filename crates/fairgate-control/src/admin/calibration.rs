//! Handler that shows what the time of a pool's workers costs.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use fairgate_api::admin::{
    CalibrationBody, NearestTokenWeightsBody, PredictedWindowBody, TenantWorkBody,
    TypicalRequestBody, WorkerCalibrationBody, WorkerPricesBody,
};
use fairgate_config::{CostUnit, EQUAL_WEIGHTS_WARNING};
use fairgate_proxy::pools::{PoolHandle, TenantWork, WorkerCalibration, nearest_token_weights};

use super::api_error::ApiError;
use super::auth::AdminCaller;
use super::path::PathName;
use super::pools::pool_by_name;
use super::unit_switch::unit_switch;
use crate::control_plane::ControlPlane;

/// Shows what the time of a pool's workers costs, and how much of it each tenant uses.
///
/// The gateway learns the prices from streamed requests, even if the pool counts another unit.
/// Prices that the configuration states are not learned.
#[utoipa::path(
    get, path = "/api/v1/pools/{pool}/calibration", tag = "operation",
    params(("pool" = String, Path, description = "The pool's name")),
    responses(
        (status = 200, description = "The prices", body = CalibrationBody),
        (status = 404, description = "There is no such pool", body = super::ErrorBody),
    ),
)]
pub(super) async fn of_pool(
    State(app): State<Arc<ControlPlane>>,
    _: AdminCaller,
    PathName(name): PathName,
) -> Result<Json<CalibrationBody>, ApiError> {
    let pool = pool_by_name(&app, &name)?;
    let workers = pool.calibration();
    let has_prices = !workers.is_empty();
    let counts_tokens = pool.setup().unit() == CostUnit::Tokens;
    let window = app.histories.window(&pool.name);
    let of_all = pool_notes(&app, &pool);
    Ok(Json(CalibrationBody {
        switch: if counts_tokens { unit_switch(&window, &workers) } else { None },
        token_weights: token_weights(&workers),
        pool: pool.name.to_string(),
        unit: pool.setup().unit().name().to_owned(),
        prices: has_prices.then(|| prices_body(pool.setup().mean_prices())),
        tenants: tenants(&workers),
        workers: workers.into_iter().map(|worker| worker_body(worker, &of_all)).collect(),
    }))
}

/// Returns the six prices, in the order of their names in the configuration.
fn prices_body(
    [request, input, input_input, cached, output, context_output]: [u64; 6],
) -> WorkerPricesBody {
    WorkerPricesBody { request, input, input_input, cached, output, context_output }
}

/// Returns the notes that hold for all workers of a pool with learned prices.
fn pool_notes(app: &ControlPlane, pool: &PoolHandle) -> Vec<String> {
    let others = app.data.other_gateways();
    let of_others = (others > 0).then(|| {
        format!(
            "{others} other gateways are on this database: if they use this worker, its prices are learned from a part of the \
             load and are wrong; state cost.prices, see docs/currency.md#several-gateways"
        )
    });
    let has_equal_weights = app.data.config.load().has_equal_weights(&pool.config());
    let of_weights = has_equal_weights.then(|| EQUAL_WEIGHTS_WARNING.to_owned());
    of_others.into_iter().chain(of_weights).collect()
}

/// Returns a worker as the API shows it. `of_all` are the notes that hold for all workers.
fn worker_body(worker: WorkerCalibration, of_all: &[String]) -> WorkerCalibrationBody {
    let requests = worker.requests.iter().map(|request| TypicalRequestBody {
        tenant: request.tenant.to_string(),
        model: request.model.to_string(),
        input_tokens: request.work.input,
        cached_tokens: request.work.cached,
        output_tokens: request.work.output,
        cost_us: request.cost_us,
        margin_us: request.margin_us,
    });
    let windows = worker.windows.iter().map(|window| PredictedWindowBody {
        measured_us: window.measured_us.into(),
        predicted_us: window.predicted_us.into(),
    });
    let learns = worker.learning != "stated";
    let of_all = of_all.iter().filter(|_| learns).cloned();
    WorkerCalibrationBody {
        requests: requests.collect(),
        recent_windows: windows.collect(),
        learning: worker.learning.to_owned(),
        price_set: worker.price_set,
        prices: prices_body(worker.prices),
        slots: worker.slots,
        batch: worker.batch_thousandths as f64 / 1e3,
        fill: worker.status.fill_ppm as f64 / 1e6,
        windows: worker.status.windows,
        deviation: worker.status.deviation_ppm as f64 / 1e6,
        changes: worker.status.changes,
        notes: worker.notes.into_iter().chain(of_all).collect(),
        worker: worker.worker,
    }
}

fn token_weights(workers: &[WorkerCalibration]) -> Option<NearestTokenWeightsBody> {
    let nearest = nearest_token_weights(workers)?;
    let weight = |milli: u64| milli as f64 / 1e3;
    let off = |ppm: u64| (ppm as f64 - 1e6) / 1e6;
    Some(NearestTokenWeightsBody {
        input: weight(nearest.input_milli),
        cached_input: nearest.cached_milli.map(weight),
        output: weight(nearest.output_milli),
        least: off(nearest.least_ppm),
        most: off(nearest.most_ppm),
    })
}

/// Sums the work of each tenant over all workers.
fn tenants(workers: &[WorkerCalibration]) -> Vec<TenantWorkBody> {
    let mut sums: BTreeMap<&str, TenantWork> = BTreeMap::new();
    for (tenant, work) in workers.iter().flat_map(|worker| &worker.tenants) {
        let sum = sums.entry(tenant).or_default();
        sum.tokens = sum.tokens.saturating_add(work.tokens);
        sum.time_us = sum.time_us.saturating_add(work.time_us);
    }
    let total = |of: fn(&TenantWork) -> u64| sums.values().map(of).fold(0, u64::saturating_add);
    let (tokens, time_us) = (total(|work| work.tokens), total(|work| work.time_us));
    let part = |some: u64, all: u64| (some as f64 / all.max(1) as f64 * 1e6).round() / 1e6;
    let body = |(tenant, work): (&&str, &TenantWork)| TenantWorkBody {
        tenant: (*tenant).to_owned(),
        provider_tokens: work.tokens,
        worker_us: work.time_us,
        share_of_tokens: part(work.tokens, tokens),
        share_of_worker_time: part(work.time_us, time_us),
    };
    sums.iter().map(body).collect()
}
