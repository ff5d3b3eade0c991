//! Where secrets come from besides files.

use std::collections::BTreeMap;
use std::env;

/// The variables that `{env: NAME}` can name.
pub trait Environment {
    /// The value of a variable; none where it is not set or is not text.
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

/// For tests, and for whoever holds the variables already.
impl Environment for BTreeMap<String, String> {
    fn variable(&self, name: &str) -> Option<String> {
        self.get(name).cloned()
    }
}
