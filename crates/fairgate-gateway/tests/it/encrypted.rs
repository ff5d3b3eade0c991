//! Tests of TLS on both sides.

use std::net::SocketAddr;
use std::sync::Arc;

use fairgate_config::TlsConfig;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::support::client::post;
use crate::support::{Folder, House, config, house_in, house_with, sim};

fn certificate() -> CertifiedKey<rcgen::KeyPair> {
    generate_simple_self_signed(vec!["localhost".into(), "127.0.0.1".into()]).unwrap()
}

fn trusting(certificate: &CertificateDer<'static>, alpn: &[u8]) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut client = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    client.alpn_protocols = vec![alpn.to_vec()];
    TlsConnector::from(Arc::new(client))
}

/// Starts a gateway whose clients use TLS, with this backend.
async fn house_behind_tls(made: &CertifiedKey<rcgen::KeyPair>, url: &str) -> House {
    let folder = Folder::new();
    let (cert, key) = (folder.0.join("cert.pem"), folder.0.join("key.pem"));
    std::fs::write(&cert, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let mut configuration = config(&folder, url);
    configuration.tls = Some(TlsConfig { cert, key });
    house_in(folder, configuration, Default::default()).await
}

/// Sends a request over TLS, with the version of HTTP that `alpn` names.
async fn ask_over_tls(
    addr: SocketAddr,
    made: &CertifiedKey<rcgen::KeyPair>,
    alpn: &[u8],
    request: Request<Full<bytes::Bytes>>,
) -> Response<Incoming> {
    let connector = trusting(made.cert.der(), alpn);
    let tcp = TcpStream::connect(addr).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let tls = connector.connect(name, tcp).await.unwrap();
    assert_eq!(tls.get_ref().1.alpn_protocol(), Some(alpn));
    let io = TokioIo::new(tls);
    if alpn == b"h2" {
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
        tokio::spawn(connection);
        sender.send_request(request).await.unwrap()
    } else {
        let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
        tokio::spawn(connection);
        sender.send_request(request).await.unwrap()
    }
}

#[tokio::test]
async fn a_session_over_tls_never_leaves_it() {
    let made = certificate();
    let house = house_behind_tls(&made, "http://127.0.0.1:9").await;
    let addr = house.gateway.addr();
    for (alpn, token) in [(&b"h2"[..], "admin"), (b"http/1.1", &house.key)] {
        let login = Request::post("https://localhost/api/v1/session")
            .header("content-type", "application/json")
            .header("host", "localhost")
            .header("origin", "https://localhost")
            .body(Full::<bytes::Bytes>::from(json!({"token": token}).to_string()))
            .unwrap();
        let begun = ask_over_tls(addr, &made, alpn, login).await;
        assert_eq!(begun.status(), StatusCode::OK);
        let cookie = begun.headers()["set-cookie"].to_str().unwrap();
        assert!(cookie.ends_with("; HttpOnly; SameSite=Strict; Secure"), "{cookie}");
        let end = Request::delete("https://localhost/api/v1/session")
            .header("cookie", cookie.split(';').next().unwrap())
            .header("host", "localhost")
            .header("origin", "https://localhost")
            .header("x-fairgate-session", "1")
            .body(Full::default())
            .unwrap();
        let ended = ask_over_tls(addr, &made, alpn, end).await;
        assert_eq!(ended.status(), StatusCode::NO_CONTENT);
        let cookie = ended.headers()["set-cookie"].to_str().unwrap();
        assert!(cookie.contains("; Max-Age=0; ") && cookie.ends_with("; Secure"), "{cookie}");
    }
    house.close().await;
}

#[tokio::test]
async fn clients_may_speak_tls_with_either_version_of_http() {
    let sim = sim();
    let made = certificate();
    let house = house_behind_tls(&made, &sim.url()).await;
    let addr = house.gateway.addr();
    for alpn in [&b"h2"[..], b"http/1.1"] {
        let request = Request::post("https://localhost/v1/chat/completions")
            .header("authorization", format!("Bearer {}", house.key))
            .header("host", "localhost")
            .body(Full::<bytes::Bytes>::from(
                json!({"model": "sim", "messages": [{"role": "user", "content": "x"}]}).to_string(),
            ))
            .unwrap();
        let response = ask_over_tls(addr, &made, alpn, request).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert!(!response.into_body().collect().await.unwrap().to_bytes().is_empty());
    }
    // Whoever speaks in the clear gets nowhere.
    let mut bare = TcpStream::connect(addr).await.unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut bare, b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    let _ = tokio::io::AsyncReadExt::read_to_end(&mut bare, &mut answer).await;
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    drop(bare);
    assert_eq!(house.rows().await.len(), 2);
    house.close().await;
    sim.stop().await;
}

/// Starts a TLS server that passes everything on to `to`.
async fn tls_in_front_of(made: &CertifiedKey<rcgen::KeyPair>, to: std::net::SocketAddr) -> String {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let server = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key.into())
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(server));
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut tls) = acceptor.accept(tcp).await else { return };
                let mut plain = TcpStream::connect(to).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut tls, &mut plain).await;
            });
        }
    });
    format!("https://localhost:{port}")
}

#[tokio::test]
async fn an_upstream_behind_tls_is_trusted_by_its_authority_and_by_no_other() {
    let sim = sim();
    let made = certificate();
    let url = tls_in_front_of(&made, sim.addr()).await;
    let folder = Folder::new();
    let ca = folder.0.join("ca.pem");
    std::fs::write(&ca, made.cert.pem()).unwrap();
    let mut configuration = config(&folder, &url);
    configuration.upstreams[0].ca = Some(ca);
    let house = house_in(folder, configuration, Default::default()).await;
    let body =
        json!({"model": "sim", "messages": [{"role": "user", "content": "x"}], "stream": true});
    for _ in 0..2 {
        let answer =
            post("/v1/chat/completions", &body).key(&house.key).ask(house.gateway.addr()).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
        assert!(answer.text().ends_with("data: [DONE]\n\n"));
    }
    house.close().await;
    // With the usual authorities it is a stranger.
    let house = house_with(&url, |_| {}).await;
    let answer =
        post("/v1/chat/completions", &body).key(&house.key).ask(house.gateway.addr()).await;
    assert_eq!((answer.status, answer.code().as_str()), (StatusCode::BAD_GATEWAY, "upstream_tls"));
    house.close().await;
    sim.stop().await;
}
