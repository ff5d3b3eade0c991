//! Hashes, and the words of answers. All pseudo-random numbers are derived from the prompt.

use fairgate_random::number_at;

/// A hash by the 64-bit FNV-1a algorithm, which is small and gives the same result on all platforms and in all
/// versions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FnvHash(u64);

impl FnvHash {
    pub(crate) fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    pub(crate) fn byte(&mut self, byte: u8) {
        self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }

    /// Adds a text and a terminator to the hash, so that the texts `ab` and `c` give another hash than `a` and `bc`.
    pub(crate) fn text(&mut self, text: &str) {
        for byte in text.bytes() {
            self.byte(byte);
        }
        self.byte(0xff);
    }

    pub(crate) fn value(self) -> u64 {
        number_at(self.0, 0)
    }
}

/// The words of all answers. They have only ASCII letters, so that no word needs escaping in JSON.
const WORDS: [&str; 64] = [
    "a", "able", "above", "again", "air", "all", "amber", "answer", "arch", "at", "autumn",
    "balance", "bay", "bell", "bridge", "calm", "carries", "cedar", "clear", "cloud", "coast",
    "copper", "day", "door", "each", "early", "evening", "every", "fair", "far", "field", "finds",
    "flows", "garden", "gate", "gives", "green", "harbour", "holds", "in", "keeps", "lake",
    "light", "long", "meets", "morning", "near", "north", "of", "old", "opens", "over", "quiet",
    "rain", "river", "road", "shares", "slow", "stone", "the", "through", "turns", "under", "wide",
];

const SENTENCE_WORDS: u64 = 12;

/// Writes the word at `index` of the text of `seed`, with a space before every word except the first. One word is one
/// token.
pub(crate) fn write_word(out: &mut String, seed: u64, index: u64) {
    let pick = usize::try_from(number_at(seed, index) % 64).unwrap_or(0);
    let word = WORDS[pick];
    if index > 0 {
        out.push(' ');
    }
    if index.is_multiple_of(SENTENCE_WORDS) {
        out.extend(word.chars().take(1).map(|first| first.to_ascii_uppercase()));
        out.push_str(&word[1..]);
    } else {
        out.push_str(word);
    }
    if index % SENTENCE_WORDS == SENTENCE_WORDS - 1 {
        out.push('.');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(seed: u64, count: u64) -> String {
        let mut text = String::new();
        (0..count).for_each(|index| write_word(&mut text, seed, index));
        text
    }

    #[test]
    fn a_text_is_its_seeds_and_counts_by_words() {
        assert_eq!(words(7, 40), words(7, 40));
        assert_ne!(words(7, 40), words(8, 40));
        assert_eq!(words(7, 40).split_whitespace().count(), 40);
        assert!(words(7, 12).ends_with('.') && words(7, 1).starts_with(char::is_uppercase));
    }

    #[test]
    fn no_word_needs_escaping() {
        assert!(WORDS.iter().all(|word| word.bytes().all(|byte| byte.is_ascii_lowercase())));
    }

    #[test]
    fn the_border_between_texts_counts() {
        let of = |texts: &[&str]| {
            let mut hash = FnvHash::new();
            texts.iter().for_each(|text| hash.text(text));
            hash.value()
        };
        assert_ne!(of(&["ab", "c"]), of(&["a", "bc"]));
    }
}
