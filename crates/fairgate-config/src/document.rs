//! YAML files other than the configuration. A document has the values as JSON and the line of each value, so that
//! errors of later checks can point at the line.

use std::path::{Path, PathBuf};

use crate::error::{ConfigError, ConfigErrors};
use crate::json::write_json;
use crate::yaml::{FieldError, YamlNode, parse_within};

/// Largest number of values in a document. Values that aliases repeat count each time.
const VALUES_MAX: usize = 1_000_000;

/// A YAML document that remembers its line numbers.
///
/// ```
/// use std::path::Path;
///
/// use fairgate_config::YamlDocument;
///
/// let document = YamlDocument::parse("- id: a\n  needs: [b]\n", Path::new("tasks.yaml"), "no tasks")?;
/// assert_eq!(document.json(), r#"[{"id":"a","needs":["b"]}]"#);
/// let error = document.error("[0].needs[0]", "there is no task \"b\"");
/// assert_eq!(error.to_string(), "tasks.yaml:2:11: [0].needs[0]: there is no task \"b\"");
/// # Ok::<(), fairgate_config::ConfigErrors>(())
/// ```
#[derive(Debug)]
pub struct YamlDocument {
    file: PathBuf,
    root: YamlNode,
}

impl YamlDocument {
    /// Parses a text. `file` is the path that errors show; it need not exist. `empty` is the error message for an empty
    /// text.
    pub fn parse(text: &str, file: &Path, empty: &str) -> Result<Self, ConfigErrors> {
        let located = |flaw: FieldError| ConfigError {
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

    /// Returns the values as JSON. Numbers keep their digits; quoted values are strings.
    pub fn json(&self) -> String {
        let mut json = String::new();
        write_json(&self.root, &mut json);
        json
    }

    /// Builds an error at a field such as `[3].needs[0]`. Points at the field's line and column, or at its nearest
    /// existing parent.
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
