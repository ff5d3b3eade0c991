//! Tests of tenants that try to get more than the policy grants. In a class that tenants share, no
//! trick with requests gets a tenant more tokens than an honest tenant.

use std::collections::HashMap;

use super::*;

/// The prompt of an honest request in tokens, and the output of every request.
const PROMPT: usize = 400;
const OUTPUT: usize = 20;
/// Number of the honest tenant's served requests at which the tokens are compared.
const SERVED: usize = 12;

/// The way in which one tenant sends requests.
struct Way {
    /// Number of the tenant's keys.
    keys: usize,
    requests: usize,
    prompt: usize,
    max_tokens: u64,
}

const HONEST: Way = Way { keys: 1, requests: 24, prompt: PROMPT, max_tokens: 20 };

fn body(whose: &str, way: &Way) -> Value {
    let words = "word ".repeat(way.prompt - 1);
    let content = format!("{whose} {words}");
    let messages = json!([{"role": "user", "content": content}]);
    json!({"model": "sim", "messages": messages, "max_tokens": way.max_tokens})
}

/// Answers a call with the usage of its prompt, and returns its tenant and its tokens.
fn serve(call: Call) -> (String, usize) {
    let text = content(&call);
    let prompt = text.split_whitespace().count();
    let usage = json!({"usage": {"prompt_tokens": prompt, "completion_tokens": OUTPUT}});
    call.answer(200, "application/json", usage.to_string());
    (text.split_whitespace().next().unwrap().to_owned(), prompt + OUTPUT)
}

