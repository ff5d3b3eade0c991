//! Fields of a prompt that stand for the results of other tasks, such as `{{results.schema}}`.

/// Part of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromptPart<'a> {
    /// Text that stays as it is.
    Text(&'a str),
    /// Field for the result of a task.
    Result {
        /// Name of the task.
        task: &'a str,
        /// The whole field as it is in the prompt, with its braces.
        field: &'a str,
    },
}

/// Divides a prompt into text and fields. All parts together are the prompt; a text may be empty.
pub fn parts(prompt: &str) -> Vec<PromptPart<'_>> {
    let mut parts = Vec::new();
    let (mut text_start, mut from) = (0, 0);
    while let Some(found) = prompt[from..].find("{{") {
        let start = from + found;
        match field_at(&prompt[start..]) {
            Some((task, length)) => {
                parts.push(PromptPart::Text(&prompt[text_start..start]));
                let field = &prompt[start..start + length];
                parts.push(PromptPart::Result { task, field });
                text_start = start + length;
                from = text_start;
            }
            None => from = start + 1,
        }
    }
    parts.push(PromptPart::Text(&prompt[text_start..]));
    parts
}

/// Returns the task's name and the length of the field at the start of this text; `None` if the
/// text does not start with a field.
fn field_at(text: &str) -> Option<(&str, usize)> {
    let inside = text.strip_prefix("{{")?.trim_start_matches(' ').strip_prefix("results.")?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | ':');
    let end = inside.find(|c| !is_name(c)).unwrap_or(inside.len());
    let (task, rest) = inside.split_at(end);
    let rest = rest.trim_start_matches(' ').strip_prefix("}}")?;
    (!task.is_empty()).then_some((task, text.len() - rest.len()))
}

/// Returns the names of the tasks in the fields of a prompt, in order, with repetitions.
pub fn tasks(prompt: &str) -> Vec<&str> {
    let task = |part| match part {
        PromptPart::Result { task, .. } => Some(task),
        PromptPart::Text(_) => None,
    };
    parts(prompt).into_iter().filter_map(task).collect()
}

/// Returns the prompt with the tasks in its fields renamed. A field for which `rename` returns
/// `None` is not changed.
pub fn renamed(prompt: &str, rename: impl Fn(&str) -> Option<String>) -> String {
    let text = |part| match part {
        PromptPart::Text(text) => text.to_owned(),
        PromptPart::Result { task, field } => {
            rename(task).map_or_else(|| field.to_owned(), |name| format!("{{{{results.{name}}}}}"))
        }
    };
    parts(prompt).into_iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_and_other_braces_are_text() {
        for (prompt, named) in [
            ("a {{results.x}} b {{ results.y-1.z_2 }}", vec!["x", "y-1.z_2"]),
            ("{{results.x}}{{results.x}}", vec!["x", "x"]),
            ("{{{results.x}}}", vec!["x"]),
            ("{{results.}} {{results.a b}} {{result.x}} {{ x }} {{results.x} }", vec![]),
            ("{{results.x", vec![]),
            ("{{", vec![]),
            ("ä{{{{results.ä}}", vec![]),
        ] {
            assert_eq!(tasks(prompt), named, "{prompt}");
        }
    }

    #[test]
    fn fields_get_other_names_and_the_rest_stays() {
        let rename = |task: &str| (task == "x").then(|| "web:x".to_owned());
        assert_eq!(
            renamed("a {{ results.x }} {{results.y}} {{{results.x}}} x", rename),
            "a {{results.web:x}} {{results.y}} {{{results.web:x}}} x"
        );
    }
}
