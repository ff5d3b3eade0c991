//! Test that the fleet section of README.md works as it is printed, line by line.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::running::{Folder, Gateway};

/// Returns the lines of the section's shell.
fn lines() -> Vec<String> {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let readme = fs::read_to_string(readme).expect("there is one");
    let section = readme.split("\n## ").find(|part| part.starts_with("A fleet of agents"));
    let block = section.expect("the section").split("```sh\n").nth(1).expect("a shell");
    block.split("```").next().unwrap_or_default().lines().map(str::to_owned).collect()
}

/// Process group of a shell. Dropping this value ends the shell and all its processes.
struct Group(u32);

impl Drop for Group {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-TERM", "--", &format!("-{}", self.0)]).status();
    }
}

#[test]
fn the_fleet_of_the_readme_converges() {
    let folder = Folder::new();
    fs::create_dir_all(folder.join("examples/fleet")).expect("a folder");
    let work = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/fleet/work.sh");
    fs::copy(work, folder.join("examples/fleet/work.sh")).expect("a copy");
    let lines = lines();
    assert!(lines[0].starts_with("fairgate serve"), "{lines:?}");
    assert_eq!(lines.last().map(String::as_str), Some("fairgate fleet --every 1"));
    // The port of a test, and a screen that ends.
    let gateway = Gateway::embedded(&folder);
    let mut script = "set -e\n".to_owned();
    for line in &lines[2..lines.len() - 1] {
        script.push_str(&format!("{line}\n"));
    }
    script.push_str("wait\n");
    let binary = Path::new(env!("CARGO_BIN_EXE_fairgate"));
    let others = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{others}", binary.parent().expect("a folder").display());
    let mut shell = Command::new("sh")
        .args(["-c", &script])
        .env("PATH", path)
        .env("FAIRGATE_URL", &gateway.url)
        .env("FAIRGATE_ADMIN_TOKEN_FILE", folder.path().join(&gateway.token_file))
        .current_dir(folder.path())
        .process_group(0)
        .stdout(Stdio::null())
        .spawn()
        .expect("a shell runs");
    let group = Group(shell.id());
    let start = Instant::now();
    let shares = loop {
        let view = gateway.json(&["fleet"]);
        let share = |name: &str| {
            let projects = view["projects"].as_array().into_iter().flatten();
            let mut of_name = projects.filter(|project| project["id"] == name);
            of_name.next().and_then(|project| project["share_ppm"].as_u64())
        };
        let used = view["used"].as_u64().unwrap_or(0);
        let shares = (share("web"), share("api"));
        // 40 tasks in: one more or less is under 3 %.
        if let (Some(web), Some(api)) = shares
            && used > 3_000
            && (730_000..=770_000).contains(&web)
        {
            break (web, api);
        }
        assert!(start.elapsed() < Duration::from_secs(90), "{shares:?} of {used} tokens");
        std::thread::sleep(Duration::from_millis(100));
    };
    // Each is rounded down.
    let both = shares.0 + shares.1;
    assert!((999_998..=1_000_000).contains(&both), "all tokens are the two projects': {shares:?}");
    drop(group);
    shell.wait().expect("it ends");
}
