//! Answers, as a client reads them.

use serde_json::Value;

use crate::evidence::Seen;

/// A streamed answer, read as it comes.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    /// A line that has not ended.
    rest: Vec<u8>,
    reading: Reading,
    usage: Option<(u64, u64)>,
    finished: bool,
    done: bool,
}

/// How far a stream is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// So many pieces of text came.
    Tokens(u64),
    /// An error came in its place.
    Broken(String),
}

impl Default for Reading {
    fn default() -> Self {
        Self::Tokens(0)
    }
}

impl Stream {
    /// Takes the next bytes.
    pub(crate) fn read(&mut self, bytes: &[u8]) {
        self.rest.extend_from_slice(bytes);
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            if let Some(data) = line.trim_ascii_end().strip_prefix(b"data:") {
                self.event(data.trim_ascii());
            }
        }
    }

    pub(crate) fn reading(&self) -> &Reading {
        &self.reading
    }

    /// Whether the model has said why it stopped.
    pub(crate) fn has_finished(&self) -> bool {
        self.finished
    }

    fn event(&mut self, data: &[u8]) {
        if data == b"[DONE]" {
            self.done = true;
            return;
        }
        let Ok(event) = serde_json::from_slice::<Value>(data) else {
            self.reading = Reading::Broken("an event that is no JSON".into());
            return;
        };
        if let Some(error) = event.get("error") {
            let code = error["code"].as_str().unwrap_or("without a code");
            self.reading = Reading::Broken(format!("an error in the stream: {code}"));
            return;
        }
        self.usage = usage(&event).or(self.usage);
        self.finished |= event["choices"][0]["finish_reason"].is_string();
        let text = event["choices"][0]["delta"]["content"].as_str().unwrap_or_default();
        if let (Reading::Tokens(tokens), false) = (&mut self.reading, text.is_empty()) {
            *tokens += 1;
        }
    }

    /// Nothing more comes.
    pub(crate) fn end(self) -> Seen {
        match (self.reading, self.done, self.usage) {
            (Reading::Broken(how), _, _) => Seen::Broken { how },
            (Reading::Tokens(tokens), false, _) => {
                Seen::Broken { how: format!("the stream broke off after {tokens} tokens") }
            }
            (_, true, None) => Seen::Broken { how: "a whole stream without its usage".into() },
            (Reading::Tokens(tokens), true, Some((_, output))) if tokens != output => {
                let how = format!("{tokens} tokens came where the usage tells of {output}");
                Seen::Broken { how }
            }
            (_, true, Some((input, output))) => Seen::Completed { input, output },
        }
    }
}

/// An answer that came in one piece.
pub(crate) fn whole(body: &[u8]) -> Seen {
    let usage = serde_json::from_slice::<Value>(body).ok().as_ref().and_then(usage);
    match usage {
        Some((input, output)) => Seen::Completed { input, output },
        None => Seen::Broken { how: "an answer without its usage".into() },
    }
}

/// Input and output tokens.
fn usage(value: &Value) -> Option<(u64, u64)> {
    let usage = value.get("usage")?;
    Some((usage["prompt_tokens"].as_u64()?, usage["completion_tokens"].as_u64()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORD: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"word\"}}]}\n\n";
    const USAGE: &str =
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":2}}\r\n\r\n";

    fn seen(text: &str) -> Seen {
        let mut stream = Stream::default();
        // Byte by byte, as no network would be kind enough to cut it.
        text.bytes().for_each(|byte| stream.read(&[byte]));
        stream.end()
    }

    #[test]
    fn a_stream_is_whole_only_with_its_usage_and_its_end() {
        let all = format!("{WORD}{WORD}{USAGE}data: [DONE]\n\n");
        assert_eq!(seen(&all), Seen::Completed { input: 7, output: 2 });
        for broken in [
            format!("{WORD}{WORD}{USAGE}"),
            format!("{WORD}{WORD}data: [DONE]\n\n"),
            format!("{WORD}{USAGE}data: [DONE]\n\n"),
            format!("{WORD}data: {{\"error\":{{\"code\":\"upstream_broke\"}}}}\n\n"),
            "data: nonsense\n\n".to_owned(),
        ] {
            assert!(matches!(seen(&broken), Seen::Broken { .. }), "{broken}");
        }
    }

    #[test]
    fn a_whole_answer_has_its_usage() {
        let body = br#"{"usage":{"prompt_tokens":3,"completion_tokens":4}}"#;
        assert_eq!(whole(body), Seen::Completed { input: 3, output: 4 });
        assert!(matches!(whole(b"{\"usage\":{\"prom"), Seen::Broken { .. }));
    }
}
