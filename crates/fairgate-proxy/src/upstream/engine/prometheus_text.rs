//! Parser of the Prometheus text format, as far as engines use it: `name{label="value",…} number [timestamp]`, one
//! per line.
//!
//! The parser is strict. A line that is neither a sample nor a comment nor empty is an error, which
//! names the line. So a page without metrics, such as an error page of a proxy, is never mistaken
//! for the metrics of an idle engine.

use std::borrow::Cow;

/// One sample, with the metric's name, labels and value.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct MetricSample<'a> {
    pub(super) name: &'a str,
    /// Labels of the sample, as written between the braces.
    labels: &'a str,
    pub(super) value: f64,
}

/// Error for a line that is not a sample. Lines are counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub(super) struct MetricLineError {
    line: usize,
    problem: &'static str,
}

/// Returns all samples of a text, in order.
pub(super) fn samples(
    text: &str,
) -> impl Iterator<Item = Result<MetricSample<'_>, MetricLineError>> {
    text.lines().enumerate().filter_map(|(at, line)| {
        let line_number = at + 1;
        let line = line.trim_matches([' ', '\t', '\r']);
        if line.is_empty() || line.starts_with('#') {
            return None;
        }
        Some(sample(line).map_err(|problem| MetricLineError { line: line_number, problem }))
    })
}

fn sample(line: &str) -> Result<MetricSample<'_>, &'static str> {
    let end = line.find(['{', ' ', '\t']).ok_or("a value is missing")?;
    let (name, rest) = line.split_at(end);
    if !is_name(name) {
        return Err("a metric's name is letters, digits, _ and :");
    }
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(inside) => {
            let end = end_of_labels(inside)?;
            (&inside[..end], &inside[end + 1..])
        }
        None => ("", rest),
    };
    let mut words = rest.split([' ', '\t']).filter(|word| !word.is_empty());
    let value = words.next().ok_or("a value is missing")?;
    let value = value.parse().map_err(|_| "the value is no number")?;
    let timestamp = words.next().map(str::parse::<i64>);
    if matches!(timestamp, Some(Err(_))) || words.next().is_some() {
        return Err("only a timestamp may follow the value");
    }
    Ok(MetricSample { name, labels, value })
}

fn is_name(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b':';
    text.bytes().all(fits) && text.bytes().next().is_some_and(|first| !first.is_ascii_digit())
}

/// Returns the byte offset of the closing brace. Checks every label on the way, so that later look-ups find valid
/// labels only.
fn end_of_labels(text: &str) -> Result<usize, &'static str> {
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        if rest.starts_with('}') {
            return Ok(text.len() - rest.len());
        }
        let (_, after) = label(rest)?;
        rest = after;
    }
}

type Label<'a> = (&'a str, &'a str);

/// Returns the first label of a text, with its value as written, and the rest of the text.
fn label(text: &str) -> Result<(Label<'_>, &str), &'static str> {
    let (name, rest) = text.split_once('=').ok_or("a label is not closed")?;
    let name = name.trim_matches([' ', '\t']);
    if !is_name(name) || name.contains(':') {
        return Err("a label's name is letters, digits and _");
    }
    let value = rest.trim_start_matches([' ', '\t']).strip_prefix('"');
    let value = value.ok_or("a label's value stands in quotes")?;
    let mut escaped = false;
    for (at, byte) in value.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return Ok(((name, &value[..at]), &value[at + 1..])),
            _ => {}
        }
    }
    Err("a label is not closed")
}

impl<'a> MetricSample<'a> {
    /// Returns the value of a label, unescaped.
    pub(super) fn label(&self, wanted: &str) -> Option<Cow<'a, str>> {
        let mut rest = self.labels;
        loop {
            rest = rest.trim_start_matches([' ', '\t', ',']);
            let ((name, value), after) = label(rest).ok()?;
            if name == wanted {
                return Some(unescaped(value));
            }
            rest = after;
        }
    }
}

fn unescaped(value: &str) -> Cow<'_, str> {
    if !value.contains('\\') {
        return Cow::Borrowed(value);
    }
    let mut plain = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(next) = chars.next() {
        match next {
            '\\' => plain.extend(chars.next().map(|c| if c == 'n' { '\n' } else { c })),
            other => plain.push(other),
        }
    }
    Cow::Owned(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<MetricSample<'_>>, String> {
        samples(text).collect::<Result<_, _>>().map_err(|error| error.to_string())
    }

    #[test]
    fn samples_are_read_and_comments_are_not() {
        let text = "# HELP a b\n# TYPE a gauge\n\na 1\nb{x=\"1\",y=\"a\\\"},{\\n\\\\\",} 2.5 1700\r\n  c:d{ } +Inf\n";
        let samples = read(text).unwrap();
        let seen: Vec<_> = samples.iter().map(|sample| (sample.name, sample.value)).collect();
        assert_eq!(seen, [("a", 1.0), ("b", 2.5), ("c:d", f64::INFINITY)]);
        assert_eq!(samples[1].label("x").as_deref(), Some("1"));
        assert_eq!(samples[1].label("y").as_deref(), Some("a\"},{\n\\"));
        assert_eq!(samples[1].label("z"), None);
    }

    #[test]
    fn what_is_no_sample_is_told_with_its_line() {
        for (text, problem) in [
            ("<html>", "line 1: a value is missing"),
            ("a 1\n<p> 2", "line 2: a metric's name is letters, digits, _ and :"),
            ("a one", "line 1: the value is no number"),
            ("a 1 2 3", "line 1: only a timestamp may follow the value"),
            ("a 1 now", "line 1: only a timestamp may follow the value"),
            ("a{x=\"1\" 1", "line 1: a label is not closed"),
            ("a{x=1} 1", "line 1: a label's value stands in quotes"),
            ("a{1x=\"1\"} 1", "line 1: a label's name is letters, digits and _"),
            ("a{x=\"1\"}", "line 1: a value is missing"),
        ] {
            assert_eq!(read(text), Err(problem.to_owned()), "{text}");
        }
    }

    #[test]
    fn random_bytes_never_panic_and_whole_samples_survive_the_round() {
        let seed = u64::from(fairgate_time::wall_clock::since_1970().subsec_nanos()) | 1;
        println!("seed {seed}");
        let mut state = seed;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let alphabet: Vec<char> = "ab:_1{}=\"\\,. #\n\t-+eE\u{fc}\u{0}".chars().collect();
        let whole = "v:x{m=\"a b\",n=\"c\"} 3 12\n";
        for _ in 0..20_000 {
            let length = next() % 60;
            let picked =
                (0..length).map(|_| alphabet[usize::try_from(next()).unwrap() % alphabet.len()]);
            let noise: String = picked.collect();
            for sample in samples(&noise).flatten() {
                let _ = sample.label("a");
            }
            // A line of its own is read whatever stands before it.
            let text = format!("{noise}\n{whole}");
            let last = samples(&text).last().unwrap().unwrap();
            assert_eq!((last.name, last.value), ("v:x", 3.0));
            assert_eq!(last.label("n").as_deref(), Some("c"));
        }
    }
}
