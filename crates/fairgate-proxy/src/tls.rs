//! Sets up TLS for clients and upstreams, with one crypto provider (ring) and certificates from PEM
//! files. Errors name the file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use fairgate_config::TlsConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};

/// Error for a certificate, key or CA file that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {problem}", file.display())]
pub struct TlsError {
    /// Path of the file that cannot be used.
    pub file: PathBuf,
    /// Description of the error for the operator.
    pub problem: String,
}

impl TlsError {
    fn new(file: &Path, problem: impl ToString) -> Self {
        Self { file: file.to_owned(), problem: problem.to_string() }
    }
}

/// Builds the TLS configuration for connections from clients, which prefers HTTP/2 to HTTP/1.1.
pub fn for_clients(files: &TlsConfig) -> Result<Arc<ServerConfig>, TlsError> {
    let chain = certificates(&files.cert)?;
    let key = PrivateKeyDer::from_pem_file(&files.key)
        .map_err(|error| TlsError::new(&files.key, format!("no private key in PEM: {error}")))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .map_err(|error| TlsError::new(&files.cert, error))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Builds the TLS configuration for connections to upstreams. It trusts the authorities in the file
/// `ca`. Without a file, it trusts the built-in roots of the web.
pub fn for_upstreams(ca: Option<&Path>) -> Result<Arc<ClientConfig>, TlsError> {
    let mut roots = RootCertStore::empty();
    match ca {
        None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        Some(file) => {
            for certificate in certificates(file)? {
                roots.add(certificate).map_err(|error| TlsError::new(file, error))?;
            }
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::new(ca.unwrap_or(Path::new("the built-in roots")), error))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read {
        Ok(certificates) if certificates.is_empty() => {
            Err(TlsError::new(file, "no certificate in PEM in it"))
        }
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(TlsError::new(file, error)),
    }
}
