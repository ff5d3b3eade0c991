//! Rules for the body fields and headers that a client may send to an upstream.
//!
//! Engines accept more fields than the APIs that they serve, for example a priority in their own queue, a worker, a
//! cache slot, or an address from which to fetch a KV cache. A client that sets these fields takes capacity that the
//! scheduler gave to others. So these fields are stripped unless an operator allows them. The built-in lists follow the
//! public documentation and protocol definitions of vLLM, SGLang, llama.cpp's server, TensorRT-LLM, Dynamo and the APIs
//! of OpenAI and Anthropic.

/// Body fields that are stripped unless a rule says otherwise. A `*` at the end matches any ending.
pub const STRIPPED_FIELDS: &[&str] = &[
    // Order in the engine's queue: vLLM, SGLang, TensorRT-LLM; OpenAI and Anthropic.
    "priority",
    "service_tier",
    "agent_hierarchy",
    // Source and target of the KV cache: vLLM, SGLang, TensorRT-LLM.
    "kv_transfer_params",
    "ec_transfer_params",
    "bootstrap_*",
    "disagg_*",
    "disaggregated_params",
    // Choice of a worker, slot or session: SGLang, llama.cpp, TensorRT-LLM, Dynamo.
    "data_parallel_rank",
    "routed_dp_rank",
    "id_slot",
    "slot_id",
    "session_id",
    "session_params",
    "conversation_params",
    "nvext",
    // Use of the prompt cache: llama.cpp.
    "cache_prompt",
    "n_cache_reuse",
    // Id of a request inside the engine, by which another request may be aborted: vLLM, SGLang.
    "request_id",
    "rid",
    // Passed unchanged to extensions and plugins, which may include code: vLLM, SGLang.
    "vllm_xargs",
    "custom_params",
    "custom_logit_processor",
];

/// Body fields that are refused unless a rule says otherwise. llama.cpp prefers `n_predict` to `max_tokens`. If the
/// gateway passed `n_predict` on, it would override any cap. If the gateway stripped it, the response would be longer
/// than the client wants.
pub const REFUSED_FIELDS: &[&str] = &["n_predict"];

/// Headers that are stripped unless a rule says otherwise. A `*` at the end matches any ending.
pub const STRIPPED_HEADERS: &[&str] = &[
    // vLLM and SGLang: the data-parallel worker, and the id of a request inside the engine.
    "x-data-parallel-rank",
    "x-request-id",
    // Dynamo, SGLang's router and the inference gateways of Kubernetes: sessions, workers, endpoints, accounting.
    "x-session-id",
    "x-dp-rank",
    "x-worker-instance-id",
    "x-prefill-*",
    "x-enable-local-updates",
    "x-smg-*",
    "x-gateway-*",
    "x-dynamo-*",
    // No header with these prefixes is known. A future one would be an engine control.
    "x-vllm-*",
    "x-sglang-*",
];

/// Action for a field or header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldRule {
    /// The field or header is passed on unchanged.
    Allow,
    /// The field or header is removed, and the request goes on without it.
    Strip,
    /// The request is refused.
    Refuse,
}

/// An operator's rules for the fields, or the headers, of one upstream. They take precedence over the built-in lists;
/// the longest matching name wins. Names are compared case-insensitively.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldRules {
    /// Names in lower case, with an optional `*` at the end for any ending, and the action for each.
    pub named: Vec<(String, FieldRule)>,
}

impl FieldRules {
    /// Returns the action for a body field of this name.
    pub fn field(&self, name: &str) -> FieldRule {
        let own = self.own(name);
        own.or_else(|| REFUSED_FIELD_LIST.rule(name, FieldRule::Refuse))
            .or_else(|| STRIPPED_FIELD_LIST.rule(name, FieldRule::Strip))
            .unwrap_or(FieldRule::Allow)
    }

