//! A prompt as a chain of block hashes.
//!
//! The hash of a block covers everything before it, including the model's name, so equal hashes mean equal prefixes.
//! vLLM names its cache blocks the same way (parent hash, tokens of the block, extra keys such as adapter and salt);
//! SGLang's radix tree shares the same prefixes.
//!
//! Blocks have a fixed number of *bytes*. A fixed number of tokens would need a tokenizer for every model, and a number
//! of bytes that follows a learned rate would move the boundaries of old prompts whenever the rate moves, so that
//! nothing would match. Only the result is converted from bytes to tokens, in proportion to the number of tokens of the
//! whole prompt. That number is exact if a tokenizer counted it.

use std::hash::Hasher;

use siphasher::sip::SipHasher13;

/// Number of bytes of prompt text in one block, which is about 64 tokens of English.
///
/// Engines use blocks of 16 tokens and more. An overlap counted in blocks of this size is too short by half a block on
/// average, which is about 32 tokens. Smaller blocks would be more exact, but would cost more memory and time.
pub const BLOCK_BYTES: usize = 256;

/// The secret key of all hashes. Create one from random bytes when the process starts, and keep it secret, because a
/// client that knows the key can construct prompts that are mistaken for other prompts.
#[derive(Clone, Copy)]
pub struct SecretKey([u8; 16]);

impl SecretKey {
    /// Creates a key from these bytes, which must be random.
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

/// The properties of a request, besides its prompt, by which an engine separates its caches. Prompts that differ in any
/// of these share no blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheIdentity<'a> {
    /// Name of the model, as it is sent upstream.
    pub model: &'a str,
    /// The adapter (LoRA), if it is not part of the model's name; empty for none.
    pub adapter: &'a str,
    /// The cache salt that the engine gets; empty if all requests share one cache. For the cache scope `tenant`, a text
    /// that differs between tenants.
    pub salt: &'a str,
}

/// The hashes of a prompt's whole blocks, in order, and the prompt's number of tokens. Takes 8 bytes per block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromptChain {
    blocks: Box<[u64]>,
    bytes: u64,
    input_tokens: u64,
}

impl PromptChain {
    /// Returns the hashes of the chain; each covers the prefix that ends with its block.
    pub(crate) fn blocks(&self) -> &[u64] {
        &self.blocks
    }

    /// Returns the number of whole blocks of the prompt. Bytes after the last whole block are in no index.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Returns true if the prompt is shorter than a block.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Returns the number of tokens of the whole prompt, as given to [`PromptChainBuilder::finish`].
    pub fn input_tokens(&self) -> u64 {
        self.input_tokens
    }

    /// Returns the number of tokens in the first `blocks` blocks, at most the tokens of the whole prompt.
    pub(crate) fn tokens(&self, blocks: usize) -> u64 {
        let bytes = blocks as u128 * BLOCK_BYTES as u128;
        let tokens = bytes * u128::from(self.input_tokens) / u128::from(self.bytes.max(1));
        u64::try_from(tokens).unwrap_or(u64::MAX).min(self.input_tokens)
    }

    /// Returns the number of whole blocks that are covered if `cached` of the prompt's `input` tokens are cached.
    pub(crate) fn blocks_of(&self, cached: u64, input: u64) -> usize {
        let bytes = u128::from(self.bytes) * u128::from(cached.min(input));
        let blocks = bytes / u128::from(input.max(1)) / BLOCK_BYTES as u128;
        usize::try_from(blocks).unwrap_or(usize::MAX).min(self.blocks.len())
    }
}

/// Builds a [`PromptChain`] from a prompt's canonical bytes, in the order in which the engine reads them. Building
/// takes one pass, and the memory of one block besides the chain.
#[derive(Clone)]
pub struct PromptChainBuilder {
    key: SecretKey,
    /// The hash of all bytes before the block that is being filled.
    before: u64,
    block: [u8; BLOCK_BYTES],
    filled: usize,
    blocks: Vec<u64>,
    bytes: u64,
}

impl PromptChainBuilder {
    /// Starts the chain of a prompt with this identity, before the prompt's first byte.
    pub fn new(key: SecretKey, identity: CacheIdentity<'_>) -> Self {
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

    /// Appends prompt text. A text may be split over several calls in any way.
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

    /// Appends an image, a sound or a document. All its bytes enter the hash, but its length counts as `counted_bytes`,
    /// because a model does not read it as text.
    pub fn file(&mut self, bytes: &[u8], counted_bytes: usize) {
        let mut hasher = self.key.hasher();
        hasher.write_u64(self.before);
        // Hashes the position in the block. No block of text is hashed with a number at this point.
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

    /// Returns the chain of all appended bytes. `input_tokens` is the number of their tokens, which is exact if a
    /// tokenizer counted them and otherwise an estimate.
    pub fn finish(self, input_tokens: u64) -> PromptChain {
        PromptChain { blocks: self.blocks.into_boxed_slice(), bytes: self.bytes, input_tokens }
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

impl std::fmt::Debug for PromptChainBuilder {
    /// Prints the number of bytes, but no byte of the prompt.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChainBuilder").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: SecretKey = SecretKey::new([1; 16]);

    fn builder(model: &str) -> PromptChainBuilder {
        PromptChainBuilder::new(KEY, CacheIdentity { model, ..CacheIdentity::default() })
    }

    fn chain(text: &str) -> PromptChain {
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
        let base = CacheIdentity { model: "ab", adapter: "c", salt: "" };
        let others = [
            CacheIdentity { model: "a", adapter: "bc", ..base },
            CacheIdentity { adapter: "", salt: "c", ..base },
            CacheIdentity { salt: "tenant", ..base },
        ];
        let first = |key, identity| {
            let mut builder = PromptChainBuilder::new(key, identity);
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
