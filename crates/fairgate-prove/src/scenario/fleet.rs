//! The fleet scenario: two projects in one tenant group, and agents that work on the projects'
//! tasks through the gateway.

use std::time::Duration;

use super::{ExperimentLength, JoinTime, Scenario};

/// Numbers of agents and tasks in the fleet experiment, and its times.
#[derive(Clone, Copy, Debug)]
pub struct FleetPlan {
    /// Number of honest agents. One agent that lies and one that dies are added to them.
    pub agents: usize,
    /// Number of tasks of each project, more than the agents complete during the experiment.
    pub tasks: u64,
    /// Number of completed tasks at which the experiment ends.
    pub completed_min: u64,
    /// Time for which an agent holds a claim without a heartbeat.
    pub lease: Duration,
    /// Time after which the experiment is given up as failed.
    pub time_max: Duration,
}

pub(super) fn fleets(pace: ExperimentLength) -> Vec<Scenario> {
    let scale = pace.scale();
    let completed_min = match pace {
        ExperimentLength::Quick => 400,
        ExperimentLength::Normal => 1200,
        ExperimentLength::Long => 300,
    };
    let fleet = FleetPlan {
        agents: 7,
        tasks: completed_min,
        completed_min,
        lease: Duration::from_secs(2),
        time_max: Duration::from_secs(600),
    };
    vec![Scenario {
        fleet: Some(fleet),
        ..scale.scenario(
            "fleet",
            "projects of weight 3 and 1: nine agents, one of which dies and one lies about its tokens",
            vec![
                scale.tenant("compiler", "acme", 3, JoinTime::First),
                scale.tenant("website", "acme", 1, JoinTime::First),
            ],
        )
    }]
}
