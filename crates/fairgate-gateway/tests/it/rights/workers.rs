//! Tests of the workers that keys and requests allow, and of the error if no worker is left.

use super::*;
use crate::hosted::hosted;

fn only(workers: &[&str], may_pin: bool) -> KeyRights {
    let workers = Some(workers.iter().map(|&name| name.into()).collect());
    KeyRights { workers, may_pin, ..KeyRights::default() }
}

/// Starts a gateway with the workers `sim` and `b`. `b` has two ranks.
async fn two_workers(sim: &str, b: &str) -> House {
    house_with(sim, |config| {
        let mut second = beside(config, "b", b);
        second.ranks = 2;
        config.upstreams.push(second);
        config.pools[0].workers.push("b".into());
    })
    .await
}

#[tokio::test]
async fn a_key_with_a_list_of_workers_goes_to_no_other() {
    let (a, b) = (sim(), sim());
    let house = two_workers(&a.url(), &b.url()).await;
    let key = house.key_with("acme", DirectoryLimits::default(), only(&["x", "b"], false)).await;
    let ask = async || post(CHAT, &chat("x")).key(&key).ask(house.gateway.addr()).await;
    for _ in 0..6 {
        assert_eq!(ask().await.status, StatusCode::OK);
    }
    assert_eq!((a.stats().requests, b.stats().requests), (0, 6));
    b.set_fault(SimFault::ResetBefore);
    assert_eq!(ask().await.status, StatusCode::BAD_GATEWAY);
    assert_eq!(a.stats().requests, 0, "it was tried on no other worker");
    // A key none of whose workers serves the model is told so, and does not see the model.
    let list = get("/v1/models").key(&key).ask(house.gateway.addr()).await;
    assert!(list.text().contains("\"sim\""), "{}", list.text());
    for none in [&["x"][..], &[]] {
        let none = house.key_with("acme", DirectoryLimits::default(), only(none, true)).await;
        let refused = post(CHAT, &chat("x")).key(&none).ask(house.gateway.addr()).await;
        assert_eq!((refused.status.as_u16(), &*refused.code()), (403, "worker_not_allowed"));
        assert_eq!(refused.header("x-should-retry"), Some("false"));
        let list = get("/v1/models").key(&none).ask(house.gateway.addr()).await;
        assert!(!list.text().contains("\"sim\""), "{}", list.text());
    }
    house.close().await;
    a.stop().await;
    b.stop().await;
}

#[tokio::test]
async fn a_request_narrows_the_list_of_its_key_and_cannot_widen_it() {
    let (a, b) = (sim(), sim());
    let house = two_workers(&a.url(), &b.url()).await;
    let limits = DirectoryLimits::default;
    let any = house.key_with("acme", limits(), everything()).await;
    let both = house.key_with("acme", limits(), only(&["sim", "b"], true)).await;
    let one = house.key_with("acme", limits(), only(&["sim"], true)).await;
    let closed = house.key_with("acme", limits(), only(&["sim", "b"], false)).await;
    let ask = async |key: &str, header: &str, value: &str| {
        let question = post(CHAT, &chat("x")).key(key).header(header, value);
        question.ask(house.gateway.addr()).await
    };
    for key in [&any, &both] {
        for _ in 0..3 {
            let answer = ask(key, "x-fairgate-workers", "b, b").await;
            assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
        }
    }
    assert_eq!((a.stats().requests, b.stats().requests), (0, 6));
    assert_eq!(ask(&both, "x-fairgate-workers", "b,sim").await.status, StatusCode::OK);
    let (many, long) = (vec!["sim"; 65].join(","), "x".repeat(129));
    let cases: [(&str, &str, &str, u16, &str, &str); 11] = [
        (&closed, "x-fairgate-workers", "b", 403, "pin_not_allowed", "x-fairgate-workers"),
        (&one, "x-fairgate-workers", "sim,b", 403, "worker_not_allowed", "may use: \"sim\"."),
        (&one, "x-fairgate-worker", "b", 403, "worker_not_allowed", "may use: \"sim\"."),
        (&one, "x-fairgate-workers", "c", 400, "unknown_worker", "one of \"sim\","),
        (&one, "x-fairgate-worker", "c", 400, "unknown_worker", "one of \"sim\","),
        (&any, "x-fairgate-workers", "sim,c", 400, "unknown_worker", "one of \"sim\", \"b\","),
        (&any, "x-fairgate-workers", &many, 400, "invalid_workers", "1 to 64"),
        (&any, "x-fairgate-workers", &long, 400, "invalid_workers", "1 to 128"),
        (&any, "x-fairgate-workers", "sim,,b", 400, "invalid_workers", "1 to 64"),
        (&any, "x-fairgate-workers", "", 400, "invalid_workers", "1 to 64"),
        (&any, "x-fairgate-worker", "b/2", 400, "unknown_rank", "no rank 2. Its ranks are 0 to 1."),
    ];
    for (key, header, value, status, code, says) in cases {
        let refused = ask(key, header, value).await;
        let told = (refused.status.as_u16(), refused.code());
        assert_eq!(told, (status, code.to_owned()), "{header}: {value}: {}", refused.text());
        let message = refused.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains(says), "{message}");
        assert_eq!(refused.header("x-should-retry"), Some("false"));
    }
    house.close().await;
    a.stop().await;
    b.stop().await;
}

