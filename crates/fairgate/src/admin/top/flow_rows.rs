//! The flows of a pool, as rows of the screen.

use std::cmp::Reverse;

use fairgate_api::admin::{ClassView, GroupView, PoolView, ServiceView, TenantView};

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

/// A flow with its numbers. Shares are parts of 1.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct FlowRow {
    /// Attribute by which it is named: `class`, `group`, `tenant` or `project`.
    pub(super) by: &'static str,
    pub(super) name: String,
    /// True if it stands below its group.
    pub(super) inside: bool,
    pub(super) state: String,
    pub(super) held: bool,
    pub(super) weight: Option<u64>,
    pub(super) due: Option<f64>,
    pub(super) got: Option<f64>,
    pub(super) in_flight: u64,
    pub(super) waiting: u64,
    pub(super) cap: Option<u64>,
    pub(super) difference: Option<i64>,
    pub(super) bound: Option<i64>,
    /// True if the policy promises a share, and the flow is outside its bound.
    pub(super) outside: bool,
}

/// What the live view says of a flow of any kind.
struct LiveFlow<'a> {
    by: &'static str,
    name: &'a str,
    weight: Option<u64>,
    due: Option<f64>,
    in_flight: u64,
    waiting: u64,
    cap: Option<u64>,
    service: &'a ServiceView,
}

impl<'a> LiveFlow<'a> {
    fn group(by: &'static str, flow: &'a GroupView) -> Self {
        let GroupView { name, weight, in_flight, queued, slot_cap, weight_share, service, .. } =
            flow;
        Self {
            by,
            name,
            weight: Some(*weight),
            due: *weight_share,
            in_flight: *in_flight,
            waiting: *queued,
            cap: *slot_cap,
            service,
        }
    }

    fn tenant(flow: &'a TenantView) -> Self {
        let TenantView {
            tenant_id,
            weight,
            in_flight,
            queued,
            slot_cap,
            weight_share,
            service,
            ..
        } = flow;
        Self {
            by: "tenant",
            name: tenant_id,
            weight: Some(*weight),
            due: *weight_share,
            in_flight: *in_flight,
            waiting: *queued,
            cap: *slot_cap,
            service,
        }
    }

    fn class(flow: &'a ClassView) -> Self {
        let ClassView { name, weight, in_flight, queued, slot_cap, weight_share, service, .. } =
            flow;
        Self {
            by: "class",
            name,
            weight: *weight,
            due: *weight_share,
            in_flight: *in_flight,
            waiting: *queued,
            cap: *slot_cap,
            service,
        }
    }

    /// Returns the row; `got_by_all` are the tokens that all flows of this kind got.
    fn row(self, held: &[(&str, &str)], got_by_all: i64) -> FlowRow {
        let held = held.contains(&(self.by, self.name));
        let state = match (held, self.waiting, self.in_flight) {
            (true, ..) => "held",
            (false, 1.., in_flight) if self.cap.is_some_and(|cap| in_flight >= cap) => "at cap",
            (false, 1.., _) => "waiting",
            (false, 0, 1..) => "running",
            (false, 0, 0) => "idle",
        };
        let got = self.service.got_tokens.filter(|_| got_by_all > 0);
        FlowRow {
            by: self.by,
            name: self.name.to_owned(),
            inside: false,
            state: state.to_owned(),
            held,
            weight: self.weight.filter(|weight| *weight > 0),
            due: self.due,
            got: got.map(|got| got as f64 / got_by_all as f64),
            in_flight: self.in_flight,
            waiting: self.waiting,
            cap: self.cap,
            difference: self.service.difference_tokens,
            bound: self.service.bound_tokens,
            outside: self.service.within_bound == Some(false),
        }
    }
}

/// Adds up what flows got, in tokens.
fn got<'a>(services: impl Iterator<Item = &'a ServiceView>) -> i64 {
    services.filter_map(|service| service.got_tokens).fold(0, i64::saturating_add)
}

/// Returns the flows of a pool of the live view. `held` has the flows that are held, by attribute and name.
pub(super) fn flow_rows(
    pool: &PoolView,
    held: &[(&str, &str)],
    filter: &str,
    sort: FlowSort,
) -> Vec<FlowRow> {
    let PoolView { groups, tenants, classes, projects, .. } = pool;
    let by_groups = got(groups.iter().map(|group| &group.service));
    let by_tenants = got(tenants.iter().map(|tenant| &tenant.service));
    let by_classes = got(classes.iter().map(|class| &class.service));
    let by_projects = got(projects.iter().map(|project| &project.service));
    let mut rows = Vec::new();
    for group in groups {
        rows.push(LiveFlow::group("group", group).row(held, by_groups));
        let of_group = tenants.iter().filter(|tenant| tenant.fairshare_group == group.name);
        rows.extend(of_group.map(|tenant| {
            let row = LiveFlow::tenant(tenant).row(held, by_tenants);
            FlowRow { inside: true, ..row }
        }));
    }
    rows.extend(classes.iter().map(|class| LiveFlow::class(class).row(held, by_classes)));
    rows.extend(
        projects.iter().map(|project| LiveFlow::group("project", project).row(held, by_projects)),
    );
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

    fn group(name: &str, got: i64, waiting: u64, in_flight: u64) -> GroupView {
        GroupView {
            name: name.to_owned(),
            weight: 500,
            queued: waiting,
            in_flight,
            weight_share: Some(0.5),
            service: ServiceView { got_tokens: Some(got), ..ServiceView::default() },
            ..GroupView::default()
        }
    }

    /// Returns a pool with a group, two tenants and a worker.
    pub(in super::super) fn pool(name: &str) -> PoolView {
        let group = group("prod", 100, 4, 9);
        let tenant = |name: &str, group: &GroupView| TenantView {
            tenant_id: name.to_owned(),
            fairshare_group: "prod".to_owned(),
            weight: 300,
            queued: group.queued,
            in_flight: group.in_flight,
            slot_cap: group.slot_cap,
            weight_share: group.weight_share,
            service: group.service.clone(),
            ..TenantView::default()
        };
        let mut long = self::group(&"x".repeat(200), 75, 0, 0);
        long.slot_cap = Some(4);
        long.service.within_bound = Some(false);
        PoolView {
            pool: name.to_owned(),
            algorithm: "share by group, share by tenant".to_owned(),
            slots: 8,
            in_flight: 8,
            waiting: 4,
            max_in_flight: 32,
            global_in_flight: 32,
            global_queued: 214,
            groups: vec![group.clone()],
            tenants: vec![
                tenant("chat\u{1b}[2J", &self::group("", 25, 4, 9)),
                tenant(&"x".repeat(200), &long),
            ],
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
        let states: Vec<&str> = rows.iter().map(|row| row.state.as_str()).collect();
        assert_eq!(states, ["waiting", "held", "idle"]);
        let got: Vec<_> = rows.iter().map(|row| row.got).collect();
        assert_eq!(got, [Some(1.0), Some(0.25), Some(0.75)]);
        assert!(rows[1].inside && !rows[0].inside && rows[2].outside);
        let mut full = pool("p");
        full.tenants[0].slot_cap = Some(9);
        assert_eq!(flow_rows(&full, &[], "", FlowSort::Tree)[1].state, "at cap");
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
