//! Tests of the admin commands, each with its own gateway.

use std::fs;
use std::io::Read;
use std::process::Stdio;
use std::thread;

use fairgate_sim::{OutputLength, SimOptions};

use super::http::{CHAT, ask, chat, parsed, send};
use super::running::{Folder, Gateway, Model, one_pool, until};
use crate::run::finished;

#[test]
fn groups_tenants_and_keys_are_made_listed_and_taken_away() {
    let folder = Folder::new();
    let gateway = Gateway::embedded(&folder);
    gateway.fairgate(&["group", "add", "prod", "--weight", "500"]).ok();
    let args = [
        "tenant",
        "add",
        "chat",
        "--group",
        "prod",
        "--weight",
        "300",
        "--tokens-per-day",
        "5000000",
    ];
    let told = gateway.fairgate(&args).ok();
    assert!(
        told.starts_with(
            "tenant  group  weight  state    requires  limits\nchat    prod      300  enabled  - "
        ),
        "{told}"
    );
    let made = gateway.json(&["key", "create", "chat", "--name", "web"]);
    let (secret, id) = (made["secret"].as_str().expect("a secret"), made["key"]["id"].as_str());
    let id = id.expect("an id");
    assert_eq!(gateway.chat(secret, "Hello").status, 200);

    let groups = gateway.fairgate(&["group", "list"]).ok();
    assert!(groups.contains("\nprod        500  20"), "{groups}");
    let shown = gateway.fairgate(&["tenant", "show", "chat"]).ok();
    assert!(shown.contains("budget of  per") && shown.contains("5000000 tokens"), "{shown}");
    let keys = gateway.fairgate(&["key", "list", "--tenant", "chat"]).ok();
    assert!(keys.contains(id) && keys.contains("web") && !keys.contains(secret), "{keys}");

    let set = [
        "key",
        "set",
        id,
        "--classes",
        "batch",
        "--priority-max",
        "5",
        "--may-pin",
        "true",
        "--taints",
        "eu,us",
    ];
    let told = gateway.fairgate(&set).ok();
    assert!(told.contains("batch") && told.contains("priority 5, pins, taints eu,us"), "{told}");
    let set = [
        "key",
        "set",
        id,
        "--classes",
        "",
        "--priority-max",
        "0",
        "--may-pin",
        "false",
        "--all-taints",
    ];
    let told = gateway.fairgate(&set).ok();
    assert!(told.contains("  default  all taints  "), "{told}");
    let key = &gateway.json(&["key", "set", id, "--all-classes", "--taints", ""]);
    assert_eq!(
        (&key["classes"], &key["taints"]),
        (&serde_json::json!(null), &serde_json::json!([]))
    );

    // One way to open for keys and projects, and one way to see what is open.
    let rights = [
        "--may-lease",
        "true",
        "--classes",
        "batch",
        "--models",
        "sim",
        "--priority-max",
        "4",
        "--weight-max",
        "2.5",
        "--workers",
        "sim,b",
    ];
    gateway.fairgate(&[&["key", "set", id], &rights[..]].concat()).ok();
    gateway.fairgate(&["project", "add", "closed", "--tenant", "chat"]).ok();
    gateway.fairgate(&[&["project", "add", "web", "--tenant", "chat"], &rights[..]].concat()).ok();
    let wide = gateway.fairgate(&["key", "list", "--wide", "--tenant", "chat"]).ok();
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let line = |told: &str, name: &str| {
        words(told.lines().find(|line| line.starts_with(name)).expect("its line"))
    };
    let open = ["sim", "batch", "4", "2.5", "sim,b", "no", "yes"];
    let closed = ["all", "default", "0", "-", "all", "no", "no"];
    let has = |line: &[String], rights: [&str; 7]| line.windows(7).any(|cells| cells == rights);
    assert!(has(&line(&wide, id), open), "{wide}");
    let projects = gateway.fairgate(&["project", "list", "--wide"]).ok();
    assert!(has(&line(&projects, "web"), open), "{projects}");
    assert!(has(&line(&projects, "closed"), closed), "{projects}");
    gateway.fairgate(&["project", "set", "web", "--may-lease", "false"]).ok();
    let shown = gateway.fairgate(&["project", "show", "web"]).ok();
    assert!(
        shown.contains(
            "rights  models: sim; classes: batch; more: priority 4, weight 2.5, workers sim,b\n"
        ),
        "{shown}"
    );
    gateway.fairgate(&["project", "set", "web", "--all-workers", "--no-weight-max"]).ok();
    let shown = gateway.fairgate(&["project", "show", "web"]).ok();
    assert!(shown.contains("more: priority 4\n"), "{shown}");

    gateway.fairgate(&["key", "revoke", id]).ok();
    assert_eq!(gateway.chat(secret, "Hello").status, 401);
    let twice = gateway.fairgate(&["group", "add", "prod"]);
    assert_eq!(twice.status, 1);
    assert!(twice.stderr.ends_with("(exists)\n"), "{}", twice.stderr);
}

