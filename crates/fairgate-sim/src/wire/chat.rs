//! Format of OpenAI's chat completions.

use serde_json::{Value, json};

use super::{AnswerFormat, with_usage, write, write_json_string};
use crate::answer::{AnswerChoice, ChoiceContent, SimAnswer};
use crate::request::SimRequest;

pub(super) struct ChatFormat {
    /// JSON text with which every chunk of the stream begins.
    head: String,
    include_usage: bool,
}

impl ChatFormat {
    pub(super) fn new(request: &SimRequest, answer: &SimAnswer) -> Self {
        let (id, created, model) = (&answer.id, answer.created, Value::from(&*answer.model));
        let head = format!(
            r#"data: {{"id":"{id}","object":"chat.completion.chunk","created":{created},"model":{model},"system_fingerprint":"fp_sim","choices":["#
        );
        Self { head, include_usage: request.include_usage }
    }

    fn chunk(&self, out: &mut String, write_choice: impl FnOnce(&mut String)) {
        out.push_str(&self.head);
        write_choice(out);
        out.push_str(if self.include_usage { "],\"usage\":null}\n\n" } else { "]}\n\n" });
    }

    fn delta(&self, out: &mut String, index: usize, delta: &Value, finish: Option<&str>) {
        let choice =
            json!({"index": index, "delta": delta, "logprobs": null, "finish_reason": finish});
        self.chunk(out, |out| write(out, format_args!("{choice}")));
    }
}

impl AnswerFormat for ChatFormat {
    fn whole(&self, answer: &SimAnswer) -> Value {
        let choices: Vec<_> = answer
            .choices
            .iter()
            .enumerate()
            .map(|(index, choice)| {
                json!({
                    "index": index, "message": message(answer, index), "logprobs": null,
                    "finish_reason": finish_reason(choice),
                })
            })
            .collect();
        let whole = json!({
            "id": answer.id, "object": "chat.completion", "created": answer.created, "model": answer.model,
            "system_fingerprint": "fp_sim", "choices": choices,
        });
        with_usage(whole, answer.usage.openai(true))
    }

    fn opening(&mut self, answer: &SimAnswer, out: &mut String) {
        for (index, choice) in answer.choices.iter().enumerate() {
            let delta = match &choice.content {
                ChoiceContent::Text { .. } => {
                    json!({"role": "assistant", "content": "", "refusal": null})
                }
                ChoiceContent::Tool { call, call_id } => {
                    let function = json!({"name": call.name, "arguments": ""});
                    let call = json!({"index": 0, "id": call_id, "type": "function", "function": function});
                    json!({"role": "assistant", "content": null, "tool_calls": [call]})
                }
            };
            self.delta(out, index, &delta, None);
        }
    }

    fn piece(&mut self, answer: &SimAnswer, choice: usize, index: u64, out: &mut String) {
        let (before, after) = match &answer.choices[choice].content {
            ChoiceContent::Text { .. } => ("\"content\":", ""),
            ChoiceContent::Tool { .. } => {
                ("\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":", "}}]")
            }
        };
        self.chunk(out, |out| {
            write(out, format_args!("{{\"index\":{choice},\"delta\":{{{before}"));
            write_json_string(out, &answer.piece(choice, index));
            write(out, format_args!("{after}}},\"logprobs\":null,\"finish_reason\":null}}"));
        });
    }

    fn closing(&mut self, answer: &SimAnswer, out: &mut String) {
        for (index, choice) in answer.choices.iter().enumerate() {
            self.delta(out, index, &json!({}), Some(finish_reason(choice)));
        }
        if self.include_usage
            && let Some(usage) = answer.usage.openai(true)
        {
            write(out, format_args!("{}],\"usage\":{usage}}}\n\n", self.head));
        }
        out.push_str("data: [DONE]\n\n");
    }
}

fn message(answer: &SimAnswer, choice: usize) -> Value {
    let text = answer.text(choice);
    match &answer.choices[choice].content {
        ChoiceContent::Text { .. } => {
            json!({"role": "assistant", "content": text, "refusal": null})
        }
        ChoiceContent::Tool { call, call_id } => {
            let function = json!({"name": call.name, "arguments": text});
            let call = json!({"id": call_id, "type": "function", "function": function});
            json!({"role": "assistant", "content": null, "refusal": null, "tool_calls": [call]})
        }
    }
}

fn finish_reason(choice: &AnswerChoice) -> &'static str {
    match &choice.content {
        _ if choice.cut_short => "length",
        ChoiceContent::Text { .. } => "stop",
        ChoiceContent::Tool { .. } => "tool_calls",
    }
}
