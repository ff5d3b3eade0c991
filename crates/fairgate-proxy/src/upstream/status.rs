//! Classes of an upstream's status codes. Only this module compares the numbers.

use super::failure_log::FailureCause;
use crate::upstream_failure::FailureKind;

/// Class of a status code. It shows whether the upstream is well, and whether the client may see
/// the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StatusClass {
    /// Any 2xx status. The answer is metered.
    Success,
    /// Any 4xx status except 401, 403 and 429. The cause is the request itself.
    ClientError,
    /// Status 429, because the worker accepts no more requests now.
    Busy,
    /// Status 500, 502, 503 or 504. The worker may be unwell, so another worker may be tried.
    Unwell,
    /// Any other status from 500 on. Another worker would give the same answer.
    ServerError,
    /// Answer that the client must not see, because the gateway's credentials are wrong (401, 403) or the answer counts
    /// as a redirect (1xx, 3xx).
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

    /// Returns the cause to log if the upstream caused the failure; `None` otherwise.
    pub(super) fn failure_cause(status: u16) -> Option<FailureCause> {
        match Self::of(status) {
            Self::Failed(kind) => Some(FailureCause::Failed(kind)),
            Self::Unwell | Self::ServerError => Some(FailureCause::Answered(status)),
            Self::Success | Self::ClientError | Self::Busy => None,
        }
    }

    /// Returns true if the status shows that the server cannot serve, whatever the request was.
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
            let said = StatusClass::failure_cause(status);
            let expected = match status {
                401 | 403 => Some(FailureCause::Failed(FailureKind::Credentials)),
                100..=199 | 300..=399 => Some(FailureCause::Failed(FailureKind::Redirect)),
                500.. => Some(FailureCause::Answered(status)),
                _ => None,
            };
            assert_eq!(said, expected, "{status}");
        }
    }
}
