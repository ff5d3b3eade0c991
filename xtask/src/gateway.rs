//! The chores of the gateway: the tests with SDKs and real servers, the benchmarks, and the soak.

use std::path::{Path, PathBuf};

use crate::node::node_modules;
use crate::python::{self, Venv, target};
use crate::step::XtaskStep;
use crate::{FEATURES_OF_PACKAGES, PROFILE_OF_PACKAGES, XtaskError, cargo, tools};

/// Folder of the tests with real servers written by others, and of the sources of those servers.
const BACKENDS: &str = "tests/backends";

/// `cargo xtask test sdk`: builds the binaries, then runs [`sdk_steps`].
pub(crate) fn sdk_steps_alone(root: &Path) -> Result<Vec<XtaskStep>, XtaskError> {
    let mut steps =
        vec![cargo("fairgate for the SDKs", &["build", "-p", "fairgate", "-p", "fairgate-sim"])];
    steps.extend(sdk_steps(root)?);
    Ok(steps)
}

/// Returns the steps that run the official SDKs, and schemathesis on the admin API, against
/// `fairgate serve`. The gateway's binary must have been built, for example by
/// `cargo test --workspace`.
pub(crate) fn sdk_steps(root: &Path) -> Result<Vec<XtaskStep>, XtaskError> {
    let mut venv = python::venv(root, "sdk-tests", "tests/sdk/requirements.txt")?;
    let mut node = node_modules(root, "sdk-tests", "tests/sdk")?;
    let mut steps = venv.take_steps();
    steps.append(&mut node.steps);
    let binary = target(root).join("debug/fairgate");
    let pytest = ["-m", "pytest", "--quiet", "-p", "no:cacheprovider", "tests/sdk"];
    let pytest = [&pytest[..], &python::PYTEST_WORKERS].concat();
    steps.push(
        venv.step("SDKs and schemathesis", "python", &pytest)
            .env("FAIRGATE_BIN", &binary.to_string_lossy())
            .env("FAIRGATE_NODE_MODULES", &node.modules.to_string_lossy())
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .with_second_run(),
    );
    Ok(steps)
}

/// `cargo xtask test backends`: builds the binary, then runs [`backend_steps`].
pub(crate) fn backend_steps_alone(root: &Path) -> Result<Vec<XtaskStep>, XtaskError> {
    let mut steps = vec![cargo("fairgate for backends", &["build", "-p", "fairgate"])];
    steps.extend(backend_steps(root)?);
    Ok(steps)
}

/// Returns the steps that test `fairgate serve` in front of real servers written by others:
/// llama.cpp's own server, and an application on uvicorn.
pub(crate) fn backend_steps(root: &Path) -> Result<Vec<XtaskStep>, XtaskError> {
    let mut venv = backend_venv(root)?;
    let mut steps = venv.take_steps();
    let binary = target(root).join("debug/fairgate");
    let pytest = ["-m", "pytest", "--quiet", "-p", "no:cacheprovider", BACKENDS];
    steps.push(
        venv.step("real backends", "python", &pytest)
            .env("FAIRGATE_BIN", &binary.to_string_lossy())
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .with_second_run(),
    );
    Ok(steps)
}

/// Returns the virtual environment with the packages that the real servers need.
fn backend_venv(root: &Path) -> Result<Venv, XtaskError> {
    python::venv(root, "backend-tests", "tests/backends/requirements.txt")
}

/// `cargo xtask bench gateway`: builds and runs the benchmark, and passes `args` on to it.
pub(crate) fn bench_steps(root: &Path, args: &[&str]) -> Result<Vec<XtaskStep>, XtaskError> {
    let mut steps = tools::need_debian("wrk", "wrk");
    steps.extend(need_nginx());
    steps.extend(need_oha());
    let mut litellm = python::venv(root, "litellm", "tests/peers/requirements.txt")?;
    steps.extend(litellm.take_steps());
    let mut portkey = node_modules(root, "portkey", "tests/peers")?;
    steps.append(&mut portkey.steps);
    steps.extend(build_measured());
    let script = portkey.modules.join("@portkey-ai/gateway/build/start-server.js");
    steps.push(measured(root, "gateway", args, Some((&litellm, &script))));
    Ok(steps)
}

/// `cargo xtask bench watcher`: builds and runs the benchmark, and passes `args` on to it.
pub(crate) fn watcher_steps(root: &Path, args: &[&str]) -> Vec<XtaskStep> {
    let mut steps = need_oha();
    steps.extend(build_measured());
    steps.push(measured(root, "watcher", args, None));
    steps
}

