//! The delay of a stream's first chunk through a gateway.

use std::ops::ControlFlow;
use std::time::Duration;

use anyhow::{Result, bail};
use fairgate_time::wall_clock;
use tokio::task::JoinSet;

use crate::http::{self, BenchRequest};

/// Number of streams that run in parallel.
const SIDE_BY_SIDE: usize = 4;

/// Measures the delay of each stream's first chunk, from the time when the upstream sends it to the
/// time when it arrives here. Returns the delays in microseconds, sorted.
pub(crate) async fn first_chunks(request: &BenchRequest, streams: usize) -> Result<Vec<u64>> {
    let mut set = JoinSet::new();
    for _ in 0..SIDE_BY_SIDE {
        let request = request.clone();
        set.spawn(async move {
            let mut delays = Vec::new();
            for _ in 0..streams / SIDE_BY_SIDE {
                delays.push(one(&request).await?);
            }
            Ok::<_, anyhow::Error>(delays)
        });
    }
    let mut all = Vec::new();
    while let Some(delays) = set.join_next().await {
        all.extend(delays??);
    }
    all.sort_unstable();
    Ok(all)
}

async fn one(request: &BenchRequest) -> Result<u64> {
    let mut delay = None;
    let answer = http::send(request, Duration::from_secs(10), |answer, _| {
        if delay.is_none() {
            let now = now_micros();
            delay = stamp(answer.body()).map(|sent| now.saturating_sub(sent));
        }
        ControlFlow::Continue(())
    });
    let answer = answer.await?;
    match delay {
        Some(delay) if answer.status() == Some(200) => Ok(delay),
        _ => bail!("a stream ended with status {:?} and no stamp", answer.status()),
    }
}

fn now_micros() -> u64 {
    u64::try_from(wall_clock::now().0).unwrap_or(0)
}

/// Parses the first `sent_unix_us` time in an answer; `None` until the whole number has arrived.
fn stamp(seen: &[u8]) -> Option<u64> {
    const MARK: &[u8] = b"\"sent_unix_us\":";
    let start = seen.windows(MARK.len()).position(|window| window == MARK)? + MARK.len();
    let digits = seen[start..].iter().position(|byte| !byte.is_ascii_digit())?;
    std::str::from_utf8(&seen[start..start + digits]).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_read_once_it_is_whole() {
        assert_eq!(stamp(b"data: {\"sent_unix_us\":12"), None);
        assert_eq!(stamp(b"data: {\"sent_unix_us\":12}"), Some(12));
    }
}
