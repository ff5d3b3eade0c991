//! How far a replay is, on standard error.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// After how many lines the bar is told; drawing it is rarer still.
const LINES_PER_UPDATE: u64 = 1 << 12;

/// A bar where the input's length is known, a spinner where it is not, and nothing until it is shown.
#[derive(Debug)]
pub(crate) struct Progress {
    bytes: Option<u64>,
    bar: Option<ProgressBar>,
}

impl Progress {
    /// Nothing to see, for an input of that many bytes.
    pub(crate) fn hidden(bytes: Option<u64>) -> Self {
        Self { bytes, bar: None }
    }

    /// Shows it from the next update on, so that short journals show nothing. Where standard error is no terminal
    /// there is never anything to see.
    pub(crate) fn show(&mut self, task: &'static str) {
        let hidden = ProgressDrawTarget::hidden();
        let bar = ProgressBar::with_draw_target(self.bytes, hidden).with_style(match self.bytes {
            Some(_) => style("{prefix} {bar:30} {bytes}/{total_bytes}, {msg}, {eta} left"),
            None => style("{prefix} {spinner} {bytes}, {msg}"),
        });
        self.bar = Some(bar.with_prefix(task));
    }

    /// That many lines and bytes have been read.
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

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// The speed so far.
fn lines_per_second(lines: u64, elapsed: Duration) -> String {
    let millis = elapsed.as_millis().max(1);
    format!("{} lines/s", u128::from(lines) * 1000 / millis)
}
