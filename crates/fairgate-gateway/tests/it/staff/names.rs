//! Tests of workers that are the addresses of a DNS name.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use fairgate_config::{Config, DiscoverConfig};
use fairgate_proxy::pools::{DnsAnswer as Addresses, DnsResolver};
use fairgate_sim::{OutputLength, Sim, SimOptions};

use super::*;

/// A DNS resolver that returns the addresses that the test sets.
#[derive(Clone, Default)]
struct Names(Arc<Mutex<Option<BTreeSet<IpAddr>>>>);

impl Names {
    fn are(&self, hosts: &[u8]) {
        let addresses = hosts.iter().map(|host| IpAddr::from([127, 0, 0, *host])).collect();
        *self.0.lock().unwrap() = Some(addresses);
    }

    fn fail(&self) {
        *self.0.lock().unwrap() = None;
    }
}

impl DnsResolver for Names {
    fn addresses<'a>(&'a self, name: &'a str) -> Addresses<'a> {
        assert_eq!(name, "workers.invalid");
        let known = self.0.lock().unwrap().clone();
        Box::pin(async move { known.ok_or_else(|| std::io::Error::other("no answer")) })
    }
}

fn sim_at(host: u8, port: u16) -> Sim {
    let options = SimOptions {
        output_tokens: OutputLength::exactly(8),
        decode_per_token: Duration::from_millis(2),
        slots: 4,
        ..SimOptions::instant()
    };
    Sim::start(([127, 0, 0, host], port).into(), options).unwrap()
}

fn discovers(config: &mut Config, port: u16) {
    config.upstreams[0].slots = Some(4);
    config.upstreams[0].discover = Some(DiscoverConfig {
        dns: "workers.invalid".into(),
        port,
        every: Duration::from_millis(20),
    });
    config.pools[0].follows_slots = true;
}

#[tokio::test]
async fn workers_follow_the_addresses_of_a_name() {
    let two = sim_at(2, 0);
    let port = two.addr().port();
    let three = sim_at(3, port);
    let house = house_with("http://workers.invalid", |config| discovers(config, port)).await;
    let names_of_workers = Names::default();
    house.gateway.data_plane().pools.set_resolver(names_of_workers.clone());
    let none = chat(&house).ask(house.gateway.addr()).await;
    assert_eq!((none.status.as_u16(), none.code().as_str()), (503, "no_worker"), "{}", none.text());
    names_of_workers.are(&[2]);
    until("one is found", async || names(&house.gateway) == ["sim-127.0.0.2"]).await;
    assert_eq!(chat(&house).ask(house.gateway.addr()).await.status, StatusCode::OK);
    assert_eq!(capacity(&house).await, 4);
    names_of_workers.are(&[2, 3]);
    until("another is found", async || names(&house.gateway).len() == 2).await;
    assert_eq!(capacity(&house).await, 8, "it follows the slots");
    assert_eq!(views(&house.gateway)[1].source.name(), "dns");
    // What cannot be looked up stays as it was.
    names_of_workers.fail();
    tokio::time::sleep(Duration::from_millis(150)).await;
    assert_eq!(names(&house.gateway).len(), 2);
    names_of_workers.are(&[3]);
    until("one is gone", async || in_core(&house.gateway).await == ["sim-127.0.0.3"]).await;
    until("its slots too", async || capacity(&house).await == 4).await;
    let before = three.stats().requests;
    assert_eq!(chat(&house).ask(house.gateway.addr()).await.status, StatusCode::OK);
    assert_eq!(three.stats().requests, before + 1);
    house.close().await;
    two.stop().await;
    three.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn under_load_workers_are_found_drained_and_killed_and_nothing_is_lost_that_had_not_started()
{
    let two = sim_at(2, 0);
    let port = two.addr().port();
    let three = sim_at(3, port);
    let house = house_with("http://workers.invalid", |config| {
        discovers(config, port);
        config.upstreams[0].breaker.failures = 1;
        config.pools[0].retries = 2;
    })
    .await;
    let known = Names::default();
    known.are(&[2, 3]);
    house.gateway.data_plane().pools.set_resolver(known.clone());
    until("both are found", async || names(&house.gateway).len() == 2).await;
    let addr = house.gateway.addr();
    let mut asked = Vec::new();
    for _ in 0..400 {
        let question = chat(&house);
        asked.push(tokio::spawn(async move { question.ask(addr).await }));
    }
    until("some are done", async || two.stats().finished > 20).await;
    let four = sim_at(4, port);
    known.are(&[2, 3, 4]);
    until("a third is found", async || four.stats().finished > 5).await;
    assert_eq!(turn(&house, "sim-127.0.0.3", "drain").await.status, StatusCode::OK);
    // A crash: it is gone from DNS only later.
    two.kill().await;
    known.are(&[3, 4]);
    let mut ended: Vec<(u16, String)> = Vec::new();
    for asked in asked {
        let answer =
            tokio::time::timeout(SOON, asked).await.expect("nobody waits for ever").unwrap();
        let code = if answer.status == StatusCode::OK { String::new() } else { answer.code() };
        ended.push((answer.status.as_u16(), code));
    }
    let failed: Vec<_> = ended.iter().filter(|(status, _)| *status != 200).collect();
    // Whatever had begun on the killed one was at most its slots, and says what became of it.
    assert!(failed.len() <= 4, "{failed:?}");
    assert!(failed.iter().all(|(_, code)| code == "upstream_reset"), "{failed:?}");
    until("it is forgotten", async || {
        in_core(&house.gateway).await == ["sim-127.0.0.3", "sim-127.0.0.4"]
    })
    .await;
    house.close().await;
    three.stop().await;
    four.stop().await;
}
