//! The MCP server, which runs the tools.

use std::fmt::Write as _;
use std::sync::Arc;

use fairgate_api::agents::TaskLeaseBody;
use fairgate_api::fleet::{AddedTasks, ProjectView, TaskExplanation, TaskLine};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation,
    ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::session::{McpClaim, McpSession, ToolError};
use super::tool_schemas::{INSTRUCTIONS, ShareArguments, tools};

/// The MCP server of one connection. All connections share the one task that the agent holds.
#[derive(Clone)]
pub(super) struct McpFleetTools {
    session: Arc<McpSession>,
}

/// A tool's answer, as a text for the model and as data with the same content.
type ToolAnswer = Result<(String, Value), ToolError>;

impl McpFleetTools {
    pub(super) fn new(session: Arc<McpSession>) -> Self {
        Self { session }
    }

    async fn answer(&self, name: &str, arguments: Value) -> ToolAnswer {
        let session = &self.session;
        Ok(match name {
            "claim" => claim_answer(session.claim(read(arguments)?).await?),
            "progress" => held_answer(&session.progress(read(arguments)?).await?),
            "ask" => end_answer(&session.ask(read(arguments)?).await?),
            "complete" => end_answer(&session.complete(read(arguments)?).await?),
            "fail" => end_answer(&session.fail(read(arguments)?).await?),
            "add_tasks" => added_answer(&session.add_tasks(read(arguments)?).await?),
            "why" => why_answer(&session.why(read(arguments)?).await?),
            "my_share" => {
                let ShareArguments {} = read(arguments)?;
                share_answer(&session.my_share().await?)
            }
            _ => return Err(format!("there is no tool {name:?}")),
        })
    }
}

impl ServerHandler for McpFleetTools {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("fairgate", env!("CARGO_PKG_VERSION")))
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(tools()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        tools().into_iter().find(|tool| tool.name == name)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if self.get_tool(&request.name).is_none() {
            let message = format!("there is no tool {:?}", request.name);
            return Err(ErrorData::invalid_params(message, None));
        }
        self.session.touch();
        let arguments = Value::Object(request.arguments.unwrap_or_default());
        let answer = tokio::select! {
            answer = self.answer(&request.name, arguments) => answer,
            // The client no longer waits. A claim that was just granted is returned again by the next claim.
            () = context.ct.cancelled() => Err("cancelled".to_owned()),
        };
        self.session.touch();
        let result = match answer {
            Ok((text, data)) => {
                let mut result = CallToolResult::structured(data);
                result.content = vec![ContentBlock::text(text)];
                result
            }
            Err(why) => CallToolResult::error(vec![ContentBlock::text(why)]),
        };
        Ok(result.into())
    }
}

fn read<T: DeserializeOwned>(arguments: Value) -> Result<T, ToolError> {
    serde_json::from_value(arguments).map_err(|error| format!("arguments: {error}"))
}

fn both(text: String, data: &impl Serialize) -> (String, Value) {
    (text, serde_json::to_value(data).unwrap_or_default())
}

fn claim_answer(claim: Option<McpClaim>) -> (String, Value) {
    let Some(claim) = claim else {
        let none = "There is no task for you now. Claim again to wait for one.".to_owned();
        return (none, json!({ "claimed": false }));
    };
    let McpClaim { task, project, title, prompt, .. } = &claim;
    let mut text = format!("Task {task} of project {project}: {title}\n");
    let key_file = claim.key_file.as_ref().map(|file| file.display().to_string());
    let lines = [
        ("Work in this folder", &claim.workspace_path),
        ("File with the key for LLM calls", &key_file),
        ("Earlier question", &claim.question),
        ("Answer to it", &claim.answer),
    ];
    for (name, value) in lines {
        if let Some(value) = value {
            let _ = writeln!(text, "{name}: {value}");
        }
    }
    let _ = write!(text, "\n{prompt}");
    both(text, &claim)
}

fn held_answer(held: &TaskLeaseBody) -> (String, Value) {
    let TaskLeaseBody { used, reserved, .. } = held;
    let text =
        format!("You hold the task. It has used {used} tokens; {reserved} are reserved for it.");
    both(text, held)
}

fn end_answer(line: &TaskLine) -> (String, Value) {
    let reason = line.reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
    both(format!("Task {} is {}{reason}. Claim the next one.", line.id, line.state), line)
}

fn added_answer(added: &AddedTasks) -> (String, Value) {
    let verb = if added.dry_run { "Would be added" } else { "Added" };
    let mut text = format!("{verb}: {}.", added.added.len());
    for line in &added.added {
        let _ = write!(text, "\n{} {}: {}", line.id, line.state, line.title);
    }
    if !added.unchanged.is_empty() {
        let _ = write!(text, "\nThese existed already: {}", added.unchanged.join(", "));
    }
    both(text, added)
}

fn why_answer(why: &TaskExplanation) -> (String, Value) {
    let mut text = why.sentence.clone();
    for fact in &why.facts {
        let _ = write!(text, "\n{}: {}", fact.name, fact.value);
    }
    both(text, why)
}

fn share_answer(project: &ProjectView) -> (String, Value) {
    let percent = |part: Option<f64>| {
        part.map_or("nothing yet".to_owned(), |part| format!("{:.1} %", part * 100.0))
    };
    let budget =
        project.budget.map_or("no budget".to_owned(), |budget| format!("a budget of {budget}"));
    let text = format!(
        "Project {} is due {} of the tokens of all projects, and got {}. It has used {} tokens, {} are reserved, and \
         it has {budget}. {} of its tasks can start, {} run.",
        project.id,
        percent(project.due_share),
        percent(project.got_share),
        project.used,
        project.reserved,
        project.ready,
        project.running,
    );
    both(text, project)
}
