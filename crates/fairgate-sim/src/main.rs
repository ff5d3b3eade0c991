//! The program `fairgate-sim`, which runs the simulated backend as a process of its own.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::num::{NonZeroU64, NonZeroUsize};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Parser};
use fairgate_sim::{
    AccountOptions, ApiKey, BytesPerToken, LimitHeaderFault, LimitHeaders, LimitScope,
    OutputLength, QuotaRefill, Sim, SimAccount, SimFault, SimMode, SimOptions, TrivialOptions,
};
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

/// Serves a simulated model over the OpenAI and Anthropic APIs until the process gets SIGTERM or SIGINT. If standard
/// input is a pipe, the process also ends when the pipe closes. When ready, it prints one line: `listening on
/// http://ADDRESS`.
#[derive(Debug, Parser)]
#[command(name = "fairgate-sim", version, max_term_width = 100)]
struct SimCli {
    /// Address to listen on; port 0 takes a free one
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS")]
    listen: SocketAddr,
    /// Names of the models to serve
    #[arg(long, value_delimiter = ',', default_value = "sim", value_name = "NAME,…")]
    models: Vec<String>,
    /// Greatest number of requests in flight at once; further requests wait
    #[arg(long, default_value_t = 8)]
    slots: usize,
    /// Greatest number of requests that wait for a slot; a further request is refused with 503
    #[arg(long, default_value_t = 16_384)]
    waiting_max: usize,
    /// Milliseconds to the first token of an empty prompt
    #[arg(long, default_value_t = 20, value_name = "MS")]
    prefill_base_ms: u64,
    /// Microseconds that each uncached input token adds to the time to the first token
    #[arg(long, default_value_t = 50, value_name = "US")]
    prefill_us_per_token: u64,
    /// Greatest number of prompts that are prefilled at once; default: as many as there are slots
    #[arg(long, value_name = "PROMPTS")]
    prefill_at_once: Option<NonZeroUsize>,
    /// Microseconds from one output token to the next
    #[arg(long, default_value_t = 5000, value_name = "US")]
    decode_us_per_token: u64,
    /// Length of an answer in tokens: one number, or a range such as 40-160 from which the prompt's hash chooses the
    /// length
    #[arg(long, default_value = "40-160", value_name = "TOKENS")]
    output_tokens: OutputLength,
    /// Bytes of prompt text for each input token
    #[arg(long, default_value = "4", value_name = "BYTES")]
    bytes_per_token: BytesPerToken,
    /// Input tokens for each image
    #[arg(long, default_value_t = 85, value_name = "TOKENS")]
    image_tokens: u64,
    /// Greatest number of blocks of 16 tokens in the prefix cache; 0 turns the cache off
    #[arg(long, default_value_t = 0, value_name = "BLOCKS")]
    prefix_cache_blocks: usize,
    /// Environment variable that contains the API key which requests must have; default: any key is accepted
    #[arg(long, conflicts_with = "trivial", value_name = "VARIABLE")]
    api_key_env: Option<String>,
    /// Let requests choose faults and lengths (x-sim-fault, x-sim-tokens, [sim:…] in prompts, /sim/…)
    #[arg(long)]
    steering: bool,
    /// Fault of every request, such as reset-mid or `status=429;retry-after=7`
    #[arg(long, conflicts_with = "trivial")]
    fault: Option<SimFault>,
    /// Answer at once with prebuilt bytes, as the upstream of a benchmark
    #[arg(long)]
    trivial: bool,
    /// With --trivial: number of chunks in a stream
    #[arg(long, default_value_t = 16, requires = "trivial", value_name = "CHUNKS")]
    stream_chunks: u32,
    /// With --trivial: microseconds from one chunk to the next
    #[arg(long, default_value_t = 5000, requires = "trivial", value_name = "US")]
    chunk_interval_us: u64,
    /// Number of worker threads
    #[arg(long, default_value = "2")]
    threads: NonZeroUsize,
    #[command(flatten)]
    limits: LimitArguments,
}

