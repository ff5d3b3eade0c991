//! Tests of errors: each has its position, field and advice, and all errors of a file are reported
//! in order.

use std::path::Path;

use fairgate_config::{Config, CostUnit};

use crate::support::{Folder, LEAST, environment, errors};

#[test]
fn all_errors_are_told_in_order_of_line() {
    let lines = errors(
        "\
pools:
  - name: llama
    models: [a, a]
    workers: [vlm-a]
    max_queue: 0
lisetn: 127.0.0.1:8080
upstreams:
  - name: vllm-a
    url: ftp://host
drain_grace: 2h
",
    );
    assert_eq!(
        lines,
        [
            r#"fairgate.yaml:3:17: pools[0].models[1]: the model "a" is listed twice"#,
            r#"fairgate.yaml:4:15: pools[0].workers[0]: no upstream is called "vlm-a"; did you mean "vllm-a"?"#,
            "fairgate.yaml:5:16: pools[0].max_queue: must be an integer from 1 to 1000000, not 0",
            r#"fairgate.yaml:6:1: lisetn: unknown; did you mean "listen"? known here: listen, tls, data_dir, drain_grace, store, on_store_failure, admin, journal, limits, metrics, fleet, upstreams, pools, prices, groups, tenants, keys"#,
            "fairgate.yaml:9:10: upstreams[0].url: must start with http:// or https:// (such as http://10.0.0.5:8000 or https://api.openai.com)",
            "fairgate.yaml:10:14: drain_grace: must be a duration from 0ms to 1h, not 2h",
        ]
    );
}

