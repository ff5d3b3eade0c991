//! Reads the settings for the cost of a pool's requests.

use fairgate_price::worker_time::WorkerPrices;

use crate::config::{CostConfig, CostUnit, FileCostConfig, PoolConfig, Tokenizer};
use crate::field::{ConfigField, ConfigSection};
use crate::read::pool::PoolDraft;
use crate::read::upstream::UpstreamDraft;

const COST: &[&str] = &[
    "unit",
    "prices",
    "input",
    "cached_input",
    "output",
    "output_default",
    "max_tokens_default",
    "tokenizer",
    "weights_by_model",
    "files",
];

const FILE_COST: &[&str] = &[
    "pdf_page_tokens",
    "pdf_bytes_per_token",
    "image_pixels_per_token",
    "image_tokens_min",
    "image_tokens_max",
    "audio_bytes_per_token",
    "unreadable_tokens",
];

/// Largest number of tokens of one file. No model reads more.
pub(super) const FILE_TOKENS_MAX: u64 = 100_000_000;

const TOKENIZERS: [(&str, Tokenizer); 3] =
    [("learned", Tokenizer::Learned), ("o200k", Tokenizer::O200k), ("cl100k", Tokenizer::Cl100k)];

const UNITS: [(&str, CostUnit); 3] = [
    ("tokens", CostUnit::Tokens),
    ("worker_time", CostUnit::WorkerTime),
    ("money", CostUnit::Money),
];

/// Returns the name of a unit for error messages.
fn unit_words(unit: CostUnit) -> &'static str {
    match unit {
        CostUnit::Tokens => "tokens",
        CostUnit::WorkerTime => "worker time",
        CostUnit::Money => "money",
    }
}

/// Options of `cost` that have an effect only in a pool that counts tokens.
const TOKEN_WEIGHTS: [&str; 3] = ["input", "cached_input", "output"];

/// Reads the cost of requests. `default` has the defaults for the pool's policy.
pub(super) fn cost(field: ConfigField<'_>, default: CostConfig) -> Option<CostConfig> {
    let section = field.section(COST)?;
    let unit = section.or("unit", default.unit, |field| field.one_of(&UNITS));
    let prices = section.optional("prices", |field| match unit {
        Some(CostUnit::WorkerTime) | None => worker_prices(field),
        Some(unit) => field.wrong(format!(
            "are prices of a worker's time, and this pool counts {}: state unit: worker_time, or remove them",
            unit_words(unit)
        )),
    });
    if let Some(unit) = unit.filter(|unit| *unit != CostUnit::Tokens) {
        for weight in TOKEN_WEIGHTS {
            if let Some(field) = section.stated(weight) {
                field.wrong::<()>(format!(
                    "is a weight of tokens, and this pool counts {}: remove it, or state unit: tokens",
                    unit_words(unit)
                ));
            }
        }
    }
    let weight =
        |name, default| section.or(name, default, |field| field.thousandths(0..=1_000_000));
    let tokens = |name, default| section.or(name, default, |field| field.integer(1..=10_000_000));
    let input = weight("input", default.input_milli);
    let cached = weight("cached_input", default.cached_milli);
    let output = weight("output", default.output_milli);
    let output_default = tokens("output_default", default.output_default);
    let max_tokens_default = tokens("max_tokens_default", default.max_tokens_default);
    let tokenizer = section.or("tokenizer", default.tokenizer, |field| field.one_of(&TOKENIZERS));
    let weights_by_model = section.or("weights_by_model", default.weights_by_model, |field| {
        match field.clone().boolean()? {
            true if !default.weights_by_model => field
                .wrong("has no effect, because the pool's policy has no load node; leave it out"),
            stated => Some(stated),
        }
    });
    let files = section.or("files", default.files, |field| file_cost(field, default.files));
    if (input, output) == (Some(0), Some(0)) {
        return section.field.wrong(
            "input and output cannot both be 0: requests would cost nothing, and nothing be shared",
        );
    }
    Some(CostConfig {
        unit: unit?,
        prices: prices?,
        input_milli: input?,
        cached_milli: cached?,
        output_milli: output?,
        output_default: output_default?,
        max_tokens_default: max_tokens_default?,
        tokenizer: tokenizer?,
        weights_by_model: weights_by_model?,
        files: files?,
    })
}

/// The highest price: a second of a worker for each token, in picoseconds.
const WORKER_PRICE_MAX: u64 = 1_000_000_000_000;

/// Reads the six prices of a worker's time.
fn worker_prices(field: ConfigField<'_>) -> Option<WorkerPrices> {
    let section = field.section(&[
        "request",
        "input",
        "input_input",
        "cached",
        "output",
        "context_output",
    ])?;
    let price = |name| {
        let read = |field: ConfigField<'_>| field.integer(0..=WORKER_PRICE_MAX);
        section.required(name, "a price in picoseconds; fairgate calibrate prints all six", read)
    };
    let (request, input, input_input) = (price("request"), price("input"), price("input_input"));
    let (cached, output, context_output) =
        (price("cached"), price("output"), price("context_output"));
    if (request, input, output) == (Some(0), Some(0), Some(0)) {
        return section.field.wrong(
            "request, input and output cannot all be 0: requests would cost nothing, and nothing be shared",
        );
    }
    Some(WorkerPrices {
        request: request?,
        input: input?,
        input_input: input_input?,
        cached: cached?,
        output: output?,
        context_output: context_output?,
    })
}

