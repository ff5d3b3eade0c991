//! The answer to a request, before it is formatted for an API. It consists of choices with a known number of tokens,
//! and of a usage.

use fairgate_random::number_at;
use fairgate_time::wall_clock;
use serde_json::{Value, json};

use crate::fault::{SimFault, UsageFault};
use crate::options::SimOptions;
use crate::request::SimRequest;
use crate::text::write_word;
use crate::tool::ToolCall;

/// An answer that can be sent token by token or as a whole. The text is not stored, because each token is generated
/// from a seed when it is sent.
#[derive(Debug)]
pub(crate) struct SimAnswer {
    pub(crate) id: String,
    /// Creation time in seconds since 1970.
    pub(crate) created: u64,
    pub(crate) model: String,
    pub(crate) choices: Vec<AnswerChoice>,
    pub(crate) usage: SimUsage,
    /// Reasoning tokens that are in the usage but not in the text.
    pub(crate) hidden: u64,
    /// Number of bytes of filler at the beginning of the first token; above 0 only for
    /// [`SimFault::OversizedEvent`].
    filler_bytes: usize,
}

/// One choice of an answer. A request with `n` above 1, or with several prompts, has several
/// choices.
#[derive(Debug)]
pub(crate) struct AnswerChoice {
    pub(crate) content: ChoiceContent,
    /// Length of the choice in tokens. In a stream, each token is one piece.
    pub(crate) pieces: u64,
    /// True if the request's limit of output tokens ended the choice early.
    pub(crate) cut_short: bool,
}

#[derive(Debug)]
pub(crate) enum ChoiceContent {
    Text { seed: u64 },
    Tool { call: ToolCall, call_id: String },
}

impl SimAnswer {
    pub(crate) fn new(
        id: String,
        request: &SimRequest,
        input: InputTokens,
        fault: Option<SimFault>,
        options: &SimOptions,
    ) -> Self {
        let choices = choices(&id, request, fault, options);
        let hidden = match fault {
            Some(SimFault::HiddenTokens { tokens }) => tokens,
            _ => 0,
        };
        let output = choices.iter().fold(hidden, |sum, choice| sum.saturating_add(choice.pieces));
        let usage_fault = match fault {
            Some(SimFault::Usage(fault)) => Some(fault),
            _ => None,
        };
        let filler_bytes = match fault {
            Some(SimFault::OversizedEvent { bytes }) => bytes,
            _ => 0,
        };
        Self {
            created: unix_seconds(),
            model: request.model.clone(),
            usage: SimUsage { input, output, hidden, fault: usage_fault },
            id,
            choices,
            hidden,
            filler_bytes,
        }
    }

    /// Returns the number of decoding steps, which is the number of tokens of the longest choice.
    pub(crate) fn steps(&self) -> u64 {
        self.choices.iter().map(|choice| choice.pieces).max().unwrap_or(0)
    }

    /// Returns the number of tokens that all choices together have after `steps` decoding steps.
    pub(crate) fn tokens_after(&self, steps: u64) -> u64 {
        self.choices.iter().fold(0, |sum, choice| sum.saturating_add(choice.pieces.min(steps)))
    }

    /// Returns the text of one token of a choice. `choice` and `index` are counted from 0.
    pub(crate) fn piece(&self, choice: usize, index: u64) -> String {
        let mut text = String::new();
        self.write_piece(choice, index, &mut text);
        text
    }

    /// Returns the whole text of a choice.
    pub(crate) fn text(&self, choice: usize) -> String {
        let mut text = String::new();
        (0..self.choices[choice].pieces)
            .for_each(|index| self.write_piece(choice, index, &mut text));
        text
    }

    fn write_piece(&self, choice: usize, index: u64, out: &mut String) {
        match &self.choices[choice].content {
            ChoiceContent::Text { seed } => {
                if (choice, index) == (0, 0) {
                    out.extend(std::iter::repeat_n('x', self.filler_bytes));
                }
                write_word(out, *seed, index);
            }
            ChoiceContent::Tool { call, .. } => {
                let piece = usize::try_from(index).ok().and_then(|index| call.arguments.get(index));
                out.push_str(piece.map_or("", String::as_str));
            }
        }
    }
}

