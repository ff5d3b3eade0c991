//! The call by which an agent completes a task.

use fairgate_api::fleet::TaskLine;
use fairgate_store::StoreError;

use super::{AgentId, Fleet, FleetFuture};
use crate::agent_reports::TaskCompletion;
use crate::claims::complete;
use crate::completion_queue::{ClaimCompletion, WaitingCompletion};
use crate::error::FleetError;

impl Fleet {
    /// Ends a claim because its task is completed. Repeating the call is not an error. Concurrent
    /// calls share one transaction.
    pub fn complete<'a>(
        &'a self,
        agent: &'a AgentId,
        task: &'a str,
        epoch: u64,
        completion: TaskCompletion,
    ) -> FleetFuture<'a, TaskLine> {
        let (agent, task) = (agent.id.clone(), task.to_owned());
        let completion = ClaimCompletion { agent, task, epoch, body: completion };
        self.report_write_failure(Box::pin(async move {
            let (result, must_serve) = self.inner.completions.join(completion);
            if must_serve {
                tokio::spawn(self.clone().serve_completions());
            }
            result.await.unwrap_or_else(|_| Err(StoreError::Closed.into()))
        }))
    }

    /// Completes tasks until the queue is empty.
    async fn serve_completions(self) {
        let mut service = self.inner.completions.serve();
        while let Some(batch) = service.next_batch() {
            self.complete_batch(batch).await;
        }
    }

    async fn complete_batch(&self, batch: Vec<WaitingCompletion>) {
        let (completions, replies): (Vec<_>, Vec<_>) =
            batch.into_iter().map(|it| (it.completion, it.reply)).unzip();
        let done = self.change("fleet".to_owned(), move |tx, call| {
            Ok(complete::complete(tx, call, &completions)?)
        });
        match done.await {
            Ok(results) => {
                for (reply, result) in replies.into_iter().zip(results) {
                    // If nobody receives the result, the agent repeats the call.
                    let _ = reply.send(result);
                }
            }
            Err(problem) => {
                let problem = match problem {
                    FleetError::Store(problem) => problem,
                    other => StoreError::Database(other.to_string()),
                };
                for reply in replies {
                    let _ = reply.send(Err(problem.repeated().into()));
                }
            }
        }
    }
}
