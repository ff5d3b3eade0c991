//! The fleet: projects, tasks, agents and workspaces, for people; claims and what follows them, for agents.
//!
//! People use the admin token; a tenant's key reads what belongs to that tenant's projects. An agent uses a token of its
//! own, and only paths under its own name, also where clients connect. What is done here is done, checked and audited by
//! [`fairgate_fleet::Fleet`].

pub(super) mod agents;
pub(super) mod claims;
pub(super) mod log;
pub(super) mod overview;
pub(super) mod own;
pub(super) mod projects;
pub(super) mod tasks;
pub(super) mod workspaces;

use std::sync::Arc;

use axum::Router;
use axum::routing::{delete, get, patch, post};
use http::Method;

use super::api_error::ApiError;
use super::auth::Viewer;
use crate::app::App;

/// The largest body with tasks in it, in bytes. One prompt may have 1 MiB, which JSON may spell with six bytes for one.
const TASKS_BYTES_MAX: usize = 16 << 20;

/// All routes of the fleet.
pub(super) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/api/v1/fleet", get(overview::show))
        .route("/api/v1/projects", get(projects::list).post(projects::create))
        .route("/api/v1/projects/{id}", get(projects::show).patch(projects::patch))
        .route("/api/v1/tasks", get(tasks::list).post(tasks::create))
        .route("/api/v1/tasks/{id}", get(tasks::show).patch(tasks::patch))
        .route("/api/v1/tasks/{id}/actions", post(tasks::act))
        .route("/api/v1/tasks/{id}/why", get(tasks::why))
        .route("/api/v1/tasks/{id}/log", get(log::show))
        .route("/api/v1/agents", get(agents::list).post(agents::create))
        .route("/api/v1/agents/{id}", patch(agents::patch))
        .route("/api/v1/agents/{id}/rotate", post(agents::rotate))
        .route("/api/v1/agents/{id}/claim", post(claims::claim))
        .route("/api/v1/agents/{id}/share", get(own::share))
        .route("/api/v1/agents/{id}/tasks", post(own::add_tasks))
        .route("/api/v1/agents/{id}/tasks/{task}/why", get(own::why))
        .route("/api/v1/agents/{id}/tasks/{task}/heartbeat", post(claims::heartbeat))
        .route("/api/v1/agents/{id}/tasks/{task}/complete", post(claims::complete))
        .route("/api/v1/agents/{id}/tasks/{task}/fail", post(claims::fail))
        .route("/api/v1/agents/{id}/tasks/{task}/ask", post(claims::ask))
        .route("/api/v1/agents/{id}/tasks/{task}/release", post(claims::release))
        .route("/api/v1/agents/{id}/tasks/{task}/log", post(log::append))
        .route("/api/v1/workspaces", get(workspaces::list).post(workspaces::create))
        .route("/api/v1/workspaces/{id}", delete(workspaces::remove))
}

/// Whether this is also served where clients connect: agents do their work there, and a tenant's key reads there.
/// `path` is what follows `/api/v1/`.
pub(super) fn is_for_clients(method: &Method, path: &str) -> bool {
    let (list, rest) = path.split_once('/').unwrap_or((path, ""));
    match list {
        "projects" | "tasks" | "workspaces" => matches!(*method, Method::GET | Method::HEAD),
        "agents" => rest.split_once('/').is_some_and(|(_, rest)| rest != "rotate"),
        _ => false,
    }
}

/// Finds nothing where a project is not the viewer's: whoever may not see it does not learn that it is there.
async fn see_project(
    app: &App,
    viewer: &Viewer,
    project: &str,
    not_found: impl Fn() -> ApiError,
) -> Result<(), ApiError> {
    if matches!(viewer, Viewer::Admin) {
        return Ok(());
    }
    let project = app.fleet.project(project).await?;
    if viewer.may_see(&project.tenant) { Ok(()) } else { Err(not_found()) }
}

/// The tenant whose projects a viewer sees; all where it is none.
fn tenant_of(viewer: &Viewer) -> Option<&str> {
    match viewer {
        Viewer::Admin => None,
        Viewer::Tenant(caller) => Some(&caller.tenant),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_work_and_tenants_read_where_clients_connect() {
        for path in ["projects", "projects/web", "tasks", "tasks/t/why", "workspaces"] {
            assert!(is_for_clients(&Method::GET, path), "{path}");
            assert!(!is_for_clients(&Method::POST, path), "{path}");
        }
        for path in ["agents/a/claim", "agents/a/tasks", "agents/a/tasks/t/complete"] {
            assert!(is_for_clients(&Method::POST, path), "{path}");
        }
        for path in ["agents", "agents/a", "agents/a/rotate", "fleet", "tenants"] {
            assert!(!is_for_clients(&Method::POST, path), "{path}");
            assert!(!is_for_clients(&Method::GET, path), "{path}");
        }
    }
}
