//! Tests that the journal of a router replays exactly, with classes of a policy file that changes,
//! cached tokens, pins, required taints, and workers that are added, drained and removed.

use std::fs::File;
use std::io::BufReader;

use fairgate_core::decision::Decision;
use fairgate_core::snapshot::Snapshot;
use fairgate_journal::JournalReader;

use super::*;
use crate::support::{SOON, open_rights};

/// Replays the journal. Returns the grants with their workers, in order, and whether the pool was
/// ever in the state of this snapshot.
fn replayed(folder: &Folder, live: &Snapshot) -> (Vec<(String, String)>, bool) {
    let files = std::fs::read_dir(folder.0.join("journal").join("sim")).unwrap();
    let mut files: Vec<_> = files.map(|entry| entry.unwrap().path()).collect();
    files.sort_unstable();
    let (mut granted, mut was_equal) = (Vec::new(), false);
    for file in files {
        let (start, mut reader) =
            JournalReader::open(BufReader::new(File::open(file).unwrap())).unwrap();
        let mut pool = start.into_pool().unwrap();
        while let Some(event) = reader.next_event().unwrap() {
            let mut decisions: Vec<Decision> = Vec::new();
            pool.apply(event.0, event.1, &mut decisions).unwrap();
            for decision in decisions {
                if let Decision::Grant(grant) = decision {
                    granted.push((grant.id.to_string(), grant.place.unwrap().worker.to_string()));
                }
            }
            was_equal |= pool.snapshot() == *live;
        }
    }
    (granted, was_equal)
}

async fn admin(house: &House, method: http::Method, path: &str, body: &Value) {
    let path = format!("/api/v1/pools/sim/workers{path}");
    let mut question = post(&path, body).header("content-type", "application/json");
    question.method = method;
    let answer = question
        .key("admin")
        .header("content-type", "application/json")
        .ask(house.gateway.addr())
        .await;
    assert!(answer.status.is_success(), "{}", answer.text());
}

#[tokio::test]
async fn classes_caches_pins_and_changing_workers_replay_to_the_same_grants_and_state() {
    let addr = ([127, 0, 0, 1], 0).into();
    let (first, second) = (caching(addr), caching(addr));
    let folder = Folder::new();
    let config = with_policy(&folder, &first.url());
    let house = house_in(folder, config, DirectoryLimits::default()).await;
    let taints = Some(vec!["eu".into()]);
    let rights = KeyRights { may_pin: true, priority_max: 9, taints, ..open_rights() };
    let key = house.key_with("acme", DirectoryLimits::default(), rights).await;
    let other = house.tenant("other", DirectoryLimits::default()).await;
    let asks = async |turns: std::ops::Range<usize>, headers: &[(&str, &str)]| {
        let all = turns.map(|turn| {
            let topic = ["rivers", "lakes", "seas"][turn % 3];
            let by = if turn % 2 == 0 { &key } else { &other };
            let mut question = post(CHAT, &conversation(topic, turn / 3)).key(by);
            if turn % 2 == 0 {
                question =
                    headers.iter().fold(question, |it, (name, value)| it.header(name, value));
            }
            let addr = house.gateway.addr();
            async move { question.ask(addr).await }
        });
        for answer in futures_util::future::join_all(all).await {
            assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
        }
    };
    asks(0..6, &[]).await;
    let new =
        json!({"name": "b", "url": second.url(), "like": "sim", "slots": 2, "taints": ["eu"]});
    admin(&house, http::Method::POST, "", &new).await;
    asks(0..9, &[("x-fairgate-worker", "b"), ("x-fairgate-priority", "3")]).await;
    asks(3..9, &[("x-fairgate-requires", "eu"), ("x-fairgate-class", "urgent")]).await;
    let mut quanta = (*house.gateway.data_plane().config.load_full()).clone();
    std::fs::write(house.folder.0.join("policy.yaml"), POLICY.replace("2048", "999")).unwrap();
    let read = |path: &Path| Config::from_file(path, &fairgate_config::ProcessEnvironment).unwrap();
    quanta.pools = read(&house.folder.0.join("fairgate.yaml")).pools;
    house.gateway.reload(quanta.clone()).await.unwrap();
    asks(3..12, &[]).await;
    admin(&house, http::Method::POST, "/sim/drain", &json!({})).await;
    asks(6..12, &[]).await;
    admin(&house, http::Method::POST, "/sim/undrain", &json!({})).await;
    admin(&house, http::Method::DELETE, "/b", &json!({})).await;
    asks(6..12, &[]).await;
    std::fs::write(house.folder.0.join("policy.yaml"), format!("{POLICY}arbiter: share\n"))
        .unwrap();
    quanta.pools = read(&house.folder.0.join("fairgate.yaml")).pools;
    house.gateway.reload(quanta).await.unwrap();
    asks(0..12, &[]).await;
    house.quiet().await;
    let live = house.gateway.data_plane().pools.all()[0].gate.snapshot().await.unwrap();
    let rows = house.rows().await;
    let (folder, gateway) = (house.folder, house.gateway);
    gateway.drain(SOON).await;

    let (granted, was_equal) = replayed(&folder, &live);
    assert!(was_equal, "the replay came to the state of the gateway");
    let mut served: Vec<(String, String)> =
        rows.iter().map(|row| (row.request.clone(), row.worker.clone().unwrap())).collect();
    let mut granted_sorted = granted;
    served.sort_unstable();
    granted_sorted.sort_unstable();
    assert_eq!(granted_sorted, served);
    let on = |worker: &str| rows.iter().filter(|row| row.worker.as_deref() == Some(worker)).count();
    assert!(on("b") > 5 && on("sim") > 5, "both have worked: {} and {}", on("b"), on("sim"));
    assert!(rows.iter().any(|row| row.class.as_deref() == Some("short")));
    first.stop().await;
    second.stop().await;
}