#[test]
fn usage_is_told_as_table_csv_and_json() {
    let folder = Folder::new();
    let gateway = Gateway::embedded(&folder);
    let key = gateway.first_key();
    for _ in 0..3 {
        assert_eq!(gateway.chat(&key, "Hello").status, 200);
    }
    let usage = gateway.json(&["usage"]);
    let row = &usage["rows"][0];
    assert_eq!((&row["name"], &row["requests"]), (&"demo".into(), &3.into()));
    let tokens = row["charged_tokens"].as_u64().expect("a number");
    let table = gateway.fairgate(&["usage"]).ok();
    let mut lines = table.lines();
    assert!(
        lines.next().is_some_and(|line| line.starts_with("tenant  requests  failed  input tokens"))
    );
    let line = lines.next().expect("a tenant");
    assert!(
        line.starts_with("demo           3       0") && line.contains(&tokens.to_string()),
        "{table}"
    );
    let csv = gateway.fairgate(&["usage", "--by", "model", "--csv"]).ok();
    assert_eq!(csv.lines().count(), 2, "{csv}");
    assert!(csv.lines().nth(1).is_some_and(|line| line.starts_with("sim,3,0,")), "{csv}");
}

#[test]
fn a_request_is_followed_while_it_waits_and_when_it_has_ended() {
    let folder = Folder::new();
    let gateway = Gateway::embedded(&folder);
    let key = gateway.first_key();
    let held = gateway.fairgate(&["pool", "hold", "sim", "tenant", "demo"]).ok();
    assert_eq!(held, "demo is held in pool sim\n");
    let asked = {
        let (url, key) = (gateway.url.clone(), key.clone());
        thread::spawn(move || ask(&url, "POST", CHAT, &key, &chat("sim", "Hello", false)))
    };
    let id = until("it waits", || Some(gateway.json(&["request"])[0]["id"].as_str()?.to_owned()));
    let told = gateway.fairgate(&["request", &id]).ok();
    let lines: Vec<&str> = told.lines().collect();
    assert!(lines[0].starts_with("waiting for "), "{told}");
    assert!(
        lines[0].ends_with(
            " in pool sim; 0 of 8 slots are in use; as things are, it would never be granted"
        ),
        "{told}"
    );
    assert!(
        lines[1].starts_with("tenant demo, in group default; it is expected to use "),
        "{told}"
    );
    assert!(lines.contains(&"tenant demo is held by an operator"), "{told}");

    assert_eq!(
        gateway.fairgate(&["pool", "resume", "sim", "tenant", "demo"]).ok(),
        "demo goes on in pool sim\n"
    );
    let answer = asked.join().expect("no panic").expect("an answer");
    assert_eq!((answer.status, answer.id()), (200, id.clone()));
    let told = gateway.fairgate(&["request", &id]).ok();
    let lines: Vec<&str> = told.lines().collect();
    assert!(lines[0].starts_with("ended with status 200 after "), "{told}");
    assert!(lines[0].ends_with("; tenant demo, model sim"), "{told}");
    let headings = "attempt worker outcome status code waited first token total \
                    input tokens cached output tokens charged tokens";
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(words(lines[2]), headings);
    assert!(words(lines[3]).starts_with("1 sim completed 200 - "), "{told}");
    let usage = &answer.json()["usage"];
    let (input, output) = (&usage["prompt_tokens"], &usage["completion_tokens"]);
    let charged = &usage["total_tokens"];
    assert!(words(lines[3]).ends_with(&format!("ms {input} 0 {output} {charged}")), "{told}");
    assert_eq!(gateway.json(&["request", &id])["state"], "ended");
    assert_eq!(gateway.json(&["pool", "list"])[0]["held"], serde_json::json!([]));
}

