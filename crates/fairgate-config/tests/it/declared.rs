//! Tests of declared groups, tenants and keys: valid files, and errors with line and field.

use std::time::Duration;

use fairgate_config::{DeclaredBudget, DeclaredKeyHash};

use crate::support::{Folder, LEAST, SECRET, errors};

const DECLARED: &str = "\
groups:
  - {name: people, weight: 300, limits: {tokens_per_month: 5}}
tenants:
  - name: chat
    group: people
    limits: {in_flight: 4, hosted: never, hosted_tokens_per_day: 7}
    requires: [docker, \"machine:m1\"]
  - {name: batch, group: people, disabled: true}
keys:
  - name: prod
    tenant: chat
    secret: {env: OPENAI_API_KEY}
    models: [gpt-*]
    classes: null
    deadline: 5s
    expires_at: 2099-01-01T00:00:00Z
  - {name: prod, tenant: batch, secret: {hash: HASH}}
";

fn text(declared: &str) -> String {
    let hash = DeclaredKeyHash::of(b"fg-another-secret").to_string();
    format!("{LEAST}{}", declared.replace("HASH", &hash))
}

#[test]
fn everything_that_is_declared_is_read() {
    let folder = Folder::new();
    let config = folder.parse(&text(DECLARED)).expect("it is right");
    let declared = &config.declared;
    assert!(declared.is_stated);
    assert_eq!(declared.file, folder.file());
    let [people] = &declared.groups[..] else { panic!("one group: {declared:?}") };
    assert_eq!((people.line, people.weight), (7, 300));
    let month = DeclaredBudget { is_hosted: false, is_monthly: true, is_money: false, amount: 5 };
    assert_eq!(people.budgets, [month]);
    let [chat, batch] = &declared.tenants[..] else { panic!("two tenants: {declared:?}") };
    assert_eq!((chat.line, chat.weight, chat.disabled), (9, 100, false));
    assert_eq!((chat.limits.in_flight, chat.limits.never_hosted), (Some(4), true));
    assert_eq!(chat.requires, ["docker", "machine:m1"]);
    assert!(batch.disabled);
    let [first, second] = &declared.keys[..] else { panic!("two keys: {declared:?}") };
    assert_eq!(first.hash, DeclaredKeyHash::of(SECRET.as_bytes()));
    assert_eq!(first.hint, "", "only secrets that Fairgate made are shown in part");
    assert_eq!(first.source, "environment variable OPENAI_API_KEY");
    assert_eq!(first.rights.models.as_deref(), Some(&["gpt-*".to_owned()][..]));
    assert_eq!(first.rights.classes, None);
    assert_eq!(first.rights.deadline, Some(Duration::from_secs(5)));
    assert_eq!(second.rights.classes.as_deref(), Some(&[][..]), "closed, as a new key is");
    assert_eq!(second.hash, DeclaredKeyHash::of(b"fg-another-secret"));
    assert!(!format!("{declared:?}").contains(&second.hash.to_string()));
}

#[test]
fn a_file_may_declare_nothing_and_say_so() {
    let folder = Folder::new();
    assert!(!folder.parse(LEAST).expect("it is right").declared.is_stated);
    let empty = folder.parse(&format!("{LEAST}keys: []\n")).expect("it is right").declared;
    assert!(empty.is_stated && empty.keys.is_empty());
}

#[test]
fn what_is_wrong_is_told_with_line_and_field() {
    let wrong = |from: &str, to: &str| {
        let text = text(&DECLARED.replacen(from, to, 1));
        let all = errors(&text);
        assert_eq!(all.len(), 1, "{all:?}");
        all[0].clone()
    };
    assert_eq!(
        wrong("hash: HASH", "hash: fg-a-key-that-somebody-pasted-here"),
        "fairgate.yaml:22:48: keys[1].secret.hash: must be the hash of a key: 64 hexadecimal digits, as `fairgate key \
         hash` prints them"
    );
    assert_eq!(
        wrong("{hash: HASH}", "fg-a-key-that-somebody-pasted-here"),
        "fairgate.yaml:22:41: keys[1].secret: must not be written here, where others can read it: write {hash: …} as \
         `fairgate key hash` prints it, or put the key into an environment variable or a file and write {env: NAME} or \
         {file: PATH}"
    );
    assert_eq!(
        wrong("{env: OPENAI_API_KEY}", "{env: SHORT_TOKEN}"),
        "fairgate.yaml:17:13: keys[0].secret: is too easy to guess: a key has at least 16 characters"
    );
    assert_eq!(
        wrong("name: batch", "name: chat"),
        "fairgate.yaml:13:5: tenants[1]: the tenant \"chat\" is declared twice, first on line 9"
    );
    assert_eq!(
        wrong("tenant: batch", "tenant: chat"),
        "fairgate.yaml:22:5: keys[1]: the key \"prod of chat\" is declared twice, first on line 15"
    );
    assert_eq!(
        wrong("group: people", "group: peple"),
        "fairgate.yaml:10:12: tenants[0].group: this file declares no group \"peple\"; did you mean \"people\"?"
    );
    assert_eq!(
        wrong("tenant: batch", "tenant: bath"),
        "fairgate.yaml:22:26: keys[1].tenant: this file declares no tenant \"bath\"; did you mean \"batch\"?"
    );
    assert_eq!(
        wrong("{hash: HASH}", "{env: OPENAI_API_KEY}"),
        "fairgate.yaml:22:41: keys[1].secret: is the secret of the key on line 15, too"
    );
    assert_eq!(
        wrong("gpt-*", "\"*-mini\""),
        "fairgate.yaml:18:14: keys[0].models[0]: may have a * only at its end, where it stands for any ending"
    );
    assert_eq!(
        wrong("tokens_per_month: 5", "money_per_month: 5"),
        "fairgate.yaml:7:59: groups[0].limits.money_per_month: money is counted by prices, and there are none: add \
         prices, or state tokens"
    );
    assert_eq!(
        wrong("machine:m1", "machine m1"),
        "fairgate.yaml:12:24: tenants[0].requires[1]: must be a label such as docker or machine:m1"
    );
    assert_eq!(
        wrong("2099-01-01T00:00:00Z", "tomorrow"),
        "fairgate.yaml:21:17: keys[0].expires_at: must be a time such as 2027-01-01T00:00:00Z, not tomorrow"
    );
    assert_eq!(
        wrong("name: people", "name: fairgate"),
        "fairgate.yaml:7:12: groups[0].name: must be another name: the ledger calls the gateway's own requests so"
    );
}

/// Checks a file with two pools, of which one has prices, and with these declarations. `▸` marks
/// the position of the one error.
fn with_money(declared: &str, told: Option<&str>) {
    let text = format!(
        "\
upstreams:
  - {{name: own, url: http://10.0.0.11:8000, slots: 16}}
  - {{name: far, url: http://10.0.0.12:8000, slots: 8, tier: 1}}
  - {{name: box, url: http://10.0.0.13:8000, slots: 8}}
pools:
  - {{name: one, models: [paid, {{name: here, hosted: never}}], workers: [own, far]}}
  - {{name: two, models: [free], workers: [box]}}
prices:
  currency: EUR
  models:
    - {{model: paid, upstream: far, input: 1, output: 1}}
{declared}"
    );
    let folder = Folder::new();
    let Some(told) = told else {
        let read = folder.parse(&text.replace('▸', ""));
        return assert!(read.is_ok(), "{text}\n{read:?}");
    };
    let (start, _) = text.split_once('▸').expect("a place is marked");
    let line = start.lines().count();
    let column = start.lines().last().map_or(0, |line| line.chars().count()) + 1;
    assert_eq!(errors(&text.replace('▸', "")), [format!("fairgate.yaml:{line}:{column}: {told}")]);
    // A reload reads the same.
    let before = folder.parse(LEAST).expect("it is right");
    let refused = folder.reload(&before, &text.replace('▸', "")).expect_err("as a start does");
    assert!(folder.shown(&refused).contains(told));
}

#[test]
fn a_declared_budget_of_money_needs_the_prices_of_the_models_that_it_counts() {
    let owners = |group: &str, tenant: &str, keys: &[&str]| {
        let hash = |key: &str| DeclaredKeyHash::of(key.as_bytes()).to_string();
        let key = |(place, key): (usize, &&str)| {
            let secret = hash(&place.to_string());
            format!("  - {{name: k{place}, tenant: t, secret: {{hash: {secret}}}{key}}}\n")
        };
        let keys: String = keys.iter().enumerate().map(key).collect();
        let keys = if keys.is_empty() { "  []\n".to_owned() } else { keys };
        format!(
            "groups:\n  - {{name: g{group}}}\ntenants:\n  - {{name: t, group: g{tenant}}}\nkeys:\n{keys}"
        )
    };
    let day = ", limits: {▸money_per_day: 5}";
    let of = |field: &str, model: &str, worker: &str| {
        format!(
            "{field}: counts money, and the model {model:?} has no price on {worker:?}: add one to prices (0 if it costs \
             nothing), or state tokens"
        )
    };
    let of_key = |field: &str, model: &str, key: &str, worker: &str| {
        format!(
            "{field}: counts money, and the model {model:?}, which the key {key:?} of \"t\" may request, has no price on \
             {worker:?}: add one to prices (0 if it costs nothing), name the key's models without it, or state tokens"
        )
    };
    // Who may use the keys of a tenant that the file does not have, and so which models, is not known.
    let told = of("groups[0].limits.money_per_day", "here", "own");
    with_money(&owners(day, "", &[]), Some(&told));
    let told = of("tenants[0].limits.money_per_day", "here", "own");
    with_money(&owners("", day, &[]), Some(&told));
    // All of a tenant's keys are known: their models count, and no others.
    let paid = ", models: [paid]";
    with_money(&owners("", day, &[paid, ", models: [pai*]"]), None);
    with_money(&owners(day, "", &[paid]), None);
    let told = of_key("groups[0].limits.money_per_day", "free", "k1", "box");
    with_money(&owners(day, "", &[paid, ", models: [paid, free]"]), Some(&told));
    let told = of_key("tenants[0].limits.money_per_day", "here", "k1", "own");
    with_money(&owners("", day, &[paid, ""]), Some(&told));
    // The budget of a key counts what this key may request.
    let both = format!("{paid}{day}");
    with_money(&owners("", "", &["", &both]), None);
    let told = of_key("keys[1].limits.money_per_day", "free", "k1", "box");
    let free = format!(", models: [\"f*\"]{day}");
    with_money(&owners("", "", &[paid, &free]), Some(&told));
    // Hosted workers: each that may be used has a price, and none is needed where none may be used.
    let hosted = ", limits: {hosted_money_per_month: 5}";
    with_money(&owners("", hosted, &[]), None);
    let told = of_key("keys[0].limits.money_per_day", "paid", "k0", "own");
    let never = ", models: [paid], limits: {hosted: never, ▸money_per_day: 5}";
    with_money(&owners("", "", &[never]), Some(&told));
    let own = ", models: [paid], workers: [own], limits: {▸money_per_month: 5}";
    let told = told.replace("day", "month");
    with_money(&owners("", "", &[own]), Some(&told));
}

#[test]
fn a_reload_names_what_changes_and_no_secret() {
    let folder = Folder::new();
    let before = folder.parse(&text(DECLARED)).expect("it is right");
    let next = DECLARED
        .replace("in_flight: 4", "in_flight: 5")
        .replace("{hash: HASH}", "{env: FAIRGATE_VIEWER_TOKEN}");
    let plan = folder.reload(&before, &text(&next)).expect("nothing needs a restart");
    let lines: Vec<String> = plan.changes.iter().map(ToString::to_string).collect();
    assert_eq!(lines[0], "keys.batch.prod.secret: changed");
    assert!(
        lines[1].starts_with("tenants.chat: group people, weight 100, in_flight 4"),
        "{lines:?}"
    );
    assert_eq!(lines.len(), 2);
}
