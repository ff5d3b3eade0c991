//! The weights of models by model family, in one table for the gateway and the Python package.
//!
//! The weight of a call is what the call adds to the queue depth of a `load` node. It is given in thousandths.
//!
//! A name is looked up by its longest match: of all entries whose words are in the name as whole words, the entry with
//! the most characters counts. Words are separated by `-`, `_`, `.`, `/`, `:`, `@` and blanks, so `gemini` does not
//! have the word `mini`. Prefixes and suffixes of providers (`us.anthropic.claude-…-v1:0`, `models/gemini-…`, dates) do
//! not matter.
//!
//! The weights are those of the load function's page: 1 for small models, 2 to 3 for the middle, 5 for the largest.
//! Reasoning models that answer with many tokens are one step higher than other models of their price.

use std::sync::LazyLock;

const SMALL: u32 = 1000;
const MIDDLE: u32 = 2000;
const UPPER: u32 = 3000;
const LARGE: u32 = 5000;

/// Weight of a model that the table does not name, in thousandths.
pub const OTHER_MODEL_WEIGHT: u32 = MIDDLE;

/// Families of models with their weights in thousandths. A family is named by words that are in its models' names in
/// this order.
pub const MODEL_WEIGHTS: &[(&str, u32)] = &[
    // Anthropic
    ("claude-haiku", SMALL),
    ("claude-sonnet", MIDDLE),
    ("claude-opus", LARGE),
    ("haiku", SMALL),
    ("claude-instant", SMALL),
    ("sonnet", MIDDLE),
    ("claude", MIDDLE),
    ("opus", LARGE),
    ("claude-2", UPPER),
    // OpenAI
    ("gpt-3.5", SMALL),
    ("gpt-4", UPPER),
    ("gpt-4-turbo", UPPER),
    ("gpt-4-32k", LARGE),
    ("gpt-4.1", UPPER),
    ("gpt-4.1-mini", SMALL),
    ("gpt-4.1-nano", SMALL),
    ("gpt-4.5", LARGE),
    ("gpt-4o", UPPER),
    ("gpt-4o-mini", SMALL),
    ("chatgpt-4o", UPPER),
    ("gpt-5", UPPER),
    ("gpt-5-mini", SMALL),
    ("gpt-5-nano", SMALL),
    ("gpt-5-pro", LARGE),
    ("gpt-5-codex", UPPER),
    ("gpt-5-codex-mini", SMALL),
    ("gpt-oss-20b", SMALL),
    ("gpt-oss-120b", MIDDLE),
    ("codex-mini", SMALL),
    ("computer-use-preview", UPPER),
    ("o1", LARGE),
    ("o1-mini", MIDDLE),
    ("o1-pro", LARGE),
    ("o3", LARGE),
    ("o3-mini", MIDDLE),
    ("o3-pro", LARGE),
    ("o4-mini", MIDDLE),
    ("davinci", LARGE),
    ("babbage", SMALL),
    ("whisper", SMALL),
    ("tts", SMALL),
    ("moderation", SMALL),
    // Google
    ("gemini", MIDDLE),
    ("gemini-flash", SMALL),
    ("gemini-pro", UPPER),
    ("gemini-ultra", LARGE),
    ("flash", SMALL),
    ("flash-lite", SMALL),
    ("gemma", SMALL),
    ("palm", MIDDLE),
    ("bison", MIDDLE),
    // Amazon
    ("nova-micro", SMALL),
    ("nova-lite", SMALL),
    ("nova-pro", MIDDLE),
    ("nova-premier", LARGE),
    ("titan-text-lite", SMALL),
    ("titan", MIDDLE),
    // Meta, Mistral, DeepSeek, Alibaba, xAI, Cohere, Moonshot, Zhipu
    ("llama", MIDDLE),
    ("llama-1b", SMALL),
    ("llama-3b", SMALL),
    ("llama-8b", SMALL),
    ("llama-70b", MIDDLE),
    ("llama-405b", LARGE),
    ("llama-scout", MIDDLE),
    ("llama-maverick", UPPER),
    ("mistral-large", UPPER),
    ("mistral-medium", MIDDLE),
    ("mistral-small", SMALL),
    ("ministral", SMALL),
    ("codestral", MIDDLE),
    ("magistral", MIDDLE),
    ("mixtral", MIDDLE),
    ("deepseek-chat", MIDDLE),
    ("deepseek-reasoner", UPPER),
    ("deepseek-r1", UPPER),
    ("deepseek", MIDDLE),
    ("qwen-turbo", SMALL),
    ("qwen-plus", MIDDLE),
    ("qwen-max", UPPER),
    ("qwen-7b", SMALL),
    ("qwen-8b", SMALL),
    ("qwen-14b", SMALL),
    ("qwen-235b", UPPER),
    ("qwen", MIDDLE),
    ("grok", UPPER),
    ("grok-3-mini", SMALL),
    ("command-r", MIDDLE),
    ("command-a", UPPER),
    ("command-light", SMALL),
    ("kimi", MIDDLE),
    ("glm", MIDDLE),
    // Sizes that many families have
    ("mini", SMALL),
    ("nano", SMALL),
    ("lite", SMALL),
    ("tiny", SMALL),
    ("small", SMALL),
    ("embedding", SMALL),
    ("embed", SMALL),
    ("rerank", SMALL),
];