/// Commands set weights, caps and holds of classes and projects. The service and credit of flows do
/// not change.
#[test]
fn classes_and_projects_are_weighed_capped_and_held_by_command() {
    let folder = Folder::new();
    let model = Model::start(SimOptions::default());
    let policy = "    policy: {share: {by: class, classes: [{name: chat, weight: 100}, {name: batch, weight: 100}], \
                  default: batch, inside: {share: {by: project}}}}\n";
    fs::write(folder.join("fairgate.yaml"), one_pool(&model, "") + policy).expect("a file");
    let gateway = Gateway::configured(&folder);
    gateway.fairgate(&["group", "add", "g"]).ok();
    gateway.fairgate(&["tenant", "add", "demo", "--group", "g"]).ok();
    let key = gateway.key("demo");
    assert_eq!(gateway.chat(&key, "Hello").status, 200);
    let class = |name: &str| {
        let pool = gateway.api("/api/v1/fairshare/live")["pools"][0].clone();
        let classes = pool["classes"].as_array().expect("classes").clone();
        classes.into_iter().find(|class| class["name"] == name).expect("the class")
    };
    let before = until("the request is counted", || {
        Some(class("batch")).filter(|class| class["got_tokens"].as_u64() > Some(0))
    });
    let told = |words: &[&str]| gateway.fairgate(&[&["pool"], words].concat()).ok();
    assert_eq!(
        told(&["weight", "sim", "class", "batch", "300"]),
        "batch has the weight 300 in pool sim\n"
    );
    assert_eq!(
        told(&["cap", "sim", "class", "batch", "2"]),
        "batch has at most 2 in flight in pool sim\n"
    );
    assert_eq!(told(&["hold", "sim", "class", "chat"]), "chat is held in pool sim\n");
    assert_eq!(
        told(&["cap", "sim", "project", "web", "4"]),
        "web has at most 4 in flight in pool sim\n"
    );
    assert_eq!(told(&["hold", "sim", "project", "web"]), "web is held in pool sim\n");
    let after = until("the live view has it", || {
        Some(class("batch")).filter(|class| class["slot_cap"] == 2)
    });
    assert_eq!(after["weight"], 300);
    assert_eq!(after["got_tokens"], before["got_tokens"], "the books were zeroed");
    let held = || gateway.json(&["pool", "list"])[0]["held"].clone();
    let both =
        serde_json::json!([{"by": "class", "flow": "chat"}, {"by": "project", "flow": "web"}]);
    until("both are held", || (held() == both).then_some(()));
    assert_eq!(told(&["cap", "sim", "class", "batch", "none"]), "batch has no cap in pool sim\n");
    assert_eq!(told(&["resume", "sim", "class", "chat"]), "chat goes on in pool sim\n");
    assert_eq!(told(&["resume", "sim", "project", "web"]), "web goes on in pool sim\n");
    until("nothing is held", || (held() == serde_json::json!([])).then_some(()));
    // What the policy has no weight for is refused with why.
    let refused = gateway.fairgate(&["pool", "weight", "sim", "project", "web", "2"]);
    assert_eq!(refused.status, 1);
    assert!(refused.stderr.contains("(no_effect)"), "{}", refused.stderr);
}

