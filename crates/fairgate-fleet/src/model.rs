//! What there is in a fleet, as shells send and show it.

use std::collections::BTreeMap;
use std::fmt;

use fairgate_core::proportional::CreditWeight;
use fairgate_money::UnixMicros;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::ToSchema;

use crate::state::{AgentState, ProjectStatus, TaskState};
use crate::whole;

/// How large a project's share is against the others': 0.001 to 10^15, with at most three decimals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ToSchema)]
#[schema(value_type = f64, minimum = 0.001, example = 3.0)]
pub struct Weight(pub CreditWeight);

impl fmt::Display for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for Weight {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let number: serde_json::Number =
            self.0.to_string().parse().map_err(serde::ser::Error::custom)?;
        number.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Weight {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = serde_json::Number::deserialize(deserializer)?;
        let exact: Result<Self, String> = number.to_string().parse();
        // What a program computed may be a little off: 0.30000000000000004.
        let near = |number: f64| {
            let text = format!("{number:.3}");
            let off = text.parse::<f64>().ok()? - number;
            (off.abs() <= number * 1e-12).then(|| text.parse().ok())?
        };
        exact
            .or_else(|problem| number.as_f64().and_then(near).ok_or(problem))
            .map_err(serde::de::Error::custom)
    }
}

impl std::str::FromStr for Weight {
    type Err = String;

    /// Reads digits, never through a float.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text} is no weight: a number from 0.001 to 1000000000000000 with at most three decimals"
            )
        };
        let (whole, part) = text.split_once('.').unwrap_or((text, ""));
        let is_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        let part = part.trim_end_matches('0');
        if whole.is_empty() || !is_digits(whole) || !is_digits(part) || part.len() > 3 {
            return Err(wrong());
        }
        let thousandths = format!("{whole}{part:0<3}").parse().map_err(|_| wrong())?;
        CreditWeight::from_thousandths(thousandths).map(Self).map_err(|_| wrong())
    }
}

/// The type of an agent, as a key of an object: 1 to 64 of `a`–`z`, `0`–`9`, `.`, `_` and `-`.
#[derive(Clone, Debug, ToSchema)]
#[schema(value_type = String, min_length = 1, max_length = 64, pattern = "^[a-z0-9][a-z0-9._-]{0,63}$")]
pub struct AgentKind(pub String);

/// A project to be made.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewProject {
    /// Its name: 1 to 64 of `a`–`z`, `0`–`9`, `.`, `_` and `-`, beginning with a letter or digit.
    #[schema(min_length = 1, max_length = 64, pattern = "^[a-z0-9][a-z0-9._-]{0,63}$")]
    pub id: String,
    /// The tenant that it belongs to, and whose budgets and share its calls count against.
    #[schema(max_length = 512)]
    pub tenant: String,
    /// How large its share of the fleet's tokens is; 1 where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<f64>, minimum = 0.001, maximum = 1e15, multiple_of = 0.001, example = 3.0)]
    pub weight: Option<Weight>,
    /// How many agents may work for it at once; 2 where absent.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "whole::optional"
    )]
    #[schema(minimum = 1)]
    pub concurrency: Option<u32>,
    /// Whether one agent at a time may work for it, whatever `concurrency` says.
    #[serde(default)]
    pub exclusive: bool,
    /// How many agents of a type may work for it at once; no limit for types that are not named.
    #[serde(default, deserialize_with = "whole::map")]
    #[schema(value_type = BTreeMap<AgentKind, u32>)]
    pub agent_max: BTreeMap<String, u32>,
    /// How many tokens it may use in the rolling window; no limit where absent.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "whole::optional"
    )]
    #[schema(minimum = 0, maximum = 1_000_000_000_000_000_i64)]
    pub budget: Option<u64>,
}

/// What to change of a project. What is absent stays.
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ProjectPatch {
    /// Whether it takes part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<ProjectStatusWord>,
    /// Its weight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<f64>, minimum = 0.001, maximum = 1e15, multiple_of = 0.001, example = 3.0)]
    pub weight: Option<Weight>,
    /// How many agents may work for it at once.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "whole::optional"
    )]
    #[schema(minimum = 1)]
    pub concurrency: Option<u32>,
    /// Whether one agent at a time may work for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exclusive: Option<bool>,
    /// How many agents of a type may work for it at once; replaces all that was set.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "whole::optional_map"
    )]
    #[schema(value_type = Option<BTreeMap<AgentKind, u32>>)]
    pub agent_max: Option<BTreeMap<String, u32>>,
    /// How many tokens it may use in the rolling window; `null` for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "whole::given")]
    #[schema(value_type = Option<u64>, minimum = 0, maximum = 1_000_000_000_000_000_i64)]
    pub budget: Option<Option<u64>>,
}

