//! Reads limits from the message of an error. Providers put numbers there that no header has: `Limit 10000, Used 8554,
//! Requested 3082. Please try again in 9.816s.`

use std::time::Duration;

use super::header_value::{HeaderValueError, number};
use super::time_span::span;
use super::{LimitUnit, LimitWindow, header_name};

/// Greatest number of words of a message that are read, because limits are named in the first sentences.
const WORDS_MAX: usize = 300;

/// Numbers found in a message. If a message has several numbers of one kind, the first is kept.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ErrorMessageNumbers {
    pub(super) counted: Option<LimitUnit>,
    pub(super) window: Option<LimitWindow>,
    pub(super) limit: Option<u64>,
    pub(super) used: Option<u64>,
    pub(super) requested: Option<u64>,
    pub(super) wait: Option<Duration>,
    /// Text of a number that was dropped, with the reason; `None` if no number was dropped.
    pub(super) absurd: Option<(String, HeaderValueError)>,
}

/// Reads the numbers about limits from a message, word by word.
pub(super) fn read(message: &str) -> ErrorMessageNumbers {
    let words: Vec<String> = message.split_whitespace().take(WORDS_MAX).map(plain).collect();
    let word = |at: usize| words.get(at).map_or("", String::as_str);
    let mut phrase = ErrorMessageNumbers::default();
    for at in 0..words.len() {
        let (before, next) = (at.checked_sub(1).map_or("", word), word(at + 1));
        match word(at) {
            "limit" => phrase.take(|phrase| &mut phrase.limit, next),
            "used" | "current" => phrase.take(|phrase| &mut phrase.used, next),
            "requested" => phrase.take(|phrase| &mut phrase.requested, next),
            "per" => phrase.rate(&words, at),
            "in" | "after" if matches!(before, "again" | "retry") => {
                phrase.wait(next, word(at + 2));
            }
            // Azure writes `have exceeded token rate limit` and `have exceeded call rate limit`.
            "rate" if next == "limit" => phrase.count(of_word(before), None),
            word => {
                let (counted, window) = abbreviated(word);
                phrase.count(counted, window);
            }
        }
    }
    phrase
}

impl ErrorMessageNumbers {
    fn take(&mut self, place: fn(&mut Self) -> &mut Option<u64>, text: &str) {
        if !text.starts_with(|c: char| c.is_ascii_digit() || c == '-') {
            return;
        }
        match number(text) {
            Ok(number) => _ = place(self).get_or_insert(number),
            Err(bad) => self.note_ignored(text, bad),
        }
    }

    fn count(&mut self, counted: Option<LimitUnit>, window: Option<LimitWindow>) {
        self.counted = self.counted.or(counted);
        self.window = self.window.or(window);
    }

    /// Reads the unit, the window and the number of a limit around the word `per`, as in `of 40,000 input tokens per
    /// minute` or `on requests per day`.
    fn rate(&mut self, words: &[String], per: usize) {
        let back = |steps| per.checked_sub(steps).and_then(|at| words.get(at)).map_or("", |w| w);
        let window = words.get(per + 1).and_then(|word| header_name::window(word));
        let (Some(counted), Some(window)) = (of_word(back(1)), window) else { return };
        let (counted, amount) = match (counted, back(2)) {
            (LimitUnit::Tokens, "input" | "prompt") => (LimitUnit::InputTokens, back(3)),
            (LimitUnit::Tokens, "output" | "completion") => (LimitUnit::OutputTokens, back(3)),
            (counted, amount) => (counted, amount),
        };
        self.count(Some(counted), Some(window));
        self.take(|phrase| &mut phrase.limit, amount);
    }

    fn wait(&mut self, amount: &str, unit: &str) {
        let bare = !amount.is_empty() && amount.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        let text = if bare { format!("{amount}{unit}") } else { amount.to_owned() };
        match span(&text).or_else(|bad| if bare { span(amount) } else { Err(bad) }) {
            Ok(wait) => self.wait = self.wait.max(Some(wait)),
            Err(bad) if amount.starts_with(|c: char| c.is_ascii_digit() || c == '-') => {
                self.note_ignored(&text, bad);
            }
            Err(_) => {}
        }
    }

    fn note_ignored(&mut self, text: &str, bad: HeaderValueError) {
        self.absurd.get_or_insert_with(|| (text.to_owned(), bad));
    }
}

/// Returns the word in lower case, without the punctuation around it.
fn plain(word: &str) -> String {
    let edge =
        |c: char| matches!(c, '(' | ')' | '[' | ']' | ',' | ':' | ';' | '`' | '\'' | '"' | '.');
    let start = word.trim_start_matches(|c| edge(c) && c != '.');
    start.trim_end_matches(edge).to_lowercase()
}

