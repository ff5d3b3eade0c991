//! The handle to a member's task.

use std::fmt;
use std::sync::Arc;

use fairgate_core::event::Submit;
use fairgate_replica::{
    ClusterConfig, ClusterMachine, ClusterMicros, ConfigTooLargeError, LineTooLongError,
    LocalMicros, LogLine, MemberProtocol, PoolLineFields, Replica, SnapshotError, snapshot_hash,
};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use crate::cluster_log::{ClusterLog, ClusterLogError, GenerationStore};
use crate::cluster_permit::ClusterPermit;
use crate::member_message::{
    AdmissionAnswer, ClusterAdmitError, MemberCommand, RequestName, SubmitCommand,
};
use crate::member_options::MemberOptions;
use crate::member_status::{MemberStanding, MemberStatus};
use crate::member_task::run_member;

/// Version of the rules with which a new cluster begins. Every release knows it.
const FIRST_VERSION: u32 = fairgate_replica::MACHINE_VERSIONS.0;

/// Reason why a member could not start. Nothing was changed in the cluster.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemberStartError {
    /// The log or its rows cannot be used.
    #[error(transparent)]
    Log(#[from] ClusterLogError),
    /// No snapshot of the cluster can be restored.
    #[error("the cluster's snapshots cannot be used: {0}")]
    Snapshot(SnapshotError),
    /// The configuration does not fit in a record.
    #[error(transparent)]
    Config(#[from] ConfigTooLargeError),
}

/// A process in its cluster. Cheap to clone. After the last clone and the last permit are dropped, the member leaves.
///
/// # The order of calls
/// 1. [`start`](Self::start) restores the newest snapshot and begins to read the log. The process joins by itself;
///    [`joined`](Self::joined) waits for that.
/// 2. For each request, from any task: [`admit`](Self::admit) waits for a slot and returns a [`ClusterPermit`]. The
///    embedder waits for [`ClusterPermit::must_stop`] beside its work.
/// 3. At the end: [`leave`](Self::leave), and [`over`](Self::over) to wait until nothing is in flight.
#[derive(Clone)]
pub struct ClusterHandle {
    commands: mpsc::UnboundedSender<MemberCommand>,
    turns: Arc<Semaphore>,
    status: watch::Receiver<MemberStatus>,
    task: Arc<JoinHandle<()>>,
}

impl ClusterHandle {
    /// Starts a member on the current tokio runtime. Creates the cluster if its log does not have it yet.
    pub async fn start<L: ClusterLog + GenerationStore>(
        log: Arc<L>,
        cluster: &str,
        options: MemberOptions,
    ) -> Result<Self, MemberStartError> {
        log.create(&ClusterMachine::new(cluster, FIRST_VERSION).snapshot()).await?;
        let replica = newest_replica(&*log).await?;
        let MemberOptions { identity, config, directory, turns, .. } = &options;
        let turns = Arc::new(Semaphore::new((*turns).clamp(1, Semaphore::MAX_PERMITS)));
        let start = LocalMicros(0);
        let (identity, config) = (identity.clone(), config.clone());
        let mut protocol = MemberProtocol::new(identity, config, *directory, replica, start)?;
        if options.observer.wants_pool_events() {
            protocol = protocol.with_pool_events();
        }
        let status = watch::Sender::new(first_status(&protocol));
        let shown = status.subscribe();
        let (commands, inbox) = mpsc::unbounded_channel();
        let task = Arc::new(tokio::spawn(run_member(log, protocol, options, inbox, status)));
        Ok(Self { commands, turns, status: shown, task })
    }

    /// Requests a slot of a pool, and waits for it. The id must be unique in the whole cluster.
    ///
    /// The future may be dropped at any time; the request then leaves the queue, and gives back with 0 tokens what it
    /// may have been granted.
    pub async fn admit(
        &self,
        pool: &Arc<str>,
        submit: Submit,
        fields: PoolLineFields,
    ) -> Result<ClusterPermit, ClusterAdmitError> {
        let turn = self.turns.clone().acquire_owned().await.map_err(|_| ClusterAdmitError::Gone)?;
        let name = (pool.clone(), submit.id.clone());
        let (reply, answer) = oneshot::channel();
        let command = SubmitCommand { pool: pool.clone(), submit, fields, reply, turn };
        let sent = self.commands.send(MemberCommand::Submit(Box::new(command)));
        sent.map_err(|_| ClusterAdmitError::Gone)?;
        let mut waiting = WaitingCaller { commands: &self.commands, name: Some(name), answer };
        let answered = (&mut waiting.answer).await;
        let name = waiting.name.take();
        let granted = answered.map_err(|_| ClusterAdmitError::Gone)??;
        match name {
            Some(name) => Ok(ClusterPermit::new(self.commands.clone(), name, granted)),
            None => Err(ClusterAdmitError::Gone),
        }
    }

    /// Sends a line to the log, such as a worker's change or a limit. It is dropped if the process is not a member now.
    pub async fn publish(&self, line: LogLine) -> Result<(), LineTooLongError> {
        let (reply, answer) = oneshot::channel();
        let _ = self.commands.send(MemberCommand::Publish(Box::new(line), reply));
        answer.await.unwrap_or(Ok(()))
    }

    /// States if this process reaches a worker. `wait` is the time for which requests wait for a worker that is down.
    pub fn set_opinion(&self, pool: &Arc<str>, worker: &Arc<str>, up: bool, wait: ClusterMicros) {
        let (pool, worker) = (pool.clone(), worker.clone());
        let _ = self.commands.send(MemberCommand::Opinion { pool, worker, up, wait });
    }

    /// Notes the version of the directory that this process has read.
    pub fn set_directory(&self, version: u64) {
        let _ = self.commands.send(MemberCommand::Directory(version));
    }

    /// Takes over a changed file of this process, and brings it in force for the cluster.
    pub async fn reload(&self, config: ClusterConfig) -> Result<(), ConfigTooLargeError> {
        let (reply, answer) = oneshot::channel();
        let _ = self.commands.send(MemberCommand::Reload(Box::new(config), reply));
        answer.await.unwrap_or(Ok(()))
    }

    /// Reads the member's replica in its task, and returns the result; `None` if the task has ended. `look` must not
    /// block, because the member does nothing else meanwhile.
    pub async fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&ClusterMachine) -> T + Send + 'static,
    ) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        let view = move |protocol: &MemberProtocol| {
            let _ = reply.send(look(protocol.replica().machine()));
        };
        let _ = self.commands.send(MemberCommand::View(Box::new(view)));
        answer.await.ok()
    }

    /// Returns the member's state.
    pub fn status(&self) -> MemberStatus {
        self.status.borrow().clone()
    }

    /// Waits until the process is a member. Returns false if it cannot be one.
    pub async fn joined(&self) -> bool {
        let mut status = self.status.clone();
        let is_decided = |it: &MemberStatus| it.is_member() || it.is_over();
        status.wait_for(is_decided).await.is_ok_and(|status| status.is_member())
    }

    /// Refuses new requests, and leaves the cluster once this process's requests, queued and in flight, have ended.
    pub fn leave(&self) {
        let _ = self.commands.send(MemberCommand::Leave);
    }

    /// Waits until the process has left, or cannot be a member any more, and returns its last state.
    pub async fn over(&self) -> MemberStatus {
        let mut status = self.status.clone();
        let _ = status.wait_for(MemberStatus::is_over).await;
        let last = status.borrow();
        last.clone()
    }

    /// Ends the task at once, as if the process were killed: the cluster hears nothing, and ends the member after a
    /// lease.
    pub fn abort(&self) {
        self.task.abort();
    }
}