/// `ACTIVE`, `PAUSED` or `ARCHIVED`.
pub type ProjectStatusWord = ProjectStatus;

/// A project, and how it stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ProjectView {
    /// Its name.
    pub id: String,
    /// Its tenant.
    pub tenant: String,
    /// Whether it takes part.
    pub status: ProjectStatus,
    /// Its weight.
    pub weight: Weight,
    /// How many agents may work for it at once.
    pub concurrency: u32,
    /// Whether one agent at a time may.
    pub exclusive: bool,
    /// How many agents of a type may work for it at once.
    pub agent_max: BTreeMap<String, u32>,
    /// How many tokens it may use in the rolling window.
    pub budget: Option<u64>,
    /// Tokens that it used in the window; the oldest part fades.
    pub used: u64,
    /// Tokens that its running tasks have set aside and not used yet.
    pub reserved: u64,
    /// Tokens that it is taken to have used because it was away.
    pub baseline: u64,
    /// What a task of its own is expected to use, learned from those that ended, in tokens.
    pub learned_estimate: Option<u64>,
    /// Its part of what all active projects used, in parts per million; none where nothing was used.
    pub share_ppm: Option<u64>,
    /// The part that its weight promises among the active projects, in parts per million; none where it is not active.
    pub target_ppm: Option<u64>,
    /// Tasks that can start.
    pub ready: u64,
    /// Tasks that agents hold.
    pub running: u64,
    /// Tasks of each state.
    pub tasks: BTreeMap<TaskState, u64>,
    /// When it was made.
    #[schema(value_type = i64)]
    pub created_at: UnixMicros,
}

/// Tasks to be made, all or none.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewTasks {
    /// The tasks; `needs` may name others of this list, in any order, and tasks that are there.
    #[schema(min_items = 1, max_items = 10000)]
    pub tasks: Vec<NewTask>,
    /// Check everything and say what would be made, and make nothing.
    #[serde(default)]
    pub dry_run: bool,
}

/// A task to be made.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewTask {
    /// Its name, unique among all tasks: as a project's, up to 128 characters. Made up (`PROJECT-1`) where absent. A task
    /// that is there with the very same content is left alone, so that a file may be added twice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 128, pattern = "^[a-z0-9][a-z0-9._-]{0,127}$")]
    pub id: Option<String>,
    /// Its project.
    #[schema(max_length = 128)]
    pub project: String,
    /// One line, for people; the prompt's first line where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        max_length = 512,
        pattern = "^[^\\x00-\\x1f\\x7f-\\x9f]*[^\\s\\x00-\\x1f\\x7f-\\x9f][^\\x00-\\x1f\\x7f-\\x9f]*$"
    )]
    pub title: Option<String>,
    /// What the agent is to do. At most 1 MiB.
    #[schema(max_length = 1048576, pattern = "^[^\\x00]*\\S[^\\x00]*$")]
    pub prompt: String,
    /// Its place in its project's queue, lower first; 100 where absent.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "whole::optional"
    )]
    pub priority: Option<i64>,
    /// Tasks that must be completed first.
    #[serde(default)]
    #[schema(max_items = 1000)]
    pub needs: Vec<String>,
    /// How many tokens it is expected to use; learned from its project's tasks where absent.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "whole::optional"
    )]
    #[schema(minimum = 0, maximum = 1_000_000_000_000_i64)]
    pub estimate: Option<u64>,
    /// How often it is tried again after a failure; 3 where absent.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "whole::optional"
    )]
    #[schema(minimum = 0, maximum = 1000)]
    pub retries: Option<u32>,
    /// Not before this moment, in microseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "whole::moment")]
    #[schema(value_type = Option<i64>, minimum = 0, maximum = 253_402_300_799_999_999_i64)]
    pub resume_after: Option<UnixMicros>,
    /// The workspace that it must run in; any of its project's where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 128)]
    pub workspace: Option<String>,
    /// The agent that it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 128)]
    pub affinity: Option<String>,
    /// How long it waits for that agent, in seconds, before anybody may take it; 120 where absent.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "whole::optional"
    )]
    pub affinity_wait_s: Option<u32>,
}