fn of_word(word: &str) -> Option<LimitUnit> {
    match word {
        "tokens" | "token" => Some(LimitUnit::Tokens),
        "requests" | "request" | "calls" | "call" => Some(LimitUnit::Requests),
        _ => None,
    }
}

/// Returns the unit and the window that an abbreviation such as `TPM`, `RPD` or `ITPM` names;
/// `None` for a part that it does not name.
fn abbreviated(word: &str) -> (Option<LimitUnit>, Option<LimitWindow>) {
    let counted = |prefix| match prefix {
        "tp" => Some(LimitUnit::Tokens),
        "rp" => Some(LimitUnit::Requests),
        "itp" => Some(LimitUnit::InputTokens),
        "otp" => Some(LimitUnit::OutputTokens),
        _ => None,
    };
    let windows = [
        ('s', LimitWindow::Second),
        ('m', LimitWindow::Minute),
        ('h', LimitWindow::Hour),
        ('d', LimitWindow::Day),
    ];
    let named = windows
        .into_iter()
        .find_map(|(letter, window)| Some((counted(word.strip_suffix(letter)?)?, window)));
    (named.map(|(counted, _)| counted), named.map(|(_, window)| window))
}

#[cfg(test)]
mod tests {
    use super::super::header_value::NEGATIVE;
    use super::*;

    #[test]
    fn sentences_of_many_providers() {
        use LimitUnit::{InputTokens, Requests, Tokens};
        use LimitWindow::{Day, Minute};
        type Row =
            (&'static str, Option<LimitUnit>, Option<LimitWindow>, [Option<u64>; 3], Option<u64>);
        let cases: [Row; 9] = [
            (
                "Rate limit reached for gpt-4 in organization org-x on tokens per min (TPM): Limit 10000, Used 8554, \
                 Requested 3082. Please try again in 9.816s. Visit https://platform.openai.com/ to learn more.",
                Some(Tokens),
                Some(Minute),
                [Some(10_000), Some(8_554), Some(3_082)],
                Some(9_816),
            ),
            (
                "Rate limit reached for gpt-4o on requests per min (RPM): Limit 500, Used 500, Requested 1. Please try \
                 again in 120ms.",
                Some(Requests),
                Some(Minute),
                [Some(500), Some(500), Some(1)],
                Some(120),
            ),
            (
                "Rate limit reached for model `llama-3.3-70b` on tokens per day (TPD): Limit 100000, Used 97050, Requested \
                 3619. Please try again in 9m38.016s. Need more tokens?",
                Some(Tokens),
                Some(Day),
                [Some(100_000), Some(97_050), Some(3_619)],
                Some(578_016),
            ),
            (
                "This request would exceed your organization's rate limit of 30,000 input tokens per minute (org: 8, \
                 model: m). For details, refer to: https://docs.claude.com/en/api/rate-limits.",
                Some(InputTokens),
                Some(Minute),
                [Some(30_000), None, None],
                None,
            ),
            (
                "Requests to the ChatCompletions_Create Operation under Azure OpenAI API version 2024-10-01-preview have \
                 exceeded token rate limit of your current AIServices S0 pricing tier. Please retry after 37 seconds.",
                Some(Tokens),
                None,
                [None; 3],
                Some(37_000),
            ),
            (
                "Quota exceeded for metric: generate_content_free_tier_requests, limit: 20, model: gemini\nPlease retry in \
                 36.429760048s.",
                None,
                None,
                [Some(20), None, None],
                Some(36_429),
            ),
            ("Rate limit exceeded", None, None, [None; 3], None),
            (
                "Number of request tokens per second exceeded",
                Some(Tokens),
                Some(LimitWindow::Second),
                [None; 3],
                None,
            ),
            ("", None, None, [None; 3], None),
        ];
        for (message, counted, window, [limit, used, requested], wait) in cases {
            let phrase = read(message);
            assert_eq!((phrase.counted, phrase.window), (counted, window), "{message}");
            assert_eq!([phrase.limit, phrase.used, phrase.requested], [limit, used, requested]);
            assert_eq!(phrase.wait.map(|wait| wait.as_millis()), wait.map(u128::from), "{message}");
        }
    }

    #[test]
    fn absurd_numbers_are_kept_for_the_log() {
        assert_eq!(read("Limit -5, try").absurd, Some(("-5".to_owned(), NEGATIVE)));
        assert!(read("Please try again in 9000h.").absurd.is_some());
        assert_eq!(read("Please try again in 9000h.").wait, None);
        assert_eq!(read("Please try again in a while").absurd, None);
    }
}
