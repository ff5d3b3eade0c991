//! Format of OpenAI's older text completions.

use serde_json::{Value, json};

use super::{AnswerFormat, with_usage, write, write_json_string};
use crate::answer::{AnswerChoice, SimAnswer};
use crate::request::SimRequest;

pub(super) struct CompletionsFormat {
    head: String,
    include_usage: bool,
}

impl CompletionsFormat {
    pub(super) fn new(request: &SimRequest, answer: &SimAnswer) -> Self {
        let (id, created, model) = (&answer.id, answer.created, Value::from(&*answer.model));
        let head = format!(
            r#"data: {{"id":"{id}","object":"text_completion","created":{created},"model":{model},"choices":["#
        );
        Self { head, include_usage: request.include_usage }
    }

    fn chunk(&self, out: &mut String, choice: usize, text: &str, finish: &str) {
        write(out, format_args!("{}{{\"index\":{choice},\"text\":", self.head));
        write_json_string(out, text);
        write(out, format_args!(",\"logprobs\":null,\"finish_reason\":{finish}}}]"));
        out.push_str(if self.include_usage { ",\"usage\":null}\n\n" } else { "}\n\n" });
    }
}

impl AnswerFormat for CompletionsFormat {
    fn whole(&self, answer: &SimAnswer) -> Value {
        let choices: Vec<_> = answer
            .choices
            .iter()
            .enumerate()
            .map(|(index, choice)| {
                json!({
                    "index": index, "text": answer.text(index), "logprobs": null,
                    "finish_reason": finish_reason(choice),
                })
            })
            .collect();
        let whole = json!({
            "id": answer.id, "object": "text_completion", "created": answer.created, "model": answer.model,
            "choices": choices,
        });
        with_usage(whole, answer.usage.openai(true))
    }

    fn opening(&mut self, _answer: &SimAnswer, _out: &mut String) {}

    fn piece(&mut self, answer: &SimAnswer, choice: usize, index: u64, out: &mut String) {
        self.chunk(out, choice, &answer.piece(choice, index), "null");
    }

    fn closing(&mut self, answer: &SimAnswer, out: &mut String) {
        for (index, choice) in answer.choices.iter().enumerate() {
            self.chunk(out, index, "", &format!("\"{}\"", finish_reason(choice)));
        }
        if self.include_usage
            && let Some(usage) = answer.usage.openai(true)
        {
            write(out, format_args!("{}],\"usage\":{usage}}}\n\n", self.head));
        }
        out.push_str("data: [DONE]\n\n");
    }
}

fn finish_reason(choice: &AnswerChoice) -> &'static str {
    if choice.cut_short { "length" } else { "stop" }
}
