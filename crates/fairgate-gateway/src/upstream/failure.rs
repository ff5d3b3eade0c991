//! How a backend may fail.

use std::sync::Arc;

/// A backend that failed.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) kind: FailureKind,
    pub(crate) worker: Arc<str>,
}

/// Whose fault a failure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blame {
    /// The backend's, whoever sent the request.
    Worker,
    /// The backend's or the request's own.
    Unknown,
    /// Neither's: it is set up wrong here.
    Nobody,
}

/// In which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// No connection: refused, no route, no such name.
    Connect,
    /// A connection, but no TLS that is trusted.
    Tls,
    /// No connection in time.
    ConnectTimeout,
    /// The connection broke.
    Reset,
    /// What came is no HTTP.
    Garbage,
    /// Its answer ended before its end: a stream without its last event, half a JSON document.
    Incomplete,
    /// Its answer is compressed in a way that cannot be read here.
    Encoding,
    /// It sends us elsewhere.
    Redirect,
    /// It does not accept our credentials.
    Credentials,
    /// No head of an answer in time.
    FirstByteTimeout,
    /// Nothing more in time.
    IdleTimeout,
    /// No end in time.
    TotalTimeout,
}

impl FailureKind {
    #[cfg(test)]
    pub(crate) const ALL: [Self; 12] = [
        Self::Connect,
        Self::Tls,
        Self::ConnectTimeout,
        Self::Reset,
        Self::Garbage,
        Self::Incomplete,
        Self::Encoding,
        Self::Redirect,
        Self::Credentials,
        Self::FirstByteTimeout,
        Self::IdleTimeout,
        Self::TotalTimeout,
    ];

    /// Whether another worker may be tried before the first byte. Where the backend may still be at work on it, it is
    /// not: the same request would then run twice.
    pub(crate) fn another_may_try(self) -> bool {
        !matches!(self, Self::FirstByteTimeout | Self::IdleTimeout | Self::TotalTimeout)
    }

    /// What it says about the backend, where it comes before the first byte of an answer.
    pub(crate) fn blame(self) -> Blame {
        match self {
            Self::Connect | Self::Tls | Self::ConnectTimeout | Self::Reset | Self::Garbage => {
                Blame::Worker
            }
            Self::Incomplete | Self::FirstByteTimeout | Self::IdleTimeout | Self::TotalTimeout => {
                Blame::Unknown
            }
            Self::Redirect | Self::Credentials | Self::Encoding => Blame::Nobody,
        }
    }

    /// Whether the backend was never reached, so that nothing can have run on it.
    pub(crate) fn is_unreached(self) -> bool {
        matches!(self, Self::Connect | Self::Tls | Self::ConnectTimeout)
    }

    /// What the backend did, in words that follow its name.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Connect => "cannot be reached",
            Self::Tls => "offers no TLS that is trusted",
            Self::ConnectTimeout => "did not connect in time",
            Self::Reset => "broke the connection off",
            Self::Garbage => "answered with what is no HTTP",
            Self::Incomplete => "sent an answer that has no end",
            Self::Encoding => "sent an answer in a content encoding that the gateway cannot read",
            Self::Redirect => "answered with a redirect",
            Self::Credentials => "does not accept the gateway's own credentials",
            Self::FirstByteTimeout => "did not answer in time",
            Self::IdleTimeout => "stopped in the middle of its answer",
            Self::TotalTimeout => "took longer for its answer than is allowed",
        }
    }

    /// What an error of hyper's is.
    pub(super) fn of(error: &hyper::Error) -> Self {
        if error.is_parse() || error.is_parse_too_large() { Self::Garbage } else { Self::Reset }
    }
}