    /// Returns the action for a header of this name.
    pub fn header(&self, name: &str) -> FieldRule {
        let own = self.own(name);
        own.or_else(|| STRIPPED_HEADER_LIST.rule(name, FieldRule::Strip))
            .unwrap_or(FieldRule::Allow)
    }

    fn own(&self, name: &str) -> Option<FieldRule> {
        let fitting = self.named.iter().filter(|(pattern, _)| fits(pattern, name));
        // A full name wins over any pattern with `*`.
        let longest = fitting.max_by_key(|(pattern, _)| (!pattern.ends_with('*'), pattern.len()));
        longest.map(|(_, rule)| *rule)
    }
}

/// A built-in list, with the letters with which its patterns begin. Each field and header of a request is looked for,
/// and most begin with another letter.
struct BuiltInList {
    patterns: &'static [&'static str],
    /// One bit for each letter of the alphabet.
    letters: u32,
}

const REFUSED_FIELD_LIST: BuiltInList = BuiltInList::new(REFUSED_FIELDS);
const STRIPPED_FIELD_LIST: BuiltInList = BuiltInList::new(STRIPPED_FIELDS);
const STRIPPED_HEADER_LIST: BuiltInList = BuiltInList::new(STRIPPED_HEADERS);

impl BuiltInList {
    const fn new(patterns: &'static [&'static str]) -> Self {
        let (mut letters, mut at) = (0, 0);
        while at < patterns.len() {
            letters |= letter(patterns[at].as_bytes()[0]);
            at += 1;
        }
        Self { patterns, letters }
    }

    fn rule(&self, name: &str, rule: FieldRule) -> Option<FieldRule> {
        let first = name.bytes().next().map_or(0, letter);
        let is_listed =
            self.letters & first != 0 && self.patterns.iter().any(|pattern| fits(pattern, name));
        is_listed.then_some(rule)
    }
}

/// Returns the bit of a letter; 0 if the byte is no letter.
const fn letter(byte: u8) -> u32 {
    let lower = byte.to_ascii_lowercase();
    if lower.is_ascii_lowercase() { 1 << (lower - b'a') } else { 0 }
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
        let none = FieldRules::default();
        assert_eq!(none.field("priority"), FieldRule::Strip);
        assert_eq!(none.field("Priority"), FieldRule::Strip);
        assert_eq!(none.field("bootstrap_room"), FieldRule::Strip);
        assert_eq!(none.field("n_predict"), FieldRule::Refuse);
        assert_eq!(none.field("messages"), FieldRule::Allow);
        assert_eq!(none.header("x-data-parallel-rank"), FieldRule::Strip);
        assert_eq!(none.header("anthropic-beta"), FieldRule::Allow);
        for list in [REFUSED_FIELD_LIST, STRIPPED_FIELD_LIST, STRIPPED_HEADER_LIST] {
            for pattern in list.patterns {
                for name in [pattern.replace('*', "x"), pattern.replace('*', "").to_uppercase()] {
                    assert_eq!(
                        list.rule(&name, FieldRule::Strip),
                        Some(FieldRule::Strip),
                        "{name}"
                    );
                }
            }
            assert_eq!(list.rule("", FieldRule::Strip), None);
        }
        let named = [
            ("priority", FieldRule::Allow),
            ("x_*", FieldRule::Refuse),
            ("x_y*", FieldRule::Strip),
            ("x_yes", FieldRule::Allow),
        ];
        let rules = FieldRules { named: named.map(|(name, rule)| (name.to_owned(), rule)).into() };
        assert_eq!(rules.field("priority"), FieldRule::Allow);
        assert_eq!(rules.field("x_a"), FieldRule::Refuse);
        assert_eq!(rules.field("x_yet"), FieldRule::Strip);
        assert_eq!(rules.field("x_yes"), FieldRule::Allow);
        assert_eq!(rules.field("rid"), FieldRule::Strip);
        assert_eq!(rules.field("é"), FieldRule::Allow);
    }
}
