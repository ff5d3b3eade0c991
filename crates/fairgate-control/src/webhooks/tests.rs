//! Tests of deliveries over real sockets. The test scripts the receiver's answers and the fleet's
//! clock.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use fairgate_api::RightsPatchBody;
use fairgate_api::fleet::{NewAgent, NewProject, NewTask, NewTasks};
use fairgate_config::Secret;
use fairgate_fleet::{AgentId, FleetClock, FleetOptions, TaskQuestion, WebhookSubscriptions};
use fairgate_store::{DirectoryChange, DirectoryLimits, Store, StoreOptions};
use fairgate_time::UnixMicros;
use rcgen::generate_simple_self_signed;
use ring::hmac;
use rustls::ServerConfig;
use rustls::pki_types::PrivatePkcs8KeyDer;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::*;

const SECRET: &str = "a-secret-of-the-webhook";
/// Longest wait for an event that must happen.
const SOON: Duration = Duration::from_secs(20);
/// Time to wait for an event that must not happen.
const A_WHILE: Duration = Duration::from_millis(150);

/// Clock that the test sets.
#[derive(Debug)]
struct MovableClock(AtomicI64);

impl FleetClock for MovableClock {
    fn now(&self) -> UnixMicros {
        UnixMicros(self.0.load(Ordering::Relaxed))
    }
}

/// A request that the receiver got.
#[derive(Clone, Debug)]
struct ReceivedRequest {
    line: String,
    headers: HashMap<String, String>,
    body: String,
}

impl ReceivedRequest {
    /// Checks the signature as a receiver does.
    fn is_signed(&self, secret: &str) -> bool {
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
        let signed = format!("{}.{}", self.headers["x-fairgate-timestamp"], self.body);
        let Some(hex) = self.headers["x-fairgate-signature"].strip_prefix("sha256=") else {
            return false;
        };
        let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        let tag: Vec<u8> = (0..hex.len()).step_by(2).map(byte).collect();
        hmac::verify(&key, signed.as_bytes(), &tag).is_ok()
    }

    fn event(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

/// Receiver on loopback. It answers each request with the next scripted answer, and repeats the
/// last one. For an empty answer, it sends nothing.
struct WebhookReceiver {
    url: String,
    requests: mpsc::UnboundedReceiver<ReceivedRequest>,
}

impl WebhookReceiver {
    async fn start(answers: &[&str]) -> Self {
        Self::start_with(answers, None).await
    }

    async fn start_with(answers: &[&str], tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://{}/hook?token=t", listener.local_addr().unwrap());
        let (sender, requests) = mpsc::unbounded_channel();
        let answers: Vec<String> = answers.iter().map(|answer| (*answer).to_owned()).collect();
        let answers = Arc::new(Mutex::new(answers));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (sender, answers, tls) = (sender.clone(), answers.clone(), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => serve(stream, &sender, &answers).await,
                        Some(tls) => match tls.accept(stream).await {
                            Ok(stream) => serve(stream, &sender, &answers).await,
                            Err(_) => None,
                        },
                    }
                });
            }
        });
        Self { url, requests }
    }

    async fn request(&mut self) -> ReceivedRequest {
        timeout(SOON, self.requests.recv()).await.expect("a request comes").unwrap()
    }

    fn has_none(&mut self) -> bool {
        self.requests.try_recv().is_err()
    }
}

/// Reads one request, reports it to the test, and answers.
async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    requests: &mpsc::UnboundedSender<ReceivedRequest>,
    answers: &Mutex<Vec<String>>,
) -> Option<()> {
    let mut text = Vec::new();
    let head = loop {
        text.push(stream.read_u8().await.ok()?);
        if text.ends_with(b"\r\n\r\n") {
            break String::from_utf8(std::mem::take(&mut text)).ok()?;
        }
    };
    let mut lines = head.lines();
    let line = lines.next()?.to_owned();
    let headers: HashMap<String, String> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
        .collect();
    let mut body = vec![0; headers["content-length"].parse().ok()?];
    stream.read_exact(&mut body).await.ok()?;
    let body = String::from_utf8(body).ok()?;
    let answer = {
        let mut answers = answers.lock().unwrap();
        if answers.len() > 1 { answers.remove(0) } else { answers[0].clone() }
    };
    requests.send(ReceivedRequest { line, headers, body }).ok()?;
    if answer.is_empty() {
        std::future::pending::<()>().await;
    }
    stream.write_all(answer.as_bytes()).await.ok()?;
    stream.flush().await.ok()
}

const OK: &str = "HTTP/1.1 204 No Content\r\n\r\n";
const ERROR: &str = "HTTP/1.1 500 Oh\r\ncontent-length: 0\r\n\r\n";

fn webhook(name: &str, url: &str) -> WebhookConfig {
    WebhookConfig {
        name: name.into(),
        url: Secret::new(url),
        secret: Secret::new(SECRET),
        events: FleetEventKind::ALL.to_vec(),
        ca: None,
    }
}

