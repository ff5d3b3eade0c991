//! The flows of a pool, as rows of the screen.

use std::cmp::Reverse;

use fairgate_api::admin::{
    ClassView, FlowCondition, FlowNow, GroupView, PoolView, ServiceView, TenantView,
};

/// Order of the flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum FlowSort {
    /// Tenants below their groups, then classes and projects.
    #[default]
    Tree,
    /// Flows with most waiting requests first.
    Waiting,
    /// Flows that got most first.
    Got,
    /// All flows by their names.
    Name,
}

impl FlowSort {
    /// Returns the order that the key for sorting chooses next.
    pub(super) fn next(self) -> Self {
        match self {
            Self::Tree => Self::Waiting,
            Self::Waiting => Self::Got,
            Self::Got => Self::Name,
            Self::Name => Self::Tree,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Tree => "groups",
            Self::Waiting => "waiting",
            Self::Got => "got",
            Self::Name => "name",
        }
    }
}

/// A flow with its numbers. Shares are from 0 to 1, over the window of the live view.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct FlowRow {
    /// Attribute by which the flow is named: `class`, `group`, `tenant` or `project`.
    pub(super) by: &'static str,
    pub(super) name: String,
    /// True if the flow is shown below its group.
    pub(super) inside: bool,
    pub(super) state: &'static str,
    pub(super) held: bool,
    pub(super) weight: Option<u64>,
    pub(super) due: Option<f64>,
    pub(super) got: Option<f64>,
    pub(super) asked: Option<f64>,
    pub(super) in_flight: u64,
    pub(super) waiting: u64,
    pub(super) cap: Option<u64>,
    /// Wait in milliseconds that 95 % of the granted requests did not exceed.
    pub(super) wait_p95_ms: Option<u64>,
    pub(super) difference: Option<i64>,
    pub(super) bound: Option<i64>,
    /// True if the policy promises a share, and the flow is outside its bound.
    pub(super) outside: bool,
}

/// Returns the word for a state.
fn state_word(state: FlowCondition) -> &'static str {
    match state {
        FlowCondition::Idle => "idle",
        FlowCondition::Waiting => "waiting",
        FlowCondition::Held => "held",
        FlowCondition::AtCap => "at cap",
        FlowCondition::OverBudget => "over budget",
        FlowCondition::RateLimited => "rate limited",
        FlowCondition::Disabled => "disabled",
        FlowCondition::NeverSeen => "never seen",
    }
}

/// Data of the live view about a flow of any kind.
struct LiveFlow<'a> {
    by: &'static str,
    name: &'a str,
    weight: Option<u64>,
    in_flight: u64,
    now: &'a FlowNow,
    service: &'a ServiceView,
}

impl<'a> LiveFlow<'a> {
    fn group(by: &'static str, flow: &'a GroupView) -> Self {
        let GroupView { name, weight, in_flight, now, service, .. } = flow;
        Self { by, name, weight: Some(*weight), in_flight: *in_flight, now, service }
    }

    fn tenant(flow: &'a TenantView) -> Self {
        let TenantView { tenant, weight, in_flight, now, service, .. } = flow;
        let (by, weight) = ("tenant", Some(*weight));
        Self { by, name: tenant, weight, in_flight: *in_flight, now, service }
    }

    fn class(flow: &'a ClassView) -> Self {
        let ClassView { name, weight, in_flight, now, service, .. } = flow;
        Self { by: "class", name, weight: *weight, in_flight: *in_flight, now, service }
    }

    /// Returns the row. `held` has the flows that are held, which the live view may not know yet.
    fn row(self, held: &[(&str, &str)]) -> FlowRow {
        let held = held.contains(&(self.by, self.name));
        let now = self.now;
        FlowRow {
            by: self.by,
            name: self.name.to_owned(),
            inside: false,
            state: if held { "held" } else { state_word(now.state) },
            held,
            weight: self.weight.filter(|weight| *weight > 0),
            due: now.due_share,
            got: now.got_share,
            asked: now.asked_share,
            in_flight: self.in_flight,
            waiting: now.waiting,
            cap: now.cap,
            wait_p95_ms: now.wait_p95_ms,
            difference: self.service.difference,
            bound: self.service.bound,
            outside: now.promised && self.service.within_bound == Some(false),
        }
    }
}

