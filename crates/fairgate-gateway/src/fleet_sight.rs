//! The fleet's projects as they were a moment ago, for those who look often: anybody may scrape, and must not load the
//! database by it.

use std::sync::Arc;
use std::time::Duration;

use fairgate_fleet::{Fleet, ProjectView};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

/// For how long what was seen is shown again.
const FRESH: Duration = Duration::from_secs(2);
/// How long the database may take.
const PATIENCE: Duration = Duration::from_secs(1);

/// What was seen last, and when.
#[derive(Default)]
pub(crate) struct FleetSight {
    last: Mutex<Option<(Instant, Arc<Vec<ProjectView>>)>>,
}

impl FleetSight {
    /// The projects; none where the database does not answer.
    pub(crate) async fn projects(&self, fleet: &Fleet) -> Arc<Vec<ProjectView>> {
        let mut last = self.last.lock().await;
        if let Some((_, projects)) = last.as_ref().filter(|(at, _)| at.elapsed() < FRESH) {
            return projects.clone();
        }
        let seen = timeout(PATIENCE, fleet.projects(None)).await;
        let projects = Arc::new(seen.ok().and_then(Result::ok).unwrap_or_default());
        *last = Some((Instant::now(), projects.clone()));
        projects
    }
}
