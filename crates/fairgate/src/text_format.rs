//! Formats numbers and names for people.

use fairgate_core::units::Percentage;

pub(crate) use fairgate_replay::text_format::{
    DecimalThousandths, TimeSpan, counted, one_line, safe_name,
};

/// Escapes a text of several lines like [`one_line`], line by line.
pub(crate) fn lines(text: &str) -> String {
    text.split('\n').map(one_line).collect::<Vec<_>>().join("\n")
}

/// Formats a part from 0 to 1 as a percentage, or as a dash if it is absent.
pub(crate) fn percentage(part: Option<f64>) -> String {
    part.map_or("-".to_owned(), |part| Percentage::from_ppm(millionths(part)).to_string())
}

/// Converts a part from 0 to 1 to millionths.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a part is from 0 to 1, and other numbers saturate"
)]
pub(crate) fn millionths(part: f64) -> u64 {
    (part * 1_000_000.0).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_safe_to_show() {
        assert_eq!(safe_name("chat"), "chat");
        assert_eq!(safe_name("a\u{1b}[2Jb\n"), "a\\u{1b}[2Jb\\n");
        assert_eq!(safe_name(&"é".repeat(100)), format!("{}…", "é".repeat(60)));
        assert_eq!(safe_name(&"é".repeat(60)), "é".repeat(60));
        assert_eq!(one_line(&"é\u{9b}".repeat(100)), "é\\u{9b}".repeat(100));
        assert_eq!(lines("a\x07\nb\r\n"), "a\\u{7}\nb\\r\n");
        assert_eq!(counted(1u64, "token"), "1 token");
        assert_eq!(counted(0u64, "token"), "0 tokens");
        assert_eq!((percentage(Some(0.75)), percentage(None)), ("75.0 %".into(), "-".into()));
        assert_eq!((millionths(0.333_333), millionths(-1.0)), (333_333, 0));
    }
}