/// What adding tasks came to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AddedTasks {
    /// The tasks that were made, or would be, in the order given.
    pub added: Vec<TaskLine>,
    /// The ids of those that were there already.
    pub unchanged: Vec<String>,
    /// Whether nothing was made.
    pub dry_run: bool,
}

/// What to change of a task that no agent holds. What is absent stays.
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TaskPatch {
    /// Its title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        max_length = 512,
        pattern = "^[^\\x00-\\x1f\\x7f-\\x9f]*[^\\s\\x00-\\x1f\\x7f-\\x9f][^\\x00-\\x1f\\x7f-\\x9f]*$"
    )]
    pub title: Option<String>,
    /// What the agent is to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 1048576, pattern = "^[^\\x00]*\\S[^\\x00]*$")]
    pub prompt: Option<String>,
    /// Its place in its project's queue, lower first.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "whole::optional"
    )]
    pub priority: Option<i64>,
    /// How many tokens it is expected to use.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "whole::optional"
    )]
    #[schema(minimum = 0, maximum = 1_000_000_000_000_i64)]
    pub estimate: Option<u64>,
    /// How often it is tried again after a failure.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "whole::optional"
    )]
    #[schema(minimum = 0, maximum = 1000)]
    pub retries: Option<u32>,
}

/// What a person does with a task.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(tag = "action", rename_all = "snake_case", deny_unknown_fields)]
pub enum TaskAction {
    /// Ends it for good; an agent that holds it loses it.
    Cancel {
        /// Why, for those who read it later.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// Puts it aside; an agent that holds it loses it.
    Pause {
        /// Until this moment, in microseconds since 1970; until it is resumed where absent.
        #[serde(
            default,
            skip_serializing_if = "Option::is_none",
            deserialize_with = "whole::moment"
        )]
        #[schema(value_type = Option<i64>, minimum = 0, maximum = 253_402_300_799_999_999_i64)]
        until: Option<UnixMicros>,
        /// Why.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// Lets a paused task go on.
    Resume,
    /// Lets a blocked or failed task start anew, with all its retries.
    Restart,
    /// Takes a blocked or failed task for completed, so that those who need it can start.
    Skip {
        /// Why.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// Answers what its agent asked.
    Answer {
        /// The answer; at most 64 KiB.
        #[schema(max_length = 65536, pattern = "^[^\\x00]*\\S[^\\x00]*$")]
        text: String,
    },
}

/// A task in a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TaskLine {
    /// Its name.
    pub id: String,
    /// Its project.
    pub project: String,
    /// One line, for people.
    pub title: String,
    /// Where it stands.
    pub state: TaskState,
    /// Why it stands there, where that needs saying.
    pub reason: Option<String>,
    /// Its place in its project's queue, lower first.
    pub priority: i64,
    /// The agent that holds it, or held it last.
    pub agent: Option<String>,
    /// How many tokens it is expected to use.
    pub estimate: u64,
    /// How many tokens it has used, over all its claims.
    pub used: u64,
    /// How often it was tried again.
    pub retries: u32,
    /// How often it may be.
    pub retries_max: u32,
    /// Not before this moment.
    #[schema(value_type = Option<i64>)]
    pub resume_after: Option<UnixMicros>,
    /// When it was made.
    #[schema(value_type = i64)]
    pub created_at: UnixMicros,
    /// When it ended.
    #[schema(value_type = Option<i64>)]
    pub ended_at: Option<UnixMicros>,
}

/// A task with all that is known of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TaskView {
    /// What a list shows.
    #[serde(flatten)]
    pub line: TaskLine,
    /// What the agent is to do.
    pub prompt: String,
    /// Tasks that must be completed first, and how they stand.
    pub needs: BTreeMap<String, TaskState>,
    /// Tasks that wait for this one, directly or by others, and cannot start before it: the nearest first, at most 1000.
    pub needed_by: Vec<String>,
    /// The workspace that it must run in.
    pub workspace: Option<String>,
    /// The workspace that it holds.
    pub in_workspace: Option<String>,
    /// The agent that it waits for.
    pub affinity: Option<String>,
    /// How often it was claimed.
    pub epoch: u64,
    /// Until when its agent holds it, unless it gives a sign of life.
    #[schema(value_type = Option<i64>)]
    pub lease_until: Option<UnixMicros>,
    /// Calls that its agents made through the gateway.
    pub calls: u64,
    /// What its agent said last.
    pub progress: Option<String>,
    /// What its agent asked.
    pub question: Option<String>,
    /// What a person answered.
    pub answer: Option<String>,
    /// What it came to.
    pub result: Option<String>,
    /// What became of it, step by step; the last 200 steps.
    pub history: Vec<TaskStep>,
}

