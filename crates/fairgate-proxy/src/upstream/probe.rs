//! Sends one request to an upstream to find out whether it runs and accepts the credential, for
//! people who check a configuration.

use std::fmt;
use std::time::Duration;

use fairgate_config::UpstreamConfig;
use http::StatusCode;
use http::uri::PathAndQuery;
use tokio::time::Instant;

use super::{FailureCause, Upstream, UpstreamError};

/// Path that every server of the supported dialects has.
const MODELS: &str = "/v1/models";
/// Maximum number of bytes of the answer that are read.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// Maximum time that the upstream may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Answer of an upstream to a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpstreamProbe {
    /// The upstream answers and accepts the credential.
    Well(StatusCode),
    /// The upstream refuses the credential, or requires one that is not configured.
    CredentialRefused(StatusCode),
    /// The upstream answers with a server error.
    Faulty(StatusCode),
    /// No answer came, for the reason in the text.
    Silent(String),
}

impl UpstreamProbe {
    /// Returns true if requests can be expected to succeed.
    pub fn is_well(&self) -> bool {
        matches!(self, Self::Well(_))
    }

    fn of(status: StatusCode) -> Self {
        match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Self::CredentialRefused(status),
            status if status.is_server_error() => Self::Faulty(status),
            // The server runs, even if it has no list of models.
            status => Self::Well(status),
        }
    }
}

impl fmt::Display for UpstreamProbe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Well(status) => write!(f, "answers ({})", status.as_u16()),
            Self::CredentialRefused(status) => {
                write!(f, "refuses the credential ({})", status.as_u16())
            }
            Self::Faulty(status) => write!(f, "is at fault ({})", status.as_u16()),
            Self::Silent(cause) => write!(f, "does not answer: {cause}"),
        }
    }
}

/// Requests the list of models from an upstream, with its credential.
///
/// # Errors
/// The upstream's address, credential or certificates cannot be used.
pub async fn probe_upstream(config: &UpstreamConfig) -> Result<UpstreamProbe, UpstreamError> {
    let upstream = Upstream::new(config.clone())?;
    let path = PathAndQuery::from_static(MODELS);
    let answer = upstream.fetch(&path, Instant::now() + TIMEOUT, ANSWER_BYTES_MAX).await;
    Ok(match answer {
        Ok(answer) => UpstreamProbe::of(answer.status),
        Err(kind) => UpstreamProbe::Silent(FailureCause::Failed(kind).to_string()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_told_apart() {
        let words = |status: u16| UpstreamProbe::of(StatusCode::from_u16(status).unwrap());
        assert!(words(200).is_well() && words(404).is_well());
        assert_eq!(words(401).to_string(), "refuses the credential (401)");
        assert_eq!(words(503).to_string(), "is at fault (503)");
        assert!(!words(403).is_well());
    }
}
