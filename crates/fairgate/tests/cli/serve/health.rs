//! Tests of `fairgate health`: one sentence and an exit status.

use std::fs;
use std::net::TcpListener;

use fairgate_sim::SimOptions;

use super::running::{Folder, Gateway, Model, one_pool, until};
use crate::run::{command, finished};

fn health(url: &str) -> (i32, String) {
    let mut run = command(&["health", "--url", url, "--timeout", "2"]);
    let run = finished(run.env_remove("FAIRGATE_CA").output().expect("the command runs"));
    (run.status, run.stdout + &run.stderr)
}

#[test]
fn a_ready_gateway_is_healthy_at_both_addresses() {
    let (folder, model) = (Folder::new(), Model::start(SimOptions::default()));
    let config = one_pool(&model, "admin: { listen: 127.0.0.1:0 }\n");
    fs::write(folder.join("fairgate.yaml"), config).expect("a file");
    let gateway = Gateway::configured(&folder);
    assert_eq!(health(&gateway.url), (0, "ready\n".into()));
    assert_eq!(health(&gateway.admin_url), (0, "ready\n".into()));
}

#[test]
fn a_gateway_without_a_worker_is_not_ready_and_says_why() {
    let folder = Folder::new();
    let config = "listen: 127.0.0.1:0\ndata_dir: data\n\
                  upstreams: [{ name: a, url: \"http://127.0.0.1:1\", slots: 1, health: { every: 100ms, unhealthy_after: 1 } }]\n\
                  pools: [{ name: a, models: [a], workers: [a] }]\n";
    fs::write(folder.join("fairgate.yaml"), config).expect("a file");
    let gateway = Gateway::configured(&folder);
    let (_, said) = until("it is not ready", || Some(health(&gateway.url)).filter(|it| it.0 == 1));
    assert_eq!(said, "fairgate: not ready: no pool has a worker that is up\n");
}

#[test]
fn an_address_without_a_gateway_is_not_healthy() {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = free.local_addr().expect("it has one");
    drop(free);
    let (status, said) = health(&format!("http://{address}"));
    assert_eq!((status, said.lines().count()), (1, 1), "{said}");
    assert!(said.contains("is `fairgate serve` running there?"), "{said}");
    let model = Model::start(SimOptions::default());
    let (status, said) = health(&model.url);
    assert_eq!(status, 1);
    assert!(said.contains("no answer of a Fairgate"), "{said}");
}
