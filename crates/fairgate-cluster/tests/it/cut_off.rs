//! A member that does not reach the log, while its backends go on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fairgate_cluster::{
    ClusterAdmitError, ClusterHandle, MemberOptions, MemoryLog, PeerAnswers, PeerClocks,
    PostgresLog,
};
use fairgate_testkit::postgres_server::shared_server;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::test_cluster::{SLOTS, admit, check_equal, config, end_of, options, start, until};

/// The members of this process, which answer each other without the log.
#[derive(Clone, Default)]
struct KnownMembers(Arc<Mutex<Vec<ClusterHandle>>>);

impl KnownMembers {
    fn options(&self, index: usize, config: fairgate_replica::ClusterConfig) -> MemberOptions {
        let options = options(&format!("gateway-{index}"), &format!("process-{index}"), config);
        MemberOptions { peers: Some(Arc::new(self.clone())), ..options }
    }

    fn add(&self, member: &ClusterHandle) {
        self.0.lock().unwrap().push(member.clone());
    }
}

impl PeerClocks for KnownMembers {
    /// All members answer, also the one that asks, which changes nothing.
    fn ask(&self, _addresses: Vec<Arc<str>>) -> PeerAnswers {
        let members = self.0.lock().unwrap().clone();
        Box::pin(async move {
            let mut times = Vec::new();
            for member in members {
                times.extend(member.look(|machine| machine.now()).await);
            }
            times
        })
    }
}

/// A way to the database that can be cut.
struct CutWay {
    address: String,
    is_cut: Arc<AtomicBool>,
}

impl CutWay {
    async fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let is_cut = Arc::new(AtomicBool::new(false));
        tokio::spawn(carry(listener, port, is_cut.clone()));
        Self { address, is_cut }
    }

    fn set_cut(&self, is_cut: bool) {
        self.is_cut.store(is_cut, Ordering::SeqCst);
    }
}

/// Carries connections, and closes all of them while the way is cut.
async fn carry(listener: TcpListener, port: u16, is_cut: Arc<AtomicBool>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (mut client, _) = accepted.unwrap();
                connections.spawn(async move {
                    let mut server = TcpStream::connect(("127.0.0.1", port)).await?;
                    copy_bidirectional(&mut client, &mut server).await
                });
            }
            () = sleep(Duration::from_millis(10)) => {}
        }
        if is_cut.load(Ordering::SeqCst) {
            connections.abort_all();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_without_the_log_cuts_its_flights_before_others_get_their_slots() {
    let database = shared_server().create_database().await.unwrap();
    let way = CutWay::to(shared_server().port()).await;
    let through = format!("postgres://fairgate@{}/{database}", way.address);
    let direct = shared_server().socket_url(&database);
    let known = KnownMembers::default();
    let config = config(Duration::from_secs(3), Duration::from_secs(4));
    let mut members = Vec::new();
    for (index, url) in [through, direct].iter().enumerate() {
        let log = Arc::new(PostgresLog::open(url, "test").await.unwrap());
        let member = start(log, known.options(index, config.clone())).await;
        known.add(&member);
        members.push(member);
    }
    let mut flights = JoinSet::new();
    for index in 0..SLOTS {
        let mut permit = admit(&members[0], &format!("r{index}"), "a").await.unwrap();
        flights.spawn(async move {
            permit.must_stop().await;
            Instant::now()
        });
    }
    until(&members[1], |machine| machine.pool("llama").unwrap().in_flight() == SLOTS).await;
    let begin = Instant::now();
    way.set_cut(true);
    let next = timeout(Duration::from_secs(30), admit(&members[1], "next", "b"));
    let next = next.await.unwrap().unwrap();
    let granted = Instant::now();
    let cut = timeout(Duration::from_secs(1), flights.join_all()).await.unwrap();
    assert!(cut.iter().all(|at| *at < granted && *at - begin > Duration::from_secs(3)), "{cut:?}");
    next.settle(end_of(1));
    way.set_cut(false);
    assert!(timeout(Duration::from_secs(20), members[0].joined()).await.unwrap());
    let back = async {
        loop {
            match admit(&members[0], "back", "a").await {
                Ok(permit) => return permit.settle(end_of(1)),
                Err(ClusterAdmitError::NotInCluster) => sleep(Duration::from_millis(50)).await,
                Err(error) => panic!("{error}"),
            }
        }
    };
    timeout(Duration::from_secs(20), back).await.unwrap();
    check_equal(&members).await;
}

#[tokio::test(start_paused = true)]
async fn if_the_log_stands_still_for_all_everything_in_flight_goes_on() {
    let (log, known) = (Arc::new(MemoryLog::new()), KnownMembers::default());
    let config = config(Duration::from_secs(5), Duration::from_secs(30));
    let mut members = Vec::new();
    for index in 0..2 {
        let member = start(log.clone(), known.options(index, config.clone())).await;
        known.add(&member);
        members.push(member);
    }
    let mut permit = admit(&members[0], "runs", "a").await.unwrap();
    log.set_away(true);
    let cut = timeout(Duration::from_secs(300), permit.must_stop()).await;
    assert!(cut.is_err(), "no member has moved on");
    log.set_away(false);
    until(&members[1], |machine| machine.pool("llama").unwrap().in_flight() == 1).await;
    permit.settle(end_of(1));
    until(&members[1], |machine| machine.pool("llama").unwrap().in_flight() == 0).await;
    check_equal(&members).await;
}
