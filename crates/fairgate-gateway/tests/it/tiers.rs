//! Tests of own and hosted workers side by side: the use of each as it is shown, and a model's use
//! of hosted workers.

use fairgate_config::{HostedBudget, HostedOverBudget};
use fairgate_money::{Currency, ModelPrices, PerMillion, Price, PriceRates};
use fairgate_store::{
    Budget, BudgetPeriod, BudgetTier, BudgetUnit, DirectoryChange, DirectoryLimits, HostedUse,
    MicroUnits,
};
use http::StatusCode;
use serde_json::Value;

use crate::admin::{seen_by, seen_by_admin};
use crate::hosted::{flood_small, three_workers};

/// Returns prices for hosted tokens; own tokens cost nothing.
fn prices() -> ModelPrices {
    let rates = PriceRates {
        input: PerMillion::parse("2.50").unwrap(),
        cached_input: PerMillion::parse("1.25").unwrap(),
        output: PerMillion::parse("10").unwrap(),
        request: MicroUnits::parse("0.001").unwrap(),
        ..PriceRates::default()
    };
    let currency = Currency::parse("USD").unwrap();
    ModelPrices::new(vec![Price::new("sim", Some("hosted"), currency, rates, None)])
}

#[tokio::test(flavor = "multi_thread")]
async fn both_tiers_and_money_are_shown() {
    let (house, sims) = three_workers(|config| config.prices = prices()).await;
    let answers = flood_small(&house, &house.key, 40).await;
    assert!(answers.iter().all(|answer| answer.status == StatusCode::OK));
    let rows = house.rows_soon(40).await;
    let of = |tier: u32| {
        let rows = rows.iter().filter(|row| row.tier == tier);
        rows.fold((0, 0, 0), |(requests, tokens, money), row| {
            (requests + 1, tokens + row.provider_tokens, money + row.money.0)
        })
    };
    let (own, hosted) = (of(0), of(1));
    assert!(own.0 > 0 && hosted.0 > 0 && own.2 == 0 && hosted.2 > 0, "{own:?} {hosted:?}");
    let live = seen_by_admin(&house, "/api/v1/fairshare/live").await;
    assert_eq!(live["currency"], "USD");
    let pool = &live["pools"][0];
    let tenant = &pool["tenants"][0];
    assert_eq!(tenant["tenant_id"], "acme");
    for (shown, (requests, tokens, money)) in [
        (&pool["own"], own),
        (&pool["hosted"], hosted),
        (&tenant["own"], own),
        (&tenant["hosted"], hosted),
    ] {
        assert_eq!(shown["requests"], requests, "{shown}");
        assert_eq!(shown["provider_tokens"], tokens, "{shown}");
        assert_eq!(shown["money"], MicroUnits(money).to_string(), "{shown}");
    }
    let app = house.gateway.data_plane();
    let metrics =
        fairgate_control::metrics::render(&app.metrics, &app.pools.all(), &[], &[], None, false)
            .await;
    for line in [
        format!("fairgate_tier_requests_total{{pool=\"sim\",tier=\"own\"}} {}", own.0),
        format!("fairgate_tier_provider_tokens_total{{pool=\"sim\",tier=\"hosted\"}} {}", hosted.1),
        format!(
            "fairgate_tier_money_micro_units_total{{pool=\"sim\",tier=\"hosted\"}} {}",
            hosted.2
        ),
    ] {
        assert!(metrics.contains(&line), "{line}\n{metrics}");
    }
    let usage = seen_by_admin(&house, "/api/v1/usage?by=tier").await;
    let row = |name: &str| {
        let rows = usage["rows"].as_array().unwrap();
        rows.iter().find(|row| row["name"] == name).cloned().unwrap_or_default()
    };
    assert_eq!(row("0")["provider_tokens"], own.1);
    assert_eq!(row("1")["money"], MicroUnits(hosted.2).to_string());
    house.close().await;
    for sim in sims {
        sim.stop().await;
    }
}

