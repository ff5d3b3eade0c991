//! Test of a policy file of a running pool: a reload reads the file again, and its changes are
//! events of the journal.

use std::fs;
use std::path::Path;

use fairgate_sim::SimOptions;

use super::running::{Folder, Gateway, Model, one_pool, until};

const POLICY: &str = "\
default_policy_family: standard
uncached_isl_buckets: [{min_tokens: 0, bucket: cached}, {min_tokens: 3072, bucket: uncached}]
policy_classes:
  - {name: chat, policy_family: standard, cache_bucket: cached, quantum: 2048}
  - {name: long, policy_family: standard, cache_bucket: uncached, quantum: 512}
";

/// Returns the policies in the pool's journal so far.
fn policies(journal: &Path) -> Vec<String> {
    let files = fs::read_dir(journal).expect("the pool has a journal");
    let texts = files.map(|file| fs::read_to_string(file.expect("a file").path()).expect("text"));
    let texts: Vec<String> = texts.collect();
    let lines = texts.iter().flat_map(|text| text.lines());
    lines.filter(|line| line.contains(r#""event":"policy""#)).map(str::to_owned).collect()
}

#[test]
fn a_changed_policy_file_is_taken_up_by_a_reload() {
    let folder = Folder::new();
    let model = Model::start(SimOptions::default());
    let write = |text: &str| fs::write(folder.join("policy.yaml"), text).expect("a file");
    write(POLICY);
    let config = format!("{}    policy_file: policy.yaml\n", one_pool(&model, "journal: {}\n"));
    fs::write(folder.join("fairgate.yaml"), config).expect("a file");
    let gateway = Gateway::configured(&folder);
    let journal = folder.join("data/journal/sim");
    assert_eq!(gateway.fairgate(&["reload"]).ok(), "nothing has changed\n");

    write(&POLICY.replace("quantum: 512", "quantum: 600"));
    let told = gateway.fairgate(&["reload"]).ok();
    assert!(told.contains("pools.sim.policy: "), "{told}");
    until("the journal has it", || {
        let taken = policies(&journal);
        (taken.len() == 1 && taken[0].contains(r#""quantum":600"#)).then_some(())
    });

    // Floors are no part of the tree: they hold for what comes, and no class loses its credit.
    write(&POLICY.replace("quantum: 512", "quantum: 600").replace("3072", "4096"));
    let told = gateway.fairgate(&["reload"]).ok();
    assert!(told.contains("uncached from 3072 → cached from 0, uncached from 4096"), "{told}");

    // A file that is wrong changes nothing.
    write(&POLICY.replace("quantum: 512", "quantum: 0"));
    let run = gateway.fairgate(&["reload"]);
    assert_eq!(run.status, 1);
    assert!(run.stderr.contains("policy.yaml:5:76: policy_classes[1].quantum: "), "{}", run.stderr);
    write(&format!("{POLICY}arbiter: share\n"));
    gateway.fairgate(&["reload"]).ok();
    until("the journal has it", || {
        let taken = policies(&journal);
        let is_share = |line: &String| line.contains(r#""share":{"by":"class""#);
        (taken.len() == 2 && taken.last().is_some_and(is_share)).then_some(())
    });
}
