//! Tests of connections that break before the head of an answer, and of answers that are not HTTP:
//! which side is at fault.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fairgate_store::{AttemptOutcome, DirectoryLimits};
use http::StatusCode;
use serde_json::{Value, json};

use crate::support::breaking::{Breaking, GARBAGE, RESET};
use crate::support::client::{Answer, post};
use crate::support::{House, SOON, asked_when_suspect, beside, house_with};

const CHAT: &str = "/v1/chat/completions";
/// Number of connections of the tenant whose requests break.
const ATTACKERS: usize = 8;
/// Failures in a row after which a circuit opens, if the worker itself is at fault.
const FAILURES: u64 = 5;
/// Number of answers that the victim must get.
const ANSWERS: usize = 40;

fn chat(content: &str) -> Value {
    json!({"model": "sim", "messages": [{"role": "user", "content": content}]})
}

async fn ask(house: &House, key: &str, content: &str) -> Answer {
    post(CHAT, &chat(content)).key(key).ask(house.gateway.addr()).await
}

/// Starts a gateway with these backends. A worker that breaks stays broken for the whole test, and
/// no request waits for it.
async fn house_of(backends: &[Breaking], has_health: bool) -> House {
    house_with(&backends[0].url(), |config| {
        let first = &mut config.upstreams[0];
        first.breaker.failures = u32::try_from(FAILURES).unwrap();
        first.breaker.open_for = Duration::from_secs(1000);
        first.health = has_health.then(asked_when_suspect).flatten();
        for (number, backend) in backends.iter().enumerate().skip(1) {
            let name = format!("sim-{number}");
            let more = beside(config, &name, &backend.url());
            config.upstreams.push(more);
            config.pools[0].workers.push(name);
        }
        config.pools[0].down_wait = Duration::ZERO;
    })
    .await
}

fn states(house: &House) -> Vec<&'static str> {
    house.gateway.data_plane().pools.all()[0].workers().iter().map(|view| view.state).collect()
}

