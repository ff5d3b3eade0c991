//! Computes how the shares of tenants would change if a pool counted worker time instead of tokens.
//!
//! A tenant whose requests wait gets its share of what the pool counts, in proportion to its weight: of the tokens now, of
//! the worker time after the change. A tenant whose requests hardly wait gets what it asks for. So after the change
//!
//! ```text
//!     share of worker time = now, if its requests hardly wait
//!                          = due ÷ (sum of due of those that wait) · (what the others leave)
//! ```
//!
//! The due shares are those of the last minute. The formula ignores that a tenant may begin or
//! cease to wait because of the change.

use std::collections::BTreeMap;

use fairgate_api::admin::{TenantSwitchBody, UnitSwitchBody};
use fairgate_core::attribute::Attribute;
use fairgate_history::{RowWindow, WindowShares};
use fairgate_proxy::pools::WorkerCalibration;

/// Shortest median wait with which a tenant counts as waiting, in milliseconds.
const WAIT_MS_MIN: u64 = 10;

/// A tenant in the last minute. Shares are from 0 to 1.
struct TenantLoad<'a> {
    tenant: &'a str,
    due: f64,
    got: f64,
    worker_time: f64,
    waits: bool,
}

/// Returns the shares of the tenants before and after the change, for the load of the last minute.
/// `None` if the policy does not divide by tenant, or if nothing was completed.
pub(super) fn unit_switch(
    window: &WindowShares,
    workers: &[WorkerCalibration],
) -> Option<UnitSwitchBody> {
    let mut times: BTreeMap<&str, u64> = BTreeMap::new();
    for (tenant, time_us) in workers.iter().flat_map(|worker| &worker.recent_us) {
        let sum = times.entry(tenant).or_default();
        *sum = sum.saturating_add(*time_us);
    }
    let all: u64 = times.values().fold(0, |sum, time_us| sum.saturating_add(*time_us));
    let loads = times.iter().filter_map(|(tenant, time_us)| {
        let row = window.row(Attribute::Tenant, tenant);
        let is_there = *time_us > 0 || row.due_ppm.is_some_and(|due| due > 0);
        tenant_load(tenant, &row, *time_us as f64 / all as f64).filter(|_| is_there && all > 0)
    });
    let loads: Vec<TenantLoad<'_>> = loads.collect();
    let tenants = after_switch(&loads);
    (!tenants.is_empty()).then_some(UnitSwitchBody { window_s: window.seconds, tenants })
}

fn tenant_load<'a>(tenant: &'a str, row: &RowWindow, worker_time: f64) -> Option<TenantLoad<'a>> {
    let part = |ppm: u64| ppm as f64 / 1e6;
    Some(TenantLoad {
        tenant,
        due: part(row.due_ppm?),
        got: part(row.got_ppm.unwrap_or(0)),
        worker_time,
        waits: row.wait_p50_ms.is_some_and(|wait| wait >= WAIT_MS_MIN),
    })
}

fn after_switch(loads: &[TenantLoad<'_>]) -> Vec<TenantSwitchBody> {
    let left: f64 = loads.iter().filter(|load| load.waits).map(|load| load.worker_time).sum();
    let due: f64 = loads.iter().filter(|load| load.waits).map(|load| load.due).sum();
    let rounded = |part: f64| (part * 1e6).round() / 1e6;
    let body = |load: &TenantLoad<'_>| {
        let after = if load.waits && due > 0.0 { left * load.due / due } else { load.worker_time };
        let change = (load.worker_time > 0.0).then(|| rounded(after / load.worker_time - 1.0));
        TenantSwitchBody {
            tenant: load.tenant.to_owned(),
            due_share: load.due,
            got_share: load.got,
            worker_time_share: rounded(load.worker_time),
            worker_time_share_after: rounded(after),
            change,
        }
    };
    loads.iter().map(body).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(tenant: &str, due: f64, worker_time: f64, waits: bool) -> TenantLoad<'_> {
        TenantLoad { tenant, due, got: due, worker_time, waits }
    }

    fn after(loads: &[TenantLoad<'_>]) -> Vec<(f64, Option<f64>)> {
        let bodies = after_switch(loads);
        bodies.iter().map(|body| (body.worker_time_share_after, body.change)).collect()
    }

    #[test]
    fn those_that_wait_get_what_is_due_to_them() {
        let loads = [load("gen", 0.5, 0.9, true), load("rag", 0.5, 0.1, true)];
        assert_eq!(after(&loads), [(0.5, Some(-0.444_444)), (0.5, Some(4.0))]);
        let loads = [load("gen", 0.25, 0.6, true), load("rag", 0.75, 0.4, true)];
        assert_eq!(after(&loads), [(0.25, Some(-0.583_333)), (0.75, Some(0.875))]);
    }

    #[test]
    fn those_that_do_not_wait_keep_what_they_use() {
        let loads = [
            load("gen", 0.4, 0.6, true),
            load("rag", 0.4, 0.2, true),
            load("tiny", 0.2, 0.2, false),
        ];
        assert_eq!(after(&loads), [(0.4, Some(-0.333_333)), (0.4, Some(1.0)), (0.2, Some(0.0))]);
        let idle = [load("gen", 0.4, 0.6, false), load("rag", 0.6, 0.4, false)];
        assert_eq!(after(&idle), [(0.6, Some(0.0)), (0.4, Some(0.0))]);
    }

    #[test]
    fn a_tenant_without_worker_time_has_no_change() {
        let loads = [load("gen", 0.5, 1.0, true), load("new", 0.5, 0.0, true)];
        assert_eq!(after(&loads), [(0.5, Some(-0.5)), (0.5, None)]);
    }

    #[test]
    fn without_work_or_shares_there_is_nothing_to_tell() {
        assert_eq!(unit_switch(&WindowShares::default(), &[]), None);
    }
}
