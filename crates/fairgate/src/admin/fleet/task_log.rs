//! `fairgate task log`: what a task's command printed.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use fairgate_fleet::{LogPage, TaskState, TaskView};

use super::super::Common;
use super::super::client::Client;
use super::task::path;
use super::understood;
use crate::output::Output;

/// How often to look for more.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// Show what a task's command printed.
#[derive(Debug, Args)]
pub(super) struct LogArgs {
    /// Its name.
    id: String,
    /// Of this claim of the task; of its last where not given.
    #[arg(long, value_name = "CLAIM")]
    epoch: Option<u64>,
    /// Go on until the task has ended, over all further claims.
    #[arg(short, long, conflicts_with = "epoch")]
    follow: bool,
}

impl LogArgs {
    /// Prints what there is; with -f, what comes too. As JSON it is one page a line.
    pub(super) fn run(&self, common: &Common, client: &Client) -> Result<()> {
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
        client: &Client,
        epoch: Option<u64>,
        first_byte: u64,
    ) -> Result<serde_json::Value> {
        let epoch = epoch.filter(|epoch| *epoch > 0).map(|epoch| format!("&epoch={epoch}"));
        let epoch = epoch.unwrap_or_default();
        client.get(&format!("{}/log?first_byte={first_byte}{epoch}", path(&self.id)))
    }

    fn print(
        &self,
        common: &Common,
        page: &serde_json::Value,
        read: &LogPage,
        asked_from: u64,
    ) -> Result<()> {
        let mut out = Output::stdout();
        if common.json {
            writeln!(out, "{page}")?;
        } else {
            if read.first_byte > asked_from {
                writeln!(out, "[{} bytes are not kept]", read.first_byte - asked_from)?;
            }
            let text = match io::stdout().is_terminal() {
                true => harmless(&read.text),
                false => Cow::Borrowed(read.text.as_str()),
            };
            write!(out, "{text}")?;
        }
        Ok(out.flush()?)
    }
}

/// A log as a terminal may show it: colours stay, all other control sequences are made visible. What an agent prints must not
/// move the cursor of whoever reads it, or rename their window.
fn harmless(text: &str) -> Cow<'_, str> {
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

/// The length of a sequence that sets a colour or weight, where the text begins with one: ESC, `[`, digits and `;`, `m`.
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
        assert_eq!(harmless("plain\ttext\r\n"), "plain\ttext\r\n");
        assert_eq!(harmless("\x1b[1;31mred\x1b[0m"), "\x1b[1;31mred\x1b[0m");
        assert_eq!(harmless("a\x1b[2Jb"), "a\\u{1b}[2Jb");
        assert_eq!(harmless("\x1b]0;title\x07"), "\\u{1b}]0;title\\u{7}");
        assert_eq!(harmless("\x1b["), "\\u{1b}[");
    }
}
