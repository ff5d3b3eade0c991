//! Parsers for the answers to chat completions, from a client's point of view.

use serde_json::Value;

use crate::evidence::AnswerEnd;

/// Incremental parser of a streamed answer.
#[derive(Debug, Default)]
pub(crate) struct StreamParser {
    /// Bytes of a line whose end has not arrived yet.
    rest: Vec<u8>,
    reading: StreamProgress,
    usage: Option<(u64, u64)>,
    finished: bool,
    done: bool,
}

/// Progress of a stream up to the bytes parsed so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StreamProgress {
    /// Number of pieces of text received so far. The simulated models send one token in each piece.
    Tokens(u64),
    /// Description of an error that arrived in place of text.
    Broken(String),
}

impl Default for StreamProgress {
    fn default() -> Self {
        Self::Tokens(0)
    }
}

impl StreamParser {
    /// Parses the next bytes of the stream, line by line.
    pub(crate) fn read(&mut self, bytes: &[u8]) {
        self.rest.extend_from_slice(bytes);
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            if let Some(data) = line.trim_ascii_end().strip_prefix(b"data:") {
                self.event(data.trim_ascii());
            }
        }
    }

    pub(crate) fn reading(&self) -> &StreamProgress {
        &self.reading
    }

    /// Returns whether a `finish_reason` has arrived.
    pub(crate) fn has_finished(&self) -> bool {
        self.finished
    }

    fn event(&mut self, data: &[u8]) {
        if data == b"[DONE]" {
            self.done = true;
            return;
        }
        let Ok(event) = serde_json::from_slice::<Value>(data) else {
            self.reading = StreamProgress::Broken("an event that is no JSON".into());
            return;
        };
        if let Some(error) = event.get("error") {
            let code = error["code"].as_str().unwrap_or("without a code");
            self.reading = StreamProgress::Broken(format!("an error in the stream: {code}"));
            return;
        }
        self.usage = usage(&event).or(self.usage);
        self.finished |= event["choices"][0]["finish_reason"].is_string();
        let text = event["choices"][0]["delta"]["content"].as_str().unwrap_or_default();
        if let (StreamProgress::Tokens(tokens), false) = (&mut self.reading, text.is_empty()) {
            *tokens += 1;
        }
    }

    /// Ends the stream and returns its result. A stream counts as broken if it has no `[DONE]` or
    /// no usage, or if its usage differs from the number of tokens received.
    pub(crate) fn end(self) -> AnswerEnd {
        match (self.reading, self.done, self.usage) {
            (StreamProgress::Broken(how), _, _) => AnswerEnd::Broken { how },
            (StreamProgress::Tokens(tokens), false, _) => {
                AnswerEnd::Broken { how: format!("the stream broke off after {tokens} tokens") }
            }
            (_, true, None) => AnswerEnd::Broken { how: "a whole stream without its usage".into() },
            (StreamProgress::Tokens(tokens), true, Some((_, output))) if tokens != output => {
                let how = format!("{tokens} tokens came where the usage tells of {output}");
                AnswerEnd::Broken { how }
            }
            (_, true, Some((input, output))) => AnswerEnd::Completed { input, output },
        }
    }
}

/// Parses an answer that was not streamed. An answer without usage counts as broken.
pub(crate) fn parse_whole(body: &[u8]) -> AnswerEnd {
    let usage = serde_json::from_slice::<Value>(body).ok().as_ref().and_then(usage);
    match usage {
        Some((input, output)) => AnswerEnd::Completed { input, output },
        None => AnswerEnd::Broken { how: "an answer without its usage".into() },
    }
}

/// Returns the input and output tokens of the `usage` object, if the JSON has one.
fn usage(value: &Value) -> Option<(u64, u64)> {
    let usage = value.get("usage")?;
    let (input, total) = (usage["prompt_tokens"].as_u64()?, usage["total_tokens"].as_u64());
    // Embeddings have no output, and their usage has no field for it.
    let no_output = (total == Some(input)).then_some(0);
    Some((input, usage["completion_tokens"].as_u64().or(no_output)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORD: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"word\"}}]}\n\n";
    const USAGE: &str =
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":2}}\r\n\r\n";

    fn seen(text: &str) -> AnswerEnd {
        let mut stream = StreamParser::default();
        // Byte by byte, as no network would be kind enough to cut it.
        text.bytes().for_each(|byte| stream.read(&[byte]));
        stream.end()
    }

    #[test]
    fn a_stream_is_whole_only_with_its_usage_and_its_end() {
        let all = format!("{WORD}{WORD}{USAGE}data: [DONE]\n\n");
        assert_eq!(seen(&all), AnswerEnd::Completed { input: 7, output: 2 });
        for broken in [
            format!("{WORD}{WORD}{USAGE}"),
            format!("{WORD}{WORD}data: [DONE]\n\n"),
            format!("{WORD}{USAGE}data: [DONE]\n\n"),
            format!("{WORD}data: {{\"error\":{{\"code\":\"upstream_broke\"}}}}\n\n"),
            "data: nonsense\n\n".to_owned(),
        ] {
            assert!(matches!(seen(&broken), AnswerEnd::Broken { .. }), "{broken}");
        }
    }

    #[test]
    fn a_whole_answer_has_its_usage() {
        let body = br#"{"usage":{"prompt_tokens":3,"completion_tokens":4}}"#;
        assert_eq!(parse_whole(body), AnswerEnd::Completed { input: 3, output: 4 });
        let body = br#"{"usage":{"prompt_tokens":3,"total_tokens":3}}"#;
        assert_eq!(parse_whole(body), AnswerEnd::Completed { input: 3, output: 0 });
        let no_output = br#"{"usage":{"prompt_tokens":3,"total_tokens":7}}"#;
        assert!(matches!(parse_whole(no_output), AnswerEnd::Broken { .. }));
        assert!(matches!(parse_whole(b"{\"usage\":{\"prom"), AnswerEnd::Broken { .. }));
    }
}
