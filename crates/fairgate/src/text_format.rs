//! Formats numbers and names for people.

pub(crate) use fairgate_replay::text_format::{
    DecimalThousandths, TimeSpan, counted, one_line, safe_name,
};

/// Escapes a text of several lines like [`one_line`], line by line.
pub(crate) fn lines(text: &str) -> String {
    text.split('\n').map(one_line).collect::<Vec<_>>().join("\n")
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
    }
}
