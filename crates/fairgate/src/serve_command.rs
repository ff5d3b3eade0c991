//! The command `fairgate serve`, which starts the gateway and runs it until a signal stops it.

mod admin_token;
mod data_folder;
mod file_watch;
mod first_start;
mod log_writer;
mod logging;
mod reload;
mod service_manager;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use fairgate_config::{Config, ProcessEnvironment};
use fairgate_control::control_plane::AppliedReload;
use fairgate_gateway::{Gateway, GatewayListeners, GatewayOptions, GatewayStartError};
use fairgate_proxy::open_files::{self, OpenFileLimit};
use fairgate_sim::{Sim, SimOptions};
use fairgate_store::{KeyHash, Store, StoreOptions};
use tokio::signal::unix::{SignalKind, signal};
use tracing::{error, info, warn};

pub(crate) use first_start::print_pools;

use crate::output::StdoutWriter;
use file_watch::FileWatch;
use logging::LogFormat;
use service_manager::ServiceManager;

/// Run the gateway: fair shares in front of OpenAI- and Anthropic-compatible backends.
///
/// Without --config the gateway starts on 127.0.0.1:8080 with SQLite and a built-in simulated model. It creates a first
/// tenant and key, and prints them once with a working curl line.
///
/// SIGTERM and SIGINT end the gateway in order: requests in flight may finish, and waiting requests are refused. SIGHUP
/// reads the configuration again, and so does a changed file with --watch; a file with an error changes nothing.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Configuration file. For an example with comments, see examples/fairgate.yaml.
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Address for clients, if there is no configuration file. Port 0 takes a free port.
    #[arg(long, value_name = "ADDRESS", default_value = LISTEN, conflicts_with = "config")]
    listen: SocketAddr,
    /// Folder for all data that must survive a restart, if there is no configuration file.
    #[arg(long, value_name = "FOLDER", default_value = "fairgate-data", conflicts_with = "config")]
    data_dir: PathBuf,
    /// Read and check the configuration, print the pools that the gateway would serve, and end.
    #[arg(long, requires = "config")]
    check: bool,
    /// Check for changes of the configuration file and of certificates every so many seconds, and reload when there is
    /// one, as SIGHUP does. This is how a changed ConfigMap takes effect in Kubernetes.
    #[arg(long, value_name = "SECONDS", requires = "config", value_parser = clap::value_parser!(u64).range(1..=3600))]
    watch: Option<u64>,
    /// Start also if more than half of the declared tenants and keys would be disabled, because the configuration no
    /// longer declares them.
    #[arg(long, requires = "config")]
    yes: bool,
    /// Format of the log on standard error.
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,
    /// Level of the log: error, warn, info, debug, trace, or a filter such as `fairgate_proxy=debug`.
    #[arg(long, env = "FAIRGATE_LOG", default_value = "info", value_name = "LEVEL")]
    log: String,
}

/// Default address for clients.
const LISTEN: &str = "127.0.0.1:8080";

pub(crate) fn run(args: &ServeArgs) -> Result<()> {
    let _log = logging::start(&args.log, args.log_format)?;
    let files = open_files::raise();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let ended = runtime.block_on(serve(args, files));
    // A blocking read that never ends must not keep the process alive.
    runtime.shutdown_timeout(Duration::from_secs(1));
    ended
}

async fn serve(args: &ServeArgs, files: OpenFileLimit) -> Result<()> {
    let (config, sim) = configuration(args)?;
    if args.check {
        return Ok(print_pools(StdoutWriter::stdout(), &config)?);
    }
    // Before anything is created: a key created by a start that then fails would never be seen.
    let listeners =
        GatewayListeners::bind(&config).map_err(|error| in_use(error, &config, args))?;
    let token = admin_token::find_or_make(&config)?;
    let store = open_store(&config).await?;
    let first = match &sim {
        Some(_) => first_start::first_key(&store).await?,
        None => None,
    };
    let admin_token = KeyHash::of(token.expose().as_bytes());
    let options =
        GatewayOptions { config: config.clone(), store, admin_token, may_disable_most: args.yes };
    let gateway = Arc::new(Gateway::start_on(listeners, options).await?);
    let connections_max = open_files::connections_max(&config);
    info!(before = files.before, now = files.now, connections_max, "the limit of open files");
    if let Some(file) = &args.config {
        gateway.control_plane().set_reloader(reload::FileReloader::new(&gateway, file));
    }
    let greeting = first_start::StartupMessage { gateway: &gateway, config: &config, first };
    let shows_a_key = greeting.first.is_some();
    match greeting.write(StdoutWriter::stdout()) {
        // A first key that was not shown is lost: failing is better than running without one.
        Err(error) if shows_a_key => return Err(error.into()),
        Err(error) => warn!(%error, "nothing can be written to standard output"),
        Ok(()) => {}
    }
    let manager = ServiceManager::from_environment();
    wait_for_stop(&gateway, args, &manager).await?;
    manager.report_stopping();
    end(&gateway, sim).await
}

