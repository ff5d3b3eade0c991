//! The names, types and labels of `/metrics`, after requests that end in different ways.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use fairgate_sim::SimOptions;

use super::super::http::{CHAT, ask, chat};
use super::super::running::{Folder, Model, until};
use super::gateway;

/// Returns one line for each metric.
pub(super) fn lines() -> Vec<String> {
    let model = Model::start(SimOptions::default());
    let folder = Folder::new();
    let url = &model.url;
    // An own and a hosted worker, prices, and everything that is off by default and has metrics.
    let config = format!(
        "listen: 127.0.0.1:0\ndata_dir: data\n\
         fleet:\n  webhooks:\n    - {{ name: ops, url: \"http://127.0.0.1:9/\", secret: {{ file: secret }} }}\n\
         upstreams:\n  - {{ name: own, url: {url}, slots: 1, health: {{}}, metrics: {{ path: / }} }}\n  \
         - {{ name: hosted, url: {url}, slots: 4, tier: 1, account: a, requests_per_minute: 1000 }}\n\
         pools:\n  - {{ name: sim, models: [sim], workers: [own, hosted], prefix_index: {{}} }}\n\
         prices:\n  currency: USD\n  models:\n    - {{ model: sim, input: 1, output: 2 }}\n"
    );
    fs::write(folder.join("secret"), "a-secret-of-a-webhook").expect("a file");
    let gateway = gateway(&folder, &config);
    for args in [
        &["group", "add", "people"][..],
        &["tenant", "add", "demo", "--group", "people"],
        &["project", "add", "web", "--tenant", "demo"],
        &["task", "add", "--project", "web", "do it"],
    ] {
        gateway.fairgate(args).ok();
    }
    let key = gateway.key("demo");
    let say = |key: &str, model: &str, stream: bool| {
        ask(&gateway.url, "POST", CHAT, key, &chat(model, "Hello", stream))
            .expect("an answer")
            .status
    };
    assert_eq!([say(&key, "sim", false), say(&key, "sim", true)], [200, 200]);
    assert_eq!([say(&key, "none", false), say("fg-wrong", "sim", false)], [404, 401]);
    let token = fs::read_to_string(&gateway.token_file).expect("a token");
    let scrape = || ask(&gateway.url, "GET", "/metrics", token.trim(), "").expect("an answer").body;
    // A streamed request is counted a moment after its client has seen the end.
    let text = until("both requests are counted", || {
        Some(scrape()).filter(|text| text.contains("end=\"settled\"} 2"))
    });
    families(&text)
}

/// Returns the metrics of a scrape: name, type, and the names of their labels.
fn families(text: &str) -> Vec<String> {
    let mut kinds: BTreeMap<&str, &str> = BTreeMap::new();
    let mut labels: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut family = "";
    for line in text.lines() {
        if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|it| it.split_once(' ')) {
            family = name;
            kinds.insert(name, kind);
        } else if !line.starts_with('#') && line.starts_with(family) {
            let found = labels.entry(family).or_default();
            let inside = line.split_once('{').and_then(|(_, rest)| rest.rsplit_once('}'));
            let pairs = inside.map_or("", |(pairs, _)| pairs).split(',');
            found.extend(pairs.filter_map(|pair| pair.split_once("=\"")).map(|(name, _)| name));
        }
    }
    let line = |(name, kind): (&&str, &&str)| {
        let labels: Vec<&str> = labels.get(*name).into_iter().flatten().copied().collect();
        format!("{name} {kind} {{{}}}", labels.join(","))
    };
    kinds.iter().map(line).collect()
}

#[test]
fn values_of_a_scrape_are_left_out() {
    let text = "# HELP a_b Words.\n# TYPE a_b counter\na_b_total{x=\"1\",y=\"2, 3\"} 7\na_b_total{x=\"2\",z=\"\"} 1\n\
                # TYPE c gauge\nc 1\n# EOF\n";
    assert_eq!(families(text), ["a_b counter {x,y,z}", "c gauge {}"]);
}