/// Returns the tokens that each of the two tenants got when `SERVED` requests of the honest tenant
/// had been served.
async fn served(clever: &Way) -> (usize, usize) {
    let mut upstream = Scripted::start().await;
    let house = house_with(&upstream.url(), |config| {
        config.pools[0].capacity = 1;
        config.pools[0].policy =
            parse_policy(&CLASSES.replace(r#""limit_requests_per_worker":2,"#, "")).unwrap();
    })
    .await;
    let honest = house.tenant("honest", DirectoryLimits::default()).await;
    house.tenant("clever", DirectoryLimits::default()).await;
    let mut keys = Vec::new();
    for _ in 0..clever.keys {
        keys.push(house.key("clever", DirectoryLimits::default(), &["chat"]).await);
    }
    let mut answers = vec![asking(&house, post(CHAT, &body("blocker", &HONEST)).key(&house.key))];
    let blocker = upstream.call().await;
    for number in 0..clever.requests {
        let key = &keys[number % keys.len()];
        answers.push(asking(&house, post(CHAT, &body("clever", clever)).key(key)));
    }
    for _ in 0..HONEST.requests {
        answers.push(asking(&house, post(CHAT, &body("honest", &HONEST)).key(&honest)));
    }
    let all = clever.requests + HONEST.requests;
    house.until(|live| live.waiting == all as u64).await;
    serve(blocker);
    let mut tokens: HashMap<String, usize> = HashMap::new();
    let (mut left, mut seen) = (all, 0);
    while seen < SERVED {
        let (whose, used) = serve(upstream.call().await);
        seen += usize::from(whose == "honest");
        *tokens.entry(whose).or_default() += used;
        left -= 1;
    }
    for _ in 0..left {
        serve(upstream.call().await);
    }
    for answer in answers {
        assert_eq!(answer.await.unwrap().status, StatusCode::OK);
    }
    house.close().await;
    let of = |whose: &str| tokens.get(whose).copied().unwrap_or_default();
    (of("clever"), of("honest"))
}

#[tokio::test]
async fn splitting_padding_inflating_and_many_keys_gain_nothing() {
    let ways = [
        ("splits its prompts", Way { requests: 96, prompt: PROMPT / 4, ..HONEST }),
        ("pads its prompts", Way { requests: 12, prompt: PROMPT * 4, ..HONEST }),
        ("inflates max_tokens", Way { max_tokens: 100_000, ..HONEST }),
        ("states a small max_tokens", Way { max_tokens: 1, ..HONEST }),
        ("has many keys", Way { keys: 8, ..HONEST }),
    ];
    for (what, way) in ways {
        let (clever, honest) = served(&way).await;
        // What either may be ahead by: the largest request of each, as one slot serves them in turns.
        let bound = (PROMPT + OUTPUT) + (way.prompt + OUTPUT);
        assert!(clever <= honest + bound, "{what}: {clever} tokens against {honest}");
        assert!(honest >= SERVED * (PROMPT + OUTPUT), "{what}: {honest}");
    }
}

#[tokio::test]
async fn who_claims_another_class_gets_nothing_for_it() {
    let sim = sim();
    let house = house_with(&sim.url(), |config| {
        config.pools[0].policy = parse_policy(CLASSES).unwrap();
    })
    .await;
    let batch = house.key("acme", DirectoryLimits::default(), &["batch"]).await;
    let mut hint = chat("x");
    // Dynamo has no such hint, and here nobody reads it.
    hint["nvext"] = json!({"agent_hints": {"policy_class": "chat"}, "policy_class": "chat"});
    let claims = [
        (post(CHAT, &chat("x")).header("x-fairgate-class", "chat"), StatusCode::FORBIDDEN),
        (
            post(CHAT, &chat("x")).header("x-dynamo-meta-policy-class", "chat"),
            StatusCode::FORBIDDEN,
        ),
        // The first header of a name counts, and one that is allowed does not open the door for another.
        (
            post(CHAT, &chat("x"))
                .header("x-fairgate-class", "chat")
                .header("x-fairgate-class", "batch"),
            StatusCode::FORBIDDEN,
        ),
        (post(CHAT, &hint), StatusCode::OK),
    ];
    for (claim, status) in claims {
        let answer = claim.key(&batch).ask(house.gateway.addr()).await;
        assert_eq!(answer.status, status, "{}", answer.text());
    }
    assert_eq!(sim.stats().requests, 1);
    house.close().await;
    sim.stop().await;
}

/// A key's list may contain classes of other pools. In this pool they do not give access to the
/// default class.
#[tokio::test]
async fn a_class_of_another_pool_opens_no_class_of_this_one() {
    let sim = sim();
    let house = house_with(&sim.url(), |config| {
        config.pools[0].policy = parse_policy(CLASSES).unwrap();
    })
    .await;
    let key = house.key("acme", DirectoryLimits::default(), &["elsewhere", "batch"]).await;
    let ask = async |key: &str, named: Option<&str>| {
        let mut question = post(CHAT, &chat("x")).key(key);
        if let Some(name) = named {
            question = question.header("x-fairgate-class", name);
        }
        question.ask(house.gateway.addr()).await
    };
    assert_eq!(ask(&key, None).await.status, StatusCode::OK);
    let row = house.rows().await.pop().unwrap();
    assert_eq!(row.class.as_deref(), Some("batch"), "the first of its list that the pool has");
    let named = ask(&key, Some("elsewhere")).await;
    assert_eq!((named.status, named.code()), (StatusCode::FORBIDDEN, "class_not_allowed".into()));
    let foreign = house.key("acme", DirectoryLimits::default(), &["elsewhere"]).await;
    let answer = ask(&foreign, None).await;
    assert_eq!((answer.status, answer.code()), (StatusCode::FORBIDDEN, "class_not_allowed".into()));
    house.close().await;
    sim.stop().await;
}

/// A key that is created without any rights may choose nothing, and each refusal names the allowed
/// values.
#[tokio::test]
async fn a_new_key_is_closed_and_null_opens_a_list() {
    let sim = sim();
    let house = house_with(&sim.url(), |config| {
        config.pools[0].policy =
            parse_policy(&CLASSES.replace(r#""limit_requests_per_worker":2,"#, "")).unwrap();
    })
    .await;
    let admin = house.gateway.admin_addr();
    let make = async |more: Value| {
        let mut body = json!({"tenant": "acme"});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let question = post("/api/v1/keys", &body).header("content-type", "application/json");
        let made = question.key("admin").ask(admin).await;
        assert_eq!(made.status, StatusCode::CREATED, "{}", made.text());
        made.json()
    };
    let made = make(json!({})).await;
    let key = &made["key"];
    let closed = json!({
        "models": null, "classes": [], "priority_max": 0, "may_pin": false, "may_lease": false, "taints": [],
        "deadline_ms": null, "deadline_min_ms": null,
    });
    for (right, value) in closed.as_object().unwrap() {
        assert_eq!(&key[right], value, "{right}");
    }
    let (default, other) = ("chat", "batch");
    let ask = async |key: &Value, class: &str| {
        let question = post(CHAT, &chat("x")).key(key["secret"].as_str().unwrap());
        question.header("x-fairgate-class", class).ask(house.gateway.addr()).await
    };
    assert_eq!(ask(&made, default).await.status, StatusCode::OK);
    for name in [other, "CHAT", "Batch", "default"] {
        let refused = ask(&made, name).await;
        assert_eq!(
            (refused.status, &*refused.code()),
            (StatusCode::FORBIDDEN, "class_not_allowed")
        );
        let may = format!("It may name: \\\"{default}\\\"");
        assert!(refused.text().contains(&may), "{}", refused.text());
    }
    // An empty list is as closed as a missing one; null is all.
    let empty = make(json!({"classes": []})).await;
    assert_eq!(ask(&empty, other).await.code(), "class_not_allowed");
    let all = make(json!({"classes": null})).await;
    assert_eq!(ask(&all, other).await.status, StatusCode::OK);
    let me = get("/api/v1/me").key(made["secret"].as_str().unwrap()).ask(admin).await.json();
    let classes: Vec<_> = me["pools"][0]["classes"].as_array().unwrap().iter().collect();
    assert_eq!(classes.len(), 1, "{me}");
    assert_eq!(classes[0]["name"], json!(default));
    let one = make(json!({"models": ["elsewhere"]})).await;
    let refused = post(CHAT, &chat("x")).key(one["secret"].as_str().unwrap());
    let refused = refused.ask(house.gateway.addr()).await;
    assert_eq!(refused.code(), "model_not_allowed");
    assert!(refused.text().contains("It may ask for: \\\"elsewhere\\\""), "{}", refused.text());
    house.close().await;
    sim.stop().await;
}