/// Records an error if the pool would learn the prices of a worker that a pool with `observe:
/// false` uses too. Other gateways may then use that worker, and the learned prices would be wrong.
pub(super) fn check_whole_load_is_seen(
    field: &ConfigField<'_>,
    pool: &PoolDraft,
    all: &[PoolDraft],
    upstreams: &[UpstreamDraft<'_>],
) -> Option<()> {
    let config = pool.config.as_ref()?;
    if config.cost.unit != CostUnit::WorkerTime || config.cost.prices.is_some() || !config.observe {
        return None;
    }
    let url = |name: &String| {
        let upstream = upstreams.iter().find(|upstream| upstream.name.as_ref() == Some(name));
        upstream?.config.as_ref().map(|config| &config.url)
    };
    let is_used = |by: &PoolConfig, url_here| by.workers.iter().any(|name| url(name) == url_here);
    for worker in &config.workers {
        let here = url(worker);
        let mut users = all.iter().filter_map(|draft| draft.config.as_ref());
        let mut others = users.clone().filter(|other| !other.observe && is_used(other, here));
        let is_stated = users.any(|other| other.cost.prices.is_some() && is_used(other, here));
        if let Some(other) = others.next().filter(|_| here.is_some() && !is_stated) {
            let problem = format!(
                "needs prices, because the pool {:?}, which has observe: false, uses the worker {worker:?} too, and a gateway \
                 that does not see all that a worker does cannot learn them: state prices, or unit: tokens",
                other.name
            );
            return field.wrong_below("cost.unit", problem);
        }
    }
    None
}

/// Records an error if the pool counts worker time and none of its workers has a time that the gateway can price, or if it
/// counts money and leases its slots. `observe` is false if other gateways may use the workers too.
pub(super) fn check_unit(
    pool: &ConfigSection<'_>,
    cost: &CostConfig,
    workers: &[String],
    upstreams: &[UpstreamDraft<'_>],
    observe: bool,
) -> Option<()> {
    let Some(field) = pool.stated("cost") else { return Some(()) };
    // Only a pool of leases has no workers in the file.
    let is_leased = workers.is_empty();
    match cost.unit {
        CostUnit::Money if is_leased => {
            return field.wrong_below(
                "unit",
                "needs workers with prices, and a pool of leases has no workers: state unit: tokens".to_owned(),
            );
        }
        CostUnit::Tokens | CostUnit::Money => return Some(()),
        CostUnit::WorkerTime => {}
    }
    let learns = cost.prices.is_none();
    if is_leased {
        return match learns {
            true => field.wrong_below(
                "unit",
                "needs prices in a pool of leases, whose answers the gateway does not see: state prices, or unit: tokens"
                    .to_owned(),
            ),
            false => Some(()),
        };
    }
    let is_own = |name: &String| {
        let mut upstreams = upstreams.iter();
        upstreams.find(|upstream| upstream.name.as_ref() == Some(name)).is_none_or(|upstream| {
            upstream.tier.is_none_or(|tier| tier == 0)
                && upstream.config.as_ref().is_none_or(|config| !config.quota.is_hosted())
        })
    };
    if !workers.iter().any(is_own) {
        return field.wrong_below(
            "unit",
            "needs a worker of your own: all workers of this pool are hosted, and a provider's workers have no time that \
             could be shared. State unit: tokens, or unit: money"
                .to_owned(),
        );
    }
    if learns && !observe {
        return field.wrong_below(
            "unit",
            "needs prices with observe: false, because a gateway that does not see all that a worker does cannot learn \
             them: state prices, or unit: tokens"
                .to_owned(),
        );
    }
    Some(())
}

fn file_cost(field: ConfigField<'_>, default: FileCostConfig) -> Option<FileCostConfig> {
    let section = field.section(FILE_COST)?;
    let tokens =
        |name, default| section.or(name, default, |field| field.integer(0..=FILE_TOKENS_MAX));
    let per_token = |name, default| section.or(name, default, |field| field.integer(1..=1_000_000));
    let pdf_page = tokens("pdf_page_tokens", default.pdf_page_tokens);
    let pdf_bytes = per_token("pdf_bytes_per_token", default.pdf_bytes_per_token);
    let pixels = per_token("image_pixels_per_token", default.image_pixels_per_token);
    let image_min = tokens("image_tokens_min", default.image_tokens_min);
    let image_max = tokens("image_tokens_max", default.image_tokens_max);
    let audio_bytes = per_token("audio_bytes_per_token", default.audio_bytes_per_token);
    let unreadable = tokens("unreadable_tokens", default.unreadable_tokens);
    if image_min > image_max && image_max.is_some() {
        return section.field.wrong("image_tokens_min is more than image_tokens_max");
    }
    Some(FileCostConfig {
        pdf_page_tokens: pdf_page?,
        pdf_bytes_per_token: pdf_bytes?,
        image_pixels_per_token: pixels?,
        image_tokens_min: image_min?,
        image_tokens_max: image_max?,
        audio_bytes_per_token: audio_bytes?,
        unreadable_tokens: unreadable?,
    })
}