/// Changes of the shortest configuration, each with its one error. `▸` marks the position of the
/// error.
const SINGLE: &[(&str, &str, &str)] = &[
    (
        "upstreams:",
        "listen: ▸8080\nupstreams:",
        r#"listen: must be an address with a port, such as 127.0.0.1:8080, 0.0.0.0:443 or "[::]:8080""#,
    ),
    (
        "upstreams:",
        "listen: ▸localhost:80\nupstreams:",
        r#"listen: must be an address with a port, such as 127.0.0.1:8080, 0.0.0.0:443 or "[::]:8080""#,
    ),
    ("slots: 16", "slots: ▸0", "upstreams[0].slots: must be an integer from 1 to 1000000, not 0"),
    (
        "slots: 16",
        r#"slots: ▸"16""#,
        r#"upstreams[0].slots: must be an integer from 1 to 1000000, not the text "16""#,
    ),
    (
        "slots: 16",
        "slots: ▸1.5",
        "upstreams[0].slots: must be an integer from 1 to 1000000, not 1.5",
    ),
    (
        "slots: 16",
        "slots: 16, slots_max: ▸32",
        "upstreams[0].slots_max: has no meaning without slots: auto",
    ),
    (
        "slots: 16",
        "slots: 16, metrics: {path: ▸metrics}",
        "upstreams[0].metrics.path: must be a path that starts with /, such as /metrics",
    ),
    (
        "slots: 16",
        "slots: 16, metrics: {overload_cache: ▸95}",
        "upstreams[0].metrics.overload_cache: must be a decimal from 0.001 to 1 of at most 3 places, not 95",
    ),
    (
        "slots: 16",
        "slots: 16, discover: {dns: ▸a b}",
        "upstreams[0].discover.dns: must be a name that DNS knows, such as vllm.default.svc.cluster.local",
    ),
    ("slots: 16", "slots: ▸-1", "upstreams[0].slots: must be an integer from 1 to 1000000, not -1"),
    (
        "slots: 16",
        "▸slots: ",
        "upstreams[0].slots: has no value: give one ({} for a section with its defaults), or remove it",
    ),
    ("slots: 16", "slots: 16, ▸slots: 8", "upstreams[0].slots: is given twice, first on line 2"),
    (
        "slots: 16",
        "slots: 16, ▸<<: {}",
        "upstreams[0].<<: merging is not supported: repeat the fields, or alias a whole value",
    ),
    (
        "slots: 16",
        "slots: 16, timeouts: {connect: ▸5}",
        "upstreams[0].timeouts.connect: must be a duration such as 750ms, 30s, 5m or 1h, not 5",
    ),
    (
        "slots: 16",
        "slots: 16, timeouts: {idle: ▸0s}",
        "upstreams[0].timeouts.idle: must be a duration from 1ms to 24h, not 0s",
    ),
    (
        "slots: 16",
        "slots: 16, dialects: [openai, ▸antropic]",
        r#"upstreams[0].dialects[1]: must be one of openai, anthropic, not antropic; did you mean "anthropic"?"#,
    ),
    (
        "slots: 16",
        "slots: 16, dialects: ▸[]",
        "upstreams[0].dialects: must have at least one element",
    ),
    (
        "slots: 16",
        "slots: 16, health: {path: ▸health}",
        "upstreams[0].health.path: must be a path that starts with /, such as /health",
    ),
    (
        "slots: 16",
        "slots: 16, ca: ▸tls/company-ca.pem",
        "upstreams[0].ca: has no meaning where url starts with http://: remove it, or use https://",
    ),
    (
        "slots: 8",
        "slots: 8, ca: ▸tls/none.pem",
        r#"upstreams[1].ca: there is no file "tls/none.pem""#,
    ),
    (
        "slots: 16",
        "slots: 16, aliases: {llama-9b: ▸x}",
        r#"upstreams[0].aliases.llama-9b: no pool with the worker "vllm-a" has the model "llama-9b"; did you mean "llama-8b"?"#,
    ),
    (
        "slots: 16",
        "slots: 16, fields: {strip: [seed, ▸max_tokens]}",
        "upstreams[0].fields.strip[1]: max_tokens is read by the gateway itself and can have no rule",
    ),
    (
        "slots: 16",
        "slots: 16, fields: {refuse: [▸m*]}",
        "upstreams[0].fields.refuse[0]: model is read by the gateway itself and can have no rule",
    ),
    (
        "slots: 16",
        "slots: 16, fields: {allow: [▸pri*ority]}",
        "upstreams[0].fields.allow[0]: must be a name of 1 to 128 bytes; a * at its end stands for any ending",
    ),
    (
        "slots: 16",
        "slots: 16, headers: {strip: [X-Team], refuse: [▸x-team]}",
        r#"upstreams[0].headers.refuse[0]: "x-team" has a rule already"#,
    ),
    (
        "slots: 16",
        "slots: 16, headers: {▸forbid: [x-team]}",
        "upstreams[0].headers.forbid: unknown; known here: allow, strip, refuse",
    ),
    (
        "upstreams:",
        "limits: {foreign_response_ids: ▸yes}\nupstreams:",
        "limits.foreign_response_ids: must be one of refuse, allow, not yes",
    ),
    (
        "workers: [vllm-a, vllm-b]",
        "workers: [vllm-a, ▸vllm-a]",
        r#"pools[0].workers[1]: the upstream "vllm-a" is listed twice"#,
    ),
    ("[llama-8b]", "▸llama-8b", "pools[0].models: must be a list, not llama-8b"),
    (
        "[llama-8b]",
        "[▸two words]",
        "pools[0].models[0]: must be the name of a model: 1 to 256 bytes without spaces",
    ),
    (
        "name: llama,",
        "name: ▸../llama,",
        "pools[0].name: must be a name of 1 to 64 letters, digits, -, _ and ., that starts with a letter or digit",
    ),
    (
        "models:",
        "cost: {input: ▸0.0001}, models:",
        "pools[0].cost.input: must be a decimal from 0 to 1000 of at most 3 places, not 0.0001",
    ),
    (
        "models:",
        "cost: ▸{input: 0, output: 0}, models:",
        "pools[0].cost: input and output cannot both be 0: requests would cost nothing, and nothing be shared",
    ),
    (
        "models:",
        "cost: {unit: ▸time}, models:",
        "pools[0].cost.unit: must be one of tokens, worker_time, money, not time",
    ),
    (
        "models:",
        "cost: {unit: worker_time, output: ▸13}, models:",
        "pools[0].cost.output: is a weight of tokens, and this pool counts worker time: remove it, or state unit: tokens",
    ),
    (
        "models:",
        "cost: {prices: ▸{request: 1, input: 1, input_input: 1, cached: 1, output: 1, context_output: 1}}, models:",
        "pools[0].cost.prices: are prices of a worker's time, and this pool counts tokens: state unit: worker_time, or remove \
         them",
    ),
    (
        "models:",
        "cost: {unit: worker_time, ▸prices: {request: 1, input: 1, input_input: 1, cached: 1, output: 1}}, models:",
        "pools[0].cost.prices.context_output: is missing: a price in picoseconds; fairgate calibrate prints all six",
    ),
    (
        "models:",
        "cost: {unit: worker_time, prices: ▸{request: 0, input: 0, input_input: 1, cached: 1, output: 0, context_output: 1}}, \
         models:",
        "pools[0].cost.prices: request, input and output cannot all be 0: requests would cost nothing, and nothing be shared",
    ),
    (
        "models:",
        "observe: false, cost: {▸unit: worker_time}, models:",
        "pools[0].cost.unit: needs prices with observe: false, because a gateway that does not see all that a worker does \
         cannot learn them: state prices, or unit: tokens",
    ),
    (
        "models:",
        "prefix_index: {}, sticky_sessions: ▸true, models:",
        "pools[0].sticky_sessions: cannot act beside prefix_index, which knows where each prompt is cached: remove one of them",
    ),
    ("models:", "partition: ▸yes, models:", "pools[0].partition: must be true or false, not yes"),
    (
        "models:",
        "policy: {share: {by: tenant}}, partition: ▸true, models:",
        "pools[0].partition: is for the default policy: set partition in the root node of policy instead",
    ),
    (
        "models:",
        "policy: ▸fair, models:",
        "pools[0].policy: must be a node: a mapping with share, drr, load or bands",
    ),
    (
        "models:",
        "policy: {▸shares: {by: tenant}}, models:",
        r#"pools[0].policy.shares: unknown: a node is one of share, drr, load, bands; did you mean "share"?"#,
    ),
    (
        "models:",
        "policy: {share: {by: tenant, weights: {▸a.b: 0}}}, models:",
        "pools[0].policy.share.weights.a.b: must be an integer of 1 or more, not 0",
    ),
    (
        "models:",
        "policy: {share: {by: tenant, ▸weigths: {}}}, models:",
        "pools[0].policy.share.weigths: unknown; known here: by, classes, default, weights, default_weight, caps, default_cap, partition, queue, inside",
    ),
    ("models:", "policy: {▸share: {}}, models:", "pools[0].policy.share.by: is missing"),
    (
        "models:",
        "policy: {load: {▸by: agent}}, models:",
        "pools[0].policy.load.by: agent names are chosen by clients, so who uses many of them would gain: share by agent only inside a node that shares by tenant or key (and there not in a default class, where several meet)",
    ),
    (
        "models:",
        "policy: {share: {by: group, inside: {share: {▸by: session}}}}, models:",
        "pools[0].policy.share.inside.share.by: session names are chosen by clients, so who uses many of them would gain: share by session only inside a node that shares by tenant or key (and there not in a default class, where several meet)",
    ),
    (
        "models:",
        "policy: {drr: {by: class, classes: [{name: a, quantum: 1}, {name: b, quantum: 1, inside: {load: {▸by: agent}}}]}}, models:",
        "pools[0].policy.drr.classes[1].inside.load.by: agent names are chosen by clients, so who uses many of them would gain: share by agent only inside a node that shares by tenant or key (and there not in a default class, where several meet)",
    ),
    (
        "models:",
        "policy: {share: {by: project, inside: {share: {▸by: session}}}}, models:",
        "pools[0].policy.share.inside.share.by: session names are chosen by clients, so who uses many of them would gain: share by session only inside a node that shares by tenant or key (and there not in a default class, where several meet)",
    ),
    (
        "models:",
        "policy: {drr: {by: class, ▸settle: true, classes: [{name: a, quantum: 1}]}}, models:",
        r#"pools[0].policy.drr.settle: was removed: it did not make real usage follow the quanta. Where usage must follow weights, use {"share":{"by":…,"classes":[{"name":…,"weight":…},…]}}; for drr by stated costs, leave settle out"#,
    ),
    (
        "models:",
        "policy: {share: {by: class, classes: [{name: a, weight: 4}, {name: b, ▸weight: 0}]}}, models:",
        "pools[0].policy.share.classes[1].weight: must be an integer of 1 or more, not 0",
    ),
    (
        "models:",
        "policy: {share: {by: class, classes: [{name: a, weight: 4}, ▸{name: b}]}}, models:",
        "pools[0].policy.share.classes[1].weight: is missing",
    ),
    (
        "models:",
        "policy: {share: {by: class, classes: [{name: a, weight: 4}, {name: b, ▸quantum: 8}]}}, models:",
        "pools[0].policy.share.classes[1].quantum: unknown; known here: name, weight, cap, queue, inside, busy_tokens, busy_fraction, limit_requests_per_worker, limit_input_tokens_per_worker, limit_cached_tokens_per_worker",
    ),
    (
        "models:",
        "policy: {share: {by: class, classes: [{name: a, weight: 4}], ▸weights: {a: 1}}}, models:",
        "pools[0].policy.share.weights: a node with classes has them there: give each class its weight and cap",
    ),
    (
        "models:",
        "policy: {share: {by: class, classes: [{name: a, weight: 4}, {▸name: a, weight: 1}]}}, models:",
        r#"pools[0].policy.share.classes[1].name: class "a" is listed twice"#,
    ),
    (
        "models:",
        "policy: {share: {by: class, classes: [{name: a, weight: 4}], ▸default: b}}, models:",
        r#"pools[0].policy.share.default: "b" is none of the classes"#,
    ),
    (
        "models:",
        "policy: {share: {by: tenant, queue: {order: wspt, ▸max_wait_us: 5s}}}, models:",
        r#"pools[0].policy.share.queue.max_wait_us: must be an integer of 0 or more, not the text "5s""#,
    ),
    (
        "models:",
        "policy: {share: {by: tenant, queue: {▸max_wait: 5}}}, models:",
        "pools[0].policy.share.queue.max_wait: unknown; known here: order, max_wait_us",
    ),
    (
        "models:",
        "policy: {share: {by: class, classes: [{name: a, weight: 4}, {name: b, weight: 1, queue: {▸order: lifo}}]}}, models:",
        r#"pools[0].policy.share.classes[1].queue.order: must be one of fcfs, wspt, edf, not the text "lifo""#,
    ),
    (
        "models:",
        "policy: {share: {by: class, classes: [{name: a, weight: 4, deadline: ▸5}]}}, models:",
        "pools[0].policy.share.classes[0].deadline: must be a duration such as 750ms, 30s, 5m or 1h, not 5",
    ),
    (
        "models:",
        "policy: {share: {by: tenant, classes: [{name: a, weight: 4, deadline: ▸5s}]}}, models:",
        "pools[0].policy.share.classes[0].deadline: is for the classes of a node with by: class; keys have deadlines of their own (fairgate key set --deadline)",
    ),
    (
        "models:",
        "policy: {share: {by: tenant, inside: {share: {by: class, classes: [{name: a, weight: 4, deadline: 5s, inside: {drr: {by: class, classes: [{name: a, quantum: 1, deadline: ▸4s}]}}}]}}}}, models:",
        r#"pools[0].policy.share.inside.share.classes[0].inside.drr.classes[0].deadline: the class "a" stands in this policy twice with different deadlines: state one, or the same in both places"#,
    ),
    (
        "models:",
        "policy: {share: {by: tenant, classes: [{name: a, weight: 1, inside: {share: {▸by: session}}}]}}, models:",
        "pools[0].policy.share.classes[0].inside.share.by: session names are chosen by clients, so who uses many of them would gain: share by session only inside a node that shares by tenant or key (and there not in a default class, where several meet)",
    ),
    (
        "models:",
        "policy: {bands: {by: class, classes: [{name: a, ▸weight: 4}]}}, models:",
        "pools[0].policy.bands.classes[0].weight: unknown; known here: name, cap, queue, inside, busy_tokens, busy_fraction, limit_requests_per_worker, limit_input_tokens_per_worker, limit_cached_tokens_per_worker",
    ),
    (
        "models:",
        "policy: {bands: {by: class, classes: [{name: a}], ▸default_cap: 3}}, models:",
        "pools[0].policy.bands.default_cap: unknown; known here: by, classes, default, queue, inside",
    ),
    (
        "models:",
        "policy: {bands: {by: tenant, classes: [{name: a, inside: {share: {▸by: session}}}]}}, models:",
        "pools[0].policy.bands.classes[0].inside.share.by: session names are chosen by clients, so who uses many of them would gain: share by session only inside a node that shares by tenant or key (and there not in a default class, where several meet)",
    ),
    (
        "models:",
        "policy: {drr: {by: class, classes: [{name: a, quantum: 1}], inside: {bands: {▸by: agent, classes: [{name: a}]}}}}, models:",
        "pools[0].policy.drr.inside.bands.by: agent names are chosen by clients, so who uses many of them would gain: share by agent only inside a node that shares by tenant or key (and there not in a default class, where several meet)",
    ),
    (
        "models:",
        "policy: {share: {by: class, classes: [{name: a, weight: 1}], inside: {share: {▸by: session}}}}, models:",
        "pools[0].policy.share.inside.share.by: session names are chosen by clients, so who uses many of them would gain: share by session only inside a node that shares by tenant or key (and there not in a default class, where several meet)",
    ),
    (
        "upstreams:",
        "limits: ▸{body_size_max: 2GiB}\nupstreams:",
        "limits: held_size_max must be at least body_size_max, or the largest body never fits",
    ),
    (
        "upstreams:",
        "limits: {body_size_max: ▸64}\nupstreams:",
        "limits.body_size_max: must be a size such as 512B, 64KiB, 64MiB or 1GB, not 64",
    ),
    (
        "upstreams:",
        "limits: {header_size_max: ▸1KiB}\nupstreams:",
        "limits.header_size_max: must be a size from 8KiB to 1MiB, not 1KiB",
    ),
    (
        "upstreams:",
        "admin: {listen: ▸127.0.0.1:8080}\nupstreams:",
        "admin.listen: is where clients connect: give another address, or remove it to share that one",
    ),
    (
        "upstreams:",
        "▸tls: {cert: tls/fullchain.pem}\nupstreams:",
        "tls.key: is missing: a PEM file, the private key",
    ),
    (
        "upstreams:",
        "▸journal:\nupstreams:",
        "journal: has no value: give one ({} for a section with its defaults), or remove it",
    ),
    (
        "upstreams:",
        "store: {url: ▸sqlite://x}\nupstreams:",
        "store.url: must be sqlite: and a path, such as sqlite:fairgate.db or sqlite:/var/lib/fairgate.db",
    ),
    (
        "upstreams:",
        "on_store_failure: ▸refuze\nupstreams:",
        r#"on_store_failure: must be one of refuse, serve, not refuze; did you mean "refuse"?"#,
    ),
    (
        "upstreams:",
        "store: {spool_size_max: ▸1MiB}\nupstreams:",
        "store.spool_size_max: must be a size from 16MiB to 1024GiB, not 1MiB",
    ),
    (
        "upstreams:",
        "store: {clickhouse: {url: ▸clickhouse:8123}}\nupstreams:",
        "store.clickhouse.url: must be a URL with http:// or https:// and a host (such as http://clickhouse:8123 or https://clickhouse.internal:8443)",
    ),
    (
        "upstreams:",
        "store: {clickhouse: {url: http://c:8123, database: ▸a-b}}\nupstreams:",
        "store.clickhouse.database: must be the name of a database: letters, digits and _, with no digit at its beginning",
    ),
    (
        "upstreams:",
        "store: {clickhouse: {url: http://c:8123, credential: ▸{env: OPENAI_API_KEY}}}\nupstreams:",
        "store.clickhouse.credential: must be a user and a password with a colon between them: USER:PASSWORD",
    ),
    (
        "upstreams:",
        "store: {clickhouse: ▸{url: http://c:8123, ca: tls/other.pem}}\nupstreams:",
        "store.clickhouse: ca is for https only, and url is http",
    ),
    ("upstreams:", "store: {spool: ▸[a]}\nupstreams:", "store.spool: must be a text, not a list"),
];

