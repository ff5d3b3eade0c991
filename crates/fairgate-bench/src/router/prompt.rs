//! Prompts without their text, for runs in virtual time. They are divided into the same blocks as
//! in the caches of the simulated workers.

use std::hash::{DefaultHasher, Hash, Hasher};

use fairgate_sim::CACHE_BLOCK_TOKENS;

/// A piece of text, represented by the seed from which it would be generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SeededText {
    pub(crate) seed: u64,
    pub(crate) tokens: u64,
}

/// A prompt without its text: the number of tokens, and a hash of each prefix that consists of
/// whole cache blocks. Equal hashes mean equal prefixes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BlockPrompt {
    pub(crate) tokens: u64,
    pub(crate) blocks: Vec<u64>,
}

impl BlockPrompt {
    /// Builds the prompt that consists of the given texts in their order.
    pub(crate) fn of(texts: impl Iterator<Item = SeededText>) -> Self {
        let (mut tokens, mut hasher) = (0, DefaultHasher::new());
        let mut blocks = Vec::new();
        for text in texts {
            let mut read = 0;
            while read < text.tokens {
                let room = CACHE_BLOCK_TOKENS - tokens % CACHE_BLOCK_TOKENS;
                let now = room.min(text.tokens - read);
                (text.seed, read, now).hash(&mut hasher);
                (tokens, read) = (tokens + now, read + now);
                if tokens % CACHE_BLOCK_TOKENS == 0 {
                    blocks.push(hasher.finish());
                }
            }
        }
        Self { tokens, blocks }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompt(texts: &[(u64, u64)]) -> BlockPrompt {
        BlockPrompt::of(texts.iter().map(|&(seed, tokens)| SeededText { seed, tokens }))
    }

    #[test]
    fn prompts_share_the_blocks_of_what_they_begin_with() {
        let (one, two) = (prompt(&[(1, 40), (2, 100)]), prompt(&[(1, 40), (3, 100)]));
        assert_eq!((one.tokens, one.blocks.len()), (140, 8));
        let same = one.blocks.iter().zip(&two.blocks).take_while(|(a, b)| a == b).count();
        assert_eq!(same, 2, "the third block has another end");
        assert_eq!(prompt(&[(1, 40), (2, 100), (4, 9)]).blocks[..8], one.blocks);
    }
}
