//! Projects, tasks, agents and workspaces: the bodies that clients send, and the views that they get.

mod agent;
mod new_task;
mod overview;
mod project;
mod schema_names;
mod share_weight;
mod state;
mod task;
mod task_money;
mod webhook;
mod workspace;

pub use agent::{AgentPatch, AgentView, AgentWithToken, NewAgent};
pub use new_task::{AddedTasks, NewTask, NewTasks, TaskAction, TaskPatch};
pub use overview::FleetView;
pub use project::{NewProject, ProjectPatch, ProjectView};
pub use schema_names::{AgentKind, AgentLabelSchema, LabelSchema};
pub use share_weight::ProjectShareWeight;
pub use state::{FleetAgentState, FleetProjectStatus, TaskState};
pub use task::{ExplanationFact, LogPage, TaskExplanation, TaskLine, TaskStep, TaskView};
pub use task_money::TaskMoney;
pub use webhook::{
    WebhookEventKind, WebhookEventList, WebhookList, WebhookPendingEvent, WebhookTestView,
    WebhookView,
};
pub use workspace::{NewWorkspace, WorkspaceView};
