//! Tests of the pages over real sockets: their addresses and headers.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::net::SocketAddr;

use http::{Method, StatusCode};

use crate::support::client::{Answer, Question, get, post};
use crate::support::{House, house_with};

/// Directives of the content security policy. The last two limit what a page could do with a
/// `<base>` or a form.
const POLICY: [&str; 10] = [
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "connect-src 'self'",
    "img-src 'self'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types lit-html",
    "base-uri 'none'",
    "form-action 'none'",
];

async fn with_pages(has_admin_address: bool, pages: bool) -> House {
    house_with("http://127.0.0.1:9", |config| {
        config.admin.listen = has_admin_address.then(|| ([127, 0, 0, 1], 0).into());
        config.admin.pages = pages;
    })
    .await
}

fn check_headers(answer: &Answer, path: &str) {
    let header = |name: &str| answer.header(name).unwrap_or_else(|| panic!("{path}: no {name}"));
    let policy: BTreeSet<&str> = header("content-security-policy").split("; ").collect();
    assert_eq!(policy, BTreeSet::from(POLICY), "{path}");
    assert_eq!(header("x-content-type-options"), "nosniff", "{path}");
    assert_eq!(header("cache-control"), "no-cache", "{path}");
    assert_eq!(header("vary"), "accept-encoding", "{path}");
    assert!(answer.header("set-cookie").is_none(), "{path}");
}

async fn status(addr: SocketAddr, path: &str) -> u16 {
    get(path).ask(addr).await.status.as_u16()
}

#[tokio::test]
async fn every_file_is_served_once_and_then_by_its_etag() {
    let house = with_pages(false, true).await;
    let addr = house.gateway.addr();
    let mut paths: Vec<String> = fairgate_dashboard::url_paths().collect();
    assert!(paths.len() > 50, "{paths:?}");
    paths.push("/favicon.ico".to_owned());
    for path in &paths {
        let plain = get(path).ask(addr).await;
        assert_eq!(plain.status, StatusCode::OK, "{path}");
        check_headers(&plain, path);
        assert_eq!(plain.header("content-encoding"), None, "{path}");
        let etag = plain.header("etag").expect("an ETag").to_owned();
        let same = get(path).header("if-none-match", &etag).ask(addr).await;
        assert_eq!((same.status, same.body.len()), (StatusCode::NOT_MODIFIED, 0), "{path}");
        assert_eq!(same.header("etag"), Some(&*etag), "{path}");
        check_headers(&same, path);
        let other = get(path).header("if-none-match", "\"0000000000000000\"").ask(addr).await;
        assert_eq!((other.status, &other.body), (StatusCode::OK, &plain.body), "{path}");
        let packed = get(path).header("accept-encoding", "br, gzip;q=0.8").ask(addr).await;
        assert_eq!(packed.header("content-encoding"), Some("gzip"), "{path}");
        assert_eq!(packed.header("etag"), Some(&*etag), "{path}");
        let mut unpacked = Vec::new();
        flate2::read::GzDecoder::new(&*packed.body).read_to_end(&mut unpacked).expect("gzip");
        assert_eq!(unpacked, plain.body, "{path}");
        assert_eq!(packed.header("content-type"), plain.header("content-type"), "{path}");
    }
    let refused = get("/").header("accept-encoding", "gzip;q=0").ask(addr).await;
    assert_eq!(refused.header("content-encoding"), None);
    let many = get("/").header("if-none-match", "\"x\", *").ask(addr).await;
    assert_eq!(many.status, StatusCode::NOT_MODIFIED);
    let head = Question { method: Method::HEAD, ..get("/") }.ask(addr).await;
    assert_eq!((head.status, head.body.len()), (StatusCode::OK, 0));
    let over_h2 = get("/me").ask_h2(addr).await;
    assert_eq!(over_h2.status, StatusCode::OK);
    check_headers(&over_h2, "/me");
    house.close().await;
}

#[tokio::test]
async fn what_is_no_page_is_not_found() {
    let house = with_pages(false, true).await;
    let addr = house.gateway.addr();
    for path in [
        "/index.html",
        "/me.html",
        "/assets",
        "/assets/",
        "/assets/none.js",
        "/assets/me.html",
        "/assets/../Cargo.toml",
        "/assets/%2e%2e/Cargo.toml",
        "/assets//app.js",
        "/me/",
        "/pools",
    ] {
        let answer = get(path).ask(addr).await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "{path}");
        // The first code is for a path that begins as those of the pages do.
        assert!(["unknown_path", "not_found"].contains(&&*answer.code()), "{}", answer.text());
    }
    let posted = post("/", &serde_json::json!({})).ask(addr).await;
    assert_eq!(posted.status, StatusCode::METHOD_NOT_ALLOWED);
    house.close().await;
}

#[tokio::test]
async fn each_page_is_where_its_sessions_are() {
    let house = with_pages(true, true).await;
    let (clients, admin) = (house.gateway.addr(), house.gateway.admin_addr());
    assert_ne!(clients, admin);
    assert_eq!((status(clients, "/").await, status(clients, "/me").await), (404, 200));
    assert_eq!((status(admin, "/").await, status(admin, "/me").await), (200, 404));
    for addr in [clients, admin] {
        assert_eq!(status(addr, "/assets/start.js").await, 200);
    }
    house.close().await;
    let house = with_pages(false, true).await;
    let addr = house.gateway.addr();
    assert_eq!((status(addr, "/").await, status(addr, "/me").await), (200, 200));
    house.close().await;
}

#[tokio::test]
async fn pages_can_be_switched_off() {
    for has_admin_address in [false, true] {
        let house = with_pages(has_admin_address, false).await;
        for addr in [house.gateway.addr(), house.gateway.admin_addr()] {
            for path in ["/", "/me", "/favicon.ico", "/assets/start.js"] {
                let answer = get(path).ask(addr).await;
                assert_eq!(answer.status, StatusCode::NOT_FOUND, "{path}");
                assert_eq!(answer.code(), "not_found", "{path}");
                assert!(!answer.text().contains('<'), "{path}: {}", answer.text());
            }
        }
        // What the pages read is there for programs still.
        let tenants = get("/api/v1/tenants").key("admin").ask(house.gateway.admin_addr()).await;
        assert_eq!(tenants.status, StatusCode::OK);
        house.close().await;
    }
}
