//! A fleet: two projects of one tenant, and agents that work on their tasks through the gateway.

use std::time::Duration;

use super::{Joins, Pace, Scenario};

/// Who works, and on how much.
#[derive(Clone, Copy, Debug)]
pub struct Fleet {
    /// How many agents work all the time.
    pub agents: usize,
    /// Tasks of each project; more than will be done.
    pub tasks: u64,
    /// It ends when so many are completed.
    pub completed_min: u64,
    /// How long an agent holds a task without a sign of life.
    pub lease: Duration,
    /// How long it may take.
    pub time_max: Duration,
}

pub(super) fn fleets(pace: Pace) -> Vec<Scenario> {
    let scale = pace.scale();
    let completed_min = match pace {
        Pace::Quick => 400,
        Pace::Normal => 1200,
        Pace::Long => 300,
    };
    let fleet = Fleet {
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
                scale.tenant("compiler", "acme", 3, Joins::First),
                scale.tenant("website", "acme", 1, Joins::First),
            ],
        )
    }]
}