fn choices(
    id: &str,
    request: &SimRequest,
    fault: Option<SimFault>,
    options: &SimOptions,
) -> Vec<AnswerChoice> {
    let mut choices = Vec::new();
    for prompt in &request.prompts {
        for repeat in 0..request.choices_per_prompt {
            let seed = number_at(prompt.hash(), repeat);
            let (content, natural) = match &request.tool_call {
                Some(call) => {
                    let natural = u64::try_from(call.arguments.len()).unwrap_or(u64::MAX);
                    let call_id = format!("call_{id}_{}", choices.len());
                    (ChoiceContent::Tool { call: call.clone(), call_id }, natural)
                }
                None => {
                    let wanted = prompt.steering_options.output_tokens();
                    let natural = wanted.unwrap_or_else(|| options.output_tokens.choose(seed));
                    (ChoiceContent::Text { seed }, natural)
                }
            };
            let most = request.output_tokens_max.unwrap_or(u64::MAX);
            choices.push(match fault {
                Some(SimFault::Endless) => {
                    AnswerChoice { content, pieces: u64::MAX, cut_short: false }
                }
                _ => AnswerChoice { content, pieces: natural.min(most), cut_short: natural > most },
            });
        }
    }
    choices
}

fn unix_seconds() -> u64 {
    wall_clock::since_1970().as_secs()
}

/// Number of input tokens of a request, and the cached part.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct InputTokens {
    pub(crate) tokens: u64,
    /// Input tokens that were found in the prefix cache; `None` if the backend has no prefix cache.
    pub(crate) cached: Option<u64>,
}

/// Usage of a request, and the fault with which the answer reports this usage.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SimUsage {
    pub(crate) input: InputTokens,
    pub(crate) output: u64,
    /// Output tokens that count as reasoning and are not sent; a part of all output tokens.
    pub(crate) hidden: u64,
    pub(crate) fault: Option<UsageFault>,
}

impl SimUsage {
    /// Formats the usage for OpenAI's chat, completions and embeddings; `None` if the fault leaves it out.
    pub(crate) fn openai(&self, with_output: bool) -> Option<Value> {
        let mut usage = json!({
            "prompt_tokens": self.number(self.input.tokens),
            "total_tokens": self.number(self.input.tokens.saturating_add(self.output)),
        });
        if with_output {
            usage["completion_tokens"] = self.number(self.output);
            if self.hidden > 0 {
                usage["completion_tokens_details"] =
                    json!({"reasoning_tokens": self.number(self.hidden)});
            }
        }
        if let Some(cached) = self.input.cached {
            usage["prompt_tokens_details"] = json!({"cached_tokens": self.number(cached)});
        }
        self.unless_missing(usage)
    }

    /// Formats the usage for OpenAI's Responses API; `None` if the fault leaves it out.
    pub(crate) fn responses(&self) -> Option<Value> {
        self.unless_missing(json!({
            "input_tokens": self.number(self.input.tokens),
            "input_tokens_details": {"cached_tokens": self.number(self.input.cached.unwrap_or(0))},
            "output_tokens": self.number(self.output),
            "output_tokens_details": {"reasoning_tokens": self.number(self.hidden)},
            "total_tokens": self.number(self.input.tokens.saturating_add(self.output)),
        }))
    }

    /// Formats the usage for Anthropic's Messages API, in which the input tokens do not include the cached ones.
    pub(crate) fn messages(&self, output: u64) -> Option<Value> {
        let cached = self.input.cached.unwrap_or(0);
        let mut usage = json!({
            "input_tokens": self.number(self.input.tokens.saturating_sub(cached)),
            "output_tokens": self.number(output),
        });
        if self.input.cached.is_some() {
            usage["cache_creation_input_tokens"] = self.number(0);
            usage["cache_read_input_tokens"] = self.number(cached);
        }
        self.unless_missing(usage)
    }