#[test]
fn single_errors() {
    for (old, new, expected) in SINGLE {
        assert!(LEAST.contains(old), "{old}");
        let marked = LEAST.replacen(old, new, 1);
        let before: Vec<&str> = marked.split('▸').next().expect("a start").split('\n').collect();
        let column = before.last().expect("a line").chars().count() + 1;
        let expected = format!("fairgate.yaml:{}:{column}: {expected}", before.len());
        assert_eq!(errors(&marked.replace('▸', "")), [expected], "{marked}");
    }
}

#[test]
fn errors_elsewhere() {
    for (old, new, expected) in [
        (
            "slots: 16",
            "slot: 16",
            &[
                r#"2:48: upstreams[0].slot: unknown; did you mean "slots"? known here: name, url, dialects, credential, aliases, slots, slots_max, ranks, taints, batch_tokens, tier, timeouts, health, metrics, discover, breaker, ca, idle_connections_max, fields, headers, account, requests_per_minute, tokens_per_minute, burst_seconds, probe, shared_limits"#,
                r#"5:5: pools[0].capacity: is missing: how many requests may be in flight at once (it would be the sum of the workers' slots, but "vllm-a" states none)"#,
            ][..],
        ),
        (
            "slots: 16}",
            "}",
            &[
                r#"5:5: pools[0].capacity: is missing: how many requests may be in flight at once (it would be the sum of the workers' slots, but "vllm-a" states none)"#,
            ][..],
        ),
        (
            "name: vllm-b",
            "name: vllm-a",
            &[
                r#"3:5: upstreams[1]: another upstream is called "vllm-a", on line 2"#,
                r#"5:57: pools[0].workers[1]: no upstream is called "vllm-b"; did you mean "vllm-a"?"#,
            ][..],
        ),
        (
            "models: [llama-8b], ",
            "",
            &["5:5: pools[0].models: is missing: the models that it serves"][..],
        ),
    ] {
        assert!(LEAST.contains(old), "{old}");
        let expected: Vec<String> = expected.iter().map(|e| format!("fairgate.yaml:{e}")).collect();
        assert_eq!(errors(&LEAST.replacen(old, new, 1)), expected, "{old} → {new}");
    }
}

