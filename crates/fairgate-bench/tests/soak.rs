//! The soak's command line. This test also has `cargo test` build the program that `cargo xtask test` runs as its last step.

use std::process::Command;

#[test]
fn a_plan_has_all_disasters_and_needs_nothing() {
    let plan = |seed: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fairgate-bench"));
        command.args(["soak", "--fairgate", "none", "--sim", "none", "--seconds", "60", "--plan"]);
        let output = command.args(["--seed", seed]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let text = plan("1");
    for (what, times) in [
        ("worker", 18),
        ("PostgreSQL hangs", 1),
        ("PostgreSQL is shut down", 1),
        ("the gateway is killed", 2),
        ("disk is full", 1),
    ] {
        assert_eq!(text.matches(what).count(), times, "{what} in\n{text}");
    }
    assert_eq!(text, plan("1"));
    assert_ne!(text, plan("2"));
}
