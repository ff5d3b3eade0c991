//! Parses an engine's metrics, which show its kind, its running and queued requests, and the size of its cache.
//!
//! The engine is recognised by the names of its metrics: those of vLLM 0.6 to 0.11 (`--enable-metrics` is its default),
//! SGLang 0.4 and later (`--enable-metrics`) and llama.cpp's server (`--metrics`). An engine with several ranks has a
//! sample for each rank. The samples are added up, except for the fraction of the cache in use, of which the highest
//! counts.

use super::prometheus_text::{MetricLineError, MetricSample, samples};

/// Kind of an engine, recognised by the names of its metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EngineKind {
    Vllm,
    Sglang,
    LlamaCpp,
}

impl EngineKind {
    /// Returns the name of the engine in the API.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Vllm => "vllm",
            Self::Sglang => "sglang",
            Self::LlamaCpp => "llama.cpp",
        }
    }
}

/// One reading of an engine's metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EngineReading {
    pub(crate) kind: EngineKind,
    /// Number of requests that the engine is working on.
    pub(crate) running: u64,
    /// Number of requests in the engine's own queue.
    pub(crate) waiting: u64,
    /// Fraction of the engine's cache that is in use, in thousandths; `None` if the engine does not report it.
    pub(crate) cache_used_milli: Option<u64>,
    /// Size of the engine's cache in tokens; `None` if the engine does not report it.
    pub(crate) cache_tokens: Option<u64>,
    /// Start time of the engine's process, in a unit that depends on the engine. All readings of one process have the
    /// same value.
    pub(crate) started: Option<u64>,
    /// Number of input tokens since the engine started. A lower number than before means a restart.
    pub(crate) input_tokens: Option<u64>,
}

/// Reason why a text cannot be read as the metrics of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EngineReadingError {
    #[error("its metrics are not in Prometheus' text format: {0}")]
    Malformed(#[from] MetricsTextError),
    #[error("its metrics are those of no engine that is known: vLLM, SGLang or llama.cpp")]
    Unknown,
}

/// Wrapper by which the crate can name [`MetricLineError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
pub(crate) struct MetricsTextError(#[from] MetricLineError);

/// Names of an engine's metrics.
struct EngineMetricNames {
    kind: EngineKind,
    running: &'static str,
    waiting: &'static str,
    /// Names of the metric for the use of the cache, the newer name first.
    cache_used: [&'static str; 2],
    cache_tokens: Option<&'static str>,
    input_tokens: &'static str,
}

const ENGINES: [EngineMetricNames; 3] = [
    EngineMetricNames {
        kind: EngineKind::Vllm,
        running: "vllm:num_requests_running",
        waiting: "vllm:num_requests_waiting",
        cache_used: ["vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"],
        cache_tokens: None,
        input_tokens: "vllm:prompt_tokens_total",
    },
    EngineMetricNames {
        kind: EngineKind::Sglang,
        running: "sglang:num_running_reqs",
        waiting: "sglang:num_queue_reqs",
        cache_used: ["sglang:token_usage", ""],
        cache_tokens: Some("sglang:max_total_num_tokens"),
        input_tokens: "sglang:prompt_tokens_total",
    },
    EngineMetricNames {
        kind: EngineKind::LlamaCpp,
        running: "llamacpp:requests_processing",
        waiting: "llamacpp:requests_deferred",
        cache_used: ["llamacpp:kv_cache_usage_ratio", ""],
        cache_tokens: None,
        input_tokens: "llamacpp:prompt_tokens_total",
    },
];

/// Metric whose labels describe the cache of vLLM.
const VLLM_CACHE: &str = "vllm:cache_config_info";
const PROCESS_START: &str = "process_start_time_seconds";

impl EngineReading {
    /// Parses a text of metrics.
    pub(crate) fn of(text: &str) -> Result<Self, EngineReadingError> {
        let all: Vec<MetricSample<'_>> =
            samples(text).collect::<Result<_, _>>().map_err(MetricsTextError::from)?;
        let values = |name: &str| {
            let named = all.iter().filter(move |sample| sample.name == name);
            named.map(|sample| sample.value).collect::<Vec<f64>>()
        };
        let known = ENGINES.iter().find(|engine| !values(engine.running).is_empty());
        let names = known.ok_or(EngineReadingError::Unknown)?;
        let sum = |name: &str| Some(values(name)).filter(|found| !found.is_empty()).map(added);
        let used = names.cache_used.iter().find_map(|name| highest(&values(name)));
        let cache_tokens = match names.cache_tokens {
            Some(name) => sum(name),
            None => vllm_cache_tokens(&all),
        };
        Ok(Self {
            kind: names.kind,
            running: sum(names.running).unwrap_or(0),
            waiting: sum(names.waiting).unwrap_or(0),
            cache_used_milli: used.map(|part| whole(part * 1000.0).min(1000)),
            cache_tokens: cache_tokens.filter(|tokens| *tokens > 0),
            started: highest(&values(PROCESS_START)).map(|seconds| whole(seconds * 1000.0)),
            input_tokens: sum(names.input_tokens),
        })
    }
}

fn added(values: Vec<f64>) -> u64 {
    values.into_iter().map(whole).fold(0, u64::saturating_add)
}

fn highest(values: &[f64]) -> Option<f64> {
    values.iter().copied().reduce(f64::max)
}

/// Rounds a value to a whole number; 0 for negative values and NaN.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` keeps within the range, and takes what is no number for 0"
)]
fn whole(value: f64) -> u64 {
    value.round() as u64
}

