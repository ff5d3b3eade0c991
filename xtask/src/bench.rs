//! `cargo xtask bench core`, `bench prefix`, `bench gateway`, `bench instructions`, `bench router`,
//! `bench fleet`, `bench store` and `bench watcher` run the benchmarks in the crate
//! `fairgate-bench`. `cargo xtask bench python` runs the benchmarks of the Python package.

use std::path::Path;

use crate::step::XtaskStep;
use crate::{PROFILE_OF_PACKAGES, XtaskError, cargo, gateway, python};

/// Returns the steps of one benchmark. The arguments `args` are passed on to the benchmark. `core`
/// and `prefix` also count instructions if valgrind is installed.
pub(crate) fn steps(root: &Path, what: &str, args: &[&str]) -> Result<Vec<XtaskStep>, XtaskError> {
    match what {
        "core" | "prefix" => {}
        "router" => return gateway::router_steps(root, args),
        "gateway" => return gateway::bench_steps(root, args),
        "instructions" => return Ok(gateway::instructions_steps(root, args)),
        "fleet" | "store" => return gateway::database_steps(root, what, args),
        "python" => return python::bench_steps(root, args),
        "watcher" => return Ok(gateway::watcher_steps(root, args)),
        _ => {
            let there_are = "there are `core`, `prefix`, `gateway`, `instructions`, `router`, `fleet`, `store`, `watcher` and `python`";
            return Err(XtaskError(format!("no such benchmark: `{what}`; {there_are}")));
        }
    }
    let run = ["run", "--profile", PROFILE_OF_PACKAGES, "-p", "fairgate-bench", "--", what];
    // Callgrind finds the timed function by its name, which a packaged binary does not have.
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