#[test]
fn workers_are_added_drained_and_removed_by_command() {
    let folder = Folder::new();
    let gateway = Gateway::embedded(&folder);
    let ok = |words: &[&str]| gateway.fairgate(words).ok();
    let added = ok(&["worker", "add", "sim", "b", "http://127.0.0.1:9", "--like", "sim"]);
    assert_eq!(added, "b works for pool sim\n");
    assert_eq!(ok(&["worker", "drain", "sim", "b"]), "b takes nothing new; 0 in flight on it\n");
    let told = ok(&["worker", "list", "sim"]);
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let rows: Vec<String> = told.lines().map(words).collect();
    let headings = "worker from state in flight slots prefill engine running waiting cache hits expected cache tokens slots changed";
    assert_eq!(rows[0], headings);
    assert_eq!(
        rows[1..],
        ["sim file up 0 8 0 - - - - – – – -", "b api drained 0 8 0 - - - - – – – -"]
    );
    assert_eq!(ok(&["worker", "undrain", "sim", "b"]), "b takes requests\n");
    let gone = ok(&["worker", "remove", "sim", "b"]);
    assert_eq!(gone, "b goes once nothing is in flight on it\n");
    assert_eq!(gateway.json(&["worker", "list", "sim"]).as_array().map(Vec::len), Some(1));
    let refused = gateway.fairgate(&["worker", "remove", "sim", "sim", "--now"]);
    assert!(refused.stderr.contains("remove it there and reload"), "{}", refused.stderr);
}

#[test]
fn the_audit_says_who_changed_which_fields() {
    let folder = Folder::new();
    let gateway = Gateway::embedded(&folder);
    gateway.fairgate(&["tenant", "set", "demo", "--requests-per-minute", "1"]).ok();
    gateway
        .fairgate(&["tenant", "set", "demo", "--requests-per-minute", "none", "--weight", "7"])
        .ok();
    gateway.fairgate(&["pool", "hold", "sim", "tenant", "demo"]).ok();
    let told = gateway.fairgate(&["audit"]).ok();
    let lines: Vec<String> = told
        .lines()
        .map(|line| line.split_whitespace().skip(1).collect::<Vec<_>>().join(" "))
        .collect();
    assert_eq!(lines[0], "who what to change");
    assert!(lines[1].starts_with("admin:ada pool.hold sim "), "{told}");
    assert_eq!(
        lines[2],
        "admin:ada tenant.patch demo requests_per_minute: 1 → none, weight: 100 → 7"
    );
    assert_eq!(lines[3], "admin:ada tenant.patch demo requests_per_minute: none → 1");
    assert!(lines[4].starts_with("first-start key.create key-"), "{told}");
    assert!(
        lines[4].ends_with(" name: first, priority_max: 0, tenant: demo, weight: 100"),
        "{told}"
    );
    assert_eq!(lines[5], "first-start tenant.add demo group: default, weight: 100");
    let entry = &gateway.json(&["audit", "--limit", "2"])[1];
    assert_eq!(entry["before"]["limits"]["requests_per_minute"], 1);
    assert_eq!(entry["after"]["weight"], 7);
}

#[test]
fn the_audit_fits_the_terminal() {
    let folder = Folder::new();
    let gateway = Gateway::embedded(&folder);
    let Some(told) = on_terminal(&gateway, "audit", "10") else { return };
    let lines: Vec<&str> = told.lines().map(str::trim_end).collect();
    assert_eq!(lines.len(), 4, "{told}");
    let widest = lines.iter().map(|line| line.chars().count()).max();
    assert_eq!(widest, Some(90), "{told}");
    assert!(lines[1].ends_with('…'), "{told}");
}

