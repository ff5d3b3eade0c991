//! Tests of a command's output: on the terminal, in the log, in the progress and in the result, and
//! always without secrets.

use serde_json::json;

use super::fake::{Fake, TOKEN};
use super::started::{Agent, once};

#[test]
fn secrets_are_in_nothing_that_leaves_even_in_pieces() {
    let fake = Fake::start();
    fake.task(json!({}));
    let script = format!(
        "echo $OPENAI_API_KEY; printf 'fgt-0123456'; sleep 0.7; echo '789-the-tasks-key'; \
         echo {TOKEN} >&2; echo all $FAIRGATE_KEY >$FAIRGATE_RESULT_FILE; sleep 1.5"
    );
    let ended = once(&fake, &script);
    assert!(ended.status.success(), "{ended:?}");
    assert_eq!(fake.said("complete")[0]["result"], "all [masked]");
    let everything = format!("{} {} {:?} {ended:?}", fake.log(), ended.stdout, fake.state().said);
    assert!(!everything.contains("the-tasks-key"), "{everything}");
    assert!(!everything.contains("the-agents-token"), "{everything}");
    assert_eq!(ended.stdout, "[masked]\n[masked]\n");
}

#[test]
fn progress_is_the_last_line() {
    let fake = Fake::start();
    fake.task(json!({}));
    let ended = once(&fake, "echo one; printf '\\033[32mtwo\\033[0m\\n\\n'; sleep 2.5");
    assert!(ended.status.success(), "{ended:?}");
    let last = fake.said("heartbeat").pop().expect("a sign of life");
    assert_eq!(last["progress"], "two");
}

#[test]
fn a_flood_is_bounded_and_its_end_arrives() {
    let fake = Fake::start();
    fake.task(json!({}));
    let script = "head -c 30000000 /dev/zero | tr '\\0' x; echo; echo the end";
    let ended = Agent::start(&fake, &["--once"], script).ended();
    assert!(ended.status.success());
    assert_eq!(ended.stdout.len(), 30_000_009, "the terminal has all of it");
    let log = fake.log();
    assert!(log.len() < 8_000_000, "{}", log.len());
    assert!(log.contains("bytes of output left out]"), "{}", log.len());
    assert!(log.ends_with("x\nthe end\n"));
}

#[test]
fn a_claim_that_is_given_again_goes_on_with_its_log() {
    let fake = Fake::start();
    fake.task(json!({}));
    {
        // As a process before this one left it.
        let mut state = fake.state();
        let task = state.tasks.pop_front().expect("a task");
        state.held = Some(task);
        state.log = b"from before\n".to_vec();
    }
    assert!(once(&fake, "echo anew").status.success());
    assert_eq!(fake.log(), "from before\nanew\n");
}
