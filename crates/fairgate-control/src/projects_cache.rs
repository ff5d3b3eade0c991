//! Cache of the fleet's projects and webhooks. `/metrics` needs no token, so frequent scrapes must not load the database.

use std::sync::Arc;
use std::time::Duration;

use fairgate_api::fleet::ProjectView;
use fairgate_fleet::{Fleet, WebhookTotals};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

/// Maximum age of the cached projects and webhooks.
const PROJECTS_AGE_MAX: Duration = Duration::from_secs(2);
/// Time limit for each of the database queries.
const DATABASE_TIMEOUT: Duration = Duration::from_secs(1);

/// Projects and webhooks of the fleet, as a scrape shows them.
#[derive(Debug, Default)]
pub(crate) struct FleetScrape {
    pub(crate) projects: Vec<ProjectView>,
    pub(crate) webhooks: Vec<WebhookTotals>,
}

/// The projects and webhooks that were read last, with the time of reading.
#[derive(Default)]
pub(crate) struct ProjectsCache {
    last: Mutex<Option<(Instant, Arc<FleetScrape>)>>,
}

impl ProjectsCache {
    /// Returns the projects and webhooks, at most two seconds old. A list is empty if the database fails or does not
    /// answer in time; that list is cached too.
    pub(crate) async fn scrape(&self, fleet: &Fleet) -> Arc<FleetScrape> {
        let mut last = self.last.lock().await;
        if let Some((_, seen)) = last.as_ref().filter(|(at, _)| at.elapsed() < PROJECTS_AGE_MAX) {
            return seen.clone();
        }
        let projects = timeout(DATABASE_TIMEOUT, fleet.projects(None)).await;
        let webhooks = timeout(DATABASE_TIMEOUT, fleet.webhook_totals()).await;
        let seen = Arc::new(FleetScrape {
            projects: projects.ok().and_then(Result::ok).unwrap_or_default(),
            webhooks: webhooks.ok().and_then(Result::ok).unwrap_or_default(),
        });
        *last = Some((Instant::now(), seen.clone()));
        seen
    }
}
