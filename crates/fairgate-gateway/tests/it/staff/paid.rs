//! Tests of workers that are made from a hosted upstream. They use its credential, so they use its
//! account and have its prices.

use fairgate_config::QuotaConfig;
use fairgate_money::{Currency, MicroUnits, ModelPrices, Price, PriceRates};
use fairgate_store::{Budget, BudgetPeriod, BudgetTier, BudgetUnit, DirectoryLimits};

use super::*;
use crate::hosted::hosted;

/// The provider counts the requests of both workers together.
#[tokio::test]
async fn a_worker_like_a_hosted_one_draws_on_its_account() {
    let sim = sim();
    let house = house_with(&sim.url(), |config| {
        let quota = QuotaConfig { account: None, requests_per_minute: Some(1200), ..hosted() };
        config.upstreams[0].quota = quota;
    })
    .await;
    assert_eq!(add(&house, "b", &sim.url()).await.status, StatusCode::CREATED);
    let accounts: Vec<String> =
        views(&house.gateway).into_iter().map(|worker| worker.quota.unwrap().account).collect();
    assert_eq!(accounts, ["upstream sim", "upstream sim"]);
    house.close().await;
    sim.stop().await;
}

/// A price of the upstream is also the worker's price, when money is reserved and when it is spent.
#[tokio::test]
async fn a_worker_like_a_priced_one_is_paid_for_in_advance() {
    let sim = sim();
    let house = house_with(&sim.url(), |config| {
        let rates =
            PriceRates { request: MicroUnits::parse("0.01").unwrap(), ..PriceRates::default() };
        let usd = Currency::parse("USD").unwrap();
        config.prices = ModelPrices::new(vec![Price::new("sim", Some("sim"), usd, rates, None)]);
    })
    .await;
    add(&house, "b", &sim.url()).await;
    turn(&house, "sim", "drain").await;
    let budget = Budget {
        period: BudgetPeriod::Day,
        unit: BudgetUnit::Money,
        tier: BudgetTier::Any,
        amount: 15_000,
    };
    let limits = DirectoryLimits { budgets: vec![budget], ..DirectoryLimits::default() };
    let payer = house.tenant("payer", limits).await;
    let body = json!({"model": "sim", "messages": [{"role": "user", "content": "rivers"}]});
    let question = async || post(CHAT, &body).key(&payer).ask(house.gateway.addr()).await;
    // Both may cost 0.01, and 0.015 is there: only one of them may go.
    let (one, other) = tokio::join!(question(), question());
    let mut statuses = [one.status.as_u16(), other.status.as_u16()];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 429]);
    let rows = house.rows_soon(2).await;
    let paid: Vec<_> = rows.iter().filter(|row| row.worker.is_some()).collect();
    assert_eq!(paid.len(), 1);
    assert_eq!((paid[0].worker.as_deref(), paid[0].money), (Some("b"), MicroUnits(10_000)));
    house.close().await;
    sim.stop().await;
}
