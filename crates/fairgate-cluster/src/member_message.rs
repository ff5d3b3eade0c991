//! Messages between the callers of a member and its task.

use std::sync::Arc;

use fairgate_core::decision::{Grant, RejectedRequest};
use fairgate_core::event::Submit;
use fairgate_replica::{
    ClusterConfig, ClusterMicros, ConfigTooLargeError, FlightEnd, LimitRefusal, LineTooLongError,
    LogLine, MemberProtocol, PoolLineFields, RequestRefusal, SubmitError,
};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

/// Reason why a request was not admitted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClusterAdmitError {
    /// The process is not in the cluster, or is about to leave it.
    #[error("this gateway is not in its cluster at the moment: try again in a second")]
    NotInCluster,
    /// Nothing could be appended to the log for longer than [`MemberOptions::patience`](crate::MemberOptions).
    #[error("the cluster's log has stalled, so nothing new is admitted: try again in two seconds")]
    LogStalled,
    /// As many requests of this process wait as it may hold.
    #[error("{max} requests of this gateway wait already")]
    TooManyWaiting {
        /// Greatest number of requests that wait at once.
        max: usize,
    },
    /// A request of this process has the same id and has not ended.
    #[error("a request with this id has not ended yet")]
    DuplicateId,
    /// A limit of its tenant or key is reached.
    #[error("a limit of the caller is reached")]
    Limit(LimitRefusal),
    /// The pool has rejected it.
    #[error("the pool rejects the request: {:?}", .0.reason)]
    Rejected(RejectedRequest),
    /// It has waited too long.
    #[error("the request has waited too long")]
    Expired,
    /// The cluster has no such pool.
    #[error("the cluster has no pool of this name")]
    NoPool,
    /// The request's names are too long for the log.
    #[error("the request's names take more room than a record of the log has")]
    TooLong,
    /// Its line stopped the machine of every member.
    #[error("the scheduler cannot take this request")]
    InternalError,
    /// The member's task has ended.
    #[error("this gateway has left its cluster")]
    Gone,
}

impl From<SubmitError> for ClusterAdmitError {
    fn from(error: SubmitError) -> Self {
        match error {
            SubmitError::NotInCluster => Self::NotInCluster,
            SubmitError::Limit(refusal) => Self::Limit(refusal),
            SubmitError::TooLong => Self::TooLong,
        }
    }
}

impl From<RequestRefusal> for ClusterAdmitError {
    fn from(refusal: RequestRefusal) -> Self {
        match refusal {
            RequestRefusal::Limit(refusal) => Self::Limit(refusal),
            RequestRefusal::Rejected(rejected) => Self::Rejected(rejected),
            RequestRefusal::Expired => Self::Expired,
            RequestRefusal::NoPool => Self::NoPool,
            RequestRefusal::InternalError => Self::InternalError,
        }
    }
}

/// Name of a pool and id of a request.
pub(crate) type RequestName = (Arc<str>, Arc<str>);

/// A request that has its slot.
#[derive(Debug)]
pub(crate) struct GrantedSlot {
    pub(crate) grant: Grant,
    /// Receives a value when the request must be cut off.
    pub(crate) cut: oneshot::Receiver<()>,
}

pub(crate) type AdmissionAnswer = Result<GrantedSlot, ClusterAdmitError>;

/// A request that asks for a slot.
pub(crate) struct SubmitCommand {
    pub(crate) pool: Arc<str>,
    pub(crate) submit: Submit,
    pub(crate) fields: PoolLineFields,
    pub(crate) reply: oneshot::Sender<AdmissionAnswer>,
    /// Bounds the number of submits that the task has not read yet.
    pub(crate) turn: OwnedSemaphorePermit,
}

/// Closure that reads the member's protocol in its task.
pub(crate) type ProtocolView = Box<dyn FnOnce(&MemberProtocol) + Send>;

/// Message to the member's task.
pub(crate) enum MemberCommand {
    Submit(Box<SubmitCommand>),
    /// The caller left before it got its answer.
    Abandon(RequestName),
    FirstToken(RequestName),
    Release(RequestName, FlightEnd),
    Publish(Box<LogLine>, oneshot::Sender<Result<(), LineTooLongError>>),
    Opinion {
        pool: Arc<str>,
        worker: Arc<str>,
        up: bool,
        wait: ClusterMicros,
    },
    Directory(u64),
    Reload(Box<ClusterConfig>, oneshot::Sender<Result<(), ConfigTooLargeError>>),
    View(ProtocolView),
    Leave,
}
