//! Gauges of the fleet, filled at each scrape.

use std::cmp::Reverse;

use fairgate_api::fleet::{ProjectView, TaskState};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use super::pool_gauges::gauge_value;

/// Maximum number of projects that have gauges by name: those with the highest sum of use and reservations.
const PROJECTS_SHOWN: usize = 50;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TaskStateLabel {
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FleetProjectLabel {
    project: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ProjectStateLabels {
    project: String,
    state: &'static str,
}

type Ratio = Gauge<f64, std::sync::atomic::AtomicU64>;

/// The gauges of the fleet, created and filled once for each scrape.
#[derive(Debug, Default)]
struct FleetGauges {
    used: Gauge,
    reserved: Gauge,
    tasks: Family<TaskStateLabel, Gauge>,
    project_used: Family<FleetProjectLabel, Gauge>,
    project_reserved: Family<FleetProjectLabel, Gauge>,
    project_running: Family<FleetProjectLabel, Gauge>,
    project_due: Family<FleetProjectLabel, Ratio>,
    project_got: Family<FleetProjectLabel, Ratio>,
    project_tasks: Family<ProjectStateLabels, Gauge>,
}

/// Adds the fleet's gauges to a registry; adds none if there is no project. Gauges by project are added only if
/// `with_projects` is true.
pub(super) fn register(projects: &[ProjectView], with_projects: bool, to: &mut Registry) {
    if projects.is_empty() {
        return;
    }
    let seen = FleetGauges::default();
    seen.sums(projects);
    if with_projects {
        let mut largest: Vec<&ProjectView> = projects.iter().collect();
        largest.sort_by_key(|project| Reverse(project.used.saturating_add(project.reserved)));
        largest.iter().take(PROJECTS_SHOWN).for_each(|project| seen.project(project));
    }
    seen.register_in(to);
}

/// Adds all gauges of the fleet with one series each, for the reference of metrics.
#[cfg(test)]
pub(super) fn register_sample(to: &mut Registry) {
    let seen = FleetGauges::default();
    let state = "READY";
    seen.tasks.get_or_create(&TaskStateLabel { state }).set(1);
    let project = || FleetProjectLabel { project: "web".into() };
    for family in [&seen.project_used, &seen.project_reserved, &seen.project_running] {
        family.get_or_create(&project()).set(1);
    }
    for family in [&seen.project_due, &seen.project_got] {
        family.get_or_create(&project()).set(1.0);
    }
    let labels = ProjectStateLabels { project: "web".into(), state };
    seen.project_tasks.get_or_create(&labels).set(1);
    seen.register_in(to);
}

impl FleetGauges {
    fn sums(&self, projects: &[ProjectView]) {
        self.used.set(gauge_value(
            projects.iter().map(|project| u128::from(project.used)).sum::<u128>(),
        ));
        let reserved = projects.iter().map(|project| u128::from(project.reserved));
        self.reserved.set(gauge_value(reserved.sum::<u128>()));
        for state in TaskState::ALL {
            let count = |project: &ProjectView| project.tasks.get(state).copied().unwrap_or(0);
            let label = TaskStateLabel { state: state.word() };
            self.tasks
                .get_or_create(&label)
                .set(gauge_value(projects.iter().map(count).sum::<u64>()));
        }
    }

    fn project(&self, project: &ProjectView) {
        let label = FleetProjectLabel { project: project.id.clone() };
        self.project_used.get_or_create(&label).set(gauge_value(project.used));
        self.project_reserved.get_or_create(&label).set(gauge_value(project.reserved));
        self.project_running.get_or_create(&label).set(gauge_value(project.running));
        let set = |family: &Family<FleetProjectLabel, Ratio>, part: Option<f64>| {
            if let Some(part) = part {
                family.get_or_create(&label).set(part);
            }
        };
        set(&self.project_due, project.due_share);
        set(&self.project_got, project.got_share);
        for (state, count) in &project.tasks {
            let labels = ProjectStateLabels { project: project.id.clone(), state: state.word() };
            self.project_tasks.get_or_create(&labels).set(gauge_value(*count));
        }
    }

    fn register_in(self, to: &mut Registry) {
        let tokens = || Unit::Other("tokens".to_owned());
        let help = "Tokens that all projects used in the rolling window";
        to.register_with_unit("fleet_used", help, tokens(), self.used);
        let help = "Tokens that are set aside for running tasks and not used yet";
        to.register_with_unit("fleet_reserved", help, tokens(), self.reserved);
        to.register("fleet_tasks", "Tasks of the fleet, by state", self.tasks);
        let help = "Tokens that the project used in the rolling window; only the 50 projects that used most are listed";
        to.register_with_unit("fleet_project_used", help, tokens(), self.project_used);
        let help = "Tokens that are set aside for the project's running tasks and not used yet";
        to.register_with_unit("fleet_project_reserved", help, tokens(), self.project_reserved);
        let help = "Tasks of the project that agents hold";
        to.register("fleet_project_running", help, self.project_running);
        let help = "Part of the tokens of all active projects that the project is due by its weight, from 0 to 1";
        to.register("fleet_project_due_ratio", help, self.project_due.clone());
        let help = "Part of the tokens of all active projects that the project got in the rolling window, from 0 to 1";
        to.register("fleet_project_got_ratio", help, self.project_got.clone());
        let help = "Former name of fairgate_fleet_project_got_ratio";
        to.register("fleet_project_share_ratio", help, self.project_got);
        let help = "Former name of fairgate_fleet_project_due_ratio";
        to.register("fleet_project_target_ratio", help, self.project_due);
        let help = "Tasks of the project, by state";
        to.register("fleet_project_tasks", help, self.project_tasks);
    }
}
