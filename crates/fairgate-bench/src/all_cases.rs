//! All cases of `bench core` and `bench prefix`.

use crate::cases::{BenchCase, CASES};
use crate::prefix;

/// Finds the case with the given name.
pub(crate) fn find(name: &str) -> Option<&'static BenchCase> {
    CASES.iter().chain(prefix::CASES).find(|case| case.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A case that is not in steady state panics.
    #[test]
    fn every_case_can_be_measured() {
        for case in CASES.iter().chain(prefix::CASES) {
            assert!((case.base.open)().time(2).is_finite(), "{}", case.name);
            assert!(std::ptr::eq(find(case.name).unwrap(), case), "{}", case.name);
        }
    }
}
