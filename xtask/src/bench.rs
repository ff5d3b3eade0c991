//! `cargo xtask bench core`, `bench prefix`, `bench gateway`, `bench router` and `bench fleet`: the benchmarks, which live in the crate `fairgate-bench`;
//! `bench python`: those of the Python package.

use std::path::Path;

use crate::step::Step;
use crate::{PROFILE_OF_PACKAGES, Refusal, cargo, gateway, python};

/// What follows `core` or `prefix` goes to the benchmarks as it is. They count instructions too where valgrind is there, and
/// do without where it is not.
pub(crate) fn steps(root: &Path, what: &str, args: &[&str]) -> Result<Vec<Step>, Refusal> {
    match what {
        "core" | "prefix" => {}
        "router" => return gateway::router_steps(root, args),
        "gateway" => return gateway::bench_steps(root, args),
        "fleet" => return gateway::fleet_steps(root, args),
        "python" => return python::bench_steps(root, args),
        _ => {
            let there_are = "there are `core`, `prefix`, `gateway`, `router`, `fleet` and `python`";
            return Err(Refusal(format!("no such benchmark: `{what}`; {there_are}")));
        }
    }
    let run = ["run", "--profile", PROFILE_OF_PACKAGES, "-p", "fairgate-bench", "--", what];
    // Callgrind finds the timed function by its name, which a packaged binary has not.
    let bench = cargo(&format!("bench {what}"), &[&run, args].concat());
    Ok(vec![bench.env("CARGO_PROFILE_DIST_STRIP", "none")])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_there_is_run() {
        let root = Path::new(".");
        for what in ["core", "prefix"] {
            assert_eq!(steps(root, what, &["--markdown"]).map(|steps| steps.len()).ok(), Some(1));
        }
        assert!(steps(root, "edge", &[]).is_err());
    }
}
