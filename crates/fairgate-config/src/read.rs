//! Reads the tree of a file into the checked [`Config`].

mod cost;
mod deadlines;
mod declared;
mod engine;
mod fleet;
mod gateway;
mod hosted;
mod leases;
mod money_budgets;
mod policy;
pub(crate) mod policy_file;
mod pool;
mod pool_policy;
mod prices;
mod rules;
mod secret;
mod upstream;
mod url;
mod webhooks;

use std::cell::RefCell;
use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fairgate_money::ModelPrices;

use self::money_budgets::PricedModels;
use self::pool::{PoolDraft, pools};
use self::prices::prices;
use self::upstream::{UpstreamDraft, upstreams};
use crate::config::Config;
use crate::defaults;
use crate::environment::Environment;
use crate::error::{ConfigError, ConfigErrors};
use crate::field::{ConfigField, ConfigReadContext};
use crate::suggest::did_you_mean;
use crate::yaml::{self, FieldError, YamlNode};

pub(crate) use self::fleet::default_fleet;
pub(crate) use self::gateway::default_store;
pub(crate) use self::policy::{default_policy, policy};
pub use self::url::parse_base_url;

/// The largest file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Range of timeouts: from 1 ms to one day.
pub(crate) const TIMEOUT: RangeInclusive<Duration> =
    Duration::from_millis(1)..=Duration::from_secs(86_400);

/// Description of `upstreams` in the error message for a file without upstreams.
const A_BACKEND: &str = "at least one backend";

const ROOT: &[&str] = &[
    "listen",
    "tls",
    "data_dir",
    "drain_grace",
    "store",
    "on_store_failure",
    "admin",
    "journal",
    "limits",
    "metrics",
    "fleet",
    "upstreams",
    "pools",
    "prices",
    "groups",
    "tenants",
    "keys",
];

impl Config {
    /// Reads and checks a configuration file. Relative paths start at the folder of the file, and secrets come from
    /// `environment` and from files. On failure, returns all errors that were found, not just the first.
    pub fn from_file(path: &Path, environment: &dyn Environment) -> Result<Self, ConfigErrors> {
        Self::parse(&load(path)?, path, environment)
    }

    /// Reads and checks the text of a configuration. `file` is the path that errors show, and relative paths start at
    /// its folder. The file need not exist.
    pub fn parse(
        text: &str,
        file: &Path,
        environment: &dyn Environment,
    ) -> Result<Self, ConfigErrors> {
        parse(text, file, environment).map(|(config, _)| config)
    }
}

/// Reads the text of a file of at most [`FILE_BYTES_MAX`] bytes.
pub(crate) fn load(path: &Path) -> Result<String, ConfigErrors> {
    let unreadable = |message: String| {
        let (file, field) = (Some(path.to_owned()), String::new());
        ConfigErrors::from(ConfigError { file, place: None, field, message })
    };
    let because = |error: std::io::Error| unreadable(format!("cannot be read: {error}"));
    let size = fs::metadata(path).map_err(because)?.len();
    if size > FILE_BYTES_MAX {
        return Err(unreadable(format!("has {size} bytes; at most {FILE_BYTES_MAX} are read")));
    }
    fs::read_to_string(path).map_err(because)
}

/// Parses a text into a checked configuration. Also returns the YAML tree, which knows the lines of the settings.
pub(crate) fn parse(
    text: &str,
    file: &Path,
    environment: &dyn Environment,
) -> Result<(Config, YamlNode), ConfigErrors> {
    let located = |flaw: FieldError| ConfigError {
        file: Some(file.to_owned()),
        place: Some(flaw.place),
        field: flaw.field,
        message: flaw.message,
    };
    let mut flaws = Vec::new();
    let empty = "is empty: a configuration has at least upstreams and pools";
    let root = yaml::parse(text, empty, &mut flaws).map_err(located)?;
    let folder = file.parent().unwrap_or(Path::new(""));
    let elsewhere = RefCell::default();
    let context = ConfigReadContext {
        folder,
        file,
        environment,
        flaws: RefCell::new(flaws),
        other_files: elsewhere,
    };
    let config = read(ConfigField::root(&context, &root));
    let errors = context.flaws.into_inner().into_iter().map(located).collect();
    match (ConfigErrors::with_other_files(errors, context.other_files.into_inner()), config) {
        (None, Some(config)) => Ok((config, root)),
        (Some(errors), _) => Err(errors),
        (None, None) => unreachable!("who gives nothing has said why"),
    }
}

