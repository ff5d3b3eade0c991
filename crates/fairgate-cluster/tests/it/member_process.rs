//! Members in processes of their own, and a counter of what really runs.
//!
//! A member process is this test program again, with the ignored test [`member_process`]. Each request that has its
//! slot holds a connection to the [`ConnectionCounter`] in the first process; this count is the truth about the slots.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use fairgate_cluster::{ClusterAdmitError, ClusterHandle, ClusterPermit, PostgresLog};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::test_cluster::{admit, config, end_of, options};

/// Settings of a member process: address of the database, of the counter, its name, its process id, its tenant and
/// the number of its requests.
const SETTINGS: [&str; 6] = ["URL", "COUNTER", "NAME", "PROCESS", "TENANT", "REQUESTS"];

/// Number of requests of a process that makes requests until it is told to stop.
pub(crate) const UNTIL_STOPPED: usize = usize::MAX;

/// Requests of one process that wait or are in flight at once, if it makes requests until it is told to stop.
const CALLERS: usize = 12;

/// Time of a request on the backend.
const DURATION: Duration = Duration::from_millis(30);

fn variable(setting: &str) -> String {
    format!("FAIRGATE_TEST_MEMBER_{setting}")
}

/// Counts open connections. A killed process closes its own; those of a paused one stay open.
#[derive(Debug, Default)]
pub(crate) struct ConnectionCounter {
    open: AtomicU64,
    high_water: AtomicU64,
    ended: AtomicU64,
}

impl ConnectionCounter {
    /// Starts to count, and returns the address.
    pub(crate) async fn start() -> (Arc<Self>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let counter = Arc::new(Self::default());
        tokio::spawn(counter.clone().serve(listener));
        (counter, address)
    }

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

    pub(crate) fn high_water(&self) -> u64 {
        self.high_water.load(Ordering::SeqCst)
    }

    /// Waits until this many more requests have ended.
    pub(crate) async fn wait_for(&self, more: u64) {
        let enough = self.ended.load(Ordering::SeqCst) + more;
        let wait = async {
            while self.ended.load(Ordering::SeqCst) < enough {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(Duration::from_secs(40), wait).await.expect("requests go on");
    }
}

/// Result of a member process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessResult {
    /// Requests that ran for their whole time.
    pub(crate) served: usize,
    /// Requests that were cut off.
    pub(crate) cut: usize,
}

/// A member process. It is killed when the test is over.
pub(crate) struct MemberProcess {
    child: Child,
    /// The process stops when this is closed.
    stop: Option<ChildStdin>,
}

impl MemberProcess {
    pub(crate) fn start(
        url: &str,
        counter: &str,
        name: &str,
        process: &str,
        requests: usize,
    ) -> Self {
        let tenant = if name.ends_with('0') { "a" } else { "b" };
        let settings = [url, counter, name, process, tenant, &requests.to_string()];
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--ignored", "--exact", "--nocapture", "member_process::member_process"]);
        command.envs(SETTINGS.iter().zip(settings).map(|(name, value)| (variable(name), value)));
        let mut child = command.stdout(Stdio::piped()).stdin(Stdio::piped()).spawn().unwrap();
        let stop = child.stdin.take();
        Self { child, stop }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Tells the process to end its requests and to leave.
    pub(crate) fn stop(&mut self) {
        drop(self.stop.take());
    }

    /// Waits until the process has ended, and returns its result.
    pub(crate) fn result(mut self) -> ProcessResult {
        let output = BufReader::new(self.child.stdout.take().unwrap());
        let lines = output.lines().map_while(Result::ok);
        // The test harness may write the test's name before it, on the same line.
        let results = lines.filter_map(|it| Some(it[it.find("served ")?..].to_owned()));
        let result = results.last().unwrap_or_default();
        let status = self.child.wait().unwrap();
        let numbers: Vec<usize> = result.split(' ').filter_map(|it| it.parse().ok()).collect();
        assert!(status.success() && numbers.len() == 2, "{status}: {result:?}");
        ProcessResult { served: numbers[0], cut: numbers[1] }
    }
}

impl Drop for MemberProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Admits a request, and comes back as a client does while the gateway is not in its cluster.
async fn admit_at_last(member: &ClusterHandle, id: &str, tenant: &str) -> ClusterPermit {
    loop {
        match admit(member, id, tenant).await {
            Ok(permit) => return permit,
            Err(ClusterAdmitError::NotInCluster | ClusterAdmitError::LogStalled) => {
                sleep(Duration::from_millis(50)).await
            }
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
    stream.shutdown().await.unwrap();
    let _ = stream.read(&mut [0; 1]).await;
    permit.settle(end_of(100));
    is_whole
}

/// Starts the member of this process, as soon as the database answers.
async fn start_at_last(url: &str, name: &str, process: &str) -> ClusterHandle {
    loop {
        let config = config(Duration::from_secs(1), Duration::from_secs(3));
        if let Ok(log) = PostgresLog::open(url, "test").await
            && let options = options(name, process, config)
            && let Ok(member) = ClusterHandle::start(Arc::new(log), "test", options).await
        {
            assert!(member.joined().await, "{:?}", member.status());
            return member;
        }
        sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "it is a member process of other tests"]
#[allow(clippy::print_stdout, reason = "the other process reads it")]
async fn member_process() {
    let settings: Vec<String> =
        SETTINGS.iter().filter_map(|name| std::env::var(variable(name)).ok()).collect();
    let Ok([url, counter, name, process, tenant, requests]) = <[String; 6]>::try_from(settings)
    else {
        return;
    };
    let requests: usize = requests.parse().unwrap();
    let member = start_at_last(&url, &name, &process).await;
    let is_stopped = Arc::new(AtomicBool::new(false));
    let stopped = is_stopped.clone();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        stopped.store(true, Ordering::SeqCst);
    });
    let (next, served) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let cut = Arc::new(AtomicUsize::new(0));
    let mut callers = JoinSet::new();
    for _ in 0..requests.min(CALLERS) {
        let (member, counter, tenant) = (member.clone(), counter.clone(), tenant.clone());
        let (next, served, cut) = (next.clone(), served.clone(), cut.clone());
        let (process, is_stopped) = (process.clone(), is_stopped.clone());
        callers.spawn(async move {
            loop {
                let index = next.fetch_add(1, Ordering::SeqCst);
                if index >= requests || is_stopped.load(Ordering::SeqCst) {
                    return;
                }
                let permit = admit_at_last(&member, &format!("{process}-{index}"), &tenant).await;
                let ended = if run_on_counter(permit, &counter).await { &served } else { &cut };
                ended.fetch_add(1, Ordering::SeqCst);
            }
        });
    }
    while let Some(ended) = callers.join_next().await {
        ended.unwrap();
    }
    member.leave();
    member.over().await;
    println!("served {} cut {}", served.load(Ordering::SeqCst), cut.load(Ordering::SeqCst));
}
