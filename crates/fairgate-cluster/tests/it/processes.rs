//! Three members in processes of their own, under load: processes are paused and killed, and their PostgreSQL is
//! restarted, crashes and hangs.

use std::time::Duration;

use fairgate_cluster::{PostgresLog, read_cluster};
use fairgate_random::SeededRng;
use fairgate_testkit::postgres_server::{PostgresServer, shared_server};
use fairgate_testkit::programs::signal;
use tokio::task::{block_in_place, spawn_blocking};
use tokio::time::{sleep, timeout};

use crate::member_process::{ConnectionCounter, MemberProcess, ProcessResult, UNTIL_STOPPED};
use crate::test_cluster::{SLOTS, pool};

/// Waits for the results of processes that end by themselves.
async fn results<const N: usize>(processes: [MemberProcess; N]) -> [ProcessResult; N] {
    let results = spawn_blocking(move || processes.map(MemberProcess::result));
    timeout(Duration::from_secs(60), results).await.unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_and_a_killed_process_never_exceed_the_slots() {
    const REQUESTS: usize = 150;
    let name = shared_server().create_database().await.unwrap();
    let url = shared_server().socket_url(&name);
    let (counter, address) = ConnectionCounter::start().await;
    let begin =
        |name: &str, process: &str| MemberProcess::start(&url, &address, name, process, REQUESTS);
    let steady = begin("gateway-0", "steady");
    let paused = begin("gateway-1", "paused");
    let killed = begin("gateway-2", "killed");
    counter.wait_for(60).await;
    signal("-STOP", paused.id());
    sleep(Duration::from_secs(2)).await;
    signal("-CONT", paused.id());
    counter.wait_for(40).await;
    drop(killed);
    let again = begin("gateway-2", "again");
    let [steady, paused, again] = results([steady, paused, again]).await;
    let all = ProcessResult { served: REQUESTS, cut: 0 };
    assert_eq!([steady, again], [all, all]);
    // What the paused process had in flight may have been cut off, no more.
    assert_eq!(paused.served + paused.cut, REQUESTS);
    assert!(paused.cut <= usize::try_from(SLOTS).unwrap(), "{paused:?}");
    assert_eq!(counter.high_water(), SLOTS);
    let log = PostgresLog::open(&url, "test").await.unwrap();
    let cluster = read_cluster(&log).await.unwrap();
    let left = cluster.machine().pool(&pool()).unwrap();
    assert_eq!((cluster.machine().generation(), left.waiting()), (1, 0));
}

/// Something that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    PauseMember,
    KillMember,
    RestartServer,
    CrashServer,
    HangServer,
    CutConnections,
}

const FAULTS: [Fault; 6] = [
    Fault::PauseMember,
    Fault::KillMember,
    Fault::RestartServer,
    Fault::CrashServer,
    Fault::HangServer,
    Fault::CutConnections,
];

/// A cluster of processes, to which faults happen.
struct FaultyCluster {
    server: PostgresServer,
    database: String,
    address: String,
    members: Vec<MemberProcess>,
    started: usize,
    rng: SeededRng,
}

impl FaultyCluster {
    fn start_member(&mut self, index: usize) -> MemberProcess {
        self.started += 1;
        let url = self.server.socket_url(&self.database);
        let (name, process) = (format!("gateway-{index}"), format!("process-{}", self.started));
        MemberProcess::start(&url, &self.address, &name, &process, UNTIL_STOPPED)
    }

    fn pause(&mut self) -> Duration {
        Duration::from_millis(self.rng.range(200..=2000))
    }

    async fn happen(&mut self, fault: Fault) {
        let index = self.rng.index(self.members.len());
        let pause = self.pause();
        match fault {
            Fault::PauseMember => {
                signal("-STOP", self.members[index].id());
                sleep(pause).await;
                signal("-CONT", self.members[index].id());
            }
            Fault::KillMember => {
                let again = self.start_member(index);
                drop(std::mem::replace(&mut self.members[index], again));
            }
            Fault::RestartServer => block_in_place(|| {
                self.server.shut_down().unwrap();
                self.server.start_again().unwrap();
            }),
            Fault::CrashServer => block_in_place(|| {
                self.server.crash().unwrap();
                self.server.start_again().unwrap();
            }),
            Fault::HangServer => {
                self.server.hang().unwrap();
                sleep(pause).await;
                self.server.go_on().unwrap();
            }
            Fault::CutConnections => {
                let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                           WHERE datname = current_database() AND pid <> pg_backend_pid()";
                self.server.run(&self.database, cut).await.unwrap();
            }
        }
    }
}

fn number_from(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// `FAIRGATE_CLUSTER_FAULTS=30` runs more faults, and `FAIRGATE_CLUSTER_SEED=N` the same ones again.
#[tokio::test(flavor = "multi_thread")]
async fn whatever_fails_each_request_ends_once_and_nothing_stays_behind() {
    let seed = number_from("FAIRGATE_CLUSTER_SEED").unwrap_or(u64::from(std::process::id()));
    let count = number_from("FAIRGATE_CLUSTER_FAULTS").unwrap_or(4);
    let server = PostgresServer::start_for_tests().unwrap();
    let database = server.create_database().await.unwrap();
    let (counter, address) = ConnectionCounter::start().await;
    let (members, started, rng) = (Vec::new(), 0, SeededRng::new(seed));
    let mut cluster = FaultyCluster { server, database, address, members, started, rng };
    for index in 0..3 {
        let member = cluster.start_member(index);
        cluster.members.push(member);
    }
    counter.wait_for(40).await;
    let mut crashes = 0;
    for number in 0..count {
        // The first ones are of all kinds, in an order of the seed.
        let kinds = FAULTS.len() as u64;
        let nth = if number < kinds { (seed + number) % kinds } else { cluster.rng.below(kinds) };
        let fault = FAULTS[usize::try_from(nth).unwrap()];
        eprintln!("FAIRGATE_CLUSTER_SEED={seed}, fault {number}: {fault:?}");
        crashes += u64::from(fault == Fault::CrashServer);
        cluster.happen(fault).await;
        let calm = cluster.pause() / 4;
        counter.wait_for(10).await;
        sleep(calm).await;
    }
    // Slots of killed processes are free after a lease and `orphans`.
    sleep(Duration::from_secs(6)).await;
    counter.wait_for(40).await;
    cluster.members.iter_mut().for_each(MemberProcess::stop);
    let members: [MemberProcess; 3] = cluster.members.try_into().ok().unwrap();
    let results = results(members).await;
    assert!(results.iter().all(|it| it.served > 0), "{results:?}");
    // Only what was granted in records that a crash has lost may be too much.
    let most = SLOTS + if crashes > 0 { SLOTS } else { 0 };
    let high_water = counter.high_water();
    assert!((SLOTS..=most).contains(&high_water), "{high_water} requests ran at once");
    let url = cluster.server.socket_url(&cluster.database);
    let left = read_cluster(&PostgresLog::open(&url, "test").await.unwrap()).await.unwrap();
    let machine = left.machine();
    assert_eq!(machine.generation(), 1 + crashes, "a generation for each crash, and no other");
    let pool = machine.pool(&pool()).unwrap();
    assert_eq!((pool.in_flight(), pool.waiting()), (0, 0));
    eprintln!("{results:?}, high water {high_water}, generation {}", machine.generation());
}
