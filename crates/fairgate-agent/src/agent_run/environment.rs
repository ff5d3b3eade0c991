//! Builds the environment of a command.

use std::path::Path;

use fairgate_api::agents::Claim;

/// Longest text that is put into a variable, in bytes. Linux accepts at most 128 KiB for a variable, its name included.
const VARIABLE_BYTES_MAX: usize = 64 << 10;

/// Environment variables that a command does not get, because it acts for one task and not for the agent or a person.
pub(super) const WITHHELD: [&str; 5] = [
    "FAIRGATE_AGENT_TOKEN",
    "FAIRGATE_ADMIN_TOKEN",
    "FAIRGATE_ADMIN_TOKEN_FILE",
    // Left over from an outer task if agents run inside agents.
    "FAIRGATE_TOKENS_FILE",
    "FAIRGATE_RESULTS_DIR",
];

/// Files that exist for one claim.
pub(super) struct ClaimFiles<'a> {
    /// File with the prompt.
    pub(super) prompt: &'a Path,
    /// File into which the command may write its result.
    pub(super) result: &'a Path,
    /// Folder with the results of the tasks that the task needs, each in a file with the name of its task; `None` if there
    /// are none.
    pub(super) results: Option<&'a Path>,
    /// File into which a command that does not call through the gateway may write its token usage.
    pub(super) tokens: &'a Path,
}

/// Returns the prompt, followed by the earlier question and its answer if there is one.
pub(super) fn prompt(claim: &Claim) -> String {
    let Some(answer) = &claim.answer else { return claim.prompt.clone() };
    let prompt = claim.prompt.trim_end();
    match &claim.question {
        Some(question) => format!("{prompt}\n\nYou asked: {question}\nThe answer: {answer}\n"),
        None => format!("{prompt}\n\nThe answer to your question: {answer}\n"),
    }
}

/// Returns the environment variables of a claim's command. A text that is too long for a variable is left out, because
/// the claim's files have it.
pub(super) fn variables(
    claim: &Claim,
    files: &ClaimFiles<'_>,
    agent: &str,
    base_url: &str,
) -> Vec<(&'static str, String)> {
    let path = |path: &Path| path.display().to_string();
    let mut variables = vec![
        ("FAIRGATE_URL", base_url.to_owned()),
        ("FAIRGATE_AGENT", agent.to_owned()),
        ("FAIRGATE_TASK", claim.task.clone()),
        ("FAIRGATE_PROJECT", claim.project.clone()),
        ("FAIRGATE_EPOCH", claim.epoch.to_string()),
        ("FAIRGATE_TITLE", claim.title.clone()),
        ("FAIRGATE_PROMPT", prompt(claim)),
        ("FAIRGATE_PROMPT_FILE", path(files.prompt)),
        ("FAIRGATE_RESULT_FILE", path(files.result)),
    ];
    variables.extend(files.results.map(|folder| ("FAIRGATE_RESULTS_DIR", path(folder))));
    let mut where_given = |name, text: &Option<String>| {
        variables.extend(text.iter().map(|text| (name, text.clone())));
    };
    where_given("FAIRGATE_QUESTION", &claim.question);
    where_given("FAIRGATE_ANSWER", &claim.answer);
    where_given("FAIRGATE_WORKSPACE", &claim.workspace);
    match &claim.key {
        Some(key) => variables.extend(keys(key, base_url)),
        None => variables.push(("FAIRGATE_TOKENS_FILE", path(files.tokens))),
    }
    variables.retain(|(_, text)| text.len() <= VARIABLE_BYTES_MAX && !text.contains('\0'));
    variables
}

/// Returns the variables with the address and the key that the usual clients of OpenAI and Anthropic read.
fn keys(key: &str, base_url: &str) -> [(&'static str, String); 6] {
    [
        ("FAIRGATE_KEY", key.to_owned()),
        ("OPENAI_BASE_URL", format!("{base_url}/v1")),
        ("OPENAI_API_KEY", key.to_owned()),
        ("ANTHROPIC_BASE_URL", base_url.to_owned()),
        ("ANTHROPIC_API_KEY", key.to_owned()),
        ("ANTHROPIC_AUTH_TOKEN", key.to_owned()),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use fairgate_time::UnixMicros;

    use super::*;

    fn claim() -> Claim {
        Claim {
            task: "t-1".into(),
            project: "p".into(),
            tenant: "acme".into(),
            epoch: 3,
            title: "a title".into(),
            prompt: "do it\n".into(),
            results: Vec::new(),
            question: None,
            answer: None,
            workspace: None,
            workspace_path: None,
            reserved: 10,
            key: Some("fgt-secret".into()),
            lease_until: UnixMicros(0),
            heartbeat_s: 20,
            timeout_s: None,
            timeout_at: None,
        }
    }

    fn variables_of(claim: &Claim) -> BTreeMap<&'static str, String> {
        let (prompt, result, tokens) = (Path::new("/f/p"), Path::new("/f/r"), Path::new("/f/t"));
        let files = ClaimFiles { prompt, result, results: None, tokens };
        variables(claim, &files, "a-1", "http://h:1").into_iter().collect()
    }

    #[test]
    fn a_command_knows_its_task_and_how_to_call_models() {
        let variables = variables_of(&claim());
        assert_eq!(variables["FAIRGATE_PROMPT"], "do it\n");
        assert_eq!(variables["FAIRGATE_EPOCH"], "3");
        assert_eq!(variables["FAIRGATE_AGENT"], "a-1");
        assert_eq!(variables["OPENAI_BASE_URL"], "http://h:1/v1");
        assert_eq!(variables["ANTHROPIC_BASE_URL"], "http://h:1");
        for name in ["OPENAI_API_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "FAIRGATE_KEY"]
        {
            assert_eq!(variables[name], "fgt-secret");
        }
        assert!(!variables.contains_key("FAIRGATE_ANSWER"));
        assert!(!variables.contains_key("FAIRGATE_TOKENS_FILE"), "the gateway counts");
    }

    #[test]
    fn one_that_reports_keeps_its_own_keys() {
        let variables = variables_of(&Claim { key: None, ..claim() });
        assert!(!variables.contains_key("OPENAI_API_KEY"));
        assert_eq!(variables["FAIRGATE_TOKENS_FILE"], "/f/t");
    }

    #[test]
    fn an_answer_is_part_of_what_to_do() {
        let (question, answer) = (Some("red?".to_owned()), Some("blue".to_owned()));
        let claim = Claim { question, answer, ..claim() };
        let variables = variables_of(&claim);
        assert_eq!(variables["FAIRGATE_ANSWER"], "blue");
        assert_eq!(variables["FAIRGATE_PROMPT"], "do it\n\nYou asked: red?\nThe answer: blue\n");
    }

    #[test]
    fn what_no_variable_can_hold_is_left_to_the_files() {
        let large = Claim { prompt: "x".repeat(VARIABLE_BYTES_MAX + 1), ..claim() };
        assert!(!variables_of(&large).contains_key("FAIRGATE_PROMPT"));
        let nul = Claim { prompt: "a\0b".into(), title: "\0".into(), ..claim() };
        let variables = variables_of(&nul);
        assert!(
            !variables.contains_key("FAIRGATE_PROMPT") && !variables.contains_key("FAIRGATE_TITLE")
        );
        assert_eq!(variables["FAIRGATE_PROMPT_FILE"], "/f/p");
    }
}
