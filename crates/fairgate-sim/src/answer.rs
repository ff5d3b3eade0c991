//! What is said in reply, independent of any API: some choices, each a known number of pieces, and a usage.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::ask::Ask;
use crate::fault::{Fault, UsageFault};
use crate::options::SimOptions;
use crate::text::{scatter, write_word};
use crate::tool::ToolCall;

/// A reply that can be told piece by piece or at once. Nothing of it is kept: each piece is made when it is said.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) id: String,
    /// Seconds since 1970.
    pub(crate) created: u64,
    pub(crate) model: String,
    pub(crate) choices: Vec<Choice>,
    pub(crate) usage: Usage,
    /// Tokens of thinking that nobody sees.
    pub(crate) hidden: u64,
    /// So many bytes stand before the first piece, for events that are too large on purpose.
    filler_bytes: usize,
}

/// One of a request's answers.
#[derive(Debug)]
pub(crate) struct Choice {
    pub(crate) content: Content,
    /// Its length in tokens.
    pub(crate) pieces: u64,
    /// Whether the request's limit ended it.
    pub(crate) cut_short: bool,
}

#[derive(Debug)]
pub(crate) enum Content {
    Text { seed: u64 },
    Tool { call: ToolCall, call_id: String },
}

impl Answer {
    pub(crate) fn new(
        id: String,
        ask: &Ask,
        input: Input,
        fault: Option<Fault>,
        options: &SimOptions,
    ) -> Self {
        let choices = choices(&id, ask, fault, options);
        let hidden = match fault {
            Some(Fault::HiddenTokens { tokens }) => tokens,
            _ => 0,
        };
        let output = choices.iter().fold(hidden, |sum, choice| sum.saturating_add(choice.pieces));
        let usage_fault = match fault {
            Some(Fault::Usage(fault)) => Some(fault),
            _ => None,
        };
        let filler_bytes = match fault {
            Some(Fault::OversizedEvent { bytes }) => bytes,
            _ => 0,
        };
        Self {
            created: unix_seconds(),
            model: ask.model.clone(),
            usage: Usage { input, output, hidden, fault: usage_fault },
            id,
            choices,
            hidden,
            filler_bytes,
        }
    }

    /// The tokens of its longest choice: so many steps of decoding it takes.
    pub(crate) fn steps(&self) -> u64 {
        self.choices.iter().map(|choice| choice.pieces).max().unwrap_or(0)
    }

    /// How many tokens all choices have after so many steps.
    pub(crate) fn tokens_after(&self, steps: u64) -> u64 {
        self.choices.iter().fold(0, |sum, choice| sum.saturating_add(choice.pieces.min(steps)))
    }

    /// The `index`th token of a choice.
    pub(crate) fn piece(&self, choice: usize, index: u64) -> String {
        let mut text = String::new();
        self.write_piece(choice, index, &mut text);
        text
    }

    /// A whole choice.
    pub(crate) fn said(&self, choice: usize) -> String {
        let mut text = String::new();
        (0..self.choices[choice].pieces)
            .for_each(|index| self.write_piece(choice, index, &mut text));
        text
    }

    fn write_piece(&self, choice: usize, index: u64, out: &mut String) {
        match &self.choices[choice].content {
            Content::Text { seed } => {
                if (choice, index) == (0, 0) {
                    out.extend(std::iter::repeat_n('x', self.filler_bytes));
                }
                write_word(out, *seed, index);
            }
            Content::Tool { call, .. } => {
                let piece = usize::try_from(index).ok().and_then(|index| call.arguments.get(index));
                out.push_str(piece.map_or("", String::as_str));
            }
        }
    }
}

fn choices(id: &str, ask: &Ask, fault: Option<Fault>, options: &SimOptions) -> Vec<Choice> {
    let mut choices = Vec::new();
    for prompt in &ask.prompts {
        for repeat in 0..ask.choices_per_prompt {
            let seed = scatter(prompt.hash(), repeat);
            let (content, natural) = match &ask.tool_call {
                Some(call) => {
                    let natural = u64::try_from(call.arguments.len()).unwrap_or(u64::MAX);
                    let call_id = format!("call_{id}_{}", choices.len());
                    (Content::Tool { call: call.clone(), call_id }, natural)
                }
                None => {
                    let wished = prompt.wishes.output_tokens();
                    let natural = wished.unwrap_or_else(|| options.output_tokens.choose(seed));
                    (Content::Text { seed }, natural)
                }
            };
            let most = ask.output_tokens_max.unwrap_or(u64::MAX);
            choices.push(match fault {
                Some(Fault::Endless) => Choice { content, pieces: u64::MAX, cut_short: false },
                _ => Choice { content, pieces: natural.min(most), cut_short: natural > most },
            });
        }
    }
    choices
}

fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The input tokens of a request.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Input {
    pub(crate) tokens: u64,
    /// How many of them the prefix cache had; `None` where there is no cache.
    pub(crate) cached: Option<u64>,
}

/// What a request used, and how its report lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    pub(crate) input: Input,
    pub(crate) output: u64,
    /// How many of the output tokens nobody saw.
    pub(crate) hidden: u64,
    pub(crate) fault: Option<UsageFault>,
}

impl Usage {
    /// As chat, completions and embeddings report it.
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
        self.told(usage)
    }

    /// As the Responses API reports it.
    pub(crate) fn responses(&self) -> Option<Value> {
        self.told(json!({
            "input_tokens": self.number(self.input.tokens),
            "input_tokens_details": {"cached_tokens": self.number(self.input.cached.unwrap_or(0))},
            "output_tokens": self.number(self.output),
            "output_tokens_details": {"reasoning_tokens": self.number(self.hidden)},
            "total_tokens": self.number(self.input.tokens.saturating_add(self.output)),
        }))
    }

    /// As the Messages API reports it: cached input tokens are not among the input tokens.
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
        self.told(usage)
    }

    /// The output tokens alone, as the end of a stream of messages reports them.
    pub(crate) fn output_only(&self) -> Option<Value> {
        self.told(json!({"output_tokens": self.number(self.output)}))
    }

    fn told(&self, usage: Value) -> Option<Value> {
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
    use crate::ask::Route;
    use crate::options::OutputLength;

    fn answer(body: &Value, fault: Option<Fault>) -> Answer {
        let options =
            SimOptions { output_tokens: OutputLength::exactly(20), ..SimOptions::default() };
        let ask = Ask::read(Route::Chat, body.to_string().as_bytes(), &options).unwrap();
        Answer::new("id".to_owned(), &ask, Input::default(), fault, &options)
    }

    fn body(content: &str) -> Value {
        json!({"model": "sim", "messages": [{"role": "user", "content": content}]})
    }

    #[test]
    fn the_same_prompt_has_the_same_answer() {
        let said = |content| answer(&body(content), None).said(0);
        assert_eq!(said("Hello"), said("Hello"));
        assert_ne!(said("Hello"), said("Goodbye"));
        assert_eq!(said("Hello").split_whitespace().count(), 20);
    }

    #[test]
    fn a_limit_cuts_an_answer_short() {
        let mut ask = body("Hello");
        ask["max_tokens"] = json!(5);
        let short = answer(&ask, None);
        assert_eq!((short.choices[0].pieces, short.choices[0].cut_short), (5, true));
        ask["max_tokens"] = json!(20);
        assert!(!answer(&ask, None).choices[0].cut_short);
        assert!(answer(&body("Hello"), None).said(0).starts_with(&short.said(0)));
    }

    #[test]
    fn choices_differ_and_add_up() {
        let mut ask = body("Hello");
        ask["n"] = json!(3);
        let answer = answer(&ask, None);
        assert_ne!(answer.said(0), answer.said(1));
        assert_eq!((answer.usage.output, answer.steps(), answer.tokens_after(7)), (60, 20, 21));
    }

    #[test]
    fn an_oversized_event_is_all_in_the_first_piece() {
        let answer = answer(&body("Hello"), Some(Fault::OversizedEvent { bytes: 1000 }));
        assert!(answer.piece(0, 0).len() > 1000 && answer.piece(0, 1).len() < 20);
    }

    #[test]
    fn usage_can_lie_in_every_way() {
        let input = Input { tokens: 7, cached: Some(2) };
        let usage = |fault| Usage { input, output: 3, hidden: 0, fault };
        assert_eq!(usage(None).openai(true).unwrap()["total_tokens"], 10);
        assert_eq!(usage(None).messages(3).unwrap()["input_tokens"], 5);
        assert_eq!(usage(Some(UsageFault::Missing)).openai(true), None);
        let total = |fault| usage(Some(fault)).responses().unwrap()["total_tokens"].clone();
        assert_eq!(total(UsageFault::Negative), json!(-11));
        assert_eq!(total(UsageFault::Strings), json!("10"));
        assert_eq!(total(UsageFault::Huge), json!(1_000_000_000_000_000_010_u64));
    }
}
