//! Tests of starting, reloading, draining and restarting.

use std::fs::File;
use std::io::BufReader;
use std::time::Duration;

use fairgate_core::decision::Decision;
use fairgate_gateway::{Gateway, GatewayOptions, GatewayReloadError};
use fairgate_journal::{JournalReader, JournalWriter};
use fairgate_sim::SimFault;
use fairgate_store::{
    AttemptOutcome, AttemptRow, DirectoryLimits, KeyHash, Store, StoreOptions, UnixMicros,
    UsageSource,
};
use fairgate_time::wall_clock;
use http::StatusCode;
use serde_json::{Value, json};

use crate::support::client::{piece, post};
use crate::support::scripted::Scripted;
use crate::support::{Folder, SOON, beside, config, house, house_in, house_with, rows, sim};

const CHAT: &str = "/v1/chat/completions";

fn chat(stream: bool) -> Value {
    json!({"model": "sim", "messages": [{"role": "user", "content": "rivers"}], "stream": stream})
}

#[tokio::test]
async fn a_drain_finishes_what_is_in_flight_and_refuses_what_waits() {
    let mut upstream = Scripted::start().await;
    let house = house_with(&upstream.url(), |config| config.pools[0].capacity = 1).await;
    let (addr, store) = (house.gateway.addr(), house.store.clone());
    let question = post(CHAT, &chat(true)).key(&house.key);
    let in_flight = tokio::spawn({
        let question = question.clone();
        async move { question.begin(addr).await }
    });
    let pieces = upstream.call().await.stream("text/event-stream");
    let mut body = in_flight.await.unwrap().into_body();
    let waiting = tokio::spawn({
        let question = question.clone();
        async move { question.ask(addr).await }
    });
    house.until(|live| live.waiting == 1).await;
    let app = house.gateway.data_plane().clone();
    let ledger = tokio::spawn(async move {
        let drained = house.gateway.drain(SOON).await;
        (drained, house.folder)
    });
    let refused = waiting.await.unwrap();
    assert_eq!(
        (refused.status, refused.code().as_str()),
        (StatusCode::SERVICE_UNAVAILABLE, "draining")
    );
    assert!(!app.phase.is_serving());
    let rows_now = rows(&store).await;
    assert_eq!((rows_now.len(), rows_now[0].code.as_deref()), (1, Some("draining")));
    // Nobody new is met, and what is in flight goes on to its end.
    assert!(tokio::net::TcpStream::connect(addr).await.is_err());
    pieces
        .send("data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\ndata: [DONE]\n\n".into())
        .unwrap();
    drop(pieces);
    let mut text = Vec::new();
    while let Some(piece) = piece(&mut body).await {
        text.extend_from_slice(&piece);
    }
    assert!(text.ends_with(b"data: [DONE]\n\n"));
    drop(body);
    let (drained, folder) = ledger.await.unwrap();
    assert_eq!((drained.connections_cut, drained.still_in_flight), (0, 0), "{drained:?}");
    let (store, _) = Store::open(
        &format!("sqlite:{}", folder.0.join("fairgate.db").display()),
        StoreOptions::default(),
    )
    .await
    .unwrap();
    let outcomes: Vec<_> = rows(&store).await.iter().map(|row| row.outcome).collect();
    assert_eq!(outcomes.len(), 2);
    assert!(
        outcomes.contains(&AttemptOutcome::Completed)
            && outcomes.contains(&AttemptOutcome::Refused)
    );
    store.close().await.unwrap();
}

#[tokio::test]
async fn what_does_not_finish_in_time_is_cut_and_has_its_row() {
    let sim = sim();
    let house = house(&sim.url()).await;
    sim.fault_next(SimFault::HangMid, 1);
    let mut body =
        post(CHAT, &chat(true)).key(&house.key).begin(house.gateway.addr()).await.into_body();
    assert!(piece(&mut body).await.is_some());
    let folder = house.folder;
    let drained = house.gateway.drain(Duration::from_millis(100)).await;
    assert_eq!((drained.still_in_flight, drained.problems.len()), (0, 0));
    let (store, resolved) = Store::open(
        &format!("sqlite:{}", folder.0.join("fairgate.db").display()),
        StoreOptions::default(),
    )
    .await
    .unwrap();
    assert_eq!(resolved.reservations, 0);
    let row = rows(&store).await.pop().unwrap();
    assert_eq!((row.outcome, row.code.as_deref()), (AttemptOutcome::Timeout, Some("drained")));
    assert!(row.charged > 0);
    store.close().await.unwrap();
    sim.kill().await;
}

