//! Tests of reading the journal over real sockets: one reading at a time, and none that is too
//! long.

use std::fs::{self, OpenOptions};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use futures_util::future::select;
use serde_json::{Value, json};

use crate::support::client::{Answer, get, post};
use crate::support::{House, SOON, house, sim};

/// A file in a journal's folder that cannot be read yet: opening it waits for a writer.
struct UnwrittenFile(PathBuf);

impl UnwrittenFile {
    fn new(house: &House) -> Self {
        let path = house.folder.0.join("journal/sim/0-start.jsonl");
        let made = Command::new("mkfifo").arg(&path).status().expect("mkfifo");
        assert!(made.success(), "{}", path.display());
        Self(path)
    }
}

impl Drop for UnwrittenFile {
    /// Ends the wait of a reader, which then finds an empty file.
    fn drop(&mut self) {
        let writer = OpenOptions::new().read(true).write(true).open(&self.0);
        fs::remove_file(&self.0).expect("removed");
        drop(writer.expect("a writer"));
    }
}

async fn what_if(addr: SocketAddr) -> Answer {
    let weights = json!([{"by": "tenant", "flow": "acme", "weight": 7}]);
    let body = json!({"pool": "sim", "weights": weights});
    post("/api/v1/what-if", &body)
        .header("content-type", "application/json")
        .key("admin")
        .ask(addr)
        .await
}

/// Waits until the journal, which is written asynchronously, has the ends of this number of
/// requests.
async fn until_journaled(house: &House, count: usize) {
    let folder = house.folder.0.join("journal/sim");
    let written = async {
        loop {
            let files = fs::read_dir(&folder).expect("a folder").map(|file| file.expect("a file"));
            let texts = files.filter_map(|file| fs::read_to_string(file.path()).ok());
            let ends: usize = texts.map(|text| text.matches("\"event\":\"release\"").count()).sum();
            if ends >= count {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(SOON, written).await.expect("the journal is written");
}

/// Starts a gateway whose journal has some requests, and returns the id of one of them.
async fn with_requests(url: &str) -> (House, String) {
    let house = house(url).await;
    let chat = json!({"model": "sim", "messages": [{"role": "user", "content": "x"}]});
    let mut id = String::new();
    for _ in 0..3 {
        let answer =
            post("/v1/chat/completions", &chat).key(&house.key).ask(house.gateway.addr()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        id = answer.header("x-fairgate-request-id").expect("an id").to_owned();
    }
    house.quiet().await;
    until_journaled(&house, 3).await;
    (house, id)
}

#[tokio::test]
async fn one_look_into_the_journal_runs_at_a_time() {
    let sim = sim();
    let (house, id) = with_requests(&sim.url()).await;
    let addr = house.gateway.addr();
    let unwritten = UnwrittenFile::new(&house);
    // Either may be the first to look; the other one is refused.
    let looks = select(tokio::spawn(what_if(addr)), tokio::spawn(what_if(addr)));
    let (refused, looking) = looks.await.factor_first();
    let is_busy = |answer: &Answer| {
        assert_eq!((answer.status.as_u16(), &*answer.code()), (429, "what_if_busy"));
        assert_eq!(answer.header("retry-after"), Some("2"));
    };
    is_busy(&refused.expect("an answer"));
    // The history of a request is such a look, too.
    let history = format!("/api/v1/requests/{id}/journal");
    is_busy(&get(&history).key("admin").ask(addr).await);
    drop(unwritten);
    let looked = looking.await.expect("an answer");
    assert_eq!(looked.status.as_u16(), 200, "{}", looked.text());
    let told = get(&history).key("admin").ask(addr).await;
    assert_eq!(told.status.as_u16(), 200, "{}", told.text());
    house.close().await;
    sim.stop().await;
}

#[tokio::test]
async fn a_look_that_is_too_long_says_how_far_it_came() {
    let sim = sim();
    let (house, id) = with_requests(&sim.url()).await;
    let addr = house.gateway.addr();
    house.gateway.control_plane().set_journal_lines_max(3);
    let long = what_if(addr).await;
    assert_eq!((long.status.as_u16(), &*long.code()), (413, "too_long"));
    let error: Value = long.json()["error"].clone();
    assert_eq!(error["field"], "until");
    let message = error["message"].as_str().expect("a message");
    assert!(
        message.contains("more than 3 lines") && message.contains("choose a shorter one"),
        "{message}"
    );
    let history = get(&format!("/api/v1/requests/{id}/journal")).key("admin").ask(addr).await;
    assert_eq!((history.status.as_u16(), &*history.code()), (413, "too_long"));
    house.close().await;
    sim.stop().await;
}
