//! Cache of the fleet's projects. `/metrics` needs no token, so frequent scrapes must not load the database.

use std::sync::Arc;
use std::time::Duration;

use fairgate_fleet::{Fleet, ProjectView};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

/// Maximum age of the cached projects.
const PROJECTS_AGE_MAX: Duration = Duration::from_secs(2);
/// Time limit for the database query.
const DATABASE_TIMEOUT: Duration = Duration::from_secs(1);

/// The projects that were read last, with the time of reading.
#[derive(Default)]
pub(crate) struct ProjectsCache {
    last: Mutex<Option<(Instant, Arc<Vec<ProjectView>>)>>,
}

impl ProjectsCache {
    /// Returns the projects, at most two seconds old. Returns an empty list if the database fails or does not answer in
    /// time; that list is cached too.
    pub(crate) async fn projects(&self, fleet: &Fleet) -> Arc<Vec<ProjectView>> {
        let mut last = self.last.lock().await;
        if let Some((_, projects)) = last.as_ref().filter(|(at, _)| at.elapsed() < PROJECTS_AGE_MAX)
        {
            return projects.clone();
        }
        let seen = timeout(DATABASE_TIMEOUT, fleet.projects(None)).await;
        let projects = Arc::new(seen.ok().and_then(Result::ok).unwrap_or_default());
        *last = Some((Instant::now(), projects.clone()));
        projects
    }
}
