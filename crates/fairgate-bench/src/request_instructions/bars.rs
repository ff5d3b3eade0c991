//! The bars of `bench instructions`: it fails if one of them does not hold.

use super::parts::WorkPart;
use super::{CHUNK_BYTES, GatewayProfiles, RoundProfile, chunk_server, hundreds, median};

/// Greatest ratio of the instructions of a request to those of the bare proxy.
const PROXY_RATIO_MAX: f64 = 4.2;
/// Greatest number of instructions that the line of a row takes for each request.
const ROW_LINE_MAX: f64 = 5_000.0;
/// Greatest ratio of the instructions of a stream in one-byte chunks to those of the same stream in larger chunks.
const CHUNKS_RATIO_MAX: f64 = 10.0;
/// Greatest ratio of the instructions of a request at a metered worker to those of a request at an unmetered worker.
const METERED_RATIO_MAX: f64 = 1.02;
/// Greatest number of instructions that the meter of worker time takes for a token of a stream.
const METERED_TOKEN_MAX: f64 = 300.0;
/// Greatest part of the instructions of a request that the history of the pools takes.
const HISTORY_PART_MAX: f64 = 0.01;

/// Prints what a request may cost in all, and its row on the way to the spool, and returns whether the bars hold.
pub(super) fn print_totals(proxy: &[RoundProfile], gateway: &[RoundProfile]) -> bool {
    let (proxy, gateway) = (median(proxy), median(gateway));
    let ratio = gateway.per_request() / proxy.per_request();
    let line = gateway.parts().get(&WorkPart::RowLine).copied().unwrap_or(0);
    let line = gateway.divided(line);
    println!(
        "A request takes {ratio:.2}× the instructions of the bare proxy, at most {PROXY_RATIO_MAX}× allowed; the line of \
         its row {}, at most {} allowed.",
        hundreds(line),
        hundreds(ROW_LINE_MAX),
    );
    ratio <= PROXY_RATIO_MAX && line <= ROW_LINE_MAX
}

/// Prints the instructions of a stream in large and in one-byte chunks, and returns whether the bar holds.
pub(super) fn print_chunks(gateway: &GatewayProfiles) -> bool {
    let [large, small] = gateway.streams.each_ref().map(|rounds| median(rounds).per_request());
    let ratio = small / large;
    println!(
        "A stream of 150 tokens: {} instructions in chunks of {} bytes, {} in chunks of {} byte: {ratio:.2}×, at most \
         {CHUNKS_RATIO_MAX:.0}× allowed.",
        hundreds(large),
        CHUNK_BYTES[0],
        hundreds(small),
        CHUNK_BYTES[1],
    );
    ratio <= CHUNKS_RATIO_MAX
}

/// Prints what the meter of worker time costs a request and a token of a stream, and returns whether the bars hold. The
/// difference is measured without the writer's thread, whose part depends on how many rows it writes at once; the ratio
/// is that of whole requests.
#[expect(clippy::cast_precision_loss, reason = "a small number")]
pub(super) fn print_metering(gateway: &GatewayProfiles) -> bool {
    let tokens = chunk_server::TOKENS as f64;
    let writer = |round: &RoundProfile| {
        round.divided(round.parts().get(&WorkPart::LedgerWriter).copied().unwrap_or(0))
    };
    let own = |rounds: &[RoundProfile]| median(rounds).per_request() - writer(median(rounds));
    let [without, stream_without] = gateway.unmetered.each_ref().map(|rounds| own(rounds));
    let (with, stream_with) = (own(&gateway.chats), own(&gateway.streams[0]));
    let (of_request, of_token) = (with - without, (stream_with - stream_without) / tokens);
    let ratio = 1.0 + of_request / (without + writer(median(&gateway.unmetered[0])));
    println!(
        "The meter of worker time: {} instructions a request more than without it, {ratio:.4}× a request, at most \
         {METERED_RATIO_MAX}× allowed; {of_token:.0} more for each token of a stream, at most {METERED_TOKEN_MAX:.0} \
         allowed.",
        hundreds(of_request.max(0.0)),
    );
    ratio <= METERED_RATIO_MAX && of_token <= METERED_TOKEN_MAX
}

/// Prints which part of a request's instructions the history of the pools takes, and returns whether the bar holds.
/// Samples are taken by time, so under callgrind, where requests are slow, there are more of them for each request.
pub(super) fn print_history(chats: &[RoundProfile]) -> bool {
    let part = history_part(median(chats));
    println!(
        "The history of the pools: {:.2} % of a request's instructions, at most {:.0} % allowed.",
        part * 100.0,
        HISTORY_PART_MAX * 100.0,
    );
    part <= HISTORY_PART_MAX
}

/// Returns the part of the instructions that are of the history, from 0 to 1.
pub(super) fn history_part(round: &RoundProfile) -> f64 {
    let history = round.parts().get(&WorkPart::History).copied().unwrap_or(0);
    round.divided(history) / round.per_request()
}
