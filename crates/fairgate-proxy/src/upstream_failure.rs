//! Kinds of failures of an upstream.

use std::sync::Arc;

/// A failed request, with the worker that it failed on.
#[derive(Clone, Debug)]
pub(crate) struct UpstreamFailure {
    pub(crate) kind: FailureKind,
    pub(crate) worker: Arc<str>,
}

/// The party that caused a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultParty {
    /// The upstream is at fault, whichever request failed.
    Worker,
    /// The cause is not known: the upstream or the request.
    Unknown,
    /// The cause is neither the upstream's health nor the request, but a setting of the gateway or
    /// the upstream.
    Nobody,
}

/// Kind of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// No connection was made, because it was refused, there is no route, or the host is unknown.
    Connect,
    /// A connection was made, but it has no trusted TLS.
    Tls,
    /// No connection was made before the timeout.
    ConnectTimeout,
    /// The connection broke before the answer was complete.
    Reset,
    /// The response is not HTTP.
    Garbage,
    /// The answer broke off: for example a stream without its last event, or half a JSON document.
    Incomplete,
    /// The answer is compressed in a way that the gateway cannot decode.
    Encoding,
    /// The upstream answered with a redirect.
    Redirect,
    /// The upstream rejected the gateway's credentials.
    Credentials,
    /// The head of the answer did not come before the timeout.
    FirstByteTimeout,
    /// The answer stopped, and nothing more came before the timeout.
    IdleTimeout,
    /// The answer did not end before the timeout.
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

    /// Returns true if another worker may be tried after a failure before the first byte of the
    /// answer. Returns false if the upstream may still be working on the request, because a second
    /// attempt would run it twice.
    pub(crate) fn another_may_try(self) -> bool {
        !matches!(self, Self::FirstByteTimeout | Self::IdleTimeout | Self::TotalTimeout)
    }

    /// Returns the party at fault, if the failure comes before the first byte of an answer.
    pub(crate) fn blame(self) -> FaultParty {
        match self {
            Self::Connect | Self::Tls | Self::ConnectTimeout => FaultParty::Worker,
            // The connection was made and the request was sent. Some requests make a healthy server
            // break off.
            Self::Reset | Self::Garbage => FaultParty::Unknown,
            Self::Incomplete | Self::FirstByteTimeout | Self::IdleTimeout | Self::TotalTimeout => {
                FaultParty::Unknown
            }
            Self::Redirect | Self::Credentials | Self::Encoding => FaultParty::Nobody,
        }
    }

    /// Returns true if the upstream ended the attempt itself, without a usable answer. The
    /// scheduler counts the attempt's time in the slot, but no budget pays for it.
    pub(crate) fn is_lost(self) -> bool {
        matches!(self, Self::Reset | Self::Garbage | Self::Incomplete)
    }

    /// Returns true if the upstream was not reached, so that nothing can have run on it.
    pub(crate) fn is_unreached(self) -> bool {
        matches!(self, Self::Connect | Self::Tls | Self::ConnectTimeout)
    }

    /// Describes the failure, in words that follow the upstream's name.
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

    /// Classifies an error of hyper.
    pub(crate) fn of(error: &hyper::Error) -> Self {
        if error.is_parse() || error.is_parse_too_large() { Self::Garbage } else { Self::Reset }
    }
}
