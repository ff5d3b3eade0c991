//! Tests of the values that valid files give.

use std::path::Path;
use std::time::Duration;

use fairgate_config::{Config, UpstreamDialects};
use fairgate_journal::format_policy;

use crate::support::{Folder, LEAST};

#[test]
fn what_is_not_stated_has_its_default() {
    let folder = Folder::new();
    let config = folder.parse(LEAST).expect("it is right");
    let url = format!("sqlite:{}", folder.path().join("fairgate-data/fairgate.db").display());
    assert_eq!(config.listen, "127.0.0.1:8080".parse().expect("an address"));
    assert_eq!(config.store.url.expose(), url);
    assert_eq!(config.limits.held_bytes_max, 1 << 30);
    assert_eq!(config.journal, None);
    let [a, _] = &config.upstreams[..] else { panic!("two") };
    assert_eq!(a.dialects, UpstreamDialects { openai: true, anthropic: false });
    assert_eq!(a.timeouts.total, Duration::from_secs(3600));
    let [pool] = &config.pools[..] else { panic!("one") };
    assert_eq!((pool.capacity, pool.max_queue, pool.retries), (24, 10_000, 1));
    assert_eq!(pool.brownout, None);
    assert_eq!(
        format_policy(&pool.policy),
        r#"{"share":{"by":"group","inside":{"share":{"by":"tenant","inside":{"share":{"by":"key"}}}}}}"#
    );
}

#[test]
fn the_default_tree_can_be_partitioned() {
    let text = LEAST.replace("models:", "partition: true, models:");
    let config = Folder::new().parse(&text).expect("it is right");
    let policy = format_policy(&config.pools[0].policy);
    assert!(policy.starts_with(r#"{"share":{"by":"group","partition":true,"inside""#), "{policy}");
}

#[test]
fn a_tree_is_the_journal_s() {
    for tree in [
        r#"{"drr":{"by":"class","classes":[{"name":"01","quantum":7,"busy_fraction":0.75},{"name":"true","quantum":1,"inside":{"share":{"by":"tenant","weights":{"a.b":3},"inside":{"load":{"by":"session"}}}}}]}}"#,
        r#"{"share":{"by":"class","classes":[{"name":"01","weight":4,"queue":{"order":"wspt","max_wait_us":5000000},"cap":8,"busy_tokens":4000},{"name":"b","weight":1,"inside":{"share":{"by":"tenant"}}}],"default":"b","default_cap":2}}"#,
        r#"{"share":{"by":"tenant","queue":{"max_wait_us":0}}}"#,
        r#"{"bands":{"by":"class","classes":[{"name":"chat","cap":12,"queue":"edf","busy_tokens":4000},{"name":"batch"}],"default":"batch","inside":{"share":{"by":"tenant"}}}}"#,
        r#"{"share":{"by":"tenant","inside":{"bands":{"by":"agent","classes":[{"name":"a"}]}}}}"#,
        r#"{"share":{"by":"tenant","classes":[{"name":"x","weight":1},{"name":"a","weight":1,"inside":{"load":{"by":"session"}}}]}}"#,
    ] {
        let config = Folder::new()
            .parse(&LEAST.replace("models:", &format!("policy: {tree}, models:")))
            .unwrap_or_else(|errors| panic!("{tree}\n{errors}"));
        assert_eq!(config.pools[0].policy, fairgate_journal::parse_policy(tree).expect("a policy"));
    }
}

#[test]
fn a_cached_token_is_worth_two_waiting_ones_or_what_is_stated() {
    let credit = |option: &str| {
        let text = LEAST.replace("models:", &format!("{option}models:"));
        let config = Folder::new().parse(&text).map_err(|errors| errors.to_string())?;
        Ok::<_, String>(config.pools[0].overlap_credit.thousandths())
    };
    assert_eq!(credit(""), Ok(2000));
    assert_eq!(credit("overlap_credit: 0, "), Ok(0));
    assert_eq!(credit("overlap_credit: 1000, "), Ok(1_000_000));
    assert_eq!(credit("overlap_credit: 1.125, "), Ok(1125));
    for wrong in ["1000.001", "-1", "0.1234", "much"] {
        let error = credit(&format!("overlap_credit: {wrong}, ")).expect_err(wrong);
        let expected = format!(
            "pools[0].overlap_credit: must be a decimal from 0 to 1000 of at most 3 places, not {wrong}"
        );
        assert!(error.contains(&expected), "{error}");
    }
}

#[test]
fn an_upstream_without_slots_may_work_for_two_pools() {
    let text = "\
upstreams: [{name: api, url: https://api.test/openai/v1/}]
pools:
  - {name: a, models: [x], workers: [api], capacity: 4}
  - {name: b, models: [y], workers: [api], capacity: 4}
";
    let config = Folder::new().parse(text).expect("it is right");
    assert_eq!(config.upstreams[0].path_prefix(), "/openai");
}

#[test]
fn embedded_is_one_simulated_model() {
    let data = Path::new("some-data").to_path_buf();
    let listen = "127.0.0.1:0".parse().expect("an address");
    let url: http::Uri = "http://127.0.0.1:4567".parse().expect("a URL");
    let config = Config::embedded(data, listen, url.clone());
    assert_eq!(config.store.url.expose(), "sqlite:some-data/fairgate.db");
    assert_eq!(config.journal.expect("on").folder, Path::new("some-data/journal"));
    assert_eq!(config.upstreams[0].url, url);
    let pool = &config.pools[0];
    assert_eq!((&*pool.name, pool.capacity, &*pool.models[0].name), ("sim", 8, "sim"));
    assert_eq!(pool.workers, [config.upstreams[0].name.clone()]);
}

#[test]
fn embedded_is_what_a_file_could_say() {
    let folder = Folder::new();
    let text = "\
listen: 127.0.0.1:7000
data_dir: data
journal: {}
upstreams: [{name: sim, url: http://127.0.0.1:4567, slots: 8, dialects: [openai, anthropic]}]
pools: [{name: sim, models: [sim], workers: [sim], capacity: 8}]
";
    let listen = "127.0.0.1:7000".parse().expect("an address");
    let url = "http://127.0.0.1:4567/".parse().expect("a URL");
    let mut embedded = Config::embedded(folder.path().join("data"), listen, url);
    embedded.declared.file = folder.file();
    assert_eq!(folder.parse(text).expect("it is right"), embedded);
}