    /// Formats the output tokens alone, for the end of a stream of the Messages API; `None` if the fault
    /// leaves them out.
    pub(crate) fn output_only(&self) -> Option<Value> {
        self.unless_missing(json!({"output_tokens": self.number(self.output)}))
    }

    fn unless_missing(&self, usage: Value) -> Option<Value> {
        (self.fault != Some(UsageFault::Missing)).then_some(usage)
    }

    fn number(&self, tokens: u64) -> Value {
        match self.fault {
            None | Some(UsageFault::Missing) => json!(tokens),
            Some(UsageFault::Negative) => {
                json!(i64::try_from(tokens).map_or(i64::MIN, |tokens| -1 - tokens))
            }
            Some(UsageFault::Huge) => json!(tokens.saturating_add(1_000_000_000_000_000_000)),
            Some(UsageFault::Strings) => json!(tokens.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::OutputLength;
    use crate::route::SimRoute;

    fn answer(body: &Value, fault: Option<SimFault>) -> SimAnswer {
        let options =
            SimOptions { output_tokens: OutputLength::exactly(20), ..SimOptions::default() };
        let request =
            SimRequest::read(SimRoute::Chat, body.to_string().as_bytes(), &options).unwrap();
        SimAnswer::new("id".to_owned(), &request, InputTokens::default(), fault, &options)
    }

    fn body(content: &str) -> Value {
        json!({"model": "sim", "messages": [{"role": "user", "content": content}]})
    }

    #[test]
    fn the_same_prompt_has_the_same_answer() {
        let said = |content| answer(&body(content), None).text(0);
        assert_eq!(said("Hello"), said("Hello"));
        assert_ne!(said("Hello"), said("Goodbye"));
        assert_eq!(said("Hello").split_whitespace().count(), 20);
    }

    #[test]
    fn a_limit_cuts_an_answer_short() {
        let mut request = body("Hello");
        request["max_tokens"] = json!(5);
        let short = answer(&request, None);
        assert_eq!((short.choices[0].pieces, short.choices[0].cut_short), (5, true));
        request["max_tokens"] = json!(20);
        assert!(!answer(&request, None).choices[0].cut_short);
        assert!(answer(&body("Hello"), None).text(0).starts_with(&short.text(0)));
    }

    #[test]
    fn choices_differ_and_add_up() {
        let mut request = body("Hello");
        request["n"] = json!(3);
        let answer = answer(&request, None);
        assert_ne!(answer.text(0), answer.text(1));
        assert_eq!((answer.usage.output, answer.steps(), answer.tokens_after(7)), (60, 20, 21));
    }

    #[test]
    fn an_oversized_event_is_all_in_the_first_piece() {
        let answer = answer(&body("Hello"), Some(SimFault::OversizedEvent { bytes: 1000 }));
        assert!(answer.piece(0, 0).len() > 1000 && answer.piece(0, 1).len() < 20);
    }

    #[test]
    fn usage_can_lie_in_every_way() {
        let input = InputTokens { tokens: 7, cached: Some(2) };
        let usage = |fault| SimUsage { input, output: 3, hidden: 0, fault };
        assert_eq!(usage(None).openai(true).unwrap()["total_tokens"], 10);
        assert_eq!(usage(None).messages(3).unwrap()["input_tokens"], 5);
        assert_eq!(usage(Some(UsageFault::Missing)).openai(true), None);
        let total = |fault| usage(Some(fault)).responses().unwrap()["total_tokens"].clone();
        assert_eq!(total(UsageFault::Negative), json!(-11));
        assert_eq!(total(UsageFault::Strings), json!("10"));
        assert_eq!(total(UsageFault::Huge), json!(1_000_000_000_000_000_010_u64));
    }
}