#[tokio::test]
async fn a_reload_adds_and_removes_workers_models_and_pools() {
    let (a, b) = (sim(), sim());
    let house = house(&a.url()).await;
    let addr = house.gateway.addr();
    let now = (*house.gateway.data_plane().config.load_full()).clone();
    // Another worker takes the place of the first, a second pool comes, and the capacity is another.
    let mut next = now.clone();
    next.upstreams.push(beside(&now, "b", &b.url()));
    next.upstreams[1].slots = None;
    next.pools[0].workers = vec!["b".into()];
    next.pools[0].capacity = 3;
    let mut second = now.pools[0].clone();
    second.name = "second".into();
    second.models[0].name = "other".into();
    second.models[0].upstream_name = Some("sim".into());
    next.pools.push(second);
    let plan = house.gateway.reload(next.clone()).await.unwrap().plan;
    assert!(plan.pools.added.contains("second") && plan.pools.changed.contains("sim"), "{plan:?}");
    assert_eq!(post(CHAT, &chat(false)).key(&house.key).ask(addr).await.status, StatusCode::OK);
    assert_eq!((a.stats().requests, b.stats().requests), (0, 1));
    let mut other = chat(false);
    other["model"] = "other".into();
    assert_eq!(post(CHAT, &other).key(&house.key).ask(addr).await.status, StatusCode::OK);
    assert_eq!(a.stats().requests, 1);
    assert_eq!(house.gateway.data_plane().pools.all()[1].gate.status().await.unwrap().capacity, 3);
    // And back again.
    let plan = house.gateway.reload(now).await.unwrap().plan;
    assert!(plan.pools.removed.contains("second"));
    let gone = post(CHAT, &other).key(&house.key).ask(addr).await;
    assert_eq!(gone.status, StatusCode::NOT_FOUND);
    assert_eq!(post(CHAT, &chat(false)).key(&house.key).ask(addr).await.status, StatusCode::OK);
    assert_eq!(a.stats().requests, 2);
    assert_eq!(house.rows().await.len(), 4);
    house.close().await;
    a.stop().await;
    b.stop().await;
}

#[tokio::test]
async fn a_bad_configuration_changes_nothing() {
    let sim = sim();
    let house = house(&sim.url()).await;
    let now = (*house.gateway.data_plane().config.load_full()).clone();
    let mut fixed = now.clone();
    fixed.pools[0].max_queue = 7;
    fixed.pools[0].capacity = 1;
    let refused = house.gateway.reload(fixed).await.unwrap_err();
    assert!(
        matches!(&refused, GatewayReloadError::Config(_))
            && refused.to_string().contains("max_queue"),
        "{refused}"
    );
    let mut no_file = now.clone();
    no_file.upstreams[0].url = "https://127.0.0.1:1".parse().unwrap();
    no_file.upstreams[0].ca = Some(house.folder.0.join("none.pem"));
    no_file.pools[0].capacity = 1;
    let refused = house.gateway.reload(no_file).await.unwrap_err();
    assert!(refused.to_string().contains("none.pem"), "{refused}");
    let mut bad_pool = now.clone();
    let mut second = now.pools[0].clone();
    second.name = "second".into();
    second.models[0].name = "second".into();
    bad_pool.pools.insert(0, second);
    // The state of the new pool cannot be read: the pool cannot start, and so nothing else changes.
    std::fs::create_dir(house.folder.0.join("state/second.json")).unwrap();
    bad_pool.pools[1].capacity = 1;
    let refused = house.gateway.reload(bad_pool).await.unwrap_err();
    assert!(refused.to_string().contains("second.json"), "{refused}");
    assert_eq!(house.gateway.data_plane().pools.all().len(), 1);
    assert_eq!(house.gateway.data_plane().pools.all()[0].gate.status().await.unwrap().capacity, 8);
    assert_eq!(*house.gateway.data_plane().config.load_full(), now);
    assert_eq!(
        post(CHAT, &chat(false)).key(&house.key).ask(house.gateway.addr()).await.status,
        StatusCode::OK
    );
    house.close().await;
    sim.stop().await;
}