/// A fleet with a project `p` and an agent `a`, and the deliveries of one server.
struct WebhookTestWorld {
    store: Store,
    clock: Arc<MovableClock>,
    fleet: Fleet,
    webhooks: Vec<WebhookConfig>,
    agent: AgentId,
}

impl WebhookTestWorld {
    async fn new(url: &str, webhooks: Vec<WebhookConfig>) -> Self {
        let (store, _) = Store::open(url, StoreOptions::default()).await.unwrap();
        let at = UnixMicros(0);
        let group = DirectoryChange::AddGroup { name: "g".into(), weight: 1, budgets: Vec::new() };
        store.change("test", at, group).await.unwrap();
        let tenant = DirectoryChange::AddTenant {
            requires: Vec::new(),
            name: "acme".into(),
            group: "g".into(),
            weight: 1,
            limits: DirectoryLimits::default(),
        };
        store.change("test", at, tenant).await.unwrap();
        let clock = Arc::new(MovableClock(AtomicI64::new(1_800_000_000_000_000)));
        let fleet = fleet(&store, &clock, &webhooks);
        let project = NewProject {
            id: "p".into(),
            tenant: "acme".into(),
            weight: None,
            concurrency: Some(100),
            exclusive: false,
            agent_max: Default::default(),
            requires: Vec::new(),
            budget: None,
            rights: RightsPatchBody::default(),
        };
        fleet.add_project("admin", project).await.unwrap();
        let agent = NewAgent { id: "a".into(), ..NewAgent::default() };
        let token = fleet.add_agent("admin", agent).await.unwrap().token;
        let agent = fleet.agent(&token).await.unwrap().unwrap();
        tokio::spawn(fleet.run());
        Self { store, clock, fleet, webhooks, agent }
    }

    fn deliveries(&self) -> WebhookDeliveries<impl Fn() -> Vec<WebhookConfig> + use<>> {
        let webhooks = self.webhooks.clone();
        WebhookDeliveries::new(self.fleet.clone(), move || webhooks.clone())
    }

    fn pass(&self, seconds: i64) {
        self.clock.0.fetch_add(seconds * 1_000_000, Ordering::Relaxed);
    }

    /// Adds a task and lets its agent ask a question.
    async fn ask(&self) {
        let prompt = "a secret prompt".to_owned();
        let task = NewTask { project: "p".into(), prompt, ..NewTask::default() };
        let tasks = NewTasks { tasks: vec![task], dry_run: false };
        self.fleet.add_tasks("admin", tasks).await.unwrap();
        let claim = self.fleet.claim(&self.agent, SOON).await.unwrap().unwrap();
        let question = TaskQuestion { question: "a secret question".into(), tokens: None };
        self.fleet.ask(&self.agent, &claim.task, claim.epoch, question).await.unwrap();
    }
}

fn fleet(store: &Store, clock: &Arc<MovableClock>, webhooks: &[WebhookConfig]) -> Fleet {
    let webhooks = WebhookSubscriptions::new(subscriptions(webhooks));
    let options = FleetOptions { webhooks, ..FleetOptions::default() };
    Fleet::new(store.clone(), clock.clone(), options)
}

/// Starts all deliveries that are due, and waits for their ends.
async fn step<W: Fn() -> Vec<WebhookConfig>>(deliveries: &mut WebhookDeliveries<W>) {
    deliveries.step().await;
    timeout(SOON, deliveries.finish()).await.expect("all requests end");
}

#[tokio::test]
async fn an_event_is_signed_and_delivered_once() {
    let mut receiver = WebhookReceiver::start(&[OK]).await;
    let world = WebhookTestWorld::new("sqlite::memory:", vec![webhook("ops", &receiver.url)]).await;
    world.ask().await;
    let mut deliveries = world.deliveries();
    step(&mut deliveries).await;
    let request = receiver.request().await;
    assert_eq!(request.line, "POST /hook?token=t HTTP/1.1");
    assert_eq!(request.headers["content-type"], "application/json");
    assert!(request.is_signed(SECRET) && !request.is_signed("another-secret-entirely"));
    let forged = ReceivedRequest { body: request.body.replace("acme", "evil"), ..request.clone() };
    assert!(!forged.is_signed(SECRET), "the body is signed");
    let mut late = request.clone();
    late.headers.insert("x-fairgate-timestamp".into(), "1".into());
    assert!(!late.is_signed(SECRET), "the time is signed");
    let event = request.event();
    assert_eq!((&event["type"], &event["tenant"]), (&"question".into(), &"acme".into()));
    assert_eq!(event["id"].as_str(), Some(request.headers["x-fairgate-event"].as_str()));
    assert!(!request.body.contains("secret"), "{}", request.body);
    world.pass(86_400);
    step(&mut deliveries).await;
    assert!(receiver.has_none(), "it was delivered once");
}

