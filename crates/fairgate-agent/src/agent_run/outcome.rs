//! Converts the end of a command into the end of its claim.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use fairgate_time::UnixMicros;

use super::secret_mask::SecretTexts;
use super::tail::{cut, readable};
use crate::agent_api::ClaimEnd;

/// Exit status `EX_TEMPFAIL` (75), with which a command asks to be run later. It does not count as a failure.
const LATER: i32 = 75;
/// Exit status `EX_NOPERM` (77), with which a command asks a person a question.
const ASKS: i32 = 77;
/// Pause of a task whose command asks to be run later without stating a time.
const LATER_DEFAULT: Duration = Duration::from_secs(60);
const LATER_MAX: Duration = Duration::from_secs(30 * 86_400);

/// Longest result that the gateway accepts, in bytes.
pub(super) const RESULT_BYTES_MAX: usize = 1 << 20;
const REASON_BYTES_MAX: usize = 4 << 10;
const QUESTION_BYTES_MAX: usize = 16 << 10;

/// The output of a command that has ended.
pub(super) struct CommandResult<'a> {
    /// Content of the result file.
    pub(super) result: Option<String>,
    /// Last lines of standard output.
    pub(super) stdout: String,
    /// Last lines of standard output and standard error together.
    pub(super) printed: String,
    /// Token usage that the command reports.
    pub(super) tokens: Option<u64>,
    /// Secrets to mask in everything that is sent.
    pub(super) secrets: &'a SecretTexts,
}

impl CommandResult<'_> {
    /// Returns the end of the claim. `now` is the server's time.
    pub(super) fn end(&self, status: ExitStatus, now: UnixMicros) -> ClaimEnd {
        let tokens = self.tokens;
        match status.code() {
            Some(0) => {
                let result = self.written().or_else(|| non_empty(&self.stdout));
                let result = result.map(|result| self.clean(&result, RESULT_BYTES_MAX));
                ClaimEnd::Complete { result, tokens }
            }
            Some(LATER) => {
                let (pause, why) = later(self.result.as_deref().unwrap_or(""));
                let why =
                    why.unwrap_or_else(|| "the command asked to be run again later".to_owned());
                let micros = i64::try_from(pause.as_micros()).unwrap_or(i64::MAX);
                let limited_until = Some(UnixMicros(now.0.saturating_add(micros)));
                let reason = self.clean(&why, REASON_BYTES_MAX);
                ClaimEnd::Fail { reason, limited_until, tokens }
            }
            Some(ASKS) => match self.written().or_else(|| non_empty(&self.stdout)) {
                Some(question) => {
                    ClaimEnd::Ask { question: self.clean(&question, QUESTION_BYTES_MAX), tokens }
                }
                None => {
                    self.failure("exited with status 77 to ask a person, but wrote no question")
                }
            },
            Some(code) => self.failure(&format!("exited with status {code}")),
            None => {
                let signal = status.signal().unwrap_or_default();
                self.failure(&format!("was killed by signal {signal}"))
            }
        }
    }

    /// Returns the end of a claim whose command failed. `what` describes the failure, and continues
    /// a sentence about the command.
    pub(super) fn failure(&self, what: &str) -> ClaimEnd {
        let why = match non_empty(&self.printed) {
            Some(printed) => format!("the command {what}; it printed last:\n{printed}"),
            None => format!("the command {what} and printed nothing"),
        };
        let reason = self.clean(&why, REASON_BYTES_MAX);
        ClaimEnd::Fail { reason, limited_until: None, tokens: self.tokens }
    }

    fn written(&self) -> Option<String> {
        non_empty(self.result.as_deref()?)
    }

    fn clean(&self, text: &str, bytes_max: usize) -> String {
        cut(&self.secrets.masked(&readable(text)), bytes_max)
    }
}

/// Returns the text without trailing white space; `None` if it is empty.
fn non_empty(text: &str) -> Option<String> {
    let text = text.trim_end();
    (!text.is_empty()).then(|| text.to_owned())
}

/// Parses the pause in whole seconds from the first line, and the reason from the lines after it.
fn later(text: &str) -> (Duration, Option<String>) {
    let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
    match first.trim().parse() {
        Ok(seconds) => (Duration::from_secs(seconds).min(LATER_MAX), non_empty(rest)),
        Err(_) => (LATER_DEFAULT, non_empty(text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixMicros = UnixMicros(1_000_000_000);

    fn exited(code: i32) -> ExitStatus {
        ExitStatus::from_raw(code << 8)
    }

    fn end(status: ExitStatus, result: Option<&str>, printed: &str) -> ClaimEnd {
        let secrets = SecretTexts::new(["fgt-a-secret"]);
        let result = result.map(str::to_owned);
        let (stdout, printed) = (printed.to_owned(), printed.to_owned());
        CommandResult { result, stdout, printed, tokens: Some(5), secrets: &secrets }
            .end(status, NOW)
    }

    #[test]
    fn a_command_that_ends_well_completes_its_task() {
        let completed = |result, printed| match end(exited(0), result, printed) {
            ClaimEnd::Complete { result, tokens: Some(5) } => result,
            other => panic!("{other:?}"),
        };
        assert_eq!(completed(None, "all\ndone\n").as_deref(), Some("all\ndone"));
        assert_eq!(completed(Some("a fgt-a-secret\0\n"), "x").as_deref(), Some("a [masked]"));
        assert_eq!(completed(Some(" \n"), ""), None);
        let long = completed(Some(&"x".repeat(2 << 20)), "");
        assert_eq!(long.map(|result| result.len()), Some(RESULT_BYTES_MAX));
    }

    #[test]
    fn status_75_is_no_failure() {
        let until = |text| match end(exited(75), text, "") {
            ClaimEnd::Fail { reason, limited_until, .. } => (limited_until.map(|at| at.0), reason),
            other => panic!("{other:?}"),
        };
        let (at, why) = until(Some("120\nquota until two\n"));
        assert_eq!((at, &*why), (Some(1_120_000_000), "quota until two"));
        assert_eq!(until(None).0, Some(1_060_000_000));
        assert_eq!(until(Some("soon")), (Some(1_060_000_000), "soon".into()));
        // The gateway takes no moment after the year 9999.
        let longest = NOW.0 + 30 * 86_400 * 1_000_000;
        assert_eq!(until(Some("18446744073709551615")).0, Some(longest));
    }

    #[test]
    fn status_77_asks() {
        let ClaimEnd::Ask { question, .. } = end(exited(77), Some("which colour?\n"), "x") else {
            panic!("ask")
        };
        assert_eq!(question, "which colour?");
        let nothing_to_ask = end(exited(77), None, "");
        assert!(matches!(nothing_to_ask, ClaimEnd::Fail { .. }), "{nothing_to_ask:?}");
    }

    #[test]
    fn other_ends_say_what_happened_and_what_was_printed() {
        let reason = |status, printed: &str| match end(status, None, printed) {
            ClaimEnd::Fail { reason, limited_until: None, .. } => reason,
            other => panic!("{other:?}"),
        };
        assert_eq!(
            reason(exited(3), "no fgt-a-secret here\n"),
            "the command exited with status 3; it printed last:\nno [masked] here"
        );
        let killed = reason(ExitStatus::from_raw(9), "");
        assert_eq!(killed, "the command was killed by signal 9 and printed nothing");
        assert!(reason(exited(1), &"x".repeat(9999)).len() <= REASON_BYTES_MAX);
    }
}
