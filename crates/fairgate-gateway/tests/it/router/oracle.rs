//! Whether a tenant can find out that another one has sent a prompt: it sends a copy, and looks at everything that its key
//! may read.

use super::*;

/// Fields that differ between two runs of the same requests: times and random ids.
const RANDOM: [&str; 12] = [
    "id",
    "request",
    "key",
    "submitted_at",
    "started_at",
    "resets_at",
    "waited_us",
    "in_flight_us",
    "oldest_wait_us",
    "expected_wait_ms",
    "first_token_us",
    "total_us",
];

/// The curious tenant's limit, in tokens per minute.
const PER_MINUTE: i64 = 3_000;

fn without_random_fields(view: &mut Value) {
    match view {
        Value::Object(fields) => {
            let is_scalar = |value: &Value| !value.is_object() && !value.is_array();
            fields.retain(|name, value| !(RANDOM.contains(&name.as_str()) && is_scalar(value)));
            fields.values_mut().for_each(without_random_fields);
        }
        Value::Array(items) => items.iter_mut().for_each(without_random_fields),
        Value::String(text) => {
            if let Some(start) = text.find("key-") {
                text.replace_range(start..start + "key-".len() + 16, "KEY");
            }
            // How long it waited and ran, and the wait that is expected, follow from the clock.
            while let Some((at, length)) = unit_of_time(text) {
                let start = text[..at].rfind(' ').map_or(0, |space| space + 1);
                text.replace_range(start..at + length, "TIME");
            }
        }
        _ => {}
    }
}

/// The first unit of time after a number: its place and its length.
fn unit_of_time(text: &str) -> Option<(usize, usize)> {
    [" ms", " s"].into_iter().find_map(|unit| {
        let mut found = text.match_indices(unit).map(|(at, _)| (at, unit.len()));
        found.find(|(at, length)| {
            let is_number = text[..*at].ends_with(|digit: char| digit.is_ascii_digit());
            is_number && !text[at + length..].starts_with(char::is_alphanumeric)
        })
    })
}

/// Everything that this key may read of its requests and its pools.
async fn views(house: &House, key: &str) -> Value {
    let read = async |path: &str| get(path).key(key).ask(house.gateway.addr()).await;
    let mut list = read("/api/v1/requests").await.json();
    let mut me = read("/api/v1/me").await.json();
    // The rate refills while the test runs. What was taken of it for a request is its cost without the cache.
    let left = me["tenant_limits"]["tokens_left"].take().as_i64().unwrap();
    if list["items"].as_array().is_some_and(|items| !items.is_empty()) {
        assert!(left < PER_MINUTE - 500, "{left}");
    }
    let rows = house.rows().await;
    let ids = list["items"].as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap());
    let ended = rows.iter().filter(|row| row.tenant == "curious").map(|row| row.request.as_str());
    let mut ids: Vec<String> = ids.chain(ended).map(str::to_owned).collect();
    ids.sort();
    let mut details = Vec::new();
    for id in ids {
        details.push(read(&format!("/api/v1/requests/{id}")).await.json());
    }
    let mut all = json!({"list": list.take(), "me": me.take(), "details": details});
    without_random_fields(&mut all);
    all
}

/// Everything that a tenant sees while its request waits, is in flight and has ended, if another tenant has sent a prompt
/// about `topic` before. Also the costs that the admin sees while the request waits.
async fn seen_after(topic: &str, with_classes: bool) -> ([Value; 3], (u64, u64)) {
    let mut engine = Scripted::start().await;
    let folder = Folder::new();
    let mut config = match with_classes {
        true => with_policy(&folder, &engine.url()),
        false => config(&folder, &engine.url()),
    };
    config.pools[0].capacity = 1;
    config.upstreams[0].slots = Some(1);
    config.pools[0].prefix_index = index(PrefixScope::Pool);
    config.pools[0].cost.cached_milli = 0;
    let house = house_in(folder, config, DirectoryLimits::default()).await;
    let limits = DirectoryLimits {
        tokens_per_minute: Some(PER_MINUTE.unsigned_abs()),
        ..DirectoryLimits::default()
    };
    let curious = house.tenant("curious", limits).await;
    let addr = house.gateway.addr();
    let ask = |key: &str, topic: &str| {
        let question = post(CHAT, &conversation(topic, 0)).key(key);
        tokio::spawn(async move { question.ask(addr).await })
    };
    let usage = r#"{"usage":{"prompt_tokens":900,"completion_tokens":1}}"#;
    let first = ask(&house.key, topic);
    engine.call().await.answer(200, "application/json", usage);
    assert_eq!(first.await.unwrap().status, StatusCode::OK);
    // The only slot is taken, so that the copy waits.
    let holding = ask(&house.key, "meadow");
    let held = engine.call().await;
    let copy = ask(&curious, "rivers");
    house.until(|status| status.waiting == 1).await;
    let waiting = views(&house, &curious).await;
    let admin = get("/api/v1/requests?state=waiting").key("admin").ask(addr).await.json();
    let item = &admin["items"][0];
    let costs = (&item["cost_tokens"], &item["cost_uncached_tokens"]);
    let costs = (costs.0.as_u64().unwrap(), costs.1.as_u64().unwrap());
    held.answer(200, "application/json", usage);
    assert_eq!(holding.await.unwrap().status, StatusCode::OK);
    let call = engine.call().await;
    // The live view is at most 200 ms old.
    tokio::time::sleep(Duration::from_millis(250)).await;
    let in_flight = views(&house, &curious).await;
    call.answer(200, "application/json", usage);
    assert_eq!(copy.await.unwrap().status, StatusCode::OK);
    house.rows_soon(3).await;
    tokio::time::sleep(Duration::from_millis(250)).await;
    let ended = views(&house, &curious).await;
    house.close().await;
    ([waiting, in_flight, ended], costs)
}

