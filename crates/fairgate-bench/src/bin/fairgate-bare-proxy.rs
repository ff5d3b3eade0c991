//! A proxy built from hyper alone, for `cargo xtask bench instructions`. It passes requests on to one upstream and
//! passes the answers back, piece by piece. It does no work of a gateway, so the difference between the proxy's and the
//! gateway's instructions is the gateway's own work.
//!
//! The proxy has the same parts as the gateway: tokio with several threads, hyper's server, and hyper-util's client
//! with its pool of connections.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use clap::Parser;
use http::uri::{Authority, Scheme};
use http::{Request, Response, StatusCode, Uri, header};
use http_body_util::{Either, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;

/// Passes HTTP/1.1 requests on to one upstream.
#[derive(Parser)]
struct ProxyArguments {
    /// Address on which clients connect.
    #[arg(long)]
    listen: SocketAddr,
    /// Address of the upstream.
    #[arg(long)]
    upstream: SocketAddr,
}

type UpstreamClient = Client<HttpConnector, Incoming>;
type ProxyBody = Either<Incoming, Empty<Bytes>>;

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = ProxyArguments::parse();
    let upstream: Authority = arguments.upstream.to_string().parse()?;
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client: UpstreamClient = Client::builder(TokioExecutor::new()).build(connector);
    let listener = TcpListener::bind(arguments.listen).await.context("cannot listen")?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let (client, upstream) = (client.clone(), upstream.clone());
        tokio::spawn(async move {
            let service =
                service_fn(move |request| pass_on(client.clone(), upstream.clone(), request));
            // An error ends the connection, which the client sees.
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

/// Sends a request to the upstream and returns its answer, or 502 if the upstream does not answer.
async fn pass_on(
    client: UpstreamClient,
    upstream: Authority,
    mut request: Request<Incoming>,
) -> Result<Response<ProxyBody>, http::Error> {
    let mut parts = request.uri().clone().into_parts();
    parts.scheme = Some(Scheme::HTTP);
    parts.authority = Some(upstream);
    *request.uri_mut() = Uri::from_parts(parts).map_err(http::Error::from)?;
    request.headers_mut().remove(header::HOST);
    match client.request(request).await {
        Ok(answer) => Ok(answer.map(Either::Left)),
        Err(_) => {
            Response::builder().status(StatusCode::BAD_GATEWAY).body(Either::Right(Empty::new()))
        }
    }
}
