//! What can be wrong with a configuration, and where.

use std::fmt;
use std::path::PathBuf;

/// A place in a text file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The line, counted from 1.
    pub line: usize,
    /// The column in characters, counted from 1.
    pub column: usize,
}

impl Place {
    /// The top of a file: the place of what is missing from it as a whole.
    pub const TOP: Self = Self { line: 1, column: 1 };
}

/// One thing that is wrong with a configuration. It displays as
/// `fairgate.yaml:12:14: pools[0].workers[1]: no upstream is called "vlm-b"; did you mean "vllm-b"?`
///
/// It never shows a secret, nor text that stands where a secret should.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The file, where the configuration came from one.
    pub file: Option<PathBuf>,
    /// The place in it; none where the file could not be read at all.
    pub place: Option<Place>,
    /// The field by its path from the top, such as `pools[1].workers[0]`; empty where the file as a whole is wrong.
    pub field: String,
    /// What is wrong with it, and what would be right.
    pub message: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{}", file.display())?;
            if let Some(Place { line, column }) = self.place {
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

/// Everything that is wrong with a configuration, in order of line. There is at least one error; each displays on a
/// line of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors(Vec<ConfigError>);

impl ConfigErrors {
    /// Puts errors in order; nothing where there are none.
    pub(crate) fn new(mut errors: Vec<ConfigError>) -> Option<Self> {
        // A stable sort: errors at one place stay in the order in which they were found.
        errors.sort_by_key(|error| error.place);
        (!errors.is_empty()).then_some(Self(errors))
    }

    /// Adds what is wrong in other files, after all of this one.
    pub(crate) fn with_elsewhere(
        here: Vec<ConfigError>,
        mut elsewhere: Vec<ConfigError>,
    ) -> Option<Self> {
        elsewhere.sort_by(|a, b| (&a.file, a.place).cmp(&(&b.file, b.place)));
        let mut errors = Self::new(here).map_or_else(Vec::new, Self::into_vec);
        errors.extend(elsewhere);
        (!errors.is_empty()).then_some(Self(errors))
    }

    /// The same with each error made another, in order again.
    pub(crate) fn map(self, change: impl Fn(ConfigError) -> ConfigError) -> Self {
        let mut errors: Vec<ConfigError> = self.0.into_iter().map(change).collect();
        errors.sort_by_key(|error| error.place);
        Self(errors)
    }

    /// The errors, in order of line.
    pub fn iter(&self) -> impl Iterator<Item = &ConfigError> {
        self.0.iter()
    }

    /// The errors themselves, in order of line.
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