#[tokio::test]
async fn a_refusal_for_a_pin_a_rank_a_list_or_a_taint_names_it_and_is_not_retried() {
    let (a, b) = (sim(), sim());
    let house = two_workers(&a.url(), &b.url()).await;
    let rich = house.key_with("acme", DirectoryLimits::default(), everything()).await;
    let listed = house.key_with("acme", DirectoryLimits::default(), only(&["b"], false)).await;
    let drain = post("/api/v1/pools/sim/workers/b/drain", &json!({})).key("admin");
    let drained = drain.header("content-type", "application/json");
    let drained = drained.ask(house.gateway.admin_addr()).await;
    assert!(drained.status.is_success(), "{}", drained.text());
    for (header, value, named) in [
        ("x-fairgate-worker", "b", "the worker \"b\""),
        ("x-fairgate-worker", "b/1", "rank 1 of the worker \"b\""),
        ("x-fairgate-workers", "b", "the workers \"b\""),
        ("x-fairgate-requires", "eu", "the taints \"eu\""),
    ] {
        for path in [CHAT, "/v1/messages"] {
            let question = post(path, &chat("x")).key(&rich).header(header, value);
            let refused = question.ask(house.gateway.addr()).await;
            assert_eq!((refused.status.as_u16(), &*refused.code()), (503, "no_worker"));
            let message = refused.json()["error"]["message"].as_str().unwrap().to_owned();
            assert!(message.contains(named), "{message}");
            assert_eq!(refused.header("x-should-retry"), Some("false"), "{header}");
        }
    }
    // The list of a key is named too. The client has chosen nothing, so nothing is said about a retry.
    let refused = post(CHAT, &chat("x")).key(&listed).ask(house.gateway.addr()).await;
    assert_eq!((refused.status.as_u16(), &*refused.code()), (503, "no_worker"));
    assert!(refused.text().contains("the key's list"), "{}", refused.text());
    assert_eq!(refused.header("x-should-retry"), None);
    house.close().await;
    a.stop().await;
    b.stop().await;
}

#[tokio::test]
async fn a_worker_that_is_added_while_a_request_waits_is_not_on_its_list() {
    let mut first = Scripted::start().await;
    let b = sim();
    let house = house_with(&first.url(), |config| config.upstreams[0].slots = Some(1)).await;
    let key = house.key_with("acme", DirectoryLimits::default(), only(&["sim"], false)).await;
    let holding = asking(&house, post(CHAT, &chat("first")).key(&key));
    let held = first.call().await;
    let waiting = asking(&house, post(CHAT, &chat("second")).key(&key));
    house.until(|live| live.waiting == 1).await;
    let mut config = (*house.gateway.data_plane().config.load_full()).clone();
    let mut second = beside(&config, "b", &b.url());
    second.slots = Some(4);
    config.upstreams.push(second);
    config.pools[0].workers.push("b".into());
    house.gateway.reload(config).await.unwrap();
    // A request without a list finds the new worker; the one with the list still waits.
    let free = post(CHAT, &chat("third")).key(&house.key).ask(house.gateway.addr()).await;
    assert_eq!(free.status, StatusCode::OK);
    assert_eq!(b.stats().requests, 1);
    house.until(|live| live.waiting == 1).await;
    finish(held);
    finish(first.call().await);
    for answer in [holding, waiting] {
        assert_eq!(answer.await.unwrap().status, StatusCode::OK);
    }
    house.close().await;
    b.stop().await;
}

#[tokio::test]
async fn a_list_names_an_upstream_whose_models_are_workers_of_their_own() {
    let mut provider = Scripted::start().await;
    let own = sim();
    let house = house_with(&provider.url(), |config| {
        let mut second = beside(config, "own", &own.url());
        second.slots = Some(8);
        config.upstreams.push(second);
        config.pools[0].workers.push("own".into());
        config.upstreams[0].quota = hosted();
        config.upstreams[0].slots = None;
        let mut slow = config.pools[0].models[0].clone();
        slow.name = "slow".into();
        config.pools[0].models.push(slow);
    })
    .await;
    let key = house.key_with("acme", DirectoryLimits::default(), only(&["sim"], true)).await;
    for model in ["sim", "slow"] {
        for narrowed in
            [None, Some(("x-fairgate-workers", "sim")), Some(("x-fairgate-worker", "sim"))]
        {
            let mut body = chat("x");
            body["model"] = model.into();
            let mut question = post(CHAT, &body).key(&key);
            if let Some((header, value)) = narrowed {
                question = question.header(header, value);
            }
            let answer = asking(&house, question);
            let call = provider.call().await;
            let ours = |name: &http::HeaderName| name.as_str().starts_with("x-fairgate");
            assert!(!call.request.headers().keys().any(ours), "{:?}", call.request.headers());
            finish(call);
            assert_eq!(answer.await.unwrap().status, StatusCode::OK);
        }
    }
    assert_eq!(own.stats().requests, 0);
    house.close().await;
    own.stop().await;
}
