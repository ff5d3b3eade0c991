//! Shows the progress of a replay on standard error.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Number of lines between two updates of the bar. The bar is drawn even less often.
const LINES_PER_UPDATE: u64 = 1 << 12;

/// A progress bar if the input's length is known, else a spinner.
#[derive(Debug)]
pub(crate) struct ReplayProgress {
    bar: ProgressBar,
}

impl ReplayProgress {
    /// Creates a bar for an input of this many bytes. The bar appears at the first update, so that short journals show
    /// nothing, and only if standard error is a terminal.
    pub(crate) fn shown(bytes: Option<u64>, task: &'static str) -> Self {
        let hidden = ProgressDrawTarget::hidden();
        let bar = ProgressBar::with_draw_target(bytes, hidden).with_style(match bytes {
            Some(_) => style("{prefix} {bar:30} {bytes}/{total_bytes}, {msg}, {eta} left"),
            None => style("{prefix} {spinner} {bytes}, {msg}"),
        });
        Self { bar: bar.with_prefix(task) }
    }

    /// Records that `line` lines and `bytes` bytes have been read so far.
    pub(crate) fn advance(&self, line: u64, bytes: u64) {
        let bar = &self.bar;
        if line.is_multiple_of(LINES_PER_UPDATE) {
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
        self.bar.finish_and_clear();
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
