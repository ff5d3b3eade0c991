//! Where results go, and how a command that failed says so.

use std::cell::RefCell;
use std::io::{self, BufWriter, Read, StdoutLock, Write};
use std::process::ExitCode;
use std::rc::Rc;

use crate::words::lines;

/// Standard output, buffered. Clones write to the same buffer.
#[derive(Clone, Debug)]
pub(crate) struct Output(Rc<RefCell<BufWriter<StdoutLock<'static>>>>);

impl Output {
    /// Locks standard output for the rest of the command.
    pub(crate) fn stdout() -> Self {
        let buffered = BufWriter::with_capacity(1 << 16, io::stdout().lock());
        Self(Rc::new(RefCell::new(buffered)))
    }
}

impl Write for Output {
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

/// How many characters fit into a line, where standard output is a terminal.
pub(crate) fn terminal_width() -> Option<usize> {
    let (width, _) = terminal_size::terminal_size_of(io::stdout())?;
    Some(usize::from(width.0))
}

/// An input that passes the output on before it waits for more, so that what follows a live journal sees each
/// decision when it is made.
#[derive(Debug)]
pub(crate) struct FlushingInput<R> {
    input: R,
    output: Output,
}

impl<R: Read> FlushingInput<R> {
    pub(crate) fn new(input: R, output: Output) -> Self {
        Self { input, output }
    }
}

impl<R: Read> Read for FlushingInput<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        // A failure is not lost: what could not be passed on stays in the buffer, and the next write meets it.
        let _ = self.output.flush();
        self.input.read(into)
    }
}

/// The exit status for an error, after saying on standard error what it is. A wrong usage exits as clap has it;
/// where whoever reads the output has seen enough, nothing went wrong.
pub(crate) fn exit_code(error: &anyhow::Error) -> ExitCode {
    if let Some(usage) = error.downcast_ref::<clap::Error>() {
        usage.exit();
    }
    if is_broken_pipe(error) {
        return ExitCode::SUCCESS;
    }
    // Where standard error is closed too, nobody is left to tell.
    let _ = writeln!(io::stderr(), "fairgate: {}", lines(&told(error)));
    ExitCode::FAILURE
}

/// An error and its causes, each said once: many an error says its cause in its own words already.
fn told(error: &anyhow::Error) -> String {
    let mut told = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !told.ends_with(&cause) {
            told = format!("{told}: {cause}");
        }
    }
    told
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
        assert_eq!(told(&error), "top: first: invalid digit found in string");
        let error = "x".parse::<u8>().context("top").unwrap_err();
        assert_eq!(told(&error), "top: invalid digit found in string");
    }
}
