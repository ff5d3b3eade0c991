//! Names of tasks as an MCP client writes them.
//!
//! Names that agents give to tasks begin with the project's name and a colon, because all tenants
//! share the other names. A client may leave out this beginning when it names a new task. It may
//! then use the short name for that task while it works on its current task.

use std::collections::BTreeSet;

use fairgate_api::fleet::NewTask;
use fairgate_api::prompt_fields;

/// Plain names of the tasks that were added while the agent works on one task. The gateway bounds how many open tasks a
/// project can have.
#[derive(Debug, Default)]
pub(super) struct PlainTaskNames(BTreeSet<String>);

impl PlainTaskNames {
    /// Returns the name of a task in the API: a plain name that is known here gets the name of its project.
    pub(super) fn full(&self, project: &str, name: &str) -> String {
        if self.0.contains(name) { full(project, name) } else { name.to_owned() }
    }

    /// Gives new tasks their names in the API, in their ids, needs and prompts. Returns the plain
    /// names, which the caller must remember once the tasks are added.
    pub(super) fn complete(&self, project: &str, tasks: &mut [NewTask]) -> Self {
        let ids = tasks.iter().filter_map(|task| task.id.as_ref());
        let new = Self(ids.filter(|id| !id.contains(':')).cloned().collect());
        let is_plain = |name: &str| self.0.contains(name) || new.0.contains(name);
        for task in tasks {
            for name in task.id.iter_mut().chain(&mut task.needs).filter(|name| is_plain(name)) {
                *name = full(project, name);
            }
            let rename = |name: &str| is_plain(name).then(|| full(project, name));
            task.prompt = prompt_fields::renamed(&task.prompt, rename);
        }
        new
    }

    pub(super) fn remember(&mut self, names: Self) {
        self.0.extend(names.0);
    }
}

fn full(project: &str, name: &str) -> String {
    format!("{project}:{name}")
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    #[test]
    fn plain_names_of_new_tasks_get_their_project_wherever_they_stand() {
        let mut known = PlainTaskNames::default();
        let mut first =
            vec![from_value(json!({"project": "web", "id": "schema", "prompt": "x"})).unwrap()];
        let names = known.complete("web", &mut first);
        assert_eq!(first[0].id.as_deref(), Some("web:schema"));
        assert_eq!(known.full("web", "schema"), "schema", "it is not added yet");
        known.remember(names);
        assert_eq!(known.full("web", "schema"), "web:schema");
        let task = |id: Option<&str>, needs: &[&str]| {
            let prompt = "{{results.schema}} {{results.by-operator}} {{ results.web:own }}";
            from_value(json!({"project": "web", "id": id, "prompt": prompt, "needs": needs}))
                .unwrap()
        };
        let needs = ["schema", "build", "web:own", "by-operator"];
        let mut more: Vec<NewTask> =
            vec![task(Some("build"), &[]), task(Some("web:own"), &[]), task(None, &needs)];
        known.complete("web", &mut more);
        let ids: Vec<_> = more.iter().map(|task| task.id.as_deref()).collect();
        assert_eq!(ids, [Some("web:build"), Some("web:own"), None]);
        assert_eq!(more[2].needs, ["web:schema", "web:build", "web:own", "by-operator"]);
        let prompt = "{{results.web:schema}} {{results.by-operator}} {{ results.web:own }}";
        assert_eq!(more[2].prompt, prompt);
    }
}
