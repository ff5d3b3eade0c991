//! Accepts rows and writes them to the files of the spool.
//!
//! A request writes its row itself if no other row came shortly before. Rows that come in quick
//! succession are handed to a task, which formats the lines of all waiting rows and appends them
//! with one write. So there is no system call for each request, and the code that formats lines
//! stays in the CPU cache. The task is started for the first waiting row, and yields once before it
//! writes, so that more rows can come.

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::Instant;

use super::{PutResult, Spool, SpoolLines, SpoolPutError};
use crate::ledger::AttemptRow;

/// A request writes its row itself if no row came in this time before it. A write takes some
/// microseconds, so such writes take less than a tenth of the time.
const ALONE_AFTER: Duration = Duration::from_micros(100);
/// Maximum number of rows that wait for the task. Further rows are written by their own requests.
const WAITING_MAX: usize = 4_096;

/// The part of the database's writer that the intake uses.
pub(crate) trait RowWriter: Send + Sync {
    /// Tells the writer that rows wait in the spool.
    fn wake(&self);

    /// Hands over a row that could not be written to a file and whose caller no longer waits. If
    /// there is no room for the row, it is lost.
    fn keep(&self, attempt: Box<AttemptRow>);
}

/// Writes rows to a [`Spool`], several at once if they come quickly.
pub(crate) struct SpoolIntake {
    spool: Arc<Spool>,
    writer: Box<dyn RowWriter>,
    queue: Mutex<IntakeQueue>,
    /// Locked before rows are taken from the queue, until they are written. So rows are written in
    /// order.
    buffers: Mutex<IntakeBuffers>,
}

#[derive(Default)]
struct IntakeQueue {
    #[expect(
        clippy::vec_box,
        reason = "rows come in boxes, and a row is too large to be copied for each step"
    )]
    rows: Vec<Box<AttemptRow>>,
    /// Channels to the callers, in the order of the rows.
    replies: Vec<oneshot::Sender<PutResult>>,
    /// Time at which the last row came.
    last_at: Option<Instant>,
}

#[derive(Default)]
struct IntakeBuffers {
    lines: SpoolLines,
    results: Vec<PutResult>,
}

impl std::fmt::Debug for SpoolIntake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SpoolIntake").field("spool", &self.spool).finish_non_exhaustive()
    }
}

/// Writes the waiting rows when it is dropped. So they are written even if the runtime ends before
/// the task runs.
struct WaitingRows(Arc<SpoolIntake>);

impl Drop for WaitingRows {
    fn drop(&mut self) {
        self.0.write_waiting();
    }
}

impl SpoolIntake {
    /// Creates the intake of `spool`. `writer` is woken when it has rows to move into the database.
    pub(crate) fn new(spool: Arc<Spool>, writer: Box<dyn RowWriter>) -> Arc<Self> {
        let (queue, buffers) = (Mutex::default(), Mutex::default());
        Arc::new(Self { spool, writer, queue, buffers })
    }

    /// Writes a row to a file. The row is handed over before the returned future is polled, and is written even if the
    /// future is dropped.
    pub(crate) fn put(
        self: &Arc<Self>,
        attempt: Box<AttemptRow>,
    ) -> impl Future<Output = PutResult> + Send + use<> {
        let handed = self.hand_over(attempt);
        async move {
            match handed {
                Ok(result) => result,
                // The sender is dropped without an answer only if the task panics.
                Err(answer) => answer.await.unwrap_or(Err(SpoolPutError::Closed)),
            }
        }
    }

    /// Writes the rows that wait.
    pub(crate) fn write_waiting(&self) {
        let mut buffers = self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        let (rows, replies) = {
            let mut queue = self.queue();
            (mem::take(&mut queue.rows), mem::take(&mut queue.replies))
        };
        if rows.is_empty() {
            return;
        }
        self.write(rows, &mut buffers);
        let mut results = mem::take(&mut buffers.results);
        drop(buffers);
        for (reply, result) in replies.into_iter().zip(results.drain(..)) {
            if let Err(Err(SpoolPutError::Unwritten { attempt, .. })) = reply.send(result) {
                self.writer.keep(attempt);
            }
        }
    }

    /// Writes a row, or queues it for the task. Returns the result, or the channel on which the
    /// result arrives.
    fn hand_over(
        self: &Arc<Self>,
        attempt: Box<AttemptRow>,
    ) -> Result<PutResult, oneshot::Receiver<PutResult>> {
        let now = Instant::now();
        let mut queue = self.queue();
        let last_at = queue.last_at.replace(now);
        let is_alone = last_at.is_none_or(|last_at| now.duration_since(last_at) >= ALONE_AFTER);
        if is_alone
            && queue.rows.is_empty()
            && let Some(buffers) = self.free_buffers()
        {
            drop(queue);
            return Ok(self.write_one(attempt, buffers));
        }
        // If rows wait already, their task is running. Without a runtime the process is ending, and
        // a task would not run.
        let runtime = match queue.rows.len() {
            0 => Handle::try_current().ok(),
            _ => None,
        };
        let may_wait = runtime.is_some() || (1..WAITING_MAX).contains(&queue.rows.len());
        if !may_wait {
            drop(queue);
            let buffers = self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
            return Ok(self.write_one(attempt, buffers));
        }
        let (reply, answer) = oneshot::channel();
        queue.rows.push(attempt);
        queue.replies.push(reply);
        drop(queue);
        if let Some(runtime) = runtime {
            let waiting = WaitingRows(Arc::clone(self));
            runtime.spawn(async move {
                yield_now().await;
                drop(waiting);
            });
        }
        Err(answer)
    }

    fn write_one(
        &self,
        attempt: Box<AttemptRow>,
        mut buffers: MutexGuard<'_, IntakeBuffers>,
    ) -> PutResult {
        self.write([attempt], &mut buffers);
        buffers.results.pop().unwrap_or(Err(SpoolPutError::Closed))
    }

    fn write<R>(&self, rows: R, buffers: &mut IntakeBuffers)
    where
        R: AsRef<[Box<AttemptRow>]> + IntoIterator<Item = Box<AttemptRow>>,
    {
        let IntakeBuffers { lines, results } = buffers;
        if self.spool.put(rows, lines, results) {
            self.writer.wake();
        }
    }

    /// Returns the buffers; `None` while another thread writes.
    fn free_buffers(&self) -> Option<MutexGuard<'_, IntakeBuffers>> {
        match self.buffers.try_lock() {
            Ok(buffers) => Some(buffers),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn queue(&self) -> MutexGuard<'_, IntakeQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
