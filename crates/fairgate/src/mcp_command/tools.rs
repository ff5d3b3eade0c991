//! The tools as agents see them: names, descriptions and arguments.

use std::sync::Arc;

use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde::Deserialize;
use serde_json::{Value, json};

/// Instructions that an agent gets when it connects.
pub(super) const INSTRUCTIONS: &str = "\
Work on tasks of a shared fleet, one at a time. Call claim to get a task, do what its prompt says, in its workspace folder \
where it has one, and end it with complete, fail or ask. Until then the task is yours alone: signs of life are given for you. \
Call progress now and then, so that people see what you do; it also tells you when the task was taken from you, and then you \
stop working on it. All calls may be repeated.";

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
        "Get the next task. Waits until there is one or wait_s is over. While you hold a task, you are given that one again. \
         The answer has the prompt, the workspace folder to work in where there is one, and what you asked and were answered \
         before. key_file names a file with a gateway key for this task's LLM calls: hand its path to programs, do not read it.",
        &[],
        json!({
            "wait_s": {
                "type": "integer", "minimum": 0, "maximum": 60, "default": 30,
                "description": "How long to wait where there is no task now, in seconds."
            }
        }),
    )
}

fn progress() -> Tool {
    tool(
        "progress",
        "Say in one line what you are doing. People see it. An error says that the task is not yours any more: stop working on it.",
        &["text"],
        json!({
            "text": { "type": "string", "minLength": 1, "description": "What you are doing, in one line." },
            "tokens": tokens(),
        }),
    )
}

fn ask() -> Tool {
    tool(
        "ask",
        "Ask a person something that you cannot decide. This ends your claim: the task waits for the answer and is then given \
         out again, with question and answer, to you or to another agent. So leave your work where that one finds it, and say \
         in the question what it must know. Claim another task meanwhile.",
        &["question"],
        json!({
            "question": {
                "type": "string", "minLength": 1, "maxLength": 16384,
                "description": "The question, with all that is needed to answer it and to go on afterwards."
            },
            "tokens": tokens(),
        }),
    )
}

fn complete() -> Tool {
    tool(
        "complete",
        "The task is done. Tasks that need it can start.",
        &["result"],
        json!({
            "result": {
                "type": "string", "maxLength": 65536,
                "description": "What it came to: a short report, or where the work is."
            },
            "tokens": tokens(),
        }),
    )
}

fn fail() -> Tool {
    tool(
        "fail",
        "The task could not be done. It is tried again later, until its retries are used up. With retry_after_s it only waits, \
         and this counts as no failure: for a provider's limit, or something that is not there yet.",
        &["reason"],
        json!({
            "reason": { "type": "string", "minLength": 1, "description": "Why, for those who read it later." },
            "retry_after_s": {
                "type": "integer", "minimum": 1,
                "description": "Not before this many seconds from now; counts as no failure."
            },
            "tokens": tokens(),
        }),
    )
}

fn add_tasks() -> Tool {
    tool(
        "add_tasks",
        "Add tasks to the project of the task that you hold, all or none. A task that is there with the very same content is \
         left alone, so that a repeated call does no harm where you name ids.",
        &["tasks"],
        json!({
            "tasks": { "type": "array", "minItems": 1, "items": task_schema() },
            "dry_run": {
                "type": "boolean", "default": false,
                "description": "Check everything and say what would be made, and make nothing."
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
            "prompt": { "type": "string", "minLength": 1, "description": "What the agent is to do: all that it must know." },
            "id": { "type": "string", "maxLength": 128, "description": "Its name, unique among all tasks: a-z, 0-9, '.', '_', '-'. Made up where absent." },
            "title": { "type": "string", "description": "One line for people; the prompt's first line where absent." },
            "needs": {
                "type": "array", "items": { "type": "string" },
                "description": "Ids of tasks that must be completed first: of this list or there already."
            },
            "priority": { "type": "integer", "description": "Its place in the project's queue, lower first; 100 where absent." },
            "estimate": { "type": "integer", "minimum": 1, "description": "How many tokens it will use; learned where absent." },
            "retries": { "type": "integer", "minimum": 0, "description": "How often it is tried again after a failure; 3 where absent." },
            "workspace": { "type": "string", "description": "The workspace that it must run in." },
            "affinity": { "type": "string", "description": "The agent that it waits for." },
            "affinity_wait_s": { "type": "integer", "minimum": 0, "description": "How long it waits for that agent, in seconds." },
        }
    })
}

fn why() -> Tool {
    let tool = tool(
        "why",
        "Why a task stands where it does: one sentence, then the numbers behind it. Of your own project only.",
        &[],
        json!({ "task": { "type": "string", "description": "Its id; the task that you hold where absent." } }),
    );
    tool.with_annotations(ToolAnnotations::new().read_only(true))
}

fn my_share() -> Tool {
    let tool = tool(
        "my_share",
        "How the project of the task that you hold stands: its share of the fleet's tokens against its target, its budget, its queue.",
        &[],
        json!({}),
    );
    tool.with_annotations(ToolAnnotations::new().read_only(true))
}

fn tokens() -> Value {
    json!({
        "type": "integer", "minimum": 0,
        "description": "What this claim used in all so far, in tokens. Only for agents that report their own use; of all others the gateway counts."
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

    /// Arguments with every property of a schema, of a kind that fits.
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
    fn schemas_and_arguments_are_of_one_mind() {
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
