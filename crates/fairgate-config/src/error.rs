//! Errors in a configuration, with the lines and columns of the errors.

use std::fmt;
use std::path::PathBuf;

/// Line and column of a text file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FilePosition {
    /// Line number, counted from 1.
    pub line: usize,
    /// Column in characters, counted from 1.
    pub column: usize,
}

impl FilePosition {
    /// Top of the file, which is the position of an error about something that the file lacks as a whole.
    pub const TOP: Self = Self { line: 1, column: 1 };
}

/// One error in a configuration. The error displays as `fairgate.yaml:12:14: pools[0].workers[1]: no upstream is called
/// "vlm-b"; did you mean "vllm-b"?`
///
/// An error never shows a secret, nor text that is given where a secret belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// Path of the file; `None` if the configuration came from no file.
    pub file: Option<PathBuf>,
    /// Position in the file; `None` if the file could not be read.
    pub place: Option<FilePosition>,
    /// Path of the field from the top, such as `pools[1].workers[0]`; empty if the error concerns the whole file.
    pub field: String,
    /// Description of the error and of a valid value.
    pub message: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{}", file.display())?;
            if let Some(FilePosition { line, column }) = self.place {
                write!(f, ":{line}:{column}")?;
            }
            f.write_str(": ")?;
        }
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for ConfigError {}

/// All errors of a configuration, ordered by line. There is at least one; each displays on a line of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors(Vec<ConfigError>);

impl ConfigErrors {
    /// Creates a list of errors, sorted by line. Returns `None` if there are no errors.
    pub(crate) fn new(mut errors: Vec<ConfigError>) -> Option<Self> {
        // The sort is stable: errors at one position stay in the order in which they were found.
        errors.sort_by_key(|error| error.place);
        (!errors.is_empty()).then_some(Self(errors))
    }

    /// Appends the errors of other files to the errors of one file. Returns `None` if there are no errors at all.
    pub(crate) fn with_other_files(
        here: Vec<ConfigError>,
        mut elsewhere: Vec<ConfigError>,
    ) -> Option<Self> {
        elsewhere.sort_by(|a, b| (&a.file, a.place).cmp(&(&b.file, b.place)));
        let mut errors = Self::new(here).map_or_else(Vec::new, Self::into_vec);
        errors.extend(elsewhere);
        (!errors.is_empty()).then_some(Self(errors))
    }

    /// Applies `change` to each error and sorts the results again.
    pub(crate) fn map(self, change: impl Fn(ConfigError) -> ConfigError) -> Self {
        let mut errors: Vec<ConfigError> = self.0.into_iter().map(change).collect();
        errors.sort_by_key(|error| error.place);
        Self(errors)
    }

    /// Iterates over the errors, ordered by line.
    pub fn iter(&self) -> impl Iterator<Item = &ConfigError> {
        self.0.iter()
    }

    /// Returns the errors as a vector, ordered by line.
    pub fn into_vec(self) -> Vec<ConfigError> {
        self.0
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, error) in self.0.iter().enumerate() {
            if i > 0 {
                writeln!(f)?;
            }
            write!(f, "{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}

impl From<ConfigError> for ConfigErrors {
    fn from(error: ConfigError) -> Self {
        Self(vec![error])
    }
}
