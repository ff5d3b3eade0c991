//! Three members in processes of their own, of which one is paused and one is killed under load.
//!
//! A member process is this test program again, with the ignored test [`member_process`]. Each request that has its
//! slot holds a connection to the [`ConnectionCounter`] in the first process; this count is the truth about the slots.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fairgate_cluster::{ClusterAdmitError, ClusterHandle, ClusterPermit, PostgresLog};
use fairgate_testkit::postgres_server::shared_server;
use fairgate_testkit::programs::signal;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::test_cluster::{SLOTS, admit, config, end_of, options, pool, replay, start};

/// Settings of a member process: address of the database, of the counter, its name, its process id and its tenant.
const SETTINGS: [&str; 5] = ["URL", "COUNTER", "NAME", "PROCESS", "TENANT"];

/// Requests of each process.
const REQUESTS: usize = 150;

/// Time of a request on the backend.
const DURATION: Duration = Duration::from_millis(30);

fn variable(setting: &str) -> String {
    format!("FAIRGATE_TEST_MEMBER_{setting}")
}

/// Counts open connections. A killed process closes its own; those of a paused one stay open.
#[derive(Debug, Default)]
struct ConnectionCounter {
    open: AtomicU64,
    high_water: AtomicU64,
    ended: AtomicU64,
}

impl ConnectionCounter {
    async fn serve(self: Arc<Self>, listener: TcpListener) {
        while let Ok((mut stream, _)) = listener.accept().await {
            let counter = self.clone();
            // It is counted before the next one is accepted.
            let open = counter.open.fetch_add(1, Ordering::SeqCst) + 1;
            counter.high_water.fetch_max(open, Ordering::SeqCst);
            tokio::spawn(async move {
                let _ = stream.read(&mut [0; 1]).await;
                counter.open.fetch_sub(1, Ordering::SeqCst);
                counter.ended.fetch_add(1, Ordering::SeqCst);
                // The process settles its request after it has seen the end of this connection.
                drop(stream);
            });
        }
    }

    fn ended(&self) -> u64 {
        self.ended.load(Ordering::SeqCst)
    }
}

/// A member process. It is killed when the test is over.
struct MemberProcess(Child);

impl MemberProcess {
    fn start(settings: [&str; 5]) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--ignored", "--exact", "--nocapture", "processes::member_process"]);
        command.envs(SETTINGS.iter().zip(settings).map(|(name, value)| (variable(name), value)));
        Self(command.stdout(Stdio::piped()).stdin(Stdio::null()).spawn().unwrap())
    }

    /// Waits until the process has ended, and returns the line with its result.
    fn result(mut self) -> String {
        let output = BufReader::new(self.0.stdout.take().unwrap());
        let lines = output.lines().map_while(Result::ok);
        // The test harness may write the test's name before it, on the same line.
        let results = lines.filter_map(|it| Some(it[it.find("served")?..].to_owned()));
        let result = results.last();
        let status = self.0.wait().unwrap();
        assert!(status.success(), "{status}: {result:?}");
        result.unwrap_or_default()
    }
}

impl Drop for MemberProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Admits a request, and comes back as a client does while the gateway is not in its cluster.
async fn admit_at_last(member: &ClusterHandle, id: &str, tenant: &str) -> ClusterPermit {
    loop {
        match admit(member, id, tenant).await {
            Ok(permit) => return permit,
            Err(ClusterAdmitError::NotInCluster) => sleep(Duration::from_millis(50)).await,
            Err(error) => panic!("{id}: {error}"),
        }
    }
}

/// Holds a connection for the time of the request. Returns false if the request was cut off.
async fn run_on_counter(mut permit: ClusterPermit, counter: &str) -> bool {
    let mut stream = TcpStream::connect(counter).await.unwrap();
    let is_whole = tokio::select! {
        () = sleep(DURATION) => true,
        () = permit.must_stop() => false,
    };
    // A half-closed connection tells the counter; its answer tells that it has counted.
    tokio::io::AsyncWriteExt::shutdown(&mut stream).await.unwrap();
    let _ = stream.read(&mut [0; 1]).await;
    permit.settle(end_of(100));
    is_whole
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "it is a member process of the test below"]
#[allow(clippy::print_stdout, reason = "the other process reads it")]
async fn member_process() {
    let settings: Vec<String> =
        SETTINGS.iter().filter_map(|name| std::env::var(variable(name)).ok()).collect();
    let Ok([url, counter, name, process, tenant]) = <[String; 5]>::try_from(settings) else {
        return;
    };
    let log = Arc::new(PostgresLog::open(&url, "test").await.unwrap());
    let config = config(Duration::from_secs(1), Duration::from_secs(3));
    let member = start(log, options(&name, &process, config)).await;
    let mut requests = JoinSet::new();
    for index in 0..REQUESTS {
        let (member, counter) = (member.clone(), counter.clone());
        let (id, tenant) = (format!("{process}-{index}"), tenant.clone());
        requests.spawn(async move {
            let permit = admit_at_last(&member, &id, &tenant).await;
            run_on_counter(permit, &counter).await
        });
    }
    let whole = requests.join_all().await.into_iter().filter(|it| *it).count();
    member.leave();
    member.over().await;
    println!("served {whole} of {REQUESTS}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_and_a_killed_process_never_exceed_the_slots() {
    let name = shared_server().create_database().await.unwrap();
    let url = shared_server().socket_url(&name);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let counter = Arc::new(ConnectionCounter::default());
    tokio::spawn(counter.clone().serve(listener));
    let begin = |name: &str, process: &str, tenant: &str| {
        MemberProcess::start([&url, &address, name, process, tenant])
    };
    let steady = begin("gateway-0", "steady", "a");
    let paused = begin("gateway-1", "paused", "b");
    let killed = begin("gateway-2", "killed", "a");
    let at_least = async |count: u64| {
        while counter.ended() < count {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(30), at_least(60)).await.unwrap();
    signal("-STOP", paused.0.id());
    sleep(Duration::from_secs(2)).await;
    signal("-CONT", paused.0.id());
    let count = counter.ended();
    timeout(Duration::from_secs(30), at_least(count + 40)).await.unwrap();
    signal("-KILL", killed.0.id());
    drop(killed);
    let again = begin("gateway-2", "again", "a");
    let results =
        tokio::task::spawn_blocking(move || [steady, paused, again].map(MemberProcess::result));
    let results = timeout(Duration::from_secs(60), results).await.unwrap().unwrap();
    let [steady, paused, again] = &results;
    for result in [steady, again] {
        assert_eq!(*result, format!("served {REQUESTS} of {REQUESTS}"), "{results:?}");
    }
    // What the paused process had in flight may have been cut off, no more.
    let whole: usize = paused.split(' ').nth(1).unwrap().parse().unwrap();
    assert!(whole + usize::try_from(SLOTS).unwrap() >= REQUESTS, "{results:?}");
    let high_water = counter.high_water.load(Ordering::SeqCst);
    assert_eq!(high_water, SLOTS);
    let log = PostgresLog::open(&url, "test").await.unwrap();
    let machine = replay(&log, |_, _| {}).await;
    let left = machine.pool(&pool()).unwrap();
    assert_eq!((machine.generation(), left.waiting()), (1, 0));
}
