//! The state of `fairgate top`: the data on the screen, and the open dialog.

use fairgate_api::admin::{FlowAttribute, PoolView, RequestBody, WorkerBody};

use super::flow_rows::{FlowRow, FlowSort, flow_rows};
use super::gateway_calls::{GatewayReply, TopChange, TopLook};
use crate::text_format::one_line;

/// Tab of the screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TopTab {
    /// Flows of a pool.
    #[default]
    Flows,
    /// Requests that wait or are in flight.
    Requests,
    /// Workers of a pool.
    Workers,
    /// Projects, agents and tasks.
    Fleet,
}

impl TopTab {
    /// All parts with their keys and names.
    pub(super) const ALL: [(char, &'static str, Self); 4] = [
        ('1', "flows", Self::Flows),
        ('2', "requests", Self::Requests),
        ('3', "workers", Self::Workers),
        ('4', "fleet", Self::Fleet),
    ];
}

/// Box over the screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TopDialog {
    /// List of all keys.
    Help,
    /// Text with its title, scrolled by this many lines.
    Story { title: String, lines: Vec<String>, scroll: usize },
    /// Question whether to make a change.
    Confirm { question: String, change: TopChange },
    /// Number that is being typed for a flow.
    Number { title: String, typed: String, kind: NumberKind, flow: PoolFlowName },
}

/// Setting that a number is typed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NumberKind {
    /// Weight of the flow.
    Weight,
    /// Maximum number of requests in flight; nothing typed means no maximum.
    Cap,
}

/// A flow of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PoolFlowName {
    pub(crate) pool: String,
    /// Attribute by which the flow is named: `class`, `group`, `tenant` or `project`.
    pub(crate) by: &'static str,
    pub(crate) flow: String,
}

/// State of the screen.
#[derive(Debug)]
pub(super) struct TopModel {
    pub(super) tab: TopTab,
    /// Name of the pool that is shown; `None` for the first one.
    pub(super) pool: Option<String>,
    /// Number of the selected row.
    pub(super) selected: usize,
    pub(super) sort: FlowSort,
    /// Text that the names of rows must contain.
    pub(super) filter: String,
    /// True while the filter is being typed.
    pub(super) filtering: bool,
    pub(super) paused: bool,
    /// Seconds between two looks.
    pub(super) every: u64,
    pub(super) dialog: Option<TopDialog>,
    /// Result of the last change, in one line.
    pub(super) message: Option<String>,
    /// Error of the last look. The screen then shows older data.
    pub(super) error: Option<String>,
    pub(super) look: TopLook,
}

impl TopModel {
    pub(super) fn new(pool: Option<String>, every: u64) -> Self {
        Self {
            tab: TopTab::default(),
            pool,
            selected: 0,
            sort: FlowSort::default(),
            filter: String::new(),
            filtering: false,
            paused: false,
            every,
            dialog: None,
            message: None,
            error: None,
            look: TopLook::default(),
        }
    }

    /// Updates the model with a reply of the gateway.
    pub(super) fn take(&mut self, reply: GatewayReply) {
        match reply {
            GatewayReply::Looked(Ok(look)) => {
                // Each tab asks only for what it shows.
                let TopLook { live, pools, requests, fleet } = *look;
                (self.look.live, self.look.pools) = (live, pools);
                self.look.requests = requests.or(self.look.requests.take());
                self.look.fleet = fleet.or(self.look.fleet.take());
                self.error = None;
            }
            GatewayReply::Looked(Err(error)) => self.error = Some(one_line(&error)),
            GatewayReply::Changed(Ok(done)) => self.message = Some(one_line(&done)),
            GatewayReply::Changed(Err(error)) => {
                self.message = Some(format!("not done: {}", one_line(&error)));
            }
            GatewayReply::Explained(title, lines) => {
                let lines = match lines {
                    Ok(lines) => lines.iter().map(|line| one_line(line)).collect(),
                    Err(error) => vec![one_line(&error)],
                };
                self.dialog = Some(TopDialog::Story { title, lines, scroll: 0 });
            }
        }
        self.selected = self.selected.min(self.rows().saturating_sub(1));
    }

