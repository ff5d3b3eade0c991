//! The bars of `bench instructions`: it fails if one of them does not hold.

use super::parts::WorkPart;
use super::{CHUNK_BYTES, GatewayProfiles, RoundProfile, chunk_server, hundreds, median};

/// Greatest ratio of the instructions of a request to those of the bare proxy.
const PROXY_RATIO_MAX: f64 = 4.2;
/// Greatest number of instructions that the line of a row takes for each request.
const ROW_LINE_MAX: f64 = 5_000.0;
/// Greatest ratio of the instructions of a stream in one-byte chunks to those of the same stream in larger chunks.
const CHUNKS_RATIO_MAX: f64 = 10.0;
/// Greatest number of instructions that the meter of worker time takes for a request. It is no ratio, because a ratio
/// would rise whenever the rest of a request takes less.
const METERED_REQUEST_MAX: f64 = 3_000.0;
/// Greatest number of instructions that the meter of worker time takes for a token of a stream.
const METERED_TOKEN_MAX: f64 = 300.0;

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
/// writer's thread is left out, because its part depends on how many rows it writes at once.
#[expect(clippy::cast_precision_loss, reason = "a small number")]
pub(super) fn print_metering(gateway: &GatewayProfiles) -> bool {
    let tokens = chunk_server::TOKENS as f64;
    let own = |rounds: &[RoundProfile]| {
        let round = median(rounds);
        let writer = round.parts().get(&WorkPart::LedgerWriter).copied().unwrap_or(0);
        round.per_request() - round.divided(writer)
    };
    let [without, stream_without] = gateway.unmetered.each_ref().map(|rounds| own(rounds));
    let (with, stream_with) = (own(&gateway.chats), own(&gateway.streams[0]));
    let (of_request, of_token) = (with - without, (stream_with - stream_without) / tokens);
    println!(
        "The meter of worker time, SQLite's writer left out: {} instructions a request with it, {} without it: {} more, at \
         most {} allowed; {of_token:.0} more for each token of a stream, at most {METERED_TOKEN_MAX:.0} allowed.",
        hundreds(with),
        hundreds(without),
        hundreds(of_request.max(0.0)),
        hundreds(METERED_REQUEST_MAX),
    );
    of_request <= METERED_REQUEST_MAX && of_token <= METERED_TOKEN_MAX
}
