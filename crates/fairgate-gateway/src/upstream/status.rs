//! What the status of an upstream's answer means. The one place where these numbers are told apart.

use super::complaints::Cause;
use super::failure::FailureKind;

/// What a status says about the upstream, and about who may see the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StatusClass {
    /// 2xx: an answer, which is metered.
    Success,
    /// Another 4xx than those below: the request's own fault.
    ClientError,
    /// 429: the worker takes nothing more on now.
    Busy,
    /// 500, 502, 503, 504: the worker may be unwell, so another one may try.
    Unwell,
    /// Any other status from 500 on. Another worker would say the same.
    ServerError,
    /// Its answer is not for the client: our credentials are wrong (401, 403), or it sends us elsewhere (1xx, 3xx).
    Failed(FailureKind),
}

impl StatusClass {
    pub(crate) fn of(status: u16) -> Self {
        match status {
            401 | 403 => Self::Failed(FailureKind::Credentials),
            ..=199 | 300..=399 => Self::Failed(FailureKind::Redirect),
            200..=299 => Self::Success,
            429 => Self::Busy,
            400..=499 => Self::ClientError,
            500 | 502 | 503 | 504 => Self::Unwell,
            505.. | 501 => Self::ServerError,
        }
    }

    /// What the log says about the upstream, where its answer is its own fault.
    pub(super) fn complaint(status: u16) -> Option<Cause> {
        match Self::of(status) {
            Self::Failed(kind) => Some(Cause::Failed(kind)),
            Self::Unwell | Self::ServerError => Some(Cause::Answered(status)),
            Self::Success | Self::ClientError | Self::Busy => None,
        }
    }

    /// Whether it shows that the server itself cannot serve, whatever it was asked.
    pub(super) fn is_server_fault(self) -> bool {
        matches!(self, Self::Unwell | Self::ServerError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_one_class() {
        let classes = [
            (100, StatusClass::Failed(FailureKind::Redirect)),
            (200, StatusClass::Success),
            (299, StatusClass::Success),
            (304, StatusClass::Failed(FailureKind::Redirect)),
            (400, StatusClass::ClientError),
            (401, StatusClass::Failed(FailureKind::Credentials)),
            (403, StatusClass::Failed(FailureKind::Credentials)),
            (404, StatusClass::ClientError),
            (429, StatusClass::Busy),
            (499, StatusClass::ClientError),
            (500, StatusClass::Unwell),
            (501, StatusClass::ServerError),
            (502, StatusClass::Unwell),
            (503, StatusClass::Unwell),
            (504, StatusClass::Unwell),
            (505, StatusClass::ServerError),
            (999, StatusClass::ServerError),
        ];
        for (status, class) in classes {
            assert_eq!(StatusClass::of(status), class, "{status}");
        }
    }

    #[test]
    fn the_log_hears_of_what_is_not_the_clients_fault() {
        for status in 100..=999 {
            let said = StatusClass::complaint(status);
            let expected = match status {
                401 | 403 => Some(Cause::Failed(FailureKind::Credentials)),
                100..=199 | 300..=399 => Some(Cause::Failed(FailureKind::Redirect)),
                500.. => Some(Cause::Answered(status)),
                _ => None,
            };
            assert_eq!(said, expected, "{status}");
        }
    }
}
