//! Tests of prices, tiers and requests over a hosted budget.

use fairgate_config::{Config, HostedBudget, HostedOverBudget};
use fairgate_money::{MicroUnits, TokenCounts};
use fairgate_time::{UnixMicros, UtcDay};

use crate::support::{Folder, LEAST, errors};

const PRICES: &str = "\
prices:
  currency: USD
  models:
    - {model: llama-8b, input: 2.50, cached_input: 1.25, output: 10}
    - {model: llama-8b, input: 3, output: 12, request: 0.001, from: 2026-11-01}
    - {model: llama-8b, upstream: vllm-b, input: 0, output: 0}
";

fn read(text: &str) -> Config {
    let folder = Folder::new();
    folder.parse(text).unwrap_or_else(|errors| panic!("{text}\n{errors}"))
}

#[test]
fn prices_are_exact_and_chosen_by_upstream_and_day() {
    let prices = read(&format!("{LEAST}{PRICES}")).prices;
    let cost = |upstream: &str, day: &str| -> MicroUnits {
        let at = UtcDay::parse(day).unwrap().midnight();
        let used = TokenCounts { input: 1_000, cached: 200, output: 500, ..TokenCounts::default() };
        prices.price("llama-8b", upstream, at).unwrap().cost(used)
    };
    assert_eq!(cost("vllm-a", "2026-10-31").to_string(), "0.00725");
    // What is cached costs as much as what is not, where nothing else is said.
    assert_eq!(cost("vllm-a", "2026-11-01").to_string(), "0.01");
    assert_eq!(cost("vllm-b", "2026-11-01"), MicroUnits::ZERO);
    assert_eq!(prices.price("other", "vllm-a", UnixMicros(0)), None);
    assert_eq!(prices.currency().unwrap().code(), "USD");
    assert!(read(LEAST).prices.is_empty());
}

/// Changes of the prices, each with its one error. `▸` marks the position of the error.
#[test]
fn what_is_wrong_with_a_price_is_told_with_its_place() {
    let first = "{model: llama-8b, input: 2.50, cached_input: 1.25, output: 10}";
    let cases = [
        (
            "currency: USD",
            "currency: ▸usd",
            "prices.currency: must be a currency as three capital letters, such as USD or EUR",
        ),
        (
            first,
            "{model: ▸llama-8, input: 1, output: 1}",
            r#"prices.models[0].model: no pool has the model "llama-8"; did you mean "llama-8b"?"#,
        ),
        (
            first,
            "{model: llama-8b, upstream: ▸vllm-c, input: 1, output: 1}",
            r#"prices.models[0].upstream: no upstream is called "vllm-c"; did you mean "vllm-a"?"#,
        ),
        (
            first,
            "{model: llama-8b, input: ▸-1, output: 1}",
            "prices.models[0].input: must be a decimal from 0 to 1000000 of at most 6 places, not -1",
        ),
        (
            first,
            "{model: llama-8b, input: 1, output: ▸0.0000001}",
            "prices.models[0].output: must be a decimal from 0 to 1000000 of at most 6 places, not 0.0000001",
        ),
        (
            first,
            "{model: llama-8b, input: 1, output: 1, request: ▸1000001}",
            "prices.models[0].request: must be a decimal from 0 to 1000000 of at most 6 places, not 1000001",
        ),
        (
            first,
            "▸{model: llama-8b, input: 1}",
            "prices.models[0].output: is missing: what a million output tokens cost; 0 for nothing",
        ),
        (
            first,
            "{model: llama-8b, input: 1, output: 1, from: ▸2026-02-30}",
            "prices.models[0].from: must be a date such as 2026-11-01, not 2026-02-30",
        ),
        (
            "upstream: vllm-b, input: 0, output: 0}",
            "upstream: vllm-b, input: 0, output: 0}\n    - ▸{model: llama-8b, input: 1, output: 1}",
            "prices.models[3]: another price is for the same model, upstream and day, on line 9: remove one, or give one a later `from`",
        ),
    ];
    for (before, after, message) in cases {
        let text = format!("{LEAST}{PRICES}").replace(before, after);
        let (start, _) = text.split_once('▸').expect("a place is marked");
        let line = start.lines().count();
        let column = start.lines().last().map_or(0, |line| line.chars().count()) + 1;
        let told = errors(&text.replace('▸', ""));
        assert_eq!(told, [format!("fairgate.yaml:{line}:{column}: {message}")], "{text}");
    }
}

