//! Checks that examples/fairgate.yaml is valid as it is and with any of its options uncommented,
//! and that it has every option.

use std::collections::BTreeSet;

use fairgate_config::{Config, Tokenizer};
use granit_parser::{Event, Parser};

use crate::document::rows;
use crate::support::{Folder, environment, repository};

fn example() -> String {
    repository("examples/fairgate.yaml")
}

/// Returns the index of the `#` of a commented option, which has no space after the `#`.
fn commented(line: &str) -> Option<usize> {
    let mark = line.find('#').filter(|mark| line[..*mark].trim().is_empty())?;
    let option = line[mark + 1..].starts_with(|c: char| c.is_ascii_lowercase());
    let deeper = line[mark + 1..].starts_with("  ");
    (option || deeper).then_some(mark)
}

/// Returns the example with one commented option enabled, for each option. Lines that are indented
/// below the option are enabled too.
fn uncommented() -> Vec<String> {
    let example = example();
    let lines: Vec<&str> = example.lines().collect();
    let mut all = Vec::new();
    for (first, line) in lines.iter().enumerate() {
        let Some(mark) = commented(line).filter(|mark| !line[mark + 1..].starts_with(' ')) else {
            continue;
        };
        let mut changed: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        for (i, line) in lines.iter().enumerate().skip(first) {
            match commented(line) {
                Some(at) if at == mark && (i == first || line[at + 1..].starts_with("  ")) => {
                    changed[i].remove(mark);
                }
                _ => break,
            }
        }
        all.push(changed.join("\n") + "\n");
    }
    assert!(all.len() > 20, "commented options were found: {}", all.len());
    all
}

/// Returns the paths of all fields of a text, such as `pools[].cost.input`. Fields below a policy
/// or aliases are left out.
fn paths(text: &str) -> BTreeSet<String> {
    /// An open mapping or list with its path. In a mapping, the flag states whether a name comes
    /// next.
    struct Open {
        path: String,
        names: bool,
        name_next: bool,
    }
    let mut open: Vec<Open> = Vec::new();
    let mut path = String::new();
    let mut found = BTreeSet::new();
    for event in Parser::new_from_str(text) {
        let event = event.expect("it is YAML").0;
        if let Event::SequenceEnd | Event::MappingEnd = event {
            open.pop();
        }
        match (&event, open.last_mut()) {
            (Event::Scalar(name, ..), Some(around)) if around.names && around.name_next => {
                around.name_next = false;
                let dot = if around.path.is_empty() { "" } else { "." };
                path = format!("{}{dot}{name}", around.path);
                found.insert(path.clone());
                continue;
            }
            (Event::MappingStart(..), around) => {
                if let Some(around) = around {
                    path = if around.names { path.clone() } else { around.path.clone() };
                }
                open.push(Open { path: path.clone(), names: true, name_next: true });
                continue;
            }
            (Event::SequenceStart(..), _) => {
                open.push(Open { path: format!("{path}[]"), names: false, name_next: false });
                continue;
            }
            _ => {}
        }
        if let Some(around) = open.last_mut() {
            around.name_next = around.names;
        }
    }
    found
}

#[test]
fn it_is_read_as_it_ships() {
    let folder = Folder::new();
    folder.write("fairgate.yaml", &example());
    let config = Config::from_file(&folder.file(), &environment()).expect("it is right");
    let names: Vec<&str> = config.upstreams.iter().map(|upstream| &*upstream.name).collect();
    assert_eq!(names, ["vllm-a", "vllm-b", "openai"]);
    assert_eq!(config.pools[0].capacity, 24);
    assert_eq!(config.upstreams[1].health, config.upstreams[0].health);
    assert_eq!(config.upstreams[2].url, "https://api.openai.com/");
    assert_eq!(config.upstreams[2].path_prefix(), "");
    let model = &config.pools[0].models[1];
    assert_eq!(config.upstreams[0].model_name(model), "meta-llama/Llama-3.1-8B-Instruct");
    let cost = &config.pools[1].cost;
    assert_eq!((cost.input_milli, cost.cached_milli, cost.tokenizer), (250, 125, Tokenizer::O200k));
    assert_eq!(config.data_dir, folder.path().join("fairgate-data"));
}