async fn until_broken(house: &House) {
    let broken = async {
        while states(house).contains(&"up") {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(SOON, broken).await.expect("the worker breaks");
}

/// Runs eight connections of one tenant, each of whose requests breaks its connection, while
/// another tenant sends requests.
async fn victim_beside(poison: &'static str, workers: usize, has_health: bool) {
    let mut backends = Vec::new();
    for _ in 0..workers {
        backends.push(Breaking::start().await);
    }
    let house = house_of(&backends, has_health).await;
    let attacker = house.tenant("attacker", DirectoryLimits::default()).await;
    let probes = || backends.iter().map(|one| one.seen.gets.load(Ordering::Relaxed)).sum::<u64>();
    let (began, probes_before) = (Instant::now(), probes());
    let stop = Arc::new(AtomicBool::new(false));
    let attackers: Vec<_> = (0..ATTACKERS)
        .map(|_| {
            let (stop, addr) = (stop.clone(), house.gateway.addr());
            let question = post(CHAT, &chat(poison)).key(&attacker);
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    question.ask(addr).await;
                }
            })
        })
        .collect();
    // So many failures would have opened the circuit before the victim comes.
    let failed = || backends[0].seen.posts.load(Ordering::Relaxed);
    let begun = async {
        while failed() < FAILURES {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(SOON, begun).await.expect("the attack begins");
    for number in 0..ANSWERS {
        let answer = ask(&house, &house.key, "rivers").await;
        assert_eq!(answer.status, StatusCode::OK, "{poison} {number}: {}", answer.text());
    }
    stop.store(true, Ordering::Relaxed);
    for attacker in attackers {
        attacker.await.unwrap();
    }
    assert_eq!(states(&house), vec!["up"; workers], "{poison}");
    // One tenant causes at most a probe a second at each worker. One may have begun before the first second.
    let seconds = began.elapsed().as_secs() + 2;
    let caused = probes() - probes_before;
    assert!(caused <= workers as u64 * seconds, "{caused} probes in {seconds} s");
    house.close().await;
}

#[tokio::test]
async fn one_tenants_resets_take_no_worker_from_the_others() {
    for (workers, has_health) in [(1, false), (1, true), (2, false), (2, true)] {
        victim_beside(RESET, workers, has_health).await;
    }
}

#[tokio::test]
async fn one_tenants_garbage_takes_no_worker_from_the_others() {
    for (workers, has_health) in [(1, true), (2, false)] {
        victim_beside(GARBAGE, workers, has_health).await;
    }
}

/// A backend that resets every connection counts as unhealthy, even if only one tenant sends
/// requests.
#[tokio::test]
async fn a_worker_that_breaks_everything_off_is_found_out_by_its_probe() {
    for (others, has_health) in [(false, false), (true, true)] {
        let backends = [Breaking::start().await];
        let house = house_of(&backends, has_health).await;
        assert_eq!(ask(&house, &house.key, "rivers").await.status, StatusCode::OK);
        let other = house.tenant("other", DirectoryLimits::default()).await;
        backends[0].seen.breaks_all.store(true, Ordering::Relaxed);
        for number in 0..6 {
            let key = if others && number % 2 == 1 { &other } else { &house.key };
            let answer = ask(&house, key, "rivers").await;
            assert!(answer.status.is_server_error(), "{}", answer.text());
        }
        until_broken(&house).await;
        let refused =
            async { while ask(&house, &house.key, "rivers").await.code() != "overloaded" {} };
        tokio::time::timeout(SOON, refused).await.expect("nobody waits for it");
        house.close().await;
    }
}

/// The backend has read the request, and may have run it, so it does not get the request a second
/// time.
#[tokio::test]
async fn a_request_that_was_sent_is_not_sent_again_after_a_reset() {
    let backends = [Breaking::start().await];
    let house = house_of(&backends, false).await;
    let seen = &backends[0].seen;
    assert_eq!(ask(&house, &house.key, "rivers").await.status, StatusCode::OK);
    // On the connection that is kept open.
    let answer = ask(&house, &house.key, RESET).await;
    assert_eq!(
        (answer.status, answer.code().as_str()),
        (StatusCode::BAD_GATEWAY, "upstream_reset")
    );
    let counted = (seen.posts.load(Ordering::Relaxed), seen.connections.load(Ordering::Relaxed));
    assert_eq!(counted, (2, 1), "requests read, connections made");
    let rows = house.rows().await;
    assert_eq!(rows.len(), 2);
    assert_eq!((rows[1].charged, rows[1].outcome), (0, AttemptOutcome::UpstreamError));
    // Another worker is asked only as a retry that the ledger shows.
    assert_eq!(ask(&house, &house.key, "rivers").await.status, StatusCode::OK);
    house.close().await;
}

/// If the backend closes a connection while it is idle, no client gets an error.
#[tokio::test]
async fn a_connection_that_was_closed_while_idle_costs_no_request() {
    let backends = [Breaking::start().await];
    let house = house_of(&backends, false).await;
    for _ in 0..3 {
        assert_eq!(ask(&house, &house.key, "rivers").await.status, StatusCode::OK);
        backends[0].close_idle().await;
    }
    assert_eq!(backends[0].seen.connections.load(Ordering::Relaxed), 3);
    assert_eq!(backends[0].seen.posts.load(Ordering::Relaxed), 3);
    house.close().await;
}

/// With another worker, the request is retried there once, and the ledger has both attempts.
#[tokio::test]
async fn a_reset_is_retried_on_another_worker_where_the_ledger_shows_it() {
    let backends = [Breaking::start().await, Breaking::start().await];
    let house = house_of(&backends, false).await;
    let answer = ask(&house, &house.key, RESET).await;
    assert_eq!(answer.code(), "upstream_reset");
    let rows = house.rows().await;
    let told: Vec<_> = rows.iter().map(|row| (row.attempt, row.outcome)).collect();
    assert_eq!(told, [(1, AttemptOutcome::Retried), (2, AttemptOutcome::UpstreamError)]);
    let posts: Vec<_> = backends.iter().map(|one| one.seen.posts.load(Ordering::Relaxed)).collect();
    assert_eq!(posts, [1, 1]);
    house.close().await;
}
