//! `fairgate-sim`: the simulated backend as a process of its own.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::num::{NonZeroU64, NonZeroUsize};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Parser};
use fairgate_sim::{
    Account, AccountOptions, ApiKey, BytesPerToken, Fault, Lie, Mode, OutputLength, Scope, Sim,
    SimOptions, Statement, TrivialOptions,
};
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

/// Serves a simulated model over the OpenAI and Anthropic APIs until it gets SIGTERM or SIGINT, or, where its standard
/// input is a pipe, until that closes. Prints one line when it is ready: `listening on http://ADDRESS`.
#[derive(Debug, Parser)]
#[command(name = "fairgate-sim", version, max_term_width = 100)]
struct Cli {
    /// Where to listen; port 0 takes a free one
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS")]
    listen: SocketAddr,
    /// The models to serve
    #[arg(long, value_delimiter = ',', default_value = "sim", value_name = "NAME,…")]
    models: Vec<String>,
    /// Requests worked on at once; the rest waits
    #[arg(long, default_value_t = 8)]
    slots: usize,
    /// Requests that may wait; one more is refused with 503
    #[arg(long, default_value_t = 16_384)]
    waiting_max: usize,
    /// Milliseconds to the first token of an empty prompt
    #[arg(long, default_value_t = 20, value_name = "MS")]
    prefill_base_ms: u64,
    /// Microseconds that each uncached input token adds
    #[arg(long, default_value_t = 50, value_name = "US")]
    prefill_us_per_token: u64,
    /// Prompts read at once; as many as there are slots unless told otherwise
    #[arg(long, value_name = "PROMPTS")]
    prefill_at_once: Option<NonZeroUsize>,
    /// Microseconds from one output token to the next
    #[arg(long, default_value_t = 5000, value_name = "US")]
    decode_us_per_token: u64,
    /// Length of an answer in tokens: one number, or a range from which the prompt's hash chooses
    #[arg(long, default_value = "40-160", value_name = "TOKENS")]
    output_tokens: OutputLength,
    /// Bytes of prompt text for each input token
    #[arg(long, default_value = "4", value_name = "BYTES")]
    bytes_per_token: BytesPerToken,
    /// Input tokens for each image
    #[arg(long, default_value_t = 85, value_name = "TOKENS")]
    image_tokens: u64,
    /// Blocks of 16 tokens in the prefix cache; 0 turns it off
    #[arg(long, default_value_t = 0, value_name = "BLOCKS")]
    prefix_cache_blocks: usize,
    /// The environment variable that holds the key which requests must carry
    #[arg(long, conflicts_with = "trivial", value_name = "VARIABLE")]
    api_key_env: Option<String>,
    /// Let requests choose faults and lengths (x-sim-fault, x-sim-tokens, [sim:…] in prompts, /sim/…)
    #[arg(long)]
    steering: bool,
    /// A fault that every request meets, such as reset-mid or `status=429;retry-after=7`
    #[arg(long, conflicts_with = "trivial")]
    fault: Option<Fault>,
    /// Answer prebuilt bytes at once, as the upstream of a benchmark
    #[arg(long)]
    trivial: bool,
    /// With --trivial: chunks of a stream
    #[arg(long, default_value_t = 16, requires = "trivial", value_name = "CHUNKS")]
    stream_chunks: u32,
    /// With --trivial: microseconds from one chunk to the next
    #[arg(long, default_value_t = 5000, requires = "trivial", value_name = "US")]
    chunk_interval_us: u64,
    /// Threads to work with
    #[arg(long, default_value = "2")]
    threads: NonZeroUsize,
    #[command(flatten)]
    limits: Limits,
}

/// What one account may use. A request is charged its input tokens plus its max_tokens when it arrives, and what it
/// really used when it ends.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits of a provider")]
struct Limits {
    /// Requests per minute; one more is refused with 429
    #[arg(long, conflicts_with = "trivial", value_name = "REQUESTS")]
    requests_per_minute: Option<NonZeroU64>,
    /// Input and output tokens per minute; what goes beyond is refused with 429
    #[arg(long, conflicts_with = "trivial", value_name = "TOKENS")]
    tokens_per_minute: Option<NonZeroU64>,
    /// How much may come at once: what the limits allow in so many seconds
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    burst_seconds: u64,
    /// Headers that state the limits: route (those of the API in use), openai, anthropic or none
    #[arg(long, default_value_t = Statement::Route, value_name = "STYLE")]
    limit_headers: Statement,
    /// How these headers lie: remaining-zero, reset-in-a-year, negative, absurd or flapping
    #[arg(long, value_name = "LIE")]
    limit_lie: Option<Lie>,
    /// Give each API key limits of its own
    #[arg(long)]
    limit_per_key: bool,
    /// Output tokens that a request without max_tokens is charged for when it arrives
    #[arg(long, default_value_t = 256, value_name = "TOKENS")]
    assumed_output_tokens: u64,
}

impl Limits {
    /// The account; none where neither limit is set.
    fn account(&self) -> Option<Arc<Account>> {
        self.requests_per_minute.or(self.tokens_per_minute)?;
        Some(Account::new(AccountOptions {
            requests_per_minute: self.requests_per_minute.map(NonZeroU64::get),
            tokens_per_minute: self.tokens_per_minute.map(NonZeroU64::get),
            burst: Duration::from_secs(self.burst_seconds),
            scope: if self.limit_per_key { Scope::Key } else { Scope::Account },
            statement: self.limit_headers,
            lie: self.limit_lie,
            output_tokens_assumed: self.assumed_output_tokens,
        }))
    }
}

impl Cli {
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
            mode: if self.trivial { Mode::Trivial(trivial) } else { Mode::Model },
            ..SimOptions::default()
        })
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let runtime =
        Builder::new_multi_thread().worker_threads(cli.threads.get()).enable_all().build();
    match runtime.and_then(|runtime| runtime.block_on(run(&cli))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Where even this cannot be written, the exit code still tells.
            let _ = writeln!(io::stderr(), "fairgate-sim: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(cli: &Cli) -> io::Result<()> {
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

/// Ends when standard input does. Only a pipe counts: whoever started this process holds its other end, while a
/// terminal or `/dev/null` says nothing about that.
async fn input_closed() {
    if !input_is_a_pipe() {
        return std::future::pending().await;
    }
    let (closed, told) = oneshot::channel::<()>();
    // A thread of its own, which nothing waits for: a blocked read must not keep the process from ending.
    std::thread::spawn(move || {
        let _ = io::copy(&mut io::stdin().lock().by_ref(), &mut io::sink());
        drop(closed);
    });
    let _ = told.await;
}

fn input_is_a_pipe() -> bool {
    use std::os::unix::fs::FileTypeExt;
    std::fs::metadata("/dev/stdin")
        .is_ok_and(|input| input.file_type().is_fifo() || input.file_type().is_socket())
}