/// Returns the output of a command on a terminal of 90 columns; `None` without the program
/// `script`, which provides the terminal.
fn on_terminal(gateway: &Gateway, args: &str, seconds: &str) -> Option<String> {
    let command = format!("stty rows 40 cols 90; exec {} {args}", env!("CARGO_BIN_EXE_fairgate"));
    let mut script = std::process::Command::new("timeout");
    script.args([seconds, "script", "-qec", &command, "/dev/null"]);
    for (name, value) in gateway.command(&[]).get_envs() {
        script.env(name, value.unwrap_or_default());
    }
    let run = script.stdin(Stdio::null()).output().expect("it runs");
    if run.status.code() == Some(127) {
        eprintln!("skipped: there is no script command");
        return None;
    }
    Some(String::from_utf8_lossy(&run.stdout).into_owned())
}

#[test]
fn live_goes_on_as_one_object_a_line() {
    let folder = Folder::new();
    let gateway = Gateway::embedded(&folder);
    let told = gateway.fairgate(&["live"]).ok();
    assert!(told.starts_with("pool sim: 0 of 8 in flight, 0 waiting; share by group"), "{told}");
    let mut live = gateway.command(&["live", "--every", "1", "--json"]).spawn().expect("it runs");
    let mut out = live.stdout.take().expect("it is piped");
    let mut text = String::new();
    while text.matches('\n').count() < 2 {
        let mut piece = [0; 4096];
        let read = out.read(&mut piece).expect("it can be read");
        assert!(read > 0, "it goes on");
        text.push_str(&String::from_utf8_lossy(&piece[..read]));
    }
    live.kill().expect("it runs");
    live.wait().expect("it ends");
    for line in text.lines().take(2) {
        let live: serde_json::Value = serde_json::from_str(line).expect("one object a line");
        assert_eq!(live["pools"][0]["pool"], "sim");
    }
}

#[test]
fn live_redraws_in_place_on_a_terminal() {
    let folder = Folder::new();
    let gateway = Gateway::embedded(&folder);
    let Some(told) = on_terminal(&gateway, "live --every 1", "4") else { return };
    let frames: Vec<&str> = told.split("\x1b[H").skip(1).collect();
    assert!(frames.len() >= 2, "{told}");
    for frame in frames.iter().take(2) {
        let line = frame.lines().next().unwrap_or_default();
        assert!(line.starts_with("20") && line.contains("Z, every 1 s\x1b[K"), "{frame:?}");
        assert!(frame.contains("pool sim: ") && frame.contains("\x1b[J"), "{frame:?}");
    }
}

#[test]
fn what_is_wrong_with_the_way_it_was_asked_is_said() {
    let folder = Folder::new();
    let model = Model::start(SimOptions::default());
    let text = one_pool(&model, "admin: { listen: 127.0.0.1:0 }\n");
    fs::write(folder.join("fairgate.yaml"), text).expect("a file");
    let gateway = Gateway::configured(&folder);
    // The URL as it is printed, with the API's own path, is what the helper gives; an empty token counts as none.
    assert!(gateway.admin_url.ends_with("/api/v1"));
    let run = gateway.command(&["group", "list"]).env("FAIRGATE_ADMIN_TOKEN", "").output();
    assert_eq!(finished(run.expect("it runs")).ok(), "group  weight  created  limits\n");

    let run = gateway.fairgate(&["group", "list", "--url", &gateway.url]);
    assert_eq!(run.status, 1);
    assert!(run.stderr.starts_with("fairgate: there is no admin API at http://"), "{}", run.stderr);
    assert!(
        run.stderr.contains("`admin.listen`") && run.stderr.contains("--url"),
        "{}",
        run.stderr
    );

    let wrong = folder.join("wrong-token");
    fs::write(&wrong, "fga-wrong\n").expect("a file");
    let wrong = wrong.display().to_string();
    let run = gateway.fairgate(&["group", "list", "--token-file", &wrong]);
    assert!(run.stderr.starts_with("fairgate: the admin token is wrong: "), "{}", run.stderr);
    assert!(run.stderr.contains(&format!("the one from the file {wrong} ")), "{}", run.stderr);
    let run = gateway.command(&["group", "list"]).env("FAIRGATE_ADMIN_TOKEN", "fga-x").output();
    let run = finished(run.expect("it runs"));
    assert!(run.stderr.contains("from the variable FAIRGATE_ADMIN_TOKEN"), "{}", run.stderr);
    gateway.fairgate(&["group", "add", "g"]).ok();
    gateway.fairgate(&["tenant", "add", "t", "--group", "g"]).ok();
    let key = gateway.key("t");
    let run = gateway.command(&["group", "list"]).env("FAIRGATE_ADMIN_TOKEN", &key).output();
    let run = finished(run.expect("it runs"));
    assert!(run.stderr.contains("this needs the admin token"), "{}", run.stderr);
    assert!(!run.stderr.contains(&key), "{}", run.stderr);
}

