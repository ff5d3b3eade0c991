//! Tests of money: prices, budgets of groups and of the hosted tier, and the permission to use
//! hosted workers.

use fairgate_config::Config;
use fairgate_money::{Currency, MicroUnits, ModelPrices, PerMillion, Price, PriceRates};
use serde_json::{Value, json};

use super::Fixture;

fn price(currency: &str, output: &str) -> ModelPrices {
    let rates = PriceRates {
        input: PerMillion::parse("2.50").unwrap(),
        cached_input: PerMillion::parse("1.25").unwrap(),
        output: PerMillion::parse(output).unwrap(),
        request: MicroUnits(0),
        ..PriceRates::default()
    };
    let currency = Currency::parse(currency).unwrap();
    ModelPrices::new(vec![Price::new("sim", None, currency, rates, None)])
}

fn priced(config: &mut Config) {
    config.prices = price("USD", "10");
}

#[tokio::test]
async fn a_budget_in_money_needs_a_currency() {
    let it = Fixture::new().await;
    let wants = json!({"name": "a", "limits": {"money_per_day": "50"}});
    assert_eq!(it.post("/api/v1/groups", wants).await.refused(409), "no_currency");
    let wants = json!({"limits": {"hosted_money_per_day": "50"}});
    assert_eq!(it.patch("/api/v1/hosted", wants).await.refused(409), "no_currency");
    assert_eq!(it.get("/api/v1/prices").await.expect(200), json!({"items": []}));
    let usage = it.get("/api/v1/usage").await.expect(200);
    assert_eq!(usage["currency"], json!(null));
}

#[tokio::test]
async fn groups_tenants_and_keys_have_budgets_in_money() {
    let it = Fixture::with(priced).await;
    let new = json!({"name": "a", "limits": {"money_per_month": "1000.5", "tokens_per_day": 9}});
    let made = it.post("/api/v1/groups", new).await.expect(201);
    assert_eq!(made["limits"]["money_per_month"], "1000.50");
    assert_eq!(made["limits"]["tokens_per_day"], 9);
    it.tenant("a", "chat").await;
    let limits = json!({"money_per_day": "50", "hosted_money_per_day": "0.25", "hosted": "never"});
    let tenant = it.patch("/api/v1/tenants/chat", json!({"limits": limits})).await.expect(200);
    assert_eq!(tenant["limits"]["hosted"], "never");
    let (id, secret) = it.key("chat").await;
    let limits = json!({"hosted_tokens_per_month": 7, "hosted": "allowed"});
    let key = it.patch(&format!("/api/v1/keys/{id}"), json!({"limits": limits})).await.expect(200);
    assert_eq!(key["limits"]["hosted"], json!(null));

    let group = it.get("/api/v1/groups/a/budgets").await.expect(200);
    assert_eq!(group["items"].as_array().map(Vec::len), Some(2));
    let money = &group["items"][1];
    let expected = json!({
        "scope": "group", "owner": "a", "period": "month", "unit": "money", "tier": "any", "limit_tokens": null,
        "used_tokens": null, "reserved_tokens": null, "left_tokens": null, "limit_money": "1000.50",
        "used_money": "0.00", "reserved_money": "0.00", "left_money": "1000.50", "currency": "USD",
        "resets_at": money["resets_at"],
    });
    assert_eq!(*money, expected);
    let me = it.as_key(&secret, "GET", "/api/v1/me", json!(null)).await.expect(200);
    let told: Vec<_> = me["budgets"].as_array().expect("a list").iter().map(kind).collect();
    let expected = [
        "tenant any money 50.00 USD",
        "tenant hosted money 0.25 USD",
        "key hosted tokens 7 tokens",
        "group any tokens 9 tokens",
        "group any money 1000.50 USD",
    ];
    assert_eq!(told, expected);
    assert_eq!(it.get("/api/v1/groups/none/budgets").await.refused(404), "not_found");
    let wrong = json!({"limits": {"money_per_day": "0.0000001"}});
    let refused = it.patch("/api/v1/tenants/chat", wrong).await;
    assert!(refused.text.contains("at most six places"), "{}", refused.text);
    assert_eq!(refused.refused(422), "invalid_value");
    let number = json!({"limits": {"money_per_day": 50}});
    assert_eq!(it.patch("/api/v1/tenants/chat", number).await.refused(422), "invalid_value");
}

