//! What a command prints: to the terminal at once, to the gateway in pieces.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::Notify;
use tokio::time::sleep;

use super::log_buffer::LogBuffer;
use super::mask::{Mask, Secrets};
use super::tail::{LastLine, Tail};
use crate::agent_api::{AgentApi, Backoff, CallError, ClaimId, Say};

/// How much is read at once, in bytes.
const READ_BYTES: usize = 16 << 10;
/// How much of the end is kept for the result and for reasons, in bytes.
const TAIL_BYTES_MAX: usize = 16 << 10;
/// How long printed bytes gather before they are sent: not one request for each line.
const GATHER: Duration = Duration::from_millis(300);
/// The longest pause between two attempts while the gateway does not answer.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// What a command has printed so far, without secrets.
pub(super) struct Printed {
    state: Mutex<State>,
    news: Notify,
}

struct State {
    log: LogBuffer,
    stdout: Tail,
    both: Tail,
    line: LastLine,
    /// Whether nothing more will come.
    closed: bool,
}

/// Which of a command's two streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    Stdout,
    Stderr,
}

impl Printed {
    pub(super) fn new() -> Self {
        let tail = || Tail::new(TAIL_BYTES_MAX);
        let (log, line) = (LogBuffer::default(), LastLine::default());
        let state = State { log, stdout: tail(), both: tail(), line, closed: false };
        Self { state: Mutex::new(state), news: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, stream: Stream, bytes: &[u8]) {
        let mut state = self.state();
        state.log.push(bytes);
        state.both.push(bytes);
        state.line.push(bytes);
        if stream == Stream::Stdout {
            state.stdout.push(bytes);
        }
        drop(state);
        self.news.notify_one();
    }

    /// Nothing more will come.
    pub(super) fn close(&self) {
        self.state().closed = true;
        self.news.notify_one();
    }

    /// The last line that says something.
    pub(super) fn last_line(&self) -> Option<String> {
        self.state().line.get()
    }

    /// The last lines of standard output, and of both streams.
    pub(super) fn last_lines(&self, lines_max: usize) -> (String, String) {
        let state = self.state();
        (state.stdout.lines(lines_max), state.both.lines(lines_max))
    }

    /// Passes a stream on to the terminal and keeps it, until it ends.
    pub(super) async fn pass_on(
        self: Arc<Self>,
        stream: Stream,
        mut from: impl AsyncRead + Unpin,
        mut terminal: impl AsyncWrite + Unpin,
        secrets: Secrets,
    ) {
        let mut mask = Mask::new(secrets);
        let (mut read, mut out) = (vec![0; READ_BYTES], Vec::new());
        loop {
            let count = from.read(&mut read).await.unwrap_or(0);
            match count {
                0 => mask.finish(&mut out),
                _ => mask.push(&read[..count], &mut out),
            }
            self.push(stream, &out);
            // A terminal that is gone is no reason to end the command.
            let _ = terminal.write_all(&out).await;
            let _ = terminal.flush().await;
            out.clear();
            if count == 0 {
                return;
            }
        }
    }

    /// Sends the log until it is closed and everything has arrived, or the gateway does not want it.
    pub(super) async fn send_log(self: Arc<Self>, api: Arc<AgentApi>, claim: ClaimId, say: Say) {
        let mut backoff = Backoff::new(PAUSE_MAX);
        let mut begun = false;
        loop {
            let sent = match self.next_piece(begun) {
                Next::Nothing => {
                    self.news.notified().await;
                    self.gather().await;
                    continue;
                }
                Next::Ended => return,
                Next::Piece(first_byte, bytes) => api.append_log(&claim, first_byte, bytes).await,
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
                // The signs of life notice by themselves that the lease is lost.
                Err(CallError::Lost(_)) => return,
                Err(CallError::Refused { code, message }) => {
                    say(&format!("the rest of the log is not kept: {message} ({code})"));
                    return;
                }
                Err(CallError::Away(why) | CallError::Paused(why)) => {
                    let (pause, tell) = backoff.failed();
                    if tell {
                        say(&format!("the log cannot be sent now ({why}); trying again"));
                    }
                    sleep(pause).await;
                    continue;
                }
            }
            backoff.answered();
        }
    }

    /// Waits a moment for more, unless nothing more will come. So a flood is no more than one piece in each moment.
    async fn gather(&self) {
        if !self.state().closed {
            sleep(GATHER).await;
        }
    }

    /// Before the first piece, nothing is sent as the log's bytes from 0 on: the answer says how many the gateway has.
    fn next_piece(&self, begun: bool) -> Next {
        let mut state = self.state();
        if state.log.is_empty() {
            return if state.closed { Next::Ended } else { Next::Nothing };
        }
        if !begun {
            return Next::Piece(0, Bytes::new());
        }
        let piece = state.log.piece();
        piece.map_or(Next::Nothing, |(first_byte, bytes)| Next::Piece(first_byte, bytes.into()))
    }
}

enum Next {
    Nothing,
    Ended,
    Piece(u64, Bytes),
}