    /// Returns all pools of the live view.
    pub(super) fn pools(&self) -> &[PoolView] {
        self.look.live.as_ref().map_or(&[], |live| &live.pools)
    }

    /// Returns the index of the pool that is shown.
    pub(super) fn pool_place(&self) -> usize {
        let wanted = self.pool.as_deref();
        self.pools().iter().position(|pool| Some(&*pool.pool) == wanted).unwrap_or(0)
    }

    /// Returns the pool that is shown; `None` if there is none.
    pub(super) fn shown_pool(&self) -> Option<&PoolView> {
        self.pools().get(self.pool_place())
    }

    /// Returns the name of the pool that is shown; empty if there is none.
    pub(super) fn pool_name(&self) -> String {
        self.shown_pool().map(|pool| pool.pool.clone()).unwrap_or_default()
    }

    /// Shows the next pool, or the one before.
    pub(super) fn turn_pool(&mut self, forward: bool) {
        let count = self.pools().len();
        if count > 0 {
            let step = if forward { 1 } else { count - 1 };
            let place = (self.pool_place() + step) % count;
            self.pool = Some(self.pools()[place].pool.clone());
            self.selected = 0;
        }
    }

    /// Returns the flows of the pool that is shown, filtered and sorted.
    pub(super) fn flows(&self) -> Vec<FlowRow> {
        let Some(shown) = self.shown_pool() else { return Vec::new() };
        let pools = self.look.pools.iter().filter(|pool| pool.name == shown.pool);
        let held = pools.flat_map(|pool| &pool.held);
        let held: Vec<(&str, &str)> = held.map(|it| (word(it.by), &*it.flow)).collect();
        flow_rows(shown, &held, &self.filter, self.sort)
    }

    /// Returns the requests of the pool that is shown.
    pub(super) fn requests(&self) -> Vec<&RequestBody> {
        let name = self.pool_name();
        let all = self.look.requests.iter().flatten().filter(|request| request.pool == name);
        all.filter(|request| {
            let RequestBody { id, tenant, class, agent, worker, .. } = request;
            let named = [tenant, class, agent, worker].into_iter().filter_map(Option::as_deref);
            self.matches(named.chain([id.as_str()]))
        })
        .collect()
    }

    /// Returns the workers of the pool that is shown.
    pub(super) fn workers(&self) -> Vec<&WorkerBody> {
        let all = self.shown_pool().into_iter().flat_map(|pool| &pool.workers);
        all.filter(|worker| self.matches([worker.name.as_str()].into_iter())).collect()
    }

    fn matches<'a>(&self, mut names: impl Iterator<Item = &'a str>) -> bool {
        self.filter.is_empty() || names.any(|name| name.contains(&self.filter))
    }

    /// Returns the number of rows that can be selected.
    pub(super) fn rows(&self) -> usize {
        match self.tab {
            TopTab::Flows => self.flows().len(),
            TopTab::Requests => self.requests().len(),
            TopTab::Workers => self.workers().len(),
            TopTab::Fleet => self.look.fleet.as_ref().map_or(0, Vec::len),
        }
    }

    /// Returns the selected flow; `None` if there is none, or no flows are shown.
    pub(super) fn selected_flow(&self) -> Option<FlowRow> {
        let is_shown = self.tab == TopTab::Flows;
        self.flows().into_iter().nth(self.selected).filter(|_| is_shown)
    }
}

/// Returns the word of an attribute, as the API spells it.
fn word(by: FlowAttribute) -> &'static str {
    match by {
        FlowAttribute::Class => "class",
        FlowAttribute::Tenant => "tenant",
        FlowAttribute::Group => "group",
        FlowAttribute::Key => "key",
        FlowAttribute::Agent => "agent",
        FlowAttribute::Project => "project",
        FlowAttribute::Session => "session",
    }
}