/// A table of model families, prepared for look-ups.
#[derive(Clone, Debug)]
pub struct ModelWeights<W> {
    entries: Vec<ModelFamily<W>>,
    other: W,
}

#[derive(Clone, Debug)]
struct ModelFamily<W> {
    words: Vec<String>,
    characters: usize,
    weight: W,
}

impl<W: Copy> ModelWeights<W> {
    /// Prepares a table. `other` is the weight of a model that matches no entry.
    pub fn new<'a>(entries: impl IntoIterator<Item = (&'a str, W)>, other: W) -> Self {
        let prepare = |(name, weight): (&str, W)| ModelFamily {
            words: model_name_words(name),
            characters: name.chars().count(),
            weight,
        };
        Self { entries: entries.into_iter().map(prepare).collect(), other }
    }

    /// Returns the weight of the longest entry that matches a model's name. Of equally long entries, the first counts.
    pub fn weight(&self, model: &str) -> W {
        let name = model_name_words(model);
        let mut best: Option<&ModelFamily<W>> = None;
        for entry in &self.entries {
            let is_longer = best.is_none_or(|best| entry.characters > best.characters);
            if is_longer && is_in_name(&entry.words, &name) {
                best = Some(entry);
            }
        }
        best.map_or(self.other, |entry| entry.weight)
    }
}

/// Returns the weight of a short call to this model, in thousandths.
pub fn model_weight(model: &str) -> u32 {
    static TABLE: LazyLock<ModelWeights<u32>> =
        LazyLock::new(|| ModelWeights::new(MODEL_WEIGHTS.iter().copied(), OTHER_MODEL_WEIGHT));
    TABLE.weight(model)
}

/// Splits a model's name into words, in lower case. A point between digits does not separate words: `gpt-4.1` has two
/// words.
pub fn model_name_words(name: &str) -> Vec<String> {
    let name: Vec<char> = name.to_lowercase().chars().collect();
    let is_digit =
        |at: Option<usize>| at.and_then(|at| name.get(at)).is_some_and(char::is_ascii_digit);
    let mut words = vec![String::new()];
    for (at, &character) in name.iter().enumerate() {
        let separates = match character {
            '-' | '_' | '/' | ':' | '@' => true,
            '.' => !is_digit(at.checked_sub(1)) || !is_digit(Some(at + 1)),
            other => other.is_whitespace(),
        };
        match words.last_mut() {
            Some(word) if !separates => word.push(character),
            _ => words.push(String::new()),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Returns true if the words are in a name in this order. Version numbers may be between them, as in
/// `gemini-2.5-flash`.
fn is_in_name(entry: &[String], name: &[String]) -> bool {
    !entry.is_empty() && (0..name.len()).any(|start| fits_from(entry, &name[start..]))
}

fn fits_from(entry: &[String], name: &[String]) -> bool {
    let mut left = name;
    for (number, word) in entry.iter().enumerate() {
        while number > 0
            && let [next, rest @ ..] = left
            && !is_word(word, next)
            && is_version(next)
        {
            left = rest;
        }
        match left {
            [next, rest @ ..] if is_word(word, next) => left = rest,
            _ => return false,
        }
    }
    true
}

/// Returns true if a word of the table matches a word of a name. The word of the name may add a version: `5` matches
/// `5.1`, and `qwen` matches `qwen2.5`.
fn is_word(word: &str, in_name: &str) -> bool {
    let Some(rest) = in_name.strip_prefix(word) else { return false };
    let ends_in_digit = word.ends_with(|last: char| last.is_ascii_digit());
    match word.bytes().all(|byte| byte.is_ascii_digit()) {
        true => rest.is_empty() || rest.starts_with('.'),
        false => {
            let is_version = rest.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
            rest.is_empty() || (!ends_in_digit && is_version)
        }
    }
}

fn is_version(word: &str) -> bool {
    word.starts_with(|first: char| first.is_ascii_digit())
        || ["preview", "exp", "latest", "v1", "v2", "v3"].contains(&word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_providers_have_the_weight_of_their_family() {
        for (name, weight) in [
            ("claude-haiku-4-5", 1000),
            ("us.anthropic.claude-3-opus-20240229-v1:0", 5000),
            ("models/gemini-2.5-flash", 1000),
            ("gemini-2.5-pro", 3000),
            ("gpt-4o-mini-2024-07-18", 1000),
            ("gpt-4.1", 3000),
            ("GPT-5.1", 3000),
            ("qwen2.5-7b-instruct", 1000),
            ("o1", 5000),
            ("gemini", 2000),
            ("my-own-model", OTHER_MODEL_WEIGHT),
            ("", OTHER_MODEL_WEIGHT),
        ] {
            assert_eq!(model_weight(name), weight, "{name}");
        }
    }

    #[test]
    fn the_order_of_a_table_does_not_matter() {
        let turned = ModelWeights::new(MODEL_WEIGHTS.iter().rev().copied(), OTHER_MODEL_WEIGHT);
        for (name, weight) in MODEL_WEIGHTS {
            assert_eq!((model_weight(name), turned.weight(name)), (*weight, *weight), "{name}");
        }
    }

    #[test]
    fn a_point_separates_words_unless_it_is_between_digits() {
        assert_eq!(
            model_name_words("US.meta.Llama3.1-8b:v1 x"),
            ["us", "meta", "llama3.1", "8b", "v1", "x"]
        );
        assert_eq!(model_name_words("-.-"), Vec::<String>::new());
    }
}
