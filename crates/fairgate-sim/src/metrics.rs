//! Metrics for `GET /metrics`, in vLLM's format, for gateways that read an engine's metrics.

use std::fmt::Write;

use crate::backend::BackendState;
use crate::prompt::CACHE_BLOCK_TOKENS;
use crate::stats::SimStats;

/// Media type of Prometheus' text format.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Formats the metrics of a backend in Prometheus' text format.
pub(crate) fn text(backend: &BackendState) -> String {
    let SimStats { in_flight, waiting, input_tokens, output_tokens, .. } = backend.tally().counts();
    let model = backend.options.models.first().map(String::as_str).unwrap_or_default();
    let model = model.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let labels = format!("{{engine=\"0\",model_name=\"{model}\"}}");
    let mut text = String::new();
    let mut metric = |name: &str, kind: &str, labels: &str, value: String| {
        // Writing to a string cannot fail.
        _ = writeln!(text, "# TYPE {name} {kind}\n{name}{labels} {value}");
    };
    let started = format!("{}.{:03}", backend.born_ms() / 1000, backend.born_ms() % 1000);
    metric("process_start_time_seconds", "gauge", "", started);
    metric("vllm:num_requests_running", "gauge", &labels, in_flight.to_string());
    metric("vllm:num_requests_waiting", "gauge", &labels, waiting.to_string());
    // Each slot has its part of the cache. As in vLLM, blocks that are only kept for later hits do
    // not count as used.
    let used = format!("{:.3}", in_flight as f64 / backend.options.slots as f64);
    metric("vllm:kv_cache_usage_perc", "gauge", &labels, used);
    let blocks = backend.options.prefix_cache_blocks;
    if blocks > 0 {
        let cache = format!(
            "{{block_size=\"{CACHE_BLOCK_TOKENS}\",cache_dtype=\"auto\",engine=\"0\",num_gpu_blocks=\"{blocks}\"}}"
        );
        metric("vllm:cache_config_info", "gauge", &cache, "1.0".to_owned());
    }
    metric("vllm:prompt_tokens_total", "counter", &labels, input_tokens.to_string());
    metric("vllm:generation_tokens_total", "counter", &labels, output_tokens.to_string());
    text
}