fn kind(budget: &Value) -> String {
    let text = |field: &str| budget[field].as_str().unwrap_or("tokens").to_owned();
    let limit = match budget["limit_money"].as_str() {
        Some(limit) => limit.to_owned(),
        None => budget["limit_tokens"].to_string(),
    };
    let (scope, tier, unit) = (text("scope"), text("tier"), text("unit"));
    format!("{scope} {tier} {unit} {limit} {}", text("currency"))
}

#[tokio::test]
async fn the_hosted_tier_has_budgets_of_its_own() {
    let it = Fixture::with(priced).await;
    let limits = json!({"hosted_money_per_day": "100", "hosted_tokens_per_month": 5});
    let set = it.patch("/api/v1/hosted", json!({"limits": limits})).await.expect(200);
    assert_eq!(set["limits"]["hosted_money_per_day"], "100.00");
    let shown = it.get("/api/v1/hosted").await.expect(200);
    assert_eq!(shown, set);
    let told: Vec<_> = shown["budgets"].as_array().expect("a list").iter().map(kind).collect();
    assert_eq!(told, ["hosted hosted tokens 5 tokens", "hosted hosted money 100.00 USD"]);
    assert_eq!(it.audit().await[0].1, "hosted.set");
    it.patch("/api/v1/hosted", json!({"limits": {}})).await.expect(200);
    assert_eq!(it.get("/api/v1/hosted").await.expect(200)["budgets"], json!([]));
    let any = json!({"limits": {"money_per_day": "5"}});
    assert_eq!(it.patch("/api/v1/hosted", any).await.refused(422), "invalid_value");
}

#[tokio::test]
async fn prices_are_audited_once_at_the_start_and_when_they_change() {
    let it = Fixture::with(priced).await;
    let added = |audit: Vec<(String, String, String)>| -> Vec<_> {
        audit.into_iter().filter(|entry| entry.1 == "price.add").collect()
    };
    let entry = ("config".to_owned(), "price.add".to_owned(), "sim".to_owned());
    assert_eq!(added(it.audit().await), std::slice::from_ref(&entry));
    let mut next = Config::clone(&it.app().config.load());
    it.gateway.reload(next.clone()).await.expect("reloaded");
    assert_eq!(added(it.audit().await).len(), 1);
    next.prices = price("USD", "12");
    it.gateway.reload(next.clone()).await.expect("reloaded");
    assert_eq!(added(it.audit().await), [entry.clone(), entry]);
    let listed = it.get("/api/v1/prices").await.expect(200);
    let told = |place: usize| {
        let price = &listed["items"][place];
        let field = |name: &str| price[name].as_str().unwrap_or("-").to_owned();
        let numbers = ["input_per_million_tokens", "output_per_million_tokens", "per_request"];
        (numbers.map(field), field("currency"), price["configured"].clone())
    };
    let numbers = |output: &str| ["2.50", output, "0.00"].map(str::to_owned);
    assert_eq!(told(0), (numbers("10.00"), "USD".to_owned(), json!(false)));
    assert_eq!(told(1), (numbers("12.00"), "USD".to_owned(), json!(true)));
    // An installation has one currency: the reload fails, and nothing changes.
    next.prices = price("EUR", "12");
    let refused = it.gateway.reload(next).await.expect_err("another currency");
    assert!(refused.to_string().contains("go back to USD"), "{refused}");
    assert_eq!(it.app().config.load().prices, price("USD", "12"));
}