#[tokio::test]
async fn a_worker_that_is_removed_finishes_what_runs_on_it() {
    let mut old = Scripted::start().await;
    let new = sim();
    let house = house(&old.url()).await;
    let addr = house.gateway.addr();
    let question = post(CHAT, &chat(false)).key(&house.key);
    let in_flight = tokio::spawn({
        let question = question.clone();
        async move { question.ask(addr).await }
    });
    let call = old.call().await;
    let mut next = (*house.gateway.data_plane().config.load_full()).clone();
    next.upstreams = vec![beside(&next, "new", &new.url())];
    next.pools[0].workers = vec!["new".into()];
    house.gateway.reload(next).await.unwrap();
    assert_eq!(question.ask(addr).await.status, StatusCode::OK);
    assert_eq!(new.stats().requests, 1);
    call.answer(200, "application/json", "{\"id\":\"old\"}");
    assert_eq!(in_flight.await.unwrap().json()["id"], "old");
    assert_eq!(house.rows().await.len(), 2);
    house.close().await;
    new.stop().await;
}

#[tokio::test]
async fn scores_survive_a_restart_and_the_journal_replays_to_the_same_decisions() {
    let sim = sim();
    let folder = Folder::new();
    let configuration = config(&folder, &sim.url());
    let house = house_in(folder, configuration.clone(), DirectoryLimits::default()).await;
    let addr = house.gateway.addr();
    for stream in [false, true, false] {
        assert_eq!(
            post(CHAT, &chat(stream)).key(&house.key).ask(addr).await.status,
            StatusCode::OK
        );
    }
    sim.fault_next(SimFault::ResetBefore, 1);
    assert_eq!(
        post(CHAT, &chat(false)).key(&house.key).ask(addr).await.status,
        StatusCode::BAD_GATEWAY
    );
    house.quiet().await;
    let before = house.gateway.data_plane().pools.all()[0].gate.snapshot().await.unwrap();
    let (key, folder) = (house.key, house.folder);
    house.gateway.drain(SOON).await;
    replay(&folder);
    let (store, _) =
        Store::open(configuration.store.url.expose(), StoreOptions::default()).await.unwrap();
    let options = GatewayOptions {
        config: configuration,
        store,
        admin_token: KeyHash::of(b"admin"),
        may_disable_most: false,
    };
    let gateway = Gateway::start(options).await.unwrap();
    let after = gateway.data_plane().pools.all()[0].gate.snapshot().await.unwrap();
    assert_eq!(served(&before), served(&after));
    assert_ne!(served(&after), 0);
    assert_eq!(post(CHAT, &chat(false)).key(&key).ask(gateway.addr()).await.status, StatusCode::OK);
    gateway.drain(SOON).await;
    sim.stop().await;
}

/// Returns the tokens that all flows got, as a state file would state them.
fn served(snapshot: &fairgate_core::snapshot::Snapshot) -> u64 {
    let mut writer = JournalWriter::new(Vec::new());
    writer.write_snapshot(snapshot).unwrap();
    let state: Value = serde_json::from_slice(&writer.into_inner()).unwrap();
    sum_of("served_tokens", &state)
}

fn sum_of(name: &str, value: &Value) -> u64 {
    match value {
        Value::Object(fields) => fields
            .iter()
            .map(|(field, value)| match value {
                // Numbers that may be wider than 64 bits are written as text.
                Value::String(number) if field == name => number.parse().unwrap(),
                value => sum_of(name, value),
            })
            .sum(),
        Value::Array(items) => items.iter().map(|item| sum_of(name, item)).sum(),
        _ => 0,
    }
}

/// Replays every journal of the pool, and checks that each request was granted once.
fn replay(folder: &Folder) {
    let journal = folder.0.join("journal").join("sim");
    let mut granted = 0;
    for entry in std::fs::read_dir(journal).unwrap() {
        let file = File::open(entry.unwrap().path()).unwrap();
        let (start, mut reader) = JournalReader::open(BufReader::new(file)).unwrap();
        let mut pool = start.into_pool().unwrap();
        let mut decisions: Vec<Decision> = Vec::new();
        while let Some(event) = reader.next_event().unwrap() {
            pool.apply(event.0, event.1, &mut decisions).unwrap();
        }
        granted +=
            decisions.iter().filter(|decision| matches!(decision, Decision::Grant(_))).count();
    }
    assert_eq!(granted, 4);
}

