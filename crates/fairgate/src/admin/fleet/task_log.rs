//! The command `fairgate task log`, which shows the output of a task's command.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use fairgate_api::fleet::{LogPage, TaskState, TaskView};

use super::super::client::AdminClient;
use super::super::{AdminOptions, understood};
use super::task::path;
use crate::output::StdoutWriter;

/// Pause between two requests for more output.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// Show the output of a task's command.
#[derive(Debug, Args)]
pub(super) struct TaskLogArgs {
    /// Name of the task, as `fairgate task list` shows it.
    id: String,
    /// Epoch of the claim whose output is shown. Default: the task's last claim.
    #[arg(long, value_name = "CLAIM")]
    epoch: Option<u64>,
    /// Continue with new output, also of later claims, until the task has ended.
    #[arg(short, long, conflicts_with = "epoch")]
    follow: bool,
}

impl TaskLogArgs {
    /// Prints the output so far; with -f, also further output. With --json each page is one line.
    pub(super) fn run(&self, common: &AdminOptions, client: &AdminClient) -> Result<()> {
        let (mut epoch, mut first_byte) = (self.epoch, 0);
        loop {
            let page = self.page(client, epoch, first_byte)?;
            let read: LogPage = understood(&page)?;
            let is_new = read.next_byte > read.first_byte;
            if is_new || (!self.follow && first_byte == 0) {
                self.print(common, &page, &read, first_byte)?;
            }
            (epoch, first_byte) = (Some(read.epoch), read.next_byte);
            if is_new {
                continue;
            }
            if !self.follow {
                return Ok(());
            }
            if read.ended || read.epoch == 0 {
                let task: TaskView = understood(&client.get(&path(&self.id))?)?;
                if task.epoch > read.epoch {
                    (epoch, first_byte) = (Some(read.epoch + 1), 0);
                    continue;
                }
                if task.line.state.is_ended() || task.line.state == TaskState::Blocked {
                    return Ok(());
                }
            }
            thread::sleep(LOOK_AGAIN);
        }
    }

    fn page(
        &self,
        client: &AdminClient,
        epoch: Option<u64>,
        first_byte: u64,
    ) -> Result<serde_json::Value> {
        let epoch = epoch.filter(|epoch| *epoch > 0).map(|epoch| format!("&epoch={epoch}"));
        let epoch = epoch.unwrap_or_default();
        client.get(&format!("{}/log?first_byte={first_byte}{epoch}", path(&self.id)))
    }

    fn print(
        &self,
        common: &AdminOptions,
        page: &serde_json::Value,
        read: &LogPage,
        asked_from: u64,
    ) -> Result<()> {
        let mut out = StdoutWriter::stdout();
        if common.json {
            writeln!(out, "{page}")?;
        } else {
            if read.first_byte > asked_from {
                writeln!(out, "[{} bytes are not kept]", read.first_byte - asked_from)?;
            }
            let text = match io::stdout().is_terminal() {
                true => safe_for_terminal(&read.text),
                false => Cow::Borrowed(read.text.as_str()),
            };
            write!(out, "{text}")?;
        }
        Ok(out.flush()?)
    }
}

/// Returns a log that is safe to show on a terminal. Colours are kept, and all other control sequences are escaped,
/// because the output of an agent must not move the reader's cursor or rename the reader's window.
fn safe_for_terminal(text: &str) -> Cow<'_, str> {
    let is_harmful = |c: char| c.is_control() && !matches!(c, '\n' | '\t' | '\r');
    if !text.contains(is_harmful) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(is_harmful) {
        shown.push_str(&rest[..at]);
        rest = &rest[at..];
        match colour(rest) {
            Some(length) => {
                shown.push_str(&rest[..length]);
                rest = &rest[length..];
            }
            None => {
                let mut chars = rest.chars();
                shown.extend(chars.next().into_iter().flat_map(char::escape_default));
                rest = chars.as_str();
            }
        }
    }
    shown.push_str(rest);
    Cow::Owned(shown)
}

/// Returns the length of a terminal sequence for colour or weight at the start of the text, which is ESC, `[`, digits
/// and `;`, then `m`; `None` if there is none.
fn colour(text: &str) -> Option<usize> {
    let inside = text.strip_prefix("\x1b[")?;
    let end = inside.find(|c: char| !c.is_ascii_digit() && c != ';')?;
    inside[end..].starts_with('m').then_some(end + 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_cannot_play_with_the_terminal() {
        assert_eq!(safe_for_terminal("plain\ttext\r\n"), "plain\ttext\r\n");
        assert_eq!(safe_for_terminal("\x1b[1;31mred\x1b[0m"), "\x1b[1;31mred\x1b[0m");
        assert_eq!(safe_for_terminal("a\x1b[2Jb"), "a\\u{1b}[2Jb");
        assert_eq!(safe_for_terminal("\x1b]0;title\x07"), "\\u{1b}]0;title\\u{7}");
        assert_eq!(safe_for_terminal("\x1b["), "\\u{1b}[");
    }
}