/// Returns the steps that install oha, a load generator, if it is missing.
fn need_oha() -> Vec<XtaskStep> {
    if tools::has("oha") {
        return Vec::new();
    }
    let mut steps = tools::need_debian("pkg-config", "pkg-config");
    steps.extend(tools::install_debian("libssl-dev"));
    // oha's default TLS would build a C library for minutes; only plain HTTP is needed.
    let tls = ["--no-default-features", "--features", "native-tls"];
    let install = [&["install", "--locked", "oha"], &tls[..]].concat();
    steps.push(cargo("install oha", &install));
    steps
}

/// `cargo xtask bench instructions`: installs valgrind if it is missing, builds and runs the
/// benchmark, and passes `args` on to it. The programs are built as packaged, but with symbols and
/// line tables, from which callgrind learns whose instructions it counts.
pub(crate) fn instructions_steps(root: &Path, args: &[&str]) -> Vec<XtaskStep> {
    let mut steps = tools::need_debian("valgrind", "valgrind");
    let readable =
        [("CARGO_PROFILE_DIST_STRIP", "none"), ("CARGO_PROFILE_DIST_DEBUG", "line-tables-only")];
    let with_symbols =
        |step| readable.iter().fold(step, |step: XtaskStep, (name, value)| step.env(name, value));
    steps.extend(build_measured().into_iter().map(with_symbols));
    let proxy = target(root).join(PROFILE_OF_PACKAGES).join("fairgate-bare-proxy");
    let proxy = proxy.display().to_string();
    steps.push(measured(root, "instructions", &[&["--proxy", &proxy], args].concat(), None));
    steps
}

/// `cargo xtask bench router`: builds and runs the benchmark, and passes `args` on to it. The trace
/// is in the folder that the variable `FAIRGATE_SHARED` names, by default `../shared`; without the
/// trace only the agents' workload is measured. With `--rules-only`, only the benchmark is built,
/// and the other routers are not installed.
pub(crate) fn router_steps(root: &Path, args: &[&str]) -> Result<Vec<XtaskStep>, XtaskError> {
    let program = |name: &str| target(root).join(PROFILE_OF_PACKAGES).join(name);
    let (fairgate, bench) = (program("fairgate"), program("fairgate-bench"));
    let (fairgate, bench) = (fairgate.display().to_string(), bench.display().to_string());
    let shared = std::env::var_os("FAIRGATE_SHARED").map_or(root.join("../shared"), PathBuf::from);
    let trace = shared.join("data/mooncake_conversation.jsonl.gz");
    let (there, trace) = (trace.is_file(), trace.display().to_string());
    let trace: &[&str] = if there { &["--trace", &trace] } else { &[] };
    if args.contains(&"--rules-only") {
        let build = ["build", "--profile", PROFILE_OF_PACKAGES, "-p", "fairgate-bench"];
        let words = [&["router", "--fairgate", &fairgate], trace, args].concat();
        return Ok(vec![
            cargo("build as packaged", &build),
            XtaskStep::new("router", &bench, &words),
        ]);
    }
    let mut steps = need_nginx();
    let mut sglang = python::venv(root, "sglang-router", "tests/peers/sglang-router.txt")?;
    let mut vllm = python::venv(root, "vllm-router", "tests/peers/vllm-router.txt")?;
    steps.extend(sglang.take_steps());
    steps.extend(vllm.take_steps());
    steps.extend(build_measured());
    let (sglang, vllm) = (sglang.program("python"), vllm.program("vllm-router"));
    let programs =
        ["router", "--fairgate", &fairgate, "--sglang-python", &sglang, "--vllm-router", &vllm];
    steps.push(XtaskStep::new("router", &bench, &[&programs, trace, args].concat()));
    Ok(steps)
}

/// `cargo xtask bench fleet` and `bench store`: installs PostgreSQL's server if it is missing, builds
/// and runs the benchmark, and passes `args` on to it.
pub(crate) fn database_steps(
    root: &Path,
    what: &str,
    args: &[&str],
) -> Result<Vec<XtaskStep>, XtaskError> {
    let mut steps = tools::need_postgresql();
    steps.extend(build_measured());
    let bench = target(root).join(PROFILE_OF_PACKAGES).join("fairgate-bench").display().to_string();
    steps.push(XtaskStep::new(what, &bench, &[&[what], args].concat()));
    Ok(steps)
}