impl fmt::Debug for ClusterHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterHandle").field("status", &*self.status.borrow()).finish()
    }
}

/// A caller that waits for its slot. Dropping it takes the request back.
struct WaitingCaller<'a> {
    commands: &'a mpsc::UnboundedSender<MemberCommand>,
    /// `None` once the answer has come.
    name: Option<RequestName>,
    answer: oneshot::Receiver<AdmissionAnswer>,
}

impl Drop for WaitingCaller<'_> {
    fn drop(&mut self) {
        if let Some(name) = self.name.take() {
            self.answer.close();
            let _ = self.commands.send(MemberCommand::Abandon(name));
        }
    }
}

/// Restores the newest snapshot that can be used.
async fn newest_replica<L: GenerationStore>(log: &L) -> Result<Replica, MemberStartError> {
    let missing = || SnapshotError::Bad { line: 1, problem: "there is no snapshot".to_owned() };
    let (mut before, mut problem) = (None, missing());
    while let Some(snapshot) = log.newest_snapshot(before).await? {
        let is_whole = snapshot_hash(&snapshot.bytes) == snapshot.hash;
        let restored = match is_whole {
            true => Replica::restore(snapshot.bytes),
            false => Err(SnapshotError::Bad {
                line: 1,
                problem: "the hash is not that of the bytes".to_owned(),
            }),
        };
        match restored {
            Ok(replica) => return Ok(replica),
            Err(error @ SnapshotError::UnknownVersion { .. }) => {
                return Err(MemberStartError::Snapshot(error));
            }
            Err(error @ SnapshotError::Bad { .. }) => problem = error,
        }
        tracing::error!(position = snapshot.position.0, "a snapshot cannot be used: {problem}");
        before = Some(snapshot.position);
    }
    Err(MemberStartError::Snapshot(problem))
}

fn first_status(protocol: &MemberProtocol) -> MemberStatus {
    let machine = protocol.replica().machine();
    MemberStatus {
        phase: MemberStanding::Joining,
        generation: machine.generation(),
        position: machine.position(),
        hash: machine.hash(),
        log_end: machine.position(),
        time: machine.now(),
        silent_for: std::time::Duration::ZERO,
        trouble: None,
    }
}
