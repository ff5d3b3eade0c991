//! Opens a connection to the gateway and sends one request over it. Uses TLS if the gateway's
//! address has the scheme `https`.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Request, header};
use http_body_util::Full;
use hyper::Response;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

use super::{GatewayHttpClient, GatewayHttpRequest, HttpCallError, base_path};

/// Task that moves the bytes of one connection. Dropping this value ends the task.
pub(super) struct ConnectionTask(JoinHandle<Result<(), hyper::Error>>);

impl Drop for ConnectionTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl GatewayHttpClient {
    /// Sends a request, and returns the response as soon as its head has arrived. The body can be
    /// read only while the caller keeps the returned `ConnectionTask`.
    pub(super) async fn open(
        &self,
        ask: GatewayHttpRequest,
    ) -> Result<(Response<Incoming>, ConnectionTask), HttpCallError> {
        let authority = self.url.authority().ok_or(HttpCallError::NoHost)?;
        let secure = self.url.scheme_str() == Some("https");
        let port = authority.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        let stream = TcpStream::connect((host, port)).await.map_err(HttpCallError::Connect)?;
        let mut request = Request::builder()
            .method(ask.method)
            .uri(format!("{}{}", base_path(&self.url), ask.path))
            .header(header::HOST, authority.as_str())
            .header(header::CONTENT_TYPE, ask.content_type)
            .body(Full::new(ask.body))?;
        if !self.token.is_empty() {
            let token = HeaderValue::try_from(format!("Bearer {}", self.token));
            request.headers_mut().insert(header::AUTHORIZATION, token.map_err(http::Error::from)?);
        }
        request.headers_mut().extend(ask.headers);
        if secure {
            let name = ServerName::try_from(host.to_owned())?;
            let connector = TlsConnector::from(Arc::new(self.tls()?));
            over(connector.connect(name, stream).await?, request).await
        } else {
            over(stream, request).await
        }
    }

    fn tls(&self) -> Result<ClientConfig, HttpCallError> {
        let mut roots = RootCertStore::empty();
        match &self.ca {
            Some(file) => {
                let wrong = |source| HttpCallError::Authorities { file: file.clone(), source };
                for certificate in CertificateDer::pem_file_iter(file).map_err(wrong)? {
                    roots.add(certificate.map_err(wrong)?)?;
                }
            }
            None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions()?;
        Ok(builder.with_root_certificates(roots).with_no_client_auth())
    }
}

async fn over(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Full<Bytes>>,
) -> Result<(Response<Incoming>, ConnectionTask), HttpCallError> {
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let connection = ConnectionTask(tokio::spawn(connection));
    Ok((sender.send_request(request).await?, connection))
}