/// Returns the cache size of vLLM: blocks × tokens per block, summed over all ranks.
fn vllm_cache_tokens(all: &[MetricSample<'_>]) -> Option<u64> {
    let caches = all.iter().filter(|sample| sample.name == VLLM_CACHE);
    let number = |sample: &MetricSample<'_>, label| sample.label(label)?.parse::<u64>().ok();
    let tokens = caches.filter_map(|cache| {
        let blocks = number(cache, "num_gpu_blocks")?;
        Some(blocks.saturating_mul(number(cache, "block_size")?))
    });
    tokens.reduce(u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vllm() {
        let text = "\
# TYPE process_start_time_seconds gauge
process_start_time_seconds 1.76320000025e+09
vllm:num_requests_running{engine=\"0\",model_name=\"m\"} 3.0
vllm:num_requests_running{engine=\"1\",model_name=\"m\"} 2.0
vllm:num_requests_waiting{engine=\"0\",model_name=\"m\"} 0.0
vllm:num_requests_waiting{engine=\"1\",model_name=\"m\"} 4.0
vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"m\"} 0.25
vllm:kv_cache_usage_perc{engine=\"1\",model_name=\"m\"} 0.9416
vllm:cache_config_info{block_size=\"16\",cache_dtype=\"auto\",engine=\"0\",num_gpu_blocks=\"573\",sliding_window=\"None\"} 1.0
vllm:cache_config_info{block_size=\"16\",engine=\"1\",num_gpu_blocks=\"None\"} 1.0
vllm:prompt_tokens_total{engine=\"0\",model_name=\"m\"} 1.2e+06
";
        let expected = EngineReading {
            kind: EngineKind::Vllm,
            running: 5,
            waiting: 4,
            cache_used_milli: Some(942),
            cache_tokens: Some(573 * 16),
            started: Some(1_763_200_000_250),
            input_tokens: Some(1_200_000),
        };
        assert_eq!(EngineReading::of(text), Ok(expected));
        let old = "vllm:num_requests_running 1\nvllm:gpu_cache_usage_perc 0.5\n";
        assert_eq!(EngineReading::of(old).unwrap().cache_used_milli, Some(500));
    }

    #[test]
    fn sglang_and_llama_cpp() {
        let text = "\
sglang:num_running_reqs{model_name=\"m\",tp_rank=\"0\"} 7.0
sglang:num_queue_reqs{model_name=\"m\",tp_rank=\"0\"} 1.0
sglang:token_usage{model_name=\"m\"} 0.28
sglang:max_total_num_tokens{model_name=\"m\"} 471258.0
sglang:prompt_tokens_total{model_name=\"m\"} 10
";
        let sglang = EngineReading::of(text).unwrap();
        assert_eq!((sglang.kind, sglang.running, sglang.waiting), (EngineKind::Sglang, 7, 1));
        assert_eq!((sglang.cache_used_milli, sglang.cache_tokens), (Some(280), Some(471_258)));
        let text = "llamacpp:requests_processing 4\nllamacpp:requests_deferred 46\nllamacpp:prompt_tokens_total 33065\n";
        let llama = EngineReading::of(text).unwrap();
        assert_eq!((llama.kind, llama.running, llama.waiting), (EngineKind::LlamaCpp, 4, 46));
        assert_eq!((llama.cache_used_milli, llama.cache_tokens, llama.started), (None, None, None));
        assert_eq!(llama.input_tokens, Some(33_065));
    }

    #[test]
    fn what_is_no_engine_is_not_taken_for_an_idle_one() {
        assert_eq!(EngineReading::of("python_info 1\n"), Err(EngineReadingError::Unknown));
        assert_eq!(EngineReading::of(""), Err(EngineReadingError::Unknown));
        assert!(matches!(EngineReading::of("<html>\n"), Err(EngineReadingError::Malformed(_))));
        assert_eq!(EngineReading::of("vllm:num_requests_running NaN").unwrap().running, 0);
        assert_eq!(EngineReading::of("vllm:num_requests_running -1e300").unwrap().running, 0);
    }
}
