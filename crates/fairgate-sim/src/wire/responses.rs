//! Format of OpenAI's Responses API. An answer has one output item, a message or a function call. A stream sends the
//! item as numbered events.

use serde_json::{Value, json};

use super::{AnswerFormat, with_usage, write, write_event, write_json_string};
use crate::answer::{ChoiceContent, SimAnswer};
use crate::request::SimRequest;

pub(super) struct ResponsesFormat {
    output_tokens_max: Option<u64>,
    events: u64,
}

impl ResponsesFormat {
    pub(super) fn new(request: &SimRequest) -> Self {
        Self { output_tokens_max: request.output_tokens_max, events: 0 }
    }

    fn response(&self, answer: &SimAnswer, status: &str, output: &[Value]) -> Value {
        let incomplete = (status == "incomplete").then(|| json!({"reason": "max_output_tokens"}));
        json!({
            "id": answer.id, "object": "response", "created_at": answer.created, "status": status,
            "error": null, "incomplete_details": incomplete, "instructions": null,
            "max_output_tokens": self.output_tokens_max, "model": answer.model, "output": output,
            "parallel_tool_calls": true, "previous_response_id": null,
            "reasoning": {"effort": null, "summary": null}, "store": false, "temperature": 1.0,
            "text": {"format": {"type": "text"}}, "tool_choice": "auto", "tools": [], "top_p": 1.0,
            "truncation": "disabled", "usage": null, "user": null, "metadata": {},
        })
    }

    fn ended(&self, answer: &SimAnswer) -> Value {
        let status = status(answer);
        let ended = self.response(answer, status, &[item(answer, status, Some(&answer.text(0)))]);
        with_usage(ended, answer.usage.responses())
    }

    fn event(&mut self, out: &mut String, name: &str, mut data: Value) {
        data["type"] = json!(name);
        data["sequence_number"] = json!(self.events);
        self.events += 1;
        write_event(out, name, &data);
    }
}

impl AnswerFormat for ResponsesFormat {
    fn whole(&self, answer: &SimAnswer) -> Value {
        self.ended(answer)
    }

    fn opening(&mut self, answer: &SimAnswer, out: &mut String) {
        let begun = json!({"response": self.response(answer, "in_progress", &[])});
        self.event(out, "response.created", begun.clone());
        self.event(out, "response.in_progress", begun);
        let added = json!({"output_index": 0, "item": item(answer, "in_progress", None)});
        self.event(out, "response.output_item.added", added);
        if let ChoiceContent::Text { .. } = answer.choices[0].content {
            let mut added = place(answer);
            added["part"] = part("");
            self.event(out, "response.content_part.added", added);
        }
    }

    fn piece(&mut self, answer: &SimAnswer, choice: usize, index: u64, out: &mut String) {
        let (name, place) = match &answer.choices[choice].content {
            ChoiceContent::Text { .. } => {
                ("response.output_text.delta", ",\"content_index\":0,\"logprobs\":[]")
            }
            ChoiceContent::Tool { .. } => ("response.function_call_arguments.delta", ""),
        };
        let (item_id, number) = (item_id(answer), self.events);
        self.events += 1;
        write(
            out,
            format_args!(
                "event: {name}\ndata: {{\"type\":\"{name}\",\"sequence_number\":{number},\"item_id\":\"{item_id}\",\
                 \"output_index\":0{place},\"delta\":"
            ),
        );
        write_json_string(out, &answer.piece(choice, index));
        out.push_str("}\n\n");
    }

    fn closing(&mut self, answer: &SimAnswer, out: &mut String) {
        let text = answer.text(0);
        match &answer.choices[0].content {
            ChoiceContent::Text { .. } => {
                let mut done = place(answer);
                done["text"] = json!(text);
                done["logprobs"] = json!([]);
                self.event(out, "response.output_text.done", done);
                let mut done = place(answer);
                done["part"] = part(&text);
                self.event(out, "response.content_part.done", done);
            }
            ChoiceContent::Tool { call, .. } => {
                let done = json!({
                    "item_id": item_id(answer), "output_index": 0, "name": call.name, "arguments": text,
                });
                self.event(out, "response.function_call_arguments.done", done);
            }
        }
        let status = status(answer);
        let done = json!({"output_index": 0, "item": item(answer, status, Some(&text))});
        self.event(out, "response.output_item.done", done);
        let ended = json!({"response": self.ended(answer)});
        self.event(out, &format!("response.{status}"), ended);
    }
}

fn status(answer: &SimAnswer) -> &'static str {
    if answer.choices[0].cut_short { "incomplete" } else { "completed" }
}

fn item_id(answer: &SimAnswer) -> String {
    match &answer.choices[0].content {
        ChoiceContent::Text { .. } => format!("msg_{}", answer.id),
        ChoiceContent::Tool { .. } => format!("fc_{}", answer.id),
    }
}

/// Builds the output item with the text `text`; `None` builds the empty item that a stream begins with.
fn item(answer: &SimAnswer, status: &str, text: Option<&str>) -> Value {
    let id = item_id(answer);
    match &answer.choices[0].content {
        ChoiceContent::Text { .. } => {
            let content: Vec<_> = text.map(part).into_iter().collect();
            json!({
                "id": id, "type": "message", "status": status, "role": "assistant", "content": content,
            })
        }
        ChoiceContent::Tool { call, call_id } => json!({
            "id": id, "type": "function_call", "status": status, "call_id": call_id,
            "name": call.name, "arguments": text.unwrap_or(""),
        }),
    }
}

fn part(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
}

fn place(answer: &SimAnswer) -> Value {
    json!({"item_id": item_id(answer), "output_index": 0, "content_index": 0})
}
