//! Measures the amount of text that a stream of a PDF shows, without interpreting the stream.
//!
//! All strings of a stream count if the stream has an operator that shows text, whatever operator each string is for.
//! Binary data within the stream can only make a string look longer, so that more is counted.

/// Length of the longest text, in hexadecimal digits of UTF-16, that a font may give to one letter. Ligatures have
/// three letters.
const LETTER_DIGITS_MAX: usize = 16;

/// Returns the number of bytes of the strings in a stream that shows text; 0 for any other stream.
pub(super) fn bytes(content: &[u8]) -> u64 {
    if !shows_text(content) {
        return 0;
    }
    let (mut bytes, mut at) = (0, 0);
    while let Some(found) = memchr::memchr2(b'(', b'<', &content[at..]) {
        let start = at + found + 1;
        let (length, end) = match content[start - 1] {
            b'(' => literal(content, start),
            _ if content.get(start) == Some(&b'<') => (0, start + 1),
            _ => {
                let end = memchr::memchr(b'>', &content[start..]);
                let end = end.map_or(content.len(), |length| start + length);
                ((end - start).div_ceil(2), end)
            }
        };
        bytes += length as u64;
        at = end;
    }
    bytes
}

/// Returns true if a string, or a list of strings, is followed by `Tj`, `TJ`, `'` or `"`.
fn shows_text(content: &[u8]) -> bool {
    memchr::memchr3_iter(b')', b'>', b']', content).any(|at| {
        let rest = content[at + 1..].trim_ascii_start();
        rest.starts_with(b"Tj") || rest.starts_with(b"TJ") || matches!(rest, [b'\'' | b'"', ..])
    })
}

/// Reads a string in parentheses whose inside begins at `start`. Returns the number of its bytes and the offset of its
/// end. A string without an end contains all bytes that follow.
fn literal(content: &[u8], start: usize) -> (usize, usize) {
    let (mut depth, mut bytes, mut at) = (1, 0, start);
    while let Some(&byte) = content.get(at) {
        at += 1;
        match byte {
            b'\\' => {
                let digits = content[at..].iter().take(3).take_while(|byte| byte.is_ascii_digit());
                at += digits.count().max(1);
            }
            b'(' => depth += 1,
            b')' if depth == 1 => return (bytes, at),
            b')' => depth -= 1,
            _ => {}
        }
        bytes += 1;
    }
    (bytes, content.len())
}

/// Returns true if the stream defines the texts for which the letters of a font stand, and gives a letter more than
/// [`LETTER_DIGITS_MAX`] digits. Then a few bytes could stand for any amount of text.
pub(super) fn has_long_letters(content: &[u8]) -> bool {
    if memchr::memmem::find(content, b"beginbf").is_none() {
        return false;
    }
    memchr::memchr_iter(b'<', content).any(|at| {
        let is_dictionary = content[..at].ends_with(b"<") || content[at + 1..].starts_with(b"<");
        let rest = &content[at + 1..];
        let length = memchr::memchr(b'>', rest).unwrap_or(rest.len());
        !is_dictionary && length > LETTER_DIGITS_MAX
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_strings_of_a_stream_with_text_count() {
        for (content, expected) in [
            (&b"BT (words) Tj ET"[..], 5),
            (b"BT [(wo) -20 (rds)]TJ ET", 5),
            (b"(a\\)b\\051(c)) '", 7),
            (b"<00410042>Tj <41> Tj", 5),
            (b"/Span <</ActualText (hidden)>> BDC (x) Tj", 7),
            (b"(never closed (x) Tj", 19),
            (b"0 0 m (words) Do 1 1 l", 0),
            (b"binary ( and no text", 0),
            (b"", 0),
        ] {
            assert_eq!(bytes(content), expected, "{}", String::from_utf8_lossy(content));
        }
    }

    #[test]
    fn a_letter_stands_for_a_few_letters_at_most() {
        let map = |text: &str| {
            format!("<</CIDSystemInfo 3 0 R /CMapName /X>> 1 beginbfchar <01> <{text}> endbfchar")
                .into_bytes()
        };
        assert!(!has_long_letters(&map("006600660069")));
        assert!(has_long_letters(&map(&"0041".repeat(5))));
        assert!(!has_long_letters(&"<0041>".repeat(5).into_bytes()));
    }
}
