//! Tests of providers with limits. Their quota is shared and used, and their 429s never reach a
//! client.
//!
//! The provider of these tests is ten times as fast as one with 1200 requests and 400 000 tokens
//! per minute, and accumulates quota for a tenth of the time. So six seconds here correspond to a
//! minute there.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fairgate_config::QuotaConfig;
use fairgate_gateway::{Gateway, GatewayOptions};
use fairgate_money::{Currency, ModelPrices, PerMillion, Price, PriceRates};
use fairgate_sim::{
    AccountOptions, BytesPerToken, LimitHeaderFault, LimitHeaders, OutputLength, Sim, SimAccount,
    SimOptions,
};
use fairgate_store::{
    AttemptOutcome, Budget, BudgetOwners, BudgetPeriod, BudgetTier, BudgetUnit, DirectoryChange,
    DirectoryLimits, GroupPatch, HostedUse, KeyHash, MicroUnits, Store, StoreOptions, UnixMicros,
};
use fairgate_time::wall_clock;
use http::StatusCode;
use serde_json::{Value, json};

use crate::support::client::{Answer, post};
use crate::support::scripted::Scripted;
use crate::support::{Folder, House, UNSTATED_QUOTA, beside, config, house_in, house_with};

pub(crate) const CHAT: &str = "/v1/chat/completions";
const MESSAGES: &str = "/v1/messages";
pub(crate) const REQUESTS_PER_MINUTE: u64 = 12_000;
pub(crate) const TOKENS_PER_MINUTE: u64 = 4_000_000;

pub(crate) fn account(statement: LimitHeaders, lie: Option<LimitHeaderFault>) -> Arc<SimAccount> {
    SimAccount::new(AccountOptions {
        requests_per_minute: Some(REQUESTS_PER_MINUTE),
        tokens_per_minute: Some(TOKENS_PER_MINUTE),
        burst: Duration::from_secs(6),
        statement,
        lie,
        ..AccountOptions::default()
    })
}

/// Starts a model of a provider. Each answer has 500 tokens.
pub(crate) fn provider(model: &str, account: &Arc<SimAccount>) -> Sim {
    let options = SimOptions {
        models: vec![model.to_owned()],
        slots: 1000,
        bytes_per_token: BytesPerToken::default(),
        output_tokens: OutputLength::exactly(500),
        account: Some(account.clone()),
        ..SimOptions::instant()
    };
    Sim::start(([127, 0, 0, 1], 0).into(), options).unwrap()
}

/// Returns the quota settings of an account whose limits the file does not state.
pub(crate) fn hosted() -> QuotaConfig {
    QuotaConfig { account: Some("main".into()), ..UNSTATED_QUOTA }
}

/// Returns a request with 500 tokens of input and 500 of output.
fn question(path: &str, model: &str, key: &str) -> crate::support::client::Question {
    let content = "some ".repeat(400);
    let body = json!({
        "model": model, "max_tokens": 500, "messages": [{"role": "user", "content": content}],
    });
    post(path, &body).key(key)
}

/// Sends this number of requests of each key at once. Returns the status and the end time of each.
pub(crate) async fn flood(
    house: &House,
    path: &'static str,
    asked: &[(&str, &str, usize)],
) -> Vec<Vec<(StatusCode, Duration)>> {
    let began = Instant::now();
    let addr = house.gateway.addr();
    let mut all = Vec::new();
    for (key, model, count) in asked {
        let tasks: Vec<_> = (0..*count)
            .map(|_| {
                let question = question(path, model, key);
                tokio::spawn(async move { (question.ask(addr).await.status, began.elapsed()) })
            })
            .collect();
        all.push(tasks);
    }
    let mut done = Vec::new();
    for tasks in all {
        let mut of_one = Vec::new();
        for task in tasks {
            of_one.push(task.await.unwrap());
        }
        done.push(of_one);
    }
    done
}

pub(crate) fn all_served(done: &[Vec<(StatusCode, Duration)>]) {
    for (status, _) in done.iter().flatten() {
        assert_eq!(*status, StatusCode::OK);
    }
}

