//! A parsed prompt, with the number of tokens, the hash, the cacheable prefix and the steering markers.
//!
//! The number of input tokens is the sum of the tokens of the text, one for each token id, and a fixed number for each
//! image. The tokens of the text are the bytes of all strings in the prompt's fields, without keys and without the
//! values of `role` and `type`, divided by bytes per token and rounded up once per prompt. The contents of an image do
//! not change the number of tokens, but they change the answer.

use serde_json::Value;

use crate::fault::SimFault;
use crate::options::SimOptions;
use crate::text::FnvHash;

/// Number of input tokens in one block of the prefix cache.
pub const CACHE_BLOCK_TOKENS: u64 = 16;

/// Length in tokens of the longest answer that a request can ask for by steering. It is limited because some answers
/// are buffered until their end.
const STEERED_TOKENS_MAX: u64 = 1_000_000;

/// The fault and the answer length that one request asks for. A field is `None` if the request does not ask for it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SteeringOptions {
    pub(crate) fault: Option<SimFault>,
    pub(crate) tokens: Option<u64>,
}

/// One parsed prompt, without its text.
#[derive(Debug)]
pub(crate) struct ParsedPrompt {
    hash: FnvHash,
    text_bytes: u64,
    token_ids: u64,
    images: u64,
    block_bytes: Option<u64>,
    /// Hash of the prompt up to the end of each whole block. Equal hashes mean equal prefixes.
    pub(crate) blocks: Vec<u64>,
    steering: bool,
    pub(crate) steering_options: SteeringOptions,
}

impl ParsedPrompt {
    pub(crate) fn new(model: &str, options: &SimOptions) -> Self {
        let mut hash = FnvHash::new();
        hash.text(model);
        let block_bytes = options.bytes_per_token.bytes(CACHE_BLOCK_TOKENS);
        Self {
            hash,
            text_bytes: 0,
            token_ids: 0,
            images: 0,
            block_bytes: (options.prefix_cache_blocks > 0).then_some(block_bytes),
            blocks: Vec::new(),
            steering: options.steering,
            steering_options: SteeringOptions::default(),
        }
    }

    /// Adds all strings and images in a field of the request to the prompt.
    pub(crate) fn read(&mut self, value: &Value) {
        match value {
            Value::String(text) => self.text(text),
            Value::Array(items) => items.iter().for_each(|item| self.read(item)),
            Value::Object(fields) => {
                let kind = fields.get("type").and_then(Value::as_str);
                if matches!(kind, Some("image" | "image_url" | "input_image")) {
                    self.images += 1;
                    return self.hash_only(value);
                }
                for (key, value) in fields {
                    if !(value.is_string() && matches!(key.as_str(), "role" | "type")) {
                        self.read(value);
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// Adds a list of token ids to the prompt; each id counts as one token.
    pub(crate) fn read_token_ids(&mut self, ids: &[Value]) {
        for id in ids {
            self.token_ids += 1;
            self.hash.text(&id.to_string());
        }
    }

    pub(crate) fn tokens(&self, options: &SimOptions) -> u64 {
        options
            .bytes_per_token
            .tokens(self.text_bytes)
            .saturating_add(self.token_ids)
            .saturating_add(self.images.saturating_mul(options.image_tokens))
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash.value()
    }

    fn text(&mut self, text: &str) {
        if self.steering {
            self.steering_options.read(text);
        }
        for byte in text.bytes() {
            self.hash.byte(byte);
            self.text_bytes += 1;
            if let Some(block) = self.block_bytes
                && self.text_bytes.is_multiple_of(block)
            {
                self.blocks.push(self.hash.value());
            }
        }
        self.hash.byte(0xff);
    }

    fn hash_only(&mut self, value: &Value) {
        match value {
            Value::String(text) => self.hash.text(text),
            Value::Array(items) => items.iter().for_each(|item| self.hash_only(item)),
            Value::Object(fields) => fields.values().for_each(|value| self.hash_only(value)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

impl SteeringOptions {
    /// Reads the markers in a text, such as `[sim:fault=reset-mid]`. Ignores unknown markers and invalid values.
    fn read(&mut self, text: &str) {
        for marker in text.split("[sim:").skip(1) {
            let Some((marker, _)) = marker.split_once(']') else { continue };
            match marker.split_once('=') {
                Some(("fault", fault)) => self.fault = fault.parse().ok().or(self.fault),
                Some(("tokens", tokens)) => self.tokens = tokens.parse().ok().or(self.tokens),
                _ => {}
            }
        }
    }

    /// Returns the answer length in tokens that the request asks for, limited to [`STEERED_TOKENS_MAX`]; `None` if the
    /// request asks for no length.
    pub(crate) fn output_tokens(self) -> Option<u64> {
        self.tokens.map(|tokens| tokens.clamp(1, STEERED_TOKENS_MAX))
    }

    /// Returns these options, with each absent field taken from `other`.
    pub(crate) fn or(self, other: Self) -> Self {
        Self { fault: self.fault.or(other.fault), tokens: self.tokens.or(other.tokens) }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn prompt(value: &Value, options: &SimOptions) -> ParsedPrompt {
        let mut prompt = ParsedPrompt::new("m", options);
        prompt.read(value);
        prompt
    }

    #[test]
    fn strings_count_by_bytes_and_images_by_the_piece() {
        let options = SimOptions { image_tokens: 10, ..SimOptions::default() };
        let tokens = |value| prompt(&value, &options).tokens(&options);
        assert_eq!(tokens(json!([{"role": "user", "content": "12345678"}])), 2);
        assert_eq!(tokens(json!([{"role": "user", "content": "123456789"}])), 3);
        let image =
            json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}});
        assert_eq!(tokens(json!([{"content": [{"type": "text", "text": "1234"}, image]}])), 11);
    }

    #[test]
    fn an_image_changes_the_hash() {
        let options = SimOptions::default();
        let hash = |url| {
            let image = json!({"type": "input_image", "image_url": url});
            prompt(&image, &options).hash()
        };
        assert_ne!(hash("data:a"), hash("data:b"));
    }

    #[test]
    fn equal_prefixes_have_equal_blocks() {
        let options = SimOptions { prefix_cache_blocks: 10, ..SimOptions::default() };
        let long = "x".repeat(200);
        let one = prompt(&json!(format!("{long}one")), &options);
        let two = prompt(&json!(format!("{long}two, longer than the other")), &options);
        assert_eq!((one.blocks.len(), two.blocks.len()), (3, 3));
        assert_eq!(one.blocks, two.blocks);
        assert!(prompt(&json!(long), &SimOptions::default()).blocks.is_empty());
    }

    #[test]
    fn markers_are_wishes_only_where_steering_is_on() {
        let text = json!("a [sim:tokens=7] b [sim:fault=hang-mid][sim:fault=nonsense] [sim:");
        let on = SimOptions { steering: true, ..SimOptions::default() };
        let steering_options = prompt(&text, &on).steering_options;
        assert_eq!(
            (steering_options.output_tokens(), steering_options.fault),
            (Some(7), Some(SimFault::HangMid))
        );
        let greedy = SteeringOptions { tokens: Some(u64::MAX), ..steering_options };
        assert_eq!(greedy.output_tokens(), Some(STEERED_TOKENS_MAX));
        assert!(prompt(&text, &SimOptions::default()).steering_options.fault.is_none());
    }
}
