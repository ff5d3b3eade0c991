//! A prompt as a chain of block hashes.
//!
//! The hash of a block covers everything before it, the model's name included, so equal hashes mean equal prefixes. This is how
//! vLLM names its cache blocks (parent hash, tokens of the block, extra keys such as adapter and salt); SGLang's radix tree
//! shares the same prefixes.
//!
//! Blocks have a fixed number of *bytes*. A fixed number of tokens would need a tokenizer for every model, and a number
//! of bytes that follows a learned rate would move the boundaries of old prompts whenever the rate moves, so that nothing would match.
//! Bytes become tokens only at the end, by the tokens of the whole prompt: exact where a tokenizer counted them.

use std::hash::Hasher;

use siphasher::sip::SipHasher13;

/// Bytes of prompt text in one block: about 64 tokens of English.
///
/// Engines use blocks of 16 tokens and more. A smaller block here would follow them more closely at the price of memory and time: an
/// overlap is half a block short on average, 32 tokens.
pub const BLOCK_BYTES: usize = 256;

/// What the hashes are keyed with. Make one from random bytes when the process starts, and show it to nobody: who knows it
/// can make prompts that are taken for other prompts.
#[derive(Clone, Copy)]
pub struct SecretKey([u8; 16]);

impl SecretKey {
    /// A key of these bytes.
    pub const fn new(random: [u8; 16]) -> Self {
        Self(random)
    }

    fn hasher(self) -> SipHasher13 {
        SipHasher13::new_with_key(&self.0)
    }
}

impl std::fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SecretKey(..)")
    }
}

/// What separates the caches of an engine before a prompt begins. Prompts that differ in any of these share nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identity<'a> {
    /// The model's name, as it is sent upstream.
    pub model: &'a str,
    /// The adapter (LoRA), where it is not part of the model's name; empty for none.
    pub adapter: &'a str,
    /// The cache salt that the engine gets; empty where all share one cache. For the scope `tenant`, something that differs
    /// between tenants.
    pub salt: &'a str,
}

/// The hashes of a prompt's whole blocks, in order, and how many tokens it has. 8 bytes a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    blocks: Box<[u64]>,
    bytes: u64,
    input_tokens: u64,
}

impl Chain {
    /// The hash of the prefix that ends with each block.
    pub(crate) fn blocks(&self) -> &[u64] {
        &self.blocks
    }

    /// How many whole blocks the prompt has. What follows the last one is in no index.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Whether the prompt is shorter than a block.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// The tokens of the whole prompt, as given when the chain was finished.
    pub fn input_tokens(&self) -> u64 {
        self.input_tokens
    }

    /// The tokens of the first blocks, at most those of the prompt.
    pub(crate) fn tokens(&self, blocks: usize) -> u64 {
        let bytes = blocks as u128 * BLOCK_BYTES as u128;
        let tokens = bytes * u128::from(self.input_tokens) / u128::from(self.bytes.max(1));
        u64::try_from(tokens).unwrap_or(u64::MAX).min(self.input_tokens)
    }

    /// The whole blocks that `cached` tokens of `input` cover.
    pub(crate) fn blocks_of(&self, cached: u64, input: u64) -> usize {
        let bytes = u128::from(self.bytes) * u128::from(cached.min(input));
        let blocks = bytes / u128::from(input.max(1)) / BLOCK_BYTES as u128;
        usize::try_from(blocks).unwrap_or(usize::MAX).min(self.blocks.len())
    }
}

/// Makes a [`Chain`] of a prompt's canonical bytes, in the order in which the engine reads them. One pass, 1 block of memory
/// beside the chain.
#[derive(Clone)]
pub struct ChainBuilder {
    key: SecretKey,
    /// The hash of everything before the block that is being filled.
    before: u64,
    block: [u8; BLOCK_BYTES],
    filled: usize,
    blocks: Vec<u64>,
    bytes: u64,
}

impl ChainBuilder {
    /// The chain of a prompt of this identity, before its first byte.
    pub fn new(key: SecretKey, identity: Identity<'_>) -> Self {
        let mut hasher = key.hasher();
        for text in [identity.model, identity.adapter, identity.salt] {
            hasher.write_u64(text.len() as u64);
            hasher.write(text.as_bytes());
        }
        Self {
            key,
            before: hasher.finish(),
            block: [0; BLOCK_BYTES],
            filled: 0,
            blocks: Vec::new(),
            bytes: 0,
        }
    }

    /// Prompt text. How it is cut into calls does not matter.
    pub fn text(&mut self, mut bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        while !bytes.is_empty() {
            let room = (BLOCK_BYTES - self.filled).min(bytes.len());
            let (now, rest) = bytes.split_at(room);
            self.block[self.filled..self.filled + room].copy_from_slice(now);
            self.filled += room;
            bytes = rest;
            if self.filled == BLOCK_BYTES {
                self.seal();
            }
        }
    }

