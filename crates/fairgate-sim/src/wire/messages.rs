//! Format of Anthropic's Messages API.

use serde_json::{Value, json};

use super::{AnswerFormat, with_usage, write_event, write_json_string};
use crate::answer::{ChoiceContent, SimAnswer};

pub(super) struct MessagesFormat;

impl AnswerFormat for MessagesFormat {
    fn whole(&self, answer: &SimAnswer) -> Value {
        let text = answer.text(0);
        let block = match &answer.choices[0].content {
            ChoiceContent::Text { .. } => json!({"type": "text", "text": text}),
            ChoiceContent::Tool { call, call_id } => {
                // A call that was cut short has incomplete arguments, which do not parse.
                let input = serde_json::from_str(&text).unwrap_or_else(|_| json!({}));
                json!({"type": "tool_use", "id": call_id, "name": call.name, "input": input})
            }
        };
        let message = message(answer, &[block], Some(stop_reason(answer)));
        with_usage(message, answer.usage.messages(answer.usage.output))
    }

    fn opening(&mut self, answer: &SimAnswer, out: &mut String) {
        let message = with_usage(message(answer, &[], None), answer.usage.messages(1));
        write_event(out, "message_start", &json!({"type": "message_start", "message": message}));
        let block = match &answer.choices[0].content {
            ChoiceContent::Text { .. } => json!({"type": "text", "text": ""}),
            ChoiceContent::Tool { call, call_id } => {
                json!({"type": "tool_use", "id": call_id, "name": call.name, "input": {}})
            }
        };
        let start = json!({"type": "content_block_start", "index": 0, "content_block": block});
        write_event(out, "content_block_start", &start);
        write_event(out, "ping", &json!({"type": "ping"}));
    }

    fn piece(&mut self, answer: &SimAnswer, choice: usize, index: u64, out: &mut String) {
        let delta = match &answer.choices[choice].content {
            ChoiceContent::Text { .. } => "\"type\":\"text_delta\",\"text\":",
            ChoiceContent::Tool { .. } => "\"type\":\"input_json_delta\",\"partial_json\":",
        };
        out.push_str("event: content_block_delta\ndata: ");
        out.push_str("{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{");
        out.push_str(delta);
        write_json_string(out, &answer.piece(choice, index));
        out.push_str("}}\n\n");
    }

    fn closing(&mut self, answer: &SimAnswer, out: &mut String) {
        write_event(out, "content_block_stop", &json!({"type": "content_block_stop", "index": 0}));
        let delta = json!({"stop_reason": stop_reason(answer), "stop_sequence": null});
        let end = json!({"type": "message_delta", "delta": delta});
        write_event(out, "message_delta", &with_usage(end, answer.usage.output_only()));
        write_event(out, "message_stop", &json!({"type": "message_stop"}));
    }
}

fn message(answer: &SimAnswer, content: &[Value], stop_reason: Option<&str>) -> Value {
    json!({
        "id": answer.id, "type": "message", "role": "assistant", "model": answer.model, "content": content,
        "stop_reason": stop_reason, "stop_sequence": null,
    })
}

fn stop_reason(answer: &SimAnswer) -> &'static str {
    let choice = &answer.choices[0];
    match &choice.content {
        _ if choice.cut_short => "max_tokens",
        ChoiceContent::Text { .. } => "end_turn",
        ChoiceContent::Tool { .. } => "tool_use",
    }
}