/// Returns the flows of a pool of the live view. `held` has the flows that are held, by attribute and name.
pub(super) fn flow_rows(
    pool: &PoolView,
    held: &[(&str, &str)],
    filter: &str,
    sort: FlowSort,
) -> Vec<FlowRow> {
    let PoolView { groups, tenants, classes, projects, .. } = pool;
    let mut rows = Vec::new();
    for group in groups {
        rows.push(LiveFlow::group("group", group).row(held));
        let of_group = tenants.iter().filter(|tenant| tenant.group == group.name);
        rows.extend(of_group.map(|tenant| {
            let row = LiveFlow::tenant(tenant).row(held);
            FlowRow { inside: true, ..row }
        }));
    }
    rows.extend(classes.iter().map(|class| LiveFlow::class(class).row(held)));
    rows.extend(projects.iter().map(|project| LiveFlow::group("project", project).row(held)));
    rows.retain(|row| filter.is_empty() || row.name.contains(filter));
    match sort {
        FlowSort::Tree => return rows,
        FlowSort::Waiting => rows.sort_by_key(|row| Reverse(row.waiting)),
        // A flow without a share comes last.
        FlowSort::Got => {
            rows.sort_by(|one, other| other.got.unwrap_or(-1.0).total_cmp(&one.got.unwrap_or(-1.0)))
        }
        FlowSort::Name => rows.sort_by(|one, other| one.name.cmp(&other.name)),
    }
    rows.iter_mut().for_each(|row| row.inside = false);
    rows
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn now(got: f64, waiting: u64) -> FlowNow {
        FlowNow {
            state: if waiting > 0 { FlowCondition::Waiting } else { FlowCondition::Idle },
            waiting,
            due_share: Some(0.5),
            got_share: Some(got),
            asked_share: Some(0.71),
            wait_p95_ms: Some(900),
            promised: true,
            ..FlowNow::default()
        }
    }

    /// Returns a pool with a group and two tenants.
    pub(in super::super) fn pool(name: &str) -> PoolView {
        let group = GroupView {
            name: "prod".to_owned(),
            weight: 500,
            in_flight: 9,
            now: now(1.0, 4),
            ..GroupView::default()
        };
        let tenant = |name: &str, in_flight: u64, now: FlowNow| TenantView {
            tenant: name.to_owned(),
            group: "prod".to_owned(),
            weight: 300,
            in_flight,
            now,
            ..TenantView::default()
        };
        let mut long = tenant(&"x".repeat(200), 0, now(0.75, 0));
        long.now.cap = Some(4);
        long.service.within_bound = Some(false);
        PoolView {
            unit: "tokens".to_owned(),
            pool: name.to_owned(),
            algorithm: "share by group, share by tenant".to_owned(),
            slots: 32,
            in_flight: 32,
            waiting: 214,
            window_s: 60,
            refused: 3,
            wait_p95_ms: Some(38_000),
            max_in_flight: 32,
            global_in_flight: 32,
            global_queued: 214,
            groups: vec![group.clone()],
            tenants: vec![tenant("chat\u{1b}[2J", 9, now(0.25, 4)), long],
            ..PoolView::default()
        }
    }

    fn names(rows: &[FlowRow]) -> Vec<&str> {
        rows.iter().map(|row| &row.name[..4]).collect()
    }

    #[test]
    fn rows_have_states_and_shares() {
        let held = [("tenant", "chat\u{1b}[2J")];
        let rows = flow_rows(&pool("p"), &held, "", FlowSort::Tree);
        assert_eq!(names(&rows), ["prod", "chat", "xxxx"]);
        let states: Vec<_> = rows.iter().map(|row| row.state).collect();
        assert_eq!(states, ["waiting", "held", "idle"]);
        let got: Vec<_> = rows.iter().map(|row| row.got).collect();
        assert_eq!(got, [Some(1.0), Some(0.25), Some(0.75)]);
        assert!(rows[1].inside && !rows[0].inside && rows[2].outside);
        let mut other = pool("p");
        other.tenants[0].now.state = FlowCondition::OverBudget;
        // A policy without a promise: a drift is no fault.
        other.tenants[1].now.promised = false;
        let rows = flow_rows(&other, &[], "", FlowSort::Tree);
        assert_eq!((rows[1].state, rows[2].outside), ("over budget", false));
    }

    #[test]
    fn rows_are_sorted_and_filtered() {
        assert_eq!(names(&flow_rows(&pool("p"), &[], "", FlowSort::Got)), ["prod", "xxxx", "chat"]);
        assert_eq!(names(&flow_rows(&pool("p"), &[], "ch", FlowSort::Tree)), ["chat"]);
        let mut sort = FlowSort::default();
        for _ in 0..4 {
            sort = sort.next();
        }
        assert_eq!(sort, FlowSort::Tree);
    }
}