/// `expected_wait_ms` and times left out, a copy looks like a prompt that nobody has sent.
#[tokio::test]
async fn a_copy_of_anothers_prompt_looks_like_a_prompt_that_nobody_has_sent() {
    for with_classes in [false, true] {
        let (copied, (cost, uncached)) = seen_after("rivers", with_classes).await;
        assert!(cost * 3 < uncached, "the index did not know the prompt: {cost} of {uncached}");
        let (unknown, (cost, same)) = seen_after("oceans", with_classes).await;
        assert_eq!((cost, uncached), (same, same), "the admin sees both costs");
        for (state, (copied, unknown)) in
            ["waiting", "in flight", "ended"].iter().zip(copied.iter().zip(&unknown))
        {
            assert_eq!(copied, unknown, "{state}, with classes: {with_classes}");
        }
        assert_eq!(copied[0]["list"]["items"][0]["cost_tokens"], uncached);
        let ended = &copied[2]["details"][0]["attempts"][0];
        assert_eq!(ended["estimate_tokens"], uncached);
    }
}

/// Without a prefix index of all tenants there is nothing to hide.
#[tokio::test]
async fn tenants_that_share_no_prompts_see_what_they_got() {
    let engine = Scripted::start().await;
    let house = house_with(&engine.url(), |config| {
        config.pools[0].prefix_index = index(PrefixScope::Tenant);
    })
    .await;
    let me = get("/api/v1/me").key(&house.key).ask(house.gateway.addr()).await.json();
    assert_eq!(me["pools"][0]["lag_tokens"], 0);
    house.close().await;
}

/// The salt that the engine gets for a body with this salt of the client.
async fn salt_at(house: &House, engine: &mut Scripted, model: &str, own: Option<&str>) -> Value {
    let mut body = conversation("rivers", 0);
    body["model"] = model.into();
    if let Some(own) = own {
        body["cache_salt"] = own.into();
    }
    let (question, addr) = (post(CHAT, &body).key(&house.key), house.gateway.addr());
    let asked = tokio::spawn(async move { question.ask(addr).await });
    let call = engine.call().await;
    let mut sent: Value = serde_json::from_slice(call.request.body()).unwrap();
    let text = String::from_utf8(call.request.body().to_vec()).unwrap();
    assert!(text.matches("cache_salt").count() <= 1, "{text}");
    call.answer(200, "application/json", r#"{"usage":{"prompt_tokens":9,"completion_tokens":1}}"#);
    assert_eq!(asked.await.unwrap().status, StatusCode::OK);
    sent["cache_salt"].take()
}

/// Two pools in front of one engine: one keeps tenants apart, the other does not. A client of the second that knows the
/// salt of a tenant of the first must not be able to name it.
#[tokio::test]
async fn a_clients_own_salt_does_not_reach_an_engine_that_another_pool_shares() {
    let mut engine = Scripted::start().await;
    let house = house_with(&engine.url(), |config| {
        config.pools[0].prefix_index = index(PrefixScope::Tenant);
        let mut open = config.pools[0].clone();
        open.name = "open".into();
        open.models[0].name = "open".into();
        open.prefix_index = None;
        config.pools.push(open);
    })
    .await;
    let mine = salt_at(&house, &mut engine, "sim", None).await;
    let mine = mine.as_str().unwrap();
    let named = salt_at(&house, &mut engine, "open", Some(mine)).await;
    assert_eq!(named.as_str().unwrap().len(), 32);
    assert_ne!(named, mine);
    // It still separates what it separated, and who sends none gets none.
    assert_eq!(salt_at(&house, &mut engine, "open", Some(mine)).await, named);
    assert_ne!(salt_at(&house, &mut engine, "open", Some("x")).await, named);
    assert_eq!(salt_at(&house, &mut engine, "open", None).await, Value::Null);
    house.close().await;
}

/// Nobody can compute the salt of a tenant from its name, and a restart keeps what engines have cached.
#[tokio::test]
async fn salts_are_keyed_by_a_secret_of_the_store() {
    let mut engine = Scripted::start().await;
    let by_tenant = |config: &mut Config| {
        config.pools[0].prefix_index = index(PrefixScope::Tenant);
    };
    let house = house_with(&engine.url(), by_tenant).await;
    let other = house_with(&engine.url(), by_tenant).await;
    let (here, there) = (
        salt_at(&house, &mut engine, "sim", None).await,
        salt_at(&other, &mut engine, "sim", None).await,
    );
    assert_ne!(here, there, "tenants of one name in two installations have one salt");
    // A second gateway on the same database sends the same salts.
    let mut config = (*house.gateway.data_plane().config.load_full()).clone();
    let folder = Folder::new();
    config.data_dir.clone_from(&folder.0);
    config.journal = None;
    let options = fairgate_gateway::GatewayOptions {
        config,
        store: house.store.clone(),
        admin_token: fairgate_store::KeyHash::of(b"admin"),
        may_disable_most: false,
    };
    let second = fairgate_gateway::Gateway::start(options).await.unwrap();
    let question = post(CHAT, &conversation("rivers", 0)).key(&house.key);
    let addr = second.addr();
    let asked = tokio::spawn(async move { question.ask(addr).await });
    let call = engine.call().await;
    let sent: Value = serde_json::from_slice(call.request.body()).unwrap();
    assert_eq!(sent["cache_salt"], here);
    call.answer(200, "application/json", "{}");
    assert_eq!(asked.await.unwrap().status, StatusCode::OK);
    drop(second);
    house.close().await;
    other.close().await;
}