/// Limits of one account. When a request arrives, it is charged its input tokens plus its max_tokens. When the request
/// ends, the charge is corrected to the tokens really used.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits of a provider")]
struct LimitArguments {
    /// Greatest number of requests per minute; a further request is refused with 429
    #[arg(long, conflicts_with = "trivial", value_name = "REQUESTS")]
    requests_per_minute: Option<NonZeroU64>,
    /// Greatest number of input and output tokens per minute; a request that exceeds it is refused with 429
    #[arg(long, conflicts_with = "trivial", value_name = "TOKENS")]
    tokens_per_minute: Option<NonZeroU64>,
    /// Number of seconds whose quota may be used in one burst, after a time without requests
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    burst_seconds: u64,
    /// Give used quota back when it is older than the burst's seconds (a sliding window), instead of evenly over time
    #[arg(long)]
    sliding_window: bool,
    /// Format of the headers that state the limits: route (that of the request's API), openai, anthropic or none
    #[arg(long, default_value_t = LimitHeaders::Route, value_name = "STYLE")]
    limit_headers: LimitHeaders,
    /// Deliberate error in the headers that state the limits: remaining-zero, reset-in-a-year, negative, absurd or
    /// flapping
    #[arg(long, value_name = "LIE")]
    limit_lie: Option<LimitHeaderFault>,
    /// Give each API key limits of its own
    #[arg(long)]
    limit_per_key: bool,
    /// Output tokens that a request without max_tokens is charged for on arrival, for each choice
    #[arg(long, default_value_t = 256, value_name = "TOKENS")]
    assumed_output_tokens: u64,
}

impl LimitArguments {
    /// Builds the account; `None` if neither requests nor tokens per minute are limited.
    fn account(&self) -> Option<Arc<SimAccount>> {
        self.requests_per_minute.or(self.tokens_per_minute)?;
        Some(SimAccount::new(AccountOptions {
            requests_per_minute: self.requests_per_minute.map(NonZeroU64::get),
            tokens_per_minute: self.tokens_per_minute.map(NonZeroU64::get),
            burst: Duration::from_secs(self.burst_seconds),
            refill: match self.sliding_window {
                true => QuotaRefill::SlidingWindow,
                false => QuotaRefill::Evenly,
            },
            scope: if self.limit_per_key { LimitScope::Key } else { LimitScope::Account },
            statement: self.limit_headers,
            lie: self.limit_lie,
            output_tokens_assumed: self.assumed_output_tokens,
        }))
    }
}

impl SimCli {
    fn options(&self) -> io::Result<SimOptions> {
        let api_key = match &self.api_key_env {
            None => None,
            Some(name) => Some(ApiKey::new(
                std::env::var(name)
                    .map_err(|error| io::Error::other(format!("--api-key-env {name}: {error}")))?,
            )),
        };
        let trivial = TrivialOptions {
            stream_chunks: self.stream_chunks,
            chunk_interval: Duration::from_micros(self.chunk_interval_us),
        };
        Ok(SimOptions {
            models: self.models.clone(),
            slots: self.slots,
            waiting_max: self.waiting_max,
            prefill_base: Duration::from_millis(self.prefill_base_ms),
            prefill_per_token: Duration::from_micros(self.prefill_us_per_token),
            prefill_at_once: self.prefill_at_once.map(NonZeroUsize::get),
            decode_per_token: Duration::from_micros(self.decode_us_per_token),
            output_tokens: self.output_tokens,
            bytes_per_token: self.bytes_per_token,
            image_tokens: self.image_tokens,
            prefix_cache_blocks: self.prefix_cache_blocks,
            api_key,
            account: self.limits.account(),
            steering: self.steering,
            mode: if self.trivial { SimMode::Trivial(trivial) } else { SimMode::Model },
            ..SimOptions::default()
        })
    }
}

fn main() -> ExitCode {
    let cli = SimCli::parse();
    let runtime =
        Builder::new_multi_thread().worker_threads(cli.threads.get()).enable_all().build();
    match runtime.and_then(|runtime| runtime.block_on(run(&cli))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // If even this cannot be written, the exit code still reports the failure.
            let _ = writeln!(io::stderr(), "fairgate-sim: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(cli: &SimCli) -> io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let sim = Sim::start(cli.listen, cli.options()?)?;
    sim.set_fault(cli.fault);
    writeln!(io::stdout(), "listening on {}", sim.url())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        () = input_closed() => {}
    }
    sim.stop().await;
    Ok(())
}

/// If standard input is a pipe, waits until it is closed. The process that started this one has the
/// other end, so the pipe closes when that process ends. With a terminal or `/dev/null`, waits for
/// ever.
async fn input_closed() {
    if !input_is_a_pipe() {
        return std::future::pending().await;
    }
    let (open, closed) = oneshot::channel::<()>();
    // The thread is detached, because a blocked read must not keep the process from ending.
    std::thread::spawn(move || {
        let _ = io::copy(&mut io::stdin().lock().by_ref(), &mut io::sink());
        drop(open);
    });
    let _ = closed.await;
}

fn input_is_a_pipe() -> bool {
    use std::os::unix::fs::FileTypeExt;
    std::fs::metadata("/dev/stdin")
        .is_ok_and(|input| input.file_type().is_fifo() || input.file_type().is_socket())
}