#[test]
fn upstreams_of_one_account_state_the_same_rates() {
    let text = |second: &str| {
        format!(
            "upstreams:\n  - {{name: a, url: 'https://a', account: openai, requests_per_minute: 500}}\n  - {{name: b, url: 'https://b', {second}}}\npools:\n  - {{name: p, models: [m], workers: [a, b], capacity: 4}}\n"
        )
    };
    assert_eq!(
        errors(&text("account: openai, requests_per_minute: 600")),
        [
            r#"fairgate.yaml:3:5: upstreams[1]: draws on the account "openai" like the upstream on line 2, and states other rates or options of it: state the same requests_per_minute, tokens_per_minute, burst_seconds, probe and shared_limits in both, or use another account"#
        ]
    );
    assert_eq!(
        errors(&text("burst_seconds: 5")),
        [
            "fairgate.yaml:3:48: upstreams[1].burst_seconds: has no meaning without account, requests_per_minute or tokens_per_minute"
        ]
    );
}

#[test]
fn slots_are_not_counted_twice() {
    let text = format!("{LEAST}  - {{name: other, models: [x], workers: [vllm-b], capacity: 1}}\n");
    assert_eq!(
        errors(&text),
        [
            r#"fairgate.yaml:6:42: pools[1].workers[0]: the upstream "vllm-b" works for pools[0] already and has slots, which each pool would count for itself: list it a second time under another name with its own part of the slots, or remove its slots"#
        ]
    );
}