#[test]
fn a_configuration_is_reloaded_whole_or_not_at_all() {
    let folder = Folder::new();
    let model = Model::start(SimOptions::default());
    let file = folder.join("fairgate.yaml");
    let text = one_pool(&model, "");
    let write = |text: &str| fs::write(&file, text).expect("a file");
    write(&text);
    let gateway = Gateway::configured(&folder);
    let capacity = || gateway.json(&["pool", "list"])[0]["capacity"].clone();
    assert_eq!(gateway.fairgate(&["reload"]).ok(), "nothing has changed\n");

    // One good change and one bad line: neither is taken.
    write(&text.replace("capacity: 16", "capacity: 9\n    retries: many"));
    let line = text.lines().count() + 1;
    let run = gateway.fairgate(&["reload"]);
    assert_eq!(run.status, 1);
    let place = format!("{}:{line}:", file.display());
    assert!(run.stderr.contains(&place), "{place} in {}", run.stderr);
    assert!(run.stderr.contains("pools[0].retries"), "{}", run.stderr);
    assert_eq!(capacity(), 16);
    gateway.signal("HUP");
    until("it is logged", || {
        let log = gateway.log();
        (log.contains("nothing has changed") && log.contains("pools[0].retries")).then_some(())
    });
    assert_eq!(capacity(), 16);

    write(&text.replace("capacity: 16", "capacity: 9"));
    gateway.signal("HUP");
    until("it is in force", || (capacity() == 9).then_some(()));
    until("the log names what changed", || {
        gateway.log().contains("capacity: 16 → 9").then_some(())
    });
    write(&text);
    let told = gateway.fairgate(&["reload"]).ok();
    assert!(told.contains("capacity: 9 → 16"), "{told}");
    assert_eq!(capacity(), 16);
    // Newest first: who asked through the API, and the signal.
    let trail = gateway.json(&["audit"]);
    let who = |entry: usize| trail[entry]["actor"].as_str().map(str::to_owned);
    assert_eq!(who(1).as_deref(), Some("SIGHUP"), "{trail}");
    assert_ne!(who(0).as_deref(), Some("SIGHUP"), "{trail}");
}

