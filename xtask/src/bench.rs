//! `cargo xtask bench core`: the benchmarks, which live in the crate `fairgate-bench`.

use crate::step::Step;
use crate::{Refusal, cargo};

/// What follows `core` goes to the benchmarks as it is. They count instructions too where valgrind is there, and
/// do without where it is not.
pub(crate) fn steps(what: &str, args: &[&str]) -> Result<Vec<Step>, Refusal> {
    if what != "core" {
        return Err(Refusal(format!("no such benchmark: `{what}`; there is `core`")));
    }
    let run = ["run", "--release", "-p", "fairgate-bench", "--", "core"];
    Ok(vec![cargo("bench core", &[&run, args].concat())])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_there_is_run() {
        assert_eq!(steps("core", &["--markdown"]).map(|steps| steps.len()).ok(), Some(1));
        assert!(steps("edge", &[]).is_err());
    }
}
