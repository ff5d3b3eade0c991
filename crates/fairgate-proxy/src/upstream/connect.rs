//! Opens connections to an upstream.

use std::io;
use std::net::SocketAddr;

use fairgate_config::UpstreamConfig;
use http::uri::Scheme;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::UpstreamError;
use super::chunk_joiner::ChunkJoiningStream;
use super::connection::UpstreamConnection;
use crate::maybe_tls_stream::MaybeTlsStream;
use crate::tls;
use crate::upstream_failure::FailureKind;

/// Address of an upstream, and the TLS settings that verify it.
pub(super) struct UpstreamConnector {
    host: Box<str>,
    port: u16,
    /// Fixed address; if it is set, no name is looked up.
    address: Option<SocketAddr>,
    secure: Option<(TlsConnector, ServerName<'static>)>,
}

impl UpstreamConnector {
    pub(super) fn new(config: &UpstreamConfig) -> Result<Self, UpstreamError> {
        let unusable = |problem| UpstreamError::Unusable { upstream: config.name.clone(), problem };
        let host = config.url.host().ok_or_else(|| unusable("its url has no host"))?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let secure = config.url.scheme() == Some(&Scheme::HTTPS);
        let port = config.url.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let secure = if secure {
            let name = ServerName::try_from(host.to_owned())
                .map_err(|_| unusable("its host is no name that a certificate could carry"))?;
            let trust = tls::for_upstreams(config.ca.as_deref())
                .map_err(|source| UpstreamError::Tls { upstream: config.name.clone(), source })?;
            Some((TlsConnector::from(trust), name))
        } else {
            None
        };
        Ok(Self { host: host.into(), port, address: config.connect_to, secure })
    }

    /// Opens a connection. Tries all addresses of the name; the caller sets the time limit.
    pub(super) async fn connect(&self) -> Result<Box<UpstreamConnection>, FailureKind> {
        let tcp = self.reach().await.map_err(|_| FailureKind::Connect)?;
        let stream = match &self.secure {
            None => MaybeTlsStream::Plain(tcp),
            Some((connector, name)) => {
                let secured = connector.connect(name.clone(), tcp).await;
                MaybeTlsStream::Secure(Box::new(secured.map_err(|_| FailureKind::Tls)?))
            }
        };
        let (sender, link) =
            hyper::client::conn::http1::handshake(TokioIo::new(ChunkJoiningStream::new(stream)))
                .await
                .map_err(|error| FailureKind::of(&error))?;
        Ok(UpstreamConnection::new(sender, link))
    }

    async fn reach(&self) -> io::Result<TcpStream> {
        if let Some(address) = self.address {
            return connected(address).await;
        }
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for address in tokio::net::lookup_host((&*self.host, self.port)).await? {
            match connected(address).await {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

async fn connected(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Transport of a connection to an upstream: plain TCP or TLS, with small chunks of answers joined.
pub(super) type UpstreamTransport =
    TokioIo<ChunkJoiningStream<MaybeTlsStream<tokio_rustls::client::TlsStream<TcpStream>>>>;