/// Returns the configuration of the file and `None` or, if no file is given, the built-in configuration and its
/// simulated model.
fn configuration(args: &ServeArgs) -> Result<(Config, Option<Sim>)> {
    if let Some(file) = &args.config {
        return Ok((Config::from_file(file, &ProcessEnvironment)?, None));
    }
    let sim = Sim::start((Ipv4Addr::LOCALHOST, 0).into(), SimOptions::default())?;
    let url = sim.url().parse().context("the simulated model's address")?;
    Ok((Config::embedded(args.data_dir.clone(), args.listen, url), Some(sim)))
}

/// Adds advice to the error for an address that is in use: where another address can be set.
fn in_use(error: GatewayStartError, config: &Config, args: &ServeArgs) -> anyhow::Error {
    let GatewayStartError::Listen { address, .. } = &error else { return error.into() };
    let Some(file) = &args.config else {
        return anyhow!("{error}; choose another address with --listen");
    };
    let field = if *address == config.listen { "listen" } else { "admin.listen" };
    anyhow!("{error}; choose another address: `{field}` in {}", file.display())
}

async fn open_store(config: &Config) -> Result<Store> {
    data_folder::make(&config.data_dir)?;
    let options = StoreOptions {
        spool: Some(config.store.spool.clone()),
        spool_bytes_max: config.store.spool_bytes_max,
        ..StoreOptions::default()
    };
    let (store, resolved) = Store::open(config.store.url.expose(), options).await?;
    if resolved.reservations > 0 {
        warn!(
            requests = resolved.reservations,
            tokens = resolved.tokens,
            "requests were in flight in a process that died: they were charged what was reserved for them"
        );
    }
    Ok(store)
}

/// Waits for SIGTERM or SIGINT. Reloads the configuration on SIGHUP and, with `--watch`, when its file has changed.
/// Reports reloads to the service manager, and first that the gateway is ready.
async fn wait_for_stop(
    gateway: &Gateway,
    args: &ServeArgs,
    manager: &ServiceManager,
) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let config = || gateway.data_plane().config.load_full();
    let mut watch = args
        .config
        .as_deref()
        .zip(args.watch)
        .map(|(file, seconds)| FileWatch::new(file, &config(), Duration::from_secs(seconds)));
    // Not before the signals are handled: a service manager may reload at once.
    manager.report_ready(&format!("serves on {}", gateway.addr()));
    loop {
        let changed = async {
            match &mut watch {
                Some(watch) => watch.look(&config()).await,
                None => std::future::pending().await,
            }
        };
        let actor = tokio::select! {
            _ = terminate.recv() => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
            _ = hangup.recv() => "SIGHUP",
            changed = changed => match changed {
                true => "watch",
                false => continue,
            },
        };
        let Some(file) = &args.config else {
            warn!("SIGHUP: there is no configuration file to read again");
            continue;
        };
        manager.report_reloading();
        let status = reload_and_log(gateway, file, actor).await;
        manager.report_ready(status);
    }
}

/// Reads the configuration file again, and applies it. If that fails, logs the error and changes
/// nothing. Returns a text about the result for the service manager.
async fn reload_and_log(gateway: &Gateway, file: &Path, actor: &str) -> &'static str {
    match reload::reload(gateway, file, actor, false).await {
        Ok(AppliedReload { plan, directory }) => {
            let changes: Vec<String> = plan.changes.iter().map(ToString::to_string).collect();
            info!(?changes, ?directory, "the configuration was reloaded");
            "the configuration was reloaded"
        }
        Err(errors) => {
            for problem in errors.iter() {
                error!(%problem, "the configuration is not reloaded: nothing has changed");
            }
            "the last reload failed, and nothing has changed; the log has the errors"
        }
    }
}

/// Ends the gateway. Requests in flight may finish, unless a second signal comes.
async fn end(gateway: &Gateway, sim: Option<Sim>) -> Result<()> {
    let grace = gateway.data_plane().config.load().drain_grace;
    info!(
        grace_seconds = grace.as_secs(),
        "ending: what is in flight may finish, what waits is refused"
    );
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut drain = std::pin::pin!(gateway.drain(grace));
    let in_time = tokio::select! {
        drained = &mut drain => Some(drained),
        _ = terminate.recv() => None,
        _ = interrupt.recv() => None,
    };
    let drained = match in_time {
        Some(drained) => drained,
        None => {
            warn!("told to stop twice: what is in flight is cut off");
            gateway.cut_short();
            drain.await
        }
    };
    if let Some(sim) = sim {
        sim.stop().await;
    }
    for problem in &drained.problems {
        error!(%problem, "not everything was saved");
    }
    info!(
        connections_cut = drained.connections_cut,
        still_in_flight = drained.still_in_flight,
        "ended"
    );
    match drained.problems.first() {
        None => Ok(()),
        Some(problem) => bail!("{problem}"),
    }
}
