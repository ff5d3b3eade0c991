//! Copies the output of commands to the terminal.
//!
//! The output of a single agent is copied as it comes. If several agents share the terminal, only
//! whole lines are written, each after the name of its agent, so that the lines of different
//! commands are not mixed.

use std::sync::Arc;

use tokio::io::{AsyncWrite, AsyncWriteExt, Stderr, Stdout};
use tokio::sync::Mutex;

use super::command_output::OutputStream;

/// Longest part of a line that is kept until its end comes, in bytes. A longer line is written in several parts.
const LINE_BYTES_MAX: usize = 64 << 10;

/// The terminal's two streams, shared by all agents of this process.
#[derive(Clone)]
pub(super) struct TerminalOutput {
    stdout: Arc<Mutex<Stdout>>,
    stderr: Arc<Mutex<Stderr>>,
}

/// One output stream of one command, which is copied to the terminal.
pub(super) struct TerminalStream {
    terminal: TerminalOutput,
    stream: OutputStream,
    /// `None` if bytes are copied as they come.
    lines: Option<PrefixedLines>,
}

impl TerminalOutput {
    pub(super) fn new() -> Self {
        let stdout = Arc::new(Mutex::new(tokio::io::stdout()));
        Self { stdout, stderr: Arc::new(Mutex::new(tokio::io::stderr())) }
    }

    /// Returns the writer that copies one stream of a command to the terminal. With an agent's
    /// name, each line begins with that name.
    pub(super) fn stream(&self, stream: OutputStream, agent: Option<&str>) -> TerminalStream {
        let lines = agent.map(PrefixedLines::new);
        TerminalStream { terminal: self.clone(), stream, lines }
    }
}

impl TerminalStream {
    /// Writes the next bytes of the command's stream.
    pub(super) async fn write(&mut self, bytes: &[u8]) {
        match &mut self.lines {
            None => self.write_out(bytes).await,
            Some(lines) => {
                let whole = lines.push(bytes);
                self.write_out(&whole).await;
            }
        }
    }

    /// Writes the last line, if it has no line end.
    pub(super) async fn finish(&mut self) {
        if let Some(lines) = &mut self.lines {
            let rest = lines.finish();
            self.write_out(&rest).await;
        }
    }

    async fn write_out(&self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        match self.stream {
            OutputStream::Stdout => write_to(&mut *self.terminal.stdout.lock().await, bytes).await,
            OutputStream::Stderr => write_to(&mut *self.terminal.stderr.lock().await, bytes).await,
        }
    }
}

/// Writes all bytes. A closed terminal is no reason to end a command, so errors are ignored.
async fn write_to(terminal: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) {
    let _ = terminal.write_all(bytes).await;
    let _ = terminal.flush().await;
}

/// Cuts a stream into lines, and puts the name of an agent before each.
struct PrefixedLines {
    prefix: Vec<u8>,
    /// Beginning of a line whose end has not come yet.
    begun: Vec<u8>,
}

impl PrefixedLines {
    fn new(agent: &str) -> Self {
        Self { prefix: format!("[{agent}] ").into_bytes(), begun: Vec::new() }
    }

    /// Reads the stream's next bytes, and returns the lines that are complete.
    fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut whole = Vec::new();
        for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
            self.begun.extend_from_slice(piece);
            if piece.ends_with(b"\n") || self.begun.len() >= LINE_BYTES_MAX {
                self.end_line(&mut whole);
            }
        }
        whole
    }

    /// Ends the stream, and returns its last line if that has no line end.
    fn finish(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        if !self.begun.is_empty() {
            self.end_line(&mut rest);
        }
        rest
    }

    fn end_line(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.prefix);
        out.append(&mut self.begun);
        if !out.ends_with(b"\n") {
            out.push(b'\n');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_begins_with_its_agent_however_the_stream_is_cut() {
        let text = b"one\n\ntwo\r\nthree";
        for size in 1..=text.len() {
            let mut lines = PrefixedLines::new("a-1");
            let mut out = Vec::new();
            for piece in text.chunks(size) {
                out.extend(lines.push(piece));
                assert!(out.is_empty() || out.ends_with(b"\n"), "whole lines only");
            }
            out.extend(lines.finish());
            let expected = "[a-1] one\n[a-1] \n[a-1] two\r\n[a-1] three\n";
            assert_eq!(String::from_utf8_lossy(&out), expected, "pieces of {size}");
        }
        assert!(PrefixedLines::new("a-1").finish().is_empty());
    }

    #[test]
    fn a_line_without_end_is_written_in_parts() {
        let mut lines = PrefixedLines::new("a");
        let piece = vec![b'x'; LINE_BYTES_MAX / 2];
        assert!(lines.push(&piece).is_empty());
        let part = lines.push(&piece);
        assert_eq!(part.len(), "[a] ".len() + LINE_BYTES_MAX + 1);
        assert!(lines.finish().is_empty());
    }
}