fn read(root: ConfigField<'_>) -> Option<Config> {
    let root = root.section(ROOT)?;
    let grace = Duration::ZERO..=Duration::from_secs(3600);
    let listen = root.or("listen", defaults::LISTEN, gateway::address);
    let tls = root.optional("tls", gateway::tls);
    let data_dir =
        root.or("data_dir", root.field.context.folder.join(defaults::DATA_DIR), ConfigField::path);
    let data: PathBuf = data_dir.clone().unwrap_or_default();
    let drain_grace = root.or("drain_grace", defaults::DRAIN_GRACE, |field| field.duration(grace));
    let store =
        root.or("store", gateway::default_store(&data), |field| gateway::store(field, &data));
    let on_store_failure =
        root.or("on_store_failure", defaults::ON_STORE_FAILURE, gateway::on_store_failure);
    let admin = root.or("admin", gateway::DEFAULT_ADMIN, |field| gateway::admin(field, listen));
    let journal = root.optional("journal", |field| gateway::journal(field, &data));
    let limits = root.or("limits", defaults::LIMITS, gateway::limits);
    let metrics = root.or("metrics", defaults::METRICS, gateway::metrics);
    let fleet = root.or("fleet", fleet::default_fleet(&data), |field| fleet::fleet(field, &data));
    let mut upstreams = match root.has("upstreams") || root.has("pools") {
        true => root.optional("upstreams", upstreams),
        false => root.missing("upstreams", A_BACKEND),
    };
    let known = upstreams.as_ref().and_then(Option::as_deref);
    let pools = root.required("pools", "at least one pool of models", |field| {
        pools(field, known, root.has("prices"))
    });
    if let Some(none @ None) = &mut upstreams {
        // Only pools of leases need no backend.
        let is_leased = |pools: &Vec<PoolDraft>| pools.iter().all(|pool| pool.is_leased);
        *none = match pools.as_ref().is_some_and(is_leased) {
            true => Some(Vec::new()),
            false => root.missing("upstreams", A_BACKEND),
        };
    }
    let upstreams = upstreams.flatten();
    let known = upstreams.as_deref();
    if let (Some(upstreams), Some(pools)) = (&upstreams, &pools) {
        check_aliases(upstreams, pools);
    }
    let prices = root.optional("prices", |field| prices(field, known, pools.as_deref()));
    let declared = declared::declared(&root, root.has("prices"));
    if let (Some(prices), Some(upstreams), Some(pools)) = (&prices, known, &pools) {
        let no_prices = ModelPrices::default();
        let priced = PricedModels::new(prices.as_ref().unwrap_or(&no_prices), upstreams, pools);
        priced.check_units(&root.field);
        if prices.is_some() {
            priced.check_hosted_budgets(&root.field);
            if let Some(declared) = &declared {
                priced.check_declared_budgets(&root.field, declared);
            }
        }
    }
    Some(Config {
        listen: listen?,
        tls: tls?,
        data_dir: data_dir?,
        store: store?,
        on_store_failure: on_store_failure?,
        admin: admin?,
        journal: journal?,
        limits: limits?,
        metrics: metrics?,
        fleet: fleet?,
        drain_grace: drain_grace?,
        upstreams: upstreams?.into_iter().map(|upstream| upstream.config).collect::<Option<_>>()?,
        pools: pools?.into_iter().map(|pool| pool.config).collect::<Option<_>>()?,
        prices: prices?.unwrap_or_default(),
        declared: declared?,
    })
}

/// Records an error for each alias whose model is not served by any pool with the alias's upstream.
fn check_aliases(upstreams: &[UpstreamDraft<'_>], pools: &[PoolDraft]) {
    for upstream in upstreams {
        let Some(name) = &upstream.name else { continue };
        let of_it = |pool: &&PoolDraft| pool.workers.contains(name);
        let models = || pools.iter().filter(of_it).flat_map(|pool| &pool.models);
        for (model, field) in &upstream.aliases {
            if !models().any(|known| known == model) {
                let guess = did_you_mean(model, models().map(String::as_str));
                let message =
                    format!("no pool with the worker {name:?} has the model {model:?}{guess}");
                field.wrong::<()>(message);
            }
        }
    }
}

/// Reads a name that is also valid as a folder, a label and part of a path: letters, digits, `-`, `_` and `.`.
fn name(field: ConfigField<'_>) -> Option<String> {
    let text = field.scalar().unwrap_or_default();
    match check_name(text) {
        Ok(()) => Some(text.to_owned()),
        Err(problem) => field.wrong(problem),
    }
}

/// Checks the name of an upstream or a pool.
///
/// # Errors
/// Returns a description of valid names.
pub fn check_name(text: &str) -> Result<(), &'static str> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let starts = text.starts_with(|c: char| c.is_ascii_alphanumeric());
    match starts && text.len() <= 64 && text.chars().all(fits) {
        true => Ok(()),
        false => Err(
            "must be a name of 1 to 64 letters, digits, -, _ and ., that starts with a letter or digit",
        ),
    }
}

/// Reads the name of a model: 1 to 256 bytes without spaces.
fn model_name(field: ConfigField<'_>) -> Option<String> {
    let text = field.scalar().unwrap_or_default();
    let fits = |c: char| !c.is_whitespace() && !c.is_control();
    match !text.is_empty() && text.len() <= 256 && text.chars().all(fits) {
        true => Some(text.to_owned()),
        false => field.wrong("must be the name of a model: 1 to 256 bytes without spaces"),
    }
}
