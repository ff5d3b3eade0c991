//! Shows the progress of a replay on standard error.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Number of lines between two updates of the bar. The bar is drawn even less often.
const LINES_PER_UPDATE: u64 = 1 << 12;

/// A progress bar if the input's length is known, else a spinner. It is hidden until [`ReplayProgress::show`] is
/// called.
#[derive(Debug)]
pub(crate) struct ReplayProgress {
    bytes: Option<u64>,
    bar: Option<ProgressBar>,
}

impl ReplayProgress {
    /// Creates a hidden bar for an input of this many bytes.
    pub(crate) fn hidden(bytes: Option<u64>) -> Self {
        Self { bytes, bar: None }
    }

    /// Shows the bar from the next update on, so that short journals show nothing. Never shows anything if standard
    /// error is not a terminal.
    pub(crate) fn show(&mut self, task: &'static str) {
        let hidden = ProgressDrawTarget::hidden();
        let bar = ProgressBar::with_draw_target(self.bytes, hidden).with_style(match self.bytes {
            Some(_) => style("{prefix} {bar:30} {bytes}/{total_bytes}, {msg}, {eta} left"),
            None => style("{prefix} {spinner} {bytes}, {msg}"),
        });
        self.bar = Some(bar.with_prefix(task));
    }

    /// Records that `line` lines and `bytes` bytes have been read so far.
    pub(crate) fn advance(&self, line: u64, bytes: u64) {
        if line.is_multiple_of(LINES_PER_UPDATE)
            && let Some(bar) = &self.bar
        {
            if bar.is_hidden() {
                bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(5));
            }
            bar.set_message(lines_per_second(line, bar.elapsed()));
            bar.set_position(bytes);
        }
    }
}

impl Drop for ReplayProgress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// Formats the mean number of lines per second so far.
fn lines_per_second(lines: u64, elapsed: Duration) -> String {
    let millis = elapsed.as_millis().max(1);
    format!("{} lines/s", u128::from(lines) * 1000 / millis)
}
