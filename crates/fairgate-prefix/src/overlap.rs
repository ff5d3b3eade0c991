//! The part of a prompt's beginning that each worker holds.

use crate::chain::PromptChain;
use crate::worker_handle::PrefixWorker;

/// The part of one prompt's beginning that each worker is expected to hold, in whole blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrefixOverlap<'a> {
    pub(crate) chain: &'a PromptChain,
    /// The workers that hold at least one block, with the number of blocks, in the order of the workers' indexes.
    pub(crate) held: Vec<(PrefixWorker, usize)>,
}

impl PrefixOverlap<'_> {
    /// Returns the number of the prompt's tokens that this worker has cached; 0 if the worker holds no block of the
    /// prompt or was removed.
    pub fn tokens(&self, worker: PrefixWorker) -> u64 {
        let place = self.held.binary_search_by_key(&worker.place, |(held, _)| held.place);
        let found = place.ok().map(|place| self.held[place]);
        match found {
            Some((held, blocks)) if held == worker => self.chain.tokens(blocks),
            _ => 0,
        }
    }

    /// Returns all workers that hold a part of the prompt, with the number of cached tokens, in the order of the
    /// workers' indexes.
    pub fn iter(&self) -> impl Iterator<Item = (PrefixWorker, u64)> + '_ {
        self.held.iter().map(|&(worker, blocks)| (worker, self.chain.tokens(blocks)))
    }

    /// Returns the greatest number of the prompt's tokens that one worker has cached; 0 if no worker has cached any.
    pub fn most(&self) -> u64 {
        let blocks = self.held.iter().map(|&(_, blocks)| blocks).max().unwrap_or_default();
        self.chain.tokens(blocks)
    }
}
