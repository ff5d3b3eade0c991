//! Means over the requests of each tenant and model: the tokens of a chunk, and a typical request.

use alloc::collections::BTreeMap;

use super::cost::RequestWork;
use super::float_math::{count, whole};

/// Greatest number of tenants and models that a meter keeps. The source that was seen longest ago makes room.
const SOURCES_MAX: usize = 256;
/// Least weight of the latest request in a moving average, which then covers about 50 requests.
const GAIN_MIN: f64 = 0.02;
/// Least number of chunks of a request from which the tokens per chunk are learned.
const CHUNKS_MIN: u32 = 4;
/// The least and the greatest number of tokens per chunk.
const CHUNK_TOKENS: (f64, f64) = (0.25, 64.0);

/// A group of requests that look alike to a meter: those of one tenant for one model. The caller chooses its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkSource(pub u64);

/// Means over the requests of one source.
#[derive(Clone, Copy, Debug)]
struct SourceMeans {
    /// Tokens per chunk; `None` before a request of several chunks has ended.
    chunk_tokens: Option<f64>,
    /// Input tokens, cached tokens, output tokens and choices of a request; `None` before a request has ended.
    request: Option<[f64; 4]>,
    /// Number of requests that have ended.
    ended: u32,
    seen_us: u64,
}

/// The sources that a meter has seen.
#[derive(Clone, Debug, Default)]
pub(super) struct WorkSources {
    means: BTreeMap<WorkSource, SourceMeans>,
}

impl WorkSources {
    /// Returns the tokens per chunk of this source; 1 if they are unknown.
    pub(super) fn chunk_tokens(&self, source: WorkSource) -> f64 {
        self.means.get(&source).and_then(|means| means.chunk_tokens).unwrap_or(1.0)
    }

    /// Counts a request that has ended. `chunks` is the number of its chunks with output, or 0 if it did not stream.
    pub(super) fn count(
        &mut self,
        source: WorkSource,
        work: RequestWork,
        chunks: u32,
        now_us: u64,
    ) {
        if self.means.len() >= SOURCES_MAX && !self.means.contains_key(&source) {
            let quiet = self.means.iter().min_by_key(|(_, means)| means.seen_us);
            let quiet = quiet.map(|(source, _)| *source);
            quiet.map(|source| self.means.remove(&source));
        }
        let new = SourceMeans { chunk_tokens: None, request: None, ended: 0, seen_us: now_us };
        let means = self.means.entry(source).or_insert(new);
        means.seen_us = now_us;
        means.ended = means.ended.saturating_add(1);
        let gain = GAIN_MIN.max(1.0 / f64::from(means.ended));
        if chunks >= CHUNKS_MIN && work.output > 0 {
            let tokens =
                (count(work.output) / f64::from(chunks)).clamp(CHUNK_TOKENS.0, CHUNK_TOKENS.1);
            let mean = means.chunk_tokens.get_or_insert(tokens);
            *mean += gain * (tokens - *mean);
        }
        let RequestWork { input, cached, output, choices } = work;
        let numbers = [input, cached.min(input), output, choices.max(1)].map(count);
        let mean = means.request.get_or_insert(numbers);
        for (mean, number) in mean.iter_mut().zip(numbers) {
            *mean += gain * (number - *mean);
        }
    }

    /// Returns a typical request of a source; `None` if no request of the source has ended.
    pub(super) fn typical_request(&self, source: WorkSource) -> Option<RequestWork> {
        Some(rounded(self.means.get(&source)?.request?))
    }

    /// Returns the sources with a typical request of each.
    pub(super) fn typical_requests(&self) -> impl Iterator<Item = (WorkSource, RequestWork)> {
        self.means.iter().filter_map(|(source, means)| Some((*source, rounded(means.request?))))
    }

    /// Returns the greatest number of bytes that the sources may take. A tree's node is at least half full.
    pub(super) fn memory_bytes_max() -> usize {
        2 * SOURCES_MAX * (size_of::<WorkSource>() + size_of::<SourceMeans>())
    }
}

fn rounded(means: [f64; 4]) -> RequestWork {
    let [input, cached, output, choices] = means.map(whole);
    RequestWork { input, cached, output, choices }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(input: u64, output: u64) -> RequestWork {
        RequestWork { input, cached: 0, output, choices: 1 }
    }

    #[test]
    fn chunks_are_learned_per_source() {
        let mut sources = WorkSources::default();
        for _ in 0..10 {
            sources.count(WorkSource(1), work(100, 200), 50, 0);
            sources.count(WorkSource(2), work(100, 3), 3, 0);
            sources.count(WorkSource(3), work(100, u64::MAX), 4, 0);
        }
        let tokens = [1, 2, 3, 4].map(|source| sources.chunk_tokens(WorkSource(source)));
        assert_eq!(tokens, [4.0, 1.0, 64.0, 1.0]);
    }

    #[test]
    fn the_quiet_make_room() {
        let mut sources = WorkSources::default();
        for i in 0..10 * SOURCES_MAX as u64 {
            sources.count(WorkSource(i), work(i, 10), 0, i);
            sources.count(WorkSource(u64::MAX), work(i, 10), 0, i);
        }
        assert_eq!(sources.typical_requests().count(), SOURCES_MAX);
        let last = sources.typical_requests().last().unwrap();
        assert_eq!(last.0, WorkSource(u64::MAX));
    }
}