#[test]
fn names_and_models_are_unique_across_pools() {
    let text =
        format!("{LEAST}  - {{name: llama, models: [llama-8b], workers: [vllm-a], capacity: 1}}\n");
    let text = text.replace(", slots: 16", "").replace("vllm-b]", "vllm-b], capacity: 2");
    assert_eq!(
        errors(&text),
        [
            r#"fairgate.yaml:6:5: pools[1]: another pool is called "llama", on line 5"#,
            r#"fairgate.yaml:6:28: pools[1].models[0]: the model "llama-8b" is in pools[0] already: a request for it must lead to one pool"#,
        ]
    );
}

#[test]
fn a_pool_of_leases_has_no_upstreams_and_needs_none() {
    let folder = Folder::new();
    let config = folder.parse("pools: [{name: direct, capacity: 3, leases: true}]").expect("right");
    let leases = config.pools[0].leases.as_ref().expect("it leases");
    assert_eq!((leases.ttl.as_secs(), leases.quota.is_hosted()), (15, false));
    assert!(config.upstreams.is_empty() && config.pools[0].leased_worker().is_some());
    let off = "upstreams: [{name: a, url: http://a}]\npools: [{name: p, capacity: 3, leases: false, models: [m], workers: [a]}]";
    assert!(folder.parse(off).expect("right").pools[0].leases.is_none());
    let lines = errors(
        "\
upstreams:
  - {name: vllm, url: http://10.0.0.1}
pools:
  - name: vllm
    leases: {ttl: 1ms, rate: 5}
    models: [a]
    retries: 2
",
    );
    let without = "has no meaning in a pool of leases, whose clients call a provider themselves: remove it, or `leases`";
    assert_eq!(
        lines,
        [
            "fairgate.yaml:4:5: pools[0].capacity: is missing: how many leases may be held at once".to_owned(),
            "fairgate.yaml:4:5: pools[0]: a pool of leases is a worker of the same name, and an upstream is called so: rename one of them".to_owned(),
            "fairgate.yaml:5:19: pools[0].leases.ttl: must be a duration from 1s to 10m, not 1ms".to_owned(),
            "fairgate.yaml:5:24: pools[0].leases.rate: unknown; known here: ttl, requests_per_minute, tokens_per_minute, burst_seconds".to_owned(),
            format!("fairgate.yaml:6:13: pools[0].models: {without}"),
            format!("fairgate.yaml:7:14: pools[0].retries: {without}"),
        ]
    );
    let missing = errors("pools: [{name: p, capacity: 3, models: [m], workers: [a]}]");
    assert_eq!(missing, ["fairgate.yaml:1:1: upstreams: is missing: at least one backend"]);
}

#[test]
fn worker_time_needs_a_worker_whose_time_can_be_priced() {
    let both = |more: &str| {
        let first = LEAST.replace("slots: 16", &format!("slots: 16, {more}"));
        first.replace("slots: 8", &format!("slots: 8, {more}"))
    };
    let hosted = both("tier: 1");
    let counts_time = |text: &str| text.replace("models:", "cost: {unit: worker_time}, models:");
    let lines = errors(&counts_time(&hosted));
    let told = "pools[0].cost.unit: needs a worker of your own: all workers of this pool are hosted, and a provider's workers \
                have no time that could be shared. State unit: tokens, or unit: money";
    assert!(matches!(&lines[..], [one] if one.ends_with(told)), "{lines:?}");
    let with_account = both("requests_per_minute: 60");
    let lines = errors(&counts_time(&with_account));
    assert!(matches!(&lines[..], [one] if one.ends_with(told)), "{lines:?}");
    let leased = "pools: [{name: p, capacity: 3, leases: {}, cost: {unit: worker_time}}]";
    let told = "fairgate.yaml:1:51: pools[0].cost.unit: needs prices in a pool of leases, whose answers the gateway does not \
                see: state prices, or unit: tokens";
    assert_eq!(errors(leased), [told]);
    let folder = Folder::new();
    let prices = "{request: 1, input: 1, input_input: 1, cached: 1, output: 1, context_output: 1}";
    let stated = leased.replace("worker_time", &format!("worker_time, prices: {prices}"));
    assert!(folder.parse(&stated).expect("right").pools[0].cost.prices.is_some());
    assert!(folder.parse(&counts_time(LEAST)).expect("right").pools[0].cost.prices.is_none());
}

#[test]
fn a_pool_that_counts_money_needs_a_price_of_each_model_on_each_worker() {
    let counts_money = LEAST.replace("models:", "cost: {unit: money}, models:");
    let told = |worker: &str| {
        format!(
            "pools[0].models[0]: has no price on {worker:?}, and the pool counts money (cost.unit): add a price of \
             \"llama-8b\" to prices, or state unit: tokens"
        )
    };
    let lines = errors(&counts_money);
    assert!(matches!(&lines[..], [one] if one.ends_with(&told("vllm-a"))), "{lines:?}");
    let price = |upstream: &str| format!("{{model: llama-8b, {upstream}input: 1, output: 2}}");
    let with =
        |prices: &str| format!("prices: {{currency: USD, models: [{prices}]}}\n{counts_money}");
    let lines = errors(&with(&price("upstream: vllm-a, ")));
    assert!(matches!(&lines[..], [one] if one.ends_with(&told("vllm-b"))), "{lines:?}");
    let folder = Folder::new();
    let config = folder.parse(&with(&price(""))).expect("right");
    assert_eq!(config.pools[0].cost.unit, CostUnit::Money);
    for (option, told) in [
        (
            "cached_input: 0.1",
            "cached_input: is a weight of tokens, and this pool counts money: remove it, or state unit: tokens",
        ),
        (
            "prices: {request: 1}",
            "prices: are prices of a worker's time, and this pool counts money: state unit: worker_time, or remove them",
        ),
    ] {
        let lines =
            errors(&with(&price("")).replace("unit: money", &format!("unit: money, {option}")));
        let told = format!("pools[0].cost.{told}");
        assert!(matches!(&lines[..], [one] if one.ends_with(&told)), "{lines:?}");
    }
    let leased = "pools: [{name: p, capacity: 3, leases: {}, cost: {unit: money}}]";
    let told = "fairgate.yaml:1:51: pools[0].cost.unit: needs workers with prices, and a pool of leases has no workers: state \
                unit: tokens";
    assert_eq!(errors(leased), [told]);
}

#[test]
fn prices_of_a_worker_are_not_learned_where_others_use_it() {
    let pools = |first: &str, second: &str| {
        format!(
            "upstreams: [{{name: a, url: 'http://10.0.0.1'}}, {{name: b, url: 'http://10.0.0.1'}}, {{name: c, url: 'http://10.0.0.2'}}]\n\
             pools:\n  - {{name: p, models: [m], capacity: 4, {first}}}\n  - {{name: q, models: [n], capacity: 4, {second}}}\n"
        )
    };
    let learns = "workers: [a], cost: {unit: worker_time}";
    let told = "pools[0].cost.unit: needs prices, because the pool \"q\", which has observe: false, uses the worker \"a\" too, and a \
                gateway that does not see all that a worker does cannot learn them: state prices, or unit: tokens";
    for same in ["a", "b"] {
        let lines = errors(&pools(learns, &format!("workers: [{same}], observe: false")));
        assert!(matches!(&lines[..], [one] if one.ends_with(told)), "{lines:?}");
    }
    let folder = Folder::new();
    let prices = "{request: 1, input: 1, input_input: 1, cached: 1, output: 1, context_output: 1}";
    let stated =
        format!("workers: [a], observe: false, cost: {{unit: worker_time, prices: {prices}}}");
    for fine in ["workers: [c], observe: false", "workers: [a]", &stated] {
        folder.parse(&pools(learns, fine)).unwrap_or_else(|errors| panic!("{fine}: {errors}"));
    }
}

#[test]
fn one_mistake_is_one_error() {
    // An upstream that is wrong is still known by its name, and its slots do not make the capacity missing.
    let text = LEAST.replace("http://10.0.0.11:8000, slots: 16", "10.0.0.11:8000, slots: many");
    let fields: Vec<String> = errors(&text)
        .iter()
        .map(|line| line.split(": ").nth(1).expect("a field").to_owned())
        .collect();
    assert_eq!(fields, ["upstreams[0].url", "upstreams[0].slots"]);
}

#[test]
fn a_file_that_is_no_configuration() {
    for (text, expected) in [
        ("", "1:1: is empty: a configuration has at least upstreams and pools"),
        (
            "hello\n",
            "1:1: must be a mapping with listen, tls, data_dir, drain_grace, store, on_store_failure, admin, journal, limits, metrics, fleet, upstreams, pools, prices, groups, tenants, keys",
        ),
        ("{}\n", "1:1: upstreams: is missing: at least one backend"),
        ("a: [\n", "1:4: is not YAML: unclosed bracket '['"),
    ] {
        assert_eq!(errors(text)[0], format!("fairgate.yaml:{expected}"), "{text}");
    }
}

#[test]
fn a_file_that_is_not_there() {
    let error = Config::from_file(Path::new("no/such.yaml"), &environment()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "no/such.yaml: cannot be read: No such file or directory (os error 2)"
    );
}

#[test]
fn rows_go_to_a_folder() {
    let folder = Folder::new();
    let text = format!("store: {{spool: tls/fullchain.pem}}\n{LEAST}");
    let errors = folder.parse(&text).expect_err("it is a file").to_string();
    assert!(errors.contains("store.spool: must be a folder, and "), "{errors}");
    assert!(errors.ends_with("tls/fullchain.pem is a file"), "{errors}");
}
