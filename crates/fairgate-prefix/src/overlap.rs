//! How much of a prompt each worker holds.

use crate::chain::Chain;
use crate::index::Worker;

/// How much of one prompt's beginning each worker is believed to hold, in whole blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overlap<'a> {
    pub(crate) chain: &'a Chain,
    /// Only workers that hold at least a block, in the order of their places.
    pub(crate) held: Vec<(Worker, usize)>,
}

impl Overlap<'_> {
    /// The cached tokens of this worker; 0 where it holds nothing of the prompt, or is not there.
    pub fn tokens(&self, worker: Worker) -> u64 {
        let place = self.held.binary_search_by_key(&worker.place, |(held, _)| held.place);
        let found = place.ok().map(|place| self.held[place]);
        match found {
            Some((held, blocks)) if held == worker => self.chain.tokens(blocks),
            _ => 0,
        }
    }

    /// All workers that hold something of the prompt, with their cached tokens, in the order in which the places were taken.
    pub fn iter(&self) -> impl Iterator<Item = (Worker, u64)> + '_ {
        self.held.iter().map(|&(worker, blocks)| (worker, self.chain.tokens(blocks)))
    }

    /// The most cached tokens of any worker.
    pub fn most(&self) -> u64 {
        let blocks = self.held.iter().map(|&(_, blocks)| blocks).max().unwrap_or_default();
        self.chain.tokens(blocks)
    }
}
