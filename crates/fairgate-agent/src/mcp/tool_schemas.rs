//! The tools as agents see them: names, descriptions and arguments.

use std::sync::Arc;

use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde::Deserialize;
use serde_json::{Value, json};

/// Instructions that an agent gets when it connects.
pub(super) const INSTRUCTIONS: &str = "\
Work on tasks of a shared fleet, one at a time. Call claim to get a task. Do what its prompt says; if it has a workspace \
folder, work in that folder. End the task with complete, fail or ask. Until then no other agent gets the task: heartbeats are \
sent for you. Call progress now and then, so that people see what you do. If progress returns an error that you no longer \
hold the task, stop working on it. All calls may be repeated.";

/// Arguments of the tool `claim`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ClaimArguments {
    pub(super) wait_s: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ProgressArguments {
    pub(super) text: String,
    pub(super) tokens: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AskArguments {
    pub(super) question: String,
    pub(super) tokens: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CompleteArguments {
    pub(super) result: String,
    pub(super) tokens: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FailArguments {
    pub(super) reason: String,
    pub(super) retry_after_s: Option<u64>,
    pub(super) tokens: Option<u64>,
}

/// Arguments of the tool `add_tasks`. The tasks name no project, because they belong to the project of the current
/// task.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AddTasksArguments {
    pub(super) tasks: Vec<JsonObject>,
    #[serde(default)]
    pub(super) dry_run: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct WhyArguments {
    pub(super) task: Option<String>,
}

/// Arguments of `my_share`, which takes none.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ShareArguments {}

/// Returns all tools that the server offers.
pub(super) fn tools() -> Vec<Tool> {
    vec![claim(), progress(), ask(), complete(), fail(), add_tasks(), why(), my_share()]
}

fn claim() -> Tool {
    tool(
        "claim",
        "Get the next task. Waits until there is a task, at most wait_s seconds. If you already hold a task, the result is that \
         task again. The result has the prompt, the workspace folder if there is one, and an earlier question with its answer. \
         key_file is the path of a file with a gateway key for this task's LLM calls. Pass the path to programs; do not read \
         the file.",
        &[],
        json!({
            "wait_s": {
                "type": "integer", "minimum": 0, "maximum": 60, "default": 30,
                "description": "Longest wait for a task, in seconds."
            }
        }),
    )
}

fn progress() -> Tool {
    tool(
        "progress",
        "Report in one line what you are doing, for people. If the result is an error that you no longer hold the task, stop \
         working on it.",
        &["text"],
        json!({
            "text": { "type": "string", "minLength": 1, "description": "Your current work, in one line." },
            "tokens": tokens(),
        }),
    )
}

fn ask() -> Tool {
    tool(
        "ask",
        "Ask a person a question that you cannot decide yourself. This ends your claim. The task waits for the answer; then you \
         or another agent can claim it, with the question and the answer. So save your work where another agent finds it, and \
         write everything that the agent must know into the question. Then claim another task.",
        &["question"],
        json!({
            "question": {
                "type": "string", "minLength": 1, "maxLength": 16384,
                "description": "The question, with everything that is needed to answer it and to continue the task."
            },
            "tokens": tokens(),
        }),
    )
}

fn complete() -> Tool {
    tool(
        "complete",
        "End your claim because the task is done. Tasks that need this task can then start.",
        &["result"],
        json!({
            "result": {
                "type": "string", "maxLength": 65536,
                "description": "A short report of the result, or the place where the result is."
            },
            "tokens": tokens(),
        }),
    )
}

fn fail() -> Tool {
    tool(
        "fail",
        "End your claim because you could not do the task. The task is retried later, until it has no retries left. With \
         retry_after_s the task only waits for that time, and no failure is counted. Use this for a provider's limit, or for \
         something that is not available yet.",
        &["reason"],
        json!({
            "reason": { "type": "string", "minLength": 1, "description": "Reason for the failure, for people." },
            "retry_after_s": {
                "type": "integer", "minimum": 1,
                "description": "Seconds until the task may start again. No failure is counted."
            },
            "tokens": tokens(),
        }),
    )
}

fn add_tasks() -> Tool {
    tool(
        "add_tasks",
        "Add tasks to the project of the task that you hold. If one of them is invalid, none is added. A task whose id exists \
         already with the same content is not changed, so a call with ids can be repeated safely.",
        &["tasks"],
        json!({
            "tasks": { "type": "array", "minItems": 1, "items": task_schema() },
            "dry_run": {
                "type": "boolean", "default": false,
                "description": "Check the tasks and return those that would be added, but add none."
            },
        }),
    )
}

fn task_schema() -> Value {
    json!({
        "type": "object",
        "required": ["prompt"],
        "additionalProperties": false,
        "properties": {
            "prompt": { "type": "string", "minLength": 1, "description": "Instructions for the agent, with everything that it must know." },
            "id": { "type": "string", "maxLength": 128, "description": "Name of the task in your project: a-z, 0-9, '.', '_', '-'. Its full name, which the answer has, begins with the project's name and a colon. Generated if absent." },
            "title": { "type": "string", "description": "Title for people, in one line; the prompt's first line if absent." },
            "needs": {
                "type": "array", "items": { "type": "string" },
                "description": "Ids of the tasks that must be completed first. They may be in this list or exist already; tasks that others have added by their full names."
            },
            "priority": { "type": "integer", "description": "Priority within the project; a lower number starts first. 100 if absent." },
            "estimate": { "type": "integer", "minimum": 1, "description": "Number of tokens that the task is expected to use; learned from earlier tasks if absent." },
            "retries": { "type": "integer", "minimum": 0, "description": "Greatest number of retries after a failure; 3 if absent." },
            "workspace": { "type": "string", "description": "Workspace that the task must run in." },
            "requires": {
                "type": "array", "items": { "type": "string" },
                "description": "Labels that an agent must have to get the task, such as docker or machine:m1, on top of those of the project."
            },
            "affinity": { "type": "string", "description": "Agent that the task waits for, at most affinity_wait_s seconds." },
            "affinity_wait_s": { "type": "integer", "minimum": 0, "description": "Seconds to wait for the agent in affinity before any agent may take the task." },
        }
    })
}

fn why() -> Tool {
    let tool = tool(
        "why",
        "Explain the state of a task of your project: one sentence, then the numbers.",
        &[],
        json!({ "task": { "type": "string", "description": "Id of the task; the task that you hold if absent." } }),
    );
    tool.with_annotations(ToolAnnotations::new().read_only(true))
}

fn my_share() -> Tool {
    let tool = tool(
        "my_share",
        "Show the project of the task that you hold: what it is due and got of the fleet's tokens, its budget and its tasks.",
        &[],
        json!({}),
    );
    tool.with_annotations(ToolAnnotations::new().read_only(true))
}

fn tokens() -> Value {
    json!({
        "type": "integer", "minimum": 0,
        "description": "Total number of tokens that this claim has used so far. Only for agents that report their own usage; for other agents the gateway counts."
    })
}

fn tool(
    name: &'static str,
    description: &'static str,
    required: &[&str],
    properties: Value,
) -> Tool {
    let mut schema = JsonObject::new();
    schema.insert("type".to_owned(), json!("object"));
    schema.insert("properties".to_owned(), properties);
    schema.insert("required".to_owned(), json!(required));
    schema.insert("additionalProperties".to_owned(), json!(false));
    Tool::new(name, description, Arc::new(schema))
}

#[cfg(test)]
mod tests {
    use serde::de::DeserializeOwned;

    use super::*;

    /// Returns arguments with a valid value for every property of a schema.
    fn every_argument(tool: &Tool) -> Value {
        let properties = tool.input_schema["properties"].as_object().expect("an object");
        let value = |schema: &Value| match schema["type"].as_str() {
            Some("integer") => json!(1),
            Some("boolean") => json!(true),
            Some("array") => json!([{"prompt": "p"}]),
            _ => json!("text"),
        };
        properties.iter().map(|(name, schema)| (name.clone(), value(schema))).collect()
    }

    fn reads<T: DeserializeOwned>(tool: &Tool) {
        let arguments = every_argument(tool);
        if let Err(error) = serde_json::from_value::<T>(arguments.clone()) {
            panic!("{}: {error}: {arguments}", tool.name);
        }
        let required = tool.input_schema["required"].as_array().expect("a list");
        let nothing = serde_json::from_value::<T>(json!({}));
        assert_eq!(nothing.is_ok(), required.is_empty(), "{}", tool.name);
    }

    #[test]
    fn schemas_match_their_arguments() {
        reads::<ClaimArguments>(&claim());
        reads::<ProgressArguments>(&progress());
        reads::<AskArguments>(&ask());
        reads::<CompleteArguments>(&complete());
        reads::<FailArguments>(&fail());
        reads::<AddTasksArguments>(&add_tasks());
        reads::<WhyArguments>(&why());
        reads::<ShareArguments>(&my_share());
        for tool in tools() {
            let described = tool.description.is_some_and(|text| text.len() > 20);
            assert!(described, "{} is described", tool.name);
        }
    }
}
