//! Standard output, and the report of a command's error.

use std::cell::RefCell;
use std::io::{self, BufWriter, Read, StdoutLock, Write};
use std::process::ExitCode;
use std::rc::Rc;

use crate::text_format::lines;

/// Standard output, buffered. Clones write to the same buffer.
#[derive(Clone, Debug)]
pub(crate) struct StdoutWriter(Rc<RefCell<BufWriter<StdoutLock<'static>>>>);

impl StdoutWriter {
    /// Locks standard output for the rest of the command.
    pub(crate) fn stdout() -> Self {
        let buffered = BufWriter::with_capacity(1 << 16, io::stdout().lock());
        Self(Rc::new(RefCell::new(buffered)))
    }
}

impl Write for StdoutWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.borrow_mut().write_all(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.borrow_mut().flush()
    }
}

/// Returns the width of the terminal in characters; `None` if standard output is not a terminal.
pub(crate) fn terminal_width() -> Option<usize> {
    let (width, _) = terminal_size::terminal_size_of(io::stdout())?;
    Some(usize::from(width.0))
}

/// An input that flushes the output before it blocks for more, so that a replay of a live journal shows each decision
/// at once.
#[derive(Debug)]
pub(crate) struct FlushingInput<R> {
    input: R,
    output: StdoutWriter,
}

impl<R: Read> FlushingInput<R> {
    pub(crate) fn new(input: R, output: StdoutWriter) -> Self {
        Self { input, output }
    }
}

impl<R: Read> Read for FlushingInput<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        // A failure is not lost: the unwritten bytes stay in the buffer, and the next write returns
        // the error.
        let _ = self.output.flush();
        self.input.read(into)
    }
}

/// Prints the error and returns the exit status. A usage error exits as clap does; a closed output pipe is no error.
pub(crate) fn exit_code(error: &anyhow::Error) -> ExitCode {
    if let Some(usage) = error.downcast_ref::<clap::Error>() {
        usage.exit();
    }
    if is_broken_pipe(error) {
        return ExitCode::SUCCESS;
    }
    // If standard error is closed too, the message is lost.
    let _ = writeln!(io::stderr(), "fairgate: {}", lines(&format_error_chain(error)));
    ExitCode::FAILURE
}

/// Formats an error and its causes. A cause whose text is already included is not repeated.
fn format_error_chain(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.ends_with(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io = error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>());
    io.into_iter().any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn a_cause_is_said_once() {
        let parsed =
            "x".parse::<u8>().context("first: invalid digit found in string").context("top");
        let error = parsed.unwrap_err();
        assert_eq!(format_error_chain(&error), "top: first: invalid digit found in string");
        let error = "x".parse::<u8>().context("top").unwrap_err();
        assert_eq!(format_error_chain(&error), "top: invalid digit found in string");
    }
}