const PRICES: &str = "
prices:
  currency: USD
  models:
    - {model: llama-3.1-8b, input: 0, output: 0}
    - {model: default, input: 2.50, output: 10}
    - {model: gpt-4o, input: 2.50, output: 10}
    - {model: gpt-4o-mini, input: 0.15, output: 0.60}
";

/// Returns the declarations that a file also needs: the groups of its tenants, and the tenants of
/// its keys.
fn declared_before(text: &str) -> String {
    let groups = "\ngroups: [{name: people}]\n";
    match (text.contains("\ntenants:\n"), text.contains("\nkeys:\n")) {
        (true, _) => groups.to_owned(),
        (_, true) => format!("{groups}tenants: [{{name: chat, group: people}}]\n"),
        _ => String::new(),
    }
}

#[test]
fn each_commented_option_can_be_uncommented() {
    let folder = Folder::new();
    for text in uncommented() {
        // One credential takes the other's place.
        let instead = text.contains("    credential: {file");
        let text = if instead { text.replace("    credential: {env", "    #{env") } else { text };
        // Money is counted by prices.
        let counts_money =
            text.contains("\n        hosted_budget:") || text.contains("\n      money_per_day:");
        let text = if counts_money { format!("{text}\n{PRICES}") } else { text };
        let before = declared_before(&text);
        let text = text + &before;
        if let Err(errors) = folder.parse(&text) {
            panic!("{errors}\n{text}");
        }
    }
}

#[test]
fn an_uncommented_alias_is_used() {
    let folder = Folder::new();
    let text = uncommented().into_iter().find(|text| text.contains("\n    aliases:"));
    let config = folder.parse(&text.expect("it is there")).expect("it is right");
    let model = &config.pools[0].models[0];
    assert_eq!(config.upstreams[1].model_name(model), "/models/llama-3.1-8b-fp8");
    assert_eq!(config.upstreams[0].model_name(model), "meta-llama/Llama-3.1-8B-Instruct");
}

#[test]
fn every_option_is_in_it() {
    let texts = uncommented();
    let found: BTreeSet<String> = texts.iter().chain([&example()]).flat_map(|t| paths(t)).collect();
    let options: BTreeSet<String> = rows().into_iter().map(|row| row.option).collect();
    let missing: Vec<&String> = options.difference(&found).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn what_is_commented_out_is_the_default_or_off() {
    let folder = Folder::new();
    let shipped = folder.parse(&example()).expect("it is right");
    let mut changing = Vec::new();
    for text in uncommented() {
        let first = text.lines().zip(example().lines().map(str::to_owned)).find(|(a, b)| a != b);
        let (option, _) = first.expect("a line differs");
        if folder.parse(&text).is_ok_and(|config| config == shipped) {
            continue;
        }
        changing.push(option.trim().to_owned());
    }
    let off = [
        "tls:",
        "url: {env: FAIRGATE_STORE_URL}",
        "clickhouse:",
        "token: {env: FAIRGATE_ADMIN_TOKEN}",
        "viewer_token: {env: FAIRGATE_VIEWER_TOKEN}",
        // Addresses of proxies.
        "limits:",
        // A budget for all projects.
        "fleet:",
        "taints: [zone-a]",
        "metrics:",
        "aliases:",
        "discover:",
        "credential: {file: secrets/openai-key}",
        "requests_per_minute: 500",
        "tokens_per_minute: 200000",
        "fields:",
        "headers:",
        "ca: tls/company-ca.pem",
        "context_tokens: 131072",
        "hosted_budget:",
        // Stated, it does not follow the slots.
        "capacity: 32",
        "policy:",
        "policy_file: router-policy.yaml",
        "partition: true",
        "brownout:",
        // The time of the workers instead of tokens.
        "cost:",
        "requests_per_minute: 300",
        "tokens_per_minute: 100000",
        "prices:",
        "groups:",
        "tenants:",
        "keys:",
    ];
    assert_eq!(changing, off);
}
