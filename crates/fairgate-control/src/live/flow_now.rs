//! State of the live view's rows now, and their shares of the last minute.

use std::sync::Arc;

use fairgate_api::admin::{FlowCondition, FlowNow, LastRefusal};
use fairgate_core::attribute::Attribute;
use fairgate_history::WindowShares;
use fairgate_proxy::forward::{RecentRefusals, RefusalKind};
use fairgate_store::Directory;

/// Removes everything that depends on which prompts other tenants have sent.
pub(crate) fn hide_tokens(now: &mut FlowNow) {
    (now.due_share, now.got_share) = (None, None);
    (now.asked_share, now.asked, now.asked_tokens) = (None, None, None);
}

/// Returns a row without its state, its parts and its waits.
pub(crate) fn only_counts(now: &FlowNow) -> FlowNow {
    let state = if now.waiting > 0 { FlowCondition::Waiting } else { FlowCondition::Idle };
    FlowNow { state, waiting: now.waiting, window_s: now.window_s, ..FlowNow::default() }
}

/// Adds the waiting requests of another row.
pub(crate) fn add_counts(now: &mut FlowNow, other: &FlowNow) {
    now.waiting += other.waiting;
    *now = only_counts(now);
}

/// Sources of data about the rows of one pool, other than the scheduler.
pub(crate) struct FlowNowSource<'a> {
    pub(crate) pool: &'a str,
    pub(crate) window: Arc<WindowShares>,
    pub(crate) refusals: &'a RecentRefusals,
    pub(crate) directory: &'a Directory,
}

impl FlowNowSource<'_> {
    /// Fills in the fields of a row that the scheduler does not know.
    pub(crate) fn complete(&self, by: Attribute, name: &str, in_flight: u64, now: &mut FlowNow) {
        let row = self.window.row(by, name);
        let part = |ppm: Option<u64>| ppm.map(|ppm| ppm as f64 / 1e6);
        now.due_share = part(row.due_ppm);
        now.got_share = part(row.got_ppm);
        now.asked_share = part(row.asked_ppm);
        now.asked = row.asked_ppm.is_some().then_some(row.asked);
        now.asked_tokens = now.asked;
        now.window_s = self.window.seconds;
        (now.wait_p50_ms, now.wait_p95_ms) = (row.wait_p50_ms, row.wait_p95_ms);
        now.refused = self.refusals.in_last_minute(self.pool, by, name);
        let last = self.refusals.last(self.pool, by, name);
        let kind = last.as_ref().and_then(|last| last.recent_kind());
        now.last_refusal = last.map(|last| LastRefusal {
            code: last.code.to_owned(),
            at: fairgate_time::to_rfc3339(last.at),
        });
        let is_disabled = by == Attribute::Tenant && self.is_disabled(name);
        let at_cap = now.cap.is_some_and(|cap| in_flight >= cap && now.waiting + in_flight > 0);
        now.state = match kind {
            _ if is_disabled => FlowCondition::Disabled,
            _ if now.held => FlowCondition::Held,
            Some(RefusalKind::Budget) => FlowCondition::OverBudget,
            Some(RefusalKind::Rate) => FlowCondition::RateLimited,
            _ if at_cap => FlowCondition::AtCap,
            _ if now.waiting > 0 => FlowCondition::Waiting,
            _ => FlowCondition::Idle,
        };
    }

    fn is_disabled(&self, tenant: &str) -> bool {
        let tenants = &self.directory.tenants;
        let place = tenants.binary_search_by(|known| (*known.name).cmp(tenant));
        place.is_ok_and(|place| tenants[place].disabled)
    }
}
