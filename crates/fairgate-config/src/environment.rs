//! Environment variables as a source of secrets, besides files.

use std::collections::BTreeMap;
use std::env;

/// Variables that `{env: NAME}` can refer to.
pub trait Environment {
    /// Returns the value of a variable; `None` if it is not set or not valid UTF-8.
    fn variable(&self, name: &str) -> Option<String>;
}

/// The environment of this process.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessEnvironment;

impl Environment for ProcessEnvironment {
    fn variable(&self, name: &str) -> Option<String> {
        env::var(name).ok()
    }
}

/// Takes variables from a map, for tests and for callers that already have the values.
impl Environment for BTreeMap<String, String> {
    fn variable(&self, name: &str) -> Option<String> {
        self.get(name).cloned()
    }
}