#[test]
fn told_to_stop_it_lets_what_is_in_flight_finish() {
    let folder = Folder::new();
    let options = SimOptions { output_tokens: OutputLength::exactly(50), ..SimOptions::default() };
    let model = Model::start(options);
    fs::write(folder.join("fairgate.yaml"), one_pool(&model, "")).expect("a file");
    let mut gateway = Gateway::configured(&folder);
    gateway.fairgate(&["group", "add", "g"]).ok();
    gateway.fairgate(&["tenant", "add", "t", "--group", "g"]).ok();
    let key = gateway.key("t");
    let mut stream =
        send(&gateway.url, "POST", CHAT, &key, &chat("sim", "Hello", true)).expect("it is sent");
    let mut seen = vec![0; 1];
    stream.read_exact(&mut seen).expect("it has begun");
    gateway.signal("TERM");
    stream.read_to_end(&mut seen).expect("it may finish");
    let answer = parsed(&String::from_utf8_lossy(&seen));
    assert!(answer.whole && answer.body.contains("data: [DONE]"), "{answer:?}");
    assert!(gateway.ended().success());
    assert!(send(&gateway.url, "POST", CHAT, &key, "").is_err(), "nobody listens any more");
    let data = folder.join("data");
    let names = fs::read_dir(&data).expect("it is there").flatten().map(|entry| entry.file_name());
    let rows = names.filter(|name| name.to_string_lossy().contains("-rows-"));
    assert_eq!(rows.count(), 0, "all rows are in the database");
}

#[test]
fn budgets_in_money_and_prices_are_told_with_their_currency() {
    let folder = Folder::new();
    let model = Model::start(SimOptions::default());
    let unpriced = one_pool(&model, "");
    let file = folder.join("fairgate.yaml");
    fs::write(&file, &unpriced).expect("a file");
    let gateway = Gateway::configured(&folder);
    gateway.fairgate(&["group", "add", "prod"]).ok();
    let early = gateway.fairgate(&["group", "set", "prod", "--money-per-month", "2000"]);
    assert_eq!(early.status, 1);
    assert!(early.stderr.contains("add `prices` to the configuration file"), "{}", early.stderr);
    let prices =
        "prices:\n  currency: USD\n  models:\n    - { model: sim, input: 2.50, output: 10 }\n";
    fs::write(&file, format!("{unpriced}{prices}")).expect("a file");
    let told = gateway.fairgate(&["reload"]).ok();
    assert!(told.contains("prices.currency: none → USD"), "{told}");

    let told = gateway.fairgate(&["group", "set", "prod", "--money-per-month", "2000"]).ok();
    assert!(told.contains("money_per_month=2000.00"), "{told}");
    let limits = ["--money-per-day", "50", "--hosted-money-per-day", "0.25", "--hosted", "never"];
    gateway.fairgate(&[&["tenant", "add", "chat", "--group", "prod"][..], &limits].concat()).ok();
    let told = gateway.fairgate(&["tenant", "show", "chat"]).ok();
    assert!(told.contains("hosted=never"), "{told}");
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let lines: Vec<String> = told.lines().map(words).collect();
    assert!(lines[4].starts_with("tenant day any 50.00 USD 0.00 USD 0.00 USD 20"), "{told}");
    assert!(lines[5].starts_with("tenant day hosted 0.25 USD 0.00 USD 0.00 USD 20"), "{told}");
    let told = gateway.fairgate(&["group", "show", "prod"]).ok();
    assert!(words(&told).contains("group month any 2000.00 USD"), "{told}");
    let none = gateway.fairgate(&["hosted", "show"]).ok();
    assert_eq!(none, "the hosted tier as a whole has no budget\n");
    let told = gateway.fairgate(&["hosted", "set", "--hosted-money-per-month", "5000"]).ok();
    assert!(words(&told).contains("hosted month hosted 5000.00 USD"), "{told}");

    let told = gateway.fairgate(&["price", "list"]).ok();
    assert!(words(&told).contains(" sim - USD 2.50 2.50 - - 10.00 0.00 - 20"), "{told}");
    assert_eq!(gateway.json(&["audit"])[0]["action"], "hosted.set");
    let key = gateway.key("chat");
    assert_eq!(gateway.chat(&key, "Hello").status, 200);
    let told = gateway.fairgate(&["usage", "--by", "tier"]).ok();
    assert!(told.lines().nth(1).is_some_and(|line| line.contains(" USD ")), "{told}");
}