    /// An image, a sound or a document: every byte of it counts for what it is, and `counted_bytes` for how long it is, since
    /// a model does not read it as text.
    pub fn file(&mut self, bytes: &[u8], counted_bytes: usize) {
        let mut hasher = self.key.hasher();
        hasher.write_u64(self.before);
        // Where in the block it stands. No block of text is hashed with a number here.
        hasher.write_u64(self.filled as u64);
        hasher.write(bytes);
        self.before = hasher.finish();
        const NOTHING: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];
        let mut left = counted_bytes;
        while left > 0 {
            let now = left.min(BLOCK_BYTES);
            self.text(&NOTHING[..now]);
            left -= now;
        }
    }

    /// The chain of all that was given, which has `input_tokens` tokens: exact where a tokenizer counted them, else the estimate.
    pub fn finish(self, input_tokens: u64) -> Chain {
        Chain { blocks: self.blocks.into_boxed_slice(), bytes: self.bytes, input_tokens }
    }

    fn seal(&mut self) {
        let mut hasher = self.key.hasher();
        hasher.write_u64(self.before);
        hasher.write(&self.block);
        self.before = hasher.finish();
        self.blocks.push(self.before);
        self.filled = 0;
    }
}

impl std::fmt::Debug for ChainBuilder {
    /// Shows no byte of the prompt.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChainBuilder").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: SecretKey = SecretKey::new([1; 16]);

    fn builder(model: &str) -> ChainBuilder {
        ChainBuilder::new(KEY, Identity { model, ..Identity::default() })
    }

    fn chain(text: &str) -> Chain {
        let mut builder = builder("m");
        builder.text(text.as_bytes());
        builder.finish(text.len() as u64 / 4)
    }

    #[test]
    fn a_longer_prompt_extends_the_chain() {
        let long = "a sentence of a prompt. ".repeat(100);
        let (short, long) = (chain(&long[..1000]), chain(&long));
        assert_eq!((short.len(), long.len()), (3, 9));
        assert_eq!(short.blocks(), &long.blocks()[..3]);
    }

    #[test]
    fn one_byte_changes_every_block_from_there_on() {
        let one = chain(&"x".repeat(2048));
        let mut text = "x".repeat(2048);
        text.replace_range(600..601, "y");
        let two = chain(&text);
        let same: Vec<bool> = one.blocks().iter().zip(two.blocks()).map(|(a, b)| a == b).collect();
        assert_eq!(same, [true, true, false, false, false, false, false, false]);
    }

    #[test]
    fn model_adapter_salt_and_key_start_other_chains() {
        let base = Identity { model: "ab", adapter: "c", salt: "" };
        let others = [
            Identity { model: "a", adapter: "bc", ..base },
            Identity { adapter: "", salt: "c", ..base },
            Identity { salt: "tenant", ..base },
        ];
        let first = |key, identity| {
            let mut builder = ChainBuilder::new(key, identity);
            builder.text(&[7; BLOCK_BYTES]);
            builder.finish(64).blocks()[0]
        };
        for other in others {
            assert_ne!(first(KEY, base), first(KEY, other), "{other:?}");
        }
        assert_ne!(first(KEY, base), first(SecretKey::new([9; 16]), base));
    }

    #[test]
    fn how_the_text_is_cut_does_not_matter() {
        let text = "pieces of text of any length ".repeat(50);
        let mut pieces = builder("m");
        for (number, part) in text.as_bytes().chunks(7).enumerate() {
            let (one, two) = part.split_at(number % part.len());
            pieces.text(one);
            pieces.text(two);
        }
        assert_eq!(pieces.finish(text.len() as u64 / 4), chain(&text));
    }

    #[test]
    fn a_file_counts_for_what_it_is_and_where_it_stands() {
        let with = |before: usize, file: &[u8]| {
            let mut builder = builder("m");
            builder.text(&vec![0; before]);
            builder.file(file, 512);
            builder.text(&vec![0; 1024 - before]);
            builder.finish(384)
        };
        assert_eq!(with(10, b"picture").len(), 6);
        assert_ne!(with(10, b"picture").blocks()[0], with(10, b"another").blocks()[0]);
        assert_ne!(with(10, b"picture").blocks()[0], with(20, b"picture").blocks()[0]);
    }

    #[test]
    fn bytes_become_tokens_by_the_whole_prompt() {
        let chain = chain(&"x".repeat(1000));
        assert_eq!((chain.len(), chain.input_tokens()), (3, 250));
        assert_eq!([0, 1, 3].map(|blocks| chain.tokens(blocks)), [0, 64, 192]);
        assert_eq!(chain.blocks_of(64, 250), 1);
        assert_eq!(chain.blocks_of(127, 250), 1);
        assert_eq!(chain.blocks_of(500, 500), 3);
        assert_eq!(chain.blocks_of(9, 0), 0);
    }
}
