//! What was believed of a worker when a request was sent to it.

use crate::index::Worker;

/// Made by [`Index::routed`](crate::Index::routed), given back to [`Index::observed`](crate::Index::observed) when the answer says how
/// much was cached, or to [`Index::refused`](crate::Index::refused) where the worker did not work on the request. Drop it where the
/// answer never says.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "give it to `observed` when the answer reports cached tokens, to `refused` when there is none"]
pub struct Route {
    pub(crate) worker: Worker,
    /// How often the worker had been forgotten by then.
    pub(crate) epoch: u64,
    /// When it was sent, and how many blocks of the chain the worker was believed to hold before.
    pub(crate) sent: u64,
    pub(crate) held: usize,
    pub(crate) evidence: Vec<Evidence>,
}

/// Blocks of the chain up to `end` that an earlier answer has shown to be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Evidence {
    pub(crate) end: usize,
    /// When that answer came.
    pub(crate) confirmed: u64,
}

impl Route {
    /// The worker that the request was sent to.
    pub fn worker(&self) -> Worker {
        self.worker
    }

    /// When the engine must have held what it now reports as not cached: the confirmation of the first block that should have been
    /// cached and was not. `None` where the report agrees with what was known.
    ///
    /// Where in a prompt a token stands is an estimate, and engines round down to their own blocks. So a report contradicts
    /// only where an eighth of what was known, and 4 blocks, are missing.
    pub(crate) fn contradicted(&self, cached_blocks: usize) -> Option<u64> {
        let known = self.evidence.last()?.end;
        let slack = SLACK_BLOCKS.max(known / SLACK_PART);
        if cached_blocks + slack >= known {
            return None;
        }
        self.evidence.iter().find(|part| part.end > cached_blocks).map(|part| part.confirmed)
    }
}

const SLACK_BLOCKS: usize = 4;
const SLACK_PART: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_clearly_missing_contradicts() {
        let part = |end, confirmed| Evidence { end, confirmed };
        let evidence = vec![part(10, 70), part(40, 50), part(80, 20)];
        let route = Route { worker: Worker::default(), epoch: 0, sent: 0, held: 80, evidence };
        assert_eq!([80, 75, 70].map(|cached| route.contradicted(cached)), [None; 3]);
        assert_eq!(route.contradicted(69), Some(20));
        assert_eq!(route.contradicted(39), Some(50));
        assert_eq!(route.contradicted(0), Some(70));
        let unknown = Route { evidence: Vec::new(), ..route };
        assert_eq!(unknown.contradicted(0), None);
    }
}
