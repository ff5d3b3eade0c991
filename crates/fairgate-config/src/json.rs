//! Conversion of a YAML tree to JSON.

use crate::yaml::{YamlNode, YamlValue};

/// Writes a tree as JSON. Numbers keep their digits.
pub(crate) fn write_json(node: &YamlNode, out: &mut String) {
    match &node.value {
        YamlValue::Scalar { .. } if node.is_null() => out.push_str("null"),
        YamlValue::Scalar { text, quoted: false }
            if matches!(&**text, "true" | "false") || is_json_number(text) =>
        {
            out.push_str(text);
        }
        YamlValue::Scalar { text, .. } => write_json_text(text, out),
        YamlValue::List(nodes) => {
            out.push('[');
            for (i, node) in nodes.iter().enumerate() {
                out.push_str(if i > 0 { "," } else { "" });
                write_json(node, out);
            }
            out.push(']');
        }
        YamlValue::Map(entries) => {
            out.push('{');
            for (i, entry) in entries.iter().enumerate() {
                out.push_str(if i > 0 { "," } else { "" });
                write_json_text(&entry.name, out);
                out.push(':');
                write_json(&entry.node, out);
            }
            out.push('}');
        }
    }
}

fn write_json_text(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c < ' ' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
}

/// Returns true if the text is a JSON number without an exponent. Exponents are not accepted, because nobody writes
/// weights with them.
fn is_json_number(text: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let text = text.strip_prefix('-').unwrap_or(text);
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let leading_zero = whole.len() > 1 && whole.starts_with('0');
    digits(whole) && digits(fraction) && !leading_zero
}
