//! Reads a file of tasks, in YAML. Errors name the line and the field.

use std::path::Path;

use anyhow::Result;
use fairgate_api::fleet::NewTask;
use fairgate_config::{ConfigError, YamlDocument};
use fairgate_store::UnixMicros;
use serde_json::{Value, json};

use super::ahead;

/// A file of tasks, which is a list of tasks or a mapping with `project` and `tasks`.
#[derive(Debug)]
pub(super) struct TasksFile {
    document: YamlDocument,
    /// Project of the tasks that name none.
    project: Option<String>,
    tasks: Vec<Value>,
    /// Path of the list in the file: `tasks`, or empty if the file itself is the list.
    at: &'static str,
}

impl TasksFile {
    pub(super) fn parse(text: &str, file: &Path) -> Result<Self> {
        let empty =
            "is empty: a file of tasks is a list of tasks, or a mapping with project and tasks";
        let document = YamlDocument::parse(text, file, empty)?;
        let mut project = None;
        let (at, list) = match serde_json::from_str(&document.json())? {
            Value::Object(mut fields) => {
                let tasks = fields.remove("tasks");
                match fields.remove("project") {
                    None => {}
                    Some(Value::String(name)) => project = Some(name),
                    Some(_) => {
                        return Err(document.error("project", "must be a project's name").into());
                    }
                }
                if let Some(name) = fields.keys().next() {
                    return Err(document.error(name, "unknown; known here: project, tasks").into());
                }
                ("tasks", tasks.unwrap_or_default())
            }
            list => ("", list),
        };
        match list {
            Value::Array(tasks) => Ok(Self { document, project, tasks, at }),
            _ => Err(document.error(at, "must be a list of tasks").into()),
        }
    }

    /// Returns the tasks. A task that names no project belongs to the file's project, or else to `project`.
    pub(super) fn tasks(&self, project: Option<&str>, now: UnixMicros) -> Result<Vec<NewTask>> {
        let project = self.project.as_deref().or(project);
        let tasks = self.tasks.iter().enumerate().map(|(i, task)| {
            self.task(task.clone(), project, now)
                .map_err(|(field, message)| self.document.error(&self.path(i, &field), message))
        });
        Ok(tasks.collect::<Result<_, ConfigError>>()?)
    }

    /// Returns the gateway's error about a field, such as `tasks[3].needs[0]`, with the field's line in this file;
    /// `None` if the file does not have the field.
    pub(super) fn located(&self, field: &str, message: &str) -> Option<ConfigError> {
        let below = field.strip_prefix("tasks").filter(|below| below.starts_with('['))?;
        // The gateway's message begins with the field, which the error's position repeats.
        let own = message.strip_prefix(field).and_then(|rest| rest.strip_prefix(": "));
        let message = own.unwrap_or(message);
        Some(self.document.error(&format!("{}{below}", self.at), message))
    }

    fn path(&self, i: usize, field: &str) -> String {
        let dot = if field.is_empty() || field.starts_with('[') { "" } else { "." };
        format!("{}[{i}]{dot}{field}", self.at)
    }

    /// Parses one task. An error is a pair of the field's name and the message.
    fn task(
        &self,
        mut task: Value,
        project: Option<&str>,
        now: UnixMicros,
    ) -> Result<NewTask, (String, String)> {
        let Some(fields) = task.as_object_mut() else {
            return Err((String::new(), "must be a task: a mapping with at least a prompt".into()));
        };
        match project {
            Some(project) => _ = fields.entry("project").or_insert_with(|| json!(project)),
            None if fields.contains_key("project") => {}
            None => {
                let message = "is missing: name it here, at the top of the file, or with --project";
                return Err(("project".into(), message.into()));
            }
        }
        // A time in the format that people write.
        if let Some(Value::String(text)) = fields.get("resume_after") {
            let moment = ahead(text, now).ok_or_else(|| {
                let message = format!(
                    "must be a moment such as 2026-11-15T08:00:00Z, or how far ahead it is, such as 2h, not {text:?}"
                );
                ("resume_after".to_owned(), message)
            })?;
            fields.insert("resume_after".into(), json!(moment));
        }
        serde_path_to_error::deserialize(task).map_err(|error| {
            let path = error.path().to_string();
            let field = if path == "." { String::new() } else { path };
            (field, error.into_inner().to_string())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<NewTask>, String> {
        let now = UnixMicros(1_000_000);
        let file = TasksFile::parse(text, Path::new("tasks.yaml"));
        file.and_then(|file| file.tasks(None, now)).map_err(|error| error.to_string())
    }

    #[test]
    fn a_list_or_a_mapping_with_a_project() {
        let listed =
            read("- {project: web, prompt: a}\n- {project: api, prompt: b}\n").expect("tasks");
        assert_eq!((&*listed[0].project, &*listed[1].project), ("web", "api"));
        let text = "project: web\ntasks:\n  - id: a\n    prompt: |\n      one\n      two\n  - {project: api, prompt: b, \
                    needs: [a], priority: -5, requires: [docker, 'machine:m1'], resume_after: 2s}\n";
        let tasks = read(text).expect("tasks");
        assert_eq!((&*tasks[0].project, &*tasks[0].prompt), ("web", "one\ntwo\n"));
        assert_eq!((&*tasks[1].project, tasks[1].priority), ("api", Some(-5)));
        assert_eq!(tasks[1].needs, ["a"]);
        assert_eq!(tasks[1].requires, ["docker", "machine:m1"]);
        assert_eq!(tasks[1].resume_after, Some(UnixMicros(3_000_000)));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line_and_field() {
        for (text, expected) in [
            (
                "- prompt: a\n",
                "tasks.yaml:1:3: [0].project: is missing: name it here, at the top of the file, or with --project",
            ),
            (
                "project: p\ntasks:\n  - {promt: a}\n",
                "tasks.yaml:3:6: tasks[0].promt: unknown field `promt`",
            ),
            (
                "project: p\ntasks:\n  - {prompt: a, needs: 5}\n",
                "tasks.yaml:3:17: tasks[0].needs: invalid type: integer `5`",
            ),
            (
                "project: p\ntasks:\n  - {prompt: a}\n  - hello\n",
                "tasks.yaml:4:5: tasks[1]: must be a task",
            ),
            (
                "- {project: p, prompt: a, resume_after: soon}\n",
                "tasks.yaml:1:27: [0].resume_after: must be a moment",
            ),
            ("project: p\ntask: []\n", "tasks.yaml:2:1: task: unknown; known here: project, tasks"),
            ("project: 5\n", "tasks.yaml:1:1: project: must be a project's name"),
            ("hello\n", "tasks.yaml:1:1: must be a list of tasks"),
            ("", "tasks.yaml:1:1: is empty"),
            ("- {prompt: a, prompt: b}\n", "tasks.yaml:1:15: [0].prompt: is given twice"),
        ] {
            let error = read(text).expect_err(text);
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }

    #[test]
    fn what_the_gateway_refuses_is_told_with_its_line() {
        let text = "project: p\ntasks:\n  - prompt: a\n    needs: [b, nothing]\n";
        let file = TasksFile::parse(text, Path::new("tasks.yaml")).expect("a file");
        let located = |field, message| file.located(field, message).map(|error| error.to_string());
        assert_eq!(
            located("tasks[0].needs[1]", "tasks[0].needs[1]: there is no task \"nothing\"")
                .as_deref(),
            Some("tasks.yaml:4:16: tasks[0].needs[1]: there is no task \"nothing\"")
        );
        assert_eq!(located("needs", "needs: these wait for each other"), None);
    }
}