/// Checks that at most one attempt in a hundred got a 429, and that at least 95 % of the rate was
/// used until the end.
fn few_refused_and_all_used(account: &SimAccount, done: &[Vec<(StatusCode, Duration)>]) {
    let counts = account.counts();
    let refused = counts.refused_by_requests + counts.refused_by_tokens;
    let attempts = counts.accepted + refused;
    assert!(refused * 100 <= attempts, "{counts:?}");
    let took = done.iter().flatten().map(|(_, at)| *at).max().unwrap().as_secs_f64();
    let used = counts.tokens as f64 / (TOKENS_PER_MINUTE as f64 / 60.0 * took);
    assert!(used >= 0.95, "{:.1} % used in {took:.2} s: {counts:?}", used * 100.0);
}

async fn shared(statement: LimitHeaders, path: &'static str) {
    let account = account(statement, None);
    let sim = provider("sim", &account);
    let house = house_with(&sim.url(), |config| {
        config.upstreams[0].quota = hosted();
        config.upstreams[0].slots = None;
        config.pools[0].capacity = 1000;
        config.pools[0].max_queue = 2000;
    })
    .await;
    let other = house.tenant("other", DirectoryLimits::default()).await;
    let weight = |name: &str, weight| DirectoryChange::PatchGroup {
        name: format!("group-{name}"),
        patch: GroupPatch { weight: Some(weight), ..GroupPatch::default() },
    };
    house.change(weight("acme", 300)).await;
    house.change(weight("other", 100)).await;
    let key = house.key.clone();
    let done = flood(&house, path, &[(&key, "sim", 450), (&other, "sim", 150)]).await;
    all_served(&done);
    few_refused_and_all_used(&account, &done);
    // While both wait: three of four, from when the rates hold to when the first has nothing more.
    let last = |of: &[(StatusCode, Duration)]| of.iter().map(|(_, at)| *at).max().unwrap();
    let until = last(&done[0]).min(last(&done[1])).mul_f64(0.95);
    let by_then = |of: &[(StatusCode, Duration)]| of.iter().filter(|(_, at)| *at <= until).count();
    let (large, small) = (by_then(&done[0]), by_then(&done[1]));
    let part = large as f64 / (large + small) as f64;
    assert!((0.75 * 0.97..=0.75 * 1.03).contains(&part), "{large} and {small}: {part:.3}");
    let workers = house.gateway.data_plane().pools.all()[0].workers();
    let quota = workers[0].quota.clone().unwrap();
    assert_eq!(quota.requests, Some((REQUESTS_PER_MINUTE, "header")));
    assert_eq!(quota.tokens, Some((TOKENS_PER_MINUTE, "header")));
    house.close().await;
    sim.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_that_openai_states_is_shared_and_used() {
    shared(LimitHeaders::OpenAi, CHAT).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_that_anthropic_states_is_shared_and_used() {
    shared(LimitHeaders::Anthropic, MESSAGES).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_pools_draw_on_one_account() {
    let account = account(LimitHeaders::OpenAi, None);
    let (large, small) = (provider("sim", &account), provider("small", &account));
    let house = house_with(&large.url(), |config| {
        config.upstreams[0].quota = QuotaConfig { shared_limits: true, ..hosted() };
        config.upstreams[0].slots = None;
        config.pools[0].capacity = 1000;
        let second = beside(config, "second", &small.url());
        config.upstreams.push(second);
        let mut pool = config.pools[0].clone();
        pool.name = "second".into();
        pool.workers = vec!["second".into()];
        pool.models[0].name = "small".into();
        config.pools.push(pool);
    })
    .await;
    let key = house.key.clone();
    let done = flood(&house, CHAT, &[(&key, "sim", 300), (&key, "small", 300)]).await;
    all_served(&done);
    few_refused_and_all_used(&account, &done);
    house.close().await;
    large.stop().await;
    small.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_lies_holds_nobody_up_for_long() {
    for lie in [
        LimitHeaderFault::RemainingZero,
        LimitHeaderFault::ResetInAYear,
        LimitHeaderFault::Negative,
        LimitHeaderFault::Absurd,
        LimitHeaderFault::Flapping,
    ] {
        let account = account(LimitHeaders::OpenAi, Some(lie));
        let sim = provider("sim", &account);
        let house = house_with(&sim.url(), |config| {
            config.upstreams[0].quota = QuotaConfig {
                requests_per_minute: Some(REQUESTS_PER_MINUTE),
                tokens_per_minute: Some(TOKENS_PER_MINUTE),
                ..hosted()
            };
            config.upstreams[0].slots = None;
        })
        .await;
        let key = house.key.clone();
        let done = flood(&house, CHAT, &[(&key, "sim", 40)]).await;
        all_served(&done);
        let took = done[0].iter().map(|(_, at)| *at).max().unwrap();
        // 40 of them are 40 000 tokens, which an honest provider lets through at once.
        assert!(took < Duration::from_secs(10), "{lie:?} took {took:?}");
        house.close().await;
        sim.stop().await;
    }
}

fn small(house: &House) -> crate::support::client::Question {
    let body = json!({"model": "sim", "messages": [{"role": "user", "content": "rivers"}]});
    post(CHAT, &body).key(&house.key)
}

pub(crate) fn limited(message: &str, code: &str) -> String {
    json!({"error": {"message": message, "type": "requests", "code": code}}).to_string()
}

pub(crate) async fn asking(house: &House) -> tokio::task::JoinHandle<Answer> {
    let (question, addr) = (small(house), house.gateway.addr());
    tokio::spawn(async move { question.ask(addr).await })
}

const GOOD: &str = r#"{"choices":[{"message":{"content":"x"}}],"usage":{"prompt_tokens":2,"completion_tokens":1}}"#;

#[tokio::test]
async fn a_request_that_met_a_limit_is_sent_again_and_each_attempt_has_its_row() {
    let mut upstream = Scripted::start().await;
    let house = house_with(&upstream.url(), |config| {
        config.upstreams[0].quota = QuotaConfig { requests_per_minute: Some(6000), ..hosted() };
        config.upstreams[0].slots = None;
    })
    .await;
    let asking = asking(&house).await;
    let call = upstream.call().await;
    let told = limited(
        "Rate limit reached for requests. Please try again in 200ms.",
        "rate_limit_exceeded",
    );
    call.answer(429, "application/json", told);
    let since = Instant::now();
    let call = upstream.call().await;
    assert!(since.elapsed() >= Duration::from_millis(150), "{:?}", since.elapsed());
    call.answer(200, "application/json", GOOD);
    assert_eq!(asking.await.unwrap().status, StatusCode::OK);
    let rows = house.rows_soon(2).await;
    let told: Vec<_> = rows
        .iter()
        .map(|row| {
            (row.attempt, row.last, row.outcome, row.status, row.code.as_deref(), row.charged)
        })
        .collect();
    assert_eq!(
        told,
        [
            (1, false, AttemptOutcome::Retried, 429, Some("provider_limited"), 0),
            (2, true, AttemptOutcome::Completed, 200, None, 3),
        ]
    );
    house.close().await;
}

#[tokio::test]
async fn a_learned_rate_survives_a_restart() {
    let mut upstream = Scripted::start().await;
    let url = upstream.url();
    let config = |folder: &Folder| {
        let mut config = config(folder, &url);
        config.upstreams[0].quota = hosted();
        config
    };
    let folder = Folder::new();
    let at_first = config(&folder);
    let house = house_in(folder, at_first, DirectoryLimits::default()).await;
    let asking = asking(&house).await;
    let told = limited("Please try again in 100ms.", "rate_limit_exceeded");
    upstream.call().await.answer(429, "application/json", told);
    upstream.call().await.answer(200, "application/json", GOOD);
    assert_eq!(asking.await.unwrap().status, StatusCode::OK);
    let rate = |gateway: &Gateway| {
        let quota = gateway.data_plane().pools.all()[0].workers()[0].quota.clone();
        quota.unwrap().requests.unwrap()
    };
    let learned = rate(&house.gateway);
    assert!(learned.0 < 60 && learned.1 == "learned", "{learned:?}");
    house.quiet().await;
    let House { gateway, folder, .. } = house;
    gateway.drain(Duration::from_secs(5)).await;
    let config = config(&folder);
    let (store, _) = Store::open(config.store.url.expose(), StoreOptions::default()).await.unwrap();
    let options = GatewayOptions {
        config,
        store,
        admin_token: KeyHash::of(b"admin"),
        may_disable_most: false,
    };
    let gateway = Gateway::start(options).await.unwrap();
    assert_eq!(rate(&gateway), learned);
    gateway.drain(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_limit_that_lasts_is_told_with_when_it_ends() {
    let mut upstream = Scripted::start().await;
    let house = house_with(&upstream.url(), |config| {
        config.upstreams[0].quota = QuotaConfig { requests_per_minute: Some(6000), ..hosted() };
        config.pools[0].queue_timeout = Duration::from_millis(300);
    })
    .await;
    let asking = asking(&house).await;
    let call = upstream.call().await;
    let told =
        limited("Rate limit reached for requests. Please try again in 30s.", "rate_limit_exceeded");
    call.answer(429, "application/json", told);
    let answer = asking.await.unwrap();
    assert_eq!(
        (answer.status, answer.code()),
        (StatusCode::SERVICE_UNAVAILABLE, "provider_limited".into())
    );
    let after: u64 = answer.header("retry-after").unwrap().parse().unwrap();
    assert!((28..=30).contains(&after), "{after}");
    assert!(answer.text().contains("requests"), "{}", answer.text());
    let worker = &house.gateway.data_plane().pools.all()[0].workers()[0];
    assert_eq!(worker.state, "paused");
    house.close().await;
}

#[tokio::test]
async fn what_a_provider_refuses_for_another_reason_is_the_clients() {
    let mut upstream = Scripted::start().await;
    let house = house_with(&upstream.url(), |config| {
        config.upstreams[0].quota = hosted();
    })
    .await;
    let first = asking(&house).await;
    let told = json!({"error": {"message": "max_tokens is too large", "code": "invalid_value"}});
    upstream.call().await.answer(400, "application/json", told.to_string());
    let answer = first.await.unwrap();
    assert_eq!((answer.status, answer.json()), (StatusCode::BAD_REQUEST, told));
    let second = asking(&house).await;
    let told: Value = json!({"error": {
        "message": "Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 41000.",
        "type": "tokens", "code": "rate_limit_exceeded"
    }});
    upstream.call().await.answer(429, "application/json", told.to_string());
    let answer = second.await.unwrap();
    assert_eq!(
        (answer.status, answer.code()),
        (StatusCode::BAD_REQUEST, "larger_than_quota".into())
    );
    assert!(answer.text().contains("41000"), "{}", answer.text());
    let row = house.rows_soon(2).await.pop().unwrap();
    assert!(row.charged > 0, "it took a request of the rate: {row:?}");
    house.close().await;
}

/// Starts two own workers with two slots each, and a hosted worker with room for all requests.
pub(crate) async fn three_workers(
    change: impl FnOnce(&mut fairgate_config::Config),
) -> (House, Vec<Sim>) {
    let options = |slots| SimOptions {
        slots,
        output_tokens: OutputLength::exactly(8),
        prefill_base: Duration::from_millis(30),
        ..SimOptions::instant()
    };
    let start = |slots| Sim::start(([127, 0, 0, 1], 0).into(), options(slots)).unwrap();
    let sims = vec![start(2), start(2), start(100)];
    let house = house_with(&sims[0].url(), |config| {
        config.upstreams[0].slots = Some(2);
        let second = beside(config, "own", &sims[1].url());
        let mut hosted = beside(config, "hosted", &sims[2].url());
        (hosted.slots, hosted.tier) = (Some(100), 1);
        config.upstreams.extend([second, hosted]);
        config.pools[0].workers.extend(["own".into(), "hosted".into()]);
        config.pools[0].capacity = 104;
        change(config);
    })
    .await;
    (house, sims)
}

pub(crate) async fn flood_small(house: &House, key: &str, count: usize) -> Vec<Answer> {
    let body = json!({"model": "sim", "max_tokens": 8, "messages": [{"role": "user", "content": "rivers"}]});
    let addr = house.gateway.addr();
    let tasks: Vec<_> = (0..count)
        .map(|_| {
            let question = post(CHAT, &body).key(key);
            tokio::spawn(async move { question.ask(addr).await })
        })
        .collect();
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(task.await.unwrap());
    }
    answers
}

#[tokio::test(flavor = "multi_thread")]
async fn hosted_workers_are_used_when_own_ones_are_full_and_by_those_who_may() {
    let (house, sims) = three_workers(|_| {}).await;
    for _ in 0..5 {
        assert_eq!(small(&house).ask(house.gateway.addr()).await.status, StatusCode::OK);
    }
    assert!(house.rows().await.iter().all(|row| row.tier == 0), "one at a time fits own workers");
    let answers = flood_small(&house, &house.key, 20).await;
    assert!(answers.iter().all(|answer| answer.status == StatusCode::OK));
    let rows = house.rows_soon(25).await;
    assert!(rows.iter().any(|row| row.tier == 1 && row.worker.as_deref() == Some("hosted")));
    let never = DirectoryLimits { hosted: HostedUse::Never, ..DirectoryLimits::default() };
    let frugal = house.tenant("frugal", never).await;
    let answers = flood_small(&house, &frugal, 20).await;
    assert!(answers.iter().all(|answer| answer.status == StatusCode::OK));
    let rows = house.rows_soon(45).await;
    assert!(rows.iter().filter(|row| row.tenant == "frugal").all(|row| row.tier == 0));
    house.close().await;
    for sim in sims {
        sim.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_over_a_hosted_budget_waits_for_own_workers() {
    let (house, sims) = three_workers(|_| {}).await;
    let hosted = |amount| {
        let (period, unit, tier) = (BudgetPeriod::Day, BudgetUnit::Tokens, BudgetTier::Hosted);
        DirectoryLimits {
            budgets: vec![Budget { period, unit, tier, amount }],
            ..DirectoryLimits::default()
        }
    };
    let thrifty = house.tenant("thrifty", hosted(300)).await;
    let answers = flood_small(&house, &thrifty, 30).await;
    for answer in &answers {
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    }
    let rows = house.rows_soon(30).await;
    let there = rows.iter().filter(|row| row.tier == 1);
    let used: u64 = there.map(|row| row.provider_tokens).sum();
    assert!(used > 0 && used <= 300, "{used} tokens on hosted workers");
    house.close().await;
    for sim in sims {
        sim.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn money_is_counted_to_the_micro_unit_and_its_budget_holds() {
    let rates = PriceRates {
        input: PerMillion::parse("2.50").unwrap(),
        cached_input: PerMillion::parse("1.25").unwrap(),
        output: PerMillion::parse("10").unwrap(),
        request: MicroUnits::parse("0.001").unwrap(),
        ..PriceRates::default()
    };
    let price = Price::new("sim", None, Currency::parse("USD").unwrap(), rates, None);
    let id = price.id.to_string();
    let (house, sims) = three_workers(|config| config.prices = ModelPrices::new(vec![price])).await;
    // Each is 2 tokens of input and 8 of output: 0.000005 + 0.00008 + 0.001.
    const EACH: u64 = 1085;
    let amount = 100 * EACH;
    let budget = |tier| Budget { period: BudgetPeriod::Day, unit: BudgetUnit::Money, tier, amount };
    let limits =
        DirectoryLimits { budgets: vec![budget(BudgetTier::Any)], ..DirectoryLimits::default() };
    let payer = house.tenant("payer", limits).await;
    let answers = flood_small(&house, &payer, 200).await;
    let served = answers.iter().filter(|answer| answer.status == StatusCode::OK).count();
    let refused: Vec<&Answer> =
        answers.iter().filter(|answer| answer.status != StatusCode::OK).collect();
    assert!(served > 0 && !refused.is_empty(), "{served} served");
    for answer in &refused {
        assert!(answer.code().starts_with("budget_"), "{}", answer.text());
        assert!(answer.text().contains("USD"), "{}", answer.text());
    }
    let rows = house.rows_soon(200).await;
    let done: Vec<_> = rows.iter().filter(|row| row.outcome == AttemptOutcome::Completed).collect();
    assert_eq!(done.len(), served);
    assert!(
        done.iter().all(|row| row.money == MicroUnits(EACH) && row.price.as_ref() == Some(&id))
    );
    let spent: u64 = rows.iter().map(|row| row.money.0).sum();
    assert!(spent <= amount, "{spent} of {amount}");
    let owners = BudgetOwners { tenant: Some("payer"), ..BudgetOwners::default() };
    let left = house.store.budgets(owners, unix_now()).await.unwrap();
    assert_eq!((left[0].used, left[0].reserved), (spent, 0));
    house.close().await;
    for sim in sims {
        sim.stop().await;
    }
}

fn unix_now() -> UnixMicros {
    let since = wall_clock::since_1970();
    UnixMicros(i64::try_from(since.as_micros()).unwrap())
}

/// A model without a price would cost nothing, so it would never use up a budget of money.
#[tokio::test(flavor = "multi_thread")]
async fn a_model_without_a_price_is_refused_under_a_budget_of_money() {
    let (house, sims) = three_workers(|_| {}).await;
    let budget = |unit, tier| {
        let budgets = vec![Budget { period: BudgetPeriod::Day, unit, tier, amount: 1_000_000 }];
        DirectoryLimits { budgets, ..DirectoryLimits::default() }
    };
    let payer = house.tenant("payer", budget(BudgetUnit::Money, BudgetTier::Any)).await;
    let counter = house.tenant("counter", budget(BudgetUnit::Tokens, BudgetTier::Any)).await;
    let refused = flood_small(&house, &payer, 1).await;
    assert_eq!(refused[0].status, StatusCode::FORBIDDEN, "{}", refused[0].text());
    assert_eq!(refused[0].code(), "model_has_no_price");
    assert_eq!(refused[0].header("x-should-retry"), Some("false"));
    let served = flood_small(&house, &counter, 1).await;
    assert_eq!(served[0].status, StatusCode::OK, "{}", served[0].text());
    // With a price, of 0 too, it is served.
    let mut priced = (*house.gateway.data_plane().config.load_full()).clone();
    let usd = Currency::parse("USD").unwrap();
    priced.prices =
        ModelPrices::new(vec![Price::new("sim", None, usd, PriceRates::default(), None)]);
    house.gateway.reload(priced).await.unwrap();
    let served = flood_small(&house, &payer, 1).await;
    assert_eq!(served[0].status, StatusCode::OK, "{}", served[0].text());
    house.close().await;
    for sim in sims {
        sim.stop().await;
    }
}

/// Tokens that Anthropic writes to its cache cost more than input, and even more if they are kept
/// for an hour.
#[tokio::test]
async fn cache_writes_are_paid_at_their_own_prices() {
    let mut provider = crate::support::scripted::Scripted::start().await;
    let rate = |text: &str| PerMillion::parse(text).unwrap();
    let rates = PriceRates {
        input: rate("3"),
        cached_input: rate("0.30"),
        cache_write: Some(rate("3.75")),
        cache_write_1h: Some(rate("6")),
        output: rate("15"),
        request: MicroUnits(0),
    };
    let price = Price::new("sim", None, Currency::parse("USD").unwrap(), rates, None);
    let house = crate::support::house_with(&provider.url(), |config| {
        config.prices = ModelPrices::new(vec![price]);
    })
    .await;
    let body = serde_json::json!({"model": "sim", "max_tokens": 9, "messages": []});
    let question = crate::support::client::post("/v1/messages", &body).key(&house.key);
    let addr = house.gateway.addr();
    let asked = tokio::spawn(async move { question.ask(addr).await });
    let usage = r#"{"type":"message","content":[],"usage":{"input_tokens":10000,"cache_read_input_tokens":50000,
        "cache_creation_input_tokens":40000,"cache_creation":{"ephemeral_5m_input_tokens":30000,
        "ephemeral_1h_input_tokens":10000},"output_tokens":1000}}"#;
    provider.call().await.answer(200, "application/json", usage);
    assert_eq!(asked.await.unwrap().status, StatusCode::OK);
    let row = house.rows_soon(1).await.pop().unwrap();
    assert_eq!((row.input_tokens, row.cached_tokens), (100_000, 50_000));
    assert_eq!((row.cache_written_tokens, row.cache_written_1h_tokens), (40_000, 10_000));
    // 10 000 · 3 + 50 000 · 0.30 + 30 000 · 3.75 + 10 000 · 6 + 1 000 · 15, in millionths.
    assert_eq!(row.money, MicroUnits::parse("0.2325").unwrap());
    house.close().await;
}
