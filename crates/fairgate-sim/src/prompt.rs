//! What a prompt amounts to: its tokens, its hash, its cacheable prefix, and the wishes written in it.
//!
//! The rule for input tokens: the bytes of all strings in the prompt's fields (keys, and the values of `role` and
//! `type`, do not count) by bytes per token, rounded up once per prompt; plus one for each token id, plus a fixed number for
//! each image. What is inside an image does not count, but it does change the answer.

use serde_json::Value;

use crate::fault::Fault;
use crate::options::SimOptions;
use crate::text::Fnv;

/// How many input tokens a block of the prefix cache holds.
pub const CACHE_BLOCK_TOKENS: u64 = 16;

/// The longest answer that a request can wish for, since some answers are kept whole until their end.
const WISHED_TOKENS_MAX: u64 = 1_000_000;

/// What a request asks of the simulation rather than of the model.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wishes {
    pub(crate) fault: Option<Fault>,
    pub(crate) tokens: Option<u64>,
}

/// One prompt, read.
#[derive(Debug)]
pub(crate) struct Prompt {
    hash: Fnv,
    text_bytes: u64,
    token_ids: u64,
    images: u64,
    block_bytes: Option<u64>,
    /// The hash of everything up to the end of each block: equal hashes, equal prefixes.
    pub(crate) blocks: Vec<u64>,
    steering: bool,
    pub(crate) wishes: Wishes,
}

impl Prompt {
    pub(crate) fn new(model: &str, options: &SimOptions) -> Self {
        let mut hash = Fnv::new();
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
            wishes: Wishes::default(),
        }
    }

    /// Takes in everything that a field of the request holds.
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

    /// Takes in a prompt given as token ids.
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
            self.wishes.read(text);
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

impl Wishes {
    /// Reads the markers of a text, such as `[sim:fault=reset-mid]`. What is not understood is prompt like the rest.
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

    /// The wished length of an answer, within reason.
    pub(crate) fn output_tokens(self) -> Option<u64> {
        self.tokens.map(|tokens| tokens.clamp(1, WISHED_TOKENS_MAX))
    }

    /// These wishes, and the other's where these have none.
    pub(crate) fn or(self, other: Self) -> Self {
        Self { fault: self.fault.or(other.fault), tokens: self.tokens.or(other.tokens) }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn prompt(value: &Value, options: &SimOptions) -> Prompt {
        let mut prompt = Prompt::new("m", options);
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
        let wishes = prompt(&text, &on).wishes;
        assert_eq!((wishes.output_tokens(), wishes.fault), (Some(7), Some(Fault::HangMid)));
        let greedy = Wishes { tokens: Some(u64::MAX), ..wishes };
        assert_eq!(greedy.output_tokens(), Some(WISHED_TOKENS_MAX));
        assert!(prompt(&text, &SimOptions::default()).wishes.fault.is_none());
    }
}
