//! Any other YAML file: its values as JSON, and the place of each of them, so that whoever checks them can say where an error
//! is.

use std::path::{Path, PathBuf};

use crate::error::{ConfigError, ConfigErrors};
use crate::json::write_json;
use crate::yaml::{Flaw, Node, parse_within};

/// How many values a document may have, what aliases repeat counted each time.
const VALUES_MAX: usize = 1_000_000;

/// A YAML document that remembers its lines.
///
/// ```
/// use std::path::Path;
///
/// use fairgate_config::Document;
///
/// let document = Document::parse("- id: a\n  needs: [b]\n", Path::new("tasks.yaml"), "no tasks")?;
/// assert_eq!(document.json(), r#"[{"id":"a","needs":["b"]}]"#);
/// let error = document.error("[0].needs[0]", "there is no task \"b\"");
/// assert_eq!(error.to_string(), "tasks.yaml:2:11: [0].needs[0]: there is no task \"b\"");
/// # Ok::<(), fairgate_config::ConfigErrors>(())
/// ```
#[derive(Debug)]
pub struct Document {
    file: PathBuf,
    root: Node,
}

impl Document {
    /// Reads a text that is, or could be, in the file `file`. `empty` is what is said of a text with nothing in it.
    pub fn parse(text: &str, file: &Path, empty: &str) -> Result<Self, ConfigErrors> {
        let located = |flaw: Flaw| ConfigError {
            file: Some(file.to_owned()),
            place: Some(flaw.place),
            field: flaw.field,
            message: flaw.message,
        };
        let mut flaws = Vec::new();
        let root = parse_within(VALUES_MAX, text, empty, &mut flaws).map_err(located)?;
        match ConfigErrors::new(flaws.into_iter().map(located).collect()) {
            Some(errors) => Err(errors),
            None => Ok(Self { file: file.to_owned(), root }),
        }
    }

    /// Its values as JSON. Numbers keep their digits; what is in quotes is text.
    pub fn json(&self) -> String {
        let mut json = String::new();
        write_json(&self.root, &mut json);
        json
    }

    /// An error at a field, such as `[3].needs[0]`: at its place, or as near to it as there is something.
    pub fn error(&self, field: &str, message: impl Into<String>) -> ConfigError {
        let place = self.root.locate(field).unwrap_or(self.root.place);
        ConfigError {
            file: Some(self.file.clone()),
            place: Some(place),
            field: field.to_owned(),
            message: message.into(),
        }
    }
}
