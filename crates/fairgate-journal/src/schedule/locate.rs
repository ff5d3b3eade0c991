//! Where in a broken JSON text the break is: a parser knows the line, a reader wants the field.

use super::ReadError;

/// An object or a list that is still open.
enum Open {
    Object { key: Option<String> },
    List { position: usize },
}

/// Says what is wrong with a text that is not JSON, and in which field.
pub(super) fn syntax_error(text: &str, error: &serde_json::Error) -> ReadError {
    let break_at = offset(text, error.line(), error.column());
    let field = field_at(&text.as_bytes()[..break_at]);
    match not_a_number(text, break_at) {
        Some(word) => ReadError { field, message: format!("{word} is not a finite number") },
        None => ReadError { field, message: error.to_string() },
    }
}

/// The byte that a line and a column mean, both counted from 1.
fn offset(text: &str, line: usize, column: usize) -> usize {
    let line_start = match line {
        0 | 1 => 0,
        _ => text.match_indices('\n').nth(line - 2).map_or(0, |(newline, _)| newline + 1),
    };
    (line_start + column.saturating_sub(1)).min(text.len())
}

/// The word at the break, where it is one of those that other writers use for numbers that JSON has not.
fn not_a_number(text: &str, break_at: usize) -> Option<&str> {
    let before = text.get(..break_at)?;
    let word_start = before.trim_end_matches(is_word).len();
    let rest = &text[word_start..];
    let word = &rest[..rest.find(|c| !is_word(c)).unwrap_or(rest.len())];
    let name = word.trim_start_matches(['-', '+']).to_ascii_lowercase();
    matches!(&*name, "nan" | "inf" | "infinity").then_some(word)
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphabetic() || matches!(c, '-' | '+')
}

/// The field in which a text that is JSON so far ends.
fn field_at(text: &[u8]) -> String {
    let mut open: Vec<Open> = Vec::new();
    let mut rest = text.iter().enumerate();
    while let Some((start, byte)) = rest.next() {
        match byte {
            b'{' => open.push(Open::Object { key: None }),
            b'[' => open.push(Open::List { position: 0 }),
            b'}' | b']' => drop(open.pop()),
            b',' => match open.last_mut() {
                Some(Open::Object { key }) => *key = None,
                Some(Open::List { position }) => *position += 1,
                None => {}
            },
            b'"' => {
                let length = string_length(&text[start + 1..]);
                if let Some(Open::Object { key: key @ None }) = open.last_mut() {
                    let name = &text[start + 1..start + 1 + length];
                    *key = Some(String::from_utf8_lossy(name).into_owned());
                }
                // The closing quote goes with it.
                rest.nth(length);
            }
            _ => {}
        }
    }
    path(&open)
}

/// How many bytes of a string come before its closing quote.
fn string_length(text: &[u8]) -> usize {
    let mut is_escaped = false;
    let is_end = |byte: &u8| {
        let ends = *byte == b'"' && !is_escaped;
        is_escaped = *byte == b'\\' && !is_escaped;
        ends
    };
    text.iter().position(is_end).unwrap_or(text.len())
}

fn path(open: &[Open]) -> String {
    let mut path = String::new();
    for level in open {
        match level {
            Open::Object { key: Some(key) } if path.is_empty() => path.push_str(key),
            Open::Object { key: Some(key) } => path.push_str(&format!(".{key}")),
            Open::Object { key: None } => {}
            Open::List { position } => path.push_str(&format!("[{position}]")),
        }
    }
    path
}
