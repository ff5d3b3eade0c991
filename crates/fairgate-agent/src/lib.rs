//! The programs of the agents: [`agent_run`] claims tasks and runs a command for each, and [`mcp`] offers the fleet's
//! tasks to a coding agent as tools.
//!
//! Both are clients of the agents' API of the gateway. They use the types of `fairgate-api`, and
//! depend on no other part of the gateway: no store, no fleet, no database driver. An agent's
//! machine needs only this program, a URL and a token.

mod agent_api;
pub mod agent_run;
pub mod mcp;

pub use agent_api::numbered_names;

#[cfg(test)]
mod dependencies {
    use std::process::Command;

    /// Crates that a client of the agents' API must not depend on: database drivers, and the crates
    /// behind the API.
    const FORBIDDEN: [&str; 6] = [
        "rusqlite",
        "libsqlite3-sys",
        "tokio-postgres",
        "fairgate-store",
        "fairgate-fleet",
        "fairgate-gateway",
    ];

    #[test]
    fn an_agent_needs_no_database() {
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
        let tree = Command::new(cargo)
            .args(["tree", "--offline", "--package", "fairgate-agent", "--edges", "normal,build"])
            .args(["--prefix", "none", "--format", "{p}"])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()
            .expect("cargo runs");
        let text = String::from_utf8_lossy(&tree.stdout);
        let errors = String::from_utf8_lossy(&tree.stderr);
        assert!(tree.status.success(), "{errors}");
        let names: Vec<&str> = text.lines().filter_map(|line| line.split(' ').next()).collect();
        assert!(names.contains(&"fairgate-api") && names.contains(&"hyper"), "{text}");
        let found: Vec<&&str> = FORBIDDEN.iter().filter(|name| names.contains(name)).collect();
        assert!(found.is_empty(), "fairgate-agent needs {found:?}:\n{text}");
    }
}
