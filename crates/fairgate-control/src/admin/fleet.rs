//! Handlers of the fleet. People manage projects, tasks, agents and workspaces, and look at webhooks; agents claim tasks.
//!
//! People use the admin token. A tenant's key reads the data of that tenant's projects. An agent uses its own token,
//! only on paths that contain its own id; these paths are also served at the clients' address.
//! [`fairgate_fleet::Fleet`] checks, executes and audits every operation.

pub(super) mod agents;
pub(super) mod claims;
pub(super) mod held_project;
pub(super) mod log;
pub(super) mod overview;
pub(super) mod projects;
pub(super) mod tasks;
pub(super) mod webhooks;
pub(super) mod workspaces;

use std::sync::Arc;

use axum::Router;
use axum::routing::{delete, get, patch, post};
use http::Method;

use super::api_error::ApiError;
use super::auth::Viewer;
use crate::control_plane::ControlPlane;

/// Maximum size of a body with tasks, in bytes. A prompt may have 1 MiB, and JSON may need six bytes for one byte of
/// the prompt.
const TASKS_BYTES_MAX: usize = 16 << 20;

/// Returns all routes of the fleet.
pub(super) fn routes() -> Router<Arc<ControlPlane>> {
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
        .route("/api/v1/agents/{id}/share", get(held_project::share))
        .route("/api/v1/agents/{id}/tasks", post(held_project::add_tasks))
        .route("/api/v1/agents/{id}/tasks/{task}/why", get(held_project::why))
        .route("/api/v1/agents/{id}/tasks/{task}/results", get(claims::result))
        .route("/api/v1/agents/{id}/tasks/{task}/heartbeat", post(claims::heartbeat))
        .route("/api/v1/agents/{id}/tasks/{task}/complete", post(claims::complete))
        .route("/api/v1/agents/{id}/tasks/{task}/fail", post(claims::fail))
        .route("/api/v1/agents/{id}/tasks/{task}/ask", post(claims::ask))
        .route("/api/v1/agents/{id}/tasks/{task}/release", post(claims::release))
        .route("/api/v1/agents/{id}/tasks/{task}/log", post(log::append))
        .route("/api/v1/workspaces", get(workspaces::list).post(workspaces::create))
        .route("/api/v1/workspaces/{id}", delete(workspaces::remove))
        .route("/api/v1/webhooks", get(webhooks::list))
        .route("/api/v1/webhooks/{name}/events", get(webhooks::events))
        .route("/api/v1/webhooks/{name}/test", post(webhooks::test))
}

/// Returns true for a request that is also served at the clients' address, because agents and tenants send it there.
/// `path` is the part after `/api/v1/`.
pub(super) fn is_for_clients(method: &Method, path: &str) -> bool {
    let (list, rest) = path.split_once('/').unwrap_or((path, ""));
    match list {
        // Tenants add tasks and answer their questions.
        "tasks" if *method == Method::POST => rest.is_empty() || rest.ends_with("/actions"),
        "projects" | "tasks" | "workspaces" => matches!(*method, Method::GET | Method::HEAD),
        "agents" => rest.split_once('/').is_some_and(|(_, rest)| rest != "rotate"),
        _ => false,
    }
}

/// Returns a `not_found` error unless the viewer may see the project. The error is equal for a missing and for a hidden
/// project, so nobody learns that a hidden project exists.
async fn check_project_visible(
    app: &ControlPlane,
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

/// Returns the tenant to whose projects the viewer is restricted; `None` means all projects.
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
            assert!(!is_for_clients(&Method::PATCH, path), "{path}");
        }
        for path in ["tasks", "tasks/t/actions"] {
            assert!(is_for_clients(&Method::POST, path), "{path}");
        }
        for path in ["projects", "tasks/t", "workspaces"] {
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
