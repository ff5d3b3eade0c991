//! Writes the log without ever blocking the caller.
//!
//! Standard error may be a pipe that no one reads, a full disk, or closed. Lines go through a bounded queue to a thread
//! of their own. If the queue is full or writing fails, lines are lost and counted (`fairgate_log_lines_lost_total`),
//! and the log says how many as soon as it works again.

use std::io::{self, Write};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TrySendError};
use std::thread;
use std::time::Duration;

use fairgate_proxy::metrics::lost_log_lines;
use tracing_subscriber::fmt::MakeWriter;

/// Largest number of lines in the queue.
const LINES_MAX: usize = 1024;
/// Length of the longest line, in bytes. The rest of a longer line is cut off.
const LINE_BYTES_MAX: usize = 16 << 10;
/// Longest wait at the end of the process for lines in the queue.
const LAST_WAIT: Duration = Duration::from_millis(500);

/// A message to the writing thread.
enum LogMessage {
    Line(Vec<u8>),
    /// Request for a confirmation when all lines before this message are written.
    Flush(SyncSender<()>),
}

/// The sink of the log's events. Never fails and never blocks.
#[derive(Clone)]
pub(super) struct LogWriter(SyncSender<LogMessage>);

/// Guard that, when dropped, waits for at most [`LAST_WAIT`] until the last lines are written.
#[must_use]
pub(crate) struct LogGuard(SyncSender<LogMessage>);

/// Starts the thread that writes to `to`.
pub(super) fn start(to: impl Write + Send + 'static) -> io::Result<(LogWriter, LogGuard)> {
    let (lines, told) = mpsc::sync_channel(LINES_MAX);
    thread::Builder::new().name("log".into()).spawn(move || write_all(&told, to))?;
    Ok((LogWriter(lines.clone()), LogGuard(lines)))
}

fn write_all(told: &Receiver<LogMessage>, mut to: impl Write) {
    let mut reported = lost_log_lines().get();
    for told in told {
        match told {
            LogMessage::Line(line) => {
                let lost = lost_log_lines().get();
                if lost > reported {
                    let note = format!("{} lines of the log were lost\n", lost - reported);
                    if to.write_all(note.as_bytes()).is_ok() {
                        reported = lost;
                    }
                }
                if to.write_all(&line).and_then(|()| to.flush()).is_err() {
                    lost_log_lines().inc();
                }
            }
            LogMessage::Flush(done) => {
                let _ = done.try_send(());
            }
        }
    }
}

impl Write for LogWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut kept = line[..line.len().min(LINE_BYTES_MAX)].to_vec();
        if kept.len() < line.len() {
            kept.push(b'\n');
        }
        if let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) =
            self.0.try_send(LogMessage::Line(kept))
        {
            lost_log_lines().inc();
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LogWriter {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl Drop for LogGuard {
    fn drop(&mut self) {
        let (done, written) = mpsc::sync_channel(1);
        if self.0.try_send(LogMessage::Flush(done)).is_ok()
            && let Err(RecvTimeoutError::Timeout) = written.recv_timeout(LAST_WAIT)
        {
            // The output is blocked: the process need not wait for it.
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// A disk that is full until the test frees it.
    #[derive(Clone, Default)]
    struct Disk(Arc<Mutex<(bool, Vec<u8>)>>);

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut disk = self.0.lock().unwrap();
            if disk.0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            disk.1.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_was_lost_is_told_once_when_the_log_works_again() {
        let disk = Disk::default();
        let (mut writer, guard) = start(disk.clone()).unwrap();
        let (done, written) = mpsc::sync_channel(1);
        let settled = || {
            guard.0.send(LogMessage::Flush(done.clone())).unwrap();
            written.recv().unwrap();
        };
        writer.write_all(b"one\n").unwrap();
        settled();
        disk.0.lock().unwrap().0 = true;
        writer.write_all(b"two\n").unwrap();
        writer.write_all(b"three\n").unwrap();
        settled();
        disk.0.lock().unwrap().0 = false;
        writer.write_all(b"four\n").unwrap();
        writer.write_all(&[b'x'; 2 * LINE_BYTES_MAX]).unwrap();
        settled();
        let text = String::from_utf8(disk.0.lock().unwrap().1.clone()).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[..3], ["one", "2 lines of the log were lost", "four"]);
        assert_eq!((lines.len(), lines[3].len()), (4, LINE_BYTES_MAX));
    }
}
