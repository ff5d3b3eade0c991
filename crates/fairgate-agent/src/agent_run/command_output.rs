//! A command's output, which is copied to the terminal at once and sent to the gateway in pieces.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::Notify;
use tokio::time::sleep;

use super::log_buffer::LogBuffer;
use super::secret_mask::{SecretMask, SecretTexts};
use super::tail::{LastLine, OutputTail};
use super::terminal_output::TerminalStream;
use crate::agent_api::{AgentApi, AgentApiError, ClaimId, RetryBackoff, StatusCallback};

/// Greatest number of bytes that are read from a stream at once.
const READ_BYTES: usize = 16 << 10;
/// Bytes of the end of the output that are kept for the result and for reasons.
const TAIL_BYTES_MAX: usize = 16 << 10;
/// Time for which output is collected before it is sent, so that not every line causes a request.
const GATHER: Duration = Duration::from_millis(300);
/// Longest pause between two attempts while the gateway does not answer.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// The output of a command so far, with secrets masked.
pub(super) struct CommandOutput {
    state: Mutex<CommandOutputState>,
    changed: Notify,
}

struct CommandOutputState {
    log: LogBuffer,
    stdout: OutputTail,
    both: OutputTail,
    line: LastLine,
    /// True if no more output will come.
    closed: bool,
}

/// One of a command's two output streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OutputStream {
    Stdout,
    Stderr,
}

impl CommandOutput {
    pub(super) fn new() -> Self {
        let tail = || OutputTail::new(TAIL_BYTES_MAX);
        let (log, line) = (LogBuffer::default(), LastLine::default());
        let state = CommandOutputState { log, stdout: tail(), both: tail(), line, closed: false };
        Self { state: Mutex::new(state), changed: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, CommandOutputState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, stream: OutputStream, bytes: &[u8]) {
        let mut state = self.state();
        state.log.push(bytes);
        state.both.push(bytes);
        state.line.push(bytes);
        if stream == OutputStream::Stdout {
            state.stdout.push(bytes);
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Marks the output as complete.
    pub(super) fn close(&self) {
        self.state().closed = true;
        self.changed.notify_one();
    }

    /// Returns the last line that is not empty.
    pub(super) fn last_line(&self) -> Option<String> {
        self.state().line.get()
    }

    /// Returns the last lines of standard output, and the last lines of both streams together.
    pub(super) fn last_lines(&self, lines_max: usize) -> (String, String) {
        let state = self.state();
        (state.stdout.lines(lines_max), state.both.lines(lines_max))
    }

    /// Copies one of the command's streams to the terminal and into the log, until the stream ends.
    pub(super) async fn pass_on(
        self: Arc<Self>,
        stream: OutputStream,
        mut from: impl AsyncRead + Unpin,
        mut terminal: TerminalStream,
        secrets: SecretTexts,
    ) {
        let mut mask = SecretMask::new(secrets);
        let (mut read, mut out) = (vec![0; READ_BYTES], Vec::new());
        loop {
            let count = from.read(&mut read).await.unwrap_or(0);
            match count {
                0 => mask.finish(&mut out),
                _ => mask.push(&read[..count], &mut out),
            }
            self.push(stream, &out);
            terminal.write(&out).await;
            out.clear();
            if count == 0 {
                terminal.finish().await;
                return;
            }
        }
    }

    /// Sends the log until it is complete and everything has arrived, or until the gateway refuses it.
    pub(super) async fn send_log(
        self: Arc<Self>,
        api: Arc<AgentApi>,
        claim: ClaimId,
        say: StatusCallback,
    ) {
        let mut backoff = RetryBackoff::new(PAUSE_MAX);
        let mut begun = false;
        loop {
            let sent = match self.next_piece(begun) {
                NextLogPiece::Nothing => {
                    self.changed.notified().await;
                    self.gather().await;
                    continue;
                }
                NextLogPiece::Ended => return,
                NextLogPiece::Piece(first_byte, bytes) => {
                    api.append_log(&claim, first_byte, bytes).await
                }
            };
            match sent {
                Ok(next_byte) if begun => {
                    self.state().log.acknowledged(next_byte);
                    self.gather().await;
                }
                Ok(next_byte) => {
                    self.state().log.begin_at(next_byte);
                    begun = true;
                }
                // The heartbeats notice a lost lease by themselves.
                Err(AgentApiError::Lost(_)) => return,
                Err(AgentApiError::Refused { code, message }) => {
                    say(&format!("the rest of the log is not kept: {message} ({code})"));
                    return;
                }
                Err(
                    AgentApiError::Unavailable(why)
                    | AgentApiError::StoreUnavailable(why)
                    | AgentApiError::Paused(why),
                ) => {
                    let (pause, tell) = backoff.record_failure();
                    if tell {
                        say(&format!("the log cannot be sent now ({why}); trying again"));
                    }
                    sleep(pause).await;
                    continue;
                }
            }
            backoff.record_success();
        }
    }

    /// Waits for more output for the time [`GATHER`], unless the output is complete, so that a command that prints
    /// without pause causes one request per [`GATHER`].
    async fn gather(&self) {
        if !self.state().closed {
            sleep(GATHER).await;
        }
    }

    /// Returns the next piece to send. Before the log has `begun`, this is an empty piece at byte 0, because the
    /// response to it says how many bytes the gateway already has.
    fn next_piece(&self, begun: bool) -> NextLogPiece {
        let mut state = self.state();
        if state.log.is_empty() {
            return if state.closed { NextLogPiece::Ended } else { NextLogPiece::Nothing };
        }
        if !begun {
            return NextLogPiece::Piece(0, Bytes::new());
        }
        let piece = state.log.piece();
        piece.map_or(NextLogPiece::Nothing, |(first_byte, bytes)| {
            NextLogPiece::Piece(first_byte, bytes.into())
        })
    }
}

enum NextLogPiece {
    Nothing,
    Ended,
    Piece(u64, Bytes),
}
