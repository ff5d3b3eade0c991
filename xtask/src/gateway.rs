//! The chores of the gateway: the SDKs' tests, the benchmark beside its peers, the soak.

use std::path::{Path, PathBuf};

use crate::node::node_modules;
use crate::python::{self, Venv, target};
use crate::step::Step;
use crate::{PROFILE_OF_PACKAGES, Refusal, cargo, tools};

/// The tests of servers that others wrote, and the sources of those servers.
const BACKENDS: &str = "tests/backends";

/// `cargo xtask test sdk`: the same, with the binary built first.
pub(crate) fn sdk_steps_alone(root: &Path) -> Result<Vec<Step>, Refusal> {
    let mut steps =
        vec![cargo("fairgate for the SDKs", &["build", "-p", "fairgate", "-p", "fairgate-sim"])];
    steps.extend(sdk_steps(root)?);
    Ok(steps)
}

/// The official SDKs, and schemathesis on the admin API, against `fairgate serve`; the binary is there, as
/// `cargo test --workspace` leaves it.
pub(crate) fn sdk_steps(root: &Path) -> Result<Vec<Step>, Refusal> {
    let mut venv = python::venv(root, "sdk-tests", "tests/sdk/requirements.txt")?;
    let mut node = node_modules(root, "sdk-tests", "tests/sdk")?;
    let mut steps = venv.take_steps();
    steps.append(&mut node.steps);
    let binary = target(root).join("debug/fairgate");
    let pytest = ["-m", "pytest", "--quiet", "-p", "no:cacheprovider", "tests/sdk"];
    steps.push(
        venv.step("SDKs and schemathesis", "python", &pytest)
            .env("FAIRGATE_BIN", &binary.to_string_lossy())
            .env("FAIRGATE_NODE_MODULES", &node.modules.to_string_lossy())
            .env("PYTHONDONTWRITEBYTECODE", "1"),
    );
    Ok(steps)
}

/// `cargo xtask test backends`: the same, with the binary built first.
pub(crate) fn backend_steps_alone(root: &Path) -> Result<Vec<Step>, Refusal> {
    let mut steps = vec![cargo("fairgate for backends", &["build", "-p", "fairgate"])];
    steps.extend(backend_steps(root)?);
    Ok(steps)
}

/// `fairgate serve` in front of servers that others wrote: llama.cpp's own, and an application on uvicorn.
pub(crate) fn backend_steps(root: &Path) -> Result<Vec<Step>, Refusal> {
    let mut venv = backend_venv(root)?;
    let mut steps = venv.take_steps();
    let binary = target(root).join("debug/fairgate");
    let pytest = ["-m", "pytest", "--quiet", "-p", "no:cacheprovider", BACKENDS];
    steps.push(
        venv.step("real backends", "python", &pytest)
            .env("FAIRGATE_BIN", &binary.to_string_lossy())
            .env("PYTHONDONTWRITEBYTECODE", "1"),
    );
    Ok(steps)
}

/// The Python environment of the servers that others wrote.
fn backend_venv(root: &Path) -> Result<Venv, Refusal> {
    python::venv(root, "backend-tests", "tests/backends/requirements.txt")
}

/// `cargo xtask bench gateway`: what follows goes to the benchmark as it is.
pub(crate) fn bench_steps(root: &Path, args: &[&str]) -> Result<Vec<Step>, Refusal> {
    let mut steps = tools::need_debian("wrk", "wrk");
    steps.extend(need_nginx());
    // Its default TLS would build a C library for minutes; plain HTTP is all that is asked of it.
    if !tools::has("oha") {
        steps.extend(tools::need_debian("pkg-config", "pkg-config"));
        steps.extend(tools::install_debian("libssl-dev"));
        let tls = ["--no-default-features", "--features", "native-tls"];
        let install = [&["install", "--locked", "oha"], &tls[..]].concat();
        steps.push(cargo("install oha", &install));
    }
    let mut litellm = python::venv(root, "litellm", "tests/peers/requirements.txt")?;
    steps.extend(litellm.take_steps());
    let mut portkey = node_modules(root, "portkey", "tests/peers")?;
    steps.append(&mut portkey.steps);
    steps.push(build_measured());
    let script = portkey.modules.join("@portkey-ai/gateway/build/start-server.js");
    steps.push(measured(root, "gateway", args, Some((&litellm, &script))));
    Ok(steps)
}