#[tokio::test]
async fn what_cannot_start_says_why() {
    let sim = sim();
    let folder = Folder::new();
    let mut configuration = config(&folder, &sim.url());
    let (store, _) = Store::open("sqlite::memory:", StoreOptions::default()).await.unwrap();
    let taken = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    configuration.listen = taken.local_addr().unwrap();
    let options = |config| GatewayOptions {
        config,
        store: store.clone(),
        admin_token: KeyHash::of(b"x"),
        may_disable_most: false,
    };
    let error = Gateway::start(options(configuration.clone())).await.err().unwrap().to_string();
    assert!(error.contains(&configuration.listen.to_string()), "{error}");
    drop(taken);
    configuration.tls = Some(fairgate_config::TlsConfig {
        cert: folder.0.join("no.pem"),
        key: folder.0.join("no.key"),
    });
    let error = Gateway::start(options(configuration)).await.err().unwrap().to_string();
    assert!(error.contains("no.pem"), "{error}");
    sim.stop().await;
}

/// The second stop ends the drain at once. Everything is settled all the same.
#[tokio::test]
async fn a_drain_that_is_cut_short_settles_what_flew() {
    let mut upstream = Scripted::start().await;
    let house = house_with(&upstream.url(), |_| {}).await;
    let addr = house.gateway.addr();
    let question = post(CHAT, &chat(true)).key(&house.key);
    let in_flight = tokio::spawn(async move { question.begin(addr).await });
    let pieces = upstream.call().await.stream("text/event-stream");
    let body = in_flight.await.unwrap().into_body();
    let url = config(&house.folder, "http://unused").store.url.expose().to_owned();
    let drained = async { house.gateway.drain(Duration::from_secs(600)).await };
    let hurry = async {
        while house.gateway.data_plane().pools.all()[0]
            .gate
            .status()
            .await
            .is_ok_and(|live| !live.draining)
        {
            tokio::task::yield_now().await;
        }
        house.gateway.cut_short();
    };
    let (drained, ()) = tokio::time::timeout(SOON, async { tokio::join!(drained, hurry) })
        .await
        .expect("it ends long before its grace");
    assert_eq!((drained.still_in_flight, drained.problems.len()), (0, 0));
    drop((body, pieces));
    let (store, _) = Store::open(&url, StoreOptions::default()).await.unwrap();
    let rows = rows(&store).await;
    assert_eq!(rows.len(), 1);
    assert_eq!((rows[0].last, rows[0].code.as_deref()), (true, Some("drained")));
}

#[tokio::test]
async fn old_rows_leave_the_ledger() {
    let sim = sim();
    let folder = Folder::new();
    let mut configuration = config(&folder, &sim.url());
    configuration.store.keep_days = Some(7);
    let now = wall_clock::since_1970();
    let now = i64::try_from(now.as_micros()).unwrap();
    {
        let url = configuration.store.url.expose();
        let (store, _) = Store::open(url, StoreOptions::default()).await.unwrap();
        for (request, days) in [("young", 6), ("old", 8), ("ancient", 800)] {
            let started_at = UnixMicros(now - days * 86_400_000_000);
            store.record(row(request, started_at)).await.unwrap();
        }
        store.close().await.unwrap();
    }
    let house = house_in(folder, configuration, DirectoryLimits::default()).await;
    let left = async {
        loop {
            let rows = house.rows().await;
            if rows.len() == 1 {
                return rows;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let left = tokio::time::timeout(SOON, left).await.expect("old rows go");
    assert_eq!(left[0].request, "young");
    house.close().await;
    sim.stop().await;
}

fn row(request: &str, started_at: UnixMicros) -> AttemptRow {
    AttemptRow {
        request: request.into(),
        attempt: 1,
        last: true,
        started_at,
        group: "g".into(),
        tenant: "t".into(),
        key: "k".into(),
        agent: None,
        session: None,
        route: CHAT.into(),
        stream: false,
        model: "sim".into(),
        pool: None,
        worker: None,
        estimate: 1,
        input_tokens: 1,
        cached_tokens: 0,
        output_tokens: 0,
        charged: 1,
        usage: UsageSource::Reported,
        waited_us: 0,
        first_token_us: None,
        total_us: 1,
        status: 200,
        outcome: AttemptOutcome::Completed,
        code: None,
        brownout: false,
        occupied: 0,
        provider_tokens: 0,
        money: fairgate_store::MicroUnits::ZERO,
        price: None,
        tier: 0,
        class: None,
        cache_written_tokens: 0,
        cache_written_1h_tokens: 0,
        estimate_uncached: 1,
        charged_uncached: 1,
        worker_us: 0,
        price_set: None,
        claim: None,
    }
}