const HOSTED_TOKENS: u64 = 300;

/// Sends requests of two tenants under a model's budget for hosted workers. Requests beyond the
/// budget wait or are refused.
async fn under_a_models_budget(over: HostedOverBudget) {
    let (house, sims) = three_workers(|config| {
        config.pools[0].models[0].hosted_budget =
            HostedBudget { tokens_per_day: Some(HOSTED_TOKENS), ..HostedBudget::default() };
        config.pools[0].hosted_over_budget = over;
    })
    .await;
    let other = house.tenant("other", DirectoryLimits::default()).await;
    let (one, two) =
        tokio::join!(flood_small(&house, &house.key, 30), flood_small(&house, &other, 30));
    let answers: Vec<_> = one.into_iter().chain(two).collect();
    let refused: Vec<_> = answers.iter().filter(|answer| answer.status != StatusCode::OK).collect();
    assert_eq!(refused.is_empty(), over == HostedOverBudget::Wait, "{}", refused.len());
    for answer in refused {
        assert!(answer.code().starts_with("budget_"), "{}", answer.text());
        assert!(answer.text().contains("the model \\\"sim\\\""), "{}", answer.text());
    }
    let rows = house.rows_soon(60).await;
    let there = rows.iter().filter(|row| row.tier == 1);
    let used: u64 = there.map(|row| row.provider_tokens).sum();
    assert!(used > 0 && used <= HOSTED_TOKENS, "{used} tokens on hosted workers");
    let hosted = seen_by_admin(&house, "/api/v1/hosted").await;
    let budget = &hosted["budgets"][0];
    assert_eq!((&budget["scope"], &budget["owner"]), (&"hosted_model".into(), &"sim".into()));
    assert_eq!((&budget["used_tokens"], &budget["reserved_tokens"]), (&used.into(), &0.into()));
    house.close().await;
    for sim in sims {
        sim.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_over_a_models_hosted_budget_waits_for_own_workers() {
    under_a_models_budget(HostedOverBudget::Wait).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_over_a_models_hosted_budget_is_refused_where_the_pool_says_so() {
    under_a_models_budget(HostedOverBudget::Refuse).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_sees_every_budget_that_its_requests_count_in() {
    let (house, sims) = three_workers(|config| {
        config.pools[0].models[0].hosted_budget =
            HostedBudget { tokens_per_month: Some(1_000_000), ..HostedBudget::default() };
    })
    .await;
    let budget =
        |tier, amount| Budget { period: BudgetPeriod::Day, unit: BudgetUnit::Tokens, tier, amount };
    let budgets = vec![budget(BudgetTier::Hosted, 5_000)];
    house.change(DirectoryChange::SetHosted { budgets }).await;
    let limits = DirectoryLimits {
        budgets: vec![budget(BudgetTier::Any, 9_000)],
        ..DirectoryLimits::default()
    };
    let key = house.tenant("mine", limits).await;
    let patch = fairgate_store::GroupPatch {
        budgets: Some(vec![budget(BudgetTier::Any, 20_000)]),
        ..fairgate_store::GroupPatch::default()
    };
    house.change(DirectoryChange::PatchGroup { name: "group-mine".into(), patch }).await;
    let scopes = |me: &Value| -> Vec<String> {
        let budgets = me["budgets"].as_array().unwrap().iter();
        budgets.map(|budget| budget["scope"].as_str().unwrap().to_owned()).collect()
    };
    let me = seen_by(&house, &key, "/api/v1/me").await;
    assert_eq!(scopes(&me), ["tenant", "hosted", "group", "hosted_model"]);
    // Who may not use hosted workers is not concerned by what they may cost.
    let never = DirectoryLimits { hosted: HostedUse::Never, ..DirectoryLimits::default() };
    let own_only = house.tenant("own-only", never).await;
    assert_eq!(scopes(&seen_by(&house, &own_only, "/api/v1/me").await), Vec::<String>::new());
    house.close().await;
    for sim in sims {
        sim.stop().await;
    }
}