#[tokio::test]
async fn an_event_is_sent_again_after_an_error_and_a_redirect_is_one() {
    let mut elsewhere = WebhookReceiver::start(&[OK]).await;
    let redirect = format!(
        "HTTP/1.1 307 Elsewhere\r\nlocation: {}\r\ncontent-length: 0\r\n\r\n",
        elsewhere.url
    );
    let mut receiver = WebhookReceiver::start(&[ERROR, &redirect, OK]).await;
    let world = WebhookTestWorld::new("sqlite::memory:", vec![webhook("ops", &receiver.url)]).await;
    world.ask().await;
    let mut deliveries = world.deliveries();
    step(&mut deliveries).await;
    let first = receiver.request().await;
    let error = async || {
        let events = world.fleet.pending_webhook_events("ops").await.unwrap();
        events.into_iter().next().and_then(|event| event.error)
    };
    assert_eq!(error().await.as_deref(), Some("it answered 500 Internal Server Error"));
    world.pass(29);
    step(&mut deliveries).await;
    assert!(receiver.has_none(), "it is too soon");
    world.pass(1);
    step(&mut deliveries).await;
    assert_eq!(receiver.request().await.body, first.body);
    let said = error().await.unwrap();
    assert_eq!(said, "it answered 307 Temporary Redirect, and redirects are not followed");
    assert!(!said.contains("token") && elsewhere.has_none());
    world.pass(60);
    step(&mut deliveries).await;
    let third = receiver.request().await;
    assert_eq!(third.headers["x-fairgate-event"], first.headers["x-fairgate-event"]);
    let totals = world.fleet.webhook_totals().await.unwrap().remove(0);
    assert_eq!((totals.pending, totals.delivered), (0, 1));
}

#[tokio::test]
async fn a_receiver_that_hangs_holds_up_nobody() {
    let mut hanging = WebhookReceiver::start(&[""]).await;
    let mut well = WebhookReceiver::start(&[OK]).await;
    let webhooks = vec![webhook("hanging", &hanging.url), webhook("well", &well.url)];
    let world = WebhookTestWorld::new("sqlite::memory:", webhooks).await;
    let mut deliveries = world.deliveries();
    tokio::spawn(async move {
        loop {
            deliveries.step().await;
            deliveries.wait().await;
        }
    });
    for _ in 0..6 {
        // The fleet goes on, and the other receiver gets every event.
        timeout(SOON, world.ask()).await.expect("the fleet does not wait");
        well.request().await;
    }
    for _ in 0..IN_FLIGHT_MAX {
        hanging.request().await;
    }
    tokio::time::sleep(A_WHILE).await;
    assert!(hanging.has_none(), "it has as many requests as it may");
    let totals = world.fleet.webhook_totals().await.unwrap();
    assert_eq!((totals[0].pending, totals[0].delivered, totals[1].pending), (6, 0, 0));
}

#[tokio::test]
async fn a_killed_server_s_events_are_sent_by_the_next_one() {
    let mut receiver = WebhookReceiver::start(&["", OK]).await;
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("db").display());
    let webhooks = vec![webhook("ops", &receiver.url)];
    let world = WebhookTestWorld::new(&url, webhooks.clone()).await;
    world.ask().await;
    let mut deliveries = world.deliveries();
    deliveries.step().await;
    let first = receiver.request().await;
    // The server is killed while the receiver has not answered.
    drop(deliveries);
    world.fleet.stop();
    world.store.close().await.unwrap();
    let (store, _) = Store::open(&url, StoreOptions::default()).await.unwrap();
    let next = fleet(&store, &world.clock, &webhooks);
    let mut deliveries = WebhookDeliveries::new(next.clone(), || webhooks.clone());
    step(&mut deliveries).await;
    assert!(receiver.has_none(), "the first try may still be on its way");
    world.pass(30);
    step(&mut deliveries).await;
    assert_eq!(receiver.request().await.body, first.body, "the same event, with the same id");
    assert_eq!(next.webhook_totals().await.unwrap()[0].delivered, 1);
}

#[tokio::test]
async fn https_is_verified() {
    let made = generate_simple_self_signed(vec!["127.0.0.1".into()]).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key.into())
        .unwrap();
    let tls = TlsAcceptor::from(Arc::new(config));
    let mut receiver = WebhookReceiver::start_with(&[OK], Some(tls)).await;
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, made.cert.pem()).unwrap();
    let event =
        WebhookDelivery { webhook: "ops".into(), id: "evt-1".into(), body: "{}".into(), tries: 1 };
    let unknown = webhook("ops", &receiver.url);
    let refused = WebhookSender::new(&unknown).unwrap().send(&event).await.unwrap_err();
    assert!(refused.starts_with("TLS failed"), "{refused}");
    let trusted = WebhookConfig { ca: Some(ca), ..unknown };
    WebhookSender::new(&trusted).unwrap().send(&event).await.unwrap();
    assert!(receiver.request().await.is_signed(SECRET));
}

#[test]
fn nothing_is_sent_without_encryption_to_another_machine() {
    for url in ["http://10.0.0.5/", "http://localhost/", "http://hooks.example.com/"] {
        let refused = WebhookSender::new(&webhook("ops", url)).err().unwrap();
        assert!(refused.contains("neither https nor an address of this machine"), "{refused}");
    }
    let shown = origin(&webhook("ops", "https://hooks.example.com/a-token?b=c"));
    assert_eq!(shown, "https://hooks.example.com");
}