/// One step of a task's history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TaskStep {
    /// When.
    #[schema(value_type = i64)]
    pub at: UnixMicros,
    /// Where it stood.
    pub from: TaskState,
    /// Where it went.
    pub to: TaskState,
    /// The claim that this was about.
    pub epoch: u64,
    /// Who did it: `agent:NAME`, `admin`, `admin:NAME`, or `fleet`.
    pub actor: String,
    /// Why.
    pub reason: Option<String>,
}

/// Which tasks to list.
#[derive(Clone, Debug, Default)]
pub struct TaskQuery {
    /// Of this project only.
    pub project: Option<String>,
    /// In these states only; all where empty.
    pub states: Vec<TaskState>,
    /// Of this tenant's projects only.
    pub tenant: Option<String>,
    /// After this task, in the order of the list.
    pub after: Option<String>,
    /// How many at most.
    pub limit: u32,
}

/// Why a task stands where it does: one sentence, then the numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Why {
    /// The task.
    pub task: String,
    /// Where it stands.
    pub state: TaskState,
    /// The one sentence that a person needs.
    pub sentence: String,
    /// A stable word for programs, such as `needs`, `project_budget`, `no_agent`, `behind_others`.
    pub code: String,
    /// The numbers behind it, each with its unit in its name, in the order in which they matter.
    pub facts: Vec<Fact>,
}

/// One number or name behind an explanation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Fact {
    /// What it is, for people: `project's share`.
    pub name: String,
    /// Its value with its unit: `61.2 %`.
    pub value: String,
}

/// An agent to be made.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewAgent {
    /// Its name, as a project's.
    #[schema(min_length = 1, max_length = 64, pattern = "^[a-z0-9][a-z0-9._-]{0,63}$")]
    pub id: String,
    /// Its type, which projects may limit; `default` where absent.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 64, pattern = "^[a-z0-9][a-z0-9._-]{0,63}$")]
    pub kind: Option<String>,
    /// Whether it does not call through the gateway and says itself what it used. It gets no task keys then.
    #[serde(default)]
    pub reports_tokens: bool,
}

/// What to change of an agent. What is absent stays.
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentPatch {
    /// Whether it takes tasks. `RETIRED` is for good, and what it holds goes back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<AgentState>,
    /// Its type.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 64, pattern = "^[a-z0-9][a-z0-9._-]{0,63}$")]
    pub kind: Option<String>,
}

/// An agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AgentView {
    /// Its name.
    pub id: String,
    /// Its type.
    #[serde(rename = "type")]
    pub kind: String,
    /// Whether it takes tasks.
    pub state: AgentState,
    /// Whether it says itself what it used.
    pub reports_tokens: bool,
    /// The end of its token, to tell tokens apart.
    pub token_hint: String,
    /// The task that it holds.
    pub task: Option<String>,
    /// When it last gave a sign of life.
    #[schema(value_type = Option<i64>)]
    pub last_seen: Option<UnixMicros>,
    /// When it was made.
    #[schema(value_type = i64)]
    pub created_at: UnixMicros,
}

/// An agent that was just made, or whose token is new. The token is shown this once.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct AgentWithToken {
    /// The agent.
    pub agent: AgentView,
    /// Its token: what it authenticates with.
    pub token: String,
}

/// A workspace to be made.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewWorkspace {
    /// Its name, as a project's.
    #[schema(min_length = 1, max_length = 64, pattern = "^[a-z0-9][a-z0-9._-]{0,63}$")]
    pub id: String,
    /// Its project.
    #[schema(max_length = 128)]
    pub project: String,
    /// Where it is, on the agents' machines.
    #[schema(
        max_length = 4096,
        pattern = "^[^\\x00-\\x1f\\x7f-\\x9f]*[^\\s\\x00-\\x1f\\x7f-\\x9f][^\\x00-\\x1f\\x7f-\\x9f]*$"
    )]
    pub path: String,
}

