//! The tables of `docs/metrics.md`. A test compares a table with the metrics that are registered, or writes it if
//! `FAIRGATE_UPDATE_DOCS` is set. Two crates have metrics, and each has a table of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::{env, fs};

use prometheus_client::encoding::text::encode_registry;
use prometheus_client::registry::Registry;

/// One metric, as a scrape shows it.
#[derive(Default)]
struct MetricDescription<'a> {
    kind: &'a str,
    help: &'a str,
    labels: BTreeSet<&'a str>,
}

/// Compares the table between `<!-- NAME: … -->` and `<!-- /NAME -->` with the metrics of the
/// registries. Every metric family must have a series, because the labels of an empty family cannot
/// be seen.
pub(super) fn check_table(name: &str, registries: &[&Registry]) {
    let mut text = String::new();
    for registry in registries {
        encode_registry(&mut text, registry).expect("a string takes everything");
    }
    let metrics = descriptions(&text);
    let registered: usize =
        registries.iter().map(|it| format!("{it:?}").matches("Descriptor {").count()).sum();
    assert_eq!(metrics.len(), registered, "every family has a sample: {:?}", metrics.keys());
    let mut table = "| metric | type | labels | meaning |\n|---|---|---|---|\n".to_owned();
    for (name, MetricDescription { kind, help, labels }) in &metrics {
        let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
        let help = help.trim_end_matches('.').replace('|', "\\|");
        table += &format!("| `{name}` | {kind} | {} | {help} |\n", labels.join(", "));
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    let page = fs::read_to_string(&path).expect("the page is there");
    let begin = page.find(&format!("<!-- {name}: ")).expect("the table's beginning is marked");
    let begin = begin + page[begin..].find("-->").expect("the mark ends") + "-->\n".len();
    let end = begin + page[begin..].find(&format!("<!-- /{name} -->")).expect("an end");
    let (before, shown, after) = (&page[..begin], &page[begin..end], &page[end..]);
    if env::var_os("FAIRGATE_UPDATE_DOCS").is_some() {
        fs::write(&path, format!("{before}\n{table}\n{after}")).expect("the page can be written");
        return;
    }
    assert_eq!(
        shown.trim(),
        table.trim(),
        "docs/metrics.md is old: FAIRGATE_UPDATE_DOCS=1 cargo test -p {} --lib metrics",
        env!("CARGO_PKG_NAME")
    );
}

/// Parses the text of a scrape.
fn descriptions(text: &str) -> BTreeMap<&str, MetricDescription<'_>> {
    let mut metrics: BTreeMap<&str, MetricDescription<'_>> = BTreeMap::new();
    let mut family = "";
    for line in text.lines() {
        let about = |mark: &str| line.strip_prefix(mark).and_then(|rest| rest.split_once(' '));
        if let Some((name, help)) = about("# HELP ") {
            family = name;
            metrics.entry(name).or_default().help = help;
        } else if let Some((name, kind)) = about("# TYPE ") {
            metrics.entry(name).or_default().kind = kind;
        } else if let Some((_, rest)) = line.split_once('{').filter(|_| !line.starts_with('#')) {
            let pairs = rest.rsplit_once('}').map_or("", |(pairs, _)| pairs);
            let names = pairs.split(',').filter_map(|pair| pair.split_once("=\"")).map(|it| it.0);
            let known = metrics.entry(family).or_default();
            known.labels.extend(names.filter(|name| *name != "le"));
        }
    }
    metrics
}
