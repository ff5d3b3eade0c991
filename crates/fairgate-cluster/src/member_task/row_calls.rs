//! An async task that carries out a member's calls to the rows beside the log, one after the other.

use std::sync::Arc;

use fairgate_replica::LogPosition;
use tokio::sync::mpsc;

use crate::cluster_log::{
    ClusterLog, ClusterLogError, GenerationState, GenerationStore, StoredReport, StoredSnapshot,
};

/// Greatest number of calls that wait. If more come, the member makes them again later.
pub(super) const ROW_CALLS_MAX: usize = 16;

/// A call to the rows beside the log.
#[derive(Debug)]
pub(super) enum RowCall {
    State,
    Report(StoredReport),
    Begin { ended: u64, next: u64, base: Vec<u8> },
    StoreSnapshot(StoredSnapshot),
    LoadSnapshot { before: Option<LogPosition> },
    Prune { generation: u64, up_to: LogPosition },
}

/// Outcome of a call. Calls without an outcome that matters have none.
#[derive(Debug)]
pub(super) enum RowAnswer {
    State(Result<GenerationState, ClusterLogError>),
    Begun(Result<bool, ClusterLogError>),
    Stored { snapshot: StoredSnapshot, stored: Result<bool, ClusterLogError> },
    Loaded(Result<Option<StoredSnapshot>, ClusterLogError>),
    Failed(ClusterLogError),
}

/// Carries out calls until the member's task has ended.
pub(super) async fn carry_out<L: ClusterLog + GenerationStore>(
    log: Arc<L>,
    mut calls: mpsc::Receiver<RowCall>,
    answers: mpsc::Sender<RowAnswer>,
) {
    while let Some(call) = calls.recv().await {
        let answer = match call {
            RowCall::State => Some(RowAnswer::State(log.state().await)),
            RowCall::Report(report) => log.report(&report).await.err().map(RowAnswer::Failed),
            RowCall::Begin { ended, next, base } => {
                Some(RowAnswer::Begun(log.begin(ended, next, &base).await))
            }
            RowCall::StoreSnapshot(snapshot) => {
                let stored = log.store_snapshot(&snapshot).await;
                Some(RowAnswer::Stored { snapshot, stored })
            }
            RowCall::LoadSnapshot { before } => {
                Some(RowAnswer::Loaded(log.newest_snapshot(before).await))
            }
            RowCall::Prune { generation, up_to } => {
                log.prune(generation, up_to).await.err().map(RowAnswer::Failed)
            }
        };
        if let Some(answer) = answer
            && answers.send(answer).await.is_err()
        {
            return;
        }
    }
}