#[test]
fn a_price_for_an_upstream_is_for_a_model_that_it_serves() {
    let text = "\
upstreams:
  - {name: a, url: http://10.0.0.11:8000, slots: 16}
  - {name: b, url: http://10.0.0.12:8000, slots: 8}
pools:
  - {name: one, models: [x], workers: [a]}
  - {name: two, models: [y], workers: [b]}
prices:
  currency: EUR
  models:
    - {model: x, upstream: b, input: 1, output: 1}
";
    let told =
        r#"fairgate.yaml:10:7: prices.models[0]: no pool with the worker "b" has the model "x""#;
    assert_eq!(errors(text), [told]);
}

#[test]
fn a_hosted_upstream_states_its_slots() {
    let hosted = LEAST.replace("slots: 8}", "slots: 8, tier: 1}");
    let config = read(&hosted);
    assert_eq!([config.upstreams[0].tier, config.upstreams[1].tier], [0, 1]);
    assert_eq!(config.pools[0].hosted_over_budget, HostedOverBudget::Wait);
    let without = LEAST.replace(", slots: 8}", ", tier: 1}");
    let told = errors(&without);
    assert!(
        told[0].starts_with(
            "fairgate.yaml:3:55: upstreams[1].tier: a hosted upstream must state its slots: "
        ),
        "{told:?}"
    );
}

#[test]
fn a_pool_without_own_workers_refuses_over_a_hosted_budget() {
    let hosted = LEAST.replace("slots: 16}", "slots: 16, tier: 1}").replace("8}", "8, tier: 2}");
    assert_eq!(read(&hosted).pools[0].hosted_over_budget, HostedOverBudget::Refuse);
    let waits = hosted.replace("vllm-b]}", "vllm-b], hosted_over_budget: wait}");
    let told = errors(&waits);
    assert!(
        told[0].contains("pools[0].hosted_over_budget: nothing could be waited for"),
        "{told:?}"
    );
    let never = LEAST.replace("[llama-8b]", "[{name: llama-8b, hosted: never}]");
    assert!(!read(&never).pools[0].models[0].hosted);
}

#[test]
fn a_model_may_have_a_budget_on_hosted_workers() {
    let with = |model: &str| LEAST.replace("[llama-8b]", &format!("[{{name: llama-8b, {model}}}]"));
    let budget = "hosted_budget: {tokens_per_month: 5000000, money_per_day: 7.50}";
    let config = read(&format!("{}{PRICES}", with(budget)));
    let budget_read = config.pools[0].models[0].hosted_budget;
    let expected = HostedBudget {
        tokens_per_month: Some(5_000_000),
        money_per_day: Some(MicroUnits(7_500_000)),
        ..HostedBudget::default()
    };
    assert_eq!(budget_read, expected);
    let wrong = |model: &str| errors(&with(model)).remove(0);
    assert!(wrong(budget).contains(
        "pools[0].models[0].hosted_budget.money_per_day: money is counted by prices, and there are none"
    ));
    let both = wrong("hosted: never, hosted_budget: {tokens_per_day: 1}");
    assert!(both.contains("is for what hosted: never forbids"), "{both}");
}

#[test]
fn a_reload_tells_every_price_that_changes() {
    let folder = Folder::new();
    let before = folder.parse(&format!("{LEAST}{PRICES}")).unwrap();
    let text = format!("{LEAST}{PRICES}").replace("input: 3, output: 12", "input: 3, output: 15");
    let plan = folder.reload(&before, &text).unwrap();
    let told: Vec<String> = plan.changes.iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "prices.models.llama-8b from 2026-11-01: 3.00 input, 3.00 cached input, 12.00 output a million tokens, 0.001 a \
          request → 3.00 input, 3.00 cached input, 15.00 output a million tokens, 0.001 a request"
        ]
    );
}

#[test]
fn cache_writes_have_prices() {
    let text = "prices:\n  currency: USD\n  models:\n    \
                - {model: llama-8b, input: 3, cached_input: 0.30, cache_write: 3.75, cache_write_1h: 6, output: 15}\n";
    let prices = read(&format!("{LEAST}{text}")).prices;
    let price = prices.price("llama-8b", "vllm-a", UnixMicros(0)).unwrap();
    let used = TokenCounts {
        input: 100_000,
        cached: 50_000,
        cache_written: 40_000,
        cache_written_1h: 10_000,
        output: 1_000,
    };
    assert_eq!(price.cost(used).to_string(), "0.2325");
}

/// A budget of money for a model without a price would never be used up.
#[test]
fn a_hosted_budget_of_money_needs_a_price_on_each_hosted_worker() {
    let text = |model: &str| {
        format!(
            "\
upstreams:
  - {{name: own, url: http://10.0.0.11:8000, slots: 16}}
  - {{name: far, url: http://10.0.0.12:8000, slots: 8, tier: 1}}
pools:
  - name: one
    models: [{{name: x, hosted_budget: {{money_per_day: 5}}}}, y]
    workers: [own, far]
prices:
  currency: EUR
  models:
    - {model}
"
        )
    };
    let told = r#"fairgate.yaml:6:24: pools[0].models[0].hosted_budget: counts money, and the model "x" has no price on "far": add one to prices (0 if it costs nothing), or state tokens"#;
    assert_eq!(errors(&text("{model: y, input: 1, output: 1}")), [told]);
    assert_eq!(errors(&text("{model: x, upstream: own, input: 1, output: 1}")), [told]);
    read(&text("{model: x, input: 1, output: 1}"));
    read(&text("{model: x, upstream: far, input: 1, output: 1}"));
}
