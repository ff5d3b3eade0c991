//! Tests of `fairgate check`: errors with their positions, the drawn tree, the measured shares, and
//! the class of a request.

use std::fs;
use std::path::{Path, PathBuf};

use crate::run::{Run, fairgate};

const POLICY: &str = "\
default_policy_family: standard
uncached_isl_buckets:
  - {min_tokens: 0, bucket: cached}
  - {min_tokens: 3072, bucket: uncached}
policy_classes:
  - {name: chat, policy_family: standard, cache_bucket: cached, quantum: 2048, queue_policy: wspt}
  - {name: long, policy_family: standard, cache_bucket: uncached, quantum: 512}
  - {name: vip, quantum: 1, inside: {share: {by: tenant, weights: {a: 5}, inside: {load: {by: agent}}}}}
";

const CONFIG: &str = "\
upstreams:
  - {name: vllm, url: 'http://127.0.0.1:1', slots: 4}
pools:
  - {name: llama, models: [small], workers: [vllm], policy_file: policy.yaml}
  - {name: other, models: [plain], workers: [spare], capacity: 2, partition: true}
";

/// A temporary folder with a configuration and a policy file.
struct Files(PathBuf);

impl Files {
    fn new(name: &str, policy: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("check-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        fs::write(folder.join("policy.yaml"), policy).expect("a file");
        let spare = "  - {name: spare, url: 'http://127.0.0.1:2'}\npools:";
        fs::write(folder.join("fairgate.yaml"), CONFIG.replace("pools:", spare)).expect("a file");
        Self(folder)
    }

    fn check(&self, file: &str, more: &[&str]) -> Run {
        let path = self.0.join(file).display().to_string();
        let mut run = fairgate(&[&["check", &path], more].concat());
        run.stderr = run.stderr.replace(&format!("{}/", self.0.display()), "");
        run
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_policy_file_is_drawn_and_its_quanta_are_measured() {
    let drawn = Files::new("drawn", POLICY).check("policy.yaml", &[]).ok();
    let tree = "\
for all models: drr by class, default family standard
├─ chat: standard × cached (0 to 3071 uncached tokens), quantum 2048
│  └─ share by group, then tenant, then key; the cheapest first (wspt)
├─ long: standard × uncached (3072 uncached tokens and more), quantum 512
│  └─ share by group, then tenant, then key; first come, first served (fcfs)
└─ vip: explicit: requests name it, quantum 1
   └─ share by tenant: a 5, others 100
      └─ load by agent: alpha 0.25
         └─ first come, first served (fcfs)
";
    assert!(drawn.starts_with(tree), "{drawn}");
    let row = |class: &str| -> Vec<f64> {
        let line = drawn.lines().find(|line| line.starts_with(&format!("{class} ")));
        let cells = line.expect("a row").split_whitespace().skip(1);
        cells.map(|cell| cell.parse().expect("a number")).collect()
    };
    for class in ["chat", "long"] {
        let [quanta, _, _, share] = row(class)[..] else { panic!("four parts: {drawn}") };
        assert!((share - quanta).abs() < 0.005, "share keeps to the quanta: {drawn}");
    }
    let [quanta, input, tokens, _] = row("chat")[..] else { panic!("four parts: {drawn}") };
    assert!((quanta - 0.8).abs() < 0.001, "{drawn}");
    assert!(input < 0.75 && tokens < 0.75, "drr with wspt does not: {drawn}");
}

#[test]
fn with_share_there_is_nothing_to_measure() {
    let drawn =
        Files::new("share", &format!("{POLICY}arbiter: share\n")).check("policy.yaml", &[]).ok();
    assert!(
        drawn.starts_with("for all models: share by class, default family standard\n"),
        "{drawn}"
    );
    assert!(
        drawn.contains("├─ chat: standard × cached (0 to 3071 uncached tokens), weight 2048\n"),
        "{drawn}"
    );
    assert!(!drawn.contains("Quanta are not shares"), "{drawn}");
}

#[test]
fn a_configuration_is_drawn_pool_by_pool() {
    let drawn = Files::new("config", POLICY).check("fairgate.yaml", &[]).ok();
    for part in [
        "  pool         llama: small on vllm, 4 slots\n",
        "\npool llama: drr by class, default family standard\n├─ chat: ",
        "\nThe pool has no prefix_index: every input token counts as uncached",
        "\npool other: share by group: slots divided first\n└─ share by tenant\n   └─ share by key\n      └─ first come, first served (fcfs)\n",
    ] {
        assert!(drawn.contains(part), "{part}\nis not in\n{drawn}");
    }
}

#[test]
fn bands_are_drawn_and_what_lets_others_wait_is_warned_of() {
    let bands = "\
default_policy_family: batch
arbiter: bands
uncached_isl_buckets: [{min_tokens: 0, bucket: any}]
policy_classes:
  - {name: chat, queue_policy: edf, inside: queue}
  - {name: batch, policy_family: batch, cache_bucket: any}
";
    let files = Files::new("bands", bands);
    let drawn = files.check("policy.yaml", &[]).ok();
    let tree = "\
for all models: bands by class: strict, the first goes before the next, default family batch
├─ chat: explicit: requests name it, any number in flight
│  └─ one queue: the earliest deadline first (edf)
└─ batch: batch × any (0 uncached tokens and more), any number in flight
   └─ share by group, then tenant, then key; first come, first served (fcfs)

warning: policy_classes[0]: chat goes before batch and has no cap: ";
    assert!(drawn.starts_with(tree), "{drawn}");
    assert!(drawn.contains("\nwarning: policy_classes[0]: one queue for everybody"), "{drawn}");
    assert!(!drawn.contains("Quanta are not shares"), "{drawn}");
    let pools = files.check("fairgate.yaml", &[]).ok();
    assert!(pools.contains("Give it a cap below 4, which"), "{pools}");
    assert_eq!(
        pools.matches("warning:").count(),
        3,
        "the other pool has the default policy: {pools}"
    );
    assert!(
        pools.contains("\nwarning: cost of llama, other: input, cached and output tokens weigh"),
        "{pools}"
    );
}

#[test]
fn a_request_is_told_its_class_and_why() {
    let files = Files::new("asked", POLICY);
    let asked = |file: &str, more: &[&str]| files.check(file, more).ok();
    assert_eq!(
        asked("policy.yaml", &["--family", "standard", "--input", "9000", "--cached", "5928"]),
        "Such a request gets the class long.\nIt names the family standard.\n\
         9000 input tokens less 5928 cached are 3072 uncached: the bucket uncached (3072 and more).\n\
         standard × uncached is long.\n"
    );
    assert_eq!(
        asked("fairgate.yaml", &["--model", "small", "--input", "3071"]),
        "Such a request gets the class chat.\nIt names no family and no class, so it gets the default family, standard.\n\
         3071 input tokens less 0 cached are 3071 uncached: the bucket cached (0 to 3071).\n\
         standard × cached is chat.\n"
    );
    assert_eq!(
        asked("policy.yaml", &["--class", "vip"]),
        "Such a request gets the class vip.\nIt names this explicit class itself; its size does not matter.\n"
    );
    let unknown = asked("policy.yaml", &["--class", "long", "--input", "1"]);
    assert!(
        unknown.contains("It names \"long\", which is neither a family nor an explicit class, so it gets the default family, standard."),
        "{unknown}"
    );
}

#[test]
fn questions_that_have_no_answer_say_so() {
    let files = Files::new("unanswered", POLICY);
    for (file, more, expected) in [
        (
            "policy.yaml",
            &["--input", "5", "--cached", "6"][..],
            "--cached 6 is more than --input 5: cached tokens are part of the input",
        ),
        (
            "fairgate.yaml",
            &["--input", "5"],
            "name the model with --model: there are several pools",
        ),
        ("fairgate.yaml", &["--model", "none", "--input", "5"], r#"no pool has the model "none""#),
        (
            "fairgate.yaml",
            &["--model", "plain", "--input", "5"],
            r#"the pool "other" has no policy_file, so no classes by family"#,
        ),
    ] {
        let run = files.check(file, more);
        assert_eq!((run.status, run.stderr), (1, format!("fairgate: {expected}\n")), "{more:?}");
    }
}

#[test]
fn errors_have_their_places_in_either_file() {
    let files = Files::new("wrong", &POLICY.replace("quantum: 512", "quantum: 0"));
    let expected = "fairgate: policy.yaml:7:76: policy_classes[1].quantum: must be an integer from 1 to 18446744073709551615, not 0\n";
    for file in ["policy.yaml", "fairgate.yaml"] {
        let run = files.check(file, &[]);
        assert_eq!((run.status, &*run.stdout, &*run.stderr), (1, "", expected), "{file}");
    }
}
