//! Groups, tenants and keys of a file: what is read, and what is refused with line and field.

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
