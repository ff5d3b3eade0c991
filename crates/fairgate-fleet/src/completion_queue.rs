//! Queue of completions of tasks that wait for a transaction.
//!
//! One transaction completes the tasks of all waiting agents. Completions that arrive meanwhile
//! wait for the next transaction. So agents that end at the same time share the statements and the
//! commit, which waits for the disk. Every agent gets its reply after the commit.
//!
//! The queue has one completion for each call that waits for its reply, so it is never longer than
//! the number of concurrent calls.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use fairgate_api::fleet::TaskLine;
use tokio::sync::oneshot;

use crate::agent_reports::TaskCompletion;
use crate::error::FleetError;

/// Maximum number of completions in one transaction.
const BATCH_MAX: usize = 500;
/// Total length of the results in a transaction at which no further completion is added, in bytes.
const BATCH_BYTES_MAX: usize = 8 << 20;

/// A claim that its agent ends because the task is completed.
#[derive(Clone, Debug)]
pub(crate) struct ClaimCompletion {
    pub(crate) agent: String,
    pub(crate) task: String,
    pub(crate) epoch: u64,
    pub(crate) body: TaskCompletion,
}

/// Result of one completion.
pub(crate) type CompletionResult = Result<TaskLine, FleetError>;

/// Waiting completions, in the order of their arrival.
#[derive(Debug, Default)]
pub(crate) struct CompletionQueue {
    state: Mutex<CompletionQueueState>,
}

#[derive(Debug, Default)]
struct CompletionQueueState {
    waiting: VecDeque<WaitingCompletion>,
    /// True while an async task takes batches from the queue.
    is_served: bool,
}

/// A completion with the channel for its result.
#[derive(Debug)]
pub(crate) struct WaitingCompletion {
    pub(crate) completion: ClaimCompletion,
    pub(crate) reply: oneshot::Sender<CompletionResult>,
}

impl CompletionQueue {
    /// Adds a completion. Returns the receiver of its result, and true if the caller must start to
    /// serve the queue.
    pub(crate) fn join(
        &self,
        completion: ClaimCompletion,
    ) -> (oneshot::Receiver<CompletionResult>, bool) {
        let (reply, result) = oneshot::channel();
        let mut state = self.lock();
        state.waiting.push_back(WaitingCompletion { completion, reply });
        let must_serve = !std::mem::replace(&mut state.is_served, true);
        (result, must_serve)
    }

    /// Begins to serve the queue. Must be called once whenever [`CompletionQueue::join`] returns
    /// true.
    pub(crate) fn serve(&self) -> CompletionQueueService<'_> {
        CompletionQueueService { queue: self, is_over: false }
    }

    fn lock(&self) -> MutexGuard<'_, CompletionQueueState> {
        // No code that can panic runs under this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Guard of the one async task that serves a queue. If its runtime ends, the guard is dropped before the queue is
/// empty. The waiting callers then get an error, and the next caller starts another async task.
#[derive(Debug)]
pub(crate) struct CompletionQueueService<'a> {
    queue: &'a CompletionQueue,
    is_over: bool,
}

impl CompletionQueueService<'_> {
    /// Takes the completions of the next transaction. Returns `None` if there are none; the service
    /// is then over.
    pub(crate) fn next_batch(&mut self) -> Option<Vec<WaitingCompletion>> {
        let mut state = self.queue.lock();
        let mut batch = Vec::new();
        let mut bytes = 0;
        while batch.len() < BATCH_MAX && bytes < BATCH_BYTES_MAX {
            let Some(next) = state.waiting.pop_front() else { break };
            bytes += next.completion.body.result.as_deref().map_or(0, str::len);
            batch.push(next);
        }
        if batch.is_empty() {
            state.is_served = false;
            self.is_over = true;
            return None;
        }
        Some(batch)
    }
}

impl Drop for CompletionQueueService<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            let mut state = self.queue.lock();
            state.waiting.clear();
            state.is_served = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completion(task: &str, result_bytes: usize) -> ClaimCompletion {
        let body = TaskCompletion { result: Some("x".repeat(result_bytes)), tokens: None };
        ClaimCompletion { agent: "a".into(), task: task.into(), epoch: 1, body }
    }

    #[test]
    fn those_that_wait_are_taken_together_and_in_order() {
        let queue = CompletionQueue::default();
        let served: Vec<bool> =
            ["1", "2", "3"].map(|task| queue.join(completion(task, 0)).1).into();
        assert_eq!(served, [true, false, false]);
        let mut service = queue.serve();
        let batch = service.next_batch().unwrap();
        let tasks: Vec<_> = batch.iter().map(|it| it.completion.task.as_str()).collect();
        assert_eq!(tasks, ["1", "2", "3"]);
        assert!(!queue.join(completion("4", 0)).1, "it is served");
        assert_eq!(service.next_batch().unwrap().len(), 1);
        assert!(service.next_batch().is_none());
        assert!(queue.join(completion("5", 0)).1, "the service is over");
    }

    #[test]
    fn a_transaction_is_bounded() {
        let queue = CompletionQueue::default();
        for number in 0..BATCH_MAX + 1 {
            let _ = queue.join(completion(&number.to_string(), 0));
        }
        for _ in 0..2 {
            let _ = queue.join(completion("long", BATCH_BYTES_MAX));
        }
        let mut service = queue.serve();
        let lengths: Vec<_> =
            std::iter::from_fn(|| service.next_batch()).map(|batch| batch.len()).collect();
        assert_eq!(lengths, [BATCH_MAX, 2, 1]);
    }

    #[test]
    fn nobody_waits_for_a_service_that_is_gone() {
        let queue = CompletionQueue::default();
        let (mut result, _) = queue.join(completion("1", 0));
        drop(queue.serve());
        assert!(matches!(result.try_recv(), Err(oneshot::error::TryRecvError::Closed)));
        assert!(queue.join(completion("2", 0)).1);
    }
}