/// `cargo xtask soak`: runs the soak for ten minutes, with real servers written by others. Passes
/// `args` on to it. With `--attackers` there are no real servers: what their bugs cost would be
/// counted as the attackers' doing.
pub(crate) fn soak_steps(root: &Path, args: &[&str]) -> Result<Vec<XtaskStep>, XtaskError> {
    let mut steps = tools::need_postgresql();
    if args.contains(&"--attackers") {
        steps.extend(build_measured());
        steps.push(measured(root, "soak", args, None));
        return Ok(steps);
    }
    let mut venv = backend_venv(root)?;
    steps.extend(venv.take_steps());
    steps.extend(build_measured());
    let python = venv.program("python");
    let real_servers = ["--backends", BACKENDS, "--python", &python];
    steps.push(measured(root, "soak", &[&real_servers, args].concat(), None));
    Ok(steps)
}

/// Returns the steps that run both soaks for one minute, with the programs that
/// `cargo test --workspace` has built. The real servers take no part; they have their own test.
pub(crate) fn short_soak_steps(root: &Path) -> Vec<XtaskStep> {
    let program = |name: &str| target(root).join("debug").join(name).display().to_string();
    let (fairgate, sim) = (program("fairgate"), program("fairgate-sim"));
    let args = ["soak", "--seconds", "60", "--fairgate", &fairgate, "--sim", &sim];
    let bench = program("fairgate-bench");
    vec![
        XtaskStep::new("soak of 60 s", &bench, &args),
        XtaskStep::new(
            "soak of 60 s with attackers",
            &bench,
            &[&args[..], &["--attackers"]].concat(),
        ),
    ]
}

/// `cargo xtask test soak`: builds the programs, then runs [`short_soak_steps`].
pub(crate) fn short_soak_steps_alone(root: &Path) -> Vec<XtaskStep> {
    let mut steps = tools::need_postgresql();
    let programs = ["build", "-p", "fairgate", "-p", "fairgate-sim", "-p", "fairgate-bench"];
    steps.push(cargo("programs for the soak", &programs));
    steps.extend(short_soak_steps(root));
    steps
}

/// Returns the steps that install nginx, if it is missing. On Debian its folder is not in the
/// `PATH` of all users.
fn need_nginx() -> Vec<XtaskStep> {
    let installed = Path::new("/usr/sbin/nginx").exists();
    if installed { Vec::new() } else { tools::need_debian("nginx", "nginx-light") }
}

fn build_measured() -> Vec<XtaskStep> {
    let programs = ["-p", "fairgate", "-p", "fairgate-sim", "-p", "fairgate-bench"];
    let build = ["build", "--profile", PROFILE_OF_PACKAGES, "--features", FEATURES_OF_PACKAGES];
    let mut steps = tools::need_debian("make", "make");
    steps.push(cargo("build as packaged", &[&build, &programs[..]].concat()));
    steps
}

fn measured(root: &Path, what: &str, args: &[&str], peers: Option<(&Venv, &Path)>) -> XtaskStep {
    let program =
        |name: &str| target(root).join(PROFILE_OF_PACKAGES).join(name).display().to_string();
    let (fairgate, sim) = (program("fairgate"), program("fairgate-sim"));
    let mut words = vec![what.to_owned(), "--fairgate".into(), fairgate, "--sim".into(), sim];
    if let Some((litellm, portkey)) = peers {
        words.extend(["--litellm".into(), litellm.program("litellm")]);
        words.extend(["--portkey".into(), portkey.display().to_string()]);
    }
    words.extend(args.iter().map(|&arg| arg.to_owned()));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    XtaskStep::new(what, &program("fairgate-bench"), &words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_router_is_measured_after_it_is_built() {
        let root =
            Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is in the workspace");
        assert!(router_steps(root, &["--seconds", "5"]).is_ok_and(|steps| steps.len() >= 2));
        let rules = router_steps(root, &["--rules-only", "--markdown"]);
        assert_eq!(rules.map(|steps| steps.len()).ok(), Some(2), "no router of others is needed");
    }

    #[test]
    fn instructions_are_counted_in_programs_with_symbols() {
        let root =
            Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is in the workspace");
        let steps = format!("{:?}", instructions_steps(root, &["--details"]));
        assert!(
            steps.contains("CARGO_PROFILE_DIST_STRIP") && steps.contains("--details"),
            "{steps}"
        );
    }

    #[test]
    fn the_soak_is_built_before_it_is_run() {
        let root =
            Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is in the workspace");
        assert!(soak_steps(root, &["--seed", "7"]).is_ok_and(|steps| steps.len() >= 2));
        assert!(short_soak_steps_alone(root).len() >= 2);
        assert_eq!(short_soak_steps(root).len(), 2, "the tests have built what they need");
    }
}
