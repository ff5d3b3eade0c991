//! The blocks that a worker was expected to hold when a request was sent to it, and the conclusions from the number of
//! cached tokens in its answer.

use crate::cache_size::DepthEvidence;
use crate::worker_handle::PrefixWorker;

/// A request sent to a worker, with the blocks that the worker was expected to hold.
/// [`PrefixIndex::routed`](crate::PrefixIndex::routed) creates it. Pass it to
/// [`PrefixIndex::observed`](crate::PrefixIndex::observed) when the answer reports the number of cached tokens, or to
/// [`PrefixIndex::refused`](crate::PrefixIndex::refused) if the worker did not work on the request. Drop it if the
/// answer does not report a number of cached tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "give it to `observed` when the answer reports cached tokens, to `refused` when there is none"]
pub struct PrefixRoute {
    pub(crate) worker: PrefixWorker,
    /// Number of times that the worker's cache had been emptied when the request was sent.
    pub(crate) epoch: u64,
    /// Time at which the request was sent, on the clock of the index.
    pub(crate) sent: u64,
    /// Number of blocks of the chain that the worker was expected to hold before this request.
    pub(crate) held: usize,
    /// Number of blocks of all chains that the worker was expected to hold, if they took at least 7/8 of its capacity;
    /// otherwise `None`.
    pub(crate) full: Option<usize>,
    pub(crate) evidence: Vec<ConfirmedBlocks>,
}

/// A part of a chain, from block `start` to before block `end`, that an earlier answer has shown to be cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConfirmedBlocks {
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// Time of the answer that showed these blocks to be cached.
    pub(crate) confirmed: u64,
    /// Number of the worker's blocks that had been used more recently than the first of these blocks.
    pub(crate) depth: usize,
}

impl ConfirmedBlocks {
    fn depth_of(&self, block: usize) -> usize {
        self.depth.saturating_add(block.saturating_sub(self.start))
    }
}

impl PrefixRoute {
    /// Returns the worker to which the request was sent.
    pub fn worker(&self) -> PrefixWorker {
        self.worker
    }

    /// Compares the expectation with an answer that reports `cached_blocks` cached blocks. If expected blocks
    /// are missing, returns the last time at which an answer confirmed the first of them; the engine has
    /// evicted these blocks since then. Returns `None` if the answer agrees with the expectation.
    pub(crate) fn contradicted(&self, cached_blocks: usize) -> Option<u64> {
        self.first_missing(cached_blocks).map(|part| part.confirmed)
    }

    /// Returns what an answer that reports `cached_blocks` cached blocks shows about the size of the worker's
    /// cache.
    pub(crate) fn sighting(&self, cached_blocks: usize) -> DepthEvidence {
        let missing = self.first_missing(cached_blocks);
        if let Some(depth) = self.full.filter(|_| self.is_surplus(cached_blocks)) {
            return DepthEvidence { hit: Some(depth), miss: None };
        }
        let known = self.evidence.last().map_or(0, |part| part.end);
        let hits = if missing.is_some() { cached_blocks } else { known };
        let hit = hits.checked_sub(1).and_then(|block| {
            let part = self.evidence.iter().find(|part| part.end > block)?;
            Some(part.depth_of(block))
        });
        let miss = missing.map(|part| part.depth_of(cached_blocks.max(part.start)));
        DepthEvidence { hit, miss }
    }

    /// Returns true if more blocks were cached than expected, by more than the error of estimates. The cache then holds
    /// blocks for which the index had no room.
    fn is_surplus(&self, cached_blocks: usize) -> bool {
        cached_blocks > self.held + SLACK_BLOCKS.max(cached_blocks / SLACK_PART)
    }

    /// Returns the first part of the chain with blocks that should have been cached and were not; `None` if no such
    /// blocks are missing.
    ///
    /// The position of a token in a prompt is an estimate, and engines round down to their own blocks. So an
    /// answer contradicts the expectation only if more than an eighth of the known blocks, and more than 4
    /// blocks, are missing. If fewer are missing, they count as cached. Without this tolerance, an answer
    /// that is one block short of a system prompt that all requests share would mean that the cache holds
    /// nothing older.
    fn first_missing(&self, cached_blocks: usize) -> Option<&ConfirmedBlocks> {
        let known = self.evidence.last()?.end;
        let slack = SLACK_BLOCKS.max(known / SLACK_PART);
        self.evidence.iter().find(|part| part.end > cached_blocks + slack)
    }
}

/// Number of blocks by which the cached blocks of an answer may be below or above the expectation without
/// contradicting it.
const SLACK_BLOCKS: usize = 4;
/// Cached blocks may also be below the expectation by 1 ÷ this number of the known blocks, or above it by 1 ÷
/// this number of the cached blocks, without contradicting it.
const SLACK_PART: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_clearly_missing_contradicts() {
        let part = |start, end, confirmed, depth| ConfirmedBlocks { start, end, confirmed, depth };
        let evidence = vec![part(0, 10, 70, 0), part(10, 40, 50, 100), part(40, 80, 20, 300)];
        let route = PrefixRoute {
            worker: PrefixWorker::default(),
            epoch: 0,
            sent: 0,
            held: 80,
            full: None,
            evidence,
        };
        assert_eq!([80, 75, 70].map(|cached| route.contradicted(cached)), [None; 3]);
        assert_eq!([69, 39, 30].map(|cached| route.contradicted(cached)), [Some(20); 3]);
        assert_eq!([29, 9, 0].map(|cached| route.contradicted(cached)), [Some(50); 3]);
        let unknown = PrefixRoute { evidence: Vec::new(), ..route.clone() };
        assert_eq!(unknown.contradicted(0), None);
        assert_eq!(unknown.sighting(0), DepthEvidence::default());

        let sighting = |hit, miss| DepthEvidence { hit, miss };
        assert_eq!([80, 70].map(|cached| route.sighting(cached)), [sighting(Some(339), None); 2]);
        assert_eq!(route.sighting(60), sighting(Some(319), Some(320)), "in the middle of a part");
        assert_eq!(route.sighting(40), sighting(Some(129), Some(300)), "between two parts");
        assert_eq!(route.sighting(38), sighting(Some(127), Some(300)), "a little short of it");
        assert_eq!(route.sighting(8), sighting(Some(7), Some(100)));
        assert_eq!(route.sighting(0), sighting(None, Some(100)));

        let full = PrefixRoute { full: Some(1000), ..route };
        assert_eq!(full.sighting(91), sighting(Some(339), None), "by an eighth");
        assert_eq!(full.sighting(92), sighting(Some(1000), None), "the index had no room for it");
        let new = PrefixRoute { held: 0, evidence: Vec::new(), ..full };
        assert_eq!(new.sighting(4), DepthEvidence::default());
        assert_eq!(new.sighting(5), sighting(Some(1000), None));
    }
}