/// `cargo xtask bench router`: what follows goes to the benchmark as it is. The trace is beside the repository, or where
/// `FAIRGATE_SHARED` says; without it only the agents run.
pub(crate) fn router_steps(root: &Path, args: &[&str]) -> Result<Vec<Step>, Refusal> {
    let mut steps = need_nginx();
    let mut sglang = python::venv(root, "sglang-router", "tests/peers/sglang-router.txt")?;
    let mut vllm = python::venv(root, "vllm-router", "tests/peers/vllm-router.txt")?;
    steps.extend(sglang.take_steps());
    steps.extend(vllm.take_steps());
    steps.push(build_measured());
    let program = |name: &str| target(root).join(PROFILE_OF_PACKAGES).join(name);
    let (fairgate, bench) = (program("fairgate"), program("fairgate-bench"));
    let (fairgate, bench) = (fairgate.display().to_string(), bench.display().to_string());
    let (sglang, vllm) = (sglang.program("python"), vllm.program("vllm-router"));
    let shared = std::env::var_os("FAIRGATE_SHARED").map_or(root.join("../shared"), PathBuf::from);
    let trace = shared.join("data/mooncake_conversation.jsonl.gz");
    let (there, trace) = (trace.is_file(), trace.display().to_string());
    let mut words =
        vec!["router", "--fairgate", &fairgate, "--sglang-python", &sglang, "--vllm-router", &vllm];
    if there {
        words.extend(["--trace", &trace]);
    }
    words.extend(args);
    steps.push(Step::new("router", &bench, &words));
    Ok(steps)
}

/// `cargo xtask bench fleet`: what follows goes to the benchmark as it is.
pub(crate) fn fleet_steps(root: &Path, args: &[&str]) -> Result<Vec<Step>, Refusal> {
    let mut steps = tools::need_postgresql();
    steps.push(build_measured());
    let bench = target(root).join(PROFILE_OF_PACKAGES).join("fairgate-bench").display().to_string();
    steps.push(Step::new("fleet", &bench, &[&["fleet"], args].concat()));
    Ok(steps)
}

/// `cargo xtask soak`: ten minutes, with servers that others wrote. What follows goes to it as it is.
pub(crate) fn soak_steps(root: &Path, args: &[&str]) -> Result<Vec<Step>, Refusal> {
    let mut venv = backend_venv(root)?;
    let mut steps = tools::need_postgresql();
    steps.extend(venv.take_steps());
    steps.push(build_measured());
    let python = venv.program("python");
    let real_servers = ["--backends", BACKENDS, "--python", &python];
    steps.push(measured(root, "soak", &[&real_servers, args].concat(), None));
    Ok(steps)
}

/// The soak in a minute, with the programs that `cargo test --workspace` leaves. The real servers have a test of their own.
pub(crate) fn short_soak_steps(root: &Path) -> Vec<Step> {
    let program = |name: &str| target(root).join("debug").join(name).display().to_string();
    let (fairgate, sim) = (program("fairgate"), program("fairgate-sim"));
    let args = ["soak", "--seconds", "60", "--fairgate", &fairgate, "--sim", &sim];
    vec![Step::new("soak of 60 s", &program("fairgate-bench"), &args)]
}

/// `cargo xtask test soak`: the same, with the programs built first.
pub(crate) fn short_soak_steps_alone(root: &Path) -> Vec<Step> {
    let mut steps = tools::need_postgresql();
    let programs = ["build", "-p", "fairgate", "-p", "fairgate-sim", "-p", "fairgate-bench"];
    steps.push(cargo("programs for the soak", &programs));
    steps.extend(short_soak_steps(root));
    steps
}

/// Debian keeps it off some users' paths.
fn need_nginx() -> Vec<Step> {
    let installed = Path::new("/usr/sbin/nginx").exists();
    if installed { Vec::new() } else { tools::need_debian("nginx", "nginx-light") }
}

fn build_measured() -> Step {
    let programs = ["-p", "fairgate", "-p", "fairgate-sim", "-p", "fairgate-bench"];
    let build = ["build", "--profile", PROFILE_OF_PACKAGES];
    cargo("build as packaged", &[&build, &programs[..]].concat())
}

fn measured(root: &Path, what: &str, args: &[&str], peers: Option<(&Venv, &Path)>) -> Step {
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
    Step::new(what, &program("fairgate-bench"), &words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_router_is_measured_after_it_is_built() {
        let root =
            Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is in the workspace");
        assert!(router_steps(root, &["--seconds", "5"]).is_ok_and(|steps| steps.len() >= 2));
    }

    #[test]
    fn the_soak_is_built_before_it_is_run() {
        let root =
            Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is in the workspace");
        assert!(soak_steps(root, &["--seed", "7"]).is_ok_and(|steps| steps.len() >= 2));
        assert!(short_soak_steps_alone(root).len() >= 2);
        assert_eq!(short_soak_steps(root).len(), 1, "the tests have built what it needs");
    }
}