/// A workspace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WorkspaceView {
    /// Its name.
    pub id: String,
    /// Its project.
    pub project: String,
    /// Where it is, on the agents' machines.
    pub path: String,
    /// The task that has it to itself.
    pub task: Option<String>,
    /// The agent that works there.
    pub agent: Option<String>,
}

/// A task that an agent was given.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Claim {
    /// The task.
    pub task: String,
    /// Its project.
    pub project: String,
    /// Its tenant.
    pub tenant: String,
    /// Which claim of the task this is; all that the agent says of it names this number.
    pub epoch: u64,
    /// One line, for people.
    pub title: String,
    /// What to do.
    pub prompt: String,
    /// What was asked and answered before, where the task waited for an answer.
    pub question: Option<String>,
    /// The answer.
    pub answer: Option<String>,
    /// The workspace that is the task's alone, where its project has some.
    pub workspace: Option<String>,
    /// Where that is.
    pub workspace_path: Option<String>,
    /// How many tokens are set aside for it.
    pub reserved: u64,
    /// The gateway key for this claim: valid until the task ends or the lease moves on. Absent for agents that report.
    pub key: Option<String>,
    /// Until when the agent holds the task without a sign of life, in microseconds since 1970.
    #[schema(value_type = i64)]
    pub lease_until: UnixMicros,
    /// How often to give one, in seconds.
    pub heartbeat_s: u32,
}

/// A sign of life.
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Heartbeat {
    /// What the agent is doing; at most 4 KiB, cut beyond.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
    /// What this claim used so far in all, in tokens. Counts only for agents that report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
}

/// What a sign of life is answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Held {
    /// Until when the agent holds the task now, in microseconds since 1970.
    #[schema(value_type = i64)]
    pub lease_until: UnixMicros,
    /// What the claim used so far, in tokens.
    pub used: u64,
    /// What was set aside for it, in tokens.
    pub reserved: u64,
}

/// How a task ended well.
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Completion {
    /// What it came to; at most 64 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// What this claim used in all, in tokens. Counts only for agents that report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
}

/// How a task ended badly.
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Failure {
    /// Why; at most 4 KiB, cut beyond.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The provider's limit is reached until this moment, in microseconds since 1970: the task waits until then, and this
    /// counts as no failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<i64>)]
    pub limited_until: Option<UnixMicros>,
    /// What this claim used in all, in tokens. Counts only for agents that report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
}

/// What an agent asks a person. The task waits for the answer, and the agent is free.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Question {
    /// The question; at most 16 KiB.
    pub question: String,
    /// What this claim used in all, in tokens. Counts only for agents that report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
}

/// A task that an agent gives back unharmed.
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Release {
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A part of what a task's command printed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LogPage {
    /// Which claim of the task printed it.
    pub epoch: u64,
    /// The number of the first byte here, counted from the claim's first.
    pub first_byte: u64,
    /// The number of the byte after the last one here: where to go on reading.
    pub next_byte: u64,
    /// How many bytes at the beginning are not kept any more.
    pub dropped_bytes: u64,
    /// The text; what is no UTF-8 is replaced.
    pub text: String,
    /// Whether the claim has ended and nothing more will come.
    pub ended: bool,
}

/// The fleet as a whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FleetView {
    /// The moment that this is of, in microseconds since 1970.
    #[schema(value_type = i64)]
    pub at: UnixMicros,
    /// How long the rolling window is, in seconds.
    pub window_s: u64,
    /// What all projects may use in it together, in tokens.
    pub budget: Option<u64>,
    /// What they used in it, in tokens.
    pub used: u64,
    /// What running tasks have set aside, in tokens.
    pub reserved: u64,
    /// The projects that are not archived, the most owed first.
    pub projects: Vec<ProjectView>,
    /// Tasks that agents hold.
    pub running: Vec<TaskLine>,
    /// The first tasks that wait, and why; a few of each project.
    pub waiting: Vec<Why>,
    /// The agents that are not retired.
    pub agents: Vec<AgentView>,
}

/// Whose a task key is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskKey {
    /// The tenant of the project.
    pub tenant: String,
    /// The project.
    pub project: String,
    /// The task.
    pub task: String,
    /// The claim.
    pub epoch: u64,
    /// The agent that holds it.
    pub agent: String,
}
