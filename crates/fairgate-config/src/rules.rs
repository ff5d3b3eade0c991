//! Which fields of a body, and which headers, a client may send to an upstream.
//!
//! Engines take more than the APIs they serve: a priority in their own queue, a worker, a cache slot, a place to fetch a KV
//! cache from. A client that chooses these takes what the scheduler gave to somebody else, so they are stripped unless an
//! operator allows them. The built-in lists are what the public documentation and protocol definitions of vLLM, SGLang,
//! llama.cpp's server, TensorRT-LLM, Dynamo and the two vendors' APIs name.

/// Body fields that are stripped unless a rule says otherwise. A `*` at the end stands for any ending.
pub const STRIPPED_FIELDS: &[&str] = &[
    // Whose turn it is: vLLM, SGLang, TensorRT-LLM; OpenAI and Anthropic.
    "priority",
    "service_tier",
    "agent_hierarchy",
    // Where the KV cache comes from, and where it goes: vLLM, SGLang, TensorRT-LLM.
    "kv_transfer_params",
    "ec_transfer_params",
    "bootstrap_*",
    "disagg_*",
    "disaggregated_params",
    // Which worker, slot or session: SGLang, llama.cpp, TensorRT-LLM, Dynamo.
    "data_parallel_rank",
    "routed_dp_rank",
    "id_slot",
    "slot_id",
    "session_id",
    "session_params",
    "conversation_params",
    "nvext",
    // How much of a cache is used: llama.cpp.
    "cache_prompt",
    "n_cache_reuse",
    // The name of a request inside the engine, under which another may be aborted: vLLM, SGLang.
    "request_id",
    "rid",
    // Passed to extensions and plugins as they come, code among them: vLLM, SGLang.
    "vllm_xargs",
    "custom_params",
    "custom_logit_processor",
];

/// Body fields that are refused unless a rule says otherwise. llama.cpp reads `n_predict` before `max_tokens`: passed on, no
/// cap would hold; stripped, the answer would be longer than its caller wants.
pub const REFUSED_FIELDS: &[&str] = &["n_predict"];

/// Headers that are stripped unless a rule says otherwise.
pub const STRIPPED_HEADERS: &[&str] = &[
    // vLLM and SGLang: the data-parallel worker; the name of a request inside the engine.
    "x-data-parallel-rank",
    "x-request-id",
    // Dynamo, SGLang's router and the inference gateways of Kubernetes: sessions, workers, endpoints, bookkeeping.
    "x-session-id",
    "x-dp-rank",
    "x-worker-instance-id",
    "x-prefill-*",
    "x-enable-local-updates",
    "x-smg-*",
    "x-gateway-*",
    "x-dynamo-*",
    // No header of these names is known; what comes would be a control.
    "x-vllm-*",
    "x-sglang-*",
];

/// What happens to a field or header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// It goes on as it came.
    Allow,
    /// It is taken out, and the request goes on without it.
    Strip,
    /// The request is refused.
    Refuse,
}

/// An operator's rules for the fields, or the headers, of one upstream. They come before the built-in lists; among them the
/// longest name counts that fits. Names are compared without regard to upper and lower case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Names in lower case, with a `*` at the end for any ending, and what happens to them.
    pub named: Vec<(String, Rule)>,
}

impl Rules {
    /// What happens to a body field of this name.
    pub fn field(&self, name: &str) -> Rule {
        let own = self.own(name);
        own.or_else(|| listed(REFUSED_FIELDS, name, Rule::Refuse))
            .or_else(|| listed(STRIPPED_FIELDS, name, Rule::Strip))
            .unwrap_or(Rule::Allow)
    }

    /// What happens to a header of this name.
    pub fn header(&self, name: &str) -> Rule {
        let own = self.own(name);
        own.or_else(|| listed(STRIPPED_HEADERS, name, Rule::Strip)).unwrap_or(Rule::Allow)
    }

    fn own(&self, name: &str) -> Option<Rule> {
        let fitting = self.named.iter().filter(|(pattern, _)| fits(pattern, name));
        // A whole name is longer than any beginning of it that a `*` follows, but for the `*` itself.
        let longest = fitting.max_by_key(|(pattern, _)| (!pattern.ends_with('*'), pattern.len()));
        longest.map(|(_, rule)| *rule)
    }
}

fn listed(list: &[&str], name: &str, rule: Rule) -> Option<Rule> {
    list.iter().any(|pattern| fits(pattern, name)).then_some(rule)
}

fn fits(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => {
            name.get(..beginning.len()).is_some_and(|start| start.eq_ignore_ascii_case(beginning))
        }
        None => name.eq_ignore_ascii_case(pattern),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_name_of_an_operator_counts_before_the_built_in_lists() {
        let none = Rules::default();
        assert_eq!(none.field("priority"), Rule::Strip);
        assert_eq!(none.field("Priority"), Rule::Strip);
        assert_eq!(none.field("bootstrap_room"), Rule::Strip);
        assert_eq!(none.field("n_predict"), Rule::Refuse);
        assert_eq!(none.field("messages"), Rule::Allow);
        assert_eq!(none.header("x-data-parallel-rank"), Rule::Strip);
        assert_eq!(none.header("anthropic-beta"), Rule::Allow);
        let named = [
            ("priority", Rule::Allow),
            ("x_*", Rule::Refuse),
            ("x_y*", Rule::Strip),
            ("x_yes", Rule::Allow),
        ];
        let rules = Rules { named: named.map(|(name, rule)| (name.to_owned(), rule)).into() };
        assert_eq!(rules.field("priority"), Rule::Allow);
        assert_eq!(rules.field("x_a"), Rule::Refuse);
        assert_eq!(rules.field("x_yet"), Rule::Strip);
        assert_eq!(rules.field("x_yes"), Rule::Allow);
        assert_eq!(rules.field("rid"), Rule::Strip);
        assert_eq!(rules.field("é"), Rule::Allow);
    }
}
